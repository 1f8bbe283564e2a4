/* program.h — what is trained: a model's program (variables and entries over them), the state that
 * it advances, losses and what is told of them. Who drives it is the room train. */
#ifndef MX_PROGRAM_H
#define MX_PROGRAM_H

#include <mx/config.h>
#include <mx/data.h>
#include <mx/run.h>
#include <mx/shard.h>
#include <mx/tree.h>

/* ---- ranks */

/* Who computes: the mesh and the rules of a config. */
typedef struct MxTrainMesh {
    const MxConfig *config;
    MxMesh mesh;
    MxRules rules;
    int64_t n_stages;     /* of the pipeline; 1 = none */
    int64_t n_repeats;    /* how often a batch goes round them */
    int64_t stage_layers; /* neighbouring layers that a stage runs at a time */
    int64_t rank;         /* whose program mx_train_program makes */
} MxTrainMesh;

/* mx_train_mesh — Errors: sizes that make no mesh, unrecognized axes, stages that do not divide the
 * layers, sizes that no arithmetic here would survive. */
bool mx_train_mesh(MxArena *arena, const MxConfig *config, MxTrainMesh *out, MxError *err);

/* mx_train_check_stages — Errors: what no pipeline runs yet. */
bool mx_train_check_stages(const MxTrainMesh *mesh, MxError *err);

/* mx_train_check_ranks — a mesh is a wish until there are as many ranks. */
bool mx_train_check_ranks(const MxTrainMesh *mesh, const MxComm *comm, MxError *err);
/* mx_train_batch_part — what of every batch of training or evaluation data a rank needs. Errors:
 * rows that do not divide. */
bool mx_train_batch_part(MxArena *arena, const MxTrainMesh *mesh, int64_t rank, bool is_eval,
                         MxBatchPart *out, MxError *err);

/* ---- state */

/* Parameters, moments and counters, with the program that advances them. */
typedef struct MxTrainState MxTrainState;

/* What one pass over a batch gives. Losses differ in what they sum up. */
enum { MX_LOSS_SUMS = 16 };
typedef struct MxLoss {
    double loss;              /* what is minimised */
    double total_weights;     /* tokens whose target counts, or pairs */
    double sum[MX_LOSS_SUMS]; /* the loss's own, one after the other */
} MxLoss;

/* A figure of a step or an evaluation: a metric, and how the console tells it. */
typedef struct MxFigure {
    const char *metric;
    bool (*is_meant)(const MxConfig *config); /* by the config; NULL = by all */
    /* Of a batch, or of all batches of an evaluation added up; NULL = another table has the metric,
     * this one tells it. */
    double (*value)(const MxLoss *loss, int sum);
    int sum;                  /* which of the sums */
    bool each_batch;          /* in evaluation: the mean of batches' values */
    const char *label, *unit; /* on the console; NULL = it is not told there; none */
    int decimals;             /* at least, see mx_figure */
} MxFigure;

/* mx_train_rows — of a batch for each example: two of a pair, as many as a group has responses. */
int64_t mx_train_rows(const MxConfig *config);

/* mx_train_figures — what a config's loss tells of a step or an evaluation; ends with one without a
 * metric. */
const MxFigure *mx_train_figures(MxArena *arena, const MxConfig *config, bool is_eval);

/* Batches of an evaluation, added up. */
enum { MX_EVAL_FIGURES = 16 };
typedef struct MxEvaluation {
    int64_t n;
    double total_loss; /* each example as often as it counts */
    MxLoss sums;       /* its loss is the mean of examples */
    double each_batch[MX_EVAL_FIGURES];
} MxEvaluation;

/* mx_evaluation_add — one more batch. mx_evaluation_figure — the value of a figure that has one. */
void mx_evaluation_add(MxEvaluation *evaluation, const MxFigure *figures, const MxLoss *batch);
double mx_evaluation_figure(const MxEvaluation *evaluation, const MxFigure *figures, int i);

/* What an update gives; norms over all trained arrays. */
typedef struct MxUpdate {
    double learning_rate;
    double raw_grad_norm, grad_norm; /* before and after clipping */
    double param_norm;               /* after the update */
    double max_logit;                /* use_qk_clip: the largest score of the batch; else NAN */
    bool was_left_out;               /* skip_step_on_spikes: nothing has changed */
} MxUpdate;

/* mx_train_state_open — builds the model and its program and allocates everything; the state is all
 * zeros. Errors: the model or device refuses; not enough memory. */
