/* test_hf.c — models of Hugging Face as a black box: trees against MaxText's own conversions, the
 * way back against the folders they came from, and what is refused. */
#include "tools.h"

#include <mx/family.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* A folder of Hugging Face's that only the larger folder has; NULL = it is not here. */
static const char *hf_model_if_here(const char *name) {
    return goldens_find(&arena, mx_path_join(&arena, "hf/models", name));
}

static const char *maxtext(const char *name) {
    return goldens_need(&arena, mx_arena_printf(&arena, "hf/maxtext/%s.h5", name));
}

/* ---- trees */

static const struct {
    const char *model, *scan, *golden;
    const char *array; /* one that the file has so, NULL = llama's output projection */
} trees[] = {
    // clang-format off
    {"llama", "true", "llama_scanned", NULL},         {"llama", "false", "llama_unscanned", NULL},
    {"llama_sharded", "true", "llama_scanned", NULL}, {"llama_rope3", "true", "llama_rope3_scanned", NULL},
    {"qwen2", "true", "qwen2_scanned", NULL},         {"qwen3", "true", "qwen3_scanned", NULL},
    {"mixtral", "true", "mixtral_scanned", NULL},     {"qwen3_moe", "true", "qwen3_moe_scanned", NULL},
    {"gpt_oss", "true", "gpt_oss_scanned", "layers/layers_0/GptOssMlp/wi_1_bias"},
    {"gpt_oss", "false", "gpt_oss_unscanned", "layers_1/GptOssMlp/wi_1_bias"},
    {"olmo3", "true", "olmo3_scanned", "layers/layers_3/attention/query_norm/scale"},
    {"deepseek_v2", "true", "deepseek_v2_scanned", "dense_layers/self_attention/wkv_b/kernel"},
    {"deepseek_v3", "true", "deepseek_v3_scanned", "moe_layers/DeepSeekMoeBlock_0/MoeBlock_0/gate/bias"},
    // clang-format on
};

START_TEST(trees_are_maxtexts) {
    const char *scan = trees[_i].scan, *from = hf_model_if_here(trees[_i].model);
    const char *golden =
        goldens_find(&arena, mx_arena_printf(&arena, "hf/maxtext/%s.h5", trees[_i].golden));
    if (!from || !golden) return;
    ck_tool(0, "mxconvert %s {}/a.h5 --layout linen --scan-layers %s", from, scan);
    ck_tool(0, "mxcompare {}/a.h5 %s", golden);
    ck_says("EQUAL");
    MxH5 *file;
    ck_ok(mx_h5_open(&arena, in_folder("a.h5"), &file, &err));
    const char *array = trees[_i].array, *usual = "layers/self_attention/out/kernel";
    if (strcmp(scan, "true")) usual = "layers_1/self_attention/out/kernel";
    array = mx_arena_printf(&arena, "params/params/decoder/%s", array ? array : usual);
    ck_assert_msg(mx_h5_has_array(file, array), "no %s", array);
    ck_tool(0, "mxconvert %s {}/b.h5 --layout linen --scan-layers %s", from, scan);
    ck_same_bytes("a.h5", "b.h5");
}
END_TEST

/* Two layers of theirs are one of MaxText's; norms and embeddings have other values. MaxText scales
 * queries by head_dim, 16, but the model says query_pre_attn_scalar 24, so here that is done at run
 * time. */
START_TEST(layers_share_a_name) {
    ck_tool(0, "mxconvert %s {}/a", hf_model("gemma2"));
    ck_tool(1, "mxcompare {}/a %s", maxtext("gemma2_scanned"));
    ck_says("model/decoder/layers/self_attention_global/query/kernel: 2048 of 2048 elements");
    ck_says("model/decoder/layers/self_attention_local/query/kernel: 2048 of 2048 elements");
    ck_says("24 arrays in both, 0 only in A, 0 only in B");
    ck_says("2 arrays have other values");
    ck_tool(0, "mxconvert {}/a {}/hf --to-hf");
    ck_tool(0, "mxcompare {}/hf %s --atol 1e-7", hf_model("gemma2"));
    ck_says("EQUAL");
}
END_TEST

