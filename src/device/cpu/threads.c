/* threads.c — loops over threads; the only file that uses OpenMP's functions and parallel regions.
 * Compiled without OpenMP it does the same with one thread. */
#include "cpu.h"

#include <signal.h>

/* Threads that wait for each other (libgomp's barriers) spin a while, then sleep. On a machine that
 * others use too, spinning keeps the core from whoever they wait for; sleeping costs more than the
 * gap between two kernels takes. A step of W3 of bench/, medians of two cores with little else on
 * them, and with four busy processes (figures of one sitting that was not quiet):
 *     turns    300000 (libgomp's own)    10000    1000    100
 *     little   0.033-0.040 s             0.041    0.05-0.08    0.06-0.08
 *     busy     0.30 to over 0.8          0.18-0.32        -    0.23-0.30 */
static const MxEnvVar early[] = {
    {.name = "GOMP_SPINCOUNT", .value = "10000", .unless = "OMP_WAIT_POLICY"},
};

void mx_device_prepare(char **argv) {
    mx_process_prepare(early, MX_COUNT(early), argv);
}

/* Numbers below the normal ones are zeros here, as input and as result, as in XLA's computations on
 * the CPU: a gradient that vanishes, of a loss that has become 0 say, would make every product that
 * it enters up to fifty times slower. */
static void flush_denormals(void) {
#if defined(__x86_64__)
    enum { FLUSH_RESULTS = 1 << 15, INPUTS_ARE_ZEROS = 1 << 6 }; /* of MXCSR */
    __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | FLUSH_RESULTS | INPUTS_ARE_ZEROS);
#elif defined(__aarch64__)
    enum { FLUSH = 1 << 24 }; /* of FPCR */
    uint64_t control;
    __asm__ volatile("mrs %0, fpcr" : "=r"(control));
    __asm__ volatile("msr fpcr, %0" : : "r"(control | FLUSH));
#endif
}

#ifdef _OPENMP
#include <omp.h>

static int worker_index(void) {
    return omp_get_thread_num();
}

/* Signals are for the thread that opens the device, whose handlers need a stack of their own (as in
 * src/train/signals.c): oneDNN's f32 products for AVX point the stack pointer into a buffer of the
 * heap where sums are longer than 128 (jit_avx_gemm_f32), and a signal's frame of some kilobytes
 * goes below it, over whatever is there. */
static void prepare_thread(void) {
    sigset_t all;
    flush_denormals();
    sigfillset(&all);
    if (worker_index() > 0) pthread_sigmask(SIG_BLOCK, &all, NULL);
}

/* Threads have the mode of the one that starts them; there may be some from an earlier device. */
int cpu_threads_open(int wanted) {
    omp_set_dynamic(0);
    if (wanted > 0) omp_set_num_threads(wanted);
#pragma omp parallel
    prepare_thread();
    return omp_get_max_threads();
}
#else
int cpu_threads_open(int wanted) {
    (void)wanted;
    flush_denormals();
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
