/* test_hf_config.c — config.json alone: what published ones and parts of them are to us; tensors in
 * pieces; and of runs that began with a folder. */
#include "tools.h"

#include <mx/config.h>

#include <stdio.h>
#include <stdlib.h>

/* The config.json of gemma-3-4b-it: what it leaves out is as transformers' class of configs has it.
 */
START_TEST(members_that_are_missing) {
    static const char text[] =
        "{\"model_type\": \"gemma3\", \"architectures\": [\"Gemma3ForConditionalGeneration\"],"
        " \"torch_dtype\": \"bfloat16\", \"vision_config\": {}, \"text_config\": {"
        "\"hidden_size\": 2560, \"intermediate_size\": 10240, \"model_type\": \"gemma3_text\","
        " \"num_hidden_layers\": 34, \"rope_scaling\": {\"factor\": 8.0, \"rope_type\": "
        "\"linear\"},"
        " \"sliding_window\": 1024}}";
    static const char *const lines[] = {"base_num_query_heads: 8\n",
                                        "base_num_kv_heads: 4\n",
                                        "head_dim: 256\n",
                                        "vocab_size: 262208\n",
                                        "rope_max_timescale: 1000000\n",
                                        "local_rope_max_timescale: 10000\n",
                                        "sliding_window_size: 1024\n",
                                        "rope_linear_scaling_factor: 8.0\n",
                                        "logits_via_embedding: true\n",
                                        "attn_logits_soft_cap: 0\n",
                                        "normalization_layer_epsilon: 1e-06\n"};
    MxHfModel model;
    put_content("config.json", text, sizeof text - 1);
    ck_ok(mx_hf_read_config(&arena, in_folder("config.json"), &model, &err));
    ck_assert_str_eq(model.lacks, "");
    ck_assert(model.dtype == MX_BF16);
    const char *yaml = mx_hf_yaml(&arena, &model);
    for (int i = 0; i < MX_COUNT(lines); i++)
        ck_assert_msg(strstr(yaml, lines[i]) != NULL, "no %s in %s", lines[i], yaml);
    ck_assert(!strstr(yaml, "query_pre_attn_scalar")); /* 256, as the head is wide */
}
END_TEST

static const struct {
    const char *members, *says;
} windows[] = {
    {"\"use_sliding_window\": false, \"sliding_window\": 9", "attention_type: global"},
    {"\"use_sliding_window\": true, \"sliding_window\": null", "attention_type: global"},
    {"\"use_sliding_window\": true, \"sliding_window\": 9", "attention_type: global"},
    {"\"use_sliding_window\": true, \"sliding_window\": 9, \"max_window_layers\": 0",
     "sliding_window_size: 9"},
    {"\"use_sliding_window\": true, \"max_window_layers\": 0", "sliding_window_size: 4096"},
    {"\"use_sliding_window\": true, \"sliding_window\": 9, \"max_window_layers\": 1",
     "max_window_layers: found 1"},
    {"\"use_sliding_window\": true, \"sliding_window\": 9, \"layer_types\": "
     "[\"sliding_attention\", \"sliding_attention\"]",
     "sliding_window_size: 9"},
    {"\"use_sliding_window\": true, \"sliding_window\": 9, \"layer_types\": "
     "[\"sliding_attention\", \"full_attention\"]",
     "layer_types: found [\"sliding_attention\", \"full_attention\"]"},
};

/* Of qwen2, where layers see all tokens unless it is said in several places. */
START_TEST(windows_are_found) {
    const char *text = mx_arena_printf(
        &arena,
        "{\"model_type\": \"qwen2\", \"hidden_size\": 32, \"num_attention_heads\": 4, "
        "\"intermediate_size\": 64, \"num_hidden_layers\": 2, \"vocab_size\": 160, %s}",
        windows[_i].members);
    MxHfModel model;
    put_content("config.json", text, strlen(text));
    ck_ok(mx_hf_read_config(&arena, in_folder("config.json"), &model, &err));
    const char *told = *model.lacks ? model.lacks : mx_hf_yaml(&arena, &model);
    ck_assert_msg(strstr(told, windows[_i].says) != NULL, "\"%s\" is not in: %s", windows[_i].says,
                  told);
    ck_assert_int_eq(model.head_dim, 8);
    ck_assert_int_eq(model.n_kv_heads, 32);
}
END_TEST

