/* test_dropout.c — what training leaves to chance, from outside: a run leaves out the same columns
 * and inputs of adapters, adds the same noise and draws the same experts, whatever is made again
 * and however a batch is split, goes on as if it had not stopped, and leaves nothing to chance in
 * evaluations. */
#include "process.h"
#include "train_test.h"

#include <check.h>
#include <math.h>

static MxArena arena = {.name = "dropout"};

static void tear_down(void) {
    mx_arena_release(&arena);
}

enum { STEPS = 6, MOST = 16 };

/* Losses by step, of training or of evaluation; how many. */
static int losses(const char *dir, const char *name, double *out) {
    int n;
    MetricsLine *lines = process_metrics(&arena, dir, name, &n);
    ck_assert_int_le(n, MOST);
    for (int i = 0; i < n; i++)
        ck_assert(mx_json_number(mx_json_get(lines[i].json, name), &out[i]));
    return n;
}

static const char *run(const char *name, const char *more) {
    const char *dir = process_dir(&arena, name);
    const char *words = process_tiny(&arena, dir, mx_arena_printf(&arena, "steps=6 %s", more));
    ck_assert_msg(!process_run(&arena, dir, words), "%s", process_file(&arena, dir, "log", NULL));
    return dir;
}

static double farthest(const char *a, const char *b) {
    double x[MOST], y[MOST], most = 0;
    ck_assert_int_eq(losses(a, "learning/loss", x), STEPS);
    ck_assert_int_eq(losses(b, "learning/loss", y), STEPS);
    for (int i = 0; i < STEPS; i++) most = fmax(most, fabs(x[i] - y[i]));
    return most;
}

/* What is left out changes from step to step: with a learning rate of 0 and one batch for all
 * steps losses would be the same. */
START_TEST(a_rate_acts_and_can_be_off) {
    const char *none = run("none", ""), *some = run("some", "dropout_rate=0.3");
    const char *off = run("off", "dropout_rate=0.3 enable_dropout=false");
    ck_assert(farthest(none, off) == 0);
    ck_assert(farthest(none, some) > 1e-3);
}
END_TEST

#define EXPERTS  "decoder_block=mixtral num_experts=8 num_experts_per_tok=2 "
#define MINIMAL  "remat_policy=minimal"
#define ADAPTERS "lora.enable_lora=true lora.lora_rank=4 lora.lora_alpha=16 learning_rate=0.02 "

/* With adapters `minimal` keeps other sums apart, which are rounded. */
static const struct {
    const char *words;
    double rounding;
} chances[] = {{"dropout_rate=0.3", 0},
               {"neftune_noise_alpha=15", 0},
               {EXPERTS "use_random_routing=true", 0},
               {ADAPTERS "lora.lora_dropout=0.3", 2e-5},
               {ADAPTERS "lora.use_dora=true lora.lora_dropout=0.3", 2e-5}};

static const struct {
    const char *words;
    double tolerance;
} ways[] = {
    {"remat_policy=full", 0},
    {MINIMAL, 0},
    {"per_device_batch_size=2 gradient_accumulation_steps=2", 2e-5},
    {"per_device_batch_size=1 gradient_accumulation_steps=4 remat_policy=full", 2e-5},
};

START_TEST(the_same_is_left_out) {
    const char *chance = chances[_i / MX_COUNT(ways)].words;
    int way = _i % MX_COUNT(ways);
    const char *one = run("one", chance);
    const char *other = run("other", mx_arena_printf(&arena, "%s %s", chance, ways[way].words));
    double tolerance = ways[way].tolerance;
    if (!strcmp(ways[way].words, MINIMAL)) tolerance = chances[_i / MX_COUNT(ways)].rounding;
    ck_assert_double_le(farthest(one, other), tolerance);
}
END_TEST

