/* quant_few.c — products of few rows with a weight in few bits, as in generating one token at a
 * time. They cost as much as reading the codes: values are computed in registers, if there is one
 * row and the processor has vectors for it, otherwise rows of them in the first-level cache.
 *
 * A value is the dequantized code, rounded to the dtype of the other operand, and sums have the
 * order of products with floats (few.c). */
#include "lanes.h"
#include "quant.h"
#include "vec.h"

/* The rows of an array. */
typedef struct Codes {
    CpuRows rows;
    const QuantArray *from;
    bool rounds; /* to bf16 */
} Codes;

static inline float rounded(float x) {
    return vec_from_bits((vec_bits(x) + 0x7fffu + (vec_bits(x) >> 16 & 1u)) & 0xffff0000u);
}

static void read_row(const CpuRows *rows, int64_t row, int64_t column, int64_t n, float *y) {
    const Codes *c = (const Codes *)rows;
    quant_decode(c->from, row, column, n, y);
    for (int64_t i = 0; c->rounds && i < n; i++) y[i] = rounded(y[i]);
}

static void fetch_rows(const CpuRows *rows, int64_t row, int64_t column, int64_t n) {
    enum { LINE = 64, INTO_SECOND_CACHE = 2 };
    const QuantArray *x = ((const Codes *)rows)->from;
    int64_t each = mx_qtype_a_byte(x->quant.type), step = x->width / each;
    const uint8_t *from = x->codes + row * step + column / each;
    for (int64_t r = 0; r < CPU_ROWS; r++, from += step)
        for (int64_t at = 0; at < n / each; at += LINE)
            __builtin_prefetch(from + at, 0, INTO_SECOND_CACHE);
}

/* ---- values in registers */

#if defined(__AVX512F__)
/* Codes of half a byte come out in an order of their own: two words of eight take turns, as a load
 * gives them. What meets them is put in that order, once for all rows, and put back. A permutation
 * reads the low four bits of each code. */
static inline Lanes pair_values(const float *values, const uint8_t *codes) {
    const __m512i shift =
        _mm512_setr_epi32(0, 0, 4, 4, 8, 8, 12, 12, 16, 16, 20, 20, 24, 24, 28, 28);
    __m128i words = _mm_loadl_epi64((const __m128i *)(const void *)codes);
    __m512i at = _mm512_srlv_epi32(_mm512_broadcastq_epi64(words), shift);
    return _mm512_permutexvar_ps(at, _mm512_loadu_ps(values));
}
static inline Lanes pair_order(Lanes x) {
    return _mm512_permutexvar_ps(
        _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15), x);
}
static inline Lanes pair_order_back(Lanes x) {
    return _mm512_permutexvar_ps(
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15), x);
}
static inline Lanes rounded_lanes(Lanes x) {
    __m512i bits = _mm512_castps_si512(x), one = _mm512_set1_epi32(1);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), one);
    bits = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    return _mm512_castsi512_ps(_mm512_and_si512(bits, _mm512_set1_epi32(~0xffff)));
}
#elif defined(__AVX2__)
/* Permutations read the low three bits of a code, the fourth chooses between them. */
static inline Lanes pair_values(const float *values, const uint8_t *codes) {
    const __m256i shift = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
    int32_t word;
    memcpy(&word, codes, sizeof word);
    __m256i at = _mm256_srlv_epi32(_mm256_set1_epi32(word), shift);
    __m256 low = _mm256_permutevar8x32_ps(_mm256_loadu_ps(values), at);
    __m256 high = _mm256_permutevar8x32_ps(_mm256_loadu_ps(values + LANES), at);
    return _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32(at, 28)));
}
static inline Lanes pair_order(Lanes x) {
    return x;
}
static inline Lanes pair_order_back(Lanes x) {
    return x;
}
static inline Lanes rounded_lanes(Lanes x) {
    __m256i bits = _mm256_castps_si256(x), one = _mm256_set1_epi32(1);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), one);
    bits = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    return _mm256_castsi256_ps(_mm256_and_si256(bits, _mm256_set1_epi32(~0xffff)));
}
#endif

#if defined(__AVX2__)
/* Columns that fill no vector. */
static void add_last(const Codes *c, int64_t row, int64_t column, int64_t n, const float *a,
                     float *sum) {
    float values[LANES];
    for (int64_t r = 0; n && r < CPU_ROWS; r++) {
        read_row(&c->rows, row + r, column, n, values);
        for (int64_t i = 0; i < n; i++) sum[i] += a[r] * values[i];
    }
}

/* Rows of one block: their scales are the same. */
static inline __attribute__((always_inline)) void add(const CpuRows *rows, int64_t row,
                                                      int64_t column, int64_t n, const float *a,
                                                      float *sum, bool are_pairs, bool rounds) {
    const Codes *c = (const Codes *)rows;
    const QuantArray *x = c->from;
    const float *values = mx_qtypes[x->quant.type].values;
    const int64_t each = are_pairs ? 2 : 1, step = x->width / each;
    const uint8_t *codes = x->codes + row * step + column / each;
    const float *scales = x->scales + row / x->quant.tile * x->width + column;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        Lanes all = lanes_load(sum + i), scale = lanes_load(scales + i);
        if (are_pairs) all = pair_order(all), scale = pair_order(scale);
        for (int64_t r = 0; r < CPU_ROWS; r++) {
            const uint8_t *at = codes + r * step + i / each;
            Lanes value = lanes_times(are_pairs ? pair_values(values, at) : lanes_int8(at), scale);
            all = lanes_times_and(lanes_all(a[r]), rounds ? rounded_lanes(value) : value, all);
        }
        lanes_store(sum + i, are_pairs ? pair_order_back(all) : all);
    }
    add_last(c, row, column + i, n - i, a, sum + i);
}

#define ADD(name, are_pairs, rounds)                                                               \
    static void name(const CpuRows *rows, int64_t row, int64_t column, int64_t n, const float *a,  \
                     float *sum) {                                                                 \
        add(rows, row, column, n, a, sum, are_pairs, rounds);                                      \
    }
ADD(add_pairs, true, false)
ADD(add_pairs_rounded, true, true)
ADD(add_int8, false, false)
ADD(add_int8_rounded, false, true)
#undef ADD

typedef void AddRows(const CpuRows *, int64_t, int64_t, int64_t, const float *, float *);

/* NULL = other codes, whose values are made in memory. */
static AddRows *add_of(MxQtype type, bool rounds) {
    static AddRows *const pairs[] = {add_pairs, add_pairs_rounded}, *const int8s[] = {
                                                                        add_int8, add_int8_rounded};
    return mx_qtypes[type].bits == 4 ? pairs[rounds] : type == MX_INT8 ? int8s[rounds] : NULL;
}
#endif

/* ---- */

bool quant_is_few(const MxDevice *device, const CpuMatmulSpec *spec) {
    return device->config.matmul == MX_MATMUL_AUTO && cpu_is_few(spec) && !spec->trans_b;
}

void quant_multiply_few(const MxDevice *device, const CpuMatmulSpec *spec, const void *a,
                        const QuantArray *b, void *c, void *scratch) {
    Codes codes = {
        .rows = {.read = read_row, .fetch = fetch_rows}, .from = b, .rounds = spec->in == MX_BF16};
#if defined(__AVX2__)
    if (b->quant.tile % CPU_ROWS == 0) codes.rows.add = add_of(b->quant.type, codes.rounds);
#endif
    cpu_multiply_rows(device, spec, a, &codes.rows, c, scratch);
}
