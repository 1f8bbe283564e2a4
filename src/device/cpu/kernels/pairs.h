/* pairs.h — sixteen words of two bf16 each at a time, for tiles. Processors that multiply pairs
 * (small.h) also round two rows at once: a third of the work of vec_bf16_pair, and compilers do not
 * find it themselves. */
#ifndef CPU_PAIRS_H
#define CPU_PAIRS_H

#include "small.h"
#include "vec.h"

#if defined(__AVX512BF16__)
#include <immintrin.h>

/* Rounded to the nearest, ties to even; denormal numbers become zero. `high` behind `low`. */
static inline __m512i pairs_rounded(const float *low, const float *high) {
    return (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(high), _mm512_loadu_ps(low));
}
#endif

/* pairs_words — words of which `low` is the low half. low, high, words [SMALL_LANES]. */
static inline void pairs_words(const float *low, const float *high, uint32_t *words) {
#if defined(__AVX512BF16__)
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i next = _mm512_set1_epi32(SMALL_LANES);
    const __m512i in_turn =
        _mm512_or_si512(lane, _mm512_slli_epi32(_mm512_add_epi32(lane, next), 16));
    _mm512_storeu_si512(words, _mm512_permutexvar_epi16(in_turn, pairs_rounded(low, high)));
#else
    for (int i = 0; i < SMALL_LANES; i++) words[i] = vec_bf16_pair(low[i], high[i]);
#endif
}

/* pairs_rows — the same numbers as two rows, `step` elements apart. */
static inline void pairs_rows(const float *low, const float *high, MxBf16 *rows, int64_t step) {
#if defined(__AVX512BF16__)
    __m512i both = pairs_rounded(low, high);
    _mm256_storeu_si256((__m256i *)rows, _mm512_castsi512_si256(both));
    _mm256_storeu_si256((__m256i *)(rows + step), _mm512_extracti64x4_epi64(both, 1));
#else
    cpu_narrow(low, SMALL_LANES, rows);
    cpu_narrow(high, SMALL_LANES, rows + step);
#endif
}

#endif
