/* fits.c — checks that a run has the memory that its plan needs, before any is allocated: against
 * the smallest limit of the machine, control groups and the shell. To suggest alternatives it
 * lowers the program again. */
#include "internal.h"

#include <unistd.h>

/* Memory, addresses, and data that may be written, of a process beyond what its plan counts:
 * libraries, the buffers of OpenBLAS (128 MiB each) and of the allocator, mapped and for the most
 * part never touched. Measured with glibc and OpenBLAS on x86-64, 1 to 8 threads; in memory 42 to
 * 50 MB. */
static const int64_t RESIDENT_BYTES = (int64_t)64 << 20;
static const int64_t MAPPED_BYTES = (int64_t)576 << 20, WRITABLE_BYTES = (int64_t)352 << 20,
                     STACK_BYTES = (int64_t)8 << 20;

static const double CLOSE = 0.9; /* from this share of what is allowed on it is told */

static double gib(int64_t bytes) {
    return (double)bytes / (1 << 30);
}

/* Ranks that share this machine's memory; all ranks call it. */
static int ranks_here(MxArena *arena, MxComm *comm) {
    char host[256] = "";
    int size = mx_comm_size(comm), n = 0;
    if (size == 1) return 1;
    uint64_t *hosts = mx_new_n(arena, uint64_t, size);
    int64_t *bytes = mx_new_n(arena, int64_t, size);
    for (int i = 0; i < size; i++) bytes[i] = sizeof *hosts;
    gethostname(host, sizeof host - 1);
    uint64_t own = mx_hash64(host, strlen(host));
    mx_comm_gather(comm, &own, hosts, bytes);
    mx_comm_broadcast(comm, hosts, (size_t)size * sizeof *hosts);
    for (int i = 0; i < size; i++) n += hosts[i] == own;
    return n;
}

/* ---- what would need less */

/* What a rank's program needs less under another policy, or with half the examples in a
 * micro-batch; 0 if it does not. */
static int64_t program_saves(MxArena *arena, const MxPlan *plan, const char *policy, bool halves) {
    MxConfig config = *plan->config;
    MxTrainMesh mesh = plan->mesh;
    PlanProgram now, then;
    MxError ignored = {0};
    mesh.config = &config;
    int64_t saved = 0;
    if (plan_program(arena, (PlanCase){.mesh = &mesh, .policy = config.remat}, &now, &ignored)) {
        if (halves) config.micro_batch_size_to_train_on /= 2;
        if (halves)
            config.micro_batch_size_to_eval_on = (config.micro_batch_size_to_eval_on + 1) / 2;
        if (plan_program(arena, (PlanCase){.mesh = &mesh, .policy = policy}, &then, &ignored))
            saved = now.bytes[PLAN_ACTIVATIONS] + now.bytes[PLAN_BUFFERS] -
                    then.bytes[PLAN_ACTIVATIONS] - then.bytes[PLAN_BUFFERS];
    }
    mx_error_release(&ignored);
    return saved > 0 ? saved : 0;
}

static void note_less(MxText *out, const char *key, int64_t saved) {
    if (saved > 0) mx_text_add(out, "\nhint: %s needs %.3f GiB less", key, gib(saved));
}

/* In the order in which they cost something: a pause at saves, time, another curve. Moments on disk
 * want the first, too. n_ranks: of
 * those that share what is short. */
static void note_remedies(MxArena *arena, const MxPlan *plan, int n_ranks, MxText *out) {
    static const char *const policies[] = {"minimal", "full"};
    const MxConfig *c = plan->config;
    bool is_thriftier = !strcmp(c->remat, "none");
    if (!plan->memory.is_apart) {
        note_less(out, "async_checkpointing=false", plan->memory.saving * n_ranks);
        note_less(out, "optimizer_memory_disk=DIR", plan->memory.optimizer * n_ranks);
    }
    for (int i = 0; i < MX_COUNT(policies); i++) {
        if (is_thriftier)
            note_less(out, mx_arena_printf(arena, "remat_policy=%s", policies[i]),
                      program_saves(arena, plan, policies[i], false) * n_ranks);
        is_thriftier = is_thriftier || !strcmp(c->remat, policies[i]);
    }
    if (c->per_device_batch_size >= 2)
        note_less(out,
                  mx_arena_printf(arena, "per_device_batch_size=%g", c->per_device_batch_size / 2),
                  program_saves(arena, plan, c->remat, true) * n_ranks);
}

/* ---- */

/* A bound and what the run needs of what it bounds. */
typedef struct Need {
    MxMemoryLimit limit;
    int64_t bytes;
    int n_ranks;    /* whose needs it adds up */
    const char *of; /* what it counts */
} Need;

static double share(const Need *need) {
    return (double)need->bytes / (double)need->limit.bytes;
}

/* The need that leaves least room. */
static Need tightest(MxArena *arena, const MxPlan *plan, int n_ranks) {
    MxMemoryLimits limits = mx_memory_limits(arena, "/");
    int64_t n_threads = plan->config->num_threads, total = plan->memory.total;
    if (n_threads <= 0) n_threads = sysconf(_SC_NPROCESSORS_ONLN);
    int64_t stacks = n_threads * STACK_BYTES;
    const char *shared = n_ranks == 1 ? "" : mx_arena_printf(arena, " for %d ranks here", n_ranks);
    bool is_apart = plan->memory.is_apart;
    int64_t here = is_apart ? plan->memory.saving + plan->memory.process : total; /* the host's */
    const Need needs[] = {
        {limits.memory, (here + RESIDENT_BYTES) * n_ranks, n_ranks, shared},
        {limits.addresses, here + plan->memory.disk + MAPPED_BYTES + stacks, 1, " of addresses"},
        {limits.data, here + WRITABLE_BYTES + stacks, 1, " of addresses"},
        {plan->memory.limit, total, 1, ""}, /* the device's own, if it has any */
    };
    int most = 0;
    for (int i = 1; i < MX_COUNT(needs) - !is_apart; i++)
        if (share(&needs[i]) > share(&needs[most])) most = i;
    return needs[most];
}

static bool judge(MxArena *arena, const MxPlan *plan, int n_ranks, MxError *err) {
    Need need = tightest(arena, plan, n_ranks);
    MxText text;
    if (share(&need) <= CLOSE) return true;
    mx_text_init(&text, arena);
    mx_text_add(&text, "the run needs %.3f GiB%s; %s has %.3f GiB", gib(need.bytes), need.of,
                need.limit.name, gib(need.limit.bytes));
    note_remedies(arena, plan, need.n_ranks, &text);
    if (share(&need) > 1) return mx_fail(err, MX_EXIT_NO_MEMORY, MX_NOWHERE, "%s", text.data);
    mx_warn("%s", text.data);
    return true;
}

/* Evaluation alone has no gradients, no moments and no copy to save. Its activations are fewer than
 * those of training, which stay. */
static void leave_training_out(PlanMemory *memory) {
    memory->gradients = memory->optimizer = memory->saving = 0;
    plan_add_up(memory);
}

bool mx_plan_fits(const MxConfig *config, bool only_evaluates, MxComm *comm, MxError *err) {
    MxArena arena = {.name = "plan"};
    MxPlan *plan;
    MxError others = {0};
    int n_ranks = ranks_here(&arena, comm);
    bool is_planned = mx_plan_new(&arena, config, NULL, &plan, &others);
    if (is_planned && only_evaluates) leave_training_out(&plan->memory);
    bool ok = !is_planned || judge(&arena, plan, n_ranks, err);
    mx_error_release(&others);
    mx_arena_release(&arena);
    return ok;
}
