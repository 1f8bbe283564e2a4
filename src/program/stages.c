/* stages.c — a program among the stages of a pipeline: a stage has the parameters of its layers,
 * and those outside layers; each micro-batch in the pipeline has its own variables. mx_cut_stages
 * divides the graphs. */
#include <mx/program.h>

#include "internal.h"

bool program_is_piped(const MxTrainState *s) {
    return mx_mesh_stages(&s->mesh.mesh) != 0;
}

bool mx_train_check_stages(const MxTrainMesh *mesh, MxError *err) {
    const MxConfig *c = mesh->config;
    const struct {
        bool is_asked;
        MxKey key;
    } refused[] = {
        {c->use_qk_clip, MX_KEY_use_qk_clip},
        {mx_config_distils(c),
         c->offline_data_dir ? MX_KEY_offline_data_dir : MX_KEY_teacher_overrides},
    };
    for (int i = 0; mesh->n_stages > 1 && i < MX_COUNT(refused); i++)
        if (refused[i].is_asked)
            return mx_config_fail(err, c, refused[i].key,
                                  "not available yet in a pipeline: mesh axis \"stage\" has size "
                                  "%lld",
                                  (long long)mesh->n_stages);
    return true;
}

/* ---- who has what */

int program_home(const MxTrainState *s, const MxLeaf *leaf) {
    int layer = program_is_piped(s) ? mx_model_layer(s->model, leaf) : -1;
    return layer < 0 ? 0 : 1 + layer / (int)s->mesh.stage_layers;
}

bool program_has(const MxTrainState *s, MxSharding sharding, int64_t rank) {
    const MxMesh *mesh = &s->mesh.mesh;
    int axis = mx_mesh_find(mesh, "stage");
    return !program_is_piped(s) || !sharding.home ||
           (sharding.home - 1) % mesh->sizes[axis] == mx_mesh_coord(mesh, rank, axis);
}

/* ---- micro-batches */

int program_own(const MxTrainState *s, int var, int lane) {
    return lane ? s->own[lane][var] : var;
}

void program_add_lanes(MxTrainState *s) {
    int n = (int)s->config->pipeline_micro_batches, n_vars = s->vars.n;
    s->own = mx_new_n(s->arena, int *, n);
    for (int lane = 0; lane < n; lane++) {
        s->own[lane] = mx_new_n(s->arena, int, n_vars);
        for (int var = 0; var < n_vars; var++) {
            s->own[lane][var] = var;
            if (!lane || var >= s->var.first_cast || !s->role[var].is_of_micro) continue;
            MxVar item = s->vars.item[var];
            const char *name = mx_arena_printf(s->arena, "%s/%d", item.name, lane);
            s->own[lane][var] = mx_vars_add(&s->vars, name, item.type);
            program_divide_like(s, s->own[lane][var], var);
        }
    }
}

/* ---- entries */

/* adds  [variable] its contents before the entry count */
static MxStages stages_of(MxTrainState *s, const bool *adds) {
    bool *is_sum = mx_new_n(s->arena, bool, s->vars.n);
    for (int var = 0; var < s->var.first_cast; var++) is_sum[var] = s->role[var].is_sum;
    return (MxStages){.mesh = &s->mesh.mesh,
                      .rank = s->rank,
                      .n_layers = (int)s->config->num_decoder_layers,
                      .n_each = (int)s->mesh.stage_layers,
                      .n_repeats = (int)s->mesh.n_repeats,
                      .n_micros = 1,
                      .gathers_once = s->config->pipeline_fsdp_ag_once,
                      .var = s->sharding,
                      .own = (const int *const *)s->own,
                      .is_sum = is_sum,
                      .adds = adds};
}

/* Those of a step's passes take all micro-batches. */
static MxStages stages_of_step(MxTrainState *s, bool *adds, bool all_add) {
    MxStages stages = stages_of(s, adds);
    int *gradients = mx_new_n(s->arena, int, mx_model_params(s->model)->n);
    for (int var = 0; var < s->vars.n; var++) adds[var] = all_add;
    for (int i = 0; i < mx_model_params(s->model)->n; i++) {
        if (s->var.gradient[i] == MX_NONE) continue;
        gradients[stages.n_gradients++] = s->var.gradient[i];
        if (program_keeps_lost(s, i)) adds[s->var.gradient[i]] = true;
    }
    stages.n_micros = (int)s->config->pipeline_micro_batches;
    stages.gradients = gradients;
    return stages;
}

void program_cut_stages(MxTrainState *s) {
    for (int i = 0; i < s->n_entries; i++) {
        bool is_step = s->entry[i] == &entry_grad || s->entry[i] == &entry_grad_add;
        bool *adds = mx_new_n(s->arena, bool, s->vars.n);
        MxStages stages =
            is_step ? stages_of_step(s, adds, s->entry[i] == &entry_grad_add) : stages_of(s, adds);
        mx_cut_stages(&stages, s->entries[i], &s->entries[i]);
    }
    for (int var = 0; var < s->local.n; var++) {
        if (program_has(s, s->sharding[var], s->rank)) continue;
        s->local.item[var].type.shape.dim[0] = s->box[var].count[0] = 0;
    }
}
