/* test_trees.c — the tables against MaxText's own lists of what its states and files hold: every
 * model and optimizer there is a golden tree of, read in each of its forms and converted into each
 * other one, array for array. No file is opened: the lists are taken as if they were files. */
#include "ckpt_test.h"

#include <ckpt/conversion.h>

#include <stdlib.h>

/* ---- lists of arrays */

typedef struct List {
    MxH5Array *arrays;
    int n;
} List;

static const char *golden(const char *name) {
    return mx_arena_printf(&arena, "%s/sharding/%s", goldens_dir(), name);
}

/* "32x4", "scalar"; "-" in ondisk lists. */
static MxShape shape_of(const char *text) {
    MxShape shape = {0};
    while (*text >= '0' && *text <= '9') {
        char *end;
        ck_assert_int_lt(shape.rank, MX_MAX_RANK);
        shape.dim[shape.rank++] = strtoll(text, &end, 10);
        text = *end == 'x' ? end + 1 : end;
    }
    return shape;
}

static MxDtype dtype_of(const char *name) {
    MxDtype dtype = MX_U32; /* keys of random numbers */
    if (!strcmp(name, "bool")) return MX_I8;
    ck_assert_msg(mx_dtype_parse(name, &dtype) || !strncmp(name, "key<", 4), "dtype %s", name);
    return dtype;
}

static int by_array_path(const void *a, const void *b) {
    return strcmp(((const MxH5Array *)a)->path, ((const MxH5Array *)b)->path);
}

static int column_of(const char *header, const char *name) {
    for (int i = 0;; i++) {
        size_t n = strcspn(header, "\t\n");
        if (n == strlen(name) && !strncmp(header, name, n)) return i;
        if (header[n] != '\t') return -1;
        header += n + 1;
    }
}

static const char *cell(const char *line, int column) {
    for (; column > 0; column--) line += strcspn(line, "\t") + 1;
    return mx_arena_strndup(&arena, line, strcspn(line, "\t\n"));
}

/* Columns of the lists; NULL dtype = float32. */
typedef struct Columns {
    const char *path, *shape, *dtype, *type;
} Columns;

static const Columns of_trees = {"path", "shape", "dtype", "type"};
static const Columns of_disk = {"key", "write_shape", NULL, "value_type"};
static const Columns of_nnx_params = {"nnx_path", "shape", "dtype", NULL};
static const Columns of_linen_params = {"linen_path", "linen_shape", "linen_dtype", NULL};

static bool is_array(const char *type) {
    return strcmp(type, "None") && !strstr(type, "empty:") && !strstr(type, "MaskedNode");
}

/* Seed-era NNX trees say "layers/0/", later ones "layers_0/". */
static const char *spelled(const char *path) {
    char *out = mx_arena_strdup(&arena, path), *found = strstr(out, "/layers/");
    size_t cut = strlen("/layers/") - 1;
    if (found && found[cut + 1] >= '0' && found[cut + 1] <= '9') found[cut] = '_';
    return out;
}

static List read_list(const char *name, Columns columns) {
    MxBytes bytes;
    const char *file = goldens_need(&arena, mx_path_join(&arena, "sharding", name));
    ck_ok(mx_file_read(&arena, file, 1 << 24, &bytes, &err));
    const char *header = (const char *)bytes.data;
    int path = column_of(header, columns.path), shape = column_of(header, columns.shape);
    int dtype = columns.dtype ? column_of(header, columns.dtype) : -1;
    int type = columns.type ? column_of(header, columns.type) : -1;
    ck_assert_msg(path >= 0 && shape >= 0, "%s: no columns", name);
    List list = {.arrays = mx_new_n(&arena, MxH5Array, bytes.size / 8 + 1)};
    for (const char *line = strchr(header, '\n') + 1; *line; line = strchr(line, '\n') + 1) {
        const char *where = cell(line, path);
        if (!strcmp(where, "-") || (type >= 0 && !is_array(cell(line, type)))) continue;
        list.arrays[list.n++] =
            (MxH5Array){.path = where,
                        .shape = shape_of(cell(line, shape)),
                        .dtype = dtype >= 0 ? dtype_of(cell(line, dtype)) : MX_F32};
    }
    qsort(list.arrays, (size_t)list.n, sizeof *list.arrays, by_array_path);
    return list;
}

