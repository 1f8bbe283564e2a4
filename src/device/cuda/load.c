/* load.c — the rows of backends whose kernels are in a file of their own beside the programs: they
 * need CUDA, which a machine without a GPU lacks, and are loaded only if a run asks for them. */
#include "device/cpu/cpu.h"

#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

/* The folder of the running program, or what is beside it in an installation. */
static const char *const folders[] = {"", "../lib/mxtrain/"};

static void *open_library(MxArena *arena, const char *file, MxError *err) {
    char path[PATH_MAX] = "";
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    const char *folder = n > 0 ? dirname(path) : ".";
    const char *why = "";
    for (int i = 0; i < MX_COUNT(folders); i++) {
        const char *name = mx_arena_printf(arena, "%s/%s%s", folder, folders[i], file);
        void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
        if (library) return library;
        if (!i || access(name, F_OK) == 0) why = mx_arena_strdup(arena, dlerror());
    }
    mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE,
            "no %s beside the program (%s); docs/CUDA.md says how it is built", file, why);
    return NULL;
}

static bool open_loaded(const MxBackend *own, MxArena *arena, const MxDeviceConfig *config,
                        MxDevice **out, MxError *err) {
    const char *file = mx_arena_printf(arena, "mxtrain_%s.so", own->name);
    void *library = open_library(arena, file, err);
    if (!library) return false;
    const MxBackend *loaded = dlsym(library, "cuda_loaded");
    const uint32_t *headers = dlsym(library, "cuda_headers");
    if (!loaded || !headers || *headers != MX_LOADED)
        return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE,
                       "%s is of another version than this program: build it again", file);
    MxBackend *backend = mx_new(arena, MxBackend);
    *backend = *loaded;
    backend->name = own->name;
    backend->machine = own->machine;
    if (!loaded->open(arena, config, out, err)) return false;
    (*out)->backend = backend;
    return true;
}

/* ---- the machine: GPUs whose ranks exchange messages as CPUs do, through the host */

static MxCommCost collective_cost(MxCollective collective, MxType in, int ranks) {
    return cpu_machine.collective_cost(collective, in, ranks);
}

static int phases(MxCollective collective, MxType in, int ranks) {
    return cpu_machine.phases(collective, in, ranks);
}

/* A GPU computes 20000 operations while a byte crosses the host's bus; logits are made in pieces
 * that fill it. */
static const MxMachine machine = {
    .flops_a_byte = 20000,
    .touched_a_byte = 100,
    .exchange_bytes = 1e6,
    .collective_cost = collective_cost,
    .phases = phases,
    .small_bytes = 1 << 20,
    .bucket_bytes = 32 << 20,
    .chunk_tokens = 8192,
    .chunk_bytes = 1 << 30,
};

/* ---- rows */

#define LOADED(symbol)                                                                             \
    extern const MxBackend backend_##symbol;                                                       \
    static bool open_##symbol(MxArena *arena, const MxDeviceConfig *config, MxDevice **out,        \
                              MxError *err) {                                                      \
        return open_loaded(&backend_##symbol, arena, config, out, err);                            \
    }                                                                                              \
    const MxBackend backend_##symbol = {.name = #symbol, .machine = &machine, .open = open_##symbol}

LOADED(cuda);   /* GPUs of NVIDIA */
LOADED(fibers); /* the same kernels on the host, for tests */
