/* losses.c — the table of losses, and computations on their sums. */
#include <mx/program.h>

#include "internal.h"

#define MX_LOSS(name) &loss_##name,
static const Loss *const losses[] = {
#include "losses.def"
};
#undef MX_LOSS

const Loss *program_loss(const MxConfig *config) {
    int i = 0;
    while (losses[i]->is_meant && !losses[i]->is_meant(config)) i++;
    return losses[i];
}

int64_t mx_train_rows(const MxConfig *config) {
    const Loss *loss = program_loss(config);
    return loss->rows ? loss->rows(config) : 1;
}

int loss_weights(const Loss *loss) {
    int n = 0;
    while (loss->weights[n]) n++;
    return n;
}

static int count_outputs(const Loss *loss) {
    int n = 0;
    while (loss && loss->outputs[n].name) n++;
    return n;
}

const LossOutput *loss_outputs(MxArena *arena, const Loss *loss) {
    int n_base = count_outputs(loss->base), n = count_outputs(loss), n_sums = 0;
    LossOutput *all = mx_new_n(arena, LossOutput, n_base + n + 1);
    if (n_base) memcpy(all, loss->base->outputs, (size_t)n_base * sizeof *all);
    memcpy(all + n_base, loss->outputs, (size_t)n * sizeof *all);
    for (int i = 0; all[i].name; i++) n_sums += all[i].count;
    MX_ASSERT(n_base + n <= LOSS_MOST_OUTPUTS && n_sums <= MX_LOSS_SUMS);
    return all;
}

int loss_output(const MxTrainState *s, int output) {
    return s->var.sum[output];
}

double loss_sum(const MxLoss *loss, int i) {
    return loss->sum[i];
}

bool loss_has_balance(const MxConfig *config) {
    return mx_model_has_experts(config) && config->load_balance_loss_weight > 0;
}

double loss_mean(const MxLoss *loss, int i) {
    return loss->sum[i] / (loss->total_weights + LOSS_EPS);
}

const double *mx_train_sum(const MxTrainState *s, const MxLoss *loss, const char *name) {
    const double *sum = loss->sum;
    for (const LossOutput *output = s->outputs; output->name; sum += output++->count)
        if (!strcmp(output->name, name)) return sum;
    return NULL;
}

/* ---- figures */

/* Those of a loss and, before them, of its base that the config means. */
static int add_figures(const Loss *loss, const MxConfig *config, bool is_eval, MxFigure *to) {
    int n = loss->base ? add_figures(loss->base, config, is_eval, to) : 0;
    for (const MxFigure *f = is_eval ? loss->eval_figures : loss->figures; f->metric; f++) {
        if (f->is_meant && !f->is_meant(config)) continue;
        MX_ASSERT(n < MX_EVAL_FIGURES);
        to[n++] = *f;
    }
    return n;
}

const MxFigure *mx_train_figures(MxArena *arena, const MxConfig *config, bool is_eval) {
    MxFigure *all = mx_new_n(arena, MxFigure, MX_EVAL_FIGURES + 1);
    add_figures(program_loss(config), config, is_eval, all);
    return all;
}

/* ---- evaluations */

void mx_evaluation_add(MxEvaluation *e, const MxFigure *figures, const MxLoss *batch) {
    e->n++;
    e->total_loss += batch->loss * (batch->total_weights + LOSS_EPS);
    e->sums.total_weights += batch->total_weights;
    e->sums.loss = e->total_loss / (e->sums.total_weights + LOSS_EPS);
    for (int i = 0; i < MX_LOSS_SUMS; i++) e->sums.sum[i] += batch->sum[i];
    for (int i = 0; figures[i].metric; i++) {
        if (figures[i].each_batch) e->each_batch[i] += figures[i].value(batch, figures[i].sum);
    }
}

double mx_evaluation_figure(const MxEvaluation *e, const MxFigure *figures, int i) {
    const MxFigure *figure = &figures[i];
    if (!figure->each_batch) return figure->value(&e->sums, figure->sum);
    return e->n ? e->each_batch[i] / (double)e->n : 0;
}
