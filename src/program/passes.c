/* passes.c — what a step's batch goes through: all its micro-batches are weighed, then each gets
 * its gradient; and the pass of an evaluation. */
#include <mx/program.h>

#include "internal.h"

#include <math.h>

/* Adds what training or evaluation made of its loss; `is_first` of a batch. */
static void add_loss(const MxTrainState *s, bool is_eval, bool is_first, MxLoss *sum) {
    float x[MX_LOSS_SUMS];
    double *to = sum->sum;
    const unsigned largest = s->loss->largest,
                   replaces = s->loss->of_batch | (is_first ? largest : 0);
    program_read_all(s, s->var.loss, x);
    sum->loss += x[0];
    for (const LossOutput *output = s->outputs; output->name; to += output++->count) {
        int i = (int)(output - s->outputs);
        bool is_made = s->makes[is_eval] >> i & 1;
        if (is_made) program_read_all(s, s->var.sum[i], x);
        for (int k = 0; k < output->count && is_made; k++)
            to[k] = replaces >> i & 1 ? x[k] : largest >> i & 1 ? fmax(to[k], x[k]) : to[k] + x[k];
    }
}

/* A step's rows: batches one after the other, each of as many micro-batches. */
static MicroBatch micros_of(const MxTrainState *s, const MxBatch *batch) {
    MicroBatch micro = {.n = 0};
    for (; batch; batch = batch->next) micro.n += s->config->micro_batches_at_once;
    return micro;
}

/* Micro-batch i of a step, from its own batch. */
static void load_micro(MxTrainState *s, const MxBatch *batch, MicroBatch micro) {
    int64_t each = s->config->micro_batches_at_once, skip = micro.i / each;
    while (skip-- > 0) batch = batch->next;
    micro.i %= each;
    micro.n = each;
    program_load_batch(s, false, batch, micro);
}

MxLoss mx_train_loss_and_grad(MxTrainState *s, const MxBatch *batch) {
    MxLoss loss = {0};
    MicroBatch micro = micros_of(s, batch);
    int n_lanes = (int)s->config->pipeline_micro_batches, n_weights = loss_weights(s->loss);
    double total[LOSS_MOST_WEIGHTS] = {0};
    program_forget_told(s);
    for (micro.i = 0; micro.i < micro.n; micro.i++) {
        load_micro(s, batch, micro);
        program_run_entry(s, &entry_weigh);
        for (int w = 0; w < n_weights; w++) total[w] += program_scalar(s, s->var.weight[w]);
    }
    for (int w = 0; w < n_weights; w++)
        program_write_all(s, s->var.total_weight[w], &(float){(float)total[w]});
    loss.total_weights = total[0];
    for (micro.i = 0; micro.i < micro.n; micro.i++) {
        micro.lane = (int)(micro.i % n_lanes);
        if (micro.n > 1) load_micro(s, batch, micro);
        program_before_pass(s, micro);
        if (micro.lane + 1 < n_lanes) continue;
        program_run_entry(s, micro.i < n_lanes ? &entry_grad : &entry_grad_add);
        add_loss(s, false, micro.i < n_lanes, &loss);
    }
    if (s->loss->check) s->loss->check(s, &loss);
    s->last_loss = loss.loss;
    program_join_loss(s, false, &loss);
    return loss;
}

MxLoss mx_train_eval(MxTrainState *s, const MxBatch *batch) {
    MxLoss loss = {0};
    program_load_batch(s, true, batch, (MicroBatch){.n = 1});
    program_run_entry(s, &entry_eval);
    add_loss(s, true, true, &loss);
    loss.total_weights = program_scalar(s, s->var.weight[0]);
    program_join_loss(s, true, &loss);
    return loss;
}
