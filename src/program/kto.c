/* kto.c — the loss of desirable and undesirable single responses (KTO), and the part that adds
 * inputs to a batch: a label for each row, and a second batch in which every prompt is followed by
 * another row's completion. That batch gives an estimate of the KL divergence of the policy from
 * the reference, computed for the whole batch while it is weighed. Source: Ethayarajh et al. 2024;
 * TRL 1.16, trainer/kto_trainer.py. */
#include <mx/program.h>

#include "internal.h"
#include "reference.h"

#include <string.h>

enum { KTO, KL, BALANCE, OUTPUTS };
/* The first of each among all sums, and weights of a batch. */
enum { AT_KL = MX_KTO_COUNT, AT_BALANCE };
enum { RESPONSES, RATIOS };

/* What the part keeps in a state. */
typedef struct Mismatch {
    int label, field[MX_BATCH_FIELDS]; /* inputs of every batch */
    MxDataset *data[2];                /* of training and evaluation, used by nobody else */
    MxBatch batch;                     /* the present one */
    float *labels;
} Mismatch;

static bool is_meant(const MxConfig *config) {
    return config->use_kto;
}

static bool has_reference(const MxConfig *config) {
    (void)config;
    return true;
}

/* ---- the part */

static bool declare(MxTrainState *s, MxError *err) {
    Mismatch *own = program_part(s, PART_mismatch);
    (void)err;
    own->label = program_declare_input(s, "label", MX_F32);
    for (int f = 0; f < MX_BATCH_FIELDS; f++) {
        const char *name = mx_batch_field_name((MxBatchField)f);
        own->field[f] =
            program_declare_input(s, mx_arena_printf(s->arena, "mismatched_%s", name), MX_I32);
    }
    return true;
}

static bool open(MxTrainState *s, MxDataset *const data[2], MxError *err) {
    Mismatch *own = program_part(s, PART_mismatch);
    (void)err;
    for (int i = 0; i < 2; i++)
        if (data[i]) own->data[i] = mx_data_twin(s->arena, data[i]);
    return true;
}

static void make_room(MxTrainState *s, Mismatch *own, const MxBatchPart *part) {
    bool fits = own->batch.rows == part->rows && own->batch.length == part->length;
    if (!fits) {
        own->batch = mx_batch_new_part(s->arena, part);
        own->labels = mx_new_n(s->arena, float, part->rows * part->length);
    }
    own->batch.part = *part;
}

void mx_train_give_labels(MxTrainState *s, const MxBatch *batch, const float *labels,
                          const MxBatch *mismatched) {
    Mismatch *own = program_part(s, PART_mismatch);
    const MxBatchPart *part = &batch->part;
    make_room(s, own, part);
    for (int64_t at = 0; at < part->rows; at++)
        for (int64_t t = 0; t < part->length; t++)
            own->labels[at * part->length + t] = labels[part->row ? part->row[at] : at];
    program_give(s, own->label, own->labels);
    for (int f = 0; f < MX_BATCH_FIELDS; f++) program_give(s, own->field[f], mismatched->field[f]);
}

static bool before_batch(MxTrainState *s, bool is_eval, int64_t i, const MxBatch *batch,
                         MxError *err) {
    Mismatch *own = program_part(s, PART_mismatch);
    MxArena arena = {.name = "labels"};
    float *labels = mx_new_n(&arena, float, batch->part.of_rows);
    make_room(s, own, &batch->part);
    mx_data_scores(own->data[is_eval], i, &batch->part, labels, NULL);
    bool ok = mx_data_mismatched(own->data[is_eval], i, &own->batch, err);
    if (ok) mx_train_give_labels(s, batch, labels, &own->batch);
    mx_arena_release(&arena);
    return ok;
}

const Part part_mismatch = {
    .is_wanted = is_meant,
    .bytes = sizeof(Mismatch),
    .declare = declare,
    .open = open,
    .before_batch = before_batch,
};

/* ---- the loss */

/* Log-probabilities of a batch's targets under the reference and the policy. */
static MxLogps logps_of(MxTrainState *s, MxTrace *t, const MxValue *params, const int *batch,
                        MxModelInputs in) {
    MxLogps logp = {.old = MX_NONE};
    logp.reference = reference_logp(s, t, params, batch); /* first: nothing of it is kept */
    logp.policy = program_logp(t, s->model, params, batch, in, NULL);
    return logp;
}

static bool estimates_kl(const MxConfig *config) {
    return !strcmp(config->kto_loss, "kto");
}

/* The sum of log-ratios over the second batch. */
static MxValue sum_ratios(MxTrainState *s, MxTrace *t, const int *batch) {
    const Mismatch *own = program_part(s, PART_mismatch);
    bool is_eval = batch == s->var.batch[true];
    MxValue *params = is_eval ? program_read_held(s, t) : program_read_points(s, t);
    int other[MX_BATCH_FIELDS];
    for (int f = 0; f < MX_BATCH_FIELDS; f++) other[f] = batch[own->field[f]];
    MxModelInputs in = program_plain(program_inputs(s, t, other));
    MxLogps logp = logps_of(s, t, params, other, in);
    MxValue ratios = mx_add(t, logp.policy, mx_scale(t, logp.reference, -1));
    MxShape shape = mx_trace_type(t, ratios).shape;
    ratios = mx_reshape(t, ratios, MX_SHAPE(shape.dim[0] * shape.dim[1], 1));
    return mx_copy(t, mx_reshape(t, mx_sum_lead(t, ratios, 1), MX_SCALAR));
}

