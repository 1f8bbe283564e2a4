/* attention_tile.c — the mask of a tile of queries and keys. All keys of a tile are of tokens, or
 * all stand behind these, where bits alone say which are seen. Of tokens: A query reads a range of
 * keys [low, high], whose ends both grow with the query, and of those the keys of its own segment;
 * so a tile's corners tell whether the range part of the mask admits all or nothing. With blocks of
 * tokens each range extends to the end of the block, which keeps the ends growing. */
#include "attention.h"
#include "vec.h"

#include <math.h>

/* Inputs behind queries, keys, values and segments. */
typedef struct More {
    const void *sinks, *blocks, *chosen;
} More;

static bool is_pooled(const MxOp *op) {
    return op == &op_pooled_attention || op == &op_pooled_attention_grad;
}

static More more_of(const MxKernelCall *call) {
    const MxAttentionAttr *attr = call->attr;
    if (!call->in) return (More){0};
    if (is_pooled(call->op)) return (More){.sinks = call->in[4], .chosen = call->in[5]};
    if (call->n_in == call->op->arity) return (More){0};
    if (attr->block_size) return (More){.blocks = call->in[4]};
    return attr->is_chosen ? (More){.chosen = call->in[4]} : (More){.sinks = call->in[4]};
}

Attention attention_of(const MxDevice *device, const MxKernelCall *call) {
    const float log2_e = 1.44269504f;
    const MxAttentionAttr *attr = call->attr;
    MX_ASSERT(!(attr->scale < 0)); /* the largest product makes the largest score */
    MxShape q = call->in_type[0].shape, k = call->in_type[1].shape;
    const More more = more_of(call);
    bool has_rows = is_pooled(call->op); /* behind tokens */
    bool is_other = has_rows || attr->has_key_part;
    int64_t tokens = is_other ? call->in_type[3].shape.dim[1] : k.dim[1];
    int64_t chunk = cpu_max(1, attr->chunk);
    const SmallKind *kind = small_kind(device, call->in_type[0].dtype);
    return (Attention){.call = call,
                       .kind = kind,
                       .side = kind->side,
                       .n_blocks = ATTENTION_SPAN / kind->side,
                       .attr = attr,
                       .segments = call->in ? call->in[3] : NULL,
                       .sinks = more.sinks,
                       .blocks = more.blocks,
                       .chosen = more.chosen,
                       .choosers = attr->chunk > 0 ? q.dim[2] : 1,
                       .chunk = chunk,
                       .words =
                           cpu_pieces(cpu_pieces(has_rows ? k.dim[1] - tokens : tokens, chunk), 32),
                       .chosen_from = has_rows ? tokens : 0,
                       .batch = q.dim[0],
                       .time = q.dim[1],
                       .keys = attr->first_key + k.dim[1],
                       .tokens = tokens,
                       .slots = k.dim[1],
                       .oldest = attr->first_key,
                       .first = attr->first_query,
                       .half = attr->is_swapped ? q.dim[1] / 2 : q.dim[1],
                       .second = attr->second_query,
                       .factor = (attr->softcap > 0 ? 1.0f : (float)attr->scale) * log2_e,
                       .heads = q.dim[2],
                       .key_heads = k.dim[2],
                       .group = q.dim[2] / k.dim[2],
                       .width = q.dim[3],
                       .value_width = call->in_type[2].shape.dim[3],
                       .dtype = call->in_type[0].dtype,
                       .scratch = call->scratch};
}

typedef MxKeyRange Range; /* of keys, or of queries counted as the keys of their tokens */

/* The range and a token's block, which it is in or beside: a block's tokens see its others. */
static Range with_block(const Attention *a, int64_t b, int64_t token, Range range) {
    int64_t from = a->blocks_from, n = a->tokens - from, first = token - from, last = first;
    const int32_t *of = a->blocks ? a->blocks + b * n : NULL;
    if (!of || !of[first]) return range;
    int64_t size = a->attr->block_size;
    int64_t low = (of[first] - 1) / size * size, high = low + size; /* low < number <= high */
    while (first > 0 && of[first - 1] > low && of[first - 1] <= high) first--;
    while (last + 1 < n && of[last + 1] > low && of[last + 1] <= high) last++;
    return (Range){cpu_min(range.low, from + first), cpu_max(range.high, from + last)};
}

