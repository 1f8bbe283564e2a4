/* sharding.c — shardings as sets of mesh axes: what they are called, how large a part is, and which
 * collectives lead from one to another. */
#include "partition.h"

/* ---- from specs */

/* Mesh axes of one dim, most significant first, as bits; their order is the mesh's from here on.
 * MaxText's rules cut batches along stages too, where we divide layers alone. */
static uint32_t axes_of(const MxMesh *mesh, const MxSpecDim *dim) {
    uint32_t axes = 0;
    for (int i = 0; i < dim->n; i++) {
        int axis = mx_mesh_find(mesh, dim->axes[i]);
        if (axis >= 0 && mesh->sizes[axis] > 1) axes |= 1u << axis;
    }
    return axes & ~mx_mesh_stages(mesh);
}

MxSharding mx_sharding_of_spec(const MxMesh *mesh, MxSpec spec) {
    MxSharding s = {0};
    for (int d = 0; d < spec.rank && d < MX_MAX_RANK; d++) s.dim[d] = axes_of(mesh, &spec.dim[d]);
    return s;
}

bool mx_sharding_of_axes(MxArena *arena, const MxMesh *mesh, const MxRules *rules,
                         const char *const *axes, int rank, MxSharding *out, MxError *err) {
    MxSpec spec;
    if (!mx_shard_resolve(arena, rules, mx_spec_names(arena, axes, rank), NULL, &spec, err))
        return false;
    *out = mx_sharding_of_spec(mesh, spec);
    return true;
}

MxSpec mx_sharding_spec(MxArena *arena, const MxMesh *mesh, MxSharding s, int rank) {
    MxSpecDim *dims = mx_new_n(arena, MxSpecDim, rank + 1);
    for (int d = 0; d < rank; d++) {
        const char **axes = mx_new_n(arena, const char *, mesh->n);
        for (int i = 0; i < mesh->n; i++)
            if (s.dim[d] >> i & 1) axes[dims[d].n++] = mesh->axes[i];
        dims[d].axes = axes;
    }
    return (MxSpec){.rank = rank, .dim = dims};
}

MxShape mx_sharding_shape(const MxMesh *mesh, MxSharding s, MxShape shape) {
    for (int d = 0; d < shape.rank; d++) {
        int64_t parts = lower_parts(mesh, s.dim[d]);
        MX_ASSERT(shape.dim[d] % parts == 0);
        shape.dim[d] /= parts;
    }
    return shape;
}

/* ---- sets of mesh axes */

int64_t lower_parts(const MxMesh *mesh, uint32_t axes) {
    int64_t parts = 1;
    for (int i = 0; axes >> i; i++)
        if (axes >> i & 1) parts *= mesh->sizes[i];
    return parts;
}

int64_t lower_index(const MxMesh *mesh, int64_t rank, uint32_t axes) {
    int64_t index = 0;
    for (int i = 0; axes >> i; i++)
        if (axes >> i & 1) index = index * mesh->sizes[i] + mx_mesh_coord(mesh, rank, i);
    return index;
}

/* The ranks that differ from one only along some mesh axes, in their order. */
static const int *ranks_of(MxArena *arena, const MxMesh *mesh, int64_t rank, uint32_t axes) {
    int64_t first = rank, stride = 1, n = 1, size = lower_parts(mesh, axes);
    int *ranks = mx_new_n(arena, int, size);
    for (int i = mesh->n - 1; i >= 0; stride *= mesh->sizes[i--]) {
        if (!(axes >> i & 1)) continue;
        first -= mx_mesh_coord(mesh, rank, i) * stride;
        for (int64_t k = n; k < n * mesh->sizes[i]; k++) ranks[k] = ranks[k - n] + (int)stride;
        n *= mesh->sizes[i];
    }
    for (int64_t k = 0; k < size; k++) ranks[k] += (int)first;
    return ranks;
}

