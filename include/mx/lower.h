/* lower.h — passes from graph to lowered graph: gradient, rematerialisation, fusing, scheduling,
 * memory. Each takes a graph that verifies and leaves one that verifies. */
#ifndef MX_LOWER_H
#define MX_LOWER_H

#include <mx/ops.h>
#include <mx/shard.h>

/* One thing to differentiate with respect to: a variable's value, and the variable that takes its
 * gradient. */
typedef struct MxGradTarget {
    MxValue wrt;
    int var;
    bool add; /* add to what the gradient's variable holds instead of replacing it */
} MxGradTarget;

/* mx_grad — reverse mode: appends the gradient of a scalar to the trace and assigns it to the
 * targets' variables (f32). Nodes exist only along paths that reach a target. A target that the
 * loss does not depend on gets zeros. An op on such a path without a gradient rule makes the trace
 * fail. */
void mx_grad(MxTrace *t, MxValue loss, const MxGradTarget *targets, int n);

/* What the backward pass may keep of a rematerialisation region (a decoder layer) beside its
 * inputs. */
typedef enum MxRemat {
    MX_REMAT_NONE,    /* everything */
    MX_REMAT_MINIMAL, /* results of matrix products and attention; the rest is made again */
    MX_REMAT_FULL,    /* nothing: the region is run again */
    MX_REMAT_COUNT
} MxRemat;

typedef struct MxLowerOptions {
    const MxMachine *machine;
    MxRemat remat;
    size_t (*scratch_bytes)(const void *context, const MxGraph *graph, const MxNode *node);
    const void *context;
} MxLowerOptions;

/* ---- ranks */

/* Which part of an array a rank has: for each dim the mesh axes (by position in the mesh, as bits)
 * that cut it, the first in the mesh's order being the most significant; partial: mesh axes along
 * which the ranks' values have still to be summed. Axes of size one never occur. */
typedef struct MxSharding {
    uint32_t dim[MX_MAX_RANK], partial;
    int home; /* 1 + the only virtual stage of a pipeline that has it; 0 = all have */
} MxSharding;

/* mx_sharding_of_spec — a spec's mesh axes, in the mesh's order whatever the spec's. */
MxSharding mx_sharding_of_spec(const MxMesh *mesh, MxSpec spec);
/* mx_sharding_of_axes — what the rules make of logical axes. Errors: an axis twice. */
bool mx_sharding_of_axes(MxArena *arena, const MxMesh *mesh, const MxRules *rules,
                         const char *const *axes, int rank, MxSharding *out, MxError *err);
/* mx_sharding_spec — the way back, for boxes and messages. */
MxSpec mx_sharding_spec(MxArena *arena, const MxMesh *mesh, MxSharding s, int rank);
/* mx_sharding_shape — one rank's shape; every dim divides. */
MxShape mx_sharding_shape(const MxMesh *mesh, MxSharding s, MxShape shape);

/* How the graphs of a program are divided. */
typedef struct MxPartition {
    const MxMachine *machine; /* each rank's */
    const MxMesh *mesh;       /* at most 32 axes */
    const MxRules *rules;
    int64_t rank;
    const MxVars *vars;    /* the program's, with the rank's shapes … */
    const MxSharding *var; /* … and what of each the rank has */
    uint32_t apart;        /* mesh axes along which ranks run the graph on other values: nothing is
                              cut or exchanged along them. No variable is cut along them either */
    bool regathers; /* what the forward pass gathers in a layer is gathered anew in the backward
                       pass instead of being kept (rematerialisation sees to that by itself) */
} MxPartition;

/* mx_partition — one rank's graph with its collectives, from a graph over global shapes. It is the
 * same on all ranks but for attributes that say which part is meant. Every value is divided as its
 * constraint or its variable says, else as its op finds cheapest. Takes the global graph apart.
 * Errors: a constraint whose axes the rules cannot resolve. */
bool mx_partition(const MxPartition *partition, MxGraph *global, MxGraph **out, MxError *err);

/* mx_lower_group — the ranks that differ from one only along some mesh axes. */
MxGroup mx_lower_group(MxArena *arena, const MxMesh *mesh, int64_t rank, uint32_t axes);

/* ---- stages */

