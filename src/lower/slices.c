/* slices.c — sums over ranks of several slices, whose links between each other are slow (dcn_*).
 * Each rank of a slice takes the slice's sum of one part, the ranks that have the same part of all
 * slices sum that up, and the slice puts the parts together. So between slices a rank sends what
 * its part takes, in place of all that goes to ranks elsewhere. Test: tests/mpi/slices.c. */
#include "partition.h"

/* Those of a group that are in this rank's slice, or that have its place in theirs. */
static MxGroup part_of(MxArena *arena, const MxMesh *mesh, MxGroup whole, bool between) {
    int64_t (*key)(const MxMesh *, int64_t) = between ? mx_mesh_place : mx_mesh_slice;
    int64_t own = key(mesh, whole.ranks[whole.index]);
    int *ranks = mx_new_n(arena, int, whole.size);
    MxGroup part = whole;
    part.size = 0;
    for (int i = 0; i < whole.size; i++) {
        if (key(mesh, whole.ranks[i]) != own) continue;
        if (i == whole.index) part.index = part.size;
        ranks[part.size++] = whole.ranks[i];
    }
    uint64_t kept[] = {whole.id, 1 + between};
    part.ranks = ranks;
    part.id = mx_hash64(kept, sizeof kept);
    part.axes = mx_arena_printf(arena, "%s %s slices", whole.axes, between ? "between" : "in");
    return part;
}

int lower_sum_groups(MxArena *arena, const MxPartition *p, uint32_t axes, MxGroup out[2]) {
    out[0] = mx_lower_group(arena, p->mesh, p->rank, axes);
    if (mx_mesh_slices(p->mesh, axes) == 1) return 1;
    const MxGroup inside = part_of(arena, p->mesh, out[0], false),
                  between = part_of(arena, p->mesh, out[0], true);
    if (inside.size == 1 || between.size == 1) return 1;
    out[0] = inside;
    out[1] = between;
    return 2;
}

static MxValue add(MxTrace *t, const MxOp *op, MxValue value, MxGroup group, int dim) {
    MxCollectiveAttr attr = {.group = group, .joined = dim, .cut = dim};
    return mx_trace_node(t, op, &value, 1, &attr);
}

/* What is exchanged at once stays so: it takes one latency. So does what the ranks of a slice
 * cannot divide. */
MxValue lower_all_reduce(MxTrace *t, const MxPartition *p, MxValue value, uint32_t axes) {
    MxArena *arena = t->graph->arena;
    const MxType type = mx_trace_type(t, value);
    MxGroup group[2];
    int n_groups = lower_sum_groups(arena, p, axes, group), dim = 0;
    if (n_groups == 1) return add(t, &op_all_reduce, value, group[0], 0);
    const MxGroup whole = mx_lower_group(arena, p->mesh, p->rank, axes);
    while (dim < type.shape.rank && type.shape.dim[dim] % group[0].size) dim++;
    bool is_small = p->machine->collective_cost(MX_ALL_REDUCE, type, whole.size).calls < 2;
    if (is_small || dim == type.shape.rank) return add(t, &op_all_reduce, value, whole, 0);
    value = add(t, &op_reduce_scatter, value, group[0], dim);
    value = add(t, &op_all_reduce, value, group[1], 0);
    return add(t, &op_all_gather, value, group[0], dim);
}
