/* test_tools.c — mxconvert and mxcompare as black boxes: every golden model there and back in every
 * form, what a comparison names, what is refused, and what is left behind. Damaged, big and stopped
 * files are in test_hostile.c. */
#include "tools.h"

#include <limits.h>
#include <stdlib.h>

/* ---- there and back */

/* In a file of its own: linen, nnx and linen again; one by one, stacked, and one by one again. */
static void go_around(const char *source) {
    ck_tool(0, "mxconvert %s {}/l.h5 --layout linen --force", source);
    ck_tool(0, "mxconvert {}/l.h5 {}/n.h5 --layout nnx --force");
    ck_tool(0, "mxconvert {}/n.h5 {}/l2.h5 --layout linen --force");
    ck_same_bytes("l.h5", "l2.h5");
    ck_tool(0, "mxcompare %s {}/n.h5", source);
    ck_tool(0, "mxconvert %s {}/s.h5 --scan-layers true --force", source);
    ck_tool(0, "mxconvert {}/s.h5 {}/u.h5 --scan-layers false --force");
    ck_tool(0, "mxcompare %s {}/u.h5", source);
    ck_tool(0, "mxconvert {}/u.h5 {}/s2.h5 --scan-layers true --force");
    ck_tool(0, "mxcompare {}/s.h5 {}/s2.h5");
    ck_tool(0, "mxconvert {}/s2.h5 {}/u2.h5 --scan-layers false --force");
    ck_same_bytes("u.h5", "u2.h5");
}

/* Not every golden file has trees of both styles. */
static bool has_tree(const char *path, const char *group) {
    MxH5 *file;
    ck_ok(mx_h5_open(&arena, path, &file, &err));
    bool is_there = mx_h5_has_group(file, group);
    ck_ok(mx_h5_close(file, &err));
    return is_there;
}

START_TEST(every_golden_model_goes_around) {
    static const char *const folders[] = {"models", "models/variants"};
    const char *group = _i % 2 ? "nnx" : "linen";
    int n, n_files = 0;
    char **names;
    const char *dir = mx_path_join(&arena, goldens_dir(), folders[_i / 2]);
    ck_ok(mx_dir_list(&arena, dir, &names, &n, &err));
    for (int i = 0; i < n; i++) {
        if (!mx_text_has_suffix(names[i], ".h5")) continue;
        if (_i / 2 && n_files > 3 && !getenv("MX_LONG")) break; /* variants are much alike */
        const char *path = mx_path_join(&arena, dir, names[i]);
        if (!has_tree(path, group)) continue;
        go_around(mx_arena_printf(&arena, "%s:%s", path, group));
        n_files++;
    }
    ck_assert_int_gt(n_files, 0);
}
END_TEST

/* MaxText's own trees of one model are equal to each other, and conversions equal to them. */
START_TEST(maxtexts_own_forms_are_equal) {
    static const char *const names[] = {"llama2", "gemma3", "deepseek2"};
    static const char *const groups[] = {"linen", "nnx", "linen_unscanned", "nnx_unscanned"};
    const char *file = goldens_find(&arena, mx_arena_printf(&arena, "models/%s.h5", names[_i]));
    if (!file) return;
    for (int a = 0; a < 4; a++)
        for (int b = 0; b < 4; b++) {
            ck_tool(0, "mxcompare %s:%s %s:%s", file, groups[a], file, groups[b]);
            ck_tool(0, "mxconvert %s:%s {}/x.h5 --force --layout %s --scan-layers %s", file,
                    groups[a], b & 1 ? "nnx" : "linen", b & 2 ? "false" : "true");
            ck_tool(0, "mxconvert %s:%s {}/y.h5 --force", file, groups[b]);
            ck_tool(0, "mxcompare {}/x.h5 {}/y.h5");
        }
}
END_TEST

/* Moments and counters follow the parameters; so do the layers' random numbers. */
START_TEST(a_whole_state_goes_around) {
    const char *source = mx_arena_printf(&arena, "%s:train/final", model("llama2"));
    go_around(source);
    ck_tool(0, "mxcompare {}/u.h5 {}/n.h5");
    MxH5 *file;
    ck_ok(mx_h5_open(&arena, in_folder("u.h5"), &file, &err));
    ck_assert(mx_h5_has_array(file, "opt_state/0/mu/params/decoder/layers_2/mlp/wo/kernel"));
    ck_assert(mx_h5_has_array(file, "opt_state/2/count"));
    ck_assert(mx_h5_has_array(file, "nnx_aux/model/decoder/layers_1/mlp/dropout/rngs/aqt/key"));
}
END_TEST

