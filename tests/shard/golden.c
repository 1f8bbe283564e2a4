/* golden.c — golden files and their notation. */
#include "shard_test.h"

#include <stdio.h>
#include <stdlib.h>

enum { LARGEST_FILE = 1 << 26 };

bool golden_has(const char *name) {
    return goldens_have(&arena, mx_path_join(&arena, "sharding", name));
}

Table golden_read(const char *name) {
    MxBytes bytes;
    const char *path = goldens_need(&arena, mx_path_join(&arena, "sharding", name));
    bool ok = mx_file_read(&arena, path, LARGEST_FILE, &bytes, &err);
    ck_assert_msg(ok, "%s", ok ? "" : err.text.data);
    Table t = {.n_cols = 1};
    char *s = (char *)bytes.data;
    for (const char *p = s; *p && *p != '\n'; p++) t.n_cols += *p == '\t';
    for (const char *p = s; *p; p++) t.n_rows += *p == '\n';
    t.cells = mx_new_n(&arena, char *, t.n_rows *t.n_cols);
    int n = 0;
    for (char *start = s, *p = s; *p; p++) {
        if (*p != '\t' && *p != '\n') continue;
        ck_assert_int_lt(n, t.n_rows * t.n_cols);
        t.cells[n++] = start;
        ck_assert_msg((*p == '\n') == (n % t.n_cols == 0), "%s: ragged row", name);
        *p = '\0';
        start = p + 1;
    }
    t.n_rows--;
    return t;
}

const char *cell(const Table *table, int row, const char *column) {
    for (int c = 0; c < table->n_cols; c++)
        if (!strcmp(table->cells[c], column)) return table->cells[(row + 1) * table->n_cols + c];
    ck_abort_msg("no column %s", column);
    return NULL;
}

/* Splits at a character; the pieces are copies. */
static int split(const char *text, char at, const char ***out) {
    int n = 1, i = 0;
    for (const char *p = text; *p; p++) n += *p == at;
    *out = mx_new_n(&arena, const char *, n);
    for (const char *p = text;; p++) {
        if (*p && *p != at) continue;
        (*out)[i++] = mx_arena_strndup(&arena, text, (size_t)(p - text));
        if (!*p) return n;
        text = p + 1;
    }
}

static const char *axis_of(const char *word) {
    if (!strcmp(word, "None")) return NULL;
    return strcmp(word, "''") ? word : "";
}

/* One entry: sets axes and n; says whether it was a tuple. */
static bool entry_of(const char *text, MxSpecDim *dim) {
    const char **axes = NULL;
    size_t len = strlen(text);
    bool is_tuple = text[0] == '(';
    if (!strcmp(text, "None") || !strcmp(text, "()")) {
        *dim = (MxSpecDim){0};
        return is_tuple;
    }
    if (is_tuple) text = mx_arena_strndup(&arena, text + 1, len - 2);
    dim->n = split(text, ',', &axes);
    for (int i = 0; i < dim->n; i++) axes[i] = axis_of(axes[i]);
    dim->axes = axes;
    return is_tuple;
}

static MxSpec parse(const char *text, bool are_names) {
    if (!strcmp(text, "<none>")) return (MxSpec){.rank = -1};
    if (!strcmp(text, "<empty>")) return (MxSpec){0};
    const char **entries;
    int n = split(text, '|', &entries);
    MxSpecDim *dim = mx_new_n(&arena, MxSpecDim, n);
    for (int d = 0; d < n; d++) {
        bool is_tuple = entry_of(entries[d], &dim[d]);
        dim[d].is_name = are_names && !is_tuple && dim[d].n && strcmp(entries[d], "*") != 0;
    }
    return (MxSpec){.rank = n, .dim = dim};
}

MxSpec names_of(const char *text) {
    return parse(text, true);
}

MxSpec spec_of(const char *text) {
    return parse(text, false);
}

const char *text_of(MxSpec spec) {
    return mx_spec_text(&arena, spec);
}

MxShape shape_of(const char *text) {
    MxShape shape = {0};
    if (!strcmp(text, "scalar")) return shape;
    const char **dims;
    shape.rank = split(text, 'x', &dims);
    ck_assert_int_le(shape.rank, MX_MAX_RANK);
    for (int d = 0; d < shape.rank; d++) shape.dim[d] = strtoll(dims[d], NULL, 10);
    return shape;
}

