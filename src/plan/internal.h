/* internal.h — shared by the files of the plan room: a config's mesh and rules, its parameters as
 * stored arrays with their shards, and the finished plan. */
#ifndef PLAN_INTERNAL_H
#define PLAN_INTERNAL_H

#include <mx/model.h>
#include <mx/plan.h>
#include <mx/shard.h>
#include <mx/program.h>

/* ---- arrays.c */

/* A parameter as a checkpoint stores it: a leaf, or all layers' leaves stacked. */
typedef struct PlanArray {
    const char *path;
    MxDtype dtype;
    MxShape shape;
    MxResolved how;
    MxShape shard;          /* of the largest part, where parts differ */
    const char *error;      /* "IndivisibleError": the shard has no shape; NULL = it has */
    const char *error_text; /* the message that running would give */
    const MxLeaf *leaf;     /* the first one in it */
} PlanArray;

/* A finding about one or more arrays. */
typedef struct PlanWarning {
    MxFinding finding;
    const char *path; /* the first array, NULL = the rules themselves */
    int n_arrays;
    bool is_activation;
} PlanWarning;

typedef struct PlanWarnings {
    MxArena *arena;
    PlanWarning *items;
    int n, cap;
    MxMap seen;
} PlanWarnings;

void plan_warnings_init(PlanWarnings *warnings, MxArena *arena);
/* plan_warn — adds what the resolution of an array's names passed over, on several devices. */
bool plan_warn(PlanWarnings *warnings, const MxTrainMesh *mesh, const char *path, MxSpec names,
               bool is_activation, MxError *err);
/* plan_warn_rules — adds what is doubtful about the rules themselves. */
void plan_warn_rules(PlanWarnings *warnings, const MxTrainMesh *mesh);

/* plan_arrays — every parameter of the model, in the order of its tree. */
bool plan_arrays(MxArena *arena, const MxTrainMesh *mesh, const MxModel *model, PlanArray **out,
                 int *n, MxError *err);
/* plan_shard_text — the shard's shape or "ERR IndivisibleError"; plan_shape_text — "4096x11008". */
const char *plan_shard_text(MxArena *arena, const PlanArray *array);
const char *plan_shape_text(MxArena *arena, MxShape shape);

/* ---- line.c */

/* Depths of two models of which a deep one's needs are known, in layers. */
typedef struct PlanLine {
    int64_t few, more, layers, period;
} PlanLine;

/* plan_line — the least depths from `few` and `more` on that differ from the config's, and from
 * each other, by whole periods. plan_on_line — what the config's depth needs if those need so much.
 */
PlanLine plan_line(const MxConfig *config, int64_t few, int64_t more);
int64_t plan_on_line(const PlanLine *line, int64_t few, int64_t more);
double plan_seconds_on_line(const PlanLine *line, double few, double more);

/* ---- program.c, collectives.c */

/* Parts of a step: passes over all micro-batches; what comes before and after them. */
typedef enum PlanPhase { PLAN_FORWARD, PLAN_BACKWARD, PLAN_REST, PLAN_PHASES } PlanPhase;

/* Exchanges of one kind over the same mesh axes, by one rank in one step. */
typedef struct PlanExchanges {
    const char *op, *axes;
    int64_t calls, bytes; /* bytes sent to other ranks … */
    int64_t slow;         /* … and of these to ranks of other slices */
    /* Told apart where times are planned. */
    PlanPhase phase;
    bool is_of_layers; /* of decoder layers */
    double seconds;    /* one after another */
} PlanExchanges;

typedef struct PlanTraffic {
    PlanExchanges *rows;
    int n;
    uint32_t late; /* mesh axes along which gradients are summed once for all micro-batches */
    int64_t whole; /* bytes by which whole gradients are larger than a rank's parts along fsdp; as
                      many are sent by each micro-batch that sums them up */
} PlanTraffic;

/* Bytes of rank 0; moments of all ranks together. */
enum {
    PLAN_WEIGHTS,
    PLAN_GRADIENTS,
    PLAN_OPTIMIZER,
    PLAN_DISK,
    PLAN_OUTER,
    PLAN_REFERENCE,
    PLAN_ACTIVATIONS,
    PLAN_CASTS,
    PLAN_BUFFERS,
    PLAN_MOMENTS,
    PLAN_BYTES
};

/* Seconds of a rank's step by phase: of kernels; of exchanges, and of those what no kernel hides.
 */
typedef struct PlanSeconds {
    double kernels[PLAN_PHASES], exchanges[PLAN_PHASES], exposed[PLAN_PHASES];
    double message; /* between stages, the longest */
} PlanSeconds;

/* A step of all ranks. */
typedef struct PlanStep {
    double seconds, kernels, exchanges, exposed; /* of the first stage's ranks */
    double bubble;                               /* seconds in which a stage waits, on average */
} PlanStep;

/* What rank 0 runs of a mesh's program. */
typedef struct PlanProgram {
    const char *device;    /* of this machine, in a line */
    int64_t device_memory; /* of its own; 0 = it uses the host's */
    const char *refusal;   /* why no run takes the mesh, and these are estimates; NULL = one does */
    int64_t bytes[PLAN_BYTES];
    PlanTraffic traffic, outer; /* of a step, of an outer one */
    PlanTraffic timed;          /* of a step, by phase, on the case's device */
    PlanStep step;              /* there; zeros without a device */
} PlanProgram;

