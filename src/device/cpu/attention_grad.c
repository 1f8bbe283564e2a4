/* attention_grad.c — the gradient of attention: probabilities are made again, tile by tile, from
 * the saved log-sums (Dao 2022). A piece of work is one key head of one sequence with all the query
 * heads that read it, so every sum belongs to one thread and has a fixed order. */
#include "attention.h"
#include "vec.h"

enum { Q, K, V, SEGMENTS, O, LOG_SUMS, DO, INPUTS }; /* inputs; DQ.. outputs are Q, K, V */

typedef struct Work {
    float *p, *ds;            /* [queries, keys] */
    float *dk, *dv;           /* [keys, width] */
    float *k, *v, *q, *d_out; /* converted operands */
    float *dq;                /* [group, time, width], unless made in place */
    float *dots;              /* [group, time]: do * o summed over a row */
} Work;

static Work carve(const Attention *a, void *scratch) {
    size_t keys = ATTENTION_KEYS * (size_t)a->width * sizeof(float);
    size_t queries = ATTENTION_QUERIES * (size_t)a->width * sizeof(float);
    size_t tile = ATTENTION_QUERIES * ATTENTION_KEYS * sizeof(float);
    Work w;
    w.p = cpu_carve(&scratch, tile);
    w.ds = cpu_carve(&scratch, tile);
    w.dk = cpu_carve(&scratch, keys);
    w.dv = cpu_carve(&scratch, keys);
    w.k = cpu_carve(&scratch, keys);
    w.v = cpu_carve(&scratch, keys);
    w.q = cpu_carve(&scratch, queries);
    w.d_out = cpu_carve(&scratch, queries);
    w.dots = cpu_carve(&scratch, (size_t)(a->group * a->time) * sizeof(float));
    w.dq = scratch;
    return w;
}

static size_t worker_bytes(const Attention *a) {
    size_t width = (size_t)a->width * sizeof(float), group_time = (size_t)(a->group * a->time);
    size_t bytes = 2 * cpu_padded(ATTENTION_QUERIES * ATTENTION_KEYS * sizeof(float)) +
                   4 * cpu_padded(ATTENTION_KEYS * width) +
                   2 * cpu_padded(ATTENTION_QUERIES * width) +
                   cpu_padded(group_time * sizeof(float));
    return bytes + (a->dtype == MX_F32 ? 0 : cpu_padded(group_time * width));
}

/* Where dq of a query is summed up: in its place if that is f32. */
static float *dq_row(const Attention *a, const Work *w, const int64_t b_t_head[3], int64_t *step) {
    int64_t b = b_t_head[0], t = b_t_head[1], head = b_t_head[2];
    if (a->dtype == MX_F32) {
        *step = a->heads * a->width;
        return (float *)a->call->out[Q] + (b * a->time + t) * *step + head * a->width;
    }
    *step = a->width;
    return w->dq + ((head % a->group) * a->time + t) * a->width;
}

CPU_LEVELS static float dot(int64_t n, const float *x, const float *y) {
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) sum += x[i] * y[i];
    return sum;
}

/* Zeroes dq of a query head and fills its dots. */
static void begin_head(const Attention *a, int64_t b, int64_t head, const Work *w) {
    float *dots = w->dots + head % a->group * a->time;
    for (int64_t t = 0; t < a->time; t++) {
        const int64_t at[] = {b, t, head, 1};
        Rows o = attention_rows(a, a->call->in[O], a->heads, at, w->q);
        Rows d_out = attention_rows(a, a->call->in[DO], a->heads, at, w->d_out);
        dots[t] = dot(a->width, o.data, d_out.data);
        int64_t step;
        if (a->call->out[Q]) memset(dq_row(a, w, at, &step), 0, (size_t)a->width * sizeof(float));
    }
}

/* Scores to probabilities, and cotangents of probabilities to those of scores (before the factor
 * `scale`). */
CPU_LEVELS static void score_gradient(const Tile *tile, const float *log_sums, const float *dots,
                                      float softcap, const Work *w) {
    float inverse = softcap > 0.0f ? 1.0f / softcap : 0.0f;
    for (int64_t i = 0; i < tile->n_q; i++) {
        float *p = w->p + i * tile->n_k, *ds = w->ds + i * tile->n_k;
        float log_sum = log_sums[i], row_dot = dots[i];
#pragma omp simd
        for (int64_t j = 0; j < tile->n_k; j++) {
            float tangent = p[j] * inverse, y = vec_exp(p[j] - log_sum);
            float d = y * (ds[j] - row_dot) * (1.0f - tangent * tangent);
            p[j] = y;
            ds[j] = y == 0.0f ? 0.0f : d; /* the tangent of an excluded score is infinite */
        }
    }
}

/* C += alpha op(A) B, a tile against rows of width. */
static void add_product(const Attention *a, const Tile *tile, bool trans_a, const float *tile_data,
                        Rows b, float *c_at) {
    CpuSmall product = {.m = trans_a ? tile->n_k : tile->n_q,
                        .n = a->width,
                        .k = trans_a ? tile->n_q : tile->n_k,
                        .lda = tile->n_k,
                        .ldb = b.step,
                        .ldc = a->width,
                        .trans_a = trans_a,
                        .alpha = 1.0f,
                        .beta = 1.0f};
    a->device->small_matmul(&product, tile_data, b.data, c_at);
}

