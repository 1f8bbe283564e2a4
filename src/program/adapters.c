/* adapters.c — the part of a program that trains adapters: its checkpoints omit the base, which
 * does not change, and identify it by a fingerprint, which restore.c uses; and the values that
 * begin as something of the base: magnitudes (lora.use_dora) as norms, and what is trained in the
 * place of a weight (lora.modules_to_save) as that weight. */
#include <mx/program.h>

#include "internal.h"

#include <math.h>

typedef struct Adapters {
    int64_t *fingerprint; /* the leaf "mxtrain/base_fingerprint" */
} Adapters;

static bool is_wanted(const MxConfig *config) {
    return config->enable_lora;
}

static void show(MxTrainState *s) {
    Adapters *own = program_part(s, PART_adapters);
    own->fingerprint = mx_new(s->arena, int64_t);
    program_add_counter(s, "mxtrain/base_fingerprint", MX_I64, own->fingerprint);
}

static bool leaves_out(const MxLeaf *leaf) {
    return leaf->kind == MX_KIND_PARAM;
}

int64_t *mx_train_base_fingerprint(const MxTrainState *s) {
    const Adapters *own = program_part(s, PART_adapters);
    return own ? own->fingerprint : NULL;
}

/* ---- at first */

/* What was read with the base, by load_parameters_path, stays; what was not is all 0. */
static void begin_as(MxTrainState *s, MxTrace *t, const MxValue *values, int param, MxValue first) {
    MxDtype dtype = mx_model_params(s->model)->leaves[param].dtype;
    MxValue read = mx_cast(t, values[param], MX_F32);
    MxValue begun = mx_select(t, first, read, mx_sum_squares(t, &read, 1));
    mx_trace_assign(t, mx_cast(t, begun, dtype), program_held(s, param), false);
}

/* Casts of the parameter itself would be kept beside it, and made after this (mx_hoist_casts). */
static MxValue copy_of(MxTrace *t, MxValue base) {
    return mx_cast(t, mx_copy(t, base), MX_F32);
}

static void trace_adapters(MxTrainState *s, MxTrace *t) {
    const MxTree *params = mx_model_params(s->model);
    MxValue *values = program_read_held(s, t);
    for (int i = 0; i < params->n; i++) {
        int m = mx_model_magnitude(s->model, i), whole = mx_model_whole(s->model, i);
        t->scope = params->leaves[i].path;
        if (m >= 0) begin_as(s, t, values, m, mx_model_norms(t, s->model, values, i));
        if (whole >= 0) begin_as(s, t, values, whole, copy_of(t, values[i]));
    }
}

static bool begins(const MxTrainState *s) {
    const MxLora *lora = mx_model_lora(s->model);
    return s->config->lora_use_dora || lora->n_whole;
}

/* adapters: the values they begin with. */
static const Entry entry_adapters = {
    .name = "adapters", .trace = trace_adapters, .is_wanted = begins};
static const Entry *const entries[] = {&entry_adapters, NULL};

/* Those of one kernel; every rank has all of them. */
static bool check_magnitudes(const MxTrainState *s, int kernel, MxError *err) {
    MxArena arena = {.name = "magnitudes"};
    const MxTree *params = mx_model_params(s->model);
    int m = mx_model_magnitude(s->model, kernel);
    if (m < 0) return true;
    const MxLeaf *leaf = &params->leaves[m];
    int64_t n = mx_shape_count(leaf->shape), at = 0;
    void *values = mx_arena_alloc(&arena, (size_t)n * mx_dtype_bytes(leaf->dtype));
    program_read_all(s, program_held(s, m), values);
    while (at < n && isfinite(leaf->dtype == MX_BF16 ? mx_bf16_to_f32(((MxBf16 *)values)[at])
                                                     : ((float *)values)[at]))
        at++;
    mx_arena_release(&arena);
    return at == n ||
           mx_config_fail(err, s->config, MX_KEY_lora_use_dora,
                          "the weights of output %lld of \"%s\" have no direction: they are all 0, "
                          "or one of them is no number",
                          (long long)at, params->leaves[kernel].path);
}

bool mx_train_start_adapters(MxTrainState *s, MxError *err) {
    bool ok = true;
    if (!program_part(s, PART_adapters) || !begins(s)) return true;
    program_run_alone(s, &entry_adapters);
    for (int i = 0; ok && i < mx_model_params(s->model)->n; i++) ok = check_magnitudes(s, i, err);
    return ok;
}

const Part part_adapters = {
    .is_wanted = is_wanted,
    .bytes = sizeof(Adapters),
    .entries = entries,
    .show = show,
    .leaves_out = leaves_out,
};
