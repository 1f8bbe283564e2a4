/* attention_grad.c — the gradient of attention: probabilities are made again, tile by tile, from
 * the saved log-sums (Dao 2022). A piece of work is one key head of one sequence with all the query
 * heads that read it, so every sum belongs to one thread and has a fixed order. */
#include "attention.h"
#include "vec.h"

enum { Q, K, V, SEGMENTS, O, LOG_SUMS, DO, INPUTS }; /* inputs; DQ.. outputs are Q, K, V */

/* A block of keys: packed along the width, k also along keys; and its gradient. */
typedef struct Block {
    Tile tile;
    void *k_turned, *v_turned, *k;
    float *dk, *dv; /* [keys, width] */
} Block;

/* Working memory of one thread. Scores have a row for each query; widths and keys are padded to
 * whole lanes. */
typedef struct Work {
    float *p, *ds;          /* [queries, keys] */
    void *p_left, *ds_left; /* p and ds as words along queries; ds then along keys */
    void *q_left, *d_left;  /* a block of queries, q and d_out: along the width */
    void *q, *d_out;        /* and along queries */
    const void *q_a, *d_a;  /* where q_left and d_left really are */
    float *dots, *rows;     /* [group, time]: d_out * out summed over a row; two rows */
    float *dq;              /* [group, time, width] */
    Block block[ATTENTION_BLOCKS];
} Work;

static Block carve_block(const Attention *a, char *scratch, size_t *used) {
    size_t bytes = ATTENTION_KEYS * (size_t)small_padded(a->width) * sizeof(float);
    return (Block){
        .k_turned = attention_take(scratch, used, bytes),
        .v_turned = attention_take(scratch, used, bytes),
        .k = attention_take(scratch, used, bytes),
        .dk = attention_take(scratch, used, bytes),
        .dv = attention_take(scratch, used, bytes),
    };
}

static Work carve(const Attention *a, char *scratch, size_t *used) {
    size_t row = (size_t)small_padded(a->width) * sizeof(float);
    size_t queries = ATTENTION_QUERIES * row, group_time = (size_t)(a->group * a->time);
    size_t tile = ATTENTION_QUERIES * ATTENTION_KEYS * sizeof(float);
    Work w = {
        .p = attention_take(scratch, used, tile),
        .ds = attention_take(scratch, used, tile),
        .p_left = attention_take(scratch, used, tile),
        .ds_left = attention_take(scratch, used, tile),
        .q_left = attention_take(scratch, used, queries),
        .d_left = attention_take(scratch, used, queries),
        .q = attention_take(scratch, used, queries),
        .d_out = attention_take(scratch, used, queries),
        .dots = attention_take(scratch, used, group_time * sizeof(float)),
        .rows = attention_take(scratch, used, 2 * row),
        .dq = attention_take(scratch, used, group_time * row),
    };
    for (int i = 0; i < ATTENTION_BLOCKS; i++) w.block[i] = carve_block(a, scratch, used);
    return w;
}

static size_t worker_bytes(const Attention *a) {
    size_t bytes = 0;
    carve(a, NULL, &bytes);
    return bytes;
}

CPU_LEVELS static float dot(int64_t n, const float *x, const float *y) {
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) sum += x[i] * y[i];
    return sum;
}

/* Zeroes dq of a query head and fills its dots. */
static void begin_head(const Attention *a, int64_t b, int64_t head, const Work *w) {
    int64_t in_group = head % a->group, step = small_padded(a->width);
    for (int64_t t = 0; t < a->time; t++) {
        int64_t at = ((b * a->time + t) * a->heads + head) * a->width;
        const float *o = cpu_read(a->call->in[O], a->dtype, at, a->width, w->rows);
        const float *d = cpu_read(a->call->in[DO], a->dtype, at, a->width, w->rows + step);
        w->dots[in_group * a->time + t] = dot(a->width, o, d);
    }
    memset(w->dq + in_group * a->time * step, 0, (size_t)(a->time * step) * sizeof(float));
}

/* Scores to probabilities, and cotangents of probabilities to those of scores (before the factor
 * `scale`). */
