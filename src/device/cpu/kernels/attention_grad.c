/* attention_grad.c — the gradient of attention: probabilities are recomputed, tile by tile, from
 * the saved log-sums (Dao 2022). A piece of work is one key head of one sequence with all the query
 * heads that read it or, if the number of these pieces cannot be divided evenly among threads, a
 * span of its keys. Spans take turns at adding to a query's gradient, so every sum has the same
 * order either way. The gradients of keys and values are transposed while they are summed up, so
 * that the tile of probabilities is read as it was computed. */
#include "attention.h"
#include "pairs.h"
#include "vec.h"

#include <math.h>
#include <sched.h>
#include <stdatomic.h>

enum { Q, K, V, SEGMENTS };                    /* inputs, … */
enum { O, LOG_SUMS, DO, LAST };                /* … of which these are the last */
enum { DQ = Q, DK = K, DV = V, DSINKS, OUTS }; /* outputs */

/* Keys, a block or a part of one: packed along the width, k also along keys; and their gradient. */
typedef struct Block {
    Tile tile;
    int64_t step; /* words between rows of all but k: keys of the block, padded */
    uint32_t *k_turned, *v_turned, *k;
    float *dk, *dv; /* [width, padded][keys], of values with theirs */
} Block;

/* A block of queries, of q or of d_out. */
typedef struct Queries {
    SmallLeft left;   /* along the width */
    SmallLeft across; /* along queries */
    void *space[3];
} Queries;

/* What the query heads of a key head gather while spans of keys pass by. */
typedef struct Group {
    float *dots;       /* [group, time]: d_out * out summed over a row */
    float *dq;         /* [group, time, width] */
    atomic_int *turns; /* [group, blocks of queries]: the span that may add to dq next */
} Group;

/* Working memory of one thread. Scores have a row for each query; widths and keys are padded to
 * whole lanes. */
typedef struct Work {
    float *p, *ds;            /* [queries, keys] */
    void *p_words, *ds_words; /* the same as words along queries */
    void *ds_left;            /* and along keys; p and ds themselves where a word is a float */
    Queries q, d_out;
    Group group; /* of the piece of work, and its span */
    int span;
    Block block[ATTENTION_BLOCKS];
} Work;

static size_t side_bytes(const Attention *a, int64_t width) {
    return (size_t)(a->side * small_padded(width)) * sizeof(float);
}

static Block carve_block(const Attention *a, char *scratch, size_t *used) {
    size_t bytes = side_bytes(a, a->width), value_bytes = side_bytes(a, a->value_width);
    return (Block){
        .k_turned = small_take(scratch, used, bytes),
        .v_turned = small_take(scratch, used, value_bytes),
        .k = small_take(scratch, used, bytes),
        .dk = small_take(scratch, used, bytes),
        .dv = small_take(scratch, used, value_bytes),
    };
}

static Queries carve_queries(size_t bytes, char *scratch, size_t *used) {
    Queries queries = {0};
    for (int i = 0; i < 3; i++) queries.space[i] = small_take(scratch, used, bytes);
    return queries;
}

static Work carve(const Attention *a, char *scratch, size_t *used) {
    size_t side = (size_t)a->side, tile = side * side * sizeof(float);
    Work w = {
        .p = small_take(scratch, used, tile),
        .ds = small_take(scratch, used, tile),
        .q = carve_queries(side_bytes(a, a->width), scratch, used),
        .d_out = carve_queries(side_bytes(a, a->value_width), scratch, used),
    };
    bool is_float = a->kind->per_word == 1;
    w.p_words = is_float ? w.p : small_take(scratch, used, tile / 2);
    w.ds_words = is_float ? w.ds : small_take(scratch, used, tile / 2);
    w.ds_left = is_float ? w.ds : small_take(scratch, used, tile / 2);
    for (int i = 0; i < a->n_blocks; i++) w.block[i] = carve_block(a, scratch, used);
    return w;
}

