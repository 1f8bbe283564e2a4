/* checkpoint.h — the checkpoints of a run: where it starts, when it saves, which ones it keeps. */
#ifndef TRAIN_CHECKPOINT_H
#define TRAIN_CHECKPOINT_H

#include <mx/ckpt.h>
#include <mx/program.h>

typedef struct Checkpoints Checkpoints;

/* What they are for. Only training takes the lock and saves. */
typedef enum CheckpointsUse {
    CHECKPOINTS_TRAIN,
    CHECKPOINTS_EVALUATE,
    CHECKPOINTS_PLAN, /* whether the others would begin: nothing but manifests is read */
} CheckpointsUse;

/* checkpoints_open — takes the lock of the run's folder, removes what killed runs left, finds what
 * to start from (the newest checkpoint of the run that verifies, else load_full_state_path) and
 * compares its config with this one; tells what changes the curve. Without enable_checkpointing
 * checkpoints in the folder are left alone. Of several ranks the first has the lock, and all verify
 * a share. Errors: another run has the folder; checkpoints are there but none verifies; the newest
 * cannot be read; a frozen key differs. */
bool checkpoints_open(MxArena *arena, const MxConfig *config, MxComm *comm, CheckpointsUse use,
                      Checkpoints **out, MxError *err);
/* checkpoints_try — reads what nobody vouches for of the weights to start from in a child process,
 * and checks that the run fits them. All ranks call it. Errors: see train_check_origin. */
bool checkpoints_try(Checkpoints *checkpoints, MxError *err);
/* checkpoints_own — the checkpoint of this run that it starts from; NULL = none. */
const char *checkpoints_own(const Checkpoints *checkpoints);
/* checkpoints_remember — the files of the training data (JSON, kept), to be saved with the state.
 */
void checkpoints_remember(Checkpoints *checkpoints, const char *data);
/* checkpoints_start — the first step to make. That of load_full_state_path is known only after
 * checkpoints_restore; 0 before. */
int64_t checkpoints_start(const Checkpoints *checkpoints);

/* checkpoints_restore — fills the state, which is kept: from what was found, else with new weights,
 * drawn or those of load_parameters_path. */
bool checkpoints_restore(Checkpoints *checkpoints, MxTrainState *state, MxError *err);

/* checkpoints_form — how a config wants its checkpoints. */
MxForm checkpoints_form(const MxConfig *config);

/* All ranks call what follows together. */

/* checkpoints_are_due — whether a checkpoint is to be made after a step; all ranks ask. */
bool checkpoints_are_due(const Checkpoints *checkpoints, int64_t step);
/* checkpoints_evaluated — the evaluation loss after a step, to be kept with its checkpoint. */
void checkpoints_evaluated(Checkpoints *checkpoints, int64_t step, double loss);
/* checkpoints_save — saves the state as that of a step, unless it is saved already, and removes
 * what max_num_checkpoints_to_keep leaves no room for; waits for the save before. With
 * async_checkpointing it returns when the state has been copied. Errors: the save before failed, or
 * this one did. */
bool checkpoints_save(Checkpoints *checkpoints, int64_t step, MxError *err);
/* checkpoints_fold — writes the model behind the last step in ordinary weights to the run's folder
 * "folded", if it is made of a teacher's (learn_to_init_mode). */
bool checkpoints_fold(Checkpoints *checkpoints, int64_t step, MxError *err);
/* checkpoints_poll — tells of a save that has ended meanwhile. Errors: it failed. */
bool checkpoints_poll(Checkpoints *checkpoints, MxError *err);
/* checkpoints_finish — waits for the save in progress. Errors: it failed. */
bool checkpoints_finish(Checkpoints *checkpoints, MxError *err);

#endif
