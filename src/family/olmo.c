/* olmo.c — Olmo 3: norms behind blocks alone, norms of queries and keys over all heads together,
 * three layers that see a window before each that sees all. Source: MaxText models/olmo3.py,
 * layers/attentions.py @e591f30c. */
#include "rows.h"

#define OLMO3_LAYER                                                                                \
    .block = {{.kind = MX_BLOCK_ATTENTION,                                                         \
               .name = "attention",                                                                \
               .norm_after = "post_self_attention_layer_norm"},                                    \
              {.kind = MX_BLOCK_GLU, .name = "mlp", .norm_after = "post_mlp_layer_norm"}},         \
    .norms_together = true, .scales_query = true, .has_out_bias = true, .counts_all = true

const MxFamily family_olmo3 = {
    .decoder_block = "olmo3",
    .specs = {{OLMO3_LAYER, .sees = MX_SEES_WINDOW, .rope = MX_ROPE_LOCAL_IF_SAID},
              {OLMO3_LAYER, .sees = MX_SEES_ALL_BEFORE}},
    .n_specs = 2,
    .period = 4,
    .turns = {0, 0, 0, 1},
    .place = MX_STACK_PLACE,
    .stages_hold_places = true,
    .mark = "/post_mlp_layer_norm/",
    .keys = "sliding_window_size local_rope_max_timescale",
    .lora_modules = FAMILY_LORA_LAYERS ".*(attention/(query|key|value|out)|mlp/(wi_0|wi_1|wo))",
    .hf[0] = {.model_type = "olmo3",
              .architecture = "Olmo3ForCausalLM",
              .tells_layers = true,
              .norms = {NULL, "post_attention_layernorm", NULL, "post_feedforward_layernorm"},
              .bias = MX_HF_BIAS_SAID,
              .has_qk_norm = true,
              .window = MX_HF_WINDOW_TURNS,
              .has_local_rope = true,
              .default_window = 4096,
              .default_theta = 500000,
              .default_epsilon = 1e-5},
};
