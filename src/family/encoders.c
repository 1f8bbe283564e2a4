/* encoders.c — the encoders of images in one table. Each has a row in the file of its family. */
#include <mx/family_encoder.h>

#include "rows.h"

// clang-format off
static const MxEncoder *const encoders[] = {
#define MX_ENCODER(name)  &encoder_##name,
#include <mx/family_encoder.def>
#undef MX_ENCODER
};

const char mx_encoders_built[] =
#define MX_ENCODER(name)  #name " "
#include <mx/family_encoder.def>
#undef MX_ENCODER
    ;
// clang-format on

const MxEncoder *mx_encoder_find(const char *name) {
    for (int i = 0; name && i < MX_COUNT(encoders); i++)
        if (!strcmp(encoders[i]->name, name)) return encoders[i];
    return NULL;
}

const MxEncoder *mx_encoder_of_hf(const char *model_type, const char *decoder_block) {
    for (int i = 0; i < MX_COUNT(encoders); i++)
        if (mx_text_has_word(encoders[i]->hf.model_type, model_type) &&
            mx_encoder_goes_with(encoders[i], decoder_block))
            return encoders[i];
    return NULL;
}

bool mx_encoder_goes_with(const MxEncoder *encoder, const char *decoder_block) {
    return mx_text_has_word(encoder->decoders, decoder_block);
}

/* ---- places in a tower */

int64_t mx_vision_patch(const MxVision *v, MxVisionGrid grid, int64_t i) {
    int64_t across = grid.columns, pool = v->encoder->keeps_squares ? v->pool : 1;
    int64_t square = i / (pool * pool), within = i % (pool * pool), squares = across / pool;
    int64_t row = square / squares * pool + within / pool;
    return row * across + square % squares * pool + within % pool;
}

void mx_vision_place(const MxVision *v, const MxVisionGrid *grids, int64_t i,
                     int32_t out[MX_PLACE_FACTS]) {
    int64_t places = v->patches + v->encoder->has_class, view = i / places, within = i % places;
    MxVisionGrid grid = grids ? grids[view] : v->grid;
    int64_t first = v->encoder->first_place, patches = (int64_t)grid.rows * grid.columns;
    memset(out, 0, MX_PLACE_FACTS * sizeof *out);
    bool is_class = within == v->patches;
    if (!is_class && within >= patches) return;
    int64_t patch = is_class ? within : mx_vision_patch(v, grid, within);
    out[MX_PLACE_VIEW] = (int32_t)(view + 1);
    out[MX_PLACE_PATCH] = (int32_t)patch;
    out[MX_PLACE_COLUMN] = is_class ? 0 : (int32_t)(patch % grid.columns + first);
    out[MX_PLACE_ROW] = is_class ? 0 : (int32_t)(patch / grid.columns + first);
}

void mx_vision_fill(const MxVision *v, const MxVisionGrid *grids,
                    int32_t *const out[MX_PLACE_FACTS]) {
    int32_t facts[MX_PLACE_FACTS];
    for (int64_t i = 0; i < mx_vision_places(v); i++) {
        mx_vision_place(v, grids, i, facts);
        for (int k = 0; k < MX_PLACE_FACTS; k++) out[k][i] = facts[k];
    }
}

/* ---- positions that are mixed of learned ones */

/* Along a side: the two learned rows or columns, and how much the second counts. */
typedef struct Between {
    int64_t low, high;
    float share;
} Between;

/* As torch's linspace steps, in float: from both ends to the middle. */
static Between between(int64_t i, int64_t n, int64_t side) {
    float step = n > 1 ? (float)(side - 1) / (float)(n - 1) : 0;
    float at = i < n / 2 ? step * (float)i : (float)(side - 1) - step * (float)(n - 1 - i);
    if (n == 1) at = 0;
    int64_t low = (int64_t)at, high = low + 1 < side ? low + 1 : side - 1;
    return (Between){low, high, at - (float)low};
}

static void mix_place(const MxVision *v, MxVisionGrid grid, int64_t patch, int32_t *corner,
                      float *share) {
    const Between y = between(patch / grid.columns, grid.rows, v->learned);
    const Between x = between(patch % grid.columns, grid.columns, v->learned);
    for (int k = 0; k < MX_CORNERS; k++) {
        bool lower = k / 2, right = k % 2;
        int64_t row = lower ? y.high : y.low, column = right ? x.high : x.low;
        corner[k] = (int32_t)(row * v->learned + column);
        share[k] = (lower ? y.share : 1 - y.share) * (right ? x.share : 1 - x.share);
    }
}

void mx_vision_mix(const MxVision *v, const MxVisionGrid *grids, int32_t *corner, float *share) {
    int64_t n = mx_vision_places(v);
    memset(corner, 0, (size_t)(n * MX_CORNERS) * sizeof *corner);
    memset(share, 0, (size_t)(n * MX_CORNERS) * sizeof *share);
    for (int64_t i = 0; i < n; i++) {
        MxVisionGrid grid = grids ? grids[i / v->patches] : v->grid;
        int64_t within = i % v->patches;
        if (within >= (int64_t)grid.rows * grid.columns) continue;
        mix_place(v, grid, mx_vision_patch(v, grid, within), corner + i * MX_CORNERS,
                  share + i * MX_CORNERS);
    }
}

/* ---- positions in the decoder */

static void set_mrope(int32_t *const out[MX_MROPE_KINDS], int64_t t, int64_t time, int64_t row,
                      int64_t column) {
    out[MX_MROPE_TIME][t] = (int32_t)time;
    out[MX_MROPE_ROW][t] = (int32_t)row;
    out[MX_MROPE_COLUMN][t] = (int32_t)column;
}

int64_t mx_vision_mrope(const MxVision *v, const MxVisionGrid *grids, const int32_t *index,
                        const int32_t *position, int64_t length,
                        int32_t *const out[MX_MROPE_KINDS]) {
    int64_t shift = 0, start = 0, rows_of_images = mx_vision_rows(v);
    for (int64_t t = 0; t < length; t++) {
        int64_t at = position ? position[t] : t;
        if (!at) shift = 0;
        if (!index[t] || index[t] > rows_of_images) {
            set_mrope(out, t, at + shift, at + shift, at + shift);
            continue;
        }
        MxVisionGrid grid = grids ? grids[(index[t] - 1) / v->tokens] : v->grid;
        int64_t rows = grid.rows / v->pool, columns = grid.columns / v->pool;
        int64_t k = (index[t] - 1) % v->tokens;
        if (!k) {
            start = at + shift;
            shift += (rows > columns ? rows : columns) - rows * columns;
        }
        set_mrope(out, t, start, start + k / columns, start + k % columns);
    }
    return shift;
}
