/* test_distill.c — distillation against MaxText: the loss on given logits and features, with its
 * metrics and gradients, the schedules, and steps of its own trainer. */
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

static MxArena arena = {.name = "distill"};
static MxH5 *file;

static bool open_file(const char *name) {
    file = golden_open(&arena, name);
    return file != NULL;
}

static float *array(const char *path, int64_t *n) {
    int64_t count;
    float *data = golden_read(&arena, file, path, n ? n : &count);
    ck_assert_msg(data != NULL, "no %s", path);
    return data;
}

static float number(const char *group, const char *name) {
    return *array(mx_path_join(&arena, group, name), NULL);
}

/* ---- on given logits and features: hidden states are the logits, W is the identity */

enum { V = 48, D = 8, LAYERS = 3, TOKENS = 20, TOP = 6 };

/* What a case's options say; "temperature: 2.0\nalpha: 0.3\n". */
typedef struct Options {
    double alpha, heat, beta;
    bool is_l2, has_layers, is_masked, is_top;
} Options;

static double option(const char *text, const char *key, double otherwise) {
    const char *at = strstr(text, key);
    return at ? strtod(at + strlen(key), NULL) : otherwise;
}

/* A schedule by its name, as the part has it. */
static double scheduled(const char *text, const char *key, double start) {
    char how[64], end[64];
    snprintf(how, sizeof how, "%s_schedule: \"", key);
    snprintf(end, sizeof end, "%s_end: ", key);
    const char *at = strstr(text, how);
    if (!at) return start;
    double way = option(text, "step: ", 0) / option(text, "max_steps: ", 1);
    double last = option(text, end, start);
    if (!strncmp(at + strlen(how), "linear", 6)) return start + (last - start) * way;
    return last + (start - last) * 0.5 * (1 + cos(3.14159265358979323846 * way));
}

static Options options_of(const char *group) {
    char *text = NULL;
    MxError err = {0};
    ck_assert(mx_h5_attr(&arena, file, group, "options", &text, &err) && text);
    Options o = {.alpha = scheduled(text, "alpha", option(text, "alpha: ", NAN)),
                 .heat = scheduled(text, "temperature", option(text, "temperature: ", NAN)),
                 .beta = scheduled(text, "beta", option(text, "beta_feature: ", 0))};
    o.is_l2 = strstr(text, "\"l2\"") != NULL;
    o.has_layers = strstr(text, "layer_indices") != NULL;
    o.is_masked = strstr(text, "mask: true") != NULL;
    o.is_top = strstr(text, "topk: true") != NULL;
    return o;
}

typedef struct Given {
    MxVars vars;
    MxRun *run;
    int student, teacher, eye, targets, weights, numbers, feature[2][LAYERS];
    int loss, distance, sums, dlogits, dfeature[LAYERS], top, ids;
} Given;

static int new_var(Given *g, MxDtype dtype, MxShape shape) {
    return mx_vars_add(&g->vars, "x", (MxType){dtype, shape});
}

static void declare(Given *g) {
    g->student = new_var(g, MX_F32, MX_SHAPE(TOKENS, V));
    g->teacher = new_var(g, MX_F32, MX_SHAPE(TOKENS, V));
    g->eye = new_var(g, MX_F32, MX_SHAPE(V, V));
    g->targets = new_var(g, MX_I32, MX_SHAPE(TOKENS));
    g->weights = new_var(g, MX_I32, MX_SHAPE(TOKENS));
    g->numbers = new_var(g, MX_F32, MX_SHAPE(MX_DISTILL_NUMBERS));
    g->loss = new_var(g, MX_F32, MX_SCALAR);
    g->distance = new_var(g, MX_F32, MX_SCALAR);
    g->sums = new_var(g, MX_F32, MX_SHAPE(MX_DISTILL_SUMS));
    g->dlogits = new_var(g, MX_F32, MX_SHAPE(TOKENS, V));
    g->top = new_var(g, MX_F32, MX_SHAPE(TOKENS, TOP));
    g->ids = new_var(g, MX_I32, MX_SHAPE(TOKENS, TOP));
    for (int i = 0; i < LAYERS; i++) {
        for (int k = 0; k < 2; k++) g->feature[k][i] = new_var(g, MX_F32, MX_SHAPE(TOKENS, D));
        g->dfeature[i] = new_var(g, MX_F32, MX_SHAPE(TOKENS, D));
    }
}

