/* coded.c — operands rounded to few numbers, and products of such operands. Codes are floats here,
 * which represent all of them exactly, so the fastest provider can multiply them; scales are
 * applied to the result, a slab of columns at a time. */
#include "slabs.h"

#include <math.h>

/* ---- rounding: x as a matrix, whose rows or whose columns share a scale */

enum { CODES, SCALES, MAGNITUDES };

typedef struct Rounding {
    MxCoding coding;
    bool by_columns;
    int64_t rows, columns;
    const void *x;
    MxDtype dtype;
    const float *factor; /* of columns, or where scales are, of rows; NULL = 1 */
    void *codes;
    MxExchange *exchange;
} Rounding;

typedef struct Work {
    const Rounding *r;
    float *found; /* one a scale: what is measured, then the magnitude, then the scale */
} Work;

static int64_t product_of(MxShape shape, int from, int to) {
    int64_t n = 1;
    for (int i = from; i < to; i++) n *= shape.dim[i];
    return n;
}

static Rounding rounding_of(const MxKernelCall *call) {
    const MxEncodeAttr *attr = call->attr;
    MxShape x = call->in_type[0].shape;
    int split = attr->leads ? attr->n_contract : x.rank - attr->n_contract;
    return (Rounding){.coding = attr->coding,
                      .by_columns = attr->leads,
                      .rows = product_of(x, 0, split),
                      .columns = product_of(x, split, x.rank),
                      .dtype = call->in_type[0].dtype};
}

static int64_t n_scales(const Rounding *r) {
    return r->by_columns ? r->columns : r->rows;
}

/* n elements of a row from column `at` on, times their factors, in `block`. */
static void read_block(const Rounding *r, int64_t row, int64_t at, int64_t n, float *block) {
    float space[CPU_BLOCK];
    const float *x = cpu_read(r->x, r->dtype, row * r->columns + at, n, space);
    if (!r->factor) {
        memcpy(block, x, (size_t)n * sizeof *block);
    } else if (r->by_columns) {
        for (int64_t i = 0; i < n; i++) block[i] = x[i] * r->factor[row];
    } else {
        for (int64_t i = 0; i < n; i++) block[i] = x[i] * r->factor[at + i];
    }
}

static void largest_of_rows(const void *context, int64_t begin, int64_t end, int worker) {
    const Work *w = context;
    float block[CPU_BLOCK];
    (void)worker;
    for (int64_t row = begin; row < end; row++) {
        float most = 0;
        for (int64_t at = 0; at < w->r->columns; at += CPU_BLOCK) {
            int64_t n = cpu_min(CPU_BLOCK, w->r->columns - at);
            read_block(w->r, row, at, n, block);
            for (int64_t i = 0; i < n; i++) most = fabsf(block[i]) > most ? fabsf(block[i]) : most;
        }
        w->found[row] = most;
    }
}

static void largest_of_columns(const void *context, int64_t begin, int64_t end, int worker) {
    const Work *w = context;
    float block[CPU_BLOCK];
    (void)worker;
    for (int64_t at = begin; at < end; at += CPU_BLOCK) {
        int64_t n = cpu_min(CPU_BLOCK, end - at);
        float *most = w->found + at;
        for (int64_t i = 0; i < n; i++) most[i] = 0;
        for (int64_t row = 0; row < w->r->rows; row++) {
            read_block(w->r, row, at, n, block);
            for (int64_t i = 0; i < n; i++)
                most[i] = fabsf(block[i]) > most[i] ? fabsf(block[i]) : most[i];
        }
    }
}

static void squares_of_rows(const void *context, int64_t begin, int64_t end, int worker) {
    const Work *w = context;
    float block[CPU_BLOCK];
    (void)worker;
    for (int64_t row = begin; row < end; row++) {
        double sum = 0;
        for (int64_t at = 0; at < w->r->columns; at += CPU_BLOCK) {
            int64_t n = cpu_min(CPU_BLOCK, w->r->columns - at);
            read_block(w->r, row, at, n, block);
            for (int64_t i = 0; i < n; i++) sum += (double)block[i] * (double)block[i];
        }
        w->found[row] = (float)sum;
    }
}