static const struct {
    const char *members, *says;
    bool is_lack; /* the weights are converted all the same */
} owns[] = {
    {"\"hidden_size_per_layer_input\": 0", "decoder_block: gemma4\n", false},
    {"\"num_experts\": null", "decoder_block: gemma4_small\n", false},
    {"\"hidden_size_per_layer_input\": 0, \"per_layer_config\": {\"5\": {\"head_dim\": 16}, "
     "\"4\": {\"head_dim\": 16}}",
     "per_layer_config: layer 4: found {\"head_dim\": 16}, wanted nothing", false},
    {"\"attention_k_eq_v\": true", "attention_k_eq_v: not available here", false},
    {"\"hidden_size_per_layer_input\": 0, \"num_kv_shared_layers\": 2",
     "num_kv_shared_layers: not available here", false},
    {"\"num_kv_shared_layers\": 6", "num_kv_shared_layers: found 6, wanted", false},
    {"\"global_head_dim\": 9", "global_head_dim: found 9, wanted an even number", false},
    {"\"num_hidden_layers\": 5", "last_layer_sees_all: true\n", false},
    {"\"hidden_size_per_layer_input\": 0, \"num_hidden_layers\": 5", "num_hidden_layers: found 5",
     true},
    {"\"rope_parameters\": {\"full_attention\": {\"rope_type\": \"yarn\"}, "
     "\"sliding_attention\": {\"rope_type\": \"default\"}}",
     "rope_parameters: found {", true},
};

/* What is told of a config.json: what is wrong with it, what mxtrain lacks for it, or our keys. */
static const char *told_of(const char *text, MxHfModel *model) {
    put_content("config.json", text, strlen(text));
    if (!mx_hf_read_config(&arena, in_folder("config.json"), model, &err)) return err.text.data;
    return *model->lacks ? model->lacks : mx_hf_yaml(&arena, model);
}

/* Of gemma4, whose layers that see all have heads of their own; two families of ours have it. */
START_TEST(layers_have_their_own) {
    bool says_layers = strstr(owns[_i].members, "num_hidden_layers") != NULL;
    const char *text = mx_arena_printf(
        &arena,
        "{\"model_type\": \"gemma4_text\", \"hidden_size\": 32, \"intermediate_size\": 64, %s%s}",
        says_layers ? "" : "\"num_hidden_layers\": 6, ", owns[_i].members);
    MxHfModel model;
    const char *told = told_of(text, &model);
    ck_assert_msg(strstr(told, owns[_i].says) != NULL, "\"%s\" is not in: %s", owns[_i].says, told);
    ck_assert(err.count || owns[_i].is_lack == (*model.lacks != 0));
}
END_TEST

/* What members mean that are missing, null or said in both spellings: what transformers 5.24's
 * AutoConfig makes of these. */
#define EXPERTS  "\"num_local_experts\": 4, "
#define DEEPSEEK "\"n_routed_experts\": 16, \"moe_intermediate_size\": 8, "
#define PLAIN    "\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 5000}"
#define LINEAR   "\"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 3}"