static bool uses_layer(const Options *o, int layer) {
    return !o->has_layers || layer != 1;
}

/* Of all of the teacher's logits, or of its largest ones. */
static MxValue trace_sum(MxTrace *t, const Given *g, const Options *o, MxValue h) {
    MxValue eye = mx_variable(t, g->eye), teacher = mx_variable(t, g->teacher);
    MxValue targets = mx_variable(t, g->targets), weights = mx_variable(t, g->weights);
    MxValue numbers = mx_variable(t, g->numbers);
    MxHead student = {h, eye, {.scale = 1}};
    if (!o->is_top)
        return mx_distill(t, student, (MxHead){teacher, eye, {.scale = 1}}, targets, weights,
                          numbers);
    MxValue top = mx_top_logits(t, teacher, eye, weights, (MxTopAttr){{.scale = 1}, TOP});
    mx_trace_assign(t, top, g->top, false);
    mx_trace_assign(t, top + 1, g->ids, false);
    return mx_distill_top(t, student, top, top + 1, targets, weights, numbers);
}

/* The mean loss over n tokens and its gradient. */
static void open_given(Given *g, const Options *o, double n) {
    *g = (Given){.vars.arena = &arena};
    MxGraph *graph = mx_graph_new(&arena, "test", &g->vars);
    MxTrace t;
    MxError err = {0};
    MxDevice *device;
    MxGradTarget targets[1 + LAYERS];
    int n_targets = 0;
    mx_trace_begin(&t, graph);
    declare(g);
    MxValue student = mx_variable(&t, g->student);
    MxValue numbers = mx_variable(&t, g->numbers), weights = mx_variable(&t, g->weights);
    MxValue sum = trace_sum(&t, g, o, student);
    mx_trace_assign(&t, sum + 1, g->sums, false);
    MxValue loss = mx_scale(&t, sum, 1 / n);
    targets[n_targets++] = (MxGradTarget){.wrt = student, .var = g->dlogits};
    double layers = o->has_layers ? 2 : LAYERS;
    MxValue distance = MX_NONE;
    for (int i = 0; i < LAYERS && o->beta > 0; i++) {
        MxValue x = mx_variable(&t, g->feature[0][i]), y = mx_variable(&t, g->feature[1][i]);
        if (!uses_layer(o, i)) continue;
        MxValue one =
            mx_scale(&t, mx_feature(&t, x, y, weights, numbers, (MxFeatureAttr){!o->is_l2}),
                     1 / (n * layers));
        distance = distance == MX_NONE ? one : mx_add(&t, distance, one);
        targets[n_targets++] = (MxGradTarget){.wrt = x, .var = g->dfeature[i]};
    }
    if (distance != MX_NONE) mx_trace_assign(&t, mx_copy(&t, distance), g->distance, false);
    if (distance != MX_NONE) loss = mx_add(&t, loss, distance);
    mx_trace_assign(&t, loss, g->loss, false);
    mx_grad(&t, loss, targets, n_targets);
    bool ok = mx_trace_end(&t, &err) &&
              mx_device_open(&arena, &(MxDeviceConfig){0}, &device, &err) &&
              mx_run_open(&arena, device, &g->vars, &graph, 1, MX_REMAT_NONE, &g->run, &err);
    ck_assert_msg(ok, "%s", err.text.data);
}

