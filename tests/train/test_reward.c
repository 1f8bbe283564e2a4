/* test_reward.c — reward models: TRL's RewardTrainer on a tiny one, and runs. */
#include "close.h"
#include "golden.h"
#include "process.h"
#include "train_test.h"

#include <mx/model.h>

#include <check.h>
#include <string.h>

#define FOLDER "hf/trl/reward"

static MxArena arena = {.name = "reward"};
static MxError err;
static MxH5 *file;

static void close_all(void) {
    mx_arena_release(&arena);
}

/* ---- TRL */

enum { PAIRS = 4, STEPS = 5 };

/* As scripts/golden_reward.py; kernels as theirs are. */
#define TRAINING                                                                                   \
    "use_dpo=true dpo.algo=reward per_device_batch_size=4 dataset_type=synthetic steps=100 "       \
    "learning_rate=1e-3 lr_schedule_type=wsd wsd_decay_steps_fraction=0 warmup_steps_fraction=0 "  \
    "adam_b1=0.9 adam_b2=0.95 adam_eps=1e-8 adam_weight_decay=0 gradient_clipping_threshold=1.0 "  \
    "query_pre_attn_scalar=8 rope_type=default "

/* A model of theirs, with its values in the leaves below "model/" of a tree. */
static MxHfModel load(const char *name, const MxHeadForm *heads, MxTree *tree) {
    const char *dir = goldens_need(&arena, mx_path_join(&arena, FOLDER, name));
    MxHfModel model;
    MxCkptRef from;
    ck_assert_msg(mx_ckpt_find(&arena, dir, NULL, &from, &err), "%s", err.text.data);
    from.heads = heads;
    ck_assert_msg(mx_hf_load(&arena, &from, tree, &model, &err), "%s", err.text.data);
    ck_assert(model.has_score);
    return model;
}

/* The same leaves with values of another model of theirs. */
static MxTree *load_beside(const char *name, MxTrainState *state) {
    const MxTree *own = mx_train_state_tree(state);
    MxHeadForm heads = mx_model_head_form(mx_train_state_model(state));
    MxTree *tree = mx_new(&arena, MxTree);
    mx_tree_init(tree, &arena);
    for (int i = 0; i < own->n; i++)
        if (mx_text_has_prefix(own->leaves[i].path, "model/"))
            mx_tree_add(tree, mx_leaf_on_host(&arena, own->leaves[i]));
    load(name, &heads, tree);
    return tree;
}

static MxTrainState *open_start(const char *more) {
    MxHfModel model;
    MxTrainState *state;
    int64_t n;
    const char *dir = goldens_need(&arena, FOLDER "/start");
    ck_assert_msg(mx_hf_read_config(&arena, mx_hf_config_path(&arena, dir), &model, &err), "%s",
                  err.text.data);
    golden_read(&arena, file, "input_ids", &n);
    const char *words =
        mx_arena_printf(&arena, TRAINING "max_target_length=%d %s", (int)(n / 2 / PAIRS), more);
    const MxConfig *config = golden_text_config(&arena, mx_hf_yaml(&arena, &model), words);
    ck_assert_msg(mx_train_state_open(&arena, config, &state, &err), "%s", err.text.data);
    mx_train_state_init(state);
    MxHeadForm heads = mx_model_head_form(mx_train_state_model(state));
    load("start", &heads, mx_train_state_tree(state));
    close_nudge(mx_train_state_tree(state));
    return state;
}

/* Scored at the last token of each row. */
static MxBatch make_batch(void) {
    int64_t n, length;
    const float *ids = golden_read(&arena, file, "input_ids", &n),
                *mask = golden_read(&arena, file, "attention_mask", &n);
    MxBatch batch = mx_batch_new(&arena, 2 * (int64_t)PAIRS, length = n / 2 / PAIRS);
    for (int64_t i = 0; i < n; i++) {
        bool is_last = mask[i] > 0 && (i % length == length - 1 || mask[i + 1] <= 0);
        batch.field[MX_INPUTS][i] = (int32_t)ids[i];
        batch.field[MX_INPUTS_POSITION][i] = mask[i] > 0 ? (int32_t)(i % length) : 0;
        batch.field[MX_INPUTS_SEGMENTATION][i] = mask[i] > 0;
        batch.field[MX_TARGETS_SEGMENTATION][i] = is_last;
    }
    return batch;
}

