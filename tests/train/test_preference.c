/* test_preference.c — losses of pairs of responses against the systems that they come from: TRL's
 * numbers on given log-probabilities, and MaxText's and Tunix's from tokens to gradients of every
 * parameter. */
#include "close.h"
#include "common/vars.h"
#include "golden.h"
#include "train_test.h"

#include <mx/model.h>
#include <mx/run.h>

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static MxArena arena = {.name = "preference"};
static MxH5 *file;
static const char *golden; /* its name */

static void close_all(void) {
    mx_arena_release(&arena);
}

/* False where the folder of goldens lacks the file. */
static bool open_file(const char *name) {
    file = golden_open(&arena, golden = name);
    return file != NULL;
}

static const char *text_of(const char *group, const char *name) {
    char *text = NULL;
    MxError err = {0};
    ck_assert_msg(mx_h5_attr(&arena, file, group, name, &text, &err), "%s", err.text.data);
    return text;
}

static double number_of(const char *group, const char *name) {
    const char *text = text_of(group, name);
    ck_assert_msg(text != NULL, "%s has no %s", group, name);
    return strtod(text, NULL);
}

static const float *array(const char *group, const char *name, int64_t *n) {
    int64_t count;
    const char *path = mx_arena_printf(&arena, "%s/%s", group, name);
    const float *data = golden_read(&arena, file, path, n ? n : &count);
    ck_assert_msg(data != NULL, "no %s", path);
    return data;
}

static void check_number(const char *name, double got, double want, double bound) {
    bool is_near = fabs(got - want) <= bound * fmax(fabs(want), 1e-3);
    ck_assert_msg(is_near, "%s is %.9g, not %.9g", name, got, want);
}

static void check_figure(CloseKind kind, const char *name, double got, double want) {
    close_number(&(Close){.golden = golden, .kind = kind, .what = name}, got, want);
}

static void check_gradient(const char *name, const float *got, const float *want, int64_t n) {
    close_array(&(Close){.golden = golden, .kind = CLOSE_GRADIENT, .what = name}, got, want, n);
}

/* ---- a program of one entry */

typedef struct Program {
    MxVars vars;
    MxTrace t;
    MxGraph *graph;
    MxRun *run;
} Program;

static void begin(Program *p) {
    *p = (Program){.vars.arena = &arena};
    p->graph = mx_graph_new(&arena, "test", &p->vars);
    mx_trace_begin(&p->t, p->graph);
}

static int new_var(Program *p, MxDtype dtype, MxShape shape) {
    return mx_vars_add(&p->vars, "x", (MxType){dtype, shape});
}

static void open_run(Program *p) {
    MxError err = {0};
    MxDevice *device;
    bool ok = mx_trace_end(&p->t, &err) &&
              mx_device_open(&arena, &(MxDeviceConfig){0}, &device, &err) &&
              mx_run_open(&arena, device, &p->vars, &p->graph, 1, MX_REMAT_NONE, &p->run, &err);
    ck_assert_msg(ok, "%s", err.text.data);
}

/* Puts numbers into a variable, as its dtype. */
static void fill(Program *p, int var, const float *from, int64_t n) {
    int32_t *ids = mx_new_n(&arena, int32_t, n);
    ck_assert_int_eq(n, mx_shape_count(p->vars.item[var].type.shape));
    for (int64_t i = 0; i < n; i++) ids[i] = (int32_t)from[i];
    var_fill(p->run, var, p->vars.item[var].type.dtype == MX_F32 ? (const void *)from : ids);
}

/* Takes the mean over P pairs of the two rows that each of them has, or over chosen tokens. */
static MxValue mean_loss(Program *p, MxValue logp, MxValue ref, MxValue weights, int sums,
                         MxPreferenceAttr attr) {
    MxValue loss = mx_preference(&p->t, (MxPairInputs){logp, ref, MX_NONE, weights, weights}, attr);
    mx_trace_assign(&p->t, loss + 1, sums, false);
    if (attr.algo == MX_PREFERENCE_SFT)
        return mx_ratio(&p->t, loss, mx_count_nonzero_first(&p->t, weights, 2), 0);
    return mx_scale(&p->t, loss, 2 / (double)mx_trace_type(&p->t, logp).shape.dim[0]);
}

/* ---- losses on given log-probabilities */

