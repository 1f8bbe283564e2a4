/* test_lora_tools.c — what mxconvert does with adapters, as a black box: merged weights against the
 * original's, adapters out of files and back into runs, folders of peft, and what is refused. */
#include "tools.h"

#include <math.h>
#include <stdlib.h>
#include <sys/resource.h>

static MxH5 *open_file(const char *path) {
    MxH5 *file;
    ck_ok(mx_h5_open(&arena, path, &file, &err));
    return file;
}

static MxH5Array *list(MxH5 *file, const char *group, int *n) {
    MxH5Array *arrays;
    ck_ok(mx_h5_list(&arena, file, group, &arrays, n, &err));
    return arrays;
}

static float *read_array(MxH5 *file, const char *path, MxShape shape) {
    float *out = mx_new_n(&arena, float, mx_shape_count(shape));
    ck_ok(mx_h5_read(file, path, MX_F32, shape, out, &err));
    return out;
}

/* ---- merging, against MaxText */

static const struct {
    const char *name, *alpha;
} merged_goldens[] = {
    {"lora_scan_default", "8"},
    {"lora_unscan_default", "8"},
    {"lora_scan_qv_r2", "5"},
    {"lora_scan_mlp_r3_sgd", "1"},
};

static const char *train_golden(const char *name) {
    return goldens_find(&arena, mx_path_join(&arena, "train", name));
}

/* A weight that the original merged is its, any other one the source's. */
static void check_weight(MxH5 *golden, MxH5 *result, const MxH5Array *array) {
    const char *merged = mx_path_join(&arena, "merged/nnx", array->path);
    bool is_merged = mx_h5_has_array(golden, merged);
    const float *want = read_array(
        golden, is_merged ? merged : mx_path_join(&arena, "nnx", array->path), array->shape);
    const float *got = read_array(result, array->path, array->shape);
    for (int64_t i = 0; i < mx_shape_count(array->shape); i++)
        ck_assert_msg(fabsf(got[i] - want[i]) <= (is_merged ? 1e-6f : 0), "%s: %g, wanted %g",
                      array->path, (double)got[i], (double)want[i]);
}

/* The weights of a file without its adapters. */
static void strip_adapters(const char *source, const char *group, const char *name) {
    MxH5 *from = open_file(source), *to;
    int n;
    MxH5Array *arrays = list(from, group, &n);
    ck_ok(mx_h5_create(&arena, in_folder(name), &to, &err));
    for (int i = 0; i < n; i++)
        if (!strstr(arrays[i].path, "_lora_"))
            ck_ok(mx_h5_write(
                to, arrays[i].path, MX_F32, arrays[i].shape,
                read_array(from, mx_path_join(&arena, group, arrays[i].path), arrays[i].shape),
                &err));
    ck_ok(mx_h5_close(to, &err));
}

START_TEST(merged_weights_are_maxtexts) {
    const char *name = mx_arena_printf(&arena, "%s.h5", merged_goldens[_i].name);
    const char *source = train_golden(name), *alpha = merged_goldens[_i].alpha;
    if (!source) return;
    ck_tool(0, "mxconvert %s:nnx {}/m.h5 --merge-lora --lora-alpha %s", source, alpha);
    ck_says("drift: ");
    int n, n_merged, n_base = 0;
    MxH5 *golden = open_file(source), *result = open_file(in_folder("m.h5"));
    list(golden, "merged/nnx", &n_merged);
    ck_assert_int_gt(n_merged, 0);
    MxH5Array *arrays = list(golden, "nnx", &n);
    for (int i = 0; i < n; i++) {
        if (strstr(arrays[i].path, "_lora_") || strstr(arrays[i].path, "optimizer")) continue;
        check_weight(golden, result, &arrays[i]);
        n_base++;
    }
    list(result, "", &n);
    ck_assert_int_eq(n, n_base);
    /* In another layout at once, or afterwards; and over weights in another file. */
    const char *scan = mx_text_has_prefix(name, "lora_unscan") ? "true" : "false";
    ck_tool(0,
            "mxconvert %s:nnx {}/a.h5 --merge-lora --lora-alpha %s --layout linen --scan-layers %s",
            source, alpha, scan);
    ck_tool(0, "mxconvert {}/m.h5 {}/b.h5 --layout linen --scan-layers %s", scan);
    ck_same_bytes("a.h5", "b.h5");
    ck_tool(0, "mxconvert %s:nnx {}/e.h5 --extract-lora --layout linen --scan-layers %s", source,
            scan);
    strip_adapters(source, "nnx", "base.h5");
    ck_tool(0, "mxconvert {}/e.h5 {}/c.h5 --merge-lora --base {}/base.h5 --lora-alpha %s", alpha);
    ck_same_bytes("c.h5", "m.h5");
}
END_TEST

