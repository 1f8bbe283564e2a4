/* answers.h — private to the room: how right replies to questions are (num_test_batches). */
#ifndef TRAIN_ANSWERS_H
#define TRAIN_ANSWERS_H

#include "metrics.h"
#include "reward_tags.h"

/* Sums over questions, of which each counts as one or less; rewards over replies. */
typedef struct Answers {
    double n, correct, partial, form;
    double n_rewards, reward;
} Answers;

/* A reply, or a right answer. */
typedef struct AnswersText {
    const char *text;
    size_t n;
} AnswersText;

/* answers_judge — adds a question with its replies [n]. Source: MaxText
 * trainers/post_train/rl/evaluate_rl.py, score_responses @e591f30c. Test:
 * tests/train/test_answers.c. */
void answers_judge(MxArena *arena, const RewardTags *tags, const char *eval_mode,
                   const AnswersText *replies, int64_t n, AnswersText right, Answers *to);
/* answers_collect — as metrics, in percent but for the reward. answers_tell — to the log. */
void answers_collect(const Answers *answers, Metrics *out);
void answers_tell(const Answers *answers, int64_t step, double seconds);

#endif