/* MaxText's converter makes heads of an output projection that its model has in one dim. */
START_TEST(but_for_one_shape) {
    const char *from = hf_model_if_here("qwen3_next");
    if (!from) return;
    ck_tool(0, "mxconvert %s {}/a", from);
    ck_tool(1, "mxcompare {}/a %s", maxtext("qwen3_next_scanned"));
    ck_says("attention/attention/out/kernel is [64, 1, 32] in A, [4, 1, 16, 32] in B");
    ck_says("70 arrays in both, 0 only in A, 0 only in B; 1 other shapes, 0 other dtypes");
    ck_says("0 arrays have other values");
}
END_TEST

/* What a run holds in one array are several tensors of theirs, in both directions. */
START_TEST(several_in_one) {
    static const char *const models[] = {"llama", "qwen2", "gemma2"};
    const char *model = hf_model(models[_i]);
    ck_tool(0, "mxconvert %s {}/c", model);
    ck_tool(0,
            "mxtrain --config {}/c/model.yml load_parameters_path=%s dataset_type=synthetic "
            "max_target_length=16 steps=1 learning_rate=0 eval_interval=-1 run_name=x "
            "base_output_directory={} fused_qkv=true fused_mlp=true",
            model);
    ck_tool(0, "mxconvert {}/x {}/hf --to-hf");
    ck_tool(0, "mxcompare {}/hf %s", model);
    ck_says("EQUAL");
    ck_tool(0, "mxcompare {}/x {}/hf");
    ck_says("arrays of state, which the other need not have, are only in one");
    ck_tool(0, "mxcompare {}/x {}/hf --params-only");
    ck_says("EQUAL");
}
END_TEST

/* Layers that take turns. MaxText multiplies embeddings with a root that it rounds to bfloat16. Of
 * a model that sees images too the text model is taken, and that is told. */
START_TEST(layers_take_turns) {
    ck_tool(0, "mxconvert %s {}/a", hf_model("gemma3_turns"));
    ck_tool(0, "mxconvert {}/a {}/hf --to-hf");
    ck_tool(0, "mxcompare {}/hf %s --atol 1e-7", hf_model("gemma3_turns"));
    ck_says("EQUAL");
    ck_tool(0, "mxconvert %s {}/b", hf_model("gemma3_text"));
    ck_tool(1, "mxcompare {}/b %s", maxtext("gemma3_text_scanned"));
    ck_says("model/token_embedder/embedding");
    ck_says("54 arrays in both, 0 only in A, 0 only in B");
    ck_says("1 arrays have other values");
    ck_tool(0, "mxconvert %s {}/c", hf_model("gemma3_images"));
    ck_says("only the text model is taken; left out: 34 tensors");
    ck_tool(0, "mxconvert {}/c {}/text --to-hf");
    ck_tool(0, "mxcompare {}/text %s --atol 1e-7", hf_model("gemma3_images"));
    ck_says("EQUAL");
}
END_TEST

/* ---- and back */

static const struct {
    const char *model;
    bool is_exact; /* queries are scaled by a power of two, or rounding to bfloat16 restores them */
} round_trips[] = {
    // clang-format off
    {"llama", false}, {"llama_sharded", false}, {"llama_rope3", true}, {"llama_bf16", true},
    {"mistral", false}, {"qwen2", true}, {"qwen3", true}, {"mixtral", false}, {"qwen3_moe", true},
    {"llama4_text", true}, {"gpt_oss", true}, {"deepseek_v2", true}, {"deepseek_v3", true},
    {"qwen3_next", true}, {"olmo3", true}, {"llama4_stretched", true}, {"gpt_oss_tiny", true},
    {"deepseek_v2_tiny", true}, {"deepseek_v3_halves", true}, {"deepseek_v32_tiny", true},
    {"qwen3_next_tiny", true},
    {"olmo3_tiny", true}, {"gemma4_tiny", true}, {"gemma4_experts", true}, {"gemma4_small", true},
    // clang-format on
};

