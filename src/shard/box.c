/* box.c — the elements of an array that a rank has. A dim is cut into parts as even as possible,
 * larger parts first; if its size is divisible, this is JAX's layout. Copying and sending boxes is
 * elsewhere. */
#include "internal.h"

typedef struct Range {
    int64_t start, count;
} Range;

/* Part `i` of `size` elements cut into `parts`. */
static Range part_range(int64_t size, int64_t parts, int64_t i) {
    int64_t each = size / parts, larger = size % parts;
    return (Range){i * each + (i < larger ? i : larger), each + (i < larger)};
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
