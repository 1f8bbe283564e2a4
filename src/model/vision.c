/* vision.c — encoders of images: a tower of transformer layers over patches, whose output becomes
 * fewer tokens of the decoder's width. Here is what all of them share; what one has of its own is
 * in vision_<name>.c. Source: MaxText layers/encoders.py @e591f30c. */
#include <mx/model.h>

#include "vision.h"

#include <math.h>

// clang-format off
static const struct {
    const char *name;
    const Eye *eye;
} eyes[] = {
#define MX_ENCODER(name)  {#name, &eye_##name},
#include <mx/family_encoder.def>
#undef MX_ENCODER
};
// clang-format on

static const Eye *eye_of(const MxEncoder *encoder) {
    int i = 0;
    while (strcmp(eyes[i].name, encoder->name)) i++;
    return eyes[i].eye;
}

MxVision mx_model_vision(const MxConfig *c) {
    if (!c->use_multimodal) return (MxVision){0};
    MxVision v = {.encoder = mx_encoder_find(c->vision_encoder_block),
                  .tiles = 1,
                  .images = c->max_num_images_per_example > 0 ? c->max_num_images_per_example : 1,
                  .patch = c->patch_size_for_vit,
                  .channels = c->num_channels_for_vit,
                  .has_mrope = c->use_mrope,
                  .grid = mx_config_vision_grid(c)};
    if (v.encoder->has_tiles) v.tiles = c->max_num_tiles_for_vit;
    if (!v.encoder->keeps_form) v.size = v.grid.rows * v.patch;
    v.patches = (int64_t)v.grid.rows * v.grid.columns;
    v.pool = mx_config_vision_pool(c, v.encoder, v.grid);
    MX_ASSERT(v.pool > 0); /* checks of the config see to that */
    v.tokens = v.patches / (v.pool * v.pool);
    if (v.encoder->mixes_places)
        v.learned = llround(sqrt((double)c->num_position_embeddings_for_vit));
    if (v.encoder->deep)
        v.deep = mx_config_numbers(c->deepstack_visual_indexes_for_vit, MX_MOST_DEEP, NULL);
    return v;
}

bool mx_model_drops_images(const MxConfig *c) {
    return c->use_multimodal && mx_encoder_find(c->vision_encoder_block)->drops &&
           c->enable_dropout && c->projector_dropout_for_vit > 0;
}

/* ---- parameters */

int vision_bare(const Place *p, const char *name, MxShape shape, int n_contract, MxInit init) {
    int leaf = model_add(p, name, shape, n_contract, AXES(NULL, NULL, NULL, NULL, NULL), init);
    p->tree->leaves[leaf].bare = MX_AXES_NONE;
    return leaf;
}

Norm vision_norm(const Place *p, const char *name, int64_t width) {
    MxInit ones = {.kind = MX_INIT_ONES}, zeros = {.kind = MX_INIT_ZEROS};
    const char *scale = mx_path_join(p->arena, name, "scale");
    const char *bias = mx_path_join(p->arena, name, "bias");
    return (Norm){.kind = MX_NORM_LAYER_PLAIN,
                  .scale = vision_bare(p, scale, MX_SHAPE(width), 1, ones),
                  .bias = vision_bare(p, bias, MX_SHAPE(width), 0, zeros)};
}

Dense vision_dense(const Place *p, const char *name, MxShape shape, int n_contract, bool has_bias) {
    int64_t fan_in = 1;
    for (int d = 0; d < n_contract; d++) fan_in *= shape.dim[d];
    MxInit init = model_fan_in(MX_INIT_TRUNCATED_NORMAL, fan_in), zeros = {.kind = MX_INIT_ZEROS};
    const char *kernel = mx_path_join(p->arena, name, "kernel");
    const char *bias = mx_path_join(p->arena, name, "bias");
    MxShape width = MX_SHAPE(shape.dim[shape.rank - 1]);
    Dense dense = {.kernel = vision_bare(p, kernel, shape, n_contract, init), .bias = -1};
    if (has_bias) dense.bias = vision_bare(p, bias, width, 0, zeros);
    return dense;
}

