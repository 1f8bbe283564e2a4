/* metrics.c — named scalars of a step and the files of JSON lines. Nothing is allocated once they
 * are open. */
#include <mx/train.h>

#include "metrics.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <sys/stat.h>

enum { MOST_FILES = 2, BUFFER_BYTES = 1 << 16 };

struct MetricsFile {
    struct {
        FILE *stream;
        const char *path;
    } file[MOST_FILES];
    int n;
    const char *run_name; /* as a JSON string */
    int64_t period, n_unflushed;
};

void metrics_add(Metrics *metrics, const char *name, double value) {
    MX_ASSERT(metrics->n < METRICS_MAX);
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

/* Whether nothing in a file was cut off by a crash. */
static bool ends_in_a_line(const char *path) {
    FILE *file = mx_file_exists(path) ? fopen(path, "re") : NULL;
    if (!file) return true;
    bool is_empty = fseek(file, -1, SEEK_END) != 0;
    bool ends = is_empty || fgetc(file) == '\n';
    fclose(file);
    return ends;
}

/* The lines of steps before first_step. */
static bool keep_lines_before(MxArena *arena, const char *path, int64_t first_step, MxError *err) {
    enum { MAX_BYTES = 1 << 30 };
    MxBytes old;
    MxText kept;
    if (!mx_file_exists(path)) return true;
    if (!mx_file_read(arena, path, MAX_BYTES, &old, err)) return false;
    mx_text_init(&kept, arena);
    const char *line = (const char *)old.data, *end = line + old.size;
    for (int number = 1; line < end; number++) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        if (!stop) break; /* cut off by a crash: its step comes again */
        double step;
        MxJson *json = mx_json_parse(arena, line, (size_t)(stop - line), path, err);
        if (!json) return mx_context(err, "metrics_file, line %d", number);
        if (!mx_json_number(mx_json_get(json, "step"), &step))
            return mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){path, number, 0},
                           "a line without \"step\"");
        if (step < (double)first_step) mx_text_addn(&kept, line, (size_t)(stop + 1 - line));
        line = stop + 1;
    }
    return mx_file_write(path, kept.data, kept.len, err);
}

/* What the first line of a file says of its run, NULL = nothing, for it is no line of metrics; "" =
 * the file is empty, missing, or no regular file, so nothing in it can be lost. */
static const char *run_of_file(MxArena *arena, const char *path) {
    enum { MAX_LINE = 1 << 16 };
    MxError ignored = {0};
    FILE *file = mx_file_exists(path) ? fopen(path, "re") : NULL;
    if (!file) return "";
    char *line = mx_arena_alloc(arena, MAX_LINE);
    size_t n = fread(line, 1, MAX_LINE - 1, file), length = strcspn(line, "\n");
    fclose(file);
    bool is_cut = n && length == n && *line == '{'; /* by a crash, as the only one */
    MxJson *json = n && !is_cut ? mx_json_parse(arena, line, length, path, &ignored) : NULL;
    mx_error_release(&ignored);
    return n && !is_cut ? mx_json_string(mx_json_get(json, "run_name")) : "";
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

static void close_stream(void *stream) {
    fclose(stream);
}

/* A string with its quotes and escapes. */
static const char *json_string(MxArena *arena, const char *s) {
    MxJson *object = mx_json_object(arena);
    mx_json_set_string(object, "", s);
    char *text = mx_json_dump(arena, object, false);
    size_t head = strlen("{\"\": ");
    return mx_arena_strndup(arena, text + head, strlen(text) - head - 1);
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

static bool open_file(MxArena *arena, MetricsFile *out, const char *path, int64_t first_step,
                      MxError *err) {
    MxArena scratch = {.name = "metrics"};
    bool keeps_all = !first_step || (first_step == METRICS_ADD && ends_in_a_line(path));
    bool ok = keeps_all || keep_lines_before(&scratch, path, first_step, err);
    mx_arena_release(&scratch);
    if (!ok) return false;
    int fd =
        open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (first_step ? 0 : O_TRUNC), 0666);
    FILE *stream = fd < 0 ? NULL : fdopen(fd, "a");
    if (!stream) return mx_fail_errno(err, "could not open metrics file \"%s\"", path);
    mx_arena_on_release(arena, close_stream, stream);
    setvbuf(stream, mx_arena_alloc(arena, BUFFER_BYTES), _IOFBF, BUFFER_BYTES);
    out->file[out->n].stream = stream;
    out->file[out->n++].path = path;
    return true;
}

static bool is_same_file(const char *a, const char *b) {
    struct stat x, y;
    return !stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

bool metrics_file_open(MxArena *arena, const MxConfig *config, MetricsPaths paths,
                       int64_t first_step, MetricsFile **out, MxError *err) {
    MetricsFile *file = *out = mx_new(arena, MetricsFile);
    file->period = config->log_period;
    file->run_name = json_string(arena, config->run_name);
    if (paths.own && !first_step && !set_aside(arena, paths.own, err)) return false;
    if (paths.own && !open_file(arena, file, paths.own, first_step, err)) return false;
    if (!paths.other || (paths.own && is_same_file(paths.own, paths.other))) return true;
    return open_file(arena, file, paths.other, first_step, err);
}

static void print_number(FILE *stream, double value) {
    if (!isfinite(value))
        fputs("null", stream);
    else if (value == floor(value) && fabs(value) < 1e15)
        fprintf(stream, "%.1f", value);
    else
        fprintf(stream, "%.9g", value); /* enough to give back the float32 */
}

static bool write_line(const MetricsFile *file, int i, int64_t step, const Metrics *metrics,
                       MxError *err) {
    FILE *stream = file->file[i].stream;
    fputc('{', stream);
    for (int m = 0; m < metrics->n; m++) {
        fprintf(stream, "\"%s\": ", metrics->name[m]);
        print_number(stream, metrics->value[m]);
        fputs(", ", stream);
    }
    fprintf(stream, "\"step\": %lld.0, \"run_name\": %s}\n", (long long)step, file->run_name);
    return !ferror(stream) || mx_fail_errno(err, "could not write \"%s\"", file->file[i].path);
}

bool metrics_file_write(MetricsFile *file, int64_t step, const Metrics *metrics, MxError *err) {
    for (int i = 0; i < file->n; i++)
        if (!write_line(file, i, step, metrics, err)) return false;
    bool is_full = false; /* lines are written whole: others may add to the file */
    for (int i = 0; i < file->n; i++)
        is_full |= __fpending(file->file[i].stream) > BUFFER_BYTES / 2;
    if (++file->n_unflushed < file->period && !is_full) return true;
    return metrics_file_flush(file, err);
}

bool metrics_file_flush(MetricsFile *file, MxError *err) {
    file->n_unflushed = 0;
    for (int i = 0; i < file->n; i++)
        if (fflush(file->file[i].stream))
            return mx_fail_errno(err, "could not write \"%s\"", file->file[i].path);
    return true;
}
