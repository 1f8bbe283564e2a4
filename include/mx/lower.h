/* lower.h — passes from graph to lowered graph: gradient, rematerialisation, fusing, scheduling,
 * memory. Graphs are valid (mx_graph_verify) before and after each pass. */
#ifndef MX_LOWER_H
#define MX_LOWER_H

#include <mx/ops.h>
#include <mx/shard.h>

/* A variable's value to differentiate with respect to, and the variable that receives the gradient.
 */
typedef struct MxGradTarget {
    MxValue wrt;
    int var;
    bool add; /* add to the contents of the gradient's variable instead of replacing them */
} MxGradTarget;

/* mx_grad — reverse mode: appends the gradient of a scalar to the trace and assigns it to the
 * targets' variables (f32). Nodes are added only along paths to a target. A target that the loss
 * does not depend on gets zeros. The trace fails if an op on such a path has no gradient rule. */
void mx_grad(MxTrace *t, MxValue loss, const MxGradTarget *targets, int n);

/* Which values of a rematerialisation region (a decoder layer) the backward pass may keep besides
 * its inputs. */
typedef enum MxRemat {
    MX_REMAT_NONE,    /* everything */
    MX_REMAT_MINIMAL, /* results of matrix products and attention; the rest is recomputed */
    MX_REMAT_FULL,    /* none: the whole region is recomputed */
    MX_REMAT_COUNT
} MxRemat;

typedef struct MxLowerOptions {
    const MxMachine *machine;
    MxRemat remat;
    size_t (*scratch_bytes)(const void *context, const MxGraph *graph, const MxNode *node);
    const void *context;
} MxLowerOptions;

/* ---- ranks */

/* Which part of an array a rank has. dim: for each dim the mesh axes (by position in the mesh, as
 * bits) that cut it; the first in the mesh's order is the most significant. partial: mesh axes
 * along which the ranks' values must still be summed. Axes of size one never occur. */
typedef struct MxSharding {
    uint32_t dim[MX_MAX_RANK], partial;
    uint32_t swapped; /* dims, as bits, along which ranks have swapped halves (op_swap_halves) */
    int home; /* 1 + the only virtual stage of a pipeline that has the array; 0 = all have it */
} MxSharding;

/* mx_sharding_of_spec — the mesh axes of a spec, in the order of the mesh. */
MxSharding mx_sharding_of_spec(const MxMesh *mesh, MxSpec spec);
/* mx_sharding_of_axes — the sharding of logical axes according to the rules. Errors: an axis twice.
 */
bool mx_sharding_of_axes(MxArena *arena, const MxMesh *mesh, const MxRules *rules,
                         const char *const *axes, int rank, MxSharding *out, MxError *err);
/* mx_sharding_spec — the inverse, for boxes and messages. */
MxSpec mx_sharding_spec(MxArena *arena, const MxMesh *mesh, MxSharding s, int rank);
/* mx_sharding_shape — the shape of one rank's part; every dim must be divisible. */
MxShape mx_sharding_shape(const MxMesh *mesh, MxSharding s, MxShape shape);

/* How the graphs of a program are divided. */
typedef struct MxPartition {
    const MxMachine *machine; /* the machine of each rank */
    const MxMesh *mesh;       /* at most 32 axes */
    const MxRules *rules;
    int64_t rank;
    const MxVars *vars;    /* the program's variables, with the rank's shapes … */
    const MxSharding *var; /* … and the sharding of each */
    uint32_t apart;        /* mesh axes along which ranks run the same graph with different values:
                              nothing, including variables, is cut or exchanged along them */
    bool regathers; /* values that the forward pass gathers in a layer are gathered again in the
                       backward pass instead of being kept (with rematerialisation this happens
                       anyway) */
    bool balances;  /* ranks swap halves of their parts if these are uneven work and the swap costs
                       less than waiting for the rank with the most */
    bool rings;     /* where ranks share queries, keys go around even if it costs as much to gather
                       them (MxFactors.ring); on machines that have rings */
} MxPartition;

/* mx_partition — one rank's graph with its collectives, from a graph over global shapes. It is the
 * same on all ranks except for attributes that select a rank's part. Every value is sharded as its
 * constraint or its variable says, otherwise as is cheapest for its op. Destroys the global graph.
 * Errors: a constraint whose axes the rules cannot resolve. */
bool mx_partition(const MxPartition *partition, MxGraph *global, MxGraph **out, MxError *err);

/* mx_lower_group — the ranks that differ from the given one only along some mesh axes. */
MxGroup mx_lower_group(MxArena *arena, const MxMesh *mesh, int64_t rank, uint32_t axes);

