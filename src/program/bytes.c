/* bytes.c — the memory that a state takes, by what it is for. */
#include "internal.h"
#include "reference.h"

size_t program_var_bytes(const MxTrainState *s, int var) {
    if (var == MX_NONE) return 0;
    MxType type = s->local.item[var].type;
    return (size_t)mx_shape_count(type.shape) * mx_dtype_bytes(type.dtype);
}

static size_t bytes_of_vars(const MxTrainState *s, const int *vars) {
    size_t bytes = 0;
    for (int i = 0; i < mx_model_params(s->model)->n; i++) bytes += program_var_bytes(s, vars[i]);
    return bytes;
}

/* Of frozen models beside the trained one: the teacher. */
size_t program_teacher_bytes(const MxTrainState *s) {
    size_t bytes = 0;
    for (int var = 0; var < s->local.n && var < s->vars.n; var++)
        if (var < s->role_cap && s->role[var].leaf) bytes += program_var_bytes(s, var);
    return bytes;
}

size_t program_cast_bytes(const MxTrainState *s) {
    size_t bytes = 0;
    for (int var = s->var.first_cast; var < s->local.n; var++) bytes += program_var_bytes(s, var);
    return bytes;
}

MxTrainBytes mx_train_state_bytes(const MxTrainState *s) {
    MxTrainBytes bytes = {.parameters =
                              bytes_of_vars(s, s->var.param) + bytes_of_vars(s, s->var.scales),
                          .gradients = bytes_of_vars(s, s->var.gradient),
                          .casts = program_cast_bytes(s),
                          .activations = mx_run_bytes(s->run).arena};
    for (int i = 0; i < s->optim->n_arrays; i++)
        bytes.moments += program_var_bytes(s, s->var.kept[i]);
    if (reference_copy(s)) bytes.reference = bytes_of_vars(s, reference_copy(s));
    bytes.reference += program_teacher_bytes(s);
    bytes.total = mx_run_bytes(s->run).vars + mx_run_bytes(s->run).arena;
    return bytes;
}
