/* report.h — runs as people look at them, in progress or over: what their folders say. Nothing is
 * written to them, and nothing in them is trusted: they may be of another version, cut off by a
 * crash, or somebody else's. */
#ifndef MX_REPORT_H
#define MX_REPORT_H

#include <mx/base.h>

/* What became of a run. */
typedef enum MxRunState {
    MX_RUN_EMPTY,    /* no step was made */
    MX_RUN_RUNNING,  /* a process has its lock */
    MX_RUN_FINISHED, /* all steps were made, the data ended, or the target was reached */
    MX_RUN_STOPPED,  /* by a signal, after a save */
    MX_RUN_FAILED,   /* it ended with an error */
    MX_RUN_BROKEN,   /* it ended without a word: killed, or the machine went down */
} MxRunState;

/* mx_run_state_name — "running", "broken off", … */
const char *mx_run_state_name(MxRunState state);

/* One run, by its folder. */
typedef struct MxRunFacts {
    const char *name;   /* of the folder */
    const char *folder; /* path */
    MxRunState state;
    const char *how;        /* it ended, or which process runs; "" = nothing is known */
    int64_t step, steps;    /* the last one (0-based), and how many were asked for; -1 = none */
    double loss, eval_loss; /* of that step, and of the last evaluation; NAN = none */
    int64_t *checkpoints;   /* [n_checkpoints] steps, ascending */
    int n_checkpoints;
    int64_t bytes;     /* on disk, all of the folder */
    int64_t changed_s; /* when something was written last, seconds since 1970 */
} MxRunFacts;

/* mx_report_is_run — whether a folder is one of a run: it has a config.yml beside a run.log,
 * metrics.jsonl or checkpoints. */
bool mx_report_is_run(const char *folder);
/* mx_report_run — what a run's folder says. Errors: it is no folder of a run (exit 65). */
bool mx_report_run(MxArena *arena, const char *folder, MxRunFacts *out, MxError *err);

/* mx_report_runs — all runs of a folder, or the one that it is, those that changed last first.
 * Errors: there is no such folder, or it cannot be read. Test: tests/report/test_runs.c. */
bool mx_report_runs(MxArena *arena, const char *folder, MxRunFacts **out, int *n, MxError *err);
/* mx_report_runs_print — a line a run, for people; mx_report_runs_json — for programs, all of it.
 */
void mx_report_runs_print(const char *folder, const MxRunFacts *runs, int n, MxText *out);
char *mx_report_runs_json(MxArena *arena, const char *folder, const MxRunFacts *runs, int n);

/* mx_report_page — a page (HTML) about runs, in progress or over: curves, configs side by side,
 * plan, environment, checkpoints. It needs nothing beside it. NULL after an error. Errors: all
 * folders that are none of runs (exit 65); what cannot be read. Test: tests/report/test_page.c,
 * tests/watching. */
const char *mx_report_page(MxArena *arena, const char *const *folders, int n, MxError *err);

#endif
