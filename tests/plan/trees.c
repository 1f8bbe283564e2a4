/* trees.c — the parameters of models with adapters, as MaxText builds them with qwix: paths,
 * shapes, dtypes and specs on a mesh of fsdp 4, tensor 2. */
#include "plan_test.h"

#include <stdio.h>

static const struct {
    const char *words, *why;
} skipped[] = {
    {"headloop", "the pre-training loop that adds no adapters"},
};

static bool is_skipped(const char *name, const char *overrides) {
    for (int i = 0; i < MX_COUNT(skipped); i++)
        if (strstr(name, skipped[i].words) || strstr(overrides, skipped[i].words)) return true;
    return false;
}

static const char *model_of(const char *name) {
    return mx_arena_strndup(&arena, name, (size_t)(strstr(name, "__") - name));
}

static const char *tree_row(const Table *t, int row) {
    return mx_arena_printf(&arena, "%s %s %s %s", cell(t, row, "path"), cell(t, row, "shape"),
                           cell(t, row, "dtype"), cell(t, row, "spec"));
}

/* The dump equals the tree's parameters, as sets of rows. */
static void check_tree(const char *name, const char *overrides) {
    const char *file = temp_path("dump.tsv");
    run_ok(mx_arena_printf(&arena, "--config configs/base.yml --plan --dump-sharding %s %s", file,
                           overrides));
    Table got = table_of(read_text(file), file);
    Table want = golden_read(mx_arena_printf(&arena, "trees/%s.nnx.tsv", name));
    MxMap rows;
    mx_map_init(&rows, &arena);
    int n = 0;
    for (int i = 0; i < want.n_rows; i++) {
        const char *type = cell(&want, i, "type");
        if (strcmp(type, "Param") && strcmp(type, "LoRAParam")) continue;
        mx_map_set(&rows, tree_row(&want, i), 1);
        n++;
    }
    ck_assert_msg(got.n_rows == n, "%s: %d rows, wanted %d", name, got.n_rows, n);
    for (int i = 0; i < got.n_rows; i++) {
        const char *row = tree_row(&got, i);
        ck_assert_msg(mx_map_get(&rows, row, 0) == 1, "%s: unexpected row %s", name, row);
        mx_map_set(&rows, row, 2);
    }
}

START_TEST(trees_with_adapters) {
    Table index = golden_read("trees/trees_index.tsv");
    int n = 0;
    for (int i = 0; i < index.n_rows; i++) {
        const char *name = cell(&index, i, "case"), *overrides = cell(&index, i, "overrides");
        if (!strstr(name, "__lora") || is_skipped(name, overrides)) continue;
        const char *preset = mx_arena_printf(&arena, "configs/models/%s.yml", model_of(name));
        if (!mx_file_exists(preset) || strcmp(cell(&index, i, "nnx"), "ok") ||
            !golden_has(mx_arena_printf(&arena, "trees/%s.nnx.tsv", name)))
            continue;
        check_tree(name, overrides);
        n++;
    }
    printf("golden trees: %d with adapters equal\n", n);
    ck_assert_int_ge(n, 3);
}
END_TEST

Suite *trees_suite(void) {
    Suite *s = suite_create("trees");
    suite_add(s, "adapters", trees_with_adapters, 120);
    return s;
}
