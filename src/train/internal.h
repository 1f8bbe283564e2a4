/* internal.h — the train state and the optimizer table, shared by the files of this room. */
#ifndef TRAIN_INTERNAL_H
#define TRAIN_INTERNAL_H

#include <mx/model.h>
#include <mx/train.h>

enum { TRAIN_MAX_MOMENTS = 2 };

#define LOSS_EPS 1e-8 /* MaxText's EPS: keeps a batch without targets finite */

/* Values of one parameter while an update is traced; the optimizer replaces p and m. */
typedef struct Moments {
    MxValue p, g, m[TRAIN_MAX_MOMENTS];
    bool decays;
} Moments;

/* One optimizer. Moments are variables beside each trained parameter, named as in optax's state. */
typedef struct Optimizer {
    const char *name;
    int n_moments;
    const char *moments[TRAIN_MAX_MOMENTS];
    bool first_is_mu_dtype; /* moment 0 is kept in mu_dtype */
    const char *counts[2];  /* leaves of the state that count updates */
    void (*trace)(MxTrace *t, const MxConfig *config, Moments *v, MxValue hyper, MxValue clip);
} Optimizer;

/* train_optimizer — the row that the config names. */
const Optimizer *train_optimizer(const MxConfig *config);
/* train_decays — whether weight decay applies to a parameter (adamw_mask). */
bool train_decays(const MxConfig *config, const MxLeaf *leaf);

/* Entries of the program; the last one is there only if gradients accumulate. */
enum { ENTRY_INIT, ENTRY_WEIGH, ENTRY_GRAD, ENTRY_UPDATE, ENTRY_EVAL, ENTRY_GRAD_ADD, ENTRY_MAX };

/* Scalars that entries write, f32 variables. */
enum { OUT_LOSS, OUT_XENT, OUT_Z, OUT_WEIGHTS, OUT_GRAD_SQUARES, OUT_PARAM_SQUARES, OUT_COUNT };

/* Variables by what they are; per-parameter ones are arrays over the model's tree, MX_NONE where
 * nothing is trained. */
typedef struct ProgramVars {
    int *param, *gradient, *moment[TRAIN_MAX_MOMENTS];
    int train_batch[MX_BATCH_FIELDS], eval_batch[MX_BATCH_FIELDS];
    int hyper, out[OUT_COUNT];
    int total_weights; /* of the whole batch: what losses of its micro-batches are divided by */
} ProgramVars;

struct MxTrainState {
    MxArena *arena;
    const MxConfig *config;
    MxModel *model;
    const Optimizer *optimizer;
    MxVars vars;
    ProgramVars var;
    MxGraph *entries[ENTRY_MAX];
    int n_entries;
    MxTree *trained; /* the parameters that are trained */
    MxDevice *device;
    MxRun *run;
    MxTree tree;
    uint32_t *step; /* the leaf "optimizer/step" */
    int32_t *counts[2];
    int32_t *eval_pending; /* the leaf "mxtrain/eval_pending" */
};

/* train_trace_program — declares the variables and traces the entries. */
bool train_trace_program(MxTrainState *state, MxError *err);
/* train_is_trained — whether a parameter gets a gradient, moments and updates. */
static inline bool train_is_trained(const MxTrainState *state, const MxLeaf *leaf) {
    return leaf->kind == mx_model_trains(state->model);
}

#endif
