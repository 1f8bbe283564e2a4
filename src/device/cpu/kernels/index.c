/* index.c — the scores of an indexer, and the keys that it chooses: the products of all heads of
 * some queries with a block of keys at a time. */
#include "index.h"
#include "pool.h"
#include "vec.h"

Index index_of(const MxKernelCall *call) {
    MxShape q = call->in_type[INDEX_Q].shape, k = call->in_type[INDEX_K].shape;
    Index x = {.call = call,
               .segments = call->in ? call->in[INDEX_SEGMENTS] : NULL,
               .key_segments = call->in ? call->in[INDEX_SEGMENTS] : NULL,
               .batch = q.dim[0],
               .time = q.dim[1],
               .keys = k.dim[1],
               .tokens = k.dim[1],
               .ratio = 1,
               .heads = q.dim[2],
               .width = q.dim[3],
               .padded_width = small_padded(q.dim[3]),
               .words = cpu_pieces(k.dim[1], 32),
               .step = cpu_pieces(k.dim[1], INDEX_KEYS) * INDEX_KEYS,
               .dtype = call->in_type[INDEX_Q].dtype};
    x.at_once = cpu_min(cpu_max(1, INDEX_ROWS / cpu_max(1, x.heads)), INDEX_QUERIES);
    return x;
}

IndexTiles index_carve(const Index *x, char *scratch, size_t *used) {
    size_t rows = (size_t)(x->at_once * x->heads), real = sizeof(float);
    return (IndexTiles){
        .q = small_take(scratch, used, rows * (size_t)x->padded_width * real),
        .turned = small_take(scratch, used, (size_t)x->width * INDEX_KEYS * real),
        .products = small_take(scratch, used, rows * INDEX_KEYS * real),
    };
}

/* n elements of an array of the call's dtype. */
static void load_row(const Index *x, int input, int64_t at, int64_t n, float *to) {
    const void *from = x->call->in[input];
    if (x->dtype == MX_F32)
        memcpy(to, (const float *)from + at, (size_t)n * sizeof *to);
    else
        cpu_widen((const MxBf16 *)from + at, n, to);
}

void index_load(const Index *x, IndexSpan span, const IndexTiles *tiles) {
    int64_t rows = span.n * x->heads, first = (span.b * x->time + span.t) * x->heads;
    for (int64_t i = 0; i < rows; i++) {
        float *to = tiles->q + i * x->padded_width;
        load_row(x, INDEX_Q, (first + i) * x->width, x->width, to);
        for (int64_t j = x->width; j < x->padded_width; j++) to[j] = 0;
    }
}

void index_products(const Index *x, IndexSpan span, int64_t s, const IndexTiles *tiles) {
    int64_t n = cpu_min(INDEX_KEYS, x->keys - s);
    int64_t sequence = x->sequences ? x->sequences[span.b] : span.b;
    float row[CPU_BLOCK];
    memset(tiles->turned, 0, (size_t)(x->width * INDEX_KEYS) * sizeof *tiles->turned);
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0, some; i < x->width; i += some) {
            some = cpu_min(CPU_BLOCK, x->width - i);
            load_row(x, INDEX_K, (sequence * x->keys + s + j) * x->width + i, some, row);
            for (int64_t h = 0; h < some; h++) tiles->turned[(i + h) * INDEX_KEYS + j] = row[h];
        }
    small_floats.multiply(&(Small){.m = span.n * x->heads,
                                   .n = INDEX_KEYS,
                                   .k = x->width,
                                   .a_row = x->padded_width,
                                   .a_k = 1,
                                   .b_row = INDEX_KEYS,
                                   .c_row = INDEX_KEYS},
                          tiles->q, tiles->turned, tiles->products);
}

/* Adds weight times what is above 0 of a head's products. */
static void add_head(float weight, const float *products, float *score) {
#pragma omp simd
    for (int j = 0; j < INDEX_KEYS; j++) {
        float above = products[j] > 0.0f ? products[j] : 0.0f;
        score[j] += weight * above;
    }
}

