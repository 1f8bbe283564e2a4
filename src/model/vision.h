/* vision.h — what encoders of images and of sounds share. An encoder of images is a row: its
 * parameters, its trace, its cost; most towers are layers of the same two blocks under names of
 * their own. Shape letters: B
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
    MxValue views; /* i32 [B, S] places of one number see each other; 0 = nothing stands there */
    int n_layers, first_region; /* of the tower; see vision_each */
    double epsilon;             /* of norms */
    int n_turns;                /* queries and keys are rotated: … */
    MxValue turn[2];            /* … tables of so many parts of a head, … */
    bool neighbours;            /* … of which pairs are neighbours, else of halves of a part */
    bool centers;               /* values of pixels are 0 … 1, and the patches read -1 … 1 */
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
    bool gates; /* feed-forward blocks have three kernels, not two */
};

/* A layer: x [B, S, D] through number i of them. */
typedef MxValue VisionStep(const Sight *sight, const void *own, int i, MxValue x);

typedef struct VisionKernel {
    const char *name;
    MxShape shape;
    int n_contract;
    const char *const *axes;
    MxInitKind init;
} VisionKernel;

/* ---- parameters: none of them is stacked; only attention's have logical axes */

/* vision_place — for parameters of an encoder, in no folder yet. */
Place vision_place(MxArena *arena, MxModel *model);
/* vision_bare — a leaf; vision_norm — with a scale and a bias; vision_dense — a kernel and, if it
 * has one, its bias; vision_kernel — the same with logical axes. vision_heads — query, key, value
 * and out of attention, of n_heads in a width D. */
int vision_bare(const Place *p, const char *name, MxShape shape, int n_contract, MxInit init);
Norm vision_norm(const Place *p, const char *name, int64_t width);
Dense vision_dense(const Place *p, const char *name, MxShape shape, int n_contract, bool has_bias);
Dense vision_kernel(const Place *p, const VisionKernel *kernel, bool has_bias);
void vision_heads(const Place *p, int64_t D, int64_t n_heads, bool has_biases, Dense qkv[3],
                  Dense *out);
/* vision_tower — num_hidden_layers_for_vit layers. */
Tower vision_tower(const EyePlace *place, const TowerNames *names, MxActivation activation);

/* ---- forward pass */

/* vision_frequencies — of the rotation of half a head. vision_tables — of columns and rows.
 * vision_turn — heads [B, S, N, H], rotated by them, if they are. */
MxRopeFreqs vision_frequencies(MxArena *arena, const MxConfig *c);
void vision_tables(Sight *s, MxRopeFreqs frequencies);
MxValue vision_turn(const Sight *s, MxValue x);
/* vision_patches — products of the patches with a kernel of K values each, and a bias, -1 = none:
 * [B, N, P, D].
 * vision_constrain — x [B, .., ..], divided as batches are. vision_layers — x [B, S, D] through the
 * tower; vision_each — through layers of another kind, which are regions of the graph from
 * first_region on, so that they are made again as the decoder's are. each  [layers] gets the output
 * of each, NULL = nobody asks. vision_mean — the mean of n rows that follow
 * one another: [.., n, W] to [.., W]. */
MxValue vision_patches(const Sight *s, MxValue kernel, int bias);
MxValue vision_constrain(const Sight *s, MxValue x);
MxValue vision_layers(const Sight *s, const Tower *tower, MxValue x, MxValue *each);
MxValue vision_each(const Sight *s, VisionStep *step, const void *own, MxValue x, MxValue *each);
MxValue vision_mean(MxTrace *t, MxValue x);

#define MX_ENCODER(name) extern const Eye eye_##name;
#include <mx/family_encoder.def>
#undef MX_ENCODER

#endif
