/* dropout.c — what is left to chance. Rows of x that get the same draws are processed together, a
 * block of columns at a time, whose factors or noise are computed once. */
#include "kernel.h"

/* ---- the words of a random sequence */

typedef struct Sequence {
    uint64_t key, stream;
} Sequence;

static Sequence sequence_of(uint64_t seed, uint64_t stream, const void *step) {
    uint32_t words[CPU_PHILOX_WORDS];
    mx_philox(seed, stream, (uint64_t) * (const int32_t *)step, words);
    return (Sequence){(uint64_t)words[1] << 32 | words[0], stream};
}

enum { MOST_WORDS = CPU_PHILOX_LANES * CPU_PHILOX_WORDS };

/* Those from element `from` on, as many as are made at once; how many. */
static int64_t next_words(Sequence s, uint64_t from, uint32_t word[MOST_WORDS]) {
    uint32_t made[CPU_PHILOX_WORDS][CPU_PHILOX_LANES];
    int skipped = (int)(from % CPU_PHILOX_WORDS);
    cpu_philox(s.key, s.stream, from / CPU_PHILOX_WORDS, made);
    for (int i = skipped; i < MOST_WORDS; i++)
        word[i - skipped] = made[i % CPU_PHILOX_WORDS][i / CPU_PHILOX_WORDS];
    return MOST_WORDS - skipped;
}

/* ---- dropout and noise */

/* What is made of words, and of x with that. */
typedef struct Kind {
    void (*draw)(double amount, const uint32_t *word, int64_t n, float *drawn);
    void (*apply)(const float *x, const float *drawn, int64_t n, float *y);
} Kind;

typedef struct Random {
    const Kind *kind;
    const MxKernelCall *call;
    const MxRandomAttr *attr;
    MxShape x;
    int64_t between, width; /* of what is here */
    Sequence sequence;
} Random;

static Random random_of(const Kind *kind, const MxKernelCall *call) {
    Random r = {.kind = kind,
                .call = call,
                .attr = call->attr,
                .x = call->in_type[0].shape,
                .between = 1,
                .width = call->in_type[0].shape.dim[call->in_type[0].shape.rank - 1]};
    for (int d = 1; d < r.x.rank - 1; d++) r.between *= r.x.dim[d];
    r.sequence = sequence_of(r.attr->seed, r.attr->stream, call->in[2]);
    return r;
}

/* Which element of the sequence the first of a row is. */
static uint64_t first_of(const Random *r, int64_t row) {
    const MxRandomAttr *a = r->attr;
    int last = r->x.rank - 1;
    int64_t rest = row % r->between, below = r->between;
    uint64_t at = (uint64_t)((const int32_t *)r->call->in[1])[row / r->between];
    for (int d = 1; d < last && !a->by_column; d++) {
        below /= r->x.dim[d];
        at = at * (uint64_t)a->whole.dim[d] + (uint64_t)(a->first[d] + rest / below);
        rest %= below;
    }
    return at * (uint64_t)a->whole.dim[last] + (uint64_t)a->first[last];
}

static void draw(const Random *r, uint64_t from, int64_t n, float *drawn) {
    uint32_t word[MOST_WORDS];
    for (int64_t i = 0, made; i < n; i += made) {
        made = cpu_min(next_words(r->sequence, from + (uint64_t)i, word), n - i);
        r->kind->draw(r->attr->amount, word, made, drawn + i);
    }
}

/* A block of columns of n rows that are one behind the other. */
static void apply_block(const Random *r, int64_t at, int64_t n, int64_t width, const float *drawn) {
    MxDtype dtype = r->call->in_type[0].dtype;
    float in_block[CPU_BLOCK], out_block[CPU_BLOCK];
    for (int64_t row = 0; row < n; row++, at += r->width) {
        const float *x = cpu_read(r->call->in[0], dtype, at, width, in_block);
        float *y = cpu_place(r->call->out[0], dtype, at, out_block);
        r->kind->apply(x, drawn, width, y);
        cpu_write(y, width, r->call->out[0], dtype, at);
    }
}

