/* delta.c — the gated delta rule and its gradient, in chunks of C tokens of one segment. With G the
 * sums of decays from a chunk's start on, D[t, j] = exp(G[t] - G[j]) for j <= t, and S the memory
 * before the chunk,
 *
 *     U = beta (V - exp(G) K S - lower(K K^T D) U)       row by row
 *     O = exp(G) Q S + (Q K^T D) U
 *     S = exp(G[C]) S + (exp(G[C] - G) K)^T U
 *
 * so all but the rows of U are products of matrices. The gradient makes the memories of a segment's
 * chunks again and goes through them from the last one on. A thread takes all heads of values that
 * read one head of keys, so that their gradients add up in one order.
 *
 * Letters: H width of keys, W of values; rows of tiles are padded to whole lanes. */
#include "small.h"
#include "vec.h"

enum { Q, K, V, DECAY, BETA, SEGMENTS, DO, CHUNK = MX_DELTA_CHUNK };

typedef struct Delta {
    const MxKernelCall *call;
    const int32_t *segments; /* NULL = all tokens count */
    int64_t batch, time, key_heads, group, width, value_width;
    int64_t H, W; /* padded */
    MxDtype dtype;
    bool is_gradient, carries;
    char *scratch;
    size_t worker_bytes;
} Delta;

/* What a worker has: tiles of floats. */
typedef struct Tiles {
    float *q, *k, *v, *scaled; /* [C, H], and v [C, W]; scaled has room for either */
    float *kt;                 /* [H, C] */
    float *D, *A, *M;          /* [C, C]: lower(K K^T D), lower with its diagonal (Q K^T D) */
    float *P, *U, *o;          /* [C, W] exp(G) K S; and of the gradient dO */
    float *S;                  /* [H, W] */
    float G[CHUNK], e[CHUNK], rest[CHUNK], beta[CHUNK]; /* e = exp(G), rest = exp(G[C] - G) */
    /* of the gradient */
    float *states;        /* [chunks of a segment][H, W] */
    float *dS, *turned;   /* [H, W], [W, H] */
    float *ut, *dM, *dA;  /* [W, C], [C, C] */
    float *dR, *dq, *dk;  /* [C, W], [C, H] */
    float *sum_q, *sum_k; /* [T, H] */
    float dG[CHUNK], dbeta[CHUNK];
    float between[CHUNK]; /* flow to a token's decay from pairs that it lies between */
} Tiles;

/* Of which tokens: n from t on, of a head of values in row b. */
typedef struct Span {
    int64_t b, t, n, head;
} Span;

static Delta delta_of(const MxKernelCall *call, bool is_gradient) {
    MxShape q = call->in_type[Q].shape, v = call->in_type[V].shape;
    return (Delta){.call = call,
                   .segments = call->in ? call->in[SEGMENTS] : NULL,
                   .batch = q.dim[0],
                   .time = q.dim[1],
                   .key_heads = q.dim[2],
                   .group = v.dim[2] / q.dim[2],
                   .width = q.dim[3],
                   .value_width = v.dim[3],
                   .H = small_padded(q.dim[3]),
                   .W = small_padded(v.dim[3]),
                   .dtype = call->in_type[Q].dtype,
                   .is_gradient = is_gradient,
                   .carries = ((const MxDeltaAttr *)call->attr)->carries,
                   .scratch = call->scratch};
}

static float *take(char *scratch, size_t *used, int64_t n) {
    return small_take(scratch, used, (size_t)n * sizeof(float));
}

