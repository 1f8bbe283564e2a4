/* device.c — the CPU as a device whose memory only kernels and copies can access: its pages are
 * closed except while one of them runs. Host code that dereferences a device address crashes, as on
 * a device with its own memory. Kernels, and so results, are the CPU's, bit for bit. Tests run on
 * it (MX_BACKEND=guarded); it is slower by the calls that open and close the pages.
 *
 * Between the phases of an exchange the pages stay open: the message-passing library uses them
 * then, and may let the other ranks of the machine read them. */
#include "device/cpu/cpu.h"

#include <sys/mman.h>

extern const MxBackend backend_guarded;

/* One allocation. */
typedef struct Pages Pages;
struct Pages {
    char *start;
    size_t bytes;
    int n_at_work; /* that may touch it: it is open while there is one */
    Pages *next;
};

typedef struct Guarded {
    MxDevice device;
    MxDevice *cpu;
    Pages **pages; /* head of the list, the newest first */
} Guarded;

static const Guarded *guarded_of(const MxDevice *device) {
    return (const Guarded *)device;
}

static void protect(const Pages *pages, int how) {
    MX_ASSERT(!mprotect(pages->start, pages->bytes, how));
}

static void begin(Pages *pages) {
    if (!pages->n_at_work++) protect(pages, PROT_READ | PROT_WRITE);
}

static void end(Pages *pages) {
    if (!--pages->n_at_work) protect(pages, PROT_NONE);
}

/* The allocation that an address is in; NULL = it is none of this device's. */
static Pages *find(const Guarded *g, const void *address) {
    uintptr_t at = (uintptr_t)address;
    Pages *pages = *g->pages;
    while (pages && at - (uintptr_t)pages->start >= pages->bytes) pages = pages->next;
    return pages;
}

/* ---- memory */

static void guard(MxDevice *device, void *start, size_t bytes) {
    enum { PAGE_BYTES = 4096 };
    const Guarded *g = guarded_of(device);
    Pages *pages = mx_new(device->arena, Pages);
    *pages = (Pages){.start = start,
                     .bytes = (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES,
                     .next = *g->pages};
    *g->pages = pages;
    protect(pages, PROT_NONE);
}

static bool alloc(MxDevice *device, size_t bytes, void **out, MxError *err) {
    if (!backend_cpu.alloc(guarded_of(device)->cpu, bytes, out, err)) return false;
    guard(device, *out, bytes);
    return true;
}

static bool alloc_on_disk(MxDevice *device, size_t bytes, void **out, MxError *err) {
    if (!backend_cpu.alloc_on_disk(guarded_of(device)->cpu, bytes, out, err)) return false;
    guard(device, *out, bytes);
    return true;
}

static void read(const MxDevice *device, const void *from, void *host, size_t bytes) {
    const Guarded *g = guarded_of(device);
    Pages *pages = find(g, from);
    MX_ASSERT(pages);
    begin(pages);
    backend_cpu.read(g->cpu, from, host, bytes);
    end(pages);
}

static void write(const MxDevice *device, void *to, const void *host, size_t bytes) {
    const Guarded *g = guarded_of(device);
    Pages *pages = find(g, to);
    MX_ASSERT(pages);
    begin(pages);
    backend_cpu.write(g->cpu, to, host, bytes);
    end(pages);
}

/* ---- kernels: the CPU's, each between begin and end */

static const MxKernel *cpu_kernel(const MxDevice *device, const MxKernelCall *call) {
    return backend_cpu.kernel(guarded_of(device)->cpu, call->op);
}

static size_t scratch(const MxDevice *device, const MxKernelCall *call) {
    const MxKernel *kernel = cpu_kernel(device, call);
    return kernel->scratch ? kernel->scratch(guarded_of(device)->cpu, call) : 0;
}

static bool prepare(MxDevice *device, MxKernelCall *call, MxError *err) {
    const MxKernel *kernel = cpu_kernel(device, call);
    return !kernel->prepare || kernel->prepare(guarded_of(device)->cpu, call, err);
}

/* What of the device a call may touch, address by address. */
static void each(const Guarded *g, const MxKernelCall *call, void (*act)(Pages *pages)) {
    for (int i = 0; i <= call->n_in + call->n_out; i++) {
        const void *address = i < call->n_in                 ? call->in[i]
                              : i < call->n_in + call->n_out ? call->out[i - call->n_in]
                                                             : call->scratch;
        Pages *pages = find(g, address);
        if (pages) act(pages);
    }
}

static void run(const MxDevice *device, const MxKernelCall *call) {
    const Guarded *g = guarded_of(device);
    int n_phases =
        call->n_in ? mx_op_phases(&cpu_machine, call->op, call->in_type[0], call->attr) : 1;
    if (call->phase == 0) each(g, call, begin);
    cpu_kernel(device, call)->run(g->cpu, call);
    if (call->phase == n_phases - 1) each(g, call, end);
}

static const MxKernel kernels = {.scratch = scratch, .prepare = prepare, .run = run};

static const MxKernel *kernel(const MxDevice *device, const MxOp *op) {
    (void)device, (void)op;
    return &kernels;
}

/* ---- the device */

static void progress(const MxDevice *device) {
    const Guarded *g = guarded_of(device);
    backend_cpu.progress(g->cpu);
}

static const char *describe(const MxDevice *device) {
    return mx_arena_printf(device->arena, "%s; its memory is guarded",
                           backend_cpu.describe(guarded_of(device)->cpu));
}

static const char *arithmetic(const MxDevice *device) {
    return backend_cpu.arithmetic(guarded_of(device)->cpu);
}

static bool open(MxArena *arena, const MxDeviceConfig *config, MxDevice **out, MxError *err) {
    Guarded *g = mx_new(arena, Guarded);
    if (!backend_cpu.open(arena, config, &g->cpu, err)) return false;
    g->device = *g->cpu;
    g->device.backend = &backend_guarded;
    g->pages = mx_new(arena, Pages *);
    *out = &g->device;
    return true;
}

const MxBackend backend_guarded = {
    .name = "guarded",
    .machine = &cpu_machine,
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
