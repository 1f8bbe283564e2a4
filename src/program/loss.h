/* loss.h — private to the room: losses. A loss is a row in its own file and a line in losses.def:
 * how a batch is weighed, its traces, their sums, and the metrics derived from them. All other code
 * iterates over the rows. docs/adding/loss.md. */
#ifndef PROGRAM_LOSS_H
#define PROGRAM_LOSS_H

#include <mx/model.h>
#include <mx/program.h>

#define LOSS_EPS 1e-8 /* MaxText's EPS: keeps a batch without targets finite */

enum { LOSS_MOST_WEIGHTS = 2, LOSS_MOST_OUTPUTS = 8 };

/* Sums over the examples of a batch, f32 [count], that a trace assigns to loss_output. Those of
 * micro-batches add up to those of the batch; ranks have them whole. */
typedef struct LossOutput {
    const char *name;
    int count;
} LossOutput;

/* One way to measure a model on a batch. A batch is variables by MxBatchField. */
typedef struct Loss {
    bool (*is_meant)(const MxConfig *config); /* by the config; NULL = by all */
    /* Of a batch for each of its examples; NULL = 1. */
    int64_t (*rows)(const MxConfig *config);
    /* What it is divided by, names; the first one's weights are those of examples. */
    const char *weights[LOSS_MOST_WEIGHTS + 1];
    /* Fills in those of a batch. */
    void (*weigh)(MxTrainState *s, MxTrace *t, const int *batch, MxValue *weights);
    /* What is to be minimised: a batch's sums, divided by the weights of the whole one. */
    MxValue (*trace)(MxTrainState *s, MxTrace *t, const MxValue *params, const int *batch,
                     const MxValue *weights);
    /* What evaluation tells instead; NULL = the same. */
    MxValue (*eval)(MxTrainState *s, MxTrace *t, const MxValue *params, const int *batch,
                    const MxValue *weights);
    /* Another loss, whose sums the traces make too: its outputs and figures come first. */
    const struct Loss *base;
    const LossOutput *outputs; /* end with one without a name */
    /* Bits of outputs that do not add up: of which the largest of micro-batches counts, or each
     * micro-batch tells that of the whole batch. */
    unsigned largest, of_batch;
    /* What is told of a step and of an evaluation, in this order; end with one without a metric. */
    const MxFigure *figures, *eval_figures;
    /* Asserts what must hold of a step's sums before the update; NULL = nothing. */
    void (*check)(const MxTrainState *s, const MxLoss *loss);
    /* Whether it compares with a reference model (reference.h); NULL = no. */
    bool (*has_reference)(const MxConfig *config);
} Loss;

#define MX_LOSS(name) extern const Loss loss_##name;
#include "losses.def"
#undef MX_LOSS

/* program_loss — the row that the config means. */
const Loss *program_loss(const MxConfig *config);
/* loss_weights — how many it is divided by. loss_outputs — those of its base and its own.
 * loss_output — the variable of one of them. */
int loss_weights(const Loss *loss);
const LossOutput *loss_outputs(MxArena *arena, const Loss *loss);
int loss_output(const MxTrainState *state, int output);

/* Values of figures: of sum i (MxFigure.sum) or of the loss. loss_mean — of examples. */
double loss_mean(const MxLoss *loss, int i);

/* ---- next tokens (tokens.c), which other losses may start from */

/* The first sums of losses with this base. */
enum { TOKENS_XENT, TOKENS_Z, TOKENS_BALANCE, TOKENS_INDEX, TOKENS_SUMS };

/* program_inputs — the model's inputs, and what parts ask of the model that is trained.
 * program_plain — those of another model, which sees the same, and of which no part asks anything.
 * program_logp — log-probabilities of a batch's targets and entropies, f32, 0 where they do not
 * count; entropy: NULL = not wanted. program_token_loss — mean cross-entropy from the model's
 * hidden states; 0 in training that is for indexers alone. */
MxModelInputs program_inputs(MxTrainState *s, MxTrace *t, const int *batch);
MxModelInputs program_plain(MxModelInputs in);
MxValue program_logp(MxTrace *t, const MxModel *model, const MxValue *params, const int *batch,
                     MxModelInputs in, MxValue *entropy);
MxValue program_token_loss(MxTrainState *s, MxTrace *t, const MxValue *params, const int *batch,
                           MxValue hidden, MxValue weight);

/* program_add_balance — a loss with what layers add to it in training, experts that are chosen
 * unevenly or indexers, which becomes an output too. The mean over rows and layers that add
 * something; micro-batches have equal shares of it. */
MxValue program_add_balance(MxTrainState *s, MxTrace *t, const int *batch, MxBalance balance,
                            int output, MxValue loss);
/* loss_sum — a sum as it is. loss_has_balance — whether experts add to a config's loss. */
double loss_sum(const MxLoss *loss, int i);
bool loss_has_balance(const MxConfig *config);
/* What a step tells of it, where it is that sum of a loss. */
#define LOSS_BALANCE_FIGURE(which)                                                                 \
    {                                                                                              \
        .metric = "learning/moe_lb_loss", .is_meant = loss_has_balance, .value = loss_sum,         \
        .sum = (which), .label = "moe_lb_loss", .decimals = 3                                      \
    }

#endif
