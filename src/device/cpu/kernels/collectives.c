/* collectives.c — kernels of the ops that exchange data. Each is an all-gather or an all-to-all of
 * equal blocks, or one followed by the other, with blocks reordered before or after; a phase starts
 * an exchange, the next one finishes it. A rank's own block is not exchanged but read in place.
 * Sums are computed here, in the order of the group's ranks, in f32 (rounded once), so that every
 * rank and every run gets the same bits. */
#include "kernel.h"

/* An array seen from the dim that is joined or cut: [outer, size, inner bytes]. */
typedef struct View {
    int64_t outer, size;
    size_t inner_bytes;
} View;

static View view_of(MxType type, int dim) {
    View v = {.outer = 1, .size = 1, .inner_bytes = mx_dtype_bytes(type.dtype)};
    if (dim < type.shape.rank) v.size = type.shape.dim[dim];
    for (int d = 0; d < dim; d++) v.outer *= type.shape.dim[d];
    for (int d = dim + 1; d < type.shape.rank; d++) v.inner_bytes *= (size_t)type.shape.dim[d];
    return v;
}

/* An array's part along a dim; one part is the array itself, even if it has no dims. */
static MxType part_type(MxType type, int n_parts, int dim) {
    if (n_parts > 1) type.shape.dim[dim] /= n_parts;
    return type;
}

static size_t bytes_of(MxType type) {
    return (size_t)mx_shape_count(type.shape) * mx_dtype_bytes(type.dtype);
}

static const MxGroup *group_of(const MxKernelCall *call) {
    return &((const MxCollectiveAttr *)call->attr)->group;
}

static int joined_of(const MxKernelCall *call) {
    return ((const MxCollectiveAttr *)call->attr)->joined;
}

static int cut_of(const MxKernelCall *call) {
    return ((const MxCollectiveAttr *)call->attr)->cut;
}

static bool prepare(MxDevice *device, MxKernelCall *call, MxError *err) {
    (void)err;
    call->state = mx_comm_exchange(device->config.comm, group_of(call));
    return true;
}

/* Copies between an array and blocks of its parts along a dim, one block after another. */
typedef struct Parts {
    View part;
    int n; /* parts */
    const char *from;
    char *to;
    bool joins;      /* from blocks to the array */
    int own;         /* if it joins: the block that is not among them … */
    const char *has; /* … but here */
} Parts;

static void move_rows(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const Parts *p = context;
    size_t row = (size_t)p->part.size * p->part.inner_bytes;
    for (int64_t i = begin; i < end; i++) {
        int64_t block = i % p->n, outer = i / p->n;
        size_t in_array = (size_t)i * row, in_block = (size_t)outer * row;
        size_t in_blocks = (size_t)(block * p->part.outer) * row + in_block;
        if (!p->joins)
            memcpy(p->to + in_blocks, p->from + in_array, row);
        else
            memcpy(p->to + in_array, block == p->own ? p->has + in_block : p->from + in_blocks,
                   row);
    }
}

static void move_parts(const MxDevice *device, const Parts *p) {
    int64_t row = p->part.size * (int64_t)p->part.inner_bytes;
    cpu_for(device, p->part.outer * p->n, cpu_max(1, CPU_PIECE * 4 / cpu_max(1, row)), move_rows,
            p);
}

/* ---- sums of what the ranks sent */

typedef struct Sum {
    const char *blocks; /* [ranks][n] */
    int n_blocks;
    int own;         /* this rank's, which is not there … */
    const char *has; /* … but here */
    int64_t n;       /* elements of a block */
    MxDtype dtype;
    void *out;
    bool adds;
} Sum;

static void add(int64_t n, const float *a, const float *b, float *sum) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) sum[i] = a[i] + b[i];
}

static const float *read_term(const Sum *s, int block, int64_t at, int64_t n, float *to) {
    bool is_own = block == s->own;
    return cpu_read(is_own ? s->has : s->blocks, s->dtype, is_own ? at : block * s->n + at, n, to);
}

static void sum_span(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const Sum *s = context;
    float sum[CPU_BLOCK], term[CPU_BLOCK];
    for (int64_t at = begin, n; at < end; at += n) {
        n = cpu_min(CPU_BLOCK, end - at);
        float *last = s->adds ? sum : cpu_place(s->out, s->dtype, at, sum);
        const float *total = read_term(s, 0, at, n, sum);
        for (int b = 1; b < s->n_blocks; b++) {
            float *to = b + 1 == s->n_blocks ? last : sum;
            add(n, total, read_term(s, b, at, n, term), to);
            total = to;
        }
        if (s->adds)
            cpu_add_to(total, n, s->out, s->dtype, at);
        else if (s->dtype != MX_F32)
            cpu_write(total, n, s->out, s->dtype, at);
        else if (total != last) /* there was one term */
            memcpy(last, total, (size_t)n * sizeof *last);
    }
}

