/* cache.c — caches of keys and values: writing rows into their slots, and attention over them. If
 * there are few queries, keys are processed in blocks; those of a block are read once for all
 * queries of the heads that share them, so that a single token costs about as much as reading the
 * cache. Many queries of a prompt are processed in tiles (attention.c), as in training. */
#include "attention.h"
#include "vec.h"

#include <math.h>

/* ---- cache_write */

typedef struct Slots {
    const MxKernelCall *call;
    int64_t slots, rows; /* of a sequence: in the cache, and new ones */
    size_t bytes;        /* of a row */
} Slots;

static Slots slots_of(const MxKernelCall *call) {
    MxShape cache = call->in_type[0].shape;
    Slots s = {.call = call, .slots = cache.dim[1], .rows = call->in_type[1].shape.dim[1]};
    s.bytes = mx_dtype_bytes(call->in_type[0].dtype);
    for (int d = 2; d < cache.rank; d++) s.bytes *= (size_t)cache.dim[d];
    return s;
}

static void write_sequences(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const Slots *s = context;
    const MxKernelCall *call = s->call;
    const int32_t *sequences = call->in[3];
    for (int64_t b = begin; b < end; b++) {
        const int32_t *position = (const int32_t *)call->in[2] + b * s->rows;
        const char *row = (const char *)call->in[1] + (size_t)(b * s->rows) * s->bytes;
        char *cache = (char *)call->out[0] + (size_t)(sequences[b] * s->slots) * s->bytes;
        for (int64_t t = 0; t < s->rows; t++)
            if (position[t] >= 0)
                memcpy(cache + (size_t)(position[t] % s->slots) * s->bytes,
                       row + (size_t)t * s->bytes, s->bytes);
    }
}

static void cache_write_run(const MxDevice *device, const MxKernelCall *call) {
    Slots s = slots_of(call);
    int64_t row_bytes = s.rows * (int64_t)s.bytes;
    size_t all = (size_t)(call->in_type[0].shape.dim[0] * s.slots) * s.bytes;
    if (!call->out[0]) return;
    if (call->out[0] != call->in[0] && all) memcpy(call->out[0], call->in[0], all);
    cpu_for(device, call->in_type[1].shape.dim[0], cpu_max(1, CPU_PIECE / cpu_max(1, row_bytes)),
            write_sequences, &s);
}

const MxKernel cpu_cache_write = {.run = cache_write_run};

/* ---- cache_attention */

enum {
    KEYS_A_BLOCK = 64,
    QUERIES_A_PIECE = 16 /* of a head */
};

enum { Q, K, V, POSITIONS, SEQUENCES, COUNTS, SINKS, CHOSEN = SINKS, BLOCKS = SINKS };
enum { ROWS = SINKS + 1, SEEN }; /* of pooled attention */

typedef struct Cached {
    const MxKernelCall *call;
    const MxAttentionAttr *attr;
    MxDtype dtype;
    int keys, values; /* which inputs */
    int64_t batch, time, heads, group, key_heads, slots, width, value_width;
    int64_t chunk; /* slots of a bit of what was chosen */
    size_t worker_bytes;
} Cached;

static Cached cached_of(const MxKernelCall *call) {
    MxShape q = call->in_type[0].shape, k = call->in_type[1].shape;
    return (Cached){.call = call,
                    .attr = call->attr,
                    .dtype = call->in_type[0].dtype,
                    .keys = K,
                    .values = V,
                    .batch = q.dim[0],
                    .time = q.dim[1],
                    .heads = q.dim[2],
                    .group = q.dim[2] / k.dim[2],
                    .key_heads = k.dim[2],
                    .slots = k.dim[1],
                    .chunk = cpu_max(1, ((const MxAttentionAttr *)call->attr)->chunk),
                    .width = q.dim[3],
                    .value_width = call->out_type[0].shape.dim[3]};
}

/* Positions, both ends included. */
typedef struct Range {
    int64_t low, high;
} Range;

/* One query of a piece. */
typedef struct Query {
    const float *q;
    float *out;            /* [value width] sum so far */
    const int32_t *chosen; /* a bit each slot, or each chunk of them; NULL = all are */
    Range sees;
    float most, sum; /* the largest score; of exponentials below it */
} Query;

typedef struct Work {
    float *q, *out;       /* [queries of a piece, width], [.., value width] */
    float *keys, *values; /* a block, where the cache holds no floats */
    Query *query;
} Work;

static size_t carve(const Cached *c, void *scratch, Work *w) {
    size_t n = (size_t)(QUERIES_A_PIECE * c->group), k = (size_t)c->width,
           v = (size_t)c->value_width;
    char *start = scratch;
    w->q = cpu_carve(&scratch, n * k * sizeof(float));
    w->out = cpu_carve(&scratch, n * v * sizeof(float));
    w->keys = cpu_carve(&scratch, KEYS_A_BLOCK * k * sizeof(float));
    w->values = cpu_carve(&scratch, KEYS_A_BLOCK * v * sizeof(float));
    w->query = cpu_carve(&scratch, n * sizeof(Query));
    return (size_t)((char *)scratch - start);
}

