/* model.c — the family table, and from a config to a model. Behaviour follows keys: a family only
 * says what no key says. */
#include <mx/model.h>

#include "internal.h"

#include <math.h>

// clang-format off
static const Family families[] = {
    {.decoder_block = "llama2",  .scales_query = false, .has_out_bias = true},
    {.decoder_block = "mistral", .scales_query = false, .has_out_bias = true},
    {.decoder_block = "qwen2",   .scales_query = true,  .has_out_bias = false},
    {.decoder_block = "qwen3",   .scales_query = true,  .has_out_bias = true},
};

static const struct {
    const char *name;
    MxMask mask;
} masks[] = {
    {"global",        MX_MASK_CAUSAL},
    {"local_sliding", MX_MASK_SLIDING},
    {"chunk",         MX_MASK_CHUNK},
    {"full",          MX_MASK_FULL},
};
// clang-format on

static const Family *find_family(const char *decoder_block) {
    for (int i = 0; i < MX_COUNT(families); i++)
        if (!strcmp(families[i].decoder_block, decoder_block)) return &families[i];
    return NULL;
}

/* Gated units only: one activation times a linear branch. */
static bool read_activation(const MxConfig *c, MxModel *model, MxError *err) {
    MxStrs names = c->mlp_activations;
    if (names.n != 2 || strcmp(names.item[1], "linear"))
        return mx_config_fail(err, c, MX_KEY_mlp_activations,
                              "not available yet: only [ACTIVATION, linear] works now");
    for (int i = 0; i < MX_ACTIVATION_COUNT; i++)
        if (!strcmp(names.item[0], mx_activation_names[i])) {
            model->activation = (MxActivation)i;
            return true;
        }
    mx_config_fail(err, c, MX_KEY_mlp_activations, "unrecognized activation \"%s\"", names.item[0]);
    const char *near = mx_nearest(names.item[0], mx_activation_names, MX_ACTIVATION_COUNT);
    if (near) mx_note(err, "hint: did you mean \"%s\"?", near);
    return false;
}

static void read_attention(const MxConfig *c, MxModel *model) {
    MxAttentionAttr *a = &model->attention;
    bool scales = model->family->scales_query || c->use_qk_norm;
    *a = (MxAttentionAttr){.scale = scales ? 1 / sqrt((double)c->head_dim) : 1,
                           .softcap = c->attn_logits_soft_cap};
    if (c->query_pre_attn_scalar > 0) a->scale = 1 / sqrt(c->query_pre_attn_scalar);
    for (int i = 0; i < MX_COUNT(masks); i++)
        if (!strcmp(masks[i].name, c->attention_type)) a->mask = masks[i].mask;
    if (a->mask == MX_MASK_SLIDING) a->window = c->sliding_window_size;
    if (a->mask == MX_MASK_CHUNK) a->window = c->chunk_attn_window_size;
}

bool mx_model_new(MxArena *arena, const MxConfig *config, MxModel **out, MxError *err) {
    MxModel *model = mx_new(arena, MxModel);
    model->config = config;
    model->family = find_family(config->decoder_block);
    if (!model->family)
        return mx_config_fail(err, config, MX_KEY_decoder_block, "no such decoder: \"%s\"",
                              config->decoder_block);
    bool known = mx_dtype_parse(config->dtype, &model->dtype);
    MX_ASSERT(known);
    read_attention(config, model);
    if (!read_activation(config, model, err) || !model_rope(arena, config, model, err))
        return false;
    model_add_params(arena, model);
    if (config->enable_lora && !model_add_adapters(arena, model, err)) return false;
    *out = model;
    return true;
}

const MxTree *mx_model_params(const MxModel *model) {
    return &model->params;
}

MxKind mx_model_trains(const MxModel *model) {
    return model->config->enable_lora ? MX_KIND_LORA_PARAM : MX_KIND_PARAM;
}

const MxLora *mx_model_lora(const MxModel *model) {
    return model->lora.n_modules ? &model->lora : NULL;
}

const MxModel *mx_model_without_adapters(MxArena *arena, const MxModel *model) {
    MxModel *base = mx_new(arena, MxModel);
    *base = *model;
    base->adapters = NULL;
    return base;
}

MxHeadForm mx_model_head_form(const MxModel *model) {
    int64_t width = model->config->head_dim;
    return (MxHeadForm){.width = width,
                        .query_scale = 1 / sqrt((double)width) / model->attention.scale,
                        .interleaves = model->rope_layout.interleaved_in};
}

/* ---- cost */

/* Sums and products are taken in MaxText's order, so that the doubles are the same to the last bit.
 */
MxTflops mx_model_tflops(const MxModel *model) {
    enum { FORWARD_AND_BACKWARD = 3 };
    const double tera = 1e12;
    const MxConfig *c = model->config;
    double rows = c->per_device_batch_size, length = (double)c->max_target_length;
    double emb = (double)c->emb_dim, mlp = (double)c->mlp_dim, head = (double)c->head_dim;
    double heads = (double)c->num_query_heads, kv_heads = (double)c->num_kv_heads;
    double layers = (double)c->num_decoder_layers, ahead = (double)c->mtp_num_layers;
    double ffn_in = 2 * rows * length * mlp * emb * c->mlp_activations.n;
    double ffn = ffn_in + 2 * rows * length * mlp * emb;
    double qkv = 2 * rows * length * emb * (heads + 2 * kv_heads) * head;
    double projection = 2 * rows * length * emb * heads * head;
    double attention = 4 * rows * (length * length) * heads * head / 2;
    double unembedding = 2 * rows * length * emb * (double)c->vocab_size;
    double weights = ffn * layers + (qkv + projection) * layers + unembedding;
    double weights_ahead = (ffn + qkv + projection) * ahead;
    double micro_batches = (double)c->gradient_accumulation_steps;
    MxTflops tflops = {.learnable = weights * FORWARD_AND_BACKWARD / tera,
                       .attention = attention * layers * FORWARD_AND_BACKWARD / tera};
    tflops.learnable += weights_ahead * FORWARD_AND_BACKWARD / tera;
    tflops.attention += attention * ahead * FORWARD_AND_BACKWARD / tera;
    tflops.learnable *= micro_batches;
    tflops.attention *= micro_batches;
    if (c->use_dpo) tflops.reference = tflops.learnable / FORWARD_AND_BACKWARD;
    if (c->use_dpo) tflops.attention += tflops.attention / FORWARD_AND_BACKWARD;
    tflops.total = tflops.learnable + tflops.attention + tflops.reference;
    return tflops;
}

const char *mx_tflops_text(MxArena *arena, MxTflops tflops) {
    char total[MX_FIGURE];
    MxText text;
    mx_text_init(&text, arena);
    mx_text_add(&text,
                "Per train step:\n Total TFLOPs: %s \n split as %.2f%% learnable weight flops and "
                "%.2f%% attention flops",
                mx_figure(total, tflops.total, 2), 100 * tflops.learnable / tflops.total,
                100 * tflops.attention / tflops.total);
    if (tflops.reference > 0)
        mx_text_add(&text, ", %.2f%% frozen reference weight flops",
                    100 * tflops.reference / tflops.total);
    return text.data;
}
