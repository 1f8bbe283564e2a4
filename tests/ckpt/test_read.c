/* test_read.c — reading trees: MaxText's own files in all their forms, everything that was written
 * in every form, and what is told when names or shapes do not agree. */
#include "ckpt_test.h"

#include <ckpt/internal.h>

/* ---- MaxText's files */

/* Every group holds the same parameters; the last ones start further down. */
static const char *const groups[] = {
    "linen",        "nnx",       "linen_unscanned",     "nnx_unscanned",
    "linen/params", "nnx/model", "linen/params/params", "linen_unscanned/params/params",
};

static const float *raw(MxH5 *file, const char *path, MxShape shape) {
    float *data = mx_new_n(&arena, float, mx_shape_count(shape));
    ck_ok(mx_h5_read(file, path, MX_F32, shape, data, &err));
    return data;
}

START_TEST(all_forms_of_maxtext_give_the_same_parameters) {
    MxH5 *file = open_golden("llama2");
    MxTree state = golden_state(3);
    ck_ok(mx_ckpt_read(file, groups[_i], "model/", 1, &state, &err));
    for (int i = 0; i < state.n; i++) {
        const MxLeaf *leaf = &state.leaves[i];
        if (!mx_text_has_prefix(leaf->path, "model/")) continue;
        const char *path = mx_arena_printf(&arena, "nnx_unscanned/%s", leaf->path);
        ck_assert_msg(!memcmp(raw(file, path, leaf->shape), leaf->data, leaf_bytes(leaf)),
                      "%s: %s differs", groups[_i], leaf->path);
    }
    for (int i = 0; i < state.n; i++) { /* the rest is left alone */
        const uint8_t *bytes = state.leaves[i].data;
        if (mx_text_has_prefix(state.leaves[i].path, "model/")) continue;
        for (size_t k = 0; k < leaf_bytes(&state.leaves[i]); k++)
            if (bytes[k]) ck_abort_msg("%s was written", state.leaves[i].path);
    }
}
END_TEST

START_TEST(a_whole_state_of_maxtext_is_read) {
    MxH5 *file = open_golden("llama2");
    MxTree state = golden_state(3);
    ck_ok(mx_ckpt_read(file, "train/final", "", 1, &state, &err)); /* nnx_aux is not extra */
    const uint32_t *step = state.leaves[mx_tree_find(&state, "optimizer/step")].data;
    const int32_t *count = state.leaves[mx_tree_find(&state, "optimizer/opt_state/2/count")].data;
    ck_assert_uint_eq(*step, 5);
    ck_assert_int_eq(*count, 5);
    const float *whole = raw(file, "train/final/opt_state/0/nu/params/decoder/layers/mlp/wo/kernel",
                             MX_SHAPE(48, 3, 32));
    const char *path = "optimizer/opt_state/0/nu/decoder/layers_1/mlp/wo/kernel";
    const float *layer = state.leaves[mx_tree_find(&state, path)].data;
    for (int m = 0; m < 48; m++)
        ck_assert_msg(!memcmp(&layer[m * 32], &whole[(m * 3 + 1) * 32], 32 * sizeof(float)),
                      "row %d", m);
}
END_TEST

/* A file that was stacked at axis 0, read by a config that says 1, and the reverse. */
START_TEST(another_scan_axis_is_found_by_looking) {
    MxH5 *file = open_golden(_i ? "llama2" : "variants/param_scan_axis0");
    int n_layers = _i ? 3 : 2;
    MxTree as_said = golden_state(n_layers), as_found = golden_state(n_layers);
    MxTree zeros = golden_state(n_layers);
    ck_ok(mx_ckpt_read(file, "linen", "model/", _i, &as_said, &err));
    ck_ok(mx_ckpt_read(file, "linen", "model/", 1 - _i, &as_found, &err));
    ck_same(&as_said, &as_found, "model/", "the other axis");
    int leaf = mx_tree_find(&zeros, "model/decoder/layers_1/mlp/wo/kernel");
    ck_assert(memcmp(as_said.leaves[leaf].data, zeros.leaves[leaf].data,
                     leaf_bytes(&zeros.leaves[leaf])) != 0);
}
END_TEST

