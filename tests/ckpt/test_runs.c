/* test_runs.c — layers that are stacked inside of blocks (gemma4), behind the last block, or behind
 * layers that are not stacked (deepseek4), taken apart and stacked again; held against what a run
 * reads and writes of both forms. */
#include "tools.h"

/* Whole blocks, blocks and a rest, a rest alone; two scan axes. */
static const struct { int layers, axis; } stackings[] = {{6, 1}, {8, 1}, {13, 1}, {3, 1}, {13, 0}};

static const char run[] =
    "mxtrain --config {}/model.yml base_num_decoder_layers=%d param_scan_axis=%d run_name=%s "
    "scan_layers=%s dataset_type=synthetic steps=1 max_target_length=16 eval_interval=-1 "
    "log_config=false base_output_directory={} %s";

static void put_model(const char *name) {
    ck_tool(0, "mxconvert %s {}/hf.h5", hf_model(name));
    ck_ok(mx_file_write(in_folder("model.yml"), content("hf.yml").data, content("hf.yml").size,
                        &err));
}

START_TEST(layers_inside_of_blocks) {
    const int layers = stackings[_i].layers, axis = stackings[_i].axis;
    put_model("gemma4_tiny");
    ck_tool(0, run, layers, axis, "s", "true", "");
    ck_tool(0, run, layers, axis, "u", "false",
            mx_arena_printf(&arena, "load_parameters_path=%s/s learning_rate=0", folder));
    ck_tool(0, "mxconvert {}/s {}/apart --scan-layers false");
    ck_tool(0, "mxcompare {}/apart {}/u --params-only");
    ck_says("EQUAL");
    ck_tool(0, "mxconvert {}/apart {}/again --scan-layers true --param-scan-axis %d", axis);
    ck_tool(0, "mxcompare {}/again {}/s");
    ck_says("EQUAL");
    ck_tool(0, "mxconvert {}/s {}/s8 --quantize int8");
    ck_tool(0, "mxconvert {}/apart {}/u8 --quantize int8");
    ck_tool(0, "mxcompare {}/s8 {}/u8");
    ck_says("EQUAL");
}
END_TEST

/* Adapters of all layers, and of those only that a block ends with. */
static const char *const modules[] = {"", "lora.lora_module_path=decoder/.*global_layer/.*query"};

START_TEST(adapters_inside_of_blocks) {
    const char *base = hf_model("gemma4_tiny");
    const char *words = mx_arena_printf(&arena,
                                        "load_parameters_path=%s lora.enable_lora=true "
                                        "lora.lora_rank=2 lora.lora_alpha=4",
                                        base);
    put_model("gemma4_tiny");
    ck_tool(0, run, 6, 1, "s", "true",
            mx_arena_printf(&arena, "%s learning_rate=0.1 %s", words, modules[_i]));
    ck_tool(0, run, 6, 1, "u", "false",
            mx_arena_printf(&arena, "%s learning_rate=0 lora.lora_restore_path=%s/s %s", words,
                            folder, _i ? "lora.lora_module_path=decoder/layers_5/.*query" : ""));
    ck_tool(0, "mxconvert {}/s {}/a --merge-lora --scan-layers false");
    ck_tool(0, "mxconvert {}/u {}/b --merge-lora --scan-layers false");
    ck_tool(0, "mxcompare {}/a {}/b");
    ck_says("EQUAL");
    ck_tool(0, "mxconvert {}/s {}/hf --merge-lora --to-hf --dtype float32");
    ck_tool(0, "mxcompare {}/hf {}/b");
    ck_says("EQUAL");
    ck_tool(1, "mxcompare {}/hf %s", base);
    ck_tool(0, "mxconvert {}/s {}/peft --to-peft");
}
END_TEST

/* Adapters of some layers of each block would go to others, whose numbers they seem to have. */
START_TEST(places_that_are_not_told) {
    static const char *const modules_of[] = {"decoder/.*layers_0/.*query", "decoder/.*query"};
    static const char lora[] = "load_parameters_path=%s/b lora.enable_lora=true lora.lora_rank=2 "
                               "lora.lora_alpha=4 lora.lora_module_path=%s";
    put_model("gpt_oss_tiny");
    ck_tool(0, run, 4, 1, "b", "true", "");
    ck_tool(0, run, 4, 1, "l", "true", mx_arena_printf(&arena, lora, folder, modules_of[_i]));
    ck_tool(_i ? 0 : 65, "mxconvert {}/l {}/m --merge-lora");
    if (!_i) ck_says("only some of the layers of each block have adapters");
    ck_tool(_i ? 0 : 65, "mxconvert {}/l {}/p --to-peft");
}
END_TEST

