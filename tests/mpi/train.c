/* train.c — a small decoder trained by several ranks on many meshes against the same by one rank:
 * initial parameters to the bit, losses, gradients, norms and what the steps make of the
 * parameters. */
#include "common/pooled.h"
#include "record.h"

#include <lower/partition.h>
#include <plan/internal.h>
#include <program/internal.h>
#include <program/reference.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- what is trained */

#define TEACHER                                                                                    \
    "teacher_overrides={load_parameters_path: x, base_emb_dim: 96, base_mlp_dim: 96, "             \
    "base_num_query_heads: 24, base_num_kv_heads: 24, head_dim: 8, base_num_decoder_layers: 2, "   \
    "vocab_size: 288}"
#define REWARDED "use_grpo=true", "packing=false", "dataset_type=hf", "hf_train_files=x"
#define LABELLED "use_kto=true", "packing=false", "dataset_type=hf", "hf_train_files=x"
#define SCORED                                                                                     \
    "use_dpo=true", "dpo.algo=reward", "score_head=true", "dpo.center_rewards_coefficient=0.1"
#define EXPERT_ADAPTERS                                                                            \
    "lora.enable_lora=true", "lora.lora_rank=4", "lora.lora_alpha=8",                              \
        "lora.lora_module_path=.*(query|MoeBlock_0)"
#define SGD "opt_type=sgd", "learning_rate=0.01"

