/* program.h — training without the loop: a model's program (variables and entries over them), the
 * state that it updates, losses and their metrics. The room train has the loop. */
#ifndef MX_PROGRAM_H
#define MX_PROGRAM_H

#include <mx/config.h>
#include <mx/data.h>
#include <mx/run.h>
#include <mx/shard.h>
#include <mx/tree.h>

struct MxModel; /* mx/model.h */

/* ---- ranks */

/* The mesh and the sharding rules of a config. */
typedef struct MxTrainMesh {
    const MxConfig *config;
    MxMesh mesh;
    MxRules rules;
    int64_t n_stages;     /* stages of the pipeline; 1 = no pipeline */
    int64_t n_repeats;    /* how often a batch passes through all stages */
    int64_t stage_layers; /* neighbouring layers in a virtual stage */
    int64_t rank;         /* the rank whose program mx_train_program makes */
} MxTrainMesh;

/* mx_train_mesh — the mesh of a config. Errors: sizes that give no mesh, unrecognized axes, stages
 * that do not divide the layers, sizes that would overflow. */
bool mx_train_mesh(MxArena *arena, const MxConfig *config, MxTrainMesh *out, MxError *err);

/* mx_train_uncut — the mesh axes that shard a dim of a gradient which is kept whole along `axes`.
 */
uint32_t mx_train_uncut(uint32_t dim, uint32_t axes);
/* mx_train_check_stages — errors: features that pipelines do not support yet. */
bool mx_train_check_stages(const MxTrainMesh *mesh, MxError *err);

/* mx_train_check_ranks — errors: the number of ranks is not that of the mesh's devices. */
bool mx_train_check_ranks(const MxTrainMesh *mesh, const MxComm *comm, MxError *err);
/* mx_train_batch_whole — all columns of a batch's first rows, with room for what they show.
 * mx_train_batch_part — the part of every batch of training or evaluation data that a rank needs.
 * Errors: rows that cannot be divided. */
MxBatchPart mx_train_batch_whole(const MxConfig *config, int64_t rows);
bool mx_train_batch_part(MxArena *arena, const MxTrainMesh *mesh, int64_t rank, bool is_eval,
                         MxBatchPart *out, MxError *err);

/* ---- state */

/* Parameters, moments and counters, with the program that updates them. */
typedef struct MxTrainState MxTrainState;

/* Result of a pass over a batch. Each loss has its own sums. */
enum { MX_LOSS_SUMS = 16 };
typedef struct MxLoss {
    double loss;              /* the minimised loss */
    double total_weights;     /* number of targets that count, or of pairs */
    double sum[MX_LOSS_SUMS]; /* the sums of this loss, one after the other */
} MxLoss;

/* A figure of a step or an evaluation: a metric, and its form on the console. */
typedef struct MxFigure {
    const char *metric;
    bool (*is_meant)(const MxConfig *config); /* NULL = in all configs */
    /* The value for a batch, or for the sums over all batches of an evaluation; NULL = another
     * table computes the metric, and this row prints it. */
    double (*value)(const MxLoss *loss, int sum);
    int sum;                  /* index of the sum */
    bool each_batch;          /* in evaluations: use the mean of the batches' values */
    const char *label, *unit; /* for the console; NULL = not printed; no unit */
    int decimals;             /* minimum number of decimals, see mx_figure */
} MxFigure;

/* mx_train_rows — the number of rows of a batch for each example: two for a pair, one per response
 * of a group. */
int64_t mx_train_rows(const MxConfig *config);

/* mx_train_figures — the figures of a config's loss for a step or an evaluation; the last one has
 * no metric. */
const MxFigure *mx_train_figures(MxArena *arena, const MxConfig *config, bool is_eval);

/* Sums over the batches of an evaluation. */
enum { MX_EVAL_FIGURES = 16 };
typedef struct MxEvaluation {
    int64_t n;
    double total_loss; /* sum of the batches' losses times their weights */
    MxLoss sums;       /* its loss is the mean over examples */
    double each_batch[MX_EVAL_FIGURES];
} MxEvaluation;

/* mx_evaluation_add — adds a batch. mx_evaluation_figure — the value of figure i, which must have
 * one. */