CPU_LEVELS static void score_gradient(const Tile *tile, const float *log_sums, const float *dots,
                                      float softcap, const Work *w) {
    float inverse = softcap > 0.0f ? 1.0f / softcap : 0.0f;
    int64_t lanes = small_padded(tile->n_k);
    for (int64_t i = 0; i < tile->n_q; i++) {
        float *p = w->p + i * lanes, *ds = w->ds + i * lanes;
        float log_sum = log_sums[i], row_dot = dots[i];
#pragma omp simd
        for (int64_t j = 0; j < lanes; j++) {
            float tangent = p[j] * inverse, y = vec_exp(p[j] - log_sum);
            float d = y * (ds[j] - row_dot) * (1.0f - tangent * tangent);
            p[j] = y;
            ds[j] = y == 0.0f ? 0.0f : d; /* the tangent of an excluded score is infinite */
        }
    }
}

/* [queries, keys] = alpha rows of queries times rows of keys. */
static void pair_up(const Attention *a, const Tile *tile, const void *const operands[2],
                    float alpha, float *out) {
    int64_t lanes = small_padded(tile->n_k);
    Small product = {.m = tile->n_q,
                     .n = tile->n_k,
                     .k = small_words(a->kind, a->width),
                     .a_row = small_left_step(a->kind, a->width),
                     .a_k = 1,
                     .b_row = lanes,
                     .c_row = lanes,
                     .alpha = alpha};
    a->kind->multiply(&product, operands[0], operands[1], out);
}

/* A block of keys' gradient: += transposed scores (joined along queries) times rows of queries. */
static void add_to_keys(const Attention *a, const Tile *tile, const void *scores,
                        const void *queries, float *out) {
    int64_t lanes = small_padded(tile->n_k), step = small_padded(a->width);
    Small product = {.m = tile->n_k,
                     .n = a->width,
                     .k = small_words(a->kind, tile->n_q),
                     .a_row = 1,
                     .a_k = lanes,
                     .b_row = step,
                     .c_row = step,
                     .alpha = 1.0f,
                     .adds = true};
    a->kind->multiply(&product, scores, queries, out);
}

static void add_to_queries(const Attention *a, const Block *block, int64_t head, const Work *w) {
    const Tile *tile = &block->tile;
    int64_t lanes = small_padded(tile->n_k), step = small_padded(a->width);
    const void *ds =
        small_narrow(a->kind, w->ds, (int64_t[]){tile->n_q, tile->n_k}, lanes, w->ds_left);
    Small product = {.m = tile->n_q,
                     .n = a->width,
                     .k = small_words(a->kind, tile->n_k),
                     .a_row = small_left_step(a->kind, tile->n_k),
                     .a_k = 1,
                     .b_row = step,
                     .c_row = step,
                     .alpha = (float)a->attr->scale,
                     .adds = true};
    a->kind->multiply(&product, ds, block->k, w->dq + (head % a->group * a->time + tile->q) * step);
}

/* The next queries, which are packed. */
static void add_tile(const Attention *a, int64_t head, const Work *w, const Block *block) {
    const Tile *tile = &block->tile;
    int64_t lanes = small_padded(tile->n_k);
    pair_up(a, tile, (const void *[]){w->q_a, block->k_turned}, (float)a->attr->scale, w->p);
    attention_mask(a, tile, false, w->p, lanes);
    pair_up(a, tile, (const void *[]){w->d_a, block->v_turned}, 1.0f, w->ds);
    const float *log_sums =
        (const float *)a->call->in[LOG_SUMS] + (tile->b * a->heads + head) * a->time + tile->q;
    score_gradient(tile, log_sums, w->dots + head % a->group * a->time + tile->q,
                   (float)a->attr->softcap, w);
    const void *p = small_join(a->kind, w->p, tile->n_q, lanes, w->p_left);
    add_to_keys(a, tile, p, w->d_out, block->dv);
    const void *ds = small_join(a->kind, w->ds, tile->n_q, lanes, w->ds_left);
    add_to_keys(a, tile, ds, w->q, block->dk);
    add_to_queries(a, block, head, w);
}

CPU_LEVELS static void scale_row(int64_t n, float factor, float *x) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) x[i] *= factor;
}