static void sum_blocks(const MxDevice *device, const Sum *s) {
    cpu_for(device, s->n, CPU_PIECE, sum_span, s);
}

/* ---- all_reduce: small sums from everybody's terms; large ones part by part, then gathered */

typedef struct Sizes {
    int64_t n, part; /* elements; of one rank's part, the last may be short of it */
    size_t bytes, part_bytes, whole_bytes;
} Sizes;

static Sizes sizes_of(const MxKernelCall *call) {
    int size = group_of(call)->size;
    Sizes s = {.n = mx_shape_count(call->in_type[0].shape), .bytes = bytes_of(call->in_type[0])};
    s.part = s.n < CPU_SMALL_SUM ? s.n : (s.n + size - 1) / size;
    s.part_bytes = (size_t)s.part * mx_dtype_bytes(call->in_type[0].dtype);
    s.whole_bytes = s.part_bytes * (size_t)size;
    return s;
}

/* Whether what is gathered is the output as it stands. */
static bool is_gathered_in_place(const MxKernelCall *call, const Sizes *s) {
    return s->bytes == s->whole_bytes && !(call->accumulate & 1);
}

/* Parts of everybody, and the input with its last part filled up. */
static size_t all_reduce_scratch(const MxDevice *device, const MxKernelCall *call) {
    (void)device;
    Sizes s = sizes_of(call);
    if (s.n < CPU_SMALL_SUM) return cpu_padded(s.whole_bytes);
    size_t padded = s.bytes < s.whole_bytes ? s.whole_bytes : 0;
    return cpu_padded(s.whole_bytes) + cpu_padded(padded);
}

/* Of everybody's blocks of n elements; `has` is this rank's. */
static Sum sum_of(const MxKernelCall *call, const void *blocks, const void *has, int64_t n) {
    return (Sum){.blocks = blocks,
                 .n_blocks = group_of(call)->size,
                 .own = group_of(call)->index,
                 .has = has,
                 .n = n,
                 .dtype = call->in_type[0].dtype,
                 .out = call->out[0],
                 .adds = call->accumulate & 1};
}

/* As it is to the output: the sum over one rank. */
static void put(const MxDevice *device, const MxKernelCall *call, const void *array, int64_t n) {
    Sum sum = sum_of(call, NULL, array, n);
    sum.n_blocks = 1;
    sum.own = 0;
    if (array != call->out[0] || sum.adds) sum_blocks(device, &sum);
}

static void all_reduce_small(const MxDevice *device, const MxKernelCall *call) {
    Sizes s = sizes_of(call);
    if (call->phase == 0) {
        mx_exchange_all_gather(call->state, "all_reduce", call->in[0], call->scratch, s.part_bytes);
        return;
    }
    mx_exchange_finish(call->state);
    Sum sum = sum_of(call, call->scratch, call->in[0], s.n);
    sum_blocks(device, &sum);
}

/* This rank's sum is made where it stands among all. */
static void all_reduce_large(const MxDevice *device, const MxKernelCall *call) {
    Sizes s = sizes_of(call);
    void *scratch = call->scratch;
    char *blocks = cpu_carve(&scratch, s.whole_bytes), *terms = call->in[0];
    char *whole = is_gathered_in_place(call, &s) ? call->out[0] : blocks;
    size_t own = (size_t)group_of(call)->index * s.part_bytes;
    if (s.bytes < s.whole_bytes) terms = scratch;
    if (call->phase == 0) {
        if (s.bytes < s.whole_bytes) {
            memcpy(terms, call->in[0], s.bytes);
            memset(terms + s.bytes, 0, s.whole_bytes - s.bytes);
        }
        mx_exchange_all_to_all(call->state, "all_reduce", terms, blocks, s.part_bytes);
    } else if (call->phase == 1) {
        mx_exchange_finish(call->state);
        Sum sum = sum_of(call, blocks, terms + own, s.part);
        sum.out = whole + own;
        sum.adds = false;
        sum_blocks(device, &sum);
        mx_exchange_all_gather(call->state, "all_reduce", whole + own, whole, s.part_bytes);
    } else {
        mx_exchange_finish(call->state);
        put(device, call, whole, s.n);
    }
}