/* Lays the tiles out; returns the bytes. scratch NULL = only that. */
static size_t lay_out(const Delta *d, char *scratch, Tiles *x) {
    int64_t C = CHUNK, H = d->H, W = d->W, wide = cpu_max(H, W);
    size_t used = 0;
    *x = (Tiles){.q = take(scratch, &used, C * H),
                 .k = take(scratch, &used, C * H),
                 .v = take(scratch, &used, C * W),
                 .scaled = take(scratch, &used, C * wide),
                 .kt = take(scratch, &used, H * C),
                 .D = take(scratch, &used, C * C),
                 .A = take(scratch, &used, C * C),
                 .M = take(scratch, &used, C * C),
                 .P = take(scratch, &used, C * W),
                 .U = take(scratch, &used, C * W),
                 .o = take(scratch, &used, C * W),
                 .S = take(scratch, &used, H * W)};
    if (!d->is_gradient) return used;
    x->states = take(scratch, &used, (d->time + C - 1) / C * H * W);
    x->dS = take(scratch, &used, H * W);
    x->turned = take(scratch, &used, W * H);
    x->ut = take(scratch, &used, W * C);
    x->dM = take(scratch, &used, C * C);
    x->dA = take(scratch, &used, C * C);
    x->dR = take(scratch, &used, C * W);
    x->dq = take(scratch, &used, C * H);
    x->dk = take(scratch, &used, C * H);
    x->sum_q = take(scratch, &used, d->time * H);
    x->sum_k = take(scratch, &used, d->time * H);
    return used;
}

/* ---- tiles */

enum { TURNED = 1 << 0, ADDS = 1 << 1 }; /* a is [k, m] */

typedef struct Tile {
    float *x;
    int64_t step;
} Tile;

/* c [m, n] = a [m, k] b [k, n]. */
static void times(Tile a, Tile b, Tile c, const int64_t mnk[3], unsigned how) {
    bool is_turned = how & TURNED;
    small_floats.multiply(&(Small){.m = mnk[0],
                                   .n = mnk[1],
                                   .k = mnk[2],
                                   .a_row = is_turned ? 1 : a.step,
                                   .a_k = is_turned ? a.step : 1,
                                   .b_row = b.step,
                                   .c_row = c.step,
                                   .adds = how & ADDS},
                          a.x, b.x, c.x);
}

/* Rows of x times factors, to x->scaled. */
static Tile scaled(const Tiles *x, int64_t n, Tile of, const float *factor) {
    for (int64_t t = 0; t < n; t++)
        vec_scale(of.step, factor[t], of.x + t * of.step, x->scaled + t * of.step);
    return (Tile){x->scaled, of.step};
}

/* n rows of a head; what is padding, and rows behind them, zeros. */
static void load(const Delta *d, int input, const Span *s, Tile to) {
    MxShape shape = d->call->in_type[input].shape;
    int64_t heads = shape.dim[2], width = shape.dim[3];
    int64_t head = heads == d->key_heads && input < V ? s->head / d->group : s->head;
    float block[CPU_BLOCK];
    memset(to.x, 0, (size_t)(CHUNK * to.step) * sizeof *to.x);
    for (int64_t t = 0; t < s->n; t++)
        for (int64_t i = 0, n; i < width; i += n) {
            n = cpu_min(CPU_BLOCK, width - i);
            int64_t at = ((s->b * d->time + s->t + t) * heads + head) * width + i;
            memcpy(to.x + t * to.step + i, cpu_read(d->call->in[input], d->dtype, at, n, block),
                   (size_t)n * sizeof *to.x);
        }
}

static void store(const Delta *d, int output, const Span *s, const float *from) {
    int64_t heads = d->key_heads * d->group;
    for (int64_t t = 0; t < s->n && d->call->out[output]; t++)
        cpu_store(from + t * d->W, d->value_width, d->call->out[output], d->dtype,
                  ((s->b * d->time + s->t + t) * heads + s->head) * d->value_width);
}

/* Where the head's number of a token is, in arrays of one number a head. */
static int64_t number_at(const Delta *d, const Span *s, int64_t t) {
    return (s->b * d->time + s->t + t) * d->key_heads * d->group + s->head;
}

/* ---- a chunk */

/* Tokens of no segment, within a memory that goes on, change nothing. */
static bool is_silent(const Delta *d, const Span *s, int64_t t) {
    return d->segments && !d->segments[s->b * d->time + s->t + t];
}

