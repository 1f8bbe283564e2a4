/* reward_tags.h — private to the room: rewards of a completion's form and answer, as MaxText's. */
#ifndef TRAIN_REWARD_TAGS_H
#define TRAIN_REWARD_TAGS_H

#include <mx/config.h>

/* What marks the parts of a completion, and what each is worth: as the keys of these names. */
typedef struct RewardTags {
    const char *reasoning_start, *reasoning_end, *solution_start, *solution_end;
    bool starts_in_prompt; /* the completion begins inside the reasoning */
    double exact_format, partial_format, incorrect_format;
    double exact_answer, white_space, incorrect_answer;
} RewardTags;

RewardTags reward_tags_of(const MxConfig *config);

/* reward_tags — of a text [n] whose right answer is `answer` [n_answer], the sum of three: for the
 * whole form (exact_format if a reasoning is followed by a solution), for each of the four marks
 * (partial_format where it occurs once, else incorrect_format), and for the answer. The answer is
 * the last \boxed{} of the last solution, or of the text if there is none, else that solution. It
 * is worth exact_answer if it is the right text or number, white_space if only spaces around the
 * right one differ, incorrect_answer if there is none, else incorrect_format; a right one is worth
 * no less than incorrect_format. Numbers are equal as decimals, a/b or \frac{a}{b}, with commas
 * between digits, signs and dollars; what MaxText has math_verify compare beyond numbers and
 * equal texts is not right here. Spaces are ASCII's. Source: MaxText
 * trainers/post_train/rl/utils_rl.py @e591f30c. Test: tests/train/test_tags.c. */
double reward_tags(MxArena *arena, const RewardTags *tags, const char *text, size_t n,
                   const char *answer, size_t n_answer);

/* What MaxText's evaluations see in a reply: its answer, and whether the form is whole. */
typedef struct RewardReply {
    const char *answer; /* [n], part of the reply; "-1000000" = there is none */
    size_t n;
    bool has_form;
} RewardReply;

RewardReply reward_tags_read(MxArena *arena, const RewardTags *tags, const char *text, size_t n);
/* reward_tags_is_right — whether an answer is the right one, in the sense of reward_tags; *is_near
 * receives whether it is that or a number within a tenth of it. */
bool reward_tags_is_right(MxArena *arena, const RewardReply *reply, const char *answer,
                          size_t n_answer, bool *is_near);

#endif
