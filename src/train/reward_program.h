/* reward_program.h — private to the room: a user's program that rewards completions. */
#ifndef TRAIN_REWARD_PROGRAM_H
#define TRAIN_REWARD_PROGRAM_H

#include <mx/config.h>

typedef struct RewardProgram RewardProgram;

/* reward_program_new — rl.reward_command, which is started when it is first asked and ended with
 * the arena. */
RewardProgram *reward_program_new(MxArena *arena, const MxConfig *config);
/* reward_program_ask — hands over lines, each with its newline, and reads a reward for each, in
 * their order: a number, {"reward": number}, or {"error": "why there is none"}.
 *   out  [n] NAN = none, because of why[i], in the arena: the program says so, did not answer in
 *        time (rl.reward_timeout), or ended twice when it was asked. It is then started again.
 * Errors: it cannot be started; it ended twice and has never answered; lines that are no rewards,
 * or more of them than it was asked for. Test: tests/cli/reward.sh. */
bool reward_program_ask(RewardProgram *program, MxArena *arena, const char *const *lines, int64_t n,
                        float *out, const char **why, MxError *err);

#endif
