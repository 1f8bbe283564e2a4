/* state.c — the train state: model, program and buffers, and the tree of all arrays by path. */
#include <mx/program.h>

#include "internal.h"
#include "reference.h"

static const struct {
    const char *name;
    MxMatmulProvider provider;
} providers[] = {
    {"auto", MX_MATMUL_AUTO},
    {"openblas", MX_MATMUL_OPENBLAS},
    {"onednn", MX_MATMUL_ONEDNN},
    {"own", MX_MATMUL_OWN},
};

static const struct {
    const char *name;
    MxRemat remat;
} remats[] = {
    {"none", MX_REMAT_NONE},
    {"minimal", MX_REMAT_MINIMAL},
    {"full", MX_REMAT_FULL},
};

static bool open_device(MxTrainState *s, MxError *err) {
    MxDeviceConfig device = {.backend = strncmp(s->config->hardware, "gpu", 3) ? NULL : "cuda",
                             .n_threads = (int)s->config->num_threads,
                             .may_split = !strcmp(s->config->matmul_precision, "high"),
                             .comm = s->comm,
                             .folder = s->config->optimizer_memory_disk,
                             .only_plans = s->is_planned};
    for (int i = 0; i < MX_COUNT(providers); i++)
        if (!strcmp(providers[i].name, s->config->matmul_provider))
            device.matmul = providers[i].provider;
    return mx_device_open(s->arena, &device, &s->device, err);
}

static MxRemat remat_policy(const MxConfig *config) {
    for (int i = 0; i < MX_COUNT(remats); i++)
        if (!strcmp(remats[i].name, config->remat)) return remats[i].remat;
    MX_BUG("remat is not in the table");
}

void program_add_numbers(MxTrainState *s, const char *path, MxType type, void *data) {
    const MxDivision *all = program_division(s, (MxSharding){0}, type.shape);
    MxLeaf leaf = {.path = path, .kind = MX_KIND_COUNTER, .data = data, .division = all};
    leaf.dtype = type.dtype;
    leaf.shape = type.shape;
    mx_tree_add(&s->counters, leaf);
}

void program_add_counter(MxTrainState *s, const char *path, MxDtype dtype, void *data) {
    program_add_numbers(s, path, (MxType){dtype, MX_SCALAR}, data);
}

static void read_var(void *run, int var, MxBox box, void *host) {
    mx_run_read(run, var, box, host);
}
static void write_var(void *run, int var, MxBox box, const void *host) {
    mx_run_write(run, var, box, host);
}
static void *map_var(void *run, int var) {
    return mx_run_map(run, var);
}

void program_show_var(MxTrainState *s, MxLeaf *leaf, int var) {
    leaf->keeper = &s->keeper;
    leaf->array = var;
    leaf->division = program_division(s, s->sharding[var], leaf->shape);
}

MxLeaf *program_show_each(MxTrainState *s, const char *prefix, const int *vars) {
    const MxTree *params = mx_model_params(s->model);
    MxLeaf *leaf = mx_tree_add_under(&s->tree, prefix, params);
    for (int i = 0; i < params->n; i++) program_show_var(s, &leaf[i], vars[i]);
    return leaf;
}

/* Arrays first, then counters. */
static void show_tree(MxTrainState *s) {
    mx_tree_init(&s->tree, s->arena);
    mx_tree_init(&s->counters, s->arena);
    s->keeper = (MxKeeper){.data = s->run, .read = read_var, .write = write_var, .map = map_var};
    program_show_params(s);
    program_show_kept(s);
    s->step = mx_new(s->arena, uint32_t);
    program_add_counter(s, "optimizer/step", MX_U32, s->step);
    s->eval_pending = mx_new(s->arena, int32_t);
    program_add_counter(s, "mxtrain/eval_pending", MX_I32, s->eval_pending);
    for (int i = 0; i < PART_COUNT; i++)
        if (s->part[i] && program_parts[i]->show) program_parts[i]->show(s);
    program_show_numbers(s);
    for (int i = 0; i < s->counters.n; i++) mx_tree_add(&s->tree, s->counters.leaves[i]);
}

MxTrainState *program_new(MxArena *arena, const MxConfig *config, MxComm *comm) {
    MxTrainState *s = mx_new(arena, MxTrainState);
    *s = (MxTrainState){.arena = arena, .config = config, .comm = comm};
    return s;
}