// clang-format off
static const Variant rows[] = {
    {.name = "adamw", .set = {NULL}, .everywhere = true},
    {.name = "sgd", .set = {SGD}, .everywhere = true},
    {.name = "odd length", .set = {SGD}, .length = 15, .often = true},
    {.name = "length that 4 divides", .set = {SGD}, .length = 12},
    {.name = "length that 2 divides, adamw", .set = {NULL}, .length = 18},
    {.name = "tied, grouped heads, norms", .set = {"logits_via_embedding=true", "base_num_query_heads=24", "use_qk_norm=true", "decoder_block=qwen3", SGD}},
    {.name = "biases, window", .set = {"decoder_block=qwen2", "attention_bias=true", "attention_type=local_sliding", "sliding_window_size=5", SGD}},
    {.name = "norms over all heads, turns", .set = {"decoder_block=olmo3", "use_qk_norm=true", "sliding_window_size=5", "base_num_decoder_layers=4", SGD}},
    {.name = "latent attention", .set = {"decoder_block=deepseek", "attention_type=mla", "first_num_dense_layers=2", "q_lora_rank=24", "kv_lora_rank=48", "qk_nope_head_dim=16", "qk_rope_head_dim=8", "v_head_dim=12", "use_qk_clip=true", "qk_clip_threshold=0.01", SGD}},
    {.name = "latent attention, adapters", .set = {"decoder_block=deepseek", "attention_type=mla", "first_num_dense_layers=2", "kv_lora_rank=48", "qk_nope_head_dim=16", "qk_rope_head_dim=8", "v_head_dim=12", "lora.enable_lora=true", "lora.lora_rank=4", "lora.lora_alpha=8", SGD}},
    {.name = "tokens that an indexer chooses", .set = {"decoder_block=deepseek", "attention_type=mla", "first_num_dense_layers=2", "q_lora_rank=24", "kv_lora_rank=48", "qk_nope_head_dim=16", "qk_rope_head_dim=8", "v_head_dim=12", "use_indexer=true", "indexer_n_heads=8", "indexer_head_dim=16", "indexer_topk=5", "indexer_loss_scaling_factor=0.5", "indexer_sparse_training=true", SGD}},
    {.name = "streams of two rows", .set = {"decoder_block=deepseek", "attention_type=mla", "first_num_dense_layers=1", "kv_lora_rank=48", "qk_nope_head_dim=16", "qk_rope_head_dim=8", "v_head_dim=12", "num_experts=8", "num_experts_per_tok=2", "mhc_expansion_rate=2", "sinkhorn_iterations=3", SGD}, .gradient = 4.2e-4}, /* twice what ranks differ by at any level, sanitized or not: 2.1e-4 of pre_beta, since a first block reads rows that are alike, and a norm follows their sum */
    {.name = "streams of three permuted rows, accumulation", .set = {"decoder_block=deepseek", "attention_type=mla", "first_num_dense_layers=2", "kv_lora_rank=48", "qk_nope_head_dim=16", "qk_rope_head_dim=8", "v_head_dim=12", "mhc_expansion_rate=3", "enable_mhc_lite=true", "gradient_accumulation_steps=2", SGD}, .parts = 2, .gradient = 4.2e-4}, /* as above */
    {.name = "compressed attention", .set = {"decoder_block=deepseek4", "attention_type=compressed", "scan_layers=false", "base_num_kv_heads=1", "base_num_decoder_layers=3", "q_lora_rank=24", "qk_rope_head_dim=8", "head_dim=16", "o_groups=2", "o_lora_rank=24", "sliding_window_size=5", "indexer_n_heads=8", "indexer_head_dim=16", "indexer_topk=2", "num_experts=8", "num_experts_per_tok=2", "base_moe_mlp_dim=64", "routed_score_func=sqrtsoftplus", "routed_bias=true", "routed_bias_update_rate=0.01", "first_num_hash_layers=1", "compress_ratios=[0, 4, 6]", "shared_experts=1", SGD}, .axes = {"data", "fsdp", "context", "expert"}}, /* others would cut its one key head */
    {.name = "compressed attention, streams, accumulation", .set = {"decoder_block=deepseek4", "attention_type=compressed", "scan_layers=false", "base_num_kv_heads=1", "base_num_decoder_layers=3", "q_lora_rank=24", "qk_rope_head_dim=8", "head_dim=16", "o_groups=2", "o_lora_rank=24", "sliding_window_size=5", "indexer_n_heads=8", "indexer_head_dim=16", "indexer_topk=2", "num_experts=8", "num_experts_per_tok=2", "base_moe_mlp_dim=64", "routed_score_func=sqrtsoftplus", "routed_bias=true", "routed_bias_update_rate=0.01", "first_num_hash_layers=1", "compress_ratios=[4, 0, 4]", "mhc_expansion_rate=2", "sinkhorn_iterations=3", "gradient_accumulation_steps=2", SGD}, .axes = {"data", "fsdp_transpose", "context", "expert"}, .parts = 2, .gradient = 1.6e-3}, /* twice what ranks differ by at two levels: 7.6e-4 of hc_base, which a norm follows */
    {.name = "n-gram memories", .set = {"decoder_block=deepseek", "attention_type=mla", "first_num_dense_layers=1", "kv_lora_rank=48", "qk_nope_head_dim=16", "qk_rope_head_dim=8", "v_head_dim=12", "num_experts=8", "num_experts_per_tok=2", "mhc_expansion_rate=2", "sinkhorn_iterations=3", "engram_layers=[1]", "engram_num_heads=2", "engram_head_dim=16", "engram_vocab_bases=[13, 43]", "tokenizer_type=huggingface", "tokenizer_path=tests/golden/hf/tokenizers/qwen", SGD}, .gradient = 5.4e-3}, /* twice what ranks differ by: 2.7e-3 of res_beta, which no layer needs; all but the streams' own numbers differ by 1.7e-5 */
    {.name = "an indexer alone, accumulation", .set = {"decoder_block=deepseek", "attention_type=mla", "first_num_dense_layers=2", "q_lora_rank=24", "kv_lora_rank=48", "qk_nope_head_dim=16", "qk_rope_head_dim=8", "v_head_dim=12", "use_indexer=true", "indexer_n_heads=8", "indexer_head_dim=16", "indexer_topk=5", "indexer_loss_scaling_factor=0.5", "gradient_accumulation_steps=2", SGD}, .parts = 2},
    {.name = "accumulation", .set = {"gradient_accumulation_steps=2", SGD}, .parts = 2, .often = true},
    {.name = "whole gradients along fsdp, accumulation", .set = {"gradient_accumulation_steps=2", "reduce_gradients_once=true", SGD}, .parts = 2, .everywhere = true},
    {.name = "whole gradients along fsdp, moments over data", .set = {"gradient_accumulation_steps=2", "reduce_gradients_once=true", "shard_optimizer_over_data=true"}, .parts = 2, .often = true},
    {.name = "gradients in bfloat16", .set = {"gradient_exchange_dtype=bfloat16", SGD}, .gradient = 6e-3, .often = true}, /* three times 2^-9: of terms, which may cancel each other, and of sums along both axes */
    {.name = "gradients in bfloat16, adapters, accumulation", .set = {"gradient_exchange_dtype=bfloat16", "lora.enable_lora=true", "lora.lora_rank=4", "lora.lora_alpha=8", "gradient_accumulation_steps=2", SGD}, .parts = 2, .gradient = 6e-3},
    {.name = "moments over data", .set = {"shard_optimizer_over_data=true"}, .often = true},
    {.name = "moments on disk", .set = {"optimizer_memory_disk=.", "async_checkpointing=false", "shard_optimizer_over_data=true"}},
    {.name = "moments over data, accumulation", .set = {"shard_optimizer_over_data=true", "gradient_accumulation_steps=2", "mu_dtype=bfloat16"}, .parts = 2},
    {.name = "muon", .set = {"opt_type=muon", "muon_consistent_rms=0.2"}},
    {.name = "muon, moments over data, accumulation", .set = {"opt_type=muon", "shard_optimizer_over_data=true", "gradient_accumulation_steps=2"}, .parts = 2},
    {.name = "muon, adapters", .set = {"opt_type=muon", "lora.enable_lora=true", "lora.lora_rank=4", "lora.lora_alpha=8"}},
    {.name = "muon, experts", .set = {"opt_type=muon", "decoder_block=mixtral", "num_experts=8", "num_experts_per_tok=2"}, .often = true},
    {.name = "muon, experts, accumulation", .set = {"opt_type=muon", "decoder_block=qwen3_moe", "num_experts=8", "num_experts_per_tok=3", "sparse_matmul=false", "capacity_factor=1.1", "shard_optimizer_over_data=true", "gradient_accumulation_steps=2"}, .parts = 2},
    {.name = "muon, adapters of experts", .set = {"opt_type=muon", "decoder_block=mixtral", "num_experts=8", "num_experts_per_tok=2", EXPERT_ADAPTERS}},
    {.name = "adafactor", .set = {"opt_type=adafactor", "adafactor_min_dim_size_to_factor=4", "adafactor_momentum=0.5"}, .often = true},
    {.name = "adafactor, moments over data, accumulation", .set = {"opt_type=adafactor", "adafactor_min_dim_size_to_factor=16", "shard_optimizer_over_data=true", "gradient_accumulation_steps=2"}, .parts = 2},
    {.name = "schedule-free, accumulation", .set = {"opt_type=schedule_free_adamw", "gradient_accumulation_steps=2"}, .parts = 2, .often = true},
    {.name = "schedule-free, moments over data, adapters", .set = {"opt_type=schedule_free_adamw", "shard_optimizer_over_data=true", "lora.enable_lora=true", "lora.lora_rank=8", "lora.lora_alpha=8"}},
    {.name = "moments as bytes", .set = {"optimizer_state_dtype=int8"}, .often = true},
    {.name = "moments as bytes over data, muon", .set = {"optimizer_state_dtype=int8", "shard_optimizer_over_data=true", "opt_type=muon"}},
    {.name = "adam_pax, spikes, a mask", .set = {"opt_type=adam_pax", "skip_step_on_spikes=true", "skip_step_interval=4", "trainable_parameters_mask=[mlp]"}},
    {.name = "accumulation, adamw, odd length", .set = {"gradient_accumulation_steps=2"}, .length = 15, .parts = 2},
    {.name = "adapters", .set = {"lora.enable_lora=true", "lora.lora_rank=4", "lora.lora_alpha=8", SGD}},
    {.name = "adapters, adamw, accumulation", .set = {"lora.enable_lora=true", "lora.lora_rank=4", "lora.lora_alpha=8", "gradient_accumulation_steps=2"}, .parts = 2},
    {.name = "adapters, embeddings, norms and the output matrix", .set = {"lora.enable_lora=true", "lora.lora_rank=4", "lora.lora_alpha=8", "lora.modules_to_save=token_embedder|.*norm|.*logits_dense", SGD}, .often = true},
    {.name = "adapters and whole experts, adamw, accumulation", .set = {"decoder_block=mixtral", "num_experts=4", "num_experts_per_tok=2", "base_moe_mlp_dim=64", "lora.enable_lora=true", "lora.lora_rank=4", "lora.lora_alpha=8", "lora.modules_to_save=.*MoeBlock_0.*|token_embedder", "logits_via_embedding=true", "gradient_accumulation_steps=2"}, .parts = 2},
    {.name = "preferences", .set = {"use_dpo=true", SGD}, .parts = 2},
    {.name = "preferences, odd length", .set = {"use_dpo=true", SGD}, .length = 13, .parts = 2},
    {.name = "adapters with magnitudes", .set = {"lora.enable_lora=true", "lora.lora_rank=4", "lora.lora_alpha=8", "lora.use_dora=true", "lora.lora_module_path=.*(query|value|attention/out|mlp/.*|logits_dense)", SGD}, .often = true, .start = 3e-7}, /* roundings of norms, sums over what ranks have */
    {.name = "latent attention, adapters with magnitudes over int8, accumulation", .set = {"decoder_block=deepseek", "attention_type=mla", "first_num_dense_layers=2", "kv_lora_rank=48", "qk_nope_head_dim=16", "qk_rope_head_dim=8", "v_head_dim=12", "lora.enable_lora=true", "lora.lora_rank=4", "lora.lora_alpha=8", "lora.use_dora=true", "lora.lora_weight_qtype=int8", "lora.lora_tile_size=2", "gradient_accumulation_steps=2", SGD}, .parts = 2, .start = 3e-7}, /* as above */
    {.name = "adapters over nf4", .set = {"lora.enable_lora=true", "lora.lora_rank=4", "lora.lora_alpha=8", "lora.lora_weight_qtype=nf4", "lora.lora_tile_size=4", SGD}},
    {.name = "adapters over int8, accumulation", .set = {"lora.enable_lora=true", "lora.lora_rank=4", "lora.lora_alpha=8", "lora.lora_weight_qtype=int8", "lora.lora_tile_size=2", "gradient_accumulation_steps=2"}, .parts = 2},
    {.name = "preferences, adapters, adamw", .set = {"use_dpo=true", "lora.enable_lora=true", "lora.lora_rank=4", "lora.lora_alpha=8"}, .parts = 2},
    {.name = "scores", .set = {SCORED, SGD}, .parts = 2, .often = true},
    {.name = "scores, adapters, accumulation", .set = {SCORED, "lora.enable_lora=true", "lora.lora_rank=4", "lora.lora_alpha=8", "gradient_accumulation_steps=2", SGD}, .parts = 4},
    {.name = "rewards", .set = {REWARDED, "rl.recorded_logprobs=true", SGD}, .parts = 2, .often = true},
    {.name = "rewards by tokens, adapters, accumulation", .set = {REWARDED, "rl.loss_algo=reinforce_pp", "lora.enable_lora=true", "lora.lora_rank=4", "lora.lora_alpha=8", "gradient_accumulation_steps=2", SGD}, .parts = 4},
    {.name = "rewards by surprising tokens, entropy", .set = {REWARDED, "rl.recorded_logprobs=true", "rl.top_entropy_quantile=0.4", "rl.entropy_coef=0.1", SGD}, .axes = {"data", "fsdp", "tensor", "context"}, .parts = 2}, /* a pipeline's micro-batches have quantiles of their own */
    {.name = "labels, accumulation", .set = {LABELLED, "kto.undesirable_weight=0.5", "gradient_accumulation_steps=2", SGD}, .parts = 2, .often = true},
    {.name = "a teacher", .set = {TEACHER, "distill_temperature=2", SGD}, .often = true},
    {.name = "a teacher, two layers with one feed-forward block", .set = {TEACHER, "scan_layers=false", "distill_student_weights_share_map={'decoder/layers_1/(mlp/.*)': 'decoder/layers_0/\\1'}", SGD}, .often = true},
    {.name = "a teacher, two layers with one router", .set = {TEACHER, "scan_layers=false", "decoder_block=mixtral", "num_experts=8", "num_experts_per_tok=2", "log_expert_load=layers", "distill_student_weights_share_map={'decoder/layers_1/(.*gate/kernel)': 'decoder/layers_0/\\1'}", SGD}},
    {.name = "maps of a teacher's weights", .set = {TEACHER, "base_emb_dim=96", "learn_to_init_mode=true", "attn_module_name=self_attention", SGD}, .often = true},
    {.name = "one map of a teacher's weights, a layer, accumulation", .set = {TEACHER, "base_emb_dim=96", "learn_to_init_mode=true", "attn_module_name=self_attention", "lti_use_general_linear_map=true", "scan_layers=false", "lti_layer_indices=[1]", "gradient_accumulation_steps=2", SGD}, .parts = 2},
    {.name = "a teacher's features, adapters, accumulation", .set = {TEACHER, "base_emb_dim=96", "distill_beta=0.5", "lora.enable_lora=true", "lora.lora_rank=4", "lora.lora_alpha=8", "gradient_accumulation_steps=2", SGD}, .parts = 2},
    {.name = "arrays that are several in one", .set = {"fused_qkv=true", "fused_mlp=true", "attention_bias=true", SGD}, .often = true},
    {.name = "bfloat16 weights", .set = {"weight_dtype=bfloat16", SGD}, .often = true},
    {.name = "looking ahead", .set = {"mtp_num_layers=2", SGD}},
    {.name = "experts", .set = {"decoder_block=mixtral", "num_experts=8", "num_experts_per_tok=2", "load_balance_loss_weight=0.1", SGD}, .everywhere = true},
    {.name = "experts with a capacity, accumulation", .set = {"decoder_block=qwen3_moe", "num_experts=8", "num_experts_per_tok=3", "sparse_matmul=false", "capacity_factor=1.1", "load_balance_loss_weight=0.1", "mlp_bias=true", "gradient_accumulation_steps=2", SGD}, .parts = 2, .everywhere = true},
    {.name = "experts, adapters", .set = {"decoder_block=mixtral", "num_experts=8", "num_experts_per_tok=2", EXPERT_ADAPTERS, SGD}, .everywhere = true},
    {.name = "experts cut by expert", .set = {"decoder_block=mixtral", "num_experts=8", "num_experts_per_tok=2", "mlp_bias=true", "shard_exp_on_fsdp=true", SGD}, .everywhere = true},
    {.name = "experts cut by expert and rows, adapters", .set = {"decoder_block=mixtral", "num_experts=8", "num_experts_per_tok=2", "use_2d_fsdp_sharding=true", EXPERT_ADAPTERS, SGD}, .often = true},
    {.name = "experts with a capacity, adapters, accumulation", .set = {"decoder_block=qwen3_moe", "num_experts=8", "num_experts_per_tok=3", "sparse_matmul=false", "capacity_factor=1.1", "gradient_accumulation_steps=2", EXPERT_ADAPTERS}, .parts = 2, .often = true},
    {.name = "preferences, adapters of experts", .set = {"use_dpo=true", "decoder_block=mixtral", "num_experts=8", "num_experts_per_tok=2", EXPERT_ADAPTERS, SGD}, .parts = 2},
    {.name = "layer norms, positions, one branch", .set = {"decoder_block=gpt3", "trainable_position_size=32", "mlp_activations=[gelu]", "fused_qkv=true", SGD}},
    {.name = "gated delta nets", .set = {"decoder_block=qwen3_next", "inhomogeneous_layer_cycle_interval=4", "base_num_decoder_layers=4", "num_experts=8", "num_experts_per_tok=2", "shared_experts=1", "gdn_num_key_heads=4", "gdn_num_value_heads=8", "gdn_key_head_dim=8", "gdn_value_head_dim=4", "partial_rotary_factor=0.5", SGD}, .gradient = 1.7e-4}, /* twice what one rank's gradient differs by at another level of vectors (A_log) */
    {.name = "three branches", .set = {"decoder_block=gpt3", "mlp_activations=[gelu, silu, relu]", SGD}},
    {.name = "experts of deepseek", .set = {"decoder_block=deepseek", "attention_type=mla", "first_num_dense_layers=1", "kv_lora_rank=48", "qk_nope_head_dim=16", "qk_rope_head_dim=8", "v_head_dim=12", "num_experts=8", "num_experts_per_tok=2", "shared_experts=2", "routed_score_func=sigmoid", "routed_scaling_factor=2.5", "routed_bias=true", "routed_bias_update_rate=0.01", "n_routing_groups=4", "topk_routing_group=2", "load_balance_loss_weight=0.1", "moe_use_megatron_seq_aux_loss=true", "mtp_num_layers=1", "record_internal_nn_metrics=1", "log_moe_bias_norms=true", "log_step_diagnostics=true", "log_expert_load=layers", SGD}},
    {.name = "experts of deepseek, accumulation", .set = {"decoder_block=deepseek", "attention_type=mla", "kv_lora_rank=48", "qk_nope_head_dim=16", "qk_rope_head_dim=8", "v_head_dim=12", "num_experts=8", "num_experts_per_tok=2", "routed_score_func=softmax", "routed_bias=true", "routed_bias_update_rate=0.01", "shard_optimizer_over_data=true", "record_internal_nn_metrics=1", "gradient_accumulation_steps=2"}, .parts = 2},
    {.name = "experts of gpt_oss", .set = {"decoder_block=gpt_oss", "num_experts=8", "num_experts_per_tok=2", "mlp_bias=true", "routed_bias=true", "attention_bias=true", "attention_sink=true", "sliding_window_size=5", "mlp_activations=[sigmoid,linear]", "mlp_activations_limit=0.5", SGD}},
    {.name = "experts of llama4, chunks", .set = {"decoder_block=llama4", "num_experts=8", "shared_experts=1", "interleave_moe_layer_step=2", "nope_layer_interval=4", "inhomogeneous_layer_cycle_interval=4", "base_num_decoder_layers=4", "chunk_attn_window_size=5", "use_qk_norm=true", "temperature_tuning=true", "temperature_tuning_floor_scale=3", "rope_type=llama3.1", "load_balance_loss_weight=0.1", SGD}},
    {.name = "heads of two kinds, a number a layer", .set = {"decoder_block=gemma4", "base_num_decoder_layers=6", "base_num_query_heads=24", "global_head_dim=16", "global_num_kv_heads=8", "share_kv_projections=true", "sliding_window_size=5", "use_post_attn_norm=true", SGD}, .gradient = 2.4e-5}, /* twice what two ranks differ by at AVX2 (value_norm) */
    {.name = "experts of gemma4", .set = {"decoder_block=gemma4", "base_num_decoder_layers=6", "sliding_window_size=5", "num_experts=8", "num_experts_per_tok=2", "shared_experts=1", "use_post_ffw_norm=true", "load_balance_loss_weight=0.1", SGD}, .gradient = 2.8e-5}, /* twice what one rank's gradient differs by at another level of vectors (per_expert_scale) */
    {.name = "keys and values of earlier layers, inputs of layers", .set = {"decoder_block=gemma4_small", "base_num_decoder_layers=6", "inhomogeneous_layer_cycle_interval=3", "num_kv_shared_layers=3", "use_double_wide_mlp=true", "hidden_size_per_layer_input=16", "vocab_size_per_layer_input=1152", "sliding_window_size=5", SGD}, .gradient = 1.7e-5}, /* as above: 8.7e-6 of a norm of 8 numbers, between AVX2 and AVX-512 */
    {.name = "experts in every other layer", .set = {"decoder_block=envy", "num_experts=8", "num_experts_per_tok=1", "interleave_moe_layer_step=2", "inhomogeneous_layer_cycle_interval=2", "use_post_ffw_norm=true", "use_qk_norm=true", SGD}},
    {.name = "narrow experts", .set = {"decoder_block=qwen3_custom_moe", "num_experts=8", "num_experts_per_tok=2", "attention_output_dim=48", "moe_expert_input_dim=48", SGD}},
    {.name = "compressed attention, stages", .set = {"decoder_block=deepseek4", "attention_type=compressed", "scan_layers=false", "base_num_kv_heads=1", "base_num_decoder_layers=4", "q_lora_rank=24", "qk_rope_head_dim=8", "head_dim=16", "o_groups=2", "o_lora_rank=24", "sliding_window_size=5", "indexer_n_heads=8", "indexer_head_dim=16", "indexer_topk=2", "num_experts=8", "num_experts_per_tok=2", "base_moe_mlp_dim=64", "routed_score_func=sqrtsoftplus", "routed_bias=true", "routed_bias_update_rate=0.01", "first_num_hash_layers=2", "compress_ratios=[0, 4, 6, 4]", "remat_policy=full", SGD}, .has_stages = true, .axes = {"stage", "data", "fsdp", "context", "expert"}},
    {.name = "eight layers, twice round", .set = {"base_num_decoder_layers=8", SGD}, .has_stages = true},
    {.name = "two layers a stage, more micro-batches", .set = {"base_num_decoder_layers=8", "num_layers_per_pipeline_stage=2", "num_pipeline_microbatches=8", "pipeline_fsdp_ag_once=true"}, .has_stages = true},
    {.name = "micro-batches that stages do not divide", .set = {"base_num_decoder_layers=8", "num_pipeline_microbatches=1", "remat_policy=full", SGD}, .has_stages = true},
    {.name = "blocks side by side", .set = {"decoder_block=default", SGD}},
    {.name = "matrices alone", .set = {"decoder_block=simple_mlp", SGD}},
    {.name = "tiles", .set = {"num_vocab_tiling=4", SGD}},
    {.name = "tiles, tied, accumulation", .set = {"num_vocab_tiling=8", "logits_via_embedding=true", "gradient_accumulation_steps=2", SGD}, .parts = 2},
    {.name = "everything again", .set = {"remat_policy=full", SGD}},
    {.name = "dropout", .set = {"dropout_rate=0.3", SGD}},
    {.name = "adapters that drop", .set = {"lora.enable_lora=true", "lora.lora_rank=4", "lora.lora_alpha=8", "lora.lora_dropout=0.3", SGD}, .often = true},
    {.name = "magnitudes, adapters that drop, accumulation", .set = {"lora.enable_lora=true", "lora.lora_rank=4", "lora.lora_alpha=8", "lora.use_dora=true", "lora.lora_dropout=0.3", "remat_policy=full", "gradient_accumulation_steps=2", SGD}, .parts = 2, .start = 3e-7}, /* as above: roundings of norms */
    {.name = "noise of embeddings", .set = {"neftune_noise_alpha=15", SGD}},
    {.name = "adapters at two rates", .set = {"lora.enable_lora=true", "lora.lora_rank=4", "lora.lora_alpha=8", "lora.loraplus_lr_ratio=8", "shard_optimizer_over_data=true"}},
    {.name = "experts by chance, accumulation", .set = {"decoder_block=mixtral", "num_experts=8", "num_experts_per_tok=2", "use_random_routing=true", "load_balance_loss_weight=0.1", "remat_policy=full", "gradient_accumulation_steps=2", SGD}, .parts = 2, .often = true},
    {.name = "dropout, accumulation", .set = {"dropout_rate=0.3", "remat_policy=full", "gradient_accumulation_steps=2", SGD}, .parts = 2},
    {.name = "something again", .set = {"remat_policy=minimal", "z_loss_multiplier=0.01", SGD}},
    {.name = "weights cut otherwise", .set = {"logical_axis_rules=[[embed,tensor],[mlp,[fsdp]],[q_heads,[]],[kv_heads,context],[vocab,[data]]]", SGD}},
    {.name = "activations whole", .set = {"logical_axis_rules=[[activation_mlp,[]],[activation_heads,[]],[activation_kv_heads,[]],[activation_embed,[]],[activation_length,[]]]", SGD}},
    {.name = "a long row, one head of keys", .set = {"decoder_block=qwen3", "use_qk_norm=true", "base_num_kv_heads=1", "gradient_accumulation_steps=4", SGD}, .length = 512, .rows = 4, .parts = 4, .axes = {"context", "context_usp_ulysses"}},
    {.name = "a long row, windows, caps, everything again", .set = {"decoder_block=olmo3", "use_qk_norm=true", "sliding_window_size=400", "attn_logits_soft_cap=5", "base_num_decoder_layers=4", "base_num_kv_heads=1", "remat_policy=full", "gradient_accumulation_steps=4", SGD}, .length = 512, .rows = 4, .parts = 4, .axes = {"context", "context_usp_ulysses"}},
    {.name = "a long row, sinks", .set = {"decoder_block=gpt_oss", "num_experts=8", "num_experts_per_tok=2", "mlp_bias=true", "routed_bias=true", "attention_bias=true", "attention_sink=true", "sliding_window_size=400", "mlp_activations=[sigmoid,linear]", "mlp_activations_limit=0.5", "base_num_kv_heads=1", "gradient_accumulation_steps=4", SGD}, .length = 512, .rows = 4, .parts = 4, .axes = {"context", "context_usp_ulysses"}},
    {.name = "a long row, latent attention of one head", .set = {"decoder_block=deepseek", "attention_type=mla", "first_num_dense_layers=2", "q_lora_rank=24", "kv_lora_rank=48", "qk_nope_head_dim=48", "qk_rope_head_dim=16", "v_head_dim=48", "base_num_query_heads=1", "base_num_kv_heads=1", "use_qk_clip=true", "qk_clip_threshold=0.01", "gradient_accumulation_steps=4", SGD}, .length = 512, .rows = 4, .parts = 4, .axes = {"context", "context_usp_ulysses"}},
    {.name = "a long row around a ring", .set = {"decoder_block=qwen3", "use_qk_norm=true", "base_num_kv_heads=1", "context_parallel_strategy=ring", "gradient_accumulation_steps=4", SGD}, .length = 512, .rows = 4, .parts = 4, .axes = {"context", "context_usp_ulysses"}},
    {.name = "a ring, windows, sinks, everything again", .set = {"decoder_block=gpt_oss", "num_experts=8", "num_experts_per_tok=2", "mlp_bias=true", "routed_bias=true", "attention_bias=true", "attention_sink=true", "sliding_window_size=100", "mlp_activations=[sigmoid,linear]", "mlp_activations_limit=0.5", "base_num_kv_heads=1", "remat_policy=full", "context_parallel_strategy=ring", "context_parallel_load_balance=false", "gradient_accumulation_steps=4", SGD}, .length = 512, .rows = 4, .parts = 4, .axes = {"context", "context_usp_ulysses"}},
    {.name = "a ring, tokens that an indexer chooses", .set = {"decoder_block=deepseek", "attention_type=mla", "first_num_dense_layers=2", "q_lora_rank=24", "kv_lora_rank=48", "qk_nope_head_dim=48", "qk_rope_head_dim=16", "v_head_dim=48", "base_num_query_heads=1", "base_num_kv_heads=1", "use_indexer=true", "indexer_n_heads=8", "indexer_head_dim=16", "indexer_topk=9", "use_qk_clip=true", "qk_clip_threshold=0.01", "context_parallel_strategy=ring", "gradient_accumulation_steps=4", SGD}, .length = 32, .rows = 4, .parts = 4, .axes = {"context", "context_usp_ulysses"}}, /* short: of long rows some query has two keys as good as each other, and which one it takes hangs on rounding */
    {.name = "bfloat16, a ring, something again", .set = {"dtype=bfloat16", "decoder_block=qwen3", "use_qk_norm=true", "base_num_kv_heads=1", "remat_policy=minimal", "context_parallel_strategy=ring", "gradient_accumulation_steps=4", SGD}, .length = 512, .rows = 4, .parts = 4, .axes = {"context", "context_usp_ulysses"}, .is_bf16 = true},
    {.name = "chunks that heads choose", .set = {"moba=true", "moba_chunk_size=3", "moba_topk=2", SGD}},
    {.name = "chunks that heads choose in windows", .set = {"moba=true", "moba_chunk_size=3", "moba_topk=2", "attention_type=local_sliding", "sliding_window_size=5", SGD}},
    {.name = "a long row, chunks that heads choose", .set = {"moba=true", "moba_chunk_size=40", "moba_topk=3", "base_num_kv_heads=1", "remat_policy=minimal", "gradient_accumulation_steps=4", SGD}, .length = 512, .rows = 4, .parts = 4, .axes = {"context", "context_usp_ulysses"}},
    {.name = "mesh of fsdp", .set = {"custom_mesh_and_rule=pure-fsdp", SGD}, .axes = {"fsdp"}},
    {.name = "mesh with experts along the context", .set = {"custom_mesh_and_rule=ep-as-cp", SGD}, .axes = {"data", "fsdp", "expert"}},
    {.name = "bfloat16", .set = {"dtype=bfloat16", SGD}, .is_bf16 = true},
    {.name = "vocabulary elsewhere", .set = {"logical_axis_rules=[[vocab,[expert,fsdp,context,tensor,tensor_sequence]],[embed_vocab,[]]]", SGD}},
    {.name = "soft cap, tied, ahead", .set = {"final_logits_soft_cap=3", "logits_via_embedding=true", "mtp_num_layers=1", "z_loss_multiplier=0.01", SGD}},
    {.name = "preferences, adapters, accumulation", .set = {"use_dpo=true", "lora.enable_lora=true", "lora.lora_rank=4", "lora.lora_alpha=8", "gradient_accumulation_steps=2", "vocab_size=1152", SGD}, .parts = 4},
    {.name = "bfloat16, tied, preferences", .set = {"dtype=bfloat16", "logits_via_embedding=true", "use_dpo=true", "vocab_size=1152", SGD}, .parts = 2, .loss = 1e-2, .is_bf16 = true}, /* its loss is of sums over responses */
    {.name = "bfloat16, adapters, accumulation", .set = {"dtype=bfloat16", "lora.enable_lora=true", "lora.lora_rank=4", "lora.lora_alpha=8", "gradient_accumulation_steps=2", "opt_type=sgd", "learning_rate=0"}, .parts = 2, .is_bf16 = true}, /* a B that moves is nothing but rounded gradients */
    {.name = "bfloat16, adapters beside a reference", .set = {"dtype=bfloat16", "lora.enable_lora=true", "lora.lora_rank=4", "lora.lora_alpha=8", "use_dpo=true", "dpo.reference=copy", "opt_type=sgd", "learning_rate=0"}, .parts = 2, .loss = 1e-2, .is_bf16 = true},
};
// clang-format on

