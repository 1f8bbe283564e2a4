/* test_grpo.c — MaxText's GRPO loss on given logits, with its gradient: hidden states are the
 * logits, W is the identity. scripts/random_cases.py draws cases. */
#include "close.h"
#include "common/vars.h"
#include "golden.h"
#include "program/rewards.h"
#include "train_test.h"

#include <mx/run.h>

#include <check.h>
#include <math.h>
#include <stdlib.h>

static const char name[] = "train/grpo_given.h5";
static MxArena arena = {.name = "grpo"};
static MxError err;
static MxH5 *file;

static const float *array(const char *group, const char *what) {
    int64_t n;
    const float *data = golden_read(&arena, file, mx_path_join(&arena, group, what), &n);
    ck_assert_msg(data != NULL, "no %s/%s", group, what);
    return data;
}

enum { ROWS = 4, LENGTH = 7, V = 10, N = ROWS * LENGTH };

typedef struct Logits {
    MxVars vars;
    MxRun *run;
    int logits, reference, eye, targets, weights, advantages, old, loss, grad;
} Logits;

/* A number of the options of a case: "grpo_beta: 0.3\n". */
static double option_of(const char *group, const char *key) {
    char *text = NULL;
    ck_assert(mx_h5_attr(&arena, file, group, "options", &text, &err) && text);
    const char *at = strstr(text, key);
    ck_assert_msg(at != NULL, "%s has no %s", group, key);
    return strtod(at + strlen(key), NULL);
}

static MxValue trace_given(MxTrace *t, const Logits *l, const char *group, bool has_old) {
    const MxPolicyAttr attr = {.low = option_of(group, "grpo_epsilon: "),
                               .high = option_of(group, "grpo_epsilon: "),
                               .beta = option_of(group, "grpo_beta: ")};
    const MxXentAttr head = {.scale = 1 / option_of(group, "decode_sampling_temperature: ")};
    MxValue logits = mx_variable(t, l->logits), eye = mx_variable(t, l->eye);
    MxValue targets = mx_variable(t, l->targets), weights = mx_variable(t, l->weights);
    MxLogps logp = {.policy = mx_logprob(t, logits, eye, targets, weights, head),
                    .old = has_old ? mx_variable(t, l->old) : MX_NONE,
                    .reference = MX_NONE};
    if (attr.beta > 0)
        logp.reference = mx_logprob(t, mx_variable(t, l->reference), eye, targets, weights, head);
    MxValue sum = mx_policy(t, logp, weights, mx_variable(t, l->advantages), MX_NONE, attr);
    MxValue loss = mx_scale(t, sum, 1.0 / ROWS);
    mx_trace_assign(t, loss, l->loss, false);
    mx_grad(t, loss, &(MxGradTarget){.wrt = logits, .var = l->grad}, 1);
    return loss;
}

static void open_logits(Logits *l, const char *group, bool has_old) {
    const MxType rows = {MX_F32, MX_SHAPE(ROWS, LENGTH)}, ids = {MX_I32, rows.shape},
                 wide = {MX_F32, MX_SHAPE(ROWS, LENGTH, V)};
    MxTrace t;
    MxDevice *device;
    *l = (Logits){.vars.arena = &arena};
    l->logits = mx_vars_add(&l->vars, "logits", wide);
    l->reference = mx_vars_add(&l->vars, "reference", wide);
    l->eye = mx_vars_add(&l->vars, "eye", (MxType){MX_F32, MX_SHAPE(V, V)});
    l->targets = mx_vars_add(&l->vars, "targets", ids);
    l->weights = mx_vars_add(&l->vars, "weights", ids);
    l->advantages = mx_vars_add(&l->vars, "advantages", rows);
    l->old = mx_vars_add(&l->vars, "old", rows);
    l->loss = mx_vars_add(&l->vars, "loss", (MxType){MX_F32, MX_SCALAR});
    l->grad = mx_vars_add(&l->vars, "grad", wide);
    MxGraph *graph = mx_graph_new(&arena, "test", &l->vars);
    mx_trace_begin(&t, graph);
    trace_given(&t, l, group, has_old);
    ck_assert_msg(
        mx_trace_end(&t, &err) && mx_device_open(&arena, &(MxDeviceConfig){0}, &device, &err) &&
            mx_run_open(&arena, device, &l->vars, &graph, 1, MX_REMAT_NONE, &l->run, &err),
        "%s", err.text.data);
}

