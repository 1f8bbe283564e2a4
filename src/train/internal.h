/* internal.h — the train state and the optimizer table, shared by the files of this room. */
#ifndef TRAIN_INTERNAL_H
#define TRAIN_INTERNAL_H

#include <mx/ckpt.h>
#include <mx/model.h>
#include <mx/store.h>
#include <mx/train.h>

#include "loss.h"

enum { TRAIN_MAX_MOMENTS = 2 };

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
bool train_decays(MxTrace *t, const MxConfig *config, const MxLeaf *leaf);

/* Entries of the program; GRAD_ADD is there only if gradients accumulate, REFER and REFER_EVAL only
 * if the reference's log-probabilities are made ahead. */
enum {
    ENTRY_INIT,
    ENTRY_WEIGH,
    ENTRY_GRAD,
    ENTRY_UPDATE,
    ENTRY_EVAL,
    ENTRY_GRAD_ADD,
    ENTRY_REFER,
    ENTRY_REFER_EVAL,
    ENTRY_TAKE,   /* only if the reference is a copy */
    ENTRY_FROZEN, /* the last one: it takes casts out of the others */
    ENTRY_MAX
};

/* Scalars that an update and what it needs write, f32 variables. */
enum { OUT_GRAD_SQUARES, OUT_PARAM_SQUARES, OUT_FROZEN_SQUARES, OUT_COUNT };

/* Variables by what they are; per-parameter ones are arrays over the model's tree, MX_NONE where
 * nothing is trained. */
typedef struct ProgramVars {
    int *param, *gradient, *moment[TRAIN_MAX_MOMENTS];
    int *reference; /* NULL = no copy */
    int train_batch[MX_BATCH_FIELDS], eval_batch[MX_BATCH_FIELDS];
    int train_logp, eval_logp; /* the reference's, made ahead; MX_NONE = made in the step */
    int hyper, out[OUT_COUNT];
    int loss, sum[LOSS_MOST_OUTPUTS];    /* what is minimised; by output of the loss */
    int weight[LOSS_MOST_WEIGHTS];       /* of a micro-batch */
    int total_weight[LOSS_MOST_WEIGHTS]; /* of the whole batch: what losses of its micro-batches are
                                            divided by */
    int first_cast; /* from there on: casts of frozen weights to the dtype of computation */
} ProgramVars;

/* Divisions of arrays, each made once. */
typedef struct Division {
    MxSharding sharding;
    MxShape shape;
    const MxDivision *division;
    struct Division *next;
} Division;

struct MxTrainState {
    MxArena *arena;
    const MxConfig *config;
    MxModel *model;
    const MxModel *reference_model; /* what the reference is run as */
    const Optimizer *optimizer;
    const Loss *loss;
    const LossOutput *outputs; /* of the loss */
    MxVars vars;
    ProgramVars var;
    MxComm *comm; /* NULL = one rank, or nothing is run */
    MxTrainMesh mesh;
    int64_t rank;
    MxSharding *sharding; /* [variable] */
    MxBox *box;           /* [variable] what of it this rank has */
    bool only_evaluates;  /* there are no gradients, moments and entries of training */
    bool is_divided;      /* else this is the program of one rank */
    MxVars local;         /* the variables as this rank has them */
    Division *divisions;
    MxGraph *entries[ENTRY_MAX];
    int n_entries, entry[ENTRY_MAX]; /* where each one is among them; MX_NONE = nowhere */
    MxTree *trained;                 /* the parameters that are trained */
    MxDevice *device;
    MxRun *run;
    MxKeeper keeper; /* the run, as the tree's leaves know it */
    char *rows;      /* where a field of a micro-batch is put together */
    MxTree tree;
    uint32_t *step; /* the leaf "optimizer/step" */
    int32_t *counts[2];
    int32_t *eval_pending;     /* the leaf "mxtrain/eval_pending" */
    int64_t *base_fingerprint; /* the leaf "mxtrain/base_fingerprint"; NULL = no frozen weights */
    int64_t *reference_fingerprint; /* the leaf of that name; NULL = nothing is made ahead */
    const float *logp;              /* the reference's for the next batch or its part */
    uint32_t makes[2];    /* outputs of the loss that training and evaluation make, bits */
    bool knows_frozen;    /* what is made of frozen weights is of their values */
    bool is_reference;    /* the policy is still the reference that was taken of it */
    bool lacks_reference; /* what was read last had no reference model */
};

