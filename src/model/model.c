/* model.c — from a config to a model, and queries about models. */
#include <mx/model.h>

#include "adapter.h"
#include "streams.h"

#include <math.h>

static bool check_waves(const MxConfig *c, MxError *err) {
    return !c->use_untrainable_positional_embedding || c->emb_dim % 2 == 0 ||
           mx_config_fail(err, c, MX_KEY_use_untrainable_positional_embedding,
                          "adds a sine and a cosine of each frequency; wants an even emb_dim, "
                          "found %lld",
                          (long long)c->emb_dim);
}

/* Layers that take keys and values need one that gives them; modules that look ahead have no input
 * of their own. */
static bool check_takers(const MxConfig *c, MxError *err) {
    MxLayers layers = mx_model_layers(c);
    for (int i = 0; i < layers.n; i++)
        if (mx_layer_spec(&layers, i)->takes_kv && mx_layer_giver(&layers, i) < 0)
            return mx_config_fail(err, c, MX_KEY_num_kv_shared_layers,
                                  "%lld of %d layers: before them is none of layer %d's kind whose "
                                  "keys and values it could take",
                                  (long long)c->num_kv_shared_layers, layers.n, i);
    return !layers.family->has_inputs || !c->mtp_num_layers ||
           mx_config_fail(err, c, MX_KEY_mtp_num_layers, "not available yet for %s",
                          c->decoder_block);
}

/* Modules that look ahead have one row a token in the original, whose layers then fail; what
 * dropout leaves out is another thing of rows; products of rows are rounded nowhere. */
static bool check_streams(const MxConfig *c, MxError *err) {
    const struct {
        MxKey key;
        bool is_set;
    } others[] = {{MX_KEY_mtp_num_layers, c->mtp_num_layers > 0},
                  {MX_KEY_dropout_rate, mx_config_drops(c)},
                  {MX_KEY_quantization, *c->quantization}};
    if (model_n_streams(c) == 1) return true;
    for (int i = 0; i < MX_COUNT(others); i++)
        if (others[i].is_set)
            return mx_config_fail(err, c, others[i].key,
                                  "not available yet with mhc_expansion_rate above 1");
    return !c->enable_mhc_lite || c->mhc_expansion_rate <= MX_MOST_PERMUTED ||
           mx_config_fail(
               err, c, MX_KEY_mhc_expansion_rate,
               "%lld rows have too many permutations (enable_mhc_lite); wants at most %d",
               (long long)c->mhc_expansion_rate, MX_MOST_PERMUTED);
}

/* Of a student only what student_params_to_update names is trained. Source: MaxText
 * trainers/post_train/distillation/train_distill.py @e591f30c, student_freeze_param_fn. */
static bool freeze(MxModel *model, MxError *err) {
    const MxConfig *c = model->config;
    const MxKey key = MX_KEY_student_params_to_update;
    const MxStrs *named = &c->student_params_to_update;
    int n_trained = 0;
    if (!named->n || !mx_config_distils(c)) return true;
    for (int i = 0; i < model->params.n; i++) {
        MxLeaf *leaf = &model->params.leaves[i];
        bool is_named;
        if (leaf->kind != MX_KIND_PARAM) continue;
        if (!mx_config_match(c, key, named, leaf, &is_named, err)) return false;
        if (!is_named) leaf->kind = MX_KIND_FROZEN;
        n_trained += is_named;
    }
    return n_trained || mx_config_fail(err, c, key, "matches no parameter");
}

bool mx_model_new(MxArena *arena, const MxConfig *config, MxModel **out, MxError *err) {
    MxModel *model = mx_new(arena, MxModel);
    model->config = config;
    model->family = mx_family_find(config->decoder_block);
    MX_ASSERT(model->family && model->family->n_specs); /* the key's row has no others */
    if (!check_waves(config, err) || !check_takers(config, err)) return false;
    if (!check_streams(config, err)) return false;
    bool known = mx_dtype_parse(config->dtype, &model->dtype);
    MX_ASSERT(known);
    model->rounding = model_read_rounding(arena, config);
    for (int i = 0; i < model->family->n_specs; i++)
        if (!model_read_spec(arena, config, &model->family->specs[i], &model->specs[i], err))
            return false;
    if (!model_plan_recall(arena, model, err)) return false;
    model->waves = model_waves(arena, config);
    model_add_params(arena, model);
    if (!model_tie_params(arena, model, err) || !freeze(model, err)) return false;
    if (config->enable_lora && !model_add_adapters(arena, model, err)) return false;
    *out = model;
    return true;
}

const MxTree *mx_model_params(const MxModel *model) {
    return &model->params;
}

const MxRouter *mx_model_routers(const MxModel *model, int *n) {
    *n = model->n_routers;
    return model->routers;
}

const MxHeads *mx_model_heads(const MxModel *model, int *n) {
    *n = model->n_heads;
    return model->heads;
}

int mx_model_layer(const MxModel *model, const MxLeaf *leaf) {
    for (int i = 0; i < model->n_layers; i++) {
        const char *scope = model->layers[i].scope;
        if (mx_text_has_prefix(leaf->path, scope) && leaf->path[strlen(scope)] == '/') return i;
    }
    return -1;
}

MxKind mx_model_trains(const MxModel *model) {
    return model->config->enable_lora ? MX_KIND_LORA_PARAM : MX_KIND_PARAM;
}

const MxLora *mx_model_lora(const MxModel *model) {
    return model->lora.n_modules ? &model->lora : NULL;
}

int mx_model_whole(const MxModel *model, int param) {
    return model->adapters ? model->adapters[param].whole : -1;
}

const MxModel *mx_model_without_adapters(MxArena *arena, const MxModel *model) {
    MxModel *base = mx_new(arena, MxModel);
    *base = *model;
    base->adapters = NULL;
    return base;
}

/* All layers of a family hold them alike. */
MxHeadForm mx_model_head_form(const MxModel *model) {
    const Spec *spec = &model->specs[0];
    for (int i = model->family->n_specs - 1; i >= 0; i--)
        if (model->specs[i].row->block[0].kind == MX_BLOCK_ATTENTION) spec = &model->specs[i];
    bool is_latent = spec->row->block[0].kind == MX_BLOCK_MLA; /* kernels are as others', … */
    bool is_bare = spec->norms_heads && spec->attention.scale == 1; /* … and so where norms scale */
    int64_t width = model->config->head_dim;
    double said = model->config->query_pre_attn_scalar;
    double theirs = model->family->hf[0].has_query_scalar && said > 0 ? said : (double)width;
    return (MxHeadForm){.width = width,
                        .query_scale =
                            is_latent || is_bare ? 1 : 1 / sqrt(theirs) / spec->attention.scale,
                        .fuses_qkv = model->config->fused_qkv,
                        .fuses_mlp = model->config->fused_mlp,
                        .interleaves = spec->rope_layout.interleaved_in};
}