MxMesh mesh_of(const char *text) {
    const char **items;
    int n = split(text, ',', &items);
    int64_t *sizes = mx_new_n(&arena, int64_t, n);
    for (int i = 0; i < n; i++) {
        const char **pair;
        ck_assert_int_eq(split(items[i], '=', &pair), 2);
        items[i] = pair[0];
        sizes[i] = strtoll(pair[1], NULL, 10);
    }
    MxMesh mesh;
    ck_assert(mx_mesh_new(&arena, items, sizes, n, &mesh, &err));
    return mesh;
}

MxRule rule_of(const char *axis, const char *mesh_axes) {
    MxSpecDim dim = {0};
    entry_of(mesh_axes, &dim);
    return (MxRule){.axis = axis_of(axis), .n = dim.n, .mesh_axes = dim.axes};
}

MxRules rules_of(const char *text) {
    const char **items;
    int n = *text ? split(text, ' ', &items) : 0;
    MxRule *list = mx_new_n(&arena, MxRule, n);
    for (int i = 0; i < n; i++) {
        const char **pair;
        ck_assert_int_eq(split(items[i], ':', &pair), 2);
        list[i] = rule_of(pair[0], pair[1]);
        list[i].where = (MxWhere){.file = "r.yml", .line = i + 1};
    }
    return mx_rules_new(&arena, list, n);
}

/* Reads one set out of the table of all. */
static RuleSet read_set(const Table *t, const char *name) {
    MxRule *list = mx_new_n(&arena, MxRule, t->n_rows);
    RuleSet set = {.name = mx_arena_strdup(&arena, name)};
    int n = 0;
    for (int i = 0; i < t->n_rows; i++) {
        if (strcmp(cell(t, i, "rule_set"), name)) continue;
        const char *arity = cell(t, i, "arity"), *value = cell(t, i, "mesh_axes");
        set.mesh_axes = cell(t, i, "set_mesh_axes");
        set.is_malformed = set.is_malformed || !strcmp(arity, "3");
        if (strcmp(arity, "2")) continue;
        if (strstr(value, "(("))
            set.nested_axis = cell(t, i, "logical_name");
        else
            list[n++] = rule_of(cell(t, i, "logical_name"), value);
    }
    ck_assert_msg(set.mesh_axes, "no rule set %s", name);
    set.rules = mx_rules_new(&arena, list, n);
    return set;
}

/* Sets that have been asked for, for the life of the test process: thousands of rows need them. */
enum { MOST_SETS = 200 };
static struct {
    MxArena arena;
    Table table;
    RuleSet sets[MOST_SETS];
    int n;
} cache = {.arena = {.name = "rule sets"}};

RuleSet rule_set(const char *name) {
    for (int i = 0; i < cache.n; i++)
        if (!strcmp(cache.sets[i].name, name)) return cache.sets[i];
    MxArena outer = arena;
    arena = cache.arena;
    if (!cache.table.cells) cache.table = golden_read("rules/rules.tsv");
    RuleSet set = read_set(&cache.table, name);
    cache.arena = arena;
    arena = outer;
    ck_assert_int_lt(cache.n, MOST_SETS);
    return cache.sets[cache.n++] = set;
}

RuleSet rule_set_of_run(const char *model, const char *mesh) {
    if (!strncmp(mesh, "rule-", 5))
        return rule_set(mx_arena_strndup(&arena, mesh, strcspn(mesh, "_")));
    return rule_set(strcmp(model, "llama2-7b") ? "base" : model);
}

MxMesh mesh_of_run(const RuleSet *set, const char *sizes) {
    const char **axes;
    int n = split(set->mesh_axes, ',', &axes);
    int64_t *effective = mx_new_n(&arena, int64_t, n);
    MxMesh given = mesh_of(sizes), mesh;
    for (int i = 0; i < n; i++) effective[i] = mx_mesh_size(&given, axes[i]);
    ck_assert(mx_mesh_new(&arena, axes, effective, n, &mesh, &err));
    return mesh;
}
