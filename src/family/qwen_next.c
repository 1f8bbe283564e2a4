/* qwen_next.c — Qwen 3 Next, and Qwen 3.5 (text): three gated delta nets before each attention,
 * which has gates of its own and turns a part of heads; experts in every layer, with one for all
 * tokens behind a gate; scales of norms are kept less 1. Source: MaxText models/qwen3.py @e591f30c.
 */
#include "rows.h"

#define QWEN3_NEXT_LAYER(kind_, name_)                                                             \
    .block = {{.kind = kind_, .name = name_, .norm_before = "input_layernorm"},                    \
              {.kind = MX_BLOCK_MOE,                                                               \
               .name = "mlp",                                                                      \
               .norm_before = "post_attention_layernorm",                                          \
               .routed = "routed_experts",                                                         \
               .shared = "shared_expert",                                                          \
               .shared_gate = "shared_expert_gate"}}

#define QWEN3_NEXT                                                                                 \
    .keeps_stream = true,                                                                          \
    .specs = {{QWEN3_NEXT_LAYER(MX_BLOCK_DELTA, "attention"), .rope = MX_ROPE_NONE},               \
              {QWEN3_NEXT_LAYER(MX_BLOCK_ATTENTION, "attention/attention"), .norms_heads = true,   \
               .gates_heads = true, .scales_query = true, .has_out_bias = true}},                  \
    .n_specs = 2, .period = 4, .turns = {0, 0, 0, 1}, .norm = MX_NORM_RMS_LESS_1,                  \
    .norms_are_whole = true, .stages_hold_places = true, .place = "layer_",                        \
    .keys = FAMILY_MOE_KEYS " shared_experts inhomogeneous_layer_cycle_interval "                  \
                            "gdn_num_key_heads gdn_num_value_heads gdn_key_head_dim "              \
                            "gdn_value_head_dim gdn_conv_kernel_dim gdn_reset_at_documents "       \
                            "use_qk_norm_in_gdn",                                                  \
    .lora_modules =                                                                                \
        FAMILY_LORA_LAYERS ".*(attention/(query|key|value|out|in_proj_qkvz|in_proj_ba|"            \
                           "out_proj)|shared_expert/(wi_0|wi_1|wo))"

const MxFamily family_qwen3_next = {
    .decoder_block = "qwen3_next",
    QWEN3_NEXT,
    .mark = "/in_proj_qkvz/",
    .hf[0] = {.model_type = "qwen3_next",
              .architecture = "Qwen3NextForCausalLM",
              .tells_layers = true,
              .norms = FAMILY_LLAMA_HF_NORMS,
              .shared = "shared_expert",
              .bias = MX_HF_BIAS_SAID,
              .has_qk_norm = true,
              .experts = MX_HF_EXPERTS_PROJ,
              .tells_norm = true,
              .norms_anyway = true,
              .sizes_shared = true,
              .ahead = "mtp.",
              .default_head_dim = 256,
              .default_kv_heads = 2,
              .default_chosen = 10,
              .default_rotated = 0.25},
};

/* Its layers are the same; Hugging Face has the products of delta nets and the experts' matrices
 * otherwise. Source: MaxText models/qwen3_5.py @e591f30c. */
const MxFamily family_qwen3_5 = {
    .decoder_block = "qwen3_5",
    QWEN3_NEXT,
    .hf[0] = {.model_type = "qwen3_5_moe_text",
              .architecture = "Qwen3_5MoeForCausalLM",
              .outer_type = "qwen3_5_moe",
              .tells_layers = true,
              .norms = FAMILY_LLAMA_HF_NORMS,
              .shared = "shared_expert",
              .bias = MX_HF_BIAS_SAID,
              .has_qk_norm = true,
              .has_delta_apart = true,
              .experts = MX_HF_EXPERTS_TURNED,
              .also_experts = MX_HF_EXPERTS_PROJ, /* as transformers saves it */
              .sizes_shared = true,
              .ahead = "mtp.",
              .default_head_dim = 256,
              .default_kv_heads = 2,
              .default_chosen = 8,
              .default_rotated = 0.25},
};

/* As of Qwen 3-VL, but nothing is added behind the decoder's layers. Source: MaxText
 * models/qwen3_5_vision.py @e591f30c. */
const MxEncoder encoder_qwen3_5 = {
    .name = "qwen3_5",
    .decoders = "qwen3_5",
    .tower = "Qwen3_5MoeVisionEncoder_0",
    .projector = "Qwen3_5MoeVisionProjector_0",
    .least_pixels = 65536,
    FAMILY_QWEN3_EYE,
    .hf = {.model_type = "qwen3_5_moe qwen3_5_moe_vision",
           .has_text_class = true,
           FAMILY_QWEN3_HF_EYE,
           .mrope = {11, 11, 10}},
};
