/* collectives.c — kernels of the ops that exchange data. Every one is an all-gather or an
 * all-to-all of equal blocks, or one after the other, with blocks put in order before or after; a
 * phase starts an exchange, the next one finishes it. Sums are made here, in the order of the
 * group's ranks, in f32 (rounded once), so that every rank and every run gets the same bits. */
#include "cpu.h"

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

static int dim_of(const MxKernelCall *call) {
    return ((const MxCollectiveAttr *)call->attr)->dim;
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
    bool joins; /* from blocks to the array */
} Parts;

static void move_rows(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const Parts *p = context;
    size_t row = (size_t)p->part.size * p->part.inner_bytes;
    for (int64_t i = begin; i < end; i++) {
        int64_t block = i % p->n, outer = i / p->n;
        size_t in_array = (size_t)i * row,
               in_blocks = (size_t)(block * p->part.outer + outer) * row;
        memcpy(p->to + (p->joins ? in_array : in_blocks),
               p->from + (p->joins ? in_blocks : in_array), row);
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
    int64_t n, stride; /* elements summed; between blocks */
    MxDtype dtype;
    void *out;
    bool adds;
} Sum;

static void sum_span(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const Sum *s = context;
    float sum[CPU_BLOCK], block[CPU_BLOCK];
    for (int64_t at = begin, n; at < end; at += n) {
        n = cpu_min(CPU_BLOCK, end - at);
        memset(sum, 0, sizeof sum);
        for (int b = 0; b < s->n_blocks; b++)
            cpu_add_to(cpu_read(s->blocks, s->dtype, b * s->stride + at, n, block), n, sum, MX_F32,
                       0);
        if (s->adds)
            cpu_add_to(sum, n, s->out, s->dtype, at);
        else if (s->dtype == MX_F32)
            memcpy((float *)s->out + at, sum, (size_t)n * sizeof *sum);
        else
            cpu_write(sum, n, s->out, s->dtype, at);
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
    s.part = s.n < MX_SMALL_SUM ? s.n : (s.n + size - 1) / size;
    s.part_bytes = (size_t)s.part * mx_dtype_bytes(call->in_type[0].dtype);
    s.whole_bytes = s.part_bytes * (size_t)size;
    return s;
}

/* Whether what is gathered is the output as it stands. */
static bool is_gathered_in_place(const MxKernelCall *call, const Sizes *s) {
    return s->bytes == s->whole_bytes && !(call->accumulate & 1);
}

/* Parts of everybody, this rank's sum, and the input with its last part filled up. */
static size_t all_reduce_scratch(const MxDevice *device, const MxKernelCall *call) {
    (void)device;
    Sizes s = sizes_of(call);
    if (s.n < MX_SMALL_SUM) return cpu_padded(s.whole_bytes);
    size_t padded = s.bytes < s.whole_bytes ? s.whole_bytes : 0;
    return cpu_padded(s.whole_bytes) + cpu_padded(s.part_bytes) + cpu_padded(padded);
}

static Sum sum_of(const MxKernelCall *call, const void *blocks, int n_blocks, int64_t n) {
    return (Sum){.blocks = blocks,
                 .n_blocks = n_blocks,
                 .n = n,
                 .stride = n,
                 .dtype = call->in_type[0].dtype,
                 .out = call->out[0],
                 .adds = call->accumulate & 1};
}

static void all_reduce_small(const MxDevice *device, const MxKernelCall *call) {
    Sizes s = sizes_of(call);
    if (call->phase == 0) {
        mx_exchange_all_gather(call->state, "all_reduce", call->in[0], call->scratch, s.part_bytes);
        return;
    }
    mx_exchange_finish(call->state);
    Sum sum = sum_of(call, call->scratch, group_of(call)->size, s.n);
    sum_blocks(device, &sum);
}

static void all_reduce_large(const MxDevice *device, const MxKernelCall *call) {
    Sizes s = sizes_of(call);
    void *scratch = call->scratch;
    char *blocks = cpu_carve(&scratch, s.whole_bytes), *part = cpu_carve(&scratch, s.part_bytes);
    bool in_place = is_gathered_in_place(call, &s);
    if (call->phase == 0) {
        const void *terms = call->in[0];
        if (s.bytes < s.whole_bytes) {
            memcpy(scratch, terms, s.bytes);
            memset((char *)scratch + s.bytes, 0, s.whole_bytes - s.bytes);
            terms = scratch;
        }
        mx_exchange_all_to_all(call->state, "all_reduce", terms, blocks, s.part_bytes);
    } else if (call->phase == 1) {
        mx_exchange_finish(call->state);
        Sum sum = sum_of(call, blocks, group_of(call)->size, s.part);
        sum.out = part;
        sum.adds = false;
        sum_blocks(device, &sum);
        mx_exchange_all_gather(call->state, "all_reduce", part, in_place ? call->out[0] : blocks,
                               s.part_bytes);
    } else {
        mx_exchange_finish(call->state);
        Sum sum = sum_of(call, blocks, 1, s.n);
        if (!in_place) sum_blocks(device, &sum);
    }
}

static void all_reduce_run(const MxDevice *device, const MxKernelCall *call) {
    if (!call->out[0]) return;
    int64_t n = mx_shape_count(call->in_type[0].shape);
    Sum alone = sum_of(call, call->in[0], 1, n);
    if (!call->state)
        sum_blocks(device, &alone);
    else if (n < MX_SMALL_SUM)
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
    return is_in_order(call->out_type[0], dim_of(call)) ? bytes : 2 * bytes;
}

static void reduce_scatter_run(const MxDevice *device, const MxKernelCall *call) {
    if (!call->out[0]) return;
    void *scratch = call->scratch;
    char *blocks = cpu_carve(&scratch, bytes_of(call->in_type[0])), *packed = call->in[0];
    Parts parts = {.part = view_of(call->out_type[0], dim_of(call)),
                   .n = group_of(call)->size,
                   .from = call->in[0],
                   .to = scratch};
    if (parts.part.outer > 1) packed = scratch;
    if (call->phase == 0 && parts.part.outer > 1) move_parts(device, &parts);
    if (call->state && call->phase == 0) {
        mx_exchange_all_to_all(call->state, "reduce_scatter", packed, blocks,
                               bytes_of(call->out_type[0]));
        return;
    }
    if (call->state) mx_exchange_finish(call->state);
    Sum sum = sum_of(call, call->state ? blocks : packed, parts.n,
                     mx_shape_count(call->out_type[0].shape));
    sum_blocks(device, &sum);
}

const MxKernel cpu_reduce_scatter = {
    .scratch = reduce_scatter_scratch, .prepare = prepare, .run = reduce_scatter_run};

/* ---- all_gather, take_part */

static size_t all_gather_scratch(const MxDevice *device, const MxKernelCall *call) {
    (void)device;
    if (is_in_order(call->in_type[0], dim_of(call))) return 0;
    return cpu_padded(bytes_of(call->out_type[0]));
}

static void all_gather_run(const MxDevice *device, const MxKernelCall *call) {
    if (!call->out[0]) return;
    Parts parts = {.part = view_of(call->in_type[0], dim_of(call)),
                   .n = group_of(call)->size,
                   .from = call->scratch,
                   .to = call->out[0],
                   .joins = true};
    bool joins = parts.part.outer > 1;
    if (!call->state) {
        memcpy(call->out[0], call->in[0], bytes_of(call->in_type[0]));
    } else if (call->phase == 0) {
        mx_exchange_all_gather(call->state, "all_gather", call->in[0],
                               joins ? call->scratch : call->out[0], bytes_of(call->in_type[0]));
    } else {
        mx_exchange_finish(call->state);
        if (joins) move_parts(device, &parts);
    }
}

const MxKernel cpu_all_gather = {
    .scratch = all_gather_scratch, .prepare = prepare, .run = all_gather_run};

typedef struct Take {
    const char *from;
    char *to;
    size_t row, stride;
} Take;

static void take_rows(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const Take *t = context;
    for (int64_t i = begin; i < end; i++)
        memcpy(t->to + (size_t)i * t->row, t->from + (size_t)i * t->stride, t->row);
}

static void take_part_run(const MxDevice *device, const MxKernelCall *call) {
    if (!call->out[0]) return;
    View part = view_of(call->out_type[0], dim_of(call));
    Take take = {.to = call->out[0], .row = (size_t)part.size * part.inner_bytes};
    take.stride = take.row * (size_t)group_of(call)->size;
    take.from = (const char *)call->in[0] + take.row * (size_t)group_of(call)->index;
    cpu_for(device, part.outer, cpu_max(1, CPU_PIECE * 4 / cpu_max(1, (int64_t)take.row)),
            take_rows, &take);
}

const MxKernel cpu_take_part = {.run = take_part_run};

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
