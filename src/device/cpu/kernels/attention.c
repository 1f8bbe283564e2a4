/* attention.c — softmax attention, a block of queries of one head at a time: keys are processed in
 * blocks, and the sums so far are rescaled whenever a much larger score appears (Milakov &
 * Gimelshein 2018; Dao 2022). Each thread needs memory for one tile. Tiles are transposed, with a
 * row for each key or each element of the width: the softmax then runs side by side over queries,
 * and its result has the layout that the second product reads. */
#include "attention.h"
#include "cache_rows.h"
#include "pairs.h"
#include "vec.h"

#include <math.h>

/* A block of queries, or a part of one. Exponents are of 2. */
typedef struct Block {
    Tile tile;
    int64_t step; /* words between rows of q and out: queries of the block, padded */
    uint32_t *q;  /* packed */
    float *out;   /* [value width, padded][queries], not yet divided by the sums */
    float *top;   /* [queries]: the largest product, or capped score */
    float *most;  /* [queries]: about the largest exponent */
    float *sum;   /* [queries]: of 2^(exponent - most) */
} Block;

/* Working memory of one thread. */
typedef struct Work {
    float *scores;            /* [keys, queries] */
    void *p;                  /* the same after the softmax, as words along keys */
    float *scale;             /* [queries]: what a tile multiplies earlier sums by */
    float *rows;              /* [keys or queries, the larger width]: packed keys; queries and what
                                 comes of them on their way */
    void *v_right, *v_across; /* packed values */
    void *keys, *values;      /* what a cache has in few bits, in the dtype of queries */
    SmallLeft k, v;           /* as they are multiplied */
    Block block[ATTENTION_BLOCKS];
} Work;

static Work carve(const Attention *a, char *scratch, size_t *used) {
    size_t row = (size_t)small_padded(a->width) * sizeof(float);
    size_t value_row = (size_t)small_padded(a->value_width) * sizeof(float);
    size_t side = (size_t)a->side, tile = side * side * sizeof(float);
    size_t read = a->attr->kept ? side * mx_dtype_bytes(a->dtype) : 0;
    Work w = {
        .scores = small_take(scratch, used, tile),
        .p = small_take(scratch, used, tile),
        .scale = small_take(scratch, used, side * sizeof(float)),
        .rows = small_take(scratch, used, side * (row > value_row ? row : value_row)),
        .v_right = small_take(scratch, used, side * value_row),
        .v_across = small_take(scratch, used, side * value_row),
        .keys = small_take(scratch, used, read * (size_t)a->width),
        .values = small_take(scratch, used, read * (size_t)a->value_width),
    };
    for (int i = 0; i < a->n_blocks; i++)
        w.block[i] = (Block){
            .q = small_take(scratch, used, side * row),
            .out = small_take(scratch, used, side * value_row),
            .top = small_take(scratch, used, side * sizeof(float)),
            .most = small_take(scratch, used, side * sizeof(float)),
            .sum = small_take(scratch, used, side * sizeof(float)),
        };
    return w;
}

size_t attention_forward_bytes(const Attention *a) {
    size_t bytes = 0;
    carve(a, NULL, &bytes);
    return bytes;
}

/* ---- a tile: scores to probabilities relative to about the largest score so far */

static const float lowest = -1e30f; /* finite: rows that have seen nothing yet stay 0, not NaN */

/* top[i] = the largest score of query i; the factor is not negative, so it may come afterwards. */
static void find_tops(int64_t lanes, int64_t n, const float *scores, float *top) {
    int64_t j = 0;
    for (int64_t i = 0; i < lanes; i++) top[i] = lowest;
    for (; j + 4 <= n; j += 4) {
        const float *a = scores + j * lanes, *b = a + lanes, *c = b + lanes, *d = c + lanes;
#pragma omp simd
        for (int64_t i = 0; i < lanes; i++) {
            float x = a[i] > b[i] ? a[i] : b[i], y = c[i] > d[i] ? c[i] : d[i];
            x = x > y ? x : y;
            top[i] = x > top[i] ? x : top[i];
        }
    }
    for (; j < n; j++)
#pragma omp simd
        for (int64_t i = 0; i < lanes; i++)
            top[i] = scores[j * lanes + i] > top[i] ? scores[j * lanes + i] : top[i];
}

