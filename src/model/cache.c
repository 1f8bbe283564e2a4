/* cache.c — attention where it meets what is kept of earlier tokens. */
#include <mx/model.h>

#include "internal.h"

MxValue model_attend(const Pass *p, const Spec *spec, const MxValue qkv[3], MxValue sinks) {
    MxTrace *t = p->t;
    MxValue all[3] = {qkv[0]};
    if (!p->caches)
        return sinks == MX_NONE
                   ? mx_attention(t, qkv[0], qkv[1], qkv[2], p->segments_BT, spec->attention)
                   : mx_attention_sinks(t, qkv, p->segments_BT, sinks, spec->attention);
    for (int i = 0; i < MODEL_CACHES; i++) {
        MxValue cache = mx_variable(t, p->caches[i]);
        all[1 + i] = mx_cache_write(t, cache, qkv[1 + i], p->kept_BT);
        mx_trace_assign(t, all[1 + i], p->caches[i], false);
    }
    return mx_cache_attention(t, all, p->kept_BT, p->counts_B, sinks, spec->attention);
}

/* Every layer has a block that looks at other tokens. One that keeps nothing for model_attend is
 * not made for pieces of a sequence, and neither are tokens that see later ones. */
static const Block *find_mixer(const MxModel *model, const Layer *layer, MxError *err) {
    const MxConfig *c = model->config;
    const Spec *spec = &model->specs[layer->spec];
    const Block *block = model_block(spec->row->block[0].kind);
    if (spec->attention.mask == MX_MASK_FULL)
        mx_config_fail(err, c, MX_KEY_attention_type,
                       "full: tokens see those behind them, so none can be generated after them");
    else if (!block->caches)
        mx_config_fail(err, c, MX_KEY_decoder_block, "generation is not available yet for %s",
                       c->decoder_block);
    else
        return block;
    return NULL;
}

bool mx_model_caches(MxArena *arena, const MxModel *model, const MxModelCache **out, int *n,
                     MxError *err) {
    MxModelCache *all = mx_new_n(arena, MxModelCache, MODEL_CACHES * model->n_layers + 1);
    for (int i = 0; i < model->n_layers; i++) {
        const Layer *layer = &model->layers[i];
        MxModelCache *own = all + MODEL_CACHES * i;
        const Block *block = find_mixer(model, layer, err);
        if (!block) return false;
        block->caches(model->config, own);
        for (int k = 0; k < MODEL_CACHES; k++) {
            own[k].name = mx_path_join(arena, layer->scope, own[k].name);
            own[k].window = model->specs[layer->spec].attention.window;
        }
    }
    *out = all;
    *n = MODEL_CACHES * model->n_layers;
    return true;
}