static void silence(const Delta *d, const Span *s, Tile rows) {
    for (int64_t t = 0; t < s->n; t++)
        if (is_silent(d, s, t))
            memset(rows.x + t * rows.step, 0, (size_t)rows.step * sizeof *rows.x);
}

static void load_numbers(const Delta *d, const Span *s, Tiles *x) {
    const float *decay = d->call->in[DECAY], *beta = d->call->in[BETA];
    float sum = 0.0f;
    for (int64_t t = 0; t < s->n; t++) {
        if (!is_silent(d, s, t)) sum += decay[number_at(d, s, t)];
        x->G[t] = sum;
        x->e[t] = vec_exp(sum);
        x->beta[t] = beta[number_at(d, s, t)];
    }
    for (int64_t t = 0; t < s->n; t++) x->rest[t] = vec_exp(sum - x->G[t]);
}

/* D, and what it makes of products of keys, and of queries with keys. */
static void weigh_pairs(Tiles *x, int64_t n) {
    memset(x->D, 0, sizeof(float) * CHUNK * CHUNK);
    for (int64_t t = 0; t < n; t++) {
        float *D = x->D + t * CHUNK, *A = x->A + t * CHUNK, *M = x->M + t * CHUNK;
        const float *G = x->G, now = x->G[t];
#pragma omp simd
        for (int64_t j = 0; j <= t; j++) D[j] = vec_exp(now - G[j]);
#pragma omp simd
        for (int64_t j = 0; j < CHUNK; j++) {
            A[j] = j < t ? A[j] * D[j] : 0.0f;
            M[j] = j <= t ? M[j] * D[j] : 0.0f;
        }
    }
}

/* All of a chunk that does not depend on what is asked of it, from the memory S before it. */
static void prepare(const Delta *d, const Span *s, Tiles *x, float *S) {
    int64_t n = s->n, H = d->H, W = d->W;
    Tile q = {x->q, H}, k = {x->k, H}, kt = {x->kt, CHUNK}, memory = {S, W};
    load(d, Q, s, q);
    load(d, K, s, k);
    load(d, V, s, (Tile){x->v, W});
    silence(d, s, k);
    silence(d, s, (Tile){x->v, W});
    load_numbers(d, s, x);
    small_turn_floats(CHUNK, H, x->k, x->kt);
    times(k, kt, (Tile){x->A, CHUNK}, (const int64_t[]){n, CHUNK, H}, 0);
    times(q, kt, (Tile){x->M, CHUNK}, (const int64_t[]){n, CHUNK, H}, 0);
    weigh_pairs(x, n);
    times(scaled(x, n, k, x->e), memory, (Tile){x->P, W}, (const int64_t[]){n, W, H}, 0);
    memset(x->U, 0, (size_t)(CHUNK * W) * sizeof *x->U);
    for (int64_t t = 0; t < n; t++) {
        float *U = x->U + t * W;
        const float *v = x->v + t * W, *P = x->P + t * W;
#pragma omp simd
        for (int64_t i = 0; i < W; i++) U[i] = v[i] - P[i];
        for (int64_t j = 0; j < t; j++) vec_add_times(W, -x->A[t * CHUNK + j], x->U + j * W, U);
        vec_scale(W, x->beta[t], U, U);
    }
}

/* The memory behind the chunk. */
static void remember(const Delta *d, const Span *s, Tiles *x, const float *before, float *S) {
    int64_t n = s->n, H = d->H, W = d->W;
    vec_scale(H * W, x->e[n - 1], before, S);
    times(scaled(x, n, (Tile){x->k, H}, x->rest), (Tile){x->U, W}, (Tile){S, W},
          (const int64_t[]){H, W, n}, TURNED | ADDS);
}

static void recall(const Delta *d, const Span *s, Tiles *x) {
    int64_t n = s->n, H = d->H, W = d->W;
    Tile o = {x->o, W};
    times(scaled(x, n, (Tile){x->q, H}, x->e), (Tile){x->S, W}, o, (const int64_t[]){n, W, H}, 0);
    times((Tile){x->M, CHUNK}, (Tile){x->U, W}, o, (const int64_t[]){n, W, n}, ADDS);
    store(d, 0, s, x->o);
}

