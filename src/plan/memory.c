/* memory.c — bytes of one rank. Weights, gradients and moments are the shards' sizes; activations
 * and buffers come from the program (activations.c), on more than one device from what one rank
 * runs of it (collectives.c). A mesh that cannot be run is estimated: a layer's weights are
 * gathered before they are used, and their gradients stand whole before they are scattered; the
 * largest such group is counted once. */
#include "internal.h"

#include <mx/family.h>

/* Code, libraries and stacks of a process that does nothing; measured with glibc, OpenBLAS and
 * oneDNN on x86-64, 2 threads. */
static const int64_t PROCESS_BYTES = (int64_t)32 << 20;

/* Elements of a rank's shards: of all parameters, and of those that are trained. */
static int64_t shard_elements(const MxForecast *plan, bool only_trained) {
    int64_t n = 0;
    for (int i = 0; i < plan->n_arrays; i++)
        if (!only_trained || plan->arrays[i].leaf->kind == mx_model_trains(plan->model))
            n += mx_shape_count(plan->arrays[i].shard);
    return n;
}

int64_t plan_weight_bytes(const PlanProgram *p, const MxLeaf *leaf, int64_t n) {
    return leaf->quant.type ? mx_quant_bytes(leaf->quant, n) : n * (int64_t)p->weight_bytes;
}

/* Bytes of a rank's shards of the parameters. */
static int64_t shard_bytes(const MxForecast *plan, const PlanProgram *p) {
    int64_t bytes = 0;
    for (int i = 0; i < plan->n_arrays; i++) {
        const PlanArray *array = &plan->arrays[i];
        bytes += plan_weight_bytes(p, array->leaf, mx_shape_count(array->shard));
    }
    return bytes;
}

/* Mesh axes over which tokens are spread; a weight that is cut by them is gathered for use. */
typedef struct TokenAxes {
    const char **axes;
    int n;
} TokenAxes;

static TokenAxes token_axes(MxArena *arena, const MxTrainMesh *mesh) {
    static const char *const tokens[] = {"activation_batch", "activation_length"};
    MxError ignored = {0};
    MxSpec spec = {0};
    mx_shard_resolve(arena, &mesh->rules, mx_spec_names(arena, tokens, 2), NULL, &spec, &ignored);
    mx_error_release(&ignored);
    TokenAxes t = {.axes = mx_new_n(arena, const char *, mesh->mesh.n)};
    for (int i = 0; i < mesh->mesh.n; i++)
        if (mx_spec_uses(spec, mesh->mesh.axes[i])) t.axes[t.n++] = mesh->mesh.axes[i];
    return t;
}

/* Elements of one layer of an array as it is used, 0 if it is used as it is kept. */
static int64_t gathered_elements(MxArena *arena, const MxForecast *plan, const PlanArray *array,
                                 const TokenAxes *tokens) {
    MxSpec whole = mx_spec_remove_axes(arena, array->how.spec, tokens->axes, tokens->n);
    if (mx_spec_equal(whole, array->how.spec)) return 0;
    int64_t n = mx_shape_count(plan_cut(&plan->mesh.mesh, array->shape, whole));
    int64_t layers = mx_shape_count(array->shape) / mx_shape_count(array->leaf->shape);
    return (n - 1) / layers + 1;
}

static int64_t largest_gathered(MxArena *arena, const MxForecast *plan) {
    TokenAxes tokens = token_axes(arena, &plan->mesh);
    const MxLayers layers = mx_model_layers(plan->config);
    const MxFamily *family = layers.family;
    int64_t layer = 0, first = 0, single = 0;
    for (int i = 0; i < plan->n_arrays; i++) {
        const PlanArray *array = &plan->arrays[i];
        bool is_layer = array->leaf->stack.count > 0;
        if (is_layer && array->leaf->stack.index > 0) continue;
        int64_t n = gathered_elements(arena, plan, array, &tokens);
        if (is_layer && family->first_layers &&
            !strcmp(array->leaf->stack.axis, family->first_layers))
            first += n;
        else if (is_layer)
            layer += n;
        else if (n > single)
            single = n;
    }
    int n_places = family->runs ? MX_MOST_RUNS : layers.period;
    layer /= n_places * mx_family_a_name(family); /* one of each place was added */
    if (first > layer) layer = first;
    return layer > single ? layer : single;
}