START_TEST(layers_move_to_any_dim) {
    const char *source = mx_arena_printf(&arena, "%s:nnx", model("llama2"));
    ck_tool(0, "mxconvert %s {}/a.h5 --param-scan-axis %d", source, _i);
    ck_tool(0, "mxcompare %s {}/a.h5", source);
    ck_says(_i == 1 ? "EQUAL" : "compared one by one");
    MxH5 *file;
    MxH5Array array;
    ck_ok(mx_h5_open(&arena, in_folder("a.h5"), &file, &err));
    ck_ok(mx_h5_stat(file, "model/decoder/layers/mlp/wi_0/kernel", &array, &err));
    ck_assert_int_eq(array.shape.rank, 3);
    ck_assert_int_eq(array.shape.dim[_i < 2 ? _i : 2], 3);
}
END_TEST

/* ---- what a comparison finds */

/* Flips a bit of one value in a copy of a file written by mxconvert. */
static void flip_bit(const char *name, const char *copy, float value) {
    MxBytes bytes = content(name);
    for (size_t i = 0; i + 4 <= bytes.size; i += 4)
        if (!memcmp(bytes.data + i, &value, 4)) {
            bytes.data[i] ^= 1;
            put_content(copy, bytes.data, bytes.size);
            return;
        }
    ck_abort_msg("value not found");
}

START_TEST(one_flipped_bit_is_named) {
    ck_tool(0, "mxconvert %s:linen {}/a.h5", model("llama2"));
    MxH5 *file;
    float all[32 * 3 * 48];
    ck_ok(mx_h5_open(&arena, in_folder("a.h5"), &file, &err));
    ck_ok(mx_h5_read(file, "params/params/decoder/layers/mlp/wi_0/kernel", MX_F32,
                     MX_SHAPE(32, 3, 48), all, &err));
    flip_bit("a.h5", "b.h5", all[(7 * 3 + 2) * 48 + 31]);
    ck_tool(1, "mxcompare {}/a.h5 {}/b.h5");
    ck_says("value: model/decoder/layers/mlp/wi_0/kernel: 1 of 4608 elements differ");
    ck_says("ulp 1; at [7, 2, 31]");
    ck_says("DIFFERENT");
    ck_tool(0, "mxcompare {}/a.h5 {}/b.h5 --ulp 1");
    ck_tool(0, "mxcompare {}/a.h5 {}/b.h5 --rtol 1e-6");
    ck_tool(0, "mxcompare {}/a.h5 {}/b.h5 --atol 1e-6");
    ck_tool(1, "mxcompare {}/a.h5 {}/b.h5 --atol 1e-12");
    ck_tool(0, "mxcompare {}/a.h5 {}/b.h5 --structure-only");
    ck_tool(1, "mxcompare %s:nnx_unscanned {}/b.h5 --json {}/report.json", model("llama2"));
    ck_says("value: model/decoder/layers_2/mlp/wi_0/kernel: 1 of 1536 elements differ");
    ck_says("at [7, 31]");
    MxBytes bytes = content("report.json");
    MxJson *json = mx_json_parse(&arena, (const char *)bytes.data, bytes.size, "report", &err);
    MxJson *row = mx_json_at(mx_json_get(json, "differences"), 0);
    bool is_equal;
    ck_assert(mx_json_bool(mx_json_get(json, "equal"), &is_equal) && !is_equal);
    ck_assert_str_eq(mx_json_string(mx_json_get(row, "path")),
                     "model/decoder/layers_2/mlp/wi_0/kernel");
    ck_assert_str_eq(mx_json_string(mx_json_get(row, "index")), "[7, 31]");
}
END_TEST

