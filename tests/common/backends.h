/* backends.h — the backends that tests open one after another: those of the host, and the one that
 * MX_BACKEND names: kernels for GPUs are files of their own. */
#ifndef TESTS_BACKENDS_H
#define TESTS_BACKENDS_H

#include <mx/device.h>

#include <stdlib.h>

static const char *const backend_names[] = {
#define MX_BACKEND(symbol) #symbol,
#include <mx/device_backends.def>
#undef MX_BACKEND
};

enum { BACKENDS_OF_HOST = 2 };

/* backend_asked — the index of another than these that MX_BACKEND names; -1 = it names none. */
static inline int backend_asked(void) {
    const char *asked = getenv("MX_BACKEND");
    int i = MX_COUNT(backend_names) - 1;
    while (i >= BACKENDS_OF_HOST && (!asked || strcmp(asked, backend_names[i]))) i--;
    return i < BACKENDS_OF_HOST ? -1 : i;
}

static inline int backends_here(void) {
    return BACKENDS_OF_HOST + (backend_asked() >= 0);
}

static inline const char *backend_name(int i) {
    return backend_names[i < BACKENDS_OF_HOST ? i : backend_asked()];
}

#endif