/* ---- files made here */

static float value_of(const char *path, int64_t i) {
    return (float)((int64_t)(mx_hash64(path, strlen(path)) + 7 * (uint64_t)i) % 13) - 6;
}

/* Small whole numbers, which sums keep. */
static void put(MxH5 *file, const char *path, MxDtype dtype, MxShape shape) {
    int64_t n = mx_shape_count(shape);
    float *x = mx_new_n(&arena, float, n);
    for (int64_t i = 0; i < n; i++) x[i] = value_of(path, i);
    uint16_t *half = mx_new_n(&arena, uint16_t, n);
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        half[i] = (uint16_t)(bits >> 16);
    }
    ck_ok(mx_h5_write(file, path, dtype, shape, dtype == MX_BF16 ? (void *)half : (void *)x, &err));
}

#define LAYERS "model/decoder/layers/"

/* Kernels with heads before and behind, and norms; three layers stacked at dim 1. */
static void make_stack(const char *name, bool weights, bool adapters, MxDtype dtype) {
    MxH5 *file;
    ck_ok(mx_h5_create(&arena, in_folder(name), &file, &err));
    if (weights) {
        put(file, LAYERS "q/kernel", dtype, MX_SHAPE(4, 3, 2, 5));
        put(file, LAYERS "out/kernel", dtype, MX_SHAPE(2, 3, 5, 4));
        put(file, LAYERS "norm/scale", dtype, MX_SHAPE(4, 3));
        put(file, "model/decoder/logits_dense/kernel", dtype, MX_SHAPE(4, 6));
        put(file, "model/token_embedder/embedding", dtype, MX_SHAPE(6, 4));
    }
    if (adapters) {
        put(file, LAYERS "q/kernel_lora_a", MX_F32, MX_SHAPE(4, 3, 2));
        put(file, LAYERS "q/kernel_lora_b", MX_F32, MX_SHAPE(2, 3, 10));
        put(file, LAYERS "out/kernel_lora_a", MX_F32, MX_SHAPE(10, 3, 4));
        put(file, LAYERS "out/kernel_lora_b", MX_F32, MX_SHAPE(4, 3, 4));
        put(file, LAYERS "norm/scale_lora_a", MX_F32, MX_SHAPE(4, 3, 2));
        put(file, LAYERS "norm/scale_lora_b", MX_F32, MX_SHAPE(2, 3));
        put(file, "model/decoder/logits_dense/kernel_lora_a", MX_F32, MX_SHAPE(4, 2));
        put(file, "model/decoder/logits_dense/kernel_lora_b", MX_F32, MX_SHAPE(2, 6));
    }
    ck_ok(mx_h5_close(file, &err));
}

/* One element: W + sum over r of A[i, l, r] B[r, l, k] alpha / rank. */
static void check_element(MxH5 *file, const char *path, MxShape shape, int64_t at, int64_t i,
                          int64_t l, int64_t layers, int64_t rank, int64_t k, int64_t columns) {
    const char *a = mx_arena_printf(&arena, "%s_lora_a", path);
    const char *b = mx_arena_printf(&arena, "%s_lora_b", path);
    double sum = 0;
    for (int64_t r = 0; r < rank; r++)
        sum += (double)value_of(a, (i * layers + l) * rank + r) *
               (double)value_of(b, (r * layers + l) * columns + k);
    double want = (double)value_of(path, at) + sum * 8 / (double)rank;
    const float *got = read_array(file, path, shape);
    ck_assert_msg((double)got[at] == want, "%s[%lld]: %g, wanted %g", path, (long long)at,
                  (double)got[at], want);
}

/* Every shape that adapters have; ranks differ, so alpha / rank does. Weights in bfloat16 become
 * float32. */
