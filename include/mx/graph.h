/* graph.h — the static graph: values, nodes, the trace that builds it, the verifier and the
 * printer.
 *
 * A program has variables, persistent buffers that outlive a step (parameters, gradients, moments,
 * the batch, metrics), and entries, each a graph that reads some variables and writes others.
 * Inside a graph nothing changes: a node takes values and makes new ones. A value may be *assigned*
 * to a variable: it is then computed in that variable's buffer, or added to the buffer's contents.
 * Nodes are stored in the order in which they run. */
#ifndef MX_GRAPH_H
#define MX_GRAPH_H

#include <mx/base.h>

typedef int32_t MxValue; /* index of a value in its graph */
enum { MX_NONE = -1, MX_MAX_OUT = 5 };

typedef struct MxType {
    MxDtype dtype;
    MxShape shape;
} MxType;

typedef struct MxVar {
    const char *name;
    MxType type;
    bool is_on_disk; /* stored in a file, which is mapped page by page (MxDeviceConfig.folder) */
} MxVar;

/* The variables of a program, shared by its graphs. */
typedef struct MxVars {
    MxArena *arena;
    MxVar *item;
    int n, cap;
} MxVars;

typedef struct MxTrace MxTrace;
typedef struct MxNode MxNode;
typedef struct MxOp MxOp;

/* Inputs and results of a shape rule. A rule that fails calls mx_infer_fail. */
typedef struct MxInfer {
    const MxType *in;
    int n_in;
    const void *attr;
    MxType out[MX_MAX_OUT];
    int n_out;
    MxText *message;
} MxInfer;

bool mx_infer_fail(MxInfer *infer, const char *fmt, ...) MX_PRINTF(2, 3);

/* Inputs and results of a gradient rule: cotangents of the outputs (MX_NONE = zero) and which
 * inputs need one. The rule adds nodes to the trace and fills dx (MX_NONE = zero). in and out are
 * the node's values. */
typedef struct MxVjp {
    MxTrace *t;
    const void *attr;
    const MxValue *in, *out, *dy;
    int n_in;
    const bool *needs;
    MxValue *dx; /* of the inputs' types; for a variable also float32 */
} MxVjp;

/* How an op can be divided among ranks. Its dims belong to *factors*: cutting (sharding) a factor
 * cuts every dim that belongs to it, and each rank runs the op on its parts. An output without a
 * dim of a cut factor is then a *partial* value: the op's result is the sum over the ranks. A dim
 * without a factor (MX_WHOLE) cannot be cut. Test: tests/mpi, every op on many meshes. */
enum { MX_WHOLE = -1, MX_MAX_FACTORS = 12, MX_MAX_CUT_IN = 9 };

typedef struct MxFactors {
    const MxType *in, *out; /* global */
    int n_in, n_out;
    const void *attr;
    int n; /* factors */
    int in_dim[MX_MAX_CUT_IN][MX_MAX_RANK], out_dim[MX_MAX_OUT][MX_MAX_RANK];
    unsigned linear; /* inputs that may be partial together; then so is the output */
    /* A factor that cannot be summed afterwards, such as the dim of a softmax: if it is cut, the op
     * itself exchanges data between its ranks (`exchange`), and these outputs are then complete. */
    int joined;          /* MX_WHOLE = none */
    unsigned joins;      /* outputs */
    double joined_bytes; /* bytes that a rank sends to another if nothing else is cut */
    /* A factor whose later elements are more work: an element is as much work as there are elements
     * before it, at most `ramp`. If it is cut, ranks may swap halves of their parts, so that all
     * have the same work (op_swap_halves); MxShare then says where both halves are. */
    int swapped; /* MX_WHOLE = none */
    double ramp;
    /* Inputs and outputs that each part of a factor needs whole along a dim, such as the keys of
     * queries. If the factor is cut, ranks may instead keep their parts of these dims, of as many
     * elements, and send them around (MxOp.ring). */
    int ring;                   /* the factor; MX_WHOLE = none */
    int ring_dim;               /* of all of them */
    unsigned ring_in, ring_out; /* by position */
    int64_t ring_reach; /* an element needs at most so many, itself and those before it; 0 = all */
} MxFactors;

