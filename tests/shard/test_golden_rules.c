/* test_golden_rules.c — the room's pure functions against what flax and MaxText answered: every row
 * of golden sharding/rules. */
#include "shard_test.h"

#include <stdio.h>

static bool names_hold(MxSpec names, const char *axis) {
    for (int d = 0; d < names.rank; d++)
        if (names.dim[d].is_name && !strcmp(names.dim[d].axes[0], axis)) return true;
    return false;
}

/* Upstream lists repeated names as a Python tuple; ours has the same names in the same order. */
static void check_repeated(const char *upstream, const char *ours, const char *id) {
    const char *p = strchr(upstream, '(');
    for (p++; *p && *p != ')'; p++) {
        if (*p != '\'') continue;
        size_t n = strcspn(p + 1, "'");
        const char *quoted = mx_arena_printf(&arena, "\"%.*s\"", (int)n, p + 1);
        const char *found = strstr(ours, quoted);
        ck_assert_msg(found, "%s: %s is missing in: %s", id, quoted, ours);
        ours = found;
        p += n + 1;
    }
}

/* The error that building a NamedSharding raises upstream is ours from mx_shard_check. */
static void check_usable(const RuleSet *set, MxSpec spec, const char *want, const char *id) {
    if (!strcmp(want, "-")) return;
    MxMesh mesh = mesh_of_run(set, "unused=1");
    bool ok = mx_shard_check(&mesh, spec, NULL, &err);
    const char *words = strstr(want, "DuplicateSpecError") ? "more than once"
                        : strstr(want, "Resource axis")    ? "the mesh has no axis"
                                                           : NULL;
    ck_assert_msg(ok == !strcmp(want, "ok"), "%s: usable: %d, wanted %s", id, ok, want);
    if (!ok) ck_assert_msg(words && strstr(err.text.data, words), "%s: %s", id, err.text.data);
    mx_error_release(&err);
}

START_TEST(cases) {
    Table t = golden_read("rules/cases.tsv");
    int resolved = 0, refused = 0, inexpressible = 0;
    for (int i = 0; i < t.n_rows; i++) {
        const char *id = cell(&t, i, "case"), *want = cell(&t, i, "result");
        RuleSet found = rule_set(cell(&t, i, "rule_set")), *set = &found;
        MxSpec names = names_of(cell(&t, i, "names")), spec;
        /* [a, x, y] and [a, [[x, y], z]] have no MxRule: whoever reads the list refuses them. */
        if (set->is_malformed || (set->nested_axis && names_hold(names, set->nested_axis))) {
            ck_assert_msg(!strcmp(want, "ERROR"), "%s: wanted %s", id, want);
            inexpressible++;
            continue;
        }
        bool ok = mx_shard_resolve(&arena, &set->rules, names, NULL, &spec, &err);
        ck_assert_msg(ok == !!strcmp(want, "ERROR"), "%s: ok is %d, wanted %s", id, ok, want);
        if (ok) {
            ck_assert_msg(!strcmp(text_of(spec), want), "%s: %s, wanted %s", id, text_of(spec),
                          want);
            check_usable(set, spec, cell(&t, i, "named_sharding"), id);
            resolved++;
        } else {
            check_repeated(cell(&t, i, "error"), err.text.data, id);
            mx_error_release(&err);
            refused++;
        }
    }
    printf("golden rules/cases: %d specs, %d repeated names, %d not expressible, of %d\n", resolved,
           refused, inexpressible, t.n_rows);
    ck_assert_int_eq(inexpressible, 6);
    ck_assert_int_eq(resolved + refused + inexpressible, t.n_rows);
}
END_TEST

START_TEST(remove_size_one) {
    Table t = golden_read("rules/remove_size_one.tsv"), m = golden_read("rules/meshes.tsv");
    for (int i = 0; i < t.n_rows; i++) {
        MxMesh mesh = {0};
        for (int k = 0; k < m.n_rows; k++)
            if (!strcmp(cell(&m, k, "mesh"), cell(&t, i, "mesh")))
                mesh = mesh_of(cell(&m, k, "axes"));
        ck_assert_int_gt(mesh.n, 0);
        MxSpec spec = mx_shard_clean(&arena, &mesh, spec_of(cell(&t, i, "spec")));
        ck_assert_msg(!strcmp(text_of(spec), cell(&t, i, "result")), "%s on %s: %s, wanted %s",
                      cell(&t, i, "case"), cell(&t, i, "mesh"), text_of(spec),
                      cell(&t, i, "result"));
    }
    printf("golden rules/remove_size_one: %d of %d\n", t.n_rows, t.n_rows);
}
END_TEST

