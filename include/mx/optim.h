/* optim.h — optimizers: the rule that updates each parameter, the arrays that are kept for it and
 * their names, the numbers of an update, and its trace. Arrays of parameters are variables of the
 * caller; counts and other small numbers are on the host. */
#ifndef MX_OPTIM_H
#define MX_OPTIM_H

#include <mx/config.h>
#include <mx/ops.h>
#include <mx/tree.h>

enum { MX_OPTIM_KEPT = 4 }; /* maximum number of arrays of a parameter */

/* An array that is kept for a parameter. */
typedef struct MxOptimArray {
    MxLeaf leaf; /* abstract; its path as NNX checkpoints have it: "optimizer/opt_state/0/mu/…" */
    int param;   /* index in the model's tree */
    int dim[MX_MAX_RANK]; /* the parameter's dims to which its own dims belong */
    int scales; /* index of the array with scales, if this one is codes (leaf.quant); MX_NONE =
                   values */
} MxOptimArray;

/* The parameters that one rule updates. */
typedef struct MxOptimPart MxOptimPart;

/* Those of a part that learn at the same rate (MxLeaf.rate); they share the numbers of an update.
 */
typedef struct MxOptimPace {
    int part;
    double rate;
} MxOptimPace;

/* An optimizer for a model's parameters. */
typedef struct MxOptim {
    const MxConfig *config;
    const MxTree *params;
    MxOptimPart *parts;
    int n_parts;
    MxOptimPace *paces;
    int n_paces;
    int *pace;            /* [parameter] of those of its part */
    int *part;            /* [parameter] its part; MX_NONE = it is not changed */
    bool *is_masked;      /* [parameter] whether adamw_mask matches it */
    MxOptimArray *arrays; /* sorted by kind, so that each kind is contiguous */
    int n_arrays;
    int *array;     /* [parameter, MX_OPTIM_KEPT] indices of its arrays, MX_NONE = no more */
    MxTree numbers; /* numbers on the host, with their values */
    int32_t **counts;
    int n_counts; /* those of the numbers that count updates */
    struct MxOptimSpikes *spikes;
} MxOptim;

/* mx_optim_new — the optimizer of opt_type, adamw_mask, trainable_parameters_mask and
 * skip_step_on_spikes, for the parameters of kind `trains`. Its state is initially zero. Errors: a
 * mask takes too long to match; no parameter would be changed. Source: MaxText
 * optimizers/optimizers.py get_optimizer @e591f30c. */
bool mx_optim_new(MxArena *arena, const MxConfig *config, const MxTree *params, MxKind trains,
                  MxOptim **out, MxError *err);
/* mx_optim_pace — the unique name of a pace. */
const char *mx_optim_pace(MxArena *arena, const MxOptim *optim, int pace);
/* mx_optim_has_kept — whether some parameters have arrays of their own shape. */
bool mx_optim_has_kept(const MxOptim *optim);

/* The update of one parameter while it is traced. */
typedef struct MxOptimStep {
    MxValue p, g;                /* f32; the update replaces p … */
    MxValue kept[MX_OPTIM_KEPT]; /* … and these arrays */
    MxValue hyper;               /* f32 [MX_HYPER_COUNT], the numbers of its pace */
    MxValue clip;                /* f32 scalar, factor of the gradient */
    MxValue is_left_out;         /* f32 scalar: not 0 = nothing changes; MX_NONE = never */
} MxOptimStep;

/* mx_optim_trace — traces the update of a parameter that belongs to a part. */
void mx_optim_trace(MxTrace *t, const MxOptim *optim, int param, MxOptimStep *step);

/* mx_optim_point — the point at which a parameter's gradient is computed, f32, from p and kept in
 * `step`. mx_optim_has_point — whether that is not the parameter itself. */
bool mx_optim_has_point(const MxOptim *optim, int param);
MxValue mx_optim_point(MxTrace *t, const MxOptim *optim, int param, const MxOptimStep *step);

/* mx_optim_count — number of updates; skipped ones do not count. mx_optim_start — declares the
 * state to be that after `step` steps, and sets counts that have no other value. */
int64_t mx_optim_count(const MxOptim *optim);
void mx_optim_start(MxOptim *optim, int64_t step);
/* Learning rates of the next update and of the one after it. */
typedef struct MxRates {
    double now, next;
} MxRates;

/* mx_optim_hyper — the numbers of a pace's next update. */
void mx_optim_hyper(const MxOptim *optim, int pace, MxRates rates, float hyper[MX_HYPER_COUNT]);

/* mx_optim_leaves_out — whether updates can be skipped (skip_step_on_spikes). mx_optim_limit — the
 * limit for mx_spike, which decides whether the next update, with this loss, is skipped.
 * mx_optim_stepped — records an update: its loss and clipped norm, and whether it was skipped. */
bool mx_optim_leaves_out(const MxOptim *optim);
void mx_optim_limit(const MxOptim *optim, double loss, float limit[2]);
void mx_optim_stepped(MxOptim *optim, double loss, double norm, bool was_left_out);

#endif
