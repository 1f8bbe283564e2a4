/* kernel.h — shared by kernels: conversion of dtypes, the element-wise driver, the matrix product.
 *
 * Files of this folder are compiled once for each processor level, with all instructions of that
 * level, and their definitions are visible only to files of the same level. So a kernel is plain C
 * on vectors as wide as the compiler has them, and the few kernels with intrinsics use the
 * preprocessor. Only the table of kernels (table.c) is visible from outside. */
#ifndef CPU_KERNEL_H
#define CPU_KERNEL_H

#include "device/cpu/cpu.h"

/* ---- convert.c */

enum {
    CPU_BLOCK = 1024,   /* elements that are converted at a time: a few of them fit in L1 */
    CPU_PIECE = 1 << 15 /* elements that are worth a thread's while */
};

void cpu_widen(const MxBf16 *x, int64_t n, float *y);
void cpu_narrow(const float *x, int64_t n, MxBf16 *y);
void cpu_widen_bytes(const int8_t *x, int64_t n, float *y);

/* cpu_read — n floats of an array from element `at`: in place, or converted into `block`. */
static inline const float *cpu_read(const void *x, MxDtype dtype, int64_t at, int64_t n,
                                    float *block) {
    if (dtype == MX_F32) return (const float *)x + at;
    cpu_widen((const MxBf16 *)x + at, n, block);
    return block;
}
/* cpu_place — where to make n elements for cpu_write: in place, or in `block`. */
static inline float *cpu_place(void *y, MxDtype dtype, int64_t at, float *block) {
    return y && dtype == MX_F32 ? (float *)y + at : block;
}
static inline void cpu_write(const float *from, int64_t n, void *y, MxDtype dtype, int64_t at) {
    if (y && dtype == MX_BF16) cpu_narrow(from, n, (MxBf16 *)y + at);
}
/* cpu_store — y[at..] = from, which are elsewhere. */
static inline void cpu_store(const float *from, int64_t n, void *y, MxDtype dtype, int64_t at) {
    if (dtype == MX_F32)
        memcpy((float *)y + at, from, (size_t)n * sizeof *from);
    else
        cpu_narrow(from, n, (MxBf16 *)y + at);
}
/* cpu_add_to — y[at..] += from. */
void cpu_add_to(const float *from, int64_t n, void *y, MxDtype dtype, int64_t at);
void cpu_zero(const MxDevice *device, void *y, size_t bytes);

/* ---- init.c */

enum { CPU_PHILOX_LANES = 64, CPU_PHILOX_WORDS = 4 };

/* cpu_philox — mx_philox of as many counters in a row as there are lanes; word w of each in c[w].
 */
void cpu_philox(uint64_t seed, uint64_t stream, uint64_t counter,
                uint32_t c[CPU_PHILOX_WORDS][CPU_PHILOX_LANES]);

/* ---- map.c */

/* CPU_MAP_BLOCK: elements at a time. What a block reads and writes, and what conversions fetch for
 * the next one, stays in the first cache. */
enum { CPU_MAP_IN = 4, CPU_MAP_OUT = 3, CPU_MAP_BLOCK = 512 };

/* n elements of every input to n elements of every output, as floats. An output may be an input. */
typedef void CpuMapBlock(int64_t n, const float *const *in, float *const *out, const float *param);

/* cpu_map — runs a block function over a call's first n_in inputs and all its outputs; honours
 * dtypes, accumulate, unwanted outputs, and a last input that repeats itself. */
void cpu_map(const MxDevice *device, const MxKernelCall *call, int n_in, CpuMapBlock *block,
             const float *param);

/* ---- matmul.c, product.c, thin.c, few.c */

/* The right side of a product of few rows that is no array of floats or bf16: what reads its rows.
 * CPU_ROWS of them are read at a time, and the last ones, if they are fewer, one by one. */
enum { CPU_ROWS = 8 };
typedef struct CpuRows CpuRows;
struct CpuRows {
    /* n columns of a row, from `column` on, as floats. */
    void (*read)(const CpuRows *rows, int64_t row, int64_t column, int64_t n, float *to);
    /* sum += a[0] row + a[1] (row + 1) + …, CPU_ROWS rows, one after the other; NULL = it is made
     * of what `read` reads. */
    void (*add)(const CpuRows *rows, int64_t row, int64_t column, int64_t n, const float *a,
                float *sum);
    /* Has the memory of such rows come nearer. */
    void (*fetch)(const CpuRows *rows, int64_t row, int64_t column, int64_t n);
};

/* cpu_multiply_rows — C = A B, of a spec that cpu_is_few is true of and without trans_b. scratch as
 * much as cpu_few_products wants */
void cpu_multiply_rows(const MxDevice *device, const CpuMatmulSpec *spec, const void *a,
                       const CpuRows *b, void *c, void *scratch);

extern const CpuProvider cpu_own_products, cpu_thin_products, cpu_few_products;

/* cpu_is_thin — whether cpu_thin_products can make a product. */
bool cpu_is_thin(const CpuMatmulSpec *spec);
/* cpu_is_few — whether cpu_few_products can. */
bool cpu_is_few(const CpuMatmulSpec *spec);

/* cpu_matmul_prepare — the product from the device's cache, made if need be; NULL on error. */
const CpuMatmul *cpu_matmul_prepare(MxDevice *device, CpuMatmulSpec spec, MxError *err);
/* cpu_matmul_scratch — bytes that cpu_matmul needs for it. */
size_t cpu_matmul_scratch(const MxDevice *device, CpuMatmulSpec spec);
void cpu_matmul(const CpuMatmul *matmul, const void *a, const void *b, void *c, void *scratch);
/* cpu_matmul_part — the same for m rows of C and sums over k, at most as many as were prepared;
 * what lies behind those in a and b is zeros, and in c room: some providers go on to the end. */
void cpu_matmul_part(const CpuMatmul *matmul, const int64_t m_k[2], const void *a, const void *b,
                     void *c, void *scratch);

/* cpu_multiplies_bf16 — whether bf16 is multiplied as it is, rather than converted to f32: where
 * the processor is faster at it, if only libraries that can are asked. */
bool cpu_multiplies_bf16(const MxDevice *device);
/* cpu_multiplies_int8 — whether a spec may say int8, with sums of k products; otherwise its
 * operands must be widened before. */
bool cpu_multiplies_int8(const MxDevice *device, int64_t k);
/* cpu_splits_f32 — whether large products of f32 are made of three of bf16 (product.c). */
bool cpu_splits_f32(const MxDevice *device);
/* cpu_matmul_describe — who multiplies what. */
void cpu_matmul_describe(const MxDevice *device, MxText *text);

#endif
