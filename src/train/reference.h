/* reference.h — private to the room: log-probabilities of the reference model, made ahead. */
#ifndef TRAIN_REFERENCE_H
#define TRAIN_REFERENCE_H

#include <mx/data.h>
#include <mx/train.h>

typedef struct Reference Reference;

/* Whose batches there are. */
typedef enum ReferenceOf { REFERENCE_TRAIN, REFERENCE_EVAL, REFERENCE_SIDES } ReferenceOf;

/* reference_open — what dpo.reference=precomputed reads in every step: from the folder
 * dpo.reference_logps (or "reference" in the run's), which is made first if it is missing, by the
 * policy as it starts. *out is NULL if the config wants none. data[REFERENCE_EVAL] may be NULL.
 * Errors: the folder is damaged, of another policy, too short, or missing though the run goes on
 * (exit 65); I/O. */
bool reference_open(MxArena *arena, MxTrainState *state, MxDataset *const data[REFERENCE_SIDES],
                    Reference **out, MxError *err);
/* reference_give — hands the state the log-probabilities of batch i, or of the rows of it that
 * `batch` has; nothing if reference is NULL. Errors: they were made of another batch. */
bool reference_give(Reference *reference, ReferenceOf side, int64_t i, const MxBatch *batch,
                    MxError *err);

#endif