bool mx_train_state_open(MxArena *arena, const MxConfig *config, MxTrainState **out, MxError *err);
/* mx_train_state_open_on — the same on every rank, each with its part of every array; NULL = one
 * rank. Further errors: a mesh of more or fewer devices than ranks; mesh axes that divide no
 * program; a parameter or batch that its mesh axes do not divide. */
bool mx_train_state_open_on(MxArena *arena, const MxConfig *config, MxComm *comm,
                            MxTrainState **out, MxError *err);

/* mx_train_state_open_eval — the same without gradients, moments and what training computes: for
 * mx_train_eval. Moments are in the tree, without data. */
bool mx_train_state_open_eval(MxArena *arena, const MxConfig *config, MxComm *comm,
                              MxTrainState **out, MxError *err);

/* ---- generation */

/* What is generated at a time. A prompt goes through the model in pieces of `chunk` tokens, then
 * one token after another, alone or together with those of other sequences; what layers keep of
 * earlier tokens lies in caches. */
typedef struct MxGeneration {
    int64_t rows;     /* sequences */
    int64_t capacity; /* most positions of one */
    int64_t chunk;    /* tokens of a piece of a prompt */
    bool all_logits;  /* pieces may ask for those of every token */
    int64_t seen;     /* tokens of a sequence that images become, at most; 0 = it has none */
    /* Of a policy that writes what it learns from: ranks along mesh axes that cut no weights let
     * other pieces through than each other. This rank belongs to share `share` of n_shares, which
     * is all ranks where that is below 2; one rank of each share speaks for it. */
    int64_t share, n_shares;
    bool speaks;
} MxGeneration;

/* mx_train_state_open_generation — a state that generates, and does nothing else: on this process
 * alone, whatever the config's mesh. kept  see mx_model_keep; MX_NOT_QUANTIZED = as the config
 * says. Errors: also models that do not generate; see mx_model_caches. */
bool mx_train_state_open_generation(MxArena *arena, const MxConfig *config, MxGeneration what,
                                    MxQtype kept, MxTrainState **out, MxError *err);
/* mx_generation — what a state generates; rows 0 = nothing. */
MxGeneration mx_generation(const MxTrainState *state);

/* The next tokens of some sequences: of one up to a chunk, or of several one each. Others are left
 * as they are. */
typedef struct MxPiece {
    int64_t n;                /* sequences */
    const int32_t *sequences; /* [n] which, each once */
    const int64_t *before;    /* [n] positions that each has already, 0 = it begins */
    const int32_t *tokens;    /* [n], or those of the one */
    int64_t n_tokens;         /* of each */
    bool all_logits;          /* of one sequence, those after each of its tokens */
    /* Of one sequence: which row of those that mx_generation_see made each token is, from 1 on, 0 =
     * a text's; NULL = all are. Where tokens of an image see each other, all are in one piece. */
    const int32_t *image;
} MxPiece;

/* mx_generation_see — lets a view of an image through the encoder; what it makes is read by the
 * pieces that follow, until it is made anew. Of a state with `seen` above 0.
 *   pixels  [mx_vision_row of one image without tiles]
 *   grid    of the view, NULL = it has none of its own
 *   at      the first of the rows it becomes, 0 … seen - tokens of a view */
void mx_generation_see(MxTrainState *state, const float *pixels, const MxVisionGrid *grid,
                       int64_t at);

/* mx_generation_run — lets a piece through. logits  [n, vocab] after the last token of each; with
 * all_logits, [n_tokens, vocab]. What a sequence gets does not depend on the others, but for
 * rounding where more than eight go through together. All ranks of a share (MxGeneration) call it,
 * with the same piece, and get the same logits. */
void mx_generation_run(MxTrainState *state, const MxPiece *piece, float *logits);

/* mx_train_state_init — step 0: parameters drawn from init_weights_seed, moments zero. */
void mx_train_state_init(MxTrainState *state);

/* mx_train_state_begin — the weights are those that a run starts with: makes the reference model,
 * if there is one, equal to the policy. */
void mx_train_state_begin(MxTrainState *state);

/* mx_train_open_parts — what the features of a program do before the first batch; the data of
 * training and evaluation, NULL = none. mx_train_before_batch — and before batch i, or the rows of
 * it that `batch` has. mx_train_evaluates — whether weights that no run has trained can be
 * evaluated. */
