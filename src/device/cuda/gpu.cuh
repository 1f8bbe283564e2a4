/* gpu.cuh — what kernels for GPUs are written with. The same source is compiled by nvcc, for GPUs,
 * and by g++, for fibers: there a block's threads are fibers of one thread of the host (fibers/),
 * with the same barriers and exchanges within a warp, so that kernels can be tested on any machine.
 *
 * Kernels are plain CUDA C++ (__global__, __shared__, threadIdx, __syncthreads, __shfl_xor_sync)
 * and are started with gpu_launch. Results do not depend on the order in which blocks run: sums are
 * made in a fixed order, and blocks that add floats to one place take turns. */
#ifndef GPU_CUH
#define GPU_CUH

#define _Noreturn [[noreturn]]
extern "C" {
#include <mx/device.h>
}

#include <cmath>

#ifdef __CUDACC__
#include <cuda_runtime.h>
#else
#include "device/cuda/fibers/fibers.h"
#endif

/* ---- the device: device.cu */

/* What has to do with the driver: nvidia/runtime.cu, fibers/runtime.cc. */
typedef struct GpuRuntime GpuRuntime;
typedef struct GpuProduct GpuProduct;

/* An opened GPU. */
typedef struct Gpu {
    MxDevice device;
    MxDevice *cpu; /* runs the ops that have no kernel here, on copies of their arrays (host.cu) */
    GpuRuntime *runtime;
    int n_processors;     /* streaming multiprocessors */
    int64_t memory;       /* bytes of its own; 0 = the host's */
    const char *name;     /* of the hardware */
    const char *products; /* who multiplies matrices */
    void *library;        /* of products: nvidia/cublas.cu */
} Gpu;

static inline const Gpu *gpu_of(const MxDevice *device) {
    return (const Gpu *)device;
}

/* gpu_runtime_open — the GPU of this process: the first, or of ranks on one machine each its own;
 * fills in what it is. One that only plans need not be here: then it is taken for an H100. */
bool gpu_runtime_open(Gpu *gpu, MxError *err);
/* gpu_runtime_alloc — zeroed memory, freed with the device's arena. */
bool gpu_runtime_alloc(Gpu *gpu, size_t bytes, void **out, MxError *err);
/* gpu_runtime_read, gpu_runtime_write — between the host and the device, in the order of kernels.
 * gpu_runtime_copy — within the device. gpu_runtime_zero — clears. gpu_runtime_sync — waits. */
void gpu_runtime_read(const Gpu *gpu, const void *from, void *host, size_t bytes);
void gpu_runtime_write(const Gpu *gpu, void *to, const void *host, size_t bytes);
void gpu_runtime_copy(const Gpu *gpu, void *to, const void *from, size_t bytes);
void gpu_runtime_zero(const Gpu *gpu, void *to, size_t bytes);
void gpu_runtime_sync(const Gpu *gpu);
/* Kernels between begin and end are recorded instead of run; replay runs all that were. */
void gpu_runtime_record_begin(const Gpu *gpu);
void *gpu_runtime_record_end(const Gpu *gpu);
void gpu_runtime_replay(const Gpu *gpu, const void *record);

/* ---- starting kernels */

static constexpr int GPU_WARP = 32, GPU_BLOCK = 256;

#ifdef __CUDACC__
cudaStream_t gpu_stream(const Gpu *gpu);
/* gpu_check — ends the process with a message if a call of the driver failed. */
void gpu_check(cudaError_t code, const char *what);

/* gpu_launch — submits a kernel; `shared` bytes of dynamic shared memory. Static, as what follows
 * with types of the caller's: files may give different types one name. */
