/* small.c — products of small matrices: blocks of C that stay in registers while k passes by, one
 * function for each kind of processor, and the packing of operands. */
#include "small.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* Sixteen words; the compiler splits them for narrower machines. */
typedef float Lanes __attribute__((vector_size(64), aligned(4), may_alias));

/* ---- blocks of C: `rows` rows of `columns` lanes each. add(sum, a, b) adds the products of the
 * word at a with the lanes b. A macro, since code for one processor cannot be inlined into a
 * function for all. EACH loop is unrolled by request: gcc 12 does it too late to keep the sums from
 * passing through the stack before and after. */

// clang-format off
#define EACH _Pragma("GCC unroll 16")
#define SMALL_BLOCK(name, target, rows, columns, add)                                              \
target static void name(const Small *s, const float *a, const float *b, float *c) {                \
    Lanes sum[rows][columns];                                                                      \
    EACH for (int i = 0; i < (rows); i++)                                                          \
        EACH for (int j = 0; j < (columns); j++) sum[i][j] = (Lanes){0};                           \
    for (int64_t k = 0; k < s->k; k++, a += s->a_k, b += s->b_row) {                               \
        Lanes y[columns];                                                                          \
        EACH for (int j = 0; j < (columns); j++) y[j] = *(const Lanes *)(b + SMALL_LANES * j);     \
        EACH for (int i = 0; i < (rows); i++)                                                      \
            EACH for (int j = 0; j < (columns); j++) add(sum[i][j], a + i * s->a_row, y[j]);       \
    }                                                                                              \
    EACH for (int i = 0; i < (rows); i++)                                                          \
        EACH for (int j = 0; j < (columns); j++) {                                                 \
            Lanes *to = (Lanes *)(c + i * s->c_row + SMALL_LANES * j);                             \
            if (s->adds) sum[i][j] += *to;                                                         \
            *to = sum[i][j];                                                                       \
        }                                                                                          \
}
// clang-format on

/* A product out of four sizes of block: big ones of `rows` rows and `columns` lanes, and what
 * remains. */
typedef void Block(const Small *s, const float *a, const float *b, float *c);
typedef struct Blocks {
    int rows, columns;
    Block *whole, *low, *narrow, *one; /* low: one row; narrow: one column of lanes */
} Blocks;

static void multiply(const Blocks *blocks, const Small *s, const float *a, const float *b,
                     float *c) {
    int64_t lanes = small_padded(s->n) / SMALL_LANES;
    for (int64_t j = 0, columns; j < lanes; j += columns) {
        bool is_wide = lanes - j >= blocks->columns;
        columns = is_wide ? blocks->columns : 1;
        for (int64_t i = 0, rows; i < s->m; i += rows) {
            bool is_high = s->m - i >= blocks->rows;
            rows = is_high ? blocks->rows : 1;
            Block *block = is_wide   ? is_high ? blocks->whole : blocks->low
                           : is_high ? blocks->narrow
                                     : blocks->one;
            block(s, a + i * s->a_row, b + j * SMALL_LANES, c + i * s->c_row + j * SMALL_LANES);
        }
    }
}

#define ADD_FLOATS(sum, a, b) sum += b * *(a)

/* Four rows of one column: what fits sixteen registers of half the width. */
SMALL_BLOCK(floats_4x1, CPU_LEVELS, 4, 1, ADD_FLOATS)
SMALL_BLOCK(floats_1x1, CPU_LEVELS, 1, 1, ADD_FLOATS)

static void multiply_floats(const Small *s, const void *a, const void *b, float *c) {
    static const Blocks blocks = {4, 1, floats_4x1, floats_1x1, floats_4x1, floats_1x1};
    multiply(&blocks, s, a, b, c);
}

static void turn_words(const uint32_t *from, int64_t from_step, uint32_t *to, int64_t to_step) {
    for (int i = 0; i < SMALL_LANES; i++)
        for (int j = 0; j < SMALL_LANES; j++) to[j * to_step + i] = from[i * from_step + j];
}

static const SmallKind floats = {.name = "C",
                                 .per_word = 1,
                                 .depth = 1,
                                 .side = 64,
                                 .multiply = multiply_floats,
                                 .turn = turn_words};

#if defined(__x86_64__)
#define AVX512 __attribute__((target("avx2,fma,avx512f,avx512bw,avx512vl,avx512dq")))
/* In assembly: gcc 12 copies every sum at each turn around the intrinsic. */
#define ADD_PAIRS(sum, a, b)                                                                       \
    do {                                                                                           \
        Lanes total = sum;                                                                         \
        __asm__("vdpbf16ps %2, %1, %0" : "+v"(total) : "v"(_mm512_set1_ps(*(a))), "v"(b));         \
        sum = total;                                                                               \
    } while (0)