/* Every tensor of a file is in another, bit by bit or, of queries, to the next float. */
static int check_tensors(const char *path, MxTensors *other, bool is_exact) {
    MxTensors *file;
    ck_ok(mx_tensors_open(&arena, path, &file, &err));
    for (int i = 0; i < mx_tensors_count(file); i++) {
        const MxTensor *a = mx_tensors_at(file, i), *b = mx_tensors_find(other, a->name);
        ck_assert_msg(b && a->dtype == b->dtype && mx_shape_equal(a->shape, b->shape), "%s",
                      a->name);
        int64_t n = mx_shape_count(a->shape);
        float *x = mx_new_n(&arena, float, n), *y = mx_new_n(&arena, float, n);
        ck_ok(mx_tensors_read(file, a, x, &err));
        ck_ok(mx_tensors_read(other, b, y, &err));
        int most = is_exact || !strstr(a->name, "q_proj") ? 0 : 1;
        for (int64_t k = 0; k < n; k++) {
            int32_t p, q;
            memcpy(&p, &x[k], sizeof p);
            memcpy(&q, &y[k], sizeof q);
            ck_assert_msg(abs(p - q) <= most, "%s: %a, wanted %a", a->name, (double)y[k],
                          (double)x[k]);
        }
    }
    return mx_tensors_count(file);
}

START_TEST(the_way_back) {
    const char *from = hf_model_if_here(round_trips[_i].model);
    if (!from) return;
    MxTensors *ours;
    char **names;
    int n, n_tensors = 0;
    ck_tool(0, "mxconvert %s {}/ours", from);
    ck_tool(0, "mxconvert {}/ours {}/theirs --to-hf");
    ck_says("and verified it");
    ck_ok(mx_tensors_open(&arena, in_folder("theirs/model.safetensors"), &ours, &err));
    ck_ok(mx_dir_list(&arena, from, &names, &n, &err));
    for (int i = 0; i < n; i++)
        if (mx_text_has_suffix(names[i], ".safetensors"))
            n_tensors +=
                check_tensors(mx_path_join(&arena, from, names[i]), ours, round_trips[_i].is_exact);
    ck_assert_int_eq(n_tensors, mx_tensors_count(ours));
    ck_tool(0, "mxcompare {}/ours {}/theirs");
    ck_says("EQUAL");
}
END_TEST

/* Transformers saves a tensor for each expert of qwen3_5_moe; what was published, and goes back,
 * has one for all of a layer. Either is read. */
START_TEST(experts_in_one_tensor) {
    MxTensors *theirs;
    const char *from = hf_model("qwen3_5_tiny"), *all = "model.layers.0.mlp.experts.gate_up_proj";
    ck_tool(0, "mxconvert %s {}/ours", from);
    ck_tool(0, "mxconvert {}/ours {}/theirs --to-hf");
    ck_ok(mx_tensors_open(&arena, in_folder("theirs/model.safetensors"), &theirs, &err));
    ck_assert(mx_tensors_find(theirs, all) != NULL);
    ck_tool(0, "mxcompare {}/theirs %s", from);
    ck_says("EQUAL");
    ck_tool(65, "mxconvert %s {}/x --scan-layers true", hf_model("gemma4_small"));
}
END_TEST

/* What mxconvert wrote vouches for itself, whoever reads it; others may add files, not change any.
 */
START_TEST(damage_is_found) {
    static const char *const files[] = {"model.safetensors", "config.json"};
    ck_tool(0, "mxconvert %s {}/a --to-hf", hf_model("llama"));
    put_content("a/tokenizer.json", "{}", 2);
    ck_tool(0, "mxconvert {}/a {}/b.h5");
    for (int i = 0; i < MX_COUNT(files); i++) {
        const char *name = mx_arena_printf(&arena, "a/%s", files[i]);
        MxBytes bytes = content(name);
        bytes.data[bytes.size / 2] ^= 1;
        put_content(name, bytes.data, bytes.size);
        ck_tool(65, "mxconvert {}/a {}/c.h5");
        ck_says(mx_arena_printf(&arena, "%s: is damaged", files[i]));
        ck_says("hint: if");
        ck_tool(65, "mxcompare {}/a %s", hf_model("llama"));
        bytes.data[bytes.size / 2] ^= 1;
        put_content(name, bytes.data, bytes.size);
    }
    MxBytes tensors = content("a/model.safetensors");
    put_content("a/model-00001-of-00001.safetensors", tensors.data, tensors.size);
    ck_tool(65, "mxconvert {}/a {}/c.h5");
    ck_says("model-00001-of-00001.safetensors: is not in the folder's MANIFEST.json");
}
END_TEST