static void squares_of_columns(const void *context, int64_t begin, int64_t end, int worker) {
    const Work *w = context;
    float block[CPU_BLOCK];
    (void)worker;
    for (int64_t at = begin; at < end; at += CPU_BLOCK) {
        int64_t n = cpu_min(CPU_BLOCK, end - at);
        double sum[CPU_BLOCK] = {0};
        for (int64_t row = 0; row < w->r->rows; row++) {
            read_block(w->r, row, at, n, block);
            for (int64_t i = 0; i < n; i++) sum[i] += (double)block[i] * (double)block[i];
        }
        for (int64_t i = 0; i < n; i++) w->found[at + i] = (float)sum[i];
    }
}

static float larger(float a, float b) {
    return b > a ? b : a;
}

static float sum_of(float a, float b) {
    return a + b;
}

/* How it is measured, in rows and in columns, and how what ranks measured is joined. */
static const struct {
    CpuWork *rows, *columns;
    float (*join)(float a, float b);
} measures[MX_MEASURE_COUNT] = {
    [MX_ABSMAX] = {largest_of_rows, largest_of_columns, larger},
    [MX_RMS] = {squares_of_rows, squares_of_columns, sum_of},
};

static void code_rows(const void *context, int64_t begin, int64_t end, int worker) {
    const Work *w = context;
    const Rounding *r = w->r;
    float block[CPU_BLOCK];
    (void)worker;
    for (int64_t row = begin; row < end; row++)
        for (int64_t at = 0; at < r->columns; at += CPU_BLOCK) {
            int64_t n = cpu_min(CPU_BLOCK, r->columns - at);
            read_block(r, row, at, n, block);
            for (int64_t i = 0; i < n; i++)
                block[i] *= 1 / (r->by_columns ? w->found[at + i] : w->found[row]);
            mx_grid_round(r->coding.grid, block, n, block);
            cpu_store(block, n, r->codes, r->dtype, row * r->columns + at);
        }
}

/* What all ranks measured, this one's in its place. */
static void join_ranks(const Rounding *r, const MxKernelCall *call, float *all) {
    const MxGroup *group = &((const MxEncodeAttr *)call->attr)->group;
    int64_t n = n_scales(r);
    float *own = all + group->index * n;
    mx_exchange_all_gather(r->exchange, call->op->name, own, all, (size_t)n * sizeof *all);
    mx_exchange_finish(r->exchange);
    for (int64_t i = 0; i < n; i++) {
        float joined = all[i];
        for (int rank = 1; rank < group->size; rank++)
            joined = measures[r->coding.calibration.measure].join(joined, all[rank * n + i]);
        own[i] = joined;
    }
}

static void measure(const MxDevice *device, const MxKernelCall *call, const Work *w,
                    int64_t a_thread) {
    const Rounding *r = w->r;
    MxMeasure of = r->coding.calibration.measure;
    if (!measures[of].rows) return;
    if (r->by_columns)
        cpu_for(device, r->columns, CPU_BLOCK, measures[of].columns, w);
    else
        cpu_for(device, r->rows, a_thread, measures[of].rows, w);
    if (r->exchange) join_ranks(r, call, call->scratch);
}

static size_t encode_scratch(const MxDevice *device, const MxKernelCall *call) {
    Rounding r = rounding_of(call);
    int64_t ranks = cpu_max(1, ((const MxEncodeAttr *)call->attr)->group.size);
    (void)device;
    return cpu_padded((size_t)(ranks * n_scales(&r)) * sizeof(float));
}

static bool encode_prepare(MxDevice *device, MxKernelCall *call, MxError *err) {
    const MxGroup *group = &((const MxEncodeAttr *)call->attr)->group;
    Rounding *r = mx_new(device->arena, Rounding);
    (void)err;
    *r = rounding_of(call);
    call->state = r;
    if (group->size > 1 && measures[r->coding.calibration.measure].join)
        r->exchange = mx_comm_exchange(device->config.comm, group);
    return true;
}

