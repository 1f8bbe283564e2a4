/* device.c — finds the backend of a device and calls the functions of its row. */
#include <mx/device.h>

#include <stdlib.h>

#define MX_BACKEND(symbol) extern const MxBackend backend_##symbol;
#include <mx/device_backends.def>
#undef MX_BACKEND

static const MxBackend *const backends[] = {
#define MX_BACKEND(symbol) &backend_##symbol,
#include <mx/device_backends.def>
#undef MX_BACKEND
};

static const MxBackend *find(const MxDeviceConfig *config, MxError *err) {
    const char *asked = getenv("MX_BACKEND"), *name = config->backend;
    if (!name) name = asked && *asked ? asked : backends[0]->name;
    for (int i = 0; i < MX_COUNT(backends); i++)
        if (!strcmp(backends[i]->name, name)) return backends[i];
    MxArena arena = {.name = "backends"};
    MxText names;
    mx_text_init(&names, &arena);
    for (int i = 0; i < MX_COUNT(backends); i++)
        mx_text_add(&names, "%s\"%s\"", i ? ", " : "", backends[i]->name);
    mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "%sunrecognized backend \"%s\"; there are %s",
            config->backend ? "" : "MX_BACKEND: ", name, names.data);
    mx_arena_release(&arena);
    return NULL;
}

bool mx_device_open(MxArena *arena, const MxDeviceConfig *config, MxDevice **out, MxError *err) {
    const MxBackend *backend = find(config, err);
    return backend && backend->open(arena, config, out, err);
}

const char *mx_device_describe(const MxDevice *device) {
    return device->backend->describe(device);
}

const char *mx_device_arithmetic(const MxDevice *device) {
    return device->backend->arithmetic(device);
}

int64_t mx_device_memory(const MxDevice *device) {
    return device->backend->memory ? device->backend->memory(device) : 0;
}

bool mx_device_alloc(MxDevice *device, size_t bytes, void **out, MxError *err) {
    return device->backend->alloc(device, bytes, out, err);
}

bool mx_device_alloc_on_disk(MxDevice *device, size_t bytes, void **out, MxError *err) {
    MX_ASSERT(device->config.folder);
    return device->backend->alloc_on_disk(device, bytes, out, err);
}

void mx_device_read(const MxDevice *device, const void *from, void *host, size_t bytes) {
    device->backend->read(device, from, host, bytes);
}

void mx_device_write(const MxDevice *device, void *to, const void *host, size_t bytes) {
    device->backend->write(device, to, host, bytes);
}

void mx_device_sync(const MxDevice *device) {
    if (device->backend->sync) device->backend->sync(device);
}

void mx_device_progress(const MxDevice *device) {
    if (device->backend->progress) device->backend->progress(device);
}

bool mx_device_records(const MxDevice *device) {
    return device->backend->replay;
}

void mx_device_record_begin(const MxDevice *device) {
    device->backend->record_begin(device);
}

void *mx_device_record_end(const MxDevice *device) {
    return device->backend->record_end(device);
}

void mx_device_replay(const MxDevice *device, const void *record) {
    device->backend->replay(device, record);
}

const MxKernel *mx_device_kernel(const MxDevice *device, const MxOp *op) {
    return device->backend->kernel(device, op);
}
