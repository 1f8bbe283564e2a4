/* test_few_bits.c — mxconvert --quantize: checkpoints whose kernels are codes and scales, as black
 * boxes: what runs, mxcompare and other conversions make of them. */
#include "common/goldens.h"
#include "tools.h"

#include <math.h>
#include <stdlib.h>
#include <sys/resource.h>

static const char tiny[] =
    "mxtrain --config configs/base.yml base_emb_dim=32 base_num_decoder_layers=3 "
    "base_num_query_heads=2 base_num_kv_heads=2 head_dim=16 base_mlp_dim=64 max_target_length=32 "
    "per_device_batch_size=2 dataset_type=synthetic vocab_size=300 eval_steps=2 "
    "warmup_steps_fraction=0 log_config=false base_output_directory={} ";

static void train_base(const char *more) {
    ck_tool(0, "%s eval_interval=-1 run_name=base steps=3 learning_rate=0.01 %s", tiny, more);
}

/* The loss of adapters that are fresh over weights that a run keeps in few bits. */
static double loss_over(const char *name, const char *from, const char *type) {
    const char *file = mx_arena_printf(&arena, "m.%s", name);
    ck_tool(0,
            "%s run_name=%s eval_interval=1 steps=1 learning_rate=0 metrics_file={}/%s "
            "load_parameters_path={}/%s lora.enable_lora=true lora.lora_rank=4 lora.lora_alpha=8 "
            "lora.lora_weight_qtype=%s",
            tiny, name, file, from, type);
    MxBytes bytes = content(file);
    const char *mark = "\"eval/avg_loss\": ", *at = strstr((const char *)bytes.data, mark);
    ck_assert_msg(at != NULL, "%s", (const char *)bytes.data);
    return strtod(at + strlen(mark), NULL);
}

static const struct {
    const char *type, *run, *how;
} ways[] = {
    {"nf4", "", ""},
    {"int8", "", ""},
    {"nf4", "scan_layers=false", "--scan-layers true --param-scan-axis 0"},
    {"int8", "pure_nnx=false", "--layout nnx"},
    {"int8", "", "--scan-layers false --layout linen"},
    {"int4", "", ""},
    {"float8_e4m3fn", "scan_layers=false", "--layout nnx"},
    {"nvfp4", "", "--scan-layers false --layout linen"},
};

/* A run over codes of a file has the codes that it makes of the floats itself, those of int8 too,
 * which it would not find again in the values. */
START_TEST(runs_open_them) {
    const char *type = ways[_i].type;
    train_base(ways[_i].run);
    ck_tool(0, "mxconvert {}/base {}/few --params-only --quantize %s %s", type, ways[_i].how);
    double want = loss_over("floats", "base", type), got = loss_over("codes", "few", type);
    ck_assert_msg(got == want, "%.17g, not %.17g", got, want);
    ck_assert_double_ne(got, loss_over("others", "base", *type == 'n' ? "int8" : "nf4"));
}
END_TEST

/* mxcompare and mxconvert see floats; nf4 of them is the same again. */
START_TEST(values_are_those_of_codes) {
    train_base("");
    ck_tool(0, "mxconvert {}/base {}/few --params-only --quantize %s", ways[_i].type);
    ck_tool(0, "mxconvert {}/few {}/floats --scan-layers false --layout linen");
    ck_tool(0, "mxcompare {}/few {}/floats");
    ck_tool(1, "mxcompare {}/few {}/base");
    if (_i) return;
    ck_tool(0, "mxconvert {}/floats {}/again --quantize nf4 --scan-layers true --layout nnx");
    ck_same_bytes("few/state.h5", "again/state.h5");
}
END_TEST

/* From a folder of Hugging Face's as from the checkpoint that it is converted to; and of a run
 * whose config has what adapters do not go with. */
START_TEST(sources_are_alike) {
    const char *theirs = goldens_need(&arena, "hf/models/llama");
    static const char yml[] = "dataset_type: synthetic\nbase_config: ";
    ck_tool(0, "mxconvert %s {}/few --quantize int8", theirs);
    ck_tool(0, "mxconvert %s {}/floats", theirs);
    const char *text = mx_arena_printf(&arena, "%s%s\n", yml, in_folder("floats/model.yml"));
    put_content("c.yml", text, strlen(text));
    ck_tool(0, "mxconvert {}/floats {}/again --quantize int8 --config {}/c.yml");
    ck_tool(0, "mxcompare {}/few {}/again");
    train_base("quantization=int8");
    ck_tool(0, "mxconvert {}/base {}/rounded --params-only --quantize int8");
}
END_TEST

static const char *replies(const char *words) {
    ck_tool(0, "mxdecode %s --prompts {}/ids --json --max-tokens 9", words);
    return output;
}

/* Codes are multiplied as they are: the replies of their values, as those of a folder of Hugging
 * Face's whose kernels are encoded when it is opened. */
