/* decoder.c — the forward pass: embedding, layers of attention and gated feed-forward, last norm,
 * output head. Written once for all families of the table, for one micro-batch with global shapes.
 *
 * Shape letters: B batch, T time, D model width, N query heads, K key/value heads, H head width, M
 * feed-forward width, V vocab. */
#include <mx/model.h>

#include "internal.h"

#include <math.h>

/* What every layer needs. */
typedef struct Pass {
    MxTrace *t;
    const MxModel *model;
    const MxValue *params;
    MxValue segments_BT, rope_table;
} Pass;

#define AXES(...) ((const char *const[]){__VA_ARGS__})

/* A weight in the dtype of computation. */
static MxValue weight(const Pass *p, int leaf) {
    return mx_cast(p->t, p->params[leaf], p->model->dtype);
}

static const Adapter *adapter_of(const Pass *p, int leaf) {
    const Adapter *adapters = p->model->adapters;
    return adapters && adapters[leaf].a >= 0 ? &adapters[leaf] : NULL;
}

/* The same values with the last n dims as one. */
static MxValue flatten_last(MxTrace *t, MxValue x, int n) {
    MxShape shape = mx_trace_type(t, x).shape, flat = {.rank = shape.rank - n + 1};
    if (x < 0 || n == 1) return x;
    for (int i = 0; i < flat.rank; i++) flat.dim[i] = shape.dim[i];
    for (int i = flat.rank; i < shape.rank; i++) flat.dim[flat.rank - 1] *= shape.dim[i];
    return mx_reshape(t, x, flat);
}

/* Kernels that read one x, with their biases, -1 = none. */
typedef struct Dense {
    int kernel, bias;
} Dense;

enum { MOST_BESIDE = 3 }; /* query, key, value */

/* x A scale for the adapter of each kernel, MX_NONE for one without. What takes time is to read x,
 * and to write its gradient: so that this is done once, they are made as one product. */
static void adapt_in(const Pass *p, MxValue x, int n, const Dense *dense, MxValue *low) {
    MxTrace *t = p->t;
    MxValue a = MX_NONE;
    int left = 0;
    for (int i = 0; i < n; i++) {
        const Adapter *adapter = adapter_of(p, dense[i].kernel);
        low[i] = MX_NONE;
        if (!adapter) continue;
        a = left++ ? mx_concat(t, a, p->params[adapter->a]) : p->params[adapter->a];
    }
    if (!left) return;
    MxValue in = flatten_last(t, x, p->model->params.leaves[dense[0].kernel].n_contract);
    MxValue all = mx_dot(t, in, mx_cast(t, a, p->model->dtype), MX_DOT_NN, 1);
    all = mx_scale(t, all, p->model->lora.scale);
    for (int i = 0; i < n; i++) {
        const Adapter *adapter = adapter_of(p, dense[i].kernel);
        if (!adapter) continue;
        low[i] = all;
        if (!--left) return;
        low[i] = mx_split(t, all, p->model->params.leaves[adapter->a].shape.dim[1]);
        all = low[i] + 1;
    }
}

/* y + low B, for y = x · kernel. Made as a product that y is added to. */
static MxValue adapt_out(const Pass *p, MxValue low, MxValue y, int kernel) {
    MxTrace *t = p->t;
    const MxLeaf *leaf = &p->model->params.leaves[kernel];
    const Adapter *adapter = adapter_of(p, kernel);
    if (!adapter) return y;
    MxShape shape = mx_trace_type(t, y).shape;
    MxValue base = flatten_last(t, y, leaf->shape.rank - leaf->n_contract);
    MxValue sum = mx_add(t, mx_dot(t, low, weight(p, adapter->b), MX_DOT_NN, 1), base);
    return base == y ? sum : mx_reshape(t, sum, shape);
}

/* W + A B scale in float32, for what is no product with activations (the scale of a norm) or
 * happens inside an op (the output matrix): the one place where it is made. */
static MxValue fold_adapter(const Pass *p, int leaf) {
    MxTrace *t = p->t;
    const Adapter *adapter = adapter_of(p, leaf);
    if (!adapter) return p->params[leaf];
    MxValue b = mx_scale(t, p->params[adapter->b], p->model->lora.scale);
    return mx_add(t, mx_dot(t, p->params[adapter->a], b, MX_DOT_NN, 1), p->params[leaf]);
}

/* x · kernel (+ bias) of each. Adapters come after a product with x itself, so that backwards it is
 * such a product that what comes of them is added to. */
