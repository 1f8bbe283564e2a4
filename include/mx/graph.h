/* graph.h — the static graph: values, nodes, the trace that makes them, the verifier and the
 * printer.
 *
 * A program has variables, persistent buffers that outlive a step (parameters, gradients, moments,
 * the batch, metrics), and entries, each a graph that reads some variables and writes others.
 * Inside a graph nothing is ever changed: a node takes values and makes new ones. A value may be
 * *assigned* to a variable: it is then made in that variable's buffer, or added to what the buffer
 * holds. Nodes stand in the order in which they run. */
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
    bool is_on_disk; /* in a file, whose pages memory need not hold (MxDeviceConfig.folder) */
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

/* What a shape rule sees and fills in. Failing rules call mx_infer_fail. */
typedef struct MxInfer {
    const MxType *in;
    int n_in;
    const void *attr;
    MxType out[MX_MAX_OUT];
    int n_out;
    MxText *message;
} MxInfer;

bool mx_infer_fail(MxInfer *infer, const char *fmt, ...) MX_PRINTF(2, 3);

/* What a gradient rule sees: cotangents of the outputs (MX_NONE = zero) and which inputs want one;
 * it adds nodes to the trace and fills dx (MX_NONE = zero). in and out are the node's values. */
typedef struct MxVjp {
    MxTrace *t;
    const void *attr;
    const MxValue *in, *out, *dy;
    int n_in;
    const bool *needs;
    MxValue *dx; /* of the inputs' types; of a variable also float32 */
} MxVjp;

/* How an op can be divided among ranks: its dims belong to *factors*. Cutting a factor cuts every
 * dim that belongs to it, and each rank runs the op on its parts. An output without a dim of a cut
 * factor is then a *partial* value: the op's result is the sum over the ranks. A dim without a
 * factor (MX_WHOLE) must be there whole. Test: tests/mpi, every op on many meshes. */
enum { MX_WHOLE = -1, MX_MAX_FACTORS = 12, MX_MAX_CUT_IN = 8 };

typedef struct MxFactors {
    const MxType *in, *out; /* global */
    int n_in, n_out;
    const void *attr;
    int n; /* factors */
    int in_dim[MX_MAX_CUT_IN][MX_MAX_RANK], out_dim[MX_MAX_OUT][MX_MAX_RANK];
    unsigned linear; /* inputs that may be partial if all of them are: so is the output then */
    /* A factor that is no sum, such as the dim of a softmax: if it is cut, the op itself exchanges
     * what its ranks have of it (`exchange`), and these outputs are whole afterwards. */
    int joined;          /* MX_WHOLE = none */
    unsigned joins;      /* outputs */
    double joined_bytes; /* that a rank gives another if nothing else is cut */
} MxFactors;

/* The ranks that differ from this one only along some mesh axes, in the mesh's order. */
typedef struct MxGroup {
    const char *axes; /* "data,fsdp" */
    uint64_t id;      /* of this division of the ranks, the same on all of them */
    int size, index;  /* this rank's place among them */
    const int *ranks; /* [size] in their order */
    uint32_t bits;    /* of the mesh axes, by position: messages of other axes are others */
    bool is_uneven;   /* they stand in several stages, whose programs differ: its exchanges keep
                         their order, and each stays alone */
} MxGroup;

/* One rank's share of a node, for attributes that depend on it. */
typedef struct MxShare {
    const MxType *out;    /* local */
    const int64_t *start; /* [factor] index of the share's first element along its dims */
    const bool *is_cut;   /* [factor] */
    const MxGroup *group; /* [factor] the ranks that have its other parts, if it is cut */
} MxShare;

/* What exchanges cost one rank. */
typedef struct MxCommCost {
    int64_t calls, bytes; /* exchanges; bytes sent to other ranks */
} MxCommCost;

/* What a collective op makes of the arrays that the ranks of a group have. */
typedef enum MxCollective {
    MX_NO_COLLECTIVE,
    MX_ALL_REDUCE,     /* their sum */
    MX_REDUCE_SCATTER, /* a part of the sum */
    MX_ALL_GATHER,     /* all of them, joined */
    MX_ALL_TO_ALL,     /* a part of each, joined along another dim */
    MX_RECEIVE,        /* the array that another rank sends; its attributes are an MxPeerAttr */
} MxCollective;

