/* decoder.c — the forward pass: embedding, layers, last norm, output head. Blocks are called
 * through their rows. Written once for all families, for one micro-batch with global shapes.
 *
 * Shape letters: B batch, T time, D model width, V vocab. */
#include <mx/model.h>

#include "streams.h"

#include <math.h>

static MxValue constrain_stream(const Pass *p, MxValue x_BTD) {
    const char *const batch = "activation_batch", *const length = "activation_norm_length";
    const char *const embed = "activation_embed";
    bool is_one = mx_trace_type(p->t, x_BTD).shape.rank == 3; /* row a token */
    return mx_trace_constrain(
        p->t, x_BTD, is_one ? AXES(batch, length, embed) : AXES(batch, length, NULL, embed));
}

/* What a block makes of x behind the norm before it, with the norm after it. */
static MxValue through_block(const Pass *outer, const Spec *spec, const BlockLeaves *b,
                             MxValue x_BTD, MxValue normed_BTD) {
    Pass p = *outer;
    p.stream = x_BTD;
    MxValue y_BTD = b->block->trace(&p, spec, b->own, normed_BTD);
    if (p.feature && b == p.mixer) *p.feature = y_BTD;
    y_BTD = model_norm(&p, y_BTD, b->norm_after, spec->epsilon);
    return b->back < 0 ? y_BTD : model_project(&p, y_BTD, b->back, -1);
}

/* All blocks: usually x + block(x) of each. */
static MxValue through_blocks(const Pass *p, const Layer *l, MxValue x_BTD) {
    MxValue reads = x_BTD, beside = MX_NONE;
    for (int i = 0; i < l->n_blocks; i++) {
        const BlockLeaves *b = &l->block[i];
        const Spec *spec = &p->model->specs[l->spec];
        Streams streams = model_read_streams(p, b->hyper, reads, spec->epsilon);
        MxValue normed = model_norm(p, streams.reads, b->norm_before, spec->epsilon);
        MxValue y = through_block(p, spec, b, streams.reads, normed);
        bool stands_beside = b->row->join == MX_JOIN_BESIDE;
        reads = stands_beside ? normed : y;
        if (stands_beside) beside = y;
        if (stands_beside || b->row->join == MX_JOIN_GOES_ON) continue;
        if (beside >= 0) y = mx_add(p->t, y, beside);
        beside = MX_NONE;
        if (b->row->join == MX_JOIN_ADDS) y = model_write_streams(p, &streams, x_BTD, y);
        reads = x_BTD = constrain_stream(p, y);
    }
    return x_BTD;
}

MxValue model_scaled(MxTrace *t, MxValue x, MxValue w) {
    MxShape shape = mx_trace_type(t, x).shape, apart = shape;
    apart.dim[apart.rank++] = 1;
    w = mx_reshape(t, w, MX_SHAPE(1, 1));
    return mx_reshape(t, mx_dot(t, mx_reshape(t, x, apart), w, MX_DOT_NN, 1), shape);
}

MxValue model_times(const Pass *p, MxValue x, int leaf) {
    return model_scaled(p->t, x, model_weight(p, leaf));
}

MxRandomAttr model_random(const Pass *p, double amount) {
    return (MxRandomAttr){.amount = amount,
                          .seed = (uint64_t)p->model->config->init_weights_seed,
                          .stream = (uint64_t)p->draws->n_streams++};
}

/* Source: MaxText layers/linears.py, Dropout; models/llama2.py @e591f30c, where the whole stream
 * passes through it. */
MxValue model_drop(const Pass *p, MxValue x) {
    const MxConfig *c = p->model->config;
    if (!p->draws || !mx_config_drops(c)) return x;
    MxRandomAttr attr = model_random(p, c->dropout_rate);
    attr.by_column = true;
    return mx_dropout(p->t, x, p->draws->rows, p->draws->step, attr);
}

/* Source: Jain et al. 2023 (NEFTune); transformers 5.24, integrations/neftune.py, whose hook is
 * behind the table of embeddings. */
static MxValue add_noise(const Pass *p, MxValue x_BTD) {
    double alpha = p->model->config->neftune_noise_alpha;
    MxShape shape = mx_trace_type(p->t, x_BTD).shape;
    if (!p->draws || alpha <= 0) return x_BTD;
    double range = alpha / sqrt((double)(shape.dim[1] * shape.dim[2]));
    return mx_noise(p->t, x_BTD, p->draws->rows, p->draws->step, model_random(p, range));
}

