/* test_hf_scaled.c — folders with weights in few bits: what they stand for is taken, any part of
 * it, and goes back as plain numbers; codes and scales that do not belong together. That models of
 * them compute what transformers computes is tested in tests/train. */
#include "tools.h"

#include <stdlib.h>

static const char *const folders[] = {
    "llama_fp8",   "deepseek_v3_fp8", "gpt_oss_mxfp4", "deepseek_v4_fp4", "llama_gptq",
    "qwen2_gptq8", "llama_awq",       "llama_w4a16",   "llama_w8a8",      "llama_nvfp4",
    "llama_bnb4",  "llama_bnb8",      "llama_mxfp4",   "llama_mxfp8"};

START_TEST(goes_back_plain) {
    MxTensors *theirs;
    const char *from = hf_model(folders[_i]);
    ck_tool(0, "mxconvert %s {}/a.h5", from);
    ck_tool(0, "mxconvert %s {}/hf --to-hf --dtype float32", from);
    MxBytes config = content("hf/config.json");
    ck_assert(!strstr((const char *)config.data, "quantization"));
    ck_ok(mx_tensors_open(&arena, in_folder("hf/model.safetensors"), &theirs, &err));
    for (int i = 0; i < mx_tensors_count(theirs); i++) {
        const MxTensor *t = mx_tensors_at(theirs, i);
        ck_assert_msg(t->dtype == MX_F32 || t->dtype == MX_I64, "%s", t->name);
        ck_assert_msg(!strstr(t->name, "weight_scale") && !strstr(t->name, ".scale"), "%s",
                      t->name);
    }
    ck_tool(0, "mxconvert {}/hf {}/b.h5");
    ck_tool(0, "mxcompare {}/a.h5 {}/b.h5");
    ck_says("EQUAL");
}
END_TEST

/* Some elements at a time. */
START_TEST(parts_are_read) {
    static const char *const sizes[] = {"40", "1000"};
    const char *from = hf_model(folders[_i]);
    ck_tool(0, "mxconvert %s {}/a.h5", from);
    for (int i = 0; i < MX_COUNT(sizes); i++) {
        setenv("MX_PIECE_BYTES", sizes[i], 1);
        ck_tool(0, "mxconvert %s {}/b%d.h5", from, i);
        unsetenv("MX_PIECE_BYTES");
        ck_tool(0, "mxcompare {}/a.h5 {}/b%d.h5", i);
        ck_says("EQUAL");
    }
}
END_TEST

/* In config.json, or in the header of the tensors, where lengths stay. */
static const struct {
    const char *folder, *file, *word, *instead, *says;
} misfits[] = {
    {"llama_fp8", "config.json", "float-quantized", "marlin-24",
     "quantization_config: not available yet: found quant_method compressed-tensors (format "
     "marlin-24), wanted fp8, mxfp4, fbgemm_fp8, bitsandbytes, gptq (gptq, gptq_v2), awq (gemm), "
     "compressed-tensors (float-quantized, "},
    {"deepseek_v3_fp8", "config.json", "      8,\n", "      \"8\",\n",
     "quantization_config.weight_block_size: wanted two whole numbers above 0"},
    {"llama_fp8", "model.safetensors", "self_attn.q_proj.weight_scale",
     "self_attn.q_proj.weight_skale",
     "\"model.layers.0.self_attn.q_proj.weight\" [32, 16] holds codes, and no scales are beside "
     "it, "
     "such as "},
    {"llama_fp8", "model.safetensors", "\"shape\":[32,1]", "\"shape\":[1,32]",
     " [1, 32] is of no type or shape that scales of \"model.layers.0."},
    {"llama_gptq", "config.json", "\"bits\": 4", "\"bits\": 3",
     "model.layers.0.mlp.up_proj.qweight\" [4, 64] holds codes of 3 bits; wanted 2, 4 or 8"},
    {"llama_awq", "model.safetensors", "mlp.up_proj.qzeros", "mlp.up_proj.qzeroz",
     "\"model.layers.0.mlp.up_proj.qweight\" [32, 8] holds codes, and no zeros are beside it, "
     "such "
     "as \"model.layers.0.mlp.up_proj.qzeros\""},
    {"llama_nvfp4", "model.safetensors", "mlp.up_proj.weight_global_scale",
     "mlp.up_proj.weight_global_skale", "and no numbers are beside it, such as"},
    {"llama_bnb4", "model.safetensors", "\"shape\": [64, 96]", "\"shape\": [64, 97]",
     " is of no type or shape that states of \"model.layers.0.self_attn.q_proj.weight\" [3072, 1] "
     "have"},
};

START_TEST(misfits_are_named) {
    put_hf_model(misfits[_i].folder, misfits[_i].file, misfits[_i].word, misfits[_i].instead);
    ck_tool(65, "mxconvert {}/x {}/a.h5");
    ck_says(misfits[_i].says);
    ck_assert(!mx_file_exists(in_folder("a.h5")));
}
END_TEST

/* A column whose scale is none that there is. */
START_TEST(groups_are_checked) {
    const char *path = in_folder("x/model.safetensors");
    const int32_t group = 99;
    MxTensors *file;
    MxBytes bytes;
    put_hf_model("llama_gptq", "config.json", NULL, NULL);
    ck_ok(mx_tensors_open(&arena, path, &file, &err));
    const MxTensor *t = mx_tensors_find(file, "model.layers.0.mlp.up_proj.g_idx");
    ck_assert(t != NULL);
    ck_ok(mx_file_read(&arena, path, 1 << 20, &bytes, &err));
    memcpy(bytes.data + t->offset + 4 * sizeof group, &group, sizeof group);
    put_content("x/model.safetensors", (const char *)bytes.data, bytes.size);
    ck_tool(65, "mxconvert {}/x {}/a.h5");
    ck_says("\"model.layers.0.mlp.up_proj.g_idx\": column 4 is in group 99; wanted 0 to 1");
    ck_assert(!mx_file_exists(in_folder("a.h5")));
}
END_TEST

Suite *hf_scaled_suite(void) {
    Suite *suite = suite_create("ckpt/hugging face in few bits");
    TCase *tcase = add_case(suite, "scaled");
    tcase_add_loop_test(tcase, goes_back_plain, 0, MX_COUNT(folders));
    tcase_add_loop_test(tcase, parts_are_read, 0, MX_COUNT(folders));
    tcase_add_loop_test(tcase, misfits_are_named, 0, MX_COUNT(misfits));
    tcase_add_test(tcase, groups_are_checked);
    return suite;
}