/* A state without memory. */
static bool describe_state(MxTrainState *s, MxError *err) {
    MxArena *arena = s->arena;
    MxComm *comm = s->comm;
    const MxConfig *config = s->config;
    s->rank = comm ? mx_comm_rank(comm) : s->mesh.rank;
    s->loss = program_loss(config);
    s->outputs = loss_outputs(arena, s->loss);
    if (!mx_model_new(arena, config, &s->model, err) ||
        (s->kept && !mx_model_keep(arena, s->model, s->kept, err)))
        return false;
    s->trained = mx_tree_select(arena, mx_model_params(s->model), mx_model_trains(s->model));
    MX_ASSERT(s->trained->n); /* a run that trains nothing would look like one that does */
    for (int i = 0; i < PART_COUNT; i++)
        if (program_parts[i]->is_wanted(config))
            s->part[i] = mx_arena_alloc(arena, program_parts[i]->bytes);
    if (!mx_optim_new(arena, config, mx_model_params(s->model), mx_model_trains(s->model),
                      &s->optim, err))
        return false;
    if (!program_declare_vars(s, err) || !program_find_mesh(s, err)) return false;
    if (!program_declare_generation(s, err) || !program_shard(s, err) || !program_trace(s, err))
        return false;
    s->var.end_casts = s->vars.n;
    if (program_is_piped(s)) program_add_lanes(s);
    if (!open_device(s, err) || !program_divide(s, err)) return false;
    if (program_is_piped(s)) program_cut_stages(s);
    return true;
}

bool mx_train_program(MxArena *arena, const MxTrainMesh *mesh, const MxGraphWatch *watch,
                      MxTrainProgram *out, MxError *err) {
    MxTrainState *s = program_new(arena, mesh->config, NULL);
    s->mesh = *mesh;
    s->watch = watch;
    s->is_planned = true;
    if (!describe_state(s, err)) return false;
    *out = (MxTrainProgram){.model = s->model,
                            .refusal = s->refusal,
                            .device = mx_device_describe(s->device),
                            .device_memory = mx_device_memory(s->device),
                            .machine = s->device->backend->machine,
                            .sharding = s->sharding,
                            .param = s->var.param,
                            .gradient = s->var.gradient,
                            .n_entries = s->n_entries,
                            .moment_bytes = program_moment_bytes(s)};
    out->layout = mx_run_layout(arena, s->device, &s->local, s->entries, s->n_entries,
                                remat_policy(mesh->config));
    out->bytes = program_bytes(s, out->layout.bytes);
    return true;
}

/* Of a micro-batch of training or evaluation, as this rank has it. */
static size_t most_bytes_of_field(const MxTrainState *s) {
    size_t most = 0;
    for (int i = 0; i < s->n_inputs; i++)
        for (int is_eval = 0; is_eval < 2; is_eval++) {
            size_t bytes = program_var_bytes(s, s->var.batch[is_eval][i]);
            most = bytes > most ? bytes : most;
        }
    return most + 1;
}

bool mx_train_state_open(MxArena *arena, const MxConfig *config, MxTrainState **out, MxError *err) {
    return mx_train_state_open_on(arena, config, NULL, out, err);
}

bool program_open(MxTrainState *s, MxTrainState **out, MxError *err) {
    if (!describe_state(s, err) || !mx_train_check_ranks(&s->mesh, s->comm, err) ||
        !mx_train_read_tokens(s->arena, s->model, s->config, err))
        return false;
    if (!mx_run_open(s->arena, s->device, &s->local, s->entries, s->n_entries,
                     remat_policy(s->config), &s->run, err))
        return false;
    if (s->config->profile_ops || *s->config->profiler) mx_run_measure(s->run);
    if (*s->config->profiler) mx_run_trace(s->run);
    show_tree(s);
    s->rows = mx_arena_alloc(s->arena, most_bytes_of_field(s));
    *out = s;
    return true;
}

bool mx_train_state_open_on(MxArena *arena, const MxConfig *config, MxComm *comm,
                            MxTrainState **out, MxError *err) {
    return program_open(program_new(arena, config, comm), out, err);
}

bool mx_train_state_open_eval(MxArena *arena, const MxConfig *config, MxComm *comm,
                              MxTrainState **out, MxError *err) {
    MxTrainState *s = program_new(arena, config, comm);
    s->purpose = PURPOSE_EVALUATES;
    return program_open(s, out, err);
}

/* Frozen weights have changed: what is made of them is made anew when it is next asked for. */
static void forget_frozen(MxTrainState *s) {
    s->knows_frozen = false;
}

static void run_entry(MxTrainState *s, const Entry *entry, int number) {
    int i = 0;
    while (i < s->n_entries && s->entry[i] != entry) i++;
    i += number;
    MX_ASSERT(i < s->n_entries && s->entry[i] == entry);
    mx_run_entry(s->run, i);
}

void program_run_one(MxTrainState *s, const Entry *entry, int number) {
    if (!s->knows_frozen) run_entry(s, &program_entry_frozen, 0);
    s->knows_frozen = true;
    run_entry(s, entry, number);
}

void program_run_entry(MxTrainState *s, const Entry *entry) {
    program_run_one(s, entry, 0);
}

void program_run_alone(MxTrainState *s, const Entry *entry) {
    run_entry(s, entry, 0);
    forget_frozen(s);
}

void mx_train_state_init(MxTrainState *s) {
    program_run_alone(s, &entry_init);
    program_set_step(s, 0);
}

