/* vision.h — what encoders of images share. An encoder is a row: its parameters, its trace, its
 * cost; most towers are layers of the same two blocks under names of their own. Shape letters: B
 * batch, N views of a row, P patches of a view, K values of a patch, D the tower's width, E the
 * decoder's, S places of a row in the tower. */
#ifndef MODEL_VISION_H
#define MODEL_VISION_H

#include "internal.h"

/* What the parts of a tower's layer are called. */
typedef struct TowerNames {
    const char *norm[2], *attention, *up, *down;
} TowerNames;

/* A layer: x + attention(norm(x)), x + down(activation(up(norm(x)))), all with biases. */
typedef struct TowerLayer {
    const char *scope;
    Norm norm[2];
    Dense qkv[3], out, up, down;
} TowerLayer;

typedef struct Tower {
    TowerLayer *layers;
    MxActivation activation;
} Tower;

/* An encoder in the making. */
typedef struct EyePlace {
    Place tower, projector;
    const MxConfig *config;
    MxVision vision;
} EyePlace;

/* What a forward pass of a tower needs. */
typedef struct Sight {
    const Pass *pass;
    MxVision vision;
    const MxModelImages *images;
    double epsilon;  /* of norms */
    bool turns;      /* queries and keys are rotated: … */
    MxValue turn[2]; /* … tables of the first and of the second half of a head, neighbours */
} Sight;

/* A row. */
struct Eye {
    /* Adds the parameters; returns their indices, in the arena. */
    const void *(*params)(const EyePlace *place);
    /* Rows [B, N · tokens of a view, E]. */
    MxValue (*see)(const Sight *sight, const void *own);
    /* Of a forward pass over one view: products with weights of the projector, and with those of
     * the tower that are neither of patches nor in a layer; NULL = none. */
    double (*projector_flops)(const MxConfig *config, const MxVision *vision);
    double (*other_flops)(const MxConfig *config, const MxVision *vision);
};

/* ---- parameters: none of them is stacked; only attention's have logical axes */

/* vision_bare — a leaf; vision_norm — with a scale and a bias; vision_dense — a kernel and, if it
 * has one, its bias. */
int vision_bare(const Place *p, const char *name, MxShape shape, int n_contract, MxInit init);
Norm vision_norm(const Place *p, const char *name, int64_t width);
Dense vision_dense(const Place *p, const char *name, MxShape shape, int n_contract, bool has_bias);
/* vision_tower — num_hidden_layers_for_vit layers. */
Tower vision_tower(const EyePlace *place, const TowerNames *names, MxActivation activation);

/* ---- forward pass */

/* vision_patches — products of the patches with a kernel of K values each: [B, N, P, D].
 * vision_constrain — x [B, .., ..], divided as batches are. vision_layers — x [B, S, D] through the
 * tower. */
MxValue vision_patches(const Sight *s, Dense patch);
MxValue vision_constrain(const Sight *s, MxValue x);
MxValue vision_layers(const Sight *s, const Tower *tower, MxValue x);

#define MX_ENCODER(name) extern const Eye eye_##name;
#define MX_ENCODER_LATER(name)
#include <mx/family_encoder.def>
#undef MX_ENCODER
#undef MX_ENCODER_LATER

#endif
