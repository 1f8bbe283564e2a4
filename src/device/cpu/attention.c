/* attention.c — softmax attention, a block of queries of one head at a time: keys pass by in
 * blocks, and the sums so far are rescaled whenever a larger score turns up (Milakov & Gimelshein
 * 2018; Dao 2022). Memory is a tile a thread. */
#include "attention.h"
#include "vec.h"

#include <math.h>

/* A block of queries. */
typedef struct Block {
    Tile tile;
    void *q;           /* packed */
    float *out;        /* [queries, width, padded], not yet divided by the sums */
    float *most, *sum; /* [queries]: the largest score so far, and exp(score - most) summed up */
} Block;

/* Working memory of one thread. Scores have a row for each key, so that the softmax runs side by
 * side over queries. */
typedef struct Work {
    float *scores; /* [keys, queries] */
    void *p;       /* the same after the softmax, as words along keys */
    float *scale;  /* [queries]: what a tile multiplies earlier sums by */
    void *k, *v;   /* packed */
    Block block[ATTENTION_BLOCKS];
} Work;

static Work carve(const Attention *a, char *scratch, size_t *used) {
    size_t row = (size_t)small_padded(a->width) * sizeof(float);
    size_t tile = ATTENTION_KEYS * ATTENTION_QUERIES * sizeof(float);
    Work w = {
        .scores = attention_take(scratch, used, tile),
        .p = attention_take(scratch, used, tile),
        .scale = attention_take(scratch, used, ATTENTION_QUERIES * sizeof(float)),
        .k = attention_take(scratch, used, ATTENTION_KEYS * row),
        .v = attention_take(scratch, used, ATTENTION_KEYS * row),
    };
    for (int i = 0; i < ATTENTION_BLOCKS; i++)
        w.block[i] = (Block){
            .q = attention_take(scratch, used, ATTENTION_QUERIES * row),
            .out = attention_take(scratch, used, ATTENTION_QUERIES * row),
            .most = attention_take(scratch, used, ATTENTION_QUERIES * sizeof(float)),
            .sum = attention_take(scratch, used, ATTENTION_QUERIES * sizeof(float)),
        };
    return w;
}

static size_t worker_bytes(const Attention *a) {
    size_t bytes = 0;
    carve(a, NULL, &bytes);
    return bytes;
}

/* ---- a tile: scores to probabilities relative to the largest score so far */

CPU_LEVELS static void raise_most(int64_t lanes, const Work *w, Block *block) {
    float before[ATTENTION_QUERIES], *most = block->most;
    memcpy(before, most, sizeof before);
    for (int64_t j = 0; j < block->tile.n_k; j++) {
        const float *row = w->scores + j * lanes;
#pragma omp simd
        for (int64_t i = 0; i < lanes; i++) most[i] = row[i] > most[i] ? row[i] : most[i];
    }
#pragma omp simd
    for (int64_t i = 0; i < lanes; i++) w->scale[i] = vec_exp(before[i] - most[i]);
}

CPU_LEVELS static void soften(int64_t lanes, const Work *w, Block *block) {
    const float *most = block->most, *scale = w->scale;
    float *sum = block->sum;
#pragma omp simd
    for (int64_t i = 0; i < lanes; i++) sum[i] *= scale[i];
    for (int64_t j = 0; j < block->tile.n_k; j++) {
        float *row = w->scores + j * lanes;
#pragma omp simd
        for (int64_t i = 0; i < lanes; i++) {
            float p = vec_exp(row[i] - most[i]);
            row[i] = p;
            sum[i] += p;
        }
    }
}

CPU_LEVELS static void rescale(int64_t step, const Work *w, Block *block) {
    for (int64_t i = 0; i < block->tile.n_q; i++) {
        float *out = block->out + i * step, factor = w->scale[i];
        if (factor == 1.0f) continue;
#pragma omp simd
        for (int64_t h = 0; h < step; h++) out[h] *= factor;
    }
}

/* The block's next keys, which are packed. */
static void add_tile(const Attention *a, const Work *w, Block *block) {
    const Tile *tile = &block->tile;
    int64_t lanes = small_padded(tile->n_q), step = small_padded(a->width);
    Small scores = {.m = tile->n_k,
                    .n = tile->n_q,
                    .k = small_words(a->kind, a->width),
                    .a_row = small_left_step(a->kind, a->width),
                    .a_k = 1,
                    .b_row = lanes,
                    .c_row = lanes,
                    .alpha = (float)a->attr->scale};
    a->kind->multiply(&scores, w->k, block->q, w->scores);
    attention_mask(a, tile, true, w->scores, lanes);
    raise_most(lanes, w, block);
    soften(lanes, w, block);
    rescale(step, w, block);
    Small sums = {.m = tile->n_q,
                  .n = a->width,
                  .k = small_words(a->kind, tile->n_k),
                  .a_row = 1,
                  .a_k = lanes,
                  .b_row = step,
                  .c_row = step,
                  .alpha = 1.0f,
                  .adds = true};
    const void *p = small_join(a->kind, w->scores, tile->n_k, lanes, w->p);
    a->kind->multiply(&sums, p, w->v, block->out);
}