START_TEST(layers_before_blocks) {
    static const char words[] = "compress_ratios=[0,0,128,4,128,4]";
    put_model("deepseek_v4_tiny");
    ck_tool(0, run, 6, 1, "s", "true", words);
    ck_tool(0, run, 6, 1, "u", "false",
            mx_arena_printf(&arena, "%s load_parameters_path=%s/s learning_rate=0", words, folder));
    ck_tool(0, "mxconvert {}/s {}/apart --scan-layers false");
    ck_tool(0, "mxcompare {}/apart {}/u --params-only");
    ck_says("EQUAL");
    ck_tool(0, "mxconvert {}/s {}/axis --param-scan-axis 0");
    ck_tool(0, "mxcompare {}/axis {}/u --params-only");
    ck_says("EQUAL");
    ck_tool(0, "mxconvert {}/apart {}/again --scan-layers true"); /* noted in the file */
    ck_tool(0, "mxcompare {}/again {}/s");
    ck_says("EQUAL");
    ck_tool(65, "mxconvert {}/u {}/x --scan-layers true");
    ck_says("stacked inside of scanned_blocks, which is not available yet here");
    ck_tool(0, "mxconvert {}/s {}/a --to-hf");
    ck_tool(0, "mxconvert {}/u {}/b --to-hf");
    ck_same_bytes("a/model.safetensors", "b/model.safetensors");
    const char *lora =
        mx_arena_printf(&arena,
                        "%s load_parameters_path=%s/a lora.enable_lora=true lora.lora_rank=2 "
                        "lora.lora_alpha=4",
                        words, folder);
    ck_tool(0, run, 6, 1, "l", "true", mx_arena_printf(&arena, "%s learning_rate=0.1", lora));
    ck_tool(
        0, run, 6, 1, "m", "false",
        mx_arena_printf(&arena, "%s learning_rate=0 lora.lora_restore_path=%s/l", lora, folder));
    ck_tool(0, "mxconvert {}/l {}/c --merge-lora --to-hf");
    ck_tool(0, "mxconvert {}/m {}/d --merge-lora --to-hf");
    ck_same_bytes("c/model.safetensors", "d/model.safetensors");
    ck_tool(1, "mxcompare {}/a {}/c");
}
END_TEST

/* Moments that are codes, and the scales of these, go where moments go; such a state was refused,
 * even to leave its moments out. */
START_TEST(moments_as_codes) {
    static const char bytes[] =
        "mxtrain --config configs/base.yml base_emb_dim=32 base_num_decoder_layers=3 "
        "base_num_query_heads=2 base_num_kv_heads=2 head_dim=16 base_mlp_dim=96 "
        "logits_via_embedding=false optimizer_state_dtype=int8 dataset_type=synthetic steps=2 "
        "max_target_length=16 eval_interval=-1 log_config=false base_output_directory={} "
        "run_name=%s scan_layers=%s";
    ck_tool(0, bytes, "s", "true");
    ck_tool(0, bytes, "u", "false");
    ck_tool(0, "mxconvert {}/s {}/apart --scan-layers false");
    ck_tool(0, "mxcompare {}/apart {}/u");
    ck_says("EQUAL");
    ck_tool(0, "mxconvert {}/apart {}/linen --layout linen --scan-layers true --param-scan-axis 0");
    ck_tool(0, "mxconvert {}/linen {}/again --layout nnx --param-scan-axis 1");
    ck_tool(0, "mxcompare {}/again {}/s");
    ck_says("EQUAL");
    ck_tool(0, "mxconvert {}/s {}/hf --to-hf");
}
END_TEST

Suite *runs_suite(void) {
    Suite *suite = suite_create("ckpt/runs");
    TCase *tcase = add_case(suite, "blocks");
    tcase_add_loop_test(tcase, layers_inside_of_blocks, 0, MX_COUNT(stackings));
    tcase_add_loop_test(tcase, adapters_inside_of_blocks, 0, MX_COUNT(modules));
    tcase_add_loop_test(tcase, places_that_are_not_told, 0, 2);
    tcase_add_test(tcase, layers_before_blocks);
    tcase_add_test(tcase, moments_as_codes);
    tcase_set_long(tcase);
    return suite;
}