START_TEST(everything_merges) {
    MxDtype dtype = _i ? MX_BF16 : MX_F32;
    make_stack("a.h5", false, true, MX_F32);
    make_stack("w.h5", true, false, dtype);
    ck_tool(0, "mxconvert {}/a.h5 {}/m.h5 --merge-lora --base {}/w.h5 --lora-alpha 8");
    MxH5 *file = open_file(in_folder("m.h5"));
    MxH5Array array;
    ck_ok(mx_h5_stat(file, LAYERS "q/kernel", &array, &err));
    ck_assert_int_eq(array.dtype, MX_F32);
    for (int64_t l = 0; l < 3; l++)
        for (int64_t i = 0; i < 4; i++) {
            for (int64_t k = 0; k < 10; k++) {
                check_element(file, LAYERS "q/kernel", MX_SHAPE(4, 3, 2, 5), (i * 3 + l) * 10 + k,
                              i, l, 3, 2, k, 10);
                check_element(file, LAYERS "out/kernel", MX_SHAPE(2, 3, 5, 4),
                              ((k / 5 * 3 + l) * 5 + k % 5) * 4 + i, k, l, 3, 4, i, 4);
            }
            check_element(file, LAYERS "norm/scale", MX_SHAPE(4, 3), i * 3 + l, i, l, 3, 2, 0, 1);
            check_element(file, "model/decoder/logits_dense/kernel", MX_SHAPE(4, 6), i * 6 + l, i,
                          0, 1, 2, l, 6);
        }
}
END_TEST

START_TEST(a_plan_of_a_merge_writes_nothing) {
    make_stack("a.h5", true, true, MX_F32);
    ck_tool(0, "mxconvert {}/a.h5 {}/m.h5 --merge-lora --lora-alpha 8 --dry-run");
    ck_says("-> " LAYERS "q/kernel [4, 3, 2, 5]  slice 0 of dim 1 …, stack 3 at dim 1, 3 adapters "
            "merged\n");
    ck_says("model/token_embedder/embedding [6, 4]  copy\n");
    ck_assert(!strstr(output, "_lora_a"));
    ck_assert(!mx_file_exists(in_folder("m.h5")));
}
END_TEST

/* Adapters of one layer among others. */
START_TEST(some_layers_may_have_none) {
    MxH5 *file;
    ck_ok(mx_h5_create(&arena, in_folder("a.h5"), &file, &err));
    put(file, "model/decoder/layers_1/mlp/wo/kernel_lora_a", MX_F32, MX_SHAPE(4, 2));
    put(file, "model/decoder/layers_1/mlp/wo/kernel_lora_b", MX_F32, MX_SHAPE(2, 3));
    ck_ok(mx_h5_close(file, &err));
    ck_ok(mx_h5_create(&arena, in_folder("w.h5"), &file, &err));
    put(file, "model/decoder/layers/mlp/wo/kernel", MX_F32, MX_SHAPE(4, 3, 3));
    ck_ok(mx_h5_close(file, &err));
    ck_tool(0, "mxconvert {}/a.h5 {}/e.h5 --extract-lora");
    ck_tool(0, "mxcompare {}/a.h5 {}/e.h5");
    ck_tool(65, "mxconvert {}/a.h5 {}/s.h5 --extract-lora --scan-layers true");
    ck_says("cannot be stacked: 1 of 2 layers lack it");
    ck_tool(0, "mxconvert {}/a.h5 {}/m.h5 --merge-lora --base {}/w.h5 --lora-alpha 8");
    const float *got = read_array(open_file(in_folder("m.h5")),
                                  "model/decoder/layers/mlp/wo/kernel", MX_SHAPE(4, 3, 3));
    for (int64_t i = 0; i < 36; i++) {
        const char *a = "model/decoder/layers_1/mlp/wo/kernel_lora_a";
        const char *b = "model/decoder/layers_1/mlp/wo/kernel_lora_b";
        float want = value_of("model/decoder/layers/mlp/wo/kernel", i);
        for (int64_t r = 0; i / 3 % 3 == 1 && r < 2; r++)
            want += 4 * value_of(a, i / 9 * 2 + r) * value_of(b, r * 3 + i % 3);
        ck_assert_float_eq(got[i], want);
    }
}
END_TEST

/* A row of a weight that was 0: of every layer, A B. */
static void check_big_row(const char *path, int64_t row) {
    const char *a = mx_arena_printf(&arena, "%s_lora_a", path);
    const char *b = mx_arena_printf(&arena, "%s_lora_b", path);
    MxBox box = {3, {row, 0, 0}, {1, 8, 2048}};
    float *got = mx_new_n(&arena, float, 8 * 2048);
    ck_ok(mx_h5_read_box(open_file(in_folder("m.h5")), path, MX_F32, box, got, &err));
    for (int64_t i = 0; i < 8 * 2048; i += 101) {
        int64_t layer = i / 2048;
        float want = 0;
        for (int64_t r = 0; r < 8; r++)
            want += value_of(a, (row * 8 + layer) * 8 + r) * value_of(b, r * 8 * 2048 + i);
        ck_assert_float_eq(got[i], want);
    }
}