static void all_reduce_run(const MxDevice *device, const MxKernelCall *call) {
    if (!call->out[0]) return;
    int64_t n = mx_shape_count(call->in_type[0].shape);
    if (!call->state)
        put(device, call, call->in[0], n);
    else if (n < CPU_SMALL_SUM)
        all_reduce_small(device, call);
    else
        all_reduce_large(device, call);
}

const MxKernel cpu_all_reduce = {
    .scratch = all_reduce_scratch, .prepare = prepare, .run = all_reduce_run};

/* ---- reduce_scatter */

/* Whether an array's parts along the dim are blocks one after another. */
static bool is_in_order(MxType part, int dim) {
    return view_of(part, dim).outer == 1;
}

/* Parts of everybody, and the input's in order. */
static size_t reduce_scatter_scratch(const MxDevice *device, const MxKernelCall *call) {
    (void)device;
    size_t bytes = cpu_padded(bytes_of(call->in_type[0]));
    return is_in_order(call->out_type[0], cut_of(call)) ? bytes : 2 * bytes;
}

static void reduce_scatter_run(const MxDevice *device, const MxKernelCall *call) {
    if (!call->out[0]) return;
    void *scratch = call->scratch;
    size_t bytes = bytes_of(call->out_type[0]);
    char *blocks = cpu_carve(&scratch, bytes_of(call->in_type[0])), *packed = call->in[0];
    Parts parts = {.part = view_of(call->out_type[0], cut_of(call)),
                   .n = group_of(call)->size,
                   .from = call->in[0],
                   .to = scratch};
    if (parts.part.outer > 1) packed = scratch;
    if (call->phase == 0 && parts.part.outer > 1) move_parts(device, &parts);
    if (call->state && call->phase == 0) {
        mx_exchange_all_to_all(call->state, "reduce_scatter", packed, blocks, bytes);
        return;
    }
    if (call->state) mx_exchange_finish(call->state);
    Sum sum = sum_of(call, blocks, packed + (size_t)group_of(call)->index * bytes,
                     mx_shape_count(call->out_type[0].shape));
    sum_blocks(device, &sum);
}

const MxKernel cpu_reduce_scatter = {
    .scratch = reduce_scatter_scratch, .prepare = prepare, .run = reduce_scatter_run};

/* ---- all_to_all, all_gather, take_part */

/* What goes to each rank and comes from it, a block: of these, one of ours along the dim that is
 * cut is one of theirs along the dim that is joined. */
typedef struct Blocks {
    MxType type;
    bool are_sent, are_joined; /* put in order before, and after */
} Blocks;

static Blocks blocks_of(const MxKernelCall *call) {
    MxType type = part_type(call->in_type[0], group_of(call)->size, cut_of(call));
    return (Blocks){type, !is_in_order(type, cut_of(call)), !is_in_order(type, joined_of(call))};
}

static size_t all_to_all_scratch(const MxDevice *device, const MxKernelCall *call) {
    (void)device;
    Blocks blocks = blocks_of(call);
    return (size_t)(blocks.are_sent + blocks.are_joined) * cpu_padded(bytes_of(call->in_type[0]));
}

static void all_to_all_run(const MxDevice *device, const MxKernelCall *call) {
    if (!call->out[0]) return;
    Blocks blocks = blocks_of(call);
    size_t bytes = bytes_of(blocks.type), own = (size_t)group_of(call)->index * bytes;
    void *scratch = call->scratch;
    char *sent = call->in[0], *got = call->out[0];
    if (blocks.are_sent) sent = cpu_carve(&scratch, bytes_of(call->in_type[0]));
    if (blocks.are_joined) got = scratch;
    Parts parts = {.part = view_of(blocks.type, cut_of(call)),
                   .n = group_of(call)->size,
                   .from = call->in[0],
                   .to = sent};
    if (call->phase == 0 && blocks.are_sent) move_parts(device, &parts);
    if (call->state && call->phase == 0) {
        mx_exchange_all_to_all(call->state, "all_to_all", sent, got, bytes);
        return;
    }
    if (call->state) mx_exchange_finish(call->state);
    parts = (Parts){.part = view_of(blocks.type, joined_of(call)),
                    .n = group_of(call)->size,
                    .from = got,
                    .to = call->out[0],
                    .joins = true,
                    .own = group_of(call)->index,
                    .has = sent + own};
    if (blocks.are_joined)
        move_parts(device, &parts);
    else
        memcpy(got + own, parts.has, bytes);
}

const MxKernel cpu_all_to_all = {
    .scratch = all_to_all_scratch, .prepare = prepare, .run = all_to_all_run};

