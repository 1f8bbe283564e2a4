/* inputs.c — per-layer inputs from the tokens, beside the stream: a narrow vector for each layer,
 * half of it looked up, half computed from the embedding. A layer multiplies it by a gate computed
 * from the stream and adds the product. Source: Gemma 3n and 4 (per-layer embeddings); MaxText
 * models/gemma4_small.py (Gemma4SmallPLE) @e591f30c.
 *
 * Letters besides those of internal.h: L layers, P width of an input. */
#include <mx/model.h>

#include "internal.h"

#include <math.h>

/* ---- parameters */

static bool has_inputs(const MxModel *model) {
    return model->family->has_inputs && model->config->hidden_size_per_layer_input > 0;
}

void model_add_inputs(const Place *place, MxModel *model) {
    const MxConfig *c = model->config;
    int64_t D = c->emb_dim, P = c->hidden_size_per_layer_input, L = model->n_layers;
    model->inputs = (Inputs){.table = -1, .projection = -1, .width = P};
    if (!has_inputs(model)) return;
    Place p = *place;
    p.dir = "decoder/per_layer_embedder";
    MxInit drawn = {.kind = MX_INIT_NORMAL, .std = 1 / sqrt((double)P)};
    model->inputs.table =
        model_add(&p, "embed_tokens_per_layer", MX_SHAPE(c->vocab_size_per_layer_input, L * P), 0,
                  AXES("vocab", "embed_vocab"), drawn);
    model->inputs.projection =
        model_add(&p, "per_layer_model_projection/kernel", MX_SHAPE(D, L * P), 1,
                  AXES("embed", "mlp"), model_fan_in(MX_INIT_TRUNCATED_NORMAL, D));
    model->inputs.norm = model_add_norm(&p, "per_layer_projection_norm", P);
}

Input model_add_input(const Place *p, const MxModel *model) {
    int64_t D = model->config->emb_dim, P = model->config->hidden_size_per_layer_input;
    Input input = {.gate = -1};
    if (!has_inputs(model)) return input;
    input.gate = model_add(p, "per_layer_input_gate/kernel", MX_SHAPE(D, P), 1,
                           AXES("embed", "mlp"), model_fan_in(MX_INIT_TRUNCATED_NORMAL, D));
    input.projection = model_add(p, "per_layer_projection/kernel", MX_SHAPE(P, D), 1,
                                 AXES("mlp", "embed"), model_fan_in(MX_INIT_TRUNCATED_NORMAL, P));
    input.norm = model_add_norm(p, "post_per_layer_input_norm", D);
    return input;
}

/* ---- forward pass */

void model_take_apart(MxTrace *t, MxValue x, int n, int64_t width, MxValue *out) {
    if (n == 1) {
        *out = x;
        return;
    }
    MxValue left = mx_split(t, x, n / 2 * width);
    model_take_apart(t, left, n / 2, width, out);
    model_take_apart(t, left + 1, n - n / 2, width, out + n / 2);
}

void model_make_inputs(const Pass *p, MxValue tokens_BT, MxValue x_BTD, MxValue *out) {
    MxTrace *t = p->t;
    const MxModel *model = p->model;
    const Inputs *all = &model->inputs;
    for (int i = 0; i < model->n_layers; i++) out[i] = MX_NONE;
    if (all->table < 0) return;
    t->scope = "decoder/per_layer_embedder";
    int64_t P = all->width;
    MxValue seen = mx_embed(t, model_param(p, all->table), tokens_BT, model->dtype);
    MxValue made = model_project(p, x_BTD, all->projection, -1);
    MxShape flat = mx_trace_type(t, seen).shape, apart = flat;
    apart.dim[2] = model->n_layers;
    apart.dim[apart.rank++] = P;
    made = mx_scale(t, made, 1 / sqrt((double)model->config->emb_dim));
    made = model_norm(p, mx_reshape(t, made, apart), all->norm,
                      model->config->normalization_layer_epsilon);
    seen = mx_scale(t, seen, sqrt((double)P));
    MxValue sum = mx_scale(t, mx_add(t, seen, mx_reshape(t, made, flat)), sqrt(0.5));
    model_take_apart(t, sum, model->n_layers, P, out);
}

MxValue model_add_own_input(const Pass *p, const Spec *spec, const Input *input, MxValue x_BTD) {
    MxTrace *t = p->t;
    if (input->gate < 0) return x_BTD;
    MxValue gate_BTP = model_project(p, x_BTD, input->gate, -1);
    MxValue y_BTP = mx_glu(t, gate_BTP, p->input, MX_GELU);
    MxValue y_BTD = model_project(p, y_BTP, input->projection, -1);
    return mx_add(t, x_BTD, model_norm(p, y_BTD, input->norm, spec->epsilon));
}

/* ---- cost */

double model_input_flops(const MxConfig *c, double tokens, double n_layers) {
    bool has = mx_family_find(c->decoder_block)->has_inputs;
    double width = has ? (double)c->hidden_size_per_layer_input : 0;
    return 3 * 2 * tokens * (double)c->emb_dim * width * n_layers;
}