/* train_read_vars — the values of variables, one for each parameter. */
MxValue *train_read_vars(MxTrainState *state, MxTrace *t, const int *vars);

/* train_declare_vars — the program's variables. train_trace_program — its entries over them. */
void train_declare_vars(MxTrainState *state);
bool train_trace_program(MxTrainState *state, MxError *err);
/* train_declare_each — a variable for each parameter, or only for those that are trained.
 * train_show_var — lets a leaf of the state's tree show a variable. train_add_counter — a leaf of
 * the state's own that the host keeps. */
int *train_declare_each(MxTrainState *state, const char *prefix, MxDtype dtype, bool only_trained);
void train_show_var(MxTrainState *state, MxLeaf *leaf, int var);
void train_add_counter(MxTrainState *state, const char *path, MxDtype dtype, void *data);
/* train_run_entry — runs an entry that reads parameters. train_out — a scalar of OUT_* that they
 * wrote. train_write_all — gives a variable its value. */
void train_run_entry(MxTrainState *state, int entry);
double train_out(const MxTrainState *state, int which);
void train_write_all(MxTrainState *state, int var, const void *host);

/* The optimizer's share of the state and the program (update.c): variables and leaves of moments,
 * without data where nothing is trained; leaves that count updates; the update entry.
 * train_set_step — updates made so far, in every leaf that counts them. */
void train_declare_moments(MxTrainState *state);
void train_show_moments(MxTrainState *state);
void train_show_counts(MxTrainState *state);
void train_trace_update(MxTrainState *state, MxTrace *t);
void train_set_step(MxTrainState *state, int64_t step);

/* train_restore — gives every array of a state its value: from a checkpoint of this run (dir), or,
 * if that is NULL, as the config says for a new run. Errors: what is found does not fit. */
bool train_restore(MxTrainState *state, const char *dir, MxError *err);
/* train_try_files — what the config wants to be read, and nothing vouches for, is read in a child
 * process first. Before memory is taken; changes what SIGINT and SIGTERM do. Errors: libhdf5
 * crashes on it. */
bool train_try_files(const MxConfig *config, MxComm *comm, bool is_resumed, MxError *err);
/* train_is_elsewhere — whether a path has a scheme, and so is on no disk of this machine. */
bool train_is_elsewhere(const char *path);
/* train_same_config — that all ranks have the same effective config; train_same_files — the same
 * files of `what` (train_data_files), wherever they have them. All ranks call them. Errors: whoever
 * differs from rank 0, and how: of the config every key, with its place there. */
bool train_same_config(const MxConfig *config, MxComm *comm, MxError *err);
bool train_same_files(MxComm *comm, const char *what, const char *files, MxError *err);

/* train_check_origin — that the run fits the weights that it starts from: the tokenizer that they
 * were trained with, where that is recorded, and the sizes of a model of Hugging Face's. All ranks
 * call it, before anything is built and after train_try_files.
 *   own  the run's own checkpoint that it goes on from, or NULL
 *   out  what its checkpoints are to record; on rank 0 */
bool train_check_origin(MxArena *arena, const MxConfig *config, MxComm *comm, const char *own,
                        MxCkptTokenizer *out, MxError *err);
/* train_restore_full — the same from the whole state of another run: a checkpoint folder or
 * FILE.h5[:group]. What it lacks (a base under adapters, a reference model) is as in a new run. */