static void apply_rows(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const Random *r = context;
    float drawn[CPU_BLOCK];
    for (int64_t row = begin, alike; row < end; row += alike) {
        int64_t left = r->between - row % r->between;
        alike = r->attr->by_column ? cpu_min(end - row, left) : 1;
        uint64_t from = first_of(r, row);
        for (int64_t i = 0, n; i < r->width; i += n) {
            n = cpu_min(CPU_BLOCK, r->width - i);
            draw(r, from + (uint64_t)i, n, drawn);
            apply_block(r, row * r->width + i, alike, n, drawn);
        }
    }
}

/* Of columns so many rows that their draws take little of the time. */
static void random_run(const MxDevice *device, const MxKernelCall *call, const Kind *kind) {
    enum { STRETCH = 16 };
    Random r = random_of(kind, call);
    int64_t least = r.attr->by_column ? STRETCH : 1;
    if (!call->out[0] || !r.width) return;
    cpu_for(device, r.x.dim[0] * r.between, cpu_max(least, CPU_PIECE / r.width), apply_rows, &r);
}

static void draw_factors(double rate, const uint32_t *word, int64_t n, float *factor) {
    const double range = 4294967296.0; /* of a word */
    uint64_t least = (uint64_t)(rate * range);
    float kept = rate < 1 ? (float)(1 / (1 - rate)) : 0.0f;
    for (int64_t k = 0; k < n; k++) factor[k] = word[k] < least ? 0.0f : kept;
}

static void drop(const float *x, const float *factor, int64_t n, float *y) {
#pragma omp simd
    for (int64_t k = 0; k < n; k++) y[k] = factor[k] > 0.0f ? x[k] * factor[k] : 0;
}

static void dropout_run(const MxDevice *device, const MxKernelCall *call) {
    static const Kind kind = {draw_factors, drop};
    random_run(device, call, &kind);
}

const MxKernel cpu_dropout = {.run = dropout_run};

static void draw_noise(double amount, const uint32_t *word, int64_t n, float *noise) {
    float range = (float)amount;
    for (int64_t k = 0; k < n; k++) noise[k] = range * (2 * mx_uniform(word[k]) - 1);
}

static void add(const float *x, const float *noise, int64_t n, float *y) {
#pragma omp simd
    for (int64_t k = 0; k < n; k++) y[k] = x[k] + noise[k];
}

static void noise_run(const MxDevice *device, const MxKernelCall *call) {
    static const Kind kind = {draw_noise, add};
    random_run(device, call, &kind);
}

const MxKernel cpu_noise = {.run = noise_run};

/* ---- indices */

typedef struct Draw {
    const MxKernelCall *call;
    Sequence sequence;
    uint64_t first, each, of; /* indices of a row that are not here, of a row, and their bound */
    int64_t n;                /* of a row here */
} Draw;

static void draw_rows(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const Draw *d = context;
    const int32_t *rows = d->call->in[1];
    uint32_t word[MOST_WORDS];
    for (int64_t b = begin; b < end; b++) {
        int32_t *id = (int32_t *)d->call->out[0] + b * d->n;
        uint64_t from = (uint64_t)rows[b] * d->each + d->first;
        for (int64_t i = 0, n; i < d->n; i += n) {
            n = cpu_min(next_words(d->sequence, from + (uint64_t)i, word), d->n - i);
            for (int64_t k = 0; k < n; k++) id[i + k] = (int32_t)(word[k] * d->of >> 32);
        }
    }
}

static void draw_ids_run(const MxDevice *device, const MxKernelCall *call) {
    const MxDrawIdsAttr *attr = call->attr;
    MxShape x = call->in_type[0].shape;
    uint64_t k = (uint64_t)attr->k;
    Draw d = {.call = call,
              .sequence = sequence_of(attr->seed, attr->stream, call->in[2]),
              .first = (uint64_t)attr->first * k,
              .each = (uint64_t)attr->length * k,
              .of = (uint64_t)x.dim[2],
              .n = x.dim[1] * attr->k};
    if (call->out[0])
        cpu_for(device, x.dim[0], cpu_max(1, CPU_PIECE / cpu_max(1, d.n)), draw_rows, &d);
}

const MxKernel cpu_draw_ids = {.run = draw_ids_run};