/* The positions of a token's block, from t on in one direction, as far as its tokens follow one
 * another. */
static int64_t end_of_block(const Cached *c, const int32_t *positions, const int32_t *blocks,
                            int64_t t, int64_t step) {
    int64_t size = c->attr->block_size, low = (blocks[t] - 1) / size * size;
    for (int64_t next = t + step; next >= 0 && next < c->time; t = next, next += step)
        if (blocks[next] <= low || blocks[next] > low + size ||
            positions[next] != positions[t] + step)
            break;
    return positions[t];
}

/* What the query of token t of a row of the piece sees of what the cache still holds. */
static Range seen(const Cached *c, int64_t b, int64_t t) {
    const int32_t *positions = (const int32_t *)c->call->in[POSITIONS] + b * c->time;
    int64_t position = positions[t], count = ((const int32_t *)c->call->in[COUNTS])[b];
    int64_t window = c->attr->window, oldest = cpu_max(0, count - c->slots);
    Range all = {0, position};
    if (position < 0) return (Range){0, -1};
    if (c->attr->mask == MX_MASK_SLIDING) all.low = position - window + 1;
    if (c->attr->mask == MX_MASK_CHUNK) all.low = position / window * window;
    if (c->attr->mask == MX_MASK_FULL) all.high = count - 1;
    const int32_t *blocks =
        c->attr->block_size ? (const int32_t *)c->call->in[BLOCKS] + b * c->time : NULL;
    if (blocks && blocks[t]) {
        all.low = cpu_min(all.low, end_of_block(c, positions, blocks, t, -1));
        all.high = cpu_max(all.high, end_of_block(c, positions, blocks, t, 1));
    }
    return (Range){cpu_max(all.low, oldest), cpu_min(all.high, count - 1)};
}

/* The keys of n positions from `at` that the query sees; rows of them. */
static void add_block(const Cached *c, Query *query, Range block, const float *const *keys,
                      const float *const *values) {
    float score[KEYS_A_BLOCK], cap = (float)c->attr->softcap, scale = (float)c->attr->scale;
    int64_t from = cpu_max(query->sees.low, block.low) - block.low;
    int64_t to = cpu_min(query->sees.high, block.high) - block.low + 1;
    if (from >= to) return;
    for (int64_t j = from; j < to; j++) {
        score[j] = vec_dot(c->width, query->q, keys[j]) * scale;
        if (cap > 0) score[j] = cap * vec_tanh(score[j] / cap);
        int64_t slot = (block.low + j) % c->slots;
        int64_t bit = slot / c->chunk;
        if (query->chosen && !((uint32_t)query->chosen[bit / 32] >> bit % 32 & 1u))
            score[j] = -INFINITY;
    }
    float most = vec_max(to - from, score + from, query->most);
    float shrink = vec_exp(query->most - most);
    query->sum *= shrink;
    if (shrink != 1) vec_scale(c->value_width, shrink, query->out, query->out);
    query->most = most;
    for (int64_t j = from; j < to; j++) {
        float p = vec_exp(score[j] - most);
        query->sum += p;
        vec_add_times(c->value_width, p, values[j], query->out);
    }
}

/* n elements of a row of a cache, as floats. The rows of a head are far apart, so the one that is a
 * block further is asked for, into the second cache. */
static const float *row_of(const Cached *c, int input, const int64_t sequence_slot_head[3],
                           int64_t n, float *space) {
    enum { LINE = 64, INTO_SECOND_CACHE = 2 };
    const int64_t *i = sequence_slot_head, width = c->call->in_type[input].shape.dim[3];
    int64_t at = ((i[0] * c->slots + i[1]) * c->key_heads + i[2]) * width;
    int64_t bytes = (int64_t)mx_dtype_bytes(c->dtype), step = KEYS_A_BLOCK * c->key_heads * width;
    const char *next = (const char *)c->call->in[input] + (at + step) * bytes;
    for (int64_t b = 0; i[1] + KEYS_A_BLOCK < c->slots && b < n * bytes; b += LINE)
        __builtin_prefetch(next + b, 0, INTO_SECOND_CACHE);
    return cpu_read(c->call->in[input], c->dtype, at, n, space);
}