/* A sum may be up to 2^slack times what it would be relative to the true maximum: floats and bf16
 * have room for it, and it spares nearly all rescaling. */
static bool raise_most(int64_t lanes, float factor, const Work *w, const Block *block) {
    const float slack = 8.0f;
    float top[ATTENTION_SIDE], *most = block->most, *sum = block->sum, *scale = w->scale;
    find_tops(lanes, block->tile.n_k, w->scores, top);
    int raised = 0;
#pragma omp simd reduction(| : raised)
    for (int64_t i = 0; i < lanes; i++) {
        block->top[i] = top[i] > block->top[i] ? top[i] : block->top[i];
        raised |= top[i] * factor > most[i] + slack;
    }
    if (!raised) return false;
#pragma omp simd
    for (int64_t i = 0; i < lanes; i++) {
        float x = top[i] * factor, now = x > most[i] + slack ? x : most[i];
        scale[i] = vec_exp2(most[i] - now);
        sum[i] *= scale[i];
        most[i] = now;
    }
    return true;
}

static void rescale(int64_t lanes, int64_t rows, const float *scale, const Block *block) {
    for (int64_t h = 0; h < rows; h++) {
        float *row = block->out + h * block->step;
#pragma omp simd
        for (int64_t i = 0; i < lanes; i++) row[i] *= scale[i];
    }
}

/* Lanes of queries one after the other, so that their sums stay in registers. */
static void soften_floats(int64_t lanes, float factor, const Work *w, const Block *block) {
    for (int64_t i = 0; i < lanes; i += SMALL_LANES) {
        const float *most = block->most + i, *row = w->scores + i;
        float sum[SMALL_LANES], *to = (float *)w->p + i;
        memcpy(sum, block->sum + i, sizeof sum);
        for (int64_t j = 0; j < block->tile.n_k; j++, row += lanes, to += lanes) {
#pragma omp simd
            for (int l = 0; l < SMALL_LANES; l++) {
                float p = vec_exp2(row[l] * factor - most[l]);
                to[l] = p;
                sum[l] += p;
            }
        }
        memcpy(block->sum + i, sum, sizeof sum);
    }
}

/* Two rows make one of words; an odd last row is followed by one that is not seen. */
static void soften_pairs(int64_t lanes, float factor, const Work *w, const Block *block) {
    int64_t n = block->tile.n_k;
    for (int64_t i = 0; n % 2 && i < lanes; i++) w->scores[n * lanes + i] = -INFINITY;
    for (int64_t i = 0; i < lanes; i += SMALL_LANES) {
        const float *most = block->most + i, *low = w->scores + i, *high = low + lanes;
        uint32_t *to = (uint32_t *)w->p + i;
        float sum[SMALL_LANES], p[SMALL_LANES], next[SMALL_LANES];
        memcpy(sum, block->sum + i, sizeof sum);
        for (int64_t j = 0; j < n; j += 2, low += 2 * lanes, high += 2 * lanes, to += lanes) {
#pragma omp simd
            for (int l = 0; l < SMALL_LANES; l++) {
                p[l] = vec_exp2(low[l] * factor - most[l]);
                next[l] = vec_exp2(high[l] * factor - most[l]);
                sum[l] += p[l] + next[l];
            }
            pairs_words(p, next, to);
        }
        memcpy(block->sum + i, sum, sizeof sum);
    }
}

/* The packed keys start at first_key. */
static void add_part(const Attention *a, const Work *w, const Block *part, int64_t first_key) {
    const SmallKind *kind = a->kind;
    const Tile *tile = &part->tile;
    int64_t lanes = small_padded(tile->n_q), skipped = tile->k - first_key;
    Small scores = {.m = tile->n_k,
                    .n = tile->n_q,
                    .k = small_words(kind, a->width),
                    .a_row = w->k.row,
                    .a_k = w->k.k,
                    .b_row = part->step,
                    .c_row = lanes};
    kind->multiply(&scores, w->k.words + skipped * w->k.row, part->q, w->scores);
    attention_mask(a, tile, true, w->scores, lanes);
    if (raise_most(lanes, a->factor, w, part)) rescale(lanes, a->value_width, w->scale, part);
    (kind->per_word == 1 ? soften_floats : soften_pairs)(lanes, a->factor, w, part);
    Small sums = {.m = a->value_width,
                  .n = tile->n_q,
                  .k = small_words(kind, tile->n_k),
                  .a_row = w->v.row,
                  .a_k = w->v.k,
                  .b_row = lanes,
                  .c_row = part->step,
                  .adds = true};
    kind->multiply(&sums, w->v.words + skipped / kind->per_word * w->v.k, w->p, part->out);
}

