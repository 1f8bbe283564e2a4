/* vision_gemma4.c — Gemma 4's encoder of images. A picture keeps its form, so that its patches are
 * a grid of its own, of no more than there is room for; those of a token stand one behind the other
 * (mx_vision_patch). Positions are learned for columns and rows apart, and rotated: half of a head
 * by the column, half by the row. Layers have norms before and behind each block, and norms of
 * queries, keys and values; the mean of a square of patches is a token, which is moved, scaled,
 * normed and projected. Source: MaxText models/gemma4_vision.py @e591f30c; transformers 5.23,
 * models/gemma4/modeling_gemma4.py.
 *
 * H is the width of a head. */
#include <mx/model.h>

#include "vision.h"

#include <math.h>

enum { ATTENTION, MLP, BLOCKS };

typedef struct Layer4 {
    const char *scope;
    Norm before[BLOCKS], behind[BLOCKS];
    Dense qkv[3], out, in[2], down;
    Norm head[3]; /* of queries, keys and values */
} Layer4;

typedef struct Leaves {
    Dense patch, projection;
    int positions, bias, scale;
    MxRopeFreqs turn; /* of half a head */
    Layer4 *layers;
} Leaves;

static Dense add_kernel(const Place *p, const char *name, MxShape shape, const char *const *axes) {
    const VisionKernel kernel = {name, shape, 1, axes, MX_INIT_TRUNCATED_NORMAL};
    return vision_kernel(p, &kernel, false);
}

static void add_layer(const EyePlace *place, int i, Layer4 *l) {
    const MxConfig *c = place->config;
    int64_t D = c->hidden_size_for_vit, M = c->intermediate_size_for_vit;
    int64_t H = D / c->num_attention_heads_for_vit;
    Place p = place->tower;
    p.dir = l->scope = mx_arena_printf(p.arena, "%s/%s%d", p.dir, place->vision.encoder->layer, i);
    l->before[ATTENTION] = model_add_norm(&p, "pre_attention_norm", D);
    l->behind[ATTENTION] = model_add_norm(&p, "post_attention_norm", D);
    l->before[MLP] = model_add_norm(&p, "pre_ffw_norm", D);
    l->behind[MLP] = model_add_norm(&p, "post_ffw_norm", D);
    p.block = "attention";
    vision_heads(&p, c->hidden_size_for_vit, c->num_attention_heads_for_vit, false, l->qkv,
                 &l->out);
    const char *const names[] = {"query_norm", "key_norm",
                                 c->v_norm_with_scale ? "value_norm" : NULL};
    for (int k = 0; k < 3; k++) l->head[k] = model_add_norm(&p, names[k], H);
    p.block = "mlp";
    l->in[0] = add_kernel(&p, "wi_0", MX_SHAPE(D, M), AXES("embed", "mlp"));
    l->in[1] = add_kernel(&p, "wi_1", MX_SHAPE(D, M), AXES("embed", "mlp"));
    l->down = add_kernel(&p, "wo", MX_SHAPE(M, D), AXES("mlp", "embed"));
}

static const void *add_params(const EyePlace *place) {
    const MxConfig *c = place->config;
    const MxVision *v = &place->vision;
    const Place *p = &place->tower;
    int64_t D = c->hidden_size_for_vit, K = v->patch * v->patch * v->channels;
    const MxInit near = {.kind = MX_INIT_NORMAL, .std = 0.02};
    Leaves *l = mx_new(p->arena, Leaves);
    l->patch = vision_dense(p, "vision_entry/input_projection", MX_SHAPE(K, D), 1, false);
    l->positions = vision_bare(p, "vision_entry/pos_emb_param",
                               MX_SHAPE(c->num_position_embeddings_for_vit, 2, D), 0, near);
    l->bias = vision_bare(p, "std_bias", MX_SHAPE(D), 0, (MxInit){.kind = MX_INIT_ZEROS});
    l->scale = vision_bare(p, "std_scale", MX_SHAPE(D), 0, (MxInit){.kind = MX_INIT_ONES});
    l->layers = mx_new_n(p->arena, Layer4, c->num_hidden_layers_for_vit);
    for (int i = 0; i < c->num_hidden_layers_for_vit; i++) add_layer(place, i, &l->layers[i]);
    l->turn = vision_frequencies(p->arena, c);
    l->projection =
        add_kernel(&place->projector, "projection", MX_SHAPE(D, c->emb_dim), AXES("embed", "mlp"));
    return l;
}

