/* index_loss.c — the distance of an indexer's scores from those of attention, and its gradient:
 * some queries at a time, each with a row of all keys. The gradients of queries and weights are
 * computed together with that of scores; that of keys is computed from enough rows that threads can
 * divide the keys. */
#include "index.h"
#include "vec.h"

#include <math.h>

enum { Q = INDEX_SEGMENTS + 1, K, CHOSEN };
enum { DQ = INDEX_Q, DK = INDEX_K, DW = INDEX_W }; /* outputs of the gradient */

static const float tiny = 1e-8f; /* MaxText's EPS */

typedef struct Loss {
    Index x;
    const MxIndexLossAttr *attr;
    int64_t heads, key_heads, width; /* of attention */
    bool is_gradient;
    size_t worker_bytes;
    double *sums; /* [pieces] of the loss */
    /* Of the gradient: rows of queries [from, from + n) of a sequence */
    float *rows; /* [GRAD_QUERIES][step] */
    float *dk;   /* [keys][padded width] */
    IndexSpan of_rows;
    float dy;
} Loss;

enum { GRAD_QUERIES = 16 * INDEX_QUERIES };

/* Working memory of one thread. Rows have the keys of all blocks. */
typedef struct Work {
    IndexTiles tiles;
    float *hidden; /* [INDEX_QUERIES][step] 0, or minus infinity where a key is not seen */
    float *wanted; /* [..][step] what attention does */
    float *scores; /* [..][step] */
    float *q;      /* [..][width] of a head of attention */
    float *turned; /* [width][INDEX_KEYS] of its keys */
    float *keys;   /* [INDEX_KEYS][padded width] of the index */
    float *dq;     /* [rows][padded width] of tiles.q, or … */
} Work;

static Work carve(const Loss *l, char *scratch, size_t *used) {
    const Index *x = &l->x;
    size_t rows = (size_t)(INDEX_QUERIES * x->step) * sizeof(float), real = sizeof(float);
    Work w = {.tiles = index_carve(x, scratch, used),
              .hidden = small_take(scratch, used, rows),
              .wanted = small_take(scratch, used, rows),
              .scores = small_take(scratch, used, rows),
              .q = small_take(scratch, used, (size_t)(INDEX_QUERIES * l->width) * real),
              .turned = small_take(scratch, used, (size_t)(l->width * INDEX_KEYS) * real)};
    if (!l->is_gradient) return w;
    w.keys = small_take(scratch, used, (size_t)(INDEX_KEYS * x->padded_width) * real);
    w.dq = small_take(scratch, used, (size_t)(x->at_once * x->heads * x->padded_width) * real);
    return w;
}

static size_t worker_bytes(const Loss *l) {
    size_t used = 0;
    carve(l, NULL, &used);
    return used;
}

static Loss loss_of(const MxKernelCall *call, bool is_gradient) {
    MxShape q = call->in_type[Q].shape, k = call->in_type[K].shape;
    Loss l = {.x = index_of(call),
              .attr = call->attr,
              .heads = q.dim[2],
              .key_heads = k.dim[2],
              .width = q.dim[3],
              .is_gradient = is_gradient};
    l.x.first = l.attr->first_query;
    if (call->in && call->n_in > CHOSEN + is_gradient) l.x.chosen = call->in[CHOSEN];
    l.worker_bytes = worker_bytes(&l);
    return l;
}

static Work work_on(const Loss *l, int worker) {
    size_t used = 0;
    return carve(l, (char *)l->x.call->scratch + l->worker_bytes * (size_t)worker, &used);
}

/* ---- probabilities */

static void hide(const Loss *l, IndexSpan span, const Work *w) {
    const Index *x = &l->x;
    for (int64_t r = 0; r < span.n; r++)
        for (int64_t s = 0; s < x->step; s++)
            w->hidden[r * x->step + s] =
                s < x->keys && index_sees(x, span.b, span.t + r, s) ? 0.0f : -INFINITY;
}

/* n scores times a factor to their softmax, over the keys that are seen. */
static void soften(int64_t n, float factor, const float *hidden, float *row) {
    float sum = 0.0f;
#pragma omp simd
    for (int64_t s = 0; s < n; s++) row[s] = row[s] * factor + hidden[s];
    float most = vec_max(n, row, -INFINITY);
#pragma omp simd reduction(+ : sum)
    for (int64_t s = 0; s < n; s++) {
        float p = vec_exp(row[s] - most);
        row[s] = p;
        sum += p;
    }
    vec_scale(n, 1.0f / sum, row, row);
}