START_TEST(shards) {
    ck_tool(0, "mxconvert %s {}/a --to-hf --shard-bytes 40000", hf_model("llama"));
    ck_says("in 4 files");
    ck_assert(mx_file_exists(in_folder("a/model-00004-of-00004.safetensors")));
    ck_assert(!mx_file_exists(in_folder("a/model.safetensors")));
    ck_tool(0, "mxcompare {}/a %s", hf_model("llama"));
    ck_says("EQUAL");
    ck_tool(0, "mxconvert %s {}/b --to-hf --shard-bytes 40000", hf_model("llama"));
    ck_same_bytes("a/model-00002-of-00004.safetensors", "b/model-00002-of-00004.safetensors");
    ck_same_bytes("a/model.safetensors.index.json", "b/model.safetensors.index.json");
}
END_TEST

/* A config of ours tells as much as theirs; what it makes of it is read again. */
START_TEST(from_a_config_of_ours) {
    ck_tool(0, "mxconvert %s {}/ours.h5 --scan-layers false", hf_model("mistral"));
    const char *text = mx_arena_printf(&arena, "%sdataset_type: synthetic\n",
                                       (const char *)content("ours.yml").data);
    put_content("run.yml", text, strlen(text));
    ck_tool(65, "mxconvert {}/ours.h5 {}/theirs --to-hf");
    ck_says("its model is not known; --config names the config of its run, or a config.json");
    ck_tool(0, "mxconvert {}/ours.h5 {}/theirs --to-hf --config {}/run.yml --dtype bfloat16");
    ck_tool(0, "mxconvert {}/theirs {}/again.h5");
    ck_same_bytes("again.yml", "ours.yml");
    ck_tool(0, "mxcompare {}/ours.h5 {}/again.h5 --rtol 0.01");
    ck_tool(73, "mxconvert {}/theirs {}/run.h5");
    ck_says("run.yml\" exists already; --force replaces it");
}
END_TEST

/* The same of every kind of members: config.json is made of the config that was made of it. */
static const char *const kinds[] = {
    // clang-format off
    "qwen3", "mixtral", "qwen3_moe", "llama4_text", "gpt_oss", "deepseek_v2", "deepseek_v3",
    "qwen3_next", "olmo3", "llama4_stretched", "gpt_oss_tiny", "deepseek_v2_tiny",
    "deepseek_v3_halves", "deepseek_v32_tiny", "qwen3_next_tiny", "olmo3_tiny", "qwen3_5_tiny",
    "gemma4_tiny", "gemma4_experts", "gemma4_small", "gemma4_odd", "deepseek_v4_tiny",
    // clang-format on
};

static void ck_tells_as_much(const char *from) {
    ck_tool(0, "mxconvert %s {}/ours.h5", from);
    const char *text = mx_arena_printf(&arena, "%sdataset_type: synthetic\n",
                                       (const char *)content("ours.yml").data);
    put_content("run.yml", text, strlen(text));
    ck_tool(0, "mxconvert {}/ours.h5 {}/theirs --to-hf --config {}/run.yml");
    ck_tool(0, "mxcompare {}/theirs %s", from);
    ck_says("EQUAL");
    ck_tool(0, "mxconvert {}/theirs {}/again.h5");
    ck_same_bytes("again.yml", "ours.yml");
}

START_TEST(configs_tell_as_much) {
    const char *from = hf_model_if_here(kinds[_i]);
    if (from) ck_tells_as_much(from);
}
END_TEST

/* Models of which another config.json is made, with what it says: where there is nothing about
 * rotations, transformers takes yarn of gpt_oss; of olmo3 the theta of windows stands in
 * rope_parameters alone; a class that wants a whole number refuses 24.0. */
static const struct {
    const char *model, *word, *instead, *says;
} others[] = {
    {"gpt_oss_tiny", "\"rope_type\": \"yarn\"", "\"rope_type\": \"default\"",
     "\"rope_scaling\": {\n  \"rope_type\": \"default\"\n }"},
    {"olmo3_tiny", "\"sliding_attention\": {\n      \"rope_theta\": 10000.0",
     "\"sliding_attention\": {\n      \"rope_theta\": 500.0",
     "\"sliding_attention\": {\n   \"rope_type\": \"default\",\n   \"rope_theta\": 500.0"},
    {"gemma2", NULL, "", "\"query_pre_attn_scalar\": 24,"},
    {"gemma3_turns", "\"query_pre_attn_scalar\": 20", "\"query_pre_attn_scalar\": 7",
     "\"query_pre_attn_scalar\": 7,"},
};