/* ---- what was written */

static MxH5 *create(const char *name) {
    MxH5 *file;
    ck_ok(mx_h5_create(&arena, in_folder(name), &file, &err));
    return file;
}

static MxH5 *reopen(MxH5 *file) {
    const char *path = mx_arena_strdup(&arena, mx_h5_path(file));
    ck_ok(mx_h5_close(file, &err));
    ck_ok(mx_h5_open(&arena, path, &file, &err));
    return file;
}

static MxH5 *written(MxForm form, const MxTree *state) {
    MxH5 *file = create("state.h5");
    ck_ok(ckpt_write(file, form, state, NULL, &err));
    return reopen(file);
}

START_TEST(every_form_comes_back_bit_by_bit) {
    MxForm form = forms[_i / 3];
    MxTree state = small_state(1), back = small_state(0);
    MxH5 *file = written(form, &state);
    /* The reader's own axis is only where it looks first. */
    int scan_axis = form.scan_axis > 1 ? form.scan_axis : _i % 3;
    ck_ok(mx_ckpt_read(file, "", "", scan_axis, &back, &err));
    ck_same(&state, &back, "",
            mx_arena_printf(&arena, "%s read with axis %d", form_text(form), scan_axis));
    MxTree params = small_state(0);
    ck_ok(mx_ckpt_read(file, "", "model/", scan_axis, &params, &err));
    ck_same(&state, &params, "model/", form_text(form));
    MxTree untouched = small_state(0);
    ck_same(&untouched, &params, "optimizer/", form_text(form));
}
END_TEST

/* ---- values that are kept elsewhere */

static void read_kept(void *data, int array, MxBox box, void *host) {
    const MxLeaf *leaf = &((const MxTree *)data)->leaves[array];
    const MxBox all = mx_box_of(leaf->shape);
    mx_box_copy(&box, &all, leaf->data, &box, host, mx_dtype_bytes(leaf->dtype));
}

static void write_kept(void *data, int array, MxBox box, const void *host) {
    const MxLeaf *leaf = &((const MxTree *)data)->leaves[array];
    const MxBox all = mx_box_of(leaf->shape);
    mx_box_copy(&box, &box, host, &all, leaf->data, mx_dtype_bytes(leaf->dtype));
}

static void *no_map(void *data, int array) {
    (void)data, (void)array;
    return NULL;
}

/* The same leaves; their values can be had from the tree alone, a box at a time. */
static MxTree kept_by(MxTree *tree) {
    MxTree shown;
    MxKeeper *keeper = mx_new(&arena, MxKeeper);
    *keeper = (MxKeeper){.data = tree, .read = read_kept, .write = write_kept, .map = no_map};
    mx_tree_init(&shown, &arena);
    for (int i = 0; i < tree->n; i++) {
        MxLeaf leaf = mx_leaf_abstract(tree->leaves[i]);
        leaf.keeper = keeper;
        leaf.array = i;
        mx_tree_add(&shown, leaf);
    }
    return shown;
}

START_TEST(every_form_comes_back_from_elsewhere) {
    MxTree state = small_state(1), back = small_state(0);
    MxTree from = kept_by(&state), to = kept_by(&back);
    MxH5 *file = written(forms[_i], &from);
    int scan_axis = forms[_i].scan_axis;
    ck_ok(mx_ckpt_read(file, "", "", scan_axis, &to, &err));
    ck_same(&state, &back, "", form_text(forms[_i]));
}
END_TEST