MxValue model_draw(const Pass *p, MxValue x_BTN, int64_t k) {
    MxDrawIdsAttr attr = {.k = k,
                          .seed = (uint64_t)p->model->config->init_weights_seed,
                          .stream = (uint64_t)p->draws->n_streams++};
    return mx_draw_ids(p->t, x_BTN, p->draws->rows, p->draws->step, attr);
}

static MxValue layer(const Pass *p, const Layer *l, MxValue x_BTD) {
    p->t->scope = l->scope;
    if (l->recall)
        x_BTD =
            constrain_stream(p, model_recall(p, l->recall, x_BTD, p->model->specs[l->spec].epsilon,
                                             model_count_mixer_caches(p->model, l)));
    x_BTD = through_blocks(p, l, x_BTD);
    x_BTD = model_add_own_input(p, &p->model->specs[l->spec], &l->input, x_BTD);
    if (l->scalar >= 0) x_BTD = constrain_stream(p, model_times(p, x_BTD, l->scalar));
    if (!p->draws || p->model->family->keeps_stream) return x_BTD;
    return constrain_stream(p, model_drop(p, x_BTD));
}

static Pass begin(MxTrace *t, const MxModel *model, const MxValue *params, MxModelInputs in) {
    bool sees_itself = in.images && mx_model_vision(model->config).encoder->sees_itself;
    Pass p = {.t = t,
              .model = model,
              .params = params,
              .tokens_BT = in.tokens,
              .segments_BT = in.segments,
              .positions_BT = in.positions,
              .images_BT = sees_itself ? in.images->index : MX_NONE,
              .place = in.place,
              .draws = in.draws,
              .caches = in.caches,
              .balance = in.balance,
              .index = in.index,
              .loads = in.loads,
              .kept = in.kept,
              .tops = in.tops};
    t->scope = "token_embedder";
    for (int i = 0; i < model->family->n_specs; i++) {
        const Spec *spec = &model->specs[i];
        if (spec->rope.n && spec->rope.kind && in.mrope)
            p.rope_table[i] = mx_rope_table_of(t, MX_MROPE_KINDS, in.mrope, spec->rope);
        else if (spec->rope.n)
            p.rope_table[i] = mx_rope_table(t, in.positions, spec->rope);
        if (spec->tuning.n) p.tuning_table[i] = mx_rope_table(t, in.positions, spec->tuning);
    }
    return p;
}

/* Sines, then cosines of the positions' angles: each pair (0, 1), turned back by them. Source:
 * MaxText layers/embeddings.py (PositionalEmbedding) @e591f30c. */
static MxValue waves(const Pass *p, MxValue positions_BT) {
    const MxModel *model = p->model;
    MxShape tokens = mx_trace_type(p->t, positions_BT).shape;
    MxInitAttr half = {
        .type = {model->dtype, MX_SHAPE(tokens.dim[0], tokens.dim[1], 1, model->waves.n)},
        .fill = MX_FILL_CONSTANT};
    MxValue zeros = mx_init(p->t, half);
    half.value = 1;
    MxValue pairs = mx_concat(p->t, zeros, mx_init(p->t, half));
    MxValue table = mx_rope_table(p->t, positions_BT, model->waves);
    MxValue turned = mx_rope(p->t, pairs, table, (MxRopeAttr){.inverse = true});
    return model_flatten_last(p->t, turned, 2);
}

static MxValue embed(const Pass *p, MxValue tokens_BT, MxValue positions_BT) {
    MxTrace *t = p->t;
    const MxModel *model = p->model;
    MxValue x_BTD = mx_embed(t, model_param(p, model->embedding), tokens_BT, model->dtype);
    x_BTD = model_drop(p, add_noise(p, x_BTD));
    if (model->positions >= 0)
        x_BTD = mx_add(t, x_BTD,
                       mx_embed(t, model_param(p, model->positions), positions_BT, model->dtype));
    if (model->waves.n) x_BTD = mx_add(t, x_BTD, waves(p, positions_BT));
    return mx_trace_constrain(
        t, x_BTD,
        AXES("activation_embed_and_logits_batch", "activation_length", "activation_embed"));
}

/* Rows [B, .., W] of one behind those of another. */
static MxValue append_rows(MxTrace *t, MxValue x, MxValue y) {
    MxShape of_x = mx_trace_type(t, x).shape, of_y = mx_trace_type(t, y).shape;
    const int64_t B = of_x.dim[0], W = of_x.dim[2];
    MxValue all = mx_concat(t, mx_reshape(t, x, MX_SHAPE(B, of_x.dim[1] * W)),
                            mx_reshape(t, y, MX_SHAPE(B, of_y.dim[1] * W)));
    return mx_reshape(t, all, MX_SHAPE(B, of_x.dim[1] + of_y.dim[1], W));
}

