/* teacher.h — private to the room: the frozen model that a student learns from. */
#ifndef PROGRAM_TEACHER_H
#define PROGRAM_TEACHER_H

#include <mx/model.h>

#include "parts.h"
#include "precomputed.h"

/* What the part keeps in a state. */
typedef struct Teacher {
    MxModel *model;       /* NULL = its logits were computed before the first step */
    int *vars;            /* of its parameters; NULL = it is not run */
    int top, ids;         /* inputs of every batch: its largest logits, and their ids */
    Precomputed *logits;  /* where these come from */
    int numbers;          /* variable of MX_DISTILL_NUMBERS numbers of the next step */
    MxTree tree;          /* of its parameters, "model/…" */
    int64_t *fingerprint; /* the leaf "mxtrain/teacher_fingerprint" */
} Teacher;

/* teacher_of — NULL = there is none. */
Teacher *teacher_of(const MxTrainState *state);
/* teacher_side — its forward pass over a batch.  */
MxModelSide teacher_side(MxTrainState *state, MxTrace *t, MxModelInputs in);

#endif