/* Every leaf is where its place says, as a slice or whole. */
START_TEST(leaves_are_written_to_their_places) {
    MxTree state = small_state(2);
    MxH5 *file = written(forms[_i], &state);
    for (int i = 0; i < state.n; i++) {
        const MxLeaf *leaf = &state.leaves[i];
        MxPlace place = mx_ckpt_place(&arena, forms[_i], leaf);
        MxBox box = {.rank = place.shape.rank};
        memcpy(box.count, place.shape.dim, sizeof box.count);
        if (place.scan_dim >= 0) {
            box.start[place.scan_dim] = leaf->stack.index;
            box.count[place.scan_dim] = 1;
        }
        void *data = mx_arena_alloc(&arena, leaf_bytes(leaf));
        ck_ok(mx_h5_read_box(file, place.path, place.dtype, box, data, &err));
        ck_assert_msg(!memcmp(data, leaf->data, leaf_bytes(leaf)), "%s: %s", form_text(forms[_i]),
                      leaf->path);
    }
}
END_TEST

/* A stack whose layers are as many as a dim is long: the config's axis decides. */
START_TEST(an_ambiguous_stack_is_read_at_the_configs_axis) {
    MxTree state, back;
    mx_tree_init(&state, &arena);
    mx_tree_init(&back, &arena);
    static const char *const paths[] = {"model/layers_0/x", "model/layers_1/x"};
    for (int i = 0; i < 2; i++) {
        MxLeaf leaf = {.path = paths[i],
                       .shape = MX_SHAPE(2),
                       .stack = {.path = "model/layers/x", .axis = "", .index = i, .count = 2}};
        float *data = mx_new_n(&arena, float, 2);
        data[0] = (float)(10 * i);
        data[1] = (float)(10 * i + 1);
        leaf.data = data;
        mx_tree_add(&state, leaf);
        leaf.data = mx_new_n(&arena, float, 2);
        mx_tree_add(&back, leaf);
    }
    MxH5 *file = written((MxForm){.is_scanned = true, .scan_axis = _i}, &state);
    ck_ok(mx_ckpt_read(file, "", "", _i, &back, &err));
    ck_same(&state, &back, "", "ambiguous");
}
END_TEST

/* ---- other names, types and companions */

/* Writes a parameter-like array of zeros, or of one value. */
static void put(MxH5 *file, const char *path, MxDtype dtype, MxShape shape, float value) {
    size_t n = (size_t)mx_shape_count(shape);
    float *wide = mx_new_n(&arena, float, n);
    MxBf16 *narrow = mx_new_n(&arena, MxBf16, n);
    for (size_t i = 0; i < n; i++) {
        wide[i] = value;
        narrow[i] = mx_f32_to_bf16(value);
    }
    const void *data = dtype == MX_F32 ? (const void *)wide : narrow;
    ck_ok(mx_h5_write(file, path, dtype, shape, data, &err));
}

static MxTree two_params(void) {
    MxTree tree;
    mx_tree_init(&tree, &arena);
    mx_tree_add(&tree, (MxLeaf){.path = "model/a/kernel",
                                .shape = MX_SHAPE(2, 3),
                                .data = mx_new_n(&arena, float, 6)});
    mx_tree_add(&tree, (MxLeaf){.path = "model/b/scale",
                                .shape = MX_SHAPE(3),
                                .data = mx_new_n(&arena, float, 3)});
    return tree;
}

static const struct {
    const char *a, *b;
    MxDtype dtype;
} spellings[] = {
    {"model/a/kernel", "model/b/scale", MX_F32},
    {"model/a/kernel/value", "model/b/scale/value", MX_F32}, /* nnx variables written whole */
    {"model/a/kernel/value", "model/b/scale", MX_F32},
    {"params/params/a/kernel", "params/params/b/scale", MX_BF16},
    {"params/a/kernel", "params/b/scale", MX_F32},
    {"model_params/a/kernel", "model_params/b/scale", MX_F32},
    {"a/kernel", "b/scale", MX_BF16},
    {"params/params/a/kernel/value", "params/params/b/scale/value", MX_F32},
};

