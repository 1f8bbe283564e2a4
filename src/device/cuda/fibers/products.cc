/* products.cc — products of matrices where there is no GPU: the CPU's. */
#include "device/cuda/gpu.cuh"
extern "C" {
#include "device/cpu/cpu.h"
}

struct GpuProduct {
    GpuProductSpec spec;
    const CpuMatmul *matmul;
};

static CpuMatmulSpec cpu_spec(const GpuProductSpec *spec) {
    CpuMatmulSpec own = {};
    own.m = spec->m, own.n = spec->n, own.k = spec->k;
    own.lda = spec->lda, own.ldb = spec->ldb, own.ldc = spec->ldc;
    own.trans_a = spec->trans_a, own.trans_b = spec->trans_b;
    own.accumulate = spec->accumulate;
    own.in = spec->in, own.out = spec->out;
    return own;
}

static const CpuKernels *kernels_of(const MxDevice *device) {
    return cpu_of(gpu_of(device)->cpu)->level->kernels;
}

bool gpu_products_open(Gpu *gpu, MxError *) {
    gpu->products = backend_cpu.arithmetic(gpu->cpu);
    return true;
}

size_t gpu_product_bytes(const MxDevice *device, const GpuProductSpec *spec) {
    return kernels_of(device)->scratch(gpu_of(device)->cpu, cpu_spec(spec));
}

const GpuProduct *gpu_product_prepare(MxDevice *device, const GpuProductSpec *spec, MxError *err) {
    GpuProduct *product = mx_new(device->arena, GpuProduct);
    product->spec = gpu_product_complete(*spec);
    product->matmul = kernels_of(device)->prepare(((Gpu *)device)->cpu, cpu_spec(spec), err);
    return product->matmul ? product : nullptr;
}

static void multiply(const MxDevice *device, const GpuProduct *product, const void *a,
                     const void *b, void *c, void *scratch) {
    const GpuProductSpec *spec = &product->spec;
    int64_t in = (int64_t)mx_dtype_bytes(spec->in), out = (int64_t)mx_dtype_bytes(spec->out);
    for (int64_t i = 0; i < spec->batch; i++)
        kernels_of(device)->multiply(product->matmul, (const char *)a + i * spec->step_a * in,
                                     (const char *)b + i * spec->step_b * in,
                                     (char *)c + i * spec->step_c * out, scratch);
}

void gpu_product_run(const MxDevice *device, const GpuProduct *product, const void *a,
                     const void *b, void *c, void *scratch) {
    fibers_submit([=] { multiply(device, product, a, b, c, scratch); });
}