Dense vision_kernel(const Place *p, const VisionKernel *kernel, bool has_bias) {
    const char *name = kernel->name, *const *axes = kernel->axes;
    int n_contract = kernel->n_contract;
    MxShape shape = kernel->shape;
    MxShape bias = {.rank = shape.rank - n_contract};
    int64_t fan_in = 1;
    for (int d = 0; d < n_contract; d++) fan_in *= shape.dim[d];
    for (int d = 0; d < bias.rank; d++) bias.dim[d] = shape.dim[n_contract + d];
    Dense dense = {.kernel = model_add(p, mx_path_join(p->arena, name, "kernel"), shape, n_contract,
                                       axes, model_fan_in(kernel->init, fan_in)),
                   .bias = -1};
    if (!has_bias) return dense;
    dense.bias = model_add(p, mx_path_join(p->arena, name, "bias"), bias, 0, axes + n_contract,
                           (MxInit){.kind = MX_INIT_ZEROS});
    return dense;
}

/* With the axes of any attention. */
void vision_heads(const Place *p, int64_t D, int64_t n_heads, bool has_biases, Dense qkv[3],
                  Dense *out) {
    const int64_t N = n_heads, H = D / N;
    const char *const *q_axes = AXES("embed", "q_heads", "kv");
    const char *const *kv_axes = AXES("embed", "kv_heads", "kv_head_dim");
    const MxShape heads = MX_SHAPE(D, N, H);
    const VisionKernel kernels[] = {{"query", heads, 1, q_axes, MX_INIT_NORMAL},
                                    {"key", heads, 1, kv_axes, MX_INIT_NORMAL},
                                    {"value", heads, 1, kv_axes, MX_INIT_NORMAL}};
    const VisionKernel last = {"out", MX_SHAPE(N, H, D), 2, AXES("heads", "kv", "embed"),
                               MX_INIT_NORMAL};
    for (int k = 0; k < 3; k++) qkv[k] = vision_kernel(p, &kernels[k], has_biases);
    *out = vision_kernel(p, &last, has_biases);
}

static void add_layer(const EyePlace *place, const TowerNames *names, int i, TowerLayer *l) {
    const MxConfig *c = place->config;
    int64_t D = c->hidden_size_for_vit, M = c->intermediate_size_for_vit;
    Place p = place->tower;
    p.dir = l->scope = mx_arena_printf(p.arena, "%s/%s%d", p.dir, place->vision.encoder->layer, i);
    l->norm[0] = vision_norm(&p, names->norm[0], D);
    Place attention = p;
    attention.block = names->attention;
    vision_heads(&attention, D, c->num_attention_heads_for_vit, true, l->qkv, &l->out);
    l->norm[1] = vision_norm(&p, names->norm[1], D);
    l->up = vision_dense(&p, names->up, MX_SHAPE(D, M), 1, true);
    l->down = vision_dense(&p, names->down, MX_SHAPE(M, D), 1, true);
}

Tower vision_tower(const EyePlace *place, const TowerNames *names, MxActivation activation) {
    int64_t n = place->config->num_hidden_layers_for_vit;
    Tower tower = {mx_new_n(place->tower.arena, TowerLayer, n), activation};
    for (int i = 0; i < n; i++) add_layer(place, names, i, &tower.layers[i]);
    return tower;
}

Place vision_place(MxArena *arena, MxModel *model) {
    return (Place){.arena = arena,
                   .tree = &model->params,
                   .dtype = model->params.leaves[model->embedding].dtype,
                   .kind = MX_KIND_PARAM,
                   .block = "",
                   .norm = MX_NORM_RMS};
}