MxTree *mx_train_state_tree(MxTrainState *s) {
    return &s->tree;
}
void mx_train_state_restored(MxTrainState *s) {
    program_changed(s);
    forget_frozen(s);
    program_set_step(s, *s->step);
}
int64_t mx_train_state_step(const MxTrainState *s) {
    return *s->step;
}
int32_t *mx_train_state_eval_pending(MxTrainState *s) {
    return s->eval_pending;
}
const MxConfig *mx_train_state_config(const MxTrainState *s) {
    return s->config;
}
MxComm *mx_train_state_comm(const MxTrainState *s) {
    return s->comm;
}
const struct MxModel *mx_train_state_model(const MxTrainState *s) {
    return s->model;
}
const MxDevice *mx_train_state_device(const MxTrainState *s) {
    return s->device;
}
const MxRun *mx_train_state_run(const MxTrainState *s) {
    return s->run;
}

void program_read_all(const MxTrainState *s, int var, void *host) {
    mx_run_read(s->run, var, mx_run_box(s->run, var), host);
}

void program_write_all(MxTrainState *s, int var, const void *host) {
    mx_run_write(s->run, var, mx_run_box(s->run, var), host);
}

double program_scalar(const MxTrainState *s, int var) {
    float x;
    program_read_all(s, var, &x);
    return x;
}

double program_out(const MxTrainState *s, int which) {
    return program_scalar(s, s->var.out[which]);
}

/* Copies the rows of a micro-batch, 4 bytes an element, from arrays [rows, ..] of a batch's part
 * into a variable, or out of it into them. */
static void copy_rows(MxTrainState *s, int var, const MxBatchPart *part, MicroBatch micro,
                      char *data, bool out) {
    const size_t size = 4;
    const MxBox *box = &s->box[var];
    int64_t column = box->start[1] - part->column, width = box->count[1];
    for (int d = 2; d < box->rank; d++) width *= box->count[d];
    size_t bytes = (size_t)width * size;
    micro.examples = s->vars.item[var].type.shape.dim[0] / mx_train_rows(s->config);
    micro.of_examples = part->of_rows / mx_train_rows(s->config);
    micro.first = program_first_of(&s->mesh.mesh, s->rank, micro.of_examples);
    MX_ASSERT(column >= 0 && column + width <= part->length);
    if (out) program_read_all(s, var, s->rows);
    for (int64_t k = 0; k < box->count[0]; k++) {
        int64_t row = mx_batch_row(part, program_row_of(&micro, box->start[0] + k));
        char *there = data + (size_t)(row * part->length + column) * size;
        char *here = s->rows + (size_t)k * bytes;
        if (out)
            memcpy(there, here, bytes);
        else
            memcpy(here, there, bytes);
    }
    if (!out) program_write_all(s, var, s->rows);
}

/* What arrays of an input hold of a batch. */
static MxBatchPart part_of(const MxTrainState *s, int input, const MxBatch *batch) {
    MxBatchPart part = batch->part;
    if (!s->input[input].row.rank) return part;
    part.column = 0;
    part.length = mx_shape_count(s->input[input].row);
    return part;
}

void program_load_batch(MxTrainState *s, bool is_eval, const MxBatch *batch, MicroBatch micro) {
    for (int i = 0; i < s->n_inputs; i++) {
        const void *from = i < MX_BATCH_FIELDS ? batch->field[i] : s->input[i].given;
        MxBatchPart part = part_of(s, i, batch);
        int var = program_own(s, s->var.batch[is_eval][i], micro.lane);
        if (from) copy_rows(s, var, &part, micro, (char *)(uintptr_t)from, false);
    }
}

void program_read_rows(MxTrainState *s, int var, const MxBatchPart *part, MicroBatch micro,
                       void *data) {
    copy_rows(s, var, part, micro, data, true);
}

void program_give(MxTrainState *s, int input, const void *values) {
    s->input[input].given = values;
}

void program_make_inputs(MxTrainState *s, const Entry *entry, const int *inputs, int n,
                         bool is_eval, const MxBatch *batch, void *const *out) {
    MicroBatch micro = {.n = is_eval ? 1 : s->config->micro_batches};
    const size_t size = 4;
    for (int k = 0; k < n; k++) {
        program_give(s, inputs[k], NULL);
        memset(out[k], 0, (size_t)(batch->rows * part_of(s, inputs[k], batch).length) * size);
    }
    for (micro.i = 0; micro.i < micro.n; micro.i++) {
        program_load_batch(s, is_eval, batch, micro);
        program_run_entry(s, entry);
        for (int k = 0; k < n; k++) {
            MxBatchPart part = part_of(s, inputs[k], batch);
            program_read_rows(s, s->var.batch[is_eval][inputs[k]], &part, micro, out[k]);
        }
    }
}

float *mx_train_gradient(MxArena *arena, const MxTrainState *s, int i) {
    int var = s->var.gradient[i];
    if (var == MX_NONE) return NULL;
    float *copy = mx_arena_alloc(arena, program_var_bytes(s, var) + 1);
    program_read_all(s, var, copy);
    return copy;
}
