/* families.h — a small model of every family that is built, and some more of one family with what
 * only keys say, for tests that walk over all of them. */
#ifndef TESTS_COMMON_FAMILIES_H
#define TESTS_COMMON_FAMILIES_H

#include <mx/family.h>

#include <string.h>

#define FAMILY_SMALL                                                                               \
    "base_emb_dim=32 base_num_query_heads=4 base_num_kv_heads=2 head_dim=8 base_mlp_dim=48 "       \
    "vocab_size=96 per_device_batch_size=2 dataset_type=synthetic sliding_window_size=6 "          \
    "attention=dot_product num_experts=4 num_experts_per_tok=2 q_lora_rank=12 kv_lora_rank=10 "    \
    "qk_nope_head_dim=8 qk_rope_head_dim=4 v_head_dim=6 "

#define FAMILY_LATENT "attention_type=mla base_num_kv_heads=4 base_num_decoder_layers=3 "

/* What a family asks for besides. */
static const struct {
    const char *family, *words;
} family_asks[] = {
    {"gemma4", "base_num_decoder_layers=7 global_head_dim=16 global_num_kv_heads=1 "
               "share_kv_projections=true shared_experts=1 use_post_ffw_norm=true"},
    {"gemma4_small", "base_num_decoder_layers=10 inhomogeneous_layer_cycle_interval=5 "
                     "num_kv_shared_layers=5 use_double_wide_mlp=true global_head_dim=16 "
                     "hidden_size_per_layer_input=8 vocab_size_per_layer_input=258"},
    {"envy", "interleave_moe_layer_step=2 inhomogeneous_layer_cycle_interval=2 "
             "base_moe_mlp_dim=24"},
    {"qwen3_custom_moe", "attention_output_dim=20 moe_expert_input_dim=20"},
    {"qwen3_5", "inhomogeneous_layer_cycle_interval=4 base_num_decoder_layers=4 shared_experts=1 "
                "partial_rotary_factor=0.5"},
    {"gpt3", "base_num_kv_heads=4"},
    {"qwen3_next", "inhomogeneous_layer_cycle_interval=4 base_num_decoder_layers=4"},
    {"llama4",
     "nope_layer_interval=3 interleave_moe_layer_step=2 inhomogeneous_layer_cycle_interval=6 "
     "base_num_decoder_layers=6 chunk_attn_window_size=7 num_experts_per_tok=1 "
     "shared_experts=1 temperature_tuning=true temperature_tuning_floor_scale=5 use_qk_norm=true"},
    {"gpt_oss", "base_moe_mlp_dim=48 mlp_bias=true routed_bias=true attention_bias=true "
                "attention_sink=true mlp_activations=[sigmoid,linear] mlp_activations_limit=0.5"},
    {"deepseek4", "attention_type=compressed base_num_kv_heads=1 base_num_decoder_layers=5 "
                  "scan_layers=false first_num_hash_layers=2 compress_ratios=[0,4,8,4,8] "
                  "indexer_n_heads=2 indexer_head_dim=6 indexer_topk=2 o_groups=2 o_lora_rank=6 "
                  "mhc_expansion_rate=2 sinkhorn_iterations=3 shared_experts=1 base_moe_mlp_dim=48 "
                  "routed_score_func=sqrtsoftplus routed_bias=true"},
    {"deepseek", FAMILY_LATENT "first_num_dense_layers=3 use_indexer=true indexer_n_heads=4 "
                               "indexer_head_dim=6 indexer_topk=5"},
};

/* More models of a family. */
static const struct {
    const char *name, *family, *words;
} family_more[] = {
    {"deepseek with streams", "deepseek",
     FAMILY_LATENT "first_num_dense_layers=1 base_moe_mlp_dim=24 shared_experts=1 "
                   "mhc_expansion_rate=3 sinkhorn_iterations=4"},
    {"deepseek with permuted streams", "deepseek",
     FAMILY_LATENT "first_num_dense_layers=3 mhc_expansion_rate=3 enable_mhc_lite=true"},
    {"deepseek with n-gram memories", "deepseek",
     FAMILY_LATENT "first_num_dense_layers=1 base_moe_mlp_dim=24 shared_experts=1 "
                   "mhc_expansion_rate=2 sinkhorn_iterations=3 engram_layers=[2,0] "
                   "engram_num_heads=2 engram_head_dim=6 engram_vocab_bases=[11,23] "
                   "engram_kernel_size=3 tokenizer_type=huggingface "
                   "tokenizer_path=tests/golden/hf/tokenizers/qwen"},
};

/* family_models — how many small models there are. family_model — the name of one, NULL = its
 * family is not built. */
static inline int family_models(void) {
    int n;
    mx_families(&n);
    return n + MX_COUNT(family_more);
}

static inline const char *family_model(int i) {
    int n;
    const MxFamily *const *families = mx_families(&n);
    if (i >= n) return family_more[i - n].name;
    return families[i]->n_specs ? families[i]->decoder_block : NULL;
}

/* family_small — overrides of configs/base.yml for a model of that name; where layers take turns
 * one more than a period has. */
static inline char *family_small(MxArena *arena, const char *model) {
    const char *family = model, *more = "";
    for (int i = 0; i < MX_COUNT(family_asks); i++)
        if (!strcmp(family_asks[i].family, model)) more = family_asks[i].words;
    for (int i = 0; i < MX_COUNT(family_more); i++)
        if (!strcmp(family_more[i].name, model)) {
            family = family_more[i].family;
            more = family_more[i].words;
        }
    bool has_experts = strstr(family, "mixtral") || strstr(family, "moe");
    int period = mx_family_find(family)->period;
    return mx_arena_printf(
        arena, "override_model_config=true base_num_decoder_layers=%d decoder_block=%s %s%s %s",
        period + 1, family, FAMILY_SMALL, has_experts ? "base_moe_mlp_dim=48" : "", more);
}

#endif