/* One row of a pure_*.tsv: its mesh and array. */
static MxShardArray array_of(const Table *t, int i, MxMesh *mesh) {
    *mesh = mesh_of(cell(t, i, "mesh"));
    return (MxShardArray){
        .path = "w", .shape = shape_of(cell(t, i, "shape")), .spec = spec_of(cell(t, i, "spec"))};
}

static void same_spec(const Table *t, int i, MxSpec got) {
    ck_assert_msg(!strcmp(text_of(got), cell(t, i, "result")), "row %d: %s on %s: %s, wanted %s",
                  i + 2, cell(t, i, "spec"), cell(t, i, "shape"), text_of(got),
                  cell(t, i, "result"));
}

/* ok says what the golden row's error column says; the error is then cleared. */
static bool same_verdict(const Table *t, int i, bool ok) {
    bool want = !strcmp(cell(t, i, "error"), "-");
    ck_assert_msg(ok == want, "row %d: ok is %d, wanted %s", i + 2, ok, cell(t, i, "error"));
    mx_error_release(&err);
    return ok;
}

START_TEST(adjust_indivisible) {
    Table t = golden_read("rules/pure_adjust_indivisible.tsv");
    for (int i = 0; i < t.n_rows; i++) {
        MxMesh mesh;
        MxShardArray a = array_of(&t, i, &mesh);
        same_spec(&t, i, mx_shard_adjust(&arena, &mesh, &a));
    }
    printf("golden rules/pure_adjust_indivisible: %d of %d\n", t.n_rows, t.n_rows);
}
END_TEST

START_TEST(shard_shape) {
    Table t = golden_read("rules/pure_shard_shape.tsv");
    for (int i = 0; i < t.n_rows; i++) {
        MxMesh mesh;
        MxShardArray a = array_of(&t, i, &mesh);
        MxShape got, want;
        if (!same_verdict(&t, i, mx_shard_shape(&mesh, &a, &got, &err))) continue;
        want = shape_of(cell(&t, i, "result"));
        ck_assert_msg(mx_shape_equal(got, want), "row %d", i + 2);
    }
    printf("golden rules/pure_shard_shape: %d of %d\n", t.n_rows, t.n_rows);
}
END_TEST

/* Upstream's test for "uses data already" never succeeds with jax 0.12, and such rows raise
 * DuplicateSpecError; the source means to return the spec unchanged, and that is what we do. */
START_TEST(zero1_add_data) {
    Table t = golden_read("rules/pure_zero1_add_data.tsv");
    int intended = 0;
    for (int i = 0; i < t.n_rows; i++) {
        MxMesh mesh;
        MxShardArray a = array_of(&t, i, &mesh);
        MxSpec got;
        bool ok = mx_shard_add_data(&arena, &mesh, &a, &got, &err);
        if (strstr(cell(&t, i, "error"), "DuplicateSpecError")) {
            ck_assert(ok && mx_spec_uses(a.spec, "data"));
            got.rank = a.spec.rank;
            ck_assert_str_eq(text_of(got), text_of(a.spec));
            intended++;
        } else if (same_verdict(&t, i, ok))
            same_spec(&t, i, got);
    }
    printf("golden rules/pure_zero1_add_data: %d of %d, %d as intended upstream\n",
           t.n_rows - intended, t.n_rows, intended);
    ck_assert_int_eq(intended, 38);
}
END_TEST

Suite *golden_rules_suite(void) {
    Suite *s = suite_create("golden rules");
    suite_add(s, "cases", cases, 60);
    suite_add(s, "remove_size_one", remove_size_one, 60);
    suite_add(s, "adjust_indivisible", adjust_indivisible, 10);
    suite_add(s, "shard_shape", shard_shape, 10);
    suite_add(s, "zero1_add_data", zero1_add_data, 10);
    return s;
}
