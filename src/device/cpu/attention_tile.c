/* attention_tile.c — scores of a tile of queries and keys. A query sees a range of keys [low,
 * high], both ends growing with the query, and of those the ones of its own segment; so a tile's
 * corners tell whether the range part of the mask lets all or nothing through. */
#include "attention.h"
#include "vec.h"

#include <math.h>

Attention attention_of(const MxDevice *device, const MxKernelCall *call) {
    MxShape q = call->in_type[0].shape, k = call->in_type[1].shape;
    return (Attention){.device = device,
                       .call = call,
                       .attr = call->attr,
                       .segments = call->in ? call->in[3] : NULL,
                       .batch = q.dim[0],
                       .time = q.dim[1],
                       .heads = q.dim[2],
                       .key_heads = k.dim[2],
                       .group = q.dim[2] / k.dim[2],
                       .width = q.dim[3],
                       .dtype = call->in_type[0].dtype,
                       .scratch = call->scratch};
}

static int64_t lowest_key(const MxAttentionAttr *attr, int64_t query) {
    if (attr->mask == MX_MASK_SLIDING) return cpu_max(0, query - attr->window + 1);
    if (attr->mask == MX_MASK_CHUNK) return query / attr->window * attr->window;
    return 0;
}

static int64_t highest_key(const Attention *a, int64_t query) {
    return a->attr->mask == MX_MASK_FULL ? a->time - 1 : query;
}

typedef struct Extremes {
    int32_t low, high;
} Extremes;

static Extremes extremes(const int32_t *x, int64_t n) {
    Extremes e = {x[0], x[0]};
    for (int64_t i = 1; i < n; i++) {
        e.low = x[i] < e.low ? x[i] : e.low;
        e.high = x[i] > e.high ? x[i] : e.high;
    }
    return e;
}

Sight attention_sight(const Attention *a, const Tile *tile) {
    int64_t last_q = tile->q + tile->n_q - 1, last_k = tile->k + tile->n_k - 1;
    if (last_k < lowest_key(a->attr, tile->q) || tile->k > highest_key(a, last_q))
        return SIGHT_NONE;
    const int32_t *segments = a->segments + tile->b * a->time;
    Extremes q = extremes(segments + tile->q, tile->n_q);
    Extremes k = extremes(segments + tile->k, tile->n_k);
    if (q.high < k.low || k.high < q.low) return SIGHT_NONE;
    bool one_segment = q.low == q.high && k.low == k.high;
    bool in_range = tile->k >= lowest_key(a->attr, last_q) && last_k <= highest_key(a, tile->q);
    return one_segment && in_range ? SIGHT_ALL : SIGHT_PART;
}

Rows attention_rows(const Attention *a, const void *x, int64_t heads, const int64_t b_t_head_n[4],
                    float *block) {
    int64_t step = heads * a->width;
    int64_t at = (b_t_head_n[0] * a->time + b_t_head_n[1]) * step + b_t_head_n[2] * a->width;
    if (a->dtype == MX_F32) return (Rows){.data = (const float *)x + at, .step = step};
    for (int64_t i = 0; i < b_t_head_n[3]; i++)
        cpu_widen((const MxBf16 *)x + at + i * step, a->width, block + i * a->width);
    return (Rows){.data = block, .step = a->width};
}

CPU_LEVELS static void cap_scores(int64_t n, float cap, float *scores) {
    float inverse = 1.0f / cap;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) scores[i] = cap * vec_tanh(scores[i] * inverse);
}

CPU_LEVELS static void mask_row(int64_t n, int32_t segment, const int32_t *segments, float *row) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) row[i] = segments[i] == segment ? row[i] : -INFINITY;
}

static void fill(float *row, int64_t from, int64_t to) {
    for (int64_t i = from; i < to; i++) row[i] = -INFINITY;
}

static void mask_scores(const Attention *a, const Tile *tile, float *scores) {
    const int32_t *segments = a->segments + tile->b * a->time;
    for (int64_t i = 0; i < tile->n_q; i++) {
        int64_t query = tile->q + i;
        float *row = scores + i * tile->n_k;
        int64_t low = lowest_key(a->attr, query) - tile->k;
        int64_t high = highest_key(a, query) - tile->k;
        fill(row, 0, cpu_min(low, tile->n_k));
        fill(row, cpu_max(0, high + 1), tile->n_k);
        mask_row(tile->n_k, segments[query], segments + tile->k, row);
    }
}

void attention_scores(const Attention *a, const Tile *tile, Rows q, Rows k, float *scores) {
    CpuSmall product = {.m = tile->n_q,
                        .n = tile->n_k,
                        .k = a->width,
                        .lda = q.step,
                        .ldb = k.step,
                        .ldc = tile->n_k,
                        .trans_b = true,
                        .alpha = (float)a->attr->scale};
    a->device->small_matmul(&product, q.data, k.data, scores);
    if (a->attr->softcap > 0) cap_scores(tile->n_q * tile->n_k, (float)a->attr->softcap, scores);
    if (attention_sight(a, tile) == SIGHT_PART) mask_scores(a, tile, scores);
}
