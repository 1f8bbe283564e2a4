/* gguf_types.c — how GGUF files write the numbers of an array. Source: ggml/include/ggml.h
 * (ggml_type), ggml/src/ggml-common.h (block_q8_0); gguf-py/gguf/constants.py (LlamaFileType),
 * quants.py. */
#include <mx/store_gguf.h>

#include <math.h>

/* Rounded to even; above 65504 infinite. */
static uint16_t half_of(float x) {
    const uint32_t least_normal = 0x38800000, bias = 112u << 23;
    uint32_t bits, sign, half;
    memcpy(&bits, &x, sizeof bits);
    sign = bits >> 16 & 0x8000;
    bits &= 0x7fffffff;
    if (bits < least_normal)
        half = (uint32_t)lrintf(ldexpf(fabsf(x), 24));
    else
        half = (bits + 0xfff + (bits >> 13 & 1) - bias) >> 13;
    return (uint16_t)(sign | (half < 0x7c00 ? half : 0x7c00));
}

static bool put_half(float x, uint8_t *to) {
    uint16_t half = half_of(x);
    to[0] = (uint8_t)half;
    to[1] = (uint8_t)(half >> 8);
    return (half & 0x7fff) != 0x7c00;
}

static bool halves(const float *from, int64_t n, uint8_t *to) {
    bool fits = true;
    for (int64_t i = 0; i < n; i++) fits = put_half(from[i], to + 2 * i) && fits;
    return fits;
}

enum { BLOCK = 32, Q8_0_BYTES = 2 + BLOCK };

/* A scale, the largest magnitude over 127, and whole numbers of it. */
static bool blocks_of_8(const float *from, int64_t n, uint8_t *to) {
    bool fits = true;
    for (int64_t i = 0; i < n; i += BLOCK, to += Q8_0_BYTES) {
        float largest = 0;
        for (int k = 0; k < BLOCK; k++) largest = fmaxf(largest, fabsf(from[i + k]));
        const float scale = largest / 127, inverse = scale > 0 ? 1 / scale : 0;
        fits = put_half(scale, to) && fits;
        for (int k = 0; k < BLOCK; k++) {
            fits = fits && isfinite(from[i + k]);
            to[2 + k] = (uint8_t)(int8_t)lroundf(from[i + k] * inverse);
        }
    }
    return fits;
}

const MxGgufType mx_gguf_types[MX_GGUF_TYPES] = {
    [MX_GGUF_F32] = {"float32", 0, 0, MX_F32, 1, 4, NULL},
    [MX_GGUF_BF16] = {"bfloat16", 30, 32, MX_BF16, 1, 2, NULL},
    [MX_GGUF_F16] = {"float16", 1, 1, MX_F32, 1, 2, halves},
    [MX_GGUF_Q8_0] = {"q8_0", 8, 7, MX_F32, BLOCK, Q8_0_BYTES, blocks_of_8},
};

int64_t mx_gguf_bytes(MxGgufKind kind, int64_t n) {
    const MxGgufType *type = &mx_gguf_types[kind];
    MX_ASSERT(n % type->block == 0);
    return n / type->block * type->bytes;
}
