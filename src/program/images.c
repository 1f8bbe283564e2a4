/* images.c — the part of a program whose model has an image encoder: pixels for a batch's rows, and
 * the tokens of the rows that stand for them, as inputs of training and of evaluation; and the same
 * of sounds, where an audio encoder stands beside it. */
#include <mx/program.h>

#include "internal.h"
#include "sounds.h"

typedef struct Images {
    MxVision vision;
    int pixels, place[MX_PLACE_FACTS], index; /* inputs, and of the second … */
    int32_t *values[MX_PLACE_FACTS];          /* … what they are given; … */
    int corner, share;                        /* … the same where positions are mixed, … */
    int32_t *corners;
    float *shares;
    int mrope[MX_MROPE_KINDS];      /* … and of tokens with rows and columns */
    MxModelImages read;             /* by the pass that is being traced, as … */
    MxValue turned[MX_MROPE_KINDS]; /* … these */
    Sounds sounds;
} Images;

static bool is_wanted(const MxConfig *config) {
    return config->use_multimodal;
}

int64_t program_wide_rows(const MxConfig *c) {
    int64_t train = c->global_batch_size_to_load, eval = c->global_batch_size_to_load_eval;
    return mx_train_rows(c) * (train > eval ? train : eval);
}

/* Of so many rows; grids [rows, mx_vision_grids], NULL = all are alike. */
static void fill_places(const Images *own, const MxVisionGrid *grids, int64_t rows) {
    const MxVision *v = &own->vision;
    for (int64_t r = 0; r < rows; r++) {
        int32_t *row[MX_PLACE_FACTS];
        for (int k = 0; k < MX_PLACE_FACTS; k++) row[k] = own->values[k] + r * mx_vision_places(v);
        const MxVisionGrid *own_grids = grids ? grids + r * mx_vision_grids(v) : NULL;
        mx_vision_fill(v, own_grids, row);
        int64_t at = r * mx_vision_places(v) * MX_CORNERS;
        if (v->learned) mx_vision_mix(v, own_grids, own->corners + at, own->shares + at);
    }
}

static void give_places(MxTrainState *s, Images *own) {
    int64_t rows = program_wide_rows(s->config), n = rows * mx_vision_places(&own->vision);
    for (int k = 0; k < MX_PLACE_FACTS; k++) own->values[k] = mx_new_n(s->arena, int32_t, n);
    if (own->vision.learned) {
        own->corners = mx_new_n(s->arena, int32_t, n * MX_CORNERS);
        own->shares = mx_new_n(s->arena, float, n *MX_CORNERS);
        program_give(s, own->corner, own->corners);
        program_give(s, own->share, own->shares);
    }
    if (!mx_vision_grids(&own->vision)) fill_places(own, NULL, rows);
    for (int k = 0; k < MX_PLACE_FACTS; k++) program_give(s, own->place[k], own->values[k]);
}

static bool declare(MxTrainState *s, MxError *err) {
    (void)err;
    static const char *const names[MX_PLACE_FACTS] = {"images_view", "images_patch",
                                                      "images_column", "images_row"};
    static const char *const mropes[MX_MROPE_KINDS] = {"inputs_time", "inputs_row",
                                                       "inputs_column"};
    Images *own = program_part(s, PART_images);
    MxVision v = own->vision = mx_model_vision(s->config);
    own->pixels = program_declare_wide_input(s, "images", MX_F32, MX_SHAPE(mx_vision_row(&v)));
    for (int k = 0; k < MX_PLACE_FACTS; k++)
        own->place[k] =
            program_declare_wide_input(s, names[k], MX_I32, MX_SHAPE(mx_vision_places(&v)));
    int64_t corners = mx_vision_places(&v) * MX_CORNERS;
    if (v.learned) {
        own->corner = program_declare_wide_input(s, "images_corner", MX_I32, MX_SHAPE(corners));
        own->share = program_declare_wide_input(s, "images_share", MX_F32, MX_SHAPE(corners));
    }
    own->index = program_declare_input(s, "inputs_image", MX_I32);
    for (int k = 0; v.has_mrope && k < MX_MROPE_KINDS; k++)
        own->mrope[k] = program_declare_input(s, mropes[k], MX_I32);
    give_places(s, own);
    sounds_declare(s, &own->sounds);
    return true;
}

static void read(MxTrainState *s, MxTrace *t, bool is_eval, MxModelInputs *in) {
    Images *own = program_part(s, PART_images);
    const int *batch = s->var.batch[is_eval];
    own->read = (MxModelImages){.pixels = mx_variable(t, batch[own->pixels]),
                                .rows = MX_NONE,
                                .index = mx_variable(t, batch[own->index])};
    for (int k = 0; k < MX_PLACE_FACTS; k++)
        own->read.place[k] = mx_variable(t, batch[own->place[k]]);
    if (own->vision.learned) {
        own->read.corner = mx_variable(t, batch[own->corner]);
        own->read.share = mx_variable(t, batch[own->share]);
    }
    for (int k = 0; own->vision.has_mrope && k < MX_MROPE_KINDS; k++)
        own->turned[k] = mx_variable(t, batch[own->mrope[k]]);
    own->read.sounds = sounds_trace(t, batch, &own->sounds);
    in->images = &own->read;
    if (own->vision.has_mrope) in->mrope = own->turned;
}

void program_see(MxTrainState *s, const MxBatch *batch) {
    Images *own = program_part(s, PART_images);
    if (!own) return;
    MX_ASSERT(batch->pixels); /* the batch's part says that there are some */
    MX_ASSERT(batch->part.grids == mx_vision_grids(&own->vision));
    if (batch->grids) fill_places(own, batch->grids, batch->rows);
    program_give(s, own->pixels, batch->pixels);
    program_give(s, own->index, batch->image);
    sounds_give(&own->sounds, batch);
    for (int k = 0; own->vision.has_mrope && k < MX_MROPE_KINDS; k++)
        program_give(s, own->mrope[k], batch->mrope[k]);
}

static bool before_batch(MxTrainState *s, bool is_eval, int64_t i, const MxBatch *batch,
                         MxError *err) {
    (void)is_eval, (void)i, (void)err;
    program_see(s, batch);
    return true;
}

const Part part_images = {
    .is_wanted = is_wanted,
    .bytes = sizeof(Images),
    .declare = declare,
    .read = read,
    .before_batch = before_batch,
};