static const void *last_input(const Attention *a, int which) {
    return a->call->in[a->call->n_in - LAST + which];
}

static size_t worker_bytes(const Attention *a) {
    size_t bytes = 0;
    carve(a, NULL, &bytes);
    return bytes;
}

static int64_t blocks_of(const Attention *a) {
    return attention_pieces(a, a->side);
}

/* The block of queries that has this one. */
static int64_t block_of(const Attention *a, int64_t q) {
    return q < a->half ? q / a->side : cpu_pieces(a->half, a->side) + (q - a->half) / a->side;
}

static Group carve_group(const Attention *a, char *scratch, size_t *used) {
    size_t rows = (size_t)(a->group * a->time), width = (size_t)small_padded(a->width);
    return (Group){
        .dots = small_take(scratch, used, rows * sizeof(float)),
        .dq = small_take(scratch, used, rows * width * sizeof(float)),
        .turns = small_take(scratch, used, (size_t)(a->group * blocks_of(a)) * sizeof(atomic_int)),
    };
}

static size_t group_bytes(const Attention *a) {
    size_t bytes = 0;
    carve_group(a, NULL, &bytes);
    return bytes;
}

/* ---- a tile: scores to probabilities, and cotangents of probabilities to those of scores (before
 * the factor `scale`) */

/* A number for each row: the log-sum, to base 2, and the dot. */
typedef struct RowSums {
    float log_sums[ATTENTION_SIDE], dots[ATTENTION_SIDE];
} RowSums;

static RowSums sums_of(const Attention *a, const Tile *tile, int64_t head, const Work *w) {
    const float log2_e = 1.44269504f;
    const float *log_sums = last_input(a, LOG_SUMS);
    RowSums sums = {0};
    for (int64_t i = 0; i < tile->n_q; i++) {
        int64_t t = tile->q + i;
        sums.log_sums[i] = log_sums[(tile->b * a->heads + head) * a->time + t] * log2_e;
        sums.dots[i] = w->group.dots[head % a->group * a->time + t];
    }
    return sums;
}

/* Through the cap, whose slope multiplies what is left once the dots are taken off. */
static void cap_gradient(const Tile *tile, float softcap, RowSums *sums, const Work *w) {
    float inverse = 1.0f / softcap;
    int64_t lanes = small_padded(tile->n_k);
    for (int64_t i = 0; i < tile->n_q; i++) {
        const float *score = w->p + i * lanes;
        float *ds = w->ds + i * lanes, dot = sums->dots[i];
#pragma omp simd
        for (int64_t j = 0; j < lanes; j++) {
            float tangent = score[j] * inverse;
            float d = (ds[j] - dot) * (1.0f - tangent * tangent);
            ds[j] = score[j] == -INFINITY ? 0.0f : d; /* an excluded score has no tangent */
        }
    }
    memset(sums->dots, 0, sizeof sums->dots);
}

static void score_gradient_floats(const Tile *tile, float factor, const RowSums *sums,
                                  const Work *w) {
    int64_t lanes = small_padded(tile->n_k);
    for (int64_t i = 0; i < tile->n_q; i++) {
        float *p = w->p + i * lanes, *ds = w->ds + i * lanes;
        float log_sum = sums->log_sums[i], dot = sums->dots[i];
#pragma omp simd
        for (int64_t j = 0; j < lanes; j++) {
            float y = vec_exp2(p[j] * factor - log_sum);
            p[j] = y;
            ds[j] = y * (ds[j] - dot);
        }
    }
}

