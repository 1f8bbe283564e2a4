/* moe.c — families all of whose feed-forward blocks are mixtures of experts: Mixtral, otherwise as
 * Mistral, and Qwen 3's, otherwise as the dense Qwen 3. Source: MaxText models/mixtral.py, qwen3.py
 * @e591f30c. */
#include "rows.h"

#define MOE_BLOCKS(name_)                                                                          \
    {                                                                                              \
        {.kind = MX_BLOCK_ATTENTION,                                                               \
         .name = "self_attention",                                                                 \
         .norm_before = "pre_self_attention_layer_norm"},                                          \
        {                                                                                          \
            .kind = MX_BLOCK_MOE, .name = name_, .norm_before = "post_self_attention_layer_norm"   \
        }                                                                                          \
    }

const MxFamily family_mixtral = {
    .decoder_block = "mixtral",
    .specs = {{.block = MOE_BLOCKS("MoeBlock_0"), .has_out_bias = true}},
    .n_specs = 1,
    .period = 1,
    .keys = FAMILY_MOE_KEYS,
    .lora_modules = FAMILY_LORA_MODULES,
    .hf[0] = {.model_type = "mixtral",
              .architecture = "MixtralForCausalLM",
              .norms = FAMILY_LLAMA_HF_NORMS,
              .window = MX_HF_WINDOW_ALWAYS,
              .ffn = "block_sparse_moe",
              .held_ffn = "mlp",
              .experts = MX_HF_EXPERTS_W,
              .default_kv_heads = 8,
              .default_theta = 1000000,
              .default_epsilon = 1e-5,
              .default_chosen = 2},
};

const MxFamily family_qwen3_moe = {
    .decoder_block = "qwen3_moe",
    .keeps_stream = true,
    .specs = {{.block = MOE_BLOCKS("moe_block"), .scales_query = true, .has_out_bias = true}},
    .n_specs = 1,
    .period = 1,
    .keys = FAMILY_MOE_KEYS,
    .lora_modules = FAMILY_LORA_MODULES,
    .hf[0] = {.model_type = "qwen3_moe",
              .architecture = "Qwen3MoeForCausalLM",
              .outer_type = "qwen3_vl_moe qwen3_omni_moe_thinker",
              .outer_experts = {MX_HF_EXPERTS_GATED, MX_HF_EXPERTS_TURNED},
              .norms = FAMILY_LLAMA_HF_NORMS,
              .bias = MX_HF_BIAS_SAID,
              .has_qk_norm = true,
              .window = MX_HF_WINDOW_SAID,
              .experts = MX_HF_EXPERTS_PROJ,
              .tells_norm = true,
              .norms_within = true,
              .default_window = 4096,
              .default_kv_heads = 4,
              .default_chosen = 8},
};

/* What attention gives goes on to the experts, both narrower than the stream. MaxText's trees have
 * a norm that nothing reads (post_self_attention_layer_norm). Source: MaxText
 * models/qwen3_custom.py @e591f30c. */
const MxFamily family_qwen3_custom_moe = {
    .decoder_block = "qwen3_custom_moe",
    .keeps_stream = true,
    .specs = {{.block = {{.kind = MX_BLOCK_ATTENTION,
                          .name = "self_attention",
                          .norm_before = "pre_self_attention_layer_norm",
                          .gives = MX_WIDTH_LATENT,
                          .join = MX_JOIN_GOES_ON},
                         {.kind = MX_BLOCK_MOE,
                          .name = "moe_block",
                          .norm_before = "latent_norm",
                          .reads = MX_WIDTH_LATENT,
                          .gives = MX_WIDTH_LATENT,
                          .back = "layer_up_projection"}},
               .idle_norm = "post_self_attention_layer_norm",
               .scales_query = true,
               .has_out_bias = true}},
    .n_specs = 1,
    .period = 1,
    .mark = "/latent_norm/",
    .keys = FAMILY_MOE_KEYS " attention_output_dim moe_expert_input_dim",
    .lora_modules = FAMILY_LORA_MODULES,
};
