/* test_iterations.c — several steps on one batch of responses (rl.num_iterations): TRL's
 * GRPOTrainer on a tiny model, and runs. */
#include "close.h"
#include "golden.h"
#include "process.h"
#include "train_test.h"

#include <check.h>
#include <string.h>

#define FOLDER "hf/trl/grpo"

static MxArena arena = {.name = "iterations"};
static MxError err;
static MxH5 *file;

static void close_all(void) {
    mx_arena_release(&arena);
}

/* ---- TRL */

/* As scripts/golden_grpo.py. */
enum { BATCHES = 2, ROWS = 4, LENGTH = 12, ITERATIONS = 3 };

#define TRAINING                                                                                   \
    "use_grpo=true rl.loss_algo=dr_grpo rl.num_iterations=3 rl.num_generations=2 "                 \
    "rl.grpo_beta=0.1 rl.grpo_epsilon=0.05 rl.reward=length max_prefill_predict_length=3 "         \
    "max_target_length=12 per_device_batch_size=2 packing=false eval_interval=-1 "                 \
    "dataset_type=hf hf_train_files=x tokenizer_type=tiktoken tokenizer_path=x steps=100 "         \
    "learning_rate=1e-2 lr_schedule_type=wsd wsd_decay_steps_fraction=0 warmup_steps_fraction=0 "  \
    "adam_b1=0.9 adam_b2=0.95 adam_eps=1e-8 adam_weight_decay=0 gradient_clipping_threshold=1.0 "  \
    "query_pre_attn_scalar=8 rope_type=default "

static const float *array(const char *name) {
    int64_t n;
    const float *x = golden_read(&arena, file, name, &n);
    ck_assert_msg(x != NULL, "no %s", name);
    return x;
}

/* What counts is the completion, moved to the places that predict it. */
static MxBatch make_batch(int64_t i) {
    const float *ids = array("input_ids") + i * ROWS * LENGTH;
    const float *mask = array("mask") + i * ROWS * LENGTH;
    MxBatch batch = mx_batch_new(&arena, ROWS, LENGTH);
    for (int64_t at = 0; at < ROWS * LENGTH; at++) {
        batch.field[MX_INPUTS][at] = (int32_t)ids[at];
        batch.field[MX_INPUTS_POSITION][at] = ids[at] > 0 ? (int32_t)(at % LENGTH) : 0;
        batch.field[MX_INPUTS_SEGMENTATION][at] = ids[at] > 0;
        if (at % LENGTH == LENGTH - 1) continue;
        batch.field[MX_TARGETS][at] = (int32_t)ids[at + 1];
        batch.field[MX_TARGETS_SEGMENTATION][at] = mask[at + 1] > 0;
    }
    return batch;
}

static void check_number(CloseKind kind, const char *name, int64_t step, double got) {
    const char *what = mx_arena_printf(&arena, "%s at step %d", name, (int)step);
    close_number(&(Close){.golden = FOLDER, .kind = kind, .what = what}, got,
                 (double)array(name)[step]);
}

START_TEST(trl_run) {
    if (!(file = golden_open(&arena, FOLDER "/expected.h5"))) return;
    MxTrainState *state = golden_hf_start(&arena, FOLDER "/start", TRAINING);
    for (int64_t step = 0; step < BATCHES * ITERATIONS; step++) {
        const int64_t i = step / ITERATIONS;
        MxBatch batch = make_batch(i);
        mx_train_give_rewards(state, &batch, array("rewards") + i * ROWS, NULL);
        ck_assert(mx_train_before_batch(state, false, i, &batch, &err));
        MxLoss loss = mx_train_loss_and_grad(state, &batch);
        const double *sum = mx_train_sum(state, &loss, "policy"), n = sum[MX_POLICY_TOKENS];
        check_number(CLOSE_LATER_LOSS, "loss", step, loss.loss);
        check_number(CLOSE_LATER_LOSS, "kl", step, sum[MX_POLICY_KL] / n);
        check_number(CLOSE_LATER_LOSS, "clipped", step, sum[MX_POLICY_CLIPPED] / n);
        check_number(CLOSE_LATER_NORM, "grad_norm", step, mx_train_update(state).raw_grad_norm);
    }
}
END_TEST