/* Rows i and i + 1, as words and as rows of bf16. */
static void score_gradient_rows(int64_t lanes, int64_t i, float factor, const RowSums *sums,
                                const Work *w) {
    const float *p = w->p + i * lanes, *ds = w->ds + i * lanes;
    uint32_t *p_words = (uint32_t *)w->p_words + i / 2 * lanes;
    uint32_t *ds_words = (uint32_t *)w->ds_words + i / 2 * lanes;
    MxBf16 *ds_left = (MxBf16 *)w->ds_left + i * lanes;
    float log_sum = sums->log_sums[i], next_log_sum = sums->log_sums[i + 1];
    float dot = sums->dots[i], next_dot = sums->dots[i + 1];
    for (int64_t j = 0; j < lanes; j += SMALL_LANES) {
        float y[SMALL_LANES], next[SMALL_LANES], d[SMALL_LANES], next_d[SMALL_LANES];
#pragma omp simd
        for (int l = 0; l < SMALL_LANES; l++) {
            y[l] = vec_exp2(p[j + l] * factor - log_sum);
            next[l] = vec_exp2(p[j + l + lanes] * factor - next_log_sum);
            d[l] = y[l] * (ds[j + l] - dot);
            next_d[l] = next[l] * (ds[j + l + lanes] - next_dot);
        }
        pairs_words(y, next, p_words + j);
        pairs_words(d, next_d, ds_words + j);
        pairs_rows(d, next_d, ds_left + j, lanes);
    }
}

/* An odd last row is followed by one that is not seen, an odd last column by zeros. */
static void score_gradient_pairs(const Tile *tile, float factor, const RowSums *sums,
                                 const Work *w) {
    int64_t lanes = small_padded(tile->n_k), n = tile->n_q;
    for (int64_t j = 0; n % 2 && j < lanes; j++) {
        w->p[n * lanes + j] = -INFINITY;
        w->ds[n * lanes + j] = 0.0f;
    }
    for (int64_t i = 0; i < n; i += 2) score_gradient_rows(lanes, i, factor, sums, w);
    MxBf16 *ds_left = w->ds_left;
    for (int64_t i = 0; tile->n_k % 2 && i < n; i++) ds_left[i * lanes + tile->n_k] = 0;
}

/* A block's operand that has a row a query, and the width of its rows. */
typedef struct Operand {
    const SmallLeft *queries;
    int64_t width;
} Operand;

/* [queries, keys] = rows of queries times rows of keys. */
static void pair_up(const Attention *a, const Block *part, Operand left, const uint32_t *keys,
                    float *out) {
    const Tile *tile = &part->tile;
    Small product = {.m = tile->n_q,
                     .n = tile->n_k,
                     .k = small_words(a->kind, left.width),
                     .a_row = left.queries->row,
                     .a_k = left.queries->k,
                     .b_row = part->step,
                     .c_row = small_padded(tile->n_k)};
    a->kind->multiply(&product, left.queries->words, keys, out);
}

/* A gradient of keys: += rows of queries, along queries, times scores. */
static void add_to_keys(const Attention *a, const Block *part, Operand left, const void *scores,
                        float *out) {
    const Tile *tile = &part->tile;
    Small product = {.m = left.width,
                     .n = tile->n_k,
                     .k = small_words(a->kind, tile->n_q),
                     .a_row = left.queries->row,
                     .a_k = left.queries->k,
                     .b_row = small_padded(tile->n_k),
                     .c_row = part->step,
                     .adds = true};
    a->kind->multiply(&product, left.queries->words, scores, out);
}

static atomic_int *turn_of(const Attention *a, int64_t head, int64_t q, const Work *w) {
    return w->group.turns + head % a->group * blocks_of(a) + block_of(a, q);
}

/* Spans are begun in their order, so the one that is waited for is under way. */
static void await_turn(const atomic_int *turn, int span) {
    while (atomic_load_explicit(turn, memory_order_acquire) != span) sched_yield();
}

static void add_to_queries(const Attention *a, const Block *part, int64_t head, const Work *w) {
    const Tile *tile = &part->tile;
    int64_t step = small_padded(a->width);
    Small product = {.m = tile->n_q,
                     .n = a->width,
                     .k = small_words(a->kind, tile->n_k),
                     .a_row = small_left_step(a->kind, tile->n_k),
                     .a_k = 1,
                     .b_row = step,
                     .c_row = step,
                     .adds = true};
    await_turn(turn_of(a, head, tile->q, w), w->span);
    float *dq = w->group.dq + (head % a->group * a->time + tile->q) * step;
    a->kind->multiply(&product, w->ds_left, part->k, dq);
}

