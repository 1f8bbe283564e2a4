/* reward.h — private to the room: rewards of completions (rl.reward). */
#ifndef TRAIN_REWARD_H
#define TRAIN_REWARD_H

#include "answers.h"

#include <mx/config.h>

/* A completion that waits for its reward. */
typedef struct Completion {
    const char *record; /* that it answers: an object of JSON, as text */
    const char *text;   /* [bytes], and a 0 behind */
    size_t bytes;
    int64_t n_tokens;
    bool is_cut;  /* it would have gone on */
    bool is_eval; /* it answers a record of evaluation */
} Completion;

/* Why there is no reward; of rewards, NAN is none. */
typedef struct RewardFailures {
    int64_t n;
    const char *first; /* why, of the first one */
} RewardFailures;

typedef struct Reward Reward;

/* reward_answers — the columns of records of which the first that there is holds the right answer,
 * and NULL; NULL = the reward compares with none. */
const char *const *reward_answers(const MxConfig *config);
/* reward_open — whatever rl.reward says. */
Reward *reward_open(MxArena *arena, const MxConfig *config);
/* reward_give — rewards [n] of completions; `arena` has the texts of failures. Errors: a program
 * that does not run, or says what is no reward. */
bool reward_give(Reward *reward, MxArena *arena, const Completion *completions, int64_t n,
                 float *out, RewardFailures *failures, MxError *err);

/* reward_judge — adds how right the n completions of one record are, each `step` behind the one
 * before it; of rl.reward=maxtext. */
void reward_judge(const Reward *reward, MxArena *arena, const Completion *completions, int64_t n,
                  int64_t step, Answers *to);

#endif
