/* gpt3.c — GPT-3: layer norms, learned positions (trainable_position_size), biases everywhere, one
 * activation in a feed-forward block whose norm stands among its leaves. Source: MaxText
 * models/gpt3.py @e591f30c. */
#include "rows.h"

const MxFamily family_gpt3 = {
    .decoder_block = "gpt3",
    .specs =
        {{.block = {{.kind = MX_BLOCK_ATTENTION,
                     .name = "self_attention",
                     .norm_before = "pre_self_attention_norm"},
                    {.kind = MX_BLOCK_GLU, .name = "mlp", .norm_before = "mlp/mlp_layer_norm"}},
          .rope = MX_ROPE_NONE,
          .scales_query = true,
          .has_biases = true,
          .heads_alike = true}},
    .n_specs = 1,
    .period = 1,
    .norm = MX_NORM_LAYER,
    .lora_modules = FAMILY_LORA_LAYERS "(self_attention/(qkv_proj|out)|mlp/(wi|wo))",
};