static void project_each(const Pass *p, MxValue x, int n, const Dense *dense, MxValue *y) {
    MxValue low[MOST_BESIDE];
    for (int i = 0; i < n; i++) {
        int n_contract = p->model->params.leaves[dense[i].kernel].n_contract;
        y[i] = mx_dot(p->t, x, weight(p, dense[i].kernel), MX_DOT_NN, n_contract);
        if (i == 0) adapt_in(p, x, n, dense, low);
        y[i] = adapt_out(p, low[i], y[i], dense[i].kernel);
        if (dense[i].bias >= 0) y[i] = mx_add(p->t, y[i], weight(p, dense[i].bias));
    }
}

static MxValue project(const Pass *p, MxValue x, int kernel, int bias) {
    MxValue y;
    project_each(p, x, 1, &(Dense){kernel, bias}, &y);
    return y;
}

static MxValue norm(const Pass *p, MxValue x, int scale) {
    return mx_rmsnorm(p->t, x, fold_adapter(p, scale),
                      p->model->config->normalization_layer_epsilon);
}

static MxValue constrain_stream(const Pass *p, MxValue x_BTD) {
    return mx_trace_constrain(
        p->t, x_BTD, AXES("activation_batch", "activation_norm_length", "activation_embed"));
}

static MxValue attention(const Pass *p, const Layer *l, MxValue x_BTD) {
    MxTrace *t = p->t;
    const MxModel *m = p->model;
    const char *const *axes = AXES("activation_kv_batch", "activation_length_attn",
                                   "activation_kv_heads", "activation_kv_head_dim");
    const Dense dense[] = {
        {l->query, l->query_bias}, {l->key, l->key_bias}, {l->value, l->value_bias}};
    MxValue qkv[MX_COUNT(dense)];
    project_each(p, x_BTD, MX_COUNT(dense), dense, qkv);
    MxValue q_BTNH = mx_trace_constrain(t, qkv[0], axes);
    MxValue k_BTKH = mx_trace_constrain(t, qkv[1], axes);
    MxValue v_BTKH = mx_trace_constrain(t, qkv[2], axes);
    if (l->query_norm >= 0) {
        q_BTNH = norm(p, q_BTNH, l->query_norm);
        k_BTKH = norm(p, k_BTKH, l->key_norm);
    }
    q_BTNH = mx_rope(t, q_BTNH, p->rope_table, m->rope_layout);
    k_BTKH = mx_rope(t, k_BTKH, p->rope_table, m->rope_layout);
    MxValue o_BTNH = mx_attention(t, q_BTNH, k_BTKH, v_BTKH, p->segments_BT, m->attention);
    mx_trace_constrain(t, o_BTNH,
                       AXES("activation_batch_attn", "activation_length_attn", "activation_heads",
                            "activation_kv"));
    return project(p, o_BTNH, l->out, l->out_bias);
}

static MxValue feed_forward(const Pass *p, const Layer *l, MxValue x_BTD) {
    MxValue gate_up_BTM[2];
    project_each(p, x_BTD, 2, (const Dense[]){{l->wi_0, -1}, {l->wi_1, -1}}, gate_up_BTM);
    MxValue hidden_BTM = mx_glu(p->t, gate_up_BTM[0], gate_up_BTM[1], p->model->activation);
    mx_trace_constrain(p->t, hidden_BTM,
                       AXES("activation_batch", "activation_length", "activation_mlp"));
    return project(p, hidden_BTM, l->wo, -1);
}

static MxValue layer(const Pass *p, const Layer *l, MxValue x_BTD) {
    p->t->scope = l->scope;
    MxValue h_BTD = mx_add(p->t, x_BTD, attention(p, l, norm(p, x_BTD, l->attention_norm)));
    constrain_stream(p, h_BTD);
    MxValue y_BTD = mx_add(p->t, h_BTD, feed_forward(p, l, norm(p, h_BTD, l->mlp_norm)));
    return constrain_stream(p, y_BTD);
}

static Pass begin(MxTrace *t, const MxModel *model, const MxValue *params, MxModelInputs in) {
    Pass p = {.t = t, .model = model, .params = params, .segments_BT = in.segments};
    t->scope = "token_embedder";
    p.rope_table = mx_rope_table(t, in.positions, model->rope);
    return p;
}

static MxValue embed(const Pass *p, MxValue tokens_BT) {
    MxTrace *t = p->t;
    MxValue x_BTD = mx_embed(t, p->params[p->model->embedding], tokens_BT, p->model->dtype);
    return mx_trace_constrain(
        t, x_BTD,
        AXES("activation_embed_and_logits_batch", "activation_length", "activation_embed"));
}

