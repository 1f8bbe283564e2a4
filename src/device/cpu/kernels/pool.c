/* pool.c — windows of tokens: means of their rows, a block of columns at a time, and which of them
 * tokens see. The bias's gradient is a sum over all windows: each piece of them writes a partial
 * sum to scratch, and the pieces are added up in order. */
#include "pool.h"
#include "vec.h"

#include <math.h>

enum { COLUMNS = 128 /* of a block */, MOST_PARTIALS = 64 };
enum { X, GATES, BIAS, SEGMENTS, DY };

typedef struct Pool {
    const MxKernelCall *call;
    int64_t time, windows;    /* of a row of the batch: tokens, or slots of a cache; windows */
    int64_t ratio, before;    /* tokens of a window; of the one before that take part */
    int64_t width, out_width; /* elements of a row, and of a pooled one */
    int64_t all, piece;       /* windows of all rows; and of a thread at a time */
    MxDtype dtype;
    float *partial; /* [pieces, ratio, width] of the bias's gradient */
} Pool;

/* Columns of window w of row b, or of sequence b; its terms from `first` on take part. */
typedef struct Block {
    int64_t b, w, column, n, first;
} Block;

/* The lengths of rows that x, gates and bias have, of a batch or of a cache. */
static Pool rows_of(const MxKernelCall *call) {
    const MxPoolAttr *attr = call->attr;
    MxShape x = call->in_type[X].shape;
    return (Pool){.call = call,
                  .time = x.dim[1],
                  .ratio = attr->ratio,
                  .before = attr->overlaps ? attr->ratio : 0,
                  .width = x.dim[2],
                  .out_width = attr->overlaps ? x.dim[2] / 2 : x.dim[2],
                  .piece = cpu_max(1, CPU_PIECE / cpu_max(1, attr->ratio * x.dim[2])),
                  .dtype = call->in_type[X].dtype};
}

static Pool pool_of(const MxKernelCall *call) {
    Pool p = rows_of(call);
    p.windows = p.time / p.ratio;
    p.all = call->in_type[X].shape.dim[0] * p.windows;
    return p;
}

static Block block_of(const Pool *p, int64_t window, int64_t column) {
    int64_t b = window / p->windows, w = window % p->windows;
    const int32_t *own = (const int32_t *)p->call->in[SEGMENTS] + b * p->time + w * p->ratio;
    bool joins = w && own[0] == own[-p->ratio];
    return (Block){b, w, column, cpu_min(COLUMNS, p->out_width - column), joins ? 0 : p->before};
}

/* Where the columns of a term are in x and the gates, and in the bias. */
typedef struct Term {
    int64_t row, bias;
} Term;

static Term term_of(const Pool *p, const Block *k, int64_t i) {
    int64_t t = k->w * p->ratio - p->before + i, token = k->b * p->time + t % p->time;
    int64_t column = k->column + (i < p->before ? 0 : p->width - p->out_width);
    return (Term){token * p->width + column, i % p->ratio * p->width + column};
}

static void read_scores(const Pool *p, const Block *k, Term term, float *score) {
    const float *bias = (const float *)p->call->in[BIAS] + term.bias;
    const float *gates = cpu_read(p->call->in[GATES], p->dtype, term.row, k->n, score);
#pragma omp simd
    for (int64_t j = 0; j < k->n; j++) score[j] = gates[j] + bias[j];
}

/* ---- means */

/* Of a block: in each column the largest score, 1 / the sum of exp(score - most), the mean. */
typedef struct Means {
    float most[COLUMNS], inverse[COLUMNS], y[COLUMNS];
} Means;

static void raise_most(int64_t n, const float *score, float *most) {
#pragma omp simd
    for (int64_t j = 0; j < n; j++) most[j] = score[j] > most[j] ? score[j] : most[j];
}

/* Sums are collected in m->inverse and m->y. */
static void add_term(int64_t n, const float *score, const float *x, Means *m) {
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        float e = vec_exp(score[j] - m->most[j]);
        m->inverse[j] += e;
        m->y[j] += e * x[j];
    }
}

static void find_means(const Pool *p, const Block *k, Means *m) {
    float score[COLUMNS], x_block[COLUMNS];
    int64_t end = p->before + p->ratio;
    for (int64_t j = 0; j < k->n; j++) m->most[j] = -INFINITY;
    memset(m->inverse, 0, sizeof m->inverse);
    memset(m->y, 0, sizeof m->y);
    for (int64_t i = k->first; i < end; i++) {
        read_scores(p, k, term_of(p, k, i), score);
        raise_most(k->n, score, m->most);
    }
    for (int64_t i = k->first; i < end; i++) {
        Term term = term_of(p, k, i);
        read_scores(p, k, term, score);
        add_term(k->n, score, cpu_read(p->call->in[X], p->dtype, term.row, k->n, x_block), m);
    }
    for (int64_t j = 0; j < k->n; j++) {
        m->inverse[j] = 1.0f / m->inverse[j];
        m->y[j] *= m->inverse[j];
    }
}

