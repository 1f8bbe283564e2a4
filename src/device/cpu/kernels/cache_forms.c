/* cache_forms.c — products with rows of caches in each form that these are kept in: a row a form.
 * Elements become floats in registers, of several rows at a time, so that neither they nor sums go
 * through memory. */
#include "cache_rows.h"
#include "lanes.h"

/* An element, as lanes.h has many. */
static inline float of_f32(const float *x) {
    return *x;
}
static inline float of_bf16(const MxBf16 *x) {
    return mx_bf16_to_f32(*x);
}
static inline float of_int8(const uint8_t *x) {
    return (float)(int8_t)*x;
}
static inline float of_low(const uint8_t *x) {
    return (float)(((*x & 15) ^ 8) - 8);
}
static inline float of_high(const uint8_t *x) {
    return (float)((*x >> 4 ^ 8) - 8);
}
/* Row j; the last one stands for those behind it. Rows of other heads lie between those of a head,
 * so processors do not foresee which are next: these are asked for, into the second cache. Beyond
 * an array's end that does nothing. */
static inline const void *begin_row(const CacheRows *rows, int64_t j, int64_t element_bytes) {
    enum { LINE = 64, INTO_SECOND_CACHE = 2 };
    const char *row = rows->first + cpu_min(j, rows->n - 1) * rows->step;
    for (int64_t b = 0; rows->ahead && b < rows->width * element_bytes; b += LINE)
        __builtin_prefetch(row + rows->ahead + b, 0, INTO_SECOND_CACHE);
    return row;
}

/* Of one query four rows at a time, of four two, so that all sums have a register. */
// clang-format off
#define DOTS(form, Element, lanes_of, of, queries, side)                                           \
    static void dots_##form##_##queries(const CacheRows *rows, const float *q, float *score) {     \
        int64_t width = rows->width;                                                               \
        for (int64_t j = 0; j < rows->n; j += (side)) {                                            \
            const Element *row[side];                                                              \
            Lanes sum[queries][side];                                                              \
            int64_t i = 0;                                                                         \
            for (int r = 0; r < (side); r++) row[r] = begin_row(rows, j + r, sizeof(Element));     \
            for (int k = 0; k < (queries); k++)                                                    \
                for (int r = 0; r < (side); r++) sum[k][r] = lanes_all(0);                         \
            for (; i + LANES <= width; i += LANES) {                                               \
                Lanes x[side];                                                                     \
                for (int r = 0; r < (side); r++) x[r] = lanes_of(row[r] + i);                      \
                for (int k = 0; k < (queries); k++) {                                              \
                    Lanes y = lanes_load(q + k * rows->apart + i);                                 \
                    for (int r = 0; r < (side); r++)                                               \
                        sum[k][r] = lanes_times_and(y, x[r], sum[k][r]);                           \
                }                                                                                  \
            }                                                                                      \
            for (int k = 0; k < (queries); k++)                                                    \
                for (int r = 0; r < (side); r++) {                                                 \
                    float *to = score + k * CACHE_ROOM + j + r;                                    \
                    *to += lanes_sum(sum[k][r]);                                                   \
                    for (int64_t l = i; l < width; l++)                                            \
                        *to += q[k * rows->apart + l] * of(row[r] + l);                            \
                }                                                                                  \
        }                                                                                          \
    }

#define ADD(form, Element, lanes_of, of, queries)                                                  \
    static void add_##form##_##queries(const CacheRows *rows, const float *p, float *sum) {        \
        int64_t width = rows->width;                                                               \
        for (int64_t j = 0; j < rows->n; j += CACHE_ROWS) {                                        \
            const Element *row[CACHE_ROWS];                                                        \
            int64_t i = 0;                                                                         \
            for (int r = 0; r < CACHE_ROWS; r++) row[r] = begin_row(rows, j + r, sizeof(Element)); \
            for (; i + LANES <= width; i += LANES) {                                               \
                Lanes y[queries];                                                                  \
                for (int k = 0; k < (queries); k++) y[k] = lanes_load(sum + k * rows->apart + i);  \
                for (int r = 0; r < CACHE_ROWS; r++) {                                             \
                    Lanes x = lanes_of(row[r] + i);                                                \
                    for (int k = 0; k < (queries); k++)                                            \
                        y[k] = lanes_times_and(lanes_all(p[k * CACHE_ROOM + j + r]), x, y[k]);     \
                }                                                                                  \
                for (int k = 0; k < (queries); k++) lanes_store(sum + k * rows->apart + i, y[k]);  \
            }                                                                                      \
            for (; i < width; i++)                                                                 \
                for (int k = 0; k < (queries); k++)                                                \
                    for (int r = 0; r < CACHE_ROWS; r++)                                           \
                        sum[k * rows->apart + i] +=                                                \
                            p[k * CACHE_ROOM + j + r] * of(row[r] + i);                            \
        }                                                                                          \
    }

#define PRODUCTS(form, Element, lanes_of, of)                                                      \
    DOTS(form, Element, lanes_of, of, 1, 4)                                                        \
    DOTS(form, Element, lanes_of, of, 4, 2)                                                        \
    ADD(form, Element, lanes_of, of, 1)                                                            \
    ADD(form, Element, lanes_of, of, 4)

PRODUCTS(f32, float, lanes_load, of_f32)
PRODUCTS(bf16, MxBf16, lanes_bf16, of_bf16)
PRODUCTS(int8, uint8_t, lanes_int8, of_int8)
PRODUCTS(low, uint8_t, lanes_low, of_low)
PRODUCTS(high, uint8_t, lanes_high, of_high)
// clang-format on

/* The elements in the low halves of bytes, and those in the high ones. */
static int64_t halves_of(const CacheRows *rows, CacheRows of[2]) {
    int64_t half = (rows->width + 1) / 2;
    of[0] = of[1] = *rows;
    of[0].width = half;
    of[1].width = rows->width - half;
    of[1].ahead = 0;
    return half;
}

static void dots_int4_1(const CacheRows *rows, const float *q, float *score) {
    CacheRows of[2];
    int64_t half = halves_of(rows, of);
    dots_low_1(&of[0], q, score);
    dots_high_1(&of[1], q + half, score);
}

static void dots_int4_4(const CacheRows *rows, const float *q, float *score) {
    CacheRows of[2];
    int64_t half = halves_of(rows, of);
    dots_low_4(&of[0], q, score);
    dots_high_4(&of[1], q + half, score);
}

static void add_int4_1(const CacheRows *rows, const float *p, float *sum) {
    CacheRows of[2];
    int64_t half = halves_of(rows, of);
    add_low_1(&of[0], p, sum);
    add_high_1(&of[1], p, sum + half);
}

static void add_int4_4(const CacheRows *rows, const float *p, float *sum) {
    CacheRows of[2];
    int64_t half = halves_of(rows, of);
    add_low_4(&of[0], p, sum);
    add_high_4(&of[1], p, sum + half);
}

#define FORM(form)                                                                                 \
    {                                                                                              \
        .dots = {dots_##form##_1, dots_##form##_4}, .add = { add_##form##_1, add_##form##_4 }      \
    }

static const CacheForm floats = FORM(f32), narrow_floats = FORM(bf16);
static const CacheForm codes[MX_QTYPE_COUNT] = {[MX_INT8] = FORM(int8), [MX_INT4] = FORM(int4)};

const CacheForm *cache_form(MxQtype kept, MxDtype dtype) {
    return kept ? &codes[kept] : dtype == MX_F32 ? &floats : &narrow_floats;
}
