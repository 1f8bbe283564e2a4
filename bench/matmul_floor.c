/* matmul_floor.c — how long a workload's matrix products take when nothing else is done: forward,
 * gradient of the input and gradient of the weight of every projection and of the output head, each
 * by the library that is best at the shape, medians over random operands. Attention's own products
 * are not among them. It is a program of its own, run in turn with training.
 *
 *   matmul_floor WORKLOAD f32|bf16 [THREADS]     a line a shape, then "floor SECONDS"
 *   matmul_floor --versions                      the libraries
 *
 * bf16: operands and results are bfloat16, but gradients of weights are float32. Where neither
 * library multiplies bfloat16, floats are the floor. */
#include "product.h"

#include <stdio.h>
#include <string.h>

enum { MAX_LAYERS = 4 };

/* One kind of weight [k, n] and how many a model has. */
typedef struct Weight {
    int k, n, count;
} Weight;

typedef struct Workload {
    const char *name;
    int tokens;
    Weight weights[MAX_LAYERS];
} Workload;

// clang-format off
static const Workload workloads[] = {
    {"w1", 2048, {{768, 768, 4 * 12}, {768, 2048, 2 * 12}, {2048, 768, 12}, {768, 32000, 1}}},
    {"w3", 1024, {{128, 128, 4 * 4},  {128, 352, 2 * 4},   {352, 128, 4},   {128, 256, 1}}},
};
// clang-format on

enum { WORKLOADS = (int)(sizeof workloads / sizeof *workloads), DIRECTIONS = 3 };

static Product product_of(const Workload *w, const Weight *weight, int direction, bool is_bf16) {
    const Product all[DIRECTIONS] = {
        {.m = w->tokens, .n = weight->n, .k = weight->k, .is_bf16_out = is_bf16},
        {.m = w->tokens, .n = weight->k, .k = weight->n, .trans_b = true, .is_bf16_out = is_bf16},
        {.m = weight->k, .n = weight->n, .k = w->tokens, .trans_a = true},
    };
    Product product = all[direction];
    product.is_bf16 = is_bf16;
    return product;
}

/* Seconds of the best library; prints the line of the shape. */
static double best_seconds(const Product *p, int count, const Operands *operands) {
    double best = 0;
    Library which = LIBRARY_ONEDNN;
    printf("%6d %6d %6d %s%s x%-3d", p->m, p->n, p->k, p->trans_a ? "t" : "n",
           p->trans_b ? "t" : "n", count);
    for (int library = 0; library < LIBRARY_COUNT; library++) {
        if (!product_can(p, (Library)library)) continue;
        double seconds = product_time(p, (Library)library, operands).median_s;
        printf("  %s %.3f ms %.0f GFLOP/s", library_names[library], 1e3 * seconds,
               product_flops(p) / seconds * 1e-9);
        if (best == 0 || seconds < best) {
            best = seconds;
            which = (Library)library;
        }
    }
    printf("  best %s\n", library_names[which]);
    return best;
}

static double floor_seconds(const Workload *w, bool is_bf16) {
    size_t cells = 0;
    double total = 0;
    for (int i = 0; i < MAX_LAYERS; i++) {
        size_t k = (size_t)w->weights[i].k, n = (size_t)w->weights[i].n, tokens = (size_t)w->tokens;
        const size_t sizes[] = {tokens * k, tokens * n, k * n};
        for (int j = 0; j < 3; j++) cells = sizes[j] > cells ? sizes[j] : cells;
    }
    Operands operands = product_operands(cells);
    for (int i = 0; i < MAX_LAYERS; i++)
        for (int d = 0; d < DIRECTIONS; d++) {
            Product product = product_of(w, &w->weights[i], d, is_bf16);
            total += best_seconds(&product, w->weights[i].count, &operands) * w->weights[i].count;
        }
    return total;
}

int main(int argc, char **argv) {
    enum { VERSION_BYTES = 400 };
    char versions[VERSION_BYTES];
    product_versions(versions, sizeof versions);
    if (argc == 2 && !strcmp(argv[1], "--versions")) return puts(versions) < 0;
    bool is_bf16 = argc > 2 && !strcmp(argv[2], "bf16");
    if (argc < 3 || argc > 4 || (!is_bf16 && strcmp(argv[2], "f32")))
        bench_fail("usage: matmul_floor w1|w3 f32|bf16 [THREADS]");
    is_bf16 = is_bf16 && product_has_bf16();
    bench_threads(argc > 3 ? (int)bench_positive(argv[3], "THREADS") : 0);
    for (int i = 0; i < WORKLOADS; i++) {
        if (strcmp(workloads[i].name, argv[1])) continue;
        return printf("floor %.6f\n", floor_seconds(&workloads[i], is_bf16)) < 0;
    }
    bench_fail("unrecognized workload \"%s\"; known: w1, w3", argv[1]);
}
