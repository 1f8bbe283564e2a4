/* profile.c — where the time of a run goes: a table of its ops, with the rates that they reach and
 * those that the machine has, and the measurement of the latter: a matrix product in each dtype,
 * and a sum of arrays larger than the caches of a CPU. */
#include "internal.h"

#include <stdlib.h>

static const double GIGA = 1e9;

/* ---- the machine */

enum { TRIES = 3 };
static const double TRY_S = 0.04;

/* Seconds of an entry that makes one value, the least of some tries. */
static bool time_entry(MxArena *arena, MxDevice *device, const MxVars *vars, MxGraph *graph,
                       double *out, MxError *err) {
    MxRun *run;
    if (!mx_run_open(arena, device, vars, &graph, 1, MX_REMAT_NONE, &run, err)) return false;
    mx_run_entry(run, 0);
    mx_device_sync(device);
    *out = 1;
    for (int t = 0; t < TRIES; t++) {
        int n = 0;
        double start = mx_clock_s(), end = start;
        for (; end - start < TRY_S; n++, end = mx_clock_s()) {
            mx_run_entry(run, 0);
            mx_device_sync(device);
        }
        if ((end - start) / n < *out) *out = (end - start) / n;
    }
    return true;
}

/* z = x y or x + y of square arrays. */
static bool time_square(MxDevice *device, MxDtype dtype, int64_t size, bool is_product,
                        double *seconds, MxError *err) {
    MxArena arena = {.name = "rates of this machine"};
    MxVars vars = {.arena = &arena};
    MxType type = {dtype, MX_SHAPE(size, size)};
    int x = mx_vars_add(&vars, "x", type), y = mx_vars_add(&vars, "y", type);
    int z = mx_vars_add(&vars, "z", type);
    MxGraph *graph = mx_graph_new(&arena, "rate", &vars);
    MxTrace t;
    mx_trace_begin(&t, graph);
    MxValue a = mx_variable(&t, x), b = mx_variable(&t, y);
    mx_trace_assign(&t, is_product ? mx_dot(&t, a, b, MX_DOT_NN, 1) : mx_add(&t, a, b), z, false);
    bool ok = mx_trace_end(&t, err) && time_entry(&arena, device, &vars, graph, seconds, err);
    mx_arena_release(&arena);
    return ok;
}

bool mx_run_rates(MxDevice *device, MxRunRates *out, MxError *err) {
    enum { PRODUCT = 768, SUM = 4096 };
    const double flops = 2.0 * PRODUCT * PRODUCT * PRODUCT, bytes = 3.0 * SUM * SUM * sizeof(float);
    double f32 = 1, bf16 = 1, sum = 1;
    bool ok = time_square(device, MX_F32, PRODUCT, true, &f32, err) &&
              time_square(device, MX_BF16, PRODUCT, true, &bf16, err) &&
              time_square(device, MX_F32, SUM, false, &sum, err);
    *out = (MxRunRates){flops / f32, flops / bf16, bytes / sum};
    return ok;
}

/* ---- the table */

double run_type_bytes(MxType type) {
    return (double)mx_shape_count(type.shape) * (double)mx_dtype_bytes(type.dtype);
}

static int dearer_first(const void *a, const void *b) {
    double x = ((const RunCost *)a)->seconds, y = ((const RunCost *)b)->seconds;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* The rates of one op; none of one whose kernels were not waited for. */
static void put_rates(const RunCost *cost, const MxRunRates *rates, MxText *out) {
    double flops = cost->flops[0] + cost->flops[1];
    double computes = cost->flops[0] / rates->f32_per_s + cost->flops[1] / rates->bf16_per_s;
    double moves = cost->bytes / rates->touched_per_s;
    if (flops > 0)
        mx_text_add(out, " %9.1f", flops / cost->seconds / GIGA);
    else
        mx_text_add(out, " %9s", "");
    mx_text_add(out, " %8.1f %6.0f%% %s\n", cost->bytes / cost->seconds / GIGA,
                100 * (computes > moves ? computes : moves) / cost->seconds,
                computes > moves ? "computing" : "memory");
}

void run_put_profile(RunCost *costs, int n, const MxRunRates *rates, MxText *out) {
    double total = 0;
    for (int i = 0; i < n; i++) total += costs[i].seconds;
    qsort(costs, (size_t)n, sizeof *costs, dearer_first);
    mx_text_add(out, "%-18s %9s %8s %6s %9s %8s %7s %s\n", "op", "seconds", "calls", "share",
                "GFLOP/s", "GB/s", "of peak", "bound by");
    for (int i = 0; i < n && costs[i].calls; i++) {
        mx_text_add(out, "%-18s %9.4f %8llu %5.1f%%", costs[i].name, costs[i].seconds,
                    (unsigned long long)costs[i].calls,
                    total > 0 ? 100 * costs[i].seconds / total : 0);
        if (costs[i].seconds > 0)
            put_rates(&costs[i], rates, out);
        else
            mx_text_add(out, "\n");
    }
    mx_text_add(out,
                "peak, measured now: products %.1f GFLOP/s in float32, %.1f in bfloat16; "
                "memory %.1f GB/s\n",
                rates->f32_per_s / GIGA, rates->bf16_per_s / GIGA, rates->touched_per_s / GIGA);
}
