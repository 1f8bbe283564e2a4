/* cache_rows.c — rows of caches: writing them into their slots, and heads' rows in few bits, as
 * codes with a scale behind them, to codes and back. */
#include "cache_rows.h"

#include <float.h>
#include <math.h>

/* ---- rows in few bits */

/* What codes of a type are, from -most - 1 to most, of n elements. */
typedef struct CodeForm {
    float most;
    void (*write)(const float *codes, int64_t n, uint8_t *to);
    void (*read)(const uint8_t *codes, int64_t n, float scale, float *y);
} CodeForm;

static void write_int8(const float *codes, int64_t n, uint8_t *to) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) to[i] = (uint8_t)(int8_t)codes[i];
}

static void read_int8(const uint8_t *codes, int64_t n, float scale, float *y) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = (float)(int8_t)codes[i] * scale;
}

/* The low halves of bytes have the first elements, the high halves those behind them. */
static void write_int4(const float *codes, int64_t n, uint8_t *to) {
    int64_t half = (n + 1) / 2;
    for (int64_t i = 0; i < half; i++) {
        int high = half + i < n ? (int)codes[half + i] : 0;
        to[i] = (uint8_t)(((int)codes[i] & 15) | (high & 15) << 4);
    }
}

static void read_int4(const uint8_t *codes, int64_t n, float scale, float *y) {
    enum { SIGN = 8 };
    int64_t half = (n + 1) / 2;
    float *high = y + half;
#pragma omp simd
    for (int64_t i = 0; i < half; i++) y[i] = (float)(((codes[i] & 15) ^ SIGN) - SIGN) * scale;
#pragma omp simd
    for (int64_t i = 0; i < n - half; i++)
        high[i] = (float)(((codes[i] >> 4) ^ SIGN) - SIGN) * scale;
}

static const CodeForm forms[MX_QTYPE_COUNT] = {
    [MX_INT8] = {.most = 127, .write = write_int8, .read = read_int8},
    [MX_INT4] = {.most = 7, .write = write_int4, .read = read_int4},
};

/* Of the codes of a row. */
static int64_t bytes_of(MxQtype type, int64_t width) {
    return cpu_pieces(width, mx_qtype_a_byte(type));
}

static float read_scale(const char *from, MxDtype dtype) {
    float scale;
    MxBf16 narrow;
    if (dtype == MX_F32) {
        memcpy(&scale, from, sizeof scale);
        return scale;
    }
    memcpy(&narrow, from, sizeof narrow);
    return mx_bf16_to_f32(narrow);
}

void cache_row_read(MxQtype type, MxDtype dtype, const char *row, int64_t n, float *y) {
    forms[type].read((const uint8_t *)row, n, read_scale(row + bytes_of(type, n), dtype), y);
}

void cache_row_scales(MxQtype type, MxDtype dtype, const CacheRows *rows, float *scales) {
    const char *behind = rows->first + bytes_of(type, rows->width);
    for (int64_t j = 0; j < rows->n; j++) scales[j] = read_scale(behind + j * rows->step, dtype);
}

static float rounded(float x, MxDtype dtype) {
    return dtype == MX_F32 ? x : mx_bf16_to_f32(mx_f32_to_bf16(x));
}

static void write_scale(float scale, MxDtype dtype, uint8_t *to) {
    MxBf16 narrow = mx_f32_to_bf16(scale);
    if (dtype == MX_F32)
        memcpy(to, &scale, sizeof scale);
    else
        memcpy(to, &narrow, sizeof narrow);
}

/* The largest magnitude; NaN if one is not finite. */
static float largest_of(const float *x, int64_t n) {
    float largest = 0;
    int bad = 0;
    for (int64_t i = 0; i < n; i++) {
        float size = fabsf(x[i]);
        largest = size > largest ? size : largest;
        bad |= !(size <= FLT_MAX);
    }
    return bad ? NAN : largest;
}

typedef struct Coding {
    const MxKernelCall *call;
    const MxCacheCodesAttr *attr;
    MxDtype dtype;
    int64_t shared, width, row_bytes; /* heads that share a scale; of a head */
} Coding;

/* A row, of which `largest` is the scale's measure; x becomes its codes. */
static void encode(const Coding *c, float *x, float largest, uint8_t *row) {
    const CodeForm *form = &forms[c->attr->type];
    float bound = mx_qtypes[c->attr->type].bound;
    float inverse = largest > 0 ? rounded(bound / largest, c->dtype) : 0;
    for (int64_t i = 0; i < c->width; i++) {
        float code = rintf(rounded(x[i] * inverse, c->dtype));
        x[i] = code > form->most ? form->most : code;
    }
    form->write(x, c->width, row);
    write_scale(rounded(largest / bound, c->dtype), c->dtype,
                row + bytes_of(c->attr->type, c->width));
}

static void encode_rows(const void *context, int64_t begin, int64_t end, int worker) {
    const Coding *c = context;
    int64_t n = c->shared * c->width;
    float *x = (float *)c->call->scratch + worker * n;
    for (int64_t i = begin; i < end; i++) {
        uint8_t *rows = (uint8_t *)c->call->out[0] + i * c->shared * c->row_bytes;
        const float *from = cpu_read(c->call->in[0], c->dtype, i * n, n, x);
        float largest = largest_of(from, n);
        if (from != x) memcpy(x, from, (size_t)n * sizeof *x);
        if (isnan(largest)) memset(x, 0, (size_t)n * sizeof *x);
        for (int64_t h = 0; h < c->shared; h++)
            encode(c, x + h * c->width, largest, rows + h * c->row_bytes);
    }
}

static Coding coding_of(const MxKernelCall *call) {
    MxShape x = call->in_type[0].shape;
    const MxCacheCodesAttr *attr = call->attr;
    return (Coding){.call = call,
                    .attr = attr,
                    .dtype = call->in_type[0].dtype,
                    .shared = attr->spans_heads ? x.dim[2] : 1,
                    .width = x.dim[3],
                    .row_bytes = call->out_type[0].shape.dim[3]};
}

static size_t cache_codes_scratch(const MxDevice *device, const MxKernelCall *call) {
    Coding c = coding_of(call);
    return (size_t)(c.shared * c.width * device->n_threads) * sizeof(float);
}

static void cache_codes_run(const MxDevice *device, const MxKernelCall *call) {
    Coding c = coding_of(call);
    int64_t n = cpu_max(1, c.shared * c.width);
    if (!call->out[0]) return;
    cpu_for(device, mx_shape_count(call->in_type[0].shape) / n, cpu_max(1, CPU_PIECE / n),
            encode_rows, &c);
}

const MxKernel cpu_cache_codes = {.scratch = cache_codes_scratch, .run = cache_codes_run};

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