/* Two stacks of 64 MiB each, a rank that makes adapters of some MiB. */
START_TEST(big_weights_merge_in_little_memory) {
    enum { MAX_MIB = 64 + 64 };
    MxH5 *file;
    static const char *const names[] = {LAYERS "mlp/wi_0/kernel", LAYERS "mlp/wi_1/kernel"};
    ck_ok(mx_h5_create(&arena, in_folder("a.h5"), &file, &err));
    for (int i = 0; i < 2; i++) {
        MxBox box = {3, {0, 0, 0}, {1, 8, 2048}};
        float *row = mx_new_n(&arena, float, 8 * 2048);
        ck_ok(mx_h5_make(file, names[i], MX_F32, MX_SHAPE(1024, 8, 2048), &err));
        for (; box.start[0] < 1024; box.start[0]++)
            ck_ok(mx_h5_write_box(file, names[i], box, row, &err));
        put(file, mx_arena_printf(&arena, "%s_lora_a", names[i]), MX_F32, MX_SHAPE(1024, 8, 8));
        put(file, mx_arena_printf(&arena, "%s_lora_b", names[i]), MX_F32, MX_SHAPE(8, 8, 2048));
    }
    ck_ok(mx_h5_close(file, &err));
    struct rusage usage;
    ck_tool(0, "mxconvert {}/a.h5 {}/m.h5 --merge-lora --lora-alpha 8");
    getrusage(RUSAGE_CHILDREN, &usage);
    ck_assert_msg(usage.ru_maxrss < MAX_MIB * 1024, "peak %ld KiB", usage.ru_maxrss);
    for (int64_t at = 0; at < 1024; at += 341) check_big_row(names[1], at);
}
END_TEST

/* ---- runs */

static const char tiny[] =
    "mxtrain --config configs/base.yml base_emb_dim=32 base_num_decoder_layers=2 "
    "base_num_query_heads=2 base_num_kv_heads=2 head_dim=16 base_mlp_dim=64 max_target_length=32 "
    "per_device_batch_size=2 dataset_type=synthetic vocab_size=300 eval_steps=2 "
    "warmup_steps_fraction=0 log_config=false base_output_directory={} ";

static const char adapted[] = "lora.enable_lora=true lora.lora_rank=4 lora.lora_alpha=8 ";

static void run_tiny(const char *words) {
    ck_tool(0, "%s eval_interval=-1 %s", tiny, words);
}

/* A run with adapters over another run's weights, both with some steps behind them. */
static void train_adapters(const char *more) {
    run_tiny("run_name=base steps=3 learning_rate=0.01");
    run_tiny(
        mx_arena_printf(&arena,
                        "run_name=lora steps=4 learning_rate=0.05 load_parameters_path=%s/base "
                        "%s %s",
                        folder, adapted, more));
}

static double eval_loss(const char *words) {
    const char *name = words + strlen("run_name=");
    const char *file = mx_arena_printf(&arena, "m.%.*s", (int)strcspn(name, " "), name);
    ck_tool(0, "%s eval_interval=1 steps=1 learning_rate=0 metrics_file=%s/%s %s", tiny, folder,
            file, words);
    MxBytes bytes = content(file);
    const char *mark = "\"eval/avg_loss\": ", *at = strstr((const char *)bytes.data, mark);
    ck_assert_msg(at != NULL, "%s", (const char *)bytes.data);
    return strtod(at + strlen(mark), NULL);
}

static const char *const run_forms[] = {"", "scan_layers=false pure_nnx=false",
                                        "lora.lora_weight_qtype=nf4 lora.lora_tile_size=16",
                                        "lora.lora_weight_qtype=int8 lora.lora_tile_size=8"};

