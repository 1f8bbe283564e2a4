/* lora.c — merges adapters into the weights beside them: W + A B scale, its columns with the norms
 * that magnitudes say. */
#include "lora.h"

#include <math.h>

enum { CHUNK = 512 };

/* A B scale of m elements of one row, from column `at` on, rows of all experts counted through;
 * every sum is taken in f64. */
static void add_up(const CkptDelta *d, int64_t row, int64_t at, int64_t m, double sum[CHUNK]) {
    const float *first = d->b + row / d->rows * d->rank * d->columns + at;
    for (int64_t k = 0; k < m; k++) sum[k] = 0;
    for (int64_t r = 0; r < d->rank; r++) {
        double a = (double)d->a[row * d->rank + r];
        const float *b = first + r * d->columns;
        for (int64_t k = 0; k < m; k++) sum[k] += a * (double)b[k];
    }
    for (int64_t k = 0; k < m; k++) sum[k] *= d->scale;
}

/* Elements of one row, few enough for a chunk; returns how many they are, at most n. */
static int64_t next_chunk(const CkptDelta *d, int64_t first, int64_t n, double sum[CHUNK]) {
    int64_t at = first % d->columns, left = d->columns - at, m = n < left ? n : left;
    if (m > CHUNK) m = CHUNK;
    add_up(d, first / d->columns, at, m, sum);
    return m;
}

void ckpt_delta_merge(const CkptDelta *d, int64_t first, int64_t n, float *x, CkptDrift *drift) {
    double sum[CHUNK];
    for (int64_t m; n > 0; first += m, x += m, n -= m) {
        m = next_chunk(d, first, n, sum);
        const double *factor = d->factor ? d->factor + first % d->columns : NULL;
        for (int64_t k = 0; k < m; k++) { /* rounded once */
            double before = (double)x[k], exact = before + sum[k];
            if (factor) exact *= factor[k];
            x[k] = (float)exact;
            drift->delta += (exact - before) * (exact - before);
            drift->lost += ((double)x[k] - exact) * ((double)x[k] - exact);
        }
    }
}

bool ckpt_delta_replace(const CkptDelta *d, const MxBox *box, float *x, CkptDrift *drift,
                        MxError *err) {
    MxArena arena = {.name = "whole"};
    int64_t n = mx_box_count(box);
    float *whole = mx_new_n(&arena, float, n + 1);
    bool ok = ckpt_read_piece(d->file, d->whole, *box, MX_F32, whole, err);
    for (int64_t i = 0; ok && i < n; i++) {
        double change = (double)whole[i] - (double)x[i];
        drift->delta += change * change;
        x[i] = whole[i];
    }
    mx_arena_release(&arena);
    return ok;
}

/* Adds the squares of what elements are with A B, without factors, to those of their columns. */
static void add_squares(const CkptDelta *d, int64_t first, int64_t n, const float *x,
                        double *squares) {
    double sum[CHUNK];
    for (int64_t m; n > 0; first += m, x += m, n -= m) {
        m = next_chunk(d, first, n, sum);
        double *of = squares + first % d->columns;
        for (int64_t k = 0; k < m; k++) of[k] += ((double)x[k] + sum[k]) * ((double)x[k] + sum[k]);
    }
}

/* Every column has its magnitude as its norm. */
static bool find_factors(const CkptDelta *d, const char *weight, double *squares, MxError *err) {
    for (int64_t k = 0; k < d->columns; k++) {
        if (squares[k] == 0)
            return mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE,
                           "output %lld of \"%s\" is all 0 with its adapter: it has no direction "
                           "for its magnitude",
                           (long long)k, weight);
        squares[k] = (double)d->m[k] / sqrt(squares[k]);
    }
    return true;
}

bool ckpt_lora_measure(MxArena *arena, const CkptFile *file, const CkptPiece *piece,
                       const MxLeaf *weight, CkptDelta *delta, MxError *err) {
    if (!delta->m) return true;
    CkptTiles tiles;
    int64_t first = 0;
    double *squares = mx_new_n(arena, double, delta->columns);
    float *tile = mx_new_n(arena, float, CKPT_TILE_ELEMENTS);
    bool has_more = ckpt_tiles_start(&tiles, weight->shape, CKPT_TILE_ELEMENTS);
    for (; has_more; has_more = ckpt_tiles_next(&tiles)) {
        int64_t n = mx_box_count(&tiles.box);
        if (!ckpt_read_piece(file, piece, tiles.box, MX_F32, tile, err)) return false;
        add_squares(delta, first, n, tile, squares);
        first += n;
    }
    delta->factor = squares;
    return find_factors(delta, weight->path, squares, err);
}