static Range keys_of(const Attention *a, int64_t b, int64_t query) {
    return with_block(a, b, query, mx_masked_keys(a->attr, a->tokens, query));
}

/* The queries that see a key: the inverse of mx_masked_keys. */
static Range masked_queries(const Attention *a, int64_t key) {
    int64_t window = a->attr->window;
    switch (a->attr->mask) {
    case MX_MASK_SLIDING:
        return (Range){key, key + window - 1};
    case MX_MASK_CHUNK:
        return (Range){key, key / window * window + window - 1};
    case MX_MASK_FULL:
        return (Range){0, a->tokens - 1};
    case MX_MASK_BLOCKS:
        return (Range){key / window * window, a->tokens - 1};
    default:
        return (Range){key, a->tokens - 1};
    }
}

static Range queries_of(const Attention *a, int64_t b, int64_t key) {
    return with_block(a, b, key, masked_queries(a, key));
}

typedef struct Extremes {
    int32_t low, high;
} Extremes;

static Extremes extremes(const int32_t *x, int64_t n) {
    int32_t low = x[0], high = x[0];
#pragma omp simd reduction(min : low) reduction(max : high)
    for (int64_t i = 1; i < n; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
    }
    return (Extremes){low, high};
}

/* Whether the bit of key k is set for query q; the bit's keys end before *end. */
static bool is_chosen(const Attention *a, const Tile *tile, int64_t q, int64_t k, int64_t *end) {
    int64_t row = (tile->b * a->time + q) * a->choosers + tile->head % a->choosers;
    const int32_t *bits = a->chosen + row * a->words;
    int64_t bit = (k - a->chosen_from) / a->chunk;
    *end = a->chosen_from + (bit + 1) * a->chunk;
    return (uint32_t)bits[bit / 32] >> bit % 32 & 1u;
}

static bool has_chosen(const Attention *a, const Tile *tile) {
    for (int64_t q = tile->q; q < tile->q + tile->n_q; q++)
        for (int64_t k = tile->k, end; k < tile->k + tile->n_k; k = end)
            if (is_chosen(a, tile, q, k, &end)) return true;
    return false;
}

/* Segments are told apart by their smallest and largest number on both sides. */
static Sight sight_of(const Attention *a, const Tile *tile) {
    if (tile->k >= a->tokens) return has_chosen(a, tile) ? SIGHT_PART : SIGHT_NONE;
    int64_t first_q = attention_token(a, tile->q), last_k = tile->k + tile->n_k - 1;
    Range first = keys_of(a, tile->b, first_q);
    Range last = keys_of(a, tile->b, first_q + tile->n_q - 1);
    if (last_k < first.low || tile->k > last.high) return SIGHT_NONE;
    if (a->chunk > 1 && a->chosen && !has_chosen(a, tile)) return SIGHT_NONE;
    bool in_range = tile->k >= last.low && last_k <= first.high;
    if (!a->segments) return in_range ? SIGHT_ALL : SIGHT_PART;
    const int32_t *segments = a->segments + tile->b * a->tokens;
    Extremes q = extremes(segments + first_q, tile->n_q);
    Extremes k = extremes(segments + tile->k, tile->n_k);
    if (q.high < k.low || k.high < q.low) return SIGHT_NONE;
    bool one_segment = q.low == q.high && k.low == k.high;
    return one_segment && in_range ? SIGHT_ALL : SIGHT_PART;
}

int attention_parts(const Attention *a, const Tile *tile, Tile parts[ATTENTION_PARTS]) {
    int n = 0;
    parts[0] = *tile;
    parts[0].sight = sight_of(a, tile);
    if (parts[0].sight != SIGHT_PART) return parts[0].sight == SIGHT_ALL;
    const int64_t side = a->side / 2;
    for (int64_t q = 0; q < tile->n_q; q += side)
        for (int64_t k = 0; k < tile->n_k; k += side) {
            Tile part = {.b = tile->b,
                         .head = tile->head,
                         .q = tile->q + q,
                         .n_q = cpu_min(side, tile->n_q - q),
                         .k = tile->k + k,
                         .n_k = cpu_min(side, tile->n_k - k)};
            part.sight = sight_of(a, &part);
            if (part.sight != SIGHT_NONE) parts[n++] = part;
        }
    return n;
}

