/* test_golden_cost.c — the sufficiency check against MaxText's on the real models. MaxText divides
 * elements by bytes; the test does that itself with the report's numbers, and gives our check,
 * which divides by elements, the tolerance that asks the same question. */
#include "shard_test.h"

#include <stdio.h>
#include <stdlib.h>

/* Changes of one rule that some rows are about (golden cost/README.md). */
static const struct {
    const char *name, *rule;
} variants[] = {
    {"exp-unsharded", "exp:()"},
    {"mlp-unsharded", "mlp:()"},
    {"embed-unsharded", "embed:()"},
    {"embed_vocab-unsharded", "embed_vocab:()"},
    {"embed-first-rule-only", "embed:(fsdp,fsdp_transpose)"},
    {"embed-last-rule-only", "embed:(fsdp,context)"},
};

/* The rules of a name are replaced. */
static MxRules rules_with(const MxRules *rules, const MxRules *own) {
    MxRule *list = mx_new_n(&arena, MxRule, rules->n + own->n);
    int n = 0;
    for (int i = 0; i < rules->n; i++)
        if (!rules->rule[i].axis || mx_map_get(&own->first, rules->rule[i].axis, -1) < 0)
            list[n++] = rules->rule[i];
    for (int i = 0; i < own->n; i++) list[n++] = own->rule[i];
    return mx_rules_new(&arena, list, n);
}

static MxRules rules_with_variant(const RuleSet *set, const char *variant) {
    for (int i = 0; i < MX_COUNT(variants); i++) {
        if (strcmp(variants[i].name, variant)) continue;
        MxRules own = rules_of(variants[i].rule);
        return rules_with(&set->rules, &own);
    }
    ck_abort_msg("no variant %s", variant);
    return set->rules;
}

/* The table with the model's logical names: that of the mesh, or of another one. */
static const char *file_of(const char *model, const char *mesh) {
    const char *meshes[] = {mesh, "one", "fsdp8", "fsdp4_fsdpt2"};
    for (int i = 0; i < MX_COUNT(meshes); i++) {
        const char *file = mx_arena_printf(&arena, "params/%s__%s__scan.tsv", model, meshes[i]);
        if (golden_has(file)) return file;
    }
    return NULL;
}

static int arrays_of(const char *file, const MxRules *rules, const MxMesh *mesh,
                     MxShardArray **out) {
    Table t = golden_read(file);
    *out = mx_new_n(&arena, MxShardArray, t.n_rows);
    int n = 0;
    for (int i = 0; i < t.n_rows; i++) {
        const char *path = cell(&t, i, "nnx_path");
        if (!strcmp(path, "-")) continue;
        MxShardArray *a = &(*out)[n++];
        *a = (MxShardArray){.path = path + strlen("model/"),
                            .shape = shape_of(cell(&t, i, "shape"))};
        ck_assert(mx_dtype_parse(cell(&t, i, "dtype"), &a->dtype));
        MxSpec raw;
        ck_assert(mx_shard_resolve(&arena, rules, names_of(cell(&t, i, "nnx_logical")), NULL, &raw,
                                   &err));
        a->spec = mx_shard_clean(&arena, mesh, raw);
    }
    return n;
}

/* "['decoder']['wi_0'].value 99 P(None, 'fsdp') unsharded=expert; …" are the first we list. */
static void check_largest(const char *want, const char *ours) {
    if (!strcmp(want, "-")) return;
    while (*want) {
        MxText path;
        mx_text_init(&path, &arena);
        for (; *want == '['; want += strcspn(want, "]") + 1) {
            const char *name = want + strspn(want, "['");
            mx_text_add(&path, "%s%.*s", path.len ? "/" : "", (int)strcspn(name, "']"), name);
        }
        want += strcspn(want, " ") + 1;
        int digits = (int)strcspn(want, " "), spec = (int)(strstr(want, " unsharded=") - want);
        const char *line =
            mx_arena_printf(&arena, " - Name: %s(Size: %.*s, ", path.data, digits, want);
        const char *found = strstr(ours, line);
        ck_assert_msg(found, "no \"%s\" in %s", line, ours);
        const char *rest = mx_arena_printf(&arena, "Spec: %.*s)  is unsharded on axis: [",
                                           spec - digits - 1, want + digits + 1);
        const char *end = strchr(found, '\n');
        const char *at = strstr(found, rest);
        ck_assert_msg(at && (!end || at < end), "no \"%s\" in %s", rest, found);
        ours = found + 1; /* in this order */
        want = strchr(want, ';');
        want = want ? want + 2 : "";
    }
}

