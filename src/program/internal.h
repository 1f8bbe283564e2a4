/* internal.h — the train state, shared by the files of this room. */
#ifndef PROGRAM_INTERNAL_H
#define PROGRAM_INTERNAL_H

#include <mx/model.h>
#include <mx/optim.h>
#include <mx/program.h>

#include "loss.h"
#include "parts.h"

/* Scalars that an update and what it needs write, f32 variables. */
enum { OUT_GRAD_SQUARES, OUT_PARAM_SQUARES, OUT_FROZEN_SQUARES, OUT_IS_LEFT_OUT, OUT_COUNT };

/* What every batch gives, i32 or f32 [rows, length]: the fields of an MxBatch, and what parts add.
 */
enum { MOST_INPUTS = 3 * MX_BATCH_FIELDS + 6 };
typedef struct Input {
    const char *name;
    MxDtype dtype;
    MxShape row;       /* never cut; rank 0 = it has a value for each token */
    const void *given; /* of the next batch; NULL = its field, or an entry makes it */
} Input;

/* What a program is for. */
typedef enum Purpose { PURPOSE_TRAINS, PURPOSE_EVALUATES, PURPOSE_GENERATES } Purpose;

/* Variables of one shape of pieces that sequences come in (generation.c). */
typedef struct PieceVars {
    int tokens, positions; /* [rows, width] */
    int kept;              /* [rows, width] positions, -1 = padding */
    int counts, sequences; /* [rows] */
    int image; /* [rows, width] which row of what was seen; MX_NONE = pieces have none */
    int mrope[MX_MROPE_KINDS]; /* [rows, width] where pieces have images with rows and columns */
    int last;                  /* [rows, 1]: where in them the last token of each row stands */
    int logits;                /* [rows, 1 or width, vocab] */
} PieceVars;
/* Variables of what sequences see, of a view at a time, and … */
typedef struct SeeVars {
    int pixels, place[MX_PLACE_FACTS]; /* [1, those of a view] */
    int corner, share;                 /* where positions are mixed */
    int positions, sequences;          /* [1, tokens of a view], [1]: where the rows go */
    int rows;                          /* [1, seen, (1 + deep) D] */
} SeeVars;
/* … hear, of as many chunks of a sound at a time as see each other. */
typedef struct HearVars {
    int patches, window, place, ended[MX_AUDIO_CONVS - 1]; /* [1, those of the chunks] */
    int positions, sequences; /* [1, tokens of the chunks], [1]: where in SeeVars.rows they go */
} HearVars;
/* Which entry each piece has. */
enum {
#define ROW(name, width, all_rows, all_logits) PIECE_##name,
    PIECES(ROW)
#undef ROW
        PIECE_COUNT
};

/* What a variable is to others. */
typedef struct VarRole {
    int like;           /* divided among ranks as that one is; MX_NONE = by itself */
    const MxLeaf *leaf; /* or as the rules say of this one; NULL = no parameter */
    bool is_constant;   /* no step changes it */
    bool is_of_micro;   /* every micro-batch of a pipeline has one of its own */
    bool is_sum;        /* micro-batches of a pipeline add up to it */
} VarRole;

/* Variables by what they are; per-parameter ones are arrays over the model's tree, MX_NONE where
 * nothing is trained. */
