/* cpu.h — what the files of the CPU backend share: the device, loops over threads, the element-wise
 * driver, conversion of dtypes and the matrix product.
 *
 * Loops are cut into pieces by size, never by thread, and partial sums are added up in the order of
 * the pieces: results do not depend on how many threads ran. OpenMP itself occurs in threads.c
 * alone. */
#ifndef CPU_H
#define CPU_H

#include <mx/device.h>

/* Compiled for the instruction sets of the x86-64 levels, chosen when the program is loaded. Not
 * for clang, whose version 14 does not know levels here, nor under sanitizers, which are not ready
 * when the choice is made. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) &&                             \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !defined(MX_ONE_LEVEL)
#define CPU_LEVELS __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define CPU_LEVELS
#endif

/* Compiled for processors that round to bf16 and multiply pairs of it; run only there. */
#if defined(__x86_64__)
#define CPU_PAIRS __attribute__((target("avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))
#else
#define CPU_PAIRS
#endif

typedef struct CpuMatmul CpuMatmul;

struct MxDevice {
    MxArena *arena;
    MxDeviceConfig config;
    int n_threads;
    bool has_avx512, has_bf16; /* bf16: products of it in hardware */
    bool has_amx;              /* and by tiles */
    bool has_wide_blas;        /* OpenBLAS runs kernels for this machine's widest vectors */
    const char *description;
    CpuMatmul **cache; /* head of the list of prepared products */
    void *onednn;
};

/* ---- threads.c */

/* Does [begin, end) of the work; worker is in [0, n_threads). */
typedef void CpuWork(const void *context, int64_t begin, int64_t end, int worker);

/* cpu_for — runs work over [0, n) in pieces of `piece`, shared evenly among the threads; one piece
 * runs at once. cpu_for_uneven — pieces are handed out in their order as threads become free. */
void cpu_for(const MxDevice *device, int64_t n, int64_t piece, CpuWork *work, const void *context);
void cpu_for_uneven(const MxDevice *device, int64_t n, int64_t piece, CpuWork *work,
                    const void *context);
/* cpu_threads_open — sets the number of threads (0 = leave it) and returns it. */
int cpu_threads_open(int wanted);

static inline int64_t cpu_pieces(int64_t n, int64_t piece) {
    return (n + piece - 1) / piece;
}
static inline int64_t cpu_min(int64_t a, int64_t b) {
    return a < b ? a : b;
}
static inline int64_t cpu_max(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* ---- convert.c */

enum {
    CPU_BLOCK = 1024,    /* elements that are converted at a time: a few of them fit in L1 */
    CPU_PIECE = 1 << 15, /* elements that are worth a thread's while */
    CPU_ALIGN = 64
};

void cpu_widen(const MxBf16 *x, int64_t n, float *y);
void cpu_narrow(const float *x, int64_t n, MxBf16 *y);

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

/* cpu_carve — takes bytes off a scratch pointer, 64-byte aligned; cpu_padded is what it takes. */
static inline size_t cpu_padded(size_t bytes) {
    return (bytes + CPU_ALIGN - 1) / CPU_ALIGN * CPU_ALIGN;
}
static inline void *cpu_carve(void **scratch, size_t bytes) {
    void *p = *scratch;
    *scratch = (char *)p + cpu_padded(bytes);
    return p;
}

/* ---- map.c */

enum { CPU_MAP_IN = 4, CPU_MAP_OUT = 3 };

/* n elements of every input to n elements of every output, as floats. An output may be an input. */
typedef void CpuMapBlock(int64_t n, const float *const *in, float *const *out, const float *param);

/* cpu_map — runs a block function over a call's first n_in inputs and all its outputs; honours
 * dtypes, accumulate, unwanted outputs, and a last input that repeats itself. */
void cpu_map(const MxDevice *device, const MxKernelCall *call, int n_in, CpuMapBlock *block,
             const float *param);

/* ---- matmul.c, openblas.c, onednn.c, narrow.c */

/* C[m, n] = op(A)[m, k] op(B)[k, n], row-major, added to C if accumulate. Leading dims are in
 * elements; 0 = dense. in: f32 or bf16. */
typedef struct CpuMatmulSpec {
    int64_t m, n, k, lda, ldb, ldc;
    bool trans_a, trans_b, accumulate;
    MxDtype in, out;
} CpuMatmulSpec;

typedef struct CpuProvider {
    const char *name;
    /* NULL = needs none, nothing to prepare */
    size_t (*scratch)(const MxDevice *device, const CpuMatmulSpec *spec);
    bool (*prepare)(MxDevice *device, CpuMatmul *matmul, MxError *err);
    void (*run)(const CpuMatmul *matmul, const void *a, const void *b, void *c, void *scratch);
} CpuProvider;

extern const CpuProvider cpu_openblas, cpu_onednn, cpu_narrow_products;

/* cpu_is_narrow — whether cpu_narrow_products can make a product. */
bool cpu_is_narrow(const CpuMatmulSpec *spec);

/* A product ready to run. `run` is what the provider gets to see; widen and narrow say what
 * is converted for it. */
struct CpuMatmul {
    const MxDevice *device;
    CpuMatmulSpec spec, run;
    const CpuProvider *provider;
    bool widen, narrow;
    void *state; /* the provider's */
    CpuMatmul *next;
};

/* cpu_matmul_prepare — the product from the device's cache, made if need be; NULL on error. */
const CpuMatmul *cpu_matmul_prepare(MxDevice *device, CpuMatmulSpec spec, MxError *err);
/* cpu_matmul_scratch — bytes that cpu_matmul needs for it. */
size_t cpu_matmul_scratch(const MxDevice *device, CpuMatmulSpec spec);
void cpu_matmul(const CpuMatmul *matmul, const void *a, const void *b, void *c, void *scratch);

/* cpu_has_bf16_products — whether bf16 is multiplied as it is, rather than converted to f32. */
bool cpu_has_bf16_products(const MxDevice *device);
/* cpu_matmul_describe — which library for what, and why. */
void cpu_matmul_describe(const MxDevice *device, MxText *text);

bool cpu_openblas_open(MxDevice *device, MxError *err);
const char *cpu_openblas_core(void);
bool cpu_onednn_open(MxDevice *device, MxError *err);
const char *cpu_onednn_version(MxArena *arena);

#endif
