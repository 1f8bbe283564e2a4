/* test_tree.c — named trees: finding by path, copying below a prefix, counting by kind. */
#include "base/child.h"
#include "common/suite.h"

#include <mx/tree.h>

static MxArena arena = {.name = "test"};

static void tear_down(void) {
    mx_arena_release(&arena);
}

START_TEST(adds_and_finds) {
    enum { N = 200 };
    MxTree tree;
    mx_tree_init(&tree, &arena);
    ck_assert_int_eq(mx_tree_find(&tree, "a"), -1);
    for (int i = 0; i < N; i++) {
        MxLeaf leaf = {.path = mx_arena_printf(&arena, "layers_%d/kernel", i),
                       .dtype = MX_BF16,
                       .shape = MX_SHAPE(i + 1, 2)};
        ck_assert_int_eq(mx_tree_add(&tree, leaf), i);
    }
    ck_assert_int_eq(tree.n, N);
    for (int i = 0; i < N; i++) {
        ck_assert_int_eq(mx_tree_find(&tree, mx_arena_printf(&arena, "layers_%d/kernel", i)), i);
        ck_assert_int_eq(tree.leaves[i].shape.dim[0], i + 1);
        ck_assert_int_eq(tree.leaves[i].dtype, MX_BF16);
    }
    ck_assert_int_eq(mx_tree_find(&tree, "layers_1"), -1);
    ck_assert_int_eq(mx_tree_find(&tree, "layers_1/kernel/"), -1);
}
END_TEST

static void add_twice(const void *unused) {
    (void)unused;
    MxTree tree;
    mx_tree_init(&tree, &arena);
    mx_tree_add(&tree, (MxLeaf){.path = "a/b"});
    mx_tree_add(&tree, (MxLeaf){.path = "a/c"});
    mx_tree_add(&tree, (MxLeaf){.path = "a/b"});
}

START_TEST(a_path_occurs_once) {
    ck_aborts(add_twice, NULL, "src/tree/tree.c:", "mx_tree_find(tree, leaf.path) < 0");
}
END_TEST

/* A tree of parameters, two of them in a stack. */
static MxTree params(void) {
    MxTree tree;
    mx_tree_init(&tree, &arena);
    static float data[6];
    mx_tree_add(&tree, (MxLeaf){.path = "norm/scale", .shape = MX_SHAPE(3)});
    for (int i = 0; i < 2; i++)
        mx_tree_add(
            &tree,
            (MxLeaf){.path = i ? "layers_1/kernel" : "layers_0/kernel",
                     .shape = MX_SHAPE(2, 3),
                     .axes = {"embed", "mlp"},
                     .init = {.kind = MX_INIT_NORMAL, .std = 0.5},
                     .stack = {.path = "layers/kernel", .axis = "layers", .index = i, .count = 2},
                     .data = data});
    return tree;
}

START_TEST(copies_below_a_prefix) {
    MxTree from = params(), tree;
    mx_tree_init(&tree, &arena);
    mx_tree_add_under(&tree, "model", &from);
    MxLeaf *mu = mx_tree_add_under(&tree, "mu", &from);
    for (int i = 0; i < from.n; i++) {
        mu[i].kind = MX_KIND_OPTIMIZER;
        mu[i].dtype = MX_BF16;
    }
    ck_assert_int_eq(tree.n, 6);
    const MxLeaf *p = &tree.leaves[mx_tree_find(&tree, "model/layers_1/kernel")];
    const MxLeaf *m = &tree.leaves[mx_tree_find(&tree, "mu/layers_1/kernel")];
    ck_assert_int_eq(p->kind, MX_KIND_PARAM);
    ck_assert_int_eq(p->dtype, MX_F32);
    ck_assert_int_eq(m->kind, MX_KIND_OPTIMIZER);
    ck_assert_int_eq(m->dtype, MX_BF16);
    ck_assert_str_eq(m->path, "mu/layers_1/kernel");
    ck_assert_str_eq(m->stack.path, "mu/layers/kernel");
    ck_assert_str_eq(m->stack.axis, "layers");
    ck_assert_int_eq(m->stack.index, 1);
    ck_assert_int_eq(m->stack.count, 2);
    ck_assert_str_eq(m->axes[1], "mlp");
    ck_assert(m->init.std == 0.5);
    const MxLeaf *scale = &tree.leaves[mx_tree_find(&tree, "mu/norm/scale")];
    ck_assert_ptr_null(scale->stack.path);
    ck_assert_int_eq(scale->stack.count, 0);
    ck_assert_str_eq(from.leaves[1].path, "layers_0/kernel"); /* the source is as it was */
    ck_assert_int_eq(from.n, 3);
}
END_TEST