template <class... P, class... A>
static void gpu_launch(const MxDevice *device, void (*kernel)(P...), dim3 grid, dim3 block,
                       size_t shared, A... args) {
    if (!grid.x || !grid.y || !grid.z) return;
    if (shared > 48 << 10)
        gpu_check(cudaFuncSetAttribute((const void *)kernel,
                                       cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared),
                  "shared memory of a kernel");
    kernel<<<grid, block, shared, gpu_stream(gpu_of(device))>>>(P(args)...);
    gpu_check(cudaGetLastError(), "starting a kernel");
}

/* gpu_dynamic — the block's dynamic shared memory. */
template <class T> __device__ __forceinline__ T *gpu_dynamic() {
    extern __shared__ __align__(128) unsigned char gpu_bytes[];
    return (T *)gpu_bytes;
}
#else
template <class... P, class... A>
void gpu_launch(const MxDevice *, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared,
                A... args) {
    fibers_submit([=] { fibers_run(grid, block, shared, [=] { kernel(P(args)...); }); });
}
template <class T> T *gpu_dynamic() {
    return (T *)fibers_dynamic();
}
#endif

/* GPU_ASSERT — of what only a bug can break; ends the process. */
#ifdef __CUDACC__
#define GPU_ASSERT(condition)                                                                      \
    do                                                                                             \
        if (!(condition)) __trap();                                                                \
    while (0)
#else
#define GPU_ASSERT(condition) MX_ASSERT(condition)
#endif

/* gpu_blocks — blocks of `size` threads for n of them; at least one if n is not 0. */
static inline unsigned gpu_blocks(int64_t n, int64_t size = GPU_BLOCK) {
    return (unsigned)((n + size - 1) / size);
}

/* ---- numbers */

