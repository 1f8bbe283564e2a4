/* few_bits.c — kernels of sums whose terms are sent in few bits (src/ops/few.c). The bytes of a
 * part of n elements: bfloat16, or int8 and after them a float32 scale for each MX_FEW_BLOCK
 * elements. A block with an element that is not finite has the scale NaN, and loses nothing, so
 * that what is kept of it is finite. */
#include "kernel.h"

#include <float.h>
#include <math.h>

/* An array seen in parts. */
typedef struct Parts {
    int n;              /* parts */
    int64_t part;       /* elements of a part; the last ones may be short of it */
    int64_t row, count; /* elements of a part that lie together; of all parts */
} Parts;

static Parts parts_of(MxShape shape, int n_parts, int dim) {
    Parts p = {.n = n_parts, .part = mx_few_part(shape, n_parts), .count = mx_shape_count(shape)};
    p.row = p.part;
    if (dim == MX_WHOLE) return p;
    p.row = shape.dim[dim] / n_parts;
    for (int d = dim + 1; d < shape.rank; d++) p.row *= shape.dim[d];
    return p;
}

/* Elements of a part that the array has. */
static int64_t elements_of(const Parts *p, int64_t part) {
    return cpu_max(0, cpu_min(p->part, p->count - part * p->part));
}

/* Where element `at` of a part is in the array, and how many from there on lie together. */
static int64_t place_of(const Parts *p, int64_t part, int64_t at, int64_t *together) {
    *together = p->row - at % p->row;
    return at / p->row * p->row * p->n + part * p->row + at % p->row;
}

/* Copies n elements of a part out of the array, or into it. */
static void move(const Parts *p, int64_t part, int64_t at, int64_t n, float *array, float *block,
                 bool out) {
    for (int64_t i = 0, k; i < n; i += k) {
        int64_t place = place_of(p, part, at + i, &k);
        k = cpu_min(k, n - i);
        memcpy(out ? block + i : array + place, out ? array + place : block + i,
               (size_t)k * sizeof *block);
    }
}

static uint8_t *scales_of(uint8_t *row, int64_t n) {
    return row + mx_few_bytes(MX_I8, n) - cpu_pieces(n, MX_FEW_BLOCK) * (int64_t)sizeof(float);
}

/* ---- into few bits */

typedef struct Narrowing {
    Parts parts;
    MxDtype wire;
    float *x, *lost; /* lost NULL = nobody wants it */
    uint8_t *codes;
    int64_t bytes; /* of a row */
} Narrowing;

/* The scale of a block; a block of tiny numbers is one of zeros. */
static float scale_of(const float *x, int64_t n) {
    const float tiny = 1e-30f, most = 127;
    float largest = 0;
    int bad = 0;
    for (int64_t i = 0; i < n; i++) {
        float size = fabsf(x[i]);
        largest = size > largest ? size : largest;
        bad |= !(size <= FLT_MAX);
    }
    if (bad) return NAN;
    return largest < tiny ? 0 : largest / most;
}

/* Codes of a block; x becomes what they lose. */
static float to_int8(float *x, int64_t n, int8_t *codes) {
    float scale = scale_of(x, n), inverse = scale > 0 ? 1 / scale : 0;
    if (isnan(scale)) {
        memset(codes, 0, (size_t)n);
        memset(x, 0, (size_t)n * sizeof *x);
        return scale;
    }
    for (int64_t i = 0; i < n; i++) {
        float code = rintf(x[i] * inverse);
        codes[i] = (int8_t)code;
        /* In double: the product has more digits than what is left has to spare. */
        x[i] = (float)((double)x[i] - (double)code * (double)scale);
    }
    return scale;
}

static void to_bf16(float *x, int64_t n, uint8_t *codes) {
    float back[MX_FEW_BLOCK];
    MxBf16 *narrow = (MxBf16 *)(void *)codes;
    cpu_narrow(x, n, narrow);
    cpu_widen(narrow, n, back);
    for (int64_t i = 0; i < n; i++) {
        float lost = x[i] - back[i];
        x[i] = fabsf(lost) <= FLT_MAX ? lost : 0;
    }
}

static void narrow_blocks(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const Narrowing *s = context;
    const Parts *p = &s->parts;
    int64_t n_blocks = cpu_pieces(p->part, MX_FEW_BLOCK);
    for (int64_t i = begin; i < end; i++) {
        float x[MX_FEW_BLOCK] = {0};
        MxBf16 unwanted[MX_FEW_BLOCK];
        int64_t part = i / n_blocks, block = i % n_blocks, at = block * MX_FEW_BLOCK;
        int64_t n = cpu_min(MX_FEW_BLOCK, p->part - at); /* with those that are missing, as 0 */
        int64_t has = cpu_max(0, cpu_min(n, elements_of(p, part) - at));
        uint8_t *row = s->codes ? s->codes + part * s->bytes : NULL, *spare = (uint8_t *)unwanted;
        move(p, part, at, has, s->x, x, true);
        if (s->wire == MX_I8) {
            float scale = to_int8(x, n, (int8_t *)(row ? row + at : spare));
            if (row)
                memcpy(scales_of(row, p->part) + block * (int64_t)sizeof scale, &scale,
                       sizeof scale);
        } else {
            to_bf16(x, n, row ? row + at * (int64_t)sizeof(MxBf16) : spare);
        }
        if (s->lost) move(p, part, at, has, s->lost, x, false);
    }
}