START_TEST(a_run_goes_on_as_if_it_had_not_stopped) {
    double x[MOST], y[MOST];
    const char *whole = run("whole", chances[_i].words);
    const char *dir = process_dir(&arena, "stopped");
    for (int steps = 3; steps <= STEPS; steps += 3) {
        const char *more = mx_arena_printf(&arena, "%s steps=%d", chances[_i].words, steps);
        ck_assert(!process_run(&arena, dir, process_tiny(&arena, dir, more)));
    }
    ck_assert_int_eq(losses(whole, "learning/loss", x), STEPS);
    ck_assert_int_eq(losses(dir, "learning/loss", y), STEPS);
    for (int i = 0; i < STEPS; i++) ck_assert(x[i] == y[i]);
}
END_TEST

START_TEST(evaluation_leaves_nothing_to_chance) {
    static const struct {
        const char *words, *same;
        bool needs_adapters; /* that are trained: at first they add nothing */
    } rows[] = {{"dropout_rate=0.9", EXPERTS, false},
                {"use_random_routing=true", EXPERTS, false},
                {"neftune_noise_alpha=150", "", false},
                {"lora.lora_dropout=0.9", ADAPTERS, true},
                {"lora.lora_dropout=0.9", ADAPTERS "lora.use_dora=true", true}};
    double x[MOST], y[MOST];
    const char *same =
        mx_arena_printf(&arena, "%s learning_rate=0 eval_interval=2 eval_split=0.3", rows[_i].same);
    if (rows[_i].needs_adapters)
        same = mx_arena_printf(&arena, "%s lora.lora_restore_path=%s/x", same,
                               run("first", rows[_i].same));
    const char *none = run("none", same);
    const char *most = run("most", mx_arena_printf(&arena, "%s %s", rows[_i].words, same));
    int n = losses(none, "eval/avg_loss", x);
    ck_assert_int_gt(n, 0);
    ck_assert_int_eq(losses(most, "eval/avg_loss", y), n);
    for (int i = 0; i < n; i++) ck_assert(x[i] == y[i]);
    ck_assert(farthest(none, most) > 1e-3);
}
END_TEST

#define PAIRS                                                                                      \
    "use_dpo=true packing=false dataset_type=hf hf_path=json max_target_length=144 "               \
    "learning_rate=0 hf_train_files=posttrain/preference_train.jsonl"

/* The loss of a policy that is its own reference is no longer log 2, which is no bug. */
START_TEST(preferences_leave_out_in_the_policy_alone) {
    static const char *const words[] = {"dropout_rate=0.3 " PAIRS, "neftune_noise_alpha=15 " PAIRS};
    double x[MOST];
    const char *dir = run("pairs", words[_i]);
    ck_assert_int_eq(losses(dir, "learning/loss", x), STEPS);
    for (int i = 0; i < STEPS; i++) ck_assert(fabs(x[i] - log(2)) > 1e-5 && isfinite(x[i]));
}
END_TEST

Suite *dropout_suite(void) {
    Suite *suite = suite_create("dropout");
    TCase *tcase = tcase_create("runs");
    tcase_add_checked_fixture(tcase, NULL, tear_down);
    tcase_add_test(tcase, a_rate_acts_and_can_be_off);
    tcase_add_loop_test(tcase, a_run_goes_on_as_if_it_had_not_stopped, 0, MX_COUNT(chances));
    tcase_add_loop_test(tcase, evaluation_leaves_nothing_to_chance, 0, 5);
    tcase_add_loop_test(tcase, preferences_leave_out_in_the_policy_alone, 0, 2);
    tcase_set_timeout(tcase, 60);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("ways");
    tcase_add_checked_fixture(tcase, NULL, tear_down);
    tcase_add_loop_test(tcase, the_same_is_left_out, 0, MX_COUNT(chances) * MX_COUNT(ways));
    tcase_set_timeout(tcase, 60);
    tcase_set_long(tcase);
    suite_add_tcase(suite, tcase);
    return suite;
}
