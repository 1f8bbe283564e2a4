/* runtime.cu — CUDA's driver: the GPU, its memory, one stream of work, and recorded spans of it. */
#include "device/cuda/gpu.cuh"

#include <cstdio>
#include <cstdlib>
#include <cstring>

struct GpuRuntime {
    cudaStream_t stream;
};

cudaStream_t gpu_stream(const Gpu *gpu) {
    return gpu->runtime->stream;
}

/* What a kernel or the card did wrong cannot be undone: the memory's contents are lost. */
void gpu_check(cudaError_t code, const char *what) {
    if (code == cudaSuccess) return;
    fprintf(stderr, "error: the GPU failed in %s: %s (%s)\n", what, cudaGetErrorString(code),
            cudaGetErrorName(code));
    abort();
}

static bool fails(cudaError_t code, MxExit exit, const char *what, MxError *err) {
    if (code == cudaSuccess) return false;
    cudaGetLastError(); /* it is told here */
    mx_fail(err, exit, MX_NOWHERE, "%s: %s", what, cudaGetErrorString(code));
    return true;
}

/* ---- the card */

/* Of the processes that a launcher started on this machine: each takes its own card, in turn. */
static int local_rank() {
    static const char *const names[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID",
                                        "MPI_LOCALRANKID"};
    for (const char *name : names)
        if (const char *value = getenv(name)) return (int)strtol(value, nullptr, 10);
    return 0;
}

static void close_runtime(void *data) {
    GpuRuntime *runtime = (GpuRuntime *)data;
    cudaStreamSynchronize(runtime->stream);
    cudaStreamDestroy(runtime->stream);
}

static bool open_card(Gpu *gpu, int n, MxError *err) {
    cudaDeviceProp properties;
    int number = local_rank() % n;
    if (fails(cudaSetDevice(number), MX_EXIT_CONFIG, "the GPU cannot be used", err) ||
        fails(cudaGetDeviceProperties(&properties, number), MX_EXIT_CONFIG,
              "the GPU cannot be asked what it is", err))
        return false;
    if (properties.major < 8)
        return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE,
                       "%s has compute capability %d.%d; 8.0 (A100) or later is needed",
                       properties.name, properties.major, properties.minor);
    gpu->n_processors = properties.multiProcessorCount;
    gpu->memory = (int64_t)properties.totalGlobalMem;
    gpu->name = mx_arena_strndup(gpu->device.arena, properties.name, sizeof properties.name);
    return true;
}

bool gpu_runtime_open(Gpu *gpu, MxError *err) {
    int n = 0;
    cudaError_t code = cudaGetDeviceCount(&n);
    if (code != cudaSuccess && gpu->device.config.only_plans) {
        cudaGetLastError();
        gpu->n_processors = 132;
        gpu->memory = INT64_C(79) << 30;
        gpu->name = "no GPU is here: an H100 of 80 GB is planned for";
        return true;
    }
    if (fails(code, MX_EXIT_CONFIG, "no GPU of NVIDIA can be used", err) || !open_card(gpu, n, err))
        return false;
    GpuRuntime *runtime = mx_new(gpu->device.arena, GpuRuntime);
    gpu->runtime = runtime;
    if (fails(cudaStreamCreateWithFlags(&runtime->stream, cudaStreamNonBlocking), MX_EXIT_CONFIG,
              "the GPU gives no stream", err))
        return false;
    mx_arena_on_release(gpu->device.arena, close_runtime, runtime);
    return true;
}

/* ---- memory */

static void free_memory(void *memory) {
    cudaFree(memory);
}

bool gpu_runtime_alloc(Gpu *gpu, size_t bytes, void **out, MxError *err) {
    void *memory = nullptr;
    if (cudaMalloc(&memory, bytes + 1) != cudaSuccess) {
        size_t available = 0, total = 0;
        cudaGetLastError();
        cudaMemGetInfo(&available, &total);
        return mx_fail(err, MX_EXIT_NO_MEMORY, MX_NOWHERE,
                       "could not get %zu MiB of the GPU's memory, of which %zu MiB of %zu MiB are "
                       "free",
                       bytes >> 20, available >> 20, total >> 20);
    }
    mx_arena_on_release(gpu->device.arena, free_memory, memory);
    gpu_runtime_zero(gpu, memory, bytes);
    *out = memory;
    return true;
}

void gpu_runtime_sync(const Gpu *gpu) {
    gpu_check(cudaStreamSynchronize(gpu_stream(gpu)), "a kernel");
}

void gpu_runtime_read(const Gpu *gpu, const void *from, void *host, size_t bytes) {
    gpu_check(cudaMemcpyAsync(host, from, bytes, cudaMemcpyDeviceToHost, gpu_stream(gpu)),
              "copying to the host");
    gpu_runtime_sync(gpu);
}

/* Of pageable memory of the host the driver keeps a copy before it returns. */
void gpu_runtime_write(const Gpu *gpu, void *to, const void *host, size_t bytes) {
    gpu_check(cudaMemcpyAsync(to, host, bytes, cudaMemcpyHostToDevice, gpu_stream(gpu)),
              "copying from the host");
}

void gpu_runtime_copy(const Gpu *gpu, void *to, const void *from, size_t bytes) {
    gpu_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, gpu_stream(gpu)),
              "copying");
}

void gpu_runtime_zero(const Gpu *gpu, void *to, size_t bytes) {
    gpu_check(cudaMemsetAsync(to, 0, bytes, gpu_stream(gpu)), "clearing memory");
}

/* ---- recorded spans */

static void destroy_record(void *record) {
    cudaGraphExecDestroy((cudaGraphExec_t)record);
}

void gpu_runtime_record_begin(const Gpu *gpu) {
    gpu_check(cudaStreamBeginCapture(gpu_stream(gpu), cudaStreamCaptureModeThreadLocal),
              "recording kernels");
}

void *gpu_runtime_record_end(const Gpu *gpu) {
    cudaGraph_t graph;
    cudaGraphExec_t record;
    gpu_check(cudaStreamEndCapture(gpu_stream(gpu), &graph), "recording kernels");
    gpu_check(cudaGraphInstantiate(&record, graph, 0), "preparing recorded kernels");
    gpu_check(cudaGraphDestroy(graph), "preparing recorded kernels");
    mx_arena_on_release(gpu->device.arena, destroy_record, record);
    return record;
}

void gpu_runtime_replay(const Gpu *gpu, const void *record) {
    gpu_check(cudaGraphLaunch((cudaGraphExec_t)record, gpu_stream(gpu)),
              "starting recorded kernels");
}
