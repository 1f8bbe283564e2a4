/* cache_rows.c — writing rows of caches into their slots. */
#include "cache_rows.h"

typedef struct Slots {
    const MxKernelCall *call;
    int64_t slots, rows; /* of a sequence: in the cache, and new ones */
    size_t bytes;        /* of a row */
} Slots;

static Slots slots_of(const MxKernelCall *call) {
    MxShape cache = call->in_type[0].shape;
    Slots s = {.call = call, .slots = cache.dim[1], .rows = call->in_type[1].shape.dim[1]};
    s.bytes = mx_dtype_bytes(call->in_type[0].dtype);
    for (int d = 2; d < cache.rank; d++) s.bytes *= (size_t)cache.dim[d];
    return s;
}

static void write_sequences(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const Slots *s = context;
    const MxKernelCall *call = s->call;
    const int32_t *sequences = call->in[3];
    for (int64_t b = begin; b < end; b++) {
        const int32_t *position = (const int32_t *)call->in[2] + b * s->rows;
        const char *row = (const char *)call->in[1] + (size_t)(b * s->rows) * s->bytes;
        char *cache = (char *)call->out[0] + (size_t)(sequences[b] * s->slots) * s->bytes;
        for (int64_t t = 0; t < s->rows; t++)
            if (position[t] >= 0)
                memcpy(cache + (size_t)(position[t] % s->slots) * s->bytes,
                       row + (size_t)t * s->bytes, s->bytes);
    }
}

static void cache_write_run(const MxDevice *device, const MxKernelCall *call) {
    Slots s = slots_of(call);
    int64_t row_bytes = s.rows * (int64_t)s.bytes;
    size_t all = (size_t)(call->in_type[0].shape.dim[0] * s.slots) * s.bytes;
    if (!call->out[0]) return;
    if (call->out[0] != call->in[0] && all) memcpy(call->out[0], call->in[0], all);
    cpu_for(device, call->in_type[1].shape.dim[0], cpu_max(1, CPU_PIECE / cpu_max(1, row_bytes)),
            write_sequences, &s);
}

const MxKernel cpu_cache_write = {.run = cache_write_run};
