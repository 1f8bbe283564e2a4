/* test_kto.c — the loss of responses that are wanted or not against TRL's on
 * given log-probabilities, and runs with it. */
#include "close.h"
#include "common/vars.h"
#include "golden.h"
#include "process.h"
#include "train_test.h"

#include <mx/model.h>
#include <mx/run.h>

#include <check.h>
#include <math.h>
#include <stdlib.h>

static MxArena arena = {.name = "kto"};
static MxError err;
static MxH5 *file;

static void close_all(void) {
    mx_arena_release(&arena);
}

static const float *array(const char *group, const char *name) {
    int64_t count;
    const char *path = *name ? mx_arena_printf(&arena, "%s/%s", group, name) : group;
    const float *data = golden_read(&arena, file, path, &count);
    ck_assert_msg(data != NULL, "no %s", path);
    return data;
}

enum { ROWS = 8, LENGTH = 12, N = ROWS * LENGTH };

typedef struct Given {
    MxVars vars;
    MxRun *run;
    int logp, weights, labels, reference, kl, loss, dlogp;
} Given;

static int new_var(Given *g, MxDtype dtype, MxShape shape) {
    return mx_vars_add(&g->vars, "x", (MxType){dtype, shape});
}

static void open_given(Given *g, MxKtoAttr attr) {
    MxTrace t;
    MxDevice *device;
    const MxShape shape = MX_SHAPE(ROWS, LENGTH);
    *g = (Given){.vars.arena = &arena};
    MxGraph *graph = mx_graph_new(&arena, "test", &g->vars);
    mx_trace_begin(&t, graph);
    g->logp = new_var(g, MX_F32, shape);
    g->weights = new_var(g, MX_I32, shape);
    g->labels = new_var(g, MX_F32, shape);
    g->reference = new_var(g, MX_F32, shape);
    g->kl = new_var(g, MX_F32, MX_SCALAR);
    g->loss = new_var(g, MX_F32, MX_SCALAR);
    g->dlogp = new_var(g, MX_F32, shape);
    MxLogps logp = {mx_variable(&t, g->logp), MX_NONE, mx_variable(&t, g->reference)};
    MxValue loss = mx_kto(&t, logp, mx_variable(&t, g->weights), mx_variable(&t, g->labels),
                          mx_variable(&t, g->kl), attr);
    loss = mx_scale(&t, loss, 1.0 / ROWS);
    mx_trace_assign(&t, loss, g->loss, false);
    mx_grad(&t, loss, &(MxGradTarget){.wrt = logp.policy, .var = g->dlogp}, 1);
    ck_assert_msg(
        mx_trace_end(&t, &err) && mx_device_open(&arena, &(MxDeviceConfig){0}, &device, &err) &&
            mx_run_open(&arena, device, &g->vars, &graph, 1, MX_REMAT_NONE, &g->run, &err),
        "%s", err.text.data);
}

/* A number in the name of a case: "kto_beta0.3_wd1.33_wu0.8". */
static double option(const char *name, const char *key) {
    const char *at = strstr(name, key);
    ck_assert_msg(at != NULL, "%s has no %s", name, key);
    return strtod(at + strlen(key), NULL);
}

/* The mean of policy less reference over the other completions, which the op
 * bounds below; swapped: the other way round. */
static float divergence(bool is_swapped) {
    const float *policy = array("kto", "kl_policy_logps"),
                *reference = array("kto", "kl_reference_logps");
    double sum = 0;
    for (int i = 0; i < ROWS; i++) sum += ((double)policy[i] - (double)reference[i]) / ROWS;
    return (float)(is_swapped ? -sum : sum);
}

/* TRL's gradient outside the completions is nobody's. */
static void check_case(const char *name) {
    Given g;
    const float *mask = array("kto", "completion_mask"), *label = array("kto", "label");
    float labels[N], want[N], kl = divergence(strstr(name, "klswapped") != NULL);
    int32_t weights[N];
    open_given(&g, (MxKtoAttr){.beta = option(name, "_beta"),
                               .wanted = option(name, "_wd"),
                               .unwanted = option(name, "_wu")});
    for (int i = 0; i < N; i++) {
        weights[i] = (int32_t)mask[i / LENGTH * (LENGTH + 1) + i % LENGTH + 1];
        labels[i] = label[i / LENGTH];
        want[i] = array(name, "grad_token_logps")[i] * (float)weights[i];
    }
    var_fill(g.run, g.logp, array("kto", "policy_token_logps"));
    var_fill(g.run, g.reference, array("kto", "reference_token_logps"));
    var_fill(g.run, g.weights, weights);
    var_fill(g.run, g.labels, labels);
    var_fill(g.run, g.kl, &kl);
    mx_run_entry(g.run, 0);
    close_number(&(Close){.golden = "hf/trl/losses.h5", .kind = CLOSE_LOSS, .what = name},
                 (double)*(const float *)var_values(&arena, g.run, g.loss),
                 (double)*array(name, "loss"));
    close_array(&(Close){.golden = "hf/trl/losses.h5", .kind = CLOSE_GRADIENT, .what = name},
                var_values(&arena, g.run, g.dlogp), want, N);
}

