/* update.c — an optimizer's step: what it keeps as variables and leaves of the state, the entry
 * that sums the gradient up where ranks have parts of the sum, clips it, and lets the optimizer
 * make new parameters in place, and running that entry. */
#include <mx/program.h>

#include "internal.h"

#include <math.h>

/* ---- variables and leaves */

void program_declare_kept(MxTrainState *s) {
    const MxType hyper = {MX_F32, MX_SHAPE(MX_HYPER_COUNT)}, limit = {MX_F32, MX_SHAPE(2)};
    const MxOptim *o = s->optim;
    s->var.kept = mx_new_n(s->arena, int, o->n_arrays);
    s->var.hyper = mx_new_n(s->arena, int, o->n_paces);
    for (int i = 0; i < o->n_arrays; i++) {
        const MxLeaf *leaf = &o->arrays[i].leaf;
        s->var.kept[i] = MX_NONE;
        if (!program_is_training(s)) continue;
        s->var.kept[i] = program_add_var(s, "kept", leaf->path, (MxType){leaf->dtype, leaf->shape});
        s->vars.item[s->var.kept[i]].is_on_disk = s->config->optimizer_memory_disk != NULL;
    }
    for (int i = 0; i < o->n_paces; i++)
        s->var.hyper[i] = program_add_var(s, "hyper", mx_optim_pace(s->arena, o, i), hyper);
    s->var.spike_limit =
        mx_optim_leaves_out(o) ? program_add_var(s, "in", "spike_limit", limit) : MX_NONE;
}

/* Without data where nothing is trained: a checkpoint has them. */
void program_show_kept(MxTrainState *s) {
    for (int i = 0; i < s->optim->n_arrays; i++) {
        int at = mx_tree_add(&s->tree, s->optim->arrays[i].leaf);
        if (s->purpose == PURPOSE_TRAINS) program_show_var(s, &s->tree.leaves[at], s->var.kept[i]);
    }
}

void program_show_numbers(MxTrainState *s) {
    const MxTree *numbers = &s->optim->numbers;
    for (int i = 0; i < numbers->n; i++) {
        MxLeaf leaf = numbers->leaves[i];
        leaf.division = program_division(s, (MxSharding){0}, leaf.shape);
        mx_tree_add(&s->counters, leaf);
    }
}

/* ---- the entry */

/* A variable that is cut as the optimizer works on a parameter. */
static int cut_like(const MxTrainState *s, int param) {
    const MxShape shape = s->optim->params->leaves[param].shape;
    for (int slot = 0; slot < MX_OPTIM_KEPT; slot++) {
        int array = s->optim->array[param * MX_OPTIM_KEPT + slot];
        if (array != MX_NONE && mx_shape_equal(s->optim->arrays[array].leaf.shape, shape))
            return s->var.kept[array];
    }
    return s->var.param[param];
}

/* A gradient of which every rank has a sum of its own becomes what the optimizer works on: in the
 * same buffer if that is as large, and nothing is to stay there. */