/* What images and sounds become, [B, rows, D] each: what stands in the place of their tokens, and
 * what is added behind each of the first layers. */
typedef struct Seen {
    MxValue *rows, index;
    int n_deep;
} Seen;

static Seen see(const Pass *p, MxArena *arena, const MxModelImages *images) {
    const MxConfig *c = p->model->config;
    Seen seen = {.n_deep = images ? (int)mx_model_vision(c).deep : 0};
    if (!images) return seen;
    MxValue all = images->rows == MX_NONE ? model_see(p, images) : images->rows;
    if (images->sounds) all = append_rows(p->t, all, model_hear(p, images->sounds));
    seen.index = images->index;
    seen.rows = mx_new_n(arena, MxValue, 1 + seen.n_deep);
    model_take_apart(p->t, all, 1 + seen.n_deep, c->emb_dim, seen.rows);
    return seen;
}

/* Behind a layer. Source: Meng et al. 2024 (DeepStack); MaxText layers/decoders.py
 * (deepstack_process) @e591f30c. */
static MxValue add_seen(const Pass *p, const Seen *seen, int layer, MxValue x_BTD) {
    MxTrace *t = p->t;
    if (layer >= seen->n_deep) return x_BTD;
    MxType type = mx_trace_type(t, x_BTD);
    MxInitAttr nothing = {.type = {MX_F32, type.shape}, .fill = MX_FILL_CONSTANT};
    MxValue zeros = mx_cast(t, mx_init(t, nothing), type.dtype);
    MxValue more = mx_merge(t, zeros, seen->rows[1 + layer], seen->index);
    return constrain_stream(p, mx_add(t, x_BTD, more));
}

MxValue mx_model_see(MxTrace *t, const MxModel *model, const MxValue *params,
                     const MxModelImages *images) {
    return model_see(&(Pass){.t = t, .model = model, .params = params}, images);
}

MxValue mx_model_hear(MxTrace *t, const MxModel *model, const MxValue *params,
                      const MxModelSounds *sounds) {
    return model_hear(&(Pass){.t = t, .model = model, .params = params}, sounds);
}

MxValue mx_model_stream(MxTrace *t, const MxModel *model, const MxValue *params, MxModelInputs in) {
    Pass p = begin(t, model, params, in);
    MxArena arena = {.name = "layers"};
    MxValue x_BTD = embed(&p, in.tokens, in.positions);
    const Seen seen = see(&p, &arena, in.images);
    if (in.images) x_BTD = mx_merge(t, x_BTD, seen.rows[0], seen.index);
    MxValue *inputs = mx_new_n(&arena, MxValue, model->n_layers);
    p.kv = mx_arena_alloc(&arena, (size_t)model->n_layers * sizeof *p.kv);
    model_make_inputs(&p, in.tokens, x_BTD, inputs);
    x_BTD = model_spread(&p, x_BTD);
    for (int i = 0; i < model->n_layers; i++) {
        t->region = i + 1;
        p.layer = i;
        p.giver = model->layers[i].giver;
        p.input = inputs[i];
        p.mixer = &model->layers[i].block[0];
        p.feature = in.features ? &in.features[i] : NULL;
        x_BTD = layer(&p, &model->layers[i], x_BTD);
        if (in.moments) in.moments[i] = mx_moments(t, x_BTD);
        x_BTD = add_seen(&p, &seen, i, x_BTD);
        if (p.caches) p.caches += model_count_caches(model, &model->layers[i]);
    }
    t->region = 0;
    mx_arena_release(&arena);
    return model_gather(&p, x_BTD);
}

MxValue mx_model_last_norm(MxTrace *t, const MxModel *model, const MxValue *params,
                           MxModelInputs in, MxValue stream) {
    Pass p = {.t = t, .model = model, .params = params, .draws = in.draws};
    t->scope = "decoder/decoder_norm";
    double epsilon = model->config->normalization_layer_epsilon;
    return model_drop(&p, model_norm(&p, stream, model->final_norm, epsilon));
}

MxValue mx_model_hidden(MxTrace *t, const MxModel *model, const MxValue *params, MxModelInputs in) {
    return mx_model_last_norm(t, model, params, in, mx_model_stream(t, model, params, in));
}

/* Positions and segments of the layer stay where they are; what is added to a token's embedding
 * for its position comes along with it. */
