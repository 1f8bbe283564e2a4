/* map.c — the driver of element-wise kernels. A kernel is one function on blocks of floats; this
 * file divides arrays into blocks, converts from and to bf16 (in L1, so that memory is traversed
 * once), adds to the contents of a buffer, and divides work among threads. */
#include "kernel.h"

typedef struct Map {
    const MxKernelCall *call;
    CpuMapBlock *block;
    const float *param;
    int64_t period; /* elements of the last input */
    int n_in;
} Map;

static void run_block(const Map *map, int64_t at, int64_t n) {
    _Alignas(CPU_ALIGN) float in_block[CPU_MAP_IN][CPU_MAP_BLOCK],
        out_block[CPU_MAP_OUT][CPU_MAP_BLOCK];
    const float *in[CPU_MAP_IN];
    float *out[CPU_MAP_OUT];
    const MxKernelCall *call = map->call;
    for (int i = 0; i < map->n_in; i++) {
        int64_t from = i == map->n_in - 1 ? at % map->period : at;
        in[i] = cpu_read(call->in[i], call->in_type[i].dtype, from, n, in_block[i]);
    }
    for (int i = 0; i < call->n_out; i++)
        out[i] = call->accumulate >> i & 1
                     ? out_block[i]
                     : cpu_place(call->out[i], call->out_type[i].dtype, at, out_block[i]);
    map->block(n, in, out, map->param);
    for (int i = 0; i < call->n_out; i++)
        if (!call->out[i])
            continue;
        else if (call->accumulate >> i & 1)
            cpu_add_to(out[i], n, call->out[i], call->out_type[i].dtype, at);
        else
            cpu_write(out[i], n, call->out[i], call->out_type[i].dtype, at);
}

static void map_span(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const Map *map = context;
    for (int64_t at = begin, n; at < end; at += n) {
        n = cpu_min(end - at, CPU_MAP_BLOCK);
        n = cpu_min(n, map->period - at % map->period);
        run_block(map, at, n);
    }
}

void cpu_map(const MxDevice *device, const MxKernelCall *call, int n_in, CpuMapBlock *block,
             const float *param) {
    MX_ASSERT(n_in <= CPU_MAP_IN && call->n_out <= CPU_MAP_OUT);
    int64_t n = mx_shape_count(call->in_type[0].shape);
    if (!n) return;
    Map map = {.call = call, .block = block, .param = param, .n_in = n_in};
    map.period = mx_shape_count(call->in_type[n_in - 1].shape);
    cpu_for(device, n, CPU_PIECE, map_span, &map);
}
