/* resize.c — bilinear resizing as Pillow does it: for each place of the wanted size the weights of
 * those that it covers, as whole numbers; then all rows, then all columns, each rounded to bytes.
 * Source: the algorithm of Pillow's Image.resize (src/libImaging/Resample.c, version 11). */
#include "internal.h"

#include <math.h>

enum { FRACTION_BITS = 22, CHANNELS = 3 };

/* Along one side. */
typedef struct Weights {
    int64_t *first, *n; /* [wanted] the first place that counts, and how many do */
    int32_t *weight;    /* [wanted, most] */
    int64_t most;
} Weights;

static double triangle(double x) {
    return fabs(x) < 1 ? 1 - fabs(x) : 0;
}

static Weights weigh(MxArena *arena, int64_t size, int64_t wanted) {
    double scale = (double)size / (double)wanted, reach = scale > 1 ? scale : 1;
    Weights w = {.most = (int64_t)ceil(reach) * 2 + 1};
    w.first = mx_new_n(arena, int64_t, wanted);
    w.n = mx_new_n(arena, int64_t, wanted);
    w.weight = mx_new_n(arena, int32_t, wanted * w.most);
    double *exact = mx_new_n(arena, double, w.most);
    for (int64_t i = 0; i < wanted; i++) {
        double center = ((double)i + 0.5) * scale, sum = 0;
        int64_t first = (int64_t)(center - reach + 0.5), end = (int64_t)(center + reach + 0.5);
        if (first < 0) first = 0;
        if (end > size) end = size;
        for (int64_t k = 0; k < end - first; k++) {
            exact[k] = triangle(((double)(k + first) - center + 0.5) / reach);
            sum += exact[k];
        }
        for (int64_t k = 0; k < end - first; k++)
            w.weight[i * w.most + k] = (int32_t)(0.5 + exact[k] / sum * (1 << FRACTION_BITS));
        w.first[i] = first;
        w.n[i] = end - first;
    }
    return w;
}

/* One place: of n others, `step` bytes apart. */
static void mix(const uint8_t *from, int64_t n, int64_t step, const int32_t *weight, uint8_t *to) {
    for (int c = 0; c < CHANNELS; c++) {
        int64_t sum = 1 << (FRACTION_BITS - 1);
        for (int64_t k = 0; k < n; k++) sum += (int64_t)from[k * step + c] * weight[k];
        sum >>= FRACTION_BITS;
        to[c] = (uint8_t)(sum > UINT8_MAX ? UINT8_MAX : sum);
    }
}

static void resize_rows(MxArena *arena, const uint8_t *from, MxImageSize size, uint8_t *to,
                        int64_t width) {
    Weights w = weigh(arena, size.width, width);
    for (int64_t y = 0; y < size.height; y++)
        for (int64_t x = 0; x < width; x++)
            mix(from + (y * size.width + w.first[x]) * CHANNELS, w.n[x], CHANNELS,
                w.weight + x * w.most, to + (y * width + x) * CHANNELS);
}

static void resize_columns(MxArena *arena, const uint8_t *from, MxImageSize size, uint8_t *to,
                           int64_t height) {
    Weights w = weigh(arena, size.height, height);
    int64_t row = size.width * CHANNELS;
    for (int64_t y = 0; y < height; y++)
        for (int64_t x = 0; x < size.width; x++)
            mix(from + w.first[y] * row + x * CHANNELS, w.n[y], row, w.weight + y * w.most,
                to + y * row + x * CHANNELS);
}

void mx_image_resize(const uint8_t *from, MxImageSize size, uint8_t *to, MxImageSize wanted) {
    MxArena arena = {.name = "picture"};
    MxImageSize between = {wanted.width, size.height};
    if (size.width != wanted.width) {
        uint8_t *rows = mx_new_n(&arena, uint8_t, between.width * between.height * CHANNELS);
        resize_rows(&arena, from, size, rows, wanted.width);
        from = rows;
    }
    if (size.height != wanted.height)
        resize_columns(&arena, from, between, to, wanted.height);
    else
        memcpy(to, from, (size_t)(wanted.width * wanted.height * CHANNELS));
    mx_arena_release(&arena);
}
