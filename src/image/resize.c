/* resize.c — bilinear and bicubic resizing as Pillow and torchvision do it: for each place of the
 * wanted size the weights of those that it covers, as whole numbers; then all rows, then all
 * columns, each rounded to bytes. Source: the algorithm of Pillow's Image.resize
 * (src/libImaging/Resample.c, version 11), and of PyTorch 2 (ATen/native/cpu/UpSampleKernel.cpp,
 * weights of 16 bits). */
#include "internal.h"

#include <math.h>

enum { PILLOW_BITS = 22, SHORT_BITS = 15, CHANNELS = 3 };

/* Along one side. */
typedef struct Weights {
    int64_t *first, *n; /* [wanted] the first place that counts, and how many do */
    int32_t *weight;    /* [wanted, most] */
    int64_t most;
    int bits; /* behind the point of a weight */
} Weights;

static double triangle(double x) {
    return fabs(x) < 1 ? 1 - fabs(x) : 0;
}

/* Source: Keys 1981, with -1/2. */
static double cubic(double x) {
    const double a = -0.5, y = fabs(x);
    if (y < 1) return ((a + 2) * y - (a + 3)) * y * y + 1;
    return y < 2 ? (((y - 5) * y + 8) * y - 4) * a : 0;
}

static const struct {
    double (*weight)(double x);
    double reach;
} filters[] = {[false] = {triangle, 1}, [true] = {cubic, 2}};

/* As many as leave the largest weight below 2^15. */
static int bits_for(MxImageWeights kind, double largest) {
    int bits = 0;
    if (kind == MX_IMAGE_WEIGHTS_22) return PILLOW_BITS;
    while (bits < PILLOW_BITS && (int)(0.5 + largest * (1 << (bits + 1))) < 1 << SHORT_BITS) bits++;
    return bits;
}

static int32_t round_weight(double weight, int bits) {
    double scaled = weight * (1 << bits);
    return (int32_t)(scaled < 0 ? scaled - 0.5 : scaled + 0.5);
}

static void round_weights(MxImageWeights kind, const double *exact, int64_t n, Weights *w) {
    double largest = 0;
    for (int64_t i = 0; i < n; i++) largest = fmax(largest, exact[i]);
    w->bits = bits_for(kind, largest);
    for (int64_t i = 0; i < n; i++) w->weight[i] = round_weight(exact[i], w->bits);
}

static Weights weigh(MxArena *arena, int64_t size, int64_t wanted, const MxImageCanvas *how) {
    double scale = (double)size / (double)wanted, wide = scale > 1 ? scale : 1;
    double reach = filters[how->is_cubic].reach * wide;
    Weights w = {.most = (int64_t)ceil(reach) * 2 + 1};
    w.first = mx_new_n(arena, int64_t, wanted);
    w.n = mx_new_n(arena, int64_t, wanted);
    w.weight = mx_new_n(arena, int32_t, wanted * w.most);
    double *all = mx_new_n(arena, double, wanted *w.most);
    for (int64_t i = 0; i < wanted; i++) {
        double *exact = all + i * w.most;
        double center = ((double)i + 0.5) * scale, sum = 0;
        int64_t first = (int64_t)(center - reach + 0.5), end = (int64_t)(center + reach + 0.5);
        if (first < 0) first = 0;
        if (end > size) end = size;
        for (int64_t k = 0; k < end - first; k++) {
            exact[k] = filters[how->is_cubic].weight(((double)(k + first) - center + 0.5) / wide);
            sum += exact[k];
        }
        for (int64_t k = 0; k < end - first; k++) exact[k] /= sum;
        w.first[i] = first;
        w.n[i] = end - first;
    }
    round_weights(how->weights, all, wanted * w.most, &w);
    return w;
}

/* Place i: of others, `step` bytes apart. */
static void mix(const Weights *w, int64_t i, const uint8_t *from, int64_t step, uint8_t *to) {
    const int32_t *weight = w->weight + i * w->most;
    for (int c = 0; c < CHANNELS; c++) {
        int64_t sum = INT64_C(1) << w->bits >> 1;
        for (int64_t k = 0; k < w->n[i]; k++) sum += (int64_t)from[k * step + c] * weight[k];
        sum >>= w->bits;
        to[c] = (uint8_t)(sum > UINT8_MAX ? UINT8_MAX : sum < 0 ? 0 : sum);
    }
}

static void resize_rows(const Weights *w, const uint8_t *from, MxImageSize size, uint8_t *to,
                        int64_t width) {
    for (int64_t y = 0; y < size.height; y++)
        for (int64_t x = 0; x < width; x++)
            mix(w, x, from + (y * size.width + w->first[x]) * CHANNELS, CHANNELS,
                to + (y * width + x) * CHANNELS);
}

/* to_row: bytes from a row of the result to the next. */
static void resize_columns(const Weights *w, const uint8_t *from, MxImageSize wanted, uint8_t *to,
                           int64_t to_row) {
    int64_t row = wanted.width * CHANNELS;
    for (int64_t y = 0; y < wanted.height; y++)
        for (int64_t x = 0; x < wanted.width; x++)
            mix(w, y, from + w->first[y] * row + x * CHANNELS, row, to + y * to_row + x * CHANNELS);
}

void mx_image_resize(const uint8_t *from, MxImageSize size, uint8_t *to, MxImageCanvas how) {
    MxArena arena = {.name = "picture"};
    const MxImageSize wanted = how.picture, between = {wanted.width, size.height};
    const int64_t row = wanted.width * CHANNELS, to_row = how.canvas.width * CHANNELS;
    memset(to, 0, (size_t)(to_row * how.canvas.height));
    if (size.width != wanted.width) {
        Weights w = weigh(&arena, size.width, wanted.width, &how);
        uint8_t *rows = mx_new_n(&arena, uint8_t, between.height * row);
        resize_rows(&w, from, size, rows, wanted.width);
        from = rows;
    }
    if (size.height != wanted.height) {
        Weights w = weigh(&arena, size.height, wanted.height, &how);
        resize_columns(&w, from, wanted, to, to_row);
    }
    for (int64_t y = 0; size.height == wanted.height && y < wanted.height; y++)
        memcpy(to + y * to_row, from + y * row, (size_t)row);
    mx_arena_release(&arena);
}
