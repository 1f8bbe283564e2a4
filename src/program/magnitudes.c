/* magnitudes.c — the part of a program whose adapters have magnitudes (lora.use_dora): quotients of
 * magnitudes and norms for replies, which would else make norms of all weights for every token. */
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

static const Entry *const entries[] = {&entry_factors, NULL};

const Part part_magnitudes = {
    .is_wanted = is_wanted,
    .bytes = sizeof(Magnitudes),
    .entries = entries,
    .changed = changed,
};
