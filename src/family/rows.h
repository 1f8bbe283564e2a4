/* rows.h — the rows of the families that are built, and what several of them share. */
#ifndef FAMILY_ROWS_H
#define FAMILY_ROWS_H

#include <mx/family_encoder.h>
#include <mx/family.h>

#define MX_FAMILY(name) extern const MxFamily family_##name;
#define MX_FAMILY_LATER(name, period, place, mark)
#include <mx/family.def>
#undef MX_FAMILY
#undef MX_FAMILY_LATER

#define MX_ENCODER(name) extern const MxEncoder encoder_##name;
#include <mx/family_encoder.def>
#undef MX_ENCODER

// clang-format off
/* Attention and gated feed-forward, each behind a norm, under the names of MaxText's llama2. */
#define FAMILY_LLAMA_BLOCKS                                                                        \
    {{.kind = MX_BLOCK_ATTENTION, .name = "self_attention",                                        \
      .norm_before = "pre_self_attention_layer_norm"},                                             \
     {.kind = MX_BLOCK_GLU, .name = "mlp", .norm_before = "post_self_attention_layer_norm"}}

#define FAMILY_LLAMA_HF_NORMS {"input_layernorm", NULL, "post_attention_layernorm", NULL}

/* Of all families with experts. */
#define FAMILY_MOE_KEYS                                                                            \
    "num_experts num_experts_per_tok base_moe_mlp_dim capacity_factor load_balance_loss_weight "   \
    "moe_use_megatron_seq_aux_loss quantize_router_proj use_random_routing log_expert_load "       \
    "moe_log_max_load_ratio log_required_ragged_buffer_factor routed_score_func routed_bias "       \
    "mlp_bias dense_init_scale shard_exp_on_fsdp use_2d_fsdp_sharding"

/* Of all layers of Gemma 4's two families. */
#define FAMILY_GEMMA4_KEYS                                                                         \
    "sliding_window_size use_post_attn_norm use_post_ffw_norm local_rope_max_timescale "           \
    "local_rope_proportion global_rope_max_timescale global_rope_proportion global_head_dim "      \
    "global_num_kv_heads v_norm_with_scale"

/* MaxText's default modules of adapters; layers after the last whole period, which are apart, are
 * among them. Source: configs/post_train/lora_module_path.yml @e591f30c. */
#define FAMILY_LORA_LAYERS "decoder/(layers_remainder/[^/]+/|layers/)"
#define FAMILY_LORA_MODULES                                                                        \
    FAMILY_LORA_LAYERS ".*(self_attention/(query|key|value|out)|mlp/(wi_0|wi_1|wo))"
// clang-format on

/* Encoders of images of Qwen 3: they differ in names, and in what they add to the decoder. */
#define FAMILY_QWEN3_EYE                                                                           \
    .layer = "blocks_", .pools = MX_POOLS_BY_MERGE, .keeps_form = true, .keeps_size = true,        \
    .keeps_squares = true, .mixes_places = true, .has_own_stride = true, .has_mrope = true,        \
    .is_cubic = true, .mark = "<|vision_start|><|image_pad|><|vision_end|>",                       \
    .begin = "<|vision_start|>", .token = "<|image_pad|>", .end = "<|vision_end|>", .around = "",  \
    .whole = "",                                                                                   \
    .turns = {"<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n", "<|im_end|>"}
#define FAMILY_QWEN3_HF_EYE                                                                        \
    .text = {"model.language_model.", "model."}, .tower = "model.visual.",                         \
    .layers = "model.visual.blocks."

#endif
