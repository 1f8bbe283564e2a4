/* routers.c — the part of a program that counts how often each expert is chosen. It balances
 * experts without a loss: a step moves routers' biases towards experts that were chosen too rarely.
 * And it tells how even they are (log_expert_load), and the ranks along `expert` that have them
 * (moe_log_max_load_ratio, log_required_ragged_buffer_factor). Source: Wang et al. 2024;
 * DeepSeek-V3 (2024) 2.1.2; MaxText trainers/pre_train/train.py @e591f30c and, of ranks, @0.2.5. */
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

/* What log_expert_load tells: of all layers together, then, if it is "layers", of each. */
enum { LOAD_MAX, DROPPED, LOADS_OF_LAYERS };

/* What moe_log_max_load_ratio tells of all layers. */
enum { RATIO_MAX, RATIO_MEAN };

typedef struct Routers {
    MxValue *loads, *kept; /* [parameter: a router's kernel] of the pass that is being traced */
    int *counts;           /* [parameter: likewise] variables; MX_NONE = none */
    int *rooms;            /* [parameter: likewise] of `kept` */
    int *counts_of;        /* [parameter: a router's bias] the same as `counts` */
    Norms *norms;          /* [parameter: a router's bias] NULL = nobody asks */
    Moves *moves;          /* likewise */
    int *kernels, n;       /* parameters: of all routers whose loads are told, each once */
    int metric;            /* the first one of log_expert_load, … */
    int ratio, factor;     /* … moe_log_max_load_ratio, log_required_ragged_buffer_factor */
} Routers;

static bool moves_biases(const MxConfig *config) {
    return config->routed_bias && config->routed_bias_update_rate > 0 && !config->enable_lora;
}

static bool tells_loads(const MxConfig *config) {
    return strcmp(config->log_expert_load, "none") && mx_model_has_experts(config);
}

static bool tells_layers(const MxConfig *config) {
    return tells_loads(config) && !strcmp(config->log_expert_load, "layers");
}

/* Whether all loads are counted, not only those of biases that move. */
static bool counts_loads(const MxConfig *config) {
    bool tells_ranks = config->moe_log_max_load_ratio || config->log_required_ragged_buffer_factor;
    return tells_loads(config) || (tells_ranks && mx_model_has_experts(config));
}

static bool is_wanted(const MxConfig *config) {
    return moves_biases(config) || counts_loads(config);
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

/* Of the layer that a parameter is of: "decoder-layers_2", "mtp_block-mtp_layer_1". */
static const char *metric_of_layer(MxArena *arena, const char *metric, const char *path) {
    const char *slash = strchr(path, '/');
    return mx_arena_printf(arena, "%s_%.*s-%.*s", metric, (int)(slash - path), path,
                           (int)strcspn(slash + 1, "/"), slash + 1);
}

/* Variables for the loads of a router. */
static void declare_load(MxTrainState *s, Routers *own, int kernel) {
    const char *path = mx_model_params(s->model)->leaves[kernel].path;
    const MxType counts = {MX_F32, MX_SHAPE(s->config->num_experts)};
    own->counts[kernel] = program_add_var(s, "load", path, counts);
    if (tells_loads(s->config) && mx_config_has_capacity(s->config))
        own->rooms[kernel] = program_add_var(s, "room", path, counts);
    if (counts_loads(s->config)) own->kernels[own->n++] = kernel;
}

/* The same of each layer; the first one. */
static int declare_layers(MxTrainState *s, const Routers *own, const char *metric) {
    const MxTree *params = mx_model_params(s->model);
    int first = s->n_told;
    for (int i = 0; i < own->n; i++)
        program_add_metric(s,
                           metric_of_layer(s->arena, metric, params->leaves[own->kernels[i]].path),
                           METRIC_LARGEST);
    return first;
}

static void declare_metrics(MxTrainState *s, Routers *own) {
    own->metric = s->n_told;
    if (tells_loads(s->config)) {
        program_add_metric(s, "moe/expert_load_max", METRIC_LARGEST);
        program_add_metric(s, "moe/dropped_choices", METRIC_LARGEST);
    }
    if (tells_layers(s->config)) declare_layers(s, own, "moe/expert_load_max");
    own->ratio = s->n_told;
    if (s->config->moe_log_max_load_ratio) {
        program_add_metric(s, "learning/moe_max_load_ratio", METRIC_LARGEST);
        program_add_metric(s, "learning/moe_max_load_ratio_mean", METRIC_MEAN);
    }
    if (s->config->log_required_ragged_buffer_factor)
        own->factor = declare_layers(s, own, "moe/required_ragged_buffer_factor");
}

static bool declare(MxTrainState *s, MxError *err) {
    (void)err;
    Routers *own = program_part(s, PART_routers);
    const MxConfig *c = s->config;
    const MxTree *params = mx_model_params(s->model);
    int n;
    const MxRouter *routers = mx_model_routers(s->model, &n);
    own->loads = mx_new_n(s->arena, MxValue, params->n);
    own->kept = mx_new_n(s->arena, MxValue, params->n);
    own->counts = mx_new_n(s->arena, int, params->n);
    own->rooms = mx_new_n(s->arena, int, params->n);
    own->counts_of = mx_new_n(s->arena, int, params->n);
    own->kernels = mx_new_n(s->arena, int, n);
    if (c->log_moe_bias_norms) own->norms = mx_new_n(s->arena, Norms, params->n);
    if (c->log_step_diagnostics) own->moves = mx_new_n(s->arena, Moves, params->n);
    for (int i = 0; i < params->n; i++)
        own->counts[i] = own->rooms[i] = own->counts_of[i] = MX_NONE;
    for (int i = 0; i < n; i++) {
        int kernel = routers[i].kernel, bias = moves_biases(c) ? routers[i].bias : -1;
        bool moves = bias >= 0 && program_is_trained(s, &params->leaves[bias]);
        bool is_new = own->counts[kernel] == MX_NONE; /* layers may share one */
        if (is_new && (moves || counts_loads(c))) declare_load(s, own, kernel);
        if (moves) own->counts_of[bias] = own->counts[kernel];
        if (bias >= 0 && own->norms) declare_norms(s, bias, &own->norms[bias]);
        if (bias >= 0 && own->moves) declare_moves(s, bias, &own->moves[bias]);
    }
    if (own->n) declare_metrics(s, own);
    return true;
}

static void ask(MxTrainState *s, MxTrace *t, MxModelInputs *in) {
    (void)t;
    const Routers *own = program_part(s, PART_routers);
    for (int i = 0; i < mx_model_params(s->model)->n; i++) own->loads[i] = own->kept[i] = MX_NONE;
    in->loads = own->loads;
    if (tells_loads(s->config)) in->kept = own->kept;
}

static void observe(MxTrainState *s, MxTrace *t, bool add) {
    const Routers *own = program_part(s, PART_routers);
    for (int i = 0; i < mx_model_params(s->model)->n; i++) {
        if (own->counts[i] != MX_NONE) mx_trace_assign(t, own->loads[i], own->counts[i], add);
        if (own->rooms[i] != MX_NONE) mx_trace_assign(t, own->kept[i], own->rooms[i], add);
    }
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
    if (own->counts_of[param] == MX_NONE) return value;
    MxValue counts = mx_variable(t, own->counts_of[param]);
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
        if (own->counts_of[i] == MX_NONE) continue;
        program_read_all(s, own->moves[i].moments[MOVED_BIAS], bias);
        program_read_all(s, own->moves[i].moments[MOVED_BY], update);
        all.sum += (double)bias[MX_MOMENT_SUM];
        all.n_moved += (double)(update[MX_MOMENT_COUNT] - update[MX_MOMENT_ZEROS]);
    }
    return all;
}