static char **files_in(const char *below, int *n) {
    char **names = NULL;
    *n = 0;
    if (mx_dir_exists(golden(below))) ck_ok(mx_dir_list(&arena, golden(below), &names, n, &err));
    return names;
}

/* The base of "<base><suffix>", or NULL. */
static const char *base_of(const char *name, const char *suffix) {
    if (!mx_text_has_suffix(name, suffix)) return NULL;
    return mx_arena_strndup(&arena, name, strlen(name) - strlen(suffix));
}

/* ---- a list as a file */

static CkptFile survey_of(const char *name, List list) {
    CkptFile file = {
        .ref = {.ref = name, .path = name, .group = ""}, .arrays = list.arrays, .n = list.n};
    ck_ok(ckpt_survey(&arena, name, list.arrays, list.n, -1, &file.survey, &err));
    ck_assert_msg(file.survey.is_sure, "%s: parameters were not recognized", name);
    for (int i = 0; i < list.n; i++)
        ck_assert_msg(file.survey.entries[i].row, "%s: %s belongs nowhere", name,
                      list.arrays[i].path);
    return file;
}

static bool is_random(const char *path) {
    return strstr(path, "/rngs/") || strstr(path, "/dropout/");
}

/* Without random numbers, and without the reference model if `skip` says so. */
static int count_of(List list, const char *skip) {
    int n = 0;
    for (int i = 0; i < list.n; i++)
        n += !is_random(list.arrays[i].path) && !mx_text_has_prefix(list.arrays[i].path, skip);
    return n;
}

/* What a conversion of one list makes is the other list, array for array. */
static void ck_converts(const char *from_name, List from, MxConvert how, List want,
                        const char *skip) {
    CkptFile file = survey_of(from_name, from);
    CkptConversion conversion;
    ck_ok(ckpt_conversion_make(&arena, &file, &how, &conversion, &err));
    MxMap by_path;
    mx_map_init(&by_path, &arena);
    for (int i = 0; i < want.n; i++) mx_map_set(&by_path, spelled(want.arrays[i].path), i);
    int n = 0;
    for (int i = 0; i < conversion.n; i++) {
        const CkptTarget *t = &conversion.targets[i];
        if (is_random(t->path)) continue;
        int64_t k = mx_map_get(&by_path, t->path, -1);
        ck_assert_msg(k >= 0, "%s: made %s, which is not wanted", from_name, t->path);
        ck_assert_msg(mx_shape_equal(t->shape, want.arrays[k].shape), "%s: %s is %s, wanted %s",
                      from_name, t->path, mx_shape_text(&arena, t->shape),
                      mx_shape_text(&arena, want.arrays[k].shape));
        ck_assert_msg(t->dtype == want.arrays[k].dtype, "%s: %s is %s, wanted %s", from_name,
                      t->path, mx_dtype_name(t->dtype), mx_dtype_name(want.arrays[k].dtype));
        n++;
    }
    ck_assert_msg(n == count_of(want, skip), "%s: made %d arrays, wanted %d", from_name, n,
                  count_of(want, skip));
    ck_assert_int_gt(n, 0);
}

/* ---- train states */

static void ck_axis(const char *name, const CkptSurvey *s) {
    bool has_stacks = false;
    for (int i = 0; i < s->n; i++)
        has_stacks = has_stacks || s->entries[i].spot.where == CKPT_FLAT ||
                     s->entries[i].spot.where == CKPT_BLOCK;
    if (strstr(name, "headloop")) return; /* holds the step and nothing else */
    ck_assert_msg(s->is_scanned == (strstr(name, "unscan") == NULL), "%s: stacked is %d", name,
                  s->is_scanned);
    if (has_stacks)
        ck_assert_msg(s->scan_axis == (strstr(name, "scanaxis0") ? 0 : 1), "%s: dim %d", name,
                      s->scan_axis);
}