/* ---- blocks of queries */

CPU_LEVELS static void divide(int64_t n, const float *x, float by, float *y) {
    float factor = 1.0f / by;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = x[i] * factor;
}

static void begin(const Attention *a, int64_t head, const Work *w, Block *block) {
    const float lowest = -1e30f; /* finite: rows that have seen nothing yet stay 0, not NaN */
    const Tile *tile = &block->tile;
    int64_t at[] = {tile->b, tile->q, head, tile->n_q};
    SmallRows q = attention_queries(a, 0, at);
    small_pack_turned(a->kind, &q, w->k, block->q);
    memset(block->out, 0, (size_t)(tile->n_q * small_padded(a->width)) * sizeof(float));
    for (int64_t i = 0; i < ATTENTION_QUERIES; i++) {
        block->most[i] = lowest;
        block->sum[i] = 0.0f;
    }
}

static void finish(const Attention *a, int64_t head, const Block *block) {
    const Tile *tile = &block->tile;
    float *log_sums = a->call->out[1];
    void *out = a->call->out[0];
    for (int64_t i = 0; i < tile->n_q; i++) {
        int64_t t = tile->q + i;
        int64_t at = ((tile->b * a->time + t) * a->heads + head) * a->width;
        float *from = block->out + i * small_padded(a->width);
        float *y = cpu_place(out, a->dtype, at, from);
        divide(a->width, from, block->sum[i], y);
        cpu_write(y, a->width, out, a->dtype, at);
        if (log_sums)
            log_sums[(tile->b * a->heads + head) * a->time + t] =
                block->most[i] + logf(block->sum[i]);
    }
}

/* A block of keys meets the blocks of queries that see any of it; it is packed for the first. */
static void add_keys(const Attention *a, int64_t head, const int64_t b_k_n[3], Work *w) {
    const int64_t at[] = {b_k_n[0], b_k_n[1], head / a->group, b_k_n[2]};
    bool is_packed = false;
    for (int i = 0; i < ATTENTION_BLOCKS; i++) {
        Block *block = &w->block[i];
        block->tile.k = b_k_n[1];
        block->tile.n_k = b_k_n[2];
        if (block->tile.n_q <= 0 || attention_sight(a, &block->tile) == SIGHT_NONE) continue;
        if (!is_packed) {
            SmallRows k = attention_keys(a, 1, at);
            SmallRows v = attention_keys(a, 2, at);
            small_pack_left(a->kind, &k, w->k);
            small_pack_right(a->kind, &v, w->v);
            is_packed = true;
        }
        add_tile(a, w, block);
    }
}

static void attend(const Attention *a, int64_t b, int64_t head, int64_t from, Work *w) {
    for (int i = 0; i < ATTENTION_BLOCKS; i++) {
        int64_t q = from + i * ATTENTION_QUERIES;
        w->block[i].tile = (Tile){.b = b, .q = q, .n_q = cpu_min(ATTENTION_QUERIES, a->time - q)};
        if (w->block[i].tile.n_q > 0) begin(a, head, w, &w->block[i]);
    }
    for (int64_t k = 0; k < a->keys; k += ATTENTION_KEYS)
        add_keys(a, head, (int64_t[]){b, k, cpu_min(ATTENTION_KEYS, a->keys - k)}, w);
    for (int i = 0; i < ATTENTION_BLOCKS; i++)
        if (w->block[i].tile.n_q > 0) finish(a, head, &w->block[i]);
}

enum { SPAN = ATTENTION_BLOCKS * ATTENTION_QUERIES }; /* queries of a piece of work */

/* Pieces of work: spans of queries of every head of every sequence, the longest first. */
static void attend_span(const void *context, int64_t begin, int64_t end, int worker) {
    const Attention *a = context;
    size_t used = 0;
    Work w = carve(a, a->scratch + a->worker_bytes * (size_t)worker, &used);
    int64_t spans = cpu_pieces(a->time, SPAN), rows = a->batch * a->heads;
    for (int64_t i = begin; i < end; i++) {
        int64_t span = spans - 1 - i / rows, row = i % rows;
        attend(a, row / a->heads, row % a->heads, span * SPAN, &w);
    }
}

static size_t attention_scratch(const MxDevice *device, const MxKernelCall *call) {
    Attention a = attention_of(device, call);
    return worker_bytes(&a) * (size_t)device->n_threads;
}

static void attention_run(const MxDevice *device, const MxKernelCall *call) {
    Attention a = attention_of(device, call);
    a.worker_bytes = worker_bytes(&a);
    cpu_for_uneven(device, a.batch * a.heads * cpu_pieces(a.time, SPAN), 1, attend_span, &a);
}

const MxKernel cpu_attention = {.scratch = attention_scratch, .run = attention_run};