static const struct {
    const char *type, *members, *says;
} meant[] = {
    {"gpt_oss", EXPERTS "\"rope_scaling\": null", "rope_factor: 32\n"},
    {"gpt_oss", EXPERTS "\"rope_theta\": 5000", "original_max_position_embeddings: 4096\n"},
    {"gpt_oss", EXPERTS "\"rope_scaling\": {\"rope_type\": \"default\"}", "rope_type: default\n"},
    {"gpt_oss", EXPERTS "\"head_dim\": 8", "attention_bias: true\n"},
    {"gpt_oss", EXPERTS "\"attention_bias\": false", "attention_bias: false\n"},
    {"gpt_oss", EXPERTS "\"head_dim\": 8", "normalization_layer_epsilon: 1e-05\n"},
    {"gpt_oss", "\"num_local_experts\": null", "num_local_experts: found nothing, wanted"},
    {"mixtral", EXPERTS "\"head_dim\": 8", "attention_type: global\n"},
    {"mixtral", EXPERTS "\"head_dim\": 8", "normalization_layer_epsilon: 1e-05\n"},
    {"llama4_text", EXPERTS "\"head_dim\": 8", "normalization_layer_epsilon: 1e-05\n"},
    {"olmo3", "\"sliding_window\": 8", "normalization_layer_epsilon: 1e-05\n"},
    {"qwen3", "\"sliding_window\": 8", "normalization_layer_epsilon: 1e-06\n"},
    {"deepseek_v3", DEEPSEEK "\"kv_lora_rank\": 8", "n_routing_groups: 8\n"},
    {"deepseek_v3", DEEPSEEK "\"kv_lora_rank\": 8", "topk_routing_group: 4\n"},
    {"deepseek_v3", DEEPSEEK "\"rope_interleave\": false", "rope_type: default\n"},
    {"deepseek_v3", DEEPSEEK "\"rope_interleave\": null", "rope_type: default\n"},
    {"deepseek_v3", DEEPSEEK "\"kv_lora_rank\": 8", "rope_type: llama3.1\n"},
    {"deepseek_v2", DEEPSEEK "\"num_experts_per_tok\": 2, \"rope_interleave\": null",
     "rope_type: llama3.1\n"},
    {"deepseek_v3", DEEPSEEK "\"norm_topk_prob\": null", "norm_topk_prob: found null"},
    {"deepseek_v4", DEEPSEEK "\"compress_rates\": {\"heavily_compressed_attention\": 9}",
     "compress_ratios: [9, 9, 9, 4, 9, 4]\n"},
    {"gemma4_text", "\"hidden_size_per_layer_input\": 0, \"per_layer_config\": null",
     "global_head_dim: 256\n"},
    {"qwen3", LINEAR ", \"rope_theta\": 77, " PLAIN, "rope_linear_scaling_factor: 3.0\n"},
    {"qwen3", LINEAR ", \"rope_theta\": 77, " PLAIN, "rope_max_timescale: 77\n"},
    {"qwen3", "\"rope_scaling\": {}, \"rope_theta\": 77, " PLAIN, "rope_max_timescale: 5000\n"},
    {"olmo3", LINEAR ", \"rope_parameters\": {\"full_attention\": {\"rope_theta\": 5000}}",
     "rope_linear_scaling_factor: 3.0\n"},
    {"olmo3", LINEAR ", \"rope_parameters\": {\"full_attention\": {\"rope_theta\": 5000}}",
     "rope_max_timescale: 5000\n"},
    {"gemma3_text", PLAIN, "rope_max_timescale: 1000000\n"},
    {"qwen3", "\"rope_scaling\": {\"rope_type\": \"linear\"}", "factor: found nothing, wanted"},
    {"qwen3",
     "\"max_position_embeddings\": 96, \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": "
     "null, "
     "\"original_max_position_embeddings\": 32}",
     "rope_factor: 3\n"},
};

START_TEST(members_mean_what_theirs_do) {
    const char *text = mx_arena_printf(
        &arena,
        "{\"model_type\": \"%s\", \"hidden_size\": 32, \"num_attention_heads\": 4, "
        "\"intermediate_size\": 64, \"num_hidden_layers\": 6, \"vocab_size\": 160, %s}",
        meant[_i].type, meant[_i].members);
    MxHfModel model;
    const char *told = told_of(text, &model);
    ck_assert_msg(strstr(told, meant[_i].says) != NULL, "\"%s\" is not in: %s", meant[_i].says,
                  told);
}
END_TEST

/* The same of models with a text model in them: whether embeddings are tied the outer one says,
 * unless its text model has its own output (llama4); norms of encoders have an epsilon of theirs.
 */
static const struct {
    const char *type, *outer, *vision, *text, *says;
    bool sees;
} inner[] = {
    {"qwen3_vl", "\"tie_word_embeddings\": true, ", "qwen3_vl", "\"tie_word_embeddings\": false",
     "logits_via_embedding: true\n", true},
    {"qwen3_vl", "\"tie_word_embeddings\": false, ", "qwen3_vl", "\"tie_word_embeddings\": true",
     "logits_via_embedding: false\n", true},
    {"qwen3_vl", "", "qwen3_vl", "\"tie_word_embeddings\": true", "logits_via_embedding: true\n",
     true},
    {"llama4", "\"tie_word_embeddings\": false, ", "llama4_vision_model",
     EXPERTS "\"tie_word_embeddings\": true", "logits_via_embedding: true\n", true},
    {"qwen3_vl_moe", "", "qwen3_vl_moe", EXPERTS "\"moe_intermediate_size\": 8",
     "base_moe_mlp_dim: 8\n", true},
    {"qwen3_vl_moe", "", "qwen3_vl_moe",
     EXPERTS "\"moe_intermediate_size\": 8, \"norm_topk_prob\": false", "norm_topk_prob: found",
     true},
    {"qwen3_vl", "", "qwen3_vl", "\"rms_norm_eps\": 1e-05", "epsilon: 1e-05\n", true},
    {"gemma3", "", "siglip_vision_model", "\"rms_norm_eps\": 1e-05", "epsilon: 1e-05\n", true},
    {"gemma3", "",
     "siglip_vision_model\", \"layer_norm_eps\": 1e-5, \"hidden_act\": \"gelu_pytorch_tanh",
     "\"rms_norm_eps\": 1e-05", "epsilon: 1e-05\n", true},
    {"llama4", "", "llama4_vision_model", EXPERTS "\"rms_norm_eps\": 1e-06", "epsilon: 1e-06\n",
     true},
};