START_TEST(other_configs_tell_as_much) {
    if (!hf_model_if_here(others[_i].model)) return;
    put_hf_model(others[_i].model, "config.json", others[_i].word, others[_i].instead);
    ck_tells_as_much(in_folder("x"));
    const char *made = (const char *)content("theirs/config.json").data;
    ck_assert_msg(strstr(made, others[_i].says) != NULL, "no %s in %s", others[_i].says, made);
}
END_TEST

START_TEST(dry_runs_name_both_sides) {
    ck_tool(0, "mxconvert %s --dry-run", hf_model("qwen2"));
    ck_says("model.layers.0.self_attn.q_proj.bias [32] and 1 more -> "
            "model/decoder/layers/self_attention/query/bias [4, 2, 8]");
    ck_tool(0, "mxconvert %s --dry-run --to-hf", hf_model("qwen2"));
    ck_says("model/decoder/layers_1/mlp/wo/kernel [64, 32] -> model.layers.1.mlp.down_proj.weight "
            "[32, 64]");
}
END_TEST

/* ---- what does not fit */

/* Its config.json has the members of deepseek_v3's, its tensors the same names. */
START_TEST(kimi_is_read_as_deepseek) {
    const char *from = hf_model_if_here("deepseek_v3");
    if (!from) return;
    put_hf_model("deepseek_v3", "config.json", "\"model_type\": \"deepseek_v3\"",
                 "\"model_type\": \"kimi_k2\"");
    ck_tool(0, "mxconvert {}/x {}/a");
    ck_tool(0, "mxcompare {}/a %s", from);
    ck_says("EQUAL");
    ck_tool(0, "mxconvert {}/a {}/y --to-hf");
    ck_tool(0, "mxcompare {}/y {}/x");
    ck_says("EQUAL");
}
END_TEST

static const struct {
    const char *word, *instead, *says;
} misfits[] = {
    {"\"model_type\": \"llama\"", "\"model_type\": \"olmo2\"",
     "x/config.json: model_type: found \"olmo2\", not available yet: llama, mistral, "},
    {"\"mlp_bias\": false", "\"num_local_experts\": 4", "num_local_experts: not available here"},
    {"\"model_type\": \"llama\"", "\"sliding_window\": null, \"model_type\": \"mixtral\"",
     "num_local_experts: found nothing, wanted a whole number from 1 to"},
    {"\"model_type\": \"llama\"",
     "\"num_experts\": 4, \"num_experts_per_tok\": 5, \"moe_intermediate_size\": 8, "
     "\"decoder_sparse_step\": 2, \"mlp_only_layers\": [1], \"model_type\": \"qwen3_moe\"",
     "num_experts_per_tok: found 5, wanted a whole number from 1 to 4"},
    {"\"model_type\": \"llama\"",
     "\"num_experts\": 4, \"moe_intermediate_size\": 8, \"mlp_only_layers\": [1], "
     "\"model_type\": \"qwen3_moe\"",
     "mlp_only_layers: layers without experts are not available here"},
    {"\"model_type\": \"llama\"", "\"linear_num_value_heads\": 8, \"model_type\": \"qwen3_next\"",
     "linear_num_value_heads: wanted a multiple of linear_num_key_heads"},
    {"\"mlp_bias\": false", "\"mlp_bias\": true", "mlp_bias: not available here"},
    {"\"mlp_bias\": false", "\"quantization_config\": {\"quant_method\": \"hqq\"}",
     "quantization_config: not available yet: found quant_method hqq, wanted fp8, "},
    {"\"hidden_size\": 32", "\"hidden_size\": \"32\"",
     "hidden_size: found \"32\", wanted a whole number from 1 to"},
    {"\"vocab_size\": 160", "\"vocabulary\": 160", "vocab_size: found nothing, wanted a whole"},
    {"\"head_dim\": 8", "\"head_dim\": 7", "head_dim: found 7, wanted an even number"},
    {"\"rms_norm_eps\": 1e-06", "\"rms_norm_eps\": -1", "rms_norm_eps: found -1, wanted a number"},
    {"\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3",
     "x/model.safetensors: \"model.layers.2.input_layernorm.weight\" is missing; the model wants "
     "[32]"},
    {"\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1",
     "x/model.safetensors: \"model.layers.1.input_layernorm.weight\" [32] is not in the model"},
    {"\"intermediate_size\": 64", "\"intermediate_size\": 48",
     "\"model.layers.0.mlp.down_proj.weight\" has shape [32, 64]; the model wants [32, 48]"},
    {"\"attention_bias\": false", "\"attention_bias\": true",
     "\"model.layers.1.self_attn.o_proj.bias\" is missing; the model wants [32]"},
};