static void add_dq(const Attention *a, const Tile *tile, int64_t head, Rows k, const Work *w) {
    int64_t step;
    float *dq = dq_row(a, w, (int64_t[]){tile->b, tile->q, head}, &step);
    CpuSmall product = {.m = tile->n_q,
                        .n = a->width,
                        .k = tile->n_k,
                        .lda = tile->n_k,
                        .ldb = k.step,
                        .ldc = step,
                        .alpha = (float)a->attr->scale,
                        .beta = 1.0f};
    a->device->small_matmul(&product, w->ds, k.data, dq);
}

static void add_tile(const Attention *a, const Tile *tile, int64_t head, const Rows k_v[2],
                     const Work *w) {
    const MxKernelCall *call = a->call;
    int64_t at[] = {tile->b, tile->q, head, tile->n_q};
    Rows q = attention_rows(a, call->in[Q], a->heads, at, w->q);
    Rows d_out = attention_rows(a, call->in[DO], a->heads, at, w->d_out);
    attention_scores(a, tile, q, k_v[0], w->p);
    CpuSmall product = {.m = tile->n_q,
                        .n = tile->n_k,
                        .k = a->width,
                        .lda = d_out.step,
                        .ldb = k_v[1].step,
                        .ldc = tile->n_k,
                        .trans_b = true,
                        .alpha = 1.0f};
    a->device->small_matmul(&product, d_out.data, k_v[1].data, w->ds);
    const float *log_sums =
        (const float *)call->in[LOG_SUMS] + (tile->b * a->heads + head) * a->time + tile->q;
    score_gradient(tile, log_sums, w->dots + head % a->group * a->time + tile->q,
                   (float)a->attr->softcap, w);
    if (call->out[V]) add_product(a, tile, true, w->p, d_out, w->dv);
    if (call->out[K]) add_product(a, tile, true, w->ds, q, w->dk);
    if (call->out[Q]) add_dq(a, tile, head, k_v[0], w);
}

CPU_LEVELS static void scale_row(int64_t n, float factor, float *x) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) x[i] *= factor;
}

/* Rows [n, width] to one head of an output. */
static void store(const Attention *a, int out, const int64_t b_t_head_n[4], const float *rows) {
    int64_t heads = a->call->out_type[out].shape.dim[2];
    void *y = a->call->out[out];
    for (int64_t i = 0; y && i < b_t_head_n[3]; i++) {
        int64_t t = b_t_head_n[0] * a->time + b_t_head_n[1] + i;
        int64_t at = (t * heads + b_t_head_n[2]) * a->width;
        if (a->dtype == MX_F32)
            memcpy((float *)y + at, rows + i * a->width, (size_t)a->width * sizeof(float));
        else
            cpu_write(rows + i * a->width, a->width, y, a->dtype, at);
    }
}

static void add_keys(const Attention *a, Tile *tile, int64_t key_head, const Work *w) {
    int64_t at[] = {tile->b, tile->k, key_head, tile->n_k}, n = tile->n_k * a->width;
    const Rows k_v[] = {attention_rows(a, a->call->in[K], a->key_heads, at, w->k),
                        attention_rows(a, a->call->in[V], a->key_heads, at, w->v)};
    memset(w->dk, 0, (size_t)n * sizeof(float));
    memset(w->dv, 0, (size_t)n * sizeof(float));
    for (int64_t head = key_head * a->group; head < (key_head + 1) * a->group; head++)
        for (tile->q = 0; tile->q < a->time; tile->q += ATTENTION_QUERIES) {
            tile->n_q = cpu_min(ATTENTION_QUERIES, a->time - tile->q);
            if (attention_sight(a, tile) != SIGHT_NONE) add_tile(a, tile, head, k_v, w);
        }
    scale_row(n, (float)a->attr->scale, w->dk);
    store(a, K, at, w->dk);
    store(a, V, at, w->dv);
}

static void grad_span(const void *context, int64_t begin, int64_t end, int worker) {
    const Attention *a = context;
    Work w = carve(a, a->scratch + a->worker_bytes * (size_t)worker);
    for (int64_t i = begin; i < end; i++) {
        int64_t b = i / a->key_heads, key_head = i % a->key_heads, first = key_head * a->group;
        Tile tile = {.b = b};
        for (int64_t g = 0; g < a->group; g++) begin_head(a, b, first + g, &w);
        for (tile.k = 0; tile.k < a->time; tile.k += ATTENTION_KEYS) {
            tile.n_k = cpu_min(ATTENTION_KEYS, a->time - tile.k);
            add_keys(a, &tile, key_head, &w);
        }
        for (int64_t g = 0; a->dtype != MX_F32 && g < a->group; g++)
            store(a, Q, (int64_t[]){b, 0, first + g, a->time}, w.dq + g * a->time * a->width);
    }
}

static size_t attention_grad_scratch(const MxDevice *device, const MxKernelCall *call) {
    Attention a = attention_of(device, call);
    return worker_bytes(&a) * (size_t)device->n_threads;
}

static void attention_grad_run(const MxDevice *device, const MxKernelCall *call) {
    Attention a = attention_of(device, call);
    a.worker_bytes = worker_bytes(&a);
    cpu_for_uneven(device, a.batch * a.key_heads, 1, grad_span, &a);
}

const MxKernel cpu_attention_grad = {.scratch = attention_grad_scratch, .run = attention_grad_run};
