/* fibers.h — CUDA's language for a compiler of the host: a block's threads are fibers of one
 * thread, which run until they wait for others at a barrier. Blocks run one after another, every
 * second one with its threads in reverse order, so that a missing barrier shows. */
#ifndef FIBERS_H
#define FIBERS_H

#include <cstdint>
#include <cstring>
#include <functional>

#define __global__
#define __device__
#define __host__
#define __shared__      static
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
#define __grid_constant__

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) int4 {
    int x, y, z, w;
};
struct alignas(8) int2 {
    int x, y;
};
static inline float4 make_float4(float x, float y, float z, float w) {
    return float4{x, y, z, w};
}
static inline float2 make_float2(float x, float y) {
    return float2{x, y};
}
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) {
    return uint4{x, y, z, w};
}
static inline uint2 make_uint2(unsigned x, unsigned y) {
    return uint2{x, y};
}

/* Of the thread that runs. */
struct FiberPlace {
    dim3 thread, block, n_threads, n_blocks;
};
extern const FiberPlace *fibers_now;
#define threadIdx (fibers_now->thread)
#define blockIdx  (fibers_now->block)
#define blockDim  (fibers_now->n_threads)
#define gridDim   (fibers_now->n_blocks)

/* fibers_submit — does work, or keeps it for a replay while a span is recorded. */
void fibers_submit(std::function<void()> work);
struct FibersRecord;
void fibers_record_begin();
FibersRecord *fibers_record_end();
bool fibers_is_recording();
void fibers_record_free(void *record);
void fibers_replay(const FibersRecord *record);

/* fibers_run — a kernel: `thread` once for each thread. */
void fibers_run(dim3 grid, dim3 block, size_t shared, const std::function<void()> &thread);
void *fibers_dynamic();
/* Barriers of the block, and of the lanes of a mask. */
void fibers_sync();
void fibers_sync_warp(unsigned mask);
/* fibers_slots — where the lanes of this thread's warp exchange numbers; fibers_lane — its own. */
uint64_t *fibers_slots();
unsigned fibers_lane();

static inline void __syncthreads() {
    fibers_sync();
}
static inline void __syncwarp(unsigned mask = 0xffffffffu) {
    fibers_sync_warp(mask);
}
template <class T> T fibers_from(unsigned mask, T x, unsigned lane) {
    static_assert(sizeof x <= sizeof(uint64_t));
    uint64_t *slots = fibers_slots();
    memcpy(&slots[fibers_lane()], &x, sizeof x);
    fibers_sync_warp(mask);
    memcpy(&x, &slots[lane % 32], sizeof x);
    fibers_sync_warp(mask);
    return x;
}
template <class T> T __shfl_sync(unsigned mask, T x, int lane) {
    return fibers_from(mask, x, (unsigned)lane);
}
template <class T> T __shfl_xor_sync(unsigned mask, T x, int lane) {
    return fibers_from(mask, x, fibers_lane() ^ (unsigned)lane);
}
template <class T> T __shfl_up_sync(unsigned mask, T x, unsigned by) {
    unsigned lane = fibers_lane();
    return fibers_from(mask, x, lane >= by ? lane - by : lane);
}
static inline unsigned __ballot_sync(unsigned mask, int flag) {
    unsigned bits = 0, one = flag != 0;
    for (unsigned lane = 0; lane < 32; lane++)
        if (mask >> lane & 1) bits |= fibers_from(mask, one, lane) << lane;
    return bits;
}
/* The lanes of the mask that have the same number. */
template <class T> unsigned __match_any_sync(unsigned mask, T x) {
    unsigned bits = 0;
    for (unsigned lane = 0; lane < 32; lane++)
        if (mask >> lane & 1) bits |= (unsigned)(fibers_from(mask, x, lane) == x) << lane;
    return bits;
}
static inline int __any_sync(unsigned mask, int flag) {
    return __ballot_sync(mask, flag) != 0;
}
static inline int __all_sync(unsigned mask, int flag) {
    return __ballot_sync(mask, flag) == mask;
}

/* ---- functions of numbers */

static inline float __uint_as_float(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
static inline uint32_t __float_as_uint(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
static inline int __popc(unsigned x) {
    return __builtin_popcount(x);
}
static inline int __ffs(int x) {
    return __builtin_ffs(x);
}
static inline uint32_t __umulhi(uint32_t a, uint32_t b) {
    return (uint32_t)((uint64_t)a * b >> 32);
}
static inline float __fdividef(float x, float y) {
    return x / y;
}
/* Rounded by itself, never fused with an addition. */
static inline float __fmul_rn(float x, float y) {
    return x * y;
}
/* Blocks and threads run one at a time. */
template <class T> T atomicAdd(T *x, T y) {
    T before = *x;
    *x = before + y;
    return before;
}

#endif