/* Rows from `skipped` on. */
static Queries queries_from(const Attention *a, const Queries *queries, int64_t skipped) {
    Queries rest = *queries;
    rest.left.words += skipped * rest.left.row;
    rest.across.words += skipped / a->kind->per_word * rest.across.k;
    return rest;
}

static void add_part(const Attention *a, int64_t head, const Work *w, const Block *part,
                     int64_t first_query) {
    const Tile *tile = &part->tile;
    float softcap = (float)a->attr->softcap;
    Queries q = queries_from(a, &w->q, tile->q - first_query);
    Queries d_out = queries_from(a, &w->d_out, tile->q - first_query);
    pair_up(a, part, (Operand){&q.left, a->width}, part->k_turned, w->p);
    attention_mask(a, tile, false, w->p, small_padded(tile->n_k));
    pair_up(a, part, (Operand){&d_out.left, a->value_width}, part->v_turned, w->ds);
    RowSums sums = sums_of(a, tile, head, w);
    if (softcap > 0) cap_gradient(tile, softcap, &sums, w);
    (a->kind->per_word == 1 ? score_gradient_floats : score_gradient_pairs)(tile, a->factor, &sums,
                                                                            w);
    add_to_keys(a, part, (Operand){&d_out.across, a->value_width}, w->p_words, part->dv);
    add_to_keys(a, part, (Operand){&q.across, a->width}, w->ds_words, part->dk);
    add_to_queries(a, part, head, w);
}

/* The next queries, which are packed. */
static void add_tile(const Attention *a, int64_t head, const Work *w, const Block *block,
                     const Tile *tile) {
    int64_t skipped = tile->k - block->tile.k;
    Block part = {.tile = *tile,
                  .step = block->step,
                  .k_turned = block->k_turned + skipped,
                  .v_turned = block->v_turned + skipped,
                  .k = block->k + skipped / a->kind->per_word * small_padded(a->width),
                  .dk = block->dk + skipped,
                  .dv = block->dv + skipped};
    add_part(a, head, w, &part, block->tile.q);
}

/* ---- blocks of keys */

/* Rows [n, width] to one head of an output. */
static void store(const Attention *a, int out, const int64_t b_t_head_n[4], const float *rows) {
    MxShape shape = a->call->out_type[out].shape;
    int64_t time = shape.dim[1], heads = shape.dim[2], width = shape.dim[3];
    void *y = a->call->out[out];
    for (int64_t i = 0; y && i < b_t_head_n[3]; i++) {
        int64_t t = b_t_head_n[0] * time + b_t_head_n[1] + i;
        int64_t at = (t * heads + b_t_head_n[2]) * width;
        cpu_store(rows + i * small_padded(width), width, y, a->dtype, at);
    }
}

static void begin(const Attention *a, int64_t key_head, Block *block) {
    const Tile *tile = &block->tile;
    int64_t at[] = {tile->b, tile->k, key_head, tile->n_k};
    block->step = small_padded(tile->n_k);
    SmallRows k = attention_keys(a, K, at);
    SmallRows v = attention_keys(a, V, at);
    small_pack_turned(a->kind, &k, block->dk, block->k_turned);
    small_pack_turned(a->kind, &v, block->dv, block->v_turned);
    small_pack_right(a->kind, &k, block->k);
    memset(block->dk, 0, side_bytes(a, a->width));
    memset(block->dv, 0, side_bytes(a, a->value_width));
}