typedef struct Given {
    Program p;
    int logp, ref, weights, loss, sums, dlogp;
} Given;

static void open_given(Given *g, MxShape shape, MxPreferenceAttr attr) {
    Program *p = &g->p;
    bool has_reference = mx_preference_compares(&attr);
    begin(p);
    g->logp = new_var(p, MX_F32, shape);
    g->ref = new_var(p, MX_F32, shape);
    g->weights = new_var(p, MX_I32, shape);
    g->dlogp = new_var(p, MX_F32, shape);
    g->loss = new_var(p, MX_F32, MX_SCALAR);
    g->sums = new_var(p, MX_F32, MX_SHAPE(MX_PAIRS_COUNT));
    MxValue logp = mx_variable(&p->t, g->logp);
    MxValue loss = mean_loss(p, logp, has_reference ? mx_variable(&p->t, g->ref) : MX_NONE,
                             mx_variable(&p->t, g->weights), g->sums, attr);
    mx_trace_assign(&p->t, loss, g->loss, false);
    mx_grad(&p->t, loss, &(MxGradTarget){.wrt = logp, .var = g->dlogp}, 1);
    open_run(p);
}

static const float *floats(const Program *p, int var) {
    return var_values(&arena, p->run, var);
}

static MxPreference find_algo(const char *name) {
    for (int i = 0; i < MX_PREFERENCE_COUNT; i++)
        if (!strcmp(mx_preferences[i].name, name)) return (MxPreference)i;
    ck_abort_msg("no loss %s", name);
    return MX_PREFERENCE_COUNT;
}

/* cdpo is dpo with label smoothing. */
static MxPreferenceAttr read_attr(const char *group) {
    const char *type = text_of(group, "loss_type"), *divergence = text_of(group, "f_divergence");
    if (!type || !strcmp(type, "sigmoid") || !strcmp(type, "cdpo")) type = "dpo";
    MxPreferenceAttr attr = {
        .beta = number_of(group, "beta"), .alpha = 0.5, .tau = 0.05 /* TRL's own */};
    for (int i = 0; divergence && i < MX_DIVERGENCE_COUNT; i++)
        if (!strcmp(divergence, mx_divergence_names[i])) attr.divergence = (MxDivergence)i;
    attr.label_smoothing = number_of(group, "label_smoothing");
    attr.algo = find_algo(type);
    return attr;
}

static void check_rewards(const Given *g, const char *group, double pairs) {
    static const struct {
        const char *name;
        int sum;
    } logged[] = {
        {"rewards/chosen", MX_PAIRS_CHOSEN_REWARD}, {"rewards/rejected", MX_PAIRS_REJECTED_REWARD},
        {"rewards/margins", MX_PAIRS_MARGIN},       {"rewards/accuracies", MX_PAIRS_CORRECT},
        {"logps/chosen", MX_PAIRS_CHOSEN_LOGP},     {"logps/rejected", MX_PAIRS_REJECTED_LOGP},
    };
    for (int i = 0; i < MX_COUNT(logged); i++)
        if (text_of(group, logged[i].name))
            check_number(logged[i].name, (double)floats(&g->p, g->sums)[logged[i].sum] / pairs,
                         number_of(group, logged[i].name), 1e-4);
}

/* TRL's gradient, which it also has for tokens outside the completions, where ours is 0. */
static const float *counting(const char *group, const float *counts, int64_t n) {
    const float *gradient = array(group, "grad_token_logps", NULL);
    float *masked = mx_new_n(&arena, float, n);
    for (int64_t i = 0; i < n; i++) masked[i] = gradient[i] * counts[i];
    return masked;
}