__host__ __device__ static inline int64_t gpu_min(int64_t a, int64_t b) {
    return a < b ? a : b;
}
__host__ __device__ static inline int64_t gpu_max(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* A bf16 is MxBf16, its bits. */
__device__ static inline float gpu_widen(MxBf16 x) {
    return __uint_as_float((uint32_t)x << 16);
}
#ifdef __CUDACC__
__device__ static inline MxBf16 gpu_narrow(float x) {
    MxBf16 bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}
/* gpu_narrow_pair — two of them, the first in the low half. */
__device__ static inline uint32_t gpu_narrow_pair(float low, float high) {
    uint32_t bits;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
}
#else
static inline MxBf16 gpu_narrow(float x) {
    uint32_t bits = __float_as_uint(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (MxBf16)(bits >> 16 | 0x40); /* NaN stays one */
    return (MxBf16)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}
static inline uint32_t gpu_narrow_pair(float low, float high) {
    return gpu_narrow(low) | (uint32_t)gpu_narrow(high) << 16;
}
#endif
/* gpu_round — to the nearest number that a dtype has. */
__device__ static inline float gpu_round(float x, MxDtype dtype) {
    return dtype == MX_BF16 ? gpu_widen(gpu_narrow(x)) : x;
}

/* ---- arrays of floats: f32 or bf16, which all threads of a kernel know to be the same */

typedef struct GpuArray {
    void *data;
    MxDtype dtype;
} GpuArray;

static inline GpuArray gpu_in(const MxKernelCall *call, int i) {
    return GpuArray{call->in[i], call->in_type[i].dtype};
}
static inline GpuArray gpu_out(const MxKernelCall *call, int i) {
    return GpuArray{call->out[i], call->out_type[i].dtype};
}

__device__ static inline float gpu_get(GpuArray x, int64_t i) {
    return x.dtype == MX_BF16 ? gpu_widen(((const MxBf16 *)x.data)[i]) : ((const float *)x.data)[i];
}
__device__ static inline void gpu_put(GpuArray x, int64_t i, float value) {
    if (x.dtype == MX_BF16)
        ((MxBf16 *)x.data)[i] = gpu_narrow(value);
    else
        ((float *)x.data)[i] = value;
}
/* gpu_give — gpu_put, or added to what is there. */
__device__ static inline void gpu_give(GpuArray x, int64_t i, float value, bool adds) {
    gpu_put(x, i, adds ? gpu_get(x, i) + value : value);
}

/* GPU_PACK elements, from a multiple of it on, as vectors of 16 bytes. */
static constexpr int GPU_PACK = 8;

__device__ static inline void gpu_get_pack(GpuArray x, int64_t i, float *to) {
    if (x.dtype == MX_BF16) {
        uint4 v = *(const uint4 *)((const MxBf16 *)x.data + i);
        uint32_t w[] = {v.x, v.y, v.z, v.w};
        for (int j = 0; j < 4; j++) {
            to[2 * j] = __uint_as_float(w[j] << 16);
            to[2 * j + 1] = __uint_as_float(w[j] & 0xffff0000u);
        }
    } else {
        float4 a = ((const float4 *)((const float *)x.data + i))[0];
        float4 b = ((const float4 *)((const float *)x.data + i))[1];
        to[0] = a.x, to[1] = a.y, to[2] = a.z, to[3] = a.w;
        to[4] = b.x, to[5] = b.y, to[6] = b.z, to[7] = b.w;
    }
}
__device__ static inline void gpu_put_pack(GpuArray x, int64_t i, const float *from) {
    if (x.dtype == MX_BF16) {
        uint32_t w[4];
        for (int j = 0; j < 4; j++) w[j] = gpu_narrow_pair(from[2 * j], from[2 * j + 1]);
        *(uint4 *)((MxBf16 *)x.data + i) = make_uint4(w[0], w[1], w[2], w[3]);
    } else {
        ((float4 *)((float *)x.data + i))[0] = make_float4(from[0], from[1], from[2], from[3]);
        ((float4 *)((float *)x.data + i))[1] = make_float4(from[4], from[5], from[6], from[7]);
    }
}

/* Four elements, from a multiple of four on: neighbouring threads' quads make whole lines of memory
 * in either dtype. A GpuQuad is as it is in memory, of one dtype or of the other: loads that are
 * not looked at yet, and do not share registers, can all be under way together. */
static constexpr int GPU_QUAD = 4;
typedef struct GpuQuad {
    uint4 f32;
    uint2 bf16;
} GpuQuad;

__device__ static inline GpuQuad gpu_load_quad(GpuArray x, int64_t i) {
    GpuQuad quad = {make_uint4(0, 0, 0, 0), make_uint2(0, 0)};
    if (x.dtype == MX_BF16)
        quad.bf16 = *(const uint2 *)((const MxBf16 *)x.data + i);
    else
        quad.f32 = *(const uint4 *)((const float *)x.data + i);
    return quad;
}
__device__ static inline void gpu_open_quad(MxDtype dtype, GpuQuad quad, float *to) {
    bool is_bf16 = dtype == MX_BF16;
    to[0] = __uint_as_float(is_bf16 ? quad.bf16.x << 16 : quad.f32.x);
    to[1] = __uint_as_float(is_bf16 ? quad.bf16.x & 0xffff0000u : quad.f32.y);
    to[2] = __uint_as_float(is_bf16 ? quad.bf16.y << 16 : quad.f32.z);
    to[3] = __uint_as_float(is_bf16 ? quad.bf16.y & 0xffff0000u : quad.f32.w);
}
__device__ static inline void gpu_put_quad(GpuArray x, int64_t i, const float *from) {
    if (x.dtype == MX_BF16)
        *(uint2 *)((MxBf16 *)x.data + i) =
            make_uint2(gpu_narrow_pair(from[0], from[1]), gpu_narrow_pair(from[2], from[3]));
    else
        *(float4 *)((float *)x.data + i) = make_float4(from[0], from[1], from[2], from[3]);
}
/* gpu_has_quads — whether they can be had of an array whose rows have so many elements. */
static inline bool gpu_has_quads(GpuArray x, int64_t row) {
    return (uintptr_t)x.data % (GPU_QUAD * sizeof(float)) == 0 && row % GPU_QUAD == 0;
}

/* ---- sums and maxima within a warp and within a block, in a fixed order; all threads get them */

template <class T> __device__ static inline T gpu_warp_sum(T x) {
    for (int lane = GPU_WARP / 2; lane; lane /= 2) x += __shfl_xor_sync(0xffffffffu, x, lane);
    return x;
}
template <class T> __device__ static inline T gpu_warp_max(T x) {
    for (int lane = GPU_WARP / 2; lane; lane /= 2) {
        T other = __shfl_xor_sync(0xffffffffu, x, lane);
        x = other > x ? other : x;
    }
    return x;
}
/* All threads of a one-dimensional block of whole warps must call these. */
template <class T> __device__ static inline T gpu_block_sum(T x) {
    __shared__ T part[GPU_WARP];
    x = gpu_warp_sum(x);
    __syncthreads(); /* readers of an earlier one are done */
    if (threadIdx.x % GPU_WARP == 0) part[threadIdx.x / GPU_WARP] = x;
    __syncthreads();
    unsigned lane = threadIdx.x % GPU_WARP;
    return gpu_warp_sum(lane < blockDim.x / GPU_WARP ? part[lane] : T(0));
}
template <class T> __device__ static inline T gpu_block_max(T x) {
    __shared__ T part[GPU_WARP];
    x = gpu_warp_max(x);
    __syncthreads();
    if (threadIdx.x % GPU_WARP == 0) part[threadIdx.x / GPU_WARP] = x;
    __syncthreads();
    unsigned lane = threadIdx.x % GPU_WARP;
    return gpu_warp_max(part[lane < blockDim.x / GPU_WARP ? lane : 0]);
}

/* ---- products of matrices: nvidia/cublas.cu, fibers/products.cc */

/* C[m, n] = op(A)[m, k] op(B)[k, n], row-major, added to C if accumulate, `batch` times over.
 * Leading dims and steps between the products of a batch are in elements; 0 = dense. in: f32 or
 * bf16, of both operands; sums are in f32. */
typedef struct GpuProductSpec {
    int64_t m, n, k, lda, ldb, ldc, batch, step_a, step_b, step_c;
    bool trans_a, trans_b, accumulate;
    MxDtype in, out;
} GpuProductSpec;

/* gpu_product_prepare — how such a product is made, looked for once; NULL on error.
 * gpu_product_bytes — of scratch that it needs. */
size_t gpu_product_bytes(const MxDevice *device, const GpuProductSpec *spec);
const GpuProduct *gpu_product_prepare(MxDevice *device, const GpuProductSpec *spec, MxError *err);
void gpu_product_run(const MxDevice *device, const GpuProduct *product, const void *a,
                     const void *b, void *c, void *scratch);
bool gpu_products_open(Gpu *gpu, MxError *err);
/* gpu_product_complete — with the leading dims and steps that were 0, and at least one product. */
GpuProductSpec gpu_product_complete(GpuProductSpec spec);

/* ---- tables of kernels */

/* GPU_KERNEL — the row of an op: GPU_KERNEL(glu, .run = glu_run). */
#define GPU_KERNEL(symbol, ...)                                                                    \
    extern "C" const MxKernel cuda_##symbol;                                                       \
    const MxKernel cuda_##symbol = {__VA_ARGS__}

/* gpu_host_* — of ops that are run on the host (host.cu). */
bool gpu_host_prepare(MxDevice *device, MxKernelCall *call, MxError *err);
void gpu_host_run(const MxDevice *device, const MxKernelCall *call);

/* ---- memory that a kernel carves from its scratch */

static inline size_t gpu_padded(size_t bytes) {
    return (bytes + 255) / 256 * 256;
}
static inline void *gpu_carve(void **scratch, size_t bytes) {
    void *p = *scratch;
    *scratch = (char *)p + gpu_padded(bytes);
    return p;
}

#endif
