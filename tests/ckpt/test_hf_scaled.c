/* test_hf_scaled.c — folders with weights in few bits: what they stand for is taken, any part of
 * it, and goes back as plain numbers; codes and scales that do not belong together. That models of
 * them compute what transformers computes is tested in tests/train. */
#include "tools.h"

#include <stdlib.h>

static const char *few_bits(const char *name) {
    return goldens_need(&arena, mx_path_join(&arena, "hf/models", name));
}

static const char *const folders[] = {"llama_fp8", "deepseek_v3_fp8", "gpt_oss_mxfp4",
                                      "deepseek_v4_fp4"};

START_TEST(goes_back_plain) {
    MxTensors *theirs;
    const char *from = few_bits(folders[_i]);
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
    const char *from = few_bits(folders[_i]);
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
    {"llama_fp8", "config.json", "float-quantized", "int-quantized",
     "quantization_config: not available yet: found weights quantized by \"compressed-tensors\" as "
     "int-quantized, wanted fp8, "},
    {"deepseek_v3_fp8", "config.json", "      8,\n", "      \"8\",\n",
     "quantization_config.weight_block_size: wanted two whole numbers above 0"},
    {"llama_fp8", "model.safetensors", "self_attn.q_proj.weight_scale",
     "self_attn.q_proj.weight_skale",
     "\"model.layers.0.self_attn.q_proj.weight\" [32, 16] is of 8 bits a number, and no scales are "
     "beside it"},
    {"llama_fp8", "model.safetensors", "\"shape\":[32,1]", "\"shape\":[1,32]",
     " [1, 32] is of no type or shape that scales of \"model.layers.0."},
};

static char *replaced(const MxBytes *text, const char *word, const char *instead, size_t *size) {
    char *at = memmem(text->data, text->size, word, strlen(word));
    ck_assert_msg(at != NULL, "no %s", word);
    size_t before = (size_t)(at - (char *)text->data), behind = before + strlen(word);
    *size = text->size - strlen(word) + strlen(instead);
    char *out = mx_arena_alloc(&arena, *size);
    memcpy(out, text->data, before);
    memcpy(out + before, instead, strlen(instead));
    memcpy(out + before + strlen(instead), text->data + behind, text->size - behind);
    return out;
}

START_TEST(misfits_are_named) {
    static const char *const files[] = {"config.json", "model.safetensors"};
    ck_ok(mx_dir_make(in_folder("x"), &err));
    for (int i = 0; i < MX_COUNT(files); i++) {
        MxBytes bytes;
        const char *from = mx_path_join(&arena, few_bits(misfits[_i].folder), files[i]);
        ck_ok(mx_file_read(&arena, from, 1 << 20, &bytes, &err));
        const char *text = (const char *)bytes.data;
        size_t size = bytes.size;
        if (!strcmp(files[i], misfits[_i].file))
            text = replaced(&bytes, misfits[_i].word, misfits[_i].instead, &size);
        put_content(mx_path_join(&arena, "x", files[i]), text, size);
    }
    ck_tool(65, "mxconvert {}/x {}/a.h5");
    ck_says(misfits[_i].says);
    ck_assert(!mx_file_exists(in_folder("a.h5")));
}
END_TEST

Suite *hf_scaled_suite(void) {
    Suite *suite = suite_create("ckpt/hugging face in few bits");
    TCase *tcase = add_case(suite, "scaled");
    tcase_add_loop_test(tcase, goes_back_plain, 0, MX_COUNT(folders));
    tcase_add_loop_test(tcase, parts_are_read, 0, MX_COUNT(folders));
    tcase_add_loop_test(tcase, misfits_are_named, 0, MX_COUNT(misfits));
    return suite;
}
