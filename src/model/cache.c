/* cache.c — how blocks read and update caches of earlier tokens. */
#include <mx/model.h>

#include "chunks.h"

MxValue model_keep(const Pass *p, int cache, MxValue rows) {
    MxTrace *t = p->t;
    MxValue all = mx_cache_write(t, mx_variable(t, p->caches[cache]), rows, p->place);
    mx_trace_assign(t, all, p->caches[cache], false);
    return all;
}

void model_keep_both(const Pass *p, const Spec *spec, MxValue kv[2]) {
    for (int i = 0; p->caches && i < 2; i++) {
        if (spec->kept.type) kv[i] = mx_cache_codes(p->t, kv[i], spec->kept);
        kv[i] = model_keep(p, i, kv[i]);
    }
}

/* Means of chunks are of all their keys, those before the window too. */
int64_t model_cache_window(const Spec *spec) {
    return spec->chunks.n_best ? 0 : spec->attention.window;
}

MxValue model_choose_chunks(const Pass *p, const Spec *spec, MxValue q, MxValue k,
                            MxAttentionAttr *attr) {
    attr->is_chosen = true;
    attr->chunk = spec->chunks.chunk;
    return p->caches ? mx_cache_chunks(p->t, q, k, p->place, spec->chunks)
                     : mx_chunks(p->t, q, k, spec->chunks);
}

static MxValue attend_chunks(const Pass *p, const Spec *spec, const MxValue qkv[3]) {
    MxTrace *t = p->t;
    MxAttentionAttr attr = spec->attention;
    MxValue chosen = model_choose_chunks(p, spec, qkv[0], qkv[1], &attr);
    return p->caches ? mx_cache_attention(t, qkv, p->place, chosen, attr)
                     : mx_attention_chosen(t, qkv, p->segments_BT, chosen, attr);
}

MxValue model_attend(const Pass *p, const Spec *spec, const MxValue qkv[3], MxValue sinks) {
    MxTrace *t = p->t;
    MxAttentionAttr attr = spec->attention;
    if (spec->chunks.n_best) return attend_chunks(p, spec, qkv);
    const MxVision v = mx_model_vision(p->model->config);
    bool has_blocks =
        p->images_BT != MX_NONE && (!v.encoder->in_windows || attr.mask == MX_MASK_SLIDING);
    MX_ASSERT(!has_blocks || sinks == MX_NONE); /* the config sees to that */
    if (has_blocks) attr.block_size = v.tokens;
    if (p->caches && spec->kept.type) {
        attr.kept = spec->kept.type;
        attr.value_width = spec->head_dim;
    }
    if (p->caches)
        return mx_cache_attention(t, qkv, p->place, has_blocks ? p->images_BT : sinks, attr);
    if (has_blocks) return mx_attention_blocks(t, qkv, p->segments_BT, p->images_BT, attr);
    return sinks == MX_NONE ? mx_attention(t, qkv[0], qkv[1], qkv[2], p->segments_BT, attr)
                            : mx_attention_sinks(t, qkv, p->segments_BT, sinks, attr);
}

MxValue model_convolve(const Pass *p, MxValue x, MxValue w, MxDeltaAttr attr, int cache) {
    if (!p->caches) return mx_conv(p->t, x, w, p->segments_BT, attr);
    return mx_cache_conv(p->t, model_keep(p, cache, x), w, p->place, attr);
}

MxValue model_remember(const Pass *p, const MxValue qkv[3], const MxValue decay_beta[2],
                       MxDeltaAttr attr, int cache) {
    MxTrace *t = p->t;
    if (!p->caches) return mx_delta(t, qkv, decay_beta, p->segments_BT, attr);
    MxValue memory = mx_variable(t, p->caches[cache]);
    memory = mx_cache_delta(t, memory, qkv, decay_beta, p->place);
    mx_trace_assign(t, memory, p->caches[cache], false);
    return memory < 0 ? memory : memory + 1;
}

static int list_mixer_caches(const MxModel *model, const Layer *layer,
                             MxModelCache out[MODEL_MOST_CACHES]) {
    const Spec *spec = &model->specs[layer->spec];
    const Block *mixer = layer->block[0].block;
    return mixer->caches ? mixer->caches(model->config, spec, out) : 0;
}

static int list_caches(const MxModel *model, const Layer *layer,
                       MxModelCache out[MODEL_MOST_CACHES]) {
    int n = list_mixer_caches(model, layer, out);
    return n + model_recall_caches(model, layer->recall, out + n);
}

int model_count_mixer_caches(const MxModel *model, const Layer *layer) {
    MxModelCache own[MODEL_MOST_CACHES];
    return list_mixer_caches(model, layer, own);
}

int model_count_caches(const MxModel *model, const Layer *layer) {
    MxModelCache own[MODEL_MOST_CACHES];
    return list_caches(model, layer, own);
}

static bool check_layer(const MxModel *model, const Layer *layer, MxError *err) {
    const MxConfig *c = model->config;
    const Spec *spec = &model->specs[layer->spec];
    const char *numbers = spec->chunks.n_best ? "keys of which heads choose chunks (moba)"
                                              : layer->block[0].block->keeps_numbers;
    MxMask mask = spec->attention.mask;
    if (mask == MX_MASK_FULL || mask == MX_MASK_BLOCKS)
        return mx_config_fail(err, c, MX_KEY_attention_type,
                              "%s: tokens see those behind them, so none can be generated after "
                              "them",
                              c->attention_type);
    return !c->quantize_kvcache || !numbers ||
           mx_config_fail(err, c, MX_KEY_quantize_kvcache,
                          "true, but caches have %s, which are not kept in few bits; wants false",
                          numbers);
}

/* Every layer's first block, and its memories, look at other tokens. */
bool mx_model_caches(MxArena *arena, const MxModel *model, const MxModelCache **out, int *n,
                     MxError *err) {
    MxModelCache *all = mx_new_n(arena, MxModelCache, MODEL_MOST_CACHES * model->n_layers + 1);
    *n = 0;
    for (int i = 0; i < model->n_layers; i++) {
        const Layer *layer = &model->layers[i];
        if (!check_layer(model, layer, err)) return false;
        for (int more = list_caches(model, layer, all + *n); more > 0; more--, (*n)++)
            all[*n].name = mx_path_join(arena, layer->scope, all[*n].name);
    }
    *out = all;
    return true;
}