START_TEST(trl_losses) {
    enum { CAP = 200 };
    const char *cases[CAP];
    int64_t n;
    if (!open_file("hf/trl/losses.h5")) return;
    int n_cases = golden_cases(&arena, file, "dpo", cases, CAP);
    const float *logp = array("dpo", "policy_token_logps", &n),
                *ref = array("dpo", "reference_token_logps", NULL);
    MxH5Array shape;
    MxError err = {0};
    float *counts = mx_new_n(&arena, float, n);
    ck_assert(mx_h5_stat(file, "dpo/policy_token_logps", &shape, &err));
    for (int64_t i = 0; i < n; i++) counts[i] = logp[i] != 0;
    for (int i = 0; i < n_cases; i++) {
        Given g;
        MxPreferenceAttr attr = read_attr(cases[i]);
        double pairs = (double)shape.shape.dim[0] / 2;
        open_given(&g, shape.shape, attr);
        fill(&g.p, g.logp, logp, n);
        fill(&g.p, g.ref, ref, n);
        fill(&g.p, g.weights, counts, n);
        mx_run_entry(g.p.run, 0);
        check_figure(CLOSE_LOSS, cases[i], (double)*floats(&g.p, g.loss),
                     (double)*array(cases[i], "loss", NULL));
        check_gradient(cases[i], floats(&g.p, g.dlogp), counting(cases[i], counts, n), n);
        if (mx_preference_compares(&attr)) check_rewards(&g, cases[i], pairs);
    }
    ck_assert_int_ge(n_cases, 40);
}
END_TEST

/* ---- orpo from logits: the product with a unit matrix makes logits of logits */

typedef struct FromLogits {
    Program p;
    int h, unit, targets, weights, loss, sums, dh;
} FromLogits;

static void open_from_logits(FromLogits *g, MxShape logits, double lambda) {
    Program *p = &g->p;
    MxShape tokens = {.rank = 2, .dim = {logits.dim[0], logits.dim[1]}};
    begin(p);
    g->h = new_var(p, MX_F32, logits);
    g->unit = new_var(p, MX_F32, MX_SHAPE(logits.dim[2], logits.dim[2]));
    g->targets = new_var(p, MX_I32, tokens);
    g->weights = new_var(p, MX_I32, tokens);
    g->dh = new_var(p, MX_F32, logits);
    g->loss = new_var(p, MX_F32, MX_SCALAR);
    g->sums = new_var(p, MX_F32, MX_SHAPE(MX_PAIRS_COUNT));
    MxValue h = mx_variable(&p->t, g->h), weights = mx_variable(&p->t, g->weights);
    MxValue logp = mx_logprob(&p->t, h, mx_variable(&p->t, g->unit), mx_variable(&p->t, g->targets),
                              weights, (MxXentAttr){.scale = 1});
    MxPreferenceAttr attr = {.algo = MX_PREFERENCE_ORPO, .lambda = lambda};
    MxValue loss = mean_loss(p, logp, MX_NONE, weights, g->sums, attr);
    mx_trace_assign(&p->t, loss, g->loss, false);
    mx_grad(&p->t, loss, &(MxGradTarget){.wrt = h, .var = g->dh}, 1);
    open_run(p);
}

static void run_from_logits(FromLogits *g, MxShape shape, const float *logits,
                            const float *labels) {
    int64_t n = shape.dim[0] * shape.dim[1], V = shape.dim[2];
    float *targets = mx_new_n(&arena, float, n), *weights = mx_new_n(&arena, float, n);
    for (int64_t i = 0; i + 1 < n; i++) {
        bool counts = (i + 1) % shape.dim[1] && labels[i + 1] >= 0;
        targets[i] = counts ? labels[i + 1] : 0;
        weights[i] = counts;
    }
    fill(&g->p, g->h, logits, n * V);
    fill(&g->p, g->targets, targets, n);
    fill(&g->p, g->weights, weights, n);
    float *unit = mx_new_n(&arena, float, V *V);
    for (int64_t i = 0; i < V; i++) unit[i * V + i] = 1;
    fill(&g->p, g->unit, unit, V * V);
    mx_run_entry(g->p.run, 0);
}

/* TRL's cross-entropy covers the prompt, ours the response alone: what is compared is all else. Its
 * gradient is the difference between two factors'. */