static const Variant optimizers[] = {
#define MX_OPTIMIZER(name_, keys) {.name = #name_, .set = {"opt_type=" #name_}},
#include <mx/config_optimizers.def>
#undef MX_OPTIMIZER
};

/* The rows and, behind them, the optimizers that none of them has. */
static Variant variants[MX_COUNT(rows) + MX_COUNT(optimizers)];
static int n_variants;

static bool has_row(const Variant *optimizer) {
    bool has = !strcmp(optimizer->name, rows[0].name); /* what is usual */
    for (int i = 0; i < MX_COUNT(rows); i++)
        for (int k = 0; k < MOST_SET && rows[i].set[k]; k++)
            has = has || !strcmp(rows[i].set[k], optimizer->set[0]);
    return has;
}

static void list_variants(void) {
    memcpy(variants, rows, sizeof rows);
    n_variants = MX_COUNT(rows);
    for (int i = 0; i < MX_COUNT(optimizers); i++)
        if (!has_row(&optimizers[i])) variants[n_variants++] = optimizers[i];
}

/* How far off a run may be: losses relative to themselves, arrays to their norm; what AdamW makes
 * of parameters absolutely, since it makes steps of one size of the smallest gradients too. */
typedef struct Bounds {
    double loss, gradient, parameter, adamw_parameter;
} Bounds;