static double expected(const char *name, int64_t i) {
    int64_t n;
    const float *x = golden_read(&arena, file, name, &n);
    ck_assert_msg(x && i < n, "no %s", name);
    return (double)x[i];
}

static void check_number(CloseKind kind, const char *name, int64_t step, double got) {
    const char *what = mx_arena_printf(&arena, "%s at step %d", name, (int)step);
    close_number(&(Close){.golden = FOLDER, .kind = kind, .what = what}, got, expected(name, step));
}

static double figure(const MxTrainState *state, const MxLoss *loss, const char *metric) {
    const MxFigure *f = mx_train_figures(&arena, mx_train_state_config(state), false);
    while (f->metric && strcmp(f->metric, metric)) f++;
    ck_assert_msg(f->metric, "no figure %s", metric);
    return f->value(loss, f->sum);
}

static void check_metrics(const MxTrainState *state, const MxLoss *loss, int64_t step) {
    static const struct {
        const char *ours, *theirs;
    } metrics[] = {{"learning/reward_accuracy", "train/accuracy"},
                   {"learning/rewards_margin", "train/margin"},
                   {"learning/rewards_mean", "train/mean_reward"},
                   {"learning/rewards_min", "train/min_reward"},
                   {"learning/rewards_max", "train/max_reward"}};
    for (int i = 0; i < MX_COUNT(metrics); i++)
        check_number(CLOSE_LATER_LOSS, metrics[i].theirs, step,
                     figure(state, loss, metrics[i].ours));
}

START_TEST(trl_plain) {
    if (!(file = golden_open(&arena, FOLDER "/expected.h5"))) return;
    MxTrainState *state = open_start("");
    MxBatch batch = make_batch();
    check_number(CLOSE_LOSS, "plain", 0, mx_train_loss_and_grad(state, &batch).loss);
}
END_TEST

START_TEST(trl_run) {
    if (!(file = golden_open(&arena, FOLDER "/expected.h5"))) return;
    MxTrainState *state = open_start("dpo.center_rewards_coefficient=0.05");
    const MxTree *params = mx_model_params(mx_train_state_model(state)), *want;
    MxBatch batch = make_batch();
    for (int64_t step = 0; step < STEPS; step++) {
        MxLoss loss = mx_train_loss_and_grad(state, &batch);
        if (!step) check_number(CLOSE_LOSS, "centered", 0, loss.loss);
        check_number(CLOSE_LATER_LOSS, "train/loss", step, loss.loss);
        check_metrics(state, &loss, step);
        want = step ? NULL : load_beside("gradient", state);
        for (int i = 0; want && i < params->n; i++)
            close_array(
                &(Close){.golden = FOLDER, .kind = CLOSE_GRADIENT, .what = params->leaves[i].path},
                mx_train_gradient(&arena, state, i), want->leaves[i].data,
                mx_shape_count(params->leaves[i].shape));
        check_number(CLOSE_LATER_NORM, "train/grad_norm", step,
                     mx_train_update(state).raw_grad_norm);
    }
    want = load_beside("final", state);
    for (int i = 0; i < params->n; i++)
        close_final(&(Close){.golden = FOLDER, .what = params->leaves[i].path},
                    mx_leaf_values(&arena, &mx_train_state_tree(state)->leaves[i]),
                    want->leaves[i].data, mx_shape_count(params->leaves[i].shape));
}
END_TEST

/* ---- runs */

#define RUN                                                                                        \
    "score_head=true use_dpo=true dpo.algo=reward packing=false dataset_type=hf hf_path=json "     \
    "max_target_length=64 learning_rate=1e-3 hf_train_files=posttrain/preference_train.jsonl "     \
    "hf_eval_files=posttrain/preference_eval.jsonl "

static const MetricsLine *run(const char *dir, const char *more, int *n) {
    const char *words = mx_arena_printf(&arena, RUN "%s", more);
    int code = process_run(&arena, dir, process_tiny(&arena, dir, words));
    ck_assert_msg(code == 0, "%s", process_file(&arena, dir, "log", NULL));
    return process_metrics(&arena, dir, "learning/rewards_max", n);
}