START_TEST(trl_orpo) {
    enum { CAP = 20 };
    const char *cases[CAP];
    int64_t n;
    if (!open_file("hf/trl/losses.h5")) return;
    int n_cases = golden_cases(&arena, file, "orpo", cases, CAP);
    ck_assert_int_ge(n_cases, 2);
    const float *logits = array("orpo", "logits", &n), *labels = array("orpo", "labels", NULL);
    MxH5Array stat;
    MxError err = {0};
    ck_assert(mx_h5_stat(file, "orpo/logits", &stat, &err));
    float *got[2], *want[2];
    for (int i = 0; i < n_cases; i++) {
        FromLogits g;
        double lambda = strtod(strstr(cases[i], "_beta") + strlen("_beta"), NULL);
        double pairs = (double)stat.shape.dim[0] / 2;
        open_from_logits(&g, stat.shape, lambda);
        run_from_logits(&g, stat.shape, logits, labels);
        const float *sums = floats(&g.p, g.sums);
        check_figure(CLOSE_LOSS, cases[i],
                     (double)(sums[MX_PAIRS_LOSS] - sums[MX_PAIRS_NLL]) / pairs,
                     (double)*array(cases[i], "loss", NULL) - number_of(cases[i], "nll_loss"));
        check_figure(CLOSE_LOSS, mx_arena_printf(&arena, "%s/reward", cases[i]),
                     (double)sums[MX_PAIRS_CHOSEN_REWARD] / pairs,
                     number_of(cases[i], "rewards/chosen"));
        check_number("accuracy", (double)sums[MX_PAIRS_CORRECT] / pairs,
                     number_of(cases[i], "rewards/accuracies"), 0);
        float **at = i ? &got[1] : &got[0];
        *at = mx_arena_grow(&arena, floats(&g.p, g.dh), (size_t)n, (size_t)n, sizeof(float));
        want[i ? 1 : 0] = mx_arena_grow(&arena, array(cases[i], "grad_logits", NULL), (size_t)n,
                                        (size_t)n, sizeof(float));
    }
    for (int64_t i = 0; i < n; i++) {
        got[1][i] -= got[0][i];
        want[1][i] -= want[0][i];
    }
    check_gradient("gradient of the odds", got[1], want[1], n);
}
END_TEST

/* ---- from tokens to the gradients of a model */

enum { POLICY, REFERENCE };

typedef struct Pairs {
    Program p;
    MxModel *model;
    MxConfig *config;
    int *param[2], *gradient;
    int tokens, positions, segments, targets, weights;
    int given_ref; /* f32 [2P, T] in place of a reference's parameters, or MX_NONE */
    int loss, sums, logp, ref_logp;
} Pairs;

static void open_model(Pairs *g, const char *group) {
    MxError err = {0};
    g->config = golden_yaml_config(&arena, file, group, "use_dpo=false");
    ck_assert_msg(mx_model_new(&arena, g->config, &g->model, &err), "%s", err.text.data);
}

static MxValue trace_logp(Pairs *g, int side, MxValue *values) {
    MxTrace *t = &g->p.t;
    for (int i = 0; i < mx_model_params(g->model)->n; i++)
        values[i] = mx_variable(t, g->param[side][i]);
    MxModelInputs in = {.tokens = mx_variable(t, g->tokens),
                        .positions = mx_variable(t, g->positions),
                        .segments = mx_variable(t, g->segments)};
    return mx_model_logprob(t, g->model, values, mx_model_hidden(t, g->model, values, in),
                            mx_variable(t, g->targets), mx_variable(t, g->weights), NULL);
}

static void declare_pairs(Pairs *g, MxShape tokens) {
    const MxTree *tree = mx_model_params(g->model);
    Program *p = &g->p;
    begin(p);
    for (int side = 0; side < 2; side++) g->param[side] = mx_new_n(&arena, int, tree->n);
    g->gradient = mx_new_n(&arena, int, tree->n);
    for (int i = 0; i < tree->n; i++) {
        for (int side = 0; side < 2; side++)
            g->param[side][i] = new_var(p, MX_F32, tree->leaves[i].shape);
        g->gradient[i] = new_var(p, MX_F32, tree->leaves[i].shape);
    }
    int *ids[] = {&g->tokens, &g->positions, &g->segments, &g->targets, &g->weights};
    for (int i = 0; i < MX_COUNT(ids); i++) *ids[i] = new_var(p, MX_I32, tokens);
    g->logp = new_var(p, MX_F32, tokens);
    g->ref_logp = new_var(p, MX_F32, tokens);
    g->loss = new_var(p, MX_F32, MX_SCALAR);
    g->sums = new_var(p, MX_F32, MX_SHAPE(MX_PAIRS_COUNT));
    g->given_ref = new_var(p, MX_F32, tokens);
}