/* Adapters leave the whole base frozen, so that nothing here is frozen besides. */
void model_add_vision(MxArena *arena, MxModel *model) {
    const MxConfig *c = model->config;
    EyePlace place = {.config = c, .vision = mx_model_vision(c)};
    const MxEncoder *encoder = place.vision.encoder;
    Place p = vision_place(arena, model);
    place.tower = place.projector = p;
    place.tower.dir = mx_path_join(arena, "vision_encoder", encoder->tower);
    place.projector.dir = mx_path_join(arena, "vision_encoder", encoder->projector);
    if (c->freeze_vision_encoder_params && !c->enable_lora) place.tower.kind = MX_KIND_FROZEN;
    model->eye = eye_of(encoder);
    model->eye_params = model->eye->params(&place);
}

/* ---- forward pass */

MxValue vision_constrain(const Sight *s, MxValue x) {
    return mx_trace_constrain(s->pass->t, x, AXES("activation_batch", NULL, NULL));
}

MxValue vision_patches(const Sight *s, MxValue kernel, int bias) {
    const Pass *p = s->pass;
    MxTrace *t = p->t;
    const MxVision *v = &s->vision;
    int64_t B = mx_trace_type(t, s->images->pixels).shape.dim[0];
    int64_t K = v->patch * v->patch * v->channels, D = p->model->config->hidden_size_for_vit;
    MxValue x = s->images->pixels;
    if (s->centers) x = mx_plus(t, mx_scale(t, x, 2), -1);
    x = mx_reshape(t, mx_cast(t, x, p->model->dtype),
                   MX_SHAPE(B, v->images * mx_vision_views(v), v->patches, K));
    x = mx_dot(t, x, mx_reshape(t, kernel, MX_SHAPE(K, D)), MX_DOT_NN, 1);
    return bias < 0 ? x : mx_add(t, x, model_weight(p, bias));
}

/* H/4 pairs. */
MxRopeFreqs vision_frequencies(MxArena *arena, const MxConfig *c) {
    int64_t H = c->hidden_size_for_vit / c->num_attention_heads_for_vit;
    MxRopeFreqs freqs = {.n = (int)(H / 4), .amplitude = 1};
    freqs.frequency = mx_new_n(arena, double, freqs.n);
    for (int i = 0; i < freqs.n; i++)
        freqs.frequency[i] = pow((double)c->rope_theta_for_vit, -(double)i / freqs.n);
    return freqs;
}

void vision_tables(Sight *s, MxRopeFreqs frequencies) {
    const MxValue *place = s->images->place;
    s->n_turns = 2;
    s->turn[0] = mx_rope_table(s->pass->t, place[MX_PLACE_COLUMN], frequencies);
    s->turn[1] = mx_rope_table(s->pass->t, place[MX_PLACE_ROW], frequencies);
}

MxValue vision_turn(const Sight *s, MxValue x) {
    MxTrace *t = s->pass->t;
    MxRopeAttr attr = {.interleaved_in = s->neighbours, .interleaved_out = s->neighbours};
    int64_t part = s->n_turns ? mx_trace_type(t, x).shape.dim[3] / s->n_turns : 0;
    for (int i = 0; i < s->n_turns; i++, attr.first += part) x = mx_rope(t, x, s->turn[i], attr);
    return x;
}

static MxValue attend(const Sight *s, const TowerLayer *l, MxValue x) {
    const Pass *p = s->pass;
    MxValue qkv[3];
    model_project_each(p, x, 3, l->qkv, qkv);
    MxShape heads = mx_trace_type(p->t, qkv[0]).shape;
    for (int i = 0; i < 2; i++) qkv[i] = vision_turn(s, qkv[i]);
    MxAttentionAttr attr = {.scale = 1 / sqrt((double)heads.dim[3]), .mask = MX_MASK_FULL};
    MxValue o = mx_attention(p->t, qkv[0], qkv[1], qkv[2], s->views, attr);
    return model_project(p, o, l->out.kernel, l->out.bias);
}

static MxValue feed_forward(const Sight *s, const Tower *tower, const TowerLayer *l, MxValue x) {
    const Pass *p = s->pass;
    MxValue hidden = model_project(p, x, l->up.kernel, l->up.bias);
    hidden = mx_activate(p->t, hidden, tower->activation);
    return model_project(p, model_drop(p, hidden), l->down.kernel, l->down.bias);
}

