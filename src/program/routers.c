/* routers.c — the part of a program that balances experts without a loss: a step counts how often
 * each expert was chosen, and moves the routers' biases towards experts that were chosen too
 * rarely. Source: Wang et al. 2024; DeepSeek-V3 (2024) 2.1.2; MaxText trainers/pre_train/train.py
 * @e591f30c. */
#include <mx/program.h>

#include "internal.h"

#include <math.h>

/* Norms that log_moe_bias_norms tells of a bias. */
enum { NORM_BEFORE, NORM_UPDATE, NORMS };

typedef struct Norms {
    int squares[NORMS]; /* variables, f32 */
    int metric;         /* the first one */
} Norms;

/* Variables with the mx_moments of what log_step_diagnostics sums up. */
enum { MOVED_BIAS, MOVED_BY, MOVES };

typedef struct Moves {
    int moments[MOVES];
} Moves;

typedef struct Routers {
    MxValue *loads; /* [parameter] of the pass that is being traced */
    int *counts;    /* [parameter] variables; MX_NONE = it is no router's */
    Norms *norms;   /* [parameter] NULL = nobody asks */
    Moves *moves;   /* likewise */
} Routers;

static bool is_wanted(const MxConfig *config) {
    return config->routed_bias && config->routed_bias_update_rate > 0 && !config->enable_lora;
}

/* Of a router's bias: "decoder-layers_2" of "decoder/layers_2/mlp/MoeBlock_0/gate/bias". MaxText
 * logs the norms of DeepSeek 4 alone, under such names. */
static const char *name_of_layer(MxArena *arena, const char *path) {
    enum { BELOW = 4 };
    char *name = mx_arena_strdup(arena, path);
    for (int i = 0; i < BELOW; i++) *strrchr(name, '/') = 0;
    for (char *c = name; *c; c++)
        if (*c == '/') *c = '-';
    return name;
}

static void declare_norms(MxTrainState *s, int router, Norms *norms) {
    const char *path = mx_model_params(s->model)->leaves[router].path;
    const char *layer = name_of_layer(s->arena, path);
    static const char *const names[NORMS] = {[NORM_BEFORE] = "before", [NORM_UPDATE] = "update"};
    norms->metric = s->n_told;
    for (int k = 0; k < NORMS; k++) {
        const char *metric =
            mx_arena_printf(s->arena, "learning/moe_bias_%s_norm_%s", names[k], layer);
        program_add_metric(s, metric, METRIC_MEAN);
        norms->squares[k] = program_add_var(s, "out", metric, (MxType){MX_F32, MX_SCALAR});
    }
}

static void declare_moves(MxTrainState *s, int router, Moves *moves) {
    const char *path = mx_model_params(s->model)->leaves[router].path;
    const MxType type = {MX_F32, MX_SHAPE(MX_MOMENTS)};
    for (int k = 0; k < MOVES; k++) moves->moments[k] = program_add_var(s, "moved", path, type);
}

static bool declare(MxTrainState *s, MxError *err) {
    (void)err;
    Routers *own = program_part(s, PART_routers);
    const MxTree *params = mx_model_params(s->model);
    int n;
    const int *routers = mx_model_routers(s->model, &n);
    own->loads = mx_new_n(s->arena, MxValue, params->n);
    own->counts = mx_new_n(s->arena, int, params->n);
    if (s->config->log_moe_bias_norms) own->norms = mx_new_n(s->arena, Norms, params->n);
    if (s->config->log_step_diagnostics) own->moves = mx_new_n(s->arena, Moves, params->n);
    for (int i = 0; i < params->n; i++) own->loads[i] = own->counts[i] = MX_NONE;
    for (int i = 0; i < n; i++) {
        const MxLeaf *leaf = &params->leaves[routers[i]];
        if (program_is_trained(s, leaf)) /* not where nothing is */
            own->counts[routers[i]] =
                program_add_var(s, "load", leaf->path, (MxType){MX_F32, leaf->shape});
        if (own->norms) declare_norms(s, routers[i], &own->norms[routers[i]]);
        if (own->moves) declare_moves(s, routers[i], &own->moves[routers[i]]);
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

/* The update is what becomes of zeros. */
static MxValue update_of(MxTrace *t, MxValue bias, MxValue counts, double rate) {
    MxValue zeros = mx_init(t, (MxInitAttr){.type = mx_trace_type(t, bias)});
    return mx_even_out(t, zeros, counts, rate);
}

static void trace_norms(MxTrace *t, const Norms *norms, MxValue bias, MxValue update) {
    const MxValue of[NORMS] = {[NORM_BEFORE] = bias, [NORM_UPDATE] = update};
    for (int k = 0; k < NORMS; k++)
        mx_trace_assign(t, mx_sum_squares(t, &of[k], 1), norms->squares[k], false);
}

static void trace_moves(MxTrace *t, const Moves *moves, MxValue bias, MxValue update) {
    const MxValue of[MOVES] = {[MOVED_BIAS] = bias, [MOVED_BY] = update};
    for (int k = 0; k < MOVES; k++)
        mx_trace_assign(t, mx_moments(t, of[k]), moves->moments[k], false);
}

static MxValue adjust(MxTrainState *s, MxTrace *t, int param, MxValue value) {
    const Routers *own = program_part(s, PART_routers);
    double rate = s->config->routed_bias_update_rate;
    if (own->counts[param] == MX_NONE) return value;
    MxValue counts = mx_variable(t, own->counts[param]);
    if (own->norms) trace_norms(t, &own->norms[param], value, update_of(t, value, counts, rate));
    MxValue moved = mx_even_out(t, value, counts, rate); /* in place: last to read the value */
    if (own->moves) trace_moves(t, &own->moves[param], moved, update_of(t, value, counts, rate));
    return moved;
}

MovedRouters program_moved_routers(const MxTrainState *s) {
    const Routers *own = program_part(s, PART_routers);
    MovedRouters all = {.sum = 0};
    for (int i = 0; own && own->moves && i < mx_model_params(s->model)->n; i++) {
        float bias[MX_MOMENTS], update[MX_MOMENTS];
        if (own->counts[i] == MX_NONE) continue;
        program_read_all(s, own->moves[i].moments[MOVED_BIAS], bias);
        program_read_all(s, own->moves[i].moments[MOVED_BY], update);
        all.sum += (double)bias[MX_MOMENT_SUM];
        all.n_moved += (double)(update[MX_MOMENT_COUNT] - update[MX_MOMENT_ZEROS]);
    }
    return all;
}

static void tell(MxTrainState *s) {
    const Routers *own = program_part(s, PART_routers);
    for (int i = 0; own->norms && i < mx_model_params(s->model)->n; i++)
        for (int k = 0; k < NORMS && own->counts[i] != MX_NONE; k++) {
            float squares;
            program_read_all(s, own->norms[i].squares[k], &squares);
            program_tell(s, own->norms[i].metric + k, sqrt((double)squares));
        }
}

const Part part_routers = {
    .is_wanted = is_wanted,
    .bytes = sizeof(Routers),
    .declare = declare,
    .ask = ask,
    .observe = observe,
    .adjust = adjust,
    .tell = tell,
};
