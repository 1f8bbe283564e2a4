/* metrics.c — named scalars of a step and the file of JSON lines. Nothing is allocated once the
 * file is open. */
#include <mx/train.h>

#include "metrics.h"

#include <math.h>
#include <stdio.h>

struct MetricsFile {
    FILE *stream; /* NULL = no file */
    const char *path;
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

bool metrics_file_open(MxArena *arena, const MxConfig *config, const char *path, int64_t first_step,
                       MetricsFile **out, MxError *err) {
    MetricsFile *file = *out = mx_new(arena, MetricsFile);
    file->path = path;
    if (!file->path || !*file->path) return true;
    file->period = config->log_period;
    file->run_name = json_string(arena, config->run_name);
    MxArena scratch = {.name = "metrics"};
    bool ok = !first_step || keep_lines_before(&scratch, file->path, first_step, err);
    mx_arena_release(&scratch);
    if (!ok) return false;
    file->stream = fopen(file->path, first_step ? "a" : "w");
    if (!file->stream) return mx_fail_errno(err, "could not open metrics_file \"%s\"", file->path);
    mx_arena_on_release(arena, close_stream, file->stream);
    return true;
}

static void print_number(FILE *stream, double value) {
    if (!isfinite(value))
        fputs("null", stream);
    else if (value == floor(value) && fabs(value) < 1e15)
        fprintf(stream, "%.1f", value);
    else
        fprintf(stream, "%.9g", value); /* enough to give back the float32 */
}

bool metrics_file_write(MetricsFile *file, int64_t step, const Metrics *metrics, MxError *err) {
    if (!file->stream) return true;
    fputc('{', file->stream);
    for (int i = 0; i < metrics->n; i++) {
        fprintf(file->stream, "\"%s\": ", metrics->name[i]);
        print_number(file->stream, metrics->value[i]);
        fputs(", ", file->stream);
    }
    fprintf(file->stream, "\"step\": %lld.0, \"run_name\": %s}\n", (long long)step, file->run_name);
    if (ferror(file->stream)) return mx_fail_errno(err, "could not write \"%s\"", file->path);
    if (++file->n_unflushed < file->period) return true;
    return metrics_file_flush(file, err);
}

bool metrics_file_flush(MetricsFile *file, MxError *err) {
    file->n_unflushed = 0;
    if (!file->stream || !fflush(file->stream)) return true;
    return mx_fail_errno(err, "could not write \"%s\"", file->path);
}
