/* test_sft_losses.c — losses of pairs that are put together of several (CPO, MPO), or of other
 * numbers (LD-DPO, AlphaPO), a reference that moves (TR-DPO), and a cross-entropy weighed by
 * probabilities (dft). TRL's trainers on a tiny model, and runs. */
#include "close.h"
#include "golden.h"
#include "process.h"
#include "train_test.h"

#include <check.h>

#define FOLDER "hf/trl/cpo"

static MxArena arena = {.name = "sft losses"};
static MxH5 *file;

static void close_all(void) {
    mx_arena_release(&arena);
}

/* ---- TRL */

enum { STEPS = 5 };

/* As scripts/golden_cpo.py. */
#define TRAINING                                                                                   \
    "per_device_batch_size=4 dataset_type=synthetic steps=100 packing=false "                      \
    "learning_rate=1e-2 lr_schedule_type=wsd wsd_decay_steps_fraction=0 warmup_steps_fraction=0 "  \
    "adam_b1=0.9 adam_b2=0.95 adam_eps=1e-8 adam_weight_decay=0 gradient_clipping_threshold=1.0 "  \
    "query_pre_attn_scalar=8 rope_type=default "

static const struct {
    const char *group, *words;
    int64_t rows;
    bool has_chosen; /* the cross-entropy of chosen responses is compared as well */
} runs[] = {
    {"cpo",
     "use_dpo=true dpo.reference=none dpo.dpo_beta=0.3 dpo.dpo_label_smoothing=0.1 "
     "dpo.loss_weights.sft=0.5 ",
     8, true},
    {"alphapo",
     "use_dpo=true dpo.algo=simpo dpo.dpo_beta=2 dpo.simpo_gamma=0.4 "
     "dpo.f_divergence_type=alpha_divergence dpo.f_alpha_divergence_coef=0.8 ",
     8, false},
    {"mpo",
     "use_dpo=true dpo.dpo_beta=0.3 dpo.loss_weights.dpo=0.8 dpo.loss_weights.bco_pair=0.2 "
     "dpo.loss_weights.aot=0.3 dpo.loss_weights.sft=0.5 ",
     8, false},
    {"weighed", "use_dpo=true dpo.dpo_beta=0.3 dpo.use_weighting=true ", 8, false},
    {"moved",
     "use_dpo=true dpo.dpo_beta=0.3 dpo.ld_alpha=0.4 dpo.ref_model_sync_steps=2 "
     "dpo.ref_model_mixup_alpha=0.7 ",
     8, false},
    {"dft", "use_sft=true sft_loss=dft ", 4, false},
};

static const float *array(int run, const char *name, int64_t *n) {
    const float *x = golden_read(&arena, file, mx_path_join(&arena, runs[run].group, name), n);
    ck_assert_msg(x != NULL, "no %s", name);
    return x;
}

static MxBatch make_batch(int run) {
    int64_t n, rows = runs[run].rows;
    const float *ids = array(run, "input_ids", &n), *labels = array(run, "labels", &n);
    int64_t length = n / rows;
    MxBatch batch = mx_batch_new(&arena, rows, length);
    for (int64_t at = 0; at < n; at++) {
        batch.field[MX_INPUTS][at] = (int32_t)ids[at];
        batch.field[MX_INPUTS_POSITION][at] = ids[at] > 0 ? (int32_t)(at % length) : 0;
        batch.field[MX_INPUTS_SEGMENTATION][at] = ids[at] > 0;
        if (at % length == length - 1) continue;
        batch.field[MX_TARGETS][at] = (int32_t)ids[at + 1];
        batch.field[MX_TARGETS_SEGMENTATION][at] = labels[at + 1] >= 0;
    }
    return batch;
}

static void check_number(CloseKind kind, int run, const char *name, int64_t step, double got) {
    int64_t n;
    const char *what = mx_arena_printf(&arena, "%s/%s", runs[run].group, name);
    close_number(&(Close){.golden = FOLDER, .kind = kind, .what = what}, got,
                 (double)array(run, name, &n)[step]);
}

START_TEST(trl_run) {
    if (!(file = golden_open(&arena, FOLDER "/expected.h5"))) return;
    MxBatch batch = make_batch(_i);
    const char *words = mx_arena_printf(&arena, TRAINING "%s max_target_length=%d", runs[_i].words,
                                        (int)batch.length);
    MxTrainState *state = golden_hf_start(&arena, "hf/trl/grpo/start", words);
    for (int64_t step = 0; step < STEPS; step++) {
        MxLoss loss = mx_train_loss_and_grad(state, &batch);
        check_number(step ? CLOSE_LATER_LOSS : CLOSE_LOSS, _i, "loss", step, loss.loss);
        if (runs[_i].has_chosen)
            check_number(CLOSE_LATER_LOSS, _i, "nll_loss", step,
                         *mx_train_sum(state, &loss, "chosen_loss"));
        check_number(CLOSE_LATER_NORM, _i, "grad_norm", step, mx_train_update(state).raw_grad_norm);
    }
}
END_TEST

