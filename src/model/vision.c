/* vision.c — encoders of images: a tower of transformer layers over patches, whose output becomes
 * fewer tokens of the decoder's width. An encoder is a row: its parameters, its trace, its cost,
 * and what its tokens are called.
 *
 * gemma3: SigLIP. Patches are a product, positions are learned, layers have norms before each
 * block, all patches of an image see each other; the mean of each square of patches is a token,
 * which is normed and projected. Source: MaxText models/gemma3.py (Gemma3VisionEncoderLayer,
 * VisionEmbedder), layers/encoders.py @e591f30c.
 *
 * Shape letters: B batch, N images of a row, P patches of an image, K values of a patch, D the
 * tower's width, E the decoder's. */
#include <mx/model.h>

#include "internal.h"

#include <math.h>
#include <stdlib.h>

typedef struct VisionLayer {
    const char *scope;
    Norm norm[2];
    Dense qkv[3], out, up, down;
} VisionLayer;

struct Vision {
    Dense patch;
    int positions, projection;
    VisionLayer *layers;
    Norm last_norm, soft_norm;
};

/* ---- sizes */

enum { GEMMA3_TOKENS = 256 }; /* where vision_output_length does not say */

MxVision mx_model_vision(const MxConfig *c) {
    if (!c->use_multimodal) return (MxVision){0};
    MxVision v = {.images = c->max_num_images_per_example > 0 ? c->max_num_images_per_example : 1,
                  .size = strtoll(c->image_size_for_vit->text, NULL, 10),
                  .patch = c->patch_size_for_vit,
                  .channels = c->num_channels_for_vit,
                  .tokens = c->vision_output_length > 0 ? c->vision_output_length : GEMMA3_TOKENS,
                  .begin = "<start_of_image>",
                  .token = "<image_soft_token>",
                  .end = "<end_of_image>",
                  .around = "\n\n"};
    v.patches = v.size / v.patch * (v.size / v.patch);
    return v;
}

static int64_t side_of(int64_t square) {
    return llround(sqrt((double)square));
}

/* ---- parameters */

/* None of them is stacked; only attention's have logical axes. */
static int add_bare(const Place *p, const char *name, MxShape shape, int n_contract, MxInit init) {
    int leaf = model_add(p, name, shape, n_contract, AXES(NULL, NULL, NULL, NULL), init);
    p->tree->leaves[leaf].bare = MX_AXES_NONE;
    return leaf;
}

static Norm add_norm(const Place *p, const char *name, int64_t width) {
    MxInit ones = {.kind = MX_INIT_ONES}, zeros = {.kind = MX_INIT_ZEROS};
    const char *scale = mx_path_join(p->arena, name, "scale");
    const char *bias = mx_path_join(p->arena, name, "bias");
    return (Norm){.kind = MX_NORM_LAYER_PLAIN,
                  .scale = add_bare(p, scale, MX_SHAPE(width), 1, ones),
                  .bias = add_bare(p, bias, MX_SHAPE(width), 0, zeros)};
}

static Dense add_dense(const Place *p, const char *name, MxShape shape, int n_contract) {
    int64_t fan_in = 1;
    for (int d = 0; d < n_contract; d++) fan_in *= shape.dim[d];
    MxInit init = model_fan_in(MX_INIT_TRUNCATED_NORMAL, fan_in), zeros = {.kind = MX_INIT_ZEROS};
    const char *kernel = mx_path_join(p->arena, name, "kernel");
    const char *bias = mx_path_join(p->arena, name, "bias");
    MxShape width = MX_SHAPE(shape.dim[shape.rank - 1]);
    Dense dense = {.kernel = add_bare(p, kernel, shape, n_contract, init)};
    dense.bias = add_bare(p, bias, width, 0, zeros);
    return dense;
}

/* A kernel of attention and its bias, with the axes of any attention. */
static Dense add_heads(const Place *p, const char *name, MxShape shape, int n_contract,
                       const char *const *axes) {
    MxShape bias = {.rank = shape.rank - n_contract};
    int64_t fan_in = 1;
    for (int d = 0; d < n_contract; d++) fan_in *= shape.dim[d];
    for (int d = 0; d < bias.rank; d++) bias.dim[d] = shape.dim[n_contract + d];
    Dense dense = {.kernel = model_add(p, mx_path_join(p->arena, name, "kernel"), shape, n_contract,
                                       axes, model_fan_in(MX_INIT_NORMAL, fan_in))};
    dense.bias = model_add(p, mx_path_join(p->arena, name, "bias"), bias, 0, axes + n_contract,
                           (MxInit){.kind = MX_INIT_ZEROS});
    return dense;
}