START_TEST(misfits_are_named) {
    put_hf_model("llama", "config.json", misfits[_i].word, misfits[_i].instead);
    ck_tool(65, "mxconvert {}/x {}/a.h5");
    ck_says(misfits[_i].says);
    ck_assert(!mx_file_exists(in_folder("a.h5")));
}
END_TEST

START_TEST(all_types_are_listed) {
    int n, n_listed = 0;
    const MxFamily *const *families = mx_families(&n);
    put_hf_model("llama", "config.json", misfits[0].word, misfits[0].instead);
    ck_tool(65, "mxconvert {}/x {}/a.h5");
    for (int i = 0; i < n; i++)
        for (int k = 0; k < MX_MOST_HF && families[i]->hf[k].model_type; k++, n_listed++)
            ck_says(families[i]->hf[k].model_type);
    ck_assert_int_ge(n_listed, 15);
    ck_says(" work now");
}
END_TEST

/* Members that change results alone: the weights are converted, and it is said that no config of
 * ours trains them. */
static const struct {
    const char *word, *instead, *says;
} lacks[] = {
    {"\"hidden_act\": \"silu\"", "\"hidden_act\": \"gelu\"", "hidden_act: found \"gelu\""},
    {"\"attention_dropout\": 0.0", "\"attention_dropout\": 0.1", "attention_dropout: found 0.1"},
    {"\"rope_type\": \"default\"", "\"rope_type\": \"yarn\", \"factor\": 4.0",
     "rope_parameters: found {"},
    {"\"rope_type\": \"default\"", "\"rope_type\": \"dynamic\", \"factor\": 2.0",
     "rope_parameters: found {"},
    {"\"rope_theta\": 10000.0", "\"rope_theta\": 10000.5", "rope_theta: found 10000.5"},
    {"\"rope_theta\": 10000.0", "\"partial_rotary_factor\": 0.5",
     "partial_rotary_factor: found 0.5"},
};

START_TEST(lacks_are_said) {
    put_hf_model("llama", "config.json", lacks[_i].word, lacks[_i].instead);
    ck_tool(0, "mxconvert {}/x {}/a.h5");
    ck_says("no model.yml, for this is not available in mxtrain: ");
    ck_says(lacks[_i].says);
    ck_assert(mx_file_exists(in_folder("a.h5")) && !mx_file_exists(in_folder("a.yml")));
    MxHfModel model;
    MxCkptRef from;
    ck_ok(mx_ckpt_find(&arena, in_folder("x"), NULL, &from, &err));
    ck_failed(mx_hf_load(&arena, &from, &(MxTree){0}, &model, &err), lacks[_i].says);
}
END_TEST

/* Heads that tied models do not read, and tables of old files, are not extra. */
START_TEST(idle_tensors_are_passed_over) {
    put_hf_model("llama", "config.json", "\"tie_word_embeddings\": false",
                 "\"tie_word_embeddings\": true");
    ck_tool(0, "mxconvert {}/x {}/a.h5");
    ck_says("11 arrays");
}
END_TEST

static const struct {
    const char *index, *says;
} indexes[] = {
    {"{}", "model.safetensors.index.json: no \"weight_map\""},
    {"{\"weight_map\": [\"a\"]}", "model.safetensors.index.json: no \"weight_map\""},
    {"{\"weight_map\": {\"a\": 7}}", "index.json: \"a\": wanted the name of a file beside it"},
    {"{\"weight_map\": {\"a\": \"../x\"}}", "index.json: \"a\": wanted the name of a file"},
    {"{\"weight_map\": {\"a\": \"none.safetensors\"}}", "could not open"},
    {"{\"weight_map\": {\"a\": \"s\"}}",
     "x/s: \"a\" is missing; model.safetensors.index.json says that it is there"},
};

START_TEST(indexes_are_checked) {
    put_hf_model("llama", "config.json", NULL, NULL);
    ck_assert(!rename(in_folder("x/model.safetensors"), in_folder("x/s")));
    put_content("x/model.safetensors.index.json", indexes[_i].index, strlen(indexes[_i].index));
    ck_assert_int_ne(tool("mxconvert {}/x {}/a.h5"), 0);
    ck_says(indexes[_i].says);
}
END_TEST

