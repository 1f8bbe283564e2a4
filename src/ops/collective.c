/* collective.c — exchanges between ranks: sums over a group of ranks, whole arrays from parts,
 * parts of whole arrays, and parts along one dim from parts along another. The partition pass adds
 * these nodes; models do not. Sums are made in the order of the ranks, so results do not depend on
 * timing. None has a gradient: differentiation precedes partitioning. */
#include <mx/ops.h>

#include "internal.h"

static bool has_dim(MxInfer *infer, int dim) {
    if (dim >= 0 && dim < infer->in[0].shape.rank) return true;
    return mx_infer_fail(infer, "no such dim: %d", dim);
}

static bool join(MxInfer *infer) {
    const MxCollectiveAttr *attr = infer->attr;
    if (!has_dim(infer, attr->joined)) return false;
    infer->out[0].shape.dim[attr->joined] *= attr->group.size;
    return true;
}

static bool cut(MxInfer *infer) {
    const MxCollectiveAttr *attr = infer->attr;
    if (!has_dim(infer, attr->cut)) return false;
    int64_t *size = &infer->out[0].shape.dim[attr->cut];
    if (*size % attr->group.size)
        return mx_infer_fail(infer, "%d ranks do not divide dim %d", attr->group.size, attr->cut);
    *size /= attr->group.size;
    return true;
}

static bool all_gather_infer(MxInfer *infer) {
    infer->out[0] = infer->in[0];
    return join(infer);
}

static bool take_part_infer(MxInfer *infer) {
    infer->out[0] = infer->in[0];
    return cut(infer);
}

static bool all_to_all_infer(MxInfer *infer) {
    return take_part_infer(infer) && join(infer);
}

static bool swap_halves_infer(MxInfer *infer) {
    const MxCollectiveAttr *attr = infer->attr;
    infer->out[0] = infer->in[0];
    if (!has_dim(infer, attr->cut)) return false;
    return infer->in[0].shape.dim[attr->cut] % 2 == 0 ||
           mx_infer_fail(infer, "dim %d has no halves", attr->cut);
}

static bool reduce_scatter_infer(MxInfer *infer) {
    return take_part_infer(infer) && ops_is_real(infer, 0);
}

static const MxGroup *exchange(const MxMachine *machine, const MxNode *node, const MxType *in,
                               MxCommCost *cost) {
    const MxCollectiveAttr *attr = node->attr;
    *cost = machine->collective_cost(node->op->collective, in[0], attr->group.size);
    return &attr->group;
}

/* The rank in the middle of an odd number is its own opposite. */
static const MxGroup *swap_exchange(const MxMachine *machine, const MxNode *node, const MxType *in,
                                    MxCommCost *cost) {
    const MxGroup *group = &((const MxCollectiveAttr *)node->attr)->group;
    return group->index == group->size - 1 - group->index ? NULL
                                                          : exchange(machine, node, in, cost);
}

/* To whom, if to anybody: others may have no use for it. */
static const MxGroup *shift_exchange(const MxMachine *machine, const MxNode *node, const MxType *in,
                                     MxCommCost *cost) {
    bool sends = ((const MxCollectiveAttr *)node->attr)->sends;
    return sends ? exchange(machine, node, in, cost) : NULL;
}

static bool shift_infer(MxInfer *infer) {
    const MxCollectiveAttr *attr = infer->attr;
    infer->out[0] = infer->in[0];
    return (attr->places < attr->group.size && -attr->places < attr->group.size) ||
           mx_infer_fail(infer, "%d places in a ring of %d", attr->places, attr->group.size);
}

static void joined_print(MxText *text, const void *attr) {
    const MxCollectiveAttr *a = attr;
    mx_text_add(text, "dim %d %s", a->joined, a->group.axes);
}

static void cut_print(MxText *text, const void *attr) {
    const MxCollectiveAttr *a = attr;
    mx_text_add(text, "dim %d %s", a->cut, a->group.axes);
}

static void both_print(MxText *text, const void *attr) {
    const MxCollectiveAttr *a = attr;
    mx_text_add(text, "dim %d for %d %s", a->joined, a->cut, a->group.axes);
}