MxAhead mx_model_ahead(MxTrace *t, const MxModel *model, const MxValue *params, MxModelInputs in,
                       int k, MxAhead before) {
    MX_ASSERT(k >= 1 && k <= model->n_ahead);
    const Ahead *module = &model->ahead[k - 1];
    MxValue kv[1][2]; /* a layer's own */
    Pass p = begin(t, model, params, in);
    p.kv = kv;
    MxAhead after = {.tokens = mx_shift(t, before.tokens, in.segments, k - 1),
                     .targets = mx_shift(t, before.targets, in.segments, k - 1),
                     .weights = mx_shift(t, before.weights, in.segments, k - 1),
                     .positions = before.positions};
    if (model->positions >= 0 || model->waves.n)
        after.positions = mx_shift(t, before.positions, in.segments, k - 1);
    MxValue x_BTD = embed(&p, after.tokens, after.positions);
    t->region = model->n_layers + k;
    t->scope = module->scope;
    double epsilon = model->config->normalization_layer_epsilon;
    MxValue wide = mx_concat(t, model_norm(&p, x_BTD, module->embedding_norm, epsilon),
                             model_norm(&p, before.stream, module->hidden_norm, epsilon));
    after.stream = model_project(&p, wide, module->projection, -1);
    for (int i = 0; i < mx_family_a_name(model->family); i++)
        after.stream = layer(&p, &module->layers[i], after.stream);
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
    if (model->logits < 0) return model_weight(&p, model->embedding);
    return mx_cast(t, model_fold_adapter(&p, model->logits), model->dtype);
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

MxValue mx_model_score(MxTrace *t, const MxModel *model, const MxValue *params, MxValue hidden) {
    Pass p = {.t = t, .model = model, .params = params};
    MxShape shape = mx_trace_type(t, hidden).shape;
    t->scope = "decoder/score";
    MxValue score = mx_dot(t, hidden, model_weight(&p, model->score), MX_DOT_NN, 1);
    return mx_cast(t, mx_reshape(t, score, MX_SHAPE(shape.dim[0], shape.dim[1])), MX_F32);
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

static MxXentAttr attr_at(const MxModel *model, double temperature) {
    MxXentAttr attr = loss_attr(model);
    attr.scale /= temperature;
    attr.softcap /= temperature; /* cap tanh(x / cap) / T is tanh of the same, times cap / T */
    return attr;
}

static double temperature_of(const MxModel *model) {
    return model->config->use_grpo ? model->config->decode_sampling_temperature : 1;
}

MxValue mx_model_logprob(MxTrace *t, const MxModel *model, const MxValue *params, MxValue hidden,
                         MxValue targets, MxValue weights, MxValue *entropy) {
    MxXentAttr attr = attr_at(model, temperature_of(model));
    attr.entropy = entropy;
    MxValue logp = mx_logprob(t, hidden, head(t, model, params), targets, weights, attr);
    if (entropy) *entropy = logp < 0 ? MX_NONE : logp + 2;
    return logp;
}

/* The sum of squares of exp(x - L), L = lse(x), is exp(lse(2x) - 2L): twice as large logits are
 * those at half the temperature. */
MxValue mx_model_alignment(MxTrace *t, const MxModel *model, const MxValue *params, MxTargets of) {
    MxXentAttr attr = attr_at(model, temperature_of(model) / 2);
    MxValue twice = mx_logprob(t, of.hidden, head(t, model, params), of.targets, of.weights, attr);
    if (of.logp < 0 || twice < 0) return MX_NONE;
    MxValue squares = mx_add(t, twice + 1, mx_scale(t, of.logp + 1, -2));
    return mx_add(t, of.logp, mx_scale(t, squares, -1));
}

static MxHead head_of(MxTrace *t, MxModelSide side) {
    return (MxHead){side.hidden, head(t, side.model, side.params), loss_attr(side.model)};
}

MxValue mx_model_distill(MxTrace *t, MxModelSide student, MxModelSide teacher, MxValue targets,
                         MxValue weights, MxValue numbers) {
    return mx_distill(t, head_of(t, student), head_of(t, teacher), targets, weights, numbers);
}

MxValue mx_model_distill_top(MxTrace *t, MxModelSide student, MxValue top, MxValue ids,
                             MxValue targets, MxValue weights, MxValue numbers) {
    return mx_distill_top(t, head_of(t, student), top, ids, targets, weights, numbers);
}

MxValue mx_model_top(MxTrace *t, MxModelSide side, MxValue weights, int64_t k) {
    MxHead head = head_of(t, side);
    return mx_top_logits(t, head.h, head.w, weights, (MxTopAttr){head.attr, k});
}
