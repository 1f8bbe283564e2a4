/* openblas.c — OpenBLAS as a provider of f32 products; the only file that includes its header. Only
 * its OpenMP build is used: it shares the threads of the kernels and of oneDNN. It is loaded when a
 * device is opened, not with the program, because level.c must first set the environment that
 * OpenBLAS reads while it is loaded. */
#include "cpu.h"

#include <cblas.h>
#include <dlfcn.h>
#include <limits.h>

enum { MIRROR_SIDE = 32 }; /* of a tile, some of which fit in the first cache */

/* Its functions, once it is loaded. */
static struct {
    __typeof__(cblas_sgemm) *sgemm;
    __typeof__(cblas_ssyrk) *ssyrk;
    __typeof__(openblas_get_parallel) *get_parallel;
    __typeof__(openblas_get_corename) *get_corename;
} blas;

static bool find(void *library, const char *name, void *function, MxError *err) {
    void *found = dlsym(library, name);
    memcpy(function, &found, sizeof found);
    return found ||
           mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "OpenBLAS lacks %s: %s", name, dlerror());
}

/* Never unloaded: its threads stay. MX_OPENBLAS is where the build found it. */
bool cpu_openblas_open(MxError *err) {
    if (blas.sgemm) return true;
    void *library = dlopen(MX_OPENBLAS, RTLD_NOW | RTLD_LOCAL);
    if (!library) library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE,
                       "could not load OpenBLAS: %s; install libopenblas0-openmp", dlerror());
    if (!find(library, "openblas_get_parallel", &blas.get_parallel, err) ||
        !find(library, "openblas_get_corename", &blas.get_corename, err))
        return false;
    if (blas.get_parallel() != OPENBLAS_OPENMP)
        return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE,
                       "OpenBLAS was loaded in another flavour than OpenMP (%s); install "
                       "libopenblas0-openmp and leave LD_LIBRARY_PATH alone",
                       blas.get_parallel() ? "pthread" : "serial");
    return find(library, "cblas_ssyrk", &blas.ssyrk, err) &&
           find(library, "cblas_sgemm", &blas.sgemm, err);
}

const char *cpu_openblas_core(void) {
    return blas.get_corename();
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

typedef struct Mirror {
    float *c;
    int64_t n, step;
} Mirror;

/* Rows of tiles: what lies below the diagonal, above it. */
static void mirror(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const Mirror *m = context;
    for (int64_t i = begin * MIRROR_SIDE; i < cpu_min(end * MIRROR_SIDE, m->n); i += MIRROR_SIDE)
        for (int64_t j = 0; j <= i; j += MIRROR_SIDE)
            for (int64_t row = i; row < cpu_min(i + MIRROR_SIDE, m->n); row++)
                for (int64_t k = j; k < cpu_min(j + MIRROR_SIDE, row); k++)
                    m->c[k * m->step + row] = m->c[row * m->step + k];
}

/* Half of a symmetric product, and its mirror image. */
static void run_square(const CpuMatmul *matmul, const void *a, void *c) {
    const CpuMatmulSpec *s = &matmul->run;
    blas.ssyrk(CblasRowMajor, CblasLower, transpose(s->trans_a), (blasint)s->n, (blasint)s->k, 1.0f,
               a, (blasint)s->lda, 0.0f, c, (blasint)s->ldc);
    Mirror m = {.c = c, .n = s->n, .step = s->ldc};
    cpu_for_uneven(matmul->device, (s->n + MIRROR_SIDE - 1) / MIRROR_SIDE, 1, mirror, &m);
}

static void run(const CpuMatmul *matmul, const void *a, const void *b, void *c, void *scratch) {
    (void)scratch;
    const CpuMatmulSpec *s = &matmul->run;
    if (s->is_square && a == b) {
        run_square(matmul, a, c);
        return;
    }
    blas.sgemm(CblasRowMajor, transpose(s->trans_a), transpose(s->trans_b), (blasint)s->m,
               (blasint)s->n, (blasint)s->k, 1.0f, a, (blasint)s->lda, b, (blasint)s->ldb,
               s->accumulate ? 1.0f : 0.0f, c, (blasint)s->ldc);
}

const CpuProvider cpu_openblas = {
    .name = "OpenBLAS",
    .takes_less = true,
    .prepare = prepare,
    .run = run,
};