static const struct {
    float a[3], b[3];
    const char *options;
    int code;
} value_cases[] = {
    {{1, 2, 3}, {1, 2, 3}, "", 0},
    {{1, 2, 3}, {1, 2, 3.0001f}, "", 1},
    {{1, 2, 3}, {1, 2, 3.0001f}, "--rtol 1e-4", 0},
    {{1, 2, 3}, {1, 2, 3.0001f}, "--rtol 1e-5", 1},
    {{0, 2, 3}, {-0.0f, 2, 3}, "", 1}, /* bits */
    {{0, 2, 3}, {-0.0f, 2, 3}, "--atol 1e-30", 0},
    {{0, 2, 3}, {-0.0f, 2, 3}, "--ulp 1", 0},
    {{(float)0x1p-149, 2, 3}, {-(float)0x1p-149, 2, 3}, "--ulp 1", 1}, /* two apart */
    {{(float)0x1p-149, 2, 3}, {-(float)0x1p-149, 2, 3}, "--ulp 2", 0},
    {{__builtin_nanf(""), 2, 3}, {__builtin_nanf(""), 2, 3}, "", 0},
    {{__builtin_nanf(""), 2, 3}, {__builtin_nanf("1"), 2, 3}, "", 1}, /* bits */
    {{__builtin_nanf(""), 2, 3}, {__builtin_nanf("1"), 2, 3}, "--rtol 1e-9", 0},
    {{__builtin_nanf(""), 2, 3}, {1, 2, 3}, "--rtol 1e30 --atol 1e30", 1},
    {{1, 2, 3}, {__builtin_nanf(""), 2, 3}, "--ulp 99999999999", 1},
    {{__builtin_inff(), 2, 3}, {__builtin_inff(), 2, 3}, "--rtol 1", 0},
    {{__builtin_inff(), 2, 3}, {-__builtin_inff(), 2, 3}, "--rtol 1", 1},
    {{__builtin_inff(), 2, 3}, {3e38f, 2, 3}, "--rtol 1", 1},
};

START_TEST(values_are_equal_or_not) {
    make_pair_file("a.h5", value_cases[_i].a, NULL, MX_SCALAR, MX_F32);
    make_pair_file("b.h5", value_cases[_i].b, NULL, MX_SCALAR, MX_F32);
    ck_tool(value_cases[_i].code, "mxcompare {}/a.h5 {}/b.h5 %s", value_cases[_i].options);
}
END_TEST

/* Good files: it is not they that are to blame. Of a name that is no text the report has its bytes.
 */
START_TEST(what_went_wrong_is_said) {
    static const float same[] = {1, 2, 3};
    static const char bytes[] = "model/decoder/\xff\xfe/kernel";
    make_pair_file("a.h5", same, bytes, MX_SHAPE(2, 3), MX_F32);
    make_pair_file("b.h5", same, NULL, MX_SCALAR, MX_F32);
    ck_tool(1, "mxcompare {}/a.h5 {}/b.h5 --json {}/report.json");
    ck_assert(strstr((const char *)content("report.json").data, "decoder/\\\\xff\\\\xfe/kernel"));
    const char *trainer = getenv("MX_BIN");
    char bin[PATH_MAX];
    const char *line = mx_arena_printf(
        &arena, "cd %s; (sleep 0.3; %s/mxcompare a.h5 b.h5 2>told; echo $? >code) | true", folder,
        realpath(mx_path_dir(&arena, trainer && *trainer ? trainer : "build/mxtrain"), bin));
    ck_assert_int_eq(system(line), 0);
    ck_assert_str_eq((const char *)content("code").data, "74\n");
    ck_assert_str_eq((const char *)content("told").data,
                     "mxcompare: error: could not write to stdout: Broken pipe\n");
}
END_TEST

START_TEST(structure_is_told_whole) {
    static const float same[] = {1, 2, 3};
    make_pair_file("a.h5", same, "model/decoder/y/kernel", MX_SHAPE(2, 3), MX_F32);
    make_pair_file("b.h5", same, "model/decoder/z/kernel", MX_SHAPE(2, 3), MX_F32);
    ck_tool(1, "mxcompare {}/a.h5 {}/b.h5");
    ck_says("only in A: model/decoder/y/kernel float32 [2, 3]\n");
    ck_says("only in B: model/decoder/z/kernel float32 [2, 3]\n");
    make_pair_file("b.h5", same, "model/decoder/y/kernel", MX_SHAPE(3, 2), MX_F32);
    ck_tool(1, "mxcompare {}/a.h5 {}/b.h5 --structure-only");
    ck_says("shape: model/decoder/y/kernel is [2, 3] in A, [3, 2] in B\n");
    make_pair_file("b.h5", same, "model/decoder/y/kernel", MX_SHAPE(2, 3), MX_BF16);
    ck_tool(1, "mxcompare {}/a.h5 {}/b.h5");
    ck_says("dtype: model/decoder/y/kernel is float32 in A, bfloat16 in B\n");
    ck_says("0 arrays have other values");
    /* What belongs to nobody's weights is no difference. */
    make_pair_file("a.h5", same, "model/decoder/dropout/rngs/count", MX_SHAPE(2), MX_U32);
    make_pair_file("b.h5", same, "mxtrain/eval_pending", MX_SHAPE(1), MX_I32);
    ck_tool(0, "mxcompare {}/a.h5 {}/b.h5");
    make_pair_file("b.h5", same, "optimizer/step", MX_SHAPE(1), MX_U32);
    ck_tool(1, "mxcompare {}/a.h5 {}/b.h5");
    ck_tool(0, "mxcompare {}/a.h5 {}/b.h5 --params-only");
}
END_TEST