static void shift_print(MxText *text, const void *attr) {
    const MxCollectiveAttr *a = attr;
    mx_text_add(text, "by %d %s%s%s", a->places, a->group.axes, a->sends ? " sends" : "",
                a->receives ? " receives" : "");
}

static void sum_print(MxText *text, const void *attr) {
    mx_text_add(text, "%s", ((const MxCollectiveAttr *)attr)->group.axes);
}

const MxOp op_all_reduce = {
    .name = "all_reduce",
    .arity = 1,
    .collective = MX_ALL_REDUCE,
    .accumulates = 1,
    .attr_bytes = sizeof(MxCollectiveAttr),
    .infer = ops_infer_same,
    .exchange = exchange,
    .print = sum_print,
    .doc = "sum over the ranks of a group",
};

const MxOp op_reduce_scatter = {
    .name = "reduce_scatter",
    .arity = 1,
    .collective = MX_REDUCE_SCATTER,
    .accumulates = 1,
    .attr_bytes = sizeof(MxCollectiveAttr),
    .infer = reduce_scatter_infer,
    .exchange = exchange,
    .print = cut_print,
    .doc = "this rank's part of the sum over the ranks of a group",
};

const MxOp op_all_gather = {
    .name = "all_gather",
    .arity = 1,
    .collective = MX_ALL_GATHER,
    .attr_bytes = sizeof(MxCollectiveAttr),
    .infer = all_gather_infer,
    .exchange = exchange,
    .print = joined_print,
    .doc = "the parts of all ranks of a group, one after another along a dim",
};

const MxOp op_all_to_all = {
    .name = "all_to_all",
    .arity = 1,
    .collective = MX_ALL_TO_ALL,
    .attr_bytes = sizeof(MxCollectiveAttr),
    .infer = all_to_all_infer,
    .exchange = exchange,
    .print = both_print,
    .doc = "the parts of all ranks of a group along a dim, of each this rank's part along another",
};

const MxOp op_swap_halves = {
    .name = "swap_halves",
    .arity = 1,
    .collective = MX_SWAP_HALVES,
    .attr_bytes = sizeof(MxCollectiveAttr),
    .infer = swap_halves_infer,
    .exchange = swap_exchange,
    .print = cut_print,
    .doc = "along a dim the first half, and the second half of the rank as far from the other end",
};

const MxOp op_ring_shift = {
    .name = "ring_shift",
    .arity = 1,
    .collective = MX_RING_SHIFT,
    .attr_bytes = sizeof(MxCollectiveAttr),
    .infer = shift_infer,
    .exchange = shift_exchange,
    .print = shift_print,
    .doc = "the array of the rank so many places before, or zeros",
};

const MxOp op_take_part = {
    .name = "take_part",
    .arity = 1,
    .attr_bytes = sizeof(MxCollectiveAttr),
    .infer = take_part_infer,
    .print = cut_print,
    .doc = "this rank's part of what every rank of a group has",
};

/* ---- from one rank to another */

static bool send_infer(MxInfer *infer) {
    const MxPeerAttr *attr = infer->attr;
    MxType in = infer->in[0];
    if (in.dtype != attr->type.dtype || !mx_shape_equal(in.shape, attr->type.shape))
        return mx_infer_fail(infer, "input 0 is not what is to be sent");
    infer->out[0] = (MxType){MX_I32, MX_SCALAR};
    return true;
}

static bool sent_infer(MxInfer *infer) {
    infer->out[0] = infer->in[0];
    return ops_is(infer, 0, MX_I32, 0);
}

static bool receive_infer(MxInfer *infer) {
    infer->out[0] = ((const MxPeerAttr *)infer->attr)->type;
    return true;
}

static const MxGroup *send_exchange(const MxMachine *machine, const MxNode *node, const MxType *in,
                                    MxCommCost *cost) {
    (void)machine;
    int64_t each = (int64_t)mx_dtype_bytes(in[0].dtype);
    *cost = (MxCommCost){.calls = 1, .bytes = mx_shape_count(in[0].shape) * each};
    return &((const MxPeerAttr *)node->attr)->group;
}