/* The ranks that differ from this one only along some mesh axes, in the mesh's order. */
typedef struct MxGroup {
    const char *axes; /* "data,fsdp" */
    uint64_t id;      /* identifies this division of the ranks; the same on all of them */
    int size, index;  /* number of ranks; position of this rank among them */
    const int *ranks; /* [size] in their order */
    uint32_t bits;    /* the mesh axes, by position; keeps messages of different axes apart */
    bool is_uneven; /* the ranks belong to several stages, whose programs differ: its exchanges keep
                       their order and are never combined */
} MxGroup;

/* One rank's share of a node, for attributes that depend on the share. */
typedef struct MxShare {
    const MxType *out;    /* local */
    const int64_t *start; /* [factor] index of the share's first element along its dims */
    const bool *is_cut;   /* [factor] */
    const MxGroup *group; /* [factor] the ranks with its other parts, if it is cut */
    bool is_swapped; /* the second half of the part of MxFactors.swapped is another rank's … */
    int64_t second;  /* … and starts here */
} MxShare;

/* Cost of exchanges for one rank. */
typedef struct MxCommCost {
    int64_t calls, bytes; /* exchanges; bytes sent to other ranks */
} MxCommCost;

/* What a collective op computes from the arrays of the ranks of a group. */
typedef enum MxCollective {
    MX_NO_COLLECTIVE,
    MX_ALL_REDUCE,     /* their sum */
    MX_REDUCE_SCATTER, /* a part of the sum */
    MX_ALL_GATHER,     /* all of them, joined */
    MX_ALL_TO_ALL,     /* a part of each array, joined along another dim */
    MX_SWAP_HALVES,    /* the first half of this rank's, the second half of the opposite rank's */
    MX_RING_SHIFT,     /* the array of the rank so many places before this one */
    MX_RECEIVE,        /* the array that another rank sends; its attributes are an MxPeerAttr */
} MxCollective;

/* Describes the machine that a program is prepared for, to ops and passes; each backend has one. */
typedef struct MxMachine {
    /* Work that a rank can do in the time in which it sends a byte to another: operations, and
     * bytes of memory read or written. Only the order of magnitude matters. */
    double flops_a_byte, touched_a_byte;
    double exchange_bytes; /* fixed cost of an exchange, in bytes */
    bool has_rings;        /* its kernels do what MxOp.ring makes */
    /* For a collective among `ranks` ranks, each with an array `in`: its cost for one of them, and
     * the number of steps in which it runs, at most MX_MAX_PHASES. Each step but the last starts
     * what the next one finishes; other nodes may run between them. */
    MxCommCost (*collective_cost)(MxCollective collective, MxType in, int ranks);
    int (*phases)(MxCollective collective, MxType in, int ranks);
    /* Collectives of at most small_bytes are combined into ones of at most bucket_bytes. 0 = none
     * are. */
    size_t small_bytes, bucket_bytes;
    /* Maximum number of tokens, and of bytes, of the logits that exist at a time; but at least so
     * many tokens: each chunk reads the output matrix and adds to its gradient, which takes longer
     * than the products of a chunk that is too small. */
    int64_t chunk_tokens, chunk_bytes, chunk_least;
} MxMachine;

enum { MX_MAX_PHASES = 3 };

/* Properties of an op. Passes read them instead of comparing ops. */
enum {
    MX_OP_SOURCE = 1 << 0, /* runs no kernel: its value is a variable's buffer */
    MX_OP_VIEW = 1 << 1,   /* runs no kernel: its value is its input's buffer with another shape */
    MX_OP_CONSTANT = 1 << 2,    /* integers or counts: no gradient flows, which is no error */
    MX_OP_ADDS_INPUTS = 1 << 3, /* any number of inputs; sums the results for each */
    MX_OP_CAST_FOLDS = 1 << 4,  /* its attributes start with an MxDtype, the dtype of out 0, which
                                   may become float32 */
    MX_OP_CAST = 1 << 5,        /* its value is its input in another dtype */
    MX_OP_COPY = 1 << 6,        /* its value is its input's */
    MX_OP_SUM = 1 << 7,         /* out 0 = in 0 + in 1 */
    MX_OP_IS_KEPT = 1 << 8,     /* expensive to compute, but not large: kept by MX_REMAT_MINIMAL */
    MX_OP_IS_MET = 1 << 9,      /* another rank waits for it: runs even if its outputs are unused */
    MX_OP_PACK = 1 << 10,       /* its value is its inputs', one after another */
    MX_OP_LETTER = 1 << 11,     /* one end of what a rank sends another; goes beside kernels */
};