/* ---- what a conversion makes and refuses */

START_TEST(parameters_alone_in_bfloat16) {
    const char *source = mx_arena_printf(&arena, "%s:train/final", model("llama2"));
    ck_tool(0, "mxconvert %s {}/p --params-only --scan-layers false --dtype bfloat16", source);
    ck_tool(1, "mxcompare {}/p %s --params-only --rtol 0.01", source); /* other dtypes */
    ck_says("0 arrays have other values");
    ck_says("0 only in A, 0 only in B; 0 other shapes, 30 other dtypes");
    MxH5 *file;
    MxH5Array *arrays;
    int n;
    ck_ok(mx_h5_open(&arena, in_folder("p/state.h5"), &file, &err));
    ck_ok(mx_h5_list(&arena, file, "", &arrays, &n, &err));
    ck_assert_int_eq(n, 3 + 3 * 9);
    for (int i = 0; i < n; i++) ck_assert_int_eq(arrays[i].dtype, MX_BF16);
    /* Widening gives the rounded values back. */
    ck_tool(0, "mxconvert {}/p {}/wide.h5 --dtype float32");
    ck_tool(0, "mxconvert {}/wide.h5 {}/again.h5 --dtype bfloat16");
    ck_tool(0, "mxcompare {}/p {}/again.h5");
}
END_TEST

START_TEST(a_plan_is_printed_and_nothing_written) {
    ck_tool(0, "mxconvert %s:linen {}/x.h5 --dry-run --layout nnx --scan-layers false",
            model("llama2"));
    ck_says("params/params/decoder/layers/mlp/wi_0/kernel [32, 3, 48] -> "
            "model/decoder/layers_2/mlp/wi_0/kernel [32, 48]  slice 2 of dim 1\n");
    ck_says("params/params/decoder/decoder_norm/scale [32] -> model/decoder/decoder_norm/scale "
            "[32]  copy\n");
    ck_assert(!mx_file_exists(in_folder("x.h5")));
    ck_tool(0, "mxconvert %s:linen_unscanned --dry-run --scan-layers true --dtype bfloat16",
            model("llama2"));
    ck_says(
        "params/params/decoder/layers_0/mlp/wi_0/kernel [32, 48] and 2 more -> "
        "params/params/decoder/layers/mlp/wi_0/kernel [32, 3, 48]  stack 3 at dim 1, float32 to "
        "bfloat16\n");
}
END_TEST

/* A small state with a reference model, as NNX files hold it. */
static void make_reference_file(const char *name) {
    MxH5 *file;
    static const float values[] = {1, 2, 3};
    static const uint32_t step = 7;
    ck_ok(mx_h5_create(&arena, in_folder(name), &file, &err));
    put_floats(file, "model/decoder/x/scale", values, 3);
    put_floats(file, "reference_model/decoder/x/scale", values, 3);
    ck_ok(mx_h5_write(file, "optimizer/step", MX_U32, MX_SCALAR, &step, &err));
    ck_ok(mx_h5_write(file, "mxtrain/eval_pending", MX_U32, MX_SCALAR, &step, &err));
    ck_ok(mx_h5_write_text(file, "mxtrain/note", "position of the data", &err));
    ck_ok(mx_h5_close(file, &err));
}

