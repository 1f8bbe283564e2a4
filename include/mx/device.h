/* device.h — where ops run. A backend is a row: how its devices are opened, their memory, and a
 * kernel for each op. A device belongs to a backend, with its threads and libraries set up. Device
 * memory belongs to the device: addresses are passed around, but only the backend dereferences
 * them. Other code reads and writes it with the functions below. Kernels get addresses in memory
 * that was laid out beforehand, and allocate nothing. */
#ifndef MX_DEVICE_H
#define MX_DEVICE_H

#include <mx/ops.h>

typedef struct MxDevice MxDevice;

typedef struct MxBackend MxBackend;

/* One node, ready to run. Everything in it is fixed when the graph is lowered and bound. */
typedef struct MxKernelCall {
    const MxOp *op;
    const void *attr;
    const MxType *in_type, *out_type;
    void **in, **out; /* on the device; out[i] NULL: the output is not needed */
    int n_in, n_out;
    unsigned accumulate; /* outputs that are added to the contents of their buffer */
    unsigned unused;     /* outputs that are not needed: NULL in out */
    int phase;           /* which of mx_op_phases; calls of one node differ only in it */
    void *scratch;       /* 64-byte aligned, of the size that the kernel requested */
    void *state;         /* what prepare stored */
    bool waits; /* prepare says so: for the device or other ranks, so that it is not recorded */
} MxKernelCall;

typedef struct MxKernel {
    /* Bytes of working memory; types, attr and masks are set, pointers are not. NULL = none.
     */
    size_t (*scratch)(const MxDevice *device, const MxKernelCall *call);
    /* Work that is done once for a shape (primitives of a library); sets call->state and waits.
     * NULL = none. */
    bool (*prepare)(MxDevice *device, MxKernelCall *call, MxError *err);
    /* Does the work, or submits it to the device, which executes all work in the order of
     * submission. out[0] may be in[op->inplace - 1]; in updates of state any out may be the in that
     * it replaces. */
    void (*run)(const MxDevice *device, const MxKernelCall *call);
} MxKernel;

/* ---- ranks */

/* The processes of a run. A process started without a launcher is alone, and the message-passing
 * library is not initialised. */
typedef struct MxComm MxComm;

/* mx_comm_open — joins the other ranks if a launcher (mpirun, srun) started this process; one rank
 * otherwise. Closed with the arena. Errors: those of the library. */
bool mx_comm_open(MxArena *arena, MxComm **out, MxError *err);
int mx_comm_rank(const MxComm *comm);
int mx_comm_size(const MxComm *comm);

/* All ranks must call these together. mx_comm_max — the maximum of all ranks' numbers.
 * mx_comm_share — copies every rank's bytes to all, in the order of the ranks. mx_comm_broadcast —
 * copies rank 0's bytes to all. mx_comm_gather — copies every rank's bytes to rank 0, in the order
 * of the ranks; recv is NULL on other ranks; counts [ranks]. */
int64_t mx_comm_max(MxComm *comm, int64_t x);
void mx_comm_share(MxComm *comm, const void *own, void *all, size_t bytes);
void mx_comm_broadcast(MxComm *comm, void *data, size_t bytes);
void mx_comm_gather(MxComm *comm, const void *send, void *recv, const int64_t *counts);

/* mx_comm_abort — ends all ranks with this exit code, including those that wait for this one. */
_Noreturn void mx_comm_abort(MxComm *comm, MxExit exit);

/* mx_comm_watch — ends the run when a rank has waited this long for others; 0 = never. The message
 * names the operation and, if the rank that hangs is on the same machine, that rank. Time in which
 * the waiting rank was stopped does not count. All ranks call this once. */
void mx_comm_watch(MxComm *comm, double seconds);

/* A repeated exchange among the ranks of one group of an op. mx_comm_exchange — created once,
 * without communication. NULL for a group of one. mx_comm_peer — for arrays that are sent from the
 * group's first rank, this one, to its second, or back; one for each tag. */
typedef struct MxExchange MxExchange;
MxExchange *mx_comm_exchange(MxComm *comm, const MxGroup *group);
MxExchange *mx_comm_peer(MxComm *comm, const MxGroup *group, int tag, bool sends);
/* These start an exchange and return: send must not change, and recv must not be accessed, until
 * mx_exchange_finish has waited for it. All ranks of a group start their exchanges in the same
 * order. mx_exchange_all_gather — every rank's `bytes` in the group's order. mx_exchange_all_to_all
 * — block j of `bytes` is sent to rank j of the group; recv gets one block of each. This rank's own
 * block of recv is not written: the caller can copy it if necessary. what: for messages. */
void mx_exchange_all_gather(MxExchange *exchange, const char *what, const void *send, void *recv,
                            size_t bytes);
void mx_exchange_all_to_all(MxExchange *exchange, const char *what, const void *send, void *recv,
                            size_t bytes);
/* mx_exchange_shift — sends to the rank so many places behind this one, fewer than the group has,
 * and receives from the one before it; below zero the other way. NULL = not. */
void mx_exchange_shift(MxExchange *exchange, int places, const void *send, void *recv,
                       size_t bytes);
void mx_exchange_send(MxExchange *exchange, const void *send, size_t bytes);
void mx_exchange_receive(MxExchange *exchange, void *recv, size_t bytes);
/* mx_exchange_broadcast — copies the bytes of the group's first rank to the others. */
void mx_exchange_broadcast(MxExchange *exchange, const char *what, void *data, size_t bytes);
void mx_exchange_finish(MxExchange *exchange);

/* Exchanges of this rank's collective ops and bytes sent to others since the start, and the seconds
 * it waited for others in any call. */