/* Attributes of an op that is a source: the variable that it reads. */
typedef struct MxVariableAttr {
    int var;
    MxType type;
} MxVariableAttr;

/* Another op whose outputs this op also computes, if both have the same first inputs: they are its
 * own outputs from `at` on. mx_pass_fuse then removes the other node. */
typedef struct MxAlso {
    const MxOp *op; /* NULL = none */
    int at;
    bool (*is_same)(const void *own, const void *other); /* whether attributes agree */
} MxAlso;

/* One row per op. Masks are over output indices. */
struct MxOp {
    const char *name;
    int arity;    /* number of inputs; -1 = any */
    int optional; /* number of additional inputs that may be missing; the rules tell which */
    unsigned flags;
    unsigned accumulates; /* outputs that can be added to the contents of their buffer */
    unsigned no_gradient; /* outputs without a gradient: an error on the path to a loss */
    int inplace; /* 1 + input whose buffer out 0 may take over after its last use; 0 = none */
    MxCollective collective; /* if set, its attributes are an MxCollectiveAttr */
    bool takes_addend; /* an additional last input, of out 0's type, is added to out 0, which may
                          take over its buffer */
    size_t attr_bytes;
    bool (*infer)(MxInfer *infer);
    void (*vjp)(const MxVjp *vjp); /* NULL = not differentiable */
    double (*flops)(const MxType *in, const MxType *out, const void *attr);
    void (*partition)(MxFactors *factors);              /* NULL = every rank runs the whole op */
    void (*localize)(const MxShare *share, void *attr); /* sets attr for one rank's share */
    /* The group with which a rank's node exchanges data, and the cost; NULL, also as its result: it
     * exchanges nothing. */
    const MxGroup *(*exchange)(const MxMachine *machine, const MxNode *node, const MxType *in,
                               MxCommCost *cost);
    /* Adds what a rank does if MxFactors.ring_in go around the group instead of being gathered. Its
     * own parts are among `in`; attr is of its share. Fills out with values, of parts too. */
    void (*ring)(MxTrace *t, const MxGroup *group, const MxValue *in, int n_in, const void *attr,
                 MxValue *out);
    MxAlso also;
    void (*print)(MxText *text, const void *attr);
    const char *doc;
};

struct MxNode {
    const MxOp *op;
    const MxValue *in;
    const void *attr;
    const char *scope; /* the place in the model, "decoder/layers_3/mlp" */
    MxValue out[MX_MAX_OUT];
    int n_in, n_out;
    int region;          /* rematerialisation region, 0 = none */
    bool backward;       /* made by differentiation */
    bool is_again;       /* a node of the forward pass, recomputed for the backward pass (remat) */
    unsigned accumulate; /* outputs that are added to their variable */
    unsigned unused;     /* outputs that nothing reads and that are not assigned to a variable
                            (mx_pass_schedule) */
    int early[2]; /* nodes before which the earlier phases run; 0 = directly before the last phase
                     (mx_pass_overlap) */
};

typedef struct MxValueInfo {
    MxType type;
    int node;     /* the node that makes it; MX_NONE = it was dropped as unused */
    int var;      /* the variable in whose buffer it is computed; MX_NONE = in the run's arena */
    int like;     /* variable with the same sharding, or MX_NONE */
    MxDtype wire; /* how ranks send their terms of it, if it is a sum over ranks */
    int lost;     /* the variable that receives what this loses, if it is not float32 */
    const char *terms; /* mesh axis along which each rank has a term of a sum; NULL = none */
    const char *axes[MX_MAX_RANK]; /* logical axes of an activation constraint; all NULL = none */
} MxValueInfo;

typedef struct MxGraph MxGraph;

/* Called with graphs after each pass: mxtrain --dump-graph, tests. */
typedef struct MxGraphWatch {
    void (*see)(void *context, const MxGraph *graph, const char *pass);
    void *context;
} MxGraphWatch;

