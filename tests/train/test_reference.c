/* test_reference.c — the reference's log-probabilities made ahead: the run is bit for bit the one
 * with a second model beside the policy, also when it is resumed, and what is stale is refused. */
#include "process.h"
#include "train_test.h"

#include <check.h>
#include <math.h>
#include <unistd.h>

static MxArena arena = {.name = "reference"};
static const char *dir;

static void set_up(void) {
    dir = process_dir(&arena, "reference");
}

static void tear_down(void) {
    mx_arena_release(&arena);
}

/* A tiny run on the bundled pairs. The file of metrics is the last run's. */
static int run(const char *name, const char *more) {
    if (!mx_dir_exists(mx_path_join(&arena, dir, name)))
        unlink(mx_path_join(&arena, dir, "m.jsonl"));
    return process_run(
        &arena, dir,
        mx_arena_printf(&arena,
                        "configs/recipes/dpo.yml base_emb_dim=32 base_num_decoder_layers=2 "
                        "base_num_query_heads=2 base_num_kv_heads=2 head_dim=16 base_mlp_dim=64 "
                        "per_device_batch_size=2 gradient_accumulation_steps=2 steps=6 "
                        "learning_rate=0.001 eval_interval=3 eval_steps=2 checkpoint_period=2 "
                        "log_config=false base_output_directory=%s run_name=%s "
                        "metrics_file=%s/m.jsonl %s",
                        dir, name, dir, more));
}

static void ends(const char *name, const char *more, int code) {
    int got = run(name, more);
    ck_assert_msg(got == code, "exit %d instead of %d: %s", got, code,
                  process_file(&arena, dir, "log", NULL));
}

static void has_said(const char *text) {
    const char *log = process_file(&arena, dir, "log", NULL);
    ck_assert_msg(strstr(log, text) != NULL, "has not said \"%s\": %s", text, log);
}

/* A figure of every step, as it was written. */
static double *figures(const char *name, int *n) {
    MetricsLine *lines = process_metrics(&arena, dir, name, n);
    double *values = mx_new_n(&arena, double, *n + 1);
    for (int i = 0; i < *n; i++) {
        values[i] = NAN;
        mx_json_number(mx_json_get(lines[i].json, name), &values[i]);
    }
    return values;
}

static const char *const compared[] = {"learning/loss", "learning/grad_norm",
                                       "learning/rewards_margin", "eval/avg_loss"};

/* The figures of the run just made are those of `want`. */
static void check_figures(double *const want[], const int n_want[]) {
    for (int i = 0; i < MX_COUNT(compared); i++) {
        int n;
        const double *got = figures(compared[i], &n);
        ck_assert_int_eq(n, n_want[i]);
        for (int k = 0; k < n; k++)
            ck_assert_msg(got[k] == want[i][k], "%s, line %d: %.17g instead of %.17g", compared[i],
                          k, got[k], want[i][k]);
    }
}

START_TEST(it_is_the_run_with_two_models) {
    double *want[MX_COUNT(compared)];
    int n_want[MX_COUNT(compared)];
    ends("copy", "dpo.reference=copy", 0);
    for (int i = 0; i < MX_COUNT(compared); i++) want[i] = figures(compared[i], &n_want[i]);
    ck_assert_int_eq(n_want[0], 6);
    ck_assert_int_eq(n_want[3], 3);
    ck_assert(want[0][5] != want[0][0]);
    ends("ahead", "dpo.reference=precomputed", 0);
    has_said("making the reference's log-probabilities");
    check_figures(want, n_want);
    const char *shared = mx_arena_printf(&arena,
                                         "dpo.reference=precomputed "
                                         "dpo.reference_logps=%s/ahead/reference "
                                         "learning_rate_schedule_steps=6",
                                         dir);
    ends("half", mx_arena_printf(&arena, "%s steps=4", shared),
         0); /* one that is evaluated anyway */
    ck_assert(!mx_dir_exists(mx_path_join(&arena, dir, "half/reference")));
    ends("half", shared, 0); /* goes on from step 4 */
    has_said("restoring from this run's directory step 3");
    check_figures(want, n_want);
}
END_TEST

START_TEST(what_is_stale_is_refused) {
    ends("first", "dpo.reference=precomputed", 0);
    const char *shared = mx_arena_printf(
        &arena, "dpo.reference=precomputed dpo.reference_logps=%s/first/reference", dir);
    ends("seed", mx_arena_printf(&arena, "%s init_weights_seed=1", shared), MX_EXIT_BAD_INPUT);
    has_said("are of another policy: fingerprint ");
    ends("order", mx_arena_printf(&arena, "%s data_shuffle_seed=1", shared), MX_EXIT_BAD_INPUT);
    has_said("are of other data: train batch 0");
    ends("long", mx_arena_printf(&arena, "%s steps=7", shared), MX_EXIT_BAD_INPUT);
    has_said("it holds [48, 96] for rows of train batches, this run wants [56, 96]");
    const char *file = mx_arena_printf(&arena, "%s/first/reference/logps.h5", dir);
    MxError err = {0};
    ck_assert(mx_file_write(file, "x", 1, &err));
    ends("broken", shared, MX_EXIT_BAD_INPUT);
    ck_assert(mx_dir_remove(mx_path_join(&arena, dir, "first/reference"), &err));
    ends("first", "dpo.reference=precomputed steps=8", MX_EXIT_BAD_INPUT);
    has_said("log-probabilities are gone");
}
END_TEST

/* Adapters that are not zero any more make the policy another model than its reference, which is
 * the model without them. */
START_TEST(adapters_may_have_learned_before) {
    static const char lora[] = "lora.enable_lora=true lora.lora_rank=2 lora.lora_alpha=4";
    double *want[MX_COUNT(compared)];
    int n_want[MX_COUNT(compared)];
    ends("before", lora, 0);
    const char *on = mx_arena_printf(&arena, "%s lora.lora_restore_path=%s/before", lora, dir);
    ends("beside", on, 0);
    for (int i = 0; i < MX_COUNT(compared); i++) want[i] = figures(compared[i], &n_want[i]);
    ends("ahead", mx_arena_printf(&arena, "%s dpo.reference=precomputed", on), 0);
    check_figures(want, n_want);
    ck_assert_double_gt(fabs(want[2][0]), 1e-6);
}
END_TEST

Suite *reference_suite(void) {
    enum { SECONDS = 60 };
    Suite *suite = suite_create("reference");
    TCase *tcase = tcase_create("ahead");
    tcase_set_timeout(tcase, SECONDS);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, it_is_the_run_with_two_models);
    tcase_add_test(tcase, what_is_stale_is_refused);
    tcase_add_test(tcase, adapters_may_have_learned_before);
    suite_add_tcase(suite, tcase);
    return suite;
}