/* The block's next keys, which are packed. */
static void add_tile(const Attention *a, const Work *w, const Block *block, const Tile *tile) {
    int64_t skipped = tile->q - block->tile.q;
    Block part = {.tile = *tile,
                  .step = block->step,
                  .q = block->q + skipped,
                  .out = block->out + skipped,
                  .top = block->top + skipped,
                  .most = block->most + skipped,
                  .sum = block->sum + skipped};
    add_part(a, w, &part, block->tile.k);
}

/* ---- blocks of queries */

static void multiply(int64_t n, const float *x, float factor, float *y) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = x[i] * factor;
}

static void begin(const Attention *a, int64_t head, const Work *w, Block *block) {
    const Tile *tile = &block->tile;
    block->step = small_padded(tile->n_q);
    int64_t at[] = {tile->b, tile->q, head, tile->n_q};
    SmallRows q = attention_queries(a, 0, at);
    small_pack_turned(a->kind, &q, w->rows, block->q);
    memset(block->out, 0, (size_t)(a->side * small_padded(a->value_width)) * sizeof(float));
    for (int64_t i = 0; i < a->side; i++) {
        block->top[i] = block->most[i] = lowest;
        block->sum[i] = 0.0f;
    }
}

/* A sink adds to a query's sum, and 0 to what comes of it, which is to be multiplied by the result:
 * the sink may be far above all scores. */
static float add_sink(const Block *block, int64_t i, float sink) {
    const float log2_e = 1.44269504f;
    float x = sink * log2_e, now = x > block->most[i] ? x : block->most[i];
    float scale = vec_exp2(block->most[i] - now);
    block->sum[i] = block->sum[i] * scale + vec_exp2(x - now);
    block->most[i] = now;
    return scale;
}

static void finish(const Attention *a, int64_t head, const Work *w, const Block *block) {
    const float log_2 = 0.693147181f;
    const Tile *tile = &block->tile;
    float *log_sums = a->call->out[1], *tops = a->call->out[2], *rows = w->rows;
    float unit = a->attr->softcap > 0 ? 1.0f : (float)a->attr->scale;
    void *out = a->call->out[0];
    int64_t width = a->value_width, step = small_padded(width);
    small_turn_floats(step, block->step, block->out, rows);
    for (int64_t i = 0; i < tile->n_q; i++) {
        int64_t t = tile->q + i;
        int64_t at = ((tile->b * a->time + t) * a->heads + head) * width;
        int64_t row = (tile->b * a->heads + head) * a->time + t;
        float *from = rows + i * step;
        float *y = cpu_place(out, a->dtype, at, from);
        float scale = a->sinks ? add_sink(block, i, a->sinks[head]) : 1.0f;
        /* Of a part of the keys a query may see none: its log-sum is then minus infinity. */
        multiply(width, from, block->sum[i] > 0 ? scale / block->sum[i] : 0.0f, y);
        cpu_write(y, width, out, a->dtype, at);
        if (log_sums) log_sums[row] = block->most[i] * log_2 + logf(block->sum[i]);
        if (tops) tops[row] = block->top[i] * unit;
    }
}

/* The first `width` elements of rows of keys or values; what is in few bits is read into `space`,
 * by way of `row`. */