static void add_keys(const Cached *c, const Work *w, const int64_t b_head[2], int64_t n_queries,
                     Range block) {
    const float *keys[KEYS_A_BLOCK], *values[KEYS_A_BLOCK];
    bool are_keys = c->call->in[c->values] == c->call->in[c->keys];
    int64_t sequence = ((const int32_t *)c->call->in[SEQUENCES])[b_head[0]];
    for (int64_t p = block.low; p <= block.high; p++) {
        int64_t j = p - block.low, at[] = {sequence, p % c->slots, b_head[1]};
        keys[j] = row_of(c, c->keys, at, c->width, w->keys + j * c->width);
        values[j] = are_keys
                        ? keys[j]
                        : row_of(c, c->values, at, c->value_width, w->values + j * c->value_width);
    }
    for (int64_t i = 0; i < n_queries; i++) add_block(c, &w->query[i], block, keys, values);
}

/* Queries of one head of keys, from time t on; returns what they see together. */
static Range begin_queries(const Cached *c, const Work *w, const int64_t b_head_t_n[4]) {
    const float lowest = -1e30f; /* finite, so that nothing seen yet is no NaN */
    int64_t b = b_head_t_n[0], head = b_head_t_n[1], t = b_head_t_n[2], n = b_head_t_n[3];
    const void *more = c->call->n_in > SINKS ? c->call->in[SINKS] : NULL;
    const float *sinks = c->attr->is_chosen || c->attr->block_size ? NULL : more;
    const int32_t *chosen = c->attr->is_chosen ? more : NULL;
    int64_t words = cpu_pieces(cpu_pieces(c->slots, c->chunk), 32);
    int64_t choosers = c->attr->chunk > 0 ? c->heads : 1;
    Range all = {INT64_MAX, -1};
    for (int64_t i = 0; i < n; i++) {
        int64_t row = b * c->time + t + i / c->group, h = head * c->group + i % c->group;
        int64_t at = (row * c->heads + h) * c->width;
        Query *query = &w->query[i];
        *query = (Query){.q = cpu_read(c->call->in[Q], c->dtype, at, c->width, w->q + i * c->width),
                         .out = w->out + i * c->value_width,
                         .chosen = chosen ? chosen + (row * choosers + h % choosers) * words : NULL,
                         .sees = seen(c, b, row - b * c->time),
                         .most = sinks ? sinks[h] : lowest,
                         .sum = sinks ? 1 : 0};
        memset(query->out, 0, (size_t)c->value_width * sizeof(float));
        if (query->sees.low > query->sees.high) continue;
        all.low = cpu_min(all.low, query->sees.low);
        all.high = cpu_max(all.high, query->sees.high);
    }
    return all;
}

/* Rows of windows, of which a query sees those that it has a bit for. */
static void add_rows(const Cached *c, const Work *w, const int64_t b_head_t_n[4]) {
    const int32_t *positions = c->call->in[POSITIONS];
    int64_t first = b_head_t_n[0] * c->time + b_head_t_n[2], n = b_head_t_n[3];
    Cached behind = *c;
    behind.keys = behind.values = ROWS;
    behind.slots = c->call->in_type[ROWS].shape.dim[1];
    behind.chunk = 1;
    const Range all = {0, behind.slots - 1};
    for (int64_t i = 0; i < n; i++) {
        int64_t row = first + i / c->group;
        w->query[i].chosen =
            (const int32_t *)c->call->in[SEEN] + row * cpu_pieces(behind.slots, 32);
        if (positions[row] >= 0) w->query[i].sees = all;
    }
    for (int64_t p = 0; p < behind.slots; p += KEYS_A_BLOCK)
        add_keys(&behind, w, b_head_t_n, n, (Range){p, cpu_min(p + KEYS_A_BLOCK - 1, all.high)});
}

static void end_queries(const Cached *c, const Work *w, const int64_t b_head_t_n[4]) {
    int64_t b = b_head_t_n[0], head = b_head_t_n[1], t = b_head_t_n[2], n = b_head_t_n[3];
    for (int64_t i = 0; i < n; i++) {
        int64_t row = b * c->time + t + i / c->group, h = head * c->group + i % c->group;
        Query *query = &w->query[i];
        vec_scale(c->value_width, query->sum > 0 ? 1 / query->sum : 0, query->out, query->out);
        cpu_store(query->out, c->value_width, c->call->out[0], c->dtype,
                  (row * c->heads + h) * c->value_width);
    }
}

/* Pieces of work: some queries of the heads that share one of keys, of a sequence. */
static void attend(const void *context, int64_t begin, int64_t end, int worker) {
    const Cached *c = context;
    int64_t pieces = cpu_pieces(c->time, QUERIES_A_PIECE);
    Work w;
    carve(c, (char *)c->call->scratch + c->worker_bytes * (size_t)worker, &w);
    for (int64_t i = begin; i < end; i++) {
        int64_t b = i / pieces / c->key_heads, head = i / pieces % c->key_heads;
        int64_t t = i % pieces * QUERIES_A_PIECE, n = cpu_min(QUERIES_A_PIECE, c->time - t);
        const int64_t which[] = {b, head, t, n * c->group};
        Range all = begin_queries(c, &w, which);
        for (int64_t p = all.low; p <= all.high; p += KEYS_A_BLOCK)
            add_keys(c, &w, which, which[3], (Range){p, cpu_min(p + KEYS_A_BLOCK - 1, all.high)});
        if (c->call->n_in > ROWS) add_rows(c, &w, which);
        end_queries(c, &w, which);
    }
}

