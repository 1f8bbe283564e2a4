/* spec.c — combines a config with the specs of its family's layers. Keys decide; a family only adds
 * what no key says. */
#include <mx/model.h>

#include "internal.h"

#include <math.h>

// clang-format off
static const struct {
    const char *name;
    MxMask mask;
} masks[] = {
    {"global",        MX_MASK_CAUSAL},
    {"local_sliding", MX_MASK_SLIDING},
    {"chunk",         MX_MASK_CHUNK},
    {"full",          MX_MASK_FULL},
    {"mla",           MX_MASK_CAUSAL},
    {"block_diffusion", MX_MASK_BLOCKS},
    {"compressed",    MX_MASK_SLIDING},
};
// clang-format on

const Block *model_block(MxBlockKind kind) {
    static const Block *const blocks[MX_BLOCK_COUNT] = {
        [MX_BLOCK_ATTENTION] = &block_attention,
        [MX_BLOCK_MLA] = &block_mla,
        [MX_BLOCK_COMPRESSED] = &block_compressed,
        [MX_BLOCK_DELTA] = &block_delta,
        [MX_BLOCK_GLU] = &block_glu,
        [MX_BLOCK_MOE] = &block_moe,
        [MX_BLOCK_LINEAR] = &block_linear,
    };
    return blocks[kind];
}

int model_n_blocks(const MxLayerSpec *row) {
    int n = 0;
    while (n < MX_LAYER_BLOCKS && row->block[n].kind != MX_BLOCK_NONE) n++;
    return n;
}

int64_t model_width(const MxConfig *c, MxWidth width) {
    const int64_t widths[] = {[MX_WIDTH_STREAM] = c->emb_dim,
                              [MX_WIDTH_MLP] = c->mlp_dim,
                              [MX_WIDTH_LATENT] = c->attention_output_dim};
    return widths[width];
}

static bool read_activation(const MxConfig *c, const char *name, MxActivation *out, MxError *err) {
    if (mx_activation_find(name, out)) return true;
    mx_config_fail(err, c, MX_KEY_mlp_activations, "unrecognized activation \"%s\"", name);
    const char *near = mx_nearest(name, mx_activation_names, MX_ACTIVATION_COUNT);
    if (near) mx_note(err, "hint: did you mean \"%s\"?", near);
    return false;
}

/* Experts may have a limit, and gates that gate themselves, as x sigmoid(1.702 x). */
static bool read_expert(const MxConfig *c, Spec *spec, MxError *err) {
    bool has_limit = mx_family_reads(mx_family_find(c->decoder_block), "mlp_activations_limit");
    double limit = has_limit ? c->mlp_activations_limit : 0;
    MxActivation activation = spec->activations[0];
    spec->expert = (MxGluAttr){.activation = activation, .limit = limit > 0 ? limit : 0};
    if (!spec->row->gates_themselves) return true;
    spec->expert.activation = MX_QUICK_GELU;
    spec->expert.term = 1;
    return activation == MX_SIGMOID ||
           mx_config_fail(err, c, MX_KEY_mlp_activations, "\"%s\", but gates of %s are sigmoids",
                          mx_activation_names[activation], c->decoder_block);
}

/* Experts are gated units whatever other blocks are: the first activation times a linear branch.
 * Source: MaxText layers/moe.py (apply_ffn_activation) @e591f30c. */
static bool read_activations(const MxConfig *c, Spec *spec, MxError *err) {
    MxStrs names = c->mlp_activations;
    if (names.n < 1 || names.n > MOST_ACTIVATIONS)
        return mx_config_fail(err, c, MX_KEY_mlp_activations,
                              "wants one to three branches, found %d", names.n);
    spec->n_activations = names.n;
    for (int i = 0; i < names.n; i++)
        if (!read_activation(c, names.item[i], &spec->activations[i], err)) return false;
    return read_expert(c, spec, err);
}

static Score score_of(const MxConfig *c) {
    static const char *const names[] = {[SCORE_PLAIN] = "",
                                        [SCORE_SOFTMAX] = "softmax",
                                        [SCORE_SIGMOID] = "sigmoid",
                                        [SCORE_SQRT_SOFTPLUS] = "sqrtsoftplus"};
    int i = 0;
    while (strcmp(names[i], c->routed_score_func)) i++; /* the key's row has no others */
    return (Score)i;
}

