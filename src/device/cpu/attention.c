/* attention.c — softmax attention, a block of queries of one head at a time: keys pass by in
 * blocks, and the sums so far are rescaled whenever a larger score turns up (Milakov & Gimelshein
 * 2018; Dao 2022). Memory is a tile a thread. */
#include "attention.h"
#include "vec.h"

#include <math.h>

/* Working memory of one thread. */
typedef struct Work {
    float *scores; /* [queries, keys] */
    float *out;    /* [queries, width], not yet divided by the sums */
    float *most, *sum;
    float *q, *k, *v; /* converted operands */
} Work;

static Work carve(const Attention *a, void *scratch) {
    size_t width = (size_t)a->width * sizeof(float);
    Work w;
    w.scores = cpu_carve(&scratch, ATTENTION_QUERIES * ATTENTION_KEYS * sizeof(float));
    w.out = cpu_carve(&scratch, ATTENTION_QUERIES * width);
    w.most = cpu_carve(&scratch, ATTENTION_QUERIES * sizeof(float));
    w.sum = cpu_carve(&scratch, ATTENTION_QUERIES * sizeof(float));
    w.q = cpu_carve(&scratch, ATTENTION_QUERIES * width);
    w.k = cpu_carve(&scratch, ATTENTION_KEYS * width);
    w.v = scratch;
    return w;
}

static size_t worker_bytes(const Attention *a) {
    size_t width = (size_t)a->width * sizeof(float);
    return cpu_padded(ATTENTION_QUERIES * ATTENTION_KEYS * sizeof(float)) +
           2 * cpu_padded(ATTENTION_QUERIES * width) +
           2 * cpu_padded(ATTENTION_QUERIES * sizeof(float)) +
           2 * cpu_padded(ATTENTION_KEYS * width);
}

/* Scores of a tile to probabilities relative to the largest score so far. */
CPU_LEVELS static void soften(const Tile *tile, int64_t width, Work *w) {
    for (int64_t i = 0; i < tile->n_q; i++) {
        float *row = w->scores + i * tile->n_k, *out = w->out + i * width;
        float most = vec_max(tile->n_k, row, w->most[i]), sum = 0.0f;
        float factor = vec_exp(w->most[i] - most);
#pragma omp simd reduction(+ : sum)
        for (int64_t j = 0; j < tile->n_k; j++) {
            float p = vec_exp(row[j] - most);
            row[j] = p;
            sum += p;
        }
        w->sum[i] = w->sum[i] * factor + sum;
        w->most[i] = most;
#pragma omp simd
        for (int64_t h = 0; h < width; h++) out[h] *= factor;
    }
}

CPU_LEVELS static void divide(int64_t n, const float *x, float by, float *y) {
    float factor = 1.0f / by;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = x[i] * factor;
}

static void finish(const Attention *a, const Tile *tile, int64_t head, const Work *w) {
    float *log_sums = a->call->out[1];
    void *out = a->call->out[0];
    for (int64_t i = 0; i < tile->n_q; i++) {
        int64_t t = tile->q + i;
        int64_t at = ((tile->b * a->time + t) * a->heads + head) * a->width;
        float *from = w->out + i * a->width, *y = cpu_place(out, a->dtype, at, from);
        divide(a->width, from, w->sum[i], y);
        cpu_write(y, a->width, out, a->dtype, at);
        if (log_sums)
            log_sums[(tile->b * a->heads + head) * a->time + t] = w->most[i] + logf(w->sum[i]);
    }
}

static void add_tile(const Attention *a, const Tile *tile, int64_t key_head, Rows q, Work *w) {
    int64_t at[] = {tile->b, tile->k, key_head, tile->n_k};
    Rows k = attention_rows(a, a->call->in[1], a->key_heads, at, w->k);
    Rows v = attention_rows(a, a->call->in[2], a->key_heads, at, w->v);
    attention_scores(a, tile, q, k, w->scores);
    soften(tile, a->width, w);
    CpuSmall product = {.m = tile->n_q,
                        .n = a->width,
                        .k = tile->n_k,
                        .lda = tile->n_k,
                        .ldb = v.step,
                        .ldc = a->width,
                        .alpha = 1.0f,
                        .beta = 1.0f};
    a->device->small_matmul(&product, w->scores, v.data, w->out);
}

static void attend(const Attention *a, int64_t b, int64_t head, int64_t from, Work *w) {
    const float lowest = -1e30f; /* finite: rows that have seen nothing yet stay 0, not NaN */
    Tile tile = {.b = b, .q = from, .n_q = cpu_min(ATTENTION_QUERIES, a->time - from)};
    Rows q =
        attention_rows(a, a->call->in[0], a->heads, (int64_t[]){b, from, head, tile.n_q}, w->q);
    memset(w->out, 0, (size_t)(tile.n_q * a->width) * sizeof(float));
    for (int64_t i = 0; i < tile.n_q; i++) {
        w->most[i] = lowest;
        w->sum[i] = 0.0f;
    }
    for (tile.k = 0; tile.k < a->time; tile.k += ATTENTION_KEYS) {
        tile.n_k = cpu_min(ATTENTION_KEYS, a->time - tile.k);
        if (attention_sight(a, &tile) != SIGHT_NONE) add_tile(a, &tile, head / a->group, q, w);
    }
    finish(a, &tile, head, w);
}

/* Pieces of work: blocks of queries of every head of every sequence, the longest first. */
static void attend_span(const void *context, int64_t begin, int64_t end, int worker) {
    const Attention *a = context;
    Work w = carve(a, a->scratch + a->worker_bytes * (size_t)worker);
    int64_t blocks = cpu_pieces(a->time, ATTENTION_QUERIES), rows = a->batch * a->heads;
    for (int64_t i = begin; i < end; i++) {
        int64_t block = blocks - 1 - i / rows, row = i % rows;
        attend(a, row / a->heads, row % a->heads, block * ATTENTION_QUERIES, &w);
    }
}

static size_t attention_scratch(const MxDevice *device, const MxKernelCall *call) {
    Attention a = attention_of(device, call);
    return worker_bytes(&a) * (size_t)device->n_threads;
}

static void attention_run(const MxDevice *device, const MxKernelCall *call) {
    Attention a = attention_of(device, call);
    a.worker_bytes = worker_bytes(&a);
    cpu_for_uneven(device, a.batch * a.heads * cpu_pieces(a.time, ATTENTION_QUERIES), 1,
                   attend_span, &a);
}

const MxKernel cpu_attention = {.scratch = attention_scratch, .run = attention_run};
