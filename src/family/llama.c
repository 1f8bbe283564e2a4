/* llama.c — Llama 2 and 3, and Mistral (dense): attention and a gated feed-forward block, each
 * behind a norm. Queries are not scaled at run time: MaxText keeps query kernels that much smaller.
 * Defaults of config.json are those of transformers' classes of configs. Source: MaxText
 * models/llama2.py, mistral.py @e591f30c. */
#include "rows.h"

const MxFamily family_llama2 = {
    .decoder_block = "llama2",
    .specs = {{.block = FAMILY_LLAMA_BLOCKS, .has_out_bias = true}},
    .n_specs = 1,
    .period = 1,
    .lora_modules = FAMILY_LORA_MODULES,
    .hf[0] = {.model_type = "llama",
              .architecture = "LlamaForCausalLM",
              .norms = FAMILY_LLAMA_HF_NORMS,
              .interleaves = true,
              .bias = MX_HF_BIAS_SAID},
};

const MxFamily family_mistral = {
    .decoder_block = "mistral",
    .specs = {{.block = FAMILY_LLAMA_BLOCKS, .has_out_bias = true}},
    .n_specs = 1,
    .period = 1,
    .lora_modules = FAMILY_LORA_LAYERS ".*(attention/(query|key|value|out)|mlp/(wi_0|wi_1|wo))",
    .hf[0] = {.model_type = "mistral",
              .architecture = "MistralForCausalLM",
              .norms = FAMILY_LLAMA_HF_NORMS,
              .window = MX_HF_WINDOW_ALWAYS,
              .default_window = 4096,
              .default_kv_heads = 8},
};
