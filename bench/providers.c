/* providers.c — which provider multiplies best at a level of processors (MX_CPU), by shape:
 * OpenBLAS, oneDNN and our own products through the device room, so with what is converted for a
 * library. One thread, its own processor time, and the best of some runs each, in turn: what else
 * the machine does matters little. What matmul_provider=auto chooses stands on this
 * (docs/PROCESSORS.md).
 *
 *   providers f32|bf16     a line a shape, then means by class */
#include "common.h"
#include "device/cpu/cpu.h"

#include <stdio.h>
#include <time.h>

enum { ROUNDS = 7, MAP_BYTES = 64 << 20 };
static const double LARGE_FLOPS = 1e9;

static const struct {
    const char *name;
    MxMatmulProvider provider;
} providers[] = {
    {"OpenBLAS", MX_MATMUL_OPENBLAS},
    {"oneDNN", MX_MATMUL_ONEDNN},
    {"own", MX_MATMUL_OWN},
};
enum { PROVIDERS = MX_COUNT(providers), DIRECTIONS = 3, CLASSES = 2 };

/* Tokens, and a weight [in, out]. */
static const int64_t shapes[][3] = {
    {1024, 128, 128}, {1024, 128, 352}, {1024, 352, 128},  {2048, 256, 256},  {2048, 256, 704},
    {512, 768, 768},  {2048, 768, 768}, {2048, 768, 2048}, {2048, 2048, 768},
};

static CpuMatmulSpec spec_of(const int64_t shape[3], int direction, bool is_bf16) {
    const int64_t tokens = shape[0], in = shape[1], out = shape[2];
    const CpuMatmulSpec all[DIRECTIONS] = {
        {.m = tokens, .n = out, .k = in},
        {.m = tokens, .n = in, .k = out, .trans_b = true},
        {.m = in, .n = out, .k = tokens, .trans_a = true},
    };
    CpuMatmulSpec s = all[direction];
    s.in = is_bf16 ? MX_BF16 : MX_F32;
    s.out = is_bf16 && !s.trans_a ? MX_BF16 : MX_F32;
    return s;
}

typedef struct Run {
    const CpuKernels *kernels;
    const CpuMatmul *product;
    void *a, *b, *c, *scratch;
} Run;

static double processor_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double seconds_of(const Run *r) {
    double start = processor_s();
    r->kernels->multiply(r->product, r->a, r->b, r->c, r->scratch);
    return processor_s() - start;
}

typedef struct Bench {
    MxArena arena;
    MxDevice *device[PROVIDERS];
    Run run;
    double log_rates[CLASSES][PROVIDERS];
    int n[CLASSES];
} Bench;

static void open_bench(Bench *bench) {
    MxError err = {0};
    for (int p = 0; p < PROVIDERS; p++) {
        MxDeviceConfig config = {.n_threads = 1, .matmul = providers[p].provider};
        if (!mx_device_open(&bench->arena, &config, &bench->device[p], &err))
            bench_fail("%s", err.text.data);
    }
    void **arrays[] = {&bench->run.a, &bench->run.b, &bench->run.c, &bench->run.scratch};
    for (int i = 0; i < MX_COUNT(arrays); i++) {
        *arrays[i] = bench_map(2 * MAP_BYTES, true);
        bench_fill(*arrays[i], MAP_BYTES, (uint32_t)i + 1);
    }
}

static void time_shape(Bench *bench, const CpuMatmulSpec *s) {
    double flops = 2.0 * (double)s->m * (double)s->n * (double)s->k, best[PROVIDERS] = {0};
    int class = flops >= LARGE_FLOPS, winner = 0;
    MxError err = {0};
    for (int round = 0; round < ROUNDS; round++)
        for (int p = 0; p < PROVIDERS; p++) {
            MxDevice *device = bench->device[p];
            bench->run.kernels = cpu_of(device)->level->kernels;
            bench->run.product = bench->run.kernels->prepare(device, *s, &err);
            if (!bench->run.product) bench_fail("%s", err.text.data);
            MX_ASSERT(bench->run.kernels->scratch(device, *s) <= 2 * MAP_BYTES);
            double rate = flops / seconds_of(&bench->run) * 1e-9;
            if (round && rate > best[p]) best[p] = rate; /* the first is to warm up */
        }
    printf("%6lld %6lld %6lld %s", (long long)s->m, (long long)s->n, (long long)s->k,
           s->trans_a   ? "tn"
           : s->trans_b ? "nt"
                        : "nn");
    for (int p = 0; p < PROVIDERS; p++) {
        printf("  %s %.0f", providers[p].name, best[p]);
        bench->log_rates[class][p] += __builtin_log(best[p]);
        if (best[p] > best[winner]) winner = p;
    }
    bench->n[class]++;
    printf("  best %s\n", providers[winner].name);
}

int main(int argc, char **argv) {
    static Bench bench = {.arena = {.name = "bench"}};
    bool is_bf16 = argc > 1 && !strcmp(argv[1], "bf16");
    if (argc != 2 || (!is_bf16 && strcmp(argv[1], "f32"))) bench_fail("usage: providers f32|bf16");
    open_bench(&bench);
    printf("%s; GFLOP/s\n", mx_device_describe(bench.device[0]));
    for (int i = 0; i < MX_COUNT(shapes); i++)
        for (int direction = 0; direction < DIRECTIONS; direction++) {
            CpuMatmulSpec spec = spec_of(shapes[i], direction, is_bf16);
            time_shape(&bench, &spec);
        }
    for (int class = 0; class < CLASSES; class ++) {
        printf("%s", class ? "from 1e9 operations on:" : "less than 1e9 operations:");
        for (int p = 0; p < PROVIDERS; p++)
            printf("  %s %.0f", providers[p].name,
                   __builtin_exp(bench.log_rates[class][p] / bench.n[class]));
        printf("\n");
    }
    mx_arena_release(&bench.arena);
    return 0;
}