/* Without any option: the run's config names the base and tells alpha. */
START_TEST(merged_runs_evaluate_alike) {
    train_adapters(run_forms[_i]);
    ck_tool(0, "mxconvert {}/lora {}/merged --merge-lora");
    ck_says("they were trained over these weights (fingerprint)");
    double base =
        eval_loss(mx_arena_printf(&arena, "run_name=e0 load_parameters_path=%s/base", folder));
    double merged =
        eval_loss(mx_arena_printf(&arena, "run_name=e1 load_parameters_path=%s/merged", folder));
    double apart = eval_loss(mx_arena_printf(
        &arena, "run_name=e2 load_parameters_path=%s/base lora.lora_restore_path=%s/lora %s %s",
        folder, folder, adapted, run_forms[_i]));
    ck_assert_double_eq_tol(merged, apart, 1e-5);
    ck_assert_double_gt(fabs(base - apart), 1e-3); /* the adapters do something */
    MxBytes manifest = content("merged/MANIFEST.json");
    ck_assert(strstr((const char *)manifest.data, "lora.enable_lora: false") != NULL);
    ck_tool(65, "mxconvert {}/merged {}/again --merge-lora");
    ck_says("no adapters in it");
    ck_tool(0, "mxconvert {}/merged {}/hf --to-hf");
    ck_tool(0, "mxconvert {}/lora {}/at_once --merge-lora --to-hf");
    ck_same_bytes("hf/model.safetensors", "at_once/model.safetensors");
    ck_same_bytes("hf/config.json", "at_once/config.json");
}
END_TEST

/* Over a folder of Hugging Face's the result has its config.json, and nothing else is left. */
START_TEST(merged_runs_go_back_to_hugging_face) {
    static const char base[] = "{}/base --to-hf --dtype bfloat16";
    run_tiny("run_name=first steps=1 decoder_block=qwen3 use_qk_norm=true");
    ck_tool(0, "mxconvert {}/first %s", base);
    run_tiny(mx_arena_printf(&arena,
                             "run_name=lora steps=2 decoder_block=qwen3 use_qk_norm=true "
                             "load_parameters_path=%s/base %s",
                             folder, adapted));
    ck_tool(65, "mxconvert {}/lora {}/x --to-hf");
    ck_says("it has adapters (");
    ck_says("hint: --merge-lora together with --to-hf or --to-gguf merges them into");
    ck_assert(!strstr(output, "is missing"));
    ck_tool(0, "mxconvert {}/lora {}/hf --merge-lora --to-hf");
    ck_same_bytes("base/config.json", "hf/config.json");
    ck_tool(0, "mxconvert {}/lora {}/merged --merge-lora");
    ck_tool(0, "mxcompare {}/merged {}/hf --rtol 0.004");
    ck_tool(1, "mxcompare {}/base {}/hf");
    ck_tool(0, "mxconvert {}/lora {}/f32 --merge-lora --to-hf --dtype float32");
    ck_tool(0, "mxcompare {}/merged {}/f32");
    ck_tool(73, "mxconvert {}/lora {}/f32 --merge-lora --to-hf");
    ck_says("exists already");
    ck_tool(2, "mxconvert {}/lora {}/y --merge-lora --to-hf --dry-run");
    ck_says("--dry-run does not go with --merge-lora with --to-hf");
    ck_tool(2, "mxconvert {}/lora {}/y --merge-lora --to-hf --quantize nf4");
    ck_says("--merge-lora and --quantize exclude each other");
    ck_tool(2, "mxconvert {}/lora {}/y.h5 --merge-lora --to-hf");
    ck_says("--to-hf makes a folder");
    char **left;
    int n_left;
    ck_ok(mx_dir_list(&arena, folder, &left, &n_left, &err));
    for (int i = 0; i < n_left; i++)
        ck_assert_msg(!strstr(left[i], ".merged"), "%s is left", left[i]);
}
END_TEST

START_TEST(other_weights_are_refused) {
    train_adapters("");
    ck_tool(65, "mxconvert {}/lora {}/m.h5 --merge-lora --base {}/base/checkpoints/0");
    ck_says("its adapters belong to other weights: fingerprint ");
    ck_assert(!mx_file_exists(in_folder("m.h5")));
    ck_tool(2, "mxconvert {}/lora {}/m.h5 --merge-lora --lora-alpha 7");
    ck_says("--lora-alpha: found 7, but the config says 8");
    ck_tool(2, "mxconvert {}/lora {}/m.h5 --merge-lora --config configs/base.yml");
    ck_says("holds its config itself");
    ck_ok(mx_dir_remove(in_folder("base"), &err));
    ck_tool(65, "mxconvert {}/lora {}/m.h5 --merge-lora");
    ck_says("hint: that is the load_parameters_path in the config of ");
    run_tiny(mx_arena_printf(&arena, "run_name=drawn steps=1 %s", adapted));
    ck_tool(65, "mxconvert {}/drawn {}/m.h5 --merge-lora");
    ck_says("hint: its config draws them (init_weights_seed 0), from no file");
}
END_TEST