/* Choices of each expert: all of them, those of the one that has most, and those of the rank along
 * `expert` that has most. */
typedef struct Load {
    double all, most, most_of_rank;
} Load;

static Load load_of(const MxTrainState *s, int var) {
    MxArena arena = {.name = "load"};
    int64_t n = s->config->num_experts, ranks = mx_mesh_size(&s->mesh.mesh, "expert");
    int64_t of_rank = (n + ranks - 1) / ranks; /* experts, which are next to each other */
    float *count = mx_new_n(&arena, float, n);
    Load load = {0};
    program_read_all(s, var, count);
    for (int64_t first = 0; first < n; first += of_rank) {
        double sum = 0;
        for (int64_t i = first; i < n && i < first + of_rank; i++) {
            sum += (double)count[i];
            load.most = fmax(load.most, (double)count[i]);
        }
        load.all += sum;
        load.most_of_rank = fmax(load.most_of_rank, sum);
    }
    mx_arena_release(&arena);
    return load;
}

/* Of as many choices as each had if they were even. */
static void tell_loads(MxTrainState *s) {
    const Routers *own = program_part(s, PART_routers);
    double most = 0, all = 0, kept = 0;
    for (int i = 0; i < own->n; i++) {
        int kernel = own->kernels[i];
        Load load = load_of(s, own->counts[kernel]);
        double over = load.most * (double)s->config->num_experts / load.all;
        bool drops = own->rooms[kernel] != MX_NONE;
        most = fmax(most, over);
        all += load.all;
        kept += drops ? load_of(s, own->rooms[kernel]).all : load.all;
        if (tells_layers(s->config)) program_tell(s, own->metric + LOADS_OF_LAYERS + i, over);
    }
    program_tell(s, own->metric + LOAD_MAX, most);
    program_tell(s, own->metric + DROPPED, 1 - kept / all);
}

/* The same of ranks along `expert`. With buffers of fixed size it is the smallest factor of theirs
 * that drops nothing. */
static void tell_ranks(MxTrainState *s) {
    const Routers *own = program_part(s, PART_routers);
    double most = 0, sum = 0;
    for (int i = 0; i < own->n; i++) {
        Load load = load_of(s, own->counts[own->kernels[i]]);
        double ranks = (double)mx_mesh_size(&s->mesh.mesh, "expert");
        double over = load.most_of_rank * ranks / load.all;
        most = fmax(most, over);
        sum += over;
        if (s->config->log_required_ragged_buffer_factor) program_tell(s, own->factor + i, over);
    }
    if (!s->config->moe_log_max_load_ratio) return;
    program_tell(s, own->ratio + RATIO_MAX, most);
    program_tell(s, own->ratio + RATIO_MEAN, sum / own->n);
}

static void tell(MxTrainState *s) {
    const Routers *own = program_part(s, PART_routers);
    if (own->n && tells_loads(s->config)) tell_loads(s);
    if (own->n) tell_ranks(s);
    for (int i = 0; own->norms && i < mx_model_params(s->model)->n; i++)
        for (int k = 0; k < NORMS && own->counts_of[i] != MX_NONE; k++) {
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