START_TEST(mxdecode_keeps_them) {
    static const char ids[] = "[3,65,140,61,140,49,88]\n[1,2,3]\n";
    const char *type = ways[_i].type, *theirs = goldens_need(&arena, "hf/models/llama");
    put_content("ids", ids, sizeof ids - 1);
    ck_tool(0, "mxconvert %s {}/few --quantize %s", theirs, type);
    ck_tool(0, "mxconvert {}/few {}/floats");
    ck_tool(0, "mxconvert %s {}/plain", theirs);
    const char *got = replies("{}/few");
    ck_assert_str_eq(got, replies(mx_arena_printf(&arena, "%s --weights %s", theirs, type)));
    ck_assert_str_eq(got, replies("{}/few --weights floats"));
    ck_assert_str_ne(got, replies(theirs));
    ck_assert_str_eq(replies(theirs), replies("{}/plain"));
    ck_tool(2, "mxdecode {}/few --prompts {}/ids --weights dynamic");
    ck_says("--weights: found \"dynamic\", wanted floats, nf4, int8, int4, float8_e4m3fn, ");
}
END_TEST

/* What adapters were trained over stays. */
START_TEST(adapters_keep_what_is_below_them) {
    static const char ids[] = "[3,65,140]\n";
    put_content("ids", ids, sizeof ids - 1);
    train_base("");
    loss_over("adapters", "base", "nf4");
    replies("{}/adapters");
    replies("{}/adapters --weights nf4");
    ck_tool(2, "mxdecode {}/adapters --prompts {}/ids --weights int8");
    ck_says("--weights: found \"int8\", but the adapters of");
}
END_TEST

START_TEST(what_cannot_be_is_told) {
    const char *model = "params/params/decoder/layers_0/mlp/wi_0/kernel";
    float x[32 * 64] = {0};
    MxH5 *file;
    x[777] = _i ? INFINITY : NAN;
    ck_ok(mx_h5_create(&arena, in_folder("nan.h5"), &file, &err));
    ck_ok(mx_h5_write(file, model, MX_F32, MX_SHAPE(32, 64), x, &err));
    ck_ok(mx_h5_close(file, &err));
    static const char yml[] = "base_emb_dim: 32\nbase_mlp_dim: 64\nbase_num_decoder_layers: 1\n";
    put_content("c.yml", yml, sizeof yml - 1);
    ck_tool(65, "mxconvert {}/nan.h5 {}/few.h5 --quantize nf4 --config {}/c.yml");
    ck_says("\"model/decoder/layers_0/mlp/wi_0/kernel\" holds what is no number or infinite: nf4 "
            "has no code for it");
    ck_assert(!mx_file_exists(in_folder("few.h5")));
    ck_tool(65, "mxconvert {}/nan.h5 {}/few.h5 --quantize int8");
    ck_says("its model is not known; --config names the config of its run");
    ck_tool(2, "mxconvert {}/nan.h5 {}/few.h5 --quantize int9");
    ck_says("--quantize: found \"int9\", wanted one of nf4, int8, int4, ");
    ck_tool(2, "mxconvert {}/nan.h5 {}/few.h5 --quantize int8 --dtype bfloat16");
    ck_says("--dtype does not go with --quantize");
}
END_TEST

/* Layers of 64 MiB in one array: one layer's part is read at a time, and of that a few MiB. */
START_TEST(memory_is_that_of_tiles) {
    enum { MAX_MIB = 80 };
    const MxShape shape = MX_SHAPE(4096, 2, 4096);
    static const char yml[] =
        "base_emb_dim: 4096\nbase_mlp_dim: 4096\nbase_num_decoder_layers: 2\n";
    struct rusage usage;
    MxH5 *file;
    ck_ok(mx_h5_create(&arena, in_folder("big.h5"), &file, &err));
    const char *path = "params/params/decoder/layers/mlp/wi_0/kernel";
    const MxBox first = {.rank = 3, .count = {1, 1, 1}};
    ck_ok(mx_h5_make(file, path, MX_F32, shape, &err));
    ck_ok(
        mx_h5_write_box(file, path, first, &(const float){1}, &err)); /* all of it is there then */
    ck_ok(mx_h5_close(file, &err));
    put_content("c.yml", yml, sizeof yml - 1);
    ck_tool(0, "mxconvert {}/big.h5 {}/few.h5 --quantize nf4 --config {}/c.yml");
    getrusage(RUSAGE_CHILDREN, &usage);
    ck_assert_msg(usage.ru_maxrss < MAX_MIB * 1024, "peak %ld KiB", usage.ru_maxrss);
}
END_TEST

Suite *few_bits_suite(void) {
    Suite *suite = suite_create("ckpt/few bits");
    TCase *tcase = add_case(suite, "tools");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, runs_open_them, 0, MX_COUNT(ways));
    tcase_add_loop_test(tcase, values_are_those_of_codes, 0, 2);
    tcase_add_test(tcase, sources_are_alike);
    tcase_add_loop_test(tcase, mxdecode_keeps_them, 0, 2);
    tcase_add_test(tcase, adapters_keep_what_is_below_them);
    tcase_add_loop_test(tcase, what_cannot_be_is_told, 0, 2);
    tcase_add_test(tcase, memory_is_that_of_tiles);
    return suite;
}