static void open_pairs(Pairs *g, MxShape tokens, MxPreferenceAttr attr, bool has_given_ref) {
    const MxTree *tree = mx_model_params(g->model);
    declare_pairs(g, tokens);
    MxTrace *t = &g->p.t;
    MxValue *policy = mx_new_n(&arena, MxValue, tree->n), *ref = mx_new_n(&arena, MxValue, tree->n);
    MxValue ref_logp = MX_NONE, logp = trace_logp(g, POLICY, policy);
    if (has_given_ref)
        ref_logp = mx_variable(t, g->given_ref);
    else if (mx_preferences[attr.algo].has_reference)
        mx_trace_assign(t, ref_logp = trace_logp(g, REFERENCE, ref), g->ref_logp, false);
    mx_trace_assign(t, logp, g->logp, false);
    MxValue loss = mean_loss(&g->p, logp, ref_logp, mx_variable(t, g->weights), g->sums, attr);
    mx_trace_assign(t, loss, g->loss, false);
    MxGradTarget *targets = mx_new_n(&arena, MxGradTarget, tree->n);
    for (int i = 0; i < tree->n; i++)
        targets[i] = (MxGradTarget){.wrt = policy[i], .var = g->gradient[i]};
    mx_grad(t, loss, targets, tree->n);
    open_run(&g->p);
}

/* Parameters or gradients of a group as a tree. */
static MxTree read_tree(const Pairs *g, const char *group) {
    MxTree tree;
    MxError err = {0};
    mx_tree_init(&tree, &arena);
    mx_tree_add_under(&tree, "model", mx_model_params(g->model));
    for (int i = 0; i < tree.n; i++)
        tree.leaves[i].data = mx_new_n(&arena, float, mx_shape_count(tree.leaves[i].shape));
    ck_assert_msg(mx_ckpt_read(file, group, "model/", (int)g->config->param_scan_axis, &tree, &err),
                  "%s", err.text.data);
    return tree;
}

static void fill_params(Pairs *g, int side, const char *group) {
    MxTree tree = read_tree(g, group);
    close_nudge(&tree);
    for (int i = 0; i < tree.n; i++)
        fill(&g->p, g->param[side][i], tree.leaves[i].data, mx_shape_count(tree.leaves[i].shape));
}

static void check_parameter_gradients(const Pairs *g, const char *group) {
    if (!mx_h5_has_group(file, group)) return;
    MxTree want = read_tree(g, group);
    for (int i = 0; i < want.n; i++)
        check_gradient(mx_arena_printf(&arena, "%s/%s", group, want.leaves[i].path),
                       floats(&g->p, g->gradient[i]), want.leaves[i].data,
                       mx_shape_count(want.leaves[i].shape));
}

static void check_gradient_norm(const Pairs *g, const char *group) {
    double squares = 0;
    for (int i = 0; i < mx_model_params(g->model)->n; i++)
        for (int64_t j = 0; j < mx_shape_count(mx_model_params(g->model)->leaves[i].shape); j++)
            squares += pow((double)floats(&g->p, g->gradient[i])[j], 2);
    check_figure(CLOSE_NORM, group, sqrt(squares), (double)*array(group, "grad_l2norm", NULL));
}

/* ---- MaxText's dpo: one mask for both responses, beta twice */

typedef struct Response {
    const float *tokens, *positions, *segments;
} Response;

static Response read_response(const char *name) {
    return (Response){
        array("batch", name, NULL),
        array("batch", mx_arena_printf(&arena, "%s_position", name), NULL),
        array("batch", mx_arena_printf(&arena, "%s_segmentation", name), NULL),
    };
}

/* From the batch as it is stored to the variables: only segment 1, targets one to the left, and
 * the mask, which starts where the responses first differ. */
static void fill_pairs(Pairs *g, int64_t P, int64_t T) {
    Response sides[] = {read_response("chosen"), read_response("rejected")};
    int64_t n = P * T;
    float *in[5];
    for (int i = 0; i < MX_COUNT(in); i++) in[i] = mx_new_n(&arena, float, 2 * n);
    for (int side = 0; side < 2; side++)
        for (int64_t i = 0; i < n; i++) {
            const Response *r = &sides[side];
            bool is_first = r->segments[i] == 1;
            in[0][side * n + i] = r->tokens[i];
            in[1][side * n + i] = is_first ? r->positions[i] : 0;
            in[2][side * n + i] = is_first;
            in[3][side * n + i] = (i + 1) % T ? r->tokens[i + 1] : 0;
        }
    for (int64_t row = 0; row < P; row++) {
        bool differs = false;
        for (int64_t i = row * T; i + 1 < (row + 1) * T; i++) {
            differs = differs || sides[0].tokens[i + 1] != sides[1].tokens[i + 1];
            bool counts = differs && sides[0].segments[i + 1] == 1 && sides[1].segments[i + 1] == 1;
            in[4][i] = in[4][n + i] = counts;
        }
    }
    int vars[] = {g->tokens, g->positions, g->segments, g->targets, g->weights};
    for (int i = 0; i < MX_COUNT(in); i++) fill(&g->p, vars[i], in[i], 2 * n);
}

