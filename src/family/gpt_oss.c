/* gpt_oss.c — OpenAI's open models: biases everywhere, attention with sinks, layers that see a
 * window and layers that see all in turn, and experts whose gates gate themselves. Source: OpenAI
 * gpt-oss (2025); MaxText models/gpt_oss.py @e591f30c. */
#include "rows.h"

#define GPT_OSS_LAYER                                                                              \
    .block = {{.kind = MX_BLOCK_ATTENTION,                                                         \
               .name = "GptOssAttention",                                                          \
               .norm_before = "pre_self_attention_layer_norm"},                                    \
              {.kind = MX_BLOCK_MOE,                                                               \
               .name = "GptOssMlp",                                                                \
               .norm_before = "post_self_attention_layer_norm"}},                                  \
    .scales_query = true, .has_out_bias = true, .gates_themselves = true

const MxFamily family_gpt_oss = {
    .decoder_block = "gpt_oss",
    .specs = {{GPT_OSS_LAYER, .sees = MX_SEES_WINDOW}, {GPT_OSS_LAYER, .sees = MX_SEES_ALL_BEFORE}},
    .n_specs = 2,
    .period = 2,
    .turns = {0, 1},
    .place = MX_STACK_PLACE,
    .stages_hold_places = true,
    .mark = "/GptOssAttention/",
    .keys = FAMILY_MOE_KEYS " sliding_window_size mlp_activations_limit "
                            "inhomogeneous_layer_cycle_interval",
    .lora_modules = FAMILY_LORA_LAYERS ".*GptOssAttention/(query|key|value|out)",
    .hf[0] = {.model_type = "gpt_oss",
              .architecture = "GptOssForCausalLM",
              .tells_layers = true,
              .norms = FAMILY_LLAMA_HF_NORMS,
              .bias = MX_HF_BIAS_SAID,
              .has_sinks = true,
              .window = MX_HF_WINDOW_TURNS,
              .experts = MX_HF_EXPERTS_PAIRS,
              .also_experts = MX_HF_EXPERTS_PACKED, /* as published */
              .has_score_bias = true,
              .limits_gates = true,
              .our_activation = "sigmoid",
              .default_window = 128,
              .default_head_dim = 64,
              .default_kv_heads = 8,
              .default_theta = 150000,
              .default_epsilon = 1e-5,
              .default_rope = "{\"rope_type\": \"yarn\", \"factor\": 32.0, \"beta_fast\": 32.0, "
                              "\"beta_slow\": 1.0, \"truncate\": false, "
                              "\"original_max_position_embeddings\": 4096}",
              .is_biased = true,
              .default_chosen = 4},
};
