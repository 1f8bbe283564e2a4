/* small.c — products of small matrices: blocks of C stay in registers while the loop over k runs,
 * and the packing of operands. */
#include "small.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* Vectors as wide as the level has them. */
#if defined(__AVX512F__)
enum { VECTOR_BYTES = 64 };
#elif defined(__AVX__)
enum { VECTOR_BYTES = 32 };
#else
enum { VECTOR_BYTES = 16 };
#endif

typedef float Vector __attribute__((vector_size(VECTOR_BYTES), aligned(4), may_alias));

enum {
    VECTOR_FLOATS = VECTOR_BYTES / sizeof(float),
    VECTORS = SMALL_LANES / VECTOR_FLOATS, /* of a column of lanes */
};

/* ---- blocks of C: `rows` rows of `columns` columns of lanes each. add(sum, a, b) adds the
 * products of the word at a with the lanes b. Rows of A are addressed from a pointer for every
 * third, which processors can do with one register for the step. EACH loop is unrolled by request:
 * gcc 12 does it too late to keep the sums from passing through the stack before and after. */

// clang-format off
#define EACH _Pragma("GCC unroll 32")
#define SMALL_BLOCK(name, rows, columns, add)                                                      \
static void name(const Small *s, const float *a, const float *b, float *c) {                       \
    enum { WIDE = (columns) * VECTORS };                                                           \
    const int64_t row = s->a_row, a_k = s->a_k, b_row = s->b_row, c_row = s->c_row;                \
    const float *third[((rows) + 2) / 3];                                                          \
    Vector sum[rows][WIDE];                                                                        \
    EACH for (int i = 0; i < (rows); i++)                                                          \
        EACH for (int j = 0; j < (columns); j++)                                                   \
            __builtin_prefetch(c + i * c_row + SMALL_LANES * j, 1);                                \
    EACH for (int i = 0; i < (rows); i++)                                                          \
        EACH for (int j = 0; j < WIDE; j++) sum[i][j] = (Vector){0};                               \
    EACH for (int i = 0; i < (rows); i += 3) third[i / 3] = a + i * row;                           \
    for (int64_t k = s->k; k > 0; k--, b += b_row) {                                               \
        Vector y[WIDE];                                                                            \
        EACH for (int j = 0; j < WIDE; j++) y[j] = *(const Vector *)(b + VECTOR_FLOATS * j);       \
        EACH for (int i = 0; i < (rows); i++)                                                      \
            EACH for (int j = 0; j < WIDE; j++) add(sum[i][j], third[i / 3] + i % 3 * row, y[j]);  \
        EACH for (int i = 0; i < (rows); i += 3) third[i / 3] += a_k;                              \
    }                                                                                              \
    if (s->adds)                                                                                   \
        EACH for (int i = 0; i < (rows); i++)                                                      \
            EACH for (int j = 0; j < WIDE; j++)                                                    \
                sum[i][j] += *(Vector *)(c + i * c_row + VECTOR_FLOATS * j);                       \
    EACH for (int i = 0; i < (rows); i++)                                                          \
        EACH for (int j = 0; j < WIDE; j++)                                                        \
            *(Vector *)(c + i * c_row + VECTOR_FLOATS * j) = sum[i][j];                            \
}
// clang-format on

/* A product out of blocks: what remains of rows is made by lower ones. */
typedef void Block(const Small *s, const float *a, const float *b, float *c);
typedef struct Blocks {
    int rows;
    Block *by_columns[2]; /* of one column of lanes, and of two; NULL = the level has no such */
} Blocks;

/* blocks: from the highest to those of one row. */
static void multiply(const Blocks *blocks, const Small *s, const float *a, const float *b,
                     float *c) {
    int64_t lanes = small_padded(s->n) / SMALL_LANES;
    for (int64_t j = 0, columns; j < lanes; j += columns) {
        columns = lanes - j >= 2 && blocks->by_columns[1] ? 2 : 1;
        const Blocks *high = blocks;
        for (int64_t i = 0; i < s->m; i += high->rows) {
            while (high->rows > s->m - i) high++;
            high->by_columns[columns - 1](s, a + i * s->a_row, b + j * SMALL_LANES,
                                          c + i * s->c_row + j * SMALL_LANES);
        }
    }
}

#define ADD_FLOATS(sum, a, b) sum += b * *(a)

