/* test_family_runs.c — a small model of every family as runs: on two ranks and two meshes as on
 * one, and resumed exactly. */
#include "common/families.h"
#include "process.h"
#include "train_test.h"

#include <check.h>
#include <math.h>

enum { STEPS = 3 };

static MxArena arena = {.name = "family runs"};

static void close_all(void) {
    mx_arena_release(&arena);
}

static const MetricsLine *run(const char *dir, const char *family, int ranks, const char *more) {
    int n;
    const char *words = mx_arena_printf(
        &arena,
        "%s max_target_length=24 learning_rate=1e-3 warmup_steps_fraction=0 log_config=false "
        "learning_rate_schedule_steps=%d eval_interval=-1 run_name=x base_output_directory=%s "
        "metrics_file=%s/m.jsonl %s",
        family_small(&arena, family), STEPS, dir, dir, more);
    int code =
        ranks > 1 ? process_run_ranks(&arena, dir, ranks, words) : process_run(&arena, dir, words);
    ck_assert_msg(code == 0, "%s %s: %s", family, more, process_file(&arena, dir, "log", NULL));
    const MetricsLine *lines = process_metrics(&arena, dir, "learning/loss", &n);
    ck_assert_int_ge(n, 1);
    return lines + n - 1;
}

static const char *const numbers[] = {"learning/loss", "learning/raw_grad_norm",
                                      "learning/param_norm"};

static void ck_near(const char *family, const char *what, const MetricsLine *got,
                    const MetricsLine *want, double bound) {
    for (int i = 0; i < MX_COUNT(numbers); i++) {
        double a = process_number(got, numbers[i]), b = process_number(want, numbers[i]);
        ck_assert_msg(fabs(a - b) <= bound * fabs(b), "%s %s: %s is %.9g, wanted %.9g", family,
                      what, numbers[i], a, b);
    }
}

/* Two ranks cannot share the heads of keys of a family that has one. */
static const char *second_mesh(const char *family) {
    static const char *const few[] = {"deepseek4", "gemma4"};
    for (int i = 0; i < MX_COUNT(few); i++)
        if (!strcmp(family, few[i])) return "ici_data_parallelism=2";
    return "ici_tensor_parallelism=2";
}

/* Of gemma4_small, whose gradient is the largest, levels of processors differ by 2e-5. */
START_TEST(runs_are_the_same) {
    const char *family = family_model(_i);
    if (!family) return;
    const char *plain = process_dir(&arena, "plain"), *again = process_dir(&arena, "again");
    const char *meshes[] = {"ici_fsdp_parallelism=2", second_mesh(family)};
    const MetricsLine *want =
        run(plain, family, 1, "steps=3 enable_checkpointing=false num_threads=1");
    for (int i = 0; i < MX_COUNT(meshes); i++) {
        const char *dir = process_dir(&arena, "mesh");
        const char *more = mx_arena_printf(
            &arena, "steps=3 enable_checkpointing=false per_device_batch_size=1 %s", meshes[i]);
        ck_near(family, meshes[i], run(dir, family, 2, more), want, 5e-5);
    }
    run(again, family, 1, "steps=2 num_threads=1");
    ck_near(family, "resumed", run(again, family, 1, "steps=3 num_threads=1"), want, 0);
}
END_TEST

Suite *family_runs_suite(void) {
    enum { SECONDS = 60 };
    Suite *suite = suite_create("runs of families");
    TCase *tcase = tcase_create("families");
    tcase_set_timeout(tcase, SECONDS);
    tcase_set_long(tcase);
    tcase_add_checked_fixture(tcase, NULL, close_all);
    tcase_add_loop_test(tcase, runs_are_the_same, 0, family_models());
    suite_add_tcase(suite, tcase);
    return suite;
}
