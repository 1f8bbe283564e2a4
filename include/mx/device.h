/* device.h — where ops run. A backend is a table of kernels, one an op; a device is a backend with
 * its threads and libraries set up. Kernels get pointers into memory that was laid out beforehand
 * and allocate nothing. */
#ifndef MX_DEVICE_H
#define MX_DEVICE_H

#include <mx/ops.h>

typedef struct MxDevice MxDevice;

/* One node, ready to run. Types, attributes and masks are fixed when the plan is made; pointers,
 * scratch and state too. */
typedef struct MxKernelCall {
    const MxOp *op;
    const void *attr;
    const MxType *in_type, *out_type;
    void **in, **out; /* out[i] NULL: nobody wants that output */
    int n_in, n_out;
    unsigned accumulate; /* outputs that are added to what their buffer holds */
    unsigned unused;     /* outputs that are not wanted: NULL in out */
    void *scratch;       /* 64-byte aligned, of the size that the kernel asked for */
    void *state;         /* what prepare made */
} MxKernelCall;

typedef struct MxKernel {
    /* Bytes of working memory; types, attr and masks are set, pointers are not. NULL = none.
     */
    size_t (*scratch)(const MxDevice *device, const MxKernelCall *call);
    /* Work that can be done once for a shape (primitives of a library); fills call->state. NULL =
     * none. */
    bool (*prepare)(MxDevice *device, MxKernelCall *call, MxError *err);
    /* out[0] may be in[op->inplace - 1]; updates of state may find any out equal to the in that it
     * replaces. */
    void (*run)(const MxDevice *device, const MxKernelCall *call);
} MxKernel;

/* Which library multiplies matrices. */
typedef enum MxMatmulProvider {
    MX_MATMUL_AUTO,
    MX_MATMUL_OPENBLAS,
    MX_MATMUL_ONEDNN
} MxMatmulProvider;

typedef struct MxDeviceConfig {
    int n_threads; /* 0 = as the environment and the machine say */
    MxMatmulProvider matmul;
} MxDeviceConfig;

/* mx_device_open — the CPU; closed with the arena. Errors: OpenBLAS of the wrong threading flavour,
 * oneDNN without an engine. */
bool mx_device_open(MxArena *arena, const MxDeviceConfig *config, MxDevice **out, MxError *err);
/* mx_device_describe — one line: processor, threads, vector width, matmul libraries and why. */
const char *mx_device_describe(const MxDevice *device);
/* mx_device_alloc — zeroed memory for buffers, 64-byte aligned, with huge pages where the system
 * has them, its pages there already; freed with the device's arena. Fails if the address space is
 * exhausted. */
bool mx_device_alloc(MxDevice *device, size_t bytes, void **out, MxError *err);
/* mx_device_kernel — the kernel of an op on this device. */
const MxKernel *mx_device_kernel(const MxDevice *device, const MxOp *op);

#endif
