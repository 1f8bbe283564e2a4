/* vision_qwen3.c — Qwen 3's encoder of images. A picture keeps its form; its patches are products
 * with the sum of a kernel over time, as a picture stands still, and those of a token stand one
 * behind the other. Positions are mixed of those of a square of patches (mx_vision_mix); queries
 * and keys are also rotated, the first half of a head's pairs by the row, the others by the column.
 * What becomes of a square of patches is a token (merger); the outputs of some layers make rows in
 * the same way, which are added behind the decoder's first layers. Source: MaxText models/qwen3.py
 * (Qwen3OmniMoeVisionEncoder, Qwen3OmniMoeVisionPatchMerger) @e591f30c; transformers 5.23,
 * models/qwen3_vl/modeling_qwen3_vl.py.
 *
 * H is the width of a head. */
#include <mx/model.h>

#include "vision.h"

/* A square of patches becomes a row of the decoder's width. */
typedef struct Merger {
    const char *scope;
    Norm norm;
    bool norms_square; /* all of a square together, else each patch */
    Dense up, down;
} Merger;

typedef struct Leaves {
    Dense patch;
    int positions;
    Tower tower;
    MxRopeFreqs turn;
    Merger last, *deep;
    int64_t *layers; /* whose outputs the deep ones read */
} Leaves;

static Merger add_merger(const Place *outer, const MxConfig *c, const char *name,
                         bool norms_square) {
    Place p = *outer;
    p.dir = mx_path_join(p.arena, p.dir, name);
    int64_t pool = c->spatial_merge_size_for_vit, D = c->hidden_size_for_vit;
    int64_t square = pool * pool * D;
    return (Merger){.scope = p.dir,
                    .norm = vision_norm(&p, "ln_q", norms_square ? square : D),
                    .norms_square = norms_square,
                    .up = vision_dense(&p, "mlp_0", MX_SHAPE(square, square), 1, true),
                    .down = vision_dense(&p, "mlp_2", MX_SHAPE(square, c->emb_dim), 1, true)};
}

/* The first half of the pairs by the row, the second by the column. */
static MxRopeFreqs turn_of(MxArena *arena, const MxConfig *c) {
    MxRopeFreqs half = vision_frequencies(arena, c), all = half;
    uint8_t *kind = mx_new_n(arena, uint8_t, 2 * half.n);
    all.n = 2 * half.n;
    all.frequency = mx_new_n(arena, double, all.n);
    for (int i = 0; i < all.n; i++) {
        all.frequency[i] = half.frequency[i % half.n];
        kind[i] = i >= half.n;
    }
    all.kind = kind;
    return all;
}

static const void *add_params(const EyePlace *place) {
    static const TowerNames names = {
        .norm = {"ln1", "ln2"}, .attention = "attn/attn", .up = "mlp", .down = "mlp_out"};
    const MxConfig *c = place->config;
    const MxVision *v = &place->vision;
    const Place *p = &place->tower;
    int64_t D = c->hidden_size_for_vit;
    Leaves *l = mx_new(p->arena, Leaves);
    l->patch = vision_dense(
        p, "patch_embed/proj",
        MX_SHAPE(c->temporal_patch_size_for_vit, v->patch, v->patch, v->channels, D), 4, true);
    l->positions =
        vision_bare(p, "pos_embed_interpolate/pos_embed", MX_SHAPE(v->learned * v->learned, D), 0,
                    model_fan_in(MX_INIT_NORMAL, D));
    l->tower = vision_tower(place, &names, MX_GELU);
    l->turn = turn_of(p->arena, c);
    l->layers = mx_new_n(p->arena, int64_t, v->deep + 1);
    l->deep = mx_new_n(p->arena, Merger, v->deep + 1);
    mx_config_numbers(c->deepstack_visual_indexes_for_vit, (int)v->deep, l->layers);
    for (int k = 0; k < v->deep; k++)
        l->deep[k] = add_merger(p, c, mx_arena_printf(p->arena, "%s%d", v->encoder->deep, k), true);
    l->last = add_merger(&place->projector, c, "merger", false);
    return l;
}