static MxValue layer(const Sight *s, const void *own, int i, MxValue x) {
    const Pass *p = s->pass;
    const Tower *tower = own;
    const TowerLayer *l = &tower->layers[i];
    p->t->scope = l->scope;
    MxValue y = attend(s, l, model_norm(p, x, l->norm[0], s->epsilon));
    x = vision_constrain(s, mx_add(p->t, x, model_drop(p, y)));
    y = feed_forward(s, tower, l, model_norm(p, x, l->norm[1], s->epsilon));
    return vision_constrain(s, mx_add(p->t, x, model_drop(p, y)));
}

MxValue vision_each(const Sight *s, VisionStep *step, const void *own, MxValue x, MxValue *each) {
    MxTrace *t = s->pass->t;
    const char *scope = t->scope;
    for (int i = 0; i < s->n_layers; i++) {
        t->region = s->first_region + i;
        x = step(s, own, i, x);
        if (each) each[i] = x;
    }
    t->region = 0;
    t->scope = scope;
    return x;
}

MxValue vision_layers(const Sight *s, const Tower *tower, MxValue x, MxValue *each) {
    return vision_each(s, layer, tower, x, each);
}

MxValue vision_mean(MxTrace *t, MxValue x) {
    MxShape shape = mx_trace_type(t, x).shape;
    int64_t n = shape.dim[--shape.rank - 1];
    MxInitAttr share = {.type = {MX_F32, shape}, .fill = MX_FILL_CONSTANT, .value = 1 / (double)n};
    return mx_combine(t, x, mx_init(t, share));
}

/* The views of a row are as many as it has pixels for. */
static MxVision vision_of(const Pass *p, const MxModelImages *images) {
    MxVision v = mx_model_vision(p->model->config);
    int64_t all = mx_trace_type(p->t, images->pixels).shape.dim[1];
    v.tiles = v.images = 1;
    MX_ASSERT(all % mx_vision_row(&v) == 0);
    v.images = all / mx_vision_row(&v);
    return v;
}

MxValue model_see(const Pass *p, const MxModelImages *images) {
    const MxModel *model = p->model;
    const MxConfig *c = model->config;
    const char *scope = p->t->scope;
    double own = c->normalization_layer_epsilon_for_vit;
    Sight sight = {.pass = p,
                   .vision = vision_of(p, images),
                   .images = images,
                   .views = images->place[MX_PLACE_VIEW],
                   .n_layers = (int)c->num_hidden_layers_for_vit,
                   .first_region = model->n_layers + model->n_ahead + 1,
                   .epsilon = own > 0 ? own : c->normalization_layer_epsilon};
    p->t->scope = "vision_encoder";
    MxValue x = model->eye->see(&sight, model->eye_params);
    p->t->scope = scope;
    return x;
}

/* ---- cost */

/* Source: MaxText utils/maxtext_utils.py, calculate_gemma3_vision_layers_tflops_per_device and
 * calculate_llama4_vision_layers_tflops_per_device, which have one view to each row; the first has
 * the published model's sizes as numbers. */
BlockFlops model_vision_flops(const MxConfig *c, double rows, double *projector) {
    MxVision v = mx_model_vision(c);
    double D = (double)c->hidden_size_for_vit, M = (double)c->intermediate_size_for_vit;
    double layers = (double)c->num_hidden_layers_for_vit;
    double n = rows * (double)(v.images * mx_vision_views(&v));
    double values = n * (double)(v.patches * v.channels * v.patch * v.patch);
    double P = (double)(v.patches + v.encoder->has_class);
    const Eye *eye = eye_of(v.encoder);
    double other = eye->other_flops ? n * eye->other_flops(c, &v) : 0;
    *projector = n * eye->projector_flops(c, &v);
    double each = 4 * (2 * n * P * D * D) + (2 + eye->gates) * (2 * n * P * D * M);
    return (BlockFlops){.weights = 2 * values * D + each * layers + other + *projector,
                        .attention = 4 * n * P * P * D * layers};
}