static void finish(const Attention *a, int64_t key_head, const Block *block) {
    const Tile *tile = &block->tile;
    int64_t at[] = {tile->b, tile->k % a->slots, key_head, tile->n_k};
    int64_t width = small_padded(a->width), value_width = small_padded(a->value_width);
    float *rows = (float *)block->k_turned, *value_rows = (float *)block->v_turned; /* now free */
    vec_scale(width * block->step, (float)a->attr->scale, block->dk, block->dk);
    small_turn_floats(width, block->step, block->dk, rows);
    store(a, DK, at, rows);
    small_turn_floats(value_width, block->step, block->dv, value_rows);
    store(a, DV, at, value_rows);
}

static void pack_queries(const Attention *a, int input, const int64_t at[4], Queries *queries) {
    SmallRows rows = attention_queries(a, input, at);
    queries->across = small_pack_across(a->kind, &rows, queries->space[0], queries->space[1]);
    if (a->kind->per_word == 1) /* the same layout */
        queries->left = (SmallLeft){queries->space[0], small_padded(rows.width), 1};
    else
        queries->left = small_pack_left(a->kind, &rows, queries->space[2]);
}

/* A block of queries meets the blocks of keys that it sees any of; it is packed for the first. */
static void add_queries(const Attention *a, int64_t head, const int64_t b_q_n[3], Work *w) {
    const int64_t at[] = {b_q_n[0], b_q_n[1], head, b_q_n[2]};
    bool is_packed = false;
    for (int i = 0; i < a->n_blocks; i++) {
        Block *block = &w->block[i];
        Tile parts[ATTENTION_PARTS];
        block->tile.head = head;
        block->tile.q = b_q_n[1];
        block->tile.n_q = b_q_n[2];
        int n = block->tile.n_k > 0 ? attention_parts(a, &block->tile, parts) : 0;
        if (n && !is_packed) {
            pack_queries(a, Q, at, &w->q);
            pack_queries(a, a->call->n_in - LAST + DO, at, &w->d_out);
            is_packed = true;
        }
        for (int part = 0; part < n; part++) add_tile(a, head, w, block, &parts[part]);
    }
    atomic_int *turn = turn_of(a, head, b_q_n[1], w);
    await_turn(turn, w->span);
    atomic_store_explicit(turn, w->span + 1, memory_order_release);
}

/* Where the keys of tokens end that are here; others may be behind them. */
static int64_t tokens_end(const Attention *a) {
    return cpu_min(a->tokens, a->keys);
}

/* Where a span of keys begins: they are of tokens, or behind them. */
static int64_t span_start(const Attention *a, int64_t span) {
    int64_t end = tokens_end(a), of_tokens = cpu_pieces(end - a->oldest, ATTENTION_SPAN);
    return span < of_tokens ? a->oldest + span * ATTENTION_SPAN
                            : end + (span - of_tokens) * ATTENTION_SPAN;
}

static int64_t count_spans(const Attention *a) {
    int64_t end = tokens_end(a);
    return cpu_pieces(end - a->oldest, ATTENTION_SPAN) + cpu_pieces(a->keys - end, ATTENTION_SPAN);
}

static void add_span(const Attention *a, int64_t b, int64_t key_head, Work *w) {
    int64_t start = span_start(a, w->span), stop = start < a->tokens ? tokens_end(a) : a->keys;
    for (int i = 0; i < a->n_blocks; i++) {
        int64_t k = start + i * a->side;
        w->block[i].tile = (Tile){.b = b, .k = k, .n_k = cpu_min(a->side, stop - k)};
        if (w->block[i].tile.n_k > 0) begin(a, key_head, &w->block[i]);
    }
    for (int64_t head = key_head * a->group; head < (key_head + 1) * a->group; head++)
        for (int64_t q = 0, end; q < a->time; q = end) {
            end = attention_queries_end(a, q);
            add_queries(a, head, (int64_t[]){b, q, end - q}, w);
        }
    for (int i = 0; i < a->n_blocks; i++)
        if (w->block[i].tile.n_k > 0) finish(a, key_head, &w->block[i]);
}

/* ---- groups: query heads of a key head */

