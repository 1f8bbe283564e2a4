/* lora.c — adapters merged into the weights beside them: W + A B scale. */
#include "lora.h"

#include <math.h>

/* `n` elements of one row of W, from column `at` on; every sum is taken in f64 and rounded once. */
static void add_to_row(const CkptDelta *d, int64_t row, int64_t at, int64_t n, float *x,
                       MxMergeDrift *drift) {
    enum { CHUNK = 512 };
    for (int64_t done = 0; done < n; done += CHUNK) {
        double sum[CHUNK] = {0};
        int64_t m = n - done < CHUNK ? n - done : CHUNK;
        for (int64_t r = 0; r < d->rank; r++) {
            double a = (double)d->a[row * d->rank + r];
            const float *b = &d->b[r * d->columns + at + done];
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

void ckpt_delta_add(const CkptDelta *d, int64_t first, int64_t n, float *x, MxMergeDrift *drift) {
    while (n > 0) {
        int64_t row = first / d->columns, at = first % d->columns;
        int64_t m = n < d->columns - at ? n : d->columns - at;
        add_to_row(d, row, at, m, x, drift);
        first += m;
        x += m;
        n -= m;
    }
}

static void merge_one(const MxLeaf *w, const MxLeaf *a, const MxLeaf *b, double scale,
                      MxMergeDrift *drift) {
    MxArena arena = {.name = "merge"};
    int64_t n = mx_shape_count(w->shape);
    CkptDelta d = {.a = mx_leaf_values(&arena, a),
                   .b = mx_leaf_values(&arena, b),
                   .rank = a->shape.dim[1],
                   .columns = n / a->shape.dim[0],
                   .scale = scale};
    float *merged = mx_new_n(&arena, float, n);
    mx_leaf_read(w, merged);
    ckpt_delta_add(&d, 0, n, merged, drift);
    mx_leaf_write(w, merged);
    mx_arena_release(&arena);
}

MxMergeDrift mx_lora_merge(MxTree *tree, double scale) {
    static const char suffix[] = "_lora_a";
    MxArena arena = {.name = "merge"};
    MxMergeDrift drift = {0};
    for (int i = 0; i < tree->n; i++) {
        const char *path = tree->leaves[i].path;
        if (tree->leaves[i].kind != MX_KIND_LORA_PARAM || !mx_text_has_suffix(path, suffix))
            continue;
        const char *base = mx_arena_strndup(&arena, path, strlen(path) - strlen(suffix));
        int w = mx_tree_find(tree, base);
        int b = mx_tree_find(tree, mx_arena_printf(&arena, "%s_lora_b", base));
        MX_ASSERT(w >= 0 && b >= 0);
        merge_one(&tree->leaves[w], &tree->leaves[i], &tree->leaves[b], scale, &drift);
        drift.n_merged++;
    }
    mx_arena_release(&arena);
    drift.delta = sqrt(drift.delta);
    drift.lost = sqrt(drift.lost);
    return drift;
}
