/* trees.c — the parameters of models with adapters, as MaxText builds them with qwix: paths,
 * shapes, dtypes and specs on a mesh of fsdp 4, tensor 2; and what every optimizer keeps for whole
 * models: paths, shapes and dtypes. */
#include "plan_test.h"

#include <mx/ckpt.h>
#include <mx/model.h>
#include <mx/optim.h>

#include <stdio.h>

static const struct {
    const char *words, *why;
} skipped[] = {
    {"headloop", "the pre-training loop that adds no adapters"},
};

/* Modules that MaxText's own pattern finds, where ours finds more. */
static const struct {
    const char *name, *modules;
} found_less[] = {
    {"deepseek2-16b__scan__adamw__lora8",
     "decoder/dense_layers/(self_attention/(query|out|wkv_a|wkv_b)|mlp/(wi_0|wi_1|wo))"},
};

static const char *with_modules(const char *name, const char *overrides) {
    for (int i = 0; i < MX_COUNT(found_less); i++)
        if (!strcmp(name, found_less[i].name))
            return mx_arena_printf(&arena, "%s lora.lora_module_path=%s", overrides,
                                   found_less[i].modules);
    return overrides;
}

static bool is_skipped(const char *name, const char *overrides) {
    for (int i = 0; i < MX_COUNT(skipped); i++)
        if (strstr(name, skipped[i].words) || strstr(overrides, skipped[i].words)) return true;
    return false;
}

/* Names of cases whose optimizer is another: dropout's random numbers; second moments in bfloat16,
 * where ours are float32 whatever weights are kept in. */
static bool is_other_optimizer(const char *name) {
    return strstr(name, "__lora") || strstr(name, "dropout") || strstr(name, "weightbf16");
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
        check_tree(name, with_modules(name, overrides));
        n++;
    }
    printf("golden trees: %d with adapters equal\n", n);
    ck_assert_int_ge(n, 3);
}
END_TEST

/* ---- what optimizers keep */

/* The row of a leaf where its stack has it; later layers have none. */
static const char *kept_row(const MxConfig *c, const MxLeaf *leaf) {
    MxForm form = {.is_scanned = c->scan_layers, .scan_axis = (int)c->param_scan_axis};
    if (c->scan_layers && leaf->stack.count && leaf->stack.index) return NULL;
    MxPlace place = mx_ckpt_place(&arena, form, leaf);
    MxText row;
    mx_text_init(&row, &arena);
    mx_text_add(&row, "%s %s", place.path, place.shape.rank ? "" : "scalar");
    for (int d = 0; d < place.shape.rank; d++)
        mx_text_add(&row, "%s%lld", d ? "x" : "", (long long)place.shape.dim[d]);
    const char *dtype = place.dtype == MX_U8 ? "bool" : mx_dtype_name(place.dtype);
    mx_text_add(&row, " %s", dtype);
    return row.data;
}

static void expect_row(MxMap *rows, const char *name, const char *row, int *n) {
    if (!row) return;
    ck_assert_msg(mx_map_get(rows, row, 0) == 1, "%s: unexpected row %s", name, row);
    mx_map_set(rows, row, 2);
    ++*n;
}

/* MaxText's masked and empty nodes are no arrays. */
static void check_kept(const char *name, const char *overrides) {
    MxConfig *config = config_of(overrides);
    MxModel *model;
    MxOptim *o;
    MxError err = {0};
    ck_assert(mx_model_new(&arena, config, &model, &err));
    ck_assert_msg(
        mx_optim_new(&arena, config, mx_model_params(model), mx_model_trains(model), &o, &err),
        "%s", err.text.data);
    Table want = golden_read(mx_arena_printf(&arena, "trees/%s.nnx.tsv", name));
    MxMap rows;
    mx_map_init(&rows, &arena);
    int n_wanted = 0, n = 0;
    for (int i = 0; i < want.n_rows; i++) {
        if (strncmp(cell(&want, i, "path"), "optimizer/opt_state/", 20) ||
            !strcmp(cell(&want, i, "shape"), "-"))
            continue;
        mx_map_set(&rows,
                   mx_arena_printf(&arena, "%s %s %s", cell(&want, i, "path"),
                                   cell(&want, i, "shape"), cell(&want, i, "dtype")),
                   1);
        n_wanted++;
    }
    for (int i = 0; i < o->n_arrays; i++)
        expect_row(&rows, name, kept_row(config, &o->arrays[i].leaf), &n);
    for (int i = 0; i < o->numbers.n; i++)
        expect_row(&rows, name, kept_row(config, &o->numbers.leaves[i]), &n);
    ck_assert_msg(n == n_wanted, "%s: %d rows, wanted %d", name, n, n_wanted);
}

START_TEST(trees_of_optimizers) {
    Table index = golden_read("trees/trees_index.tsv");
    int n = 0;
    for (int i = 0; i < index.n_rows; i++) {
        const char *name = cell(&index, i, "case"), *overrides = cell(&index, i, "overrides");
        const char *preset = mx_arena_printf(&arena, "configs/models/%s.yml", model_of(name));
        if (is_other_optimizer(name) || is_skipped(name, overrides) || !mx_file_exists(preset) ||
            strcmp(cell(&index, i, "nnx"), "ok") ||
            !golden_has(mx_arena_printf(&arena, "trees/%s.nnx.tsv", name)))
            continue;
        check_kept(name, overrides);
        n++;
    }
    printf("golden trees: %d of optimizers equal\n", n);
    ck_assert_int_ge(n, 3);
}
END_TEST

Suite *trees_suite(void) {
    Suite *s = suite_create("trees");
    suite_add(s, "adapters", trees_with_adapters, 120);
    suite_add(s, "optimizers", trees_of_optimizers, 120);
    return s;
}