void mx_evaluation_add(MxEvaluation *evaluation, const MxFigure *figures, const MxLoss *batch);
double mx_evaluation_figure(const MxEvaluation *evaluation, const MxFigure *figures, int i);

/* Result of an update; norms are over all trained arrays. */
typedef struct MxUpdate {
    double learning_rate;
    double raw_grad_norm, grad_norm; /* before and after clipping */
    double param_norm;               /* after the update */
    bool was_left_out;               /* skip_step_on_spikes: the update was skipped */
} MxUpdate;

/* mx_train_read_tokens — what n-gram memories of a model know of the tokens of the config's
 * tokenizer; does nothing if it has none. Errors: no tokenizer, or one without a padding token. */
bool mx_train_read_tokens(MxArena *arena, struct MxModel *model, const MxConfig *config,
                          MxError *err);

/* mx_train_state_open — builds the model and its program and allocates everything; the state is all
 * zeros. Errors: those of the model or device; not enough memory. */
bool mx_train_state_open(MxArena *arena, const MxConfig *config, MxTrainState **out, MxError *err);
/* mx_train_state_open_on — the same on every rank of comm, each with its part of every array; NULL
 * = one rank. Further errors: a mesh of more or fewer devices than ranks; mesh axes that are not
 * supported; a parameter or batch that its mesh axes do not divide. */
bool mx_train_state_open_on(MxArena *arena, const MxConfig *config, MxComm *comm,
                            MxTrainState **out, MxError *err);
/* mx_train_few_share — the share of the trained parameters whose gradients ranks exchange in few
 * bits (gradient_exchange_dtype). */
double mx_train_few_share(const MxTrainState *state);

/* mx_train_state_open_eval — the same without gradients, moments and entries of training: for
 * mx_train_eval. The tree has the moments, without data. */
bool mx_train_state_open_eval(MxArena *arena, const MxConfig *config, MxComm *comm,
                              MxTrainState **out, MxError *err);

/* ---- generation */

/* Sizes of generation. A prompt is processed in pieces of `chunk` tokens. Then tokens are generated
 * one by one, for one sequence or for several together. Caches keep values of earlier tokens. */
typedef struct MxGeneration {
    int64_t rows;     /* sequences */
    int64_t capacity; /* maximum number of positions of a sequence */
    int64_t chunk;    /* tokens of a piece of a prompt */
    bool all_logits;  /* pieces may request logits for every token */
    int64_t seen;     /* maximum number of image tokens of a sequence; 0 = no images */
    /* For a policy that generates its own responses: ranks along mesh axes that cut no weights form
     * shares, which process different pieces. This rank belongs to share `share` of n_shares (below
     * 2: one share of all ranks); one rank of each share `speaks` for it. */
    int64_t share, n_shares;
    bool speaks;
} MxGeneration;

/* mx_generation_make_room — for whole views and sounds, where any are seen at all. */
void mx_generation_make_room(const MxConfig *config, MxGeneration *sizes);
/* mx_train_state_open_generation — a state that can only generate, in this process alone, whatever
 * the config's mesh is. kept: see mx_model_keep; MX_NOT_QUANTIZED = as the config says. Further
 * errors: models that cannot generate, see mx_model_caches. */
bool mx_train_state_open_generation(MxArena *arena, const MxConfig *config, MxGeneration what,
                                    MxQtype kept, MxTrainState **out, MxError *err);
/* mx_generation — a state's sizes of generation; rows 0 = it cannot generate. */
MxGeneration mx_generation(const MxTrainState *state);

/* The next tokens of some sequences: up to a chunk of one sequence, or one token for each of
 * several. Other sequences are not changed. */
typedef struct MxPiece {
    int64_t n;                /* sequences */
    const int32_t *sequences; /* [n] their indices, each at most once */
    const int64_t *before;    /* [n] positions that each already has, 0 = a new sequence */
    const int32_t *tokens;    /* [n], or [n_tokens] for one sequence */
    int64_t n_tokens;         /* tokens of each sequence */
    bool all_logits;          /* for one sequence: return logits after each of its tokens */
    /* For one sequence: the row of mx_generation_see that each token stands for, from 1 on; 0 = a
     * text token; NULL = all are text. If tokens of an image attend to each other, all of them must
     * be in one piece. */
    const int32_t *image;
    /* With use_mrope: by how much each sequence's tokens stand later than the number of those
     * before them, [n], and of one sequence the time, row and column of each token
     * (mx_vision_mrope); NULL = 0, and the position in each. */
    const int32_t *shift, *mrope[MX_MROPE_KINDS];
} MxPiece;

