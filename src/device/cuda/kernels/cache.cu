/* cache.cu — caches of keys and values: writing rows into their slots, and attention over them, for
 * which keys are split among blocks where queries are few. */
#include "attention.cuh"

namespace gpu_cache {

/* ---- cache_write */

typedef struct CacheWrite {
    char *cache;
    const char *rows;
    const int32_t *positions, *sequences;
    int time;
    int64_t slots, bytes; /* of a row */
} CacheWrite;

/* Whether a later row of the piece goes to the same slot. */
__device__ static inline bool is_replaced(const CacheWrite &w, const int32_t *positions, int t) {
    int found = 0;
    for (int i = t + 1 + (int)threadIdx.x; i < w.time; i += GPU_BLOCK)
        found |= positions[i] >= 0 && positions[i] % w.slots == positions[t] % w.slots;
    return gpu_block_max(found) > 0;
}

template <class T> __device__ static inline void copy_row(const void *from, void *to, int64_t n) {
    for (int64_t i = threadIdx.x; i < n / (int64_t)sizeof(T); i += GPU_BLOCK)
        ((T *)to)[i] = ((const T *)from)[i];
}

/* A block a row. */
__global__ void __launch_bounds__(GPU_BLOCK) cache_write_kernel(CacheWrite w) {
    int t = (int)(blockIdx.x % (unsigned)w.time);
    int64_t b = blockIdx.x / (unsigned)w.time;
    const int32_t *positions = w.positions + b * w.time;
    if (positions[t] < 0 || is_replaced(w, positions, t)) return;
    char *to = w.cache + (w.sequences[b] * w.slots + positions[t] % w.slots) * w.bytes;
    const char *from = w.rows + (b * w.time + t) * w.bytes;
    if (((uintptr_t)from | (uintptr_t)to | (uintptr_t)w.bytes) % sizeof(uint4) == 0)
        copy_row<uint4>(from, to, w.bytes);
    else if (((uintptr_t)from | (uintptr_t)to | (uintptr_t)w.bytes) % sizeof(uint32_t) == 0)
        copy_row<uint32_t>(from, to, w.bytes);
    else if (((uintptr_t)from | (uintptr_t)to | (uintptr_t)w.bytes) % sizeof(uint16_t) == 0)
        copy_row<uint16_t>(from, to, w.bytes);
    else
        copy_row<uint8_t>(from, to, w.bytes);
}

static void cache_write_run(const MxDevice *device, const MxKernelCall *call) {
    MxShape cache = call->in_type[0].shape, rows = call->in_type[1].shape;
    CacheWrite w = {};
    if (!call->out[0]) return;
    w.cache = (char *)call->out[0], w.rows = (const char *)call->in[1];
    w.positions = (const int32_t *)call->in[2], w.sequences = (const int32_t *)call->in[3];
    w.time = (int)rows.dim[1], w.slots = cache.dim[1];
    w.bytes = (int64_t)mx_dtype_bytes(call->in_type[0].dtype);
    for (int d = 2; d < cache.rank; d++) w.bytes *= cache.dim[d];
    size_t all = (size_t)(cache.dim[0] * w.slots * w.bytes);
    if (call->out[0] != call->in[0] && all)
        gpu_runtime_copy(gpu_of(device), call->out[0], call->in[0], all);
    if (w.bytes)
        gpu_launch(device, cache_write_kernel, (unsigned)(rows.dim[0] * w.time), GPU_BLOCK, 0, w);
}

GPU_KERNEL(cache_write, .run = cache_write_run);

/* ---- cache_attention */

static bool cache_attention_prepare(MxDevice *device, MxKernelCall *call, MxError *err) {
    if (attention_is_on_host(call)) return gpu_host_prepare(device, call, err);
    if (call->in_type[0].shape.dim[3] <= ATTENTION_MOST_WIDTH) return true;
    return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "heads are wider than the %d of a GPU's kernel",
                   ATTENTION_MOST_WIDTH);
}

static size_t cache_attention_scratch(const MxDevice *device, const MxKernelCall *call) {
    if (attention_is_on_host(call)) return 0;
    AttentionView view = attention_view(call);
    view.n_splits = attention_splits(device, &view);
    return attention_see_bytes(call) + attention_partial_bytes(&view);
}

static void cache_attention_run(const MxDevice *device, const MxKernelCall *call) {
    if (attention_is_on_host(call)) {
        gpu_host_run(device, call);
        return;
    }
    AttentionView view = attention_view(call);
    void *scratch = call->scratch;
    if (!call->out[0]) return;
    view.out = call->out[0];
    view.n_splits = attention_splits(device, &view);
    attention_see(device, call, &view, &scratch);
    attention_partial(&view, &scratch);
    attention_forward(device, &view, call->in_type[0].dtype);
}

GPU_KERNEL(cache_attention, .scratch = cache_attention_scratch, .prepare = cache_attention_prepare,
           .run = cache_attention_run);

} // namespace gpu_cache
