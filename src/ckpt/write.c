/* write.c — a tree into a file. Every array is written in runs of whole rows (of its dim 0), which
 * are contiguous in the file: those of a stack are gathered from the layers first, because layer by
 * layer they would be many small writes far apart. */
#include <mx/ckpt.h>

#include "internal.h"

enum {
    RUN_BYTES = 4 << 20,        /* a run, unless one row is more */
    WRITEBACK_BYTES = 32 << 20, /* how much is written before the disk is told to begin */
};

typedef struct Writer {
    MxArena arena;
    MxH5 *file;
    MxForm form;
    const MxTree *tree;
    MxPace *pace;
    char *run; /* [run_bytes] where a run is gathered */
    size_t run_bytes, unsynced;
    MxError *err;
} Writer;

/* One array of the file and the leaves it is made of: its layers in order, or the one leaf. */
typedef struct Array {
    MxPlace place;
    const MxLeaf **parts;
    int64_t n_rows;
    size_t row_bytes;
} Array;

/* The leaves that share a stack, by their places in it; NULL where the tree lacks one: zeros. */
static const MxLeaf **find_parts(Writer *w, const MxLeaf *first) {
    const MxLeaf **parts = mx_new_n(&w->arena, const MxLeaf *, first->stack.count);
    for (int i = 0; i < w->tree->n; i++) {
        const MxLeaf *leaf = &w->tree->leaves[i];
        if (leaf->stack.count && !strcmp(leaf->stack.path, first->stack.path))
            parts[leaf->stack.index] = leaf;
    }
    return parts;
}

static Array describe(Writer *w, const MxLeaf *leaf) {
    Array a = {.place = mx_ckpt_place(&w->arena, w->form, leaf)};
    if (a.place.scan_dim >= 0)
        a.parts = find_parts(w, leaf);
    else {
        a.parts = mx_new(&w->arena, const MxLeaf *);
        a.parts[0] = leaf;
    }
    const MxShape *shape = &a.place.shape;
    a.n_rows = shape->rank ? shape->dim[0] : 1;
    if (a.n_rows)
        a.row_bytes = (size_t)(mx_shape_count(*shape) / a.n_rows) * mx_dtype_bytes(a.place.dtype);
    return a;
}

/* Rows of a stack whose layers lie in dim 1 or later: of every row, a piece of each layer in turn.
 * A piece is what follows the layers' dim; `between` counts those of one row. */
static const char *gather(Writer *w, const Array *a, int64_t row, int64_t n) {
    const MxShape *shape = &a->place.shape;
    int64_t n_layers = shape->dim[a->place.scan_dim], between = 1;
    for (int i = 1; i < a->place.scan_dim; i++) between *= shape->dim[i];
    size_t piece = a->row_bytes / (size_t)(between * n_layers);
    if (w->run_bytes < (size_t)n * a->row_bytes) {
        w->run_bytes = (size_t)n * a->row_bytes;
        if (w->run_bytes < RUN_BYTES) w->run_bytes = RUN_BYTES;
        w->run = mx_arena_alloc(&w->arena, w->run_bytes);
    }
    char *out = w->run;
    for (int64_t i = row * between; i < (row + n) * between; i++)
        for (int64_t layer = 0; layer < n_layers; layer++, out += piece) {
            const MxLeaf *leaf = a->parts[layer];
            if (leaf)
                memcpy(out, (const char *)leaf->data + (size_t)i * piece, piece);
            else
                memset(out, 0, piece);
        }
    return w->run;
}

static bool write_run(Writer *w, const Array *a, int64_t row, int64_t n) {
    const char *data;
    if (!a->place.scan_dim && !a->parts[row]) return true; /* a row is a layer */
    if (a->place.scan_dim > 0)
        data = gather(w, a, row, n);
    else if (!a->place.scan_dim)
        data = a->parts[row]->data;
    else
        data = (const char *)a->parts[0]->data + (size_t)row * a->row_bytes;
    MxBox box = ckpt_box(a->place.shape, -1, 0);
    if (box.rank) {
        box.start[0] = row;
        box.count[0] = n;
    }
    if (!mx_h5_write_box(w->file, a->place.path, box, data, w->err)) return false;
    mx_failpoint("save.in_array");
    w->unsynced += (size_t)n * a->row_bytes;
    if (w->unsynced >= WRITEBACK_BYTES) {
        mx_store_writeback(mx_h5_path(w->file));
        w->unsynced = 0;
    }
    mx_pace(w->pace);
    return true;
}

static bool write_array(Writer *w, const MxLeaf *leaf) {
    Array a = describe(w, leaf);
    if (!a.place.path) return true; /* such files leave it out */
    int64_t step = a.row_bytes && a.row_bytes < RUN_BYTES ? (int64_t)(RUN_BYTES / a.row_bytes) : 1;
    if (!a.place.scan_dim) step = 1;
    bool ok = mx_h5_make(w->file, a.place.path, a.place.dtype, a.place.shape, w->err);
    for (int64_t row = 0; ok && a.row_bytes && row < a.n_rows; row += step)
        ok = write_run(w, &a, row, row + step < a.n_rows ? step : a.n_rows - row);
    return ok;
}

bool ckpt_write(MxH5 *file, MxForm form, const MxTree *tree, MxPace *pace, MxError *err) {
    Writer w = {.arena = {.name = "ckpt write"},
                .file = file,
                .form = form,
                .tree = tree,
                .pace = pace,
                .err = err};
    bool ok = true;
    for (int i = 0; ok && i < tree->n; i++)
        if (!form.is_scanned || !tree->leaves[i].stack.count || !tree->leaves[i].stack.index)
            ok = write_array(&w, &tree->leaves[i]);
    mx_arena_release(&w.arena);
    return ok;
}