/* With adapters the head is trained besides them. */
static const char *const ways[] = {"", "lora.enable_lora=true lora.lora_rank=4 lora.lora_alpha=8 "};

START_TEST(better_responses_get_higher_rewards) {
    int n;
    const char *dir = process_dir(&arena, "reward");
    run(dir, mx_arena_printf(&arena, "steps=40 eval_interval=39 eval_steps=-1 %s", ways[_i]), &n);
    const MetricsLine *evals = process_metrics(&arena, dir, "eval/reward_accuracy", &n);
    ck_assert_int_ge(n, 2);
    ck_assert_double_lt(process_number(&evals[0], "eval/reward_accuracy"), 0.9);
    ck_assert_double_ge(process_number(&evals[n - 1], "eval/reward_accuracy"), 0.95);
    ck_assert_double_gt(process_number(&evals[n - 1], "eval/rewards_margin"), 0.5);
}
END_TEST

/* Least and greatest rewards are those of the whole batch, however it is split. */
START_TEST(micro_batches_change_nothing) {
    int n;
    const char *words = "steps=6 eval_interval=-1 opt_type=sgd gradient_clipping_threshold=0 "
                        "dpo.center_rewards_coefficient=0.1 enable_checkpointing=false "
                        "per_device_batch_size=%d gradient_accumulation_steps=%d";
    const MetricsLine *whole =
        run(process_dir(&arena, "whole"), mx_arena_printf(&arena, words, 8, 1), &n);
    const MetricsLine *split =
        run(process_dir(&arena, "split"), mx_arena_printf(&arena, words, 2, 4), &n);
    static const char *const names[] = {"learning/loss", "learning/reward_accuracy",
                                        "learning/rewards_min", "learning/rewards_max"};
    for (int k = 0; k < n; k++)
        for (int i = 0; i < MX_COUNT(names); i++)
            ck_assert_double_eq_tol(process_number(&whole[k], names[i]),
                                    process_number(&split[k], names[i]), 2e-5);
    ck_assert_double_lt(process_number(&whole[0], "learning/rewards_min"),
                        process_number(&whole[0], "learning/rewards_max"));
}
END_TEST

/* A run that is stopped goes on as if it had not been. */
START_TEST(a_run_goes_on) {
    int n;
    const char *words = "learning_rate_schedule_steps=6 eval_interval=-1 %s steps=%d";
    const char *whole = process_dir(&arena, "straight"), *halved = process_dir(&arena, "halved");
    const MetricsLine *straight = run(whole, mx_arena_printf(&arena, words, ways[_i], 6), &n);
    ck_assert_int_eq(n, 6);
    run(halved, mx_arena_printf(&arena, words, ways[_i], 3), &n);
    const MetricsLine *rest = run(halved, mx_arena_printf(&arena, words, ways[_i], 6), &n);
    ck_assert_int_eq(n, 6);
    for (int k = 3; k < 6; k++) {
        ck_assert_double_eq(process_number(&rest[k], "learning/loss"),
                            process_number(&straight[k], "learning/loss"));
        ck_assert_double_eq(process_number(&rest[k], "learning/rewards_min"),
                            process_number(&straight[k], "learning/rewards_min"));
    }
}
END_TEST

Suite *reward_suite(void) {
    enum { TIMEOUT_S = 120 };
    Suite *suite = suite_create("reward");
    TCase *tcase = tcase_create("reward");
    tcase_set_timeout(tcase, TIMEOUT_S);
    tcase_add_checked_fixture(tcase, NULL, close_all);
    tcase_add_test(tcase, trl_plain);
    tcase_add_test(tcase, trl_run);
    tcase_add_loop_test(tcase, better_responses_get_higher_rewards, 0, MX_COUNT(ways));
    tcase_add_test(tcase, micro_batches_change_nothing);
    tcase_add_loop_test(tcase, a_run_goes_on, 0, MX_COUNT(ways));
    suite_add_tcase(suite, tcase);
    return suite;
}
