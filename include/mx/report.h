/* report.h — lists and reports of runs, in progress or finished, from their folders. Folders are
 * only read, and their contents are not trusted: they may come from another version, be truncated
 * by a crash, or come from others. */
#ifndef MX_REPORT_H
#define MX_REPORT_H

#include <mx/plan.h>

/* The state of a run. */
typedef enum MxRunState {
    MX_RUN_EMPTY,    /* no step was made */
    MX_RUN_RUNNING,  /* a process has its lock */
    MX_RUN_FINISHED, /* all steps were made, the data ended, or the target was reached */
    MX_RUN_STOPPED,  /* by a signal, after a save */
    MX_RUN_FAILED,   /* it ended with an error */
    MX_RUN_BROKEN,   /* it ended without a message: killed, or the machine went down */
} MxRunState;

/* mx_run_state_name — "running", "broken off", … */
const char *mx_run_state_name(MxRunState state);

/* A run, as described by its folder. */
typedef struct MxRunFacts {
    const char *name;   /* name of the folder */
    const char *folder; /* path */
    MxRunState state;
    const char *how;        /* how it ended, or which process runs it; "" = unknown */
    int64_t step, steps;    /* the last step (0-based), and the number requested; -1 = none */
    double loss, eval_loss; /* loss of that step, and of the last evaluation; NAN = none */
    int64_t *checkpoints;   /* [n_checkpoints] steps, ascending */
    int n_checkpoints;
    int64_t bytes;     /* size of the folder on disk */
    int64_t changed_s; /* time of the last change, seconds since 1970 */
} MxRunFacts;

/* mx_report_is_run — whether a folder is that of a run: it has a config.yml beside a run.log,
 * metrics.jsonl or checkpoints. */
bool mx_report_is_run(const char *folder);
/* mx_report_run — reads a run's folder. Errors: it is not the folder of a run (exit 65). */
bool mx_report_run(MxArena *arena, const char *folder, MxRunFacts *out, MxError *err);

/* mx_report_runs — all runs in a folder, or the run whose folder it is, the most recently changed
 * first. Errors: there is no such folder, or it cannot be read. Test: tests/report/test_runs.c. */
bool mx_report_runs(MxArena *arena, const char *folder, MxRunFacts **out, int *n, MxError *err);
/* mx_report_runs_print — a table for people, one line per run; mx_report_runs_json — everything as
 * JSON. */
void mx_report_runs_print(const char *folder, const MxRunFacts *runs, int n, MxText *out);
char *mx_report_runs_json(MxArena *arena, const char *folder, const MxRunFacts *runs, int n);

/* mx_report_page — a self-contained HTML page about runs, in progress or finished: curves, configs
 * side by side, plan, environment, checkpoints. NULL after an error. Errors: all folders that are
 * not those of runs (exit 65); files that cannot be read. Test: tests/report/test_page.c,
 * tests/watching. */
const char *mx_report_page(MxArena *arena, const char *const *folders, int n, MxError *err);

/* mx_report_plan — such a page about a plan: memory, mesh and shards as pictures, exchanges,
 * findings, and the text of mx_plan_print. NULL after an error. Test: tests/watching. */
const char *mx_report_plan(MxArena *arena, const MxPlan *plan, MxError *err);

#endif
