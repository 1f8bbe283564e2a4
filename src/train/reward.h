/* reward.h — private to the room: rewards of completions (rl.reward). */
#ifndef TRAIN_REWARD_H
#define TRAIN_REWARD_H

#include "answers.h"

#include <mx/config.h>
#include <mx/text.h>

/* A completion that waits for its reward. */
typedef struct Completion {
    const char *record; /* that it answers: an object of JSON, as text */
    const char *text;   /* [bytes], and a 0 behind */
    size_t bytes;
    int64_t n_tokens;
    bool is_cut;         /* it would have gone on */
    bool is_eval;        /* it answers a record of evaluation */
    const char *history; /* turns of the same completion before this one: objects of JSON, each with
                            a comma behind it */
    int64_t turns_left;  /* behind this one */
} Completion;

/* What is said to one. */
typedef struct RewardAnswer {
    float reward;              /* NAN = none … */
    const char *why;           /* … because of this */
    const MxJson *observation; /* a text or a list of messages that it is to read before it goes on;
                                  NULL = it is over */
    MxTokens told;             /* that, behind it … */
    bool goes_on;              /* … if it has room for another turn */
} RewardAnswer;

typedef struct Reward Reward;

/* reward_answers — the columns of records of which the first that there is holds the right answer,
 * and NULL; NULL = the reward compares with none. */
const char *const *reward_answers(const MxConfig *config);
/* reward_open — whatever rl.reward says. */
Reward *reward_open(MxArena *arena, const MxConfig *config);
/* reward_give — answers [n] to completions, but for tokens; `arena` has their texts. Errors: a
 * program that does not run, or says what is no answer. */
bool reward_give(Reward *reward, MxArena *arena, const Completion *completions, int64_t n,
                 RewardAnswer *out, MxError *err);

/* reward_judge — adds how right the n completions of one record are, each `step` behind the one
 * before it; of rl.reward=maxtext. */
void reward_judge(const Reward *reward, MxArena *arena, const Completion *completions, int64_t n,
                  int64_t step, Answers *to);

#endif
