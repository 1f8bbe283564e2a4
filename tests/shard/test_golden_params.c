/* test_golden_params.c — every parameter and activation constraint of the real models that MaxText
 * was asked about: logical names to raw spec, spec and shard shape. */
#include "shard_test.h"

#include <stdio.h>

/* One table's run: its rules and mesh. */
typedef struct Run {
    const char *name;
    RuleSet set;
    MxMesh mesh;
} Run;

static const char *shape_text(MxShape shape) {
    MxText text;
    mx_text_init(&text, &arena);
    if (!shape.rank) mx_text_add(&text, "scalar");
    for (int d = 0; d < shape.rank; d++)
        mx_text_add(&text, "%s%lld", d ? "x" : "", (long long)shape.dim[d]);
    return text.data;
}

static void same(const Run *run, const char *path, const char *what, const char *got,
                 const char *want) {
    ck_assert_msg(!strcmp(got, want), "%s: %s: %s is %s, wanted %s", run->name, path, what, got,
                  want);
}

/* The columns of one form (NNX or Linen) of one row; false if the form lacks the row. */
static bool check_row(const Run *run, const Table *t, int i, bool is_nnx) {
#define COLUMN(name) cell(t, i, is_nnx ? "nnx_" name : "linen_" name)
    const char *path = COLUMN("path");
    if (!strcmp(COLUMN("logical"), "-")) return false;
    MxSpec raw;
    bool ok =
        mx_shard_resolve(&arena, &run->set.rules, names_of(COLUMN("logical")), NULL, &raw, &err);
    ck_assert_msg(ok, "%s: %s: %s", run->name, path, ok ? "" : err.text.data);
    same(run, path, "spec_raw", text_of(raw), COLUMN("spec_raw"));
    MxShardArray array = {.path = path,
                          .shape = shape_of(cell(t, i, is_nnx ? "shape" : "linen_shape")),
                          .spec = mx_shard_clean(&arena, &run->mesh, raw)};
    same(run, path, "spec", text_of(array.spec), COLUMN("spec"));
    MxShape shard;
    ok = mx_shard_shape(&run->mesh, &array, &shard, &err);
    same(run, path, "shard_shape", ok ? shape_text(shard) : "ERR IndivisibleError",
         COLUMN("shard_shape"));
    mx_error_release(&err);
#undef COLUMN
    return true;
}

START_TEST(parameters) {
    Table index = golden_read("params/params_index.tsv");
    int n_files = 0, n_rows = 0, n_listed = 0;
    for (int f = 0; f < index.n_rows; f++) {
        if (strcmp(cell(&index, f, "nnx"), "ok")) continue;
        n_listed++;
        MxArena outer = arena;
        arena = (MxArena){.name = "file"};
        Run run = {.name = cell(&index, f, "name")};
        const char *file = mx_arena_printf(&arena, "params/%s.tsv", run.name);
        if (golden_has(file)) {
            run.set = rule_set_of_run(cell(&index, f, "model"), cell(&index, f, "mesh"));
            run.mesh = mesh_of_run(&run.set, cell(&index, f, "mesh_axes"));
            Table t = golden_read(file);
            for (int i = 0; i < t.n_rows; i++)
                n_rows += check_row(&run, &t, i, true) + check_row(&run, &t, i, false);
            n_files++;
        }
        mx_arena_release(&arena);
        arena = outer;
    }
    printf("golden params: %d arrays of %d files of %d\n", n_rows, n_files, n_listed);
    ck_assert_int_gt(n_files, 0);
    if (goldens_is_complete()) ck_assert_int_eq(n_files, n_listed);
}
END_TEST

START_TEST(activations) {
    Table t = golden_read("activations/activations.tsv");
    Table index = golden_read("params/params_index.tsv");
    int n = 0, physical = 0;
    for (int i = 0; i < t.n_rows; i++) {
        const char *mesh = cell(&t, i, "mesh"), *sizes = NULL;
        if (!strcmp(cell(&t, i, "logical"), "<unknown>")) { /* MaxText passes a physical spec */
            physical++;
            continue;
        }
        for (int f = 0; f < index.n_rows && !sizes; f++)
            if (!strcmp(cell(&index, f, "mesh"), mesh)) sizes = cell(&index, f, "mesh_axes");
        ck_assert_msg(sizes, "no mesh %s", mesh);
        Run run = {.name = cell(&t, i, "model")};
        run.set = rule_set_of_run(run.name, mesh);
        run.mesh = mesh_of_run(&run.set, sizes);
        MxSpec raw;
        ck_assert(mx_shard_resolve(&arena, &run.set.rules, names_of(cell(&t, i, "logical")), NULL,
                                   &raw, &err));
        same(&run, cell(&t, i, "where"), "spec_raw", text_of(raw), cell(&t, i, "spec_raw"));
        same(&run, cell(&t, i, "where"), "spec", text_of(mx_shard_clean(&arena, &run.mesh, raw)),
             cell(&t, i, "spec"));
        n++;
    }
    printf("golden activations: %d of %d, %d without logical names\n", n, t.n_rows, physical);
    ck_assert_int_eq(n + physical, t.n_rows);
}
END_TEST

Suite *golden_params_suite(void) {
    Suite *s = suite_create("golden params");
    suite_add(s, "parameters", parameters, 120);
    suite_add(s, "activations", activations, 120);
    return s;
}