START_TEST(inner_members_mean_what_theirs_do) {
    const char *text = mx_arena_printf(
        &arena,
        "{\"model_type\": \"%s\", %s\"vision_config\": {\"model_type\": \"%s\"}, \"text_config\": "
        "{\"hidden_size\": 32, \"num_attention_heads\": 4, \"intermediate_size\": 64, "
        "\"num_hidden_layers\": 6, \"vocab_size\": 160, %s}}",
        inner[_i].type, inner[_i].outer, inner[_i].vision, inner[_i].text);
    MxHfModel model;
    put_content("config.json", text, strlen(text));
    ck_ok(mx_hf_read_config(&arena, in_folder("config.json"), &model, &err));
    const char *told = *model.lacks ? model.lacks : mx_hf_yaml(&arena, &model);
    ck_assert_msg(strstr(told, inner[_i].says) != NULL, "\"%s\" is not in: %s", inner[_i].says,
                  told);
    ck_assert_int_eq(model.encoder != NULL, inner[_i].sees);
}
END_TEST

/* Of published models, without what changes nothing: the same as our presets of them, but for what
 * presets have of MaxText: experts of all groups, and windows that are rotated by yarn. */
static const struct {
    const char *preset, *config;
    const char *differs; /* NULL = in nothing */
} published[] = {
    // clang-format off
    {"deepseek2-16b",
     "{\"model_type\": \"deepseek_v2\", \"first_k_dense_replace\": 1, \"hidden_act\": \"silu\", \"hidden_size\": 2048, \"intermediate_size\": 10944, \"kv_lora_rank\": 512, \"max_position_embeddings\": 163840, \"moe_intermediate_size\": 1408, \"n_group\": 1, \"n_routed_experts\": 64, \"n_shared_experts\": 2, \"norm_topk_prob\": false, \"num_attention_heads\": 16, \"num_experts_per_tok\": 6, \"num_hidden_layers\": 27, \"num_key_value_heads\": 16, \"q_lora_rank\": null, \"qk_nope_head_dim\": 128, \"qk_rope_head_dim\": 64, \"rms_norm_eps\": 1e-06, \"rope_scaling\": {\"beta_fast\": 32, \"beta_slow\": 1, \"factor\": 40, \"mscale\": 0.707, \"mscale_all_dim\": 0.707, \"original_max_position_embeddings\": 4096, \"type\": \"yarn\"}, \"rope_theta\": 10000, \"routed_scaling_factor\": 1.0, \"scoring_func\": \"softmax\", \"tie_word_embeddings\": false, \"topk_group\": 1, \"topk_method\": \"greedy\", \"v_head_dim\": 128, \"vocab_size\": 102400}", NULL},
    {"deepseek3-671b",
     "{\"model_type\": \"deepseek_v3\", \"first_k_dense_replace\": 3, \"hidden_act\": \"silu\", \"hidden_size\": 7168, \"intermediate_size\": 18432, \"kv_lora_rank\": 512, \"max_position_embeddings\": 163840, \"moe_intermediate_size\": 2048, \"n_group\": 8, \"n_routed_experts\": 256, \"n_shared_experts\": 1, \"norm_topk_prob\": true, \"num_attention_heads\": 128, \"num_experts_per_tok\": 8, \"num_hidden_layers\": 61, \"num_key_value_heads\": 128, \"num_nextn_predict_layers\": 1, \"q_lora_rank\": 1536, \"qk_nope_head_dim\": 128, \"qk_rope_head_dim\": 64, \"rms_norm_eps\": 1e-06, \"rope_scaling\": {\"beta_fast\": 32, \"beta_slow\": 1, \"factor\": 40, \"mscale\": 1.0, \"mscale_all_dim\": 1.0, \"original_max_position_embeddings\": 4096, \"type\": \"yarn\"}, \"rope_theta\": 10000, \"routed_scaling_factor\": 2.5, \"scoring_func\": \"sigmoid\", \"tie_word_embeddings\": false, \"topk_group\": 4, \"topk_method\": \"noaux_tc\", \"v_head_dim\": 128, \"vocab_size\": 129280}",
     "n_group: found 8, the run has -1"},
    {"llama4-17b-16e",
     "{\"model_type\": \"llama4\", \"text_config\": {\"model_type\": \"llama4_text\", \"attention_bias\": false, \"attention_chunk_size\": 8192, \"head_dim\": 128, \"hidden_act\": \"silu\", \"hidden_size\": 5120, \"interleave_moe_layer_step\": 1, \"intermediate_size\": 8192, \"intermediate_size_mlp\": 16384, \"max_position_embeddings\": 10485760, \"no_rope_layers\": [], \"num_attention_heads\": 40, \"num_experts_per_tok\": 1, \"num_hidden_layers\": 48, \"num_key_value_heads\": 8, \"num_local_experts\": 16, \"rms_norm_eps\": 1e-05, \"rope_scaling\": {\"factor\": 16.0, \"high_freq_factor\": 1.0, \"low_freq_factor\": 1.0, \"original_max_position_embeddings\": 8192, \"rope_type\": \"llama3\"}, \"rope_theta\": 500000.0, \"use_qk_norm\": true, \"vocab_size\": 202048}}", NULL},
    {"llama4-17b-128e",
     "{\"model_type\": \"llama4\", \"text_config\": {\"model_type\": \"llama4_text\", \"attention_bias\": false, \"attention_chunk_size\": 8192, \"head_dim\": 128, \"hidden_act\": \"silu\", \"hidden_size\": 5120, \"interleave_moe_layer_step\": 2, \"intermediate_size\": 8192, \"intermediate_size_mlp\": 16384, \"max_position_embeddings\": 1048576, \"no_rope_layers\": [], \"num_attention_heads\": 40, \"num_experts_per_tok\": 1, \"num_hidden_layers\": 48, \"num_key_value_heads\": 8, \"num_local_experts\": 128, \"rms_norm_eps\": 1e-05, \"rope_scaling\": null, \"rope_theta\": 500000.0, \"use_qk_norm\": false, \"vocab_size\": 202048}}", NULL},
    {"qwen3-next-80b-a3b",
     "{\"model_type\": \"qwen3_next\", \"attention_bias\": false, \"decoder_sparse_step\": 1, \"full_attention_interval\": 4, \"head_dim\": 256, \"hidden_act\": \"silu\", \"hidden_size\": 2048, \"intermediate_size\": 5120, \"linear_conv_kernel_dim\": 4, \"linear_key_head_dim\": 128, \"linear_num_key_heads\": 16, \"linear_num_value_heads\": 32, \"linear_value_head_dim\": 128, \"max_position_embeddings\": 262144, \"mlp_only_layers\": [], \"moe_intermediate_size\": 512, \"norm_topk_prob\": true, \"num_attention_heads\": 16, \"num_experts\": 512, \"num_experts_per_tok\": 10, \"num_hidden_layers\": 48, \"num_key_value_heads\": 2, \"partial_rotary_factor\": 0.25, \"rms_norm_eps\": 1e-06, \"rope_scaling\": null, \"rope_theta\": 10000000, \"shared_expert_intermediate_size\": 512, \"tie_word_embeddings\": false, \"vocab_size\": 151936}", NULL},
    {"gemma4-26b",
     "{\"model_type\": \"gemma4\", \"text_config\": {\"attention_bias\": false, \"attention_k_eq_v\": true, \"enable_moe_block\": true, \"moe_intermediate_size\": 704, \"final_logit_softcapping\": 30.0, \"global_head_dim\": 512, \"head_dim\": 256, \"hidden_activation\": \"gelu_pytorch_tanh\", \"hidden_size\": 2816, \"hidden_size_per_layer_input\": 0, \"intermediate_size\": 2112, \"max_position_embeddings\": 262144, \"model_type\": \"gemma4_text\", \"num_attention_heads\": 16, \"num_experts\": 128, \"num_global_key_value_heads\": 2, \"num_hidden_layers\": 30, \"num_key_value_heads\": 8, \"num_kv_shared_layers\": 0, \"rms_norm_eps\": 1e-06, \"rope_parameters\": {\"full_attention\": {\"partial_rotary_factor\": 0.25, \"rope_theta\": 1000000.0, \"rope_type\": \"proportional\"}, \"sliding_attention\": {\"rope_theta\": 10000.0, \"rope_type\": \"default\"}}, \"sliding_window\": 1024, \"tie_word_embeddings\": true, \"top_k_experts\": 8, \"use_bidirectional_attention\": \"vision\", \"use_double_wide_mlp\": false, \"vocab_size\": 262144, \"vocab_size_per_layer_input\": 262144}}", NULL},
    {"gemma4-31b",
     "{\"model_type\": \"gemma4\", \"text_config\": {\"attention_bias\": false, \"attention_k_eq_v\": true, \"enable_moe_block\": false, \"moe_intermediate_size\": 704, \"final_logit_softcapping\": 30.0, \"global_head_dim\": 512, \"head_dim\": 256, \"hidden_activation\": \"gelu_pytorch_tanh\", \"hidden_size\": 5376, \"hidden_size_per_layer_input\": 0, \"intermediate_size\": 21504, \"max_position_embeddings\": 262144, \"model_type\": \"gemma4_text\", \"num_attention_heads\": 32, \"num_experts\": null, \"num_global_key_value_heads\": 4, \"num_hidden_layers\": 60, \"num_key_value_heads\": 16, \"num_kv_shared_layers\": 0, \"rms_norm_eps\": 1e-06, \"rope_parameters\": {\"full_attention\": {\"partial_rotary_factor\": 0.25, \"rope_theta\": 1000000.0, \"rope_type\": \"proportional\"}, \"sliding_attention\": {\"rope_theta\": 10000.0, \"rope_type\": \"default\"}}, \"sliding_window\": 1024, \"tie_word_embeddings\": true, \"top_k_experts\": null, \"use_bidirectional_attention\": \"vision\", \"use_double_wide_mlp\": false, \"vocab_size\": 262144, \"vocab_size_per_layer_input\": 262144}}", NULL},
    {"gemma4-e4b",
     "{\"model_type\": \"gemma4\", \"text_config\": {\"attention_bias\": false, \"attention_k_eq_v\": false, \"enable_moe_block\": false, \"final_logit_softcapping\": 30.0, \"global_head_dim\": 512, \"head_dim\": 256, \"hidden_activation\": \"gelu_pytorch_tanh\", \"hidden_size\": 2560, \"hidden_size_per_layer_input\": 256, \"intermediate_size\": 10240, \"max_position_embeddings\": 131072, \"model_type\": \"gemma4_text\", \"num_attention_heads\": 8, \"num_experts\": null, \"num_global_key_value_heads\": null, \"num_hidden_layers\": 42, \"num_key_value_heads\": 2, \"num_kv_shared_layers\": 18, \"rms_norm_eps\": 1e-06, \"rope_parameters\": {\"full_attention\": {\"partial_rotary_factor\": 0.25, \"rope_theta\": 1000000.0, \"rope_type\": \"proportional\"}, \"sliding_attention\": {\"rope_theta\": 10000.0, \"rope_type\": \"default\"}}, \"sliding_window\": 512, \"tie_word_embeddings\": true, \"top_k_experts\": null, \"use_bidirectional_attention\": null, \"use_double_wide_mlp\": false, \"vocab_size\": 262144, \"vocab_size_per_layer_input\": 262144}}", NULL},
    {"qwen3.5-35b-a3b",
     "{\"model_type\": \"qwen3_5_moe\", \"text_config\": {\"model_type\": \"qwen3_5_moe_text\", \"head_dim\": 256, \"hidden_act\": \"silu\", \"hidden_size\": 2048, \"linear_conv_kernel_dim\": 4, \"linear_key_head_dim\": 128, \"linear_num_key_heads\": 16, \"linear_num_value_heads\": 32, \"linear_value_head_dim\": 128, \"moe_intermediate_size\": 512, \"num_attention_heads\": 16, \"num_experts\": 256, \"num_experts_per_tok\": 8, \"num_hidden_layers\": 40, \"num_key_value_heads\": 2, \"rms_norm_eps\": 1e-06, \"rope_parameters\": {\"mrope_interleaved\": true, \"mrope_section\": [11, 11, 10], \"rope_theta\": 10000000, \"rope_type\": \"default\", \"partial_rotary_factor\": 0.25}, \"shared_expert_intermediate_size\": 512, \"tie_word_embeddings\": false, \"vocab_size\": 248320, \"max_position_embeddings\": 262144, \"full_attention_interval\": 4}}", NULL},
    {"qwen3-omni-30b-a3b",
     "{\"model_type\": \"qwen3_omni_moe\", \"dtype\": \"bfloat16\", \"thinker_config\": {\"model_type\": \"qwen3_omni_moe_thinker\", \"audio_config\": {}, \"text_config\": {\"model_type\": \"qwen3_omni_moe_text\", \"attention_bias\": false, \"decoder_sparse_step\": 1, \"head_dim\": 128, \"hidden_act\": \"silu\", \"hidden_size\": 2048, \"intermediate_size\": 768, \"max_position_embeddings\": 65536, \"mlp_only_layers\": [], \"moe_intermediate_size\": 768, \"norm_topk_prob\": true, \"num_attention_heads\": 32, \"num_experts\": 128, \"num_experts_per_tok\": 8, \"num_hidden_layers\": 48, \"num_key_value_heads\": 4, \"rms_norm_eps\": 1e-06, \"rope_scaling\": {\"interleaved\": true, \"mrope_interleaved\": true, \"mrope_section\": [24, 20, 20], \"rope_type\": \"default\", \"type\": \"default\"}, \"rope_theta\": 1000000, \"router_aux_loss_coef\": 0.001, \"sliding_window\": null, \"tie_word_embeddings\": false, \"vocab_size\": 152064}, \"vision_config\": {\"model_type\": \"qwen3_omni_moe_vision_encoder\"}}, \"talker_config\": {}, \"code2wav_config\": {}}", NULL},
    {"gpt-oss-20b",
     "{\"model_type\": \"gpt_oss\", \"attention_bias\": true, \"head_dim\": 64, \"hidden_act\": \"silu\", \"hidden_size\": 2880, \"initial_context_length\": 4096, \"intermediate_size\": 2880, \"max_position_embeddings\": 131072, \"num_attention_heads\": 64, \"num_experts_per_tok\": 4, \"num_hidden_layers\": 24, \"num_key_value_heads\": 8, \"num_local_experts\": 32, \"rms_norm_eps\": 1e-05, \"rope_scaling\": {\"beta_fast\": 32.0, \"beta_slow\": 1.0, \"factor\": 32.0, \"original_max_position_embeddings\": 4096, \"rope_type\": \"yarn\", \"truncate\": false}, \"rope_theta\": 150000, \"sliding_window\": 128, \"swiglu_limit\": 7.0, \"tie_word_embeddings\": false, \"vocab_size\": 201088}", NULL},
    {"olmo3-7b",
     "{\"model_type\": \"olmo3\", \"attention_bias\": false, \"hidden_act\": \"silu\", \"hidden_size\": 4096, \"intermediate_size\": 11008, \"max_position_embeddings\": 65536, \"num_attention_heads\": 32, \"num_hidden_layers\": 32, \"num_key_value_heads\": 32, \"rms_norm_eps\": 1e-06, \"rope_scaling\": {\"attention_factor\": 1.2079441541679836, \"beta_fast\": 32.0, \"beta_slow\": 1.0, \"factor\": 8.0, \"original_max_position_embeddings\": 8192, \"rope_type\": \"yarn\"}, \"rope_theta\": 500000, \"sliding_window\": 4096, \"tie_word_embeddings\": false, \"vocab_size\": 100278}",
     "rope_local_base_freq: found 500000, the run has 0"},
    // clang-format on
};