/* ---- runs */

#define PAIRS                                                                                      \
    "use_dpo=true dpo.reference=none dpo.loss_weights.sft=1 dataset_type=hf hf_path=json "         \
    "packing=false "                                                                               \
    "hf_train_files=posttrain/preference_train.jsonl max_target_length=64 "
#define ANSWERS                                                                                    \
    "use_sft=true sft_loss=dft dataset_type=hf hf_path=json packing=false "                        \
    "hf_train_files=posttrain/sft_train.jsonl max_target_length=64 "

static const char *const ways[] = {PAIRS, ANSWERS};

static const MetricsLine *run(const char *dir, const char *way, const char *more, int *n) {
    const char *words =
        mx_arena_printf(&arena, "%s learning_rate=0.01 eval_interval=-1 %s", way, more);
    int code = process_run(&arena, dir, process_tiny(&arena, dir, words));
    ck_assert_msg(code == 0, "%s", process_file(&arena, dir, "log", NULL));
    return process_metrics(&arena, dir, "learning/loss", n);
}

/* Responses are of several lengths, so that means over tokens are not those of means. */
START_TEST(micro_batches_change_nothing) {
    int n;
    const char *words = "steps=4 enable_checkpointing=false per_device_batch_size=%d "
                        "gradient_accumulation_steps=%d";
    const MetricsLine *whole =
        run(process_dir(&arena, "whole"), ways[_i], mx_arena_printf(&arena, words, 8, 1), &n);
    const MetricsLine *split =
        run(process_dir(&arena, "split"), ways[_i], mx_arena_printf(&arena, words, 2, 4), &n);
    ck_assert_int_eq(n, 4);
    for (int k = 0; k < n; k++)
        ck_assert_double_eq_tol(process_number(&whole[k], "learning/loss"),
                                process_number(&split[k], "learning/loss"), 2e-5);
}
END_TEST

START_TEST(chosen_responses_become_likelier) {
    int n;
    const MetricsLine *lines = run(process_dir(&arena, "chosen"), PAIRS, "steps=20", &n);
    ck_assert_double_lt(process_number(&lines[n - 1], "learning/chosen_loss"),
                        0.8 * process_number(&lines[0], "learning/chosen_loss"));
}
END_TEST

/* Checkpoints hold a reference as it is. */
START_TEST(a_moved_reference_is_resumed) {
    int n, m;
    const char *words = "learning_rate=0.05 per_device_batch_size=8 dpo.reference=auto "
                        "dpo.loss_weights.sft=0 dpo.ref_model_sync_steps=2 checkpoint_period=3 "
                        "steps=";
    const char *dir = process_dir(&arena, "resumed");
    const MetricsLine *whole =
        run(process_dir(&arena, "straight"), PAIRS, mx_arena_printf(&arena, "%s7", words), &n);
    run(dir, PAIRS, mx_arena_printf(&arena, "%s4", words), &m);
    const MetricsLine *rest = run(dir, PAIRS, mx_arena_printf(&arena, "%s7", words), &m);
    ck_assert_int_eq(n, 7);
    for (int k = 1; k <= 3; k++)
        ck_assert_double_eq(process_number(&whole[n - k], "learning/loss"),
                            process_number(&rest[m - k], "learning/loss"));
}
END_TEST

/* The plain loss, which is told besides, falls with the one that is minimised. */
START_TEST(answers_become_likelier) {
    int n;
    const MetricsLine *lines = run(process_dir(&arena, "answers"), ANSWERS, "steps=20", &n);
    ck_assert_double_lt(process_number(&lines[n - 1], "learning/lm_loss"),
                        0.9 * process_number(&lines[0], "learning/lm_loss"));
    ck_assert_double_lt(process_number(&lines[0], "learning/loss"),
                        process_number(&lines[0], "learning/lm_loss"));
}
END_TEST

Suite *sft_losses_suite(void) {
    enum { TIMEOUT_S = 120 };
    Suite *suite = suite_create("sft_losses");
    TCase *tcase = tcase_create("sft_losses");
    tcase_set_timeout(tcase, TIMEOUT_S);
    tcase_add_checked_fixture(tcase, NULL, close_all);
    tcase_add_loop_test(tcase, trl_run, 0, MX_COUNT(runs));
    tcase_add_loop_test(tcase, micro_batches_change_nothing, 0, MX_COUNT(ways));
    tcase_add_test(tcase, chosen_responses_become_likelier);
    tcase_add_test(tcase, a_moved_reference_is_resumed);
    tcase_add_test(tcase, answers_become_likelier);
    suite_add_tcase(suite, tcase);
    return suite;
}
