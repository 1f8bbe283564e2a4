/* places.cuh — counts ids and finds each one's place among the equal ones of its row, in their
 * order: what a stable sort by expert, or a slot of an expert, is made from. Rows are cut into
 * chunks; chunks are counted, the counts of earlier chunks added up for every key, and each chunk
 * is then walked by a warp. All numbers are integers, so no order of blocks matters. */
#ifndef PLACES_CUH
#define PLACES_CUH

#include "device/cuda/gpu.cuh"

static constexpr int PLACES_CHUNK = 256;

/* Ids of [rows, n]. The key of an id is its distance from `first`; all that are not among n_keys
 * have the key n_keys. */
typedef struct Places {
    const int32_t *ids;
    int64_t rows, n, n_keys, first, chunks;
    int32_t *place; /* [rows, n] */
    int *count;     /* [rows, n_keys + 1] */
    int *before;    /* [rows, chunks, n_keys + 1] of earlier chunks */
} Places;

static inline Places places_of(int64_t rows, int64_t n, int64_t n_keys, int64_t first) {
    Places p = {};
    p.rows = rows;
    p.n = n;
    p.n_keys = n_keys;
    p.first = first;
    p.chunks = (n + PLACES_CHUNK - 1) / PLACES_CHUNK;
    return p;
}

static inline size_t places_before_bytes(const Places &p) {
    return sizeof(int) * (size_t)(p.rows * p.chunks * (p.n_keys + 1));
}

/* places_carve — takes the arrays off the scratch, whose address need not be one yet. */
static inline void places_carve(Places *p, void **scratch) {
    p->place = (int32_t *)gpu_carve(scratch, sizeof(int32_t) * (size_t)(p->rows * p->n));
    p->count = (int *)gpu_carve(scratch, sizeof(int) * (size_t)(p->rows * (p->n_keys + 1)));
    p->before = (int *)gpu_carve(scratch, places_before_bytes(*p));
}

__device__ static inline int64_t places_key(const Places &p, int32_t id) {
    int64_t key = id - p.first;
    return id < 0 || key < 0 || key >= p.n_keys ? p.n_keys : key;
}

/* The sum of the lanes up to this one. */
template <class T> __device__ static inline T places_scan(T x) {
    int lane = (int)(threadIdx.x % GPU_WARP);
    for (int by = 1; by < GPU_WARP; by *= 2) {
        T other = __shfl_up_sync(0xffffffffu, x, (unsigned)by);
        if (lane >= by) x += other;
    }
    return x;
}

static __global__ void __launch_bounds__(GPU_BLOCK) places_count(Places p) {
    int64_t i = (int64_t)blockIdx.x * GPU_BLOCK + threadIdx.x;
    if (i >= p.rows * p.n) return;
    int64_t chunk = i / p.n * p.chunks + i % p.n / PLACES_CHUNK;
    atomicAdd(&p.before[chunk * (p.n_keys + 1) + places_key(p, p.ids[i])], 1);
}

/* A warp a key of a row. */
static __global__ void __launch_bounds__(GPU_BLOCK) places_sum(Places p) {
    int64_t i = ((int64_t)blockIdx.x * GPU_BLOCK + threadIdx.x) / GPU_WARP, keys = p.n_keys + 1;
    if (i >= p.rows * keys) return;
    int lane = (int)(threadIdx.x % GPU_WARP), all = 0;
    int *before = p.before + i / keys * p.chunks * keys + i % keys;
    for (int64_t first = 0; first < p.chunks; first += GPU_WARP) {
        bool is_chunk = first + lane < p.chunks;
        int own = is_chunk ? before[(first + lane) * keys] : 0, sum = places_scan(own);
        if (is_chunk) before[(first + lane) * keys] = all + sum - own;
        all += __shfl_sync(0xffffffffu, sum, GPU_WARP - 1);
    }
    if (lane == 0) p.count[i] = all;
}

/* A warp a chunk: the counts of its keys grow as it walks. */
static __global__ void __launch_bounds__(GPU_BLOCK) places_find(Places p) {
    int64_t chunk = ((int64_t)blockIdx.x * GPU_BLOCK + threadIdx.x) / GPU_WARP;
    if (chunk >= p.rows * p.chunks) return;
    int lane = (int)(threadIdx.x % GPU_WARP);
    int *before = p.before + chunk * (p.n_keys + 1);
    int64_t first = chunk % p.chunks * PLACES_CHUNK, row = chunk / p.chunks * p.n;
    for (int64_t i = first + lane; i - lane < gpu_min(first + PLACES_CHUNK, p.n); i += GPU_WARP) {
        int key = i < p.n ? (int)places_key(p, p.ids[row + i]) : -1;
        unsigned same = __match_any_sync(0xffffffffu, key);
        int lower = __popc(same & ((1u << lane) - 1)), place = key < 0 ? 0 : before[key];
        __syncwarp();
        if (key >= 0 && !lower) before[key] = place + __popc(same);
        __syncwarp();
        if (key >= 0) p.place[row + i] = place + lower;
    }
}

static inline void places_run(const MxDevice *device, const Places &p) {
    int64_t keys = p.rows * (p.n_keys + 1), n = p.rows * p.n;
    if (!n) {
        gpu_runtime_zero(gpu_of(device), p.count, sizeof(int) * (size_t)keys);
        return;
    }
    gpu_runtime_zero(gpu_of(device), p.before, places_before_bytes(p));
    gpu_launch(device, places_count, gpu_blocks(n), GPU_BLOCK, 0, p);
    gpu_launch(device, places_sum, gpu_blocks(keys * GPU_WARP), GPU_BLOCK, 0, p);
    gpu_launch(device, places_find, gpu_blocks(p.rows * p.chunks * GPU_WARP), GPU_BLOCK, 0, p);
}

#endif
