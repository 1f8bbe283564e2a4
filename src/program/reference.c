/* reference.c — the reference model of preference training as a part of a program: the variables of
 * a copy, or a precomputed input of every batch, and the entries that compute them. */
#include "reference.h"

#include "internal.h"

static bool is_wanted(const MxConfig *config) {
    const Loss *loss = program_loss(config);
    return loss->has_reference && loss->has_reference(config);
}

bool reference_is_precomputed(const MxConfig *config) {
    return !strcmp(config->dpo_reference, "precomputed");
}

static bool is_copy(const MxConfig *config) {
    if (reference_is_precomputed(config)) return false;
    return !config->enable_lora || !strcmp(config->dpo_reference, "copy");
}

const int *reference_copy(const MxTrainState *s) {
    const Reference *own = program_part(s, PART_reference);
    return own ? own->copy : NULL;
}

bool reference_is_policy(const MxTrainState *s) {
    const Reference *own = program_part(s, PART_reference);
    return own && own->is_policy;
}

static bool declare(MxTrainState *s, MxError *err) {
    (void)err;
    Reference *own = program_part(s, PART_reference);
    bool copies = is_copy(s->config);
    own->model = copies ? s->model : mx_model_without_adapters(s->arena, s->model);
    own->logp = MX_NONE;
    if (copies) own->copy = program_declare_copy(s, "reference_model");
    if (reference_is_precomputed(s->config))
        own->logp = program_declare_input(s, "reference_logp", MX_F32);
    return true;
}

static void show(MxTrainState *s) {
    Reference *own = program_part(s, PART_reference);
    MxLeaf *leaf = own->copy ? program_show_each(s, "reference_model", own->copy) : NULL;
    for (int i = 0; leaf && i < mx_model_params(s->model)->n; i++) leaf[i].kind = MX_KIND_REFERENCE;
    if (own->logp == MX_NONE) return;
    own->fingerprint = mx_new(s->arena, int64_t);
    program_add_counter(s, "mxtrain/reference_fingerprint", MX_I64, own->fingerprint);
}

/* ---- entries */

static MxValue run_model(MxTrainState *s, MxTrace *t, const MxValue *params, const int *batch) {
    const Reference *own = program_part(s, PART_reference);
    if (own->copy) params = program_read_vars(s, t, own->copy);
    MxModelInputs in = program_plain(program_inputs(s, t, batch));
    return program_logp(t, own->model, params, batch, in, NULL);
}

MxValue reference_logp(MxTrainState *s, MxTrace *t, const MxValue *params, const int *batch) {
    const Reference *own = program_part(s, PART_reference);
    if (own->logp != MX_NONE) return mx_variable(t, batch[own->logp]);
    return run_model(s, t, params, batch);
}

static void trace_batch(MxTrainState *s, MxTrace *t, const int *batch) {
    const Reference *own = program_part(s, PART_reference);
    MxValue *params = program_read_held(s, t);
    mx_trace_assign(t, run_model(s, t, params, batch), batch[own->logp], false);
}

static void trace_refer(MxTrainState *s, MxTrace *t) {
    trace_batch(s, t, s->var.batch[false]);
}

static void trace_refer_eval(MxTrainState *s, MxTrace *t) {
    trace_batch(s, t, s->var.batch[true]);
}

static void trace_take(MxTrainState *s, MxTrace *t) {
    const int n = mx_model_params(s->model)->n;
    int *held = mx_new_n(s->arena, int, n);
    for (int i = 0; i < n; i++) held[i] = program_held(s, i);
    program_trace_copy(s, t, held, reference_copy(s));
}

/* Every parameter of the copy moves by the same share of its way to the policy's. Source:
 * Gorbatovski et al. 2024 (TR-DPO); TRL 1.16, SyncRefModelCallback. */
static void trace_move(MxTrainState *s, MxTrace *t) {
    const MxTree *params = mx_model_params(s->model);
    const int *copy = reference_copy(s);
    double share = s->config->reference_mixup;
    for (int i = 0; i < params->n; i++) {
        t->scope = params->leaves[i].path;
        MxValue to = mx_scale(t, mx_variable(t, program_held(s, i)), share);
        MxValue from = mx_scale(t, mx_variable(t, copy[i]), 1 - share);
        mx_trace_assign(t, mx_add(t, from, to), copy[i], false);
    }
}

