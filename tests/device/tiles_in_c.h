/* tiles_in_c.h — AMX's instructions in plain C, for processors that have none: a level of kernels
 * is compiled with this in front of each file (Makefile), and small_tiles.c then uses these. What
 * the manual forbids aborts: tiles used before they are configured, or other shapes than 16 x 64
 * bytes. */
#ifndef TILES_IN_C_H
#define TILES_IN_C_H

#include <stdint.h>
#include <string.h>

enum { TILES_IN_C = 8, TILE_ROWS = 16, TILE_WORDS = 16 };

typedef struct TilesInC {
    int is_open;
    uint32_t words[TILES_IN_C][TILE_ROWS][TILE_WORDS];
} TilesInC;
static _Thread_local TilesInC tiles_in_c __attribute__((unused));

/* Of ldtilecfg's 64 bytes: palette 1, bytes of a row from 16 on, rows from 48 on. */
__attribute__((unused)) static void tiles_in_c_open(const void *shapes) {
    uint8_t bytes[64];
    memcpy(bytes, shapes, sizeof bytes);
    if (bytes[0] != 1 || bytes[1]) __builtin_trap();
    for (int i = 0; i < TILES_IN_C; i++)
        if (bytes[16 + 2 * i] != 64 || bytes[17 + 2 * i] || bytes[48 + i] != TILE_ROWS)
            __builtin_trap();
    tiles_in_c.is_open = 1;
}

__attribute__((unused)) static uint32_t *tiles_in_c_row(int tile, int row) {
    if (!tiles_in_c.is_open) __builtin_trap();
    return tiles_in_c.words[tile][row];
}

/* step: in words. */
__attribute__((unused)) static void tiles_in_c_load(int tile, const void *from, int64_t step) {
    for (int i = 0; i < TILE_ROWS; i++)
        memcpy(tiles_in_c_row(tile, i), (const char *)from + 4 * i * step, 4 * TILE_WORDS);
}

__attribute__((unused)) static void tiles_in_c_store(int tile, void *to, int64_t step) {
    for (int i = 0; i < TILE_ROWS; i++)
        memcpy((char *)to + 4 * i * step, tiles_in_c_row(tile, i), 4 * TILE_WORDS);
}

static inline float tiles_in_c_half(uint32_t word, int half) {
    uint32_t bits = half ? word & 0xffff0000u : word << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* c += a b over pairs: odd halves first, then even ones, as the manual has it. */
__attribute__((unused)) static void tiles_in_c_add_product(int c, int a, int b) {
    for (int m = 0; m < TILE_ROWS; m++)
        for (int k = 0; k < TILE_WORDS; k++)
            for (int n = 0; n < TILE_WORDS; n++) {
                uint32_t x = tiles_in_c_row(a, m)[k], y = tiles_in_c_row(b, k)[n];
                float sum;
                memcpy(&sum, &tiles_in_c_row(c, m)[n], sizeof sum);
                sum += tiles_in_c_half(x, 1) * tiles_in_c_half(y, 1);
                sum += tiles_in_c_half(x, 0) * tiles_in_c_half(y, 0);
                memcpy(&tiles_in_c_row(c, m)[n], &sum, sizeof sum);
            }
}

#define TILES_OPEN(shapes)        tiles_in_c_open(shapes)
#define TILES_CLOSE()             (void)(tiles_in_c.is_open = 0)
#define TILE_ZERO(tile)           memset(tiles_in_c_row(tile, 0), 0, sizeof tiles_in_c.words[0])
#define TILE_LOAD(tile, x, step)  tiles_in_c_load(tile, x, step)
#define TILE_STORE(tile, x, step) tiles_in_c_store(tile, x, step)
#define TILE_ADD_PRODUCT(c, a, b) tiles_in_c_add_product(c, a, b)

#endif
