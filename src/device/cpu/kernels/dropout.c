/* dropout.c — what is left to chance. Of dropout of columns the factors of each column of each row
 * of the batch are computed first, then all of x is processed once. */
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

/* ---- dropout */

typedef struct Dropout {
    const MxKernelCall *call;
    const MxDropoutAttr *attr;
    int64_t batch, between, width; /* of what is here */
    Sequence sequence;
    float *factor; /* [batch, width] */
} Dropout;

static Dropout dropout_of(const MxKernelCall *call) {
    MxShape x = call->in_type[0].shape;
    Dropout d = {.call = call,
                 .attr = call->attr,
                 .batch = x.dim[0],
                 .width = x.dim[x.rank - 1],
                 .between = 1,
                 .factor = call->scratch};
    for (int i = 1; i < x.rank - 1; i++) d.between *= x.dim[i];
    return d;
}

static size_t factors_scratch(const MxDevice *device, const MxKernelCall *call) {
    (void)device;
    Dropout d = dropout_of(call);
    return (size_t)(d.batch * d.width) * sizeof(float);
}

/* Those of one row of the batch, from element `from` of the sequence on. */
static void find_factors(const Dropout *d, uint64_t from, float *factor) {
    const double range = 4294967296.0; /* of a word */
    uint64_t least = (uint64_t)(d->attr->rate * range);
    float kept = d->attr->rate < 1 ? (float)(1 / (1 - d->attr->rate)) : 0.0f;
    uint32_t word[MOST_WORDS];
    for (int64_t i = 0, n; i < d->width; i += n) {
        n = cpu_min(next_words(d->sequence, from + (uint64_t)i, word), d->width - i);
        for (int64_t k = 0; k < n; k++) factor[i + k] = word[k] < least ? 0.0f : kept;
    }
}

static void factor_rows(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const Dropout *d = context;
    const int32_t *rows = d->call->in[1];
    for (int64_t b = begin; b < end; b++)
        find_factors(d, (uint64_t)rows[b] * (uint64_t)d->attr->width + (uint64_t)d->attr->first,
                     d->factor + b * d->width);
}

/* Rows of x, a block of columns at a time. */
static void drop_rows(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const Dropout *d = context;
    MxDtype dtype = d->call->in_type[0].dtype;
    float in_block[CPU_BLOCK], out_block[CPU_BLOCK];
    for (int64_t row = begin; row < end; row++) {
        const float *factor = d->factor + row / d->between * d->width;
        for (int64_t i = 0, n; i < d->width; i += n) {
            int64_t at = row * d->width + i;
            n = cpu_min(CPU_BLOCK, d->width - i);
            const float *x = cpu_read(d->call->in[0], dtype, at, n, in_block);
            float *y = cpu_place(d->call->out[0], dtype, at, out_block);
#pragma omp simd
            for (int64_t k = 0; k < n; k++) y[k] = factor[i + k] > 0.0f ? x[k] * factor[i + k] : 0;
            cpu_write(y, n, d->call->out[0], dtype, at);
        }
    }
}

static void dropout_run(const MxDevice *device, const MxKernelCall *call) {
    Dropout d = dropout_of(call);
    if (!call->out[0] || !d.width) return;
    d.sequence = sequence_of(d.attr->seed, d.attr->stream, call->in[2]);
    cpu_for(device, d.batch, cpu_max(1, CPU_BLOCK / d.width), factor_rows, &d);
    cpu_for(device, d.batch * d.between, cpu_max(1, CPU_PIECE / d.width), drop_rows, &d);
}

const MxKernel cpu_dropout = {.scratch = factors_scratch, .run = dropout_run};

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