MxValue mx_model_stream(MxTrace *t, const MxModel *model, const MxValue *params, MxModelInputs in) {
    Pass p = begin(t, model, params, in);
    MxValue x_BTD = embed(&p, in.tokens);
    for (int i = 0; i < model->n_layers; i++) {
        t->region = i + 1;
        x_BTD = layer(&p, &model->layers[i], x_BTD);
    }
    t->region = 0;
    return x_BTD;
}

MxValue mx_model_last_norm(MxTrace *t, const MxModel *model, const MxValue *params,
                           MxValue stream) {
    Pass p = {.t = t, .model = model, .params = params};
    t->scope = "decoder/decoder_norm";
    return norm(&p, stream, model->final_norm);
}

MxValue mx_model_hidden(MxTrace *t, const MxModel *model, const MxValue *params, MxModelInputs in) {
    return mx_model_last_norm(t, model, params, mx_model_stream(t, model, params, in));
}

/* Positions and segments of the layer stay where they are. */
MxAhead mx_model_ahead(MxTrace *t, const MxModel *model, const MxValue *params, MxModelInputs in,
                       int k, MxAhead before) {
    MX_ASSERT(k >= 1 && k <= model->n_ahead);
    const Ahead *module = &model->ahead[k - 1];
    Pass p = begin(t, model, params, in);
    MxAhead after = {.tokens = mx_shift(t, before.tokens, in.segments, k - 1),
                     .targets = mx_shift(t, before.targets, in.segments, k - 1),
                     .weights = mx_shift(t, before.weights, in.segments, k - 1)};
    MxValue x_BTD = embed(&p, after.tokens);
    t->region = model->n_layers + k;
    t->scope = module->scope;
    MxValue wide = mx_concat(t, norm(&p, x_BTD, module->embedding_norm),
                             norm(&p, before.stream, module->hidden_norm));
    after.stream = layer(&p, &module->layer, project(&p, wide, module->projection, -1));
    t->region = 0;
    return after;
}

/* ---- output head */

/* Tied logits are divided by sqrt(D) if normalize_embedding_logits. */
static double logits_scale(const MxModel *model) {
    bool normalizes = model->logits < 0 && model->config->normalize_embedding_logits;
    return normalizes ? 1 / sqrt((double)model->config->emb_dim) : 1;
}

static MxValue head(MxTrace *t, const MxModel *model, const MxValue *params) {
    Pass p = {.t = t, .model = model, .params = params};
    t->scope = "decoder/logits_dense";
    if (model->logits < 0) return weight(&p, model->embedding);
    return mx_cast(t, fold_adapter(&p, model->logits), model->dtype);
}

MxValue mx_model_logits(MxTrace *t, const MxModel *model, const MxValue *params, MxValue hidden) {
    MxValue w = head(t, model, params);
    MxValue logits = mx_dot(t, hidden, w, model->logits < 0 ? MX_DOT_NT : MX_DOT_NN, 1);
    logits = mx_cast(t, logits, MX_F32);
    mx_trace_constrain(
        t, logits,
        AXES("activation_embed_and_logits_batch", "activation_length", "activation_vocab"));
    if (logits_scale(model) != 1) logits = mx_scale(t, logits, logits_scale(model));
    double cap = model->config->final_logits_soft_cap;
    return cap > 0 ? mx_softcap(t, logits, cap) : logits;
}

static MxXentAttr loss_attr(const MxModel *model) {
    return (MxXentAttr){.tied = model->logits < 0,
                        .scale = logits_scale(model),
                        .softcap = model->config->final_logits_soft_cap,
                        .tiles = model->config->num_vocab_tiling};
}

MxValue mx_model_xent(MxTrace *t, const MxModel *model, const MxValue *params, MxValue hidden,
                      MxValue targets, MxValue weights) {
    MxXentAttr attr = loss_attr(model);
    attr.z_loss = model->config->z_loss_multiplier;
    return mx_xent(t, hidden, head(t, model, params), targets, weights, attr);
}

MxValue mx_model_nll(MxTrace *t, const MxModel *model, const MxValue *params, MxValue hidden,
                     MxValue targets, MxValue weights) {
    return mx_xent(t, hidden, head(t, model, params), targets, weights, loss_attr(model));
}

MxValue mx_model_argmax(MxTrace *t, const MxModel *model, const MxValue *params, MxValue hidden,
                        MxValue weights) {
    return mx_argmax(t, hidden, head(t, model, params), weights, loss_attr(model));
}

MxValue mx_model_logprob(MxTrace *t, const MxModel *model, const MxValue *params, MxValue hidden,
                         MxValue targets, MxValue weights) {
    return mx_logprob(t, hidden, head(t, model, params), targets, weights, loss_attr(model));
}
