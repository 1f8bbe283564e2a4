/* console.h — what a run prints during training: lines of steps, with our fields after MaxText's; a
 * line for every evaluation; and on a terminal the status line with progress, remaining time and
 * the trend of the loss. */
#ifndef TRAIN_CONSOLE_H
#define TRAIN_CONSOLE_H

#include "metrics.h"

/* Steps whose time stands for those to come, and whose losses say where the loss goes. */
enum { CONSOLE_RECENT = 32 };

typedef struct Console {
    const MxConfig *config;
    int64_t last;               /* step, behind which none follows */
    const MxFigure *figures[2]; /* of the loss, in a step and in an evaluation */
    MxText line, status;
    double recent[CONSOLE_RECENT]; /* seconds of the last steps, a ring */
    int64_t n_steps;               /* that were timed */
    double losses[CONSOLE_RECENT]; /* of the last steps, a ring */
    int64_t n_losses;
    double eval_seconds; /* of the last evaluation */
    double told_s;       /* when the last step was printed; 0 = none was */
} Console;

/* console_open — n_steps: of the whole run; the data may end before the config says. */
void console_open(MxArena *arena, const MxConfig *config, int64_t n_steps, Console *out);
/* console_step — the line of a step: printed if log_every says so, a detail (mx_detail) if not. */
void console_step(Console *console, int64_t step, const Metrics *metrics);
void console_eval(Console *console, int64_t step, const Metrics *metrics);

/* console_took_step — seconds from the start of a step to the next one's, without an evaluation's,
 * which are told apart. */
void console_took_step(Console *console, double seconds);
void console_took_eval(Console *console, double seconds);
/* console_seconds_left — after a step: the steps that are left at the pace of the last ones, and
 * the evaluations among them; < 0 = nothing was timed. */
double console_seconds_left(const Console *console, int64_t step);
/* console_progress — the status line after a step, or in the evaluation after it, of which
 * n_batches are done (-1 = in none). */
void console_progress(Console *console, int64_t step, int64_t n_batches);

/* console_eval_is_due — whether an evaluation follows a step: its turn has come, or it is the last
 * one. */
bool console_eval_is_due(const Console *console, int64_t step);

#endif
