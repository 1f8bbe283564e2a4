/* map.cuh — the driver of element-wise kernels: the counterpart of the CPU's map.c. */
#ifndef MAP_CUH
#define MAP_CUH

#include "gpu.cuh"

/* A function is a struct with `__device__ void operator()(const float *in, float *out) const`, of
 * one element of every input and output, and may have `__device__ void begin()`, which each thread
 * calls once on its copy, say to load scalars. gpu_map honours dtypes, accumulate, unwanted outputs
 * and a last input that repeats itself; an output may be an input. */
struct GpuEach {
    __device__ void begin() {}
};

struct GpuCopy : GpuEach {
    __device__ void operator()(const float *in, float *out) const { out[0] = in[0]; }
};

typedef struct GpuMap {
    GpuArray in[6], out[4];
    int64_t n, period; /* elements; of the last input */
    unsigned accumulate;
    bool has_quads; /* filled in by gpu_map_arrays */
} GpuMap;

/* A block's share: each thread has two quads, or elements if that cannot be, a block apart. */
static constexpr int GPU_MAP_QUADS = 2, GPU_MAP_TILE = GPU_BLOCK * GPU_QUAD * GPU_MAP_QUADS;

/* Divisions of 32 bits are several times faster. */
__device__ static inline int64_t gpu_map_last(const GpuMap &map, int64_t i) {
    if (map.period == map.n) return i;
    return map.n <= UINT32_MAX ? (uint32_t)i % (uint32_t)map.period : i % map.period;
}

template <int IN, int OUT, class F>
__device__ static inline void gpu_map_one(const GpuMap &map, const F &f, int64_t i) {
    float in[IN], out[OUT];
#pragma unroll
    for (int j = 0; j < IN; j++) in[j] = gpu_get(map.in[j], j == IN - 1 ? gpu_map_last(map, i) : i);
    f(in, out);
#pragma unroll
    for (int j = 0; j < OUT; j++)
        if (map.out[j].data) gpu_give(map.out[j], i, out[j], map.accumulate >> j & 1);
}

template <int IN, int OUT, class F>
__device__ static inline void gpu_map_quad(const GpuMap &map, const F &f, int64_t at,
                                           const GpuQuad *quad) {
    float in[IN][GPU_QUAD], out[OUT][GPU_QUAD];
#pragma unroll
    for (int j = 0; j < IN; j++) gpu_open_quad(map.in[j].dtype, quad[j], in[j]);
#pragma unroll
    for (int i = 0; i < GPU_QUAD; i++) {
        float x[IN], y[OUT];
#pragma unroll
        for (int j = 0; j < IN; j++) x[j] = in[j][i];
        f(x, y);
#pragma unroll
        for (int j = 0; j < OUT; j++) out[j][i] = y[j];
    }
#pragma unroll
    for (int j = 0; j < OUT; j++) {
        if (!map.out[j].data) continue;
        if (map.accumulate >> j & 1) {
            float before[GPU_QUAD];
            gpu_open_quad(map.out[j].dtype, gpu_load_quad(map.out[j], at), before);
#pragma unroll
            for (int i = 0; i < GPU_QUAD; i++) out[j][i] += before[i];
        }
        gpu_put_quad(map.out[j], at, out[j]);
    }
}

/* gpu_map_tile — the share of a block with this number. */
template <int IN, int OUT, class F>
__device__ static inline void gpu_map_tile(const GpuMap &map, const F &f, int64_t tile) {
    int64_t begin = tile * GPU_MAP_TILE, end = gpu_min(begin + GPU_MAP_TILE, map.n);
    if (!map.has_quads || end - begin < GPU_MAP_TILE) {
        for (int64_t i = begin + threadIdx.x; i < end; i += GPU_BLOCK)
            gpu_map_one<IN, OUT>(map, f, i);
        return;
    }
    begin += threadIdx.x * GPU_QUAD;
    GpuQuad quad[GPU_MAP_QUADS][IN];
#pragma unroll
    for (int q = 0; q < GPU_MAP_QUADS; q++)
#pragma unroll
        for (int j = 0; j < IN; j++) {
            int64_t at = begin + q * GPU_BLOCK * GPU_QUAD;
            quad[q][j] = gpu_load_quad(map.in[j], j == IN - 1 ? gpu_map_last(map, at) : at);
        }
#pragma unroll
    for (int q = 0; q < GPU_MAP_QUADS; q++)
        gpu_map_quad<IN, OUT>(map, f, begin + q * GPU_BLOCK * GPU_QUAD, quad[q]);
}

template <int IN, int OUT, class F>
__global__ void __launch_bounds__(GPU_BLOCK, 4) gpu_map_kernel(GpuMap map, F function) {
    F f = function;
    f.begin();
    gpu_map_tile<IN, OUT>(map, f, blockIdx.x);
}

template <int IN, int OUT> static inline bool gpu_map_has_quads(const GpuMap &map) {
    bool has = map.period % GPU_QUAD == 0;
    for (int i = 0; i < IN; i++) has = has && gpu_has_quads(map.in[i], GPU_QUAD);
    for (int i = 0; i < OUT; i++) has = has && gpu_has_quads(map.out[i], GPU_QUAD);
    return has;
}

/* gpu_map_arrays — over arrays of any kind. gpu_map — over a call's first IN inputs and OUT
 * outputs. */
template <int IN, int OUT, class F>
void gpu_map_arrays(const MxDevice *device, GpuMap map, const F &f) {
    map.has_quads = gpu_map_has_quads<IN, OUT>(map);
    if (map.n)
        gpu_launch(device, gpu_map_kernel<IN, OUT, F>, gpu_blocks(map.n, GPU_MAP_TILE), GPU_BLOCK,
                   0, map, f);
}
template <int IN, int OUT, class F>
static void gpu_map(const MxDevice *device, const MxKernelCall *call, const F &f) {
    GpuMap map = {};
    for (int i = 0; i < IN; i++) map.in[i] = gpu_in(call, i);
    for (int i = 0; i < OUT; i++) map.out[i] = gpu_out(call, i);
    map.n = mx_shape_count(call->in_type[0].shape);
    map.period = mx_shape_count(call->in_type[IN - 1].shape);
    map.accumulate = call->accumulate;
    gpu_map_arrays<IN, OUT>(device, map, f);
}

#endif
