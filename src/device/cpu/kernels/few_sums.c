/* few_sums.c — sums of products of few rows. What is loaded of B serves several rows of A, and
 * their sums stay in registers meanwhile: otherwise eight rows would take twice the time in which B
 * is read. A row's sums are added up in the same order however many rows are beside it. */
#include "few.h"

#include "kernel.h"
#include "lanes.h"

enum {
    TOGETHER = 4, /* rows of A: with two vectors of each, and of B, all of AVX2's registers … */
    VECTORS = 2,
    PAIR = 2, /* … as with these, and FEW_BESIDE rows of B */
    ROWS = CPU_ROWS,
    INTO_SECOND_CACHE = 2, /* of prefetches … */
    LINE = 16              /* … which fetch so many floats */
};
#define EACH   _Pragma("GCC unroll 32")
#define INLINE static inline __attribute__((always_inline))

/* ---- rows of B, times an element of A each */

INLINE void add_tile(int m, FewRows a, const float *b, int64_t step, float *sums, int64_t columns) {
    Lanes sum[TOGETHER][VECTORS];
    EACH for (int i = 0; i < m; i++) EACH for (int v = 0; v < VECTORS; v++) sum[i][v] =
        lanes_load(sums + i * columns + v * LANES);
    EACH for (int r = 0; r < ROWS; r++) {
        Lanes y[VECTORS];
        EACH for (int v = 0; v < VECTORS; v++) y[v] = lanes_load(b + r * step + v * LANES);
        EACH for (int i = 0; i < m; i++) {
            Lanes x = lanes_all(a.row[i * a.step + r]);
            EACH for (int v = 0; v < VECTORS; v++) sum[i][v] = lanes_times_and(x, y[v], sum[i][v]);
        }
    }
    EACH for (int i = 0; i < m; i++) EACH for (int v = 0; v < VECTORS; v++)
        lanes_store(sums + i * columns + v * LANES, sum[i][v]);
}

/* A tile of the rows to come, into the second cache: among products there is always room for what
 * memory can still send. */
INLINE void fetch_tile(const float *b, int64_t step) {
    EACH for (int r = 0; r < ROWS; r++) EACH for (int j = 0; j < VECTORS * LANES; j += LINE)
        __builtin_prefetch(b + r * step + j, 0, INTO_SECOND_CACHE);
}

INLINE void add_rows(int m, FewRows a, int64_t n, const float *b, int64_t step, float *sums,
                     int64_t columns, const float *next) {
    int64_t whole = n / (VECTORS * LANES) * (VECTORS * LANES);
    for (int64_t j = 0; j < whole; j += VECTORS * LANES) {
        if (next) fetch_tile(next + j, step);
        add_tile(m, a, b + j, step, sums + j, columns);
    }
    for (int i = 0; i < m; i++) {
        const float *x = a.row + i * a.step;
        float *sum = sums + i * columns;
#pragma omp simd
        for (int64_t j = whole; j < n; j++)
            EACH for (int r = 0; r < ROWS; r++) sum[j] += x[r] * b[r * step + j];
    }
}

void few_add(FewRows a, int64_t n, const float *b, int64_t step, float *sums, int64_t columns,
             const float *next) {
    while (a.m > 0) {
        int m = a.m < TOGETHER ? 1 : TOGETHER;
        if (m == TOGETHER)
            add_rows(TOGETHER, a, n, b, step, sums, columns, next);
        else
            add_rows(1, a, n, b, step, sums, columns, next);
        a.m -= m, a.row += m * a.step, sums += m * columns;
        next = NULL; /* once */
    }
}

/* ---- rows of B, times a row of A each */

INLINE Lanes load(const void *b, MxDtype dtype, int64_t at) {
    return dtype == MX_F32 ? lanes_load((const float *)b + at) : lanes_bf16((const MxBf16 *)b + at);
}

INLINE const void *address(const void *b, MxDtype dtype, int64_t at) {
    return (const uint8_t *)b + at * (dtype == MX_F32 ? 4 : 2);
}

INLINE float element(const void *b, MxDtype dtype, int64_t at) {
    return dtype == MX_F32 ? ((const float *)b)[at] : mx_bf16_to_f32(((const MxBf16 *)b)[at]);
}

/* Of n_next rows of B that come later some lines are asked for on the way. */
INLINE void dot_tile(int m, FewRows a, int64_t n, const void *b, MxDtype dtype, int64_t step,
                     float (*sums)[FEW_BESIDE], const void *next, int n_next) {
    Lanes sum[PAIR][FEW_BESIDE];
    int64_t whole = n / LANES * LANES;
    EACH for (int i = 0; i < m; i++) EACH for (int c = 0; c < FEW_BESIDE; c++) sum[i][c] =
        lanes_all(0);
    for (int64_t k = 0; k < whole; k += LANES) {
        Lanes y[FEW_BESIDE];
        EACH for (int c = 0; c < FEW_BESIDE; c++) y[c] = load(b, dtype, c * step + k);
        for (int c = 0; c < n_next && k % LINE == 0; c++)
            __builtin_prefetch(address(next, dtype, c * step + k), 0, INTO_SECOND_CACHE);
        EACH for (int i = 0; i < m; i++) {
            Lanes x = lanes_load(a.row + i * a.step + k);
            EACH for (int c = 0; c < FEW_BESIDE; c++) sum[i][c] =
                lanes_times_and(x, y[c], sum[i][c]);
        }
    }
    for (int i = 0; i < m; i++)
        for (int c = 0; c < FEW_BESIDE; c++) {
            float more = lanes_sum(sum[i][c]);
            for (int64_t k = whole; k < n; k++)
                more += a.row[i * a.step + k] * element(b, dtype, c * step + k);
            sums[i][c] += more;
        }
}

/* Each pass over the rows of B asks for its share of the next ones; a single one has no time for
 * it.
 */
INLINE void dots_of(FewRows a, int64_t n, const void *b, MxDtype dtype, int64_t step,
                    float (*sums)[FEW_BESIDE], bool has_next) {
    const int passes = (int)(a.m / PAIR), share = passes > 1 && has_next ? FEW_BESIDE / passes : 0;
    const void *next = address(b, dtype, FEW_BESIDE * step);
    for (; a.m >= PAIR; a.m -= PAIR, a.row += PAIR * a.step, sums += PAIR) {
        dot_tile(PAIR, a, n, b, dtype, step, sums, next, share);
        next = address(next, dtype, share * step);
    }
    if (a.m) dot_tile(1, a, n, b, dtype, step, sums, NULL, 0);
}

void few_dots(FewRows a, int64_t n, const void *b, MxDtype dtype, int64_t step,
              float (*sums)[FEW_BESIDE], bool has_next) {
    if (dtype == MX_F32)
        dots_of(a, n, b, MX_F32, step, sums, has_next);
    else
        dots_of(a, n, b, MX_BF16, step, sums, has_next);
}
