/* optim.h — optimizers: by which rule each parameter is stepped, what is kept for it and under
 * which name, the numbers of a step, and its trace. What is kept for parameters are variables,
 * which the caller has; counts and the like are few, and the host keeps them. */
#ifndef MX_OPTIM_H
#define MX_OPTIM_H

#include <mx/config.h>
#include <mx/ops.h>
#include <mx/tree.h>

enum { MX_OPTIM_KEPT = 4 }; /* arrays of a parameter, at most */

/* An array that is kept for a parameter. */
typedef struct MxOptimArray {
    MxLeaf leaf; /* abstract; its path as NNX checkpoints have it: "optimizer/opt_state/0/mu/…" */
    int param;   /* of the model's tree */
    int dim[MX_MAX_RANK]; /* of the parameter, that its own are parts of */
    int scales; /* of blocks, where it is codes (leaf.quant): another array; MX_NONE = it is values
                 */
} MxOptimArray;

/* Parameters that are stepped by one rule. */
typedef struct MxOptimPart MxOptimPart;

/* An optimizer of a model's parameters. */
typedef struct MxOptim {
    const MxConfig *config;
    const MxTree *params;
    MxOptimPart *parts;
    int n_parts;
    int *part;            /* [parameter] that steps it; MX_NONE = it is not changed */
    bool *is_masked;      /* [parameter] whether adamw_mask matches it */
    MxOptimArray *arrays; /* a kind at a time, so that each lies in one piece */
    int n_arrays;
    int *array;     /* [parameter, MX_OPTIM_KEPT] its arrays among them, MX_NONE = no more */
    MxTree numbers; /* what the host keeps, with its values */
    int32_t **counts;
    int n_counts; /* among the numbers: of updates made */
    struct MxOptimSpikes *spikes;
} MxOptim;

/* mx_optim_new — as opt_type, adamw_mask, trainable_parameters_mask and skip_step_on_spikes say,
 * for the parameters of kind `trains`. Everything starts as zeros. Errors: a mask takes too long to
 * match; nothing would be changed. Source: MaxText optimizers/optimizers.py get_optimizer
 * @e591f30c. */
bool mx_optim_new(MxArena *arena, const MxConfig *config, const MxTree *params, MxKind trains,
                  MxOptim **out, MxError *err);
/* mx_optim_part — its name, which is no other part's. */
const char *mx_optim_part(const MxOptim *optim, int part);
/* mx_optim_has_kept — whether something of a parameter's own shape is kept for some of them. */
bool mx_optim_has_kept(const MxOptim *optim);

/* One parameter's step while it is traced. */
typedef struct MxOptimStep {
    MxValue p, g;                /* f32; the step replaces p … */
    MxValue kept[MX_OPTIM_KEPT]; /* … and these */
    MxValue hyper;               /* f32 [MX_HYPER_COUNT], of its part */
    MxValue clip;                /* f32 scalar that the gradient is multiplied with */
    MxValue is_left_out;         /* f32 scalar: not 0 = nothing changes; MX_NONE = never */
} MxOptimStep;

/* mx_optim_trace — steps a parameter that belongs to a part. */
void mx_optim_trace(MxTrace *t, const MxOptim *optim, int param, MxOptimStep *step);

/* mx_optim_point — where the gradient of a parameter is taken, f32, of what `step` says of p and
 * kept. mx_optim_has_point — whether that is not the parameter itself. */
bool mx_optim_has_point(const MxOptim *optim, int param);
MxValue mx_optim_point(MxTrace *t, const MxOptim *optim, int param, const MxOptimStep *step);

/* mx_optim_count — updates made; those that were left out do not count. mx_optim_start — the state
 * is that after so many steps: counts that say nothing else become that. */
int64_t mx_optim_count(const MxOptim *optim);
void mx_optim_start(MxOptim *optim, int64_t step);
/* Learning rates of the next update and of the one after it. */
typedef struct MxRates {
    double now, next;
} MxRates;

/* mx_optim_hyper — the numbers of a part's next update. */
void mx_optim_hyper(const MxOptim *optim, int part, MxRates rates, float hyper[MX_HYPER_COUNT]);

/* mx_optim_leaves_out — whether updates can be left out at all (skip_step_on_spikes).
 * mx_optim_limit — the next one is, if mx_spike says so with this limit: its loss is known already.
 * mx_optim_stepped — tells how the step went: its loss and clipped norm, and whether it was. */
bool mx_optim_leaves_out(const MxOptim *optim);
void mx_optim_limit(const MxOptim *optim, double loss, float limit[2]);
void mx_optim_stepped(MxOptim *optim, double loss, double norm, bool was_left_out);

#endif
