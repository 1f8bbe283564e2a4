/* memory.c — bytes of one rank: those of its program (program.c), the process itself, and the copy
 * that is written in the background. */
#include "internal.h"

/* Code, libraries and stacks of a process that does nothing; measured with glibc, OpenBLAS and
 * oneDNN on x86-64, 2 threads. */
static const int64_t PROCESS_BYTES = (int64_t)32 << 20;

void plan_add_up(PlanMemory *m) {
    m->total = m->weights + m->gradients + m->optimizer + m->outer + m->reference + m->activations +
               m->casts + m->buffers + (m->is_apart ? 0 : m->saving + m->process);
}

/* Policies that would need less, each with what it needs. */
static bool find_other_policies(MxArena *arena, MxPlan *plan, MxError *err) {
    static const char *const policies[] = {"minimal", "full"};
    int n = 0;
    bool is_thriftier = !strcmp(plan->config->remat, "none");
    for (int i = 0; i < MX_COUNT(policies); i++) {
        if (is_thriftier) {
            PlanProgram program;
            if (!plan_program(arena, (PlanCase){.mesh = &plan->mesh, .policy = policies[i]},
                              &program, err))
                return false;
            plan->memory.other[n].policy = policies[i];
            plan->memory.other[n++].activations = program.bytes[PLAN_ACTIVATIONS];
        }
        is_thriftier = is_thriftier || !strcmp(plan->config->remat, policies[i]);
    }
    return true;
}

/* What all replicas have for themselves, and the outer momentum; the outer parameters are the
 * weights. */
static int64_t bytes_of_replicas(const MxPlan *plan, int64_t each, int64_t moments) {
    const PlanCount *n = &plan->parameters;
    if (!plan->config->enable_diloco) return moments;
    return n->trainable * (int64_t)sizeof(float) +
           plan->config->diloco_replicas * (n->trainable * each + moments);
}

/* The copy of what a rank writes of the state in the background: without a frozen base, and without
 * a teacher. Each box is written by one rank, and ranks share them evenly, up to the size of one.
 */
static int64_t saving_bytes(const MxPlan *plan) {
    const MxConfig *c = plan->config;
    const PlanCount *n = &plan->parameters;
    const int64_t *bytes = plan->program.bytes;
    MxDtype weight;
    bool known = mx_dtype_parse(c->weight_dtype, &weight);
    MX_ASSERT(known);
    int64_t each = (int64_t)mx_dtype_bytes(weight);
    int64_t moments = bytes[PLAN_MOMENTS] * (plan->program.refusal ? plan->mesh.n_stages : 1);
    int64_t state = (mx_model_lora(plan->model) ? n->trainable : n->total) * each +
                    bytes_of_replicas(plan, each, moments);
    if (bytes[PLAN_REFERENCE] && !c->teacher) state += n->total * each;
    if (!c->enable_checkpointing || !c->async_checkpointing) return 0;
    return (state - 1) / plan->mesh.mesh.n_ranks + 1;
}

/* Of the device that is planned for. */
static MxMemoryLimit memory_of(MxArena *arena, const MxPlan *plan) {
    const MxPlanDevice *device = plan->device;
    if (!device && plan->program.device_memory)
        return (MxMemoryLimit){.name = "the GPU", .bytes = plan->program.device_memory};
    if (!device || !device->memory_bytes) return mx_memory_limits(arena, "/").memory;
    return (MxMemoryLimit){.name = mx_arena_printf(arena, "device %s", device->name),
                           .bytes = device->memory_bytes};
}

void plan_count_memory(MxArena *arena, MxPlan *plan) {
    PlanMemory *m = &plan->memory;
    const int64_t *bytes = plan->program.bytes;
    *m = (PlanMemory){.weights = bytes[PLAN_WEIGHTS],
                      .gradients = bytes[PLAN_GRADIENTS],
                      .optimizer = bytes[PLAN_OPTIMIZER],
                      .disk = bytes[PLAN_DISK],
                      .outer = bytes[PLAN_OUTER],
                      .reference = bytes[PLAN_REFERENCE],
                      .activations = bytes[PLAN_ACTIVATIONS],
                      .casts = bytes[PLAN_CASTS],
                      .buffers = bytes[PLAN_BUFFERS],
                      .saving = saving_bytes(plan),
                      .process = PROCESS_BYTES,
                      .limit = memory_of(arena, plan),
                      .is_apart = plan->program.device_memory > 0,
                      .is_exact = !plan->program.refusal};
    plan_add_up(m);
}

bool plan_memory(MxArena *arena, MxPlan *plan, MxError *err) {
    plan_count_memory(arena, plan);
    return plan->memory.total <= plan->memory.limit.bytes || find_other_policies(arena, plan, err);
}
