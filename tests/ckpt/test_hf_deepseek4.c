/* test_hf_deepseek4.c — deepseek_v4 of Hugging Face: names of its tensors, tables of whole numbers,
 * a norm's scale that goes into a matrix, and its config.json. */
#include "tools.h"

#include <mx/config.h>

static const char *tiny_model(void) {
    return goldens_need(&arena, "hf/models/deepseek_v4_tiny");
}

/* Transformers saves deepseek_v4 under other names than those it was published with, which are the
 * ones that go back. Either is read. */
START_TEST(names_as_published) {
    static const struct {
        const char *name;
        MxDtype dtype;
    } tensors[] = {{"embed.weight", MX_BF16},
                   {"hc_head_fn", MX_BF16},
                   {"layers.0.hc_attn_scale", MX_BF16},
                   {"layers.1.ffn.gate.tid2eid", MX_I64},
                   {"layers.2.attn.compressor.ape", MX_BF16},
                   {"layers.3.ffn.gate.bias", MX_BF16}};
    MxTensors *theirs, *saved;
    const char *from = tiny_model();
    ck_tool(0, "mxconvert %s {}/ours", from);
    ck_tool(0, "mxconvert {}/ours {}/theirs --to-hf");
    ck_ok(mx_tensors_open(&arena, in_folder("theirs/model.safetensors"), &theirs, &err));
    ck_ok(mx_tensors_open(&arena, mx_path_join(&arena, from, "model.safetensors"), &saved, &err));
    ck_assert_int_eq(mx_tensors_count(theirs), mx_tensors_count(saved));
    for (int i = 0; i < MX_COUNT(tensors); i++) {
        const MxTensor *found = mx_tensors_find(theirs, tensors[i].name);
        ck_assert_msg(found && found->dtype == tensors[i].dtype, "%s", tensors[i].name);
    }
    ck_tool(0, "mxcompare {}/theirs %s", from);
    ck_says("EQUAL");
}
END_TEST

static const float *array_of(MxH5 *file, const char *path, int64_t *n) {
    MxH5Array array;
    ck_ok(mx_h5_stat(file, path, &array, &err));
    *n = mx_shape_count(array.shape);
    float *values = mx_new_n(&arena, float, *n);
    ck_ok(mx_h5_read(file, path, MX_F32, array.shape, values, &err));
    return values;
}

/* What a run has learnt in the scale of a norm that they lack is in the matrix behind it. */
START_TEST(scales_go_into_matrices) {
    enum { STREAMS = 3, REST = 2 * STREAMS };
    MxH5 *file;
    MxTensors *theirs;
    int64_t n, n_alpha;
    const char *from = tiny_model();
    ck_tool(0, "mxconvert %s {}/c", from);
    ck_tool(0,
            "mxtrain --config {}/c/model.yml load_parameters_path=%s dataset_type=synthetic "
            "max_target_length=16 steps=2 learning_rate=0.1 eval_interval=-1 run_name=x "
            "base_output_directory={}",
            from);
    ck_tool(0, "mxconvert {}/x {}/x.h5 --layout nnx --scan-layers false");
    ck_tool(0, "mxconvert {}/x {}/hf --to-hf");
    ck_ok(mx_h5_open(&arena, in_folder("x.h5"), &file, &err));
    ck_ok(mx_tensors_open(&arena, in_folder("hf/model.safetensors"), &theirs, &err));
    const char block[] = "model/decoder/layers_1/mhc_mlp/";
    const float *scale = array_of(file, mx_arena_printf(&arena, "%smhc_norm/scale", block), &n);
    const float *alpha = array_of(file, mx_arena_printf(&arena, "%sres_alpha", block), &n_alpha);
    ck_assert_int_eq(n_alpha, n * STREAMS * STREAMS);
    const MxTensor *tensor = mx_tensors_find(theirs, "layers.1.hc_ffn_fn");
    float *got = mx_new_n(&arena, float, n *(REST + STREAMS * STREAMS));
    ck_ok(mx_tensors_read(theirs, tensor, got, &err));
    ck_assert(scale[0] != 1);
    for (int64_t i = 0; i < n_alpha; i++) {
        int64_t row = i / (STREAMS * STREAMS), column = REST + i % (STREAMS * STREAMS);
        ck_assert(got[column * n + row] == scale[row] * alpha[i]);
    }
}
END_TEST