static void same_number(const Table *t, int i, const char *column, int64_t got) {
    ck_assert_msg(strtoll(cell(t, i, column), NULL, 10) == got, "row %d: %s is %lld, wanted %s",
                  i + 2, column, (long long)got, cell(t, i, column));
}

static void check_row(const Table *t, int i, const char *file, const char *mesh_name) {
    const char *plus = strchr(mesh_name, '+');
    RuleSet set = rule_set_of_run(cell(t, i, "model"), mesh_name);
    MxRules rules = plus ? rules_with_variant(&set, plus + 1) : set.rules;
    MxMesh mesh = mesh_of_run(&set, cell(t, i, "mesh_axes"));
    MxShardArray *arrays;
    int n = arrays_of(file, &rules, &mesh, &arrays);
    double tolerance = strtod(cell(t, i, "tolerance"), NULL);
    MxShardReport r;
    MxTolerance ours = {.fraction = 4 * tolerance}; /* all weights are float32 */
    bool ok = mx_shard_sufficient(&mesh, arrays, n, ours, &r, &err);
    ck_assert_int_eq(r.total_bytes, 4 * r.total_elements);
    same_number(t, i, "unsharded_tensors", r.n_unsharded);
    same_number(t, i, "unsharded_size", r.unsharded_elements);
    same_number(t, i, "total_bytes", r.total_bytes);
    same_number(t, i, "total_params", r.total_elements);
    double ratio = (double)r.unsharded_elements / (double)r.total_bytes;
    ck_assert_msg(ratio == strtod(cell(t, i, "ratio"), NULL), "row %d: ratio %.17g", i + 2, ratio);
    const char *result = cell(t, i, "result");
    ck_assert_msg(ok == !strcmp(result, "ok"), "row %d: ok is %d, wanted %s", i + 2, ok, result);
    if (ok) return;
    const char *upstream = mx_arena_printf(
        &arena,
        "AssertionError: Unsharded parameter percentage (%.2f%%)exceeds tolerance (%.2f%%).",
        100 * ratio, 100 * tolerance);
    ck_assert_str_eq(upstream, result);
    const char *first = mx_arena_printf(
        &arena, "Unsharded parameter percentage (%.2f%%)exceeds tolerance (%.2f%%).\n",
        100 * r.fraction, 400 * tolerance);
    ck_assert_msg(mx_text_has_prefix(err.text.data, first), "%s", err.text.data);
    check_largest(cell(t, i, "largest_unsharded"), err.text.data);
}

START_TEST(sharding_check) {
    Table t = golden_read("cost/sharding_check.tsv");
    int n = 0, n_failed = 0;
    for (int i = 0; i < t.n_rows; i++) {
        if (mx_text_has_prefix(cell(&t, i, "result"), "ValueError")) {
            n_failed++; /* MaxText cannot build that model on that mesh */
            continue;
        }
        MxArena outer = arena;
        arena = (MxArena){.name = "row"};
        const char *mesh = cell(&t, i, "mesh");
        const char *file =
            file_of(cell(&t, i, "model"), mx_arena_strndup(&arena, mesh, strcspn(mesh, "+")));
        if (file) check_row(&t, i, file, mesh);
        n += file != NULL;
        mx_error_release(&err);
        mx_arena_release(&arena);
        arena = outer;
    }
    printf("golden cost/sharding_check: %d of %d, %d models that cannot be built\n", n, t.n_rows,
           n_failed);
    ck_assert_int_gt(n, 0);
    if (goldens_is_complete()) ck_assert_int_eq(n + n_failed, t.n_rows);
}
END_TEST

Suite *golden_cost_suite(void) {
    Suite *s = suite_create("golden cost");
    suite_add(s, "sharding_check", sharding_check, 120);
    return s;
}
