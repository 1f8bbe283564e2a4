/* checkpoint.h — the checkpoints of a run: what it starts from, when it saves, what it keeps. */
#ifndef TRAIN_CHECKPOINT_H
#define TRAIN_CHECKPOINT_H

#include <mx/train.h>

typedef struct Checkpoints Checkpoints;

/* checkpoints_open — finds the newest checkpoint of the run that verifies. Errors: there are some,
 * but none verifies. */
bool checkpoints_open(MxArena *arena, const MxConfig *config, Checkpoints **out, MxError *err);
/* checkpoints_start — the first step to make. */
int64_t checkpoints_start(const Checkpoints *checkpoints);

/* checkpoints_restore — fills the state, which is kept: from that checkpoint, else from new
 * weights, drawn or those of load_parameters_path. */
bool checkpoints_restore(Checkpoints *checkpoints, MxTrainState *state, MxError *err);

/* checkpoints_are_due — whether a checkpoint is to be made after a step. */
bool checkpoints_are_due(const Checkpoints *checkpoints, int64_t step);
/* checkpoints_save — saves the state as that of a step, unless it is saved already, and removes
 * the oldest that max_num_checkpoints_to_keep leaves no room for. */
bool checkpoints_save(Checkpoints *checkpoints, int64_t step, MxError *err);

#endif
