/* encode.c — operands rounded to few numbers of a grid, and what of their gradients passes: codes
 * are int8 if the grid's numbers are whole, otherwise floats. */
#include "kernel.h"
#include "vec.h"

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
    float *found;               /* one a scale: what is measured, then the scale */
    int64_t n;                  /* elements that share one, of all ranks */
    float *magnitudes, *scales; /* what is told of them; NULL = nothing */
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

/* Magnitudes are ordered as their bits are; a NaN is the largest. */
static uint32_t magnitude_bits(float x) {
    return vec_bits(x) & 0x7fffffff;
}

static void largest_of_rows(const void *context, int64_t begin, int64_t end, int worker) {
    const Work *w = context;
    float block[CPU_BLOCK];
    (void)worker;
    for (int64_t row = begin; row < end; row++) {
        uint32_t most = 0;
        for (int64_t at = 0; at < w->r->columns; at += CPU_BLOCK) {
            int64_t n = cpu_min(CPU_BLOCK, w->r->columns - at);
            read_block(w->r, row, at, n, block);
#pragma omp simd reduction(max : most)
            for (int64_t i = 0; i < n; i++)
                most = magnitude_bits(block[i]) > most ? magnitude_bits(block[i]) : most;
        }
        w->found[row] = vec_from_bits(most);
    }
}

static void largest_of_columns(const void *context, int64_t begin, int64_t end, int worker) {
    const Work *w = context;
    float block[CPU_BLOCK];
    (void)worker;
    for (int64_t at = begin; at < end; at += CPU_BLOCK) {
        int64_t n = cpu_min(CPU_BLOCK, end - at);
        uint32_t most[CPU_BLOCK] = {0};
        for (int64_t row = 0; row < w->r->rows; row++) {
            read_block(w->r, row, at, n, block);
#pragma omp simd
            for (int64_t i = 0; i < n; i++)
                most[i] = magnitude_bits(block[i]) > most[i] ? magnitude_bits(block[i]) : most[i];
        }
        memcpy(w->found + at, most, (size_t)n * sizeof *most);
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
    return b > a || isnan(b) ? b : a;
}

static float sum_of(float a, float b) {
    return a + b;
}

/* How it is measured, in rows and in columns, and how what ranks measured is joined. Where nothing
 * is, a NaN is sought. */
static const struct {
    CpuWork *rows, *columns;
    float (*join)(float a, float b);
} measures[MX_MEASURE_COUNT] = {
    [MX_ABSMAX] = {largest_of_rows, largest_of_columns, larger},
    [MX_RMS] = {squares_of_rows, squares_of_columns, sum_of},
    [MX_FIXED] = {largest_of_rows, largest_of_columns, NULL},
};

/* The whole numbers nearest to n floats that are none beyond a grid's: added to a number whose last
 * bit counts 1, they are its last bits. */
static void whole_codes(const MxGridRow *grid, const float *x, int64_t n, int8_t *y) {
    const float least = grid->least, most = grid->most, large = 12582912.0f; /* 1.5 * 2^23 */
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float z = x[i] < least ? least : x[i];
        z = z > most ? most : z;
        y[i] = (int8_t)(vec_bits(z + large) & 0xff);
    }
}

static void code_rows(const void *context, int64_t begin, int64_t end, int worker) {
    const Work *w = context;
    const Rounding *r = w->r;
    const MxGridRow *grid = &mx_grids[r->coding.grid];
    float block[CPU_BLOCK];
    (void)worker;
    for (int64_t row = begin; row < end; row++)
        for (int64_t at = 0; at < r->columns; at += CPU_BLOCK) {
            int64_t n = cpu_min(CPU_BLOCK, r->columns - at);
            read_block(r, row, at, n, block);
            for (int64_t i = 0; i < n; i++)
                block[i] *= 1 / (r->by_columns ? w->found[at + i] : w->found[row]);
            int64_t to = row * r->columns + at;
            if (grid->is_whole) {
                whole_codes(grid, block, n, (int8_t *)r->codes + to);
                continue;
            }
            mx_grid_round(r->coding.grid, block, n, block);
            cpu_store(block, n, r->codes, r->dtype, to);
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

/* Scales of what was measured. */
static void scale_found(const Work *w, int64_t begin, int64_t end) {
    MxCoding coding = w->r->coding;
    for (int64_t i = begin; i < end; i++) {
        float magnitude = mx_calibration_magnitude(coding.calibration, w->found[i], w->n);
        w->found[i] = mx_calibration_scale(coding.calibration, coding.grid, magnitude);
        if (w->magnitudes) w->magnitudes[i] = magnitude;
        if (w->scales) w->scales[i] = w->found[i];
    }
}

/* Rows are read from memory once. */
static void encode_rows(const void *context, int64_t begin, int64_t end, int worker) {
    const Work *w = context;
    CpuWork *measure = measures[w->r->coding.calibration.measure].rows;
    for (int64_t row = begin; row < end; row++) {
        measure(w, row, row + 1, worker);
        scale_found(w, row, row + 1);
        if (w->r->codes) code_rows(w, row, row + 1, worker);
    }
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

/* As many as there are for each, so that memory is read in long spans. */
static int64_t columns_of_thread(const MxDevice *device, const Rounding *r) {
    const int64_t a_line = CPU_ALIGN / (int64_t)sizeof(float);
    int64_t lines = cpu_pieces(r->columns, a_line * device->n_threads);
    return cpu_min(cpu_max(1, lines) * a_line, CPU_BLOCK);
}

static void encode_run(const MxDevice *device, const MxKernelCall *call) {
    Rounding r = *(const Rounding *)call->state;
    r.x = call->in[0];
    r.factor = call->n_in > 1 ? call->in[1] : NULL;
    r.codes = call->out[CODES];
    int64_t a_thread = cpu_max(1, CPU_PIECE / cpu_max(1, r.columns)), n = n_scales(&r);
    const MxGroup *group = &((const MxEncodeAttr *)call->attr)->group;
    Work w = {.r = &r,
              .found = (float *)call->scratch + group->index * n,
              .n = (r.by_columns ? r.rows : r.columns) * cpu_max(1, group->size),
              .magnitudes = call->out[MAGNITUDES],
              .scales = call->out[SCALES]};
    if (!r.by_columns && !r.exchange) {
        cpu_for(device, r.rows, a_thread, encode_rows, &w);
        return;
    }
    MxMeasure of = r.coding.calibration.measure;
    if (r.by_columns)
        cpu_for(device, r.columns, columns_of_thread(device, &r), measures[of].columns, &w);
    else
        cpu_for(device, r.rows, a_thread, measures[of].rows, &w);
    if (r.exchange) join_ranks(&r, call, call->scratch);
    scale_found(&w, 0, n);
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
