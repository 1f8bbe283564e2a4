/* magnitudes.c — the part of a program whose adapters have magnitudes (lora.use_dora): an entry
 * that gives them the values they begin with, and quotients of magnitudes and norms for replies,
 * which would else make norms of all weights for every token. */
#include <mx/program.h>

#include "internal.h"

#include <math.h>

typedef struct Magnitudes {
    int *factor; /* [parameter] of magnitudes: a variable of quotients; NULL = there are no replies
                  */
    const MxModel *model; /* that reads these in their place */
    bool are_known;       /* they are made of the parameters as these are now */
} Magnitudes;

static bool is_wanted(const MxConfig *config) {
    return config->enable_lora && config->lora_use_dora;
}

/* ---- at first */

/* Those that were read with the base, by load_parameters_path, stay; none of them are all 0. */
static void trace_magnitudes(MxTrainState *s, MxTrace *t) {
    const MxTree *params = mx_model_params(s->model);
    MxValue *values = program_read_held(s, t);
    for (int i = 0; i < params->n; i++) {
        int m = mx_model_magnitude(s->model, i);
        if (m < 0) continue;
        t->scope = params->leaves[m].path;
        MxValue read = mx_cast(t, values[m], MX_F32);
        MxValue begun =
            mx_select(t, mx_model_norms(t, s->model, values, i), read, mx_sum_squares(t, &read, 1));
        mx_trace_assign(t, mx_cast(t, begun, params->leaves[m].dtype), program_held(s, m), false);
    }
}

static const Entry entry_magnitudes = {.name = "magnitudes", .trace = trace_magnitudes};

/* Those of one kernel; every rank has all of them. */
static bool check_magnitudes(const MxTrainState *s, int kernel, MxError *err) {
    MxArena arena = {.name = "magnitudes"};
    const MxTree *params = mx_model_params(s->model);
    int m = mx_model_magnitude(s->model, kernel);
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

bool mx_train_start_magnitudes(MxTrainState *s, MxError *err) {
    bool ok = true;
    if (!program_part(s, PART_magnitudes)) return true;
    program_run_alone(s, &entry_magnitudes);
    for (int i = 0; ok && i < mx_model_params(s->model)->n; i++)
        ok = mx_model_magnitude(s->model, i) < 0 || check_magnitudes(s, i, err);
    return ok;
}

/* ---- for replies */

void program_declare_factors(MxTrainState *s) {
    Magnitudes *own = program_part(s, PART_magnitudes);
    if (!own) return;
    int n = mx_model_params(s->model)->n;
    own->factor = mx_new_n(s->arena, int, n);
    own->model = mx_model_with_factors(s->arena, s->model);
    for (int i = 0; i < n; i++) {
        int m = mx_model_magnitude(s->model, i);
        if (m >= 0) own->factor[m] = program_declare_like(s, "factor", m, MX_F32);
    }
}

const MxModel *program_with_factors(MxTrainState *s, MxTrace *t, MxValue *params) {
    const Magnitudes *own = program_part(s, PART_magnitudes);
    if (!own) return s->model;
    for (int i = 0; i < mx_model_params(s->model)->n; i++) {
        int m = mx_model_magnitude(s->model, i);
        if (m >= 0) params[m] = mx_variable(t, own->factor[m]);
    }
    return own->model;
}

static void trace_factors(MxTrainState *s, MxTrace *t) {
    const Magnitudes *own = program_part(s, PART_magnitudes);
    const MxTree *params = mx_model_params(s->model);
    MxValue *values = program_read_held(s, t);
    for (int i = 0; i < params->n; i++) {
        int m = mx_model_magnitude(s->model, i);
        if (m < 0) continue;
        t->scope = params->leaves[m].path;
        mx_trace_assign(t, mx_model_factors(t, s->model, values, i), own->factor[m], false);
    }
}

static bool has_factors(const MxTrainState *s) {
    const Magnitudes *own = program_part(s, PART_magnitudes);
    return own->factor != NULL;
}

const Entry entry_factors = {.name = "factors", .trace = trace_factors, .is_wanted = has_factors};

void program_make_factors(MxTrainState *s) {
    Magnitudes *own = program_part(s, PART_magnitudes);
    if (!own || own->are_known) return;
    program_run_entry(s, &entry_factors);
    own->are_known = true;
}

static void changed(MxTrainState *s) {
    Magnitudes *own = program_part(s, PART_magnitudes);
    own->are_known = false;
}

static const Entry *const entries[] = {&entry_magnitudes, &entry_factors, NULL};

const Part part_magnitudes = {
    .is_wanted = is_wanted,
    .bytes = sizeof(Magnitudes),
    .entries = entries,
    .changed = changed,
};
