/* rollouts.h — responses that the policy writes while it is trained (mx_config_writes). */
#ifndef TRAIN_ROLLOUTS_H
#define TRAIN_ROLLOUTS_H

#include <mx/data.h>
#include <mx/program.h>

typedef struct Rollouts Rollouts;

/* rollouts_open — *out NULL = none are wanted. data: of training and evaluation, NULL = none. */
bool rollouts_open(MxArena *arena, MxTrainState *state, MxDataset *const data[2], Rollouts **out,
                   MxError *err);
/* rollouts_write — writes and rewards completions to the prompts of batch i, with the present
 * weights, or has those that an earlier step wrote to it, and gives the state their rewards. The
 * batch becomes one of prompts with completions; what it was stays as it is. What is drawn depends
 * on the seed, i and the row alone. Errors: a program that gives no rewards (reward.h), or too few.
 */
bool rollouts_write(Rollouts *rollouts, bool is_eval, int64_t i, MxBatch *batch, MxError *err);

#endif
