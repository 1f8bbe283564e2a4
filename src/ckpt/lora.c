/* lora.c — adapters merged into the weights beside them: W + A B scale. */
#include <mx/ckpt.h>

#include <math.h>

/* Adds one adapter; every sum is taken in f64 and rounded once. */
static void merge_one(const MxLeaf *w, const MxLeaf *a, const MxLeaf *b, double scale,
                      MxMergeDrift *drift) {
    int64_t rows = a->shape.dim[0], rank = a->shape.dim[1];
    int64_t columns = mx_shape_count(w->shape) / rows;
    float *x = w->data;
    const float *left = a->data, *right = b->data;
    for (int64_t i = 0; i < rows * columns; i++) {
        double delta = 0;
        for (int64_t r = 0; r < rank; r++)
            delta +=
                (double)left[i / columns * rank + r] * (double)right[r * columns + i % columns];
        double exact = (double)x[i] + scale * delta;
        x[i] = (float)exact;
        drift->delta += scale * delta * scale * delta;
        drift->lost += ((double)x[i] - exact) * ((double)x[i] - exact);
    }
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