static float dot_bf16(int64_t n, const MxBf16 *x, const MxBf16 *y) {
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) sum += mx_bf16_to_f32(x[i]) * mx_bf16_to_f32(y[i]);
    return sum;
}

/* Rows of a head lie apart, where processors do not see that one will be read after the other. */
static void fetch_row(const Attention *a, const void *x, int64_t at) {
    const int64_t bytes = (int64_t)mx_dtype_bytes(a->dtype);
    const char *row = (const char *)x + at * bytes;
    for (int64_t i = 0; i < a->value_width * bytes; i += CPU_ALIGN) __builtin_prefetch(row + i);
}

static void begin_group(const Attention *a, int64_t b, int64_t key_head, const Group *group) {
    enum { AHEAD = 8 }; /* rows */
    int64_t step = small_padded(a->width), width = a->value_width, n = a->group * a->time;
    const void *o = last_input(a, O), *d = last_input(a, DO);
    for (int64_t i = 0; i < n; i++) {
        int64_t head = key_head * a->group + i / a->time, t = i % a->time;
        int64_t row = a->heads * width;
        int64_t at = (b * a->time + t) * row + head * width;
        int64_t ahead = at + cpu_min(AHEAD, a->time - 1 - t) * row;
        fetch_row(a, o, ahead);
        fetch_row(a, d, ahead);
        group->dots[i] = a->dtype == MX_F32
                             ? vec_dot(width, (const float *)o + at, (const float *)d + at)
                             : dot_bf16(width, (const MxBf16 *)o + at, (const MxBf16 *)d + at);
    }
    memset(group->dq, 0, (size_t)(n * step) * sizeof(float));
    for (int64_t i = 0; i < a->group * blocks_of(a); i++) atomic_init(&group->turns[i], 0);
}

static void finish_group(const Attention *a, int64_t b, int64_t key_head, const Group *group) {
    int64_t rows = a->time * small_padded(a->width);
    vec_scale(a->group * rows, (float)a->attr->scale, group->dq, group->dq);
    for (int64_t g = 0; g < a->group; g++)
        store(a, DQ, (int64_t[]){b, 0, key_head * a->group + g, a->time}, group->dq + g * rows);
}

/* What a sequence gives to the sinks of a key head's query heads. */
static void sum_sinks(const Attention *a, int64_t b, int64_t key_head, const Group *group,
                      double *dsinks) {
    const float *log_sums = last_input(a, LOG_SUMS);
    for (int64_t g = 0; g < a->group; g++) {
        int64_t row = b * a->heads + key_head * a->group + g;
        double sum = 0, sink = a->sinks[row % a->heads];
        for (int64_t t = 0; t < a->time; t++)
            sum -= exp(sink - log_sums[row * a->time + t]) * group->dots[g * a->time + t];
        dsinks[row] = sum;
    }
}

/* ---- work */

typedef struct Grad {
    Attention a;
    int64_t n_groups, n_spans;
    bool is_shared; /* threads share groups; else each has one at a time */
    int64_t n_kept; /* groups that have memory of their own at the same time */
    size_t group_bytes;
    char *groups;
    double *dsinks; /* [batch, heads]; NULL = nobody wants them */
} Grad;

static Grad grad_of(const MxDevice *device, const MxKernelCall *call) {
    const int64_t plenty = 4; /* groups a thread: one more or less hardly matters */
    Grad g = {.a = attention_of(device, call)};
    g.a.worker_bytes = worker_bytes(&g.a);
    g.n_groups = g.a.batch * g.a.key_heads;
    g.n_spans = count_spans(&g.a);
    g.is_shared = g.n_groups % device->n_threads && g.n_groups < plenty * device->n_threads;
    g.n_kept = g.is_shared ? g.n_groups : device->n_threads;
    g.group_bytes = group_bytes(&g.a);
    if (!call->scratch) return g;
    g.groups = g.a.scratch + g.a.worker_bytes * (size_t)device->n_threads;
    if (g.a.sinks && call->out[DSINKS])
        g.dsinks = (double *)(g.groups + g.group_bytes * (size_t)g.n_kept);
    return g;
}