MxGroup mx_lower_group(MxArena *arena, const MxMesh *mesh, int64_t rank, uint32_t axes) {
    MxText names;
    mx_text_init(&names, arena);
    for (int i = 0; axes >> i; i++)
        if (axes >> i & 1) mx_text_add(&names, "%s%s", names.len ? "," : "", mesh->axes[i]);
    uint64_t kept[] = {axes, mx_hash64(mesh->sizes, (size_t)mesh->n * sizeof *mesh->sizes)};
    return (MxGroup){.axes = names.data,
                     .id = mx_hash64(kept, sizeof kept),
                     .size = (int)lower_parts(mesh, axes),
                     .index = (int)lower_index(mesh, rank, axes),
                     .ranks = ranks_of(arena, mesh, rank, axes),
                     .bits = axes,
                     .is_uneven = (axes & mx_mesh_stages(mesh)) != 0};
}

bool lower_same_sharding(MxSharding a, MxSharding b, int rank) {
    for (int d = 0; d < rank; d++)
        if (a.dim[d] != b.dim[d]) return false;
    return a.partial == b.partial && a.swapped == b.swapped;
}

uint32_t lower_used(MxSharding s, int rank) {
    uint32_t used = 0;
    for (int d = 0; d < rank; d++) used |= s.dim[d];
    return used;
}

/* ---- moves */

/* Whether the mesh axes in `minor` all come after those in `major`, so that cutting along them cuts
 * each part anew. */
static bool is_minor(uint32_t minor, uint32_t major) {
    return !minor || !major || (minor & -minor) > major;
}

/* What both begin with. */
static uint32_t common_prefix(uint32_t a, uint32_t b) {
    uint32_t differ = a ^ b, lowest = differ & -differ;
    return differ ? a & (lowest - 1) : a;
}

typedef struct Path {
    MxSharding at;
    Move *moves;
    int n;
} Path;

static void add_move(Path *p, Move move) {
    MX_ASSERT(p->n < MOST_MOVES);
    p->moves[p->n++] = move;
}

/* Whether cutting a dim along these axes, which are missing there, leads towards `to`. */
static bool cuts_on(const Path *p, int d, uint32_t axes, MxSharding to) {
    uint32_t left = to.dim[d] & ~p->at.dim[d] & ~axes;
    return axes && !(p->at.dim[d] & ~to.dim[d]) && is_minor(axes, p->at.dim[d]) &&
           is_minor(left, axes);
}

static void scatter_sums(Path *p, int rank, MxSharding to) {
    for (int d = 0; d < rank; d++) {
        uint32_t axes = to.dim[d] & p->at.partial & ~to.partial;
        if (!cuts_on(p, d, axes, to)) continue;
        add_move(p, (Move){.op = &op_reduce_scatter, .cut = d, .axes = axes});
        p->at.dim[d] |= axes;
        p->at.partial &= ~axes;
    }
}

static void take_parts(Path *p, int rank, MxSharding to) {
    for (int d = 0; d < rank; d++) {
        uint32_t missing = to.dim[d] & ~p->at.dim[d];
        uint32_t axes = missing & ~lower_used(p->at, rank) & ~p->at.partial;
        if (!cuts_on(p, d, axes, to)) continue;
        add_move(p, (Move){.op = &op_take_part, .cut = d, .axes = axes});
        p->at.dim[d] |= axes;
    }
}

/* Axes go from one dim to another: n times fewer bytes than to gather them and take parts. */
static void exchange_parts(Path *p, int rank, MxSharding to) {
    for (int from = 0; from < rank; from++)
        for (int d = 0; d < rank; d++) {
            uint32_t axes = p->at.dim[from] & ~to.dim[from] & to.dim[d] & ~p->at.dim[d];
            uint32_t left = p->at.dim[from] & ~axes;
            if (!cuts_on(p, d, axes, to) || !is_minor(axes, left)) continue;
            add_move(p, (Move){.op = &op_all_to_all, .joined = from, .cut = d, .axes = axes});
            p->at.dim[from] = left;
            p->at.dim[d] |= axes;
        }
}