/* Tokens that count: not padding by id or segment. */
static void fill_given(Given *g, const Options *o, const int32_t *weights) {
    float eye[V * V] = {0}, *targets = array("targets", NULL);
    int32_t ids[TOKENS];
    for (int i = 0; i < V; i++) eye[i * V + i] = 1;
    for (int i = 0; i < TOKENS; i++) ids[i] = (int32_t)targets[i];
    var_fill(g->run, g->eye, eye);
    var_fill(g->run, g->targets, ids);
    var_fill(g->run, g->weights, weights);
    var_fill(g->run, g->student, array("student_logits", NULL));
    var_fill(g->run, g->teacher, array("teacher_logits", NULL));
    float numbers[MX_DISTILL_NUMBERS] = {(float)o->alpha, (float)o->heat, (float)o->beta};
    var_fill(g->run, g->numbers, numbers);
    float *features[] = {array("student_features", NULL), array("teacher_features", NULL)};
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < LAYERS; i++)
            var_fill(g->run, g->feature[k][i], features[k] + i * TOKENS * D);
}

static void check_number(const char *name, const char *what, double got, double want) {
    double bound = 1e-5 * fmax(fabs(want), 1);
    ck_assert_msg(fabs(got - want) <= bound, "%s: %s is %.9g, not %.9g", name, what, got, want);
}

static void check_array(const char *name, const float *got, const float *want, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        ck_assert_msg(fabs((double)got[i] - (double)want[i]) <= 1e-4 * fabs((double)want[i]) + 2e-5,
                      "%s: element %lld is %.9g, not %.9g", name, (long long)i, (double)got[i],
                      (double)want[i]);
}

static void check_given(Given *g, const char *group, const Options *o, double n) {
    const float *sums = var_values(&arena, g->run, g->sums);
    const struct {
        const char *name;
        double got;
    } metrics[] = {{"hard_loss", sums[MX_DISTILL_HARD]},
                   {"soft_loss", sums[MX_DISTILL_KL] * o->heat * o->heat},
                   {"kl_div_at_T", sums[MX_DISTILL_KL]},
                   {"kl_div_T1", sums[MX_DISTILL_KL_PLAIN]},
                   {"teacher_loss", sums[MX_DISTILL_TEACHER]}};
    for (int i = 0; i < MX_COUNT(metrics); i++) {
        const char *path = mx_arena_printf(&arena, "%s/metrics/distill/%s", group, metrics[i].name);
        const float *want = array(path, NULL);
        check_number(group, metrics[i].name, metrics[i].got, (double)want[0]);
        ck_assert(n == 1 || (double)want[1] == n);
    }
    check_number(group, "loss", *(float *)var_values(&arena, g->run, g->loss),
                 (double)number(group, "loss"));
    check_array(group, var_values(&arena, g->run, g->dlogits),
                array(mx_path_join(&arena, group, "grad_student_logits"), NULL), TOKENS * V);
    if (o->beta <= 0) return;
    check_number(group, "features", *(float *)var_values(&arena, g->run, g->distance),
                 (double)number(group, "metrics/distill/out_proj_feature_loss"));
    const float *want = array(mx_path_join(&arena, group, "grad_student_features"), NULL);
    for (int i = 0; i < LAYERS; i++)
        if (uses_layer(o, i))
            check_array(group, var_values(&arena, g->run, g->dfeature[i]), want + i * TOKENS * D,
                        TOKENS * D);
}

/* The teacher's largest logits of the tokens that count, and their ids. */
static void check_top(const Given *g, const int32_t *weights) {
    const float *top = array("top_k_logits", NULL), *ids = array("top_k_indices", NULL);
    const float *own = var_values(&arena, g->run, g->top);
    const int32_t *own_ids = var_values(&arena, g->run, g->ids);
    for (int i = 0; i < TOKENS * TOP; i++)
        ck_assert(!weights[i / TOP] || (own[i] == top[i] && (float)own_ids[i] == ids[i]));
}

static const char *const given[] = {"topk_T2",    "T1_a0",          "T1_a0.5",       "T2_a0.5",
                                    "T4_a1",      "T2_cos",         "T2_cos_layers", "T2_l2",
                                    "all_masked", "sched_linear_s3"};

