/* console.h — what a run prints while it trains: a line for every step, behind MaxText's fields
 * what we add; a line for every evaluation; and on a terminal how far it is and how long it will
 * take. */
#ifndef TRAIN_CONSOLE_H
#define TRAIN_CONSOLE_H

#include "metrics.h"

/* Steps whose time stands for those to come. */
enum { CONSOLE_RECENT = 32 };

typedef struct Console {
    const MxConfig *config;
    int64_t last;               /* step, behind which none follows */
    const MxFigure *figures[2]; /* of the loss, in a step and in an evaluation */
    MxText line;
    double recent[CONSOLE_RECENT]; /* seconds of the last steps, a ring */
    int64_t n_steps;               /* that were timed */
    double eval_seconds;           /* of the last evaluation */
} Console;

/* console_open — n_steps: of the whole run; the data may end before the config says. */
void console_open(MxArena *arena, const MxConfig *config, int64_t n_steps, Console *out);
void console_step(Console *console, int64_t step, const Metrics *metrics);
void console_eval(Console *console, int64_t step, const Metrics *metrics);

/* console_took_step — seconds from the start of a step to the next one's, without an evaluation's,
 * which are told apart. */
void console_took_step(Console *console, double seconds);
void console_took_eval(Console *console, double seconds);
/* console_seconds_left — after a step: the steps that are left at the pace of the last ones, and
 * the evaluations among them; < 0 = nothing was timed. */
double console_seconds_left(const Console *console, int64_t step);
/* console_progress — after a step, or in the evaluation after it, of which n_batches are done (-1 =
 * in none). */
void console_progress(const Console *console, int64_t step, int64_t n_batches);

/* console_eval_is_due — whether an evaluation follows a step: its turn has come, or it is the last
 * one. */
bool console_eval_is_due(const Console *console, int64_t step);

#endif