/* What ops and passes ask of the machine that a program is prepared for; each backend has one. */
typedef struct MxMachine {
    /* Work that a rank does in the time of a byte that it sends to another: operations, and bytes
     * of memory. Only the order matters. */
    double flops_a_byte, touched_a_byte;
    double exchange_bytes; /* what an exchange costs besides its bytes, as bytes */
    /* Of a collective among so many ranks, each with an array `in`: what it costs one of them, and
     * in how many steps it is run, at most MX_MAX_PHASES. Each but the last starts what the next
     * one finishes; other nodes may run between them. */
    MxCommCost (*collective_cost)(MxCollective collective, MxType in, int ranks);
    int (*phases)(MxCollective collective, MxType in, int ranks);
    /* Collectives of arrays of so few bytes are put together, up to so many. 0 = none are. */
    size_t small_bytes, bucket_bytes;
    /* Of so many tokens, and so many bytes of them, logits are made at a time, at most. */
    int64_t chunk_tokens, chunk_bytes;
} MxMachine;

enum { MX_MAX_PHASES = 3 };

/* Properties of an op: what passes ask instead of which op it is. */
enum {
    MX_OP_SOURCE = 1 << 0,   /* runs nothing: its value is a variable's buffer */
    MX_OP_VIEW = 1 << 1,     /* runs nothing: its value is its input's buffer with another shape */
    MX_OP_CONSTANT = 1 << 2, /* integers or counts: no gradient flows through, which is no error */
    MX_OP_ADDS_INPUTS = 1 << 3, /* any number of inputs; the sum of the results of each */
    MX_OP_CAST_FOLDS = 1 << 4,  /* its attributes start with an MxDtype, the dtype of out 0, which
                                   may be float32 */
    MX_OP_CAST = 1 << 5,        /* its value is its input's in another dtype */
    MX_OP_COPY = 1 << 6,        /* its value is its input's */
    MX_OP_SUM = 1 << 7,         /* out 0 = in 0 + in 1 */
    MX_OP_IS_KEPT = 1 << 8,     /* dear to make, but not large: kept by MX_REMAT_MINIMAL */
    MX_OP_IS_MET = 1 << 9,      /* another rank waits for it: it runs whoever reads what it makes */
};

/* Attributes of an op that is a source: which variable it shows. */
typedef struct MxVariableAttr {
    int var;
    MxType type;
} MxVariableAttr;

/* Another op whose outputs this one makes on the way, if it has the same first inputs: they are its
 * own from `at` on. Passes then let it (mx_pass_fuse). */
typedef struct MxAlso {
    const MxOp *op; /* NULL = none */
    int at;
    bool (*is_same)(const void *own, const void *other); /* whether attributes agree */
} MxAlso;

/* One row an op. Masks are over output indices. */
struct MxOp {
    const char *name;
    int arity;    /* number of inputs; -1 = any */
    int optional; /* so many inputs more may be there or not; which, the rules say */
    unsigned flags;
    unsigned accumulates; /* outputs that can be added to what their buffer holds */
    unsigned no_gradient; /* outputs that carry none: using one on the way to a loss is an error */
    int inplace; /* 1 + input whose buffer out 0 may take over when it dies here; 0 = none */
    MxCollective collective; /* its attributes are then an MxCollectiveAttr */
    bool takes_addend; /* an input after the last, of out 0's type, is added to out 0, which may
                          take over its buffer */
    size_t attr_bytes;
    bool (*infer)(MxInfer *infer);
    void (*vjp)(const MxVjp *vjp); /* NULL = not differentiable */
    double (*flops)(const MxType *in, const MxType *out, const void *attr);
    void (*partition)(MxFactors *factors);              /* NULL = every rank runs all of it */
    void (*localize)(const MxShare *share, void *attr); /* attr of one rank's share */
    /* What the node of one rank exchanges with which others; NULL, also as its answer: nothing. */
    const MxGroup *(*exchange)(const MxMachine *machine, const MxNode *node, const MxType *in,
                               MxCommCost *cost);
    MxAlso also;
    void (*print)(MxText *text, const void *attr);
    const char *doc;
};

struct MxNode {
    const MxOp *op;
    const MxValue *in;
    const void *attr;
    const char *scope; /* where in the model it was made, "decoder/layers_3/mlp" */
    MxValue out[MX_MAX_OUT];
    int n_in, n_out;
    int region;          /* rematerialisation region, 0 = none */
    bool backward;       /* made by differentiation */
    bool is_again;       /* of the forward pass, made again for the backward pass (remat) */
    unsigned accumulate; /* outputs that are added to their variable */
    unsigned unused;     /* outputs that nobody reads and no variable holds (mx_pass_schedule) */
    int early[2];        /* nodes before which the phases run that come before the last; 0 = just
                            before it (mx_pass_overlap) */
};