START_TEST(every_tree_of_maxtext_is_read) {
    static const char *const folders[] = {"trees", "trees_dpo", "ondisk"};
    int n_read = 0;
    for (int f = 0; f < MX_COUNT(folders); f++) {
        int n;
        char **names = files_in(folders[f], &n);
        for (int i = 0; i < n; i++) {
            if (!strstr(names[i], "__")) continue; /* README, index */
            const char *path = mx_path_join(&arena, folders[f], names[i]);
            List list = read_list(path, f == 2 ? of_disk : of_trees);
            if (strstr(names[i], "headloop__disk") || count_of(list, "step") == 0) continue;
            CkptFile file = survey_of(path, list);
            ck_axis(names[i], &file.survey);
            n_read++;
        }
    }
    ck_assert_int_ge(n_read, 10);
}
END_TEST

/* Cases of a folder that have both files. */
static int each_pair(const char *below, const char *from, const char *to, MxConvert how,
                     const char *skip) {
    int n, n_pairs = 0;
    char **names = files_in(below, &n);
    for (int i = 0; i < n; i++) {
        const char *base = base_of(names[i], from);
        if (!base) continue;
        const char *a = mx_arena_printf(&arena, "%s/%s", below, names[i]);
        const char *b = mx_arena_printf(&arena, "%s/%s%s", below, base, to);
        if (!mx_file_exists(golden(b))) continue;
        ck_converts(a, read_list(a, of_trees), how, read_list(b, of_trees), skip);
        n_pairs++;
    }
    return n_pairs;
}

static const struct {
    const char *folder, *from, *to, *layout, *skip;
} pairs[] = {
    {"trees", ".nnx.tsv", ".linen.tsv", "linen", "-"},
    {"trees", ".nnx_disk.tsv", ".linen.tsv", "linen", "-"},
    {"trees", ".linen.tsv", ".nnx.tsv", "nnx", "-"},
    {"trees", ".linen.tsv", ".linen.tsv", NULL, "-"},
    {"trees", ".nnx.tsv", ".nnx.tsv", NULL, "-"},
    /* Linen leaves the reference model out. */
    {"trees_dpo", ".nnx.tsv", ".linen_disk.tsv", "linen", "-"},
    {"trees_dpo", ".linen.tsv", ".linen_disk.tsv", NULL, "-"},
    {"trees_dpo", ".linen.tsv", ".nnx.tsv", "nnx", "-"},
    {"trees_dpo", ".linen_disk.tsv", ".nnx.tsv", "nnx", "reference_model/"},
};

START_TEST(states_convert_into_each_other) {
    MxConvert how = {.layout = pairs[_i].layout, .scan = -1, .scan_axis = -1};
    int n = each_pair(pairs[_i].folder, pairs[_i].from, pairs[_i].to, how, pairs[_i].skip);
    ck_assert_msg(n > 0, "no %s%s", pairs[_i].folder, pairs[_i].from);
}
END_TEST

/* ---- the real models, stacked and not */

START_TEST(real_models_are_stacked_and_unstacked) {
    int n, n_models = 0;
    char **names = files_in("params", &n);
    for (int i = 0; i < n; i++) {
        const char *base = base_of(names[i], "__unscan.tsv"), *lists[2];
        if (!base) continue;
        lists[0] = mx_arena_printf(&arena, "params/%s__scan.tsv", base);
        lists[1] = mx_arena_printf(&arena, "params/%s", names[i]);
        if (!mx_file_exists(golden(lists[0]))) continue;
        for (int k = 0; k < 16; k++) { /* from and to: stacked or not, nnx or linen */
            bool from_linen = k & 4, to_linen = k & 8;
            List from = read_list(lists[k & 1], from_linen ? of_linen_params : of_nnx_params);
            List to = read_list(lists[k >> 1 & 1], to_linen ? of_linen_params : of_nnx_params);
            MxConvert how = {
                .layout = to_linen ? "linen" : "nnx", .scan = !(k & 2), .scan_axis = -1};
            if (from.n && to.n) ck_converts(lists[k & 1], from, how, to, "-");
        }
        n_models++;
    }
    ck_assert_int_ge(n_models, 1);
}
END_TEST

Suite *trees_suite(void) {
    Suite *suite = suite_create("ckpt/trees");
    TCase *tcase = add_case(suite, "trees");
    tcase_add_test(tcase, every_tree_of_maxtext_is_read);
    tcase_add_loop_test(tcase, states_convert_into_each_other, 0, MX_COUNT(pairs));
    tcase_add_test(tcase, real_models_are_stacked_and_unstacked);
    return suite;
}
