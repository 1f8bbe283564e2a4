/* cublas.cu — products of matrices by cuBLASLt, which reads columns first: it is asked for the
 * transposed product, C^T = B^T A^T, whose operands are ours as they lie. The algorithm of a shape
 * is the library's first proposal; nothing is timed, so two runs take the same. */
#include "device/cuda/map.cuh"

#include <cublasLt.h>

struct GpuProducts {
    cublasLtHandle_t handle;
    cublasLtMatmulPreference_t preference;
    void *workspace;
    GpuProduct *cache; /* head of the list */
};

struct GpuProduct {
    GpuProductSpec spec;
    bool narrows; /* the library cannot store bf16 here: it stores floats in scratch */
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algorithm;
    GpuProducts *products;
    GpuProduct *next;
};

static constexpr size_t WORKSPACE_BYTES = 64 << 20;

static bool fails(cublasStatus_t status, const char *what, MxError *err) {
    if (status == CUBLAS_STATUS_SUCCESS) return false;
    mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "cuBLASLt %s: %s", what,
            cublasLtGetStatusString(status));
    return true;
}

static void close_products(void *data) {
    GpuProducts *products = (GpuProducts *)data;
    for (GpuProduct *p = products->cache; p; p = p->next) {
        cublasLtMatmulDescDestroy(p->operation);
        cublasLtMatrixLayoutDestroy(p->a);
        cublasLtMatrixLayoutDestroy(p->b);
        cublasLtMatrixLayoutDestroy(p->c);
    }
    cublasLtMatmulPreferenceDestroy(products->preference);
    cublasLtDestroy(products->handle);
}

bool gpu_products_open(Gpu *gpu, MxError *err) {
    GpuProducts *products = mx_new(gpu->device.arena, GpuProducts);
    gpu->products = mx_arena_printf(gpu->device.arena, "matmul cuBLASLt %zu", cublasLtGetVersion());
    if (gpu->device.config.only_plans) return true;
    if (fails(cublasLtCreate(&products->handle), "cannot be used", err) ||
        fails(cublasLtMatmulPreferenceCreate(&products->preference), "cannot be used", err))
        return false;
    mx_arena_on_release(gpu->device.arena, close_products, products);
    if (!gpu_runtime_alloc(gpu, WORKSPACE_BYTES, &products->workspace, err)) return false;
    gpu->library = products;
    return true;
}

/* ---- a product */

static bool is_same(const GpuProductSpec *x, const GpuProductSpec *y) {
    return x->m == y->m && x->n == y->n && x->k == y->k && x->lda == y->lda && x->ldb == y->ldb &&
           x->ldc == y->ldc && x->batch == y->batch && x->step_a == y->step_a &&
           x->step_b == y->step_b && x->step_c == y->step_c && x->trans_a == y->trans_a &&
           x->trans_b == y->trans_b && x->accumulate == y->accumulate && x->in == y->in &&
           x->out == y->out;
}

static bool narrows(const GpuProductSpec *spec) {
    return spec->in == MX_F32 && spec->out == MX_BF16;
}

size_t gpu_product_bytes(const MxDevice *, const GpuProductSpec *spec) {
    GpuProductSpec s = gpu_product_complete(*spec);
    return narrows(&s) ? gpu_padded((size_t)(s.batch * s.m * s.n) * sizeof(float)) : 0;
}

static cudaDataType_t type_of(MxDtype dtype) {
    return dtype == MX_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

static cublasLtMatrixLayout_t layout(MxDtype dtype, int64_t rows, int64_t columns, int64_t leading,
                                     int64_t batch, int64_t step) {
    cublasLtMatrixLayout_t made;
    int count = (int)batch;
    MX_ASSERT(!cublasLtMatrixLayoutCreate(&made, type_of(dtype), (uint64_t)columns, (uint64_t)rows,
                                          leading));
    MX_ASSERT(!cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                                sizeof count) &&
              !cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                &step, sizeof step));
    return made;
}

/* Bytes of which every row's address is a multiple. */
static uint32_t alignment(MxDtype dtype, int64_t leading, int64_t step) {
    constexpr uint32_t MOST = 64;
    uint64_t bytes = (uint64_t)(leading | step) * mx_dtype_bytes(dtype);
    uint32_t least = (uint32_t)(bytes & -bytes);
    return least && least < MOST ? least : MOST;
}

