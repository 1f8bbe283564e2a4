/* metrics_lines.c — metrics files that consist of lines of text: opening them when a run begins or
 * resumes, and the formats of their lines. */
#include "metrics_forms.h"

#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* Whether nothing in a file was cut off by a crash. */
static bool ends_in_a_line(const char *path) {
    FILE *file = mx_file_exists(path) ? fopen(path, "re") : NULL;
    if (!file) return true;
    bool is_empty = fseek(file, -1, SEEK_END) != 0;
    bool ends = is_empty || fgetc(file) == '\n';
    fclose(file);
    return ends;
}

/* The first line of a file, "" = none. */
static const char *head_of(MxArena *arena, const MetricsOut *out) {
    return out->form->head ? out->form->head(arena, out->columns) : "";
}

/* Whether a file has nothing but that before its lines; a crash may have cut it off. */
static bool begins_with(const char *path, const char *head) {
    size_t n = 0, length = strlen(head);
    FILE *file = mx_file_exists(path) ? fopen(path, "re") : NULL;
    if (!file) return true;
    for (int c; n < length && (c = fgetc(file)) == (unsigned char)head[n];) n++;
    bool begins = n == length || feof(file);
    fclose(file);
    return begins;
}

/* A file's lines, of steps before one and others. */
typedef struct Survey {
    int64_t kept_bytes; /* of the head, and of lines before the first one that is dropped */
    MxText tail;        /* lines that are kept behind it */
    int64_t n_dropped;
} Survey;

/* The next whole line without its end, and its bytes with it; false at the end, or where a crash
 * cut the last one off (its step comes again). */
static bool next_line(const MetricsOut *out, FILE *file, char *line, int size, size_t *bytes,
                      MxError *err) {
    if (!fgets(line, size, file))
        return ferror(file) && mx_fail_errno(err, "could not read \"%s\"", out->path);
    *bytes = strlen(line);
    if (*bytes && line[*bytes - 1] == '\n') return true;
    return !feof(file) && mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = out->path},
                                  "has a line of more than %d bytes, or no text", size);
}

/* Line by line, so that a run of any length resumes in the same memory. */
static bool survey(MxArena *arena, const MetricsOut *out, int64_t first_step, FILE *file,
                   Survey *found, MxError *err) {
    enum { MOST_LINE = 1 << 20 };
    char *line = mx_arena_alloc(arena, MOST_LINE);
    const int64_t head = (int64_t)strlen(head_of(arena, out));
    int64_t at = 0;
    size_t bytes = 0;
    mx_text_init(&found->tail, arena);
    for (int number = 1; next_line(out, file, line, MOST_LINE, &bytes, err); number++) {
        MxArena scratch = {.name = "line"};
        double step = -1;
        MxWhere where = {out->path, number, 0};
        if (at >= head) out->form->step_of(&scratch, line, bytes - 1, where, &step, err);
        mx_arena_release(&scratch);
        if (err->count) return false;
        at += (int64_t)bytes;
        if (step >= (double)first_step)
            found->n_dropped++;
        else if (!found->n_dropped)
            found->kept_bytes = at;
        else
            mx_text_addn(&found->tail, line, bytes);
    }
    return !err->count;
}

/* The head, and the lines of steps before first_step. Those that are dropped are the last ones,
 * unless an evaluation alone added more behind them. */
static bool keep_lines_before(MxArena *arena, const MetricsOut *out, int64_t first_step,
                              MxError *err) {
    enum { MAX_BYTES = 1 << 30 };
    Survey found = {0};
    MxBytes old;
    MxText kept;
    FILE *file = mx_file_exists(out->path) ? fopen(out->path, "r+e") : NULL;
    if (!file)
        return !mx_file_exists(out->path) || mx_fail_errno(err, "could not open \"%s\"", out->path);
    bool ok = survey(arena, out, first_step, file, &found, err);
    if (ok && !found.tail.len && (ftruncate(fileno(file), found.kept_bytes) || fsync(fileno(file))))
        ok = mx_fail_errno(err, "could not write \"%s\"", out->path);
    fclose(file);
    if (!ok || !found.tail.len) return ok;
    mx_text_init(&kept, arena);
    if (!mx_file_read(arena, out->path, MAX_BYTES, &old, err)) return false;
    mx_text_addn(&kept, (const char *)old.data, (size_t)found.kept_bytes);
    mx_text_addn(&kept, found.tail.data, found.tail.len);
    return mx_file_write(out->path, kept.data, kept.len, err);
}