START_TEST(published_models_are_our_presets) {
    const char *file = "configs/base.yml", *config = published[_i].config;
    const char *preset = mx_arena_printf(&arena, "model_name=%s", published[_i].preset);
    MxConfigRequest request = {
        .files = &file, .n_files = 1, .overrides = &preset, .n_overrides = 1};
    MxConfig *c;
    MxHfModel model;
    put_content("config.json", config, strlen(config));
    ck_ok(mx_hf_read_config(&arena, in_folder("config.json"), &model, &err));
    ck_assert_str_eq(model.lacks, "");
    ck_ok(mx_config_load(&arena, &request, &c, &err));
    MxHfModel ours = mx_hf_of_config(c, model.heads);
    ck_assert_str_eq(mx_hf_other_shapes(&arena, &model, &ours), "");
    const char *differs = published[_i].differs;
    bool agrees = mx_hf_agree(&model, &ours, (MxWhere){.file = "config.json"}, &err);
    ck_assert_msg(agrees == !differs, "%s", err.text.data);
    ck_assert(!differs || strstr(err.text.data, differs));
}
END_TEST

/* ---- tensors that are larger than what is held of them */

static const char *const wholes[] = {"llama", "qwen2", "gemma2", "qwen3_5_tiny", "gemma4_experts"};

