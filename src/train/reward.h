/* reward.h — private to the room: rewards of completions (rl.reward). */
#ifndef TRAIN_REWARD_H
#define TRAIN_REWARD_H

#include <mx/config.h>

/* The column of a record that a right completion equals. */
#define REWARD_ANSWER "answer"

/* A completion that waits for its reward. */
typedef struct Completion {
    const char *record; /* that it answers: an object of JSON, as text */
    const char *text;   /* [bytes], and a 0 behind */
    size_t bytes;
    int64_t n_tokens;
    bool is_cut; /* it would have gone on */
} Completion;

/* Why there is no reward; of rewards, NAN is none. */
typedef struct RewardFailures {
    int64_t n;
    const char *first; /* why, of the first one */
} RewardFailures;

typedef struct Reward Reward;

/* reward_answer_column — of records, if the reward compares with it; else NULL. */
const char *reward_answer_column(const MxConfig *config);
/* reward_open — whatever rl.reward says. */
Reward *reward_open(MxArena *arena, const MxConfig *config);
/* reward_give — rewards [n] of completions; `arena` has the texts of failures. Errors: a program
 * that does not run, or says what is no reward. */
bool reward_give(Reward *reward, MxArena *arena, const Completion *completions, int64_t n,
                 float *out, RewardFailures *failures, MxError *err);

#endif
