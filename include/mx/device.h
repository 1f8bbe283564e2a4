/* device.h — where ops run. A backend is a row: how its devices are opened, their memory, and a
 * kernel for each op. A device is a backend's, with its threads and libraries set up. Memory of a
 * device is its own: addresses are handed around, but only the backend follows them. Others read
 * and write it through the functions below. Kernels get addresses in memory that was laid out
 * beforehand, and allocate nothing. */
#ifndef MX_DEVICE_H
#define MX_DEVICE_H

#include <mx/ops.h>

typedef struct MxDevice MxDevice;

typedef struct MxBackend MxBackend;

/* One node, ready to run. Types, attributes and masks are fixed when the graph is lowered;
 * addresses, scratch and state too. */
typedef struct MxKernelCall {
    const MxOp *op;
    const void *attr;
    const MxType *in_type, *out_type;
    void **in, **out; /* on the device; out[i] NULL: nobody wants that output */
    int n_in, n_out;
    unsigned accumulate; /* outputs that are added to what their buffer holds */
    unsigned unused;     /* outputs that are not wanted: NULL in out */
    int phase;           /* of mx_op_phases: calls of one node differ in it alone */
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
    /* Does the work, or hands it to the device, which does all work in the order in which it was
     * handed over. out[0] may be in[op->inplace - 1]; updates of state may find any out equal to
     * the in that it replaces. */
    void (*run)(const MxDevice *device, const MxKernelCall *call);
} MxKernel;

/* ---- ranks */

/* The processes of a run. One that no launcher started is alone, and the message-passing library is
 * not even initialised. */
typedef struct MxComm MxComm;

/* mx_comm_open — joins the other ranks if a launcher (mpirun, srun) started this process; one rank
 * otherwise. Closed with the arena. Errors: the library refuses. */
bool mx_comm_open(MxArena *arena, MxComm **out, MxError *err);
int mx_comm_rank(const MxComm *comm);
int mx_comm_size(const MxComm *comm);

/* What follows is called by all ranks together. mx_comm_max — the largest of every rank's number.
 * mx_comm_broadcast — rank 0's bytes to all. mx_comm_gather — every rank's bytes to rank 0, in the
 * order of the ranks; recv NULL elsewhere; counts [ranks]. */
int64_t mx_comm_max(MxComm *comm, int64_t x);
void mx_comm_broadcast(MxComm *comm, void *data, size_t bytes);
void mx_comm_gather(MxComm *comm, const void *send, void *recv, const int64_t *counts);

/* mx_comm_abort — ends all ranks with this exit code, also those that wait for this one. */
_Noreturn void mx_comm_abort(MxComm *comm, MxExit exit);

/* mx_comm_watch — ends the run when a rank has waited this long for others; 0 = never. It says in
 * what it waited and, of the ranks of its machine, which one hangs. Time in which that rank was
 * stopped does not count. All ranks call this once. */
void mx_comm_watch(MxComm *comm, double seconds);

/* An exchange among the ranks of one group of an op, over and over. mx_comm_exchange — made once,
 * without a word to the others. NULL for a group of one. mx_comm_peer — of arrays that go from the
 * group's first rank, this one, to its second, or the other way; one for each tag. */
typedef struct MxExchange MxExchange;
MxExchange *mx_comm_exchange(MxComm *comm, const MxGroup *group);
MxExchange *mx_comm_peer(MxComm *comm, const MxGroup *group, int tag, bool sends);
/* These return while it is under way: send must not change, recv not be touched, until
 * mx_exchange_finish has waited for it. All ranks of a group start their exchanges in one order.
 * mx_exchange_all_gather — every rank's `bytes` in the group's order. mx_exchange_all_to_all —
 * block j of `bytes` goes to rank j of the group; recv holds one block of each. This rank's own
 * block of recv is left as it is: who wants it there has it at hand. what: for messages. */
void mx_exchange_all_gather(MxExchange *exchange, const char *what, const void *send, void *recv,
                            size_t bytes);
void mx_exchange_all_to_all(MxExchange *exchange, const char *what, const void *send, void *recv,
                            size_t bytes);
void mx_exchange_send(MxExchange *exchange, const void *send, size_t bytes);
void mx_exchange_receive(MxExchange *exchange, void *recv, size_t bytes);
/* mx_exchange_broadcast — the bytes of the group's first rank to the others. */
void mx_exchange_broadcast(MxExchange *exchange, const char *what, void *data, size_t bytes);
void mx_exchange_finish(MxExchange *exchange);