SMALL_BLOCK(wide_8x2, AVX512, 8, 2, ADD_FLOATS)
SMALL_BLOCK(wide_8x1, AVX512, 8, 1, ADD_FLOATS)
SMALL_BLOCK(wide_1x2, AVX512, 1, 2, ADD_FLOATS)
SMALL_BLOCK(wide_1x1, AVX512, 1, 1, ADD_FLOATS)
SMALL_BLOCK(pairs_8x2, CPU_PAIRS, 8, 2, ADD_PAIRS)
SMALL_BLOCK(pairs_8x1, CPU_PAIRS, 8, 1, ADD_PAIRS)
SMALL_BLOCK(pairs_1x2, CPU_PAIRS, 1, 2, ADD_PAIRS)
SMALL_BLOCK(pairs_1x1, CPU_PAIRS, 1, 1, ADD_PAIRS)

static void multiply_wide(const Small *s, const void *a, const void *b, float *c) {
    static const Blocks blocks = {8, 2, wide_8x2, wide_1x2, wide_8x1, wide_1x1};
    multiply(&blocks, s, a, b, c);
}

static void multiply_pairs(const Small *s, const void *a, const void *b, float *c) {
    static const Blocks blocks = {8, 2, pairs_8x2, pairs_1x2, pairs_8x1, pairs_1x1};
    multiply(&blocks, s, a, b, c);
}

/* A square of 16 is one of squares of 4. Loading turns the outer one: a register takes four of
 * every fourth row, and four such registers hold a column of squares, which shuffles turn side by
 * side. */
AVX512 void small_turn_wide(const uint32_t *from, int64_t from_step, uint32_t *to,
                            int64_t to_step) {
    enum { QUARTER = SMALL_LANES / 4 };
    const int64_t next = QUARTER * from_step; /* the same row of the next square */
    __m512i x[QUARTER][QUARTER];              /* [column of squares][row in a square] */
#pragma GCC unroll 4
    for (int i = 0; i < QUARTER; i++)
#pragma GCC unroll 4
        for (int j = 0; j < QUARTER; j++) {
            const uint32_t *at = from + i * from_step + QUARTER * j;
            __m512i row = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)at));
#pragma GCC unroll 3
            for (int lane = 1; lane < QUARTER; lane++) {
                const __m128i four = _mm_loadu_si128((const __m128i *)(at + lane * next));
                row = _mm512_mask_broadcast_i32x4(row, (__mmask16)(0xf << 4 * lane), four);
            }
            x[j][i] = row;
        }
#pragma GCC unroll 4
    for (int j = 0; j < QUARTER; j++, to += QUARTER * to_step) {
        __m512i a = _mm512_unpacklo_epi32(x[j][0], x[j][1]);
        __m512i b = _mm512_unpackhi_epi32(x[j][0], x[j][1]);
        __m512i c = _mm512_unpacklo_epi32(x[j][2], x[j][3]);
        __m512i d = _mm512_unpackhi_epi32(x[j][2], x[j][3]);
        _mm512_storeu_si512(to, _mm512_unpacklo_epi64(a, c));
        _mm512_storeu_si512(to + to_step, _mm512_unpackhi_epi64(a, c));
        _mm512_storeu_si512(to + 2 * to_step, _mm512_unpacklo_epi64(b, d));
        _mm512_storeu_si512(to + 3 * to_step, _mm512_unpackhi_epi64(b, d));
    }
}

const SmallKind small_wide = {.name = "AVX-512",
                              .per_word = 1,
                              .depth = 1,
                              .side = 64,
                              .multiply = multiply_wide,
                              .turn = small_turn_wide};
const SmallKind small_pairs = {.name = "AVX-512 bf16",
                               .per_word = 2,
                               .depth = 1,
                               .side = 64,
                               .multiply = multiply_pairs,
                               .turn = small_turn_wide};
#endif

int small_kinds(const MxDevice *device, const SmallKind *kinds[SMALL_KINDS]) {
    int n = 0;
    kinds[n++] = &floats;
#if defined(__x86_64__)
    if (device->has_avx512) kinds[n++] = &small_wide;
    if (device->has_bf16) kinds[n++] = &small_pairs;
    if (device->has_amx) kinds[n++] = &small_tiles;
#else
    (void)device;
#endif
    return n;
}

const SmallKind *small_kind(const MxDevice *device, MxDtype dtype) {
    const SmallKind *kinds[SMALL_KINDS];
    int n = small_kinds(device, kinds);
    bool takes_pairs = dtype == MX_BF16 && cpu_has_bf16_products(device);
    while (n > 1 && kinds[n - 1]->per_word == 2 && !takes_pairs) n--;
    return kinds[n - 1];
}

