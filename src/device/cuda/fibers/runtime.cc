/* runtime.cc — the driver of the fibers: the device's memory is the host's, and kernels have ended
 * when they are started. */
#include "device/cuda/gpu.cuh"

#include <sys/mman.h>

bool gpu_runtime_open(Gpu *gpu, MxError *) {
    gpu->n_processors = 4;
    gpu->name = "fibers of the host in place of a GPU";
    return true;
}

typedef struct Mapping {
    void *base;
    size_t bytes;
} Mapping;

static void unmap(void *data) {
    const Mapping *mapping = (const Mapping *)data;
    munmap(mapping->base, mapping->bytes);
}

bool gpu_runtime_alloc(Gpu *gpu, size_t bytes, void **out, MxError *err) {
    Mapping *mapping = mx_new(gpu->device.arena, Mapping);
    mapping->bytes = bytes + 1;
    mapping->base = mmap(nullptr, mapping->bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping->base == MAP_FAILED)
        return mx_fail(err, MX_EXIT_NO_MEMORY, MX_NOWHERE, "could not get %zu MiB of memory",
                       bytes >> 20);
    mx_arena_on_release(gpu->device.arena, unmap, mapping);
    *out = mapping->base;
    return true;
}

/* What waits for kernels cannot be recorded among them. */
void gpu_runtime_sync(const Gpu *) {
    MX_ASSERT(!fibers_is_recording());
}

void gpu_runtime_read(const Gpu *gpu, const void *from, void *host, size_t bytes) {
    gpu_runtime_sync(gpu);
    memcpy(host, from, bytes);
}

void gpu_runtime_write(const Gpu *gpu, void *to, const void *host, size_t bytes) {
    gpu_runtime_sync(gpu);
    memcpy(to, host, bytes);
}

void gpu_runtime_copy(const Gpu *, void *to, const void *from, size_t bytes) {
    fibers_submit([=] { memmove(to, from, bytes); });
}

void gpu_runtime_zero(const Gpu *, void *to, size_t bytes) {
    fibers_submit([=] { memset(to, 0, bytes); });
}

/* ---- recorded spans: what was submitted is kept and done again */

void gpu_runtime_record_begin(const Gpu *) {
    fibers_record_begin();
}

void *gpu_runtime_record_end(const Gpu *gpu) {
    FibersRecord *record = fibers_record_end();
    mx_arena_on_release(gpu->device.arena, fibers_record_free, record);
    return record;
}

void gpu_runtime_replay(const Gpu *, const void *record) {
    fibers_replay((const FibersRecord *)record);
}
