/* device.c — the CPU as a device: finds out what the processor can do, sets up threads and
 * libraries, hands out memory, and holds the table of kernels. */
#include <mx/device.h>

#include "small.h"

#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#define MX_OP(symbol) extern const MxKernel cpu_##symbol;
#include <mx/ops.def>
#undef MX_OP

static const MxKernel *const kernels[MX_OP_COUNT] = {
#define MX_OP(symbol) [MX_OP_##symbol] = &cpu_##symbol,
#include <mx/ops.def>
#undef MX_OP
};

/* Ops that run nothing. */
const MxKernel cpu_variable = {0};
const MxKernel cpu_reshape = {0};

const MxKernel *mx_device_kernel(const MxDevice *device, const MxOp *op) {
    (void)device;
    return kernels[mx_op_index(op)];
}

void mx_device_progress(const MxDevice *device) {
    if (device->config.comm) mx_comm_progress(device->config.comm);
}

/* ---- memory */

typedef struct Mapping {
    void *base;
    size_t bytes;
} Mapping;

static void unmap(void *data) {
    const Mapping *mapping = data;
    munmap(mapping->base, mapping->bytes);
}

enum { HUGE_BYTES = 2 << 20 };

/* Has pages there before they are used: with all threads, which kernels would not do that wait for
 * whoever meets new pages, and by writing, since reading first costs a fault more. */
static void touch_span(const void *context, int64_t begin, int64_t end, int worker) {
    enum { PAGE_BYTES = 4096 };
    (void)worker;
    char *const *memory = context;
    if (madvise(*memory + begin, (size_t)(end - begin), MADV_POPULATE_WRITE) == 0) return;
    for (int64_t at = begin; at < end; at += PAGE_BYTES) ((volatile char *)*memory)[at] = 0;
}

bool mx_device_alloc(MxDevice *device, size_t bytes, void **out, MxError *err) {
    size_t whole = (bytes + 2 * HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES; /* room to align */
    void *base = whole < bytes ? MAP_FAILED
                               : mmap(NULL, whole, PROT_READ | PROT_WRITE,
                                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return mx_fail(err, MX_EXIT_NO_MEMORY, MX_NOWHERE,
                       "could not get %zu MiB of memory for the device: %s", bytes >> 20,
                       strerror(errno));
    Mapping *mapping = mx_new(device->arena, Mapping);
    *mapping = (Mapping){.base = base, .bytes = whole};
    mx_arena_on_release(device->arena, unmap, mapping);
    char *start = (char *)(((uintptr_t)base + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES);
    if (bytes >= HUGE_BYTES) madvise(start, bytes, MADV_HUGEPAGE); /* a wish, may fail */
    cpu_for_uneven(device, (int64_t)bytes, HUGE_BYTES, touch_span, &start);
    *out = start;
    return true;
}

/* ---- processor */

static const char *processor_name(MxArena *arena) {
#if defined(__x86_64__)
    enum { FIRST_LEAF = 0x80000002u, LEAVES = 3, LEAF_BYTES = 16 };
    unsigned words[LEAVES * LEAF_BYTES / 4 + 1] = {0};
    for (unsigned i = 0; i < LEAVES; i++) {
        unsigned *w = words + 4 * i;
        if (!__get_cpuid(FIRST_LEAF + i, &w[0], &w[1], &w[2], &w[3])) return "x86-64";
    }
    char *name = mx_arena_strndup(arena, (const char *)words, LEAVES * LEAF_BYTES);
    while (*name == ' ') name++;
    for (size_t n = strlen(name); n && name[n - 1] == ' '; n--) name[n - 1] = '\0';
    return name;
#else
    (void)arena;
    return "processor";
#endif
}

#if defined(__x86_64__)
/* Matrix tiles of bf16: CPUID leaf 7, EDX bit 22. */
static bool has_amx(void) {
    enum { LEAF = 7, AMX_BF16 = 1 << 22 };
    unsigned a, b, c, d;
    return __get_cpuid_count(LEAF, 0, &a, &b, &c, &d) && d & AMX_BF16;
}
#endif

static const char *find_features(MxDevice *device) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    device->has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    device->has_bf16 = device->has_avx512 && __builtin_cpu_supports("avx512bf16");
    device->has_amx = device->has_bf16 && has_amx() && small_tiles_open();
    if (device->has_amx) return "AVX-512 with bf16, AMX";
    if (device->has_bf16) return "AVX-512 with bf16";
    if (device->has_avx512) return "AVX-512";
    if (__builtin_cpu_supports("avx2")) return "AVX2";
#endif
    return "baseline vectors";
}

bool mx_device_open(MxArena *arena, const MxDeviceConfig *config, MxDevice **out, MxError *err) {
    MxDevice *device = mx_new(arena, MxDevice);
    *device = (MxDevice){.arena = arena, .config = *config};
    const char *features = find_features(device);
    device->n_threads = cpu_threads_open(config->n_threads);
    device->cache = mx_new(arena, CpuMatmul *);
    if (!cpu_openblas_open(device, err) || !cpu_onednn_open(device, err)) return false;
    MxText text;
    mx_text_init(&text, arena);
    mx_text_add(&text, "%s, %d thread%s, %s; ", processor_name(arena), device->n_threads,
                device->n_threads == 1 ? "" : "s", features);
    cpu_matmul_describe(device, &text);
    device->description = text.data;
    *out = device;
    return true;
}

const char *mx_device_describe(const MxDevice *device) {
    return device->description;
}