/* Blocks of keys that the span reaches, in floats. */
static int64_t reach(const Loss *l, IndexSpan span) {
    return cpu_pieces(index_reach(&l->x, span), INDEX_KEYS) * INDEX_KEYS;
}

/* One head of attention: products to w->scores. */
static void multiply_head(const Loss *l, IndexSpan span, int64_t head, const Work *w) {
    const Index *x = &l->x;
    int64_t H = l->width, key_head = head / (l->heads / l->key_heads);
    void *const *in = x->call->in;
    float block[CPU_BLOCK];
    for (int64_t r = 0; r < span.n; r++)
        for (int64_t i = 0, n; i < H; i += n) {
            n = cpu_min(CPU_BLOCK, H - i);
            int64_t at = ((span.b * x->time + span.t + r) * l->heads + head) * H + i;
            memcpy(w->q + r * H + i, cpu_read(in[Q], x->dtype, at, n, block),
                   (size_t)n * sizeof *w->q);
        }
    for (int64_t s = 0; s < reach(l, span); s += INDEX_KEYS) {
        memset(w->turned, 0, (size_t)(H * INDEX_KEYS) * sizeof *w->turned);
        for (int64_t j = 0; j < cpu_min(INDEX_KEYS, x->keys - s); j++)
            for (int64_t i = 0, n; i < H; i += n) {
                n = cpu_min(CPU_BLOCK, H - i);
                int64_t at = ((span.b * x->keys + s + j) * l->key_heads + key_head) * H + i;
                const float *row = cpu_read(in[K], x->dtype, at, n, block);
                for (int64_t h = 0; h < n; h++) w->turned[(i + h) * INDEX_KEYS + j] = row[h];
            }
        small_floats.multiply(&(Small){.m = span.n,
                                       .n = INDEX_KEYS,
                                       .k = H,
                                       .a_row = H,
                                       .a_k = 1,
                                       .b_row = INDEX_KEYS,
                                       .c_row = x->step},
                              w->q, w->turned, w->scores + s);
    }
}

/* w->wanted, the mean over heads of what they attend to, and w->scores, the index's softmax. */
static void make_rows(const Loss *l, IndexSpan span, const Work *w) {
    const Index *x = &l->x;
    int64_t n = reach(l, span);
    hide(l, span, w);
    memset(w->wanted, 0, (size_t)(INDEX_QUERIES * x->step) * sizeof *w->wanted);
    for (int64_t head = 0; head < l->heads; head++) {
        multiply_head(l, span, head, w);
        for (int64_t r = 0; r < span.n; r++) {
            float *row = w->scores + r * x->step;
            soften(n, (float)l->attr->scale, w->hidden + r * x->step, row);
            vec_add_times(n, 1.0f, row, w->wanted + r * x->step);
        }
    }
    index_scores(x, span, &w->tiles, w->scores);
    for (int64_t r = 0; r < span.n; r++) {
        float *wanted = w->wanted + r * x->step, sum = 0.0f;
#pragma omp simd reduction(+ : sum)
        for (int64_t s = 0; s < n; s++) sum += wanted[s];
        vec_scale(n, 1.0f / (sum + tiny), wanted, wanted);
        soften(n, 1.0f, w->hidden + r * x->step, w->scores + r * x->step);
    }
}

/* ---- the loss */

static double divergence(int64_t n, const float *wanted, const float *made) {
    double sum = 0;
    for (int64_t s = 0; s < n; s++)
        if (wanted[s] > 0.0f)
            sum += (double)(wanted[s] * (vec_log(wanted[s] + tiny) - vec_log(made[s] + tiny)));
    return sum;
}

static IndexSpan span_of(const Loss *l, int64_t piece) {
    int64_t pieces = cpu_pieces(l->x.time, INDEX_QUERIES), t = piece % pieces * INDEX_QUERIES;
    return (IndexSpan){piece / pieces, t, cpu_min(INDEX_QUERIES, l->x.time - t)};
}

static void measure(const void *context, int64_t begin, int64_t end, int worker) {
    const Loss *l = context;
    Work w = work_on(l, worker);
    for (int64_t i = begin; i < end; i++) {
        IndexSpan span = span_of(l, i);
        make_rows(l, span, &w);
        l->sums[i] = 0;
        for (int64_t r = 0; r < span.n; r++)
            l->sums[i] +=
                divergence(reach(l, span), w.wanted + r * l->x.step, w.scores + r * l->x.step);
    }
}

static int64_t pieces_of(const Loss *l) {
    return l->x.batch * cpu_pieces(l->x.time, INDEX_QUERIES);
}