static void add_up(PlanMemory *m) {
    m->total = m->weights + m->gradients + m->optimizer + m->reference + m->activations + m->casts +
               m->gathered + m->buffers + m->saving + m->process;
}

/* Policies that would need less, each with what it needs. */
static bool find_other_policies(MxArena *arena, MxForecast *plan, MxError *err) {
    static const char *const policies[] = {"minimal", "full"};
    int n = 0;
    bool is_thriftier = !strcmp(plan->config->remat, "none");
    for (int i = 0; i < MX_COUNT(policies); i++) {
        if (is_thriftier) {
            PlanProgram program;
            if (!plan_program(arena, &plan->mesh, policies[i], NULL, &program, err)) return false;
            plan->memory.other[n].policy = policies[i];
            plan->memory.other[n++].activations = program.activations;
        }
        is_thriftier = is_thriftier || !strcmp(plan->config->remat, policies[i]);
    }
    return true;
}

/* The copy of what a rank writes of the state in the background. Each box is written by one rank,
 * and ranks share them evenly, up to the size of one. */
static int64_t saving_bytes(const MxForecast *plan, const PlanProgram *p) {
    const MxConfig *c = plan->config;
    const PlanCount *n = &plan->parameters;
    int64_t n_weights =
        mx_model_lora(plan->model) ? n->trainable : n->total; /* not a frozen base */
    int64_t state = n_weights * (int64_t)p->weight_bytes + p->optimizer +
                    n->total * (int64_t)p->reference_bytes;
    if (!c->enable_checkpointing || !c->async_checkpointing) return 0;
    return (state - 1) / plan->mesh.mesh.n_ranks + 1;
}

/* Of `bytes` of all elements, those of n. */
static int64_t share(int64_t bytes, int64_t n, int64_t of) {
    return (int64_t)((double)bytes * (double)n / (double)of);
}

bool plan_memory(MxArena *arena, MxForecast *plan, MxError *err) {
    PlanMemory *m = &plan->memory;
    PlanProgram p;
    if (!plan_program(arena, &plan->mesh, plan->config->remat, &plan->warnings, &p, err))
        return false;
    plan->device = p.device;
    int64_t n = shard_elements(plan, false), n_trained = shard_elements(plan, true);
    MxDtype dtype;
    bool known = mx_dtype_parse(plan->config->dtype, &dtype);
    MX_ASSERT(known);
    *m = (PlanMemory){.weights = shard_bytes(plan, &p),
                      .gradients = n_trained * (int64_t)p.gradient_bytes,
                      .optimizer = share(p.optimizer, n_trained, plan->parameters.trainable),
                      .reference = n * (int64_t)p.reference_bytes +
                                   share(p.teacher, n, plan->parameters.total),
                      .activations = p.activations,
                      .casts = p.casts,
                      .buffers = p.buffers,
                      .process = PROCESS_BYTES,
                      .limit = mx_memory_limits(arena, "/").memory,
                      .is_exact = plan->mesh.mesh.n_ranks == 1 || !plan->collectives.refusal};
    if (plan->mesh.mesh.n_ranks > 1 && m->is_exact) {
        m->activations = plan->collectives.activations;
        m->gradients = plan->collectives.gradients;
        m->optimizer = plan->collectives.optimizer;
        m->casts = plan->collectives.casts;
    }
    if (!m->is_exact) {
        m->gathered =
            largest_gathered(arena, plan) * (int64_t)(mx_dtype_bytes(dtype) + p.gradient_bytes);
        m->casts = share(p.casts, n, plan->parameters.total);
    }
    m->saving = saving_bytes(plan, &p);
    add_up(m);
    return m->total <= m->limit.bytes || find_other_policies(arena, plan, err);
}
