/* convert.c — bf16 to float and back, sums into a buffer, zeros: the streams that every kernel
 * needs. Kernels convert a block, work on it in the first-level cache and convert the result, so
 * memory would be idle while they work: every conversion therefore prefetches the elements after
 * its own, which are needed next. Rounding takes one instruction if the processor has it. */
#include "kernel.h"

#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

/* The n elements behind the n at x, or as many of them as a block has; beyond an array's end asking
 * does nothing. */
static inline void fetch_next(const MxBf16 *x, int64_t n) {
    uintptr_t next = (uintptr_t)(x + n);
    size_t bytes = (size_t)cpu_min(n, CPU_BLOCK) * sizeof *x;
    for (size_t at = 0; at < bytes; at += CPU_ALIGN) __builtin_prefetch((const void *)(next + at));
}

static void widen(const MxBf16 *x, int64_t n, float *y) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = mx_bf16_to_f32(x[i]);
}

void cpu_widen(const MxBf16 *x, int64_t n, float *y) {
    fetch_next(x, n);
    widen(x, n, y);
}

void cpu_widen_bytes(const int8_t *x, int64_t n, float *y) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = x[i];
}

/* ---- rounding: y = x, or y += x */

#if defined(__AVX512BF16__)
static inline __m512 widened(__m256i x) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}

/* Numbers below the normal ones become zeros, which they are to all arithmetic here. */
static void round_block(const float *x, int64_t n, bool adds, MxBf16 *y) {
    enum { LANES = 32 };
    fetch_next(y, n);
    for (int64_t i = 0; i < n; i += LANES) {
        __mmask32 part = UINT32_MAX >> cpu_max(0, LANES - (n - i));
        __m512 low = _mm512_maskz_loadu_ps((__mmask16)part, x + i);
        __m512 high = _mm512_maskz_loadu_ps((__mmask16)(part >> 16), x + i + LANES / 2);
        if (adds) {
            __m512i old = _mm512_maskz_loadu_epi16(part, y + i);
            low = _mm512_add_ps(widened(_mm512_castsi512_si256(old)), low);
            high = _mm512_add_ps(widened(_mm512_extracti64x4_epi64(old, 1)), high);
        }
        _mm512_mask_storeu_epi16(y + i, part, (__m512i)_mm512_cvtne2ps_pbh(high, low));
    }
}
#else
static void round_block(const float *x, int64_t n, bool adds, MxBf16 *y) {
    fetch_next(y, n);
    if (adds)
#pragma omp simd
        for (int64_t i = 0; i < n; i++) y[i] = mx_f32_to_bf16(mx_bf16_to_f32(y[i]) + x[i]);
    else
#pragma omp simd
        for (int64_t i = 0; i < n; i++) y[i] = mx_f32_to_bf16(x[i]);
}
#endif

void cpu_narrow(const float *x, int64_t n, MxBf16 *y) {
    round_block(x, n, false, y);
}

/* ---- sums, zeros */

static void add_f32(const float *x, int64_t n, float *y) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] += x[i];
}

void cpu_add_to(const float *from, int64_t n, void *y, MxDtype dtype, int64_t at) {
    if (dtype == MX_F32)
        add_f32(from, n, (float *)y + at);
    else
        round_block(from, n, true, (MxBf16 *)y + at);
}

static void zero_span(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    memset(*(char *const *)context + begin, 0, (size_t)(end - begin));
}

void cpu_zero(const MxDevice *device, void *y, size_t bytes) {
    enum { PIECE_BYTES = 1 << 18 };
    cpu_for(device, (int64_t)bytes, PIECE_BYTES, zero_span, &y);
}
