/* choose.c — how one node is divided among the ranks: which mesh axes cut which of its factors. A
 * mesh axis can cut one factor; the others then have to be gathered along it (a weight that is cut
 * by the axis that cuts the batch), and a factor that an output lacks leaves it partial (a
 * contracted dim), unless the op joins it by an exchange of its own (the vocabulary of a softmax).
 * The answer is the cheapest by bytes that have to be moved in and out, plus the work that several
 * ranks would do alike; each axis is tried on each factor while the others stay, until nothing gets
 * better. */
#include "partition.h"

#include <math.h>

/* Arrays of a mask are parts of a ring. */
static void cut_ring(const Choice *c, unsigned mask, int i, MxSharding *s) {
    if (c->is_ring && mask >> i & 1) s->dim[c->factors.ring_dim] = c->cut[c->factors.ring];
}

MxSharding lower_in_sharding(const Choice *c, int i) {
    MxSharding s = {.partial = c->factors.linear >> i & 1 ? c->partial : 0};
    cut_ring(c, c->factors.ring_in, i, &s);
    for (int d = 0; d < c->in[i].type.shape.rank; d++) {
        int factor = c->factors.in_dim[i][d];
        if (factor == MX_WHOLE) continue;
        s.dim[d] = c->cut[factor];
        if (c->is_swapped && factor == c->factors.swapped) s.swapped |= 1u << d;
    }
    return s;
}

/* Whether some input has a dim of the factor: an output without one is then a sum. */
static bool is_read(const MxFactors *f, int factor) {
    for (int i = 0; i < f->n_in; i++)
        for (int d = 0; d < f->in[i].shape.rank; d++)
            if (f->in_dim[i][d] == factor) return true;
    return false;
}

MxSharding lower_out_sharding(const Choice *c, int i) {
    MxSharding s = {.partial = c->partial};
    uint32_t own = 0;
    cut_ring(c, c->factors.ring_out, i, &s);
    if (c->is_ring && c->factors.ring_out >> i & 1) own |= 1u << c->factors.ring;
    for (int d = 0; d < c->out[i].type.shape.rank; d++) {
        int factor = c->factors.out_dim[i][d];
        if (factor == MX_WHOLE) continue;
        s.dim[d] = c->cut[factor];
        if (c->is_swapped && factor == c->factors.swapped) s.swapped |= 1u << d;
        own |= 1u << factor;
    }
    for (int k = 0; k < c->factors.n; k++) {
        bool is_joined = k == c->factors.joined && c->factors.joins >> i & 1;
        if (!(own >> k & 1) && !is_joined && is_read(&c->factors, k)) s.partial |= c->cut[k];
    }
    return s;
}

static bool divides(const MxMesh *mesh, const Choice *c, int factor) {
    int64_t parts = lower_parts(mesh, c->cut[factor]);
    for (int i = 0; i < c->factors.n_in; i++)
        for (int d = 0; d < c->in[i].type.shape.rank; d++)
            if (c->factors.in_dim[i][d] == factor && c->in[i].type.shape.dim[d] % parts)
                return false;
    for (int i = 0; i < c->factors.n_out; i++)
        for (int d = 0; d < c->out[i].type.shape.rank; d++)
            if (c->factors.out_dim[i][d] == factor && c->out[i].type.shape.dim[d] % parts)
                return false;
    return true;
}

static double bytes_of(MxType type) {
    return (double)mx_shape_count(type.shape) * (double)mx_dtype_bytes(type.dtype);
}

static double cost_in(const MxMesh *mesh, const Choice *c, int i) {
    MxSharding to = lower_in_sharding(c, i);
    double least = lower_move_cost(c->machine, mesh, c->in[i].type, c->in[i].at[0], to);
    for (int k = 1; k < c->in[i].n_at; k++) {
        if (to.partial & ~c->in[i].at[k].partial) continue;
        double cost = lower_move_cost(c->machine, mesh, c->in[i].type, c->in[i].at[k], to);
        if (cost < least) least = cost;
    }
    return least;
}

/* An output that nobody has asked for yet will have to be summed at least; what goes into a
 * variable may be left as a sum. */
static double cost_out(const MxMesh *mesh, const Choice *c, int i) {
    MxSharding from = lower_out_sharding(c, i), to = c->out[i].is_set ? c->out[i].at[0] : from;
    to.partial = c->out[i].is_set ? to.partial & from.partial : 0;
    return lower_move_cost(c->machine, mesh, c->out[i].type, from, to);
}

/* Elements along a factor: those of the first dim that belongs to it. */
static int64_t size_of(const Choice *c, int factor) {
    for (int i = 0; i < c->factors.n_in; i++)
        for (int d = 0; d < c->in[i].type.shape.rank; d++)
            if (c->factors.in_dim[i][d] == factor) return c->in[i].type.shape.dim[d];
    return 1;
}

/* Work of the elements before `end`. */
static double work_before(double end, double ramp) {
    return end < ramp ? end * end / 2 : ramp * (end - ramp / 2);
}