/* ---- packing */

static const MxBf16 *bf16_row(const SmallRows *rows, int64_t i) {
    return (const MxBf16 *)rows->data + i * rows->step;
}

static void float_row(const SmallRows *rows, int64_t i, float *to) {
    if (rows->dtype == MX_F32)
        memcpy(to, (const float *)rows->data + i * rows->step, (size_t)rows->width * sizeof *to);
    else
        cpu_widen(bf16_row(rows, i), rows->width, to);
}

/* The word of elements 2 w and 2 w + 1 of a row, zero beyond its end. */
static inline uint32_t pair_at(const MxBf16 *row, int64_t width, int64_t w) {
    return row[2 * w] | (2 * w + 1 < width ? (uint32_t)row[2 * w + 1] << 16 : 0);
}

/* Rows of bf16 that consist of pairs as they are. */
static bool are_pairs(const SmallRows *rows) {
    return rows->width % 2 == 0 && rows->step % 2 == 0 &&
           (uintptr_t)rows->data % sizeof(uint32_t) == 0;
}

SmallLeft small_pack_left(const SmallKind *kind, const SmallRows *rows, void *to) {
    if (kind->wants_rows && are_pairs(rows)) return (SmallLeft){rows->data, rows->step / 2, 1};
    int64_t step = small_left_step(kind, rows->width), last = small_words(kind, rows->width) - 1;
    for (int64_t i = 0; i < rows->n; i++)
        if (kind->per_word == 1) {
            float_row(rows, i, (float *)to + i * step);
        } else {
            uint32_t *out = (uint32_t *)to + i * step;
            memcpy(out, bf16_row(rows, i), (size_t)last * sizeof *out);
            out[last] = pair_at(bf16_row(rows, i), rows->width, last);
        }
    return (SmallLeft){to, step, 1};
}

CPU_LEVELS static void join_rows(int64_t n, const MxBf16 *low, const MxBf16 *high, uint32_t *to) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) to[i] = low[i] | (uint32_t)high[i] << 16;
}

void small_pack_right(const SmallKind *kind, const SmallRows *rows, void *to) {
    int64_t width = rows->width, step = small_padded(width);
    for (int64_t i = 0, w = 0; i < rows->n; i += kind->per_word, w++) {
        uint32_t *out = (uint32_t *)to + w * step;
        if (kind->per_word == 1)
            float_row(rows, i, (float *)to + w * step);
        else if (i + 1 < rows->n)
            join_rows(width, bf16_row(rows, i), bf16_row(rows, i + 1), out);
        else
            for (int64_t c = 0; c < width; c++) out[c] = bf16_row(rows, i)[c];
        memset(out + width, 0, (size_t)(step - width) * sizeof *out);
    }
}

void small_pack_turned(const SmallKind *kind, const SmallRows *rows, void *left, void *to) {
    int64_t words = small_words(kind, rows->width), n = rows->n;
    SmallLeft source = small_pack_left(kind, rows, left);
    int64_t step = source.row, to_step = small_padded(n);
    for (int64_t w = 0; w < words; w += SMALL_LANES)
        for (int64_t i = 0; i < n; i += SMALL_LANES) {
            const uint32_t *from = source.words + i * step + w;
            uint32_t *out = (uint32_t *)to + w * to_step + i;
            if (w + SMALL_LANES <= words && i + SMALL_LANES <= n)
                kind->turn(from, step, out, to_step);
            else
                for (int64_t j = 0; j < cpu_min(SMALL_LANES, words - w); j++)
                    for (int64_t l = 0; l < SMALL_LANES; l++)
                        out[j * to_step + l] = i + l < n ? from[l * step + j] : 0;
        }
}

SmallLeft small_pack_across(const SmallKind *kind, const SmallRows *rows, void *right, void *to) {
    int64_t step = small_padded(rows->width), words = small_words(kind, rows->n);
    small_pack_right(kind, rows, right);
    if (!kind->wants_rows) return (SmallLeft){right, 1, step};
    int64_t to_step = small_padded(words);
    memset((uint32_t *)right + words * step, 0, (size_t)((to_step - words) * step) * sizeof(float));
    for (int64_t w = 0; w < words; w += SMALL_LANES)
        for (int64_t i = 0; i < step; i += SMALL_LANES)
            kind->turn((uint32_t *)right + w * step + i, step, (uint32_t *)to + i * to_step + w,
                       to_step);
    return (SmallLeft){to, to_step, 1};
}
