/* test_hf_images.c — models of Hugging Face that see images and hear sounds: encoders are read and
 * written back, also out of a folder whose model speaks besides. */
#include "tools.h"

static const char *const eyes[] = {
    "images/gemma3_sees",     "119", "images/llama4_sees",       "51", "images/gemma4_sees",  "104",
    "images/qwen3_vl_sees",   "82",  "images/qwen3_vl_moe_sees", "83", "images/qwen3_5_sees", "127",
    "images/qwen3_omni_sees", "113", "sounds/qwen3_omni_hears",  "75"};

/* The encoder of images is read if asked for, and written back. */
START_TEST(encoders_go_both_ways) {
    const char *from = goldens_need(&arena, eyes[2 * _i]);
    ck_tool(0, "mxconvert %s {}/c --images", from);
    ck_says(mx_arena_printf(&arena, " %s arrays", eyes[2 * _i + 1]));
    ck_assert_msg(!strstr(output, "only the text model is taken"), "%s", output);
    ck_tool(0, "mxconvert {}/c {}/hf --to-hf");
    ck_tool(0, "mxconvert {}/hf {}/again --images");
    ck_tool(0, "mxcompare {}/c {}/again --atol 1e-7");
    ck_says("EQUAL");
    ck_tool(0, "mxcompare {}/hf %s --atol 1e-7", from);
    ck_says("EQUAL");
    ck_tool(65, "mxconvert %s {}/x --images", goldens_need(&arena, "hf/models/gemma3_turns"));
    ck_says("no encoder of images that is available here");
    ck_tool(2, "mxconvert {}/c {}/y --images");
    ck_says("is no folder of Hugging Face's");
}
END_TEST

/* A run takes a model with its encoder if told to see, and adapters over it go back into a folder
 * with the same config.json; of a run that only reads, the text model. */
START_TEST(adapters_over_encoders_go_back) {
    const char *from = goldens_need(&arena, eyes[2 * _i]);
    static const char run[] =
        "mxtrain model=%s dataset_type=synthetic steps=1 learning_rate=1e-12 max_target_length=64 "
        "eval_interval=-1 log_config=false base_output_directory={} lora.lora_rank=2 "
        "lora.lora_alpha=4 lora.enable_lora=%s";
    const char *hears = strstr(from, "hears") ? " use_audio=true max_sample_len_for_audio=100" : "";
    ck_tool(0, run, from,
            mx_arena_printf(&arena, "false run_name=whole use_multimodal=true%s", hears));
    ck_tool(0, "mxconvert {}/whole {}/all --to-hf");
    ck_tool(0, "mxcompare {}/all %s --atol 1e-6", from);
    ck_says("EQUAL");
    ck_tool(0, run, from,
            mx_arena_printf(&arena, "true run_name=sees use_multimodal=true%s", hears));
    ck_tool(0, "mxconvert {}/sees {}/hf --merge-lora --to-hf");
    ck_tool(0, "mxcompare {}/hf %s --atol 1e-6", from);
    ck_says("EQUAL");
    ck_tool(0, run, from, "true run_name=reads");
    ck_tool(0, "mxconvert {}/reads {}/text --merge-lora --to-hf");
    ck_assert(!strstr(output, "vision"));
    ck_tool(0, "mxconvert %s {}/ours", from);
    ck_tool(0, "mxconvert {}/ours {}/theirs --to-hf");
    ck_tool(0, "mxcompare {}/text {}/theirs --atol 1e-6");
    ck_says("EQUAL");
}
END_TEST

/* The tensors of a thinker as a whole Qwen 3-Omni has them: `from` and what becomes of it. */
static void put_whole_tensors(const char *from) {
    static const char *const names[] = {"model.", "lm_head.", "visual.", "audio_tower."};
    enum { LENGTH = 8, ALIGNED = 8 };
    MxBytes file;
    MxText header, all;
    uint64_t bytes;
    ck_ok(mx_file_read(&arena, from, 1 << 20, &file, &err));
    memcpy(&bytes, file.data, LENGTH);
    mx_text_init(&header, &arena);
    for (const char *at = (const char *)file.data + LENGTH, *end = at + bytes; at < end; at++) {
        mx_text_addn(&header, at, 1);
        for (int i = 0; *at == '"' && i < MX_COUNT(names); i++)
            if (mx_text_has_prefix(at + 1, names[i])) mx_text_add(&header, "thinker.");
    }
    while (header.len % ALIGNED) mx_text_add(&header, " ");
    const uint64_t length = header.len;
    mx_text_init(&all, &arena);
    mx_text_addn(&all, (const char *)&length, LENGTH);
    mx_text_addn(&all, header.data, header.len);
    mx_text_addn(&all, (const char *)file.data + LENGTH + bytes, file.size - LENGTH - bytes);
    put_content("whole/model.safetensors", all.data, all.len);
}

/* All that was written has the name and shape that it had before. */
static void check_names(const char *from) {
    MxTensors *old, *new;
    ck_ok(mx_tensors_open(&arena, from, &old, &err));
    ck_ok(mx_tensors_open(&arena, in_folder("hf/model.safetensors"), &new, &err));
    for (int i = 0; i < mx_tensors_count(new); i++) {
        const MxTensor *b = mx_tensors_at(new, i), *a = mx_tensors_find(old, b->name);
        ck_assert_msg(a && mx_shape_equal(a->shape, b->shape), "%s", b->name);
    }
}

/* A whole Qwen 3-Omni: a thinker goes back. */
START_TEST(a_thinker_is_taken_out) {
    const char *from = goldens_need(&arena, "images/qwen3_omni_sees"), *more = "architectures";
    MxBytes config;
    ck_ok(mx_file_read(&arena, mx_path_join(&arena, from, "config.json"), 1 << 20, &config, &err));
    const char *inner = (const char *)config.data, *at = strstr(inner, more);
    const char *text =
        mx_arena_printf(&arena, "{\"model_type\": \"qwen3_omni_moe\", \"thinker_config\": %.*sx%s}",
                        (int)(at - inner), inner, at);
    ck_ok(mx_dir_make(in_folder("whole"), &err));
    put_content("whole/config.json", text, strlen(text));
    put_whole_tensors(mx_path_join(&arena, from, "model.safetensors"));
    ck_tool(0, "mxconvert {}/whole {}/text");
    ck_says("only the text model is taken; left out: 86 tensors");
    ck_tool(0, "mxconvert {}/whole {}/a --images");
    ck_tool(0, "mxconvert %s {}/b --images", from);
    ck_tool(0, "mxcompare {}/a {}/b");
    ck_says("EQUAL");
    ck_tool(0, "mxconvert {}/a {}/hf --to-hf");
    ck_says("Qwen3OmniMoeThinkerForConditionalGeneration");
    check_names(mx_path_join(&arena, from, "model.safetensors"));
    ck_tool(0, "mxcompare {}/hf %s --atol 1e-7", from);
    ck_says("EQUAL");
}
END_TEST

Suite *hf_images_suite(void) {
    Suite *suite = suite_create("ckpt/images");
    TCase *tcase = add_case(suite, "adapters");
    tcase_add_loop_test(tcase, adapters_over_encoders_go_back, 0, MX_COUNT(eyes) / 2);
    tcase_set_long(tcase);
    tcase = add_case(suite, "models");
    tcase_add_loop_test(tcase, encoders_go_both_ways, 0, MX_COUNT(eyes) / 2);
    tcase_add_test(tcase, a_thinker_is_taken_out);
    return suite;
}
