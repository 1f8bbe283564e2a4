/* diagnostics.c — the part of a program that tells more of each step (log_step_diagnostics): the
 * largest magnitude of the gradient, and what moved the biases of routers. Source: MaxText
 * trainers/pre_train/train.py step_diagnostics @0.2.5. */
#include <mx/program.h>

#include "internal.h"

#include <math.h>

enum { MAX_GRADIENT, BIAS_SUM, BIASES_MOVED, OVERFLOW, FIGURES };

typedef struct Diagnostics {
    int *peaks; /* [parameter] variables: the largest magnitude of its gradient; MX_NONE = none */
    int metric; /* the first one */
} Diagnostics;

static bool is_wanted(const MxConfig *config) {
    return config->log_step_diagnostics;
}

static bool declare(MxTrainState *s, MxError *err) {
    static const struct {
        const char *name;
        MetricJoin join;
    } figures[FIGURES] = {[MAX_GRADIENT] = {"diag/max_abs_grad", METRIC_LARGEST},
                          [BIAS_SUM] = {"diag/moe_bias_checksum", METRIC_MEAN},
                          [BIASES_MOVED] = {"diag/moe_bias_update_nonzero", METRIC_MEAN},
                          [OVERFLOW] = {"diag/moe_overflow", METRIC_LARGEST}};
    Diagnostics *own = program_part(s, PART_diagnostics);
    const MxTree *params = mx_model_params(s->model);
    (void)err;
    own->peaks = mx_new_n(s->arena, int, params->n);
    own->metric = s->n_told;
    for (int f = 0; f < FIGURES; f++) program_add_metric(s, figures[f].name, figures[f].join);
    for (int i = 0; i < params->n; i++)
        own->peaks[i] =
            program_is_trained(s, &params->leaves[i])
                ? program_add_var(s, "peak", params->leaves[i].path, (MxType){MX_F32, MX_SCALAR})
                : MX_NONE;
    return true;
}

static void gradient(MxTrainState *s, MxTrace *t, int param, MxValue g) {
    const Diagnostics *own = program_part(s, PART_diagnostics);
    mx_trace_assign(t, mx_magnitude(t, g), own->peaks[param], false);
}

/* Choices of experts that found no room are not counted: buffers of a fraction of them do not
 * exist here. */
static void tell(MxTrainState *s) {
    const Diagnostics *own = program_part(s, PART_diagnostics);
    MovedRouters routers = program_moved_routers(s);
    double most = 0;
    for (int i = 0; i < mx_model_params(s->model)->n; i++) {
        double peak = own->peaks[i] == MX_NONE ? 0 : program_scalar(s, own->peaks[i]);
        if (peak > most || isnan(peak)) most = peak;
    }
    program_tell(s, own->metric + MAX_GRADIENT, most);
    program_tell(s, own->metric + BIAS_SUM, routers.sum);
    program_tell(s, own->metric + BIASES_MOVED, routers.n_moved);
    program_tell(s, own->metric + OVERFLOW, 0);
}

const Part part_diagnostics = {
    .is_wanted = is_wanted,
    .bytes = sizeof(Diagnostics),
    .declare = declare,
    .gradient = gradient,
    .tell = tell,
};