static void pool_windows(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const Pool *p = context;
    Means m;
    for (int64_t window = begin; window < end; window++)
        for (int64_t column = 0; column < p->out_width; column += COLUMNS) {
            Block k = block_of(p, window, column);
            find_means(p, &k, &m);
            cpu_store(m.y, k.n, p->call->out[0], p->dtype, window * p->out_width + column);
        }
}

static void pool_run(const MxDevice *device, const MxKernelCall *call) {
    Pool p = pool_of(call);
    if (call->out[0]) cpu_for(device, p.all, p.piece, pool_windows, &p);
}

const MxKernel cpu_pool = {.run = pool_run};

/* ---- means of windows that end with a piece */

enum { POSITIONS = SEGMENTS, SEQUENCES };

/* The number of the i-th window whose last token is one of a piece's, at these positions; -1 =
 * there is none. */
static int32_t ended_window(const int32_t *positions, int64_t time, int64_t ratio, int64_t i) {
    if (positions[0] < 0) return -1;
    int64_t w = positions[0] / ratio + i, last = (w + 1) * ratio - 1 - positions[0];
    return last < time && positions[last] >= 0 ? (int32_t)w : -1;
}

static void pool_cached(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const Pool *p = context;
    const int32_t *positions = p->call->in[POSITIONS], *sequences = p->call->in[SEQUENCES];
    int64_t time = p->call->in_type[POSITIONS].shape.dim[1];
    Means m;
    for (int64_t row = begin; row < end; row++) {
        int64_t b = row / p->windows;
        int64_t w = ended_window(positions + b * time, time, p->ratio, row % p->windows);
        memset(m.y, 0, sizeof m.y);
        for (int64_t column = 0; column < p->out_width; column += COLUMNS) {
            int64_t n = cpu_min(COLUMNS, p->out_width - column);
            Block k = {sequences[b], w, column, n, w ? 0 : p->before};
            if (w >= 0) find_means(p, &k, &m);
            cpu_store(m.y, n, p->call->out[0], p->dtype, row * p->out_width + column);
        }
    }
}

static void cache_pool_run(const MxDevice *device, const MxKernelCall *call) {
    MxShape out = call->out_type[0].shape;
    Pool p = rows_of(call);
    p.windows = out.dim[1];
    if (call->out[0]) cpu_for(device, out.dim[0] * out.dim[1], p.piece, pool_cached, &p);
}

const MxKernel cpu_cache_pool = {.run = cache_pool_run};

/* ---- gradient: dx_i = p_i dy, dscore_i = dx_i (x_i - y), of the bias a sum over windows */

/* What a term gets; its score becomes that of the score. */
static void give_term(int64_t n, const float *x_dy[2], const Means *m, float *score, float *dx) {
    const float *x = x_dy[0], *dy = x_dy[1];
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        dx[j] = vec_exp(score[j] - m->most[j]) * m->inverse[j] * dy[j];
        score[j] = dx[j] * (x[j] - m->y[j]);
    }
}

static void pool_grad_block(const Pool *p, const Block *k, float *dbias) {
    void *const *in = p->call->in, *const *out = p->call->out;
    float score[COLUMNS], dx[COLUMNS], x_block[COLUMNS], dy_block[COLUMNS];
    int64_t y_row = (k->b * p->windows + k->w) * p->out_width + k->column;
    const float *dy = cpu_read(in[DY], p->dtype, y_row, k->n, dy_block);
    Means m;
    find_means(p, k, &m);
    for (int64_t i = k->first; i < p->before + p->ratio; i++) {
        Term term = term_of(p, k, i);
        const float *x = cpu_read(in[X], p->dtype, term.row, k->n, x_block);
        read_scores(p, k, term, score);
        give_term(k->n, (const float *[]){x, dy}, &m, score, dx);
        if (out[X]) cpu_store(dx, k->n, out[X], p->dtype, term.row);
        if (out[GATES]) cpu_store(score, k->n, out[GATES], p->dtype, term.row);
        vec_add_times(k->n, 1.0f, score, dbias + term.bias);
    }
}

static void pool_grad_windows(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const Pool *p = context;
    int64_t n = p->ratio * p->width;
    float *partial = p->partial + begin / p->piece * n;
    memset(partial, 0, (size_t)n * sizeof *partial);
    for (int64_t window = begin; window < end; window++)
        for (int64_t column = 0; column < p->out_width; column += COLUMNS) {
            Block k = block_of(p, window, column);
            pool_grad_block(p, &k, partial);
        }
}