static void weigh(MxTrainState *s, MxTrace *t, const int *batch, MxValue *weights) {
    /* a row is one segment */
    weights[RESPONSES] = mx_count_segments(t, mx_variable(t, batch[MX_INPUTS_SEGMENTATION]));
    weights[RATIOS] = estimates_kl(s->config) ? sum_ratios(s, t, batch)
                                              : mx_scale(t, mx_copy(t, weights[RESPONSES]), 0);
}

static MxValue trace(MxTrainState *s, MxTrace *t, const MxValue *params, const int *batch,
                     const MxValue *total) {
    const MxConfig *c = s->config;
    const Mismatch *own = program_part(s, PART_mismatch);
    const MxKtoAttr attr = {.beta = c->kto_beta,
                            .wanted = c->kto_desirable_weight,
                            .unwanted = c->kto_undesirable_weight};
    MxModelInputs in = program_inputs(s, t, batch);
    MxBalance balance = {.sum = MX_NONE};
    in.balance = &balance;
    MxLogps logp = logps_of(s, t, params, batch, in);
    t->scope = "loss";
    MxValue kl = mx_ratio(t, total[RATIOS], total[RESPONSES], LOSS_EPS);
    MxValue sum = mx_kto(t, logp, mx_variable(t, batch[MX_TARGETS_SEGMENTATION]),
                         mx_variable(t, batch[own->label]), kl, attr);
    if (sum >= 0) mx_trace_assign(t, sum + 1, loss_output(s, KTO), false);
    mx_trace_assign(t, mx_copy(t, kl), loss_output(s, KL), false);
    MxValue loss = mx_ratio(t, sum, total[RESPONSES], LOSS_EPS);
    return program_add_balance(s, t, batch, balance, BALANCE, loss);
}

/* ---- what is told */

/* Of an evaluation's batches the mean, too. */
static double divergence(const MxLoss *loss, int i) {
    return loss->sum[i] > 0 ? loss->sum[i] : 0;
}

static double of_wanted(const MxLoss *loss, int i) {
    return loss->sum[i] / (loss->sum[MX_KTO_WANTED] + LOSS_EPS);
}

static double of_unwanted(const MxLoss *loss, int i) {
    return loss->sum[i] / (loss->sum[MX_KTO_UNWANTED] + LOSS_EPS);
}

static double margin(const MxLoss *loss, int i) {
    (void)i;
    return of_wanted(loss, MX_KTO_WANTED_REWARD) - of_unwanted(loss, MX_KTO_UNWANTED_REWARD);
}

static const LossOutput outputs[] = {[KTO] = {"kto", MX_KTO_COUNT},
                                     [KL] = {"kl", 1},
                                     [BALANCE] = {"moe_lb_loss", 1},
                                     [OUTPUTS] = {0}};

// clang-format off
static const MxFigure figures[] = {
    {.metric = "learning/kto_loss", .value = loss_mean, .sum = MX_KTO_LOSS, .label = "kto_loss", .decimals = 3},
    {.metric = "learning/avg_kl", .value = divergence, .sum = AT_KL, .label = "kl", .decimals = 3},
    {.metric = "learning/rewards_chosen", .value = of_wanted, .sum = MX_KTO_WANTED_REWARD},
    {.metric = "learning/rewards_rejected", .value = of_unwanted, .sum = MX_KTO_UNWANTED_REWARD},
    {.metric = "learning/rewards_margin", .value = margin, .label = "margin", .decimals = 3},
    {.metric = "learning/logps_chosen", .value = of_wanted, .sum = MX_KTO_WANTED_LOGP},
    {.metric = "learning/logps_rejected", .value = of_unwanted, .sum = MX_KTO_UNWANTED_LOGP},
    LOSS_BALANCE_FIGURE(AT_BALANCE),
    {0},
};

static const MxFigure eval_figures[] = {
    {.metric = "eval/total_weights", .label = "total_weights"},
    {.metric = "eval/avg_kl", .value = divergence, .sum = AT_KL, .each_batch = true, .label = "kl", .decimals = 3},
    {.metric = "eval/rewards_margin", .value = margin, .label = "margin", .decimals = 3},
    {0},
};
// clang-format on

const Loss loss_kto = {
    .is_meant = is_meant,
    .weights = {"weights", "log_ratios"},
    .weigh = weigh,
    .trace = trace,
    .outputs = outputs,
    .of_batch = 1u << KL,
    .figures = figures,
    .eval_figures = eval_figures,
    .has_reference = has_reference,
};