static void gather(Path *p, int rank, MxSharding to) {
    for (int d = 0; d < rank; d++) {
        uint32_t kept = common_prefix(p->at.dim[d], to.dim[d]) & p->at.dim[d] & to.dim[d];
        uint32_t axes = p->at.dim[d] & ~kept;
        if (axes) add_move(p, (Move){.op = &op_all_gather, .joined = d, .axes = axes});
        p->at.dim[d] = kept;
    }
}

/* There and back are the same exchange. */
static void swap_halves(Path *p, int rank, uint32_t dims) {
    for (int d = 0; d < rank; d++)
        if (dims >> d & 1)
            add_move(p, (Move){.op = &op_swap_halves, .cut = d, .axes = p->at.dim[d]});
    p->at.swapped ^= dims;
}

int lower_moves(int rank, MxSharding from, MxSharding to, Move out[MOST_MOVES]) {
    MX_ASSERT(!(to.partial & ~from.partial));
    Path p = {.at = from, .moves = out};
    uint32_t kept = from.swapped & to.swapped;
    for (int d = 0; d < rank; d++)
        if (from.dim[d] != to.dim[d]) kept &= ~(1u << d);
    swap_halves(&p, rank, from.swapped & ~kept);
    scatter_sums(&p, rank, to);
    take_parts(&p, rank, to);
    uint32_t sum = p.at.partial & ~to.partial;
    if (sum) add_move(&p, (Move){.op = &op_all_reduce, .axes = sum});
    p.at.partial &= ~sum;
    exchange_parts(&p, rank, to);
    gather(&p, rank, to);
    take_parts(&p, rank, to);
    swap_halves(&p, rank, to.swapped & ~kept);
    MX_ASSERT(lower_same_sharding(p.at, to, rank));
    return p.n;
}

static MxValue take(const Wired *w, MxValue value, Move move) {
    if (move.op->collective == MX_ALL_REDUCE) return lower_all_reduce(w->t, w->p, value, move.axes);
    MxCollectiveAttr attr = {
        .group = mx_lower_group(w->t->graph->arena, w->p->mesh, w->p->rank, move.axes),
        .joined = move.joined,
        .cut = move.cut};
    return mx_trace_node(w->t, move.op, &value, 1, &attr);
}

static bool is_sum(Move move) {
    MxCollective kind = move.op->collective;
    return kind == MX_REDUCE_SCATTER || kind == MX_ALL_REDUCE;
}

MxValue lower_move(const Wired *w, MxValue value, int rank, MxSharding from, MxSharding to) {
    Move moves[MOST_MOVES];
    int n = lower_moves(rank, from, to, moves), done = 0;
    while (w->wire != MX_F32 && done < n && is_sum(moves[done])) done++;
    /* A sum behind other moves would leave what its variable holds there. */
    for (int i = done; w->wire != MX_F32 && i < n; i++) MX_ASSERT(!is_sum(moves[i]));
    if (done) value = lower_sum_few(w, value, moves, done);
    for (int i = done; i < n; i++) value = take(w, value, moves[i]);
    return value;
}

double lower_cost(const MxMachine *machine, MxCommCost cost) {
    return (double)cost.bytes + machine->exchange_bytes * (double)cost.calls;
}

double lower_move_cost(const MxMachine *machine, const MxMesh *mesh, MxType type, MxSharding from,
                       MxSharding to) {
    Move moves[MOST_MOVES];
    int n = lower_moves(type.shape.rank, from, to, moves);
    double cost = 0, local = 1;
    for (int d = 0; d < type.shape.rank; d++)
        local *= (double)type.shape.dim[d] / (double)lower_parts(mesh, from.dim[d]);
    for (int i = 0; i < n; i++) {
        const MxCollective collective = moves[i].op->collective;
        int ranks = (int)lower_parts(mesh, moves[i].axes);
        MxType in = {.dtype = type.dtype, .shape = MX_SHAPE((int64_t)local)};
        cost += lower_cost(machine, machine->collective_cost(collective, in, ranks));
        if (collective == MX_ALL_GATHER)
            local *= (double)ranks;
        else if (!collective || collective == MX_REDUCE_SCATTER)
            local /= (double)ranks;
    }
    return cost;
}