/* What a program is lowered for. */
typedef struct PlanCase {
    const MxTrainMesh *mesh;
    const char *policy;         /* remat to assume */
    const MxPlanDevice *device; /* NULL = times are not wanted */
    PlanWarnings *warnings; /* those of the activation constraints are added; NULL = not wanted */
} PlanCase;

/* plan_program — lowers the program of a mesh. Errors: what neither a run nor a plan takes. */
bool plan_program(MxArena *arena, PlanCase of, PlanProgram *out, MxError *err);

/* plan_traffic — what one step of a program exchanges, or an outer one (enable_diloco);
 * plan_extend_traffic — makes two shallow programs' exchanges those of a deep one. */
void plan_traffic(MxArena *arena, const MxTrainMesh *mesh, const MxTrainProgram *program,
                  bool is_outer, PlanTraffic *out);
void plan_extend_traffic(MxArena *arena, const PlanLine *line, PlanTraffic *few, PlanTraffic *more);
/* plan_row — the row of exchanges like these, a new one if there is none. plan_exchange — what a
 * node exchanges, with which group; NULL = nothing. plan_sends_to — whether this rank sends to a
 * member of that group. plan_runs — how often an entry runs in a step,
 * or in the outer step of each fragment. */
PlanExchanges *plan_row(MxArena *arena, PlanTraffic *traffic, PlanExchanges like);
const MxGroup *plan_exchange(const MxMachine *machine, const MxGraph *graph, const MxNode *node,
                             MxCommCost *cost);
bool plan_sends_to(const MxNode *node, const MxGroup *group, int member);
int64_t plan_runs(const MxConfig *config, const char *entry, bool is_outer);
/* plan_traffic_s — seconds of all of it one after another over a kind of link. */
enum { PLAN_LINKS = 3 };
double plan_traffic_s(const PlanTraffic *traffic, int link);
const char *plan_link_name(int link);

/* ---- time.c */

/* plan_time — seconds of a rank's program on a device, and its exchanges by phase.
 * plan_extend_seconds — makes those of two shallow programs those of a deep one. plan_step — the
 * step of all ranks; `last` is of the last stage's, NULL = there is one stage. */
void plan_time(MxArena *arena, const PlanCase *of, const MxTrainProgram *program, PlanSeconds *out,
               PlanTraffic *timed);
void plan_extend_seconds(const PlanLine *line, const PlanSeconds *few, PlanSeconds *more);
PlanStep plan_step(const MxTrainMesh *mesh, const PlanSeconds *first, const PlanSeconds *last);
const char *plan_phase_name(PlanPhase phase);

/* ---- memory.c */

/* Bytes of one rank. */
typedef struct PlanMemory {
    int64_t weights, gradients, optimizer, outer, reference, activations, casts, buffers, saving;
    int64_t process, total;
    bool is_apart;       /* the device has memory of its own: `saving` and `process`, which are in
                            the host's, are not in the total */
    int64_t disk;        /* in a file, not in the total */
    MxMemoryLimit limit; /* of this machine or a control group of it */
    bool is_exact;       /* nothing is estimated but the process itself: a run takes the mesh */
    struct {
        const char *policy;
        int64_t activations;
    } other[2]; /* remat policies that need less, if memory is short; NULL = none */
} PlanMemory;

/* plan_count_memory — of the plan's program. plan_memory — and, if it is short, of other policies.
 */
void plan_count_memory(MxArena *arena, MxPlan *plan);
/* plan_add_up — fills in the total. */
void plan_add_up(PlanMemory *memory);
bool plan_memory(MxArena *arena, MxPlan *plan, MxError *err);

/* ---- plan.c */

typedef struct PlanCount {
    int64_t total, active, embedding, trainable, bytes;
} PlanCount;

struct MxPlan {
    const MxConfig *config;
    const MxPlanDevice *device; /* NULL = this machine, without times */
    MxTrainMesh mesh;
    MxModel *model;
    PlanArray *arrays;
    int n_arrays;
    PlanWarnings warnings;
    PlanCount parameters;
    PlanMemory memory;
    PlanProgram program;
    MxTflops tflops;
    MxShardReport unsharded;
    const char *unsharded_text; /* why the tolerance check fails; NULL = it passes */
    const char *refusal;        /* what a run refuses of the config; NULL = nothing */
};

/* plan_sharding — all of a plan but what needs the program: the mesh, the arrays, what there is to
 * say of the rules, counts, the tolerance check. Errors: as mx_plan_new. */
bool plan_sharding(MxArena *arena, const MxConfig *config, MxPlan *plan, MxError *err);

/* ---- print.c, time_print.c */

/* plan_print_time, plan_put_time — what plan_time found, as text and as JSON. */
void plan_print_time(const MxPlan *plan, MxText *out);
void plan_put_time(const MxPlan *plan, MxJson *root);

/* plan_where_text — "file:line", or "<command line>". */
const char *plan_where_text(MxArena *arena, MxWhere where);

#endif