START_TEST(trl_losses) {
    enum { CAP = 16 };
    const char *all[CAP];
    file = golden_open(&arena, "hf/trl/losses.h5");
    if (!file) return;
    int n = golden_cases(&arena, file, "kto", all, CAP), n_checked = 0;
    for (int i = 0; i < n; i++) {
        if (!strstr(all[i], "_beta")) continue;
        check_case(all[i]);
        n_checked++;
    }
    ck_assert_int_eq(n_checked, 4);
}
END_TEST

/* ---- five steps of TRL's trainer, which decays no norms; kernels as theirs are */

#define TRAINED "hf/trl/runs/kto/expected.h5"
enum { TRAINED_ROWS = 6, TRAINED_LENGTH = 48, STEPS = 5 };

#define TRAINING                                                                                   \
    "use_kto=true packing=false dataset_type=hf hf_train_files=x per_device_batch_size=6 "         \
    "max_target_length=48 steps=100 learning_rate=1e-3 lr_schedule_type=wsd "                      \
    "wsd_decay_steps_fraction=0 warmup_steps_fraction=0 adam_b1=0.9 adam_b2=0.95 "                 \
    "adam_eps=1e-8 adam_weight_decay=0.1 adamw_mask=[.*norm/scale] "                               \
    "gradient_clipping_threshold=1.0 query_pre_attn_scalar=8 rope_type=default "

/* Rows of the file, perhaps shorter, behind whose prompts stand their own completions, or (prefix
 * KL_) those of others. */
static MxBatch read_batch(const char *prefix) {
    const char *group = mx_arena_printf(&arena, "batch_one_order/%s", prefix);
    int64_t n;
    const float *ids = golden_read(&arena, file, mx_arena_printf(&arena, "%sinput_ids", group), &n);
    const float *mask = array(mx_arena_printf(&arena, "%sattention_mask", group), "");
    const float *counts = array(mx_arena_printf(&arena, "%scompletion_mask", group), "");
    int64_t length = n / TRAINED_ROWS;
    MxBatch batch = mx_batch_new(&arena, TRAINED_ROWS, TRAINED_LENGTH);
    for (int64_t i = 0; i < n; i++) {
        int64_t t = i % length, at = i / length * TRAINED_LENGTH + t;
        bool is_target = t + 1 < length && counts[i + 1] > 0;
        batch.field[MX_INPUTS][at] = (int32_t)ids[i];
        batch.field[MX_INPUTS_POSITION][at] = mask[i] > 0 ? (int32_t)t : 0;
        batch.field[MX_INPUTS_SEGMENTATION][at] = mask[i] > 0;
        batch.field[MX_TARGETS][at] = is_target ? (int32_t)ids[i + 1] : 0;
        batch.field[MX_TARGETS_SEGMENTATION][at] = is_target;
    }
    return batch;
}

static void check_step(CloseKind kind, const char *name, int64_t step, double got) {
    const char *what = mx_arena_printf(&arena, "%s at step %d", name, (int)step);
    close_number(&(Close){.golden = TRAINED, .kind = kind, .what = what}, got,
                 (double)array("log", name)[step]);
}

static void check_metrics(const MxTrainState *state, const MxLoss *loss, int64_t step) {
    static const char *const names[][2] = {{"learning/avg_kl", "kl"},
                                           {"learning/rewards_chosen", "rewards.chosen"},
                                           {"learning/rewards_rejected", "rewards.rejected"},
                                           {"learning/rewards_margin", "rewards.margins"},
                                           {"learning/logps_chosen", "logps.chosen"},
                                           {"learning/logps_rejected", "logps.rejected"}};
    const MxFigure *all = mx_train_figures(&arena, mx_train_state_config(state), false);
    for (int i = 0; i < MX_COUNT(names); i++) {
        const MxFigure *f = all;
        while (strcmp(f->metric, names[i][0])) f++;
        check_step(CLOSE_LATER_LOSS, names[i][1], step, f->value(loss, f->sum));
    }
}

START_TEST(trl_run) {
    file = golden_open(&arena, TRAINED);
    if (!file) return;
    MxTrainState *state = golden_hf_start(&arena, "hf/trl/model", TRAINING);
    const float *labels = array("batch_one_order", "label");
    MxBatch batch = read_batch(""), others = read_batch("KL_");
    for (int64_t step = 0; step < STEPS; step++) {
        mx_train_give_labels(state, &batch, labels, &others);
        MxLoss loss = mx_train_loss_and_grad(state, &batch);
        check_step(step ? CLOSE_LATER_LOSS : CLOSE_LOSS, "loss", step, loss.loss);
        check_metrics(state, &loss, step);
        check_step(step ? CLOSE_LATER_NORM : CLOSE_NORM, "grad_norm", step,
                   mx_train_update(state).raw_grad_norm);
    }
    const MxTree *params = mx_model_params(mx_train_state_model(state));
    for (int i = 0; i < params->n; i++) {
        const MxLeaf *leaf = &mx_train_state_tree(state)->leaves[i];
        close_final(&(Close){.golden = TRAINED, .what = leaf->path}, mx_leaf_values(&arena, leaf),
                    hf_array(&arena, file, "final", leaf), mx_shape_count(leaf->shape));
    }
}
END_TEST