static SmallRows read_keys(const Attention *a, int input, const int64_t b_k_head_n[4],
                           int64_t width, void *space, float *row) {
    SmallRows rows = attention_keys(a, input, b_k_head_n);
    rows.width = width;
    if (!a->attr->kept) return rows;
    for (int64_t i = 0; i < rows.n; i++) {
        float *y = cpu_place(space, a->dtype, i * width, row);
        cache_row_read(a->attr->kept, a->dtype, (const char *)rows.data + i * rows.step, width, y);
        cpu_write(y, width, space, a->dtype, i * width);
    }
    return (SmallRows){space, a->dtype, rows.n, width, width};
}

/* A block of keys meets the blocks of queries that see any of it; it is packed for the first. */
static void add_keys(const Attention *a, int64_t head, const int64_t b_k_n[3], Work *w) {
    const int64_t at[] = {b_k_n[0], b_k_n[1], head / a->group, b_k_n[2]};
    bool is_packed = false;
    for (int i = 0; i < a->n_blocks; i++) {
        Block *block = &w->block[i];
        Tile parts[ATTENTION_PARTS];
        block->tile.k = b_k_n[1];
        block->tile.n_k = b_k_n[2];
        int n = block->tile.n_q > 0 ? attention_parts(a, &block->tile, parts) : 0;
        if (n && !is_packed) {
            SmallRows k = read_keys(a, 1, at, a->width, w->keys, w->rows);
            SmallRows v = read_keys(a, 2, at, a->value_width, w->values, w->rows);
            w->k = small_pack_left(a->kind, &k, w->rows);
            w->v = small_pack_across(a->kind, &v, w->v_right, w->v_across);
            is_packed = true;
        }
        for (int part = 0; part < n; part++) add_tile(a, w, block, &parts[part]);
    }
}

static void attend(const Attention *a, int64_t b, int64_t head, int64_t from, Work *w) {
    int64_t end_q = from < a->half ? a->half : a->time;
    for (int i = 0; i < a->n_blocks; i++) {
        int64_t q = from + i * a->side;
        w->block[i].tile = (Tile){.b = b, .head = head, .q = q, .n_q = cpu_min(a->side, end_q - q)};
        if (w->block[i].tile.n_q > 0) begin(a, head, w, &w->block[i]);
    }
    for (int64_t k = a->oldest, end; k < a->keys; k = end) {
        end = attention_keys_end(a, k);
        add_keys(a, head, (int64_t[]){b, k, end - k}, w);
    }
    for (int i = 0; i < a->n_blocks; i++)
        if (w->block[i].tile.n_q > 0) finish(a, head, w, &w->block[i]);
}

/* Where a span of queries begins. */
static int64_t span_start(const Attention *a, int64_t span) {
    int64_t of_first = cpu_pieces(a->half, ATTENTION_SPAN);
    return span < of_first ? span * ATTENTION_SPAN : a->half + (span - of_first) * ATTENTION_SPAN;
}

/* Pieces of work: spans of queries of every head of every sequence, the longest first. */
static void attend_span(const void *context, int64_t begin, int64_t end, int worker) {
    const Attention *a = context;
    size_t used = 0;
    Work w = carve(a, a->scratch + a->worker_bytes * (size_t)worker, &used);
    int64_t spans = attention_pieces(a, ATTENTION_SPAN), rows = a->batch * a->heads;
    small_open(a->kind);
    for (int64_t i = begin; i < end; i++) {
        int64_t span = spans - 1 - i / rows, row = i % rows;
        attend(a, row / a->heads, row % a->heads, span_start(a, span), &w);
    }
    small_close(a->kind);
}

void attention_forward(const MxDevice *device, Attention a) {
    a.worker_bytes = attention_forward_bytes(&a);
    int64_t spans = attention_pieces(&a, ATTENTION_SPAN);
    cpu_for_uneven(device, a.batch * a.heads * spans, 1, attend_span, &a);
}

static size_t attention_scratch(const MxDevice *device, const MxKernelCall *call) {
    Attention a = attention_of(device, call);
    return attention_forward_bytes(&a) * (size_t)device->n_threads;
}

static void attention_run(const MxDevice *device, const MxKernelCall *call) {
    attention_forward(device, attention_of(device, call));
}

const MxKernel cpu_attention = {.scratch = attention_scratch, .run = attention_run};
const MxKernel cpu_pooled_attention = {.scratch = attention_scratch, .run = attention_run};
