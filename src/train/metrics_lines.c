/* metrics_lines.c — files of metrics that are lines of text: opening them where a run begins or
 * goes on, and the forms of their lines. */
#include "metrics_forms.h"

#include <math.h>

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
static bool keep_lines_before(MxArena *arena, const MetricsOut *out, int64_t first_step,
                              MxError *err) {
    enum { MAX_BYTES = 1 << 30 };
    MxBytes old;
    MxText kept;
    if (!mx_file_exists(out->path)) return true;
    if (!mx_file_read(arena, out->path, MAX_BYTES, &old, err)) return false;
    mx_text_init(&kept, arena);
    const char *line = (const char *)old.data, *end = line + old.size;
    for (int number = 1; line < end; number++) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        if (!stop) break; /* cut off by a crash: its step comes again */
        double step;
        MxWhere where = {out->path, number, 0};
        if (!out->form->step_of(arena, line, (size_t)(stop - line), where, &step, err))
            return false;
        if (step < (double)first_step) mx_text_addn(&kept, line, (size_t)(stop + 1 - line));
        line = stop + 1;
    }
    return mx_file_write(out->path, kept.data, kept.len, err);
}

bool metrics_lines_open(MxArena *arena, const MetricsSetup *setup, MetricsOut *out, MxError *err) {
    MxArena scratch = {.name = "metrics"};
    int64_t first_step = setup->first_step;
    bool keeps_all = !first_step || (first_step == METRICS_ADD && ends_in_a_line(out->path));
    bool ok = keeps_all || keep_lines_before(&scratch, out, first_step, err);
    mx_arena_release(&scratch);
    return ok && metrics_stream_open(arena, out, !first_step, err);
}

/* ---- JSON */

/* A string with its quotes and escapes. */
static const char *json_spell(MxArena *arena, const char *s) {
    MxJson *object = mx_json_object(arena);
    mx_json_set_string(object, "", s);
    char *text = mx_json_dump(arena, object, false);
    size_t head = strlen("{\"\": ");
    return mx_arena_strndup(arena, text + head, strlen(text) - head - 1);
}

static bool json_step_of(MxArena *arena, const char *line, size_t bytes, MxWhere where,
                         double *step, MxError *err) {
    MxJson *json = mx_json_parse(arena, line, bytes, where.file, err);
    if (!json) return mx_context(err, "metrics_file, line %d", where.line);
    return mx_json_number(mx_json_get(json, "step"), step) ||
           mx_fail(err, MX_EXIT_BAD_INPUT, where, "a line without \"step\"");
}

static const char *json_run_of(MxArena *arena, const char *text, size_t bytes) {
    MxError ignored = {0};
    size_t length = strcspn(text, "\n");
    if (length == bytes && *text == '{') return ""; /* cut off by a crash, as the only one */
    MxJson *json = mx_json_parse(arena, text, length, "metrics", &ignored);
    mx_error_release(&ignored);
    return mx_json_string(mx_json_get(json, "run_name"));
}

static void json_number(FILE *stream, double value) {
    if (!isfinite(value))
        fputs("null", stream);
    else if (value == floor(value) && fabs(value) < 1e15)
        fprintf(stream, "%.1f", value);
    else
        fprintf(stream, "%.9g", value); /* enough to give back the float32 */
}

static void json_write(const MetricsOut *out, int64_t step, const Metrics *metrics) {
    fputc('{', out->stream);
    for (int m = 0; m < metrics->n; m++) {
        fprintf(out->stream, "\"%s\": ", metrics->name[m]);
        json_number(out->stream, metrics->value[m]);
        fputs(", ", out->stream);
    }
    fprintf(out->stream, "\"step\": %lld.0, \"run_name\": %s}\n", (long long)step, out->run_name);
}

const MetricsForm metrics_json = {
    .suffix = "",
    .open = metrics_lines_open,
    .write = json_write,
    .spell = json_spell,
    .step_of = json_step_of,
    .run_of = json_run_of,
};
