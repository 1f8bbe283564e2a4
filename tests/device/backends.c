/* backends.c — what every backend promises of its memory, and that the guarded one guards it. */
#include "suites.h"
#include "common/backends.h"

#include <mx/device.h>

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static MxArena arena = {.name = "test"};

static const char *const apart[] = {"cpu", "guarded"};

static MxDevice *opened(const char *name) {
    MxDevice *device = NULL;
    MxError err = {0};
    ck_assert_msg(mx_device_open(&arena, &(MxDeviceConfig){.backend = name}, &device, &err), "%s",
                  err.text.data);
    ck_assert_str_eq(device->backend->name, name);
    return device;
}

static void *allocated(MxDevice *device, size_t bytes) {
    void *memory = NULL;
    MxError err = {0};
    ck_assert_msg(mx_device_alloc(device, bytes, &memory, &err), "%s", err.text.data);
    return memory;
}

/* Whether this process may read there: the system is asked to, which then says no and lives. */
static bool is_readable(const void *memory) {
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    bool is = write(ends[1], memory, 1) == 1;
    ck_assert(is || errno == EFAULT);
    close(ends[0]);
    close(ends[1]);
    return is;
}

static void refuses(const MxDeviceConfig *config, const char *message) {
    MxDevice *device = NULL;
    MxError err = {0};
    ck_assert(!mx_device_open(&arena, config, &device, &err));
    ck_assert_int_eq(err.exit, MX_EXIT_CONFIG);
    ck_assert_msg(strstr(err.text.data, message), "%s", err.text.data);
    mx_error_release(&err);
}

START_TEST(backends_are_named) {
    refuses(&(MxDeviceConfig){.backend = "tpu"}, "unrecognized backend \"tpu\"; there are \"cpu\"");
    setenv("MX_BACKEND", "abacus", 1);
    refuses(&(MxDeviceConfig){0}, "MX_BACKEND: unrecognized backend \"abacus\"");
    opened("cpu"); /* what the program asks for goes before the environment */
    setenv("MX_BACKEND", "", 1);
    MxDevice *device = NULL;
    MxError err = {0};
    ck_assert(mx_device_open(&arena, &(MxDeviceConfig){0}, &device, &err));
    ck_assert_str_eq(device->backend->name, "cpu");
}
END_TEST

/* Without the file, a driver or a GPU: an error, and a plan can do without the last two. */
START_TEST(gpu_is_missed) {
    MxDevice *device = NULL;
    MxError err = {0};
    ck_assert(!mx_device_open(&arena, &(MxDeviceConfig){.backend = "cuda"}, &device, &err));
    ck_assert_int_eq(err.exit, MX_EXIT_CONFIG);
    bool has_file = !strstr(err.text.data, "no mxtrain_cuda.so beside the program");
    ck_assert_msg(!has_file || strstr(err.text.data, "no GPU of NVIDIA can be used"), "%s",
                  err.text.data);
    mx_error_release(&err);
    if (!has_file) return;
    MxDeviceConfig plans = {.backend = "cuda", .only_plans = true};
    ck_assert(mx_device_open(&arena, &plans, &device, &err));
    ck_assert_int_gt(mx_device_memory(device), 0);
}
END_TEST

START_TEST(what_is_written_is_read) {
    enum { N = 100000 };
    MxDevice *device = opened(backend_name(_i));
    unsigned char *memory = allocated(device, N), host[N], back[N];
    mx_device_read(device, memory, back, N);
    for (int i = 0; i < N; i++) ck_assert_int_eq(back[i], 0);
    for (int i = 0; i < N; i++) host[i] = (unsigned char)(i * 7);
    mx_device_write(device, memory + 3, host, N - 3);
    memset(host, 0, 3); /* the host's are free again */
    mx_device_sync(device);
    mx_device_read(device, memory, back, N);
    for (int i = 0; i < N; i++) ck_assert_int_eq(back[i], i < 3 ? 0 : (i - 3) * 7 % 256);
    mx_device_read(device, memory + N - 1, back, 1);
    ck_assert_int_eq(back[0], (N - 4) * 7 % 256);
}
END_TEST

/* That of fibers is the host's, which nobody else is to know. */
START_TEST(memory_is_shared_or_out_of_reach) {
    MxDevice *device = opened(apart[_i]);
    char *memory = allocated(device, 10000), *other = allocated(device, 1);
    const char *end = memory + 9999;
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(is_readable(memory), device->backend->shares_memory);
        ck_assert_int_eq(is_readable(end), device->backend->shares_memory);
        ck_assert_int_eq(is_readable(other), device->backend->shares_memory);
        mx_device_write(device, memory, "x", 1);
    }
}
END_TEST

/* A kernel finds what was written and leaves what is read, and closes the pages behind it. */
START_TEST(kernels_work_on_it) {
    enum { N = 4096 };
    MxDevice *device = opened(backend_name(_i));
    const MxType type = {MX_F32, MX_SHAPE(N)};
    const MxScaleAttr attr = {.factor = 3};
    float *x = allocated(device, sizeof(float[N])), *y = allocated(device, sizeof(float[N]));
    float host[N];
    for (int i = 0; i < N; i++) host[i] = (float)i;
    mx_device_write(device, x, host, sizeof host);
    void *in[] = {x}, *out[] = {y};
    MxKernelCall call = {.op = &op_scale,
                         .attr = &attr,
                         .in_type = &type,
                         .out_type = &type,
                         .in = in,
                         .out = out,
                         .n_in = 1,
                         .n_out = 1};
    MxError err = {0};
    const MxKernel *kernel = mx_device_kernel(device, &op_scale);
    ck_assert(!kernel->prepare || kernel->prepare(device, &call, &err));
    kernel->run(device, &call);
    mx_device_read(device, y, host, sizeof host);
    for (int i = 0; i < N; i++) ck_assert(host[i] == 3 * (float)i);
}
END_TEST

static void tear_down(void) {
    mx_arena_release(&arena);
}

Suite *suite_backends(void) {
    Suite *suite = suite_create("backends");
    TCase *t = tcase_create("backends");
    tcase_add_checked_fixture(t, NULL, tear_down);
    tcase_add_test(t, backends_are_named);
    if (backend_asked() != MX_COUNT(backend_names) - 1) tcase_add_test(t, gpu_is_missed);
    tcase_add_loop_test(t, what_is_written_is_read, 0, backends_here());
    tcase_add_loop_test(t, memory_is_shared_or_out_of_reach, 0, MX_COUNT(apart));
    tcase_add_loop_test(t, kernels_work_on_it, 0, backends_here());
    suite_add_tcase(suite, t);
    return suite;
}