/* ---- segments */

/* The end of the segment, or of what counts as one, that begins at t. */
static int64_t segment_end(const Delta *d, int64_t b, int64_t t) {
    if (d->carries) return d->time;
    const int32_t *s = d->segments + b * d->time;
    int32_t own = s[t];
    while (t < d->time && s[t] == own) t++;
    return t;
}

/* From the memory that the tiles hold. */
static void forward_tokens(const Delta *d, Span s, int64_t end, Tiles *x) {
    for (; s.t < end; s.t += s.n) {
        s.n = cpu_min(CHUNK, end - s.t);
        prepare(d, &s, x, x->S);
        recall(d, &s, x);
        remember(d, &s, x, x->S, x->S);
    }
}

static void forward_segment(const Delta *d, Span s, int64_t end, Tiles *x) {
    memset(x->S, 0, (size_t)(d->H * d->W) * sizeof *x->S);
    forward_tokens(d, s, end, x);
}

/* Padding. */
static void no_segment(const Delta *d, Span s, int64_t end, Tiles *x) {
    memset(x->o, 0, (size_t)(CHUNK * d->W) * sizeof *x->o);
    for (; s.t < end; s.t += s.n) {
        s.n = cpu_min(CHUNK, end - s.t);
        store(d, 0, &s, x->o);
    }
}

static void forward_heads(const void *context, int64_t begin, int64_t end, int worker) {
    const Delta *d = context;
    Tiles x;
    lay_out(d, d->scratch + d->worker_bytes * (size_t)worker, &x);
    for (int64_t i = begin; i < end; i++) {
        int64_t heads = d->key_heads * d->group, b = i / heads;
        for (int64_t t = 0, next; t < d->time; t = next) {
            next = segment_end(d, b, t);
            bool is_padding = !d->carries && !d->segments[b * d->time + t];
            (is_padding ? no_segment : forward_segment)(d, (Span){b, t, 0, i % heads}, next, &x);
        }
    }
}

static size_t scratch_of(const MxDevice *device, const MxKernelCall *call, bool is_gradient) {
    Delta d = delta_of(call, is_gradient);
    return lay_out(&d, NULL, &(Tiles){0}) * (size_t)device->n_threads;
}

static size_t delta_scratch(const MxDevice *device, const MxKernelCall *call) {
    return scratch_of(device, call, false);
}

static void delta_run(const MxDevice *device, const MxKernelCall *call) {
    Delta d = delta_of(call, false);
    d.worker_bytes = lay_out(&d, NULL, &(Tiles){0});
    if (call->out[0]) cpu_for_uneven(device, d.batch * d.key_heads * d.group, 1, forward_heads, &d);
}

const MxKernel cpu_delta = {.scratch = delta_scratch, .run = delta_run};

/* ---- the same from memories that are kept: [sequence][head][width][value_width] */

typedef struct Kept {
    Delta delta;
    const int32_t *positions, *sequences;
    const float *memory;
    float *out; /* NULL = nobody wants it */
} Kept;

/* Rows of a memory, `step` apart, between where it is kept and the tiles, whose padding is zeros.
 */
static void move_memory(const Delta *d, Tile to, const float *from, int64_t step) {
    for (int64_t i = 0; i < d->width; i++)
        memcpy(to.x + i * to.step, from + i * step, (size_t)d->value_width * sizeof *from);
}

static void kept_heads(const void *context, int64_t begin, int64_t end, int worker) {
    const Kept *k = context;
    const Delta *d = &k->delta;
    int64_t heads = d->key_heads * d->group, size = d->width * d->value_width;
    Tiles x;
    lay_out(d, d->scratch + d->worker_bytes * (size_t)worker, &x);
    for (int64_t i = begin; i < end; i++) {
        int64_t b = i / heads, head = i % heads, n = 0;
        const int32_t *positions = k->positions + b * d->time;
        int64_t at = (k->sequences[b] * heads + head) * size, W = d->value_width;
        while (n < d->time && positions[n] >= 0) n++;
        memset(x.S, 0, (size_t)(d->H * d->W) * sizeof *x.S);
        if (n && positions[0] > 0) move_memory(d, (Tile){x.S, d->W}, k->memory + at, W);
        forward_tokens(d, (Span){b, 0, 0, head}, n, &x);
        if (n && k->out) move_memory(d, (Tile){k->out + at, W}, x.S, d->W);
        no_segment(d, (Span){b, n, 0, head}, d->time, &x);
    }
}