static void peer_print(MxText *text, const void *attr) {
    const MxPeerAttr *a = attr;
    mx_text_add(text, "%d %s %d", a->tag, a->group.axes, a->group.ranks[1]);
}

const MxOp op_send = {
    .name = "send",
    .arity = 1,
    .flags = MX_OP_LETTER,
    .attr_bytes = sizeof(MxPeerAttr),
    .infer = send_infer,
    .exchange = send_exchange,
    .print = peer_print,
    .doc = "lets another rank have an array; a token of it",
};

const MxOp op_sent = {
    .name = "sent",
    .arity = 2,
    .flags = MX_OP_IS_MET | MX_OP_LETTER,
    .attr_bytes = sizeof(MxPeerAttr),
    .infer = sent_infer,
    .print = peer_print,
    .doc = "waits until the array of a token, input 1, is with the other rank",
};

const MxOp op_receive = {
    .name = "receive",
    .flags = MX_OP_IS_MET | MX_OP_LETTER,
    .collective = MX_RECEIVE,
    .attr_bytes = sizeof(MxPeerAttr),
    .infer = receive_infer,
    .print = peer_print,
    .doc = "the array that another rank sends",
};

/* ---- several arrays in one */

static bool pack_infer(MxInfer *infer) {
    const MxPackAttr *attr = infer->attr;
    int64_t n = 0;
    if (!infer->n_in) return mx_infer_fail(infer, "nothing to pack");
    for (int i = 0; i < infer->n_in; i++) {
        MxShape shape = infer->in[i].shape;
        bool fits = attr->n_parts == 1 ||
                    (attr->dim[i] < shape.rank && shape.dim[attr->dim[i]] % attr->n_parts == 0);
        if (infer->in[i].dtype != infer->in[0].dtype)
            return mx_infer_fail(infer, "input %d must have input 0's dtype", i);
        if (!fits) return mx_infer_fail(infer, "%d parts do not divide input %d", attr->n_parts, i);
        n += mx_shape_count(shape) / attr->n_parts;
    }
    infer->out[0] = (MxType){infer->in[0].dtype, MX_SHAPE(attr->n_parts, n)};
    return true;
}

static bool unpack_infer(MxInfer *infer) {
    const MxUnpackAttr *attr = infer->attr;
    MxShape in = infer->in[0].shape;
    if (in.rank != 2) return mx_infer_fail(infer, "input 0 must have rank 2");
    int64_t parts = in.dim[0], n = mx_shape_count(attr->shape);
    bool fits =
        parts == 1 || (attr->dim < attr->shape.rank && !(attr->shape.dim[attr->dim] % parts));
    if (!fits || attr->at < 0 || attr->at + n / parts > in.dim[1])
        return mx_infer_fail(infer, "no such array in %lld parts of %lld", (long long)parts,
                             (long long)in.dim[1]);
    infer->out[0] = (MxType){infer->in[0].dtype, attr->shape};
    return true;
}

static void pack_print(MxText *text, const void *attr) {
    mx_text_add(text, "parts %d", ((const MxPackAttr *)attr)->n_parts);
}

static void unpack_print(MxText *text, const void *attr) {
    mx_text_add(text, "at %lld", (long long)((const MxUnpackAttr *)attr)->at);
}

const MxOp op_pack = {
    .name = "pack",
    .flags = MX_OP_PACK,
    .arity = -1,
    .attr_bytes = sizeof(MxPackAttr),
    .infer = pack_infer,
    .print = pack_print,
    .doc = "several arrays in one, to be exchanged together",
};

const MxOp op_unpack = {
    .name = "unpack",
    .arity = 1,
    .accumulates = 1,
    .attr_bytes = sizeof(MxUnpackAttr),
    .infer = unpack_infer,
    .print = unpack_print,
    .doc = "one of the arrays of a pack",
};

/* ---- cost */

int mx_op_phases(const MxMachine *machine, const MxOp *op, MxType in, const void *attr) {
    if (!op->collective) return 1;
    if (op->collective == MX_RECEIVE) return 2;
    return machine->phases(op->collective, in, ((const MxCollectiveAttr *)attr)->group.size);
}