typedef struct MxCommCount {
    uint64_t calls, bytes;
    double waited_s;
} MxCommCount;
MxCommCount mx_comm_count(const MxComm *comm);
/* mx_comm_progress — see mx_device_progress. */
void mx_comm_progress(MxComm *comm);

/* ---- device */

/* The library that multiplies matrices. */
typedef enum MxMatmulProvider {
    MX_MATMUL_AUTO,
    MX_MATMUL_OPENBLAS,
    MX_MATMUL_ONEDNN,
    MX_MATMUL_OWN
} MxMatmulProvider;

typedef struct MxDeviceConfig {
    const char *backend; /* its name; NULL = that in the environment variable MX_BACKEND, else the
                            first of device_backends.def */
    int n_threads;       /* of the host; 0 = from the environment and the machine */
    MxMatmulProvider matmul;
    bool may_split;     /* f32 products may be computed as three of bf16 where that is faster */
    MxComm *comm;       /* for collective ops; NULL = there are none, or nothing is run */
    const char *folder; /* of files for mx_device_alloc_on_disk; NULL = there are none */
    bool only_plans;    /* nothing is allocated or run: the hardware need not be here */
} MxDeviceConfig;

/* The head of every device; a backend's own struct continues after it. */
struct MxDevice {
    const MxBackend *backend;
    MxArena *arena;
    MxDeviceConfig config;
    int n_threads; /* of the host */
};

/* One row per backend: a folder of src/device and a line in device_backends.def. Functions that may
 * be NULL say what that means. The functions are described below, where their wrappers are
 * declared. */
struct MxBackend {
    const char *name;
    const MxMachine *machine; /* description of its devices for passes */
    bool shares_memory; /* device memory is host memory, and does not change between kernels */
    bool (*open)(MxArena *arena, const MxDeviceConfig *config, MxDevice **out, MxError *err);
    const char *(*describe)(const MxDevice *device);
    const char *(*arithmetic)(const MxDevice *device);
    int64_t (*memory)(const MxDevice *device); /* NULL = its memory is the host's */
    bool (*alloc)(MxDevice *device, size_t bytes, void **out, MxError *err);
    bool (*alloc_on_disk)(MxDevice *device, size_t bytes, void **out, MxError *err);
    void (*read)(const MxDevice *device, const void *from, void *host, size_t bytes);
    void (*write)(const MxDevice *device, void *to, const void *host, size_t bytes);
    void (*sync)(const MxDevice *device);     /* NULL = kernels have finished when they return */
    void (*progress)(const MxDevice *device); /* NULL = exchanges need no help */
    /* Recording: NULL, all three = submitting a kernel costs nothing that a record would save. */
    void (*record_begin)(const MxDevice *device);
    void *(*record_end)(const MxDevice *device);
    void (*replay)(const MxDevice *device, const void *record);
    const MxKernel *(*kernel)(const MxDevice *device, const MxOp *op);
};

/* mx_device_prepare — must be called first in the main function of a program that opens a device:
 * threads that wait for each other spin briefly, then sleep, unless OMP_WAIT_POLICY or
 * GOMP_SPINCOUNT says otherwise (mx_process_prepare, which may start the program again). */
void mx_device_prepare(char **argv);

/* mx_device_open — a device of the config's backend; closed with the arena. Errors: no such
 * backend; errors of its libraries (for the CPU: OpenBLAS with the wrong threading, oneDNN without
 * an engine). */
bool mx_device_open(MxArena *arena, const MxDeviceConfig *config, MxDevice **out, MxError *err);
/* mx_device_describe — one line: processor, threads, vector width, matmul libraries with reasons.
 */
const char *mx_device_describe(const MxDevice *device);
/* mx_device_arithmetic — what the bits of results depend on besides the number of threads: vector
 * width, matmul libraries with reasons. */
const char *mx_device_arithmetic(const MxDevice *device);
/* mx_device_memory — bytes of its own memory, whoever uses them; 0 = it uses the host's. */
int64_t mx_device_memory(const MxDevice *device);
/* mx_device_alloc — zeroed memory for buffers, 64-byte aligned; freed with the device's arena. The
 * CPU uses huge pages if the system has them, and touches all pages. Errors: not enough memory. */
bool mx_device_alloc(MxDevice *device, size_t bytes, void **out, MxError *err);
/* mx_device_alloc_on_disk — the same in a file in the device's folder, which the system pages in
 * and out as it is used. The file has no name and disappears with the device, or with the process
 * in any case. Its space is reserved here. Errors: the folder does not exist or cannot be written;
 * it has too little space. Warns if the folder is itself in memory. */
bool mx_device_alloc_on_disk(MxDevice *device, size_t bytes, void **out, MxError *err);
/* mx_device_read — copies bytes of device memory to the host, after all work submitted before.
 * mx_device_write — copies bytes from the host, before all work submitted later; `host` may be
 * changed when it returns. */
void mx_device_read(const MxDevice *device, const void *from, void *host, size_t bytes);
void mx_device_write(const MxDevice *device, void *to, const void *host, size_t bytes);
/* mx_device_sync — waits until all submitted work has finished. */
void mx_device_sync(const MxDevice *device);
/* mx_device_progress — called between kernels: lets exchanges make progress. */
void mx_device_progress(const MxDevice *device);
/* mx_device_records — whether kernels can be recorded. Those that run between record_begin and
 * record_end are not run but recorded, and run by each replay of the record, in their order; the
 * record is freed with the device's arena. Kernels that wait must not be among them. */
bool mx_device_records(const MxDevice *device);
void mx_device_record_begin(const MxDevice *device);
void *mx_device_record_end(const MxDevice *device);
void mx_device_replay(const MxDevice *device, const void *record);
/* mx_device_kernel — the kernel of an op on this device; NULL if it has none. */
const MxKernel *mx_device_kernel(const MxDevice *device, const MxOp *op);

#endif
