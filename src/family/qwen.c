/* qwen.c — Qwen 2 and 2.5 (biases on queries, keys and values), and Qwen 3 (dense; norms of queries
 * and keys), otherwise as Llama with scaled queries. Defaults of config.json are those of
 * transformers' classes of configs. Source: MaxText models/qwen2.py, qwen3.py @e591f30c. */
#include "rows.h"

const MxFamily family_qwen2 = {
    .decoder_block = "qwen2",
    .keeps_stream = true,
    .specs = {{.block = FAMILY_LLAMA_BLOCKS, .scales_query = true}},
    .n_specs = 1,
    .period = 1,
    .lora_modules = FAMILY_LORA_MODULES,
    .hf[0] = {.model_type = "qwen2",
              .architecture = "Qwen2ForCausalLM",
              .norms = FAMILY_LLAMA_HF_NORMS,
              .bias = MX_HF_BIAS_ALWAYS,
              .window = MX_HF_WINDOW_SAID,
              .default_window = 4096,
              .default_kv_heads = 32},
};

const MxFamily family_qwen3 = {
    .decoder_block = "qwen3",
    .keeps_stream = true,
    .specs = {{.block = FAMILY_LLAMA_BLOCKS, .scales_query = true, .has_out_bias = true}},
    .n_specs = 1,
    .period = 1,
    .lora_modules = FAMILY_LORA_MODULES,
    .hf[0] = {.model_type = "qwen3",
              .architecture = "Qwen3ForCausalLM",
              .norms = FAMILY_LLAMA_HF_NORMS,
              .bias = MX_HF_BIAS_SAID,
              .has_qk_norm = true,
              .window = MX_HF_WINDOW_SAID,
              .default_window = 4096,
              .default_head_dim = 128,
              .default_kv_heads = 32},
};
