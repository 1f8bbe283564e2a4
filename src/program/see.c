/* see.c — images in generation: one view of an image at a time passes through the encoder, and the
 * resulting rows are kept for the pieces of the prompt that read them. */
#include <mx/program.h>

#include "internal.h"

/* One view, as the tower has it. */
static MxVision view_of(const MxTrainState *s) {
    MxVision v = mx_model_vision(s->config);
    MX_ASSERT(v.encoder);
    v.tiles = v.images = 1;
    return v;
}

int64_t program_seen_most(const MxConfig *c) {
    const MxVision v = mx_model_vision(c);
    const MxHearing h = mx_model_hearing(c);
    return mx_vision_rows(&v) + mx_audio_places(&h);
}

void mx_generation_make_room(const MxConfig *c, MxGeneration *what) {
    const MxVision v = mx_model_vision(c);
    if (!what->seen) return;
    what->seen = (what->seen + v.tokens - 1) / v.tokens * v.tokens;
    if (v.encoder->sees_itself && what->chunk < v.tokens) what->chunk = v.tokens;
    if (what->capacity < what->chunk) what->capacity = what->chunk;
}

void program_declare_see(MxTrainState *s) {
    if (!s->generation.seen) return;
    const MxVision v = view_of(s);
    const MxType places = {MX_I32, MX_SHAPE(1, mx_vision_places(&v))};
    MxDtype dtype;
    bool known = mx_dtype_parse(s->config->dtype, &dtype);
    MX_ASSERT(known && v.tokens <= s->generation.seen);
    s->see = (SeeVars){
        .pixels =
            program_add_var(s, "see", "pixels", (MxType){MX_F32, MX_SHAPE(1, mx_vision_row(&v))}),
        .positions =
            program_add_var(s, "see", "positions", (MxType){MX_I32, MX_SHAPE(1, v.tokens)}),
        .sequences = program_add_var(s, "see", "sequences", (MxType){MX_I32, MX_SHAPE(1)}),
        .rows = program_add_var(
            s, "see", "rows",
            (MxType){dtype, MX_SHAPE(1, s->generation.seen, (1 + v.deep) * s->config->emb_dim)}),
    };
    const MxShape corners = MX_SHAPE(1, mx_vision_places(&v) * MX_CORNERS);
    if (v.learned) {
        s->see.corner = program_add_var(s, "see", "corner", (MxType){MX_I32, corners});
        s->see.share = program_add_var(s, "see", "share", (MxType){MX_F32, corners});
    }
    for (int k = 0; k < MX_PLACE_FACTS; k++)
        s->see.place[k] =
            program_add_var(s, "see", mx_arena_printf(s->arena, "place_%d", k), places);
}

/* ---- the entry */

static void trace_see(MxTrainState *s, MxTrace *t) {
    const SeeVars *v = &s->see;
    MxModelImages images = {.pixels = mx_variable(t, v->pixels), .rows = MX_NONE, .index = MX_NONE};
    for (int k = 0; k < MX_PLACE_FACTS; k++) images.place[k] = mx_variable(t, v->place[k]);
    if (mx_model_vision(s->config).learned) {
        images.corner = mx_variable(t, v->corner);
        images.share = mx_variable(t, v->share);
    }
    MxValue rows = mx_model_see(t, s->model, program_read_held(s, t), &images);
    MxCachePlace place = {.positions = mx_variable(t, v->positions),
                          .sequences = mx_variable(t, v->sequences)};
    mx_trace_assign(t, mx_cache_write(t, mx_variable(t, v->rows), rows, place), v->rows, false);
}

static bool wants_see(const MxTrainState *s) {
    return s->generation.seen > 0;
}

const Entry entry_see = {.name = "see", .trace = trace_see, .is_wanted = wants_see};

/* ---- running */

static void write_mixed(MxTrainState *s, MxArena *arena, const MxVision *view,
                        const MxVisionGrid *grid) {
    const int64_t n = mx_vision_places(view) * MX_CORNERS;
    int32_t *corner = mx_new_n(arena, int32_t, n);
    float *share = mx_new_n(arena, float, n);
    mx_vision_mix(view, grid, corner, share);
    program_write_all(s, s->see.corner, corner);
    program_write_all(s, s->see.share, share);
}

void mx_generation_see(MxTrainState *s, const float *pixels, const MxVisionGrid *grid, int64_t at) {
    MxArena arena = {.name = "view"};
    const MxVision view = view_of(s);
    const int64_t places = mx_vision_places(&view);
    int32_t *positions = mx_new_n(&arena, int32_t, view.tokens), sequence = 0;
    int32_t *place[MX_PLACE_FACTS];
    MX_ASSERT(at >= 0 && at + view.tokens <= s->generation.seen);
    for (int64_t i = 0; i < view.tokens; i++) positions[i] = (int32_t)(at + i);
    for (int k = 0; k < MX_PLACE_FACTS; k++) place[k] = mx_new_n(&arena, int32_t, places);
    mx_vision_fill(&view, grid, place);
    for (int k = 0; k < MX_PLACE_FACTS; k++) program_write_all(s, s->see.place[k], place[k]);
    if (view.learned) write_mixed(s, &arena, &view, grid);
    program_write_all(s, s->see.pixels, pixels);
    program_write_all(s, s->see.positions, positions);
    program_write_all(s, s->see.sequences, &sequence);
    program_run_entry(s, &entry_see);
    mx_arena_release(&arena);
}