void index_scores(const Index *x, IndexSpan span, const IndexTiles *tiles, float *scores) {
    for (int64_t i = 0; i < span.n; i += x->at_once) {
        IndexSpan some = {span.b, span.t + i, cpu_min(x->at_once, span.n - i)};
        index_load(x, some, tiles);
        for (int64_t s = 0; s < index_reach(x, some); s += INDEX_KEYS) {
            index_products(x, some, s, tiles);
            for (int64_t r = 0; r < some.n; r++) {
                const float *weights = index_weights(x, span.b, some.t + r);
                const float *products = tiles->products + r * x->heads * INDEX_KEYS;
                float *score = scores + (i + r) * x->step + s;
                memset(score, 0, INDEX_KEYS * sizeof *score);
                for (int64_t h = 0; h < x->heads; h++)
                    add_head(weights[h], products + h * INDEX_KEYS, score);
            }
        }
    }
}

/* ---- the choice */

/* Working memory of one thread. */
typedef struct Work {
    IndexTiles tiles;
    float *scores;     /* [INDEX_QUERIES][step] */
    uint32_t *ordered; /* [keys] of one query */
} Work;

static Work carve(const Index *x, char *scratch, size_t *used) {
    return (Work){
        .tiles = index_carve(x, scratch, used),
        .scores = small_take(scratch, used, (size_t)(INDEX_QUERIES * x->step) * sizeof(float)),
        .ordered = small_take(scratch, used, (size_t)x->keys * sizeof(uint32_t)),
    };
}

