/* lanes.h — floats side by side in a register, and what becomes them: for loops whose sums are to
 * stay in registers, which compilers do not see to. Eight or sixteen lanes; without AVX2 an array
 * of eight. */
#ifndef CPU_LANES_H
#define CPU_LANES_H

#include <mx/base.h>

#if defined(__AVX512F__)
#include <immintrin.h>

enum { LANES = 16 };
typedef __m512 Lanes;

static inline Lanes lanes_load(const float *x) {
    return _mm512_loadu_ps(x);
}
static inline void lanes_store(float *y, Lanes x) {
    _mm512_storeu_ps(y, x);
}
static inline Lanes lanes_all(float x) {
    return _mm512_set1_ps(x);
}
static inline Lanes lanes_times(Lanes x, Lanes y) {
    return _mm512_mul_ps(x, y);
}
/* lanes_times_and — x y + sum. */
static inline Lanes lanes_times_and(Lanes x, Lanes y, Lanes sum) {
    return _mm512_fmadd_ps(x, y, sum);
}
static inline float lanes_sum(Lanes x) {
    return _mm512_reduce_add_ps(x);
}
static inline Lanes lanes_bf16(const MxBf16 *x) {
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)x));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
static inline Lanes lanes_int8(const uint8_t *x) {
    __m128i codes = _mm_loadu_si128((const __m128i *)(const void *)x);
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes));
}
/* lanes_low, lanes_high — halves of bytes, of two's complement. */
static inline Lanes lanes_low(const uint8_t *x) {
    __m128i codes = _mm_loadu_si128((const __m128i *)(const void *)x);
    __m512i high = _mm512_slli_epi32(_mm512_cvtepi8_epi32(codes), 28);
    return _mm512_cvtepi32_ps(_mm512_srai_epi32(high, 28));
}
static inline Lanes lanes_high(const uint8_t *x) {
    __m128i codes = _mm_loadu_si128((const __m128i *)(const void *)x);
    return _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_cvtepi8_epi32(codes), 4));
}

#elif defined(__AVX2__)
#include <immintrin.h>

enum { LANES = 8 };
typedef __m256 Lanes;

static inline Lanes lanes_load(const float *x) {
    return _mm256_loadu_ps(x);
}
static inline void lanes_store(float *y, Lanes x) {
    _mm256_storeu_ps(y, x);
}
static inline Lanes lanes_all(float x) {
    return _mm256_set1_ps(x);
}
static inline Lanes lanes_times(Lanes x, Lanes y) {
    return _mm256_mul_ps(x, y);
}
static inline Lanes lanes_times_and(Lanes x, Lanes y, Lanes sum) {
    return _mm256_fmadd_ps(x, y, sum);
}
static inline float lanes_sum(Lanes x) {
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
static inline Lanes lanes_bf16(const MxBf16 *x) {
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)x));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
static inline __m256i lanes_wide(const uint8_t *x) {
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)x));
}
static inline Lanes lanes_int8(const uint8_t *x) {
    return _mm256_cvtepi32_ps(lanes_wide(x));
}
static inline Lanes lanes_low(const uint8_t *x) {
    return _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(lanes_wide(x), 28), 28));
}
static inline Lanes lanes_high(const uint8_t *x) {
    return _mm256_cvtepi32_ps(_mm256_srai_epi32(lanes_wide(x), 4));
}

#else

enum { LANES = 8 };
typedef struct Lanes {
    float of[LANES];
} Lanes;

#define LANES_OF(what)                                                                             \
    Lanes y;                                                                                       \
    for (int i = 0; i < LANES; i++) y.of[i] = (what);                                              \
    return y

static inline Lanes lanes_load(const float *x) {
    LANES_OF(x[i]);
}
static inline void lanes_store(float *y, Lanes x) {
    memcpy(y, x.of, sizeof x.of);
}
static inline Lanes lanes_all(float x) {
    LANES_OF(x);
}
static inline Lanes lanes_times(Lanes x, Lanes z) {
    LANES_OF(x.of[i] * z.of[i]);
}
static inline Lanes lanes_times_and(Lanes x, Lanes z, Lanes sum) {
    LANES_OF(x.of[i] * z.of[i] + sum.of[i]);
}
static inline float lanes_sum(Lanes x) {
    float sum = 0;
    for (int i = 0; i < LANES; i++) sum += x.of[i];
    return sum;
}
static inline Lanes lanes_bf16(const MxBf16 *x) {
    LANES_OF(mx_bf16_to_f32(x[i]));
}
static inline Lanes lanes_int8(const uint8_t *x) {
    LANES_OF((float)(int8_t)x[i]);
}
static inline Lanes lanes_low(const uint8_t *x) {
    LANES_OF((float)(((x[i] & 15) ^ 8) - 8));
}
static inline Lanes lanes_high(const uint8_t *x) {
    LANES_OF((float)((x[i] >> 4 ^ 8) - 8));
}
#undef LANES_OF
#endif

#endif