START_TEST(other_spellings_are_found) {
    MxH5 *file = create("other.h5");
    put(file, spellings[_i].a, spellings[_i].dtype, MX_SHAPE(2, 3), 1.5f);
    put(file, spellings[_i].b, spellings[_i].dtype, MX_SHAPE(3), -2.0f);
    MxTree tree = two_params();
    ck_ok(mx_ckpt_read(reopen(file), "", "model/", 1, &tree, &err));
    const float *a = tree.leaves[0].data, *b = tree.leaves[1].data;
    ck_assert_msg(a[0] == 1.5f && a[5] == 1.5f && b[0] == -2 && b[2] == -2, "%s", spellings[_i].a);
}
END_TEST

START_TEST(random_state_beside_weights_is_not_extra) {
    MxH5 *file = create("rngs.h5");
    put(file, "model/a/kernel", MX_F32, MX_SHAPE(2, 3), 1);
    put(file, "model/b/scale", MX_F32, MX_SHAPE(3), 1);
    put(file, "model/a/rngs/params/key", MX_F32, MX_SHAPE(2), 1);
    put(file, "model/dropout/rngs/count", MX_F32, MX_SCALAR, 1);
    put(file, "model/layers/dropout/count", MX_F32, MX_SCALAR, 1);
    put(file, "optimizer/opt_state/0/mu/a/kernel", MX_F32, MX_SHAPE(2, 3), 1); /* not asked for */
    MxTree tree = two_params();
    ck_ok(mx_ckpt_read(reopen(file), "", "model/", 1, &tree, &err));
}
END_TEST

/* Numbers of a table's rows, which nothing else may be. */
START_TEST(tables_of_numbers_are_looked_at) {
    static const struct {
        float value;
        const char *says; /* NULL = it is one */
    } values[] = {{3, NULL},
                  {4, "has 4 at 0; wants whole numbers below 4"},
                  {-1, "has -1"},
                  {1.5f, "has 1.5"}};
    for (int i = 0; i < MX_COUNT(values); i++) {
        MxH5 *file = create(mx_arena_printf(&arena, "table_%d.h5", i));
        put(file, "model/a/kernel", MX_F32, MX_SHAPE(2, 3), values[i].value);
        put(file, "model/b/scale", MX_F32, MX_SHAPE(3), 1.5f);
        MxTree tree = two_params();
        tree.leaves[0].init = (MxInit){.kind = MX_INIT_CYCLE, .std = 4};
        bool ok = mx_ckpt_read(reopen(file), "", "model/", 1, &tree, &err);
        ck_assert(ok == !values[i].says);
        ck_assert_msg(ok || strstr(err.text.data, values[i].says), "%s", err.text.data);
        mx_error_release(&err);
    }
}
END_TEST

START_TEST(everything_wrong_is_told_at_once) {
    MxH5 *file = create("wrong.h5");
    put(file, "model/a/kernel", MX_F32, MX_SHAPE(3, 2), 1);
    put(file, "model/c/kernel", MX_F32, MX_SHAPE(4), 1);
    put(file, "model/d/kernel", MX_F32, MX_SCALAR, 1);
    put(file, "elsewhere/kernel", MX_F32, MX_SHAPE(4), 1);
    MxTree tree = two_params();
    file = reopen(file);
    bool ok = mx_ckpt_read(file, "", "model/", 1, &tree, &err);
    ck_assert_int_eq(err.count, 4);
    const char *path = mx_h5_path(file);
    const char *want =
        mx_arena_printf(&arena,
                        "%s: \"model/a/kernel\" has shape [3, 2]; the model wants [2, 3]\n"
                        "%s: \"model/b/scale\" is missing; the model wants float32 [3]\n"
                        "%s: \"model/c/kernel\" [4] is not in the model\n"
                        "%s: \"model/d/kernel\" [] is not in the model",
                        path, path, path, path);
    ck_assert_str_eq(err.text.data, want);
    ck_failed(ok, "is missing");
}
END_TEST

