/* test_rollouts.c — responses that the policy writes while it is trained, from outside: a reward
 * that is learnt, log-probabilities that are recorded, and programs that reward, fail, end and
 * hang.
 */
#include "process.h"
#include "train_test.h"

#include <check.h>
#include <stdio.h>
#include <sys/stat.h>

#define WRITES                                                                                     \
    "use_grpo=true packing=false dataset_type=hf hf_path=json per_device_batch_size=2 "            \
    "hf_train_files=posttrain/sft_train.jsonl eval_interval=-1 max_target_length=40 "              \
    "max_prefill_predict_length=32 rl.num_generations=4 enable_checkpointing=false "

static const char *log_of(MxArena *arena, const char *dir) {
    return process_file(arena, dir, "log", NULL);
}

static int run(MxArena *arena, const char *dir, const char *more) {
    const char *words = mx_arena_printf(arena, WRITES "%s", more);
    return process_run(arena, dir, process_tiny(arena, dir, words));
}

static MetricsLine *lines_of(MxArena *arena, const char *dir, int *n) {
    return process_metrics(arena, dir, "learning/avg_reward", n);
}

static double mean_reward(const MetricsLine *lines, int from, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += process_number(&lines[from + i], "learning/avg_reward") / n;
    return sum;
}

/* Completions that begin with a small letter: one in ten at first. */
START_TEST(rewards_rise) {
    MxArena arena = {0};
    const char *dir = process_dir(&arena, "rises");
    int n, code = run(&arena, dir,
                      "steps=40 rl.num_generations=8 rl.reward=regex rl.reward_pattern=^[a-z] "
                      "learning_rate=0.01 rl.grpo_beta=0.01 learning_rate_schedule_steps=60");
    ck_assert_msg(code == 0, "%s", log_of(&arena, dir));
    MetricsLine *lines = lines_of(&arena, dir, &n);
    ck_assert_int_eq(n, 40);
    double first = mean_reward(lines, 0, 5), last = mean_reward(lines, 35, 5);
    ck_assert_msg(last > first + 0.3, "from %g to %g", first, last);
    mx_arena_release(&arena);
}
END_TEST

/* A policy that is measured against what it was drawn with has ratios of 1: the same as if it had
 * not been recorded. Caps of logits stand before the temperature. */
static const char *const caps[] = {"", "final_logits_soft_cap=0.5 "};

START_TEST(what_is_recorded_is_what_is_measured) {
    MxArena arena = {0};
    const char *more =
        "steps=3 rl.reward=length rl.reward_length=6 decode_sampling_temperature=0.7 "
        "decode_sampling_top_k=200 decode_sampling_nucleus_p=0.98 learning_rate=0.01 "
        "rl.recorded_logprobs=";
    MetricsLine *lines[2];
    for (int i = 0; i < 2; i++) {
        const char *dir = process_dir(&arena, i ? "recorded" : "measured");
        int n, code = run(&arena, dir,
                          mx_arena_printf(&arena, "%s%s%s", caps[_i], more, i ? "true" : "false"));
        ck_assert_msg(code == 0, "%s", log_of(&arena, dir));
        lines[i] = lines_of(&arena, dir, &n);
        ck_assert_int_eq(n, 3);
    }
    for (int k = 0; k < 3; k++) {
        ck_assert_double_eq_tol(process_number(&lines[0][k], "learning/loss"),
                                process_number(&lines[1][k], "learning/loss"), 1e-5);
        ck_assert_double_eq(process_number(&lines[0][k], "learning/avg_reward"),
                            process_number(&lines[1][k], "learning/avg_reward"));
        ck_assert_double_eq(process_number(&lines[1][k], "learning/clip_fraction"), 0);
    }
    ck_assert_double_eq_tol(process_number(&lines[1][0], "learning/avg_kl"), 0, 1e-6);
    mx_arena_release(&arena);
}
END_TEST

/* The likeliest token each time: the completions of a group are the same. */
START_TEST(one_token_to_choose_from) {
    MxArena arena = {0};
    const char *dir = process_dir(&arena, "greedy");
    int n, code = run(&arena, dir, "steps=2 rl.reward=length decode_sampling_top_k=1");
    ck_assert_msg(code == 0, "%s", log_of(&arena, dir));
    MetricsLine *lines = lines_of(&arena, dir, &n);
    ck_assert_double_eq(process_number(&lines[1], "learning/avg_reward_std"), 0);
    ck_assert_double_eq(process_number(&lines[1], "learning/avg_advantage"), 0);
    /* of all rows that go through the model, four for each of two prompts */
    ck_assert_double_eq(process_number(&lines[1], "perf/per_device_tokens"), 2 * 4 * 40);
    ck_assert_double_gt(process_number(&lines[1], "perf/rollout_time_seconds"), 0);
    ck_assert_ptr_nonnull(strstr(log_of(&arena, dir), ", rollout_seconds: "));
    mx_arena_release(&arena);
}
END_TEST