/* By how much the rank with the most work has more of it than the average. */
static double unevenness(const MxMesh *mesh, const Choice *c) {
    int k = c->factors.swapped;
    if (k == MX_WHOLE || !c->cut[k] || c->is_swapped) return 1;
    double n = (double)size_of(c, k), ranks = (double)lower_parts(mesh, c->cut[k]);
    double all = work_before(n, c->factors.ramp);
    return all > 0 ? ranks * (1 - work_before(n - n / ranks, c->factors.ramp) / all) : 1;
}

/* What the op exchanges by itself, as if at once. Whatever else is cut divides it too. */
static double cost_inside(const MxMesh *mesh, const Choice *c) {
    uint32_t others = 0;
    if (c->factors.joined == MX_WHOLE || !c->cut[c->factors.joined]) return 0;
    for (int k = 0; k < c->factors.n; k++)
        if (k != c->factors.joined) others |= c->cut[k];
    int64_t bytes = (int64_t)c->factors.joined_bytes / lower_parts(mesh, others);
    int64_t ranks = lower_parts(mesh, c->cut[c->factors.joined]);
    return lower_cost(c->machine, (MxCommCost){.calls = 1, .bytes = (ranks - 1) * bytes});
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* Rounds in which the rank that sends to the most others does. */
static int64_t count_rounds(const MxMesh *mesh, const Choice *c) {
    int64_t ranks = lower_parts(mesh, c->cut[c->factors.ring]), reach = c->factors.ring_reach;
    int64_t part = size_of(c, c->factors.ring) / ranks;
    return c->is_swapped || !reach ? ranks - 1 : least(ranks - 1, (reach + part - 2) / part);
}

/* What goes around, an array an exchange. */
static double cost_around(const MxMesh *mesh, const Choice *c) {
    MxCommCost round = {0};
    if (!c->is_ring) return 0;
    for (int i = 0; i < c->factors.n_in + c->factors.n_out; i++) {
        bool is_in = i < c->factors.n_in;
        int k = is_in ? i : i - c->factors.n_in;
        if (!((is_in ? c->factors.ring_in : c->factors.ring_out) >> k & 1)) continue;
        const Candidate *array = is_in ? &c->in[k] : &c->out[k];
        MxSharding s = is_in ? lower_in_sharding(c, k) : lower_out_sharding(c, k);
        int64_t parts = lower_parts(mesh, lower_used(s, array->type.shape.rank));
        round.calls++;
        round.bytes += (int64_t)bytes_of(array->type) / parts;
    }
    return lower_cost(c->machine, round) * (double)count_rounds(mesh, c);
}

static double cost_as_is(const MxMesh *mesh, const Choice *c) {
    double cost = cost_inside(mesh, c) + cost_around(mesh, c), touched = 0;
    uint32_t used = c->partial;
    for (int i = 0; i < c->factors.n_in; i++) {
        cost += cost_in(mesh, c, i);
        touched += bytes_of(c->in[i].type);
    }
    for (int i = 0; i < c->factors.n_out; i++) {
        cost += cost_out(mesh, c, i);
        touched += bytes_of(c->out[i].type);
    }
    for (int k = 0; k < c->factors.n; k++) used |= c->cut[k];
    double work = c->flops / c->machine->flops_a_byte * unevenness(mesh, c) +
                  touched / c->machine->touched_a_byte;
    return cost + work / (double)lower_parts(mesh, used);
}

static bool can_swap(const MxMesh *mesh, const Choice *c) {
    int k = c->factors.swapped;
    return c->balances && k != MX_WHOLE && c->cut[k] &&
           size_of(c, k) / lower_parts(mesh, c->cut[k]) % 2 == 0;
}

static bool can_ring(const Choice *c) {
    return c->machine->has_rings && c->factors.ring != MX_WHOLE && c->cut[c->factors.ring];
}

/* With halves swapped, or around a ring, or both, if that is cheaper by more than sums are off. */
static double cost_of(const MxMesh *mesh, Choice *c) {
    const double less = 1 - 1e-9;
    bool can[] = {can_swap(mesh, c), can_ring(c)}, best[2] = {false, false};
    double lowest = INFINITY;
    for (int swaps = 0; swaps <= can[0]; swaps++)
        for (int rings = can[1] && c->rings; rings <= can[1]; rings++) {
            c->is_swapped = swaps;
            c->is_ring = rings;
            double cost = cost_as_is(mesh, c);
            if (cost >= lowest * less) continue;
            lowest = cost;
            best[0] = swaps;
            best[1] = rings;
        }
    c->is_swapped = best[0];
    c->is_ring = best[1];
    return lowest;
}

/* Puts one mesh axis on the factor where it costs least; whether anything changed. */
static bool improve(const MxMesh *mesh, Choice *c, uint32_t axis) {
    int best = MX_WHOLE, old = MX_WHOLE;
    for (int k = 0; k < c->factors.n; k++) {
        if (c->cut[k] & axis) old = k;
        c->cut[k] &= ~axis;
    }
    double least = cost_of(mesh, c);
    for (int k = 0; k < c->factors.n; k++) {
        c->cut[k] |= axis;
        double cost = divides(mesh, c, k) ? cost_of(mesh, c) : least;
        if (cost < least) {
            least = cost;
            best = k;
        }
        c->cut[k] &= ~axis;
    }
    if (best != MX_WHOLE) c->cut[best] |= axis;
    return best != old;
}

/* The factor that a mesh axis cuts in an array as it stands. */
static int factor_in(const int *factors, MxSharding s, int rank, uint32_t axis) {
    for (int d = 0; d < rank; d++)
        if (s.dim[d] & axis) return factors[d];
    return MX_WHOLE;
}

/* As the largest array that the axis cuts has it. */
static void begin_with(const MxMesh *mesh, Choice *c, uint32_t axis) {
    int best = MX_WHOLE;
    double largest = -1;
    for (int i = 0; i < c->factors.n_in; i++) {
        int k = factor_in(c->factors.in_dim[i], c->in[i].at[0], c->in[i].type.shape.rank, axis);
        if (k == MX_WHOLE || bytes_of(c->in[i].type) <= largest) continue;
        largest = bytes_of(c->in[i].type);
        best = k;
    }
    for (int i = 0; i < c->factors.n_out; i++) {
        if (!c->out[i].is_set) continue;
        int k = factor_in(c->factors.out_dim[i], c->out[i].at[0], c->out[i].type.shape.rank, axis);
        if (k == MX_WHOLE || bytes_of(c->out[i].type) <= largest) continue;
        largest = bytes_of(c->out[i].type);
        best = k;
    }
    if (best == MX_WHOLE) return;
    c->cut[best] |= axis;
    if (!divides(mesh, c, best)) c->cut[best] &= ~axis;
}

/* A sum that all linear inputs still wait for is left to the output. */
static uint32_t common_partial(const Choice *c) {
    uint32_t partial = 0;
    bool is_first = true;
    for (int i = 0; i < c->factors.n_in; i++) {
        if (!(c->factors.linear >> i & 1)) continue;
        if (!is_first && c->in[i].at[0].partial != partial) return 0;
        partial = c->in[i].at[0].partial;
        is_first = false;
    }
    return partial;
}

void lower_choose(const MxMesh *mesh, Choice *c) {
    enum { ROUNDS = 3 };
    memset(c->cut, 0, sizeof c->cut);
    c->partial = common_partial(c);
    uint32_t busy = c->partial | c->apart | mx_mesh_stages(mesh) | mx_mesh_replicas(mesh);
    for (int i = 0; i < mesh->n; i++)
        if (mesh->sizes[i] > 1 && !(busy >> i & 1)) begin_with(mesh, c, 1u << i);
    for (int round = 0, better = 1; round < ROUNDS && better; round++) {
        better = 0;
        for (int i = 0; i < mesh->n; i++)
            if (mesh->sizes[i] > 1 && !(busy >> i & 1)) better += improve(mesh, c, 1u << i);
    }
    cost_of(mesh, c); /* the last cost was that of something tried */
}

/* ---- the share of one rank */

/* Where this rank's part along a factor starts, and where the second half of the opposite rank's.
 */
static int64_t start_of(const MxGroup *group, int64_t size, bool is_second) {
    int64_t part = size / group->size;
    return is_second ? part * (group->size - 1 - group->index) + part / 2 : part * group->index;
}

const void *lower_localized(MxArena *arena, const MxMesh *mesh, int64_t rank, const MxNode *node,
                            const Choice *c) {
    if (!node->op->localize) return node->attr;
    void *attr = mx_arena_grow(arena, node->attr, 1, 1, node->op->attr_bytes);
    MxType out[MX_MAX_OUT];
    int64_t start[MX_MAX_FACTORS] = {0};
    bool is_cut[MX_MAX_FACTORS] = {0};
    MxGroup group[MX_MAX_FACTORS] = {0};
    MxShare share = {.out = out, .start = start, .is_cut = is_cut, .group = group};
    for (int i = 0; i < node->n_out; i++) {
        out[i] = c->out[i].type;
        out[i].shape = mx_sharding_shape(mesh, lower_out_sharding(c, i), out[i].shape);
    }
    for (int i = 0; i < node->n_in + node->n_out; i++) {
        bool is_in = i < node->n_in;
        const Candidate *array = is_in ? &c->in[i] : &c->out[i - node->n_in];
        const int *factors = is_in ? c->factors.in_dim[i] : c->factors.out_dim[i - node->n_in];
        for (int d = 0; d < array->type.shape.rank; d++) {
            int k = factors[d];
            if (k == MX_WHOLE || is_cut[k] || !c->cut[k]) continue;
            is_cut[k] = true;
            group[k] = mx_lower_group(arena, mesh, rank, c->cut[k]);
            start[k] = start_of(&group[k], array->type.shape.dim[d], false);
            if (!c->is_swapped || k != c->factors.swapped) continue;
            share.is_swapped = true;
            share.second = start_of(&group[k], array->type.shape.dim[d], true);
        }
    }
    node->op->localize(&share, attr);
    return attr;
}