START_TEST(a_stack_of_another_depth_is_told_once) {
    MxTree state = small_state(3), deeper, back = small_state(0);
    mx_tree_init(&deeper, &arena);
    for (int i = 0; i < state.n; i++) { /* the same as if it were of four layers */
        MxLeaf leaf = state.leaves[i];
        if (leaf.stack.count) leaf.stack.count = 4;
        mx_tree_add(&deeper, leaf);
    }
    MxH5 *file = written((MxForm){.is_scanned = true, .scan_axis = 1}, &deeper);
    bool ok = mx_ckpt_read(file, "", "model/", 1, &back, &err);
    ck_assert_int_eq(err.count, 3); /* stacks, not layers */
    ck_failed(ok, "\"model/decoder/layers/mlp/wi_0/kernel\" has shape [4, 4, 5]; the model wants "
                  "[4, 3, 5]");
}
END_TEST

START_TEST(a_missing_group_is_an_error) {
    MxTree tree = two_params();
    MxH5 *file = open_golden("llama2");
    bool ok = mx_ckpt_read(file, "nowhere", "model/", 1, &tree, &err);
    ck_failed(ok, "nowhere");
}
END_TEST

START_TEST(an_integer_array_is_no_weight) {
    MxH5 *file = create("integers.h5");
    put(file, "model/b/scale", MX_F32, MX_SHAPE(3), 1);
    const char *const text[] = {"model/step"};
    MxTree tree;
    mx_tree_init(&tree, &arena);
    mx_tree_add(&tree,
                (MxLeaf){.path = text[0], .dtype = MX_U32, .data = mx_new(&arena, uint32_t)});
    mx_tree_add(&tree, (MxLeaf){.path = "model/b/scale",
                                .shape = MX_SHAPE(3),
                                .data = mx_new_n(&arena, float, 3)});
    put(file, text[0], MX_F32, MX_SCALAR, 1); /* a float where a count is wanted */
    bool ok = mx_ckpt_read(reopen(file), "", "model/", 1, &tree, &err);
    ck_failed(ok, "model/step");
}
END_TEST

Suite *read_suite(void) {
    Suite *suite = suite_create("ckpt/read");
    TCase *tcase = add_case(suite, "maxtext");
    tcase_add_loop_test(tcase, all_forms_of_maxtext_give_the_same_parameters, 0, MX_COUNT(groups));
    tcase_add_test(tcase, a_whole_state_of_maxtext_is_read);
    tcase_add_loop_test(tcase, another_scan_axis_is_found_by_looking, 0, 2);
    tcase = add_case(suite, "own files");
    tcase_add_loop_test(tcase, every_form_comes_back_bit_by_bit, 0, 3 * n_forms);
    tcase_add_loop_test(tcase, every_form_comes_back_from_elsewhere, 0, n_forms);
    tcase_add_loop_test(tcase, leaves_are_written_to_their_places, 0, n_forms);
    tcase_add_loop_test(tcase, an_ambiguous_stack_is_read_at_the_configs_axis, 0, 2);
    tcase = add_case(suite, "other files");
    tcase_add_loop_test(tcase, other_spellings_are_found, 0, MX_COUNT(spellings));
    tcase_add_test(tcase, random_state_beside_weights_is_not_extra);
    tcase_add_test(tcase, tables_of_numbers_are_looked_at);
    tcase_add_test(tcase, everything_wrong_is_told_at_once);
    tcase_add_test(tcase, a_stack_of_another_depth_is_told_once);
    tcase_add_test(tcase, a_missing_group_is_an_error);
    tcase_add_test(tcase, an_integer_array_is_no_weight);
    return suite;
}
