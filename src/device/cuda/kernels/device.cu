/* device.cu — a GPU as a device, or the fibers that stand for one: memory, and the table of
 * kernels. */
#include "device/cuda/gpu.cuh"
extern "C" {
#include "device/cpu/cpu.h"
}

#define MX_OP(symbol) extern "C" const MxKernel cuda_##symbol;
#include <mx/ops.def>
#undef MX_OP

/* Ops that run nothing. */
GPU_KERNEL(variable, );
GPU_KERNEL(reshape, );
GPU_KERNEL(detach, );

static const MxKernel *const ops[MX_OP_COUNT] = {
#define MX_OP(symbol) &cuda_##symbol,
#include <mx/ops.def>
#undef MX_OP
};

static const MxKernel *kernel(const MxDevice *, const MxOp *op) {
    return ops[mx_op_index(op)];
}

/* ---- memory */

static int64_t memory(const MxDevice *device) {
    return gpu_of(device)->memory;
}

static bool alloc(MxDevice *device, size_t bytes, void **out, MxError *err) {
    return gpu_runtime_alloc((Gpu *)device, bytes, out, err);
}

static bool alloc_on_disk(MxDevice *, size_t, void **, MxError *err) {
    return mx_fail(
        err, MX_EXIT_CONFIG, MX_NOWHERE,
        "optimizer_memory_disk: a GPU cannot keep arrays in a file; leave it out, or use "
        "hardware=cpu");
}

static void read(const MxDevice *device, const void *from, void *host, size_t bytes) {
    gpu_runtime_read(gpu_of(device), from, host, bytes);
}

static void write(const MxDevice *device, void *to, const void *host, size_t bytes) {
    gpu_runtime_write(gpu_of(device), to, host, bytes);
}

static void sync(const MxDevice *device) {
    gpu_runtime_sync(gpu_of(device));
}

static void progress(const MxDevice *device) {
    if (device->config.comm) mx_comm_progress(device->config.comm);
}

/* ---- recording */

static void record_begin(const MxDevice *device) {
    gpu_runtime_record_begin(gpu_of(device));
}

static void *record_end(const MxDevice *device) {
    return gpu_runtime_record_end(gpu_of(device));
}

static void replay(const MxDevice *device, const void *record) {
    gpu_runtime_replay(gpu_of(device), record);
}

/* ---- the device */

static const char *describe(const MxDevice *device) {
    const Gpu *gpu = gpu_of(device);
    return mx_arena_printf(device->arena, "%s, %s", gpu->name, gpu->products);
}

static const char *arithmetic(const MxDevice *device) {
    return describe(device);
}

static bool open(MxArena *arena, const MxDeviceConfig *config, MxDevice **out, MxError *err) {
    Gpu *gpu = mx_new(arena, Gpu);
    gpu->device.arena = arena;
    gpu->device.config = *config;
    if (!backend_cpu.open(arena, config, &gpu->cpu, err)) return false;
    gpu->device.n_threads = gpu->cpu->n_threads;
    if (!gpu_runtime_open(gpu, err) || !gpu_products_open(gpu, err)) return false;
    *out = &gpu->device;
    return true;
}

/* What load.c looks for: the sum of the headers that the program must have too; everything but the
 * row's name, its machine and its `open`, which are its own. */
extern "C" const uint32_t cuda_headers;
const uint32_t cuda_headers = MX_LOADED;

extern "C" const MxBackend cuda_loaded;
const MxBackend cuda_loaded = {
    .name = nullptr,
    .machine = nullptr,
    .shares_memory = false,
    .open = open,
    .describe = describe,
    .arithmetic = arithmetic,
    .memory = memory,
    .alloc = alloc,
    .alloc_on_disk = alloc_on_disk,
    .read = read,
    .write = write,
    .sync = sync,
    .progress = progress,
    .record_begin = record_begin,
    .record_end = record_end,
    .replay = replay,
    .kernel = kernel,
};