static size_t all_gather_scratch(const MxDevice *device, const MxKernelCall *call) {
    (void)device;
    if (is_in_order(call->in_type[0], joined_of(call))) return 0;
    return cpu_padded(bytes_of(call->out_type[0]));
}

static void all_gather_run(const MxDevice *device, const MxKernelCall *call) {
    if (!call->out[0]) return;
    size_t bytes = bytes_of(call->in_type[0]);
    Parts parts = {.part = view_of(call->in_type[0], joined_of(call)),
                   .n = group_of(call)->size,
                   .from = call->scratch,
                   .to = call->out[0],
                   .joins = true,
                   .own = group_of(call)->index,
                   .has = call->in[0]};
    bool joins = call->state && parts.part.outer > 1;
    if (call->state && call->phase == 0)
        mx_exchange_all_gather(call->state, "all_gather", call->in[0],
                               joins ? call->scratch : call->out[0], bytes);
    else if (call->state)
        mx_exchange_finish(call->state);
    if (joins && call->phase == 1) move_parts(device, &parts);
    if (!joins && call->phase == 0)
        memcpy((char *)call->out[0] + (size_t)parts.own * bytes, call->in[0], bytes);
}

const MxKernel cpu_all_gather = {
    .scratch = all_gather_scratch, .prepare = prepare, .run = all_gather_run};

typedef struct Rows {
    const char *from;
    char *to;
    size_t row, from_stride, to_stride;
} Rows;

static void copy_span(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const Rows *r = context;
    for (int64_t i = begin; i < end; i++)
        memcpy(r->to + (size_t)i * r->to_stride, r->from + (size_t)i * r->from_stride, r->row);
}

static void copy_rows(const MxDevice *device, int64_t n, const Rows *rows) {
    cpu_for(device, n, cpu_max(1, CPU_PIECE * 4 / cpu_max(1, (int64_t)rows->row)), copy_span, rows);
}

static void take_part_run(const MxDevice *device, const MxKernelCall *call) {
    if (!call->out[0]) return;
    View part = view_of(call->out_type[0], cut_of(call));
    size_t row = (size_t)part.size * part.inner_bytes;
    Rows rows = {.from = (const char *)call->in[0] + row * (size_t)group_of(call)->index,
                 .to = call->out[0],
                 .row = row,
                 .from_stride = row * (size_t)group_of(call)->size,
                 .to_stride = row};
    copy_rows(device, part.outer, &rows);
}

const MxKernel cpu_take_part = {.run = take_part_run};

/* ---- swap_halves: an exchange with one other rank, or none */

static int opposite_of(const MxGroup *group) {
    return group->size - 1 - group->index;
}

static bool prepare_swap(MxDevice *device, MxKernelCall *call, MxError *err) {
    (void)err;
    const MxGroup *group = group_of(call);
    int own = group->index, other = opposite_of(group);
    if (own == other) return true;
    int ranks[] = {group->ranks[cpu_min(own, other)], group->ranks[cpu_max(own, other)]};
    MxGroup pair = *group;
    pair.size = 2;
    pair.index = own > other;
    pair.ranks = ranks;
    call->state = mx_comm_exchange(device->config.comm, &pair);
    return true;
}

/* Of an array of one row the other's half comes to where it stays. Halves of several rows are put
 * in order, the pair's first rank's block before its second's. */
typedef struct Swap {
    View v;
    size_t half, bytes; /* of a row's half, and of all of them */
    size_t own;         /* this rank's place in the pair */
    bool is_apart;
} Swap;

static Swap swap_of(const MxKernelCall *call) {
    Swap s = {.v = view_of(call->in_type[0], cut_of(call))};
    s.half = (size_t)(s.v.size / 2) * s.v.inner_bytes;
    s.bytes = s.half * (size_t)s.v.outer;
    s.own = group_of(call)->index > opposite_of(group_of(call));
    s.is_apart = s.v.outer > 1;
    return s;
}

static size_t swap_scratch(const MxDevice *device, const MxKernelCall *call) {
    (void)device;
    return swap_of(call).is_apart ? cpu_padded(bytes_of(call->in_type[0])) : 0;
}

static void start_swap(const MxDevice *device, const MxKernelCall *call, const Swap *s) {
    char *send = (char *)call->in[0] + s->half, *recv = (char *)call->out[0] + s->own * s->half;
    if (s->is_apart) {
        recv = call->scratch;
        Rows sent = {send, recv + s->own * s->bytes, s->half, 2 * s->half, s->half};
        copy_rows(device, s->v.outer, &sent);
        send = sent.to;
    }
    mx_exchange_all_gather(call->state, "swap_halves", send, recv, s->bytes);
}