static Bounds bounds_of(const Variant *v) {
    Bounds bounds = {1e-6, 1e-5, 1e-5, 1e-4};
    if (v->is_bf16) bounds = (Bounds){2e-3, 3e-2, 1e-3, 1e-3};
    if (v->loss > 0) bounds.loss = v->loss;
    if (v->gradient > 0) bounds.gradient = bounds.parameter = v->gradient;
    return bounds;
}

/* Whether steps are of one size, whatever the gradient's is. */
static bool is_adamw(const Variant *v) {
    bool is_sgd = false;
    for (int i = 0; i < MOST_SET && v->set[i]; i++)
        is_sgd = is_sgd || !strcmp(v->set[i], "opt_type=sgd");
    return !is_sgd;
}

/* ---- which meshes */

/* Meshes of each number of ranks for a variant that is not everywhere; of one that is often, twice
 * as many. */
static int least(void) {
    return getenv("MX_LONG") ? 12 : 3;
}

static bool is_everywhere(const Variant *v) {
    return v->everywhere || (v->often && getenv("MX_LONG"));
}

/* Whether the rows of a batch are as many parts. */
static bool has_rows(const Variant *v) {
    return !v->parts || small_rows(v) % v->parts == 0;
}

static int count_axes(const Variant *v) {
    int n = 0;
    while (n < MOST_AXES && v->axes[n]) n++;
    return n;
}