bool mx_train_open_parts(MxTrainState *state, MxDataset *const data[2], MxError *err);
bool mx_train_before_batch(MxTrainState *state, bool is_eval, int64_t i, const MxBatch *batch,
                           MxError *err);
bool mx_train_evaluates(const MxConfig *config, MxError *err);

/* mx_train_give_rewards — of the next batch, where responses have them: rewards [of_rows] of all of
 * its rows, NAN = none, and the log-probabilities that the rows of `batch` were written with,
 * [rows, length], kept until that batch is done (rl.recorded_logprobs, else NULL). For who has no
 * dataset: mx_train_before_batch does so with what the data says, unless the policy writes the
 * responses (mx_config_writes). */
void mx_train_give_rewards(MxTrainState *state, const MxBatch *batch, const float *rewards,
                           const float *logprobs);

/* What the steps that learn from one batch have in common (rl.num_iterations), as checkpoints hold
 * it. Rows are those of the whole batch; on ranks but the first, numbers of other ranks' rows may
 * be missing until a run goes on. */
typedef struct MxResponses {
    int32_t
        *tokens;    /* [rows, max_target_length] completions, -1 behind; NULL = the data has them */
    float *rewards; /* [rows] the same; NAN = none */
    float *logprobs; /* [rows, max_target_length] of each target, 0 where it does not count, under
                        the policy that wrote or began with the batch; NULL = the data has them */
} MxResponses;
/* mx_train_responses — for who lets the policy write; NULL = each step has a batch of its own.
 * are_here: they are those of the present step's batch, else of an earlier one, or none.
 * mx_train_before_batch makes log-probabilities that nobody recorded, and then they are here. */
MxResponses *mx_train_responses(MxTrainState *state, bool *are_here);

/* mx_train_give_labels — of the next batch, where responses are wanted or not (use_kto): labels
 * [of_rows] of all of its rows, above 0 = wanted, and the rows of `batch` with other completions
 * behind their prompts, kept until that batch is done. For who has no dataset, as above. */
void mx_train_give_labels(MxTrainState *state, const MxBatch *batch, const float *labels,
                          const MxBatch *mismatched);

/* mx_train_state_tree — every array of the state under its NNX path ("model/…", "optimizer/…",
 * "reference_model/…"), as large as it is, with this rank's part of the values; those that are
 * variables are on the device (mx_leaf_read, mx_leaf_write). After values were changed from
 * outside, mx_train_state_restored takes over the step. */
MxTree *mx_train_state_tree(MxTrainState *state);
void mx_train_state_restored(MxTrainState *state);
/* mx_train_check_weights — errors: a weight that is kept in few bits was given a NaN or an infinite
 * number. Every rank knows of its own part alone. */
bool mx_train_check_weights(const MxTrainState *state, MxError *err);
/* mx_train_saved_tree — what a run's checkpoints hold of it. */
MxTree *mx_train_saved_tree(MxArena *arena, MxTrainState *state);
/* mx_train_saved_tree_of — what those of a run of n replicas hold, to be read into this state:
 * replica r takes what replica r mod n had for itself. mx_train_rejoin — then all replicas go on
 * from the outer parameters. mx_train_replica_leaf — a path whose dim 0 is the replicas; NULL =
 * there is none. */
MxTree *mx_train_saved_tree_of(MxArena *arena, MxTrainState *state, int64_t n_replicas);
void mx_train_rejoin(MxTrainState *state);
const char *mx_train_replica_leaf(const MxTrainState *state);
int64_t mx_train_replicas(const MxTrainState *state);
/* mx_train_fingerprint — a hash of every base parameter's path and values, however files hold them
 * and ranks divide them. All ranks call it. mx_train_base_fingerprint — that of what is under
 * adapters, as the state's leaf has it; NULL = none are trained. */
int64_t mx_train_fingerprint(MxTrainState *state);
/* mx_train_fingerprint_of — the same of another tree of such leaves. */
int64_t mx_train_fingerprint_of(MxTrainState *state, const MxTree *tree);

/* The teacher of distillation. mx_train_teacher — its model; NULL = there is none.
 * mx_train_teacher_tree — its parameters, "model/…", to be loaded before the first step, after
 * which mx_train_state_restored is called; NULL = it is not run. mx_train_teacher_fingerprint — the
 * state's leaf of their fingerprint. */
