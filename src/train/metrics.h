/* metrics.h — one step's figures under MaxText's names, on the console and as JSON lines. */
#ifndef TRAIN_METRICS_H
#define TRAIN_METRICS_H

#include <mx/train.h>

enum { METRICS_MAX = 32 };

/* Named scalars of one step, in the order in which they are written. */
typedef struct Metrics {
    const char *name[METRICS_MAX];
    double value[METRICS_MAX];
    int n;
} Metrics;

void metrics_add(Metrics *metrics, const char *name, double value);
/* metrics_get — a value that must be there. */
double metrics_get(const Metrics *metrics, const char *name);

/* metrics_tell — "label<is>value" for every figure with a label, each behind ", ". */
void metrics_tell(const Metrics *metrics, const MxFigure *figures, const char *is, MxText *line);

/* Files of JSON lines, all with the same ones. */
typedef struct MetricsFile MetricsFile;

/* Where they are, NULL = there is none: the run's own, in its folder, and another (the key
 * metrics_file), which may be the same one. */
typedef struct MetricsPaths {
    const char *own, *other;
} MetricsPaths;

/* metrics_file_check — that no file is replaced that another run, or something else, has written.
 * Errors: it would be (exit 2). */
bool metrics_file_check(const MxConfig *config, const char *path, MxError *err);
/* For first_step: lines are added, and what a run in progress adds meanwhile stays. */
#define METRICS_ADD INT64_MAX
/* metrics_file_open — new files at first_step 0 (what an earlier run left of its own gets another
 * name); otherwise lines of steps from first_step on are cut off, so that a resumed run leaves the
 * files that an undisturbed one would. Closed with the arena. */
bool metrics_file_open(MxArena *arena, const MxConfig *config, MetricsPaths paths,
                       int64_t first_step, MetricsFile **out, MxError *err);
/* metrics_file_write — one line: every scalar (not finite = null), step and run_name; flushed every
 * log_period steps. */
bool metrics_file_write(MetricsFile *file, int64_t step, const Metrics *metrics, MxError *err);
bool metrics_file_flush(MetricsFile *file, MxError *err);

#endif