/* Completions that were cut are no targets, but have rewards: there are next to no others here. */
START_TEST(cut_completions_may_not_count) {
    MxArena arena = {0};
    for (int masks = 0; masks < 2; masks++) {
        const char *dir = process_dir(&arena, masks ? "masked" : "kept");
        int n, code = run(&arena, dir,
                          mx_arena_printf(&arena,
                                          "steps=2 rl.reward=regex rl.reward_pattern=^[a-z] "
                                          "rl.num_iterations=2 rl.mask_truncated_completions=%s",
                                          masks ? "true" : "false"));
        ck_assert_msg(code == 0, "%s", log_of(&arena, dir));
        MetricsLine *lines = lines_of(&arena, dir, &n);
        for (int k = 0; k < 2; k++) { /* the second step recalls what the first has kept */
            double length = process_number(&lines[k], "learning/completion_length");
            ck_assert_msg(masks ? length < 2 : length > 6, "%g", length);
            ck_assert_double_gt(process_number(&lines[k], "learning/avg_reward"), 0);
        }
    }
    mx_arena_release(&arena);
}
END_TEST

/* ---- programs */

/* What a program does with each line, `i` counted from 1 since it was started. */
#define EACH(body)                                                                                 \
    "#!/bin/sh\ni=0\nwhile read -r line; do i=$((i + 1)); r=0\n"                                   \
    "case $line in *'\"completion\":\"'[a-z]*) r=1;; esac\n" body "\ndone\n"

static const char *program(MxArena *arena, const char *dir, const char *text) {
    MxError err = {0};
    const char *path = mx_path_join(arena, dir, "reward.sh");
    ck_assert(mx_file_write(path, text, strlen(text), &err) && !chmod(path, 0755));
    return path;
}

static int run_program(MxArena *arena, const char *dir, const char *text, const char *more) {
    return run(arena, dir,
               mx_arena_printf(
                   arena, "steps=4 learning_rate=0.01 rl.reward=command rl.reward_command=%s %s",
                   program(arena, dir, text), more));
}

/* Whatever a program does on the way, the same answers give the same run. */
static const struct {
    const char *text, *told;
} programs[] = {
    {EACH("echo $r"), NULL},
    {EACH("echo \"{\\\"reward\\\": $r}\""), NULL},
    {EACH("[ $i = 7 ] && kill -9 $$; echo $r"),
     "the reward program ended (exit 137); it is started again"},
    {EACH("[ $i = 7 ] && exit 3; echo $r"),
     "the reward program ended (exit 3); it is started again"},
    {EACH("[ $i = 1 ] && echo thinking hard >&2; echo $r"), "reward program: thinking hard"},
};

START_TEST(answers_are_what_counts) {
    MxArena arena = {0};
    int n[2];
    const char *built_in = process_dir(&arena, "built_in"), *dir = process_dir(&arena, "program");
    int code = run(&arena, built_in,
                   "steps=4 learning_rate=0.01 rl.reward=regex rl.reward_pattern=^[a-z]");
    ck_assert_msg(code == 0, "%s", log_of(&arena, built_in));
    code = run_program(&arena, dir, programs[_i].text, "");
    ck_assert_msg(code == 0, "%s", log_of(&arena, dir));
    ck_assert_msg(!programs[_i].told || strstr(log_of(&arena, dir), programs[_i].told), "%s",
                  log_of(&arena, dir));
    MetricsLine *want = lines_of(&arena, built_in, &n[0]), *got = lines_of(&arena, dir, &n[1]);
    ck_assert(n[0] == 4 && n[1] == 4);
    for (int k = 0; k < 4; k++) {
        ck_assert_double_eq(process_number(&want[k], "learning/avg_reward"),
                            process_number(&got[k], "learning/avg_reward"));
        ck_assert_double_eq(process_number(&want[k], "learning/loss"),
                            process_number(&got[k], "learning/loss"));
    }
    mx_arena_release(&arena);
}
END_TEST