/* What is kept of an old file. */
static bool cut(MxArena *scratch, const MetricsSetup *setup, const MetricsOut *out, MxError *err) {
    int64_t first_step = setup->first_step;
    if (!first_step) return true; /* nothing is */
    if (!begins_with(out->path, head_of(scratch, out)))
        return mx_config_fail(err, setup->config, MX_KEY_metrics_file,
                              "\"%s\" has other columns than this run writes; name another file",
                              out->path);
    return (first_step == METRICS_ADD && ends_in_a_line(out->path)) ||
           keep_lines_before(scratch, out, first_step, err);
}

/* At once, so that others who add to the file find it. */
static bool put_head(MxArena *scratch, const MetricsOut *out, MxError *err) {
    struct stat st;
    bool is_empty = !fstat(fileno(out->stream), &st) && !st.st_size;
    if (is_empty) fputs(head_of(scratch, out), out->stream);
    return !fflush(out->stream) || mx_fail_errno(err, "could not write \"%s\"", out->path);
}

bool metrics_lines_open(MxArena *arena, const MetricsSetup *setup, MetricsOut *out, MxError *err) {
    MxArena scratch = {.name = "metrics"};
    bool ok = cut(&scratch, setup, out, err) &&
              metrics_stream_open(arena, out, !setup->first_step, err) &&
              put_head(&scratch, out, err);
    mx_arena_release(&scratch);
    return ok;
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

/* ---- CSV: step, every metric, run_name; what a line does not have is empty */

static const char csv_first[] = "step,", csv_last[] = "run_name";

static const char *csv_spell(MxArena *arena, const char *s) {
    MxText out;
    mx_text_init(&out, arena);
    if (!strpbrk(s, ",\"")) return mx_arena_strdup(arena, s);
    mx_text_add(&out, "\"");
    for (; *s; s++) mx_text_add(&out, "%s%c", *s == '"' ? "\"" : "", *s);
    mx_text_add(&out, "\"");
    return out.data;
}

static const char *csv_head(MxArena *arena, const Metrics *columns) {
    MxText out;
    mx_text_init(&out, arena);
    mx_text_add(&out, "%s", csv_first);
    for (int i = 0; i < columns->n; i++) mx_text_add(&out, "%s,", columns->name[i]);
    mx_text_add(&out, "%s\n", csv_last);
    return out.data;
}

static bool csv_step_of(MxArena *arena, const char *line, size_t bytes, MxWhere where, double *step,
                        MxError *err) {
    char *end, *text = mx_arena_strndup(arena, line, bytes);
    *step = strtod(text, &end);
    return (end > text && *end == ',') ||
           mx_fail(err, MX_EXIT_BAD_INPUT, where, "a line that does not begin with a step");
}

/* A field as it was before it was spelt; `end` is behind it. */
static const char *csv_read(MxArena *arena, const char *field, const char *end) {
    MxText out;
    mx_text_init(&out, arena);
    bool is_quoted = end - field >= 2 && *field == '"';
    for (const char *p = field + is_quoted; p < end - is_quoted; p++) {
        mx_text_addn(&out, p, 1);
        p += is_quoted && *p == '"'; /* two stand for one */
    }
    return out.data;
}

static const char *csv_run_of(MxArena *arena, const char *text, size_t bytes) {
    const char *head_end = memchr(text, '\n', bytes), *end = text + bytes;
    size_t known = bytes < strlen(csv_first) ? bytes : strlen(csv_first);
    if (strncmp(text, csv_first, known) != 0) return NULL;
    if (!head_end) return ""; /* cut off by a crash */
    const char *row = head_end + 1, *stop = memchr(row, '\n', (size_t)(end - row));
    if (!mx_text_has_suffix(mx_arena_strndup(arena, text, (size_t)(head_end - text)), csv_last))
        return NULL;
    if (!stop) return "";
    for (const char *p = text; p < head_end; p++) { /* no field before the last has a comma */
        const char *comma = *p == ',' ? memchr(row, ',', (size_t)(stop - row)) : row - 1;
        if (!comma) return NULL;
        row = comma + 1;
    }
    return csv_read(arena, row, stop);
}

static void csv_write(const MetricsOut *out, int64_t step, const Metrics *metrics) {
    int n_found = 0;
    fprintf(out->stream, "%lld,", (long long)step);
    for (int i = 0; i < out->columns->n; i++) {
        int m = 0;
        while (m < metrics->n && strcmp(metrics->name[m], out->columns->name[i]) != 0) m++;
        if (m < metrics->n) fprintf(out->stream, "%.9g", metrics->value[m]);
        putc(',', out->stream);
        n_found += m < metrics->n;
    }
    MX_ASSERT(n_found == metrics->n);
    fprintf(out->stream, "%s\n", out->run_name);
}

const MetricsForm metrics_csv = {
    .suffix = ".csv",
    .open = metrics_lines_open,
    .write = csv_write,
    .spell = csv_spell,
    .head = csv_head,
    .step_of = csv_step_of,
    .run_of = csv_run_of,
};
