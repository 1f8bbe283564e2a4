/* balance.c — how evenly routers choose experts: the loss that makes them even, and counts. */
#include "balance.h"

/* Probabilities of experts, and which of them tokens chose, as the loss of balance reads them. */
typedef struct Shares {
    MxValue of_experts_BTX, ids_BTC;
} Shares;

/* Those of Megatron-LM read the scores alone: neither the bias nor groups of experts play a part.
 * Source: Megatron-LM's seq_aux_loss; MaxText layers/moe.py megatron_aux_loss_inputs @0.2.5. */
static Shares shares_of_scores(const Pass *p, MxValue scores_BTX) {
    MxTopKAttr best = {.k = p->model->config->num_experts_per_tok};
    return (Shares){mx_share(p->t, scores_BTX), mx_top_k(p->t, scores_BTX, best)};
}

void model_add_balance(const Pass *p, const Spec *spec, MxValue scores_BTX, MxValue by_BTX,
                       MxValue ids_BTC) {
    MxTrace *t = p->t;
    const MxConfig *c = p->model->config;
    if (!p->balance || c->load_balance_loss_weight <= 0) return;
    bool as_megatron = c->moe_use_megatron_seq_aux_loss && spec->score == SCORE_SIGMOID;
    MxShape shape = mx_trace_type(t, scores_BTX).shape;
    double mean = (double)shape.dim[2] / (double)shape.dim[0];
    double weight = c->load_balance_loss_weight * mean;
    if (as_megatron) weight /= (double)c->num_experts_per_tok;
    Shares shares =
        as_megatron ? shares_of_scores(p, scores_BTX) : (Shares){mx_softmax(t, by_BTX), ids_BTC};
    MxValue one = mx_balance(t, shares.of_experts_BTX, shares.ids_BTC, weight);
    MxBalance *all = p->balance;
    all->sum = all->n ? mx_add(t, all->sum, one) : one;
    all->n = as_megatron ? 1 : all->n + 1;
}

void model_add_counts(const Pass *p, MxValue *sum, MxValue ids) {
    MxValue counts_X = mx_count_ids(p->t, ids, p->model->config->num_experts);
    *sum = *sum == MX_NONE ? counts_X : mx_add(p->t, *sum, counts_X);
}