/* The same bytes, whether tensors are read and made whole or a few elements at a time. */
START_TEST(pieces_make_the_same) {
    const char *from = goldens_need(&arena, mx_path_join(&arena, "hf/models", wholes[_i]));
    ck_tool(0, "mxconvert %s {}/whole.h5 --scan-layers false", from);
    ck_tool(0, "mxconvert %s {}/w --to-hf", from);
    setenv("MX_PIECE_BYTES", "150", 1);
    ck_tool(0, "mxconvert %s {}/pieces.h5 --scan-layers false", from);
    ck_same_bytes("whole.h5", "pieces.h5");
    ck_tool(0, "mxconvert {}/w {}/p --to-hf");
    ck_says("and verified it");
    ck_same_bytes("w/model.safetensors", "p/model.safetensors");
    unsetenv("MX_PIECE_BYTES");
}
END_TEST

/* ---- of runs */

static MxJson *json_at(const char *path) {
    MxBytes bytes;
    ck_ok(mx_file_read(&arena, path, 1 << 20, &bytes, &err));
    return mx_json_parse(&arena, (const char *)bytes.data, bytes.size, path, &err);
}

/* A folder, keys of a run that begins with it, and the member that its config.json then has. */
static const struct {
    const char *model, *keys, *member;
    int64_t value;
} runs[] = {
    {"mistral", "max_target_length=16", NULL, 0},
    {"mistral", "max_target_length=16 sliding_window_size=9", "sliding_window", 9},
    {"mistral", "max_target_length=256", "max_position_embeddings", 256},
    {"deepseek_v32_tiny", "max_target_length=16", "num_nextn_predict_layers", 0},
};

