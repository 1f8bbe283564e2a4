/* runs.c — the runs of a folder as a list: a table for people, JSON for programs. */
#include <mx/report.h>

#include "internal.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

const char *report_bytes(MxArena *arena, int64_t bytes) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    int unit = 0;
    for (; value >= 1024 && unit < MX_COUNT(units) - 1; unit++) value /= 1024;
    return mx_arena_printf(arena, "%.*f %s", unit && value < 100 ? 1 : 0, value, units[unit]);
}

const char *report_time(MxArena *arena, int64_t seconds) {
    char text[64];
    struct tm utc;
    time_t at = (time_t)seconds;
    if (!gmtime_r(&at, &utc) || !strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &utc)) return "";
    return mx_arena_strdup(arena, text);
}

static int last_first(const void *a, const void *b) {
    const MxRunFacts *x = a, *y = b;
    if (x->changed_s != y->changed_s) return x->changed_s < y->changed_s ? 1 : -1;
    return strcmp(x->name, y->name);
}

bool mx_report_runs(MxArena *arena, const char *folder, MxRunFacts **out, int *n, MxError *err) {
    char **names;
    int n_names;
    *n = 0;
    if (mx_report_is_run(folder)) {
        *out = mx_new(arena, MxRunFacts);
        *n = 1;
        return mx_report_run(arena, folder, *out, err);
    }
    if (!mx_dir_exists(folder))
        return mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE, "there is no folder \"%s\"", folder);
    if (!mx_dir_list(arena, folder, &names, &n_names, err)) return false;
    *out = mx_new_n(arena, MxRunFacts, n_names);
    for (int i = 0; i < n_names; i++) {
        const char *path = mx_path_join(arena, folder, names[i]);
        if (mx_report_is_run(path) && !mx_report_run(arena, path, &(*out)[(*n)++], err))
            return false;
    }
    qsort(*out, (size_t)*n, sizeof **out, last_first);
    return true;
}

/* ---- a table */

enum { COLUMNS = 8 };

static const struct {
    const char *title;
    bool is_number;
} columns[COLUMNS] = {{"run", false},    {"state", false},       {"step", true},
                      {"loss", true},    {"eval loss", true},    {"saved", true},
                      {"on disk", true}, {"changed, UTC", false}};

static const char *loss_text(MxArena *arena, double loss) {
    return isnan(loss) ? "" : mx_figure(mx_new_n(arena, char, MX_FIGURE), loss, 3);
}

static const char *step_text(MxArena *arena, const MxRunFacts *run) {
    if (run->step < 0) return "";
    if (run->steps < 0) return mx_arena_printf(arena, "%lld", (long long)run->step + 1);
    return mx_arena_printf(arena, "%lld of %lld", (long long)run->step + 1, (long long)run->steps);
}

/* As a terminal may get it, on one line. */
static const char *plain(MxArena *arena, const char *text) {
    MxText out;
    mx_text_init(&out, arena);
    mx_text_add_quoted(&out, text, strlen(text));
    bool is_as_it_was = out.len == strlen(text) + 2 && !strpbrk(text, "\"");
    return is_as_it_was ? text : out.data;
}

static void fill(MxArena *arena, const MxRunFacts *run, const char *cell[COLUMNS]) {
    const char *saved = "";
    if (run->n_checkpoints)
        saved = mx_arena_printf(arena, "%lld", (long long)run->checkpoints[run->n_checkpoints - 1]);
    cell[0] = plain(arena, run->name);
    cell[1] = mx_run_state_name(run->state);
    cell[2] = step_text(arena, run);
    cell[3] = loss_text(arena, run->loss);
    cell[4] = loss_text(arena, run->eval_loss);
    cell[5] = saved;
    cell[6] = report_bytes(arena, run->bytes);
    cell[7] = report_time(arena, run->changed_s);
}

static void add_row(MxText *out, const char *const cell[COLUMNS], const int width[COLUMNS],
                    const char *how) {
    for (int c = 0; c < COLUMNS; c++)
        mx_text_add(out, columns[c].is_number ? "%s%*s" : "%s%-*s", c ? "  " : "", width[c],
                    cell[c]);
    if (*how) mx_text_add(out, "  ");
    mx_text_add_shown(out, how, strlen(how));
    while (out->len && out->data[out->len - 1] == ' ') out->data[--out->len] = '\0';
    mx_text_add(out, "\n");
}

void mx_report_runs_print(const char *folder, const MxRunFacts *runs, int n, MxText *out) {
    MxArena arena = {.name = "runs"};
    int width[COLUMNS];
    const char *title[COLUMNS],
        *(*cell)[COLUMNS] = mx_arena_alloc(&arena, sizeof *cell * (size_t)n);
    if (!n) mx_text_add(out, "no runs in %s\n", plain(&arena, folder));
    for (int c = 0; c < COLUMNS; c++) width[c] = (int)strlen(title[c] = columns[c].title);
    for (int i = 0; i < n; i++) {
        fill(&arena, &runs[i], cell[i]);
        for (int c = 0; c < COLUMNS; c++)
            if ((int)strlen(cell[i][c]) > width[c]) width[c] = (int)strlen(cell[i][c]);
    }
    if (n) add_row(out, title, width, "");
    for (int i = 0; i < n; i++) add_row(out, cell[i], width, runs[i].how);
    mx_arena_release(&arena);
}

/* ---- JSON */

static void put_run(MxJson *list, const MxRunFacts *run) {
    MxJson *row = mx_json_push_object(list);
    mx_json_set_string(row, "run", run->name);
    mx_json_set_string(row, "folder", run->folder);
    mx_json_set_string(row, "state", mx_run_state_name(run->state));
    mx_json_set_string(row, "how", run->how);
    mx_json_set_int(row, "step", run->step);
    mx_json_set_int(row, "steps", run->steps);
    mx_json_set_number(row, "loss", run->loss);
    mx_json_set_number(row, "eval_loss", run->eval_loss);
    MxJson *checkpoints = mx_json_put_array(row, "checkpoints");
    for (int i = 0; i < run->n_checkpoints; i++) mx_json_push_int(checkpoints, run->checkpoints[i]);
    mx_json_set_int(row, "bytes", run->bytes);
    mx_json_set_int(row, "changed", run->changed_s);
}

char *mx_report_runs_json(MxArena *arena, const char *folder, const MxRunFacts *runs, int n) {
    MxJson *root = mx_json_object(arena);
    mx_json_set_string(root, "mxtrain", MX_VERSION);
    mx_json_set_string(root, "folder", folder);
    MxJson *list = mx_json_put_array(root, "runs");
    for (int i = 0; i < n; i++) put_run(list, &runs[i]);
    return mx_json_dump(arena, root, true);
}