/* The call without the memory. */
static MxKernelCall without_memory(const MxKernelCall *call) {
    static const MxDeltaAttr attr = {.carries = true};
    MxKernelCall rest = *call;
    rest.attr = &attr;
    rest.in_type++;
    if (rest.in) rest.in++, rest.out++;
    return rest;
}

static size_t cache_delta_scratch(const MxDevice *device, const MxKernelCall *call) {
    MxKernelCall rest = without_memory(call);
    return scratch_of(device, &rest, false);
}

static void cache_delta_run(const MxDevice *device, const MxKernelCall *call) {
    MxKernelCall rest = without_memory(call);
    Kept k = {.delta = delta_of(&rest, false),
              .positions = rest.in[SEGMENTS],
              .sequences = rest.in[SEGMENTS + 1],
              .memory = call->in[0],
              .out = call->out[0]};
    size_t bytes = sizeof *k.memory * (size_t)mx_shape_count(call->in_type[0].shape);
    if (k.out && k.out != k.memory && bytes) memcpy(k.out, k.memory, bytes);
    k.delta.segments = NULL;
    k.delta.worker_bytes = lay_out(&k.delta, NULL, &(Tiles){0});
    cpu_for_uneven(device, k.delta.batch * k.delta.key_heads * k.delta.group, 1, kept_heads, &k);
}

const MxKernel cpu_cache_delta = {.scratch = cache_delta_scratch, .run = cache_delta_run};

/* ---- gradient. d<name> is the gradient of <name>; a chunk gets dO and, in dS, that of the memory
 * behind it, and leaves there that of the memory before it. */

/* dR = (1 + beta A)^-T (M^T dO + (rest K) dS); then dM, dA, without D. */
static void solve_back(const Delta *d, const Span *s, Tiles *x) {
    int64_t n = s->n, H = d->H, W = d->W;
    Tile dR = {x->dR, W}, o = {x->o, W}, ut = {x->ut, CHUNK};
    times((Tile){x->M, CHUNK}, o, dR, (const int64_t[]){n, W, n}, TURNED);
    times(scaled(x, n, (Tile){x->k, H}, x->rest), (Tile){x->dS, W}, dR, (const int64_t[]){n, W, H},
          ADDS);
    for (int64_t t = n - 1; t >= 0; t--)
        for (int64_t j = 0; j < t; j++)
            vec_add_times(W, -x->beta[t] * x->A[t * CHUNK + j], x->dR + t * W, x->dR + j * W);
    small_turn_floats(CHUNK, W, x->U, x->ut);
    times(o, ut, (Tile){x->dM, CHUNK}, (const int64_t[]){n, CHUNK, W}, 0);
    times(dR, ut, (Tile){x->dA, CHUNK}, (const int64_t[]){n, CHUNK, W}, 0);
}

/* From dR U^T and dO U^T, which dA and dM hold: dbeta, and what flows to decays by D; then dA and
 * dM are what flows to the products of keys, and of queries with keys. D[t, j] depends on the
 * decays from j + 1 to t: as differences of sums to G their flow would be lost in that of all later
 * pairs, and in that of D[t, t], which is 1. */