static bool runs_on(int variant, int mesh) {
    const Variant *v = &variants[variant];
    int n;
    if (v->has_stages || !has_rows(v)) return false;
    const RankMesh *meshes = rank_meshes(&n);
    int n_axes = count_axes(v);
    if (n_axes) return mesh_is_within(&meshes[mesh], v->axes, n_axes);
    int some = v->often ? 2 * least() : least();
    return is_everywhere(v) || n <= some || (mesh + variant) % (n / some) == 0;
}

/* ---- comparing a rank's part with the whole */

/* A rank's part of a variable; of one that is still a sum to be taken, the sum. */
static const float *part_of(const MxTrainState *s, int var, MxArena *arena) {
    const MxMesh *mesh = &s->mesh.mesh;
    uint32_t axes = s->sharding[var].partial;
    const float *own = record_floats(arena, s, var);
    size_t n = (size_t)mx_box_count(&s->box[var]);
    if (!axes) return own;
    MxGroup group = mx_lower_group(arena, mesh, s->rank, axes);
    float *terms = mx_new_n(arena, float, n *(size_t)group.size), *sum = mx_new_n(arena, float, n);
    MxExchange *exchange = mx_comm_exchange(comm, &group);
    memcpy(terms + (size_t)group.index * n, own, n * sizeof *own);
    mx_exchange_all_gather(exchange, "test", own, terms, n * sizeof *own);
    mx_exchange_finish(exchange);
    for (size_t i = 0; i < n * (size_t)group.size; i++) sum[i % n] += terms[i];
    return sum;
}

