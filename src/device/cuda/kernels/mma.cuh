/* mma.cuh — instructions of a warp: products of small matrices of bf16, loads of their operands
 * from shared memory, and copies to shared memory that go on in the background. For fibers they are
 * built from what the instructions are defined to do with the registers of a warp's lanes. */
#ifndef MMA_CUH
#define MMA_CUH

#include "device/cuda/gpu.cuh"

#ifndef __CUDACC__
#include <vector>
#endif

/* Layouts. Lane 4 g + t holds of A [16, 16] words of columns 2 t, 2 t + 1 (then + 8): rows g and
 * g + 8 in words 0 and 1, the same with columns + 8 in words 2 and 3; of B [16, 8] rows 2 t, 2 t +
 * 1 of column g in word 0, rows + 8 in word 1; of C [16, 8] columns 2 t, 2 t + 1 of row g in 0 and
 * 1, of row g + 8 in 2 and 3. */

#ifdef __CUDACC__

/* mma_bf16 — c += a b. */
__device__ __forceinline__ void mma_bf16(float *c, const uint32_t *a, const uint32_t *b) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ __forceinline__ uint32_t mma_address(const void *shared) {
    return (uint32_t)__cvta_generic_to_shared(shared);
}

/* mma_load — four matrices [8, 8] of bf16; lane 8 m + r gives the address of row r of matrix m, and
 * lane 4 g + t gets columns 2 t, 2 t + 1 of row g of each. mma_load_turned — gets rows 2 t, 2 t + 1
 * of column g. */
__device__ __forceinline__ void mma_load(uint32_t *to, const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(mma_address(row)));
}
__device__ __forceinline__ void mma_load_turned(uint32_t *to, const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(mma_address(row)));
}

/* mma_word — two numbers as bf16. */
__device__ __forceinline__ uint32_t mma_word(float low, float high) {
    uint32_t word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;\n" : "=r"(word) : "f"(high), "f"(low));
    return word;
}

/* mma_exp2 — 2^x, with an error of some 2^-22. mma_inverse — 1 / x, likewise. */
__device__ __forceinline__ float mma_exp2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
    return y;
}
__device__ __forceinline__ float mma_inverse(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
    return y;
}

/* copy_async — BYTES to shared memory, or as many zeros; 8 or 16, both addresses multiples of it.
 * copy_commit — closes a group of this thread's copies. copy_wait — until all groups but the last
 * `MOST` are there, for this thread: for others a barrier must follow. */
template <int BYTES>
__device__ __forceinline__ void copy_async(void *to, const void *from, bool is_there) {
    int n = is_there ? BYTES : 0;
    if constexpr (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n"
                     :
                     : "r"(mma_address(to)), "l"(from), "r"(n)
                     : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;\n"
                     :
                     : "r"(mma_address(to)), "l"(from), "r"(n)
                     : "memory");
}
__device__ __forceinline__ void copy_commit() {
    asm volatile("cp.async.commit_group;\n" ::: "memory");
}
template <int MOST> __device__ __forceinline__ void copy_wait() {
    asm volatile("cp.async.wait_group %0;\n" : : "n"(MOST) : "memory");
}

#else

/* What the lanes of a warp show each other. Two places take turns, so that one barrier an exchange
 * is enough: who writes a place again has passed the barrier of the other one. */
struct MmaShown {
    uint32_t words[6];
    const unsigned char *row;
};
inline MmaShown mma_shown[2][1024];
inline unsigned mma_turn[1024];

static inline MmaShown *mma_show(const MmaShown &own) {
    unsigned thread = threadIdx.x, place = mma_turn[thread]++ % 2;
    mma_shown[place][thread] = own;
    __syncwarp();
    return mma_shown[place] + thread / 32 * 32;
}

static inline float mma_part(uint32_t word, int high) {
    return __uint_as_float(high ? word & 0xffff0000u : word << 16);
}

static inline void mma_bf16(float *c, const uint32_t *a, const uint32_t *b) {
    unsigned lane = fibers_lane(), g = lane / 4, t = lane % 4;
    const MmaShown *of = mma_show({.words = {a[0], a[1], a[2], a[3], b[0], b[1]}, .row = nullptr});
    for (int k = 0; k < 16; k++) {
        int pair = k % 8 / 2, high = k % 2, upper = k / 8;
        for (int i = 0; i < 4; i++) {
            unsigned column = 2 * t + (i & 1);
            float x = mma_part(of[g * 4 + pair].words[2 * upper + i / 2], high);
            c[i] += x * mma_part(of[column * 4 + pair].words[4 + upper], high);
        }
    }
}

static inline void mma_load(uint32_t *to, const void *row) {
    unsigned lane = fibers_lane();
    const MmaShown *of = mma_show({.words = {}, .row = (const unsigned char *)row});
    for (unsigned m = 0; m < 4; m++) {
        const unsigned char *from = of[8 * m + lane / 4].row;
        MX_ASSERT((uintptr_t)from % 16 == 0);
        memcpy(&to[m], from + lane % 4 * 4, 4);
    }
}
static inline void mma_load_turned(uint32_t *to, const void *row) {
    unsigned lane = fibers_lane(), column = lane / 4, first = lane % 4 * 2;
    const MmaShown *of = mma_show({.words = {}, .row = (const unsigned char *)row});
    for (unsigned m = 0; m < 4; m++) {
        uint16_t x[2];
        for (unsigned i = 0; i < 2; i++) {
            MX_ASSERT((uintptr_t)of[8 * m + first + i].row % 16 == 0);
            memcpy(&x[i], of[8 * m + first + i].row + column * 2, 2);
        }
        to[m] = x[0] | (uint32_t)x[1] << 16;
    }
}

static inline uint32_t mma_word(float low, float high) {
    return gpu_narrow(low) | (uint32_t)gpu_narrow(high) << 16;
}
static inline float mma_exp2(float x) {
    return exp2f(x);
}
static inline float mma_inverse(float x) {
    return 1.0f / x;
}

/* Copies are made when they are waited for, so that a wait that is missing shows. */
struct CopyPending {
    void *to;
    const void *from;
    int bytes;
    bool is_there;
    unsigned group;
};
inline std::vector<CopyPending> copy_pending[1024];
inline unsigned copy_group[1024];

template <int BYTES> void copy_async(void *to, const void *from, bool is_there) {
    MX_ASSERT((uintptr_t)to % BYTES == 0 && (!is_there || (uintptr_t)from % BYTES == 0));
    copy_pending[threadIdx.x].push_back({to, from, BYTES, is_there, copy_group[threadIdx.x]});
}
static inline void copy_commit() {
    copy_group[threadIdx.x]++;
}
template <int MOST> void copy_wait() {
    std::vector<CopyPending> &pending = copy_pending[threadIdx.x];
    size_t done = 0;
    for (; done < pending.size(); done++) {
        const CopyPending &p = pending[done];
        if ((int)(copy_group[threadIdx.x] - p.group) <= MOST) break;
        if (p.is_there)
            memcpy(p.to, p.from, (size_t)p.bytes);
        else
            memset(p.to, 0, (size_t)p.bytes);
    }
    pending.erase(pending.begin(), pending.begin() + (ptrdiff_t)done);
}

#endif

#endif
