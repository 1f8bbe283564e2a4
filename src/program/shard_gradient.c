/* shard_gradient.c — which part of a parameter's gradient a rank has, and along which mesh axes it
 * is a term of a sum that is still to be taken. */
#include "internal.h"

/* Axes after others stay too: a sum cannot be scattered there. */
uint32_t mx_train_uncut(uint32_t dim, uint32_t axes) {
    uint32_t first = dim & axes & -(dim & axes);
    return (dim & ~axes) < first ? dim & ~axes : dim;
}

/* Micro-batches add to a sum that each rank has by itself, to be exchanged once for all of them,
 * along the mesh axes that cut the batch but not the parameter: a sum along an axis that cuts it is
 * a whole array on every rank, which reduce_gradients_once wants along those of FSDP. So does an
 * exchange in few bits, which leaves there what it loses. Stages add theirs to that of a parameter
 * that all have. */
MxSharding program_shard_gradient(const MxTrainState *s, MxSharding param, MxSharding moment) {
    const MxSharding *batch = &s->sharding[s->var.batch[false][0]];
    bool is_few = program_wire(s->config) != MX_F32,
         is_late = is_few || s->config->micro_batches > 1;
    uint32_t used = 0, late = is_late ? batch->dim[0] | batch->dim[1] : 0;
    uint32_t whole = is_few || s->config->reduce_gradients_once ? mx_mesh_fsdp(&s->mesh.mesh) : 0;
    for (int d = 0; d < MX_MAX_RANK; d++) param.dim[d] = mx_train_uncut(param.dim[d], late & whole);
    if (!param.home) late |= mx_mesh_stages(&s->mesh.mesh);
    for (int d = 0; d < MX_MAX_RANK; d++) used |= param.dim[d];
    param.partial = late & ~used;
    return param.partial ? param : moment;
}