/* Runs that go on without some rewards, and runs that end. */
static const struct {
    const char *text, *more, *told;
    int code;
} failing[] = {
    {EACH("[ $((i % 5)) = 0 ] && r='{\"error\": \"too hard\"}'; echo $r"), "",
     "of 8 completions got no reward and are left out; the first: too hard", 0},
    {EACH("[ $i = 3 ] && sleep 5; echo $r"), "rl.reward_timeout=0.5 steps=1",
     "the first: no answer in 0.5 seconds", 0},
    {EACH("case $line in *'\"id\":2,'*) exit 3;; esac; echo $r"), "steps=2",
     "1 of 8 completions got no reward and are left out; the first: the program ends when asked "
     "(exit 3)",
     0},
    {EACH("echo null"), "", "8 of 8 completions of a batch got no reward, more than a share of 0.5",
     2},
    {EACH("echo null; [ $i -gt 4 ] && r=0"), "rl.reward_failures=1", "8 of 8 completions", 2},
    {EACH("echo hello"), "", "the program wrote \"hello\", wanted a line with a number", 65},
    {EACH("echo 1; echo 2"), "", "wanted a line with a number", 65},
    {"#!/bin/sh\nexit 5\n", "", "ended (exit 5) before it had answered anything", 65},
};

START_TEST(rewards_may_fail) {
    MxArena arena = {0};
    const char *dir = process_dir(&arena, "fails");
    int code = run_program(&arena, dir, failing[_i].text, failing[_i].more);
    ck_assert_msg(code == failing[_i].code, "exit %d: %s", code, log_of(&arena, dir));
    ck_assert_msg(strstr(log_of(&arena, dir), failing[_i].told) != NULL, "%s", log_of(&arena, dir));
    mx_arena_release(&arena);
}
END_TEST

/* What was saved before stays, and the run goes on from there when the program is mended. */
START_TEST(nothing_saved_is_lost) {
    MxArena arena = {0};
    const char *dir = process_dir(&arena, "mended");
    const char *more = "enable_checkpointing=true checkpoint_period=1 steps=6";
    int code = run_program(&arena, dir, EACH("[ $i = 20 ] && echo nonsense; echo $r"), more);
    ck_assert_msg(code == MX_EXIT_BAD_INPUT, "exit %d: %s", code, log_of(&arena, dir));
    code = run_program(&arena, dir, EACH("echo $r"), more);
    ck_assert_msg(code == 0 &&
                      strstr(log_of(&arena, dir), "restoring from this run's directory step 1"),
                  "exit %d: %s", code, log_of(&arena, dir));
    mx_arena_release(&arena);
}
END_TEST

/* A policy that knows nothing writes neither marks nor answers: four penalties, and a fifth. */
START_TEST(keys_say_what_marks_are_worth) {
    MxArena arena = {0};
    MxError err = {0};
    const char *dir = process_dir(&arena, "marks");
    const char *path = mx_path_join(&arena, dir, "asked.jsonl");
    static const char records[] = "{\"prompt\": \"2 and 2?\", \"answer\": \"4\"}\n"
                                  "{\"prompt\": \"2 and 3?\", \"answer\": \"5\"}\n";
    ck_assert(mx_file_write(path, records, sizeof records - 1, &err));
    int n, code = run(&arena, dir,
                      mx_arena_printf(&arena,
                                      "steps=1 rl.reward=maxtext penalty_incorrect_format=-0.25 "
                                      "penalty_incorrect_answer=-7 hf_train_files=%s",
                                      path));
    ck_assert_msg(code == 0, "%s", log_of(&arena, dir));
    MetricsLine *lines = lines_of(&arena, dir, &n);
    ck_assert_int_eq(n, 1);
    ck_assert_double_eq(process_number(&lines[0], "learning/avg_reward"), -8);
    mx_arena_release(&arena);
}
END_TEST

/* Records with answers, of which a policy that says nothing gets two right. */
static const char *put_asked(MxArena *arena, const char *dir) {
    static const char records[] = "{\"question\": \"a?\", \"solution\": \"-1000000\"}\n"
                                  "{\"question\": \"b?\", \"solution\": \"5\"}\n"
                                  "{\"question\": \"c?\", \"solution\": \"-1000001\"}\n"
                                  "{\"question\": \"d?\", \"solution\": \"-1,000,000\"}\n";
    const char *path = mx_path_join(arena, dir, "asked.jsonl");
    MxError err = {0};
    ck_assert(mx_file_write(path, records, sizeof records - 1, &err));
    return path;
}

/* A policy that knows nothing gives no answer, which MaxText takes for this number: half of the
 * records have it. Evaluations draw in a way of their own, before, between and behind the steps. */
