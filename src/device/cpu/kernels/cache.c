/* cache.c — attention over caches of keys and values. If there are few queries, keys are processed
 * in blocks, each for all queries of the heads that share them, so that a single token costs about
 * as much as reading the cache. Many queries of a prompt are processed in tiles (attention.c), as
 * in training. */
#include "attention.h"
#include "cache_rows.h"
#include "vec.h"

#include <math.h>

enum {
    KEYS_A_BLOCK = CACHE_ROOM - CACHE_ROWS,
    QUERIES_A_PIECE = 16 /* of a head */
};

enum { Q, K, V, POSITIONS, SEQUENCES, COUNTS, SINKS, CHOSEN = SINKS, BLOCKS = SINKS };
enum { ROWS = SINKS + 1, SEEN }; /* of pooled attention */

typedef struct Cached {
    const MxKernelCall *call;
    const MxAttentionAttr *attr;
    const CacheForm *form;
    MxDtype dtype;
    int keys, values; /* which inputs */
    int64_t batch, time, heads, group, key_heads, slots, width, value_width;
    int64_t chunk;       /* slots of a bit of what was chosen */
    int64_t times, side; /* of a piece of work: tokens, and heads of keys side by side */
    size_t worker_bytes;
} Cached;

static Cached cached_of(const MxDevice *device, const MxKernelCall *call) {
    const MxAttentionAttr *attr = call->attr;
    MxShape q = call->in_type[0].shape, k = call->in_type[1].shape;
    int64_t times = cpu_max(1, cpu_min(QUERIES_A_PIECE, q.dim[1]));
    int64_t rows = cpu_max(1, q.dim[0] * cpu_pieces(q.dim[1], times));
    return (Cached){.call = call,
                    .attr = attr,
                    .form = cache_form(attr->kept, call->in_type[0].dtype),
                    .dtype = call->in_type[0].dtype,
                    .keys = K,
                    .values = V,
                    .batch = q.dim[0],
                    .time = q.dim[1],
                    .heads = q.dim[2],
                    .group = q.dim[2] / k.dim[2],
                    .key_heads = k.dim[2],
                    .times = times,
                    .side = cpu_pieces(k.dim[2], cpu_pieces(device->n_threads, rows)),
                    .slots = k.dim[1],
                    .chunk = cpu_max(1, attr->chunk),
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
    float *q, *out; /* [queries of a head, width], [.., value width] */
    Query *query;
} Work;

static size_t carve(const Cached *c, void *scratch, Work *w) {
    size_t n = (size_t)(c->side * c->times * c->group), k = (size_t)c->width,
           v = (size_t)c->value_width;
    char *start = scratch;
    w->q = cpu_carve(&scratch, n * k * sizeof(float));
    w->out = cpu_carve(&scratch, n * v * sizeof(float));
    w->query = cpu_carve(&scratch, n * sizeof(Query));
    return (size_t)((char *)scratch - start);
}

/* The part of a head, by its number in the piece. */
static Work of_head(const Cached *c, const Work *w, int64_t i) {
    int64_t n = c->times * c->group;
    Work own = *w;
    own.q += i * n * c->width;
    own.out += i * n * c->value_width;
    own.query += i * n;
    return own;
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

/* Keys and values of a block of neighbouring positions, and what their codes are multiplied with.
 */
typedef struct Keys {
    Range range;
    CacheRows keys, values;
    float key_scales[KEYS_A_BLOCK], value_scales[KEYS_A_BLOCK];
} Keys;

/* Products of n rows from `from` on made scores: of keys that were not chosen none. */
static void finish_scores(const Cached *c, const Query *query, const Keys *block, int64_t from,
                          int64_t n, float *score) {
    float cap = (float)c->attr->softcap, scale = (float)c->attr->scale;
    for (int64_t j = 0; c->attr->kept && j < n; j++) score[j] *= block->key_scales[from + j];
    for (int64_t j = 0; j < n; j++) score[j] *= scale;
    for (int64_t j = 0; cap > 0 && j < n; j++) score[j] = cap * vec_tanh(score[j] / cap);
    for (int64_t j = 0; query->chosen && j < n; j++) {
        int64_t bit = (block->range.low + from + j) % c->slots / c->chunk;
        if (!((uint32_t)query->chosen[bit / 32] >> bit % 32 & 1u)) score[j] = -INFINITY;
    }
}

/* Scores to what values are multiplied with; the query's sums are made relative to the new largest
 * score. */
static void soften(const Cached *c, Query *query, const Keys *block, int64_t from, int64_t n,
                   float *score) {
    float most = vec_max(n, score, query->most), sum = 0;
    float shrink = vec_exp(query->most - most);
    if (shrink != 1) vec_scale(c->value_width, shrink, query->out, query->out);
    query->most = most;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < n; j++) {
        score[j] = vec_exp(score[j] - most);
        sum += score[j];
    }
    query->sum = query->sum * shrink + sum;
    for (int64_t j = 0; c->attr->kept && j < n; j++) score[j] *= block->value_scales[from + j];
    for (int64_t j = n; j < CACHE_ROOM; j++) score[j] = 0;
}

static CacheRows part_of_rows(CacheRows rows, int64_t from, int64_t n) {
    rows.first += from * rows.step;
    rows.n = n;
    return rows;
}

/* The keys of a block that a token's queries, one or CACHE_QUERIES, see. */
static void add_block(const Cached *c, Query *query, int64_t n_queries, const Keys *block) {
    float score[CACHE_QUERIES * CACHE_ROOM] = {0};
    int64_t from = cpu_max(query->sees.low, block->range.low) - block->range.low;
    int64_t to = cpu_min(query->sees.high, block->range.high) - block->range.low + 1;
    int which = n_queries == CACHE_QUERIES;
    if (from >= to) return;
    const CacheRows keys = part_of_rows(block->keys, from, to - from);
    const CacheRows values = part_of_rows(block->values, from, to - from);
    c->form->dots[which](&keys, query->q, score);
    for (int64_t i = 0; i < n_queries; i++) {
        finish_scores(c, &query[i], block, from, to - from, score + i * CACHE_ROOM);
        soften(c, &query[i], block, from, to - from, score + i * CACHE_ROOM);
    }
    c->form->add[which](&values, score, query->out);
}

/* n rows of a cache, of slots side by side. The first query of a block asks for the next one. */
static CacheRows rows_of(const Cached *c, int input, const int64_t sequence_slot_head[3], int64_t n,
                         int64_t width) {
    const MxType *type = &c->call->in_type[input];
    const int64_t *i = sequence_slot_head;
    int64_t bytes = type->shape.dim[3] * (int64_t)mx_dtype_bytes(type->dtype);
    int64_t at = ((i[0] * c->slots + i[1]) * c->key_heads + i[2]) * bytes;
    return (CacheRows){.first = (const char *)c->call->in[input] + at,
                       .n = n,
                       .step = c->key_heads * bytes,
                       .width = width,
                       .apart = width,
                       .ahead = KEYS_A_BLOCK * c->key_heads * bytes};
}

/* Positions of a block, whose slots lie side by side. */
static int64_t end_of_rows(const Cached *c, int64_t low, int64_t high) {
    int64_t side_by_side = low + c->slots - 1 - low % c->slots;
    return cpu_min(cpu_min(low + KEYS_A_BLOCK - 1, side_by_side), high);
}

static void add_keys(const Cached *c, const Work *w, const int64_t b_head[2], int64_t n_queries,
                     Range range) {
    int64_t sequence = ((const int32_t *)c->call->in[SEQUENCES])[b_head[0]];
    const int64_t at[] = {sequence, range.low % c->slots, b_head[1]};
    int64_t n = range.high - range.low + 1;
    Keys block = {.range = range,
                  .keys = rows_of(c, c->keys, at, n, c->width),
                  .values = rows_of(c, c->values, at, n, c->value_width)};
    if (c->attr->kept) {
        cache_row_scales(c->attr->kept, c->dtype, &block.keys, block.key_scales);
        cache_row_scales(c->attr->kept, c->dtype, &block.values, block.value_scales);
    }
    for (int64_t i = 0, some = c->group % CACHE_QUERIES ? 1 : CACHE_QUERIES; i < n_queries;
         i += some) {
        add_block(c, &w->query[i], some, &block);
        block.keys.ahead = block.values.ahead = 0;
    }
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
    for (int64_t p = 0, end; p < behind.slots; p = end + 1) {
        end = end_of_rows(&behind, p, all.high);
        add_keys(&behind, w, b_head_t_n, n, (Range){p, end});
    }
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

/* Some tokens of a sequence, and heads of keys from the first on: a block of the cache is read for
 * one head after the other, as heads of a position lie side by side. */
static void attend_piece(const Cached *c, const Work *w, const int64_t b_head_t_n[4]) {
    int64_t b = b_head_t_n[0], first = b_head_t_n[1], t = b_head_t_n[2], n = b_head_t_n[3];
    int64_t heads = cpu_min(c->side, c->key_heads - first);
    Range all = {0, -1};
    for (int64_t i = 0; i < heads; i++) {
        Work own = of_head(c, w, i);
        all = begin_queries(c, &own, (int64_t[]){b, first + i, t, n});
    }
    for (int64_t p = all.low, end; p <= all.high; p = end + 1) {
        end = end_of_rows(c, p, all.high);
        for (int64_t i = 0; i < heads; i++) {
            Work own = of_head(c, w, i);
            add_keys(c, &own, (int64_t[]){b, first + i}, n, (Range){p, end});
        }
    }
    for (int64_t i = 0; i < heads; i++) {
        Work own = of_head(c, w, i);
        if (c->call->n_in > ROWS) add_rows(c, &own, (int64_t[]){b, first + i, t, n});
        end_queries(c, &own, (int64_t[]){b, first + i, t, n});
    }
}

static int64_t pieces_of(const Cached *c) {
    return c->batch * cpu_pieces(c->time, c->times) * cpu_pieces(c->key_heads, c->side);
}

static void attend(const void *context, int64_t begin, int64_t end, int worker) {
    const Cached *c = context;
    int64_t pieces = cpu_pieces(c->time, c->times), parts = cpu_pieces(c->key_heads, c->side);
    Work w;
    carve(c, (char *)c->call->scratch + c->worker_bytes * (size_t)worker, &w);
    for (int64_t i = begin; i < end; i++) {
        int64_t b = i / pieces / parts, part = i / pieces % parts, t = i % pieces * c->times;
        int64_t n = cpu_min(c->times, c->time - t) * c->group;
        attend_piece(c, &w, (int64_t[]){b, part * c->side, t, n});
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
    Cached c = cached_of(device, call);
    Attention a = attention_of(device, call);
    Work w;
    size_t few = carve(&c, NULL, &w);
    a.value_width = c.value_width;
    size_t many = c.time < QUERIES_A_PIECE ? 0 : attention_forward_bytes(&a);
    return (few > many ? few : many) * (size_t)device->n_threads;
}

static void cache_attention_run(const MxDevice *device, const MxKernelCall *call) {
    Cached c = cached_of(device, call);
    Work w;
    bool is_pooled = call->n_in > ROWS;
    if (!call->out[0] || (!is_pooled && attend_stretches(device, &c))) return;
    c.worker_bytes = carve(&c, NULL, &w);
    cpu_for_uneven(device, pieces_of(&c), 1, attend, &c);
}

const MxKernel cpu_cache_attention = {.scratch = cache_attention_scratch,
                                      .run = cache_attention_run};
const MxKernel cpu_cache_pooled_attention = {.scratch = cache_attention_scratch,
                                             .run = cache_attention_run};