typedef struct ProgramVars {
    int *param, *gradient;
    int *scales;               /* of parameters that are kept in few bits, whose codes param has */
    int *kept;                 /* by array that the optimizer keeps */
    int *hyper;                /* by part of the optimizer: numbers of its next update */
    int spike_limit;           /* of the next update; MX_NONE = none is left out */
    int batch[2][MOST_INPUTS]; /* of training and evaluation, by input */
    int out[OUT_COUNT];
    int loss, sum[LOSS_MOST_OUTPUTS];    /* what is minimised; by output of the loss */
    int weight[LOSS_MOST_WEIGHTS];       /* of a micro-batch */
    int total_weight[LOSS_MOST_WEIGHTS]; /* of the whole batch: what losses of its micro-batches are
                                            divided by */
    int first_cast, end_casts;           /* between them: casts of frozen weights to the dtype of
                                            computation */
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
    MxQtype kept; /* of kernels, where a state generates; MX_NOT_QUANTIZED = as the config says */
    MxOptim *optim;
    const Loss *loss;
    const LossOutput *outputs; /* of the loss */
    MxVars vars;
    VarRole *role; /* [variable] */
    int role_cap;
    ProgramVars var;
    MxComm *comm; /* NULL = one rank, or nothing is run */
    MxTrainMesh mesh;
    int64_t rank;
    MxSharding *sharding;      /* [variable] */
    MxBox *box;                /* [variable] what of it this rank has */
    const MxGraphWatch *watch; /* of all entries; NULL = nobody */
    Purpose purpose;           /* there are gradients, moments and entries of training, or not */
    bool is_planned;     /* nothing is run: a mesh that no run takes is described as well … */
    const char *refusal; /* … with the reason; NULL = a run takes it */
    MxSharding *uneven; /* [variable] what a rank would have then if every dim divided; else NULL */
    MxGeneration generation; /* rows 0 = none */
    uint32_t apart;          /* mesh axes along which ranks let other pieces through */
    MxExchange *sharers;     /* with the ranks that let the same through; NULL = all, or none */
    int **own;               /* [lane][variable] the one that it has in its place */
    PieceVars piece[PIECE_COUNT];
    SeeVars see;
    HearVars hear;
    int *caches; /* [n_caches] variables, as mx_model_caches has them */
    int n_caches;
    MxVars local; /* the variables as this rank has them */
    Division *divisions;
    const Entry **entry; /* [n_entries] the rows of those that are wanted */
    MxGraph **entries;   /* [n_entries] */
    int n_entries;
    Input input[MOST_INPUTS];
    int n_inputs;
    void *part[PART_COUNT]; /* what parts keep; NULL = not wanted */
    MxTree *trained;        /* the parameters that are trained */
    MxDevice *device;
    MxRun *run;
    MxKeeper keeper;        /* the run, as the tree's leaves know it */
    MxKeeper few_bits;      /* the same of parameters that are kept as codes */
    const char *not_finite; /* one of those that was given what no code is; NULL = none */
    char *rows;             /* where a field of a micro-batch is put together */
    MxTold *told;           /* [n_told] */
    MetricJoin *told_join;  /* [n_told] */
    int n_told;
    MxTree tree, counters; /* the tree's last leaves are the counters */
    uint32_t *step;        /* the leaf "optimizer/step" */
    int32_t *eval_pending; /* the leaf "mxtrain/eval_pending" */
    uint32_t makes[2];     /* outputs of the loss that training and evaluation make, bits */
    double last_loss;      /* of the batch that the gradient is of */
    bool knows_frozen;     /* what is made of frozen weights is of their values */
};

/* Pieces of sequences that a state generates, if it does: a run for training or on the way, rows of
 * prompt and reply no longer than those of training. Errors: the model does not generate. */
bool program_declare_generation(MxTrainState *state, MxError *err);
/* program_declare_see, program_declare_hear — variables of what such sequences see and hear, if
 * they do. */
void program_declare_see(MxTrainState *state);
/* program_seen_most — tokens of what a row of a batch shows, at most. */
int64_t program_seen_most(const MxConfig *config);
void program_declare_hear(MxTrainState *state);
/* Pieces of sequences read quotients in place of magnitudes (magnitudes.c). program_declare_factors
 * — their variables. program_with_factors — the model that reads them, among `params`.
 * program_make_factors — makes them if parameters have changed; before a piece is run. All three
 * do nothing where adapters have no magnitudes. */
void program_declare_factors(MxTrainState *state);
const MxModel *program_with_factors(MxTrainState *state, MxTrace *t, MxValue *params);
void program_make_factors(MxTrainState *state);
/* program_apart — mesh axes along which ranks run an entry on other values (MxPartition). */
uint32_t program_apart(const MxTrainState *state, const Entry *entry);
/* program_find_mesh — the config's, unless the state has one; who only generates is alone: one
 * device. */
bool program_find_mesh(MxTrainState *state, MxError *err);

/* program_new — a state of which nothing is known but its config; comm NULL = one rank.
 * program_open — describes it and takes the memory. */
MxTrainState *program_new(MxArena *arena, const MxConfig *config, MxComm *comm);
bool program_open(MxTrainState *state, MxTrainState **out, MxError *err);

/* The entry "frozen": what is made of frozen weights. */
extern const Entry program_entry_frozen;

/* program_add_var — a variable "prefix/name" that is divided by itself. */
int program_add_var(MxTrainState *state, const char *prefix, const char *name, MxType type);
/* program_read_vars — the values of variables, one for each parameter; program_read_tree — for each
 * leaf of a tree. */