/* mx_generation_see — encodes a view of an image; the following pieces read the resulting rows
 * until they are overwritten. The state's `seen` must be above 0.
 *   pixels  [mx_vision_row of one image without tiles]
 *   grid    grid of the view, NULL = the default one
 *   at      the first of the resulting rows, 0 … seen - tokens of a view */
void mx_generation_see(MxTrainState *state, const float *pixels, const MxVisionGrid *grid,
                       int64_t at);
/* mx_generation_hear — the same of sounds.
 *   frames  [chunks, frames, bins], left [chunks], as mx_audio_fill reads them
 *   at      the first of the resulting rows, mx_audio_tokens for each chunk */
void mx_generation_hear(MxTrainState *state, const float *frames, const int32_t *left,
                        int64_t chunks, int64_t at);

/* mx_generation_run — processes a piece. logits: [n, vocab] after the last token of each sequence;
 * with all_logits, [n_tokens, vocab]. The result of a sequence does not depend on the others,
 * except for rounding if more than eight are processed together. All ranks of a share
 * (MxGeneration) call it with the same piece and get the same logits. */
void mx_generation_run(MxTrainState *state, const MxPiece *piece, float *logits);

/* mx_generation_copy — makes a sequence another one's copy, whose n tokens have been processed.
 * Every rank has all that is kept, so all ranks of a share call it with the same sequences. */
void mx_generation_copy(MxTrainState *state, int64_t from, int64_t to, int64_t n);

/* mx_train_state_init — step 0: parameters drawn from init_weights_seed, moments zero. */
void mx_train_state_init(MxTrainState *state);

/* mx_train_state_begin — called when the weights are those that a run starts with; copies the
 * policy to the reference model, if there is one. */
void mx_train_state_begin(MxTrainState *state);

/* mx_train_open_parts — runs the hooks of the program's parts before the first batch, with the data
 * of training and evaluation (NULL = none). mx_train_before_batch — runs the hooks before batch i;
 * `batch` has the rank's rows of it. mx_train_evaluates — whether weights that no run has trained
 * can be evaluated. */
bool mx_train_open_parts(MxTrainState *state, MxDataset *const data[2], MxError *err);
bool mx_train_before_batch(MxTrainState *state, bool is_eval, int64_t i, const MxBatch *batch,
                           MxError *err);
bool mx_train_evaluates(const MxConfig *config, MxError *err);

/* mx_train_give_rewards — sets the rewards of the next batch, for losses with rewards: rewards
 * [of_rows] of all of its rows, NAN = none, and, with rl.recorded_logprobs, the log-probabilities
 * with which the rows of `batch` were generated, [rows, length] (otherwise NULL). Both are kept
 * until that batch is done. For callers without a dataset: mx_train_before_batch sets them from the
 * data, unless the policy generates the responses (mx_config_writes). */
void mx_train_give_rewards(MxTrainState *state, const MxBatch *batch, const float *rewards,
                           const float *logprobs);

/* Data shared by the steps that learn from one batch (rl.num_iterations), as stored in checkpoints.
 * Rows are those of the whole batch; on ranks other than the first, values of other ranks' rows may
 * be missing until the run resumes. */
typedef struct MxResponses {
    int32_t *tokens; /* [rows, max_target_length] completions, followed by -1; NULL = the data has
                        them */
    float *rewards;  /* [rows] likewise; NAN = none */
    float *logprobs; /* [rows, max_target_length] of each target, 0 if it does not count, under the
                        policy that generated the batch or that of the batch's first step; NULL =
                        the data has them */
} MxResponses;
/* mx_train_responses — for callers that let the policy generate; NULL = each step has its own
 * batch. are_here: whether they are those of the current step's batch; otherwise they are from an
 * earlier batch, or missing. mx_train_before_batch computes log-probabilities that were not
 * recorded, and sets are_here. */