/* Where adapters go before they come back. */
static const char *const ways[] = {"{}/way --extract-lora", "{}/way.h5 --extract-lora",
                                   "{}/way --extract-lora --layout linen --scan-layers false",
                                   "{}/way --to-peft"};

START_TEST(adapters_come_back_bit_for_bit) {
    train_adapters("");
    ck_tool(0, "mxconvert {}/lora %s", ways[_i]);
    ck_says(" and verified it");
    run_tiny(mx_arena_printf(&arena,
                             "run_name=back steps=1 learning_rate=0 load_parameters_path=%s/base "
                             "lora.lora_restore_path=%s/way%s %s",
                             folder, folder, strstr(ways[_i], ".h5") ? ".h5" : "", adapted));
    ck_tool(0, "mxconvert {}/back {}/b.h5 --extract-lora");
    ck_tool(0, "mxconvert {}/lora {}/a.h5 --extract-lora");
    ck_same_bytes("a.h5", "b.h5");
    int n;
    list(open_file(in_folder("a.h5")), "", &n);
    ck_assert_int_eq(n, 14);
    ck_tool(1, "mxcompare {}/lora/checkpoints/0 {}/a.h5 --params-only"); /* training changed them */
    ck_says("14 arrays have other values");
}
END_TEST

/* ---- peft's own folders */

static const struct {
    const char *name, *config;
} pefts[] = {
    {"peft_all", "lora.lora_rank=4 lora.lora_alpha=8"},
    {"peft_qv_rslora", "lora.lora_rank=2 lora.lora_alpha=7.0710678118654755 "
                       "lora.lora_module_path=.*self_attention/(query|value)"},
};

static const char peft_model[] =
    "base_num_query_heads=4 head_dim=8 vocab_size=128 query_pre_attn_scalar=8 "
    "lora.enable_lora=true";

/* Through a run and out again. */
START_TEST(pefts_folders_go_around) {
    const char *dir = train_golden(pefts[_i].name);
    if (!dir) return;
    run_tiny(mx_arena_printf(
        &arena, "run_name=peft steps=1 learning_rate=0 %s %s lora.lora_restore_path=%s", peft_model,
        pefts[_i].config, dir));
    ck_tool(0, "mxconvert {}/peft {}/out --to-peft --base somebody/weights");
    ck_assert(strstr((const char *)content("out/adapter_config.json").data, "somebody/weights"));
    MxTensors *ours, *theirs;
    ck_ok(mx_tensors_open(&arena, in_folder("out/adapter_model.safetensors"), &ours, &err));
    ck_ok(mx_tensors_open(&arena, mx_path_join(&arena, dir, "adapter_model.safetensors"), &theirs,
                          &err));
    ck_assert_int_eq(mx_tensors_count(ours), mx_tensors_count(theirs));
    for (int i = 0; i < mx_tensors_count(theirs); i++) {
        const MxTensor *a = mx_tensors_at(theirs, i), *b = mx_tensors_find(ours, a->name);
        ck_assert_msg(b && mx_shape_equal(a->shape, b->shape), "%s", a->name);
        int64_t n = mx_shape_count(a->shape);
        float *x = mx_new_n(&arena, float, n), *y = mx_new_n(&arena, float, n);
        ck_ok(mx_tensors_read(theirs, a, x, &err) && mx_tensors_read(ours, b, y, &err));
        ck_assert_msg(!memcmp(x, y, (size_t)n * sizeof *x), "%s", a->name);
    }
    ck_tool(73, "mxconvert {}/peft {}/out --to-peft");
    ck_tool(0, "mxconvert {}/peft {}/out --to-peft --force");
    ck_tool(0, "mxconvert {}/peft --to-peft --dry-run");
    ck_says("model/decoder/layers_1/self_attention/query/kernel_lora_b [");
    ck_says("-> base_model.model.model.layers.1.self_attn.q_proj.lora_B.weight [32, ");
    ck_tool(65, "mxconvert %s {}/x.h5", dir);
    ck_says("a folder of peft: lora.lora_restore_path takes it as it is");
}
END_TEST

/* One bit of an exponent trained on without a word. */
START_TEST(damage_of_pefts_folders_is_found) {
    run_tiny(mx_arena_printf(&arena, "run_name=a steps=1 %s", adapted));
    ck_tool(0, "mxconvert {}/a {}/way --to-peft");
    MxBytes bytes = content("way/adapter_model.safetensors");
    bytes.data[bytes.size - 1] ^= 1;
    put_content("way/adapter_model.safetensors", bytes.data, bytes.size);
    ck_tool(65, "%s eval_interval=-1 run_name=b steps=1 %s lora.lora_restore_path=%s/way", tiny,
            adapted, folder);
    ck_says("adapter_model.safetensors: is damaged");
}
END_TEST

