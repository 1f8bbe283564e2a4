/* bytes.c — the memory of a state, by purpose. */
#include "internal.h"
#include "reference.h"

static size_t bytes_of(MxType type) {
    return (size_t)mx_shape_count(type.shape) * mx_dtype_bytes(type.dtype);
}

size_t program_var_bytes(const MxTrainState *s, int var) {
    return var == MX_NONE ? 0 : bytes_of(s->local.item[var].type);
}

/* Of the rank that has most: larger parts come first where sizes do not divide. */
static size_t uneven_bytes(const MxTrainState *s, int var) {
    if (var == MX_NONE) return 0;
    MxType type = s->vars.item[var].type;
    MxArena arena = {.name = "box"};
    MxSpec spec = mx_sharding_spec(&arena, &s->mesh.mesh, s->uneven[var], type.shape.rank);
    MxBox box = mx_shard_box((MxLayout){&s->mesh.mesh, spec}, type.shape, 0);
    mx_arena_release(&arena);
    return (size_t)mx_box_count(&box) * mx_dtype_bytes(type.dtype);
}

typedef size_t BytesOf(const MxTrainState *s, int var);

static size_t bytes_of_vars(const MxTrainState *s, BytesOf *bytes_of_var, const int *vars, int n) {
    size_t bytes = 0;
    for (int i = 0; i < n; i++) bytes += bytes_of_var(s, vars[i]);
    return bytes;
}

/* Of frozen models beside the trained one: the teacher. */
static size_t bytes_of_teacher(const MxTrainState *s, BytesOf *bytes_of_var) {
    size_t bytes = 0;
    for (int var = 0; var < s->local.n && var < s->vars.n; var++)
        if (var < s->role_cap && s->role[var].leaf) bytes += bytes_of_var(s, var);
    return bytes;
}

static MxTrainBytes bytes_by(const MxTrainState *s, BytesOf *bytes_of_var) {
    int n = mx_model_params(s->model)->n;
    size_t moments = bytes_of_vars(s, bytes_of_var, s->var.kept, s->optim->n_arrays);
    bool is_on_disk = s->config->optimizer_memory_disk != NULL;
    MxTrainBytes bytes = {.parameters = bytes_of_vars(s, bytes_of_var, s->var.param, n) +
                                        bytes_of_vars(s, bytes_of_var, s->var.scales, n),
                          .gradients = bytes_of_vars(s, bytes_of_var, s->var.gradient, n),
                          .moments = is_on_disk ? 0 : moments,
                          .disk = is_on_disk ? moments : 0,
                          .outer = program_outer_bytes(s, bytes_of_var),
                          .reference = bytes_of_teacher(s, bytes_of_var)};
    for (int var = s->var.first_cast; var < s->var.end_casts; var++)
        bytes.casts += bytes_of_var(s, var);
    if (reference_copy(s)) bytes.reference += bytes_of_vars(s, bytes_of_var, reference_copy(s), n);
    bytes.total = bytes.parameters + bytes.gradients + bytes.moments + bytes.outer +
                  bytes.reference + bytes.casts;
    return bytes;
}

MxTrainBytes program_bytes(const MxTrainState *s, MxRunBytes run) {
    MxTrainBytes bytes = bytes_by(s, program_var_bytes);
    size_t buffers = run.vars - bytes.total;
    if (s->uneven) bytes = bytes_by(s, uneven_bytes);
    bytes.buffers = buffers;
    bytes.activations = run.arena;
    bytes.total += buffers + run.arena;
    return bytes;
}

size_t program_moment_bytes(const MxTrainState *s) {
    size_t bytes = 0;
    for (int i = 0; i < s->optim->n_arrays; i++)
        if (s->var.kept[i] != MX_NONE) bytes += bytes_of(s->vars.item[s->var.kept[i]].type);
    return bytes;
}

MxTrainBytes mx_train_state_bytes(const MxTrainState *s) {
    return program_bytes(s, mx_run_bytes(s->run));
}
