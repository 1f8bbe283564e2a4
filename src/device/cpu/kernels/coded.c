/* coded.c — pruning, and products of codes: of int8 if codes are whole numbers, otherwise of
 * floats, which represent all of them exactly. Scales are applied to the result, a slab of columns
 * at a time. */
#include "slabs.h"

#include <math.h>

/* ---- prune */

/* A row of x, and of y, of which a part remains. */
static void prune_row(float *y, const float *x, int64_t width, int64_t kept) {
    for (int64_t i = 0; i < width; i++) {
        int64_t larger = 0;
        for (int64_t j = 0; j < width; j++)
            larger += fabsf(x[j]) > fabsf(x[i]) || (fabsf(x[j]) == fabsf(x[i]) && j < i);
        if (larger >= kept) y[i] = 0;
    }
}

static void prune_rows(const void *context, int64_t begin, int64_t end, int worker) {
    const MxKernelCall *call = context;
    MxShape shape = call->in_type[1].shape;
    int64_t width = shape.dim[shape.rank - 1], kept = ((const MxPruneAttr *)call->attr)->n;
    float space[2][CPU_BLOCK], block[CPU_BLOCK];
    (void)worker;
    for (int64_t row = begin, n; row < end; row += n) {
        n = cpu_min(CPU_BLOCK / width, end - row);
        const float *y =
            cpu_read(call->in[0], call->in_type[0].dtype, row * width, n * width, space[0]);
        const float *x =
            cpu_read(call->in[1], call->in_type[1].dtype, row * width, n * width, space[1]);
        memcpy(block, y, (size_t)(n * width) * sizeof *block);
        for (int64_t i = 0; i < n; i++) prune_row(block + i * width, x + i * width, width, kept);
        cpu_store(block, n * width, call->out[0], call->out_type[0].dtype, row * width);
    }
}

static void prune_run(const MxDevice *device, const MxKernelCall *call) {
    _Static_assert((int)MX_MOST_PRUNED <= (int)CPU_BLOCK, "a row must fit in a block");
    MxShape shape = call->in_type[1].shape;
    int64_t width = shape.dim[shape.rank - 1];
    if (!call->out[0]) return;
    cpu_for(device, mx_shape_count(shape) / width, cpu_max(1, CPU_PIECE / width), prune_rows, call);
}

const MxKernel cpu_prune = {.run = prune_run};

/* ---- products */

typedef struct CodedDot {
    Slabs slabs;       /* of the result, before it is scaled */
    size_t widened[2]; /* bytes of operands that are not multiplied as int8 */
} CodedDot;

static CodedDot coded_dot_of(const MxDevice *device, const MxKernelCall *call) {
    const int64_t most = 1 << 21; /* elements */
    const MxCodedDotAttr *attr = call->attr;
    MxDotSizes size = mx_dot_sizes(call->in_type[0].shape, call->in_type[1].shape, &attr->dot);
    CpuMatmulSpec spec = {.m = size.m,
                          .n = size.n,
                          .k = size.k,
                          .ldb = attr->dot.kind == MX_DOT_NT ? size.k : size.n,
                          .trans_a = attr->dot.kind == MX_DOT_TN,
                          .trans_b = attr->dot.kind == MX_DOT_NT,
                          .in = call->in_type[0].dtype,
                          .out = MX_F32};
    CodedDot d = {.widened = {0}};
    if (spec.in == MX_I8 && !cpu_multiplies_int8(device, size.k)) {
        spec.in = MX_F32;
        d.widened[0] = cpu_padded((size_t)(size.m * size.k) * sizeof(float));
        d.widened[1] = cpu_padded((size_t)(size.k * size.n) * sizeof(float));
    }
    d.slabs = slabs_of(spec, most, size.m, sizeof(float));
    return d;
}

static size_t coded_dot_scratch(const MxDevice *device, const MxKernelCall *call) {
    CodedDot d = coded_dot_of(device, call);
    return d.widened[0] + d.widened[1] + slabs_scratch(device, &d.slabs);
}

static bool coded_dot_prepare(MxDevice *device, MxKernelCall *call, MxError *err) {
    CodedDot *d = mx_new(device->arena, CodedDot);
    *d = coded_dot_of(device, call);
    call->state = d;
    return slabs_prepare(device, &d->slabs, err);
}

typedef struct Widening {
    const int8_t *from;
    float *to;
} Widening;

static void widen_span(const void *context, int64_t begin, int64_t end, int worker) {
    const Widening *w = context;
    (void)worker;
    cpu_widen_bytes(w->from + begin, end - begin, w->to + begin);
}

/* An operand as it is multiplied. */
static const void *widened(const MxDevice *device, const MxKernelCall *call, int operand,
                           size_t bytes, void **scratch) {
    if (!bytes) return call->in[operand];
    Widening w = {call->in[operand], cpu_carve(scratch, bytes)};
    cpu_for(device, mx_shape_count(call->in_type[operand].shape), CPU_PIECE, widen_span, &w);
    return w.to;
}

/* Rows of a slab, on their way to the result. */
typedef struct Scaling {
    const MxKernelCall *call;
    const float *slab, *rows, *columns; /* scales; NULL = 1 */
    int64_t at, n, width;               /* the slab's columns, of so many */
} Scaling;

static void scale_rows(const void *context, int64_t begin, int64_t end, int worker) {
    const Scaling *s = context;
    MxDtype dtype = s->call->out_type[0].dtype;
    float block[CPU_BLOCK];
    (void)worker;
    for (int64_t row = begin; row < end; row++)
        for (int64_t at = 0; at < s->n; at += CPU_BLOCK) {
            int64_t n = cpu_min(CPU_BLOCK, s->n - at), to = row * s->width + s->at + at;
            const float *from = s->slab + row * s->n + at;
            float scale = s->rows ? s->rows[row] : 1;
            for (int64_t i = 0; i < n; i++) block[i] = from[i] * scale;
            for (int64_t i = 0; s->columns && i < n; i++) block[i] *= s->columns[s->at + at + i];
            if (s->call->accumulate & 1)
                cpu_add_to(block, n, s->call->out[0], dtype, to);
            else
                cpu_store(block, n, s->call->out[0], dtype, to);
        }
}

static void coded_dot_run(const MxDevice *device, const MxKernelCall *call) {
    const CodedDot *d = call->state;
    const Slabs *s = &d->slabs;
    const MxCodedDotAttr *attr = call->attr;
    void *scratch = call->scratch, *slab = cpu_carve(&scratch, s->bytes);
    if (!call->out[0]) return;
    const void *a = widened(device, call, 0, d->widened[0], &scratch);
    const void *b = widened(device, call, 1, d->widened[1], &scratch);
    Scaling scaling = {.call = call,
                       .slab = slab,
                       .rows = attr->rows ? call->in[2] : NULL,
                       .columns = attr->columns ? call->in[2 + attr->rows] : NULL,
                       .width = s->spec.n};
    for (int64_t at = 0; at < s->spec.n; at += s->columns) {
        int64_t n = cpu_min(s->columns, s->spec.n - at);
        int64_t from = s->spec.trans_b ? at * s->spec.k : at;
        cpu_matmul(slabs_product(s, n), a,
                   (const char *)b + (size_t)from * mx_dtype_bytes(s->spec.in), slab, scratch);
        scaling.at = at;
        scaling.n = n;
        cpu_for(device, s->spec.m, cpu_max(1, CPU_PIECE / n), scale_rows, &scaling);
    }
}

const MxKernel cpu_coded_dot = {
    .scratch = coded_dot_scratch,
    .prepare = coded_dot_prepare,
    .run = coded_dot_run,
};
