/* same.c — prompts that are the same go through the model once. */
#include "row.h"

#include <mx/model.h>

static bool is_same(const void *a, const void *b, int64_t n, size_t bytes) {
    return !n || !memcmp(a, b, (size_t)n * bytes);
}

static bool show_the_same(const MxTrainState *state, const MxPrompt *a, const MxPrompt *b) {
    const MxConfig *c = mx_train_state_config(state);
    const MxVision v = mx_model_vision(c);
    const MxHearing h = mx_model_hearing(c);
    const MxViews *of_a = &a->views, *of_b = &b->views;
    if (!a->image || !b->image) return !a->image && !b->image;
    return of_a->n == of_b->n && of_a->chunks == of_b->chunks &&
           is_same(a->image, b->image, a->tokens.n, sizeof *a->image) &&
           is_same(of_a->pixels, of_b->pixels, of_a->n * mx_vision_pixels(&v) * v.channels,
                   sizeof *of_a->pixels) &&
           is_same(of_a->frames, of_b->frames, of_a->chunks * h.frames * h.bins,
                   sizeof *of_a->frames);
}

bool prompts_are_same(const MxTrainState *state, const MxPrompt *a, const MxPrompt *b) {
    return a->tokens.n == b->tokens.n &&
           is_same(a->tokens.ids, b->tokens.ids, a->tokens.n, sizeof *a->tokens.ids) &&
           show_the_same(state, a, b);
}
