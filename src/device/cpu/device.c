/* device.c — the CPU as a device: detects the processor's features, sets up threads and libraries,
 * and allocates memory, also memory backed by files. */
#include "cpu.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

static const MxKernel *kernel(const MxDevice *device, const MxOp *op) {
    return cpu_of(device)->level->kernels->ops[mx_op_index(op)];
}

static void progress(const MxDevice *device) {
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

static void keep_mapping(MxDevice *device, void *base, size_t bytes) {
    Mapping *mapping = mx_new(device->arena, Mapping);
    *mapping = (Mapping){.base = base, .bytes = bytes};
    mx_arena_on_release(device->arena, unmap, mapping);
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

static bool alloc(MxDevice *device, size_t bytes, void **out, MxError *err) {
    size_t whole = (bytes + 2 * HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES; /* room to align */
    void *base = whole < bytes ? MAP_FAILED
                               : mmap(NULL, whole, PROT_READ | PROT_WRITE,
                                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return mx_fail(err, MX_EXIT_NO_MEMORY, MX_NOWHERE,
                       "could not get %zu MiB of memory for the device: %s", bytes >> 20,
                       strerror(errno));
    keep_mapping(device, base, whole);
    char *start = (char *)(((uintptr_t)base + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES);
    if (bytes >= HUGE_BYTES) madvise(start, bytes, MADV_HUGEPAGE); /* a wish, may fail */
    cpu_for_uneven(device, (int64_t)bytes, HUGE_BYTES, touch_span, &start);
    *out = start;
    return true;
}

static bool alloc_on_disk(MxDevice *device, size_t bytes, void **out, MxError *err) {
    if (!cpu_disk_map(device->config.folder, bytes, out, err)) return false;
    keep_mapping(device, *out, bytes);
    return true;
}

static void read(const MxDevice *device, const void *from, void *host, size_t bytes) {
    (void)device;
    memcpy(host, from, bytes);
}

static void write(const MxDevice *device, void *to, const void *host, size_t bytes) {
    (void)device;
    memcpy(to, host, bytes);
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

/* AMD's vectors multiply pairs of bf16 at twice the rate of floats (Zen 4 and 5), Intel's at half
 * of it (measured on Emerald Rapids: 80 and 167 GFLOP/s of a core). */
static bool has_fast_pairs(const CpuLevel *level) {
#if defined(__x86_64__)
    return level->has_bf16 && __builtin_cpu_is("amd");
#else
    return level->has_bf16;
#endif
}

static const char *describe_arithmetic(const Cpu *cpu) {
    MxText text;
    const MxDevice *device = &cpu->device;
    mx_text_init(&text, device->arena);
    const char *cap = getenv("MX_CPU");
    mx_text_add(&text, "%s%s; ", cpu->level->label, cap && *cap ? " (MX_CPU)" : "");
    cpu->level->kernels->describe(device, &text);
    return text.data;
}

static bool open(MxArena *arena, const MxDeviceConfig *config, MxDevice **out, MxError *err) {
    Cpu *cpu = mx_new(arena, Cpu);
    *cpu = (Cpu){.device = {.backend = &backend_cpu, .arena = arena, .config = *config},
                 .level = cpu_level_find(err)};
    if (!cpu->level) return false;
    cpu->has_fast_pairs = has_fast_pairs(cpu->level);
    cpu->device.n_threads = cpu_threads_open(config->n_threads);
    cpu->cache = mx_new(arena, CpuMatmul *);
    if (!cpu_openblas_open(err) || !cpu_onednn_open(cpu, err)) return false;
    cpu->arithmetic = describe_arithmetic(cpu);
    *out = &cpu->device;
    return true;
}

static const char *describe(const MxDevice *device) {
    return mx_arena_printf(device->arena, "%s, %d thread%s, %s", processor_name(device->arena),
                           device->n_threads, device->n_threads == 1 ? "" : "s",
                           cpu_of(device)->arithmetic);
}

static const char *arithmetic(const MxDevice *device) {
    return cpu_of(device)->arithmetic;
}

const MxBackend backend_cpu = {
    .name = "cpu",
    .machine = &cpu_machine,
    .shares_memory = true,
    .open = open,
    .describe = describe,
    .arithmetic = arithmetic,
    .alloc = alloc,
    .alloc_on_disk = alloc_on_disk,
    .read = read,
    .write = write,
    .progress = progress,
    .kernel = kernel,
};