/* How far a rank's part is from the whole, relative to the whole's norm; the largest difference. */
typedef struct Distance {
    double relative, absolute;
} Distance;

/* size  squares that it is relative to */
static Distance distance(const MxTrainState *s, int var, MxShape shape, const float *all,
                         double size) {
    MxArena arena = {.name = "distance"};
    const MxBox *box = &s->box[var];
    const float *part = part_of(s, var, &arena);
    double error = 0, most = 0;
    for (int64_t i = 0; i < mx_box_count(box); i++) {
        double d = (double)part[i] - (double)all[record_index(box, shape, i)];
        error += d * d;
        most = fmax(most, fabs(d));
    }
    mx_arena_release(&arena);
    return (Distance){size > 0 ? sqrt(error / size) : sqrt(error), most};
}

/* What a parameter's variable holds: its values, or codes of them. */
static MxShape shape_of(const MxTrainState *s, int var) {
    return s->vars.item[var].type.shape;
}

/* Squares of the arrays whose paths end so. */
static double squares_of(const MxTree *params, const RecordList *whole, const char *ending) {
    double sum = 0;
    for (int i = 0; i < params->n; i++)
        if (mx_text_has_suffix(params->leaves[i].path, ending)) sum += whole->squares[i];
    return sum;
}

/* The parameter that is farthest from the record's. Where rotations do not turn keys, nothing
 * depends on their bias: its gradient is 0 in real numbers, and rounding here. So an array of less
 * than a millionth of the norm of all may be off by what one of a thousandth may. One number a
 * layer, which may be near 0 by chance, is measured by those of all layers. */
static Distance farthest(const MxTrainState *s, const int *vars, const RecordList *whole,
                         const char **which) {
    Distance most = {0};
    const MxTree *params = mx_model_params(s->model);
    const double least = 1e-12 * squares_of(params, whole, "");
    for (int i = 0; i < params->n; i++) {
        const char *path = params->leaves[i].path;
        if (!whole->values[i]) continue;
        const char *tail = pooled_tail(path);
        double size = tail ? squares_of(params, whole, tail) : whole->squares[i];
        if (size < least) size = 1e6 * least;
        Distance d = distance(s, vars[i], shape_of(s, vars[i]), whole->values[i], size);
        most.absolute = fmax(most.absolute, d.absolute);
        if (!(d.relative >= most.relative)) continue;
        most.relative = d.relative;
        *which = path;
    }
    return most;
}