/* Rows of an array [batch, time, heads, width]. */
static SmallRows rows_of(const Attention *a, int input, const int64_t time_heads[2],
                         const int64_t b_t_head_n[4]) {
    int64_t width = a->call->in_type[input].shape.dim[3], step = time_heads[1] * width;
    int64_t at = (b_t_head_n[0] * time_heads[0] + b_t_head_n[1]) * step + b_t_head_n[2] * width;
    MxDtype dtype = a->call->in_type[input].dtype;
    const char *data = a->call->in[input];
    return (SmallRows){.data = data + (size_t)at * mx_dtype_bytes(dtype),
                       .dtype = dtype,
                       .n = b_t_head_n[3],
                       .width = width,
                       .step = step};
}

SmallRows attention_queries(const Attention *a, int input, const int64_t b_t_head_n[4]) {
    return rows_of(a, input, (int64_t[]){a->time, a->heads}, b_t_head_n);
}

SmallRows attention_keys(const Attention *a, int input, const int64_t b_t_head_n[4]) {
    const int64_t *i = b_t_head_n;
    return rows_of(a, input, (int64_t[]){a->slots, a->key_heads},
                   (int64_t[]){i[0], i[1] % a->slots, i[2], i[3]});
}

static void cap_scores(int64_t n, const MxAttentionAttr *attr, float *scores) {
    float cap = (float)attr->softcap, factor = (float)(attr->scale / attr->softcap);
#pragma omp simd
    for (int64_t i = 0; i < n; i++) scores[i] = cap * vec_tanh(scores[i] * factor);
}

static void mask_row(int64_t n, int32_t segment, const int32_t *segments, float *row) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) row[i] = segments[i] == segment ? row[i] : -INFINITY;
}

static void fill(float *row, int64_t from, int64_t to) {
    for (int64_t i = from; i < to; i++) row[i] = -INFINITY;
}

/* Leaves out the keys that were not chosen. */
static void mask_others(const Attention *a, const Tile *tile, const int64_t q_k_step[2],
                        float *scores) {
    for (int64_t q = 0; q < tile->n_q; q++)
        for (int64_t k = 0, end; k < tile->n_k; k = end) {
            bool is_seen = is_chosen(a, tile, tile->q + q, tile->k + k, &end);
            end = cpu_min(end - tile->k, tile->n_k);
            for (int64_t i = k; i < end && !is_seen; i++)
                scores[q * q_k_step[0] + i * q_k_step[1]] = -INFINITY;
        }
}

void attention_mask(const Attention *a, const Tile *tile, bool by_key, float *scores,
                    int64_t step) {
    int64_t rows = by_key ? tile->n_k : tile->n_q, columns = by_key ? tile->n_q : tile->n_k;
    int64_t q = attention_token(a, tile->q);
    int64_t first_row = by_key ? tile->k : q, first_column = by_key ? q : tile->k;
    if (a->attr->softcap > 0) cap_scores(rows * step, a->attr, scores);
    const int64_t by_keys[] = {1, step}, by_queries[] = {step, 1};
    if (a->chosen && tile->k >= a->chosen_from)
        mask_others(a, tile, by_key ? by_keys : by_queries, scores);
    if (tile->sight == SIGHT_ALL || tile->k >= a->tokens) return;
    const int32_t *segments = a->segments ? a->segments + tile->b * a->tokens : NULL;
    for (int64_t i = 0; i < rows; i++) {
        Range seen = (by_key ? queries_of : keys_of)(a, tile->b, first_row + i);
        float *row = scores + i * step;
        fill(row, 0, cpu_min(seen.low - first_column, columns));
        fill(row, cpu_max(0, seen.high + 1 - first_column), columns);
        if (segments) mask_row(columns, segments[first_row + i], segments + first_column, row);
    }
}