START_TEST(linen_leaves_the_reference_model_out) {
    make_reference_file("a.h5");
    ck_tool(0, "mxconvert {}/a.h5 {}/l.h5 --layout linen");
    ck_says("left out: 1 arrays of the reference model");
    ck_tool(1, "mxcompare {}/a.h5 {}/l.h5");
    ck_says("only in A: reference_model/decoder/x/scale");
    ck_says("4 arrays in both, 1 only in A, 0 only in B; 0 other shapes, 0 other dtypes");
    ck_tool(0, "mxconvert {}/a.h5 {}/n.h5");
    ck_tool(0, "mxcompare {}/a.h5 {}/n.h5");
    MxH5 *file;
    char *text;
    ck_ok(mx_h5_open(&arena, in_folder("l.h5"), &file, &err));
    ck_ok(mx_h5_read_text(&arena, file, "mxtrain/note", &text, &err));
    ck_assert_str_eq(text, "position of the data");
}
END_TEST

START_TEST(results_appear_whole_and_replace_nothing_unasked) {
    make_reference_file("a.h5");
    ck_tool(0, "mxconvert {}/a.h5 {}/run/checkpoints/7");
    ck_tool(73, "mxconvert {}/a.h5 {}/run/checkpoints/7");
    ck_says("exists already; --force replaces it");
    ck_tool(0, "mxconvert {}/a.h5 {}/run/checkpoints/7 --layout linen --force");
    ck_tool(0, "mxconvert {}/run {}/b.h5 --layout nnx"); /* a run's newest */
    ck_tool(73, "mxconvert {}/run/checkpoints/7 {}/b.h5");
    ck_tool(0, "mxconvert {}/run/checkpoints {}/b.h5 --force");
    ck_tool(0, "mxcompare {}/b.h5 {}/run/checkpoints/7/state.h5");
    ck_ok(mx_dir_make(in_folder("precious"), &err));
    ck_tool(73, "mxconvert {}/a.h5 {}/precious --force"); /* no checkpoint: never removed */
    ck_says("has no manifest of mxtrain's");
    char **names;
    int n;
    ck_ok(mx_dir_list(&arena, in_folder("run/checkpoints"), &names, &n, &err));
    ck_assert_int_eq(n, 1); /* nothing temporary */
    ck_ok(mx_dir_list(&arena, folder, &names, &n, &err));
    for (int i = 0; i < n; i++) ck_assert_msg(!strstr(names[i], "tmp"), "%s is left", names[i]);
    /* Damage of a folder is found before libhdf5 sees it. */
    MxBytes bytes = content("run/checkpoints/7/state.h5");
    bytes.data[bytes.size / 2] ^= 4;
    put_content("run/checkpoints/7/state.h5", bytes.data, bytes.size);
    ck_tool(65, "mxconvert {}/run/checkpoints/7 {}/c.h5");
    ck_says("is damaged");
    ck_tool(65, "mxcompare {}/run {}/a.h5");
    ck_tool(65, "mxcompare {}/run/checkpoints/7/state.h5 {}/a.h5");
    ck_says("is damaged");
}
END_TEST

/* --force took all of a folder that had a MANIFEST.json, whatever else had been put there. */
START_TEST(files_of_others_are_never_replaced) {
    static const float x[] = {1, 2, 3};
    make_pair_file("a.h5", x, NULL, MX_SCALAR, MX_F32);
    ck_tool(0, "mxconvert {}/a.h5 {}/out");
    ck_tool(0, "mxconvert {}/a.h5 {}/out --force");
    MxBytes before = content("out/MANIFEST.json");
    put_content("out/tokenizer.json", "{}", 2);
    ck_ok(mx_dir_make(in_folder("out/notes"), &err));
    ck_tool(73, "mxconvert {}/a.h5 {}/out --force --layout linen");
    ck_says("/out\" holds \"notes\" and 1 more, which its MANIFEST.json does not list");
    ck_says("hint: --force removes what mxtrain wrote and nothing else");
    MxBytes after = content("out/MANIFEST.json");
    ck_assert(before.size == after.size && !memcmp(before.data, after.data, after.size));
    ck_assert(mx_file_exists(in_folder("out/tokenizer.json")));
    put_content("out/MANIFEST.json", "{}", 2);
    ck_tool(73, "mxconvert {}/a.h5 {}/out --force");
    ck_says("has no manifest of mxtrain's");
    ck_assert(mx_file_exists(in_folder("out/state.h5")));
}
END_TEST

