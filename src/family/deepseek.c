/* deepseek.c — DeepSeek 2 and 3: latent attention; the first layers have a gated feed-forward
 * block, those after them experts. Source: MaxText models/deepseek.py @e591f30c. */
#include "rows.h"

/* MaxText's own pattern of adapted modules names stacks that its trees do not have. */
const MxFamily family_deepseek = {
    .decoder_block = "deepseek",
    .specs = {{.block = {{.kind = MX_BLOCK_MLA,
                          .name = "self_attention",
                          .norm_before = "pre_self_attention_layer_norm"},
                         {.kind = MX_BLOCK_GLU,
                          .name = "mlp",
                          .norm_before = "post_self_attention_layer_norm"}}}},
    .n_specs = 1,
    .period = 1,
    .layers = "dense_layers",
    .is_dense_first = true,
    .keys = "first_num_dense_layers",
    .lora_modules = "decoder/dense_layers/.*(self_attention/"
                    "(query|wq_a|wq_b|wkv_a|wkv_b|out)|mlp/(wi_0|wi_1|wo))",
};