static void finish_swap(const MxDevice *device, const MxKernelCall *call, const Swap *s) {
    mx_exchange_finish(call->state);
    if (!s->is_apart) return;
    const char *from = (const char *)call->scratch + (1 - s->own) * s->bytes;
    Rows got = {from, (char *)call->out[0] + s->half, s->half, s->half, 2 * s->half};
    copy_rows(device, s->v.outer, &got);
}

static void swap_run(const MxDevice *device, const MxKernelCall *call) {
    if (!call->out[0]) return;
    Swap s = swap_of(call);
    Rows kept = {.from = call->in[0],
                 .to = call->out[0],
                 .row = call->state ? s.half : 2 * s.half,
                 .from_stride = 2 * s.half,
                 .to_stride = 2 * s.half};
    if (call->phase == 0) copy_rows(device, s.v.outer, &kept);
    if (call->phase == 0 && call->state) start_swap(device, call, &s);
    if (call->phase == 1 && call->state) finish_swap(device, call, &s);
}

const MxKernel cpu_swap_halves = {
    .scratch = swap_scratch, .prepare = prepare_swap, .run = swap_run};

/* ---- ring_shift: from one rank, to one */

static void shift_run(const MxDevice *device, const MxKernelCall *call) {
    const MxCollectiveAttr *attr = call->attr;
    size_t bytes = bytes_of(call->in_type[0]);
    if (!call->out[0]) return;
    if (call->phase == 1) {
        if (call->state) mx_exchange_finish(call->state);
        return;
    }
    if (!call->state) memcpy(call->out[0], call->in[0], bytes);
    if (!call->state) return;
    mx_exchange_shift(call->state, attr->places, attr->sends ? call->in[0] : NULL,
                      attr->receives ? call->out[0] : NULL, bytes);
    if (!attr->receives) cpu_zero(device, call->out[0], bytes);
}

const MxKernel cpu_ring_shift = {.prepare = prepare, .run = shift_run};

/* ---- pack, unpack: small arrays, a row at a time */

static void pack_run(const MxDevice *device, const MxKernelCall *call) {
    (void)device;
    if (!call->out[0]) return;
    const MxPackAttr *attr = call->attr;
    size_t at = 0, part_bytes = bytes_of(call->out_type[0]) / (size_t)attr->n_parts;
    for (int i = 0; i < call->n_in; i++) {
        MxType part = part_type(call->in_type[i], attr->n_parts, attr->dim[i]);
        View v = view_of(part, attr->dim[i]);
        size_t row = (size_t)v.size * v.inner_bytes;
        const char *from = call->in[i];
        for (int64_t o = 0; o < v.outer; o++)
            for (int p = 0; p < attr->n_parts; p++, from += row)
                memcpy((char *)call->out[0] + (size_t)p * part_bytes + at + (size_t)o * row, from,
                       row);
        at += bytes_of(part);
    }
}

const MxKernel cpu_pack = {.run = pack_run};

static void add_row(const MxKernelCall *call, int64_t from, int64_t n, int64_t to) {
    float block[CPU_BLOCK];
    MxDtype dtype = call->in_type[0].dtype;
    for (int64_t at = 0, k; at < n; at += k) {
        k = cpu_min(CPU_BLOCK, n - at);
        cpu_add_to(cpu_read(call->in[0], dtype, from + at, k, block), k, call->out[0], dtype,
                   to + at);
    }
}

static void unpack_run(const MxDevice *device, const MxKernelCall *call) {
    (void)device;
    if (!call->out[0]) return;
    const MxUnpackAttr *attr = call->attr;
    int64_t n_parts = call->in_type[0].shape.dim[0], stride = call->in_type[0].shape.dim[1];
    size_t each = mx_dtype_bytes(call->in_type[0].dtype);
    View v = view_of(part_type(call->out_type[0], (int)n_parts, attr->dim), attr->dim);
    int64_t row = v.size * (int64_t)(v.inner_bytes / each), to = 0;
    for (int64_t o = 0; o < v.outer; o++)
        for (int64_t p = 0; p < n_parts; p++, to += row) {
            int64_t from = p * stride + attr->at + o * row;
            if (call->accumulate & 1)
                add_row(call, from, row, to);
            else
                memcpy((char *)call->out[0] + (size_t)to * each,
                       (const char *)call->in[0] + (size_t)from * each, (size_t)row * each);
        }
}

const MxKernel cpu_unpack = {.run = unpack_run};