/* ---- many queries */

/* Tokens of a piece that follow one another and are the last ones of the cache. */
typedef struct Stretch {
    int64_t first, n; /* position of the first; how many */
} Stretch;

/* Whether a row of the piece is one, padding behind it aside, and worth tiles. Every token of it
 * then sees itself. */
static bool find_stretch(const Cached *c, int64_t b, Stretch *out) {
    const int32_t *position = (const int32_t *)c->call->in[POSITIONS] + b * c->time;
    int64_t n = 0, count = ((const int32_t *)c->call->in[COUNTS])[b];
    while (n < c->time && position[n] == position[0] + n) n++;
    *out = (Stretch){position[0], n};
    for (int64_t t = n; t < c->time; t++)
        if (position[t] >= 0) return false;
    return n >= QUERIES_A_PIECE && out->first >= cpu_max(0, count - c->slots) &&
           out->first + n == count;
}

/* Part i of an array along its first dim. */
static void *part_of(void *array, MxType type, int64_t i) {
    int64_t n = mx_shape_count(type.shape) / type.shape.dim[0];
    return (char *)array + (size_t)(i * n) * mx_dtype_bytes(type.dtype);
}

static void attend_stretch(const MxDevice *device, const Cached *c, int64_t b, Stretch stretch) {
    const MxKernelCall *call = c->call;
    int64_t sequence = ((const int32_t *)call->in[SEQUENCES])[b];
    size_t row_bytes = (size_t)(c->heads * c->value_width) * mx_dtype_bytes(c->dtype);
    char *to = part_of(call->out[0], call->out_type[0], b);
    void *more = call->n_in > SINKS ? call->in[SINKS] : NULL;
    if (c->attr->is_chosen || c->attr->block_size) more = part_of(more, call->in_type[CHOSEN], b);
    void *in[] = {part_of(call->in[Q], call->in_type[Q], b),
                  part_of(call->in[K], call->in_type[K], sequence),
                  part_of(call->in[V], call->in_type[V], sequence), NULL, more};
    void *out[] = {to, NULL, NULL};
    MxKernelCall same = *call;
    same.op = &op_attention;
    same.in = in;
    same.out = out;
    same.n_in = op_attention.arity + (call->n_in > SINKS);
    Attention a = attention_of(device, &same);
    a.batch = 1;
    a.time = stretch.n;
    a.half = stretch.n;
    a.first = stretch.first;
    a.keys = a.tokens = stretch.first + stretch.n;
    a.oldest = cpu_max(0, a.keys - c->slots);
    a.blocks_from = stretch.first;
    a.value_width = c->value_width;
    attention_forward(device, a);
    memset(to + (size_t)stretch.n * row_bytes, 0, (size_t)(c->time - stretch.n) * row_bytes);
}

/* All rows of the piece as stretches, if they are. */
static bool attend_stretches(const MxDevice *device, const Cached *c) {
    Stretch stretch;
    for (int64_t b = 0; b < c->batch; b++)
        if (!find_stretch(c, b, &stretch)) return false;
    for (int64_t b = 0; b < c->batch; b++) {
        find_stretch(c, b, &stretch);
        attend_stretch(device, c, b, stretch);
    }
    return true;
}

/* ---- */

static size_t cache_attention_scratch(const MxDevice *device, const MxKernelCall *call) {
    Cached c = cached_of(call);
    Attention a = attention_of(device, call);
    Work w;
    size_t few = carve(&c, NULL, &w);
    a.value_width = c.value_width;
    size_t many = c.time < QUERIES_A_PIECE ? 0 : attention_forward_bytes(&a);
    return (few > many ? few : many) * (size_t)device->n_threads;
}

static void cache_attention_run(const MxDevice *device, const MxKernelCall *call) {
    Cached c = cached_of(call);
    Work w;
    bool is_pooled = call->n_in > ROWS;
    if (!call->out[0] || (!is_pooled && attend_stretches(device, &c))) return;
    c.worker_bytes = carve(&c, NULL, &w);
    cpu_for_uneven(device, c.batch * c.key_heads * cpu_pieces(c.time, QUERIES_A_PIECE), 1, attend,
                   &c);
}

const MxKernel cpu_cache_attention = {.scratch = cache_attention_scratch,
                                      .run = cache_attention_run};
const MxKernel cpu_cache_pooled_attention = {.scratch = cache_attention_scratch,
                                             .run = cache_attention_run};