MxValue *program_read_vars(MxTrainState *state, MxTrace *t, const int *vars);
MxValue *program_read_tree(MxTrainState *state, MxTrace *t, const MxTree *tree, const int *vars);

/* Parameters (weights.c): some are kept in few bits, as codes and scales (MxLeaf.quant).
 * program_declare_params — their variables. program_read_params, program_read_param — all values,
 * or that of one, floats in any case. program_assign_param — a new value of one.
 * program_show_params — leaves of the state's tree, which show floats too. program_shard_param —
 * the sharding of one, that of its codes and scales too. Errors: ranks would have parts of blocks.
 */
void program_declare_params(MxTrainState *state);
MxValue *program_read_params(MxTrainState *state, MxTrace *t);
MxValue program_read_param(MxTrainState *state, MxTrace *t, int param);
void program_assign_param(MxTrainState *state, MxTrace *t, int param, MxValue value);
void program_show_params(MxTrainState *state);
bool program_shard_param(MxTrainState *state, int param, MxShardArray array, MxError *err);

/* program_declare_vars — the program's variables. program_trace — its entries over them. */
bool program_declare_vars(MxTrainState *state, MxError *err);
bool program_trace(MxTrainState *state, MxError *err);
/* program_var_bytes — a variable of this rank, 0 for MX_NONE; program_bytes — all of them by what
 * they are for, and the arena; program_moment_bytes — moments of all ranks together. */
size_t program_var_bytes(const MxTrainState *state, int var);
MxTrainBytes program_bytes(const MxTrainState *state, MxRunBytes run);
size_t program_moment_bytes(const MxTrainState *state);

/* program_scalar — a variable that is a number. program_out — that of OUT_* that entries wrote.
 * program_read_all, program_write_all — a variable's value. */
double program_out(const MxTrainState *state, int which);
double program_scalar(const MxTrainState *state, int var);
void program_read_all(const MxTrainState *state, int var, void *host);
void program_write_all(MxTrainState *state, int var, const void *host);

/* The optimizer's share of the state and the program (update.c): variables and leaves of what it
 * keeps, without data where nothing is trained; leaves of what the host keeps.
 * program_read_points — values of parameters where gradients are taken.
 * program_set_step — the state is that after so many steps. */
MxValue *program_read_points(MxTrainState *state, MxTrace *t);
void program_declare_kept(MxTrainState *state);
void program_show_kept(MxTrainState *state);
void program_show_numbers(MxTrainState *state);
void program_set_step(MxTrainState *state, int64_t step);

/* program_between — a value on its way, "constant", "linear" or "cosine"; fraction 0 to 1. */
double program_between(const char *how, double from, double to, double fraction);
/* program_draws — whether training leaves something to chance. */
bool program_draws(const MxConfig *config);
/* program_forget_told — nothing was told of the step that begins. program_tell_all — all parts tell
 * of the one that was made. */
void program_forget_told(MxTrainState *state);
void program_tell_all(MxTrainState *state);

/* Gradients that ranks exchange in few bits (feedback.c). program_wire — how they are sent.
 * program_keeps_lost — whether the variable of a parameter's gradient is left holding what that
 * lost of this rank's terms, to which the next step's gradient is added. */
MxDtype program_wire(const MxConfig *config);
bool program_keeps_lost(const MxTrainState *state, int param);

/* What parts do where they are wanted, see Part. */
void program_changed(MxTrainState *state);
void program_before_pass(MxTrainState *state, MicroBatch micro);
void program_stepped(MxTrainState *state);
void program_first(MxTrainState *state, MxTrace *t, int param, MxValue value);
bool program_takes_rows(const MxConfig *config);
/* program_shard — what of every variable this rank has, all of it on a mesh of one device.
 * Errors: what does not divide; what is only planned leaves that whole, notes the refusal, and has
 * no stages. program_divide — the entries as this rank runs them. */
bool program_shard(MxTrainState *state, MxError *err);
bool program_divide(MxTrainState *state, MxError *err);
/* Replicas that train apart (diloco.c). program_replicas — how many the mesh has; program_replica —
 * which of them a rank belongs to. program_held, program_read_held — the variable of a parameter as
 * checkpoints have it, and all of their values: the outer one, the same for all replicas, and not
 * the one that this rank trains. program_join_loss, program_join_update — what replicas have had of
 * a batch or a step becomes what all of them tell: a replica's mean; the loss of an evaluation is
 * the mean of examples. All ranks call them. */
