/* write.c — writes a tree to a file, or a rank's part of it to its own file plus a file that shows
 * all ranks' files as whole arrays. Every array is written in runs of whole rows (of its dim 0),
 * which are contiguous in the file. The rows of a stack are first gathered from the layers, because
 * writing layer by layer would need many small writes far apart. */
#include <mx/ckpt.h>

#include "internal.h"

enum {
    RUN_BYTES = 4 << 20,        /* a run, unless one row is more */
    WRITEBACK_BYTES = 32 << 20, /* how much is written before the disk is told to begin */
};

/* Memory that grows. */
typedef struct Room {
    char *at;
    size_t bytes;
} Room;

typedef struct Writer {
    MxArena arena;
    MxH5 *file;
    MxForm form;
    const MxTree *tree;
    const CkptShares *shares; /* for a file that shows other ranks', else NULL */
    MxPace *pace;
    Room run;  /* where a run is gathered … */
    Room rows; /* … from rows that somebody keeps elsewhere */
    size_t unsynced;
    MxError *err;
} Writer;

/* One array of the file and the leaves it is made of: its layers in order, or the one leaf. */
typedef struct Array {
    MxPlace place;
    MxShape shape; /* of what is written: all of the array, or this rank's box */
    const MxLeaf **parts;
    int n_layers; /* 1 = the array is no stack */
    int64_t n_rows;
    size_t row_bytes;
} Array;