static void pairs_back(const Delta *d, const Span *s, Tiles *x) {
    int64_t W = d->W;
    memset(x->dG, 0, sizeof x->dG);
    memset(x->between, 0, sizeof x->between);
    for (int64_t t = 0; t < s->n; t++) {
        float *dA = x->dA + t * CHUNK, *dM = x->dM + t * CHUNK, beta = x->beta[t];
        const float *A = x->A + t * CHUNK, *M = x->M + t * CHUNK, *D = x->D + t * CHUNK;
        const float *dR = x->dR + t * W;
        float sum = 0.0f;
        x->dbeta[t] =
            vec_dot(W, dR, x->v + t * W) - vec_dot(W, dR, x->P + t * W) - vec_dot(t, dA, A);
        for (int64_t j = 0; j < t; j++) {
            sum += dM[j] * M[j] - beta * dA[j] * A[j];
            x->between[j + 1] += sum;
        }
#pragma omp simd
        for (int64_t j = 0; j < CHUNK; j++) {
            dA[j] = j < t ? -beta * dA[j] * D[j] : 0.0f;
            dM[j] = j <= t ? dM[j] * D[j] : 0.0f;
        }
    }
}

/* dq and dk by way of the memories before and behind the chunk, and dG with them. dR is dP then. */
static void memory_back(const Delta *d, const Span *s, Tiles *x, const float *S) {
    int64_t n = s->n, H = d->H, W = d->W, last = n - 1;
    Tile dP = {x->dR, W}, o = {x->o, W}, turned = {x->turned, H}, dq = {x->dq, H}, dk = {x->dk, H};
    const int64_t sizes[] = {n, H, W};
    small_turn_floats(H, W, x->dS, x->turned);
    times(scaled(x, n, (Tile){x->U, W}, x->rest), turned, dk, sizes, 0);
    float sum = 0.0f;
    for (int64_t t = 0; t < last; t++) {
        sum += vec_dot(H, x->dk + t * H, x->k + t * H);
        x->between[t + 1] += sum;
    }
    x->dG[last] += x->e[last] * vec_dot(H * W, x->dS, S);
    small_turn_floats(H, W, S, x->turned);
    times(scaled(x, n, o, x->e), turned, dq, sizes, 0);
    for (int64_t t = 0; t < n; t++) {
        vec_scale(W, -x->beta[t], x->dR + t * W, x->dR + t * W);
        x->dG[t] += vec_dot(H, x->dq + t * H, x->q + t * H);
    }
    times(scaled(x, n, dP, x->e), turned, dk, sizes, ADDS);
    for (int64_t t = 0; t < n; t++) x->dG[t] += vec_dot(W, x->dR + t * W, x->P + t * W);
    vec_scale(H * W, x->e[last], x->dS, x->dS);
    const int64_t state[] = {H, W, n};
    times(scaled(x, n, (Tile){x->q, H}, x->e), o, (Tile){x->dS, W}, state, TURNED | ADDS);
    times(scaled(x, n, (Tile){x->k, H}, x->e), dP, (Tile){x->dS, W}, state, TURNED | ADDS);
}

static void store_numbers(const Delta *d, const Span *s, const Tiles *x) {
    float *ddecay = d->call->out[DECAY], *dbeta = d->call->out[BETA], sum = 0.0f;
    for (int64_t t = s->n - 1; t >= 0; t--) {
        sum += x->dG[t];
        if (ddecay) ddecay[number_at(d, s, t)] = is_silent(d, s, t) ? 0.0f : sum + x->between[t];
        if (dbeta) dbeta[number_at(d, s, t)] = x->dbeta[t];
    }
}

static void backward_chunk(const Delta *d, const Span *s, Tiles *x, float *S) {
    int64_t n = s->n, H = d->H, W = d->W;
    const int64_t sizes[] = {n, H, n};
    Tile q = {x->q, H}, k = {x->k, H}, dA = {x->dA, CHUNK}, dM = {x->dM, CHUNK};
    prepare(d, s, x, S);
    load(d, DO, s, (Tile){x->o, W});
    solve_back(d, s, x);
    pairs_back(d, s, x);
    Tile dv = scaled(x, n, (Tile){x->dR, W}, x->beta);
    silence(d, s, dv);
    store(d, V, s, dv.x);
    memory_back(d, s, x, S);
    times(dM, k, (Tile){x->dq, H}, sizes, ADDS);
    times(dA, k, (Tile){x->dk, H}, sizes, ADDS);
    times(dA, k, (Tile){x->dk, H}, sizes, TURNED | ADDS);
    times(dM, q, (Tile){x->dk, H}, sizes, TURNED | ADDS);
    silence(d, s, (Tile){x->dk, H});
    vec_add_times(n * H, 1.0f, x->dq, x->sum_q + s->t * H);
    vec_add_times(n * H, 1.0f, x->dk, x->sum_k + s->t * H);
    store_numbers(d, s, x);
}