static void export_run(const char *name, const char *from, const char *keys) {
    ck_tool(0,
            "mxtrain model=%s run_name=%s dataset_type=synthetic steps=1 eval_interval=-1 "
            "per_device_batch_size=1 log_config=false base_output_directory={} %s",
            from, name, keys);
    ck_tool(0, "mxconvert {}/%s {}/%s_hf --to-hf", name, name);
}

static void has_config_of(const char *result, const char *from, const char *member, int64_t value) {
    MxJson *theirs = json_at(mx_path_join(&arena, from, "config.json")),
           *ours = json_at(in_folder(mx_path_join(&arena, result, "config.json")));
    if (member) mx_json_set_int(theirs, member, value);
    ck_assert_str_eq(mx_json_dump(&arena, ours, false), mx_json_dump(&arena, theirs, false));
}

/* Of the folder that it began with nothing is lost, and the numbers are those of the run; so of a
 * run that begins with that run. */
START_TEST(runs_keep_config_json) {
    const char *model = mx_path_join(&arena, "hf/models", runs[_i].model),
               *from = goldens_need(&arena, model), *member = runs[_i].member;
    export_run("one", from, runs[_i].keys);
    ck_says(mx_arena_printf(&arena, "config.json: that of \"%s\"%s%s\n", from,
                            member ? ", with other numbers of the run: " : "",
                            member ? member : ""));
    has_config_of("one_hf", from, member, runs[_i].value);
    const char *second =
        mx_arena_printf(&arena, "%s load_parameters_path=%s", runs[_i].keys, in_folder("one"));
    export_run("two", from, second);
    has_config_of("two_hf", from, member, runs[_i].value);
}
END_TEST

