/* read.c — a tree out of a file whose form is found by looking: every name that a leaf may have is
 * looked up among the arrays that are there. */
#include <mx/ckpt.h>

#include "internal.h"

/* Suffixes and fragments of MaxText's trees that hold no weights. */
static const char *const random_state[] = {"rngs/", "/rngs", "dropout/"};

typedef struct Reader {
    MxArena arena;
    MxH5 *file;
    const char *group, *section;
    int scan_axis;
    MxTree *tree;
    MxH5Array *arrays;
    int n_arrays;
    MxMap by_path;
    bool *is_used;                         /* [array] */
    const char *prefix[CKPT_MAX_ALSO + 4]; /* what stands for the nnx prefix, [row] below */
    MxError *err;
} Reader;

static int find(const Reader *r, const char *prefix, const char *rest) {
    MxArena arena = {.name = "path"};
    const char *path = mx_arena_printf(&arena, "%s%s", prefix, rest);
    int64_t i = mx_map_get(&r->by_path, path, -1);
    if (i < 0) i = mx_map_get(&r->by_path, mx_arena_printf(&arena, "%s/value", path), -1);
    mx_arena_release(&arena);
    return (int)i;
}

/* The leaf's array under one name of its section: its own, else its stack's. */
static int find_leaf(const Reader *r, const CkptRow *row, const char *prefix, const MxLeaf *leaf) {
    size_t cut = row ? strlen(row->nnx) : 0;
    int i = find(r, prefix, leaf->path + cut);
    return i < 0 && leaf->stack.count ? find(r, prefix, leaf->stack.path + cut) : i;
}

/* The name of a section under which most of its leaves are found. */
static const char *choose_prefix(const Reader *r, const CkptRow *row) {
    const char *names[CKPT_MAX_ALSO + 2] = {row->nnx, row->linen};
    int n = 2, best_count = 0;
    for (int i = 0; i < CKPT_MAX_ALSO && row->also[i]; i++) names[n++] = row->also[i];
    const char *best = row->nnx;
    for (int k = 0; k < n; k++) {
        int count = 0;
        for (int i = 0; i < r->tree->n; i++) {
            const MxLeaf *leaf = &r->tree->leaves[i];
            if (ckpt_row_of(leaf->path) == row) count += find_leaf(r, row, names[k], leaf) >= 0;
        }
        if (count > best_count) {
            best = names[k];
            best_count = count;
        }
    }
    return best;
}

static MxWhere in_file(const Reader *r) {
    return (MxWhere){.file = mx_h5_path(r->file)};
}

/* The slice of a stacked array that a leaf is; false if no axis makes the shapes agree. */
static bool find_slice(const Reader *r, const MxH5Array *array, const MxLeaf *leaf, MxH5Box *box) {
    const int axes[] = {r->scan_axis, 0, 1};
    for (int i = 0; leaf->stack.count && i < MX_COUNT(axes); i++) {
        int scan_dim;
        MxShape shape = ckpt_stacked_shape(leaf, axes[i], &scan_dim);
        if (!mx_shape_equal(shape, array->shape)) continue;
        *box = ckpt_box(shape, scan_dim, leaf->stack.index);
        return true;
    }
    return false;
}

static void report_shape(Reader *r, const MxH5Array *array, const MxLeaf *leaf, bool is_stack) {
    MxShape want = leaf->shape;
    int scan_dim;
    if (is_stack) want = ckpt_stacked_shape(leaf, r->scan_axis, &scan_dim);
    if (is_stack && leaf->stack.index) return; /* once a stack is enough */
    mx_fail(r->err, MX_EXIT_BAD_INPUT, in_file(r), "\"%s\" has shape %s; the model wants %s",
            array->path, mx_shape_text(&r->arena, array->shape), mx_shape_text(&r->arena, want));
}

static void read_leaf(Reader *r, MxLeaf *leaf, const CkptRow *row) {
    const char *prefix = row ? r->prefix[row - ckpt_rows] : "";
    size_t cut = row ? strlen(row->nnx) : 0;
    int i = find_leaf(r, row, prefix, leaf);
    if (i < 0 && !leaf->data) return;
    if (i < 0) {
        mx_fail(r->err, MX_EXIT_BAD_INPUT, in_file(r), "\"%s%s\" is missing; the model wants %s %s",
                prefix, leaf->path + cut, mx_dtype_name(leaf->dtype),
                mx_shape_text(&r->arena, leaf->shape));
        return;
    }
    MxH5Array *array = &r->arrays[i];
    bool is_stack = find(r, prefix, leaf->path + cut) < 0;
    r->is_used[i] = true;
    if (!leaf->data) return;
    MxH5Box box = ckpt_box(leaf->shape, -1, 0);
    bool fits =
        is_stack ? find_slice(r, array, leaf, &box) : mx_shape_equal(array->shape, leaf->shape);
    const char *path = mx_path_join(&r->arena, r->group, array->path);
    if (!fits)
        report_shape(r, array, leaf, is_stack);
    else
        mx_h5_read_box(r->file, path, leaf->dtype, box, leaf->data, r->err);
}

static bool holds_no_weight(const char *path) {
    for (int i = 0; i < MX_COUNT(random_state); i++)
        if (strstr(path, random_state[i])) return true;
    return false;
}

/* Arrays of a section that no leaf wanted. */
static void report_extra(Reader *r) {
    for (int i = 0; i < r->n_arrays; i++) {
        const char *path = r->arrays[i].path;
        bool in_section = false;
        for (int k = 0; k < ckpt_n_rows; k++) {
            bool wanted = r->prefix[k] && mx_text_has_prefix(path, r->prefix[k]);
            in_section = in_section || (wanted && mx_text_has_prefix(ckpt_rows[k].nnx, r->section));
        }
        if (r->is_used[i] || !in_section || holds_no_weight(path)) continue;
        mx_fail(r->err, MX_EXIT_BAD_INPUT, in_file(r), "\"%s\" %s is not in the model", path,
                mx_shape_text(&r->arena, r->arrays[i].shape));
    }
}

bool mx_ckpt_read(MxH5 *file, const char *group, const char *section, int scan_axis, MxTree *tree,
                  MxError *err) {
    Reader r = {.arena = {.name = "ckpt read"},
                .file = file,
                .group = group,
                .section = section,
                .scan_axis = scan_axis,
                .tree = tree,
                .err = err};
    int failures = err->count;
    if (mx_h5_list(&r.arena, file, group, &r.arrays, &r.n_arrays, err)) {
        mx_map_init(&r.by_path, &r.arena);
        r.is_used = mx_new_n(&r.arena, bool, r.n_arrays + 1);
        for (int i = 0; i < r.n_arrays; i++) mx_map_set(&r.by_path, r.arrays[i].path, i);
        bool has_row[CKPT_MAX_ALSO + 4] = {false};
        for (int i = 0; i < tree->n; i++) {
            const CkptRow *row = ckpt_row_of(tree->leaves[i].path);
            if (row) has_row[row - ckpt_rows] = true;
        }
        for (int k = 0; k < ckpt_n_rows; k++)
            if (has_row[k]) r.prefix[k] = choose_prefix(&r, &ckpt_rows[k]);
        for (int i = 0; i < tree->n; i++)
            if (mx_text_has_prefix(tree->leaves[i].path, section))
                read_leaf(&r, &tree->leaves[i], ckpt_row_of(tree->leaves[i].path));
        report_extra(&r);
    }
    mx_arena_release(&r.arena);
    return err->count == failures;
}
