/* reference.h — private to the room: the frozen model that preference losses compare with. It is a
 * copy of the initial policy, the policy without its adapters, or log-probabilities computed before
 * the first step (dpo.reference). */
#ifndef PROGRAM_REFERENCE_H
#define PROGRAM_REFERENCE_H

#include <mx/model.h>

#include "parts.h"

/* Log-probabilities that were precomputed, in their folder. */
typedef struct ReferenceLogps ReferenceLogps;

/* What the part keeps in a state. */
typedef struct Reference {
    const MxModel *model; /* what it is run as */
    int *copy;            /* variables of its parameters; NULL = they are the policy's */
    int logp;             /* precomputed: the input of every batch; else MX_NONE */
    int64_t *fingerprint; /* precomputed: the leaf "mxtrain/reference_fingerprint" */
    ReferenceLogps *logps;
    bool is_policy; /* the policy is still the one that the reference was taken of */
} Reference;

/* reference_is_precomputed — whether log-probabilities are made before the first step. */
bool reference_is_precomputed(const MxConfig *config);
/* reference_copy — the variables of the copy, by parameter; NULL = there is none. */
const int *reference_copy(const MxTrainState *state);
/* reference_is_policy — no step was made since the reference was taken of the policy. */
bool reference_is_policy(const MxTrainState *state);
/* reference_logp — log-probabilities of a batch's targets under the reference, f32; params: the
 * policy's. No gradient reaches them. */
MxValue reference_logp(MxTrainState *state, MxTrace *t, const MxValue *params, const int *batch);
/* reference_refer — precomputed ones, of a batch as training or evaluation gets it, [rows, length];
 * on the first rank all of them, elsewhere only that rank's, 0 in place of others. */
void reference_refer(MxTrainState *state, const MxBatch *batch, bool is_eval, float *logp);

/* Hooks of the part (reference_logps.c). Opens the folder dpo.reference_logps (or "reference" in
 * the run's), which is made first if it is missing, by the policy as it starts. Errors: it is
 * damaged, of another policy, too short, or missing though the run goes on (exit 65); I/O. Before a
 * batch: they were made of another batch. */
bool reference_open_logps(MxTrainState *state, MxDataset *const data[2], MxError *err);
bool reference_give_logps(MxTrainState *state, bool is_eval, int64_t i, const MxBatch *batch,
                          MxError *err);

#endif