/* ---- runs */

#define LABELLED                                                                                   \
    "use_kto=true packing=false dataset_type=hf hf_path=json "                                     \
    "max_target_length=64 "                                                                        \
    "hf_train_files=posttrain/labels_train.jsonl "                                                 \
    "hf_eval_files=posttrain/labels_eval.jsonl "                                                   \
    "enable_checkpointing=false "

static const MetricsLine *run(const char *name, const char *more, int *n) {
    const char *dir = process_dir(&arena, name);
    const char *words = mx_arena_printf(&arena, LABELLED "%s", more);
    int code = process_run(&arena, dir, process_tiny(&arena, dir, words));
    ck_assert_msg(code == 0, "%s", process_file(&arena, dir, "log", NULL));
    return process_metrics(&arena, dir, "learning/kto_loss", n);
}

/* A policy that is its reference loses half the weight of each response; then
 * wanted responses become likelier than the others, as seen from the reference.
 */
START_TEST(wanted_responses_become_likelier) {
    int n;
    const MetricsLine *lines = run("kto", "steps=40 learning_rate=0.003", &n);
    ck_assert_int_eq(n, 40);
    ck_assert_double_eq_tol(process_number(&lines[0], "learning/kto_loss"), 0.5, 1e-6);
    ck_assert_double_eq_tol(process_number(&lines[0], "learning/avg_kl"), 0, 1e-6);
    ck_assert_double_gt(process_number(&lines[39], "learning/rewards_margin"), 0.3);
    ck_assert_double_lt(process_number(&lines[39], "learning/kto_loss"), 0.45);
}
END_TEST

/* Without the divergence, responses are compared with those of the reference themselves. */
START_TEST(apo_has_no_divergence) {
    int n;
    const char *words = "steps=20 learning_rate=0.01 kto.loss=%s";
    const MetricsLine *apo = run("apo", mx_arena_printf(&arena, words, "apo_zero_unpaired"), &n);
    const MetricsLine *kto = run("beside", mx_arena_printf(&arena, words, "kto"), &n);
    double kl = 0, difference = 0;
    for (int k = 0; k < n; k++) {
        ck_assert_double_eq(process_number(&apo[k], "learning/avg_kl"), 0);
        kl = fmax(kl, process_number(&kto[k], "learning/avg_kl"));
        difference = fmax(difference, fabs(process_number(&apo[k], "learning/kto_loss") -
                                           process_number(&kto[k], "learning/kto_loss")));
    }
    ck_assert_double_gt(kl, 0.1);
    ck_assert_double_gt(difference, 1e-3);
}
END_TEST

/* The divergence is the whole batch's, however it is split. */
START_TEST(micro_batches_change_nothing) {
    int n;
    const char *words = "steps=6 learning_rate=0.01 eval_interval=-1 opt_type=sgd "
                        "gradient_clipping_threshold=0 per_device_batch_size=%d "
                        "gradient_accumulation_steps=%d";
    const MetricsLine *whole = run("whole", mx_arena_printf(&arena, words, 8, 1), &n);
    const MetricsLine *split = run("split", mx_arena_printf(&arena, words, 2, 4), &n);
    static const char *const names[] = {"learning/loss", "learning/avg_kl",
                                        "learning/rewards_margin"};
    for (int k = 0; k < n; k++)
        for (int i = 0; i < MX_COUNT(names); i++)
            ck_assert_double_eq_tol(process_number(&whole[k], names[i]),
                                    process_number(&split[k], names[i]), 2e-5);
    ck_assert_double_ne(process_number(&whole[n - 1], "learning/rewards_margin"), 0);
}
END_TEST

Suite *kto_suite(void) {
    enum { TIMEOUT_S = 60 };
    Suite *suite = suite_create("kto");
    TCase *tcase = tcase_create("kto");
    tcase_set_timeout(tcase, TIMEOUT_S);
    tcase_add_checked_fixture(tcase, NULL, close_all);
    tcase_add_test(tcase, trl_losses);
    tcase_add_test(tcase, trl_run);
    tcase_add_test(tcase, wanted_responses_become_likelier);
    tcase_add_test(tcase, apo_has_no_divergence);
    tcase_add_test(tcase, micro_batches_change_nothing);
    suite_add_tcase(suite, tcase);
    return suite;
}
