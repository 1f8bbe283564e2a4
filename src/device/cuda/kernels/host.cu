/* host.cu — ops that a GPU leaves to the host: the CPU's kernels run on copies of their arrays.
 * They are the exchanges between ranks, what is joined around a ring, the pooling of windows, and
 * caches in few bits; kernels of a few other ops call it for what ranks share. */
#include "device/cuda/gpu.cuh"
extern "C" {
#include "device/cpu/cpu.h"
}

/* A call as the CPU's kernel sees it. */
typedef struct HostCall {
    MxKernelCall call;
    const MxKernel *kernel;
    int n_phases;
} HostCall;

static size_t bytes_of(const MxType *type) {
    return (size_t)mx_shape_count(type->shape) * mx_dtype_bytes(type->dtype);
}

static void *host_memory(MxDevice *device, size_t bytes) {
    enum { ALIGN = 64 };
    char *memory = (char *)mx_arena_alloc(device->arena, bytes + ALIGN);
    return memory + (ALIGN - (uintptr_t)memory % ALIGN) % ALIGN;
}

bool gpu_host_prepare(MxDevice *device, MxKernelCall *call, MxError *err) {
    MxDevice *cpu = ((Gpu *)device)->cpu;
    HostCall *host = mx_new(device->arena, HostCall);
    host->call = *call;
    host->kernel = backend_cpu.kernel(cpu, call->op);
    host->n_phases =
        call->n_in ? mx_op_phases(&cpu_machine, call->op, call->in_type[0], call->attr) : 1;
    host->call.in = mx_new_n(device->arena, void *, call->n_in + call->n_out + 1);
    host->call.out = host->call.in + call->n_in;
    for (int i = 0; i < call->n_in; i++)
        host->call.in[i] = host_memory(device, bytes_of(&call->in_type[i]));
    for (int i = 0; i < call->n_out; i++)
        host->call.out[i] = host_memory(device, bytes_of(&call->out_type[i]));
    if (host->kernel->scratch)
        host->call.scratch = host_memory(device, host->kernel->scratch(cpu, &host->call));
    call->state = host;
    call->waits = true;
    return !host->kernel->prepare || host->kernel->prepare(cpu, &host->call, err);
}

/* The call of a phase: outputs that nobody wants are not made. */
static MxKernelCall of_phase(const HostCall *host, const MxKernelCall *call, void **out) {
    MxKernelCall own = host->call;
    own.phase = call->phase;
    own.out = out;
    for (int i = 0; i < call->n_out; i++) out[i] = call->out[i] ? host->call.out[i] : nullptr;
    return own;
}

void gpu_host_run(const MxDevice *device, const MxKernelCall *call) {
    const Gpu *gpu = gpu_of(device);
    const HostCall *host = (const HostCall *)call->state;
    void *out[MX_MAX_OUT];
    MxKernelCall own = of_phase(host, call, out);
    for (int i = 0; i < call->n_in && !call->phase; i++)
        gpu_runtime_read(gpu, call->in[i], own.in[i], bytes_of(&call->in_type[i]));
    for (int i = 0; i < call->n_out && !call->phase; i++)
        if (out[i] && call->accumulate >> i & 1)
            gpu_runtime_read(gpu, call->out[i], out[i], bytes_of(&call->out_type[i]));
    host->kernel->run(gpu->cpu, &own);
    for (int i = 0; i < call->n_out && call->phase == host->n_phases - 1; i++)
        if (out[i]) gpu_runtime_write(gpu, call->out[i], out[i], bytes_of(&call->out_type[i]));
}

#define ON_HOST(symbol) GPU_KERNEL(symbol, .prepare = gpu_host_prepare, .run = gpu_host_run)

ON_HOST(all_reduce);
ON_HOST(reduce_scatter);
ON_HOST(all_gather);
ON_HOST(send);
ON_HOST(sent);
ON_HOST(receive);
ON_HOST(all_to_all);
ON_HOST(swap_halves);
ON_HOST(ring_shift);
ON_HOST(join_attention);
ON_HOST(to_few);
ON_HOST(from_few);
ON_HOST(every);
ON_HOST(first_bits);
ON_HOST(row_ids);
ON_HOST(chunks);
ON_HOST(cache_chunks);
ON_HOST(cache_codes);
ON_HOST(pooled_attention);
ON_HOST(pooled_attention_grad);
ON_HOST(cache_pooled_attention);
ON_HOST(pool);
ON_HOST(pool_grad);
ON_HOST(cache_pool);
ON_HOST(cache_windows);
ON_HOST(cache_last_window);
ON_HOST(top_logits);
ON_HOST(distill_top);
ON_HOST(distill_top_grad);