/* Integers trained as weights; which of two models was meant, only the reader knew. */
START_TEST(integers_are_no_weights) {
    static const float x[] = {1.5f, 2, -3};
    static const struct {
        MxDtype dtype;
        const char *says;
    } kinds[] = {{MX_U16, "x/scale\" holds uint16; weights are floats\n"
                          "hint: if they are the bits of bfloat16, mxconvert --assume-bfloat16"},
                 {MX_I32, "x/scale\" holds int32; weights are floats"},
                 {MX_I8, "x/scale\" holds int8; weights are floats"}};
    MxBf16 narrow[3];
    int32_t values[3];
    for (int i = 0; i < 3; i++) narrow[i] = mx_f32_to_bf16(x[i]);
    for (int k = 0; k < MX_COUNT(kinds); k++) {
        MxH5 *file;
        memset(values, 0, sizeof values);
        memcpy(values, narrow, sizeof narrow);
        ck_ok(mx_h5_create(&arena, in_folder("a.h5"), &file, &err));
        ck_ok(
            mx_h5_write(file, "model/decoder/x/scale", kinds[k].dtype, MX_SHAPE(3), values, &err));
        ck_ok(mx_h5_close(file, &err));
        ck_tool(65, "mxconvert {}/a.h5 {}/b.h5 --force");
        ck_says(kinds[k].says);
        MxTree tree;
        MxLeaf leaf = {.path = "model/decoder/x/scale", .dtype = MX_F32, .shape = MX_SHAPE(3)};
        leaf.data = mx_new_n(&arena, float, 3);
        mx_tree_init(&tree, &arena);
        mx_tree_add(&tree, leaf);
        ck_failed(mx_ckpt_load_params(in_folder("a.h5"), NULL, 1, &tree, &err), kinds[k].says);
        bool is_bf16 = kinds[k].dtype == MX_U16;
        ck_tool(is_bf16 ? 0 : 65, "mxconvert {}/a.h5 {}/b.h5 --force --assume-bfloat16");
        if (!is_bf16) continue;
        ck_ok(mx_ckpt_load_params(in_folder("b.h5"), NULL, 1, &tree, &err));
        ck_assert(!memcmp(leaf.data, x, sizeof x));
    }
}
END_TEST

START_TEST(one_model_is_meant) {
    static const float x[] = {1, 2, 3};
    make_pair_file("a.h5", x, "params/params/decoder/x/scale", MX_SHAPE(3), MX_F32);
    static const char *const lines[] = {
        "mxconvert {}/a.h5 {}/b.h5", "mxcompare {}/a.h5 {}/a.h5",
        ("mxtrain steps=1 load_parameters_path={}/a.h5 base_output_directory={} eval_interval=-1")};
    for (int i = 0; i < MX_COUNT(lines); i++) {
        ck_tool(65, "%s", lines[i]);
        ck_says("holds parameters below params/params and below model");
        ck_says("hint: name the group that is meant: FILE.h5:params/params");
    }
    ck_tool(0, "mxconvert {}/a.h5:params/params {}/b.h5");
    ck_tool(0, "mxconvert {}/a.h5:model {}/b.h5 --force");
}
END_TEST

/* A run's manifest names its family, and so may the command line. */
START_TEST(families_that_never_stack_are_told) {
    static const char words[] =
        "layers of gemma4_small cannot be stacked; --scan-layers false keeps them one by one, as "
        "runs do\n";
    ck_tool(0, "mxtrain decoder_block=gemma4_small base_num_decoder_layers=4 steps=1 "
               "inhomogeneous_layer_cycle_interval=2 sliding_window_size=8 num_kv_shared_layers=2 "
               "base_emb_dim=32 base_mlp_dim=32 head_dim=8 max_target_length=32 eval_interval=-1 "
               "base_output_directory={} run_name=a");
    ck_tool(65, "mxconvert {}/a {}/b --scan-layers true");
    ck_says(words);
    ck_assert_msg(!strstr(output, "hint:"), "%s", output);
    ck_tool(65, "mxconvert %s {}/b.h5 --scan-layers true --decoder-block gemma4_small",
            model("llama2"));
    ck_tool(0, "mxconvert {}/a {}/b --layout linen");
}
END_TEST

static void put_layer(MxH5 *file, int layer, const char *name, MxShape shape) {
    static const float zeros[64];
    ck_ok(mx_h5_write(file, mx_arena_printf(&arena, "model/decoder/layers_%d/%s", layer, name),
                      MX_F32, shape, zeros, &err));
}

