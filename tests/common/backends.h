/* backends.h — the backends that tests open one after another: all rows but the last, which needs a
 * GPU and is among them only if MX_BACKEND says so. */
#ifndef TESTS_BACKENDS_H
#define TESTS_BACKENDS_H

#include <mx/device.h>

#include <stdlib.h>

static const char *const backend_names[] = {
#define MX_BACKEND(symbol) #symbol,
#include <mx/device_backends.def>
#undef MX_BACKEND
};

static inline int backends_here(void) {
    const char *asked = getenv("MX_BACKEND");
    int last = MX_COUNT(backend_names) - 1;
    return last + (asked && !strcmp(asked, backend_names[last]));
}

#endif