/* A file without a manifest needs a config. */
START_TEST(a_config_may_be_named) {
    static const char text[] = "base_emb_dim: 4\nbase_num_query_heads: 2\nbase_num_kv_heads: 2\n"
                               "head_dim: 8\nbase_num_decoder_layers: 3\n"
                               "lora: {lora_alpha: 6}\n";
    MxH5 *file;
    ck_ok(mx_h5_create(&arena, in_folder("a.h5"), &file, &err));
    put(file, LAYERS "self_attention/query/kernel_lora_a", MX_F32, MX_SHAPE(4, 3, 2));
    put(file, LAYERS "self_attention/query/kernel_lora_b", MX_F32, MX_SHAPE(2, 3, 16));
    ck_ok(mx_h5_close(file, &err));
    put_content("c.yml", text, strlen(text));
    ck_tool(65, "mxconvert {}/a.h5 {}/p --to-peft --lora-alpha 6");
    ck_says("its model is not known; --config names the config of its run");
    ck_tool(0, "mxconvert {}/a.h5 {}/p --to-peft --config {}/c.yml");
    ck_says("result: 3 adapters, r 2, lora_alpha 6");
    ck_tool(2, "mxconvert {}/a.h5 {}/p.h5 --to-peft --config {}/c.yml");
    ck_says("--to-peft makes a folder");
}
END_TEST

/* ---- what is refused */

START_TEST(all_that_does_not_fit_is_listed) {
    MxH5 *file;
    ck_ok(mx_h5_create(&arena, in_folder("a.h5"), &file, &err));
    put(file, "model/decoder/layers/a/kernel_lora_a", MX_F32, MX_SHAPE(4, 3, 2));
    put(file, "model/decoder/layers/a/kernel_lora_b", MX_F32, MX_SHAPE(2, 3, 6));
    put(file, "model/decoder/layers/b/kernel_lora_a", MX_F32, MX_SHAPE(4, 3, 2));
    put(file, "model/decoder/layers/b/kernel_lora_b", MX_F32, MX_SHAPE(2, 3, 6));
    put(file, "model/decoder/s/kernel_lora_a", MX_F32, MX_SHAPE(1, 2));
    put(file, "model/decoder/s/kernel_lora_b", MX_F32, MX_SHAPE(2, 1));
    if (_i) put(file, "model/decoder/layers/c/kernel_lora_a", MX_F32, MX_SHAPE(4, 3, 2));
    if (_i) put(file, "model/decoder/layers/d/kernel_lora_a", MX_F32, MX_SHAPE(4, 3, 2));
    if (_i) put(file, "model/decoder/layers/d/kernel_lora_b", MX_F32, MX_SHAPE(3, 3, 2));
    ck_ok(mx_h5_close(file, &err));
    ck_ok(mx_h5_create(&arena, in_folder("w.h5"), &file, &err));
    put(file, "model/decoder/layers/a/kernel", MX_F32, MX_SHAPE(4, 3, 5));
    put(file, "model/decoder/s/kernel", MX_F32, MX_SCALAR);
    ck_ok(mx_h5_close(file, &err));
    ck_tool(65, "mxconvert {}/a.h5 {}/m.h5 --merge-lora --base {}/w.h5 --lora-alpha 8");
    if (_i) {
        ck_says("layers_0/c/kernel_lora_a\" is there without "
                "\"model/decoder/layers_0/c/kernel_lora_b\"");
        ck_says("layers_2/d/kernel_lora_a\" is [4, 2] and");
        ck_tool(65, "mxconvert {}/a.h5 {}/m.h5 --extract-lora");
        ck_says("layers_2/d/kernel_lora_a\" is [4, 2] and");
    } else {
        ck_says(
            "\"model/decoder/layers_0/a/kernel\" is [4, 5] in the base; its adapters are [4, 2] "
            "and [2, 6]");
        ck_says("\"model/decoder/s/kernel\" is [] in the base; its adapters are [1, 2] and [2, 1]");
        ck_says("\"model/decoder/layers_2/b/kernel\" is adapted, but the base lacks it");
    }
    ck_assert(!mx_file_exists(in_folder("m.h5")));
}
END_TEST