START_TEST(all_that_does_not_fit_is_told) {
    MxH5 *file;
    ck_ok(mx_h5_create(&arena, in_folder("a.h5"), &file, &err));
    for (int i = 0; i < 4; i++) {
        put_layer(file, i, "norm/scale", MX_SHAPE(4));
        if (i % 2) put_layer(file, i, "gate/kernel", MX_SHAPE(4, 2));
        put_layer(file, i, "mlp/kernel", i == 3 ? MX_SHAPE(4, 6) : MX_SHAPE(4, 5));
    }
    ck_ok(mx_h5_close(file, &err));
    ck_tool(65, "mxconvert {}/a.h5 {}/b.h5 --scan-layers true");
    ck_says("\"model/decoder/layers/gate/kernel\" cannot be stacked: 2 of 4 layers lack it");
    ck_says("\"model/decoder/layers_3/mlp/kernel\" is float32 [4, 6]");
    ck_says("hint: layers that differ take turns");
    ck_assert(!mx_file_exists(in_folder("b.h5")));
    ck_tool(65, "mxconvert {}/a.h5 {}/b.h5 --scan-layers true --layer-cycle 2");
    ck_assert_msg(!strstr(output, "gate/kernel"), "%s", output); /* that fits now */
    ck_tool(65, "mxconvert %s {}/b.h5", model("llama2"));
    ck_says("FILE.h5:GROUP names one");
    ck_says("linen_unscanned");
}
END_TEST

START_TEST(layers_that_take_turns_are_stacked_as_told) {
    MxH5 *file;
    ck_ok(mx_h5_create(&arena, in_folder("a.h5"), &file, &err));
    for (int i = 0; i < 5; i++)
        put_layer(file, i, i % 2 ? "b/scale" : "a/scale", MX_SHAPE(i % 2 + 3));
    ck_ok(mx_h5_close(file, &err));
    ck_tool(0, "mxconvert {}/a.h5 {}/s.h5 --scan-layers true --layer-cycle 2");
    ck_ok(mx_h5_open(&arena, in_folder("s.h5"), &file, &err));
    MxH5Array array;
    ck_ok(mx_h5_stat(file, "model/decoder/layers/layers_1/b/scale", &array, &err));
    ck_assert(mx_shape_equal(array.shape, MX_SHAPE(4, 2)));
    ck_ok(mx_h5_stat(file, "model/decoder/layers_remainder/layers_0/a/scale", &array, &err));
    ck_assert(mx_shape_equal(array.shape, MX_SHAPE(3)));
    ck_tool(0, "mxconvert {}/s.h5 {}/u.h5 --scan-layers false");
    ck_tool(0, "mxcompare {}/a.h5 {}/u.h5");
    ck_tool(0, "mxconvert {}/u.h5 {}/s2.h5 --scan-layers true"); /* noted in the file */
    ck_same_bytes("s.h5", "s2.h5");
}
END_TEST

/* Stages have a dim of their own beside that of layers. */
START_TEST(stacks_of_pipelines_stay_whole) {
    const float ones[3] = {1, 1, 1};
    make_pair_file("a.h5", ones, "model/decoder/pipeline_module/layers/mlp/wi_0/kernel",
                   MX_SHAPE(2, 1, 2, 2), MX_F32);
    ck_tool(65, "mxconvert {}/a.h5 {}/b.h5 --scan-layers false");
    ck_says("pipeline_module/layers/mlp/wi_0/kernel");
    ck_says("only its name can be converted");
    ck_tool(0, "mxconvert {}/a.h5 {}/c.h5 --layout linen");
}
END_TEST

/* Of a run of places there is an array of all its layers. */
START_TEST(runs_without_layers_are_refused) {
    const float ones[3] = {1, 1, 1};
    make_pair_file("a.h5", ones, "model/decoder/layers_remainder/local_layers/mlp/wi_0/scale",
                   (MxShape){0}, MX_F32);
    ck_tool(65, "mxconvert {}/a.h5 {}/b.h5 --scan-layers false");
    ck_says("no dim of layers in it");
}
END_TEST

START_TEST(a_benchmark_leaves_nothing) {
    make_reference_file("a.h5");
    ck_tool(0, "mxconvert {}/a.h5 {}/%s --benchmark", _i ? "b.h5" : "b");
    ck_says("MB/s");
    char **names;
    int n;
    ck_ok(mx_dir_list(&arena, folder, &names, &n, &err));
    ck_assert_int_eq(n, 2); /* a.h5 and the log */
}
END_TEST

