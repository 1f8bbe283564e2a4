/* box.c — which elements a rank holds, and what has to travel when an array changes from one spec
 * and mesh to another. A dim that is cut into parts is cut as evenly as it goes, larger parts
 * first; for sizes that divide this is JAX's layout. How boxes are copied or sent is not here. */
#include "internal.h"

typedef struct Range {
    int64_t start, count;
} Range;

/* Part `i` of `size` elements cut into `parts`. */
static Range part_range(int64_t size, int64_t parts, int64_t i) {
    int64_t each = size / parts, larger = size % parts;
    return (Range){i * each + (i < larger ? i : larger), each + (i < larger)};
}

/* The part that has element p; p < size. */
static int64_t part_of(int64_t size, int64_t parts, int64_t p) {
    int64_t each = size / parts, larger = size % parts;
    int64_t in_larger = larger * (each + 1);
    return p < in_larger ? p / (each + 1) : larger + (p - in_larger) / each;
}

/* How many parts dim d of the layout has; 1 where the spec has no entry. */
static int64_t parts_of(MxLayout layout, int d) {
    return d < layout.spec.rank ? mx_shard_parts(layout.mesh, &layout.spec.dim[d]) : 1;
}

/* Which part of dim d the rank holds: its coordinates along the entry's mesh axes, major first. */
static int64_t part_of_rank(MxLayout layout, int d, int64_t rank) {
    int64_t part = 0;
    if (d >= layout.spec.rank) return part;
    const MxSpecDim *dim = &layout.spec.dim[d];
    for (int i = 0; i < dim->n; i++) {
        int axis = mx_mesh_find(layout.mesh, dim->axes[i]);
        if (axis < 0) continue;
        part = part * layout.mesh->sizes[axis] + mx_mesh_coord(layout.mesh, rank, axis);
    }
    return part;
}

MxBox mx_shard_box(MxLayout layout, MxShape shape, int64_t rank) {
    MX_ASSERT(layout.spec.rank <= shape.rank);
    MxBox box = {.rank = shape.rank};
    for (int d = 0; d < shape.rank; d++) {
        Range r = part_range(shape.dim[d], parts_of(layout, d), part_of_rank(layout, d, rank));
        box.start[d] = r.start;
        box.count[d] = r.count;
    }
    return box;
}

static bool same_mesh(const MxMesh *a, const MxMesh *b) {
    if (a->n != b->n) return false;
    for (int i = 0; i < a->n; i++)
        if (a->sizes[i] != b->sizes[i] || strcmp(a->axes[i], b->axes[i])) return false;
    return true;
}

/* A rank of the layout that holds part[d] of each dim. Along mesh axes that the spec does not use
 * it stands where rank `like` stands. */
static int64_t rank_with_parts(MxLayout layout, const int64_t *part, int rank_of_array,
                               int64_t like) {
    int64_t rank = like, stride = layout.mesh->n_ranks;
    for (int axis = 0; axis < layout.mesh->n; axis++) {
        stride /= layout.mesh->sizes[axis];
        for (int d = 0; d < layout.spec.rank && d < rank_of_array; d++) {
            const MxSpecDim *dim = &layout.spec.dim[d];
            int64_t left = part[d];
            for (int i = dim->n - 1; i >= 0; i--) {
                int64_t size = mx_mesh_size(layout.mesh, dim->axes[i]);
                if (mx_mesh_find(layout.mesh, dim->axes[i]) == axis)
                    rank += (left % size - mx_mesh_coord(layout.mesh, rank, axis)) * stride;
                left /= size;
            }
        }
    }
    return rank;
}

static void push(MxArena *arena, MxMoves *out, MxMove move) {
    if (out->n == out->cap) {
        int64_t cap = out->cap ? 2 * out->cap : 8;
        out->items =
            mx_arena_grow(arena, out->items, (size_t)out->n, (size_t)cap, sizeof *out->items);
        out->cap = cap;
    }
    out->items[out->n++] = move;
}

/* The part of `box` that lies in the given part of each dim. */
static MxBox cut(MxLayout from, MxShape shape, const MxBox *box, const int64_t *part) {
    MxBox out = {.rank = box->rank};
    for (int d = 0; d < box->rank; d++) {
        Range r = part_range(shape.dim[d], parts_of(from, d), part[d]);
        int64_t end = r.start + r.count, wanted_end = box->start[d] + box->count[d];
        out.start[d] = r.start > box->start[d] ? r.start : box->start[d];
        out.count[d] = (end < wanted_end ? end : wanted_end) - out.start[d];
    }
    return out;
}

void mx_shard_moves_to(MxArena *arena, MxLayout from, MxLayout to, MxShape shape,
                       int64_t destination, MxMoves *out) {
    MxBox box = mx_shard_box(to, shape, destination);
    if (!mx_box_count(&box)) return;
    int64_t like = same_mesh(from.mesh, to.mesh) ? destination : destination % from.mesh->n_ranks;
    int64_t first[MX_MAX_RANK], last[MX_MAX_RANK], part[MX_MAX_RANK];
    for (int d = 0; d < shape.rank; d++) {
        int64_t parts = parts_of(from, d);
        first[d] = part[d] = part_of(shape.dim[d], parts, box.start[d]);
        last[d] = part_of(shape.dim[d], parts, box.start[d] + box.count[d] - 1);
    }
    for (int d = 0; d >= 0;) { /* an odometer over the parts that the box meets */
        MxMove move = {.destination = destination, .box = cut(from, shape, &box, part)};
        move.source = rank_with_parts(from, part, shape.rank, like);
        push(arena, out, move);
        for (d = shape.rank - 1; d >= 0 && ++part[d] > last[d]; d--) part[d] = first[d];
    }
}

void mx_shard_moves(MxArena *arena, MxLayout from, MxLayout to, MxShape shape, MxMoves *out) {
    for (int64_t rank = 0; rank < to.mesh->n_ranks; rank++)
        mx_shard_moves_to(arena, from, to, shape, rank, out);
}
