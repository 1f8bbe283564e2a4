/* leaves.c — the arrays of a file as a tree: stacks as they are, or layer by layer. */
#include <mx/ckpt.h>

#include "internal.h"

static MxWhere in(const CkptSurvey *s) {
    return (MxWhere){.file = s->name};
}

typedef struct Splitter {
    MxArena *arena;
    const CkptSurvey *survey;
    MxTree *tree;
    CkptPiece *pieces;
    int cap, n_left;
    MxError *err;
} Splitter;

static bool add_leaf(Splitter *x, CkptPiece piece, const char *path, MxShape shape) {
    const CkptEntry *e = &x->survey->entries[piece.entry];
    if (mx_tree_find(x->tree, path) >= 0)
        return mx_fail(x->err, MX_EXIT_BAD_INPUT, in(x->survey), "\"%s\" is there twice", path);
    if (x->tree->n == x->cap) {
        int cap = x->cap ? 2 * x->cap : 256;
        x->pieces =
            mx_arena_grow(x->arena, x->pieces, (size_t)x->cap, (size_t)cap, sizeof *x->pieces);
        x->cap = cap;
    }
    x->pieces[x->tree->n] = piece;
    mx_tree_add(x->tree, (MxLeaf){.path = path, .dtype = e->array->dtype, .shape = shape});
    return true;
}

static bool add_layer(Splitter *x, CkptPiece piece, MxShape shape, int layer) {
    const CkptEntry *e = &x->survey->entries[piece.entry];
    int prefix = (int)(e->tree - e->path) + e->spot.head;
    const char *path = mx_arena_printf(x->arena, "%.*s%s_%d/%s", prefix, e->path, e->spot.name,
                                       layer, e->spot.tail);
    return add_leaf(x, piece, path, shape);
}

static MxShape without_dim(MxShape shape, int dim) {
    for (int i = dim; i + 1 < shape.rank; i++) shape.dim[i] = shape.dim[i + 1];
    shape.rank--;
    return shape;
}

static bool split_stack(Splitter *x, int entry) {
    const CkptEntry *e = &x->survey->entries[entry];
    const CkptGroup *g = &x->survey->groups[e->group];
    MxShape shape = e->array->shape;
    bool is_block = e->spot.where == CKPT_BLOCK;
    /* A block has random numbers of its own, which stand for no layer. */
    if (shape.rank == 0 || is_block != (g->how.period > 0) ||
        ckpt_n_layers(e, x->survey->scan_axis) != g->n_blocks) {
        x->n_left++;
        return true;
    }
    int dim = ckpt_layers_dim(e, x->survey->scan_axis), inner = ckpt_n_inside(e),
        n = inner ? inner : 1;
    CkptPiece piece = {.entry = entry, .scan_dim = dim, .inner = inner};
    shape = without_dim(shape, dim);
    if (inner) shape = without_dim(shape, dim);
    bool ok = true;
    for (piece.index = 0; ok && piece.index < g->n_blocks * n; piece.index++) {
        int at = piece.index / n * g->how.period + e->spot.number + piece.index % n;
        ok = add_layer(x, piece, shape, g->how.first + (is_block ? at : piece.index));
    }
    return ok;
}

/* Layers behind the last whole block. */
static bool add_rest(Splitter *x, int entry) {
    const CkptEntry *e = &x->survey->entries[entry];
    const CkptGroup *g = &x->survey->groups[e->group];
    int first = g->n_layers - g->n_rest + e->spot.number;
    CkptPiece piece = {.entry = entry, .scan_dim = -1};
    MxShape shape = e->array->shape;
    if (!ckpt_is_run_in_rest(e)) return add_layer(x, piece, shape, first);
    if (ckpt_n_layers(e, x->survey->scan_axis) < 1) { /* random numbers of no layer */
        x->n_left++;
        return true;
    }
    piece.scan_dim = ckpt_layers_dim(e, x->survey->scan_axis);
    shape = without_dim(shape, piece.scan_dim);
    bool ok = true;
    for (int n = (int)e->array->shape.dim[piece.scan_dim]; ok && piece.index < n; piece.index++)
        ok = add_layer(x, piece, shape, first + piece.index);
    return ok;
}

bool ckpt_leaves(MxArena *arena, const CkptSurvey *survey, bool split, MxTree *tree,
                 CkptPiece **pieces, int *n_left, MxError *err) {
    Splitter x = {.arena = arena, .survey = survey, .tree = tree, .err = err};
    mx_tree_init(tree, arena);
    bool ok = true;
    for (int i = 0; ok && i < survey->n; i++) {
        const CkptEntry *e = &survey->entries[i];
        if (split && e->group >= 0 && ckpt_is_stack(e))
            ok = split_stack(&x, i);
        else if (split && e->group >= 0 && e->spot.where == CKPT_REST)
            ok = add_rest(&x, i);
        else
            ok = add_leaf(&x, (CkptPiece){.entry = i, .scan_dim = -1},
                          e->path ? e->path : e->array->path, e->array->shape);
    }
    *pieces = x.pieces;
    *n_left = x.n_left;
    return ok;
}
