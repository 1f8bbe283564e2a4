/* checkpoint_room.h — the checkpoints of a run, shared by checkpoint.c (where it starts) and
 * checkpoint_save.c (what it saves). */
#ifndef TRAIN_CHECKPOINT_ROOM_H
#define TRAIN_CHECKPOINT_ROOM_H

#include "checkpoint.h"
#include "internal.h"
#include "saver.h"

/* One save, from the copy of the state to what was removed after it. */
typedef struct Save {
    MxArena arena;
    const MxConfig *config;
    MxSaving how;
    const char *dir;
    const MxTree *tree;
    int64_t step;
    double eval_loss;
    MxCkptSave *ckpt;
    const char *const *reports; /* [ranks] of what they wrote */
    int n_ranks;
    MxError rotation; /* what could not be removed; no reason to stop */
} Save;

struct Checkpoints {
    MxArena *arena;
    const MxConfig *config;
    MxComm *comm;
    const char *config_text; /* as saved */
    const char *data;        /* as saved: the files of the training data */
    const char *made_by;     /* as saved: what bits depend on */
    CheckpointsUse use;
    MxTrainState *state;
    MxTree *tree;              /* what is saved of it */
    const char *from;          /* folder or file to start from, NULL = none */
    bool is_own;               /* it is a checkpoint of this run */
    MxCkptTokenizer tokenizer; /* of the weights */
    int64_t start;             /* first step to make */
    int64_t saved;             /* newest step whose save was started, -1 = none */
    int64_t evaluated;
    double eval_loss; /* after step `evaluated` */
    Saver *saver;
    Save save; /* in progress */
    enum { NO_SAVE, WRITING, PUBLISHING } progress;
};

/* checkpoints_folder — of a step. */
const char *checkpoints_folder(MxArena *arena, const MxConfig *config, int64_t step);
bool checkpoints_is_first(const Checkpoints *checkpoints);
bool checkpoints_is_alone(const Checkpoints *checkpoints);
/* checkpoints_abandon — ends what is under way in a run that ends otherwise. */
void checkpoints_abandon(void *checkpoints);

#endif
