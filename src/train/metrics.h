/* metrics.h — the metrics of a step under MaxText's names, on the console and in files. */
#ifndef TRAIN_METRICS_H
#define TRAIN_METRICS_H

#include <mx/program.h>

/* Named scalars of one step, in the order in which they are written. */
typedef struct Metrics {
    const char **name; /* [n] */
    double *value;     /* [n] */
    int n, most;
} Metrics;

/* metrics_new — room for so many. */
Metrics metrics_new(MxArena *arena, int most);
void metrics_add(Metrics *metrics, const char *name, double value);
/* metrics_get — a value that must be there. */
double metrics_get(const Metrics *metrics, const char *name);

/* metrics_tell — "label<is>value" for every figure with a label, each behind ", ". */
void metrics_tell(const Metrics *metrics, const MxFigure *figures, const char *is, MxText *line);

/* Files of metrics, all with the same ones, each in the form that its name says. */
typedef struct MetricsFile MetricsFile;

/* What they are opened with. */
typedef struct MetricsSetup {
    const MxConfig *config;
    const char *own;        /* the run's, in its folder; NULL = none */
    const char *other;      /* the key metrics_file, which may be the same; NULL = none */
    const char *events;     /* a folder for event files of TensorBoard; NULL = none */
    const Metrics *columns; /* every metric of a step and of an evaluation */
    int64_t n_parameters, first_step;
} MetricsSetup;

/* metrics_file_check — that no file is replaced that another run, or something else, has written.
 * Errors: it would be (exit 2). */
bool metrics_file_check(const MxConfig *config, const char *path, MxError *err);
/* For first_step: lines are added, and what a run in progress adds meanwhile stays. */
#define METRICS_ADD INT64_MAX
/* metrics_file_open — new files at first_step 0 (what an earlier run left of its own gets another
 * name); otherwise lines of steps from first_step on are cut off, so that a resumed run leaves the
 * files that an undisturbed one would. Closed with the arena. */
bool metrics_file_open(MxArena *arena, const MetricsSetup *setup, MetricsFile **out, MxError *err);
/* metrics_file_write — one line of every file: every scalar, step and run_name; flushed every
 * log_period steps, and if the last flush was two seconds ago. */
bool metrics_file_write(MetricsFile *file, int64_t step, const Metrics *metrics, MxError *err);
/* metrics_file_text — a text of a step, for files whose form has texts. */
void metrics_file_text(MetricsFile *file, int64_t step, const char *name, const char *text);
bool metrics_file_flush(MetricsFile *file, MxError *err);

#endif
