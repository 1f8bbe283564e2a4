/* openblas.c — OpenBLAS as a provider of f32 products; the one file that includes its header. Only
 * its OpenMP flavour will do: it shares the threads of the kernels and of oneDNN. */
#include "cpu.h"

#include <cblas.h>
#include <limits.h>

bool cpu_openblas_open(MxDevice *device, MxError *err) {
    static const char *const wide_cores[] = {"SkylakeX", "Cooperlake", "SapphireRapids"};
    if (openblas_get_parallel() != OPENBLAS_OPENMP)
        return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE,
                       "OpenBLAS was loaded in another flavour than OpenMP (%s); install "
                       "libopenblas0-openmp and leave LD_LIBRARY_PATH alone",
                       openblas_get_parallel() ? "pthread" : "serial");
    device->has_wide_blas = !device->has_avx512;
    for (int i = 0; i < MX_COUNT(wide_cores); i++)
        if (!strcmp(cpu_openblas_core(), wide_cores[i])) device->has_wide_blas = true;
    return true;
}

const char *cpu_openblas_core(void) {
    return openblas_get_corename();
}

static CBLAS_TRANSPOSE transpose(bool wanted) {
    return wanted ? CblasTrans : CblasNoTrans;
}

static bool prepare(MxDevice *device, CpuMatmul *matmul, MxError *err) {
    (void)device;
    const CpuMatmulSpec *s = &matmul->run;
    MX_ASSERT(s->in == MX_F32 && s->out == MX_F32);
    if (s->m < INT_MAX && s->n < INT_MAX && s->k < INT_MAX && s->lda < INT_MAX &&
        s->ldb < INT_MAX && s->ldc < INT_MAX)
        return true;
    return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE,
                   "a matrix product [%lld, %lld] x [%lld, %lld] is too large for OpenBLAS",
                   (long long)s->m, (long long)s->k, (long long)s->k, (long long)s->n);
}

static void run(const CpuMatmul *matmul, const void *a, const void *b, void *c, void *scratch) {
    (void)scratch;
    const CpuMatmulSpec *s = &matmul->run;
    cblas_sgemm(CblasRowMajor, transpose(s->trans_a), transpose(s->trans_b), (blasint)s->m,
                (blasint)s->n, (blasint)s->k, 1.0f, a, (blasint)s->lda, b, (blasint)s->ldb,
                s->accumulate ? 1.0f : 0.0f, c, (blasint)s->ldc);
}

const CpuProvider cpu_openblas = {
    .name = "OpenBLAS",
    .prepare = prepare,
    .run = run,
};