static bool has_copy(const MxTrainState *s) {
    return reference_copy(s) != NULL;
}

static bool is_precomputed(const MxTrainState *s) {
    return reference_is_precomputed(s->config);
}

static bool refers(const MxTrainState *s) {
    return is_precomputed(s) && program_is_training(s);
}

static bool moves(const MxTrainState *s) {
    return has_copy(s) && program_is_training(s) && s->config->reference_sync_steps;
}

/* take: makes the copy equal to the policy; move: brings it nearer; refer: log-probabilities of a
 * micro-batch. */
static const Entry entry_take = {.name = "take", .trace = trace_take, .is_wanted = has_copy};
static const Entry entry_move = {.name = "move", .trace = trace_move, .is_wanted = moves};
const Entry entry_refer = {.name = "refer", .trace = trace_refer, .is_wanted = refers};
static const Entry entry_refer_eval = {
    .name = "refer_eval", .trace = trace_refer_eval, .is_wanted = is_precomputed};
static const Entry *const entries[] = {&entry_take, &entry_move, &entry_refer, &entry_refer_eval,
                                       NULL};

/* ---- while it is run */

static void begin(MxTrainState *s) {
    Reference *own = program_part(s, PART_reference);
    own->is_policy = own->copy || (own->fingerprint && !s->config->enable_lora);
    if (own->copy) program_run_alone(s, &entry_take);
    if (own->fingerprint) *own->fingerprint = mx_train_fingerprint(s);
}

static void changed(MxTrainState *s) {
    Reference *own = program_part(s, PART_reference);
    own->is_policy = false;
}

static void stepped(MxTrainState *s) {
    if (moves(s) && *s->step % s->config->reference_sync_steps == 0)
        program_run_alone(s, &entry_move);
}

/* The folder dpo.reference_logps, or "reference" in the run's. Only the policy as it starts can
 * make it. */
static bool open_logps(MxTrainState *s, MxDataset *const data[2], MxError *err) {
    const MxConfig *c = s->config;
    Reference *own = program_part(s, PART_reference);
    if (own->logp == MX_NONE) return true;
    PrecomputedSetup setup = {
        .what = "the reference's log-probabilities",
        .noun = "log-probabilities",
        .maker = "policy",
        .file_name = "logps.h5",
        .dir = c->dpo_reference_logps ? c->dpo_reference_logps
                                      : mx_path_join(s->arena, c->run_dir, "reference"),
        .key = MX_KEY_dpo_reference_logps,
        .fingerprint = own->fingerprint,
        .n_arrays = 1,
        .array = {{"logp", MX_F32, own->logp, MX_SHAPE(c->max_target_length)}},
        .data = {data[0], data[1]}};
    if (!mx_train_state_step(s)) {
        setup.entry[false] = &entry_refer;
        setup.entry[true] = &entry_refer_eval;
    }
    return precomputed_open(s, &setup, &own->logps, err);
}

static bool give_logps(MxTrainState *s, bool is_eval, int64_t i, const MxBatch *batch,
                       MxError *err) {
    Reference *own = program_part(s, PART_reference);
    return !own->logps || precomputed_give(s, own->logps, is_eval, i, batch, err);
}

static bool evaluates(const MxConfig *config, MxError *err) {
    return !reference_is_precomputed(config) ||
           mx_config_fail(err, config, MX_KEY_dpo_reference,
                          "precomputed log-probabilities are made when training begins; there is "
                          "nothing to compare with before");
}

const Part part_reference = {
    .is_wanted = is_wanted,
    .bytes = sizeof(Reference),
    .declare = declare,
    .entries = entries,
    .show = show,
    .begin = begin,
    .open = open_logps,
    .before_batch = give_logps,
    .changed = changed,
    .stepped = stepped,
    .evaluates = evaluates,
    .takes_rows = reference_is_precomputed, /* it knows rows by all of their tokens */
};