START_TEST(losses_of_given_logits) {
    if (!open_file("train/distill_loss.h5")) return;
    const char *group = mx_path_join(&arena, "cases", given[_i]);
    Options o = options_of(group);
    const float *targets = array("targets", NULL), *segments = array("targets_segmentation", NULL);
    int32_t weights[TOKENS];
    double n = 0;
    for (int i = 0; i < TOKENS; i++) {
        weights[i] = targets[i] != 0 && segments[i] != 0 && !o.is_masked;
        n += weights[i];
    }
    Given g;
    open_given(&g, &o, fmax(n, 1));
    fill_given(&g, &o, weights);
    mx_run_entry(g.run, 0);
    check_given(&g, group, &o, fmax(n, 1));
    if (o.is_top) check_top(&g, weights);
    mx_arena_release(&arena);
}
END_TEST

/* ---- steps of MaxText's trainer */

/* Layers of the teacher's tree lie in stacked arrays, along dim 1. */
static void load_teacher(MxTrainState *s) {
    const MxTree *tree = mx_train_teacher_tree(s);
    for (int i = 0; i < tree->n; i++) {
        const MxLeaf *leaf = &tree->leaves[i];
        bool is_stacked = leaf->stack.count > 0;
        const char *path = (is_stacked ? leaf->stack.path : leaf->path) + strlen("model/");
        const float *from = array(mx_arena_printf(&arena, "nnx/teacher_model/%s", path), NULL);
        int64_t n = mx_shape_count(leaf->shape), rows = leaf->shape.dim[0], row = n / rows;
        int64_t count = is_stacked ? leaf->stack.count : 1;
        float *values = mx_new_n(&arena, float, n);
        for (int64_t r = 0; r < rows; r++)
            memcpy(values + r * row,
                   from + (r * count + (is_stacked ? leaf->stack.index : 0)) * row,
                   (size_t)row * sizeof *values);
        mx_leaf_write(leaf, values);
    }
    mx_train_state_restored(s);
}

static void check_step(MxTrainState *s, int step, MxLoss loss, MxUpdate update) {
    static const char name[] = "train/distill_traj.h5";
    const MxFigure *figures = mx_train_figures(&arena, mx_train_state_config(s), false);
    const char *at = mx_arena_printf(&arena, "step %d", step);
    double bound = step == 1 ? 1e-5 : 1e-4;
    const struct {
        const char *path;
        double got;
    } all[] = {{"traj/loss", loss.loss},
               {"traj/grad_norm", update.raw_grad_norm},
               {"learning_rate", update.learning_rate}};
    for (int i = 0; i < MX_COUNT(all); i++) {
        double want = (double)array(all[i].path, NULL)[step - 1];
        ck_assert_msg(fabs(all[i].got - want) <= bound * fabs(want), "%s, %s: %s is %.9g, not %.9g",
                      name, at, all[i].path, all[i].got, want);
    }
    for (const MxFigure *f = figures; f->metric; f++) {
        const char *path = mx_arena_printf(&arena, "traj/step%d/metrics/%s", step, f->metric);
        if (!mx_h5_has_array(file, path)) continue;
        const float *pair = array(path, NULL);
        double want = (double)pair[0] / (double)pair[1], got = f->value(&loss, f->sum);
        ck_assert_msg(fabs(got - want) <= bound * fmax(fabs(want), 0.1),
                      "%s, %s: %s is %.9g, not %.9g", name, at, f->metric, got, want);
    }
}

#define TEACH(key) "teacher_overrides." key " "
static const char of_golden[] = TEACH("load_parameters_path=x") TEACH("base_emb_dim=32")
    TEACH("base_num_decoder_layers=2") TEACH("base_num_query_heads=4") TEACH("base_num_kv_heads=2")
        TEACH("head_dim=8") TEACH("base_mlp_dim=64") TEACH("vocab_size=128");

static const char *const ways[] = {"", "gradient_accumulation_steps=2 per_device_batch_size=2",
                                   "remat_policy=minimal"};

