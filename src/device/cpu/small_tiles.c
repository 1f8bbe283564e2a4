/* small_tiles.c — products of pairs of bf16 on AMX: tiles of 16 rows of 16 words, 32 x 32 floats of
 * C at a time. What does not fill tiles is left to vectors. The instructions are written out: what
 * gcc 12 has for them does not tell it that they touch memory. */
#include "small.h"

#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>

enum { SIDE = SMALL_LANES, TILES = 8, MOST_WORDS = 256 };

/* What ldtilecfg reads: all eight tiles 16 x 64 bytes. */
typedef struct Shapes {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} Shapes;

static void shape_tiles(void) {
    Shapes shapes = {.palette = 1};
    for (int i = 0; i < TILES; i++) {
        shapes.row_bytes[i] = SIDE * sizeof(float);
        shapes.rows[i] = SIDE;
    }
    __asm__ volatile("ldtilecfg %0" : : "m"(shapes));
}

#define ZERO(tile) __asm__ volatile("tilezero %%tmm" #tile : :)
#define LOAD(tile, from, step)                                                                     \
    __asm__ volatile("tileloadd (%0,%1,4), %%tmm" #tile : : "r"(from), "r"(step) : "memory")
#define STORE(tile, to, step)                                                                      \
    __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,4)" : : "r"(to), "r"(step) : "memory")
#define ADD_PRODUCT(c, a, b) __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c : :)

/* A [rows, k] with `step` words between rows, which are 16 or 32; B as in Small. */
typedef struct Strip {
    const uint32_t *a;
    int64_t rows, step;
} Strip;

/* Tiles 0 to 3 are C, 4 and 5 A, 6 and 7 B. out: [32][32]. */
static void multiply_strip(const Small *s, const Strip *strip, const uint32_t *b, int64_t columns,
                           float *out) {
    bool is_high = strip->rows > SIDE, is_wide = columns > SIDE;
    ZERO(0);
    ZERO(1);
    ZERO(2);
    ZERO(3);
    for (int64_t k = 0; k < s->k; k += SIDE) {
        const uint32_t *y = b + k * s->b_row, *x = strip->a + k;
        LOAD(4, x, strip->step);
        LOAD(6, y, s->b_row);
        ADD_PRODUCT(0, 4, 6);
        if (is_wide) {
            LOAD(7, y + SIDE, s->b_row);
            ADD_PRODUCT(1, 4, 7);
        }
        if (is_high) {
            LOAD(5, x + SIDE * strip->step, strip->step);
            ADD_PRODUCT(2, 5, 6);
            if (is_wide) ADD_PRODUCT(3, 5, 7);
        }
    }
    const int64_t step = 2 * SIDE;
    STORE(0, out, step);
    STORE(1, out + SIDE, step);
    STORE(2, out + SIDE * step, step);
    STORE(3, out + SIDE * step + SIDE, step);
}

CPU_LEVELS static void store_strip(const Small *s, int64_t rows, int64_t columns, const float *from,
                                   float *c) {
    for (int64_t i = 0; i < rows; i++) {
        const float *x = from + i * 2 * SIDE;
        float *y = c + i * s->c_row, alpha = s->alpha;
        if (s->adds)
#pragma omp simd
            for (int64_t j = 0; j < columns; j++) y[j] += alpha * x[j];
        else
#pragma omp simd
            for (int64_t j = 0; j < columns; j++) y[j] = alpha * x[j];
    }
}

/* Whole tiles: m and k are multiples of 16. */
static void multiply_whole(const Small *s, const uint32_t *a, const uint32_t *b, float *c) {
    _Alignas(CPU_ALIGN) uint32_t turned[2 * SIDE * MOST_WORDS];
    _Alignas(CPU_ALIGN) float out[2 * SIDE * 2 * SIDE];
    int64_t lanes = small_padded(s->n);
    shape_tiles();
    for (int64_t i = 0; i < s->m; i += 2 * SIDE) {
        Strip strip = {a + i * s->a_row, cpu_min(2 * SIDE, s->m - i), s->a_row};
        if (s->a_k != 1) {
            for (int64_t row = 0; row < strip.rows; row += SIDE)
                for (int64_t k = 0; k < s->k; k += SIDE)
                    small_turn_wide(strip.a + row + k * s->a_k, s->a_k, turned + row * s->k + k,
                                    s->k);
            strip.a = turned;
            strip.step = s->k;
        }
        for (int64_t j = 0; j < lanes; j += 2 * SIDE) {
            int64_t columns = cpu_min(2 * SIDE, lanes - j);
            multiply_strip(s, &strip, b + j, columns, out);
            store_strip(s, strip.rows, columns, out, c + i * s->c_row + j);
        }
    }
    __asm__ volatile("tilerelease" : :);
}

static void multiply_tiles(const Small *s, const void *a, const void *b, float *c) {
    const uint32_t *x = a, *y = b;
    Small whole = *s, more = *s, low = *s;
    whole.m = s->m / SIDE * SIDE;
    whole.k = s->k / SIDE * SIDE;
    bool can = whole.m && whole.k && whole.k <= MOST_WORDS && (s->a_k == 1 || s->a_row == 1);
    if (!can) {
        small_pairs.multiply(s, a, b, c);
        return;
    }
    multiply_whole(&whole, x, y, c);
    more.m = whole.m;
    more.k = s->k - whole.k;
    more.adds = true;
    if (more.k) small_pairs.multiply(&more, x + whole.k * s->a_k, y + whole.k * s->b_row, c);
    low.m = s->m - whole.m;
    if (low.m) small_pairs.multiply(&low, x + whole.m * s->a_row, b, c + whole.m * s->c_row);
}

/* Linux gives a process the registers when it asks. */
bool small_tiles_open(void) {
    enum { ASK_FOR_STATE = 0x1023, TILE_DATA = 18 };
    return syscall(SYS_arch_prctl, ASK_FOR_STATE, TILE_DATA) == 0;
}

const SmallKind small_tiles = {
    .name = "AMX", .per_word = 2, .multiply = multiply_tiles, .turn = small_turn_wide};
#else
bool small_tiles_open(void) {
    return false;
}
#endif