/* A kernel [time, K.., D] as [K.., D]: each frame of a picture is the same. */
static MxValue still_kernel(const Pass *p, int leaf) {
    MxTrace *t = p->t;
    MxShape shape = p->model->params.leaves[leaf].shape;
    int64_t frames = shape.dim[0], each = mx_shape_count(shape) / frames;
    MxValue kernel = mx_reshape(t, model_param(p, leaf), MX_SHAPE(1, frames, each));
    return mx_cast(t, mx_scale(t, vision_mean(t, kernel), (double)frames), p->model->dtype);
}

/* Patches with their positions: [B, N P, D]. */
static MxValue embed(const Sight *s, const Leaves *l) {
    const Pass *p = s->pass;
    MxTrace *t = p->t;
    MxValue x = vision_patches(s, still_kernel(p, l->patch.kernel), l->patch.bias);
    MxShape shape = mx_trace_type(t, x).shape;
    int64_t B = shape.dim[0], NP = shape.dim[1] * shape.dim[2], D = shape.dim[3];
    MxValue corners = mx_embed(t, model_param(p, l->positions), s->images->corner, p->model->dtype);
    corners = mx_reshape(t, corners, MX_SHAPE(B, NP, MX_CORNERS, D));
    MxValue share = mx_reshape(t, s->images->share, MX_SHAPE(B, NP, MX_CORNERS));
    x = mx_add(t, mx_reshape(t, x, MX_SHAPE(B, NP, D)), mx_combine(t, corners, share));
    return vision_constrain(s, x);
}

/* Patches [B, N P, D] as rows [B, N tokens, E]. */
static MxValue merge(const Sight *s, const Merger *m, MxValue x) {
    const Pass *p = s->pass;
    MxTrace *t = p->t;
    MxShape shape = mx_trace_type(t, x).shape;
    int64_t square = s->vision.pool * s->vision.pool;
    const MxShape squares = MX_SHAPE(shape.dim[0], shape.dim[1] / square, square * shape.dim[2]);
    t->scope = m->scope;
    if (m->norms_square)
        x = model_norm(p, mx_reshape(t, x, squares), m->norm, s->epsilon);
    else
        x = mx_reshape(t, model_norm(p, x, m->norm, s->epsilon), squares);
    x = mx_activate(t, model_project(p, x, m->up.kernel, m->up.bias), MX_GELU_EXACT);
    return model_project(p, x, m->down.kernel, m->down.bias);
}

static MxValue see(const Sight *outer, const void *own) {
    const Pass *p = outer->pass;
    const Leaves *l = own;
    const MxValue turns[] = {outer->images->place[MX_PLACE_ROW],
                             outer->images->place[MX_PLACE_COLUMN]};
    MxArena arena = {.name = "layers"};
    MxValue *each = mx_new_n(&arena, MxValue, p->model->config->num_hidden_layers_for_vit);
    Sight s = *outer;
    s.n_turns = 1;
    s.turn[0] = mx_rope_table_of(p->t, MX_COUNT(turns), turns, l->turn);
    MxValue x = vision_layers(&s, &l->tower, embed(&s, l), each);
    MxValue rows = merge(&s, &l->last, x);
    for (int k = 0; k < s.vision.deep; k++)
        rows = mx_concat(p->t, rows, merge(&s, &l->deep[k], each[l->layers[k]]));
    mx_arena_release(&arena);
    return rows;
}

/* ---- cost */

static double merger_flops(const MxConfig *c, const MxVision *v) {
    double square = (double)(v->pool * v->pool * c->hidden_size_for_vit);
    return 2 * (double)v->tokens * square * (square + (double)c->emb_dim);
}

static double deep_flops(const MxConfig *c, const MxVision *v) {
    return (double)v->deep * merger_flops(c, v);
}

/* They differ in names alone, which are rows of the family room. */
#define QWEN3                                                                                      \
    {                                                                                              \
        .params = add_params, .see = see, .other_flops = deep_flops,                               \
        .projector_flops = merger_flops,                                                           \
    }

const Eye eye_qwen3_vl = QWEN3, eye_qwen3_5 = QWEN3, eye_qwen3_omni = QWEN3;