/* ---- stages */

/* How graphs are divided among the stages of a pipeline. Neighbouring layers form a virtual stage.
 * MxSharding.home numbers virtual stages round robin over the stages. */
typedef struct MxStages {
    const MxMesh *mesh; /* its axis "stage" has the stages */
    int64_t rank;
    int n_layers, n_each;    /* layers, which are remat regions; layers of a virtual stage */
    int n_repeats, n_micros; /* virtual stages of a stage; micro-batches of an entry */
    bool gathers_once;       /* weights are gathered once for all micro-batches */
    const MxSharding *var;   /* sharding of the program's variables */
    const int *const
        *own; /* [micro-batch][variable] the variable that this micro-batch uses instead */
    const bool *is_sum;   /* [variable] it receives the sum over micro-batches */
    const int *gradients; /* variables that micro-batches add to */
    int n_gradients;
    const bool
        *adds; /* [variable] its contents before the entry count; else they are overwritten */
} MxStages;

/* mx_cut_stages — the part of a rank's graph (mx_partition) that its stage runs, for all
 * micro-batches in the order of the pipeline's table, with messages to and from other stages. If
 * one stage writes a variable without a home, all others receive its value at the end. Ranks of one
 * stage have the same graph. Destroys the whole graph. Test: tests/mpi, on meshes with stages. */
void mx_cut_stages(const MxStages *stages, MxGraph *whole, MxGraph **out);

/* mx_stages_bubble — the share of time in which stages wait for each other, assuming that all
 * layers take the same time and messages none. */
double mx_stages_bubble(int n_stages, int n_repeats, int n_micros);

/* Seconds that each stage of a pipeline needs for a micro-batch in one of its virtual stages, and
 * seconds of a message from one stage to the next. */
typedef struct MxStageTimes {
    int n_stages, n_repeats, n_micros;
    const double *forward_s, *backward_s; /* [n_stages] */
    double message_s;
} MxStageTimes;

/* mx_stages_s — seconds from the first pass of all micro-batches to the last, in the order of the
 * pipeline's table, if messages overlap with passes. Test: tests/lower/test_pipeline.c. */
double mx_stages_s(const MxStageTimes *times);

/* ---- constants */

/* mx_hoist_casts — makes casts of constants once instead of in every run of an entry: each cast
 * gets its own variable, which the entries read instead, and `into` computes it.
 *   vars         variables of all the graphs; grows
 *   is_constant  [existing variables] no entry changes it. If something else does, `into` must
 *                be run before the next entry
 * Returns, for each new variable, the variable of which it is a cast. For graphs over global
 * shapes: a cast then has the sharding of its variable. Test: tests/lower/test_hoist.c. */
const int *mx_hoist_casts(MxVars *vars, const bool *is_constant, MxGraph *const *entries,
                          int n_entries, MxTrace *into);

/* ---- lowered graphs */

/* A graph ready to run: nodes in order and a place for every value. */
typedef struct MxLowered {
    const MxGraph *graph;
    const int *steps;  /* nodes with kernels (not sources and views), in order */
    const int *phases; /* [n_steps] which of the node's mx_op_phases */
    int n_steps;
    const size_t *value_offset;   /* in the arena, for values not assigned to a variable */
    const size_t *scratch_offset; /* [n_steps] in the arena; the same for all phases of a node */
    size_t arena_bytes;
} MxLowered;

enum { MX_BUFFER_ALIGN = 64 };

/* mx_lower — all passes; the graph is rewritten in place. */
MxLowered mx_lower(MxGraph *graph, const MxLowerOptions *options);

/* The single passes, in the order in which mx_lower runs them. A pass never changes the meaning of
 * a value. */
void mx_pass_remat(MxGraph *graph,
                   MxRemat remat); /* recomputes forward nodes where the backward pass needs them */
void mx_pass_fuse(MxGraph *graph); /* fuses casts into producers, cross-entropy into its gradient */
void mx_pass_fuse_losses(MxGraph *graph); /* only the latter */
void mx_pass_schedule(MxGraph *graph);    /* drops dead nodes; stable topological order */
/* Moves gathers of small weights to the first of them; keeps the order good for overlap. */
void mx_pass_gathers(MxGraph *graph, const MxMachine *machine);
/* Combines small exchanges of the same kind; keeps the order good for overlap. */
void mx_pass_bucket(MxGraph *graph, const MxMachine *machine);
/* Overlaps exchanges with computation; the last of these passes. */
void mx_pass_overlap(MxGraph *graph, const MxMachine *machine);
MxLowered mx_pass_memory(const MxGraph *graph, const MxLowerOptions *options);

#endif