static void add_layer(const Place *tower, const MxConfig *c, int i, VisionLayer *l) {
    int64_t D = c->hidden_size_for_vit, M = c->intermediate_size_for_vit;
    int64_t N = c->num_attention_heads_for_vit, H = D / N;
    static const char *const names[] = {"query", "key", "value"};
    const char *const *kv_axes = AXES("embed", "kv_heads", "kv_head_dim");
    Place p = *tower;
    p.dir = l->scope = mx_arena_printf(p.arena, "%s/Transformer/encoderblock_%d", tower->dir, i);
    l->norm[0] = add_norm(&p, "LayerNorm_0", D);
    Place attention = p;
    attention.block = "MultiHeadDotProductAttention_0";
    for (int k = 0; k < 3; k++)
        l->qkv[k] = add_heads(&attention, names[k], MX_SHAPE(D, N, H), 1,
                              k ? kv_axes : AXES("embed", "q_heads", "kv"));
    l->out = add_heads(&attention, "out", MX_SHAPE(N, H, D), 2, AXES("heads", "kv", "embed"));
    l->norm[1] = add_norm(&p, "LayerNorm_1", D);
    p.block = "MlpBlockViT_0";
    l->up = add_dense(&p, "Dense_0", MX_SHAPE(D, M), 1);
    l->down = add_dense(&p, "Dense_1", MX_SHAPE(M, D), 1);
}

static void add_tower(const Place *p, const MxConfig *c, Vision *v) {
    MxVision sizes = mx_model_vision(c);
    int64_t D = c->hidden_size_for_vit, n = c->num_hidden_layers_for_vit;
    v->patch = add_dense(p, "embedding", MX_SHAPE(sizes.patch, sizes.patch, sizes.channels, D), 3);
    v->positions = add_bare(p, "pos_embedding", MX_SHAPE(1, sizes.patches, D), 0,
                            (MxInit){.kind = MX_INIT_NORMAL, .std = 1 / sqrt((double)D)});
    v->layers = mx_new_n(p->arena, VisionLayer, n);
    for (int i = 0; i < n; i++) add_layer(p, c, i, &v->layers[i]);
    v->last_norm = add_norm(p, "Transformer/encoder_norm", D);
}

/* Adapters leave the whole base frozen, so that nothing here is frozen besides. */
void model_add_vision(MxArena *arena, MxModel *model) {
    const MxConfig *c = model->config;
    Vision *v = mx_new(arena, Vision);
    Place p = {.arena = arena,
               .tree = &model->params,
               .dtype = model->params.leaves[model->embedding].dtype,
               .dir = "vision_encoder/Gemma3VisionEncoderLayer_0",
               .block = ""};
    bool freezes = c->freeze_vision_encoder_params && !c->enable_lora;
    p.kind = freezes ? MX_KIND_FROZEN : MX_KIND_PARAM;
    add_tower(&p, c, v);
    p.kind = MX_KIND_PARAM;
    p.dir = "vision_encoder/VisionEmbedder_0";
    p.norm = MX_NORM_RMS;
    v->soft_norm = model_add_norm(&p, "mm_soft_embedding_norm", c->hidden_size_for_vit);
    v->projection =
        add_bare(&p, "mm_input_projection/w", MX_SHAPE(c->hidden_size_for_vit, c->emb_dim), 1,
                 (MxInit){.kind = MX_INIT_NORMAL, .std = 0.01});
    model->vision = v;
}

/* ---- forward pass */

static MxValue constrain(const Pass *p, MxValue x) {
    return mx_trace_constrain(p->t, x, AXES("activation_batch", NULL, NULL));
}

static MxValue attend(const Pass *p, const VisionLayer *l, MxValue x, MxValue segments) {
    MxValue qkv[3];
    model_project_each(p, x, 3, l->qkv, qkv);
    MxShape heads = mx_trace_type(p->t, qkv[0]).shape;
    MxAttentionAttr attr = {.scale = 1 / sqrt((double)heads.dim[3]), .mask = MX_MASK_FULL};
    MxValue o = mx_attention(p->t, qkv[0], qkv[1], qkv[2], segments, attr);
    return model_project(p, o, l->out.kernel, l->out.bias);
}

static MxValue feed_forward(const Pass *p, const VisionLayer *l, MxValue x) {
    MxValue hidden = mx_activate(p->t, model_project(p, x, l->up.kernel, l->up.bias), MX_GELU);
    return model_project(p, model_drop(p, hidden), l->down.kernel, l->down.bias);
}