static void check_row_sums(const Pairs *g, const char *group, int var, const char *chosen,
                           const char *rejected) {
    int64_t P;
    const float *want[] = {array("derived", chosen, &P), array("derived", rejected, &P)};
    int64_t T = g->p.vars.item[var].type.shape.dim[1];
    for (int64_t row = 0; row < 2 * P; row++) {
        double sum = 0;
        for (int64_t i = 0; i < T; i++) sum += (double)floats(&g->p, var)[row * T + i];
        check_figure(CLOSE_LOSS, mx_arena_printf(&arena, "%s/%s %d", group, chosen, (int)row), sum,
                     (double)want[row / P][row % P]);
    }
}

static void check_maxtext_case(const char *group, int64_t P, int64_t T, bool is_identical) {
    Pairs g;
    open_model(&g, "");
    MxPreferenceAttr attr = {.formula = MX_FORMULA_MAXTEXT};
    attr.beta = number_of(group, "dpo_beta");
    attr.label_smoothing = number_of(group, "dpo_label_smoothing");
    open_pairs(&g, MX_SHAPE(2 * P, T), attr, false);
    fill_params(&g, POLICY, "nnx/model");
    fill_params(&g, REFERENCE, is_identical ? "nnx/model" : "nnx/reference_model");
    fill_pairs(&g, P, T);
    mx_run_entry(g.p.run, 0);
    const float *sums = floats(&g.p, g.sums);
    double loss = (double)*floats(&g.p, g.loss);
    check_figure(CLOSE_LOSS, group, loss, (double)*array(group, "aux/dpo_loss", NULL));
    check_number("sum", (double)sums[MX_PAIRS_LOSS], loss * (double)P, 1e-6);
    check_number("accuracy", (double)sums[MX_PAIRS_CORRECT] / (double)P,
                 (double)*array(group, "aux/reward_accuracy", NULL), 0);
    check_row_sums(&g, group, g.logp, "policy_chosen_logps", "policy_rejected_logps");
    check_parameter_gradients(&g, mx_arena_printf(&arena, "%s/grads", group));
    if (is_identical) {
        ck_assert(fabs(loss - log(2)) < 1e-6);
        return;
    }
    check_row_sums(&g, group, g.ref_logp, "ref_chosen_logps", "ref_rejected_logps");
    if (mx_h5_has_array(file, mx_arena_printf(&arena, "%s/grad_l2norm", group)))
        check_gradient_norm(&g, group);
}

START_TEST(maxtext_dpo) {
    enum { CAP = 50 };
    const char *cases[CAP];
    MxH5Array stat;
    MxError err = {0};
    if (!open_file("train/dpo_loss.h5")) return;
    ck_assert(mx_h5_stat(file, "batch/chosen", &stat, &err));
    int64_t P = stat.shape.dim[0], T = stat.shape.dim[1];
    int n = golden_cases(&arena, file, "cases", cases, CAP - 2);
    cases[n++] = "identical";
    cases[n++] = "cases_ga/beta0.5_ls0.0";
    for (int i = 0; i < n; i++) check_maxtext_case(cases[i], P, T, !strcmp(cases[i], "identical"));
}
END_TEST

/* ---- Tunix: prompts and completions side by side, given log-probabilities of the reference */