/* Advantages of rows whose groups lie together, for every token. */
static void advantages_of(const int32_t *weights, int64_t sides, float *out) {
    float rewards[ROWS];
    double own[ROWS];
    const int64_t groups = ROWS / sides;
    for (int64_t row = 0; row < ROWS; row++) {
        int64_t n = 0;
        for (int64_t t = 0; t < LENGTH; t++) n += weights[row * LENGTH + t];
        rewards[row % sides * groups + row / sides] = -fabsf(20 - (float)(1 + n));
    }
    rewards_advantages(BASELINE_GROUP, SCALE_GROUP, rewards, sides, groups, own);
    for (int64_t i = 0; i < N; i++) {
        const int64_t row = i / LENGTH;
        out[i] = (float)own[row % sides * groups + row / sides];
    }
}

/* A place has the target behind it, if that is of the completion; old ones are a place shorter. */
static void fill_given(Logits *l, const char *group, const float *old) {
    const float *tokens = array(group, "tokens"), *counts = array(group, "completion");
    int32_t targets[N] = {0}, weights[N] = {0};
    float given[N] = {0}, advantages[N], eye[V * V] = {0};
    for (int i = 0; i < V; i++) eye[i * V + i] = 1;
    for (int64_t i = 0; i < N; i++) {
        const int64_t row = i / LENGTH, t = i % LENGTH;
        if (t + 1 == LENGTH) continue;
        targets[i] = (int32_t)tokens[i + 1];
        weights[i] = counts[i + 1] != 0;
        if (old) given[i] = old[row * (LENGTH - 1) + t];
    }
    advantages_of(weights, (int64_t)option_of(group, "num_generations: "), advantages);
    var_fill(l->run, l->logits, array(group, "logits"));
    var_fill(l->run, l->reference, array(group, "reference_logits"));
    var_fill(l->run, l->eye, eye);
    var_fill(l->run, l->targets, targets);
    var_fill(l->run, l->weights, weights);
    var_fill(l->run, l->advantages, advantages);
    var_fill(l->run, l->old, given);
}

START_TEST(loss_and_gradient) {
    enum { CAP = 32 };
    const char *all[CAP];
    file = golden_open(&arena, name);
    if (!file) return;
    int n = golden_cases(&arena, file, "cases", all, CAP);
    for (int i = 0; i < n; i++) {
        Logits l;
        const float *old =
            golden_read(&arena, file, mx_path_join(&arena, all[i], "old"), &(int64_t){0});
        open_logits(&l, all[i], old != NULL);
        fill_given(&l, all[i], old);
        mx_run_entry(l.run, 0);
        const float loss = *(const float *)var_values(&arena, l.run, l.loss);
        const float want = *array(all[i], "loss");
        ck_assert_msg(fabsf(loss - want) <= 1e-6F * fmaxf(1, fabsf(want)),
                      "%s: loss %.9g instead of %.9g", all[i], (double)loss, (double)want);
        close_array(&(Close){.golden = name, .kind = CLOSE_GRADIENT, .what = all[i]},
                    var_values(&arena, l.run, l.grad), array(all[i], "grad"), N * V);
    }
}
END_TEST

Suite *grpo_suite(void) {
    Suite *suite = suite_create("grpo");
    TCase *tcase = tcase_create("given");
    tcase_add_test(tcase, loss_and_gradient);
    suite_add_tcase(suite, tcase);
    return suite;
}