/* ---- runs */

#define RUN                                                                                        \
    "use_grpo=true packing=false dataset_type=hf hf_path=json per_device_batch_size=2 "            \
    "eval_interval=-1 max_target_length=40 rl.num_generations=4 learning_rate=0.01 "               \
    "enable_checkpointing=false rl.num_iterations=2 steps=6 "                                      \
    "warmup_steps_fraction=0 "
#define WRITES                                                                                     \
    "hf_train_files=posttrain/sft_train.jsonl max_prefill_predict_length=32 rl.reward=regex "      \
    "rl.reward_pattern=.*[a-m] "

static const MetricsLine *run(const char *name, const char *more) {
    int n;
    const char *dir = process_dir(&arena, name);
    const char *words = mx_arena_printf(&arena, RUN "%s", more);
    int code = process_run(&arena, dir, process_tiny(&arena, dir, words));
    ck_assert_msg(code == 0, "%s", process_file(&arena, dir, "log", NULL));
    const MetricsLine *lines = process_metrics(&arena, dir, "learning/avg_reward", &n);
    ck_assert_int_eq(n, 6);
    return lines;
}

/* Both steps of a batch have its responses, and the second one another policy. What a policy was
 * drawn with is what it is measured to have had. */
START_TEST(steps_share_what_was_written) {
    const MetricsLine *measured = run("measured", WRITES);
    const MetricsLine *recorded = run("recorded", WRITES "rl.recorded_logprobs=true");
    for (int k = 0; k < 6; k++) {
        const MetricsLine *first = &measured[k / 2 * 2], *line = &measured[k];
        ck_assert_double_eq(process_number(line, "learning/avg_reward"),
                            process_number(first, "learning/avg_reward"));
        ck_assert_double_eq(process_number(line, "learning/completion_length"),
                            process_number(first, "learning/completion_length"));
        ck_assert(k % 2 ? process_number(line, "learning/clip_fraction") > 0.05
                        : process_number(line, "learning/clip_fraction") <= 0);
        ck_assert_double_eq_tol(process_number(line, "learning/loss"),
                                process_number(&recorded[k], "learning/loss"), 1e-5);
    }
    ck_assert_double_ne(process_number(&measured[0], "learning/avg_reward"),
                        process_number(&measured[2], "learning/avg_reward"));
}
END_TEST

/* Responses of the data are read once for both steps, however a batch is split. */
START_TEST(steps_share_what_was_read) {
    const char *data = "hf_train_files=posttrain/rewards_train.jsonl max_target_length=64 ";
    const MetricsLine *whole = run("whole", data);
    const MetricsLine *split = run("split", mx_arena_printf(&arena,
                                                            "%s per_device_batch_size=1 "
                                                            "gradient_accumulation_steps=2",
                                                            data));
    for (int k = 0; k < 6; k++) {
        ck_assert_double_eq(process_number(&whole[k], "learning/avg_reward"),
                            process_number(&whole[k / 2 * 2], "learning/avg_reward"));
        ck_assert(k % 2 ? process_number(&whole[k], "learning/clip_fraction") > 0.05
                        : process_number(&whole[k], "learning/clip_fraction") <= 0);
        ck_assert_double_eq_tol(process_number(&whole[k], "learning/loss"),
                                process_number(&split[k], "learning/loss"), 1e-5);
    }
}
END_TEST

Suite *iterations_suite(void) {
    enum { TIMEOUT_S = 120 };
    Suite *suite = suite_create("iterations");
    TCase *tcase = tcase_create("iterations");
    tcase_set_timeout(tcase, TIMEOUT_S);
    tcase_add_checked_fixture(tcase, NULL, close_all);
    tcase_add_test(tcase, trl_run);
    tcase_add_test(tcase, steps_share_what_was_written);
    tcase_add_test(tcase, steps_share_what_was_read);
    suite_add_tcase(suite, tcase);
    return suite;
}
