/* test_adapters.c — parameters and adapters from elsewhere, in every form: base weights alone,
 * with adapters, adapters alone, and what does not fit. */
#include "ckpt_test.h"

#include <ckpt/internal.h>

enum { LAYERS = 2, RANK = 3, IN = 4, OUT = 5 };

/* What a file holds. */
enum { BASE = 1, A = 2, B = 4, ADAPTERS = A | B };

static void add(MxTree *tree, const char *name, int layer, MxKind kind, MxShape shape) {
    MxLeaf leaf = {.kind = kind, .dtype = MX_F32, .shape = shape};
    leaf.path = mx_arena_printf(&arena, "model/decoder/layers_%d/mlp/wo/%s", layer, name);
    leaf.stack = (MxStack){.path = mx_arena_printf(&arena, "model/decoder/layers/mlp/wo/%s", name),
                           .axis = "layers",
                           .index = layer,
                           .count = LAYERS};
    leaf.data = mx_arena_alloc(&arena, leaf_bytes(&leaf));
    mx_tree_add(tree, leaf);
}

/* A model with those of its leaves; element k of leaf i is seed + 100 i + k. */
static MxTree model(int parts, int64_t rank, float seed) {
    MxTree tree;
    mx_tree_init(&tree, &arena);
    for (int i = 0; i < LAYERS; i++) {
        if (parts & BASE) add(&tree, "kernel", i, MX_KIND_PARAM, MX_SHAPE(IN, OUT));
        if (parts & A) add(&tree, "kernel_lora_a", i, MX_KIND_LORA_PARAM, MX_SHAPE(IN, rank));
        if (parts & B) add(&tree, "kernel_lora_b", i, MX_KIND_LORA_PARAM, MX_SHAPE(rank, OUT));
    }
    for (int i = 0; i < tree.n; i++) {
        float *x = tree.leaves[i].data;
        for (int64_t k = 0; k < mx_shape_count(tree.leaves[i].shape); k++)
            x[k] = seed + 100 * (float)i + (float)k;
    }
    return tree;
}

static const char *write_model(const MxTree *tree, MxForm form) {
    const char *path = in_folder("model.h5");
    MxH5 *file;
    ck_ok(mx_h5_create(&arena, path, &file, &err) && ckpt_write(file, form, tree, NULL, &err) &&
          mx_h5_close(file, &err));
    return path;
}

/* Every leaf of a kind is that of `want`. */
static void check_kind(const MxTree *got, const MxTree *want, MxKind kind) {
    for (int i = 0; i < got->n; i++) {
        const MxLeaf *leaf = &got->leaves[i];
        int at = mx_tree_find(want, leaf->path);
        if (leaf->kind == kind)
            ck_assert_msg(at >= 0 && !memcmp(leaf->data, want->leaves[at].data, leaf_bytes(leaf)),
                          "%s", leaf->path);
    }
}

/* ---- parameters */

START_TEST(a_base_leaves_adapters_as_they_are) {
    MxTree from = model(BASE, RANK, 7), state = model(BASE | ADAPTERS, RANK, 1);
    MxTree before = model(BASE | ADAPTERS, RANK, 1);
    ck_ok(mx_ckpt_load_params(write_model(&from, forms[_i]), NULL, forms[_i].scan_axis, &state,
                              &err));
    check_kind(&state, &from, MX_KIND_PARAM);
    check_kind(&state, &before, MX_KIND_LORA_PARAM);
}
END_TEST

START_TEST(adapters_beside_the_base_are_read) {
    MxTree from = model(BASE | ADAPTERS, RANK, 7), state = model(BASE | ADAPTERS, RANK, 1);
    ck_ok(mx_ckpt_load_params(write_model(&from, forms[_i]), NULL, forms[_i].scan_axis, &state,
                              &err));
    check_kind(&state, &from, MX_KIND_PARAM);
    check_kind(&state, &from, MX_KIND_LORA_PARAM);
}
END_TEST

START_TEST(some_adapters_are_not_enough) {
    MxTree from = model(BASE | A, RANK, 7), state = model(BASE | ADAPTERS, RANK, 1);
    ck_failed(
        mx_ckpt_load_params(write_model(&from, forms[_i]), NULL, forms[_i].scan_axis, &state, &err),
        "kernel_lora_b\" is missing; the model wants float32 [3, 5]");
}
END_TEST

/* ---- adapters */

static const int sources[] = {ADAPTERS, BASE | ADAPTERS};

START_TEST(adapters_alone_are_read) {
    const int n = MX_COUNT(sources);
    MxTree from = model(sources[_i % n], RANK, 7), state = model(BASE | ADAPTERS, RANK, 1);
    MxTree before = model(BASE | ADAPTERS, RANK, 1);
    ck_ok(mx_ckpt_load_adapters(write_model(&from, forms[_i / n]), NULL, forms[_i / n].scan_axis,
                                &state, &err));
    check_kind(&state, &from, MX_KIND_LORA_PARAM);
    check_kind(&state, &before, MX_KIND_PARAM);
}
END_TEST

START_TEST(a_source_without_adapters_is_told) {
    MxTree from = model(BASE, RANK, 7), state = model(BASE | ADAPTERS, RANK, 1);
    ck_failed(mx_ckpt_load_adapters(write_model(&from, forms[_i]), NULL, forms[_i].scan_axis,
                                    &state, &err),
              "kernel_lora_a\" is missing; the model wants float32 [4, 3]");
}
END_TEST

START_TEST(another_rank_is_told) {
    MxTree from = model(ADAPTERS, RANK + 1, 7), state = model(BASE | ADAPTERS, RANK, 1);
    const char *path = write_model(&from, forms[_i]);
    const char *want = "kernel_lora_a\" has shape [4, 4]; the model wants [4, 3]";
    if (forms[_i].is_scanned)
        want = forms[_i].scan_axis == 0
                   ? "kernel_lora_a\" has shape [2, 4, 4]; the model wants [2, 4, 3]"
               : forms[_i].scan_axis == 1
                   ? "kernel_lora_a\" has shape [4, 2, 4]; the model wants [4, 2, 3]"
                   : "kernel_lora_a\" has shape [4, 4, 2]; the model wants [4, 3, 2]";
    ck_failed(mx_ckpt_load_adapters(path, NULL, forms[_i].scan_axis, &state, &err), want);
}
END_TEST

Suite *adapters_suite(void) {
    Suite *suite = suite_create("ckpt/adapters");
    TCase *tcase = add_case(suite, "adapters");
    tcase_add_loop_test(tcase, a_base_leaves_adapters_as_they_are, 0, n_forms);
    tcase_add_loop_test(tcase, adapters_beside_the_base_are_read, 0, n_forms);
    tcase_add_loop_test(tcase, some_adapters_are_not_enough, 0, n_forms);
    tcase_add_loop_test(tcase, adapters_alone_are_read, 0, n_forms * MX_COUNT(sources));
    tcase_add_loop_test(tcase, a_source_without_adapters_is_told, 0, n_forms);
    tcase_add_loop_test(tcase, another_rank_is_told, 0, n_forms);
    return suite;
}