static Pool pool_grad_of(const MxKernelCall *call) {
    Pool p = pool_of(call);
    p.piece = cpu_max(p.piece, cpu_pieces(p.all, MOST_PARTIALS));
    p.partial = call->scratch;
    return p;
}

static size_t pool_grad_scratch(const MxDevice *device, const MxKernelCall *call) {
    (void)device;
    Pool p = pool_grad_of(call);
    return (size_t)(cpu_pieces(p.all, p.piece) * p.ratio * p.width) * sizeof(float);
}

static void pool_grad_run(const MxDevice *device, const MxKernelCall *call) {
    Pool p = pool_grad_of(call);
    int64_t n = p.ratio * p.width;
    size_t bytes = (size_t)mx_shape_count(call->in_type[X].shape) * mx_dtype_bytes(p.dtype);
    for (int i = X; i <= GATES; i++) /* there are tokens that no window reads */
        if (call->out[i]) cpu_zero(device, call->out[i], bytes);
    cpu_for(device, p.all, p.piece, pool_grad_windows, &p);
    if (!call->out[BIAS]) return;
    memset(call->out[BIAS], 0, (size_t)n * sizeof(float));
    for (int64_t i = 0; i < cpu_pieces(p.all, p.piece); i++)
        cpu_add_to(p.partial + i * n, n, call->out[BIAS], MX_F32, 0);
}

const MxKernel cpu_pool_grad = {.scratch = pool_grad_scratch, .run = pool_grad_run};

/* ---- the windows that tokens see */

void pool_segments(const int32_t *segments, const int64_t rows_time[2], int64_t ratio,
                   int32_t *out) {
    int64_t time = rows_time[1], windows = time / ratio;
    for (int64_t i = 0; i < rows_time[0] * windows; i++) {
        const int32_t *s = segments + i / windows * time + i % windows * ratio;
        out[i] = s[0] ? s[0] : -1;
        for (int64_t j = 1; j < ratio; j++)
            if (s[j] != s[0]) out[i] = -1;
    }
}

static int64_t windows_ratio(const MxKernelCall *call) {
    return ((const MxWindowsAttr *)call->attr)->ratio;
}

static void windows_tokens(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const MxKernelCall *call = context;
    const int32_t *segments = call->in[0], *of_windows = call->scratch;
    MxShape out = call->out_type[0].shape;
    int64_t time = out.dim[1], words = out.dim[2], ratio = windows_ratio(call);
    for (int64_t i = begin; i < end; i++) {
        const int32_t *of_row = of_windows + i / time * (time / ratio);
        uint32_t *seen = (uint32_t *)call->out[0] + i * words;
        memset(seen, 0, (size_t)words * sizeof *seen);
        for (int64_t w = 0; (w + 1) * ratio <= i % time + 1; w++)
            if (of_row[w] == segments[i]) seen[w / 32] |= 1u << w % 32;
    }
}

static size_t windows_scratch(const MxDevice *device, const MxKernelCall *call) {
    (void)device;
    MxShape s = call->in_type[0].shape;
    return (size_t)(s.dim[0] * (s.dim[1] / windows_ratio(call))) * sizeof(int32_t);
}

static void windows_run(const MxDevice *device, const MxKernelCall *call) {
    MxShape s = call->in_type[0].shape;
    int64_t ratio = windows_ratio(call), windows = s.dim[1] / ratio;
    if (!call->out[0]) return;
    pool_segments(call->in[0], s.dim, ratio, call->scratch);
    cpu_for(device, s.dim[0] * s.dim[1], cpu_max(1, CPU_PIECE / windows), windows_tokens, call);
}

const MxKernel cpu_windows = {.scratch = windows_scratch, .run = windows_run};

/* ---- the same of positions of pieces */

static void cache_windows_run(const MxDevice *device, const MxKernelCall *call) {
    (void)device;
    const int32_t *positions = call->in[0];
    int32_t *out = call->out[0];
    int64_t time = call->in_type[0].shape.dim[1], most = call->out_type[0].shape.dim[1];
    for (int64_t i = 0; out && i < mx_shape_count(call->out_type[0].shape); i++)
        out[i] = ended_window(positions + i / most * time, time, windows_ratio(call), i % most);
}

const MxKernel cpu_cache_windows = {.run = cache_windows_run};

static void cache_last_window_run(const MxDevice *device, const MxKernelCall *call) {
    (void)device;
    const int32_t *positions = call->in[0];
    int32_t *out = call->out[0];
    for (int64_t i = 0; out && i < mx_shape_count(call->out_type[0].shape); i++)
        out[i] = positions[i] < 0 ? -1 : (int32_t)((positions[i] + 1) / windows_ratio(call) - 1);
}

const MxKernel cpu_cache_last_window = {.run = cache_last_window_run};
