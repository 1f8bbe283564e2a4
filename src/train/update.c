/* update.c — an optimizer's step: its moments and counters as variables and leaves of the state,
 * the entry that sums the gradient up where ranks have parts of the sum, clips it, and lets the
 * optimizer make new parameters and moments in place, and running that entry. */
#include <mx/train.h>

#include "internal.h"

#include <math.h>

/* ---- variables and leaves */

static MxDtype moment_dtype(const MxTrainState *s, int moment) {
    MxDtype dtype = MX_F32;
    if (moment == 0 && s->optimizer->first_is_mu_dtype) {
        bool known = mx_dtype_parse(s->config->mu_dtype, &dtype);
        MX_ASSERT(known);
    }
    return dtype;
}

void train_declare_moments(MxTrainState *s) {
    for (int m = 0; m < s->optimizer->n_moments; m++)
        s->var.moment[m] =
            train_declare_each(s, s->optimizer->moments[m], moment_dtype(s, m), true);
}

/* Without data where nothing is trained: a checkpoint has them. */
static void show_moment(MxTrainState *s, int moment) {
    const MxTree *params = mx_model_params(s->model);
    const char *prefix =
        mx_arena_printf(s->arena, "optimizer/opt_state/0/%s", s->optimizer->moments[moment]);
    MxLeaf *leaf = mx_tree_add_under(&s->tree, prefix, s->trained);
    for (int i = 0; i < s->trained->n; i++) {
        leaf[i].kind = MX_KIND_OPTIMIZER;
        leaf[i].data = NULL;
        leaf[i].division = NULL;
    }
    for (int i = 0; i < params->n; i++) {
        int var = s->var.moment[moment][i];
        if (var == MX_NONE) continue;
        leaf->dtype = s->vars.item[var].type.dtype;
        train_show_var(s, leaf++, var);
    }
}

void train_show_moments(MxTrainState *s) {
    for (int m = 0; m < s->optimizer->n_moments; m++) show_moment(s, m);
}

void train_show_counts(MxTrainState *s) {
    for (int i = 0; i < MX_COUNT(s->counts) && s->optimizer->counts[i]; i++) {
        s->counts[i] = mx_new(s->arena, int32_t);
        train_add_counter(s, s->optimizer->counts[i], MX_I32, s->counts[i]);
    }
}

/* ---- the entry */

/* A gradient of which every rank has a sum of its own becomes what the optimizer works on: in the
 * same buffer if that is as large. */
static MxValue sum_up(MxTrainState *s, MxTrace *t, int i) {
    int var = s->var.gradient[i], like = s->var.param[i];
    if (s->optimizer->n_moments) like = s->var.moment[0][i];
    MxValue sum = mx_trace_like(t, mx_copy(t, mx_variable(t, var)), like);
    if (mx_shape_equal(s->local.item[var].type.shape, s->local.item[like].type.shape))
        mx_trace_assign(t, sum, var, false);
    return sum;
}

/* grad_dtype rounds gradients before anything looks at them. */
static MxValue read_gradient(MxTrainState *s, MxTrace *t, int i) {
    MxDtype dtype;
    int var = s->var.gradient[i];
    bool known = mx_dtype_parse(s->config->grad_dtype, &dtype);
    MX_ASSERT(known);
    MxValue g = s->sharding[var].partial ? sum_up(s, t, i) : mx_variable(t, var);
    return mx_cast(t, mx_cast(t, g, dtype), MX_F32);
}

/* Steps one parameter, in float32 whatever it is kept in; returns its new value. */
static MxValue trace_step(MxTrainState *s, MxTrace *t, int i, MxValue g, MxValue hyper,
                          MxValue clip) {
    const Optimizer *optimizer = s->optimizer;
    const MxLeaf *leaf = &mx_model_params(s->model)->leaves[i];
    t->scope = leaf->path;
    Moments v = {.p = mx_cast(t, mx_variable(t, s->var.param[i]), MX_F32),
                 .g = g,
                 .decays = train_decays(t, s->config, leaf)};
    for (int m = 0; m < optimizer->n_moments; m++) v.m[m] = mx_variable(t, s->var.moment[m][i]);
    optimizer->trace(t, s->config, &v, hyper, clip);
    v.p = mx_cast(t, v.p, leaf->dtype);
    mx_trace_assign(t, v.p, s->var.param[i], false);
    for (int m = 0; m < optimizer->n_moments; m++)
        mx_trace_assign(t, v.m[m], s->var.moment[m][i], false);
    return v.p;
}

/* What is frozen is not read: its part of the parameters' norm does not change (trace_frozen). */
static void trace_update(MxTrainState *s, MxTrace *t) {
    int n = mx_model_params(s->model)->n, n_trained = 0;
    MxValue *g = mx_new_n(s->arena, MxValue, n), *trained = mx_new_n(s->arena, MxValue, n);
    MxValue hyper = mx_variable(t, s->var.hyper);
    t->scope = "update";
    for (int i = 0; i < n; i++)
        if (s->var.gradient[i] != MX_NONE) trained[n_trained++] = g[i] = read_gradient(s, t, i);
    MxValue squares = mx_sum_squares(t, trained, n_trained);
    mx_trace_assign(t, squares, s->var.out[OUT_GRAD_SQUARES], false);
    double threshold = s->config->gradient_clipping_threshold;
    MxValue clip = mx_clip_factor(t, squares, threshold > 0 ? threshold : INFINITY);
    n_trained = 0;
    for (int i = 0; i < n; i++)
        if (s->var.gradient[i] != MX_NONE)
            trained[n_trained++] = trace_step(s, t, i, g[i], hyper, clip);
    t->scope = "update";
    MxValue norm = mx_sum_squares(t, trained, n_trained);
    mx_trace_assign(t, norm, s->var.out[OUT_PARAM_SQUARES], false);
}

const Entry entry_update = {"update", trace_update, train_trains};

/* ---- a step */

void train_set_step(MxTrainState *s, int64_t step) {
    *s->step = (uint32_t)step;
    for (int i = 0; i < MX_COUNT(s->counts) && s->counts[i]; i++) *s->counts[i] = (int32_t)step;
}

MxUpdate mx_train_update(MxTrainState *s) {
    const MxConfig *c = s->config;
    int64_t step = *s->step;
    float hyper[MX_HYPER_COUNT];
    hyper[MX_HYPER_LR] = (float)mx_learning_rate(c, step);
    hyper[MX_HYPER_BIAS1] = (float)(1 - pow(c->adam_b1, (double)step + 1));
    hyper[MX_HYPER_BIAS2] = (float)(1 - pow(c->adam_b2, (double)step + 1));
    train_write_all(s, s->var.hyper, hyper);
    train_run_entry(s, &entry_update);
    train_changed(s);
    train_set_step(s, step + 1);
    double norm = sqrt(train_out(s, OUT_GRAD_SQUARES)), threshold = c->gradient_clipping_threshold;
    return (MxUpdate){.learning_rate = hyper[MX_HYPER_LR],
                      .raw_grad_norm = norm,
                      .grad_norm = threshold > 0 && norm >= threshold ? threshold : norm,
                      .param_norm =
                          sqrt(train_out(s, OUT_PARAM_SQUARES) + train_out(s, OUT_FROZEN_SQUARES))};
}