/* What pads the rows' ends. */
static void clear_ends(const Narrowing *s) {
    const int64_t n = s->parts.part, unit = sizeof(float);
    int64_t used = s->wire == MX_I8 ? n : n * (int64_t)sizeof(MxBf16);
    for (int part = 0; used % unit && part < s->parts.n; part++)
        memset(s->codes + part * s->bytes + used, 0, (size_t)(unit - used % unit));
}

static void to_few_run(const MxDevice *device, const MxKernelCall *call) {
    const MxToFewAttr *attr = call->attr;
    Narrowing s = {.parts = parts_of(call->in_type[0].shape, attr->n_parts, attr->dim),
                   .wire = attr->wire,
                   .x = call->in[0],
                   .lost = call->out[1],
                   .codes = call->out[0],
                   .bytes = call->out_type[0].shape.dim[1]};
    if (s.codes) clear_ends(&s);
    cpu_for(device, s.parts.n * cpu_pieces(s.parts.part, MX_FEW_BLOCK), CPU_PIECE / MX_FEW_BLOCK,
            narrow_blocks, &s);
}

const MxKernel cpu_to_few = {.run = to_few_run};

/* ---- out of few bits */

typedef struct Widening {
    Parts parts; /* of the result: one if rows are added up */
    MxDtype wire;
    uint8_t *codes;
    int64_t bytes, n_rows;
    float *out;
} Widening;

/* n elements of a row from `at` on. */
static void read_row(const Widening *s, int64_t row, int64_t at, int64_t n, float *x) {
    uint8_t *codes = s->codes + row * s->bytes;
    float scale;
    if (s->wire == MX_BF16) {
        cpu_widen((const MxBf16 *)(const void *)codes + at, n, x);
        return;
    }
    memcpy(&scale, scales_of(codes, s->parts.part) + at / MX_FEW_BLOCK * (int64_t)sizeof scale,
           sizeof scale);
    const int8_t *code = (const int8_t *)codes + at;
    for (int64_t i = 0; i < n; i++) x[i] = (float)code[i] * scale;
}

static void widen_blocks(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const Widening *s = context;
    int64_t n_blocks = cpu_pieces(s->parts.part, MX_FEW_BLOCK);
    for (int64_t i = begin; i < end; i++) {
        float sum[MX_FEW_BLOCK], term[MX_FEW_BLOCK];
        int64_t part = i / n_blocks, at = i % n_blocks * MX_FEW_BLOCK;
        int64_t n = cpu_min(MX_FEW_BLOCK, elements_of(&s->parts, part) - at);
        if (n <= 0) continue;
        read_row(s, part, at, n, sum);
        for (int64_t row = 1; s->parts.n == 1 && row < s->n_rows; row++) {
            read_row(s, row, at, n, term);
            for (int64_t k = 0; k < n; k++) sum[k] += term[k];
        }
        memcpy(s->out + part * s->parts.part + at, sum, (size_t)n * sizeof *sum);
    }
}

static void from_few_run(const MxDevice *device, const MxKernelCall *call) {
    const MxFromFewAttr *attr = call->attr;
    MxShape in = call->in_type[0].shape;
    Widening s = {.parts = parts_of(attr->shape, attr->sums ? 1 : (int)in.dim[0], MX_WHOLE),
                  .wire = attr->wire,
                  .codes = call->in[0],
                  .bytes = in.dim[1],
                  .n_rows = in.dim[0],
                  .out = call->out[0]};
    if (!s.out) return;
    cpu_for(device, s.parts.n * cpu_pieces(s.parts.part, MX_FEW_BLOCK), CPU_PIECE / MX_FEW_BLOCK,
            widen_blocks, &s);
}

const MxKernel cpu_from_few = {.run = from_few_run};

/* ---- a part of an array */

typedef struct Adding {
    Parts parts;
    int64_t index;
    float factor, *sum;
    const float *part;
} Adding;

static void add_span(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const Adding *a = context;
    for (int64_t at = begin, k; at < end; at += k) {
        float *sum = a->sum + place_of(&a->parts, a->index, at, &k);
        k = cpu_min(k, end - at);
        for (int64_t i = 0; i < k; i++) sum[i] += a->factor * a->part[at + i];
    }
}

static void add_part_run(const MxDevice *device, const MxKernelCall *call) {
    const MxAddPartAttr *attr = call->attr;
    Adding a = {.parts = parts_of(call->in_type[0].shape, attr->n_parts, attr->dim),
                .index = attr->index,
                .factor = (float)attr->factor,
                .sum = call->out[0],
                .part = call->in[1]};
    if (!a.sum) return;
    if (call->in[0] != call->out[0])
        memcpy(a.sum, call->in[0], (size_t)a.parts.count * sizeof *a.sum);
    cpu_for(device, elements_of(&a.parts, a.index), CPU_PIECE, add_span, &a);
}

const MxKernel cpu_add_part = {.run = add_part_run};
