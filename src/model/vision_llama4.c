/* vision_llama4.c — Llama 4's encoder of images. A picture is tiles and a small one of all of it;
 * each is patches, a product with the values of each colour together, and one more place of a
 * learned class behind them. Positions are learned and rotated: half of a head by the column, half
 * by the row, pairs being neighbours. All places of a tile see each other. Patches of a square
 * stand one behind the other (mx_image_patch), so that those that become a token are its row.
 * Source: MaxText models/llama4.py (Llama4VisionModel, Llama4MultiModalProjector),
 * layers/embeddings.py (LlamaVisionRotaryEmbedding) @e591f30c.
 *
 * H is the width of a head. */
#include <mx/model.h>

#include "vision.h"

typedef struct Leaves {
    Dense patch, shuffle[2], projection;
    int class, positions;
    Tower tower;
    Norm first_norm, last_norm;
    MxRopeFreqs turn; /* of half a head */
} Leaves;

static const void *add_params(const EyePlace *place) {
    static const TowerNames names = {.norm = {"input_layer_norm", "post_attention_layer_norm"},
                                     .attention = "self_attention_vision",
                                     .up = "Llama4VisionMLP_0/vit_encoder_layer_mlp_fc1",
                                     .down = "Llama4VisionMLP_0/vit_encoder_layer_mlp_fc2"};
    static const char mlp[] = "Llama4VisionPixelShuffleMLP_0/pixel_shuffle_mlp/";
    const MxConfig *c = place->config;
    const MxVision *v = &place->vision;
    const Place *p = &place->tower;
    int64_t D = c->hidden_size_for_vit, K = v->patch * v->patch * v->channels;
    int64_t wide = c->projector_input_dim_for_vit, out = c->projector_output_dim_for_vit;
    const MxInit init = model_fan_in(MX_INIT_NORMAL, D);
    Leaves *l = mx_new(p->arena, Leaves);
    l->class = vision_bare(p, "class_embedding", MX_SHAPE(D), 0, init);
    l->positions = vision_bare(p, "positional_embedding_vlm", MX_SHAPE(v->patches + 1, D), 0, init);
    l->first_norm = vision_norm(p, "layernorm_pre", D);
    l->last_norm = vision_norm(p, "layernorm_post", D);
    l->patch =
        vision_dense(p, "Llama4UnfoldConvolution_0/vit_unfold_linear", MX_SHAPE(K, D), 1, false);
    l->tower = vision_tower(place, &names, MX_GELU_EXACT);
    l->turn = vision_frequencies(p->arena, c);
    const MxShape shapes[] = {MX_SHAPE(c->intermediate_size_for_vit, wide), MX_SHAPE(wide, out)};
    for (int i = 0; i < 2; i++) {
        const char *name = mx_arena_printf(p->arena, "%svit_pixel_shuffle_mlp_fc%d", mlp, i + 1);
        l->shuffle[i] = vision_dense(p, name, shapes[i], 1, false);
    }
    l->projection = vision_dense(&place->projector, "vit_multi_modal_projector",
                                 MX_SHAPE(c->vision_output_dim_for_vit, c->emb_dim), 1, false);
    return l;
}

/* Patches and classes with their positions: [B, N (P + 1), D]. */
static MxValue embed(const Sight *s, const Leaves *l) {
    const Pass *p = s->pass;
    MxTrace *t = p->t;
    MxValue x = vision_patches(s, model_weight(s->pass, l->patch.kernel), l->patch.bias);
    MxShape shape = mx_trace_type(t, x).shape;
    int64_t B = shape.dim[0], N = shape.dim[1], P = shape.dim[2], D = shape.dim[3];
    MxInitAttr nothing = {.type = {MX_F32, MX_SHAPE(B, N, D)}, .fill = MX_FILL_CONSTANT};
    MxValue zeros = mx_cast(t, mx_init(t, nothing), p->model->dtype);
    MxValue classes = mx_add(t, zeros, model_weight(p, l->class));
    x = mx_concat(t, mx_reshape(t, x, MX_SHAPE(B, N, P * D)), classes);
    x = mx_reshape(t, x, MX_SHAPE(B, N * (P + 1), D));
    MxValue positions = mx_embed(t, model_param(p, l->positions), s->images->place[MX_PLACE_PATCH],
                                 p->model->dtype);
    return vision_constrain(s, mx_add(t, x, positions));
}

/* Squares of patches as rows, without the classes: [B, N · tokens, width]. */
static MxValue shuffle(const Sight *s, MxValue x) {
    MxTrace *t = s->pass->t;
    const MxVision *v = &s->vision;
    MxShape shape = mx_trace_type(t, x).shape;
    int64_t B = shape.dim[0], D = shape.dim[2], N = v->images * mx_vision_views(v);
    x = mx_reshape(t, x, MX_SHAPE(B, N, (v->patches + 1) * D));
    x = mx_split(t, x, v->patches * D);
    return mx_reshape(t, x, MX_SHAPE(B, N * v->tokens, v->pool * v->pool * D));
}

/* Each value by itself. MaxText drops in evaluations too, whatever enable_dropout says. */
static MxValue drop(const Pass *p, MxValue x) {
    const MxConfig *c = p->model->config;
    if (!p->draws || !mx_model_drops_images(c)) return x;
    return mx_dropout(p->t, x, p->draws->rows, p->draws->step,
                      model_random(p, c->projector_dropout_for_vit));
}

static MxValue see(const Sight *outer, const void *own) {
    const Pass *p = outer->pass;
    const Leaves *l = own;
    Sight s = *outer;
    s.neighbours = true;
    vision_tables(&s, l->turn);
    MxValue x = model_norm(p, embed(&s, l), l->first_norm, s.epsilon);
    x = model_norm(p, vision_layers(&s, &l->tower, x, NULL), l->last_norm, s.epsilon);
    x = shuffle(&s, x);
    for (int i = 0; i < 2; i++) {
        x = model_project(p, x, l->shuffle[i].kernel, -1);
        x = mx_activate(p->t, x, MX_GELU_EXACT);
        if (i == 0) x = drop(p, x);
    }
    p->t->scope = "vision_encoder/Llama4MultiModalProjector_0";
    return model_project(p, x, l->projection.kernel, -1);
}

/* ---- cost. Source: MaxText utils/maxtext_utils.py,
 * calculate_llama4_vision_layers_tflops_per_device, which has one tile to each row. */

static double other_flops(const MxConfig *c, const MxVision *v) {
    double wide = (double)c->projector_input_dim_for_vit;
    double out = (double)c->projector_output_dim_for_vit;
    return 2 * (double)v->tokens * wide * ((double)c->intermediate_size_for_vit + out);
}

static double projector_flops(const MxConfig *c, const MxVision *v) {
    return 2 * (double)v->tokens * (double)c->vision_output_dim_for_vit * (double)c->emb_dim;
}

const Eye eye_llama4 = {
    .params = add_params,
    .see = see,
    .other_flops = other_flops,
    .projector_flops = projector_flops,
};