/* As many sums as registers hold beside the lanes of B and a word of A: 28 of 32, 12 of 16. */
#if defined(__AVX512F__)
enum { ROWS = 14, COLUMNS = 2 * SMALL_LANES };
#define SMALL_BLOCKS(kind, add)                                                                    \
    SMALL_BLOCK(kind##_14x2, 14, 2, add)                                                           \
    SMALL_BLOCK(kind##_14x1, 14, 1, add)                                                           \
    SMALL_BLOCK(kind##_8x2, 8, 2, add)                                                             \
    SMALL_BLOCK(kind##_8x1, 8, 1, add)                                                             \
    SMALL_BLOCK(kind##_4x2, 4, 2, add)                                                             \
    SMALL_BLOCK(kind##_4x1, 4, 1, add)                                                             \
    SMALL_BLOCK(kind##_2x2, 2, 2, add)                                                             \
    SMALL_BLOCK(kind##_2x1, 2, 1, add)                                                             \
    SMALL_BLOCK(kind##_1x2, 1, 2, add)                                                             \
    SMALL_BLOCK(kind##_1x1, 1, 1, add)                                                             \
    static const Blocks kind##_blocks[] = {{14, {kind##_14x1, kind##_14x2}},                       \
                                           {8, {kind##_8x1, kind##_8x2}},                          \
                                           {4, {kind##_4x1, kind##_4x2}},                          \
                                           {2, {kind##_2x1, kind##_2x2}},                          \
                                           {1, {kind##_1x1, kind##_1x2}}};
SMALL_BLOCKS(floats, ADD_FLOATS)
#elif defined(__AVX__) || defined(__aarch64__)
enum { ROWS = 6, COLUMNS = SMALL_LANES };
SMALL_BLOCK(floats_6, 6, 1, ADD_FLOATS)
SMALL_BLOCK(floats_4, 4, 1, ADD_FLOATS)
SMALL_BLOCK(floats_2, 2, 1, ADD_FLOATS)
SMALL_BLOCK(floats_1, 1, 1, ADD_FLOATS)
static const Blocks floats_blocks[] = {
    {6, {floats_6}}, {4, {floats_4}}, {2, {floats_2}}, {1, {floats_1}}};
#else
enum { ROWS = 2, COLUMNS = SMALL_LANES };
SMALL_BLOCK(floats_2, 2, 1, ADD_FLOATS)
SMALL_BLOCK(floats_1, 1, 1, ADD_FLOATS)
static const Blocks floats_blocks[] = {{2, {floats_2}}, {1, {floats_1}}};
#endif

static void multiply_floats(const Small *s, const void *a, const void *b, float *c) {
    multiply(floats_blocks, s, a, b, c);
}

const SmallKind small_floats = {.name = "floats",
                                .per_word = 1,
                                .depth = 1,
                                .side = 64,
                                .rows = ROWS,
                                .columns = COLUMNS,
                                .multiply = multiply_floats};

#if defined(__AVX512BF16__)
/* In assembly: gcc 12 copies every sum at each turn around the intrinsic. */
#define ADD_PAIRS(sum, a, b)                                                                       \
    do {                                                                                           \
        Vector total = sum;                                                                        \
        __asm__("vdpbf16ps %2, %1, %0" : "+v"(total) : "v"(_mm512_set1_ps(*(a))), "v"(b));         \
        sum = total;                                                                               \
    } while (0)

SMALL_BLOCKS(pairs, ADD_PAIRS)

static void multiply_pairs(const Small *s, const void *a, const void *b, float *c) {
    multiply(pairs_blocks, s, a, b, c);
}

const SmallKind small_pairs = {.name = "pairs",
                               .per_word = 2,
                               .depth = 1,
                               .side = 64,
                               .rows = ROWS,
                               .columns = COLUMNS,
                               .multiply = multiply_pairs};
#endif

int small_kinds(const MxDevice *device, const SmallKind *kinds[SMALL_KINDS]) {
    int n = 0;
    kinds[n++] = &small_floats;
#if defined(__AVX512BF16__)
    kinds[n++] = &small_pairs;
    if (cpu_of(device)->level->has_tiles) kinds[n++] = &small_tiles;
#else
    (void)device;
#endif
    return n;
}

const SmallKind *small_kind_of_pairs(const MxDevice *device) {
#if defined(__AVX512BF16__)
    return cpu_of(device)->level->has_tiles ? &small_tiles : &small_pairs;
#else
    (void)device;
    return NULL;
#endif
}

const SmallKind *small_kind(const MxDevice *device, MxDtype dtype) {
    bool is_pair = dtype == MX_BF16 && cpu_multiplies_bf16(device);
    return is_pair ? small_kind_of_pairs(device) : &small_floats;
}

/* ---- turning */

#if defined(__AVX512F__)
/* A square of 16 is one of squares of 4. Loading turns the outer one: a register takes four of
 * every fourth row, and four such registers hold a column of squares, which shuffles turn side by
 * side. */
void small_turn(const uint32_t *from, int64_t from_step, uint32_t *to, int64_t to_step) {
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
#else
/* Squares of four, in which two steps of shuffles exchange rows and columns. */
typedef uint32_t Four __attribute__((vector_size(16), aligned(4), may_alias));

static inline void turn_four(const uint32_t *from, int64_t from_step, uint32_t *to,
                             int64_t to_step) {
    Four a = *(const Four *)from, b = *(const Four *)(from + from_step);
    Four c = *(const Four *)(from + 2 * from_step), d = *(const Four *)(from + 3 * from_step);
    Four ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
    Four ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    Four cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5);
    Four cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    *(Four *)to = __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5);
    *(Four *)(to + to_step) = __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7);
    *(Four *)(to + 2 * to_step) = __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5);
    *(Four *)(to + 3 * to_step) = __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7);
}

void small_turn(const uint32_t *from, int64_t from_step, uint32_t *to, int64_t to_step) {
    for (int i = 0; i < SMALL_LANES; i += 4)
        for (int j = 0; j < SMALL_LANES; j += 4)
            turn_four(from + i * from_step + j, from_step, to + j * to_step + i, to_step);
}
#endif

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

/* Words of lanes [at, at + SMALL_LANES) of row i or, where words are pairs, of rows i and i + 1; a
 * last row that is odd has none to pair with. */
static inline void lanes_of(const SmallKind *kind, const SmallRows *rows, int64_t i, int64_t at,
                            uint32_t *to) {
    if (rows->dtype == MX_F32) {
        memcpy(to, (const float *)rows->data + i * rows->step + at, SMALL_LANES * sizeof *to);
        return;
    }
    const MxBf16 *low = bf16_row(rows, i) + at;
    if (kind->per_word == 1 || i + 1 == rows->n) {
        const int shift = kind->per_word == 1 ? 16 : 0;
#pragma omp simd
        for (int lane = 0; lane < SMALL_LANES; lane++) to[lane] = (uint32_t)low[lane] << shift;
        return;
    }
    const MxBf16 *high = low + rows->step;
#pragma omp simd
    for (int lane = 0; lane < SMALL_LANES; lane++)
        to[lane] = low[lane] | (uint32_t)high[lane] << 16;
}

/* The lanes at the end of a row, of which there are `left`, and zeros. */
static void last_lanes_of(const SmallKind *kind, const SmallRows *rows, const int64_t i_at[2],
                          int64_t left, uint32_t *to) {
    uint32_t space[2 * SMALL_LANES] = {0};
    size_t bytes = mx_dtype_bytes(rows->dtype);
    SmallRows copy = {space, rows->dtype, cpu_min(2, rows->n - i_at[0]), SMALL_LANES, SMALL_LANES};
    for (int64_t row = 0; row < copy.n && row < kind->per_word; row++)
        memcpy((char *)space + (size_t)(row * SMALL_LANES) * bytes,
               (const char *)rows->data + (size_t)((i_at[0] + row) * rows->step + i_at[1]) * bytes,
               (size_t)left * bytes);
    lanes_of(kind, &copy, 0, 0, to);
}

void small_pack_right(const SmallKind *kind, const SmallRows *rows, void *to) {
    int64_t width = rows->width, step = small_padded(width);
    int64_t whole = width / SMALL_LANES * SMALL_LANES;
    uint32_t *out = to;
    for (int64_t i = 0; i < rows->n; i += kind->per_word, out += step) {
        for (int64_t at = 0; at < whole; at += SMALL_LANES) lanes_of(kind, rows, i, at, out + at);
        if (whole < width)
            last_lanes_of(kind, rows, (int64_t[]){i, whole}, width - whole, out + whole);
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
                small_turn(from, step, out, to_step);
            else
                for (int64_t j = 0; j < cpu_min(SMALL_LANES, words - w); j++)
                    for (int64_t l = 0; l < SMALL_LANES; l++)
                        out[j * to_step + l] = i + l < n ? from[l * step + j] : 0;
        }
}

SmallLeft small_pack_columns(const SmallKind *kind, const SmallRows *rows, void *right, void *to) {
    int64_t step = small_padded(rows->width), words = small_words(kind, rows->n);
    int64_t to_step = small_padded(words);
    small_pack_right(kind, rows, right);
    memset((uint32_t *)right + words * step, 0, (size_t)((to_step - words) * step) * sizeof(float));
    for (int64_t w = 0; w < words; w += SMALL_LANES)
        for (int64_t i = 0; i < step; i += SMALL_LANES)
            small_turn((uint32_t *)right + w * step + i, step, (uint32_t *)to + i * to_step + w,
                       to_step);
    return (SmallLeft){to, to_step, 1};
}

SmallLeft small_pack_across(const SmallKind *kind, const SmallRows *rows, void *right, void *to) {
    if (kind->wants_rows) return small_pack_columns(kind, rows, right, to);
    small_pack_right(kind, rows, right);
    return (SmallLeft){right, 1, small_padded(rows->width)};
}
