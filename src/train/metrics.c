/* metrics.c — named scalars of a step and the files to which they are written, each in its format.
 * Nothing is allocated after the files are open. */
#include <mx/train.h>

#include "metrics_forms.h"

#include <fcntl.h>
#include <stdio_ext.h>
#include <sys/stat.h>

enum { MOST_FILES = 3, BUFFER_BYTES = 1 << 16 };
static const double longest_unflushed_s = 2; /* whoever watches a slow run sees its lines */

struct MetricsFile {
    MetricsOut out[MOST_FILES];
    int n;
    int64_t period, n_unflushed;
    double flushed_s; /* when, by mx_clock_s */
};

Metrics metrics_new(MxArena *arena, int most) {
    return (Metrics){.name = mx_new_n(arena, const char *, most),
                     .value = mx_new_n(arena, double, most),
                     .most = most};
}

void metrics_add(Metrics *metrics, const char *name, double value) {
    MX_ASSERT(metrics->n < metrics->most);
    metrics->name[metrics->n] = name;
    metrics->value[metrics->n++] = value;
}

double metrics_get(const Metrics *metrics, const char *name) {
    int i = 0;
    while (i < metrics->n && strcmp(metrics->name[i], name)) i++;
    MX_ASSERT(i < metrics->n);
    return metrics->value[i];
}

void metrics_tell(const Metrics *metrics, const MxFigure *figures, const char *is, MxText *line) {
    for (const MxFigure *f = figures; f->metric; f++) {
        char figure[MX_FIGURE];
        if (!f->label) continue;
        mx_figure(figure, metrics_get(metrics, f->metric), f->decimals);
        mx_text_add(line, ", %s%s%s%s", f->label, is, figure, f->unit ? f->unit : "");
    }
}

/* ---- forms */

static const MetricsForm *const forms[] = {&metrics_csv, &metrics_json}; /* "" comes last */

static const MetricsForm *form_of(const char *path) {
    int i = 0;
    while (!mx_text_has_suffix(path, forms[i]->suffix)) i++;
    return forms[i];
}

/* What the first lines of a file say of its run, NULL = nothing, for they are no lines of metrics;
 * "" = the file is empty, missing, or no regular file, so nothing in it can be lost. */
static const char *run_of_file(MxArena *arena, const char *path) {
    enum { MAX_BYTES = 1 << 16 };
    FILE *file = mx_file_exists(path) ? fopen(path, "re") : NULL;
    if (!file) return "";
    char *text = mx_arena_alloc(arena, MAX_BYTES);
    size_t n = fread(text, 1, MAX_BYTES - 1, file);
    fclose(file);
    return n ? form_of(path)->run_of(arena, text, n) : "";
}

bool metrics_file_check(const MxConfig *config, const char *path, MxError *err) {
    MxArena arena = {.name = "metrics"};
    const char *run = path && *path ? run_of_file(&arena, path) : "";
    bool ok = true;
    if (!run)
        ok = mx_config_fail(err, config, MX_KEY_metrics_file,
                            "\"%s\" exists and is no file of metrics; it is not replaced", path);
    else if (*run && strcmp(run, config->run_name) != 0)
        ok = mx_config_fail(err, config, MX_KEY_metrics_file,
                            "\"%s\" has the metrics of run \"%s\"; it is not replaced", path, run);
    mx_arena_release(&arena);
    return ok;
}

/* ---- files */

static void close_stream(void *stream) {
    fclose(stream);
}

bool metrics_stream_open(MxArena *arena, MetricsOut *out, bool is_new, MxError *err) {
    int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (is_new ? O_TRUNC : 0);
    int fd = open(out->path, flags, 0666);
    out->stream = fd < 0 ? NULL : fdopen(fd, "a");
    if (!out->stream) return mx_fail_errno(err, "could not open metrics file \"%s\"", out->path);
    mx_arena_on_release(arena, close_stream, out->stream);
    setvbuf(out->stream, mx_arena_alloc(arena, BUFFER_BYTES), _IOFBF, BUFFER_BYTES);
    return true;
}

/* A run that begins anew in the folder of another does not take its metrics. */
static bool set_aside(MxArena *arena, const char *path, MxError *err) {
    struct stat old;
    char *other = NULL;
    if (stat(path, &old) || !old.st_size) return true;
    for (int i = 1; !other || mx_file_exists(other); i++)
        other = mx_arena_printf(arena, "%s.%d", path, i);
    if (rename(path, other))
        return mx_fail_errno(err, "could not rename \"%s\" to \"%s\"", path, other);
    mx_log("metrics of an earlier run are now in %s", other);
    return true;
}

static bool open_file(MxArena *arena, const MetricsSetup *setup, const MetricsForm *form,
                      const char *path, MetricsFile *file, MxError *err) {
    MetricsOut *out = &file->out[file->n];
    *out = (MetricsOut){.form = form, .path = path, .columns = setup->columns};
    if (form->spell) out->run_name = form->spell(arena, setup->config->run_name);
    if (!form->open(arena, setup, out, err)) return false;
    file->n++;
    return true;
}

static bool is_same_file(const char *a, const char *b) {
    struct stat x, y;
    return !stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

bool metrics_file_open(MxArena *arena, const MetricsSetup *setup, MetricsFile **out, MxError *err) {
    MetricsFile *file = *out = mx_new(arena, MetricsFile);
    const char *own = setup->own, *other = setup->other, *events = setup->events;
    file->period = setup->config->log_period;
    file->flushed_s = mx_clock_s();
    if (own && !setup->first_step && !set_aside(arena, own, err)) return false;
    if (own && !open_file(arena, setup, &metrics_json, own, file, err)) return false;
    if (events && !open_file(arena, setup, &metrics_events, events, file, err)) return false;
    if (!other || (own && is_same_file(own, other))) return true;
    return open_file(arena, setup, form_of(other), other, file, err);
}

bool metrics_file_write(MetricsFile *file, int64_t step, const Metrics *metrics, MxError *err) {
    bool is_full = false; /* lines are written whole: others may add to the file */
    for (int i = 0; i < file->n; i++) {
        const MetricsOut *out = &file->out[i];
        out->form->write(out, step, metrics);
        if (ferror(out->stream)) return mx_fail_errno(err, "could not write \"%s\"", out->path);
        is_full |= __fpending(out->stream) > BUFFER_BYTES / 2;
    }
    bool is_late = mx_clock_s() - file->flushed_s >= longest_unflushed_s;
    if (++file->n_unflushed < file->period && !is_full && !is_late) return true;
    return metrics_file_flush(file, err);
}

void metrics_file_text(MetricsFile *file, int64_t step, const char *name, const char *text) {
    for (int i = 0; i < file->n; i++)
        if (file->out[i].form->write_text)
            file->out[i].form->write_text(&file->out[i], step, name, text);
}

bool metrics_file_flush(MetricsFile *file, MxError *err) {
    file->n_unflushed = 0;
    file->flushed_s = mx_clock_s();
    for (int i = 0; i < file->n; i++)
        if (fflush(file->out[i].stream))
            return mx_fail_errno(err, "could not write \"%s\"", file->out[i].path);
    return true;
}