typedef struct MxValueInfo {
    MxType type;
    int node;          /* that makes it; MX_NONE = it was dropped as unused */
    int var;           /* whose buffer it is made in; MX_NONE = the run's arena */
    int like;          /* variable that it is divided among ranks like, or MX_NONE */
    const char *terms; /* mesh axis along which each rank has a term of a sum here; NULL = none */
    const char *axes[MX_MAX_RANK]; /* logical axes of an activation constraint; all NULL = none */
} MxValueInfo;

typedef struct MxGraph MxGraph;

/* Who wants to see graphs as passes leave them: mxtrain --dump-graph, tests. */
typedef struct MxGraphWatch {
    void (*see)(void *context, const MxGraph *graph, const char *pass);
    void *context;
} MxGraphWatch;

struct MxGraph {
    MxArena *arena;
    const char *name;
    const MxVars *vars;
    const MxGraphWatch *watch; /* NULL = nobody */
    MxNode *nodes;
    int n_nodes, cap_nodes;
    MxValueInfo *values;
    int n_values, cap_values;
};

/* A graph under construction. The first failure sticks: later calls do nothing and return MX_NONE,
 * so model code checks nothing. */
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
/* mx_trace_end — reports the first failure, if any (a user's sizes that do not fit are found here).
 */
bool mx_trace_end(MxTrace *t, MxError *err);
/* mx_trace_node — adds a node; returns its first output, the others follow it. attr is copied. */
MxValue mx_trace_node(MxTrace *t, const MxOp *op, const MxValue *in, int n_in, const void *attr);
/* mx_trace_fail — makes the trace fail with a message of the model's own. */
void mx_trace_fail(MxTrace *t, const char *fmt, ...) MX_PRINTF(2, 3);
/* mx_trace_constrain — names the logical axes of a value, as many as its rank; returns the value.
 */
MxValue mx_trace_constrain(MxTrace *t, MxValue value, const char *const axes[]);
/* mx_trace_like — shards the value as a variable of its shape is sharded; returns the value. Takes
 * precedence over the sharding of the variable that the value is assigned to. */
MxValue mx_trace_like(MxTrace *t, MxValue value, int var);
/* mx_trace_terms — says that what ranks along a mesh axis have here differs, though nothing cut it,
 * and that whoever uses the value wants the sum; one rank has the only term. Returns the value. */
MxValue mx_trace_terms(MxTrace *t, MxValue value, const char *mesh_axis);
/* mx_trace_assign — lets the value be made in a variable's buffer; `add` adds it to what is there.
 * The value must not be a view or another variable, and types must agree. */
void mx_trace_assign(MxTrace *t, MxValue value, int var, bool add);

MxType mx_trace_type(const MxTrace *t, MxValue value);
static inline const MxNode *mx_graph_producer(const MxGraph *graph, MxValue value) {
    return &graph->nodes[graph->values[value].node];
}
/* mx_graph_add_value, mx_graph_add_node — append; for passes. A node's outputs are values that were
 * added before and get it as their maker. The arrays may move. */
MxValue mx_graph_add_value(MxGraph *graph, MxValueInfo info);
void mx_graph_add_node(MxGraph *graph, MxNode node);
/* mx_graph_buffer — the value that owns this value's buffer: itself, or what it is a view of. */
MxValue mx_graph_buffer(const MxGraph *graph, MxValue value);

/* mx_graph_replace — lets every node use `with` instead of `old`, which must not be used again; the
 * variable that old was assigned to passes on, and so do the axes of its constraint. */
void mx_graph_replace(MxGraph *graph, MxValue old, MxValue with);

/* mx_graph_verify — asserts what every graph must satisfy between passes: inputs are made before
 * they are used, types follow from the shape rules, a variable is not read after it was
 * overwritten. */
void mx_graph_verify(const MxGraph *graph);
/* mx_graph_seen — shows the graph to its watch, if it has one, after a pass of that name. */
void mx_graph_seen(const MxGraph *graph, const char *pass);
/* mx_graph_print — one line a node, diffable. */
void mx_graph_print(const MxGraph *graph, MxText *text);

#endif
