/* device.c — opening the device, its memory and its description. */
#include "probe.h"
#include "suites.h"

#include <stdlib.h>

static MxDevice *opened(MxArena *arena, MxDeviceConfig config) {
    MxDevice *device = NULL;
    MxError err = {0};
    ck_assert_msg(mx_device_open(arena, &config, &device, &err), "%s", err.text.data);
    return device;
}

START_TEST(describes_itself) {
    MxArena arena = {.name = "test"};
    const char *text = mx_device_describe(opened(&arena, (MxDeviceConfig){.n_threads = 1}));
    ck_assert_msg(strstr(text, "1 thread,"), "%s", text);
    ck_assert_msg(strstr(text, "OpenBLAS") && strstr(text, "oneDNN"), "%s", text);
    mx_arena_release(&arena);
}
END_TEST

START_TEST(provider_is_honoured) {
    MxArena arena = {.name = "test"};
    const char *blas =
        mx_device_describe(opened(&arena, (MxDeviceConfig){.matmul = MX_MATMUL_OPENBLAS}));
    ck_assert_msg(strstr(blas, "f32 OpenBLAS") && strstr(blas, "bf16 OpenBLAS as f32"), "%s", blas);
    const char *onednn =
        mx_device_describe(opened(&arena, (MxDeviceConfig){.matmul = MX_MATMUL_ONEDNN}));
    ck_assert_msg(strstr(onednn, "f32 oneDNN"), "%s", onednn);
    mx_arena_release(&arena);
}
END_TEST

/* ---- MX_CPU (each test runs in a process of its own) */

START_TEST(the_level_can_be_lowered) {
    MxArena arena = {.name = "test"};
    setenv("MX_CPU", "baseline", 1);
    setenv("OPENBLAS_CORETYPE", "SkylakeX", 1);
    const char *text = mx_device_describe(opened(&arena, (MxDeviceConfig){.n_threads = 1}));
    ck_assert_msg(strstr(text, "baseline vectors (MX_CPU)"), "%s", text);
#if defined(__x86_64__)
    ck_assert_msg(strstr(text, "OpenBLAS Prescott"), "%s", text);
#endif
    mx_arena_release(&arena);
}
END_TEST

static void refuses_level(const char *name, const char *message) {
    MxArena arena = {.name = "test"};
    MxDevice *device = NULL;
    MxError err = {0};
    setenv("MX_CPU", name, 1);
    ck_assert(!mx_device_open(&arena, &(MxDeviceConfig){0}, &device, &err));
    ck_assert_int_eq(err.exit, MX_EXIT_CONFIG);
    ck_assert_msg(strstr(err.text.data, message), "%s", err.text.data);
    ck_assert_msg(strstr(err.text.data, "has \"baseline\""), "%s", err.text.data);
    mx_error_release(&err);
    mx_arena_release(&arena);
}

START_TEST(no_level_beyond_the_machine) {
    refuses_level("sse5", "MX_CPU: unrecognized level \"sse5\"; this processor has");
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx512bf16"))
        refuses_level("amx", "MX_CPU: this processor has no \"amx\"; it has");
#endif
}
END_TEST

START_TEST(memory_is_zero_and_aligned) {
    static const size_t sizes[] = {1, 64, 4097, 3 << 20, 64 << 20};
    MxArena arena = {.name = "test"};
    MxDevice *device = opened(&arena, (MxDeviceConfig){0});
    for (int i = 0; i < MX_COUNT(sizes); i++) {
        void *p = NULL;
        MxError err = {0};
        ck_assert(mx_device_alloc(device, sizes[i], &p, &err));
        ck_assert_uint_eq((uintptr_t)p % 64, 0);
        const unsigned char *bytes = p;
        for (size_t j = 0; j<sizes[i]; j += sizes[i]> 4096 ? 4096 : 1) ck_assert(!bytes[j]);
        memset(p, 1, sizes[i]);
    }
    mx_arena_release(&arena);
}
END_TEST

START_TEST(too_much_memory_is_an_error) {
    MxArena arena = {.name = "test"};
    MxDevice *device = opened(&arena, (MxDeviceConfig){0});
    static const size_t sizes[] = {(size_t)1 << 60, SIZE_MAX - 5};
    for (int i = 0; i < MX_COUNT(sizes); i++) {
        void *p = NULL;
        MxError err = {0};
        ck_assert(!mx_device_alloc(device, sizes[i], &p, &err));
        ck_assert_int_eq(err.exit, MX_EXIT_NO_MEMORY);
        ck_assert_msg(strstr(err.text.data, "could not get"), "%s", err.text.data);
        mx_error_release(&err);
    }
    mx_arena_release(&arena);
}
END_TEST

START_TEST(opens_again) {
    for (int i = 0; i < 20; i++) {
        MxArena arena = {.name = "test"};
        opened(&arena, (MxDeviceConfig){.n_threads = 1 + i % 3});
        mx_arena_release(&arena);
    }
}
END_TEST

/* ---- numbers below the normal ones */

/* An op on inputs that are `value` everywhere gives 0 everywhere, on every thread. */
static void gives_zeros(const ProbeOp *op, MxDeviceConfig config, float value) {
    Probe *p = probe_open(&config, op);
    for (int i = 0; i < op->n_in; i++)
        for (int64_t j = 0; j < mx_shape_count(p->in_type[i].shape); j++)
            ((float *)p->in[i])[j] = i ? 1e10F : value;
    probe_run(p);
    const float *out = p->out[0];
    for (int64_t j = 0; j < mx_shape_count(p->out_type[0].shape); j++)
        ck_assert_msg(out[j] == 0, "%s of %g: [%lld] is %g", op->op->name, (double)value,
                      (long long)j, (double)out[j]);
    probe_close();
}

/* 1e-40 is not normal; 1e-25 times 1e-15, a weight of a sum, would not be. */
START_TEST(vanishing_numbers_are_zeros) {
    static const MxMatmulProvider providers[] = {MX_MATMUL_OPENBLAS, MX_MATMUL_ONEDNN,
                                                 MX_MATMUL_OWN};
    const MxType square = {MX_F32, MX_SHAPE(128, 128)}, same[] = {square, square};
    const MxType long_one = {MX_F32, MX_SHAPE(1 << 18)};
    const MxDotAttr dot = {.dtype = MX_F32, .n_contract = 1};
    const MxScaleAttr scale = {.factor = 1e-15};
    const MxDeviceConfig two = {.n_threads = 2};
    gives_zeros(&(ProbeOp){&op_scale, &(MxScaleAttr){.factor = 1e10}, &long_one, 1, 0}, two,
                1e-40F);
    gives_zeros(&(ProbeOp){&op_scale, &scale, &long_one, 1, 0}, two, 1e-25F);
    for (int i = 0; i < MX_COUNT(providers); i++)
        gives_zeros(&(ProbeOp){&op_dot, &dot, same, 2, 0},
                    (MxDeviceConfig){.n_threads = 2, .matmul = providers[i]}, 1e-40F);
}
END_TEST

Suite *suite_device(void) {
    Suite *suite = suite_create("device");
    TCase *t = tcase_create("device");
    tcase_add_test(t, describes_itself);
    tcase_add_test(t, provider_is_honoured);
    tcase_add_test(t, the_level_can_be_lowered);
    tcase_add_test(t, no_level_beyond_the_machine);
    tcase_add_test(t, memory_is_zero_and_aligned);
    tcase_add_test(t, too_much_memory_is_an_error);
    tcase_add_test(t, opens_again);
    tcase_add_test(t, vanishing_numbers_are_zeros);
    suite_add_tcase(suite, t);
    return suite;
}
