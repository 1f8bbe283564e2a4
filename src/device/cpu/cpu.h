/* cpu.h — shared by the CPU backend: processor levels, the device, loops over threads, and the two
 * libraries as providers of matrix products. Code shared by kernels is in kernels/kernel.h.
 *
 * Loops are cut into pieces by size, never by thread, and partial sums are added up in the order of
 * the pieces: results do not depend on the number of threads. OpenMP itself occurs only in
 * threads.c. */
#ifndef CPU_H
#define CPU_H

#include <mx/device.h>

/* ---- level.c */

/* The folder kernels/ is compiled once for each of these, with the instructions that it names; each
 * level then has its own table of everything below. */
typedef struct CpuKernels CpuKernels;

/* A processor, as far as kernels and libraries can tell it from others. Later rows have all that
 * earlier ones have. */
typedef struct CpuLevel {
    const char *name;          /* what MX_CPU calls it */
    const char *label;         /* for people */
    const CpuKernels *kernels; /* may be shared with the level below */
    const char *openblas_core; /* OPENBLAS_CORETYPE */
    const char *onednn_isa;    /* ONEDNN_MAX_CPU_ISA */
    bool has_bf16, has_tiles;  /* instructions that multiply bf16: of vectors, of AMX */
    bool has_int8;             /* those that multiply int8 and add up in int32 (VNNI) */
    bool (*is_here)(void);     /* whether this machine has it */
} CpuLevel;

/* cpu_level_find — the machine's highest level, or the one that MX_CPU names. Caps both libraries
 * at it, which must not have been used before. Errors: MX_CPU names no level, or one that the
 * machine does not reach. */
const CpuLevel *cpu_level_find(MxError *err);

/* ---- device.c */

extern const MxBackend backend_cpu;

/* ---- disk.c */

/* cpu_disk_map — memory of zeros that is a file of a folder: mx_device_alloc_on_disk. To be
 * unmapped. */
bool cpu_disk_map(const char *folder, size_t bytes, void **out, MxError *err);

/* ---- machine.c */

extern const MxMachine cpu_machine;

/* Sums of fewer elements are made by every rank from all ranks' terms, in one exchange; larger ones
 * part by part, in two. */
enum { CPU_SMALL_SUM = 1024 };

typedef struct CpuMatmul CpuMatmul;

/* An opened CPU. */
typedef struct Cpu {
    MxDevice device;
    const CpuLevel *level;
    bool has_fast_pairs; /* vectors multiply bf16 faster than they multiply floats */
    const char *arithmetic;
    CpuMatmul **cache; /* head of the list of prepared products */
    void *onednn;
} Cpu;

/* cpu_of — what the CPU has behind a device. */
static inline const Cpu *cpu_of(const MxDevice *device) {
    return (const Cpu *)device;
}

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

/* ---- scratch */

enum { CPU_ALIGN = 64 };

/* cpu_carve — takes bytes off a scratch pointer, 64-byte aligned; cpu_padded is what it takes. */
static inline size_t cpu_padded(size_t bytes) {
    return (bytes + CPU_ALIGN - 1) / CPU_ALIGN * CPU_ALIGN;
}
static inline void *cpu_carve(void **scratch, size_t bytes) {
    void *p = *scratch;
    *scratch = (char *)p + cpu_padded(bytes);
    return p;
}

/* ---- openblas.c, onednn.c; kernels/matmul.c has the rest of products */

/* C[m, n] = op(A)[m, k] op(B)[k, n], row-major, added to C if accumulate. Leading dims are in
 * elements; 0 = dense. in: f32, bf16, or int8, whose sums are exact up to 2^24. */
typedef struct CpuMatmulSpec {
    int64_t m, n, k, lda, ldb, ldc;
    bool trans_a, trans_b, accumulate;
    MxDtype in, out;
    bool is_square; /* A and B, one of them transposed, may be one array: C is then symmetric */
} CpuMatmulSpec;

typedef struct CpuProvider {
    const char *name;
    bool takes_less; /* runs products of fewer rows, or of shorter sums, than were prepared */
    /* NULL = needs none, nothing to prepare */
    size_t (*scratch)(const MxDevice *device, const CpuMatmulSpec *spec);
    bool (*prepare)(MxDevice *device, CpuMatmul *matmul, MxError *err);
    void (*run)(const CpuMatmul *matmul, const void *a, const void *b, void *c, void *scratch);
} CpuProvider;

extern const CpuProvider cpu_openblas, cpu_onednn;

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

bool cpu_openblas_open(MxError *err);
const char *cpu_openblas_core(void);
bool cpu_onednn_open(Cpu *cpu, MxError *err);
const char *cpu_onednn_version(MxArena *arena);

/* ---- kernels/table.c */

/* What a level offers: its kernels, the line that tells who multiplies; and, for tests of parts of
 * kernels, those parts. */
struct CpuKernels {
    const MxKernel *const *ops; /* [MX_OP_COUNT] */
    void (*describe)(const MxDevice *device, MxText *text);
    const CpuMatmul *(*prepare)(MxDevice *device, CpuMatmulSpec spec, MxError *err);
    size_t (*scratch)(const MxDevice *device, CpuMatmulSpec spec);
    void (*multiply)(const CpuMatmul *matmul, const void *a, const void *b, void *c, void *scratch);
    void (*widen)(const MxBf16 *x, int64_t n, float *y);
    void (*narrow)(const float *x, int64_t n, MxBf16 *y);
    void (*add_to)(const float *from, int64_t n, void *y, MxDtype dtype, int64_t at);
    const struct SmallParts *small; /* kernels/small.h */
};

#endif