START_TEST(answers_are_judged) {
    MxArena arena = {0};
    const char *dir = process_dir(&arena, "judged"), *path = put_asked(&arena, dir);
    int n, code = run(&arena, dir,
                      mx_arena_printf(&arena,
                                      "rl.reward=maxtext hf_train_files=%s hf_eval_files=%s "
                                      "batch_size=2 train_micro_batch_size=1 num_batches=2 "
                                      "rl.num_iterations=3 num_test_batches=5 eval_batch_size=4 "
                                      "num_eval_passes=3 eval_mode=maj eval_interval=3 "
                                      "penalty_incorrect_answer=-7 penalty_incorrect_format=0",
                                      path, path));
    ck_assert_msg(code == 0, "%s", log_of(&arena, dir));
    MetricsLine *lines = process_metrics(&arena, dir, "eval/accuracy", &n);
    ck_assert_int_eq(n, 4); /* before, 0, 3, 5: there are six steps */
    static const double steps[] = {-1, 0, 3, 5};
    for (int i = 0; i < n; i++) {
        ck_assert_double_eq(process_number(&lines[i], "step"), steps[i]);
        ck_assert_double_eq(process_number(&lines[i], "eval/questions"), 4);
        ck_assert_double_eq(process_number(&lines[i], "eval/accuracy"), 50);
        ck_assert_double_eq(process_number(&lines[i], "eval/partial_accuracy"), 75);
        ck_assert_double_eq(process_number(&lines[i], "eval/format_accuracy"), 0);
        ck_assert_double_eq(process_number(&lines[i], "eval/avg_reward"), -7);
    }
    ck_assert(strstr(log_of(&arena, dir), "Completed eval before the first step, correct=2 of 4"));
    mx_arena_release(&arena);
}
END_TEST

/* The same records from the second on, of the two in a row that are whole. */
START_TEST(answers_are_judged_from_a_prompt_on) {
    MxArena arena = {0};
    const char *dir = process_dir(&arena, "judged_later"), *path = put_asked(&arena, dir);
    int n, code = run(&arena, dir,
                      mx_arena_printf(&arena,
                                      "rl.reward=maxtext hf_train_files=%s hf_eval_files=%s "
                                      "batch_size=2 num_batches=1 num_test_batches=2 "
                                      "test_batch_start_index=1",
                                      path, path));
    ck_assert_msg(code == 0, "%s", log_of(&arena, dir));
    MetricsLine *lines = process_metrics(&arena, dir, "eval/accuracy", &n);
    ck_assert_int_gt(n, 0);
    ck_assert_double_eq(process_number(&lines[0], "eval/questions"), 2);
    ck_assert_double_eq(process_number(&lines[0], "eval/accuracy"), 0);
    ck_assert_double_eq(process_number(&lines[0], "eval/partial_accuracy"), 50);
    mx_arena_release(&arena);
}
END_TEST

START_TEST(what_cannot_be_asked) {
    MxArena arena = {0};
    static const struct {
        const char *more, *told;
    } wrong[] = {
        {"rl.reward=exact", "column \"answer\" holds nothing, wanted the text that"},
        {"rl.reward=maxtext", "column \"answer\" holds nothing, wanted the text that"},
        {"rl.reward=command", "rl.reward: command wants rl.reward_command"},
        {"rl.reward=regex", "rl.reward: regex wants rl.reward_pattern"},
        {"rl.reward=length max_prefill_predict_length=40", "leaves no room for completions"},
        {"rl.reward=length dpo.reference=precomputed", "lets the policy write them"},
        {"rl.reward=length num_devices=2 ici_pipeline_parallelism=2 --plan",
         "rl.reward: not available yet in a pipeline (stage=2)"},
        {"rl.reward=length rl.reward_pattern=(", "is not a regular expression"},
    };
    const char *dir = process_dir(&arena, "wrong");
    for (int i = 0; i < MX_COUNT(wrong); i++) {
        int code = run(&arena, dir, wrong[i].more);
        ck_assert_msg(code != 0 && strstr(log_of(&arena, dir), wrong[i].told), "%s: exit %d: %s",
                      wrong[i].more, code, log_of(&arena, dir));
    }
    mx_arena_release(&arena);
}
END_TEST

Suite *rollouts_suite(void) {
    enum { TIMEOUT_S = 120 };
    Suite *suite = suite_create("rollouts");
    TCase *tcase = tcase_create("rollouts");
    tcase_set_timeout(tcase, TIMEOUT_S);
    tcase_add_test(tcase, rewards_rise);
    tcase_add_test(tcase, cut_completions_may_not_count);
    tcase_add_loop_test(tcase, what_is_recorded_is_what_is_measured, 0, MX_COUNT(caps));
    tcase_add_test(tcase, one_token_to_choose_from);
    tcase_add_loop_test(tcase, answers_are_what_counts, 0, MX_COUNT(programs));
    tcase_add_loop_test(tcase, rewards_may_fail, 0, MX_COUNT(failing));
    tcase_add_test(tcase, nothing_saved_is_lost);
    tcase_add_test(tcase, keys_say_what_marks_are_worth);
    tcase_add_test(tcase, answers_are_judged);
    tcase_add_test(tcase, answers_are_judged_from_a_prompt_on);
    tcase_add_test(tcase, what_cannot_be_asked);
    suite_add_tcase(suite, tcase);
    return suite;
}
