/* peers.c — kernels that send arrays from one rank to another, between stages of a pipeline. The
 * library reads and writes them in place. */
#include "kernel.h"

static const MxPeerAttr *attr_of(const MxKernelCall *call) {
    return call->attr;
}

static size_t bytes_of(MxType type) {
    return (size_t)mx_shape_count(type.shape) * mx_dtype_bytes(type.dtype);
}

static bool prepare_send(MxDevice *device, MxKernelCall *call, MxError *err) {
    (void)err;
    call->state =
        mx_comm_peer(device->config.comm, &attr_of(call)->group, attr_of(call)->tag, true);
    return true;
}

static bool prepare_receive(MxDevice *device, MxKernelCall *call, MxError *err) {
    (void)err;
    call->state =
        mx_comm_peer(device->config.comm, &attr_of(call)->group, attr_of(call)->tag, false);
    return true;
}

static void send_run(const MxDevice *device, const MxKernelCall *call) {
    (void)device;
    mx_exchange_send(call->state, call->in[0], bytes_of(call->in_type[0]));
}

const MxKernel cpu_send = {.prepare = prepare_send, .run = send_run};

static void sent_run(const MxDevice *device, const MxKernelCall *call) {
    (void)device;
    mx_exchange_finish(call->state);
}

const MxKernel cpu_sent = {.prepare = prepare_send, .run = sent_run};

static void receive_run(const MxDevice *device, const MxKernelCall *call) {
    (void)device;
    MX_ASSERT(call->out[0]);
    if (call->phase == 0)
        mx_exchange_receive(call->state, call->out[0], bytes_of(call->out_type[0]));
    else
        mx_exchange_finish(call->state);
}

const MxKernel cpu_receive = {.prepare = prepare_receive, .run = receive_run};
