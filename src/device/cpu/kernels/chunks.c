/* chunks.c — the chunks of keys that queries read: first the mean key of every chunk, then the
 * products of queries with them. */
#include "kernel.h"
#include "vec.h"

#include <math.h>

enum { Q, K, POSITIONS, SEQUENCES };

typedef struct Chunks {
    const MxKernelCall *call;
    const MxChunksAttr *attr;
    const int32_t *positions, *sequences; /* of a cache; NULL = none */
    int64_t batch, time, heads, width;
    int64_t keys, key_heads, n; /* n chunks */
    int64_t words;
    MxDtype dtype;
    float *means;  /* [batch, key heads, chunks, width] */
    float *scores; /* [workers, chunks] */
    float *rows;   /* [workers, width] */
} Chunks;

static size_t carve(Chunks *x, int n_workers, void *scratch) {
    char *start = scratch;
    size_t real = sizeof(float);
    x->means = cpu_carve(&scratch, real * (size_t)(x->batch * x->key_heads * x->n * x->width));
    x->scores = cpu_carve(&scratch, real * (size_t)(n_workers * x->n));
    x->rows = cpu_carve(&scratch, real * (size_t)(n_workers * x->width));
    return (size_t)((char *)scratch - start);
}

static Chunks chunks_of(const MxKernelCall *call) {
    MxShape q = call->in_type[Q].shape, k = call->in_type[K].shape;
    const MxChunksAttr *attr = call->attr;
    bool is_cache = call->op == &op_cache_chunks;
    int64_t n = cpu_pieces(k.dim[1], attr->chunk);
    return (Chunks){.call = call,
                    .attr = attr,
                    .positions = is_cache && call->in ? call->in[POSITIONS] : NULL,
                    .sequences = is_cache && call->in ? call->in[SEQUENCES] : NULL,
                    .batch = q.dim[0],
                    .time = q.dim[1],
                    .heads = q.dim[2],
                    .width = q.dim[3],
                    .keys = k.dim[1],
                    .key_heads = k.dim[2],
                    .n = n,
                    .words = cpu_pieces(n, 32),
                    .dtype = call->in_type[Q].dtype};
}

static size_t chunks_scratch(const MxDevice *device, const MxKernelCall *call) {
    Chunks x = chunks_of(call);
    return carve(&x, device->n_threads, NULL);
}

/* The chunk of a query's own token; -1 = it is no token. */
static int64_t own_chunk(const Chunks *x, int64_t b, int64_t t) {
    int64_t token = x->positions ? x->positions[b * x->time + t] : x->attr->first_query + t;
    return token < 0 ? -1 : token / x->attr->chunk;
}

/* Chunks before those of the last queries: whole ones. Queries of a cache are in any order. */
static int64_t n_earlier(const Chunks *x, int64_t b) {
    int64_t last = 0;
    if (!x->positions) return own_chunk(x, b, x->time - 1);
    for (int64_t t = 0; t < x->time; t++) last = cpu_max(last, own_chunk(x, b, t));
    return last;
}

/* Items are the chunks of a head of keys of a sequence. */
static void find_means(const void *context, int64_t begin, int64_t end, int worker) {
    const Chunks *x = context;
    float *space = x->rows + worker * x->width;
    for (int64_t i = begin; i < end; i++) {
        int64_t c = i % x->n, head = i / x->n % x->key_heads, b = i / x->n / x->key_heads;
        int64_t sequence = x->sequences ? x->sequences[b] : b, size = x->attr->chunk;
        float *mean = x->means + i * x->width;
        if (c >= n_earlier(x, b)) continue;
        memset(mean, 0, (size_t)x->width * sizeof *mean);
        for (int64_t s = c * size; s < (c + 1) * size; s++) {
            int64_t at = ((sequence * x->keys + s) * x->key_heads + head) * x->width;
            vec_add_times(x->width, 1, cpu_read(x->call->in[K], x->dtype, at, x->width, space),
                          mean);
        }
        vec_scale(x->width, 1 / (float)size, mean, mean);
    }
}

/* The best of n, the first of equal ones; it is left out from then on. */
static int64_t take_best(int64_t n, float *scores) {
    int64_t best = 0;
    for (int64_t c = 1; c < n; c++)
        if (scores[c] > scores[best]) best = c;
    scores[best] = -INFINITY;
    return best;
}

/* Items are queries of a head. */
static void choose(const void *context, int64_t begin, int64_t end, int worker) {
    const Chunks *x = context;
    float *scores = x->scores + worker * x->n, *space = x->rows + worker * x->width;
    for (int64_t i = begin; i < end; i++) {
        int64_t head = i % x->heads, t = i / x->heads % x->time, b = i / x->heads / x->time;
        int64_t own = own_chunk(x, b, t), n_more = x->attr->n_best - 1;
        uint32_t *bits = (uint32_t *)x->call->out[0] + i * x->words;
        memset(bits, 0, (size_t)x->words * sizeof *bits);
        if (own < 0) continue;
        bits[own / 32] |= 1u << own % 32;
        bool takes_all = own <= n_more;
        const float *q = cpu_read(x->call->in[Q], x->dtype, i * x->width, x->width, space);
        const float *mean =
            x->means + (b * x->key_heads + head / (x->heads / x->key_heads)) * x->n * x->width;
        for (int64_t c = 0; c < own && !takes_all; c++)
            scores[c] = vec_dot(x->width, q, mean + c * x->width);
        for (int64_t k = 0; k < cpu_min(own, n_more); k++) {
            int64_t c = takes_all ? k : take_best(own, scores);
            bits[c / 32] |= 1u << c % 32;
        }
    }
}

static void chunks_run(const MxDevice *device, const MxKernelCall *call) {
    Chunks x = chunks_of(call);
    carve(&x, device->n_threads, call->scratch);
    if (!call->out[0]) return;
    cpu_for(device, x.batch * x.key_heads * x.n, 1, find_means, &x);
    cpu_for(device, x.batch * x.time * x.heads, 1, choose, &x);
}

const MxKernel cpu_chunks = {.scratch = chunks_scratch, .run = chunks_run};
const MxKernel cpu_cache_chunks = {.scratch = chunks_scratch, .run = chunks_run};
