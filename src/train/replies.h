/* replies.h — private to the room: what the policy replies to prompts of a batch. */
#ifndef TRAIN_REPLIES_H
#define TRAIN_REPLIES_H

#include "reward.h"
#include "turns.h"

/* What is asked: prompts of a batch, each by a number that random numbers depend on, too: its row,
 * or n_rows, or twice as much, above it where it is asked several times. */
typedef struct Asked {
    bool is_eval;
    int64_t i; /* the batch's number */
    const MxBatch *batch;
    int64_t n_rows, most; /* most: numbers are below it */
    int64_t n, *number;   /* [n] */
} Asked;

/* replies_ask — the first n_rows of a batch, `times` over. replies_prompt — prompt k of those
 * asked. replies_prompt_tokens — how many tokens a row's prompt has. */
Asked replies_ask(MxArena *arena, bool is_eval, int64_t i, const MxBatch *batch, int64_t n_rows,
                  int64_t times);
MxTokens replies_prompt(const Asked *asked, int64_t k);
int64_t replies_prompt_tokens(const MxBatch *batch, int64_t row);
/* replies_write — out [asked->n], on every rank. What is drawn depends on the seed, the batch's
 * number, the prompt's and the position alone.
 *   responses  [asked->most] what stands behind each prompt so far
 * Errors: as of mx_generate. */
bool replies_write(MxTrainState *state, MxGenerate *how, MxArena *arena, const Asked *asked,
                   const Response *responses, MxReply *out, MxError *err);
/* replies_share_answers — those [n] of the first rank become those of all; only it has texts. */
void replies_share_answers(MxArena *arena, MxComm *comm, RewardAnswer *answers, int64_t n);

#endif
