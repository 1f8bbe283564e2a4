/* variables.c — parts of variables to the host and back, on every backend. */
#include "suites.h"
#include "common/backends.h"

#include <mx/run.h>

enum { ROWS = 5, COLUMNS = 7, DEPTH = 3, N = ROWS * COLUMNS * DEPTH };

static MxArena arena = {.name = "test"};

/* Variable 1 becomes a copy of variable 0 when the entry runs. */
static MxRun *open_run(const char *backend) {
    static MxVars vars;
    vars = (MxVars){.arena = &arena};
    MxType type = {MX_F32, MX_SHAPE(ROWS, COLUMNS, DEPTH)};
    for (int i = 0; i < 2; i++) mx_vars_add(&vars, "x", type);
    mx_vars_add(&vars, "ids", (MxType){MX_BF16, MX_SCALAR});
    MxGraph *graph = mx_graph_new(&arena, "copy", &vars);
    MxTrace t;
    MxError err = {0};
    MxDevice *device;
    MxRun *run = NULL;
    mx_trace_begin(&t, graph);
    mx_trace_assign(&t, mx_copy(&t, mx_variable(&t, 0)), 1, false);
    bool ok = mx_trace_end(&t, &err) &&
              mx_device_open(&arena, &(MxDeviceConfig){.backend = backend}, &device, &err) &&
              mx_run_open(&arena, device, &vars, &graph, 1, MX_REMAT_NONE, &run, &err);
    ck_assert_msg(ok, "%s", err.text.data);
    return run;
}

/* A box of the host's copy of an array as a read leaves it and a write takes it: dense. */
START_TEST(boxes_move) {
    static const MxBox boxes[] = {
        {3, {0, 0, 0}, {ROWS, COLUMNS, DEPTH}}, {3, {2, 0, 0}, {2, COLUMNS, DEPTH}},
        {3, {1, 2, 0}, {3, 4, DEPTH}},          {3, {4, 6, 1}, {1, 1, 2}},
        {3, {0, 0, 2}, {ROWS, COLUMNS, 1}},     {3, {1, 1, 1}, {2, 0, 1}},
    };
    MxRun *run = open_run(backend_name(_i));
    float all[N], want[N], part[N], back[N];
    const MxBox whole = mx_run_box(run, 0);
    for (int k = 0; k < MX_COUNT(boxes); k++) {
        for (int i = 0; i < N; i++) all[i] = (float)(100 * k + i);
        mx_run_write(run, 0, whole, all);
        for (int i = 0; i < N; i++) part[i] = (float)(-1 - i);
        memcpy(want, all, sizeof all);
        mx_box_copy(&boxes[k], &boxes[k], part, &whole, want, sizeof *part);
        mx_run_write(run, 0, boxes[k], part);
        mx_run_entry(run, 0);
        mx_run_read(run, 1, whole, back);
        ck_assert_msg(!memcmp(back, want, sizeof want), "box %d: written elsewhere", k);
        memset(back, 0, sizeof back);
        mx_run_read(run, 1, boxes[k], back);
        ck_assert_msg(!memcmp(back, part, (size_t)mx_box_count(&boxes[k]) * sizeof *part),
                      "box %d: read elsewhere", k);
    }
}
END_TEST

START_TEST(scalars_move) {
    MxRun *run = open_run(backend_name(_i));
    const MxBf16 x = mx_f32_to_bf16(1.5f);
    MxBf16 back = mx_f32_to_bf16(0);
    ck_assert_int_eq(mx_run_box(run, 2).rank, 0);
    mx_run_write(run, 2, mx_run_box(run, 2), &x);
    mx_run_read(run, 2, mx_run_box(run, 2), &back);
    ck_assert(!memcmp(&x, &back, sizeof x));
}
END_TEST

/* Only memory that is the host's is shown where it is. */
START_TEST(shared_memory_is_mapped) {
    float all[N];
    MxRun *run = open_run("cpu");
    for (int i = 0; i < N; i++) all[i] = (float)i;
    mx_run_write(run, 0, mx_run_box(run, 0), all);
    const float *x = mx_run_map(run, 0);
    ck_assert(x && !memcmp(x, all, sizeof all));
    ck_assert_ptr_null(mx_run_map(open_run("guarded"), 0));
}
END_TEST

static void tear_down(void) {
    mx_arena_release(&arena);
}

Suite *suite_variables(void) {
    Suite *suite = suite_create("variables");
    TCase *t = tcase_create("variables");
    tcase_add_checked_fixture(t, NULL, tear_down);
    tcase_add_loop_test(t, boxes_move, 0, backends_here());
    tcase_add_loop_test(t, scalars_move, 0, backends_here());
    tcase_add_test(t, shared_memory_is_mapped);
    suite_add_tcase(suite, t);
    return suite;
}