/* The leaves that share a stack, by their places in it; NULL where the tree lacks one: zeros. */
static const MxLeaf **find_parts(Writer *w, const MxLeaf *first) {
    const MxLeaf **parts = mx_new_n(&w->arena, const MxLeaf *, first->stack.count);
    for (int i = 0; i < w->tree->n; i++) {
        const MxLeaf *leaf = &w->tree->leaves[i];
        if (!leaf->stack.count || strcmp(leaf->stack.path, first->stack.path)) continue;
        const MxBox a = mx_leaf_part(leaf), b = mx_leaf_part(first);
        MX_ASSERT(mx_box_equal(&a, &b)); /* layers of a stack are divided alike */
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
    MxBox box = mx_leaf_part(leaf);
    a.n_layers = a.place.scan_dim >= 0 ? leaf->stack.count : 1;
    if (a.place.scan_dim >= 0) box = ckpt_box_of_stack(box, &leaf->stack, a.place.scan_dim);
    a.shape = ckpt_box_shape(&box);
    const MxShape *shape = &a.shape;
    a.n_rows = shape->rank ? shape->dim[0] : 1;
    if (a.n_rows)
        a.row_bytes = (size_t)(mx_shape_count(*shape) / a.n_rows) * mx_dtype_bytes(a.place.dtype);
    return a;
}

static int64_t rows_of(const MxLeaf *leaf) {
    MxBox part = mx_leaf_part(leaf);
    return part.rank ? part.count[0] : 1;
}

static char *take_room(Writer *w, Room *room, size_t bytes) {
    if (room->bytes < bytes) {
        room->bytes = bytes < RUN_BYTES ? RUN_BYTES : bytes;
        room->at = mx_arena_alloc(&w->arena, room->bytes);
    }
    return room->at;
}

/* Rows of a leaf, where they are or read. */
static const char *read_rows(Writer *w, const MxLeaf *leaf, int64_t row, int64_t n, size_t bytes) {
    char *host = mx_leaf_map(leaf) ? NULL : take_room(w, &w->rows, bytes);
    return mx_leaf_rows(leaf, row, n, host);
}

/* Rows of a stack whose layers lie in dim 1 or later: of every row, a piece of each layer in turn.
 * A piece is what follows the layers' dim; `between` counts those of one row. */
static const char *gather(Writer *w, const Array *a, int64_t row, int64_t n) {
    const MxShape *shape = &a->shape;
    int64_t n_layers = a->n_layers, between = 1;
    for (int i = 1; i < a->place.scan_dim; i++) between *= shape->dim[i];
    size_t stride = a->row_bytes / (size_t)between, piece = stride / (size_t)n_layers;
    char *run = take_room(w, &w->run, (size_t)n * a->row_bytes);
    for (int64_t layer = 0; layer < n_layers; layer++) {
        const MxLeaf *leaf = a->parts[layer];
        const char *from = NULL;
        if (leaf) from = read_rows(w, leaf, row, n, (size_t)(n * between) * piece);
        char *to = run + (size_t)layer * piece;
        for (int64_t i = 0; i < n * between; i++, to += stride)
            if (from)
                memcpy(to, from + (size_t)i * piece, piece);
            else
                memset(to, 0, piece);
    }
    return run;
}

/* A row of a stack whose layers lie in dim 0: a layer, or several. */
static const char *read_layers(Writer *w, const Array *a, int64_t row) {
    int64_t n = a->n_layers / a->n_rows;
    const MxLeaf **parts = a->parts + row * n;
    if (n == 1) return read_rows(w, parts[0], 0, rows_of(parts[0]), a->row_bytes);
    size_t piece = a->row_bytes / (size_t)n;
    char *run = take_room(w, &w->run, a->row_bytes);
    for (int64_t i = 0; i < n; i++) {
        const char *from = NULL;
        if (parts[i]) from = read_rows(w, parts[i], 0, rows_of(parts[i]), piece);
        if (from)
            memcpy(run + (size_t)i * piece, from, piece);
        else
            memset(run + (size_t)i * piece, 0, piece);
    }
    return run;
}

static bool write_run(Writer *w, const Array *a, int64_t row, int64_t n) {
    const char *data;
    bool is_layer = !a->place.scan_dim && a->n_layers == a->n_rows;
    if (is_layer && !a->parts[row]) return true;
    if (a->place.scan_dim > 0)
        data = gather(w, a, row, n);
    else if (!a->place.scan_dim)
        data = read_layers(w, a, row);
    else
        data = read_rows(w, a->parts[0], row, n, (size_t)n * a->row_bytes);
    MxBox box = mx_box_of(a->shape);
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

static bool write_values(Writer *w, const Array *a) {
    int64_t step =
        a->row_bytes && a->row_bytes < RUN_BYTES ? (int64_t)(RUN_BYTES / a->row_bytes) : 1;
    if (!a->place.scan_dim) step = 1;
    bool ok = mx_h5_make(w->file, a->place.path, a->place.dtype, a->shape, w->err);
    for (int64_t row = 0; ok && a->row_bytes && row < a->n_rows; row += step)
        ok = write_run(w, a, row, row + step < a->n_rows ? step : a->n_rows - row);
    return ok;
}

/* Shows the boxes that ranks write of an array as one. */
static bool write_view(Writer *w, int first, const Array *a) {
    const MxLeaf *leaf = &w->tree->leaves[first];
    MxH5Source *sources = mx_new_n(&w->arena, MxH5Source, w->shares->n_ranks);
    int n = 0;
    for (int r = 0; r < w->shares->n_ranks; r++) {
        if (!ckpt_writes(w->shares, first, r)) continue;
        MxBox box = leaf->division->box[r];
        if (a->place.scan_dim >= 0) box = ckpt_box_of_stack(box, &leaf->stack, a->place.scan_dim);
        sources[n++] = (MxH5Source){.file = w->shares->names[r], .box = box};
    }
    return mx_h5_make_virtual(w->file, a->place.path, a->place.dtype, a->place.shape, sources, n,
                              w->err);
}

/* Arrays without dims, which the library cannot show, are in the file that shows the others. */
static bool write_array(Writer *w, int i) {
    const MxLeaf *leaf = &w->tree->leaves[i];
    Array a = describe(w, leaf);
    if (!a.place.path) return true; /* such files leave it out */
    if (!leaf->division) return write_values(w, &a);
    if (w->shares && a.place.shape.rank) return write_view(w, i, &a);
    bool is_mine = mx_leaf_has_values(leaf) && !w->shares == (a.place.shape.rank > 0);
    return !is_mine || write_values(w, &a);
}

static bool write_tree(Writer *w) {
    bool ok = true;
    for (int i = 0; ok && i < w->tree->n; i++)
        if (ckpt_is_first(w->form, &w->tree->leaves[i])) ok = write_array(w, i);
    mx_arena_release(&w->arena);
    return ok;
}

bool ckpt_write(MxH5 *file, MxForm form, const MxTree *tree, MxPace *pace, MxError *err) {
    return write_tree(&(Writer){.arena = {.name = "ckpt write"},
                                .file = file,
                                .form = form,
                                .tree = tree,
                                .pace = pace,
                                .err = err});
}

bool ckpt_write_views(MxH5 *file, MxForm form, const MxTree *tree, const CkptShares *shares,
                      MxError *err) {
    return write_tree(&(Writer){.arena = {.name = "ckpt write"},
                                .file = file,
                                .form = form,
                                .tree = tree,
                                .shares = shares,
                                .err = err});
}