MxResponses *mx_train_responses(MxTrainState *state, bool *are_here);

/* mx_train_give_labels — sets the labels of the next batch (use_kto): labels [of_rows] of all of
 * its rows, above 0 = desirable, and the rows of `batch` with mismatched completions after their
 * prompts. Both are kept until that batch is done. For callers without a dataset, as above. */
void mx_train_give_labels(MxTrainState *state, const MxBatch *batch, const float *labels,
                          const MxBatch *mismatched);

/* mx_train_state_tree — every array of the state under its NNX path ("model/…", "optimizer/…",
 * "reference_model/…"), with its global shape and this rank's part of the values; variables are on
 * the device (mx_leaf_read, mx_leaf_write). After values were changed from outside, call
 * mx_train_state_restored, which also takes over the step. */
MxTree *mx_train_state_tree(MxTrainState *state);
void mx_train_state_restored(MxTrainState *state);
/* mx_train_start_adapters — gives magnitudes (lora.use_dora) and parameters that are trained as
 * they are beside adapters (lora.modules_to_save) the values they begin with, unless they were
 * read: to be called when the base weights are there, before adapters are read. Errors: the weights
 * of an output that has a magnitude are all 0. */
bool mx_train_start_adapters(MxTrainState *state, MxError *err);
/* mx_train_check_weights — errors: a weight stored in few bits was set to a NaN or an infinite
 * number. Every rank checks only its own part. */
bool mx_train_check_weights(const MxTrainState *state, MxError *err);
/* mx_train_saved_tree — the part of the tree that checkpoints contain. */
MxTree *mx_train_saved_tree(MxArena *arena, MxTrainState *state);
/* mx_train_folded_tree — the model in ordinary weights, as they are now, where maps make some of a
 * teacher's (learn_to_init_mode); NULL = they are ordinary anyway. */
MxTree *mx_train_folded_tree(MxArena *arena, MxTrainState *state);
/* mx_train_saved_tree_of — the tree in checkpoints of a run with n replicas, to be read into this
 * state: replica r takes the inner state of replica r mod n. mx_train_rejoin — then lets all
 * replicas continue from the outer parameters. mx_train_replica_leaf — a path whose dim 0 is the
 * replicas; NULL = there is none. */
MxTree *mx_train_saved_tree_of(MxArena *arena, MxTrainState *state, int64_t n_replicas);
void mx_train_rejoin(MxTrainState *state);
const char *mx_train_replica_leaf(const MxTrainState *state);
int64_t mx_train_replicas(const MxTrainState *state);
/* mx_train_fingerprint — a hash of every base parameter's path and values, independent of file
 * layout and sharding. All ranks call it. mx_train_base_fingerprint — the state's leaf with the
 * fingerprint of the weights under adapters; NULL = no adapters are trained. */
int64_t mx_train_fingerprint(MxTrainState *state);
/* mx_train_fingerprint_of — the same for another tree of such leaves. */
int64_t mx_train_fingerprint_of(MxTrainState *state, const MxTree *tree);

/* The teacher of distillation. mx_train_teacher — its model; NULL = there is none.
 * mx_train_teacher_tree — its parameters, "model/…"; load them before the first step, then call
 * mx_train_state_restored; NULL = the teacher is not run. mx_train_teacher_fingerprint — the
 * state's leaf with their fingerprint. */
const struct MxModel *mx_train_teacher(const MxTrainState *state);
MxTree *mx_train_teacher_tree(MxTrainState *state);
int64_t *mx_train_teacher_fingerprint(const MxTrainState *state);
int64_t *mx_train_base_fingerprint(const MxTrainState *state);
/* mx_train_teaches_first — whether the teacher's largest logits (offline_data_dir) are still to be
 * made, by a state of config->offline_teacher that evaluates: mx_train_open_parts makes them.
 * Errors: they are missing, and the config names no teacher. */
bool mx_train_teaches_first(const MxConfig *config, MxComm *comm, bool *teaches, MxError *err);

/* mx_train_state_step — number of updates so far. */
int64_t mx_train_state_step(const MxTrainState *state);