static const struct {
    const char *words;
    int code;
    const char *says;
} lines[] = {
    {"mxconvert", 2, "wanted SRC and DST"},
    {"mxconvert a.h5", 2, "wanted SRC and DST"},
    {"mxconvert a.h5 b.h5 c.h5", 2, "one argument too many"},
    {"mxconvert a.h5 b.h5 --layot nnx", 2, "did you mean \"--layout\"?"},
    {"mxconvert a.h5 b.h5 --layout hf", 2, "wanted linen or nnx"},
    {"mxconvert a.h5 b.h5 --scan-layers", 2,
     "--scan-layers wants a value: --scan-layers true|false"},
    {"mxconvert a.h5 b.h5 --scan-layers=maybe", 2, "found \"maybe\", wanted true or false"},
    {"mxconvert a.h5 b.h5 --param-scan-axis 9", 2, "wanted an integer from 0 to 5"},
    {"mxconvert a.h5 b.h5 --dtype int8", 2, "wanted float32 or bfloat16"},
    {"mxconvert a.h5 b.h5 --force=yes", 2, "takes no value"},
    {"mxconvert a.h5 b.h5 --force --benchmark", 2, "--benchmark removes DST"},
    {"mxconvert {}/nowhere.h5 {}/b.h5", 65, "nowhere.h5"},
    {"mxconvert {} {}/b.h5", 65, "MANIFEST.json"},
    {"mxconvert --help", 0, "usage: mxconvert"},
    {"mxconvert --version", 0, "mxconvert " MX_VERSION},
    {"mxcompare", 2, "wanted two checkpoints"},
    {"mxcompare a b --rtol x", 2, "wanted a number"},
    {"mxcompare a b --rtol -1", 2, "not negative"},
    {"mxcompare a b --ulp 1.5", 2, "wanted an integer"},
    {"mxcompare {}/nowhere.h5 {}/b.h5", 65, "nowhere.h5"},
    {"mxcompare --help", 0, "usage: mxcompare"},
    {"mxcompare --version", 0, "mxcompare " MX_VERSION},
};

START_TEST(command_lines_are_understood_or_refused) {
    ck_tool(lines[_i].code, "%s", lines[_i].words);
    ck_says(lines[_i].says);
}
END_TEST

Suite *tools_suite(void) {
    Suite *suite = suite_create("ckpt/tools");
    TCase *tcase = add_case(suite, "around");
    tcase_set_timeout(tcase, 600);
    tcase_add_loop_test(tcase, every_golden_model_goes_around, 0, 4);
    tcase_add_loop_test(tcase, maxtexts_own_forms_are_equal, 0, 3);
    tcase_add_test(tcase, a_whole_state_goes_around);
    tcase_add_loop_test(tcase, layers_move_to_any_dim, 0, 4);
    tcase_set_long(tcase);
    tcase = add_case(suite, "compare");
    tcase_add_test(tcase, one_flipped_bit_is_named);
    tcase_add_loop_test(tcase, values_are_equal_or_not, 0, MX_COUNT(value_cases));
    tcase_add_test(tcase, what_went_wrong_is_said);
    tcase_add_test(tcase, structure_is_told_whole);
    tcase = add_case(suite, "convert");
    tcase_add_test(tcase, parameters_alone_in_bfloat16);
    tcase_add_test(tcase, a_plan_is_printed_and_nothing_written);
    tcase_add_test(tcase, linen_leaves_the_reference_model_out);
    tcase_add_test(tcase, results_appear_whole_and_replace_nothing_unasked);
    tcase_add_test(tcase, files_of_others_are_never_replaced);
    tcase_add_test(tcase, integers_are_no_weights);
    tcase_add_test(tcase, one_model_is_meant);
    tcase_add_test(tcase, families_that_never_stack_are_told);
    tcase_add_test(tcase, all_that_does_not_fit_is_told);
    tcase_add_test(tcase, layers_that_take_turns_are_stacked_as_told);
    tcase_add_test(tcase, stacks_of_pipelines_stay_whole);
    tcase_add_test(tcase, runs_without_layers_are_refused);
    tcase_add_loop_test(tcase, a_benchmark_leaves_nothing, 0, 2);
    tcase_add_loop_test(tcase, command_lines_are_understood_or_refused, 0, MX_COUNT(lines));
    return suite;
}
