/* logits.cuh — functions of logits that are never stored whole: products with the head, a chunk of
 * tokens at a time (logits.cu), shared with what ops make of a chunk's rows (xent.cu, distill.cu).
 *
 * All tokens take part, also those that do not count: how many do is not known to the host, which
 * never waits for the device. Rows of logits are padded to whole vectors. */
#ifndef LOGITS_CUH
#define LOGITS_CUH

#include "device/cuda/gpu.cuh"

enum { H, W, TARGETS, WEIGHTS, DSUM, LOG_SUM = DSUM, DLOGP };
enum { ENTROPY = LOG_SUM + 1, DLOGP_BESIDE, DENTROPY }; /* where entropies have cotangents too */
enum { TEACHER_H = 4, TEACHER_W, NUMBERS, DISTILL_DLOSS };
enum { DW, DH, GRAD_SUM };

/* Products are prepared for whole chunks and for the tokens left over. */
enum { WHOLE, REST, SIZES };

/* One of a call's models: its logits [n, vocab] are products of h [n, width] and w. */
typedef struct LogitsHead {
    const MxXentAttr *attr;
    int64_t width;
    MxDtype dtype;
    const GpuProduct *logits[SIZES];
} LogitsHead;

typedef struct Logits {
    LogitsHead own, teacher;
    bool is_grad, has_teacher;
    int n_sums; /* over tokens: the loss and others */
    int64_t tokens, vocab, chunk, stride;
    const GpuProduct *dh[SIZES], *dw_first, *dw[SIZES]; /* dw_first: of the first chunk */
} Logits;

/* Tokens [first, first + n) with their logits, which a gradient overwrites with their cotangents;
 * sums: f64 [n, n_sums], for what the rows add to the results. */
typedef struct LogitsChunk {
    int64_t first, n;
    GpuArray logits, teacher;
    double *sums;
} LogitsChunk;

typedef void LogitsRows(const MxDevice *device, const MxKernelCall *call, const Logits *l,
                        const LogitsChunk *chunk);

size_t logits_scratch(const MxDevice *device, const MxKernelCall *call);
bool logits_prepare(MxDevice *device, MxKernelCall *call, MxError *err);
/* logits_run — all chunks; `rows` submits what becomes of a chunk's logits. */
void logits_run(const MxDevice *device, const MxKernelCall *call, LogitsRows *rows);

/* logits_threads — of the block that works on a row. */
static constexpr int LOGITS_BLOCK = 512;
unsigned logits_threads(const Logits *l);

/* ---- for rows */

/* What makes logits of products. */
typedef struct LogitsScale {
    float factor, cap, inverse_cap; /* cap: 0 = none */
} LogitsScale;

LogitsScale logits_scale(const MxXentAttr *attr);

__device__ static inline float logits_of(const LogitsScale &s, float product) {
    float x = product * s.factor;
    return s.cap > 0 ? s.cap * tanhf(x * s.inverse_cap) : x;
}

/* e^x for x <= 0. The argument's rounding matters only where the result is small beside 1. */
__device__ static inline float logits_exp(float x) {
    return exp2f(x * 1.44269504f);
}

/* GPU_PACK logits of a row that starts at element `row`; those beyond the vocabulary are -inf. */
__device__ static inline void logits_get(GpuArray products, int64_t row, int64_t at, int64_t vocab,
                                         const LogitsScale &s, float *x) {
    gpu_get_pack(products, row + at, x);
#pragma unroll
    for (int j = 0; j < GPU_PACK; j++) x[j] = at + j < vocab ? x[j] * s.factor : -INFINITY;
    if (s.cap <= 0) return;
#pragma unroll
    for (int j = 0; j < GPU_PACK; j++)
        if (at + j < vocab) x[j] = s.cap * tanhf(x[j] * s.inverse_cap);
}

/* Where tokens' targets stand among a rank's part of the vocabulary. */
typedef struct LogitsTargets {
    const int32_t *ids, *weights;
    int64_t first_id, n_ids, vocab; /* n_ids: of all ranks */
} LogitsTargets;

LogitsTargets logits_targets(const MxKernelCall *call, const Logits *l);

/* logits_target — -1 = with another rank. */
__device__ static inline int64_t logits_target(const LogitsTargets &t, int64_t token) {
    int64_t id = t.ids[token], at = id - t.first_id;
    GPU_ASSERT(id >= 0 && id < t.n_ids);
    return at >= 0 && at < t.vocab ? at : -1;
}

/* The cotangents of a row whose token does not count. */
__device__ static inline void logits_clear(GpuArray row, int64_t at, int64_t vocab) {
    const float zeros[GPU_PACK] = {};
    for (int64_t i = threadIdx.x * GPU_PACK; i < vocab; i += blockDim.x * GPU_PACK)
        gpu_put_pack(row, at + i, zeros);
}

#endif