/* Rows [n, width] to one head of an output. */
static void store(const Attention *a, int out, const int64_t b_t_head_n[4], const float *rows) {
    MxShape shape = a->call->out_type[out].shape;
    int64_t time = shape.dim[1], heads = shape.dim[2], step = small_padded(a->width);
    void *y = a->call->out[out];
    for (int64_t i = 0; y && i < b_t_head_n[3]; i++) {
        int64_t t = b_t_head_n[0] * time + b_t_head_n[1] + i;
        int64_t at = (t * heads + b_t_head_n[2]) * a->width;
        if (a->dtype == MX_F32)
            memcpy((float *)y + at, rows + i * step, (size_t)a->width * sizeof(float));
        else
            cpu_write(rows + i * step, a->width, y, a->dtype, at);
    }
}

static void begin(const Attention *a, int64_t key_head, Block *block) {
    const Tile *tile = &block->tile;
    int64_t at[] = {tile->b, tile->k, key_head, tile->n_k};
    SmallRows k = attention_keys(a, K, at);
    SmallRows v = attention_keys(a, V, at);
    small_pack_turned(a->kind, &k, block->dk, block->k_turned);
    small_pack_turned(a->kind, &v, block->dk, block->v_turned);
    small_pack_right(a->kind, &k, block->k);
    memset(block->dk, 0, (size_t)(tile->n_k * small_padded(a->width)) * sizeof(float));
    memset(block->dv, 0, (size_t)(tile->n_k * small_padded(a->width)) * sizeof(float));
}

static void finish(const Attention *a, int64_t key_head, const Block *block) {
    const Tile *tile = &block->tile;
    int64_t at[] = {tile->b, tile->k, key_head, tile->n_k};
    scale_row(tile->n_k * small_padded(a->width), (float)a->attr->scale, block->dk);
    store(a, K, at, block->dk);
    store(a, V, at, block->dv);
}

/* A block of queries meets the blocks of keys that it sees any of; it is packed for the first. */
static void add_queries(const Attention *a, int64_t head, const int64_t b_q_n[3], Work *w) {
    const int64_t at[] = {b_q_n[0], b_q_n[1], head, b_q_n[2]};
    bool is_packed = false;
    for (int i = 0; i < ATTENTION_BLOCKS; i++) {
        Block *block = &w->block[i];
        block->tile.q = b_q_n[1];
        block->tile.n_q = b_q_n[2];
        if (block->tile.n_k <= 0 || attention_sight(a, &block->tile) == SIGHT_NONE) continue;
        if (!is_packed) {
            SmallRows q = attention_queries(a, Q, at);
            SmallRows d_out = attention_queries(a, DO, at);
            w->q_a = small_pack_both(a->kind, &q, w->q_left, w->q);
            w->d_a = small_pack_both(a->kind, &d_out, w->d_left, w->d_out);
            is_packed = true;
        }
        add_tile(a, head, w, block);
    }
}

static void attend_back(const Attention *a, int64_t b, int64_t key_head, int64_t from, Work *w) {
    for (int i = 0; i < ATTENTION_BLOCKS; i++) {
        int64_t k = from + i * ATTENTION_KEYS;
        w->block[i].tile = (Tile){.b = b, .k = k, .n_k = cpu_min(ATTENTION_KEYS, a->keys - k)};
        if (w->block[i].tile.n_k > 0) begin(a, key_head, &w->block[i]);
    }
    for (int64_t head = key_head * a->group; head < (key_head + 1) * a->group; head++)
        for (int64_t q = 0; q < a->time; q += ATTENTION_QUERIES)
            add_queries(a, head, (int64_t[]){b, q, cpu_min(ATTENTION_QUERIES, a->time - q)}, w);
    for (int i = 0; i < ATTENTION_BLOCKS; i++)
        if (w->block[i].tile.n_k > 0) finish(a, key_head, &w->block[i]);
}

static void grad_span(const void *context, int64_t begin, int64_t end, int worker) {
    const Attention *a = context;
    size_t used = 0;
    Work w = carve(a, a->scratch + a->worker_bytes * (size_t)worker, &used);
    for (int64_t i = begin; i < end; i++) {
        int64_t b = i / a->key_heads, key_head = i % a->key_heads, first = key_head * a->group;
        for (int64_t g = 0; g < a->group; g++) begin_head(a, b, first + g, &w);
        for (int64_t k = 0; k < a->keys; k += ATTENTION_BLOCKS * ATTENTION_KEYS)
            attend_back(a, b, key_head, k, &w);
        for (int64_t g = 0; g < a->group; g++)
            store(a, Q, (int64_t[]){b, 0, first + g, a->time},
                  w.dq + g * a->time * small_padded(a->width));
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