struct MxGraph {
    MxArena *arena;
    const char *name;
    const MxVars *vars;
    const MxGraphWatch *watch; /* NULL = none */
    MxNode *nodes;
    int n_nodes, cap_nodes;
    MxValueInfo *values;
    int n_values, cap_values;
};

/* A graph under construction. After the first failure later calls do nothing and return MX_NONE, so
 * model code checks nothing. */
struct MxTrace {
    MxGraph *graph;
    const char *scope;
    int region;
    bool backward;
    MxText failure; /* empty = none */
};

int mx_vars_add(MxVars *vars, const char *name, MxType type);

MxGraph *mx_graph_new(MxArena *arena, const char *name, const MxVars *vars);
void mx_trace_begin(MxTrace *t, MxGraph *graph);
/* mx_trace_end — reports the first failure, if any (for example, a user's sizes that do not fit).
 */
bool mx_trace_end(MxTrace *t, MxError *err);
/* mx_trace_node — adds a node and returns its first output; the other outputs are the next values.
 * attr is copied. */
MxValue mx_trace_node(MxTrace *t, const MxOp *op, const MxValue *in, int n_in, const void *attr);
/* mx_trace_fail — makes the trace fail with a message of the caller. */
void mx_trace_fail(MxTrace *t, const char *fmt, ...) MX_PRINTF(2, 3);
/* mx_trace_constrain — sets the logical axes of a value, one per dim; returns the value. */
MxValue mx_trace_constrain(MxTrace *t, MxValue value, const char *const axes[]);
/* mx_trace_like — shards the value as a variable of its shape is sharded; returns the value. Takes
 * precedence over the sharding of the variable that the value is assigned to. */
MxValue mx_trace_like(MxTrace *t, MxValue value, int var);
/* mx_trace_terms — declares that ranks along a mesh axis have different values here, although
 * nothing is sharded along it, and that every user of the value gets their sum. With one rank the
 * value is the sum. Returns the value. */
MxValue mx_trace_terms(MxTrace *t, MxValue value, const char *mesh_axis);
/* mx_trace_send_as — if the value is a sum over ranks, each rank sends its terms as `wire` says,
 * and what this loses of the rank's own terms is assigned to a variable of the value's shape, of
 * which each rank has a term too. Returns the value. */
MxValue mx_trace_send_as(MxTrace *t, MxValue value, MxDtype wire, int lost);
/* mx_trace_assign — lets the value be computed in a variable's buffer; `add` adds it to the
 * buffer's contents. The value must not be a view or another variable, and the types must agree. */
void mx_trace_assign(MxTrace *t, MxValue value, int var, bool add);

MxType mx_trace_type(const MxTrace *t, MxValue value);
static inline const MxNode *mx_graph_producer(const MxGraph *graph, MxValue value) {
    return &graph->nodes[graph->values[value].node];
}
/* mx_graph_add_value, mx_graph_add_node — append; for passes. A node's outputs must be values that
 * were added before; the node becomes their producer. The arrays may move. */
MxValue mx_graph_add_value(MxGraph *graph, MxValueInfo info);
void mx_graph_add_node(MxGraph *graph, MxNode node);
/* mx_graph_buffer — the value that owns this value's buffer: itself, or the value that it is a view
 * of. */
MxValue mx_graph_buffer(const MxGraph *graph, MxValue value);

/* mx_graph_replace — replaces `old` by `with` in every node; old must not be used again. with is
 * assigned to old's variable and gets the axes of its constraint.
 *   uses  inputs that it is, all of nodes behind its own; MX_ANYWHERE = not known */
enum { MX_ANYWHERE = -1 };
void mx_graph_replace(MxGraph *graph, MxValue old, MxValue with, int uses);

/* mx_graph_verify — asserts the conditions that every graph must satisfy between passes: inputs are
 * computed before they are used, types follow from the shape rules, and no variable is read after
 * it was overwritten. */
void mx_graph_verify(const MxGraph *graph);
/* mx_graph_seen — passes the graph to its watch, if it has one, after the pass of that name. */
void mx_graph_seen(const MxGraph *graph, const char *pass);
/* mx_graph_print — prints one line per node, suitable for diff. */
void mx_graph_print(const MxGraph *graph, MxText *text);

#endif