/* What collective ops sent from this rank to others since the start. */
typedef struct MxCommCount {
    uint64_t calls, bytes;
} MxCommCount;
MxCommCount mx_comm_count(const MxComm *comm);
/* mx_comm_progress — see mx_device_progress. */
void mx_comm_progress(MxComm *comm);

/* ---- device */

/* Which library multiplies matrices. */
typedef enum MxMatmulProvider {
    MX_MATMUL_AUTO,
    MX_MATMUL_OPENBLAS,
    MX_MATMUL_ONEDNN,
    MX_MATMUL_OWN
} MxMatmulProvider;

typedef struct MxDeviceConfig {
    const char *backend; /* its name; NULL = what the environment's MX_BACKEND names, else the first
                            of device_backends.def */
    int n_threads;       /* of the host; 0 = as the environment and the machine say */
    MxMatmulProvider matmul;
    bool may_split;     /* f32 products may be made of three of bf16, where that pays */
    MxComm *comm;       /* for collective ops; NULL = there are none, or nothing is run */
    const char *folder; /* of files for mx_device_alloc_on_disk; NULL = there are none */
} MxDeviceConfig;

/* What every device starts with; a backend has more behind it. */
struct MxDevice {
    const MxBackend *backend;
    MxArena *arena;
    MxDeviceConfig config;
    int n_threads; /* of the host */
};

/* One row a backend: a folder of src/device and a line in device_backends.def. Functions that may
 * be NULL say what that means. What they do is told at the functions below, which are how others
 * call them. */
struct MxBackend {
    const char *name;
    const MxMachine *machine; /* what passes are told of its devices */
    bool shares_memory;       /* memory of its devices is the host's, and at rest between kernels */
    bool (*open)(MxArena *arena, const MxDeviceConfig *config, MxDevice **out, MxError *err);
    const char *(*describe)(const MxDevice *device);
    const char *(*arithmetic)(const MxDevice *device);
    bool (*alloc)(MxDevice *device, size_t bytes, void **out, MxError *err);
    bool (*alloc_on_disk)(MxDevice *device, size_t bytes, void **out, MxError *err);
    void (*read)(const MxDevice *device, const void *from, void *host, size_t bytes);
    void (*write)(const MxDevice *device, void *to, const void *host, size_t bytes);
    void (*sync)(const MxDevice *device);     /* NULL = kernels have ended when they return */
    void (*progress)(const MxDevice *device); /* NULL = exchanges need no help */
    const MxKernel *(*kernel)(const MxDevice *device, const MxOp *op);
};

/* mx_device_open — a device of the backend that the config names; closed with the arena. Errors: no
 * such backend; its libraries refuse (the CPU's: OpenBLAS of the wrong threading flavour, oneDNN
 * without an engine). */
bool mx_device_open(MxArena *arena, const MxDeviceConfig *config, MxDevice **out, MxError *err);
/* mx_device_describe — one line: processor, threads, vector width, matmul libraries and why. */
const char *mx_device_describe(const MxDevice *device);
/* mx_device_arithmetic — what bits depend on beside the number of threads: vector width, matmul
 * libraries and why, as described. */
const char *mx_device_arithmetic(const MxDevice *device);
/* mx_device_alloc — zeroed memory for buffers, 64-byte aligned; freed with the device's arena. The
 * CPU has huge pages for it where the system does, and its pages are there already. Fails if there
 * is not as much. */
bool mx_device_alloc(MxDevice *device, size_t bytes, void **out, MxError *err);
/* mx_device_alloc_on_disk — the same in a file of the device's folder, whose pages the system
 * brings to memory and takes from it as they are used. The file has no name and ends with the
 * device, or with the process however that ends. Its room is taken here. Errors: the folder is not
 * there or cannot be written; it has not as much room. Tells if the folder is in memory itself. */
bool mx_device_alloc_on_disk(MxDevice *device, size_t bytes, void **out, MxError *err);
/* mx_device_read — bytes of the device's memory to the host, after all work handed over before.
 * mx_device_write — the other way, before all work handed over later; `host` may be changed when it
 * returns. */
void mx_device_read(const MxDevice *device, const void *from, void *host, size_t bytes);
void mx_device_write(const MxDevice *device, void *to, const void *host, size_t bytes);
/* mx_device_sync — waits until all work handed over has ended. */
void mx_device_sync(const MxDevice *device);
/* mx_device_progress — between kernels: lets exchanges that are under way go on. */
void mx_device_progress(const MxDevice *device);
/* mx_device_kernel — the kernel of an op on this device; NULL if it has none. */
const MxKernel *mx_device_kernel(const MxDevice *device, const MxOp *op);

#endif