static size_t index_loss_scratch(const MxDevice *device, const MxKernelCall *call) {
    Loss l = loss_of(call, false);
    return l.worker_bytes * (size_t)device->n_threads + (size_t)pieces_of(&l) * sizeof(double);
}

static void index_loss_run(const MxDevice *device, const MxKernelCall *call) {
    Loss l = loss_of(call, false);
    double sum = 0;
    if (!call->out[0]) return;
    l.sums = (double *)(void *)((char *)call->scratch + l.worker_bytes * (size_t)device->n_threads);
    cpu_for_uneven(device, pieces_of(&l), 1, measure, &l);
    for (int64_t i = 0; i < pieces_of(&l); i++) sum += l.sums[i];
    *(float *)call->out[0] = (float)(l.attr->factor * sum);
}

const MxKernel cpu_index_loss = {.scratch = index_loss_scratch, .run = index_loss_run};

/* ---- the gradient */

/* The cotangents of a row of scores, through the softmax. */
static void score_gradient(int64_t n, float factor, const float *wanted, const float *made,
                           float *to) {
    float mean = 0.0f;
#pragma omp simd reduction(+ : mean)
    for (int64_t s = 0; s < n; s++) {
        float slope = -wanted[s] / (made[s] + tiny);
        to[s] = slope;
        mean += made[s] * slope;
    }
#pragma omp simd
    for (int64_t s = 0; s < n; s++) to[s] = factor * made[s] * (to[s] - mean);
}

/* Products of a head become their cotangents; returns what w gets. */
static float head_gradient(float weight, const float *ds, float *products) {
    float dw = 0.0f;
#pragma omp simd reduction(+ : dw)
    for (int j = 0; j < INDEX_KEYS; j++) {
        float above = products[j] > 0.0f ? products[j] : 0.0f;
        dw += ds[j] * above;
        products[j] = products[j] > 0.0f ? weight * ds[j] : 0.0f;
    }
    return dw;
}

/* The rows of ds of queries, which begin with `t` of their sequence. */
static const float *rows_of(const Loss *l, int64_t t) {
    return l->rows + (t - l->of_rows.t) * l->x.step;
}

/* Products with the keys from s on, and their cotangents in their place. dw NULL = not wanted. */
static void products_gradient(const Loss *l, IndexSpan some, int64_t s, const Work *w, float *dw) {
    const Index *x = &l->x;
    index_products(x, some, s, &w->tiles);
    for (int64_t i = 0; i < some.n * x->heads; i++) {
        int64_t t = some.t + i / x->heads;
        float sum = head_gradient(index_weights(x, some.b, t)[i % x->heads], rows_of(l, t) + s,
                                  w->tiles.products + i * INDEX_KEYS);
        if (dw) dw[i] += sum;
    }
}

static void load_keys(const Index *x, int64_t b, int64_t s, float *to) {
    float block[CPU_BLOCK];
    memset(to, 0, (size_t)(INDEX_KEYS * x->padded_width) * sizeof *to);
    for (int64_t j = 0; j < cpu_min(INDEX_KEYS, x->keys - s); j++)
        for (int64_t i = 0, n; i < x->width; i += n) {
            n = cpu_min(CPU_BLOCK, x->width - i);
            int64_t at = (b * x->keys + s + j) * x->width + i;
            memcpy(to + j * x->padded_width + i,
                   cpu_read(x->call->in[INDEX_K], x->dtype, at, n, block), (size_t)n * sizeof *to);
        }
}

static void add_to_queries(const Loss *l, IndexSpan some, const Work *w) {
    const Index *x = &l->x;
    int64_t rows = some.n * x->heads, first = (some.b * x->time + some.t) * x->heads;
    float *dw = (float *)x->call->out[DW];
    if (dw) memset(dw + first, 0, (size_t)rows * sizeof *dw);
    memset(w->dq, 0, (size_t)(rows * x->padded_width) * sizeof *w->dq);
    index_load(x, some, &w->tiles);
    for (int64_t s = 0; s < index_reach(x, some); s += INDEX_KEYS) {
        products_gradient(l, some, s, w, dw ? dw + first : NULL);
        load_keys(x, some.b, s, w->keys);
        small_floats.multiply(&(Small){.m = rows,
                                       .n = x->width,
                                       .k = INDEX_KEYS,
                                       .a_row = INDEX_KEYS,
                                       .a_k = 1,
                                       .b_row = x->padded_width,
                                       .c_row = x->padded_width,
                                       .adds = true},
                              w->tiles.products, w->keys, w->dq);
    }
    for (int64_t i = 0; i < rows && x->call->out[DQ]; i++)
        cpu_store(w->dq + i * x->padded_width, x->width, x->call->out[DQ], x->dtype,
                  (first + i) * x->width);
}

