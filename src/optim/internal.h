/* internal.h — rows of rules and optimizers. A rule says how one parameter is stepped; an optimizer
 * which rule steps which parameter, and where checkpoints have what it keeps. */
#ifndef OPTIM_INTERNAL_H
#define OPTIM_INTERNAL_H

#include <mx/optim.h>

enum { OPTIM_MAX_COUNTS = 2, OPTIM_MAX_PARTS = 2 };

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
    int n;
    const float *values;
} OptimConstant;

typedef struct OptimRule {
    const char *name;
    OptimKept kept[MX_OPTIM_KEPT];
    const char *folder;                   /* of what is kept, "0/" */
    const char *counts[OPTIM_MAX_COUNTS]; /* leaves that count updates */
    OptimConstant constant;               /* in the folder; n 0 = none */
    /* Numbers of update t, from 1, besides the learning rate. */
    void (*hyper)(const MxConfig *config, double t, float *hyper);
    void (*trace)(MxTrace *t, const OptimParam *param, MxOptimStep *step);
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

#define MX_OPTIMIZER(name) extern const OptimRow optim_##name;
#include <mx/config_optimizers.def>
#undef MX_OPTIMIZER

struct MxOptimPart {
    const OptimRule *rule;
    const char *folder; /* of the whole state: "optimizer/opt_state/0/" without the rule's */
};

/* optim_decay1, optim_decay2 — a decay of first or second moments as numbers of update t. */
void optim_decay1(float *hyper, double b1, double t);
void optim_decay2(float *hyper, double b2, double t);
/* optim_adam_hyper, optim_adam_trace — a rule of Adam's: the keys adam_*, and the rest in attr. */
void optim_adam_hyper(const MxConfig *config, double t, float *hyper);
void optim_adam_trace(MxTrace *t, const MxConfig *config, MxAdamwAttr attr, MxOptimStep *step);
/* optim_adamw_trace — the same with adam_weight_decay where adamw_mask does not match. */
void optim_adamw_trace(MxTrace *t, const OptimParam *param, MxOptimStep *step);

/* optim_match — whether one of a key's patterns is found in the parameter's path as MaxText's masks
 * see it. Errors: a pattern takes too long. */
bool optim_match(const MxConfig *config, MxKey key, const MxStrs *patterns, const MxLeaf *leaf,
                 bool *matches, MxError *err);

/* optim_add_number — what the host keeps; returns its values, zeros. */
void *optim_add_number(MxOptim *optim, const char *path, MxDtype dtype, MxShape shape);

/* optim_spikes_new — windows of losses and norms below a folder. */
struct MxOptimSpikes *optim_spikes_new(MxOptim *optim, const char *folder);

#endif
