/* feedback.c — the part of a program whose ranks exchange gradients in few bits
 * (gradient_exchange_dtype). The variable of a gradient holds, on every rank, what the last
 * exchange lost of the rank's own terms; the micro-batches of a step add to that, and the update
 * exchanges the sum (update.c, lower/few.c). So what is lost in a step counts in the next one.
 *
 * It is a part of the state: in checkpoints it is below "mxtrain/feedback/", with the ranks that
 * have terms of a sum as dim 0. Only the sum over them counts, so it does not matter which rank
 * goes on with which. A run on another number of them starts with zeros. */
#include <mx/program.h>

#include "internal.h"

typedef struct Feedback {
    MxKeeper keeper;
} Feedback;

MxDtype program_wire(const MxConfig *config) {
    MxDtype wire = MX_F32;
    bool is_known = mx_dtype_parse(config->gradient_exchange_dtype, &wire);
    MX_ASSERT(is_known);
    return wire;
}

bool program_keeps_lost(const MxTrainState *s, int param) {
    int var = s->var.gradient[param];
    return var != MX_NONE && program_wire(s->config) != MX_F32 &&
           s->sharding[var].partial & ~mx_mesh_stages(&s->mesh.mesh);
}

double mx_train_few_share(const MxTrainState *s) {
    double few = 0, all = 0;
    for (int i = 0; i < mx_model_params(s->model)->n; i++) {
        if (s->var.gradient[i] == MX_NONE) continue;
        double n = (double)mx_shape_count(mx_model_params(s->model)->leaves[i].shape);
        all += n;
        few += program_keeps_lost(s, i) ? n : 0;
    }
    return few / all;
}

static bool is_wanted(const MxConfig *config) {
    return program_wire(config) != MX_F32;
}

/* Nothing was lost before the first step. */
static void first(MxTrainState *s, MxTrace *t, int param, MxValue value) {
    (void)value;
    if (!program_keeps_lost(s, param)) return;
    int var = s->var.gradient[param];
    MxInitAttr zeros = {.type = s->vars.item[var].type};
    mx_trace_assign(t, mx_init(t, zeros), var, false);
}

static MxLeaf leaf_of(MxTrainState *s, int param) {
    Feedback *own = program_part(s, PART_feedback);
    int var = s->var.gradient[param];
    const MxSharding *at = &s->sharding[var];
    const MxShape shape = s->vars.item[var].type.shape;
    MxSharding stacked = {.dim = {at->partial}, .home = at->home};
    MxLeaf leaf = {.path = mx_arena_printf(s->arena, "mxtrain/feedback/%s",
                                           mx_model_params(s->model)->leaves[param].path),
                   .kind = MX_KIND_OPTIMIZER,
                   .dtype = MX_F32,
                   .shape = {.rank = shape.rank + 1, .dim = {1}},
                   .may_start_anew = true,
                   .keeper = &own->keeper,
                   .array = var};
    MX_ASSERT(leaf.shape.rank <= MX_MAX_RANK);
    for (int a = 0; a < s->mesh.mesh.n; a++)
        if (at->partial >> a & 1) leaf.shape.dim[0] *= s->mesh.mesh.sizes[a];
    for (int d = 0; d < shape.rank; d++) {
        stacked.dim[d + 1] = at->dim[d];
        leaf.shape.dim[d + 1] = shape.dim[d];
    }
    leaf.division = program_division(s, stacked, leaf.shape);
    return leaf;
}

static void show(MxTrainState *s) {
    Feedback *own = program_part(s, PART_feedback);
    own->keeper = program_stacked(s);
    for (int i = 0; i < mx_model_params(s->model)->n; i++)
        if (program_keeps_lost(s, i)) mx_tree_add(&s->tree, leaf_of(s, i));
}

const Part part_feedback = {
    .is_wanted = is_wanted,
    .bytes = sizeof(Feedback),
    .show = show,
    .first = first,
};