/* DeepSeek-V4-Flash's, as published but for its eight bits. */
START_TEST(published_members) {
    static const char text[] =
        "{\"model_type\": \"deepseek_v4\", \"architectures\": [\"DeepseekV4ForCausalLM\"],"
        " \"torch_dtype\": \"bfloat16\", \"hidden_size\": 4096, \"moe_intermediate_size\": 2048,"
        " \"n_routed_experts\": 256, \"num_hidden_layers\": 5, \"num_hash_layers\": 3,"
        " \"qk_rope_head_dim\": 64, \"num_nextn_predict_layers\": 1, \"topk_method\": \"noaux_tc\","
        " \"norm_topk_prob\": true, \"rope_scaling\": {\"beta_fast\": 32, \"beta_slow\": 1,"
        " \"factor\": 16, \"original_max_position_embeddings\": 65536, \"type\": \"yarn\"},"
        " \"max_position_embeddings\": 1048576, \"compress_ratios\": [0, 0, 4, 128, 4, 0]}";
    static const char *const lines[] = {"compress_ratios: [0, 0, 4, 128, 4]\n",
                                        "first_num_hash_layers: 3\n",
                                        "base_num_query_heads: 64\n",
                                        "head_dim: 512\n",
                                        "qk_rope_head_dim: 64\n",
                                        "indexer_topk: 512\n",
                                        "mhc_expansion_rate: 4\n",
                                        "num_experts_per_tok: 6\n",
                                        "mlp_activations_limit: 10.0\n",
                                        "routed_scaling_factor: 1.5\n",
                                        "compressed_rope_max_timescale: 160000\n",
                                        "rope_type: yarn\n",
                                        "rope_factor: 16\n"};
    MxHfModel model;
    put_content("config.json", text, sizeof text - 1);
    ck_ok(mx_hf_read_config(&arena, in_folder("config.json"), &model, &err));
    ck_assert_str_eq(model.lacks, "");
    const char *yaml = mx_hf_yaml(&arena, &model);
    for (int i = 0; i < MX_COUNT(lines); i++)
        ck_assert_msg(strstr(yaml, lines[i]) != NULL, "no %s in %s", lines[i], yaml);
    ck_assert(!strstr(yaml, "scan_layers") && !strstr(yaml, "rope_attention_factor"));
}
END_TEST

static const struct {
    const char *word, *instead, *says;
} misfits[] = {
    {"\"hash_moe\",\n    \"hash_moe\",\n    \"moe\"", "\"hash_moe\", \"moe\", \"hash_moe\"",
     "mlp_layer_types: wanted hash_moe of the first layers, then moe"},
    {"\"sliding_attention\"", "\"full_attention\"", "layer_types: wanted one of a layer"},
    {"\"compressed_sparse_attention\": 4", "\"compressed_sparse_attention\": 8",
     "layer_types: wanted one of a layer"},
    {"\"num_key_value_heads\": 1", "\"num_key_value_heads\": 2", "num_key_value_heads: wanted 1"},
    {"\"scoring_func\": \"sqrtsoftplus\"", "\"scoring_func\": \"sigmoid\"",
     "scoring_func: found \"sigmoid\""},
    {"\"hc_eps\": 1e-06", "\"hc_eps\": 1e-05", "hc_eps: found "},
    {"\"attention_factor\": 1.0", "\"attention_factor\": 2.0", "attention_factor: found "},
};

/* What makes other parameters is an error, what makes other results is told. */
START_TEST(members_that_do_not_fit) {
    MxHfModel model;
    put_changed("config.json", mx_path_join(&arena, tiny_model(), "config.json"), misfits[_i].word,
                misfits[_i].instead);
    bool ok = mx_hf_read_config(&arena, in_folder("config.json"), &model, &err);
    const char *says = ok ? model.lacks : err.text.data;
    ck_assert_msg(strstr(says, misfits[_i].says) != NULL, "%s", says);
    mx_error_release(&err);
}
END_TEST

Suite *hf_deepseek4_suite(void) {
    Suite *suite = suite_create("ckpt/hugging face deepseek_v4");
    TCase *tcase = add_case(suite, "models");
    tcase_add_test(tcase, names_as_published);
    tcase_add_test(tcase, scales_go_into_matrices);
    tcase_add_test(tcase, published_members);
    tcase_add_loop_test(tcase, members_that_do_not_fit, 0, MX_COUNT(misfits));
    return suite;
}
