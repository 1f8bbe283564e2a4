/* small_tiles.c — products of pairs of bf16 on AMX: tiles of 16 rows of 16 words, 32 x 32 floats of
 * C at a time. Parts that do not fill tiles are left to vectors. The instructions are inline
 * assembly, because gcc 12's intrinsics do not tell the compiler that they access memory. */
#include "small.h"

#if defined(__AVX512BF16__)

enum { SIDE = SMALL_LANES, TILES = 8 };

/* tests/device/tiles_in_c.h has the same in C, for processors without. */
#if !defined(TILES_OPEN)
#define TILES_OPEN(shapes) __asm__ volatile("ldtilecfg %0" : : "m"(*(shapes)))
#define TILES_CLOSE()      __asm__ volatile("tilerelease" : :)
#define TILE_ZERO(tile)    __asm__ volatile("tilezero %%tmm" #tile : :)
#define TILE_LOAD(tile, from, step)                                                                \
    __asm__ volatile("tileloadd (%0,%1,4), %%tmm" #tile : : "r"(from), "r"(step) : "memory")
#define TILE_STORE(tile, to, step)                                                                 \
    __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,4)" : : "r"(to), "r"(step) : "memory")
#define TILE_ADD_PRODUCT(c, a, b)                                                                  \
    __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c : :)
#endif

/* What ldtilecfg reads: all eight tiles 16 x 64 bytes. */
typedef struct Shapes {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} Shapes;

static void open_tiles(void) {
    Shapes shapes = {.palette = 1};
    for (int i = 0; i < TILES; i++) {
        shapes.row_bytes[i] = SIDE * sizeof(float);
        shapes.rows[i] = SIDE;
    }
    TILES_OPEN(&shapes);
}

static void close_tiles(void) {
    TILES_CLOSE();
}

/* Tiles 0 to 3 are C, 4 and 5 A, 6 and 7 B. rows: of A and C, 16 or more; columns: of B and C. */
static void multiply_square(const Small *s, const int64_t rows_columns[2], const uint32_t *a,
                            const uint32_t *b, float *c) {
    bool is_high = rows_columns[0] > SIDE, is_wide = rows_columns[1] > SIDE;
    float *low = c + SIDE * s->c_row;
    TILE_ZERO(0);
    TILE_ZERO(1);
    TILE_ZERO(2);
    TILE_ZERO(3);
    if (s->adds) {
        TILE_LOAD(0, c, s->c_row);
        if (is_wide) TILE_LOAD(1, c + SIDE, s->c_row);
        if (is_high) TILE_LOAD(2, low, s->c_row);
        if (is_high && is_wide) TILE_LOAD(3, low + SIDE, s->c_row);
    }
    for (int64_t k = 0; k < s->k; k += SIDE) {
        const uint32_t *x = a + k, *y = b + k * s->b_row;
        TILE_LOAD(4, x, s->a_row);
        TILE_LOAD(6, y, s->b_row);
        TILE_ADD_PRODUCT(0, 4, 6);
        if (is_wide) {
            TILE_LOAD(7, y + SIDE, s->b_row);
            TILE_ADD_PRODUCT(1, 4, 7);
        }
        if (is_high) {
            TILE_LOAD(5, x + SIDE * s->a_row, s->a_row);
            TILE_ADD_PRODUCT(2, 5, 6);
            if (is_wide) TILE_ADD_PRODUCT(3, 5, 7);
        }
    }
    TILE_STORE(0, c, s->c_row);
    if (is_wide) TILE_STORE(1, c + SIDE, s->c_row);
    if (is_high) TILE_STORE(2, low, s->c_row);
    if (is_high && is_wide) TILE_STORE(3, low + SIDE, s->c_row);
}

/* Whole tiles: m and k are multiples of 16. */
static void multiply_whole(const Small *s, const uint32_t *a, const uint32_t *b, float *c) {
    int64_t lanes = small_padded(s->n);
    for (int64_t i = 0; i < s->m; i += 2 * SIDE)
        for (int64_t j = 0; j < lanes; j += 2 * SIDE) {
            const int64_t left[] = {s->m - i, lanes - j};
            multiply_square(s, left, a + i * s->a_row, b + j, c + i * s->c_row + j);
        }
}

static void multiply_tiles(const Small *s, const void *a, const void *b, float *c) {
    const uint32_t *x = a, *y = b;
    Small whole = *s, more = *s, low = *s;
    whole.m = s->m / SIDE * SIDE;
    whole.k = s->k / SIDE * SIDE;
    if (!whole.m || !whole.k || s->a_k != 1) {
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

const SmallKind small_tiles = {.name = "AMX",
                               .per_word = 2,
                               .depth = SIDE,
                               .side = SMALL_SIDE,
                               .rows = 2 * SIDE,
                               .columns = 2 * SIDE,
                               .wants_rows = true,
                               .multiply = multiply_tiles,
                               .open = open_tiles,
                               .close = close_tiles};
#endif