static void queries_gradient(const void *context, int64_t begin, int64_t end, int worker) {
    const Loss *l = context;
    const Index *x = &l->x;
    Work w = work_on(l, worker);
    for (int64_t i = begin; i < end; i++) {
        int64_t t = l->of_rows.t + i * INDEX_QUERIES;
        IndexSpan span = {l->of_rows.b, t, cpu_min(INDEX_QUERIES, l->of_rows.t + l->of_rows.n - t)};
        make_rows(l, span, &w);
        for (int64_t r = 0; r < span.n; r++) {
            float *to = l->rows + (t - l->of_rows.t + r) * x->step;
            score_gradient(reach(l, span), (float)l->attr->factor * l->dy, w.wanted + r * x->step,
                           w.scores + r * x->step, to);
        }
        for (int64_t r = 0; r < span.n; r += x->at_once)
            add_to_queries(l, (IndexSpan){span.b, t + r, cpu_min(x->at_once, span.n - r)}, &w);
    }
}

/* Blocks of keys: what the rows of queries give them. */
static void keys_gradient(const void *context, int64_t begin, int64_t end, int worker) {
    const Loss *l = context;
    const Index *x = &l->x;
    Work w = work_on(l, worker);
    for (int64_t i = begin; i < end; i++) {
        int64_t s = i * INDEX_KEYS, last = l->of_rows.t + l->of_rows.n;
        for (int64_t t = l->of_rows.t; t < last; t += x->at_once) {
            IndexSpan some = {l->of_rows.b, t, cpu_min(x->at_once, last - t)};
            if (s >= index_reach(x, some)) continue;
            index_load(x, some, &w.tiles);
            products_gradient(l, some, s, &w, NULL);
            small_floats.multiply(&(Small){.m = cpu_min(INDEX_KEYS, x->keys - s),
                                           .n = x->width,
                                           .k = some.n * x->heads,
                                           .a_row = 1,
                                           .a_k = INDEX_KEYS,
                                           .b_row = x->padded_width,
                                           .c_row = x->padded_width,
                                           .adds = true},
                                  w.tiles.products, w.tiles.q, l->dk + s * x->padded_width);
        }
    }
}

static size_t rows_bytes(const Loss *l) {
    return cpu_padded((size_t)(cpu_min(GRAD_QUERIES, l->x.time) * l->x.step) * sizeof(float));
}

static size_t index_loss_grad_scratch(const MxDevice *device, const MxKernelCall *call) {
    Loss l = loss_of(call, true);
    size_t dk = (size_t)(l.x.step * l.x.padded_width) * sizeof(float);
    return l.worker_bytes * (size_t)device->n_threads + rows_bytes(&l) + dk;
}

static void gradient_of_sequence(const MxDevice *device, Loss *l, int64_t b) {
    const Index *x = &l->x;
    memset(l->dk, 0, (size_t)(x->step * x->padded_width) * sizeof *l->dk);
    for (int64_t t = 0; t < x->time; t += GRAD_QUERIES) {
        l->of_rows = (IndexSpan){b, t, cpu_min(GRAD_QUERIES, x->time - t)};
        memset(l->rows, 0, rows_bytes(l));
        cpu_for_uneven(device, cpu_pieces(l->of_rows.n, INDEX_QUERIES), 1, queries_gradient, l);
        if (x->call->out[DK])
            cpu_for_uneven(device, cpu_pieces(index_reach(x, l->of_rows), INDEX_KEYS), 1,
                           keys_gradient, l);
    }
    for (int64_t s = 0; s < x->keys && x->call->out[DK]; s++)
        cpu_store(l->dk + s * x->padded_width, x->width, x->call->out[DK], x->dtype,
                  (b * x->keys + s) * x->width);
}

static void index_loss_grad_run(const MxDevice *device, const MxKernelCall *call) {
    Loss l = loss_of(call, true);
    char *shared = (char *)call->scratch + l.worker_bytes * (size_t)device->n_threads;
    l.rows = (float *)(void *)shared;
    l.dk = (float *)(void *)(shared + rows_bytes(&l));
    l.dy = *(const float *)call->in[call->n_in - 1];
    for (int64_t b = 0; b < l.x.batch; b++) gradient_of_sequence(device, &l, b);
}

const MxKernel cpu_index_loss_grad = {.scratch = index_loss_grad_scratch,
                                      .run = index_loss_grad_run};
