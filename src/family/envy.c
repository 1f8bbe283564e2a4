/* envy.c — MaxText's Envy: layers with experts among layers without, otherwise as Llama with scaled
 * queries; a norm behind feed-forward blocks where a key says so. Source: MaxText models/envy.py
 * @e591f30c. */
#include "rows.h"

#define ENVY_LAYER(kind_, name_)                                                                   \
    .block = {{.kind = MX_BLOCK_ATTENTION,                                                         \
               .name = "self_attention",                                                           \
               .norm_before = "pre_self_attention_layer_norm"},                                    \
              {.kind = kind_,                                                                      \
               .name = name_,                                                                      \
               .norm_before = "post_self_attention_layer_norm",                                    \
               .norm_after = "post_ffw_norm"}},                                                    \
    .asks_norms_after = true, .scales_query = true, .has_out_bias = true

const MxFamily family_envy = {
    .decoder_block = "envy",
    .specs =
        {[0] = {ENVY_LAYER(MX_BLOCK_GLU, "mlp")}, [1] = {ENVY_LAYER(MX_BLOCK_MOE, "MoeBlock_0")}},
    .n_specs = 2,
    .period = 2,
    .keys_say_turns = MX_KIND_EXPERTS,
    .place = MX_STACK_PLACE,
    .stages_hold_places = true,
    .keys = FAMILY_MOE_KEYS
    " use_post_ffw_norm interleave_moe_layer_step inhomogeneous_layer_cycle_interval",
    .lora_modules = FAMILY_LORA_MODULES,
};