static MxValue layer(const Pass *p, const VisionLayer *l, MxValue x, MxValue segments) {
    double epsilon = p->model->config->normalization_layer_epsilon;
    p->t->scope = l->scope;
    MxValue y = attend(p, l, model_norm(p, x, l->norm[0], epsilon), segments);
    x = constrain(p, mx_add(p->t, x, model_drop(p, y)));
    y = feed_forward(p, l, model_norm(p, x, l->norm[1], epsilon));
    return constrain(p, mx_add(p->t, x, model_drop(p, y)));
}

/* Patches as rows of the tower's width, those of an image with its positions: [B, N P, D]. */
static MxValue embed(const Pass *p, const Vision *v, MxValue pixels) {
    MxTrace *t = p->t;
    const MxConfig *c = p->model->config;
    MxVision s = mx_model_vision(c);
    int64_t B = mx_trace_type(t, pixels).shape.dim[0], D = c->hidden_size_for_vit;
    int64_t K = s.patch * s.patch * s.channels;
    MxValue x =
        mx_reshape(t, mx_cast(t, pixels, p->model->dtype), MX_SHAPE(B, s.images, s.patches, K));
    MxValue kernel = mx_reshape(t, model_weight(p, v->patch.kernel), MX_SHAPE(K, D));
    x = mx_add(t, mx_dot(t, x, kernel, MX_DOT_NN, 1), model_weight(p, v->patch.bias));
    MxValue positions = mx_reshape(t, model_weight(p, v->positions), MX_SHAPE(s.patches, D));
    x = mx_reshape(t, mx_add(t, x, positions), MX_SHAPE(B, s.images * s.patches, D));
    return model_drop(p, constrain(p, x));
}

/* The mean of n rows that follow one another: [.., n, W] to [.., W]. */
static MxValue mean_of(MxTrace *t, MxValue x) {
    MxShape shape = mx_trace_type(t, x).shape;
    int64_t n = shape.dim[--shape.rank - 1];
    MxInitAttr share = {.type = {MX_F32, shape}, .fill = MX_FILL_CONSTANT, .value = 1 / (double)n};
    return mx_combine(t, x, mx_init(t, share));
}

/* Squares of patches become tokens: the mean of neighbours in a row, then that of rows. */
static MxValue pool(const Pass *p, MxValue x) {
    MxTrace *t = p->t;
    MxVision s = mx_model_vision(p->model->config);
    MxShape shape = mx_trace_type(t, x).shape;
    int64_t B = shape.dim[0], D = shape.dim[2], N = s.images;
    int64_t side = side_of(s.tokens), width = side_of(s.patches) / side;
    if (width == 1) return x;
    x = mean_of(t, mx_reshape(t, x, MX_SHAPE(B, N * side * width * side, width, D)));
    x = mean_of(t, mx_reshape(t, x, MX_SHAPE(B, N * side, width, side * D)));
    return mx_reshape(t, x, MX_SHAPE(B, N * s.tokens, D));
}

/* Regions behind those of the decoder's layers, so that layers of the tower are made again as those
 * are. */
MxValue model_see(const Pass *p, const MxModelImages *images) {
    MxTrace *t = p->t;
    const MxModel *model = p->model;
    const Vision *v = model->vision;
    double epsilon = model->config->normalization_layer_epsilon;
    const char *scope = t->scope;
    t->scope = "vision_encoder";
    MxValue x = embed(p, v, images->pixels);
    for (int i = 0; i < model->config->num_hidden_layers_for_vit; i++) {
        t->region = model->n_layers + model->n_ahead + 1 + i;
        x = layer(p, &v->layers[i], x, images->segments);
    }
    t->region = 0;
    t->scope = "vision_encoder/VisionEmbedder_0";
    x = pool(p, model_norm(p, x, v->last_norm, epsilon));
    x = model_norm(p, x, v->soft_norm, epsilon);
    x = model_project(p, x, v->projection, -1);
    t->scope = scope;
    return x;
}

/* ---- cost */

/* Source: MaxText utils/maxtext_utils.py, calculate_gemma3_vision_layers_tflops_per_device, which
 * has the published model's sizes as numbers and an image to each row. */
BlockFlops model_vision_flops(const MxConfig *c, double rows, double *projector) {
    MxVision v = mx_model_vision(c);
    double D = (double)c->hidden_size_for_vit, M = (double)c->intermediate_size_for_vit;
    double layers = (double)c->num_hidden_layers_for_vit, P = (double)v.patches;
    double values = (double)(v.channels * v.patch * v.patch), n = rows * (double)v.images;
    *projector = 2 * n * (double)v.tokens * D * (double)c->emb_dim;
    double each = 4 * (2 * n * P * D * D) + 2 * (2 * n * P * D * M);
    return (BlockFlops){.weights = 2 * n * P * values * D + each * layers + *projector,
                        .attention = 4 * n * P * P * D * layers};
}