const struct MxModel *mx_train_teacher(const MxTrainState *state);
MxTree *mx_train_teacher_tree(MxTrainState *state);
int64_t *mx_train_teacher_fingerprint(const MxTrainState *state);
int64_t *mx_train_base_fingerprint(const MxTrainState *state);

/* mx_train_state_step — updates made so far. */
int64_t mx_train_state_step(const MxTrainState *state);

/* mx_train_state_eval_pending — a flag of the state: 1 if the last step's evaluation is still to be
 * done, because the run was told to stop before. It is saved and restored with the rest. */
int32_t *mx_train_state_eval_pending(MxTrainState *state);

/* mx_train_loss_and_grad — loss of a batch [global_batch_size_to_train_on, max_target_length] (or
 * more rows) and its gradient, which stays in the state until the next call. A rank may give the
 * part that it needs. The batch is worked off in gradient_accumulation_steps micro-batches; how it
 * is split changes nothing beyond rounding. */
MxLoss mx_train_loss_and_grad(MxTrainState *state, const MxBatch *batch);
/* mx_train_gradient — the gradient of parameter i of the model's tree, f32, of its shape, copied
 * into the arena; NULL if it is frozen. */
float *mx_train_gradient(MxArena *arena, const MxTrainState *state, int i);
/* mx_train_update — one optimizer step with that gradient. */
MxUpdate mx_train_update(MxTrainState *state);
/* mx_train_eval — loss of a batch [micro_batch_size_to_eval_on, max_target_length], or of all
 * ranks' parts of it; nothing changes. */
MxLoss mx_train_eval(MxTrainState *state, const MxBatch *batch);

/* Of replicas that train apart, the loss that each had of the last batch of training: of the first
 * ones, as many as are told; n 0 = there is one. */
enum { MX_REPLICAS_TOLD = 64 };
typedef struct MxReplicaLosses {
    int n;
    const char **metric; /* [n] */
    double *loss;        /* [n] */
} MxReplicaLosses;
MxReplicaLosses mx_train_replica_losses(const MxTrainState *state);

/* mx_train_sum — the sums of a name that the state's loss made; NULL = it makes none of that name.
 */
const double *mx_train_sum(const MxTrainState *state, const MxLoss *loss, const char *name);

typedef struct MxTrainBytes {
    size_t parameters, gradients, moments, reference, activations, total;
    size_t outer;   /* parameters and momentum of the outer optimizer (enable_diloco) */
    size_t casts;   /* of frozen weights to the dtype of computation, kept from step to step */
    size_t buffers; /* the batch, scalars in and out */
    size_t disk;    /* moments in a file (optimizer_memory_disk), in none of the others */
} MxTrainBytes;
MxTrainBytes mx_train_state_bytes(const MxTrainState *state);
const MxConfig *mx_train_state_config(const MxTrainState *state);
MxComm *mx_train_state_comm(const MxTrainState *state); /* NULL = one rank */
const struct MxModel *mx_train_state_model(const MxTrainState *state);
const MxDevice *mx_train_state_device(const MxTrainState *state);
const MxRun *mx_train_state_run(const MxTrainState *state);

/* A program as a rank of a mesh (MxTrainMesh.rank) would run it, nothing of it allocated. */
typedef struct MxTrainProgram {
    const struct MxModel *model;
    const char *refusal;        /* why no run takes the mesh; NULL = one does */
    const char *device;         /* mx_device_describe */
    const MxMachine *machine;   /* that it was prepared for */
    const MxSharding *sharding; /* [variable] */
    const int *gradient;        /* variables, by parameter of the model's tree; MX_NONE = frozen */
    int n_entries;
    MxTrainBytes bytes;
    size_t moment_bytes; /* of all ranks together */
    MxRunLayout layout;
} MxTrainProgram;

/* mx_train_program — traces and lowers the program of a mesh's config. A mesh that no run takes
 * stands for one near it: without stages and copies (diloco), where the config has the layers of a
 * stage, and with whole dims where mesh axes do not divide them.
 *   watch  sees every entry as it was traced ("trace") and as each pass leaves it; NULL = nobody
 * Errors: the model or device refuses. */
bool mx_train_program(MxArena *arena, const MxTrainMesh *mesh, const MxGraphWatch *watch,
                      MxTrainProgram *out, MxError *err);

/* mx_learning_rate — the schedule's value for the update of a step (0-based). Source: MaxText
 * utils/maxtext_utils.py create_learning_rate_schedule. */
double mx_learning_rate(const MxConfig *config, int64_t step);

#endif
