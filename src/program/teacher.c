/* teacher.c — the teacher of distillation as a part of a program: a second model on the same
 * batches, its parameters, which do not change, and the numbers of a step. Checkpoints do not
 * contain it; they identify it by a fingerprint. The room train loads it. */
#include "teacher.h"

#include "internal.h"

#include <math.h>

static bool is_wanted(const MxConfig *config) {
    return config->teacher != NULL;
}

Teacher *teacher_of(const MxTrainState *s) {
    return program_part(s, PART_teacher);
}

/* Evaluation measures the student alone. */
static bool declare(MxTrainState *s, MxError *err) {
    Teacher *own = teacher_of(s);
    if (!mx_model_new(s->arena, s->config->teacher, &own->model, err) ||
        (!s->is_planned && !mx_train_read_tokens(s->arena, own->model, s->config, err)))
        return mx_context(err, "the teacher");
    if (!program_is_training(s)) return true;
    own->vars = program_declare_tree(s, "teacher", mx_model_params(own->model));
    own->numbers =
        program_add_var(s, "in", "distill", (MxType){MX_F32, MX_SHAPE(MX_DISTILL_NUMBERS)});
    return true;
}

static void show(MxTrainState *s) {
    Teacher *own = teacher_of(s);
    const MxTree *params = mx_model_params(own->model);
    mx_tree_init(&own->tree, s->arena);
    MxLeaf *leaf = own->vars ? mx_tree_add_under(&own->tree, "model", params) : NULL;
    for (int i = 0; leaf && i < params->n; i++) program_show_var(s, &leaf[i], own->vars[i]);
    own->fingerprint = mx_new(s->arena, int64_t);
    program_add_counter(s, "mxtrain/teacher_fingerprint", MX_I64, own->fingerprint);
}

MxModelSide teacher_side(MxTrainState *s, MxTrace *t, MxModelInputs in) {
    const Teacher *own = teacher_of(s);
    MxValue *params = program_read_tree(s, t, mx_model_params(own->model), own->vars);
    return (MxModelSide){own->model, params, mx_model_hidden(t, own->model, params, in)};
}

/* ---- while it is run */

/* Of all steps, not of the last one. Source: MaxText distillation_utils.py, compute_schedule; it
 * has no other length of schedules than the run's. */
static bool before_batch(MxTrainState *s, bool is_eval, int64_t i, const MxBatch *batch,
                         MxError *err) {
    (void)i;
    (void)batch;
    (void)err;
    const MxConfig *c = s->config;
    double steps = (double)c->learning_rate_schedule_steps;
    double at = fmin((double)mx_train_state_step(s) / fmax(steps, 1), 1);
    float numbers[MX_DISTILL_NUMBERS];
    numbers[MX_DISTILL_ALPHA] = (float)program_between(c->distill_alpha_schedule, c->distill_alpha,
                                                       c->distill_alpha_end, at);
    numbers[MX_DISTILL_TEMPERATURE] = (float)program_between(
        c->distill_temperature_schedule, c->distill_temperature, c->distill_temperature_end, at);
    numbers[MX_DISTILL_BETA] =
        (float)program_between(c->distill_beta_schedule, c->distill_beta, c->distill_beta_end, at);
    if (!is_eval) program_write_all(s, teacher_of(s)->numbers, numbers);
    return true;
}

/* ---- told to others */

const MxModel *mx_train_teacher(const MxTrainState *s) {
    return teacher_of(s) ? teacher_of(s)->model : NULL;
}

MxTree *mx_train_teacher_tree(MxTrainState *s) {
    Teacher *own = teacher_of(s);
    return own && own->vars ? &own->tree : NULL;
}

int64_t *mx_train_teacher_fingerprint(const MxTrainState *s) {
    return teacher_of(s) ? teacher_of(s)->fingerprint : NULL;
}

const Part part_teacher = {
    .is_wanted = is_wanted,
    .bytes = sizeof(Teacher),
    .declare = declare,
    .show = show,
    .before_batch = before_batch,
};
