/* spec.c — what a config makes of a row of its family's layers. Behaviour follows keys: a family
 * only says what no key says. */
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
};
// clang-format on

const Block *model_block(MxBlockKind kind) {
    static const Block *const blocks[MX_BLOCK_COUNT] = {
        [MX_BLOCK_ATTENTION] = &block_attention,
        [MX_BLOCK_GLU] = &block_glu,
    };
    return blocks[kind];
}

/* Gated units only: one activation times a linear branch. */
static bool read_activation(const MxConfig *c, Spec *spec, MxError *err) {
    MxStrs names = c->mlp_activations;
    if (names.n != 2 || strcmp(names.item[1], "linear"))
        return mx_config_fail(err, c, MX_KEY_mlp_activations,
                              "not available yet: only [ACTIVATION, linear] works now");
    for (int i = 0; i < MX_ACTIVATION_COUNT; i++)
        if (!strcmp(names.item[0], mx_activation_names[i])) {
            spec->activation = (MxActivation)i;
            return true;
        }
    mx_config_fail(err, c, MX_KEY_mlp_activations, "unrecognized activation \"%s\"", names.item[0]);
    const char *near = mx_nearest(names.item[0], mx_activation_names, MX_ACTIVATION_COUNT);
    if (near) mx_note(err, "hint: did you mean \"%s\"?", near);
    return false;
}

static void read_attention(const MxConfig *c, Spec *spec) {
    MxAttentionAttr *a = &spec->attention;
    bool scales = spec->row->scales_query || c->use_qk_norm;
    *a = (MxAttentionAttr){.scale = scales ? 1 / sqrt((double)c->head_dim) : 1,
                           .softcap = c->attn_logits_soft_cap};
    if (c->query_pre_attn_scalar > 0) a->scale = 1 / sqrt(c->query_pre_attn_scalar);
    for (int i = 0; i < MX_COUNT(masks); i++)
        if (!strcmp(masks[i].name, c->attention_type)) a->mask = masks[i].mask;
    if (a->mask == MX_MASK_SLIDING) a->window = c->sliding_window_size;
    if (a->mask == MX_MASK_CHUNK) a->window = c->chunk_attn_window_size;
}

bool model_read_spec(MxArena *arena, const MxConfig *config, const MxLayerSpec *row, Spec *out,
                     MxError *err) {
    *out = (Spec){.row = row, .epsilon = config->normalization_layer_epsilon};
    read_attention(config, out);
    return read_activation(config, out, err) && model_rope(arena, config, out, err);
}
