/* encoders.c — the encoders of images in one table. Those that are built have a row in the file of
 * their family. */
#include <mx/family_encoder.h>

#include "rows.h"

// clang-format off
static const MxEncoder *const encoders[] = {
#define MX_ENCODER(name)  &encoder_##name,
#define MX_ENCODER_LATER(name)
#include <mx/family_encoder.def>
#undef MX_ENCODER
#undef MX_ENCODER_LATER
};

const char mx_encoders_built[] =
#define MX_ENCODER(name)  #name " "
#define MX_ENCODER_LATER(name)
#include <mx/family_encoder.def>
#undef MX_ENCODER
#undef MX_ENCODER_LATER
    ;

const char mx_encoders_later[] =
#define MX_ENCODER(name)
#define MX_ENCODER_LATER(name)  #name " "
#include <mx/family_encoder.def>
#undef MX_ENCODER
#undef MX_ENCODER_LATER
    ;
// clang-format on

const MxEncoder *mx_encoder_find(const char *name) {
    for (int i = 0; name && i < MX_COUNT(encoders); i++)
        if (!strcmp(encoders[i]->name, name)) return encoders[i];
    return NULL;
}

const MxEncoder *mx_encoder_of_hf(const char *model_type, const char *decoder_block) {
    for (int i = 0; i < MX_COUNT(encoders); i++)
        if (!strcmp(encoders[i]->hf.model_type, model_type) &&
            mx_encoder_goes_with(encoders[i], decoder_block))
            return encoders[i];
    return NULL;
}

bool mx_encoder_goes_with(const MxEncoder *encoder, const char *decoder_block) {
    size_t n = strlen(decoder_block);
    for (const char *at = encoder->decoders; (at = strstr(at, decoder_block)); at += n)
        if ((at == encoder->decoders || at[-1] == ' ') && (!at[n] || at[n] == ' ')) return true;
    return false;
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