/* Integers in the order of floats; both zeros are one. */
static uint32_t in_order(float score) {
    uint32_t bits = vec_bits(score + 0.0f);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

/* The k-th largest of n, and how many of those that equal it are among the k largest. Digit by
 * digit, from the highest on. */
static uint32_t find_last(const uint32_t *x, int64_t n, int64_t k, int64_t *n_equal) {
    enum { DIGIT_BITS = 8, DIGITS = 1 << DIGIT_BITS };
    uint32_t prefix = 0, known = 0;
    for (int shift = 32 - DIGIT_BITS; shift >= 0; shift -= DIGIT_BITS) {
        int64_t count[DIGITS] = {0};
        for (int64_t i = 0; i < n; i++)
            if ((x[i] & known) == prefix) count[x[i] >> shift & (DIGITS - 1)]++;
        uint32_t digit = DIGITS - 1;
        for (; k > count[digit]; digit--) k -= count[digit];
        prefix |= digit << shift;
        known |= (uint32_t)(DIGITS - 1) << shift;
    }
    *n_equal = k;
    return prefix;
}

static void choose(const Index *x, const MxIndexAttr *attr, const int64_t b_t[2], const Work *w,
                   const float *scores) {
    int64_t b = b_t[0], t = b_t[1], n = 0, end = index_reach(x, (IndexSpan){b, t, 1}), n_equal = 0;
    uint32_t *chosen = (uint32_t *)x->call->out[0] + (b * x->time + t) * x->words, least = 0;
    memset(chosen, 0, (size_t)x->words * sizeof *chosen);
    for (int64_t s = 0; s < end; s++)
        if (index_sees(x, b, t, s)) w->ordered[n++] = in_order(scores[s]);
    bool takes_all = n <= attr->n_best;
    if (!takes_all) least = find_last(w->ordered, n, attr->n_best, &n_equal);
    for (int64_t s = 0, i = 0; s < end; s++) {
        if (!index_sees(x, b, t, s)) continue;
        uint32_t score = w->ordered[i++];
        bool is_tie = !takes_all && score == least;
        bool takes = takes_all || score > least || (is_tie && (attr->keeps_ties || n_equal-- > 0));
        if (takes) chosen[s / 32] |= 1u << s % 32;
    }
}

static Index index_of_choice(const MxKernelCall *call) {
    const MxIndexAttr *attr = call->attr;
    Index x = index_of(call);
    x.first = attr->first_query;
    x.tokens = call->in_type[INDEX_SEGMENTS].shape.dim[1];
    if (attr->ratio > 0) x.ratio = attr->ratio;
    return x;
}

static size_t index_bytes(const Index *x) {
    size_t used = 0;
    carve(x, NULL, &used);
    return used;
}

static size_t index_scratch(const MxDevice *device, const MxKernelCall *call) {
    Index x = index_of_choice(call);
    size_t of_keys = (size_t)(x.batch * x.keys) * sizeof(int32_t);
    return index_bytes(&x) * (size_t)device->n_threads + of_keys;
}

/* Pieces of work: some queries of a sequence. */
static void choose_some(const void *context, int64_t begin, int64_t end, int worker) {
    const Index *x = context;
    int64_t pieces = cpu_pieces(x->time, INDEX_QUERIES);
    size_t used = 0;
    Work w = carve(x, (char *)x->call->scratch + index_bytes(x) * (size_t)worker, &used);
    for (int64_t i = begin; i < end; i++) {
        int64_t t = i % pieces * INDEX_QUERIES;
        IndexSpan span = {i / pieces, t, cpu_min(INDEX_QUERIES, x->time - t)};
        index_scores(x, span, &w.tiles, w.scores);
        for (int64_t r = 0; r < span.n; r++)
            choose(x, x->call->attr, (int64_t[]){span.b, t + r}, &w, w.scores + r * x->step);
    }
}

static void index_run(const MxDevice *device, const MxKernelCall *call) {
    Index x = index_of_choice(call);
    void *behind_workers = (char *)call->scratch + index_bytes(&x) * (size_t)device->n_threads;
    if (!call->out[0]) return;
    if (((const MxIndexAttr *)call->attr)->ratio > 0) {
        x.key_segments = behind_workers;
        pool_segments(x.segments, (int64_t[]){x.batch, x.tokens}, x.ratio, behind_workers);
    }
    cpu_for_uneven(device, x.batch * cpu_pieces(x.time, INDEX_QUERIES), 1, choose_some, &x);
}

const MxKernel cpu_index = {.scratch = index_scratch, .run = index_run};

/* ---- over a cache: a query at a time, each at its own position */

enum { POSITIONS = INDEX_W + 1, SEQUENCES };

static Index index_of_cache(const MxKernelCall *call) {
    Index x = index_of(call);
    x.segments = NULL;
    if (call->in) x.sequences = call->in[SEQUENCES];
    return x;
}

static size_t cache_index_scratch(const MxDevice *device, const MxKernelCall *call) {
    Index x = index_of_cache(call);
    return index_bytes(&x) * (size_t)device->n_threads;
}

static void choose_of_cache(const void *context, int64_t begin, int64_t end, int worker) {
    Index x = *(const Index *)context;
    const int32_t *positions = x.call->in[POSITIONS];
    size_t used = 0;
    Work w = carve(&x, (char *)x.call->scratch + index_bytes(&x) * (size_t)worker, &used);
    for (int64_t i = begin; i < end; i++) {
        IndexSpan span = {i / x.time, i % x.time, 1};
        if (positions[i] < 0) {
            memset((int32_t *)x.call->out[0] + i * x.words, 0, (size_t)x.words * sizeof(int32_t));
            continue;
        }
        x.first = cpu_min(positions[i], x.keys - 1) - span.t;
        index_scores(&x, span, &w.tiles, w.scores);
        choose(&x, x.call->attr, (int64_t[]){span.b, span.t}, &w, w.scores);
    }
}

static void cache_index_run(const MxDevice *device, const MxKernelCall *call) {
    Index x = index_of_cache(call);
    if (call->out[0]) cpu_for_uneven(device, x.batch * x.time, 1, choose_of_cache, &x);
}

const MxKernel cpu_cache_index = {.scratch = cache_index_scratch, .run = cache_index_run};
