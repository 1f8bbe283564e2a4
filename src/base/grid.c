/* grid.c — the grids of numbers to which operands of quantised products are rounded: integers, or
 * floats of 4 or 8 bits. Floats represent all of them exactly. */
#include <mx/base.h>

#include <math.h>

/* Of integers every number below 2^(bits + 1) is as far from the next as those at `exponent`. */
const MxGridRow mx_grids[MX_GRID_COUNT] = {
    [MX_GRID_INT4] = {"int4", .bound = 7.5f, .least = -8, .most = 7, .bits = 3, .exponent = 3,
                      .width = 4, .is_whole = true},
    [MX_GRID_INT8] = {"int8", .bound = 127.5f, .least = -128, .most = 127, .bits = 7, .exponent = 7,
                      .width = 8, .is_whole = true},
    [MX_GRID_E2M1] = {"fp4_e2m1", .bound = 6, .least = -6, .most = 6, .bits = 1, .exponent = 0,
                      .width = 4},
    [MX_GRID_E4M3] = {"fp8_e4m3", .bound = 448, .least = -448, .most = 448, .bits = 3,
                      .exponent = -6, .width = 8},
    [MX_GRID_E5M2] = {"fp8_e5m2", .bound = 57344, .least = -57344, .most = 57344, .bits = 2,
                      .exponent = -14, .width = 8},
};

float mx_grid_scale(MxGrid grid, float magnitude) {
    float scale = magnitude * (1 / mx_grids[grid].bound);
    return scale < MX_LEAST_SCALE ? 1 : scale;
}

/* A number much larger than x is added and taken away again: one whose last bit counts as much as
 * numbers of the grid near x are apart. */
void mx_grid_round(MxGrid grid, const float *x, int64_t n, float *y) {
    enum { MANTISSA = 23, BIAS = 127 };
    const MxGridRow g = mx_grids[grid];
    const uint32_t exponents = 0xffu << MANTISSA, half = 1u << (MANTISSA - 1);
    const uint32_t least = (uint32_t)(g.exponent + BIAS) << MANTISSA;
    const uint32_t up = (uint32_t)(MANTISSA - g.bits) << MANTISSA;
    for (int64_t i = 0; i < n; i++) {
        uint32_t word;
        float large, z = x[i];
        memcpy(&word, &z, sizeof word);
        word &= exponents;
        word = (word > least ? word : least) + up;
        word |= half;
        memcpy(&large, &word, sizeof large);
        z = (z + large) - large;
        z = z < g.least ? g.least : z;
        y[i] = z > g.most ? g.most : z;
    }
}

unsigned mx_grid_code(MxGrid grid, float y) {
    enum { MANTISSA = 23, BIAS = 127 };
    const MxGridRow *g = &mx_grids[grid];
    const unsigned all = (1u << g->width) - 1;
    uint32_t word;
    if (!(fabsf(y) <= -g->least)) return 0; /* no number */
    if (g->is_whole) return (unsigned)(int)y & all;
    memcpy(&word, &y, sizeof word);
    int exponent = (int)(word >> MANTISSA & 0xff) - BIAS;
    unsigned sign = word >> 31 << (g->width - 1), fraction = word & ((1u << MANTISSA) - 1);
    if (exponent < g->exponent) /* so many of the least there are */
        return sign | (unsigned)ldexpf(fabsf(y), g->bits - g->exponent);
    return sign | (unsigned)(exponent - g->exponent + 1) << g->bits |
           fraction >> (MANTISSA - g->bits);
}
