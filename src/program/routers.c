/* routers.c — the part of a program that balances experts without a loss: a step counts how often
 * each expert was chosen, and moves the routers' biases towards experts that were chosen too
 * rarely. Source: Wang et al. 2024; DeepSeek-V3 (2024) 2.1.2; MaxText trainers/pre_train/train.py
 * @e591f30c. */
#include <mx/program.h>

#include "internal.h"

typedef struct Routers {
    MxValue *loads; /* [parameter] of the pass that is being traced */
    int *counts;    /* [parameter] variables; MX_NONE = it is no router's */
} Routers;

static bool is_wanted(const MxConfig *config) {
    return config->routed_bias && config->routed_bias_update_rate > 0 && !config->enable_lora;
}

static bool declare(MxTrainState *s, MxError *err) {
    (void)err;
    Routers *own = program_part(s, PART_routers);
    const MxTree *params = mx_model_params(s->model);
    int n;
    const int *routers = mx_model_routers(s->model, &n);
    own->loads = mx_new_n(s->arena, MxValue, params->n);
    own->counts = mx_new_n(s->arena, int, params->n);
    for (int i = 0; i < params->n; i++) own->loads[i] = own->counts[i] = MX_NONE;
    for (int i = 0; i < n; i++) {
        const MxLeaf *leaf = &params->leaves[routers[i]];
        if (program_is_trained(s, leaf)) /* not where nothing is */
            own->counts[routers[i]] =
                program_add_var(s, "load", leaf->path, (MxType){MX_F32, leaf->shape});
    }
    return true;
}

static void ask(MxTrainState *s, MxTrace *t, MxModelInputs *in) {
    (void)t;
    const Routers *own = program_part(s, PART_routers);
    in->loads = own->loads;
}

static void observe(MxTrainState *s, MxTrace *t, bool add) {
    const Routers *own = program_part(s, PART_routers);
    for (int i = 0; i < mx_model_params(s->model)->n; i++)
        if (own->counts[i] != MX_NONE) mx_trace_assign(t, own->loads[i], own->counts[i], add);
}

static MxValue adjust(MxTrainState *s, MxTrace *t, int param, MxValue value) {
    const Routers *own = program_part(s, PART_routers);
    if (own->counts[param] == MX_NONE) return value;
    return mx_even_out(t, value, mx_variable(t, own->counts[param]),
                       s->config->routed_bias_update_rate);
}

const Part part_routers = {
    .is_wanted = is_wanted,
    .bytes = sizeof(Routers),
    .declare = declare,
    .ask = ask,
    .observe = observe,
    .adjust = adjust,
};