/* Rotation is spelled in another way there. */
START_TEST(config_json_is_made_where_it_must_be) {
    put_hf_model("mistral", "config.json", NULL, NULL);
    export_run("turned", in_folder("x"), "max_target_length=16 rope_max_timescale=500");
    ck_says(mx_arena_printf(&arena,
                            "config.json: made from the config of the run; \"%s\", which it began "
                            "with, is of another model: rope_theta\n",
                            in_folder("x")));
    double theta, length;
    MxJson *made = json_at(in_folder("turned_hf/config.json"));
    ck_assert(mx_json_number(mx_json_get(made, "rope_theta"), &theta) && theta == 500);
    ck_assert(mx_json_number(mx_json_get(made, "max_position_embeddings"), &length));
    ck_assert_double_eq(length, 128);
    ck_assert(!rename(in_folder("x"), in_folder("y")));
    ck_tool(0, "mxconvert {}/turned {}/again --to-hf");
    ck_says("which it began with, cannot be found; --config names its config.json\n");
}
END_TEST

Suite *hf_config_suite(void) {
    Suite *suite = suite_create("ckpt/config.json");
    TCase *tcase = add_case(suite, "models");
    tcase_add_test(tcase, members_that_are_missing);
    tcase_add_loop_test(tcase, windows_are_found, 0, MX_COUNT(windows));
    tcase_add_loop_test(tcase, pieces_make_the_same, 0, MX_COUNT(wholes));
    tcase_add_loop_test(tcase, runs_keep_config_json, 0, MX_COUNT(runs));
    tcase_add_test(tcase, config_json_is_made_where_it_must_be);
    tcase_add_loop_test(tcase, layers_have_their_own, 0, MX_COUNT(owns));
    tcase_add_loop_test(tcase, members_mean_what_theirs_do, 0, MX_COUNT(meant));
    tcase_add_loop_test(tcase, inner_members_mean_what_theirs_do, 0, MX_COUNT(inner));
    tcase_add_loop_test(tcase, published_models_are_our_presets, 0, MX_COUNT(published));
    return suite;
}
