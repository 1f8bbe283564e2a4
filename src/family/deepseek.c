/* deepseek.c — DeepSeek 2 and 3, and Kimi K2: latent attention; the first layers have a gated
 * feed-forward block, those after them experts, of which some are for all tokens. Source: MaxText
 * models/deepseek.py @e591f30c. */
#include "rows.h"

#define DEEPSEEK_ATTENTION                                                                         \
    {                                                                                              \
        .kind = MX_BLOCK_MLA, .name = "self_attention",                                            \
        .norm_before = "pre_self_attention_layer_norm"                                             \
    }

/* Of all kinds there that route by sigmoids. */
#define DEEPSEEK3_HF(architecture_)                                                                \
    .architecture = architecture_, .norms = FAMILY_LLAMA_HF_NORMS, .shared = "shared_experts",     \
    .experts = MX_HF_EXPERTS_PROJ, .like_deepseek = true, .has_groups = true, .looks_ahead = true, \
    .tells_pairs = true, .tells_norm = true, .norms_anyway = true, .score = "sigmoid",             \
    .has_score_bias = true, .default_chosen = 8, .default_dense = 3, .default_groups = 8,          \
    .default_best = 4, .default_routing = 2.5

enum { SPARSE, DENSE };

/* MaxText's own pattern of adapted modules says "moe_stack" where its trees have "moe_layers", and
 * knows no stacks that layers with memories divide. */
const MxFamily family_deepseek = {
    .decoder_block = "deepseek",
    .specs = {[SPARSE] = {.block = {DEEPSEEK_ATTENTION,
                                    {.kind = MX_BLOCK_MOE,
                                     .name = "DeepSeekMoeBlock_0",
                                     .norm_before = "post_self_attention_layer_norm",
                                     .routed = "MoeBlock_0",
                                     .shared = "shared_experts",
                                     .router_axis = "embed_moe"}},
                          .weighs = MX_WEIGHS_SCORES},
              [DENSE] = {.block = {DEEPSEEK_ATTENTION,
                                   {.kind = MX_BLOCK_GLU,
                                    .name = "mlp",
                                    .norm_before = "post_self_attention_layer_norm"}}}},
    .n_specs = 2,
    .period = 1,
    .turns = {SPARSE},
    .layers = "moe_layers",
    .first_layers = "dense_layers",
    .first_spec = DENSE,
    .has_streams = true,
    .keys = FAMILY_MOE_KEYS " first_num_dense_layers shared_experts routed_scaling_factor "
                            "routed_bias_update_rate n_routing_groups topk_routing_group "
                            "mlp_activations_limit mhc_expansion_rate engram_layers",
    .lora_modules = "decoder/(dense_layers|moe_layers)[_0-9a-z]*/.*(self_attention/"
                    "(query|wq_a|wq_b|wkv_a|wkv_b|out)|(mlp|shared_experts)/(wi_0|wi_1|wo))",
    .hf[0] = {.model_type = "deepseek_v2",
              .architecture = "DeepseekV2ForCausalLM",
              .norms = FAMILY_LLAMA_HF_NORMS,
              .shared = "shared_experts",
              .experts = MX_HF_EXPERTS_PROJ,
              .like_deepseek = true,
              .score = "softmax",
              .default_shared = 2},
    .hf[1] = {.model_type = "kimi_k2", DEEPSEEK3_HF("DeepseekV3ForCausalLM")},
    .hf[2] = {.model_type = "deepseek_v3", DEEPSEEK3_HF("DeepseekV3ForCausalLM")},
    .hf[3] = {.model_type = "deepseek_v32",
              DEEPSEEK3_HF("DeepseekV32ForCausalLM"),
              .has_indexer = true},
};