START_TEST(steps_of_maxtext) {
    MxTrainState *s;
    MxError err = {0};
    if (!open_file("train/distill_traj.h5")) return;
    MxConfig *config =
        golden_yaml_config(&arena, file, "", mx_arena_printf(&arena, "%s %s", of_golden, ways[_i]));
    ck_assert_msg(mx_train_state_open(&arena, config, &s, &err), "%s", err.text.data);
    mx_train_state_init(s);
    ck_assert_msg(mx_ckpt_read(file, "nnx", "model/", 1, mx_train_state_tree(s), &err), "%s",
                  err.text.data);
    load_teacher(s);
    for (int step = 1; step <= 5; step++) {
        MxBatch batch = golden_batch(&arena, file, "batches", step - 1);
        ck_assert(mx_train_before_batch(s, false, step - 1, &batch, &err));
        MxLoss loss = mx_train_loss_and_grad(s, &batch);
        check_step(s, step, loss, mx_train_update(s));
    }
    MxTree want;
    ck_assert(golden_like(&arena, s, file, "traj/step5/nnx", 1, &want, &err));
    for (int i = 0; i < want.n; i++) {
        int at = mx_tree_find(mx_train_state_tree(s), want.leaves[i].path);
        double off = golden_max_abs(golden_values(&arena, &mx_train_state_tree(s)->leaves[at]),
                                    want.leaves[i].data, mx_shape_count(want.leaves[i].shape));
        ck_assert_msg(off <= 1e-4, "%s is off by %g", want.leaves[i].path, off);
    }
    mx_arena_release(&arena);
}
END_TEST

/* What is not named stays as it is, and has no part in the optimizer. */
START_TEST(only_what_is_named_is_trained) {
    MxTrainState *s;
    MxError err = {0};
    if (!open_file("train/distill_traj.h5")) return;
    MxConfig *config = golden_yaml_config(
        &arena, file, "",
        mx_arena_printf(&arena, "%s student_params_to_update=['mlp/w']", of_golden));
    ck_assert_msg(mx_train_state_open(&arena, config, &s, &err), "%s", err.text.data);
    mx_train_state_init(s);
    load_teacher(s);
    MxTree *tree = mx_train_state_tree(s);
    const float **before = mx_new_n(&arena, const float *, tree->n);
    for (int i = 0; i < tree->n; i++)
        if (mx_text_has_prefix(tree->leaves[i].path, "model/"))
            before[i] = golden_values(&arena, &tree->leaves[i]);
    for (int step = 0; step < 3; step++) {
        MxBatch batch = golden_batch(&arena, file, "batches", step);
        ck_assert(mx_train_before_batch(s, false, step, &batch, &err));
        mx_train_loss_and_grad(s, &batch);
        mx_train_update(s);
    }
    int n_changed = 0;
    for (int i = 0; i < tree->n; i++) {
        const MxLeaf *leaf = &tree->leaves[i];
        bool is_named = strstr(leaf->path, "mlp/w") != NULL;
        if (leaf->kind == MX_KIND_OPTIMIZER && leaf->shape.rank) ck_assert(is_named);
        if (!before[i]) continue;
        size_t bytes = (size_t)mx_shape_count(leaf->shape) * sizeof(float);
        bool is_same = !memcmp(before[i], golden_values(&arena, leaf), bytes);
        ck_assert_msg(is_same == !is_named, "%s", leaf->path);
        n_changed += !is_same;
    }
    ck_assert_int_ge(n_changed, 3);
    mx_arena_release(&arena);
}
END_TEST

Suite *distill_suite(void) {
    Suite *suite = suite_create("distill");
    TCase *tcase = tcase_create("distill"), *of_given = tcase_create("given");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(of_given, losses_of_given_logits, 0, MX_COUNT(given));
    tcase_add_loop_test(tcase, steps_of_maxtext, 0, MX_COUNT(ways));
    tcase_add_test(of_given, only_what_is_named_is_trained);
    suite_add_tcase(suite, of_given);
    suite_add_tcase(suite, tcase);
    return suite;
}
