/* internal.h — rows of rules and optimizers. A rule defines how one parameter is updated; an
 * optimizer chooses a rule for each parameter, and defines the place of its state in checkpoints.
 */
#ifndef OPTIM_INTERNAL_H
#define OPTIM_INTERNAL_H

#include <mx/optim.h>

enum { OPTIM_MAX_COUNTS = 2, OPTIM_MAX_PARTS = 2, OPTIM_MAX_SUMS = 2 };

/* Names of trees of kept arrays (config_optimizers.def). */
typedef enum OptimTree {
    OPTIM_NOTHING,
#define MX_OPTIM_TREE(name) OPTIM_##name,
#include <mx/config_optimizers.def>
#undef MX_OPTIM_TREE
    OPTIM_TREES
} OptimTree;

/* What a rule keeps for each parameter. */
typedef struct OptimKept {
    OptimTree tree;
    bool in_mu_dtype; /* else float32 */
    MxQtype bytes;    /* how optimizer_state_dtype=int8 keeps it; 0 = as without that key */
} OptimKept;

/* A parameter as a rule sees it. */
typedef struct OptimParam {
    const MxConfig *config;
    const MxLeaf *leaf;
    bool is_masked; /* adamw_mask matches it */
} OptimParam;

/* Numbers that do not change, but stand in checkpoints. */
typedef struct OptimConstant {
    const char *name;
    MxShape shape;
    const float *values;
} OptimConstant;

/* An update, of which the numbers are made. */
typedef struct OptimUpdate {
    const MxConfig *config;
    double t;          /* from 1 */
    double next;       /* learning rate of the one after it */
    const float *sums; /* what the rule sums up over updates … */
    float *new_sums;   /* … and what that is after this one */
} OptimUpdate;

typedef struct OptimRule {
    const char *name;
    OptimKept kept[MX_OPTIM_KEPT];
    const char *folder;                   /* of what is kept, "0/" */
    const char *counts[OPTIM_MAX_COUNTS]; /* leaves that count updates */
    const char *sums[OPTIM_MAX_SUMS];     /* f32 leaves that updates change, 0 at the start */
    OptimConstant (*constant)(const MxConfig *config); /* in the folder; NULL = none */
    /* Which dims of a parameter the array in a slot has: how many, MX_NONE = there is none. NULL =
     * arrays have all. */
    int (*dims)(const OptimParam *param, int slot, int dims[MX_MAX_RANK]);
    /* Numbers of an update besides the learning rate. */
    void (*hyper)(const OptimUpdate *update, float *hyper);
    void (*trace)(MxTrace *t, const OptimParam *param, MxOptimStep *step);
    /* Where gradients are taken, f32, if not at the parameter itself. */
    MxValue (*point)(MxTrace *t, const OptimParam *param, const MxOptimStep *step);
} OptimRule;

/* What opt_type names. */
typedef struct OptimRow {
    const char *name;
    struct {
        const OptimRule *rule;
        const char *folder; /* in the optimizer's state, "inner_states/muon/inner_state/" */
    } parts[OPTIM_MAX_PARTS];
    /* Which part steps a parameter; NULL = the first. */
    int (*part)(const MxConfig *config, const MxLeaf *leaf);
} OptimRow;

#define MX_OPTIMIZER(name, keys) extern const OptimRow optim_##name;
#include <mx/config_optimizers.def>
#undef MX_OPTIMIZER

struct MxOptimPart {
    const OptimRule *rule;
    const char *folder; /* of the whole state: "optimizer/opt_state/0/" without the rule's */
    float *sums[OPTIM_MAX_SUMS],
        *new_sums; /* those of the rule; after an update that is on its way */
};

/* optim_decay1, optim_decay2 — a decay of first or second moments as numbers of update t. */
void optim_decay1(float *hyper, double b1, double t);
void optim_decay2(float *hyper, double b2, double t);
/* optim_adam_hyper, optim_adam_trace — a rule of Adam's: the keys adam_*, and the rest in attr. */
void optim_adam_hyper(const OptimUpdate *update, float *hyper);
void optim_adam_trace(MxTrace *t, const MxConfig *config, MxAdamwAttr attr, MxOptimStep *step);
/* optim_adamw_trace — the same with adam_weight_decay where adamw_mask does not match. */
void optim_adamw_trace(MxTrace *t, const OptimParam *param, MxOptimStep *step);

/* optim_add_number — what the host keeps; returns its values, zeros. */
void *optim_add_number(MxOptim *optim, const char *path, MxDtype dtype, MxShape shape);

/* optim_updated — an update was made: it counts. */
void optim_updated(MxOptim *optim);

/* optim_spikes_new — windows of losses and norms below a folder. */
struct MxOptimSpikes *optim_spikes_new(MxOptim *optim, const char *folder);

#endif