int64_t program_replicas(const MxTrainState *state);
int64_t program_replica(const MxMesh *mesh, int64_t rank);
int program_held(const MxTrainState *state, int param);
MxValue *program_read_held(MxTrainState *state, MxTrace *t);
void program_join_loss(MxTrainState *state, bool is_eval, MxLoss *loss);
void program_join_update(MxTrainState *state, MxUpdate *update);
/* program_outer_bytes — of outer parameters and their momentum, by what each variable takes. */
size_t program_outer_bytes(const MxTrainState *state,
                           size_t (*bytes_of)(const MxTrainState *state, int var));
/* program_stacked — who keeps leaves that have a dim before those of their variable, of which this
 * rank has one. */
MxKeeper program_stacked(MxTrainState *state);
/* program_shard_gradient — how the gradient of a parameter is divided, whose own sharding and whose
 * moments' sharding are given. The batch's is known. */
MxSharding program_shard_gradient(const MxTrainState *state, MxSharding param, MxSharding moment);
/* program_is_piped — whether layers are divided among stages. program_home — 1 + the virtual stage
 * that has a parameter, 0 = all have it. program_has — whether a rank's stage has an array.
 * program_add_lanes — the variables that each micro-batch of a pipeline has by itself; program_own
 * — one of them. program_cut_stages — the entries as this rank's stage runs them; arrays of other
 * stages take no room then. */
bool program_is_piped(const MxTrainState *state);
int program_home(const MxTrainState *state, const MxLeaf *leaf);
bool program_has(const MxTrainState *state, MxSharding sharding, int64_t rank);
void program_add_lanes(MxTrainState *state);
int program_own(const MxTrainState *state, int var, int lane);
void program_cut_stages(MxTrainState *state);
/* program_note_micro — a variable that each micro-batch has; program_note_sum — one that they add
 * up to. */
void program_note_micro(MxTrainState *state, int var);
void program_note_sum(MxTrainState *state, int var);
/* program_divide_like — what of a new variable this rank has: the same part as of an older one. */
void program_divide_like(MxTrainState *state, int var, int like);
/* program_row_of — which row of the batch a row of a micro-batch is: examples i, i + n, i + 2n, …
 * as MaxText takes them. The first rows of all examples come before the second ones, in the batch
 * as in the micro-batch. */
int64_t program_row_of(const MicroBatch *micro, int64_t row);
/* program_first_of — the first example of a batch that a rank's replica has. Replicas have as many
 * each, next to each other. Source: MaxText utils/diloco_sharding.py @e591f30c. */
int64_t program_first_of(const MxMesh *mesh, int64_t rank, int64_t of_examples);
/* program_load_batch — gives the program a micro-batch of what a rank has of a batch.
 * program_read_rows — puts what entries made of it, 4 bytes an element, into an array of that
 * batch.
 */
void program_load_batch(MxTrainState *state, bool is_eval, const MxBatch *batch, MicroBatch micro);
void program_read_rows(MxTrainState *state, int var, const MxBatchPart *part, MicroBatch micro,
                       void *data);
/* program_shard_batch — how a micro-batch is cut. Errors: rows that do not divide; tokens of a row
 * that do not are left whole. */
bool program_shard_batch(MxArena *arena, const MxTrainMesh *mesh, bool is_eval, MxSharding *out,
                         MxError *err);
/* program_speaks_for — of the ranks with the same part of a batch's variable, the first does. */
bool program_speaks_for(const MxTrainState *state, int var, int64_t rank);
/* program_add_parts — the first rank joins arrays [n] of 4 bytes an element of those that speak for
 * a variable: where one has something, all others have 0. */
void program_add_parts(MxTrainState *state, int var, void *x, int64_t n);
/* program_division — of arrays of that shape; NULL on one rank. */
const MxDivision *program_division(MxTrainState *state, MxSharding sharding, MxShape shape);
/* program_gather — a leaf's whole array, on rank 0: in the arena, or on one rank where the leaf's
 * values are; NULL elsewhere. All ranks call it. */
const void *program_gather(MxTrainState *state, MxArena *arena, const MxLeaf *leaf);
/* program_is_trained — whether a parameter gets a gradient, moments and updates. */
static inline bool program_is_trained(const MxTrainState *state, const MxLeaf *leaf) {
    return state->purpose == PURPOSE_TRAINS && leaf->kind == mx_model_trains(state->model);
}

#endif