static void backward_segment(const Delta *d, Span s, int64_t end, Tiles *x) {
    int64_t size = d->H * d->W, begin = s.t, n_chunks = (end - begin + CHUNK - 1) / CHUNK;
    memset(x->states, 0, (size_t)size * sizeof *x->states);
    for (int64_t c = 0; c < n_chunks - 1; c++) {
        s = (Span){s.b, begin + c * CHUNK, CHUNK, s.head};
        prepare(d, &s, x, x->states + c * size);
        remember(d, &s, x, x->states + c * size, x->states + (c + 1) * size);
    }
    memset(x->dS, 0, (size_t)size * sizeof *x->dS);
    for (int64_t c = n_chunks - 1; c >= 0; c--) {
        int64_t t = begin + c * CHUNK;
        s = (Span){s.b, t, cpu_min(CHUNK, end - t), s.head};
        backward_chunk(d, &s, x, x->states + c * size);
    }
}

/* Padding gets no gradient. */
static void no_gradient(const Delta *d, Span s, int64_t end, Tiles *x) {
    memset(x->v, 0, (size_t)(CHUNK * d->W) * sizeof *x->v);
    memset(x->dG, 0, sizeof x->dG);
    memset(x->between, 0, sizeof x->between);
    memset(x->dbeta, 0, sizeof x->dbeta);
    for (; s.t < end; s.t += s.n) {
        s.n = cpu_min(CHUNK, end - s.t);
        store(d, V, &s, x->v);
        store_numbers(d, &s, x);
    }
}

static void store_keys(const Delta *d, int output, int64_t b, int64_t head, const float *from) {
    for (int64_t t = 0; t < d->time && d->call->out[output]; t++)
        cpu_store(from + t * d->H, d->width, d->call->out[output], d->dtype,
                  ((b * d->time + t) * d->key_heads + head) * d->width);
}

static void backward_heads(const void *context, int64_t begin, int64_t end, int worker) {
    const Delta *d = context;
    Tiles x;
    lay_out(d, d->scratch + d->worker_bytes * (size_t)worker, &x);
    for (int64_t i = begin; i < end; i++) {
        int64_t b = i / d->key_heads, head = i % d->key_heads;
        memset(x.sum_q, 0, (size_t)(d->time * d->H) * sizeof *x.sum_q);
        memset(x.sum_k, 0, (size_t)(d->time * d->H) * sizeof *x.sum_k);
        for (int64_t t = 0, next; t < d->time; t = next) {
            next = segment_end(d, b, t);
            bool is_padding = !d->carries && !d->segments[b * d->time + t];
            for (int64_t g = 0; g < d->group; g++)
                (is_padding ? no_gradient
                            : backward_segment)(d, (Span){b, t, 0, head * d->group + g}, next, &x);
        }
        store_keys(d, Q, b, head, x.sum_q);
        store_keys(d, K, b, head, x.sum_k);
    }
}

static size_t delta_grad_scratch(const MxDevice *device, const MxKernelCall *call) {
    return scratch_of(device, call, true);
}

static void delta_grad_run(const MxDevice *device, const MxKernelCall *call) {
    Delta d = delta_of(call, true);
    d.worker_bytes = lay_out(&d, NULL, &(Tiles){0});
    cpu_for_uneven(device, d.batch * d.key_heads, 1, backward_heads, &d);
}

const MxKernel cpu_delta_grad = {.scratch = delta_grad_scratch, .run = delta_grad_run};
