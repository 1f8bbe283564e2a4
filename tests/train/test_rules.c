/* test_rules.c — rules of MaxText's trainer by themselves: learning rates of schedules, step by
 * step, and heads that QK-clip makes smaller, from given scores. */
#include "close.h"
#include "common/vars.h"
#include "golden.h"
#include "train_test.h"

#include <mx/run.h>

#include <check.h>
#include <math.h>
#include <stdlib.h>

/* ---- schedules */

#define SCHEDULES "train/optim_schedules.h5"

static void check_schedule(MxArena *arena, MxH5 *file, const char *name) {
    const double half_a_bit = 1e-7; /* of the largest: the original computes in float32 */
    int64_t n;
    const MxConfig *config = golden_yaml_config(arena, file, name, "");
    const float *want = golden_read(arena, file, name, &n);
    ck_assert_int_ge(n, config->steps); /* behind the last step nobody asks */
    for (int64_t step = 0; step < config->steps; step++)
        ck_assert_msg(fabs(mx_learning_rate(config, step) - (double)want[step]) <=
                          5 * half_a_bit * config->learning_rate,
                      "%s, step %lld: %.9g instead of %.9g", name, (long long)step,
                      mx_learning_rate(config, step), (double)want[step]);
}

START_TEST(learning_rates_step_by_step) {
    MxArena arena = {.name = "schedules"};
    MxError err = {0};
    MxH5Array *arrays;
    int n;
    MxH5 *file = golden_open(&arena, SCHEDULES);
    if (!file) return;
    ck_assert_msg(mx_h5_list(&arena, file, "", &arrays, &n, &err), "%s", err.text.data);
    ck_assert_int_eq(n, 16);
    for (int i = 0; i < n; i++) check_schedule(&arena, file, arrays[i].path);
    mx_arena_release(&arena);
}
END_TEST

/* ---- heads */

#define CLIPPED "train/qk_clip_rule.h5"

enum { KERNEL, TOPS, MADE, VARS };

static double attribute(MxArena *arena, MxH5 *file, const char *group, const char *name) {
    MxError err = {0};
    char *text = NULL;
    ck_assert_msg(mx_h5_attr(arena, file, group, name, &text, &err) && text, "no %s", name);
    return strtod(text, NULL);
}

static MxShape shape_of(MxH5 *file, const char *path) {
    MxError err = {0};
    MxH5Array array;
    ck_assert_msg(mx_h5_stat(file, path, &array, &err), "%s", err.text.data);
    return array.shape;
}

/* What the op makes of a kernel. */
static const float *clip(MxArena *arena, MxH5 *file, const char *kernel, const char *tops,
                         MxClipHeadsAttr attr) {
    MxVars vars = {.arena = arena};
    MxTrace t;
    MxError err = {0};
    MxDevice *device;
    MxRun *run;
    int64_t n;
    for (int i = 0; i < VARS; i++)
        mx_vars_add(&vars, "x", (MxType){MX_F32, shape_of(file, i == TOPS ? tops : kernel)});
    MxGraph *graph = mx_graph_new(arena, "clip", &vars);
    mx_trace_begin(&t, graph);
    MxValue made = mx_clip_heads(&t, mx_variable(&t, KERNEL), mx_variable(&t, TOPS), attr);
    mx_trace_assign(&t, made, MADE, false);
    ck_assert_msg(mx_trace_end(&t, &err) &&
                      mx_device_open(arena, &(MxDeviceConfig){0}, &device, &err) &&
                      mx_run_open(arena, device, &vars, &graph, 1, MX_REMAT_NONE, &run, &err),
                  "%s", err.text.data);
    var_fill(run, KERNEL, golden_read(arena, file, kernel, &n));
    var_fill(run, TOPS, golden_read(arena, file, tops, &n));
    mx_run_entry(run, 0);
    return var_values(arena, run, MADE);
}

START_TEST(heads_by_their_scores) {
    static const char *const kernels[] = {"wq_b", "wkv_b"};
    MxArena arena = {.name = "heads"};
    MxH5 *file = golden_open(&arena, CLIPPED);
    if (!file) return;
    const char *group = mx_arena_printf(&arena, "%d", _i);
    for (int k = 0; k < MX_COUNT(kernels); k++) {
        const char *kernel = mx_path_join(&arena, group, kernels[k]);
        const char *clipped = mx_arena_printf(&arena, "%s_clipped", kernel);
        int64_t n;
        const MxClipHeadsAttr attr = {
            .threshold = attribute(&arena, file, group, "qk_clip_threshold"),
            .n_root = (int64_t)attribute(&arena, file, group, "qk_nope_head_dim"),
            .keeps_rest = k == 1};
        const char *tops = mx_path_join(&arena, group, "max_logits");
        const float *want = golden_read(&arena, file, clipped, &n);
        close_array(&(Close){.golden = CLIPPED, .kind = CLOSE_FINAL_RMS, .what = clipped},
                    clip(&arena, file, kernel, tops, attr), want, n);
    }
    mx_arena_release(&arena);
}
END_TEST

Suite *rules_suite(void) {
    enum { CASES = 3 };
    Suite *suite = suite_create("rules");
    TCase *tcase = tcase_create("rules");
    tcase_add_test(tcase, learning_rates_step_by_step);
    tcase_add_loop_test(tcase, heads_by_their_scores, 0, CASES);
    suite_add_tcase(suite, tcase);
    return suite;
}