/* Patches with the positions of their columns and rows: [B, N P, D]. */
static MxValue embed(const Sight *s, const Leaves *l) {
    const Pass *p = s->pass;
    MxTrace *t = p->t;
    const MxValue *place = s->images->place;
    MxValue x = vision_patches(s, model_weight(s->pass, l->patch.kernel), l->patch.bias);
    MxShape shape = mx_trace_type(t, x).shape;
    int64_t B = shape.dim[0], NP = shape.dim[1] * shape.dim[2], D = shape.dim[3];
    MxShape sides = MX_SHAPE(p->model->config->num_position_embeddings_for_vit, 2 * D);
    MxValue table = mx_reshape(t, model_param(p, l->positions), sides);
    MxValue column = mx_split(t, mx_embed(t, table, place[MX_PLACE_COLUMN], p->model->dtype), D);
    MxValue row = mx_split(t, mx_embed(t, table, place[MX_PLACE_ROW], p->model->dtype), D) + 1;
    x = mx_add(t, mx_reshape(t, x, MX_SHAPE(B, NP, D)), mx_add(t, column, row));
    return vision_constrain(s, x);
}

static MxValue attend(const Sight *s, const Layer4 *l, MxValue x) {
    const Pass *p = s->pass;
    MxValue qkv[3];
    model_project_each(p, x, 3, l->qkv, qkv);
    for (int i = 0; i < 3; i++)
        qkv[i] = l->head[i].scale < 0 ? model_norm_bare(p->t, qkv[i], 1, s->epsilon)
                                      : model_norm(p, qkv[i], l->head[i], s->epsilon);
    for (int i = 0; i < 2; i++) qkv[i] = vision_turn(s, qkv[i]);
    MxAttentionAttr attr = {.scale = 1, .mask = MX_MASK_FULL};
    MxValue o = mx_attention(p->t, qkv[0], qkv[1], qkv[2], s->views, attr);
    return model_project(p, o, l->out.kernel, -1);
}

static MxValue feed_forward(const Sight *s, const Layer4 *l, MxValue x) {
    const Pass *p = s->pass;
    MxValue in[2];
    model_project_each(p, x, 2, l->in, in);
    MxValue hidden = model_drop(p, mx_glu(p->t, in[0], in[1], MX_GELU));
    return model_project(p, hidden, l->down.kernel, -1);
}

static MxValue layer(const Sight *s, const void *own, int i, MxValue x) {
    const Layer4 *l = &((const Leaves *)own)->layers[i];
    const Pass *p = s->pass;
    p->t->scope = l->scope;
    MxValue y = attend(s, l, model_norm(p, x, l->before[ATTENTION], s->epsilon));
    x = vision_constrain(s, mx_add(p->t, x, model_norm(p, y, l->behind[ATTENTION], s->epsilon)));
    y = feed_forward(s, l, model_norm(p, x, l->before[MLP], s->epsilon));
    return vision_constrain(s, mx_add(p->t, x, model_norm(p, y, l->behind[MLP], s->epsilon)));
}

/* (x - bias) scale, of one of each for a column of x. */
static MxValue standardize(const Sight *s, const Leaves *l, MxValue x) {
    const Pass *p = s->pass;
    MxTrace *t = p->t;
    MxValue bias = mx_cast(t, model_param(p, l->bias), MX_F32);
    MxValue scale = mx_cast(t, model_param(p, l->scale), MX_F32);
    MxInitAttr nothing = {.type = {MX_F32, mx_trace_type(t, x).shape}, .fill = MX_FILL_CONSTANT};
    x = mx_add(t, x, mx_scale(t, bias, -1));
    return mx_glu(t, mx_add(t, mx_init(t, nothing), scale), x, MX_LINEAR);
}

/* What becomes of a square of patches: [B, N · tokens, D]. What is taken away is as large as what
 * it is taken from, so it is float32. */
static MxValue pool(const Sight *s, const Leaves *l, MxValue x) {
    MxTrace *t = s->pass->t;
    const MxVision *v = &s->vision;
    MxShape shape = mx_trace_type(t, x).shape;
    int64_t B = shape.dim[0], D = shape.dim[2], square = v->pool * v->pool;
    x = mx_reshape(t, x, MX_SHAPE(B, v->images * v->tokens, square, D));
    x = mx_scale(t, mx_cast(t, vision_mean(t, x), MX_F32), sqrt((double)D));
    return mx_cast(t, standardize(s, l, x), s->pass->model->dtype);
}

static MxValue see(const Sight *outer, const void *own) {
    const Pass *p = outer->pass;
    const Leaves *l = own;
    Sight s = *outer;
    s.centers = true;
    vision_tables(&s, l->turn);
    MxValue x = pool(&s, l, vision_each(&s, layer, l, embed(&s, l), NULL));
    p->t->scope = "vision_encoder/Gemma4VisionProjector_0";
    x = model_norm_bare(p->t, x, 1, s.epsilon);
    return model_project(p, x, l->projection.kernel, -1);
}

static double projector_flops(const MxConfig *c, const MxVision *v) {
    return 2 * (double)v->tokens * (double)c->hidden_size_for_vit * (double)c->emb_dim;
}

const Eye eye_gemma4 = {
    .params = add_params,
    .see = see,
    .projector_flops = projector_flops,
    .gates = true,
};
