/* vision_gemma3.c — Gemma 3's encoder of images, SigLIP. Patches are a product, positions are
 * learned or waves, layers have norms before each block, all patches of an image see each other;
 * the mean of each square of patches is a token, which is normed and projected. Source: MaxText
 * models/gemma3.py (Gemma3VisionEncoderLayer, VisionEmbedder) @e591f30c. */
#include <mx/model.h>

#include "vision.h"

#include <math.h>

typedef struct Leaves {
    Dense patch;
    int positions, projection; /* positions -1 = waves */
    MxRopeFreqs wave;
    Tower tower;
    Norm last_norm, soft_norm;
} Leaves;

/* D/4 of a column's sines, its cosines, and of the same of a row. Source: MaxText
 * models/gemma3.py, _posemb_sincos_2d @e591f30c. */
static MxRopeFreqs wave_frequencies(MxArena *arena, int64_t D) {
    static const double temperature = 10000;
    MxRopeFreqs freqs = {.n = (int)(D / 4), .amplitude = 1};
    freqs.frequency = mx_new_n(arena, double, freqs.n);
    for (int i = 0; i < freqs.n; i++)
        freqs.frequency[i] = pow(temperature, -(double)i / (freqs.n - 1));
    return freqs;
}

static const void *add_params(const EyePlace *place) {
    static const TowerNames names = {.norm = {"LayerNorm_0", "LayerNorm_1"},
                                     .attention = "MultiHeadDotProductAttention_0",
                                     .up = "MlpBlockViT_0/Dense_0",
                                     .down = "MlpBlockViT_0/Dense_1"};
    const MxConfig *c = place->config;
    const MxVision *v = &place->vision;
    const Place *tower = &place->tower, *projector = &place->projector;
    int64_t D = c->hidden_size_for_vit;
    Leaves *l = mx_new(tower->arena, Leaves);
    l->patch =
        vision_dense(tower, "embedding", MX_SHAPE(v->patch, v->patch, v->channels, D), 3, true);
    l->positions = -1;
    if (!strcmp(c->posemb_type_for_vit, "learn"))
        l->positions = vision_bare(tower, "pos_embedding", MX_SHAPE(1, v->patches, D), 0,
                                   (MxInit){.kind = MX_INIT_NORMAL, .std = 1 / sqrt((double)D)});
    else
        l->wave = wave_frequencies(tower->arena, D);
    l->tower = vision_tower(place, &names, MX_GELU);
    l->last_norm = vision_norm(tower, "Transformer/encoder_norm", D);
    l->soft_norm = model_add_norm(projector, "mm_soft_embedding_norm", D);
    l->projection = vision_bare(projector, "mm_input_projection/w", MX_SHAPE(D, c->emb_dim), 1,
                                (MxInit){.kind = MX_INIT_NORMAL, .std = 0.01});
    return l;
}

/* Sines, then cosines, of a place of each patch: [B, N P, D/2]. */
static MxValue waves(const Sight *s, MxValue place, MxRopeFreqs wave) {
    MxTrace *t = s->pass->t;
    MxValue cosines = mx_split(t, mx_rope_table(t, place, wave), 1), sines = cosines + 1;
    MxShape shape = mx_trace_type(t, cosines).shape;
    shape.rank--;
    return mx_concat(t, mx_reshape(t, sines, shape), mx_reshape(t, cosines, shape));
}

/* Patches as rows of the tower's width, those of an image with its positions: [B, N P, D]. */
static MxValue embed(const Sight *s, const Leaves *l) {
    MxTrace *t = s->pass->t;
    const MxVision *v = &s->vision;
    MxValue x = vision_patches(s, model_weight(s->pass, l->patch.kernel), l->patch.bias);
    MxShape shape = mx_trace_type(t, x).shape;
    int64_t B = shape.dim[0], D = shape.dim[3];
    const MxShape flat = MX_SHAPE(B, v->images * v->patches, D);
    if (l->positions >= 0) {
        MxValue learned = model_weight(s->pass, l->positions);
        x = mx_add(t, x, mx_reshape(t, learned, MX_SHAPE(v->patches, D)));
        x = mx_reshape(t, x, flat);
    } else {
        const MxValue *place = s->images->place;
        MxValue fixed = mx_concat(t, waves(s, place[MX_PLACE_COLUMN], l->wave),
                                  waves(s, place[MX_PLACE_ROW], l->wave));
        x = mx_add(t, mx_reshape(t, x, flat), mx_cast(t, fixed, s->pass->model->dtype));
    }
    return model_drop(s->pass, vision_constrain(s, x));
}

/* Squares of patches become tokens: the mean of neighbours in a row, then that of rows. */
static MxValue pool(const Sight *s, MxValue x) {
    MxTrace *t = s->pass->t;
    const MxVision *v = &s->vision;
    MxShape shape = mx_trace_type(t, x).shape;
    int64_t B = shape.dim[0], D = shape.dim[2], N = v->images;
    int64_t width = v->pool, side = v->size / v->patch / width;
    if (width == 1) return x;
    x = vision_mean(t, mx_reshape(t, x, MX_SHAPE(B, N * side * width * side, width, D)));
    x = vision_mean(t, mx_reshape(t, x, MX_SHAPE(B, N * side, width, side * D)));
    return mx_reshape(t, x, MX_SHAPE(B, N * v->tokens, D));
}

static MxValue see(const Sight *s, const void *own) {
    const Pass *p = s->pass;
    const Leaves *l = own;
    MxValue x = vision_layers(s, &l->tower, embed(s, l), NULL);
    p->t->scope = "vision_encoder/VisionEmbedder_0";
    x = pool(s, model_norm(p, x, l->last_norm, s->epsilon));
    x = model_norm(p, x, l->soft_norm, s->epsilon);
    return model_project(p, x, l->projection, -1);
}

static double projector_flops(const MxConfig *c, const MxVision *v) {
    return 2 * (double)v->tokens * (double)c->hidden_size_for_vit * (double)c->emb_dim;
}

const Eye eye_gemma3 = {
    .params = add_params,
    .see = see,
    .projector_flops = projector_flops,
};
