/* lora.c — merges adapters into the weights beside them: W + A B scale. */
#include "lora.h"

/* `n` elements of one row of W, from column `at` on, rows of all experts counted through; every sum
 * is taken in f64 and rounded once. */
static void add_to_row(const CkptDelta *d, int64_t row, int64_t at, int64_t n, float *x,
                       CkptDrift *drift) {
    enum { CHUNK = 512 };
    const float *first = d->b + row / d->rows * d->rank * d->columns + at;
    for (int64_t done = 0; done < n; done += CHUNK) {
        double sum[CHUNK] = {0};
        int64_t m = n - done < CHUNK ? n - done : CHUNK;
        for (int64_t r = 0; r < d->rank; r++) {
            double a = (double)d->a[row * d->rank + r];
            const float *b = first + r * d->columns + done;
            for (int64_t k = 0; k < m; k++) sum[k] += a * (double)b[k];
        }
        for (int64_t k = 0; k < m; k++) {
            double delta = d->scale * sum[k], exact = (double)x[done + k] + delta;
            x[done + k] = (float)exact;
            drift->delta += delta * delta;
            drift->lost += ((double)x[done + k] - exact) * ((double)x[done + k] - exact);
        }
    }
}

void ckpt_delta_add(const CkptDelta *d, int64_t first, int64_t n, float *x, CkptDrift *drift) {
    while (n > 0) {
        int64_t row = first / d->columns, at = first % d->columns;
        int64_t m = n < d->columns - at ? n : d->columns - at;
        add_to_row(d, row, at, m, x, drift);
        first += m;
        x += m;
        n -= m;
    }
}