/* mx_train_state_eval_pending — a flag of the state: 1 if the last step's evaluation has not been
 * made, because the run was stopped before. It is saved and restored with the rest. */
int32_t *mx_train_state_eval_pending(MxTrainState *state);

/* mx_train_loss_and_grad — loss of a batch [global_batch_size_to_train_on, max_target_length] (or
 * more rows) and its gradient, which stays in the state until the next call. A rank may pass only
 * the part that it needs. The batch is processed in gradient_accumulation_steps micro-batches; how
 * it is split only affects rounding. */
MxLoss mx_train_loss_and_grad(MxTrainState *state, const MxBatch *batch);
/* mx_train_gradient — the gradient of parameter i of the model's tree, f32, of its shape, copied
 * into the arena; NULL if it is frozen. */
float *mx_train_gradient(MxArena *arena, const MxTrainState *state, int i);
/* mx_train_update — one optimizer step with the gradient of mx_train_loss_and_grad. */
MxUpdate mx_train_update(MxTrainState *state);
/* mx_train_eval — loss of a batch [micro_batch_size_to_eval_on, max_target_length], or of all
 * ranks' parts of it; does not change the state. */
MxLoss mx_train_eval(MxTrainState *state, const MxBatch *batch);

/* A metric that a part of the program adds to those of every step. */
typedef struct MxTold {
    const char *metric;
    double value; /* of the last step; NAN = it was not measured */
} MxTold;

/* mx_train_told — [n] all of them, in the order in which they are written; the same ones from the
 * opening of a state on. */
const MxTold *mx_train_told(const MxTrainState *state, int *n);

/* mx_train_sum — the sums of the state's loss with this name; NULL = there are none. */
const double *mx_train_sum(const MxTrainState *state, const MxLoss *loss, const char *name);

typedef struct MxTrainBytes {
    size_t parameters, gradients, moments, reference, activations, total;
    size_t outer;   /* parameters and momentum of the outer optimizer (enable_diloco) */
    size_t casts;   /* casts of frozen weights to the computation dtype, kept from step to step */
    size_t buffers; /* the batch, scalars in and out */
    size_t disk;    /* moments in a file (optimizer_memory_disk), not included in the others */
} MxTrainBytes;
MxTrainBytes mx_train_state_bytes(const MxTrainState *state);
const MxConfig *mx_train_state_config(const MxTrainState *state);
MxComm *mx_train_state_comm(const MxTrainState *state); /* NULL = one rank */
const struct MxModel *mx_train_state_model(const MxTrainState *state);
const MxDevice *mx_train_state_device(const MxTrainState *state);
const MxRun *mx_train_state_run(const MxTrainState *state);

/* A program as a rank of a mesh (MxTrainMesh.rank) would run it, without allocating its memory. */
typedef struct MxTrainProgram {
    const struct MxModel *model;
    const char *refusal;        /* why a run would refuse the mesh; NULL = it would not */
    const char *device;         /* mx_device_describe */
    int64_t device_memory;      /* mx_device_memory */
    const MxMachine *machine;   /* the machine for which it was prepared */
    const MxSharding *sharding; /* [variable] */
    const int *param;           /* variables, by parameter of the model's tree */
    const int *gradient;        /* variables, by parameter of the model's tree; MX_NONE = frozen */
    int n_entries;
    MxTrainBytes bytes;
    size_t moment_bytes; /* bytes of moments of all ranks together */
    MxRunLayout layout;
} MxTrainProgram;

/* mx_train_program — traces and lowers the program of a mesh's config. A mesh that no run accepts
 * is replaced by a similar one: without stages and replicas (diloco), with a config that has the
 * layers of one stage, and without sharding dims that mesh axes do not divide.
 *   watch  called with every entry after tracing ("trace") and after each pass; NULL = none
 * Errors: those of the model or device. */
bool mx_train_program(MxArena *arena, const MxTrainMesh *mesh, const MxGraphWatch *watch,
                      MxTrainProgram *out, MxError *err);

/* mx_learning_rate — the schedule's value for the update of a step (0-based). Source: MaxText
 * utils/maxtext_utils.py create_learning_rate_schedule. */
double mx_learning_rate(const MxConfig *config, int64_t step);

#endif