/* How graphs are divided among the stages of a pipeline. Neighbouring layers make a virtual stage;
 * those that a stage has, MxSharding.home counts round the stages. */
typedef struct MxStages {
    const MxMesh *mesh; /* stages stand along its axis "stage" */
    int64_t rank;
    int n_layers, n_each;    /* rematerialisation regions that are layers; of a virtual stage */
    int n_repeats, n_micros; /* virtual stages of a stage; micro-batches of an entry */
    bool gathers_once;       /* weights are gathered once for all micro-batches */
    const MxSharding *var;   /* of the program's variables */
    const int *const
        *own;             /* [micro-batch][variable] the variable that it has in that one's place */
    const bool *is_sum;   /* [variable] it takes the sum of what micro-batches make */
    const int *gradients; /* variables that micro-batches add to … */
    int n_gradients;
    bool adds; /* … and that hold something before; else it is forgotten */
} MxStages;

/* mx_cut_stages — what of a rank's graph (mx_partition) its stage runs, for all micro-batches in
 * the order of the pipeline's table, with what goes to other stages and comes from them. A variable
 * without a home that one stage writes is told to all at the end. The graphs of ranks of one stage
 * are alike. Takes the whole graph apart. Test: tests/mpi, on meshes with stages. */
void mx_cut_stages(const MxStages *stages, MxGraph *whole, MxGraph **out);

/* mx_stages_bubble — the part of the stages' time in which they wait for each other, if all layers
 * take the same time and a message none. */
double mx_stages_bubble(int n_stages, int n_repeats, int n_micros);

/* What the stages of a pipeline take for a micro-batch through one of their virtual stages, and a
 * message from one stage to the next, in seconds. */
typedef struct MxStageTimes {
    int n_stages, n_repeats, n_micros;
    const double *forward_s, *backward_s; /* [n_stages] */
    double message_s;
} MxStageTimes;

/* mx_stages_s — seconds from the first pass of all micro-batches to the last, in the order of the
 * pipeline's table, if messages go beside passes. Test: tests/lower/test_pipeline.c. */
double mx_stages_s(const MxStageTimes *times);

/* ---- what does not change */

/* mx_hoist_casts — casts of constants are made once instead of in every run of an entry: each gets
 * a variable of its own, which the entries read in place of it, and `into` makes it.
 *   vars         of all the graphs; grows
 *   is_constant  [variables there are] no entry changes it. When something else has, `into` is to
 *                be run before the next entry
 * Returns what each of the new variables is a cast of. For graphs over global shapes: a cast is
 * then divided as its variable is. Test: tests/lower/test_hoist.c. */
const int *mx_hoist_casts(MxVars *vars, const bool *is_constant, MxGraph *const *entries,
                          int n_entries, MxTrace *into);

/* ---- lowered graphs */

/* What runs: nodes in order and a place for every value. */
typedef struct MxLowered {
    const MxGraph *graph;
    const int *steps;  /* nodes that run (sources and views do not), in order */
    const int *phases; /* [n_steps] which of mx_op_phases of the node it is */
    int n_steps;
    const size_t *value_offset;   /* in the arena, for values that are in no variable */
    const size_t *scratch_offset; /* [n_steps], in the arena; one for all phases of a node */
    size_t arena_bytes;
} MxLowered;

enum { MX_BUFFER_ALIGN = 64 };

/* mx_lower — all passes; the graph is rewritten in place. */
MxLowered mx_lower(MxGraph *graph, const MxLowerOptions *options);

/* The single passes, in the order in which mx_lower runs them. Values never change what they mean.
 */
void mx_pass_remat(
    MxGraph *graph,
    MxRemat remat); /* makes forward nodes again where the backward pass needs them */
void mx_pass_fuse(MxGraph *graph); /* casts into producers, cross-entropy into its gradient */
void mx_pass_fuse_losses(MxGraph *graph); /* the latter alone */
void mx_pass_schedule(MxGraph *graph);    /* drops dead nodes; stable topological order */
/* Small exchanges of a kind in one; keeps a good order. */
void mx_pass_bucket(MxGraph *graph, const MxMachine *machine);
/* Exchanges beside computation; comes last. */
void mx_pass_overlap(MxGraph *graph, const MxMachine *machine);
MxLowered mx_pass_memory(const MxGraph *graph, const MxLowerOptions *options);

#endif