static bool choose(const GpuProducts *products, GpuProduct *p, const GpuProductSpec *run,
                   MxError *err) {
    uint32_t a = alignment(run->in, run->lda, run->step_a),
             b = alignment(run->in, run->ldb, run->step_b),
             c = alignment(run->out, run->ldc, run->step_c);
    const struct {
        cublasLtMatmulPreferenceAttributes_t name;
        const void *value;
        size_t bytes;
    } wishes[] = {
        {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &WORKSPACE_BYTES, sizeof WORKSPACE_BYTES},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &b, sizeof b},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &a, sizeof a},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &c, sizeof c},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &c, sizeof c},
    };
    for (const auto &wish : wishes)
        MX_ASSERT(!cublasLtMatmulPreferenceSetAttribute(products->preference, wish.name, wish.value,
                                                        wish.bytes));
    cublasLtMatmulHeuristicResult_t found;
    int n = 0;
    cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(products->handle, p->operation, p->b, p->a, p->c, p->c,
                                       products->preference, 1, &found, &n);
    if (status == CUBLAS_STATUS_SUCCESS && n) status = found.state;
    const char *what = "has no way to multiply";
    if (!n) return !fails(status ? status : CUBLAS_STATUS_NOT_SUPPORTED, what, err);
    p->algorithm = found.algo;
    return !fails(status, what, err);
}

static GpuProduct *make(GpuProducts *products, MxArena *arena, const GpuProductSpec *spec,
                        MxError *err) {
    GpuProduct *p = mx_new(arena, GpuProduct);
    p->spec = *spec;
    p->narrows = narrows(spec);
    p->products = products;
    GpuProductSpec run = *spec;
    if (p->narrows) {
        run.out = MX_F32;
        run.ldc = run.n;
        run.step_c = run.m * run.n;
    }
    MX_ASSERT(!cublasLtMatmulDescCreate(&p->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    cublasOperation_t a = run.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N,
                      b = run.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    MX_ASSERT(
        !cublasLtMatmulDescSetAttribute(p->operation, CUBLASLT_MATMUL_DESC_TRANSA, &b, sizeof b) &&
        !cublasLtMatmulDescSetAttribute(p->operation, CUBLASLT_MATMUL_DESC_TRANSB, &a, sizeof a));
    p->a = layout(run.in, run.trans_a ? run.k : run.m, run.trans_a ? run.m : run.k, run.lda,
                  run.batch, run.step_a);
    p->b = layout(run.in, run.trans_b ? run.n : run.k, run.trans_b ? run.k : run.n, run.ldb,
                  run.batch, run.step_b);
    p->c = layout(run.out, run.m, run.n, run.ldc, run.batch, run.step_c);
    p->next = products->cache;
    products->cache = p;
    return choose(products, p, &run, err) ? p : nullptr;
}

static bool is_empty(const GpuProductSpec *s) {
    return !s->m || !s->n || !s->batch;
}

const GpuProduct *gpu_product_prepare(MxDevice *device, const GpuProductSpec *spec, MxError *err) {
    GpuProducts *products = (GpuProducts *)gpu_of(device)->library;
    GpuProductSpec s = gpu_product_complete(*spec);
    for (const GpuProduct *p = products->cache; p; p = p->next)
        if (is_same(&p->spec, &s)) return p;
    if (!is_empty(&s) && s.k) return make(products, device->arena, &s, err);
    GpuProduct *nothing = mx_new(device->arena, GpuProduct);
    nothing->spec = s;
    return nothing;
}

/* Sums over nothing. */
static void clear(const MxDevice *device, const GpuProductSpec *s, void *c) {
    MX_ASSERT(s->ldc == s->n && s->step_c == s->m * s->n);
    if (!is_empty(s) && !s->accumulate)
        gpu_runtime_zero(gpu_of(device), c,
                         (size_t)(s->batch * s->m * s->n) * mx_dtype_bytes(s->out));
}

/* From the dense floats in scratch. */
static void narrow(const MxDevice *device, const GpuProductSpec *s, const float *from, void *c) {
    MX_ASSERT(s->ldc == s->n && s->step_c == s->m * s->n);
    GpuMap map = {};
    map.in[0] = GpuArray{(void *)from, MX_F32};
    map.out[0] = GpuArray{c, MX_BF16};
    map.n = map.period = s->batch * s->m * s->n;
    map.accumulate = s->accumulate;
    gpu_map_arrays<1, 1>(device, map, GpuCopy());
}

void gpu_product_run(const MxDevice *device, const GpuProduct *p, const void *a, const void *b,
                     void *c, void *scratch) {
    const GpuProductSpec *s = &p->spec;
    if (is_empty(s) || !s->k) {
        clear(device, s, c);
        return;
    }
    const float one = 1.0f, before = s->accumulate && !p->narrows ? 1.0f : 0.0f;
    void *to = p->narrows ? scratch : c;
    cublasStatus_t status = cublasLtMatmul(
        p->products->handle, p->operation, &one, b, p->b, a, p->a, &before, to, p->c, to, p->c,
        &p->algorithm, p->products->workspace, WORKSPACE_BYTES, gpu_stream(gpu_of(device)));
    if (status) MX_BUG("cuBLASLt cannot multiply");
    if (p->narrows) narrow(device, s, (const float *)scratch, c);
}
