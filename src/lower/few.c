/* few.c — sums over ranks whose terms are sent in few bits. A rank cuts its array into parts, one
 * for each rank of the group, and sends each in few bits to the rank that adds it up, in float32
 * and in the order of the ranks. A reduce_scatter ends there. An all_reduce goes on: each rank
 * sends the sum of its part to all, in few bits too, and all read the same bytes, so all get the
 * same bits.
 *
 * What a rank's rounding loses, of its terms and of the sums that it makes, stays with it: it is
 * what the variable `lost` holds at the end, as a part of a sum of the whole array's shape. Of a
 * sum of parts it is at the place of the part, so that one array does for several sums one after
 * another. Whoever adds it to the rank's next term makes good for it (error feedback).
 *
 * Source: Seide et al. 2014, 1-bit SGD; Karimireddy et al. 2019, Error Feedback Fixes SignSGD; both
 * ways as in Tang et al. 2019, DoubleSqueeze. Test: tests/mpi/few.c. */
#include "partition.h"

static MxShape shape_of(const Wired *w, MxValue value) {
    return mx_trace_type(w->t, value).shape;
}

static MxValue to_few(const Wired *w, MxValue value, int n_parts, int dim, MxValue *lost) {
    MxToFewAttr attr = {.wire = w->wire, .n_parts = n_parts, .dim = dim};
    MxValue rows = mx_trace_node(w->t, &op_to_few, &value, 1, &attr);
    *lost = rows < 0 ? rows : rows + 1;
    return rows;
}

static MxValue from_few(const Wired *w, MxValue rows, bool sums, MxShape shape) {
    MxFromFewAttr attr = {.wire = w->wire, .sums = sums, .shape = shape};
    return mx_trace_node(w->t, &op_from_few, &rows, 1, &attr);
}

/* Rows as they are, so that both dims are the first. */
static MxValue exchange(const Wired *w, const MxOp *op, MxValue rows, MxGroup group) {
    MxCollectiveAttr attr = {.group = group};
    return mx_trace_node(w->t, op, &rows, 1, &attr);
}

/* This rank's part of the sum over a group, along a dim or of the flat array. */
static MxValue sum_part(const Wired *w, MxValue value, MxGroup group, int dim, MxValue *lost) {
    MxShape shape = shape_of(w, value);
    MxValue rows = to_few(w, value, group.size, dim, lost);
    if (dim == MX_WHOLE)
        shape = (MxShape){.rank = 1, .dim = {mx_few_part(shape, group.size)}};
    else
        shape.dim[dim] /= group.size;
    return from_few(w, exchange(w, &op_all_to_all, rows, group), true, shape);
}

/* Adds what was lost of a rank's part to what it lost of the whole. */
static MxValue add_part(const Wired *w, MxValue whole, MxValue part, MxAddPartAttr attr) {
    if (part == MX_NONE) return whole;
    return mx_trace_node(w->t, &op_add_part, (MxValue[]){whole, part}, 2, &attr);
}

/* The whole sum over one group after another. The ranks of a later group gather the same sum in the
 * end: what that loses, the first of them keeps. */
static MxValue sum_whole(const Wired *w, MxValue value, const MxGroup *group, int n,
                         MxValue *lost) {
    MxShape shape = shape_of(w, value);
    const MxAddPartAttr own = {group[0].size, group[0].index, MX_WHOLE, 1};
    MxValue of_sum = MX_NONE, of_rows;
    MxValue part = sum_part(w, value, group[0], MX_WHOLE, lost);
    if (n > 1) part = sum_whole(w, part, group + 1, n - 1, &of_sum);
    MxValue rows = to_few(w, part, 1, MX_WHOLE, &of_rows);
    if (n > 1)
        of_rows = add_part(w, of_sum, of_rows,
                           (MxAddPartAttr){1, 0, MX_WHOLE, .factor = group[1].index == 0});
    *lost = add_part(w, *lost, of_rows, own);
    return from_few(w, exchange(w, &op_all_gather, rows, group[0]), false, shape);
}

static MxValue sum(const Wired *w, MxValue value, const Move *moves, int n, MxValue *lost) {
    MxArena *arena = w->t->graph->arena;
    MxGroup group[2];
    MxValue of_part;
    *lost = MX_NONE;
    if (!n || w->t->failure.len) return value;
    if (moves[0].op->collective == MX_ALL_REDUCE) {
        MX_ASSERT(n == 1); /* it is the last of a value's sums */
        int n_groups = lower_sum_groups(arena, w->p, moves[0].axes, group);
        return sum_whole(w, value, group, n_groups, lost);
    }
    group[0] = mx_lower_group(arena, w->p->mesh, w->p->rank, moves[0].axes);
    MxAddPartAttr own = {group[0].size, group[0].index, moves[0].cut, 1};
    MxValue part = sum_part(w, value, group[0], moves[0].cut, lost);
    part = sum(w, part, moves + 1, n - 1, &of_part);
    *lost = add_part(w, *lost, of_part, own);
    return part;
}

MxValue lower_sum_few(const Wired *w, MxValue value, const Move *moves, int n) {
    MxValue lost;
    value = sum(w, value, moves, n, &lost);
    if (lost != MX_NONE) mx_trace_assign(w->t, lost, w->lost, false);
    return value;
}
