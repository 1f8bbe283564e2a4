/* batch_views.c — what a row of a batch shows as a prompt has it: views and chunks that are there,
 * with no room for more between them. */
#include <mx/data_images.h>

static int64_t count_chunks(const int32_t *left, int64_t n) {
    int64_t chunks = 0;
    while (left && chunks < n && left[chunks]) chunks++;
    return chunks;
}

const int32_t *mx_batch_views(MxArena *arena, const MxVision *vision, const MxHearing *hearing,
                              const MxBatch *batch, int64_t row, int64_t n, MxViews *out) {
    const MxBatchPart *part = &batch->part;
    const int64_t most = mx_vision_rows(vision);
    const int32_t *from = batch->image + row * batch->length;
    MX_ASSERT(batch->image && n <= batch->length && part->length == batch->length);
    *out = (MxViews){.pixels = batch->pixels + row * part->pixels};
    if (batch->grids) out->grids = batch->grids + row * part->grids;
    if (batch->left) {
        out->frames = batch->frames + row * part->frames;
        out->left = batch->left + row * part->chunks;
        out->chunks = count_chunks(out->left, hearing->chunks);
    }
    for (int64_t t = 0; t < n; t++) {
        const int64_t view = from[t] > most ? 0 : (from[t] + vision->tokens - 1) / vision->tokens;
        if (view > out->n) out->n = view;
    }
    if (!out->n && !out->chunks) return NULL;
    int32_t *index = mx_new_n(arena, int32_t, n);
    for (int64_t t = 0; t < n; t++) {
        const bool is_sound = from[t] > most;
        index[t] = from[t] - (is_sound ? (int32_t)(most - out->n * vision->tokens) : 0);
    }
    return index;
}