/* A thread's memory, and that of the group that it works at. */
static Work work_on(const Grad *g, int64_t group, int worker) {
    size_t used = 0;
    Work w = carve(&g->a, g->a.scratch + g->a.worker_bytes * (size_t)worker, &used);
    used = 0;
    int64_t kept = g->is_shared ? group : worker;
    w.group = carve_group(&g->a, g->groups + g->group_bytes * (size_t)kept, &used);
    return w;
}

static void begin_groups(const void *context, int64_t begin, int64_t end, int worker) {
    const Grad *g = context;
    for (int64_t i = begin; i < end; i++) {
        Work w = work_on(g, i, worker);
        begin_group(&g->a, i / g->a.key_heads, i % g->a.key_heads, &w.group);
    }
}

/* A span of every group, then the next of every group: turns are rarely waited for. */
static void add_spans(const void *context, int64_t begin, int64_t end, int worker) {
    const Grad *g = context;
    small_open(g->a.kind);
    for (int64_t i = begin; i < end; i++) {
        int64_t group = i % g->n_groups;
        Work w = work_on(g, group, worker);
        w.span = (int)(i / g->n_groups);
        add_span(&g->a, group / g->a.key_heads, group % g->a.key_heads, &w);
    }
    small_close(g->a.kind);
}

static void finish_groups(const void *context, int64_t begin, int64_t end, int worker) {
    const Grad *g = context;
    for (int64_t i = begin; i < end; i++) {
        Work w = work_on(g, i, worker);
        int64_t b = i / g->a.key_heads, key_head = i % g->a.key_heads;
        finish_group(&g->a, b, key_head, &w.group);
        if (g->dsinks) sum_sinks(&g->a, b, key_head, &w.group, g->dsinks);
    }
}

static void do_groups(const void *context, int64_t begin, int64_t end, int worker) {
    const Grad *g = context;
    for (int64_t i = begin; i < end; i++) {
        begin_groups(g, i, i + 1, worker);
        for (int64_t span = 0; span < g->n_spans; span++)
            add_spans(g, span * g->n_groups + i, span * g->n_groups + i + 1, worker);
        finish_groups(g, i, i + 1, worker);
    }
}

static size_t attention_grad_scratch(const MxDevice *device, const MxKernelCall *call) {
    Grad g = grad_of(device, call);
    size_t bytes = g.a.worker_bytes * (size_t)device->n_threads + g.group_bytes * (size_t)g.n_kept;
    return bytes + (call->n_out == OUTS ? (size_t)(g.a.batch * g.a.heads) * sizeof(double) : 0);
}

static void store_sinks(const Grad *g, float *out) {
    for (int64_t head = 0; head < g->a.heads; head++) {
        double sum = 0;
        for (int64_t b = 0; b < g->a.batch; b++) sum += g->dsinks[b * g->a.heads + head];
        out[head] = (float)sum;
    }
}

static void attention_grad_run(const MxDevice *device, const MxKernelCall *call) {
    Grad g = grad_of(device, call);
    if (g.is_shared) {
        cpu_for(device, g.n_groups, 1, begin_groups, &g);
        cpu_for_uneven(device, g.n_groups * g.n_spans, 1, add_spans, &g);
        cpu_for(device, g.n_groups, 1, finish_groups, &g);
    } else {
        cpu_for_uneven(device, g.n_groups, 1, do_groups, &g);
    }
    if (g.dsinks) store_sinks(&g, call->out[DSINKS]);
}

const MxKernel cpu_attention_grad = {.scratch = attention_grad_scratch, .run = attention_grad_run};
const MxKernel cpu_pooled_attention_grad = {.scratch = attention_grad_scratch,
                                            .run = attention_grad_run};
