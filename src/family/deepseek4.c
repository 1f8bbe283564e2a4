/* deepseek4.c — DeepSeek 4: compressed attention and experts in every layer, between streams of
 * several rows. The first layers choose experts by a table of tokens; behind them layers whose keys
 * include all windows of tokens and layers that choose among these take turns. Source: MaxText
 * models/deepseek4.py @e591f30c. */
#include "rows.h"

#define DEEPSEEK4_LAYER                                                                            \
    .block = {{.kind = MX_BLOCK_COMPRESSED,                                                        \
               .name = "self_attention",                                                           \
               .norm_before = "pre_self_attention_layer_norm"},                                    \
              {.kind = MX_BLOCK_MOE,                                                               \
               .name = "mlp",                                                                      \
               .norm_before = "post_self_attention_layer_norm",                                    \
               .routed = "MoeBlock_0",                                                             \
               .shared = "shared_experts",                                                         \
               .router_axis = "embed_moe"}},                                                       \
    .rope = MX_ROPE_COMPRESSED, .weighs = MX_WEIGHS_SCORES, .bias_apart = true

/* As places of a block of MaxText's, which always has these two. */
static const MxRuns deepseek4_runs = {
    .outer = MX_STACK_BLOCKS, .axis = MX_STACK_BLOCKS, .run = {{"layers_0", 1}, {"layers_1", 1}}};

const MxFamily family_deepseek4 = {
    .decoder_block = "deepseek4",
    .specs = {{DEEPSEEK4_LAYER},
              {DEEPSEEK4_LAYER, .hashes = true},
              {DEEPSEEK4_LAYER, .windows = MX_WINDOWS_ALL},
              {DEEPSEEK4_LAYER, .windows = MX_WINDOWS_ALL, .hashes = true},
              {DEEPSEEK4_LAYER, .windows = MX_WINDOWS_CHOSEN},
              {DEEPSEEK4_LAYER, .windows = MX_WINDOWS_CHOSEN, .hashes = true}},
    .n_specs = 6,
    .period = 2,
    .keys_say_turns = MX_KIND_HASHES | MX_KIND_POOLS_ALL | MX_KIND_POOLS_CHOSEN,
    .first_hash = true,
    .place = MX_STACK_PLACE,
    .runs = &deepseek4_runs,
    .ratios_say_period = true,
    .muon_settles = true,
    .has_streams = true,
    .weighs_streams = true,
    .mark = "/hc_head/",
    .keys = FAMILY_MOE_KEYS
    " shared_experts routed_scaling_factor routed_bias_update_rate n_routing_groups "
    "topk_routing_group mlp_activations_limit mhc_expansion_rate first_num_hash_layers "
    "compress_ratios compressed_rope_max_timescale o_groups o_lora_rank q_lora_rank "
    "qk_rope_head_dim sliding_window_size indexer_n_heads indexer_head_dim indexer_topk",
    .lora_modules = "decoder/(scanned_blocks/)?layers[_0-9a-z]*/.*(self_attention/"
                    "(wq_a|wq_b|wkv|o_b_proj)|shared_experts/(wi_0|wi_1|wo))",
    .hf[0] = {.model_type = "deepseek_v4",
              .architecture = "DeepseekV4ForCausalLM",
              .norms = {"attn_norm", NULL, "ffn_norm"},
              .ffn = "ffn",
              .held_ffn = "mlp",
              .shared = "shared_experts",
              .window = MX_HF_WINDOW_TURNS,
              .experts = MX_HF_EXPERTS_W,
              .score = "sqrtsoftplus",
              .has_score_bias = true,
              .limits_gates = true,
              .tells_norm = true,
              .norms_anyway = true,
              .like_deepseek = true,
              .has_groups = true,
              .like_deepseek4 = true,
              .has_own_rope = true,
              .is_bare = true,
              .looks_ahead = true,
              .ahead = "mtp.",
              .default_window = 128,
              .default_kv_heads = 1,
              .default_heads = 64,
              .default_vocab = 129280,
              .default_chosen = 6,
              .default_routing = 1.5,
              .default_limit = 10},
};