static const struct {
    const char *words;
    int code;
    const char *says;
} refused[] = {
    {"mxconvert {}/w.h5 {}/x --merge-lora", 65, "w.h5: no adapters in it"},
    {"mxconvert {}/w.h5 {}/x --extract-lora", 65, "w.h5: no adapters in it"},
    {"mxconvert {}/w.h5 {}/x --to-peft", 65, "w.h5: no adapters in it"},
    {"mxconvert {}/a.h5 {}/x --merge-lora", 65,
     "a.h5: the lora_alpha of its adapters is not known"},
    {"mxconvert {}/a.h5 {}/x --merge-lora", 65,
     "a.h5: the weights below its adapters are not known"},
    {"mxconvert {}/a.h5 {}/x --to-peft --config configs/base.yml", 65, "the lora_alpha of its"},
    {"mxconvert {}/a.h5 {}/x --to-peft --config configs/base.yml --lora-alpha 1", 65,
     "\"model/decoder/layers_0/out/kernel_lora_a\" has rank 4"},
    {"mxconvert {}/a.h5 {}/x --to-peft --config configs/base.yml --lora-alpha 1", 65,
     "peft has no modules for the adapters of "},
    {"mxconvert {}/a.h5 {}/x --to-peft --config configs/base.yml --lora-alpha 1", 65,
     "\"norm/scale\""},
    {"mxconvert {}/a.h5 {}/x --to-peft --config configs/base.yml --lora-alpha 1", 65,
     "hint: --merge-lora --to-hf writes the weights with all adapters in them"},
    {"mxconvert {}/a.h5 {}/x --merge-lora --lora-alpha 1 --base {}/none", 65, "none"},
    {"mxconvert {}/both.h5 {}/x --merge-lora --lora-alpha 1 --base {}/w.h5", 65,
     "its adapters have weights beside them"},
    {"mxconvert a.h5 x --merge-lora --to-peft", 2, "--merge-lora and --to-peft exclude each other"},
    {"mxconvert a.h5 x --merge-lora --dtype bfloat16", 2, "--dtype does not go with --merge-lora"},
    {"mxconvert a.h5 x --to-peft --layout nnx", 2, "--layout does not go with --to-peft"},
    {"mxconvert a.h5 x --to-peft --benchmark", 2, "--benchmark does not go with --to-peft"},
    {"mxconvert a.h5 x --extract-lora --base y", 2, "--base does not go with --extract-lora"},
    {"mxconvert a.h5 x --lora-alpha 8", 2, "--lora-alpha does not go with a conversion that"},
    {"mxconvert a.h5 x --merge-lora --lora-alpha 0", 2, "wanted more than 0"},
};

START_TEST(bad_input_is_refused) {
    make_stack("w.h5", true, false, MX_F32);
    make_stack("a.h5", false, true, MX_F32);
    make_stack("both.h5", true, true, MX_F32);
    ck_tool(refused[_i].code, "%s", refused[_i].words);
    ck_says(refused[_i].says);
    char **names;
    int n;
    ck_ok(mx_dir_list(&arena, folder, &names, &n, &err));
    ck_assert_int_eq(n, 4); /* and the log */
}
END_TEST

Suite *lora_tools_suite(void) {
    Suite *suite = suite_create("ckpt/lora tools");
    TCase *tcase = add_case(suite, "merge");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, merged_weights_are_maxtexts, 0, MX_COUNT(merged_goldens));
    tcase_add_loop_test(tcase, everything_merges, 0, 2);
    tcase_add_test(tcase, a_plan_of_a_merge_writes_nothing);
    tcase_add_test(tcase, some_layers_may_have_none);
    tcase_add_test(tcase, big_weights_merge_in_little_memory);
    tcase = add_case(suite, "runs");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, merged_runs_evaluate_alike, 0, MX_COUNT(run_forms));
    tcase_add_test(tcase, merged_runs_go_back_to_hugging_face);
    tcase_add_test(tcase, other_weights_are_refused);
    tcase_add_loop_test(tcase, adapters_come_back_bit_for_bit, 0, MX_COUNT(ways));
    tcase_add_loop_test(tcase, pefts_folders_go_around, 0, MX_COUNT(pefts));
    tcase_add_test(tcase, damage_of_pefts_folders_is_found);
    tcase_add_test(tcase, a_config_may_be_named);
    tcase = add_case(suite, "refused");
    tcase_add_loop_test(tcase, all_that_does_not_fit_is_listed, 0, 2);
    tcase_add_loop_test(tcase, bad_input_is_refused, 0, MX_COUNT(refused));
    return suite;
}
