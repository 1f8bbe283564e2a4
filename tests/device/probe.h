/* probe.h — one kernel by itself: types from the op's shape rule, buffers with guards behind them,
 * scratch of the size that it asked for. Tests see the host's copy of the buffers. */
#ifndef PROBE_H
#define PROBE_H

#include <cases/cases.h>
#include <mx/device.h>

typedef struct Probe Probe;
struct Probe {
    MxArena arena;
    Probe *next; /* of those that are open */
    MxDevice *device;
    MxKernelCall call;
    MxType in_type[SHOT_INPUTS], out_type[MX_MAX_OUT];
    void *in[SHOT_INPUTS], *out[MX_MAX_OUT], *scratch; /* the host's */
    size_t scratch_bytes;
    char *host, *there; /* all of them in one piece, and its copy on the device */
    size_t bytes;
};

/* What a probe runs. */
typedef struct ProbeOp {
    const MxOp *op;
    const void *attr;
    const MxType *in_type;
    int n_in;
    unsigned accumulate;
} ProbeOp;

/* probe_open — a device and the call's buffers; fails the test if the shape rule refuses. */
Probe *probe_open(const MxDeviceConfig *config, const ProbeOp *op);
/* probe_run — runs the kernel once on what the host's buffers hold, brings back what the device's
 * hold then, and fails the test if it wrote beyond a buffer. */
void probe_run(Probe *p);
/* probe_close — all that are open. */
void probe_close(void);

size_t probe_bytes(MxType type);
/* probe_store, probe_load — an array from and to doubles. */
void probe_store(const double *from, MxType type, void *to);
void probe_load(const void *from, MxType type, double *to);

#endif