/* The config was checked: where a family says what layers see, attention_type says nothing else. */
static void read_mask(const MxConfig *c, MxSees sees, MxAttentionAttr *a) {
    for (int i = 0; i < MX_COUNT(masks); i++)
        if (!strcmp(masks[i].name, c->attention_type)) a->mask = masks[i].mask;
    if (sees == MX_SEES_WINDOW) a->mask = MX_MASK_SLIDING;
    if (sees == MX_SEES_CHUNK) a->mask = MX_MASK_CHUNK;
    if (a->mask == MX_MASK_SLIDING) a->window = c->sliding_window_size;
    if (a->mask == MX_MASK_CHUNK) a->window = c->chunk_attn_window_size;
    if (a->mask == MX_MASK_BLOCKS) a->window = c->causal_block_size;
}

static bool check_heads(const MxConfig *c, const Spec *spec, MxError *err) {
    return !spec->row->heads_alike || c->num_kv_heads == c->num_query_heads ||
           mx_config_fail(err, c, MX_KEY_base_num_kv_heads,
                          "%s has a key and a value for each query head; wants %lld, found %lld",
                          c->decoder_block, (long long)c->base_num_query_heads,
                          (long long)c->base_num_kv_heads);
}

/* attention_type says it as well. Of latent attention some things cannot be asked. */
static bool check_latent(const MxConfig *c, const Spec *spec, MxError *err) {
    bool is_latent = spec->row->block[0].kind == MX_BLOCK_MLA;
    bool is_compressed = spec->row->block[0].kind == MX_BLOCK_COMPRESSED;
    if (is_compressed != !strcmp(c->attention_type, "compressed"))
        return mx_config_fail(
            err, c, MX_KEY_attention_type,
            is_compressed ? "%s, but layers of %s have compressed attention; wants compressed"
                          : "%s, but layers of %s have no compressed attention",
            c->attention_type, c->decoder_block);
    if (is_latent != !strcmp(c->attention_type, "mla"))
        return mx_config_fail(err, c, MX_KEY_attention_type,
                              is_latent ? "%s, but layers of %s have latent attention; wants mla"
                                        : "%s, but layers of %s have no latent attention",
                              c->attention_type, c->decoder_block);
    if (!is_latent) return check_heads(c, spec, err);
    if (c->num_kv_heads != c->num_query_heads)
        return mx_config_fail(err, c, MX_KEY_base_num_kv_heads,
                              "latent attention has a key and a value for each query head; wants "
                              "%lld, found %lld",
                              (long long)c->base_num_query_heads, (long long)c->base_num_kv_heads);
    if (c->qk_rope_head_dim % 2)
        return mx_config_fail(err, c, MX_KEY_qk_rope_head_dim,
                              "%lld is odd; rotary position encoding turns pairs",
                              (long long)c->qk_rope_head_dim);
    const struct {
        MxKey key;
        bool is_set;
    } others[] = {{MX_KEY_attention_bias, c->attention_bias},
                  {MX_KEY_attention_sink, c->attention_sink},
                  {MX_KEY_use_qk_norm, c->use_qk_norm},
                  {MX_KEY_fused_qkv, c->fused_qkv}};
    for (int i = 0; i < MX_COUNT(others); i++)
        if (others[i].is_set)
            return mx_config_fail(err, c, others[i].key, "latent attention has none; wants false");
    return true;
}

/* Layers may have heads of their own. */
static bool read_heads(const MxConfig *c, Spec *spec, MxError *err) {
    bool has_own = spec->row->has_own_heads;
    spec->head_dim = has_own && c->global_head_dim ? c->global_head_dim : c->head_dim;
    spec->n_kv_heads = has_own && c->global_num_kv_heads ? c->global_num_kv_heads : c->num_kv_heads;
    spec->shares_kv = has_own && c->share_kv_projections;
    return !spec->shares_kv || !c->fused_qkv ||
           mx_config_fail(err, c, MX_KEY_fused_qkv,
                          "true, but keys are values too (share_kv_projections); wants false");
}

/* The original chooses chunks in any attention, out of the keys that its mask shows; what is
 * refused here has keys of another kind, later tokens among them, or another input of attention. */
