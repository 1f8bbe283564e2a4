/* test_layout.c — where leaves are in files: against the trees that MaxText itself wrote, every
 * array of theirs and every leaf of ours, and the rule for stacked dims. */
#include "ckpt_test.h"

/* Groups of the golden llama2 file that hold trees. */
static const struct {
    const char *group, *section; /* the leaves that are there */
    MxForm form;
} trees[] = {
    {"linen", "model/", {.is_linen = true, .is_scanned = true, .scan_axis = 1}},
    {"nnx", "model/", {.is_scanned = true, .scan_axis = 1}},
    {"linen_unscanned", "model/", {.is_linen = true}},
    {"nnx_unscanned", "model/", {0}},
    {"train/final", "", {.is_linen = true, .is_scanned = true, .scan_axis = 1}},
};

START_TEST(every_array_of_maxtext_has_its_leaf) {
    MxH5 *file = open_golden("llama2");
    MxTree state = golden_state(3);
    MxH5Array *arrays;
    int n;
    ck_ok(mx_h5_list(&arena, file, trees[_i].group, &arrays, &n, &err));
    MxMap by_path;
    mx_map_init(&by_path, &arena);
    int n_arrays = 0;
    for (int i = 0; i < n; i++) {
        if (mx_text_has_prefix(arrays[i].path, "nnx_aux/")) continue; /* random number state */
        mx_map_set(&by_path, arrays[i].path, i);
        n_arrays++;
    }
    bool *is_used = mx_new_n(&arena, bool, n);
    int n_used = 0;
    for (int i = 0; i < state.n; i++) {
        const MxLeaf *leaf = &state.leaves[i];
        if (!mx_text_has_prefix(leaf->path, trees[_i].section)) continue;
        MxPlace place = mx_ckpt_place(&arena, trees[_i].form, leaf);
        int64_t k = mx_map_get(&by_path, place.path, -1);
        ck_assert_msg(k >= 0, "%s: \"%s\" is not there", trees[_i].group, place.path);
        ck_assert_msg(arrays[k].dtype == place.dtype, "%s: \"%s\" is %s, not %s", trees[_i].group,
                      place.path, mx_dtype_name(arrays[k].dtype), mx_dtype_name(place.dtype));
        ck_assert_msg(mx_shape_equal(arrays[k].shape, place.shape), "%s: \"%s\" is %s, not %s",
                      trees[_i].group, place.path, mx_shape_text(&arena, arrays[k].shape),
                      mx_shape_text(&arena, place.shape));
        n_used += !is_used[k];
        is_used[k] = true;
    }
    ck_assert_msg(n_used == n_arrays, "%s: %d of %d arrays are leaves", trees[_i].group, n_used,
                  n_arrays);
}
END_TEST

static const struct {
    int scan_axis;
    MxShape leaf, stack;
    int scan_dim;
} stacks[] = {
    {0, {1, {4}}, {2, {3, 4}}, 0},
    {1, {1, {4}}, {2, {4, 3}}, 1},
    {2, {1, {4}}, {2, {4, 3}}, 1}, /* past the end: last */
    {0, {2, {4, 5}}, {3, {3, 4, 5}}, 0},
    {1, {2, {4, 5}}, {3, {4, 3, 5}}, 1},
    {2, {2, {4, 5}}, {3, {4, 5, 3}}, 2},
    {7, {2, {4, 5}}, {3, {4, 5, 3}}, 2},
    {1, {3, {4, 2, 6}}, {4, {4, 3, 2, 6}}, 1},
    {1, {0}, {1, {3}}, 0},
};

START_TEST(stacks_have_the_layers_at_the_scan_axis) {
    MxLeaf leaf = {
        .path = "model/decoder/layers_2/x",
        .dtype = MX_F32,
        .shape = stacks[_i].leaf,
        .stack = {.path = "model/decoder/layers/x", .axis = "layers", .index = 2, .count = 3}};
    MxForm form = {.is_scanned = true, .scan_axis = stacks[_i].scan_axis};
    MxPlace place = mx_ckpt_place(&arena, form, &leaf);
    ck_assert_str_eq(place.path, "model/decoder/layers/x");
    ck_assert_msg(mx_shape_equal(place.shape, stacks[_i].stack), "row %d: %s", _i,
                  mx_shape_text(&arena, place.shape));
    ck_assert_int_eq(place.scan_dim, stacks[_i].scan_dim);
    form.is_scanned = false;
    place = mx_ckpt_place(&arena, form, &leaf);
    ck_assert_str_eq(place.path, "model/decoder/layers_2/x");
    ck_assert(mx_shape_equal(place.shape, stacks[_i].leaf));
    ck_assert_int_eq(place.scan_dim, -1);
}
END_TEST

static const struct {
    const char *nnx, *linen;
    MxDtype dtype, linen_dtype;
} names[] = {
    {"model/decoder/x", "params/params/decoder/x", MX_F32, MX_F32},
    {"optimizer/step", "step", MX_U32, MX_I32},
    {"optimizer/opt_state/0/count", "opt_state/0/count", MX_I32, MX_I32},
    {"optimizer/opt_state/1/count", "opt_state/1/count", MX_I32, MX_I32},
    {"optimizer/opt_state/0/mu/decoder/x", "opt_state/0/mu/params/decoder/x", MX_BF16, MX_BF16},
    {"optimizer/opt_state/0/nu/decoder/x", "opt_state/0/nu/params/decoder/x", MX_F32, MX_F32},
};

START_TEST(names_translate) {
    MxLeaf leaf = {.path = names[_i].nnx, .dtype = names[_i].dtype, .shape = MX_SHAPE(2)};
    MxPlace nnx = mx_ckpt_place(&arena, (MxForm){.is_scanned = true}, &leaf);
    MxPlace linen = mx_ckpt_place(&arena, (MxForm){.is_linen = true, .is_scanned = true}, &leaf);
    ck_assert_str_eq(nnx.path, names[_i].nnx);
    ck_assert_int_eq(nnx.dtype, names[_i].dtype);
    ck_assert_str_eq(linen.path, names[_i].linen);
    ck_assert_int_eq(linen.dtype, names[_i].linen_dtype);
    ck_assert_int_eq(linen.scan_dim, -1); /* never stacked, in no form */
}
END_TEST

Suite *layout_suite(void) {
    Suite *suite = suite_create("ckpt/layout");
    TCase *tcase = add_case(suite, "layout");
    tcase_add_loop_test(tcase, every_array_of_maxtext_has_its_leaf, 0, MX_COUNT(trees));
    tcase_add_loop_test(tcase, stacks_have_the_layers_at_the_scan_axis, 0, MX_COUNT(stacks));
    tcase_add_loop_test(tcase, names_translate, 0, MX_COUNT(names));
    return suite;
}
