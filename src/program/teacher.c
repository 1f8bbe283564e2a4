/* teacher.c — the teacher of distillation as a part of a program: a second model on the same
 * batches, its parameters, which do not change, and the numbers of a step; or its largest logits,
 * which the teacher alone, as the model of a program that evaluates, computed before the first step
 * (offline_data_dir). Checkpoints do not contain it; they identify it by a fingerprint. The room
 * train loads it. */
#include "teacher.h"

#include "internal.h"

#include <math.h>

static bool is_wanted(const MxConfig *config) {
    return mx_config_distils(config) || config->is_teacher;
}

static bool is_offline(const MxConfig *config) {
    return config->offline_data_dir != NULL;
}

Teacher *teacher_of(const MxTrainState *s) {
    return program_part(s, PART_teacher);
}

static bool open_model(MxTrainState *s, Teacher *own, MxError *err) {
    return (mx_model_new(s->arena, s->config->teacher, &own->model, err) &&
            (s->is_planned || mx_train_read_tokens(s->arena, own->model, s->config, err))) ||
           mx_context(err, "the teacher");
}

static MxShape row_of(const MxConfig *config) {
    return MX_SHAPE(config->max_target_length, config->distill_top_k);
}

static void declare_top(MxTrainState *s, Teacher *own) {
    const MxShape row = row_of(s->config);
    own->top = program_declare_wide_input(s, "teacher_logits", MX_F32, row);
    own->ids = program_declare_wide_input(s, "teacher_ids", MX_I32, row);
}

/* Whether a program learns from the largest logits, or makes them. */
static bool has_top(const MxTrainState *s) {
    return is_offline(s->config) && (program_is_training(s) || s->config->is_teacher);
}

/* Evaluation measures the student alone. */
static bool declare(MxTrainState *s, MxError *err) {
    Teacher *own = teacher_of(s);
    if (s->config->teacher && !open_model(s, own, err)) return false;
    if (has_top(s)) declare_top(s, own);
    if (!program_is_training(s)) return true;
    if (own->model) own->vars = program_declare_tree(s, "teacher", mx_model_params(own->model));
    own->numbers =
        program_add_var(s, "in", "distill", (MxType){MX_F32, MX_SHAPE(MX_DISTILL_NUMBERS)});
    return true;
}

static void show(MxTrainState *s) {
    Teacher *own = teacher_of(s);
    mx_tree_init(&own->tree, s->arena);
    if (own->vars) {
        const MxTree *params = mx_model_params(own->model);
        MxLeaf *leaf = mx_tree_add_under(&own->tree, "model", params);
        for (int i = 0; i < params->n; i++) program_show_var(s, &leaf[i], own->vars[i]);
    }
    own->fingerprint = mx_new(s->arena, int64_t);
    program_add_counter(s, "mxtrain/teacher_fingerprint", MX_I64, own->fingerprint);
}

MxModelSide teacher_side(MxTrainState *s, MxTrace *t, MxModelInputs in) {
    const Teacher *own = teacher_of(s);
    MxValue *params = program_read_tree(s, t, mx_model_params(own->model), own->vars);
    return (MxModelSide){own->model, params, mx_model_hidden(t, own->model, params, in)};
}

/* ---- the largest logits */

/* All of a micro-batch of training, by the model of a program that is the teacher's own. */
static void trace_teach(MxTrainState *s, MxTrace *t) {
    const Teacher *own = teacher_of(s);
    const int *batch = s->var.batch[false];
    MxValue *params = program_read_held(s, t);
    MxModelInputs in = program_plain(program_inputs(s, t, batch));
    MxModelSide side = {s->model, params, mx_model_hidden(t, s->model, params, in)};
    MxValue weights = mx_variable(t, batch[MX_TARGETS_SEGMENTATION]);
    MxValue top = mx_model_top(t, side, weights, s->config->distill_top_k);
    if (top < 0) return;
    mx_trace_assign(t, top, batch[own->top], false);
    mx_trace_assign(t, top + 1, batch[own->ids], false);
}

static bool teaches(const MxTrainState *s) {
    return s->config->is_teacher && is_offline(s->config) && s->purpose == PURPOSE_EVALUATES;
}

static const Entry entry_teach = {.name = "teach", .trace = trace_teach, .is_wanted = teaches};
static const Entry *const entries[] = {&entry_teach, NULL};

bool mx_train_teaches_first(const MxConfig *c, MxComm *comm, bool *teaches, MxError *err) {
    bool is_there = true;
    if (mx_config_distils(c) && is_offline(c) &&
        !precomputed_is_there(c->offline_data_dir, comm, &is_there, err))
        return false;
    *teaches = !is_there;
    if (is_there || c->offline_teacher) return true;
    mx_config_fail(err, c, MX_KEY_offline_data_dir, "there is no folder %s", c->offline_data_dir);
    mx_note(err, "hint: teacher_overrides describes the teacher that makes it");
    return false;
}

static bool open_logits(MxTrainState *s, MxDataset *const data[2], MxError *err) {
    const MxConfig *c = s->config;
    Teacher *own = teacher_of(s);
    if (!has_top(s)) return true;
    const MxShape row = row_of(c);
    if (c->is_teacher) *own->fingerprint = mx_train_fingerprint(s);
    const PrecomputedSetup setup = {
        .what = "the teacher's largest logits",
        .noun = "logits",
        .maker = "teacher",
        .file_name = "logits.h5",
        .dir = c->offline_data_dir,
        .key = MX_KEY_offline_data_dir,
        .fingerprint = own->fingerprint,
        .n_arrays = 2,
        .array = {{"logits", MX_F32, own->top, row}, {"ids", MX_I32, own->ids, row}},
        .entry = {c->is_teacher ? &entry_teach : NULL, NULL},
        .data = {data[0], NULL}};
    return precomputed_open(s, &setup, &own->logits, err);
}

/* ---- while it is run */

/* Of all steps, not of the last one. Source: MaxText distillation_utils.py, compute_schedule; it
 * has no other length of schedules than the run's. */
static bool before_batch(MxTrainState *s, bool is_eval, int64_t i, const MxBatch *batch,
                         MxError *err) {
    Teacher *own = teacher_of(s);
    const MxConfig *c = s->config;
    if (is_eval) return true;
    double steps = (double)c->learning_rate_schedule_steps;
    double at = fmin((double)mx_train_state_step(s) / fmax(steps, 1), 1);
    float numbers[MX_DISTILL_NUMBERS];
    numbers[MX_DISTILL_ALPHA] = (float)program_between(c->distill_alpha_schedule, c->distill_alpha,
                                                       c->distill_alpha_end, at);
    numbers[MX_DISTILL_TEMPERATURE] = (float)program_between(
        c->distill_temperature_schedule, c->distill_temperature, c->distill_temperature_end, at);
    numbers[MX_DISTILL_BETA] =
        (float)program_between(c->distill_beta_schedule, c->distill_beta, c->distill_beta_end, at);
    program_write_all(s, own->numbers, numbers);
    return !own->logits || precomputed_give(s, own->logits, false, i, batch, err);
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
    .entries = entries,
    .show = show,
    .open = open_logits,
    .before_batch = before_batch,
    .takes_rows = is_offline, /* it knows rows by all of their tokens */
};
