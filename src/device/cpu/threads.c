/* threads.c — loops over threads; the one file that knows OpenMP's functions and parallel regions.
 * Compiled without OpenMP it does the same with one thread. */
#include "cpu.h"

#ifdef _OPENMP
#include <omp.h>

int cpu_threads_open(int wanted) {
    omp_set_dynamic(0);
    if (wanted > 0) omp_set_num_threads(wanted);
    return omp_get_max_threads();
}

static int worker_index(void) {
    return omp_get_thread_num();
}
#else
int cpu_threads_open(int wanted) {
    (void)wanted;
    return 1;
}

static int worker_index(void) {
    return 0;
}
#endif

void cpu_for(const MxDevice *device, int64_t n, int64_t piece, CpuWork *work, const void *context) {
    int64_t pieces = cpu_pieces(n, piece);
    if (pieces <= 1) {
        if (n > 0) work(context, 0, n, 0);
        return;
    }
#pragma omp parallel for num_threads(device->n_threads) schedule(static)
    for (int64_t i = 0; i < pieces; i++)
        work(context, i * piece, cpu_min(n, (i + 1) * piece), worker_index());
}

void cpu_for_uneven(const MxDevice *device, int64_t n, int64_t piece, CpuWork *work,
                    const void *context) {
    int64_t pieces = cpu_pieces(n, piece);
    if (pieces <= 1) {
        if (n > 0) work(context, 0, n, 0);
        return;
    }
#pragma omp parallel for num_threads(device->n_threads) schedule(monotonic : dynamic, 1)
    for (int64_t i = 0; i < pieces; i++)
        work(context, i * piece, cpu_min(n, (i + 1) * piece), worker_index());
}