typedef struct Seen {
    double loss, weights, norm, told, gradient;
    Distance init, last;
    const char *init_of, *gradient_of, *last_of;
    MxCommCount sent; /* in the last step */
} Seen;

static double relative(double a, double b) {
    return fabs(a - b) / fmax(fabs(b), 1e-30);
}

/* What neither measured is alike. */
static double apart(double a, double b) {
    if (isnan(a) || isnan(b)) return isnan(a) && isnan(b) ? 0 : INFINITY;
    return fabs(a - b) / (1 + fabs(b));
}

/* Whether the gradient is one of the same parameters, but for rounding: AdamW makes as large a step
 * of a gradient that is nothing but rounding as of any other. */
static bool is_comparable(const Variant *v, int step) {
    return step == 0 || !is_adamw(v);
}

static MxCommCount sent_since(MxCommCount before) {
    MxCommCount now = mx_comm_count(comm);
    return (MxCommCount){.calls = now.calls - before.calls, .bytes = now.bytes - before.bytes};
}

static void see_gradient(Seen *seen, const MxTrainState *s, const RecordList *whole) {
    const char *which = NULL;
    double far = farthest(s, s->var.gradient, whole, &which).relative;
    if (far <= seen->gradient) return;
    seen->gradient = far;
    seen->gradient_of = which;
}

static Seen train(MxTrainState *s, const Variant *v, const Record *r, MxArena *arena) {
    Seen seen = {0};
    record_teach(s);
    record_begin(s);
    seen.init = farthest(s, s->var.param, &r->init, &seen.init_of);
    for (int step = 0; step < STEPS; step++) {
        MxBatch batch = small_batch(arena, v, step);
        MxCommCount before = mx_comm_count(comm);
        MxLoss loss = record_loss(s, step, &batch);
        MxCommCount made = sent_since(before);
        seen.loss = fmax(seen.loss, relative(loss.loss, r->loss[step].loss));
        seen.weights = fmax(seen.weights, fabs(loss.total_weights - r->loss[step].total_weights));
        if (is_comparable(v, step)) see_gradient(&seen, s, &r->gradient[step]);
        before = mx_comm_count(comm);
        MxUpdate update = mx_train_update(s);
        seen.sent = sent_since(before);
        seen.sent = (MxCommCount){.calls = seen.sent.calls + made.calls,
                                  .bytes = seen.sent.bytes + made.bytes};
        seen.norm = fmax(seen.norm, relative(update.raw_grad_norm, r->update[step].raw_grad_norm));
        seen.norm = fmax(seen.norm, relative(update.param_norm, r->update[step].param_norm));
        double told[MOST_TOLD] = {0};
        record_told(s, told);
        for (int i = 0; i < MOST_TOLD; i++)
            seen.told = fmax(seen.told, apart(told[i], r->told[step][i]));
    }
    seen.last = farthest(s, s->var.param, &r->last, &seen.last_of);
    MxBatch batch = small_batch(arena, v, STEPS);
    if (record_has_eval(s->config))
        seen.loss = fmax(seen.loss, relative(mx_train_eval(s, &batch).loss, r->eval.loss));
    return seen;
}

/* Of a parameter's part a rank has the moments of one "data"th, if the config says so. A vector
 * that "tensor" cuts stays as it is, as in MaxText. Factored ones and
 * scales have another shape. */
static void ck_moments(const MxTrainState *s, const char *at) {
    const MxTree *params = mx_model_params(s->model);
    int64_t n = s->config->shard_optimizer_over_data ? mx_mesh_size(&s->mesh.mesh, "data") : 1;
    for (int k = 0; k < s->optim->n_arrays; k++) {
        int i = s->optim->arrays[k].param;
        if (!mx_shape_equal(s->optim->arrays[k].leaf.shape, params->leaves[i].shape)) continue;
        ck_assert_msg(n * mx_box_count(&s->box[s->var.kept[k]]) ==
                              mx_box_count(&s->box[s->var.param[i]]) ||
                          params->leaves[i].shape.rank == 1,
                      "%s: moments of %s", at, params->leaves[i].path);
    }
}

/* A rank's part of what is frozen is cast once: no step makes anything of it in another dtype. */
static void ck_casts(const MxTrainState *s, const char *at) {
    const int *reference = reference_copy(s);
    for (int e = 0; e < s->n_entries; e++) {
        const MxGraph *graph = s->entries[e];
        for (int n = 0; s->entry[e] != &program_entry_frozen && n < graph->n_nodes; n++) {
            MxValue x = graph->nodes[n].out[0];
            if (graph->nodes[n].op != &op_cast) continue;
            while (mx_graph_producer(graph, x)->n_in == 1) x = mx_graph_producer(graph, x)->in[0];
            const MxNode *from = mx_graph_producer(graph, x);
            if (!(from->op->flags & MX_OP_SOURCE)) continue;
            int var = ((const MxVariableAttr *)from->attr)->var;
            for (int i = 0; i < mx_model_params(s->model)->n; i++)
                ck_assert_msg((var != s->var.param[i] || s->var.gradient[i] != MX_NONE) &&
                                  (!reference || var != reference[i]),
                              "%s: %s casts %s", at, graph->name, s->local.item[var].name);
        }
    }
}

/* A plan is that of all ranks of the first stage: the first one makes it, and the last, whose parts
 * may be others. */
static bool plans_here(const MxTrainState *s) {
    int rank = mx_comm_rank(comm);
    return rank == 0 || (rank == mx_comm_size(comm) - 1 && s->mesh.n_stages == 1);
}

/* The plan's list is what a step sent, and its memory what the state has. */
static void ck_planned(MxArena *arena, const MxTrainState *state, MxCommCount sent,
                       const char *at) {
    const MxConfig *config = state->config;
    MxTrainBytes has = mx_train_state_bytes(state);
    PlanProgram plan = small_plan(arena, config);
    const size_t state_has[PLAN_MOMENTS] = {[PLAN_WEIGHTS] = has.parameters,
                                            [PLAN_GRADIENTS] = has.gradients,
                                            [PLAN_OPTIMIZER] = has.moments,
                                            [PLAN_DISK] = has.disk,
                                            [PLAN_OUTER] = has.outer,
                                            [PLAN_REFERENCE] = has.reference,
                                            [PLAN_ACTIVATIONS] = has.activations,
                                            [PLAN_CASTS] = has.casts,
                                            [PLAN_BUFFERS] = has.buffers};
    int64_t calls = 0, bytes = 0;
    bool has_ring = false; /* around which ranks send more and less */
    ck_assert_msg(!plan.refusal, "%s: %s", at, plan.refusal);
    for (int i = 0; i < plan.traffic.n; i++) {
        has_ring = has_ring || !strcmp(plan.traffic.rows[i].op, "ring_shift");
        calls += plan.traffic.rows[i].calls;
        bytes += plan.traffic.rows[i].bytes;
    }
    for (int i = 0; i < PLAN_MOMENTS; i++)
        ck_assert_msg((size_t)plan.bytes[i] == state_has[i], "%s: planned %lld bytes, has %zu (%d)",
                      at, (long long)plan.bytes[i], state_has[i], i);
    if (has_ring && mx_comm_rank(comm)) return;
    bool has_calls = mx_comm_size(comm) > 1;
    ck_assert_msg(
        (calls > 0) == has_calls && (uint64_t)calls == sent.calls && (uint64_t)bytes == sent.bytes,
        "%s: planned %lld exchanges of %lld bytes, made %llu of %llu", at, (long long)calls,
        (long long)bytes, (unsigned long long)sent.calls, (unsigned long long)sent.bytes);
}

