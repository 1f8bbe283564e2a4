/* recall.c — rows that n-grams name, token by token; how rows match, row by row. */
#include "kernel.h"

#include <math.h>

/* ---- n-grams */

static int32_t canon_of(const MxNgrams *of, int32_t token) {
    return of->canon[cpu_min(token, of->n_canon - 1)];
}

/* All rows of a token, of the canonical ids of it and of those before it. */
static void name_rows(const MxNgrams *of, const int32_t *ids, int32_t *out) {
    int32_t first = 0, mixed = ids[0] * of->factors[0];
    const int32_t *size = of->sizes;
    for (int n = 2; n <= of->longest; n++) {
        mixed ^= ids[n - 1] * of->factors[n - 1];
        for (int h = 0; h < of->n_heads; h++) {
            *out++ = first + mixed % *size;
            first += *size++;
        }
    }
}

enum { MOST_IDS = 64 };

typedef struct Ngrams {
    const MxKernelCall *call;
    const MxNgrams *of;
    const int32_t *positions, *sequences; /* NULL = tokens are no cache */
    int64_t time, slots, rows;
} Ngrams;

static int64_t find_token(const Ngrams *g, int64_t row, int64_t at) {
    return g->positions ? g->sequences[row] * g->slots + at % g->slots : row * g->time + at;
}

/* Of tokens of all rows of the batch, one after the other. */
static void ngram_rows(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const Ngrams *g = context;
    const int32_t *tokens = g->call->in[0];
    int32_t *out = g->call->out[0], ids[MOST_IDS];
    for (int64_t i = begin; i < end; i++) {
        int64_t row = i / g->time, at = g->positions ? g->positions[i] : i % g->time;
        memset(out + i * g->rows, 0, (size_t)g->rows * sizeof *out);
        if (at < 0) continue; /* padding */
        for (int k = 0; k < g->of->longest; k++)
            ids[k] = k > at ? g->of->before : canon_of(g->of, tokens[find_token(g, row, at - k)]);
        name_rows(g->of, ids, out + i * g->rows);
    }
}

static void run_ngrams(const MxDevice *device, const MxKernelCall *call, bool is_cached) {
    MxShape piece = call->in_type[is_cached ? 1 : 0].shape;
    Ngrams g = {.call = call,
                .of = ((const MxNgramAttr *)call->attr)->of,
                .positions = is_cached ? call->in[1] : NULL,
                .sequences = is_cached ? call->in[2] : NULL,
                .time = piece.dim[1],
                .slots = call->in_type[0].shape.dim[1]};
    g.rows = (int64_t)(g.of->longest - 1) * g.of->n_heads;
    MX_ASSERT(g.of->canon && g.of->longest <= MOST_IDS);
    if (call->out[0])
        cpu_for(device, piece.dim[0] * g.time, cpu_max(1, CPU_PIECE / cpu_max(1, g.rows)),
                ngram_rows, &g);
}

static void ngrams_run(const MxDevice *device, const MxKernelCall *call) {
    run_ngrams(device, call, false);
}

static void cache_ngrams_run(const MxDevice *device, const MxKernelCall *call) {
    run_ngrams(device, call, true);
}

const MxKernel cpu_ngrams = {.run = ngrams_run};
const MxKernel cpu_cache_ngrams = {.run = cache_ngrams_run};

/* ---- matching */

static const float LEAST = 1e-6f; /* that a root is taken of */

/* Elements at `at` of a row's product with another. */
static double multiply_rows(const MxKernelCall *call, int64_t row, int64_t width) {
    float q_block[CPU_BLOCK], k_block[CPU_BLOCK];
    MxDtype dtype = call->in_type[0].dtype;
    double sum = 0;
    for (int64_t at = 0, n; at < width; at += n) {
        n = cpu_min(CPU_BLOCK, width - at);
        const float *q = cpu_read(call->in[0], dtype, row * width + at, n, q_block);
        const float *k = cpu_read(call->in[1], dtype, row * width + at, n, k_block);
        for (int64_t i = 0; i < n; i++) sum += (double)q[i] * (double)k[i];
    }
    return sum;
}

static float scale_of(const MxKernelCall *call) {
    return (float)((const MxMatchAttr *)call->attr)->scale;
}

static float sigmoid_of_root(float s) {
    float root = sqrtf(fmaxf(fabsf(s), LEAST));
    root = s > 0 ? root : s < 0 ? -root : 0;
    return 1.0f / (1.0f + expf(-root));
}

static void match_rows(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const MxKernelCall *call = context;
    MxShape q = call->in_type[0].shape;
    for (int64_t row = begin; row < end; row++) {
        float s = (float)multiply_rows(call, row, q.dim[q.rank - 1]) * scale_of(call);
        ((float *)call->out[0])[row] = sigmoid_of_root(s);
    }
}

static void for_rows(const MxDevice *device, const MxKernelCall *call, CpuWork *work) {
    MxShape q = call->in_type[0].shape;
    int64_t width = q.dim[q.rank - 1], rows = width ? mx_shape_count(q) / width : 0;
    cpu_for(device, rows, cpu_max(1, CPU_PIECE / cpu_max(1, width)), work, call);
}

static void match_run(const MxDevice *device, const MxKernelCall *call) {
    if (call->out[0]) for_rows(device, call, match_rows);
}

const MxKernel cpu_match = {.run = match_run};

/* Of a row: `factor` times the other one. */
static void write_gradient(const MxKernelCall *call, int i, int64_t row, float factor) {
    MxShape q = call->in_type[0].shape;
    MxDtype dtype = call->in_type[0].dtype;
    int64_t width = q.dim[q.rank - 1];
    float block[CPU_BLOCK], dx[CPU_BLOCK];
    for (int64_t at = 0, n; at < width; at += n) {
        n = cpu_min(CPU_BLOCK, width - at);
        const float *other = cpu_read(call->in[1 - i], dtype, row * width + at, n, block);
        for (int64_t j = 0; j < n; j++) dx[j] = factor * other[j];
        cpu_store(dx, n, call->out[i], dtype, row * width + at);
    }
}

/* The root is flat where it is of the least number. */
static void match_grad_rows(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const MxKernelCall *call = context;
    MxShape q = call->in_type[0].shape;
    for (int64_t row = begin; row < end; row++) {
        float s = (float)multiply_rows(call, row, q.dim[q.rank - 1]) * scale_of(call);
        float y = sigmoid_of_root(s), size = fabsf(s);
        float slope = size > LEAST ? 0.5f / sqrtf(size) : 0;
        float factor = ((const float *)call->in[2])[row] * y * (1 - y) * slope * scale_of(call);
        for (int i = 0; i < 2; i++)
            if (call->out[i]) write_gradient(call, i, row, factor);
    }
}

static void match_grad_run(const MxDevice *device, const MxKernelCall *call) {
    for_rows(device, call, match_grad_rows);
}

const MxKernel cpu_match_grad = {.run = match_grad_run};
