/* series.c — the curves of a run, from its metrics.jsonl, line by line. A file of any length is
 * reduced to a bounded number of points: all values of a short file, otherwise the minimum and
 * maximum of equal parts of the run, so that no peak is lost. */
#include "internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { MOST_SERIES = 256, MOST_LINE = 1 << 16 };

/* A series in the making. */
typedef struct Making {
    ReportSeries series;
    ReportPoint *whole;  /* [2 * n_buckets] its values, while they fit */
    ReportPoint *bucket; /* [n_buckets] step -1 = nothing in it */
} Making;

typedef struct Reader {
    MxArena *arena;
    ReportRun *run;
    Making *making; /* [MOST_SERIES] */
    int n, n_buckets;
    int64_t n_steps;
    MxMap by_name;
} Reader;

static Making *find(Reader *r, const char *name) {
    int64_t i = mx_map_get(&r->by_name, name, -1);
    if (i >= 0) return &r->making[i];
    if (r->n == MOST_SERIES) return NULL; /* more than any run of ours has */
    Making *m = &r->making[r->n];
    m->series.name = mx_arena_strdup(r->arena, name);
    m->whole = mx_new_n(r->arena, ReportPoint, 2 * r->n_buckets);
    m->bucket = mx_new_n(r->arena, ReportPoint, r->n_buckets);
    for (int b = 0; b < r->n_buckets; b++) m->bucket[b].step = -1;
    mx_map_set(&r->by_name, m->series.name, r->n++);
    return m;
}

static void take(Reader *r, Making *m, int64_t step, double value) {
    ReportSeries *s = &m->series;
    int64_t b = step / (r->n_steps / r->n_buckets + 1);
    ReportPoint *p = &m->bucket[b < r->n_buckets ? b : r->n_buckets - 1];
    if (s->n_values < 2 * r->n_buckets) m->whole[s->n_values] = (ReportPoint){step, value, value};
    s->n_values++;
    s->n_odd += !isfinite(value);
    if (p->step < 0) *p = (ReportPoint){step, NAN, NAN};
    if (!isfinite(value)) return;
    p->lo = fmin(p->lo, value); /* which of a NAN and a number is the number */
    p->hi = fmax(p->hi, value);
}

static bool take_line(Reader *r, MxArena *scratch, const char *line, size_t bytes) {
    MxError ignored = {0};
    double step = -1;
    const char *name;
    MxJson *value, *row = mx_json_parse(scratch, line, bytes, "metrics", &ignored);
    mx_error_release(&ignored);
    mx_json_number(mx_json_get(row, "step"), &step);
    if (!(step >= 0)) return false;
    if (step >= (double)r->n_steps) return true; /* written since */
    for (size_t i = 0; mx_json_member(row, i, &name, &value); i++) {
        double number = NAN;
        bool is_null = !strcmp(mx_json_kind(value), "null");
        if (!strcmp(name, "step") || (!mx_json_number(value, &number) && !is_null)) continue;
        Making *m = find(r, name);
        if (m) take(r, m, (int64_t)step, number);
    }
    return true;
}

static int by_step(const void *a, const void *b) {
    const ReportPoint *x = a, *y = b;
    return x->step < y->step ? -1 : x->step > y->step;
}

static ReportSeries finish(Reader *r, Making *m) {
    ReportSeries *s = &m->series;
    s->is_whole = s->n_values <= 2 * r->n_buckets;
    s->point = s->is_whole ? m->whole : m->bucket;
    if (s->is_whole) s->n = (int)s->n_values;
    for (int b = 0; !s->is_whole && b < r->n_buckets; b++)
        if (m->bucket[b].step >= 0) s->point[s->n++] = m->bucket[b];
    qsort(s->point, (size_t)s->n, sizeof *s->point,
          by_step); /* evaluations alone may add old ones */
    return *s;
}

bool report_read_series(MxArena *arena, ReportRun *run, int64_t n_steps, int n_buckets,
                        MxError *err) {
    const char *path = mx_path_join(arena, run->facts.folder, "metrics.jsonl");
    struct stat st;
    if (stat(path, &st) || !S_ISREG(st.st_mode)) return true; /* a run before its first step */
    FILE *file = fopen(path, "re");
    if (!file) return mx_fail_errno(err, "could not open \"%s\"", path);
    Reader r = {.arena = arena, .run = run, .n_buckets = n_buckets, .n_steps = n_steps};
    r.making = mx_new_n(arena, Making, MOST_SERIES);
    mx_map_init(&r.by_name, arena);
    char *line = mx_arena_alloc(arena, MOST_LINE);
    while (fgets(line, MOST_LINE, file)) {
        MxArena scratch = {.name = "line"};
        size_t bytes = strlen(line);
        bool is_cut = !bytes || line[bytes - 1] != '\n'; /* in the making */
        if (!is_cut || !feof(file))
            run->n_unreadable += is_cut || !take_line(&r, &scratch, line, bytes - 1);
        mx_arena_release(&scratch);
    }
    bool ok = !ferror(file) || mx_fail_errno(err, "could not read \"%s\"", path);
    fclose(file);
    run->series = mx_new_n(arena, ReportSeries, r.n);
    for (run->n_series = 0; run->n_series < r.n; run->n_series++)
        run->series[run->n_series] = finish(&r, &r.making[run->n_series]);
    return ok;
}

const ReportSeries *report_series(const ReportRun *run, const char *name) {
    for (int i = 0; i < run->n_series; i++)
        if (!strcmp(run->series[i].name, name)) return &run->series[i];
    return NULL;
}
