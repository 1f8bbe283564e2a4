/* slots.c — rows to the slots of experts and back. First the slot of every choice is computed, one
 * row of the batch per thread, then rows are copied. */
#include "kernel.h"

typedef struct Slots {
    const MxKernelCall *call;
    const MxSlotsAttr *attr;
    int64_t n_rows, n_choices, choices, n_slots; /* choices: of a row of the batch; of a token */
    int64_t width;
    size_t row_bytes;
    int32_t *slot;  /* [n_rows, n_choices] among all of the row, -1 = none */
    int64_t *count; /* [threads, experts] */
} Slots;

static Slots slots_of(const MxKernelCall *call) {
    MxType x = call->in_type[0];
    MxShape ids = call->in_type[1].shape;
    Slots s = {.call = call, .attr = call->attr};
    s.n_rows = ids.dim[0];
    s.n_choices = ids.dim[1] * ids.dim[2];
    s.choices = ids.dim[2];
    s.n_slots = cpu_max(1, s.attr->capacity);
    s.width = x.shape.dim[x.shape.rank - 1];
    s.row_bytes = (size_t)s.width * mx_dtype_bytes(x.dtype);
    return s;
}

static size_t carve(const MxDevice *device, Slots *s, void *scratch) {
    char *begin = scratch;
    s->slot = cpu_carve(&scratch, sizeof *s->slot * (size_t)(s->n_rows * s->n_choices));
    s->count =
        cpu_carve(&scratch, sizeof *s->count * (size_t)(s->attr->n_experts * device->n_threads));
    return (size_t)((char *)scratch - begin);
}

static size_t slots_scratch(const MxDevice *device, const MxKernelCall *call) {
    static char origin[1]; /* offsets alone matter */
    Slots s = slots_of(call);
    return carve(device, &s, origin);
}

static void find_slots(const void *context, int64_t begin, int64_t end, int worker) {
    const Slots *s = context;
    int64_t n_experts = s->attr->n_experts, *count = s->count + worker * n_experts;
    for (int64_t row = begin; row < end; row++) {
        const int32_t *ids = (const int32_t *)s->call->in[1] + row * s->n_choices;
        int32_t *slot = s->slot + row * s->n_choices;
        memset(count, 0, sizeof *count * (size_t)n_experts);
        for (int64_t i = 0; i < s->n_choices; i++) {
            MX_ASSERT(ids[i] >= -1 && ids[i] < n_experts);
            bool has_room = ids[i] >= 0 && count[ids[i]] < s->attr->capacity;
            slot[i] = has_room ? (int32_t)(ids[i] * s->n_slots + count[ids[i]]++) : -1;
        }
    }
}

/* Ready to copy. */
static Slots start(const MxDevice *device, const MxKernelCall *call) {
    Slots s = slots_of(call);
    MX_ASSERT(s.attr->n_experts * s.n_slots <= INT32_MAX);
    carve(device, &s, call->scratch);
    cpu_for(device, s.n_rows, 1, find_slots, &s);
    return s;
}

/* Choice i's row among the slots of all rows of the batch, -1 = it has none. */
static int64_t place(const Slots *s, int64_t i) {
    int64_t row = i / s->n_choices;
    return s->slot[i] < 0 ? -1 : row * s->attr->n_experts * s->n_slots + s->slot[i];
}

static void put_rows(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const Slots *s = context;
    bool is_shared = s->call->in_type[0].shape.rank == s->call->in_type[1].shape.rank;
    for (int64_t i = begin; i < end; i++) {
        int64_t to = place(s, i), from = is_shared ? i / s->choices : i;
        if (to < 0) continue;
        if (s->call->out[0])
            memcpy((char *)s->call->out[0] + (size_t)to * s->row_bytes,
                   (const char *)s->call->in[0] + (size_t)from * s->row_bytes, s->row_bytes);
        if (s->call->out[1])
            ((int32_t *)s->call->out[1])[to] = ((const int32_t *)s->call->in[1])[i];
    }
}

static int64_t piece(const Slots *s) {
    return cpu_max(1, CPU_PIECE / cpu_max(1, s->width));
}

static void to_slots_run(const MxDevice *device, const MxKernelCall *call) {
    Slots s = start(device, call);
    int64_t n = s.n_rows * s.attr->n_experts * s.n_slots;
    if (call->out[0]) cpu_zero(device, call->out[0], (size_t)n * s.row_bytes);
    if (call->out[1]) memset(call->out[1], -1, sizeof(int32_t) * (size_t)n);
    cpu_for(device, s.n_rows * s.n_choices, piece(&s), put_rows, &s);
}

const MxKernel cpu_to_slots = {.scratch = slots_scratch, .run = to_slots_run};

static void take_rows(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const Slots *s = context;
    for (int64_t i = begin; i < end; i++) {
        int64_t from = place(s, i);
        char *to = (char *)s->call->out[0] + (size_t)i * s->row_bytes;
        if (from < 0)
            memset(to, 0, s->row_bytes);
        else
            memcpy(to, (const char *)s->call->in[0] + (size_t)from * s->row_bytes, s->row_bytes);
    }
}

/* Sums are made in f32 and rounded once. */
static void sum_rows(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const Slots *s = context;
    MxDtype dtype = s->call->in_type[0].dtype;
    float block[CPU_BLOCK], sum[CPU_BLOCK];
    for (int64_t token = begin; token < end; token++)
        for (int64_t at = 0, n; at < s->width; at += n) {
            n = cpu_min(CPU_BLOCK, s->width - at);
            memset(sum, 0, sizeof *sum * (size_t)n);
            for (int64_t i = token * s->choices; i < (token + 1) * s->choices; i++) {
                if (place(s, i) < 0) continue;
                const float *from =
                    cpu_read(s->call->in[0], dtype, place(s, i) * s->width + at, n, block);
#pragma omp simd
                for (int64_t k = 0; k < n; k++) sum[k] += from[k];
            }
            cpu_store(sum, n, s->call->out[0], dtype, token * s->width + at);
        }
}

static void from_slots_run(const MxDevice *device, const MxKernelCall *call) {
    if (!call->out[0]) return;
    Slots s = start(device, call);
    int64_t n = s.n_rows * s.n_choices;
    if (s.attr->sums)
        cpu_for(device, n / cpu_max(1, s.choices), piece(&s), sum_rows, &s);
    else
        cpu_for(device, n, piece(&s), take_rows, &s);
}

const MxKernel cpu_from_slots = {.scratch = slots_scratch, .run = from_slots_run};
