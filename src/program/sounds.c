/* sounds.c — the sounds of a batch's rows: patches for the audio encoder's first product, and what
 * it is told of places, made of the frames that batches have. */
#include "sounds.h"

/* Values of a row. */
static int64_t n_patches(const MxHearing *h) {
    return mx_audio_patches(h) * MX_AUDIO_TAPS;
}

static int64_t n_ended(const MxHearing *h, int i) {
    return h->chunks * mx_audio_side(h->frames, i + 1);
}

MxAudioFacts sounds_room(MxArena *arena, const MxHearing *h, int64_t rows) {
    MxAudioFacts facts = {.window = mx_new_n(arena, int32_t, rows * mx_audio_places(h)),
                          .place = mx_new_n(arena, int32_t, rows * mx_audio_places(h)),
                          .patch = mx_new_n(arena, float, rows *n_patches(h))};
    for (int i = 0; i < MX_AUDIO_CONVS - 1; i++)
        facts.ended[i] = mx_new_n(arena, int32_t, rows * n_ended(h, i));
    return facts;
}

MxAudioFacts sounds_row(const MxHearing *h, MxAudioFacts all, int64_t r) {
    all.window += r * mx_audio_places(h);
    all.place += r * mx_audio_places(h);
    all.patch += r * n_patches(h);
    for (int i = 0; i < MX_AUDIO_CONVS - 1; i++) all.ended[i] += r * n_ended(h, i);
    return all;
}

void sounds_declare(MxTrainState *s, Sounds *own) {
    static const char *const ended[] = {"sounds_ended_1", "sounds_ended_2"};
    const MxHearing *h = &own->hearing;
    own->hearing = mx_model_hearing(s->config);
    if (!h->encoder) return;
    const MxShape places = MX_SHAPE(mx_audio_places(h));
    own->patches = program_declare_wide_input(s, "sounds", MX_F32, MX_SHAPE(n_patches(h)));
    own->window = program_declare_wide_input(s, "sounds_window", MX_I32, places);
    own->place = program_declare_wide_input(s, "sounds_place", MX_I32, places);
    for (int i = 0; i < MX_AUDIO_CONVS - 1; i++)
        own->ended[i] = program_declare_wide_input(s, ended[i], MX_I32, MX_SHAPE(n_ended(h, i)));
    own->facts = sounds_room(s->arena, h, program_wide_rows(s->config));
    program_give(s, own->patches, own->facts.patch);
    program_give(s, own->window, own->facts.window);
    program_give(s, own->place, own->facts.place);
    for (int i = 0; i < MX_AUDIO_CONVS - 1; i++)
        program_give(s, own->ended[i], own->facts.ended[i]);
}

const MxModelSounds *sounds_trace(MxTrace *t, const int *batch, Sounds *own) {
    if (!own->hearing.encoder) return NULL;
    own->read = (MxModelSounds){.patches = mx_variable(t, batch[own->patches]),
                                .window = mx_variable(t, batch[own->window]),
                                .place = mx_variable(t, batch[own->place])};
    for (int i = 0; i < MX_AUDIO_CONVS - 1; i++)
        own->read.ended[i] = mx_variable(t, batch[own->ended[i]]);
    return &own->read;
}

void sounds_give(Sounds *own, const MxBatch *batch) {
    const MxHearing *h = &own->hearing;
    if (!h->encoder) return;
    MX_ASSERT(batch->left && batch->part.chunks == h->chunks);
    for (int64_t r = 0; r < batch->rows; r++)
        mx_audio_fill(h, batch->left + r * h->chunks, 0, batch->frames + r * mx_audio_row(h),
                      sounds_row(h, own->facts, r));
}
