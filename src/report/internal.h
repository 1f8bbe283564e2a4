/* internal.h — shared by the files of this room: a run's curves, and parts of a page. */
#ifndef REPORT_INTERNAL_H
#define REPORT_INTERNAL_H

#include <mx/base_html.h>
#include <mx/config.h>
#include <mx/report.h>

/* ---- text */

/* report_config_text — a run's config.yml; NULL = it cannot be read, or is no text. */
const char *report_config_text(MxArena *arena, const char *folder);
/* report_last_lines — the last lines of a file that may be large or in the making; "" = it has
 * none. report_next_line — the next whole one, cut out of the text; NULL = there is none. */
char *report_last_lines(MxArena *arena, const char *path);
char *report_next_line(char **text);

/* report_bytes — "9.2 MiB"; report_time — "2026-11-23 02:38:12", UTC. */
const char *report_bytes(MxArena *arena, int64_t bytes);
const char *report_time(MxArena *arena, int64_t seconds);

/* report_json_string — as a string of JSON that may stand inside a script element. */
const char *report_json_string(MxArena *arena, const char *text);

/* ---- curves */

/* Some steps in a row: from `step` on, the least and the greatest value. NAN = not finite. */
typedef struct ReportPoint {
    int64_t step;
    double lo, hi;
} ReportPoint;

typedef struct ReportSeries {
    const char *name;
    ReportPoint *point; /* [n] by step */
    int n;
    bool is_whole;           /* a point is one step's value */
    int64_t n_values, n_odd; /* all there were, and those of them that are not finite */
} ReportSeries;

/* A run on a page. */
typedef struct ReportRun {
    MxRunFacts facts;
    const char *config;   /* text; NULL = none can be read */
    ReportSeries *series; /* [n_series] in the order in which they occur */
    int n_series;
    int64_t n_unreadable; /* lines of metrics */
} ReportRun;

/* A page in the making. */
typedef struct Report {
    MxArena *arena;
    ReportRun *runs;
    int n_runs;
    int64_t n_steps; /* of the longest run */
    MxText *out;
} Report;

/* report_read_series — all of a run's metrics.jsonl. What is more than 2 * n_buckets values becomes
 * the least and greatest of each of n_buckets equal parts of n_steps. Errors: it cannot be read. */
bool report_read_series(MxArena *arena, ReportRun *run, int64_t n_steps, int n_buckets,
                        MxError *err);
/* report_series — one by its name; NULL = the run has none such. */
const ReportSeries *report_series(const ReportRun *run, const char *name);

/* ---- parts of a page */

enum { REPORT_COLORS = 8 };

void report_put_charts(Report *report);
void report_put_config(Report *report);
void report_put_samples(Report *report, const MxRunFacts *run);
/* report_put_plan — a run's config is planned again. report_put_planned — the parts of a plan (its
 * JSON): memory, figures, exchanges, and, by report_put_shards, the mesh and the parameters. */
void report_put_plan(Report *report, const ReportRun *run);
void report_put_planned(Report *report, const MxJson *plan);
void report_put_shards(Report *report, const MxJson *plan);

/* page.css and page.js. */
extern const char report_style[], report_script[];

#endif
