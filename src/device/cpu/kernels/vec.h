/* vec.h — exp, log, tanh, sine and cosine as straight-line code on floats, so that loops over them
 * become vector code without -ffast-math; and common operations on rows of floats. Polynomials
 * after Cephes (Moshier); stated errors are measured by tests/device/numbers.c over the relevant
 * ranges. */
#ifndef CPU_VEC_H
#define CPU_VEC_H

#include <stdint.h>
#include <string.h>

static inline float vec_from_bits(uint32_t u) {
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}
static inline uint32_t vec_bits(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

/* vec_exp — within 2 ulp; 0 below -87.33 (no denormals), infinite above 88.37; NaN stays NaN. */
static inline float vec_exp(float x) {
    const float low = -87.336544f, high = 88.376259f;
    const float round = 12582912.0f; /* 1.5 * 2^23: adding it leaves an integer in the low bits */
    float clamped = x < low ? low : x;
    clamped = clamped > high ? high : clamped;
    float shifted = clamped * 1.44269504f + round;
    float n = shifted - round;
    float r = clamped - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    float power = vec_from_bits((vec_bits(shifted) + 127u) << 23);
    float y = p * power;
    y = x < low ? 0.0f : y;
    return x > high ? vec_from_bits(0x7f800000u) : y;
}

/* vec_exp2 — 2^x for x < 127 within 3 ulp; 0 below -126.5 (no denormals); NaN stays NaN. The
 * shortest way to a softmax: a minimax polynomial that is 1 at 0, and no test of the upper end. */
static inline float vec_exp2(float x) {
    const float low = -127.0f;
    const float round = 12583039.0f; /* 1.5 * 2^23 + 127: leaves the power's exponent field */
    float clamped = x < low ? low : x;
    float shifted = clamped + round;
    float r = clamped - (shifted - round);
    float p = 1.326473546e-3f;
    p = p * r + 9.671517648e-3f;
    p = p * r + 5.550733954e-2f;
    p = p * r + 2.402224243e-1f;
    p = p * r + 6.931470037e-1f;
    p = p * r + 1.0f;
    return p * vec_from_bits(vec_bits(shifted) << 23);
}

/* vec_bf16_pair — two floats rounded to bf16, `low` in the low half of the word. A NaN stays one if
 * the low half of its bits is 0, as it is in all that arithmetic on bf16 makes. */
static inline uint32_t vec_bf16_pair(float low, float high) {
    uint32_t x = vec_bits(low), y = vec_bits(high);
    x += 0x7fffu + (x >> 16 & 1u);
    y += 0x7fffu + (y >> 16 & 1u);
    return x >> 16 | (y & 0xffff0000u);
}

/* vec_tanh — within 3 ulp. */
static inline float vec_tanh(float x) {
    float z = x * x;
    float p = -5.70498872745e-3f;
    p = p * z + 2.06390887954e-2f;
    p = p * z - 5.37397155531e-2f;
    p = p * z + 1.33314422036e-1f;
    p = p * z - 3.33332819422e-1f;
    float near = p * z * x + x;
    float magnitude = vec_from_bits(vec_bits(x) & 0x7fffffffu);
    float far = 1.0f - 2.0f / (vec_exp(2.0f * magnitude) + 1.0f);
    float signed_far = vec_from_bits(vec_bits(far) | (vec_bits(x) & 0x80000000u));
    return magnitude < 0.625f ? near : signed_far;
}

/* vec_sigmoid — 1 / (1 + exp(-x)), within 3 ulp above -87. */
static inline float vec_sigmoid(float x) {
    return 1.0f / (1.0f + vec_exp(-x));
}

/* vec_log — of a positive normal number, within 2 ulp. */
static inline float vec_log(float x) {
    uint32_t bits = vec_bits(x);
    int32_t exponent = (int32_t)(bits >> 23) - 126;
    float m = vec_from_bits((bits & 0x007fffffu) | 0x3f000000u); /* [0.5, 1) */
    int32_t is_low = m < 0.707106781f;
    float e = (float)(exponent - is_low);
    float r = m - 1.0f + (is_low ? m : 0.0f);
    float z = r * r;
    float p = 7.0376836292e-2f;
    p = p * r - 1.1514610310e-1f;
    p = p * r + 1.1676998740e-1f;
    p = p * r - 1.2420140846e-1f;
    p = p * r + 1.4249322787e-1f;
    p = p * r - 1.6668057665e-1f;
    p = p * r + 2.0000714765e-1f;
    p = p * r - 2.4999993993e-1f;
    p = p * r + 3.3333331174e-1f;
    float y = p * r * z;
    y = y + e * -2.12194440e-4f;
    y = y - 0.5f * z;
    return r + y + e * 0.693359375f;
}

/* vec_sincos_turns — sine and cosine of 2 pi u, u in [0, 1]; absolute error below 2e-7. */
static inline void vec_sincos_turns(float u, float *sine, float *cosine) {
    float quarters = u * 4.0f;
    int32_t q = (int32_t)(quarters + 0.5f);
    float r = (quarters - (float)q) * 1.57079633f, z = r * r;
    float s = ((-1.9515295891e-4f * z + 8.3321608736e-3f) * z - 1.6666654611e-1f) * z * r + r;
    float c = ((2.443315711809948e-5f * z - 1.388731625493765e-3f) * z + 4.166664568298827e-2f) *
                  (z * z) -
              0.5f * z + 1.0f;
    float swap_s = q & 1 ? c : s, swap_c = q & 1 ? s : c;
    *sine = q & 2 ? -swap_s : swap_s;
    *cosine = (q + 1) & 2 ? -swap_c : swap_c;
}

/* ---- rows of n floats */

/* vec_dot — the sum of x[i] y[i]. */
static inline float vec_dot(int64_t n, const float *x, const float *y) {
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) sum += x[i] * y[i];
    return sum;
}

/* vec_add_times — y += factor x. */
static inline void vec_add_times(int64_t n, float factor, const float *x, float *y) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] += factor * x[i];
}

/* vec_scale — y = factor x; y may be x. */
static inline void vec_scale(int64_t n, float factor, const float *x, float *y) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = factor * x[i];
}

/* vec_max — the largest of `start` and n elements, NaN aside; as sixteen maxima side by side, which
 * vectorise where one would not. */
static inline float vec_max(int64_t n, const float *x, float start) {
    enum { SIDE = 16 };
    float most[SIDE];
    int64_t i = 0;
    for (int j = 0; j < SIDE; j++) most[j] = start;
    for (; i + SIDE <= n; i += SIDE)
        for (int j = 0; j < SIDE; j++) most[j] = x[i + j] > most[j] ? x[i + j] : most[j];
    for (; i < n; i++) most[0] = x[i] > most[0] ? x[i] : most[0];
    for (int j = 1; j < SIDE; j++) most[0] = most[j] > most[0] ? most[j] : most[0];
    return most[0];
}

#endif