static void ck_seen(const Seen *seen, const Variant *v, const char *at) {
    Bounds bounds = bounds_of(v);
    /* One rank runs the very program. */
    if (mx_comm_size(comm) == 1) bounds = (Bounds){0};
    ck_assert_msg(seen->init.absolute <= (mx_comm_size(comm) == 1 ? 0 : v->start),
                  "%s: initial parameters of %s are off by %g", at, seen->init_of,
                  seen->init.absolute);
    ck_assert_msg(seen->weights == 0, "%s: other weights", at);
    ck_assert_msg(seen->gradient <= bounds.gradient, "%s: gradient of %s is off by %g", at,
                  seen->gradient_of, seen->gradient);
    ck_assert_msg(seen->loss <= bounds.loss, "%s: losses are off by %g", at, seen->loss);
    ck_assert_msg(seen->norm <= bounds.gradient, "%s: norms are off by %g", at, seen->norm);
    ck_assert_msg(seen->told <= bounds.gradient, "%s: metrics are off by %g", at, seen->told);
    if (is_adamw(v))
        ck_assert_msg(seen->last.absolute <= bounds.adamw_parameter, "%s: parameters are off by %g",
                      at, seen->last.absolute);
    else
        ck_assert_msg(seen->last.relative <= bounds.parameter, "%s: %s is off by %g", at,
                      seen->last_of, seen->last.relative);
}

/* Meshes that each variant ran on, to see that they are enough. */
static int n_ran[MX_COUNT(variants)];

static void train_on(const RankMesh *mesh, int variant) {
    MxArena arena = {.name = "train"};
    MxError err = {0};
    MxTrainState *divided;
    const Variant *v = &variants[variant];
    const Record *record = record_of(variants, n_variants, variant);
    ck_assert_msg(
        mx_train_state_open_on(&arena, small_config(&arena, v, mesh), comm, &divided, &err),
        "%s: %s", v->name, err.text.data);
    Seen seen = train(divided, v, record, &arena);
    const char *at =
        mx_arena_printf(&arena, "%s on %s", v->name, mx_mesh_text(&arena, &divided->mesh.mesh));
    if (divided->mesh.n_stages == 1) n_ran[variant]++;
    if ((!is_everywhere(v) || v == variants) && plans_here(divided))
        ck_planned(&arena, divided, seen.sent, at);
    ck_moments(divided, at);
    ck_casts(divided, at);
    ck_seen(&seen, v, at);
    mx_arena_release(&arena);
}

/* A test each, since a rank that fails leaves its test, and the others must not wait for it. */
START_TEST(ranks_train_as_one) {
    int n, mesh = _i / n_variants, variant = _i % n_variants;
    const RankMesh *meshes = rank_meshes(&n);
    if (runs_on(variant, mesh)) train_on(&meshes[mesh], variant);
}
END_TEST

/* ---- stages */

static int64_t number_in(const Variant *v, const char *key, int64_t usual) {
    for (int i = 0; i < MOST_SET && v->set[i]; i++)
        if (mx_text_has_prefix(v->set[i], key)) return strtoll(v->set[i] + strlen(key), NULL, 10);
    return usual;
}

/* Whether a pipeline takes the variant on that mesh; of long lists of meshes each has some. */
static bool fits_stages(int variant, int mesh) {
    const Variant *v = &variants[variant];
    int n, at = 0;
    const RankMesh *m = &stage_meshes(&n)[mesh];
    while (strcmp(mx_mesh_default_axes[at], "stage")) at++;
    int64_t stages = m->size[at], layers = number_in(v, "base_num_decoder_layers=", 2);
    int64_t each = number_in(v, "num_layers_per_pipeline_stage=", 1);
    int64_t micros = number_in(v, "num_pipeline_microbatches=", stages) * (v->parts ? v->parts : 1);
    bool divides = layers % (stages * each) == 0 && small_rows(v) % micros == 0 &&
                   small_rows(v) / micros % (mx_comm_size(comm) / stages) == 0;
    for (int i = 0; i < MOST_SET && v->set[i]; i++)
        if (!strcmp(v->set[i], "use_qk_clip=true") ||
            mx_text_has_prefix(v->set[i], "teacher_overrides"))
            return false;
    int n_axes = count_axes(v);
    if (n_axes && !(v->has_stages && mesh_is_within(m, v->axes, n_axes))) return false;
    return divides && (v->everywhere || v->has_stages || (mesh + variant) % n < 2);
}

START_TEST(stages_train_as_one) {
    int n, mesh = _i / n_variants, variant = _i % n_variants;
    if (fits_stages(variant, mesh)) train_on(&stage_meshes(&n)[mesh], variant);
}
END_TEST

/* At least 20 combinations of axes, or of axes and configs where there are fewer axes; of the rarer
 * variants some meshes each, or all there are. */
START_TEST(there_were_enough) {
    enum { WANTED = 20 };
    int n, n_all = 0;
    rank_meshes(&n);
    for (int v = 0; v < n_variants; v++) {
        n_all += n_ran[v];
        if (variants[v].has_stages || !has_rows(&variants[v])) continue;
        if (is_everywhere(&variants[v])) ck_assert_int_eq(n_ran[v], n);
        if (!variants[v].axes[0]) ck_assert_int_ge(n_ran[v], n < least() ? n : least());
        ck_assert_int_ge(n_ran[v], 1);
    }
    ck_assert_int_ge(n_all, WANTED);
    if (mx_comm_size(comm) > 3) ck_assert_int_ge(n, WANTED);
    if (mx_comm_rank(comm) == 0)
        printf("%d ranks: %d meshes, %d runs on them like that of one rank\n", mx_comm_size(comm),
               n, n_all);
}
END_TEST

Suite *train_suite(void) {
    int n;
    rank_meshes(&n);
    list_variants();
    Suite *suite = suite_create("mpi/train");
    TCase *tcase = tcase_create("train");
    tcase_add_loop_test(tcase, ranks_train_as_one, 0, n * n_variants);
    tcase_add_test(tcase, there_were_enough);
    tcase_set_timeout(tcase, 120);
    tcase_set_long(tcase);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("stages");
    stage_meshes(&n);
    if (n) tcase_add_loop_test(tcase, stages_train_as_one, 0, n * n_variants);
    tcase_set_timeout(tcase, 120);
    suite_add_tcase(suite, tcase);
    return suite;
}