static void fill_completions(Pairs *g, MxShape ids, int64_t completion) {
    int64_t T = ids.dim[1], n = ids.dim[0] * T, prompt = T - completion;
    const float *tokens = array("prepared", "input_ids", NULL);
    const float *mask = array("prepared", "completion_mask", NULL);
    const float *ref[] = {array("prepared", "ref_chosen_logps", NULL),
                          array("prepared", "ref_rejected_logps", NULL)};
    float *segments = mx_new_n(&arena, float, n), *targets = mx_new_n(&arena, float, n);
    float *weights = mx_new_n(&arena, float, n), *given = mx_new_n(&arena, float, n);
    for (int64_t row = 0; row < ids.dim[0]; row++) {
        bool is_first = true;
        for (int64_t t = 0; t < T; t++) {
            int64_t i = row * T + t;
            segments[i] = tokens[i] != 0;
            if (t + 1 < T) targets[i] = tokens[i + 1];
            if (t + 1 < T && t + 1 >= prompt) weights[i] = mask[row * completion + t + 1 - prompt];
            int64_t P = ids.dim[0] / 2; /* the row's sum stands at its first token */
            if (weights[i] != 0 && is_first) given[i] = ref[row / P][row % P];
            is_first = is_first && weights[i] == 0;
        }
    }
    fill(&g->p, g->tokens, tokens, n);
    fill(&g->p, g->positions, array("prepared", "positions", NULL), n);
    fill(&g->p, g->segments, segments, n);
    fill(&g->p, g->targets, targets, n);
    fill(&g->p, g->weights, weights, n);
    fill(&g->p, g->given_ref, given, n);
}

static void check_tunix_case(const char *group, MxShape ids, int64_t completion) {
    static const struct {
        const char *name;
        int sum;
    } logged[] = {
        {"aux/rewards/chosen", MX_PAIRS_CHOSEN_REWARD},
        {"aux/rewards/margin", MX_PAIRS_MARGIN},
        {"aux/rewards/accuracy", MX_PAIRS_CORRECT},
        {"aux/sft_loss", MX_PAIRS_NLL},
        {"aux/log_probs/chosen", MX_PAIRS_CHOSEN_LOGP},
        {"aux/log_probs/rejected", MX_PAIRS_REJECTED_LOGP},
    };
    Pairs g;
    double pairs = (double)ids.dim[0] / 2;
    MxPreferenceAttr attr = {.beta = number_of(group, "beta")};
    attr.lambda = number_of(group, "lambda_orpo");
    attr.label_smoothing = number_of(group, "label_smoothing");
    attr.algo = find_algo(text_of(group, "algo"));
    bool has_reference = mx_preferences[attr.algo].has_reference;
    if (!has_reference) attr.formula = MX_FORMULA_MAXTEXT;
    open_model(&g, "");
    open_pairs(&g, ids, attr, has_reference);
    fill_params(&g, POLICY, "nnx/model");
    fill_completions(&g, ids, completion);
    mx_run_entry(g.p.run, 0);
    check_figure(CLOSE_LOSS, group, (double)*floats(&g.p, g.loss),
                 (double)*array(group, "loss", NULL));
    for (int i = 0; i < MX_COUNT(logged); i++)
        if (mx_h5_has_array(file, mx_arena_printf(&arena, "%s/%s", group, logged[i].name)))
            check_number(logged[i].name, (double)floats(&g.p, g.sums)[logged[i].sum] / pairs,
                         (double)*array(group, logged[i].name, NULL), 1e-4);
    check_parameter_gradients(&g, mx_arena_printf(&arena, "%s/grads", group));
    check_gradient_norm(&g, group);
}

START_TEST(tunix_losses) {
    enum { CAP = 50 };
    const char *cases[CAP];
    MxH5Array ids, mask;
    MxError err = {0};
    if (!open_file("train/tunix_dpo.h5")) return;
    ck_assert(mx_h5_stat(file, "prepared/input_ids", &ids, &err));
    ck_assert(mx_h5_stat(file, "prepared/completion_mask", &mask, &err));
    int n = golden_cases(&arena, file, "cases", cases, CAP);
    for (int i = 0; i < n; i++) check_tunix_case(cases[i], ids.shape, mask.shape.dim[1]);
}
END_TEST

Suite *preference_suite(void) {
    enum { SECONDS = 120 };
    Suite *suite = suite_create("preference");
    TCase *tcase = tcase_create("preference");
    tcase_set_timeout(tcase, SECONDS);
    tcase_add_checked_fixture(tcase, NULL, close_all);
    tcase_add_test(tcase, trl_losses);
    tcase_add_test(tcase, trl_orpo);
    tcase_add_test(tcase, maxtext_dpo);
    tcase_add_test(tcase, tunix_losses);
    suite_add_tcase(suite, tcase);
    return suite;
}