static MxValue sum_up(MxTrainState *s, MxTrace *t, int i) {
    int var = s->var.gradient[i], like = cut_like(s, i);
    MxValue sum = mx_trace_like(t, mx_copy(t, mx_variable(t, var)), like);
    if (program_keeps_lost(s, i)) return mx_trace_send_as(t, sum, program_wire(s->config), var);
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

/* Floats in any case. */
static void read_kept(MxTrainState *s, MxTrace *t, int param, MxOptimStep *step) {
    for (int slot = 0; slot < MX_OPTIM_KEPT; slot++) {
        int array = s->optim->array[param * MX_OPTIM_KEPT + slot];
        if (array == MX_NONE) continue;
        const MxOptimArray *of = &s->optim->arrays[array];
        const MxQuantAttr attr = {.dtype = MX_F32, .quant = of->leaf.quant};
        MxValue value = mx_variable(t, s->var.kept[array]);
        if (of->scales != MX_NONE)
            value = mx_dequantized(t, value, mx_variable(t, s->var.kept[of->scales]), attr);
        step->kept[slot] = value;
    }
}

static void assign_kept(MxTrainState *s, MxTrace *t, int param, const MxOptimStep *step) {
    for (int slot = 0; slot < MX_OPTIM_KEPT; slot++) {
        int array = s->optim->array[param * MX_OPTIM_KEPT + slot];
        if (array == MX_NONE) continue;
        const MxOptimArray *of = &s->optim->arrays[array];
        MxValue value = step->kept[slot];
        if (of->scales != MX_NONE) {
            value = mx_quantized(t, value, of->leaf.quant);
            if (value != MX_NONE) mx_trace_assign(t, value + 1, s->var.kept[of->scales], false);
        }
        mx_trace_assign(t, value, s->var.kept[array], false);
    }
}

/* Steps one parameter, in float32 whatever it is kept in; returns its new value. */
static MxValue trace_step(MxTrainState *s, MxTrace *t, int i, MxOptimStep step) {
    int pace = s->optim->pace[i];
    MxValue before = mx_variable(t, s->var.param[i]);
    step.p = mx_cast(t, before, MX_F32);
    if (pace != MX_NONE) {
        step.hyper = mx_variable(t, s->var.hyper[pace]);
        read_kept(s, t, i, &step);
        mx_optim_trace(t, s->optim, i, &step);
    }
    for (int k = 0; k < PART_COUNT; k++)
        if (s->part[k] && program_parts[k]->adjust)
            step.p = program_parts[k]->adjust(s, t, i, step.p);
    step.p = mx_cast(t, step.p, s->vars.item[s->var.param[i]].type.dtype);
    if (step.p == before) return before;
    mx_trace_assign(t, step.p, s->var.param[i], false);
    assign_kept(s, t, i, &step);
    return step.p;
}

MxValue *program_read_points(MxTrainState *s, MxTrace *t) {
    MxValue *values = program_read_params(s, t);
    for (int i = 0; i < mx_model_params(s->model)->n; i++) {
        if (!program_is_training(s) || !mx_optim_has_point(s->optim, i)) continue;
        MxOptimStep step = {.p = mx_cast(t, values[i], MX_F32)};
        read_kept(s, t, i, &step);
        values[i] = mx_optim_point(t, s->optim, i, &step);
    }
    return values;
}

/* Whether the update is left out, for a sum of squares of the gradient. */
static MxValue trace_spike(MxTrainState *s, MxTrace *t, MxValue squares, double threshold) {
    if (s->var.spike_limit == MX_NONE) return MX_NONE;
    MxValue is_left_out = mx_spike(t, squares, mx_variable(t, s->var.spike_limit), threshold);
    mx_trace_assign(t, is_left_out, s->var.out[OUT_IS_LEFT_OUT], false);
    return is_left_out;
}

static void show_gradient(MxTrainState *s, MxTrace *t, int i, MxValue g) {
    for (int k = 0; k < PART_COUNT; k++)
        if (s->part[k] && program_parts[k]->gradient) program_parts[k]->gradient(s, t, i, g);
}

/* What is frozen is not read: its part of the parameters' norm does not change (trace_frozen). */
static void trace_update(MxTrainState *s, MxTrace *t) {
    int n = mx_model_params(s->model)->n, n_trained = 0;
    MxValue *g = mx_new_n(s->arena, MxValue, n), *trained = mx_new_n(s->arena, MxValue, n);
    t->scope = "update";
    for (int i = 0; i < n; i++)
        if (s->var.gradient[i] != MX_NONE) {
            trained[n_trained++] = g[i] = read_gradient(s, t, i);
            show_gradient(s, t, i, g[i]);
        }
    MxValue squares = mx_sum_squares(t, trained, n_trained);
    mx_trace_assign(t, squares, s->var.out[OUT_GRAD_SQUARES], false);
    double threshold = s->config->gradient_clipping_threshold;
    if (threshold <= 0) threshold = INFINITY;
    MxOptimStep step = {.clip = mx_clip_factor(t, squares, threshold),
                        .is_left_out = trace_spike(s, t, squares, threshold)};
    n_trained = 0;
    for (int i = 0; i < n; i++)
        if (s->var.gradient[i] != MX_NONE) {
            step.g = g[i];
            MxValue value = trace_step(s, t, i, step);
            if (!mx_model_params(s->model)->leaves[i].is_unoptimized) trained[n_trained++] = value;
        }
    t->scope = "update";
    MxValue norm = mx_sum_squares(t, trained, n_trained);
    mx_trace_assign(t, norm, s->var.out[OUT_PARAM_SQUARES], false);
}

const Entry entry_update = {
    .name = "update", .trace = trace_update, .is_wanted = program_is_training};

/* ---- a step */

void program_set_step(MxTrainState *s, int64_t step) {
    *s->step = (uint32_t)step;
    mx_optim_start(s->optim, step);
}

/* Numbers of the next update. */
static void write_numbers(MxTrainState *s) {
    const int64_t at = mx_optim_count(s->optim);
    const MxRates rates = {mx_learning_rate(s->config, at), mx_learning_rate(s->config, at + 1)};
    float hyper[MX_HYPER_COUNT], limit[2];
    for (int i = 0; i < s->optim->n_paces; i++) {
        mx_optim_hyper(s->optim, i, rates, hyper);
        program_write_all(s, s->var.hyper[i], hyper);
    }
    if (s->var.spike_limit == MX_NONE) return;
    mx_optim_limit(s->optim, s->last_loss, limit);
    program_write_all(s, s->var.spike_limit, limit);
}

MxUpdate mx_train_update(MxTrainState *s) {
    const MxConfig *c = s->config;
    write_numbers(s);
    program_run_entry(s, &entry_update);
    program_changed(s);
    double norm = sqrt(program_out(s, OUT_GRAD_SQUARES)),
           threshold = c->gradient_clipping_threshold;
    MxUpdate update = {.learning_rate = (double)(float)mx_learning_rate(c, *s->step),
                       .raw_grad_norm = norm,
                       .grad_norm = threshold > 0 && norm >= threshold ? threshold : norm,
                       .was_left_out = program_out(s, OUT_IS_LEFT_OUT) != 0};
    update.param_norm =
        sqrt(program_out(s, OUT_PARAM_SQUARES) + program_out(s, OUT_FROZEN_SQUARES));
    ++*s->step;
    mx_optim_stepped(s->optim, s->last_loss, update.grad_norm, update.was_left_out);
    program_stepped(s);
    program_tell_all(s);
    program_join_update(s, &update);
    return update;
}
