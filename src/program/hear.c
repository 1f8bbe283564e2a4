/* hear.c — sounds in generation: the chunks of a sound that see each other pass through the audio
 * encoder together, and the resulting rows are kept beside those of images (see.c). */
#include "sounds.h"

static bool hears(const MxTrainState *s) {
    return s->generation.seen > 0 && mx_model_hearing(s->config).encoder;
}

/* Chunks that see each other. */
static MxHearing window_of(const MxTrainState *s) {
    MxHearing h = mx_model_hearing(s->config);
    h.chunks = h.span;
    return h;
}

static int add_var(MxTrainState *s, const char *name, MxDtype dtype, int64_t n) {
    return program_add_var(s, "hear", name, (MxType){dtype, MX_SHAPE(1, n)});
}

void program_declare_hear(MxTrainState *s) {
    static const char *const ended[] = {"ended_1", "ended_2"};
    if (!hears(s)) return;
    const MxHearing h = window_of(s);
    const int64_t places = mx_audio_places(&h);
    s->hear = (HearVars){
        .patches = add_var(s, "patches", MX_F32, mx_audio_patches(&h) * MX_AUDIO_TAPS),
        .window = add_var(s, "window", MX_I32, places),
        .place = add_var(s, "place", MX_I32, places),
        .positions = add_var(s, "positions", MX_I32, places),
        .sequences = program_add_var(s, "hear", "sequences", (MxType){MX_I32, MX_SHAPE(1)})};
    for (int i = 0; i < MX_AUDIO_CONVS - 1; i++)
        s->hear.ended[i] = add_var(s, ended[i], MX_I32, h.chunks * mx_audio_side(h.frames, i + 1));
}

/* ---- the entry */

static void trace_hear(MxTrainState *s, MxTrace *t) {
    const HearVars *v = &s->hear;
    MxModelSounds sounds = {.patches = mx_variable(t, v->patches),
                            .window = mx_variable(t, v->window),
                            .place = mx_variable(t, v->place)};
    for (int i = 0; i < MX_AUDIO_CONVS - 1; i++) sounds.ended[i] = mx_variable(t, v->ended[i]);
    MxValue rows = mx_model_hear(t, s->model, program_read_held(s, t), &sounds);
    MxCachePlace place = {.positions = mx_variable(t, v->positions),
                          .sequences = mx_variable(t, v->sequences)};
    mx_trace_assign(t, mx_cache_write(t, mx_variable(t, s->see.rows), rows, place), s->see.rows,
                    false);
}

const Entry entry_hear = {.name = "hear", .trace = trace_hear, .is_wanted = hears};

/* ---- running */

/* n chunks, of a sound of which `before` have passed already. */
static void hear_window(MxTrainState *s, const float *frames, const int32_t *left, int64_t before,
                        int64_t n, int64_t at) {
    MxArena arena = {.name = "sound"};
    const MxHearing h = window_of(s);
    const int64_t places = mx_audio_places(&h), width = h.frames * h.bins;
    int32_t *positions = mx_new_n(&arena, int32_t, places), sequence = 0;
    int32_t *all_left = mx_new_n(&arena, int32_t, h.chunks);
    float *all = mx_new_n(&arena, float, h.chunks *width);
    MxAudioFacts facts = sounds_room(&arena, &h, 1);
    memcpy(all_left, left, (size_t)n * sizeof *left);
    memcpy(all, frames, (size_t)(n * width) * sizeof *all);
    mx_audio_fill(&h, all_left, before, all, facts);
    for (int64_t i = 0; i < places; i++) { /* of a last chunk only what is left of it */
        positions[i] = facts.window[i] ? (int32_t)(at + i) : -1;
        MX_ASSERT(positions[i] < s->generation.seen);
    }
    program_write_all(s, s->hear.patches, facts.patch);
    program_write_all(s, s->hear.window, facts.window);
    program_write_all(s, s->hear.place, facts.place);
    for (int i = 0; i < MX_AUDIO_CONVS - 1; i++)
        program_write_all(s, s->hear.ended[i], facts.ended[i]);
    program_write_all(s, s->hear.positions, positions);
    program_write_all(s, s->hear.sequences, &sequence);
    program_run_entry(s, &entry_hear);
    mx_arena_release(&arena);
}

void mx_generation_hear(MxTrainState *s, const float *frames, const int32_t *left, int64_t chunks,
                        int64_t at) {
    const MxHearing h = mx_model_hearing(s->config);
    int64_t before = 0;
    MX_ASSERT(hears(s) && at >= 0);
    for (int64_t i = 0, n; i < chunks; i += n) {
        const int64_t follow = mx_audio_chunks(&h, left[i]);
        n = follow < h.span ? follow : h.span;
        hear_window(s, frames + i * h.frames * h.bins, left + i, before, n,
                    at + i * mx_audio_tokens(&h));
        before = n < follow ? before + n : 0;
    }
}