static bool read_chunks(const MxConfig *c, Spec *spec, MxError *err) {
    MxBlockKind kind = spec->row->block[0].kind;
    MxMask mask = spec->attention.mask;
    const struct {
        bool is_so;
        const char *what;
    } others[] = {{kind != MX_BLOCK_ATTENTION && kind != MX_BLOCK_MLA,
                   "compressed attention, or layers without attention"},
                  {mask == MX_MASK_FULL || mask == MX_MASK_BLOCKS, "tokens that see later ones"},
                  {c->attention_sink, "attention_sink"},
                  {c->use_indexer, "use_indexer"},
                  {c->use_multimodal, "use_multimodal"}};
    if (!c->moba || kind == MX_BLOCK_DELTA) return true;
    for (int i = 0; i < MX_COUNT(others); i++)
        if (others[i].is_so)
            return mx_config_fail(err, c, MX_KEY_moba, "not available yet with %s", others[i].what);
    spec->chunks = (MxChunksAttr){.chunk = c->moba_chunk_size, .n_best = c->moba_topk};
    return true;
}

static bool read_attention(const MxConfig *c, Spec *spec, MxError *err) {
    MxAttentionAttr *a = &spec->attention;
    const Block *block = model_block(spec->row->block[0].kind);
    if (!check_latent(c, spec, err) || !read_heads(c, spec, err)) return false;
    *a = (MxAttentionAttr){.scale = block->scale ? block->scale(c, spec->row) : 1,
                           .softcap = c->attn_logits_soft_cap};
    if (c->query_pre_attn_scalar > 0) a->scale = 1 / sqrt(c->query_pre_attn_scalar);
    read_mask(c, spec->row->sees, a);
    return read_chunks(c, spec, err);
}

/* Of keys and values of earlier tokens. Source: MaxText inference/kvcache.py @e591f30c. */
static MxCacheCodesAttr read_kept(const MxConfig *c) {
    MxCacheCodesAttr kept = {.spans_heads = !strcmp(c->kv_quant_axis, "heads_and_dkv")};
    if (c->quantize_kvcache) mx_qtype_parse(c->kv_quant_dtype, &kept.type);
    return kept;
}

MxLayers mx_model_layers(const MxConfig *config) {
    MxLayerKeys keys = {.n = config->num_decoder_layers,
                        .n_dense = config->first_num_dense_layers,
                        .n_hash = config->first_num_hash_layers,
                        .nope_interval = config->nope_layer_interval,
                        .moe_step = config->interleave_moe_layer_step,
                        .cycle = config->inhomogeneous_layer_cycle_interval,
                        .last_ends_cycle = config->last_layer_sees_all,
                        .n_experts = config->num_experts,
                        .n_takers = config->num_kv_shared_layers,
                        .ratios = config->layer_ratios,
                        .recall = config->recall_layers,
                        .n_recall = config->n_recall};
    return mx_layers(mx_family_find(config->decoder_block), keys);
}

bool mx_model_has_experts(const MxConfig *config) {
    MxLayers layers = mx_model_layers(config);
    bool has = false;
    for (int i = 0; i < layers.n && !has; i++)
        has = mx_layer_spec(&layers, i)->block[1].kind == MX_BLOCK_MOE;
    return has;
}

bool model_read_spec(MxArena *arena, const MxConfig *config, const MxLayerSpec *row, Spec *out,
                     MxError *err) {
    const bool said[MX_LAYER_BLOCKS] = {config->use_post_attn_norm, config->use_post_ffw_norm};
    *out = (Spec){.row = row,
                  .epsilon = config->normalization_layer_epsilon,
                  .norms_heads = row->norms_heads || config->use_qk_norm,
                  .has_bias = row->has_biases || config->attention_bias,
                  .kept = read_kept(config),
                  .score = score_of(config)};
    out->has_out_bias = row->has_biases || (row->has_out_bias && config->attention_bias);
    for (int i = 0; i < MX_LAYER_BLOCKS; i++)
        out->norm_after[i] = row->asks_norms_after && !said[i] ? NULL : row->block[i].norm_after;
    return read_attention(config, out, err) && read_activations(config, out, err) &&
           model_rope(arena, config, out, err);
}