/* A run may hold kernels in another way than MaxText's trees: its own config counts, and
 * config.json must tell the same model. */
START_TEST(runs_hold_kernels_in_their_own_way) {
    const char *model = hf_model("llama");
    ck_tool(0, "mxconvert %s {}/ours.h5", model);
    ck_tool(0,
            "mxtrain --config {}/ours.yml load_parameters_path=%s rope_type=default "
            "rope_use_scale=true "
            "run_name=r "
            "query_pre_attn_scalar=8 dataset_type=synthetic steps=1 "
            "learning_rate=1e-12 max_target_length=8 eval_interval=-1 base_output_directory={}/out",
            model);
    ck_assert_msg(!strstr(output, "warning"), "%s", output);
    ck_tool(0, "mxconvert {}/out/r {}/x1 --to-hf");
    ck_tool(0, "mxcompare {}/x1 %s --atol 1e-9", model);
    /* In the run's form; MaxText's made a difference of every query and key. */
    ck_tool(0, "mxcompare {}/out/r {}/x1 --params-only");
    ck_tool(0, "mxcompare {}/x1 {}/out/r --params-only");
    ck_tool(0, "mxconvert {}/out/r {}/x2 --to-hf --config %s/config.json", model);
    ck_tool(0, "mxcompare {}/x2 {}/x1");
    put_hf_model("llama", "config.json", "\"rope_theta\": 10000.0", "\"rope_theta\": 20000.0");
    ck_tool(65, "mxconvert {}/out/r {}/x3 --to-hf --config {}/x/config.json");
    ck_says("x/config.json: rope_theta: found 20000, the run has 10000");
    ck_tool(0, "mxtrain --config {}/ours.yml load_parameters_path={}/x run_name=r2 steps=1 "
               "dataset_type=synthetic max_target_length=8 eval_interval=-1 "
               "base_output_directory={}/out");
    ck_says("warning: ");
    ck_says("x/config.json: rope_theta: found 20000, the run has 10000");
}
END_TEST

#define GEMMA                                                                                      \
    "mlp_activations=[gelu,linear] logits_via_embedding=true use_post_attn_norm=true "             \
    "use_post_ffw_norm=true"

/* An export is equal to what it was made of, whatever rounding it took; one bit more is not. */
START_TEST(exports_are_equal) {
    static const char *const shapes[] = {"",
                                         "decoder_block=mistral",
                                         "rope_type=llama3.1",
                                         "decoder_block=qwen2 attention_bias=true",
                                         "query_pre_attn_scalar=3",
                                         "fused_qkv=true fused_mlp=true",
                                         "decoder_block=gemma " GEMMA,
                                         "decoder_block=gemma2 sliding_window_size=4 " GEMMA,
                                         "decoder_block=mixtral num_experts=4 "
                                         "num_experts_per_tok=2",
                                         "decoder_block=qwen3_moe num_experts=4 use_qk_norm=true "
                                         "num_experts_per_tok=3"};
    ck_tool(0,
            "mxtrain --config configs/base.yml base_emb_dim=48 base_num_decoder_layers=2 "
            "base_num_query_heads=3 base_num_kv_heads=3 head_dim=24 base_mlp_dim=64 run_name=r "
            "max_target_length=8 dataset_type=synthetic steps=2 learning_rate=0.1 "
            "eval_interval=-1 base_output_directory={} %s",
            shapes[_i]);
    ck_tool(0, "mxconvert {}/r {}/hf --to-hf");
    ck_tool(0, "mxcompare {}/r {}/hf --params-only");
    ck_says("EQUAL");
    ck_tool(0, "mxcompare {}/hf {}/r --params-only");
    ck_tool(0, "mxconvert {}/hf {}/back");
    ck_tool(0, "mxcompare {}/back {}/hf");
    /* MaxText's trees hold heads in another way than some runs, and the way back ends there. */
    ck_tool(0, "mxconvert {}/back {}/again --layout linen --scan-layers true");
    bool is_fused = strstr(shapes[_i], "fused"); /* into other arrays than MaxText's trees have */
    ck_tool(is_fused, "mxcompare {}/r {}/again --params-only");
    ck_says(is_fused ? "only in A" : "EQUAL");
    ck_tool(is_fused, "mxcompare {}/back {}/r --params-only");
    MxBytes tensors = content("hf/model.safetensors");
    tensors.data[tensors.size - 3] ^= 1; /* above what a norm of gemma loses when 1 is added */
    put_content("hf/model.safetensors", tensors.data, tensors.size);
    ck_assert_int_eq(unlink(in_folder("hf/MANIFEST.json")), 0);
    ck_tool(1, "mxcompare {}/r {}/hf --params-only");
}
END_TEST