static void encode_run(const MxDevice *device, const MxKernelCall *call) {
    Rounding r = *(const Rounding *)call->state;
    r.x = call->in[0];
    r.factor = call->n_in > 1 ? call->in[1] : NULL;
    r.codes = call->out[CODES];
    int64_t a_thread = cpu_max(1, CPU_PIECE / cpu_max(1, r.columns));
    const MxGroup *group = &((const MxEncodeAttr *)call->attr)->group;
    int64_t n = n_scales(&r), measured = (r.by_columns ? r.rows : r.columns);
    Work w = {&r, (float *)call->scratch + group->index * n};
    measure(device, call, &w, a_thread);
    for (int64_t i = 0; i < n; i++)
        w.found[i] = mx_calibration_magnitude(r.coding.calibration, w.found[i],
                                              measured * cpu_max(1, group->size));
    if (call->out[MAGNITUDES]) memcpy(call->out[MAGNITUDES], w.found, (size_t)n * sizeof *w.found);
    for (int64_t i = 0; i < n; i++)
        w.found[i] = mx_calibration_scale(r.coding.calibration, r.coding.grid, w.found[i]);
    if (call->out[SCALES]) memcpy(call->out[SCALES], w.found, (size_t)n * sizeof *w.found);
    if (r.codes) cpu_for(device, r.rows, a_thread, code_rows, &w);
}

const MxKernel cpu_encode = {
    .scratch = encode_scratch,
    .prepare = encode_prepare,
    .run = encode_run,
};

/* ---- within */

typedef struct Within {
    const MxKernelCall *call;
    int64_t rows, columns;
    bool by_columns; /* magnitudes are one a column */
} Within;

static void keep_within(const void *context, int64_t begin, int64_t end, int worker) {
    const Within *w = context;
    const MxKernelCall *call = w->call;
    const float *most = call->in[2];
    float space[2][CPU_BLOCK], block[CPU_BLOCK];
    (void)worker;
    for (int64_t row = begin; row < end; row++)
        for (int64_t at = 0; at < w->columns; at += CPU_BLOCK) {
            int64_t n = cpu_min(CPU_BLOCK, w->columns - at), from = row * w->columns + at;
            const float *y = cpu_read(call->in[0], call->in_type[0].dtype, from, n, space[0]);
            const float *x = cpu_read(call->in[1], call->in_type[1].dtype, from, n, space[1]);
            for (int64_t i = 0; i < n; i++)
                block[i] = fabsf(x[i]) <= most[w->by_columns ? at + i : row] ? y[i] : 0;
            cpu_store(block, n, call->out[0], call->out_type[0].dtype, from);
        }
}

static void within_run(const MxDevice *device, const MxKernelCall *call) {
    const MxEncodeAttr *attr = call->attr;
    MxShape x = call->in_type[1].shape;
    int split = attr->leads ? attr->n_contract : x.rank - attr->n_contract;
    Within w = {call, product_of(x, 0, split), product_of(x, split, x.rank), attr->leads};
    if (!call->out[0]) return;
    cpu_for(device, w.rows, cpu_max(1, CPU_PIECE / cpu_max(1, w.columns)), keep_within, &w);
}

const MxKernel cpu_within = {.run = within_run};

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

/* A slab of the result, before it is scaled. */
static Slabs slabs_of_result(const MxKernelCall *call) {
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
    return slabs_of(spec, most, size.m, sizeof(float));
}

static size_t coded_dot_scratch(const MxDevice *device, const MxKernelCall *call) {
    Slabs s = slabs_of_result(call);
    return slabs_scratch(device, &s);
}

static bool coded_dot_prepare(MxDevice *device, MxKernelCall *call, MxError *err) {
    Slabs *s = mx_new(device->arena, Slabs);
    *s = slabs_of_result(call);
    call->state = s;
    return slabs_prepare(device, s, err);
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
    const Slabs *s = call->state;
    const MxCodedDotAttr *attr = call->attr;
    void *scratch = call->scratch, *slab = cpu_carve(&scratch, s->bytes);
    Scaling scaling = {.call = call,
                       .slab = slab,
                       .rows = attr->rows ? call->in[2] : NULL,
                       .columns = attr->columns ? call->in[2 + attr->rows] : NULL,
                       .width = s->spec.n};
    for (int64_t at = 0; call->out[0] && at < s->spec.n; at += s->columns) {
        int64_t n = cpu_min(s->columns, s->spec.n - at);
        int64_t from = s->spec.trans_b ? at * s->spec.k : at;
        cpu_matmul(slabs_product(s, n), call->in[0],
                   (const char *)call->in[1] + (size_t)from * mx_dtype_bytes(s->spec.in), slab,
                   scratch);
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
