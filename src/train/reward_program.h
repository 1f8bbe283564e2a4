/* reward_program.h — private to the room: a user's program that rewards completions. */
#ifndef TRAIN_REWARD_PROGRAM_H
#define TRAIN_REWARD_PROGRAM_H

#include "reward.h"

typedef struct RewardProgram RewardProgram;

/* reward_program_new — rl.reward_command, which is started when it is first asked and ended with
 * the arena. */
RewardProgram *reward_program_new(MxArena *arena, const MxConfig *config);
/* reward_program_ask — hands over lines, each with its newline, and reads an answer to each, in
 * their order: a number, {"reward": number}, {"error": "why there is none"}, or {"observation": a
 * text or messages}, perhaps with a reward for the case that there is no room for it.
 *   out  [n] reward, why and observation, in the arena; there is no reward if the program says so,
 *        did not answer in time (rl.reward_timeout), or ended twice when it was asked. It is then
 *        started again.
 * Errors: it cannot be started; it ended twice and has never answered; lines that are no answers,
 * or more of them than it was asked for. Test: tests/train/test_rollouts.c. */
bool reward_program_ask(RewardProgram *program, MxArena *arena, const char *const *lines, int64_t n,
                        RewardAnswer *out, MxError *err);

#endif
