/* metrics_forms.h — formats of metrics files: one row per format. metrics.c opens and writes the
 * files of a run through these rows. */
#ifndef TRAIN_METRICS_FORMS_H
#define TRAIN_METRICS_FORMS_H

#include "metrics.h"

#include <stdio.h>

typedef struct MetricsForm MetricsForm;

/* A file that is open. */
typedef struct MetricsOut {
    const MetricsForm *form;
    FILE *stream;
    const char *path;
    const char *run_name; /* as the form spells it */
    const Metrics *columns;
    void *own; /* what the form keeps */
} MetricsOut;

struct MetricsForm {
    const char *suffix; /* of the names of its files; "" = of all that no other row has, NULL = the
                           form is not chosen by a name */
    /* Opens out->path, for lines of setup->first_step and later ones, as the stream. */
    bool (*open)(MxArena *arena, const MetricsSetup *setup, MetricsOut *out, MxError *err);
    void (*write)(const MetricsOut *out, int64_t step, const Metrics *metrics);
    /* A text of a step; NULL = files of this form hold none. */
    void (*write_text)(const MetricsOut *out, int64_t step, const char *name, const char *text);
    /* ---- of lines alone: a text in the spelling of the form */
    const char *(*spell)(MxArena *arena, const char *text);
    /* The line, with its end, that a file begins with; NULL = none. */
    const char *(*head)(MxArena *arena, const Metrics *columns);
    /* The step of a whole line without its end; `where` is the line's. */
    bool (*step_of)(MxArena *arena, const char *line, size_t bytes, MxWhere where, double *step,
                    MxError *err);
    /* The run that a file is of, by its first bytes: NULL = it is no file of this form, "" = it
     * names none. */
    const char *(*run_of)(MxArena *arena, const char *text, size_t bytes);
};

extern const MetricsForm metrics_json, metrics_csv, metrics_events;

/* metrics_lines_open — for forms of lines: keeps those of earlier steps. */
bool metrics_lines_open(MxArena *arena, const MetricsSetup *setup, MetricsOut *out, MxError *err);
/* metrics_stream_open — a file to append to, closed with the arena. is_new: what is there goes. */
bool metrics_stream_open(MxArena *arena, MetricsOut *out, bool is_new, MxError *err);

#endif