bool train_restore_full(MxTrainState *state, const char *ref, MxError *err);
/* train_fingerprint — a hash of every base parameter's path and values, however files hold them and
 * ranks divide them. All ranks call it. */
int64_t train_fingerprint(MxTrainState *state);
/* train_refer — log-probabilities under the reference of a batch as training or evaluation gets it,
 * [rows, length]; on the first rank all of them, elsewhere only that rank's, 0 in place of others.
 */
void train_refer(MxTrainState *state, const MxBatch *batch, bool is_eval, float *logp);
/* train_saved_tree — what a run's checkpoints hold of the state's tree. */
MxTree *train_saved_tree(MxArena *arena, MxTrainState *state);
/* train_shard — what of every variable this rank has, all of it unless the program is divided.
 * Errors: what does not divide. train_divide — the entries as this rank runs them. */
bool train_shard(MxTrainState *state, bool divides, MxError *err);
bool train_divide(MxTrainState *state, MxError *err);
/* train_divide_like — what of a new variable this rank has: the same part as of an older one. */
void train_divide_like(MxTrainState *state, int var, int like);
/* Micro-batch i of n, of `examples` examples each, out of a batch that has of_examples. */
typedef struct MicroBatch {
    int64_t i, n, examples, of_examples;
} MicroBatch;

/* train_row_of — which row of the batch a row of a micro-batch is: examples i, i + n, i + 2n, … as
 * MaxText takes them. The first rows of all examples come before the second ones, in the batch as
 * in the micro-batch. */
int64_t train_row_of(const MicroBatch *micro, int64_t row);
/* train_shard_batch — how a micro-batch is cut. Errors: rows that do not divide; tokens of a row
 * that do not are left whole. */
bool train_shard_batch(MxArena *arena, const MxTrainMesh *mesh, bool is_eval, MxSharding *out,
                       MxError *err);
/* train_batch_part — what of every batch of training or evaluation data a rank needs; errors as
 * above. */
bool train_batch_part(MxArena *arena, const MxTrainMesh *mesh, int64_t rank, bool is_eval,
                      MxBatchPart *out, MxError *err);
/* train_speaks_for — of the ranks with the same part of a variable, the first does. */
bool train_speaks_for(const MxTrainState *state, int var, int64_t rank);
/* train_add_parts — the first rank adds up arrays [n] of those that speak for a variable. */
void train_add_parts(MxTrainState *state, int var, float *x, int64_t n);
/* train_division — of arrays of that shape; NULL on one rank. */
const MxDivision *train_division(MxTrainState *state, MxSharding sharding, MxShape shape);
/* train_gather — a leaf's whole array, on rank 0: in the arena, or on one rank where the leaf's
 * values are; NULL elsewhere. All ranks call it. */
const void *train_gather(MxTrainState *state, MxArena *arena, const MxLeaf *leaf);
/* train_gather_texts — what every rank says, on rank 0 [ranks]; NULL elsewhere. */
const char *const *train_gather_texts(MxArena *arena, MxComm *comm, const char *text);
/* train_agree — whether all ranks are fine; all call it, each with its own answer. If some are not,
 * err tells on rank 0 what they said, and something on the others. */
bool train_agree(MxComm *comm, bool is_fine, MxError *err);
/* train_team — the ranks as the store room wants them; NULL = one rank. */
const MxTeam *train_team(MxArena *arena, MxComm *comm);
/* train_check_ranks — a mesh is a wish until there are as many ranks. */
bool train_check_ranks(const MxTrainMesh *mesh, const MxComm *comm, MxError *err);
/* train_is_trained — whether a parameter gets a gradient, moments and updates. */
static inline bool train_is_trained(const MxTrainState *state, const MxLeaf *leaf) {
    return !state->only_evaluates && leaf->kind == mx_model_trains(state->model);
}

#endif