/* What transformers has no name or no way for. */
static const struct {
    const char *line, *says;
} exports[] = {
    {"attention_bias: true\n", "attention_bias: MistralForCausalLM has no biases"},
    {"use_qk_norm: true\n", "use_qk_norm: MistralForCausalLM has no norms of queries and keys"},
    {"final_logits_soft_cap: 30\n", "Hugging Face's models have no other than 0"},
    {"use_untrainable_positional_embedding: true\n",
     "use_untrainable_positional_embedding: Hugging Face's models have no other than false"},
    {"rope_type: yarn\n", "rope_interleave: Hugging Face's models have no other than false"},
    {"base_num_decoder_layers: 3\n",
     "\"model/decoder/layers_2/mlp/wo/kernel\" is missing; the model wants [64, 32]"},
    {"base_num_decoder_layers: 1\n",
     "\"model/decoder/layers_1/mlp/wo/kernel\" has no name in such a model of Hugging Face's"},
    {"base_mlp_dim: 32\n",
     "\"model/decoder/layers_0/mlp/wo/kernel\" has shape [64, 32]; the model wants [32, 32]"},
};

START_TEST(exports_that_do_not_fit) {
    ck_tool(0, "mxconvert %s {}/ours.h5", hf_model("mistral"));
    const char *line = exports[_i].line, *key = mx_arena_strndup(&arena, line, strcspn(line, ":"));
    const char *yaml = (const char *)content("ours.yml").data, *at = strstr(yaml, key);
    size_t n = at ? strcspn(at, "\n") + 1 : 0;
    if (!at) at = yaml;
    const char *text = mx_arena_printf(&arena, "%.*s%sdataset_type: synthetic\n%s",
                                       (int)(at - yaml), yaml, line, at + n);
    put_content("run.yml", text, strlen(text));
    ck_assert_int_ne(tool("mxconvert {}/ours.h5 {}/x --to-hf --config {}/run.yml"), 0);
    ck_says(exports[_i].says);
    ck_assert(!mx_dir_exists(in_folder("x")));
}
END_TEST

Suite *hf_suite(void) {
    Suite *suite = suite_create("ckpt/hugging face");
    TCase *tcase = add_case(suite, "models");
    tcase_add_loop_test(tcase, trees_are_maxtexts, 0, MX_COUNT(trees));
    tcase_add_test(tcase, layers_share_a_name);
    tcase_add_test(tcase, but_for_one_shape);
    tcase_add_loop_test(tcase, several_in_one, 0, 3);
    tcase_add_test(tcase, layers_take_turns);
    tcase_add_loop_test(tcase, the_way_back, 0, MX_COUNT(round_trips));
    tcase_add_test(tcase, shards);
    tcase_add_test(tcase, experts_in_one_tensor);
    tcase_add_test(tcase, damage_is_found);
    tcase_add_test(tcase, from_a_config_of_ours);
    tcase_add_loop_test(tcase, configs_tell_as_much, 0, MX_COUNT(kinds));
    tcase_add_loop_test(tcase, other_configs_tell_as_much, 0, MX_COUNT(others));
    tcase_add_test(tcase, dry_runs_name_both_sides);
    tcase = add_case(suite, "misfits");
    tcase_add_test(tcase, kimi_is_read_as_deepseek);
    tcase_add_loop_test(tcase, misfits_are_named, 0, MX_COUNT(misfits));
    tcase_add_test(tcase, all_types_are_listed);
    tcase_add_loop_test(tcase, lacks_are_said, 0, MX_COUNT(lacks));
    tcase_add_test(tcase, idle_tensors_are_passed_over);
    tcase_add_loop_test(tcase, indexes_are_checked, 0, MX_COUNT(indexes));
    tcase_add_test(tcase, runs_hold_kernels_in_their_own_way);
    tcase_add_loop_test(tcase, exports_are_equal, 0, 8);
    tcase_add_loop_test(tcase, exports_that_do_not_fit, 0, MX_COUNT(exports));
    return suite;
}
