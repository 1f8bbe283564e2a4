/* probe.c — runs one kernel by itself. */
#include "probe.h"

#include <check.h>

enum { GUARD_BYTES = 64, GUARD = 0xa5 };

size_t probe_bytes(MxType type) {
    return (size_t)mx_shape_count(type.shape) * mx_dtype_bytes(type.dtype);
}

static size_t padded(size_t bytes) {
    return (bytes + GUARD_BYTES - 1) / GUARD_BYTES * GUARD_BYTES + GUARD_BYTES;
}

/* Takes a buffer off the host's piece. */
static void *guarded(Probe *p, size_t bytes) {
    char *start = p->host + p->bytes;
    memset(start, 0xff, bytes); /* NaN */
    memset(start + bytes, GUARD, GUARD_BYTES);
    p->bytes += padded(bytes);
    return start;
}

static void allocate(Probe *p) {
    size_t bytes = padded(p->scratch_bytes);
    for (int i = 0; i < p->call.n_in; i++) bytes += padded(probe_bytes(p->in_type[i]));
    for (int i = 0; i < p->call.n_out; i++) bytes += padded(probe_bytes(p->out_type[i]));
    p->host = mx_arena_alloc(&p->arena, bytes + GUARD_BYTES);
    p->host += GUARD_BYTES - (uintptr_t)p->host % GUARD_BYTES;
    MxError err = {0};
    void *there;
    ck_assert_msg(mx_device_alloc(p->device, bytes, &there, &err), "%s", err.text.data);
    p->there = there;
    p->scratch = guarded(p, p->scratch_bytes);
    for (int i = 0; i < p->call.n_in; i++) p->in[i] = guarded(p, probe_bytes(p->in_type[i]));
    for (int i = 0; i < p->call.n_out; i++) p->out[i] = guarded(p, probe_bytes(p->out_type[i]));
}

static void check_guard(const void *start, size_t bytes, const char *what, int i) {
    const unsigned char *guard = (const unsigned char *)start + bytes;
    for (int j = 0; j < GUARD_BYTES; j++)
        ck_assert_msg(guard[j] == GUARD, "byte %d behind %s %d was overwritten", j, what, i);
}

static void infer_outputs(Probe *p, const ProbeOp *op) {
    MxText message;
    mx_text_init(&message, &p->arena);
    MxInfer infer = {
        .in = p->in_type, .n_in = op->n_in, .attr = op->attr, .n_out = 1, .message = &message};
    ck_assert_msg(op->op->infer(&infer), "%s: %s", op->op->name, message.data);
    for (int i = 0; i < infer.n_out; i++) p->out_type[i] = infer.out[i];
    p->call.n_out = infer.n_out;
}

static Probe *open_probes;

Probe *probe_open(const MxDeviceConfig *config, const ProbeOp *op) {
    MxArena arena = {.name = "probe"};
    Probe *p = mx_new(&arena, Probe);
    *p = (Probe){.arena = arena, .next = open_probes};
    open_probes = p;
    MxError err = {0};
    ck_assert_msg(mx_device_open(&p->arena, config, &p->device, &err), "%s",
                  err.count ? err.text.data : "");
    for (int i = 0; i < op->n_in; i++) p->in_type[i] = op->in_type[i];
    infer_outputs(p, op);
    p->call.op = op->op;
    p->call.attr = op->attr;
    p->call.in_type = p->in_type;
    p->call.out_type = p->out_type;
    p->call.n_in = op->n_in;
    p->call.accumulate = op->accumulate;
    const MxKernel *kernel = mx_device_kernel(p->device, op->op);
    p->scratch_bytes = kernel->scratch ? kernel->scratch(p->device, &p->call) : 0;
    if (kernel->prepare)
        ck_assert_msg(kernel->prepare(p->device, &p->call, &err), "%s", err.text.data);
    allocate(p);
    return p;
}

/* Where a buffer of the host's is on the device. */
static void *there(const Probe *p, const void *here) {
    return here ? p->there + ((const char *)here - p->host) : NULL;
}

void probe_run(Probe *p) {
    void *in[SHOT_INPUTS], *out[MX_MAX_OUT];
    for (int i = 0; i < p->call.n_in; i++) in[i] = there(p, p->in[i]);
    for (int i = 0; i < p->call.n_out; i++) out[i] = there(p, p->out[i]);
    p->call.in = in;
    p->call.out = out;
    p->call.scratch = there(p, p->scratch);
    mx_device_write(p->device, p->there, p->host, p->bytes);
    mx_device_kernel(p->device, p->call.op)->run(p->device, &p->call);
    mx_device_read(p->device, p->there, p->host, p->bytes);
    check_guard(p->scratch, p->scratch_bytes, "scratch", 0);
    for (int i = 0; i < p->call.n_in; i++)
        check_guard(p->in[i], probe_bytes(p->in_type[i]), "input", i);
    for (int i = 0; i < p->call.n_out; i++)
        if (p->out[i]) check_guard(p->out[i], probe_bytes(p->out_type[i]), "output", i);
}

void probe_close(void) {
    while (open_probes) {
        MxArena arena = open_probes->arena; /* the probe lives in its own arena */
        open_probes = open_probes->next;
        mx_arena_release(&arena);
    }
}

void probe_store(const double *from, MxType type, void *to) {
    int64_t n = mx_shape_count(type.shape);
    for (int64_t i = 0; i < n; i++) case_put(to, type.dtype, i, from[i]);
}

void probe_load(const void *from, MxType type, double *to) {
    int64_t n = mx_shape_count(type.shape);
    for (int64_t i = 0; i < n; i++) to[i] = case_get(from, type.dtype, i);
}
