/* reference.h — private to the room: the model that preference losses compare with. It is a copy of
 * the initial policy, which may follow the policy from time to time (dpo.ref_model_sync_steps), the
 * policy without its adapters, or log-probabilities computed before the first step (dpo.reference).
 */
#ifndef PROGRAM_REFERENCE_H
#define PROGRAM_REFERENCE_H

#include <mx/model.h>

#include "parts.h"
#include "precomputed.h"

/* What the part keeps in a state. */
typedef struct Reference {
    const MxModel *model; /* what it is run as */
    int *copy;            /* variables of its parameters; NULL = they are the policy's */
    int logp;             /* precomputed: the input of every batch; else MX_NONE */
    int64_t *fingerprint; /* precomputed: the leaf "mxtrain/reference_fingerprint" */
    Precomputed *logps;
    bool is_policy; /* the policy is still the one that the reference was taken of */
} Reference;

/* entry_refer — makes the log-probabilities of a micro-batch that are precomputed. */
extern const Entry entry_refer;

/* reference_is_precomputed — whether log-probabilities are made before the first step. */
bool reference_is_precomputed(const MxConfig *config);
/* reference_copy — the variables of the copy, by parameter; NULL = there is none. */
const int *reference_copy(const MxTrainState *state);
/* reference_is_policy — no step was made since the reference was taken of the policy. */
bool reference_is_policy(const MxTrainState *state);
/* reference_logp — log-probabilities of a batch's targets under the reference, f32; params: the
 * policy's. No gradient reaches them. */
MxValue reference_logp(MxTrainState *state, MxTrace *t, const MxValue *params, const int *batch);

#endif