START_TEST(counts_elements_of_a_kind) {
    MxTree from = params(), tree;
    mx_tree_init(&tree, &arena);
    ck_assert_int_eq(mx_tree_count(&tree, MX_KIND_PARAM), 0);
    mx_tree_add_under(&tree, "model", &from);
    for (int m = 0; m < 2; m++) {
        MxLeaf *moments = mx_tree_add_under(&tree, m ? "nu" : "mu", &from);
        for (int i = 0; i < from.n; i++) moments[i].kind = MX_KIND_OPTIMIZER;
    }
    mx_tree_add(&tree, (MxLeaf){.path = "step", .kind = MX_KIND_COUNTER});
    mx_tree_add(&tree, (MxLeaf){.path = "large",
                                .kind = MX_KIND_COUNTER,
                                .shape = MX_SHAPE((int64_t)1 << 20, (int64_t)1 << 20)});
    ck_assert_int_eq(mx_tree_count(&tree, MX_KIND_PARAM), 15);
    ck_assert_int_eq(mx_tree_count(&tree, MX_KIND_OPTIMIZER), 30);
    ck_assert_int_eq(mx_tree_count(&tree, MX_KIND_COUNTER), 1 + ((int64_t)1 << 40));
}
END_TEST

START_TEST(selects_a_kind) {
    MxTree from = params();
    from.leaves[1].kind = MX_KIND_LORA_PARAM;
    MxTree *adapters = mx_tree_select(&arena, &from, MX_KIND_LORA_PARAM);
    ck_assert_int_eq(adapters->n, 1);
    ck_assert_str_eq(adapters->leaves[0].path, "layers_0/kernel");
    ck_assert_int_eq(mx_tree_find(adapters, "layers_1/kernel"), -1);
    ck_assert_int_eq(mx_tree_select(&arena, &from, MX_KIND_PARAM)->n, 2);
}
END_TEST

/* ---- values that are kept elsewhere */

static const MxDivision second_half = {
    .rank = 1,
    .n_ranks = 2,
    .box = (const MxBox[]){{2, {0, 0}, {2, 3}}, {2, {2, 0}, {2, 3}}},
    .first = (const int[]){0, 1},
};

static float kept[2][6];
static bool is_mapped;

static void read_kept(void *data, int array, MxBox box, void *host) {
    float(*arrays)[6] = data;
    const MxBox all = {2, {0, 0}, {2, 3}};
    mx_box_copy(&box, &all, arrays[array], &box, host, sizeof(float));
}

static void write_kept(void *data, int array, MxBox box, const void *host) {
    float(*arrays)[6] = data;
    const MxBox all = {2, {0, 0}, {2, 3}};
    mx_box_copy(&box, &box, host, &all, arrays[array], sizeof(float));
}

static void *map_kept(void *data, int array) {
    float(*arrays)[6] = data;
    return is_mapped ? arrays[array] : NULL;
}

START_TEST(values_may_be_kept_elsewhere) {
    const MxKeeper keeper = {.data = kept, .read = read_kept, .write = write_kept, .map = map_kept};
    const MxLeaf leaf = {.path = "x",
                         .shape = MX_SHAPE(4, 3),
                         .keeper = &keeper,
                         .array = 1,
                         .division = &second_half};
    float host[6] = {0}, rows[3] = {0};
    is_mapped = _i;
    for (int i = 0; i < 6; i++) kept[1][i] = (float)i;
    ck_assert(mx_leaf_has_values(&leaf));
    ck_assert_uint_eq(mx_leaf_bytes(&leaf), sizeof kept[1]);
    ck_assert_int_eq(mx_leaf_part(&leaf).start[0], 2);
    ck_assert(mx_leaf_map(&leaf) == (is_mapped ? kept[1] : NULL));
    const float *second = mx_leaf_rows(&leaf, 1, 1, rows);
    ck_assert(second == (is_mapped ? &kept[1][3] : rows));
    ck_assert(!memcmp(second, &kept[1][3], sizeof rows));
    mx_leaf_read(&leaf, host);
    ck_assert(!memcmp(host, kept[1], sizeof host));
    ck_assert(!memcmp(mx_leaf_values(&arena, &leaf), kept[1], sizeof host));
    host[5] = -1;
    mx_leaf_write(&leaf, host);
    ck_assert(kept[1][5] < 0);
    MxLeaf own = mx_leaf_on_host(&arena, leaf);
    mx_leaf_write(&own, host);
    ck_assert(own.data && !memcmp(own.data, host, sizeof host));
    ck_assert(!mx_leaf_has_values(&(MxLeaf){.path = "y"}));
    own = mx_leaf_abstract(leaf);
    ck_assert(!mx_leaf_has_values(&own));
    own = mx_leaf_on_host(&arena, own);
    ck_assert(!mx_leaf_has_values(&own));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("tree");
    TCase *tcase = tcase_create("tree");
    tcase_add_checked_fixture(tcase, NULL, tear_down);
    tcase_add_test(tcase, adds_and_finds);
    tcase_add_test(tcase, a_path_occurs_once);
    tcase_add_test(tcase, copies_below_a_prefix);
    tcase_add_test(tcase, counts_elements_of_a_kind);
    tcase_add_test(tcase, selects_a_kind);
    tcase_add_loop_test(tcase, values_may_be_kept_elsewhere, 0, 2);
    suite_add_tcase(suite, tcase);
    return RUN_SUITES(suite);
}
