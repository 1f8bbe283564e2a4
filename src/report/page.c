/* page.c — the report: one self-contained page. It loads nothing from a network, and forbids the
 * browser to; everything that it shows of runs is text. */
#include "internal.h"

#include <mx/store.h>

#include <math.h>

/* Points of a curve: as many as a picture has columns, fewer of each where many runs share a page.
 */
enum { MOST_POINTS = 4000, MOST_POINTS_OF_A_RUN = 1000, LEAST_POINTS = 100 };

/* "a, b, c". */
static const char *names_of(const Report *report) {
    const char *names = "";
    for (int r = 0; r < report->n_runs; r++)
        names = mx_arena_printf(report->arena, "%s%s%s", names, r ? ", " : "",
                                report->runs[r].facts.name);
    return names;
}

/* ---- the runs at a glance */

static const char *figure(MxArena *arena, double value) {
    return isnan(value) ? "" : mx_figure(mx_new_n(arena, char, MX_FIGURE), value, 3);
}

static const char *steps_text(MxArena *arena, const MxRunFacts *f) {
    const char *of = f->steps < 0 ? "" : mx_arena_printf(arena, " of %lld", (long long)f->steps);
    return f->step < 0 ? "" : mx_arena_printf(arena, "%lld%s", (long long)f->step + 1, of);
}

static void put_overview(Report *report) {
    MxArena *arena = report->arena;
    MxText *out = report->out;
    mx_text_add(out, "<div class=\"wide\"><table id=\"runs\"><thead><tr><th>run</th><th>state</th>"
                     "<th class=\"number\">step</th><th class=\"number\">loss</th>"
                     "<th class=\"number\">eval loss</th><th class=\"number\">on disk</th>"
                     "<th>changed, UTC</th><th></th></tr></thead><tbody>\n");
    for (int r = 0; r < report->n_runs; r++) {
        const MxRunFacts *f = &report->runs[r].facts;
        mx_text_add(
            out,
            "<tr><td><span class=\"swatch f%d\"></span>%s</td><td>%s</td>"
            "<td class=\"number\">%s</td><td class=\"number\">%s</td>"
            "<td class=\"number\">%s</td><td class=\"number\">%s</td><td>%s</td><td>%s</td></tr>\n",
            r % REPORT_COLORS, mx_html(arena, f->name), mx_run_state_name(f->state),
            steps_text(arena, f), figure(arena, f->loss), figure(arena, f->eval_loss),
            report_bytes(arena, f->bytes), report_time(arena, f->changed_s),
            mx_html(arena, f->how));
    }
    mx_text_add(out, "</tbody></table></div>\n");
    for (int r = 0; r < report->n_runs; r++)
        if (report->runs[r].n_unreadable)
            mx_text_add(out,
                        "<p class=\"note\">%s: %lld lines of metrics.jsonl cannot be read</p>\n",
                        mx_html(arena, report->runs[r].facts.name),
                        (long long)report->runs[r].n_unreadable);
}

/* ---- one run */

static const MxJson *manifest_of(MxArena *arena, const MxRunFacts *f, int64_t step) {
    MxError ignored = {0};
    MxJson *manifest = NULL;
    const char *dir = mx_arena_printf(arena, "%s/checkpoints/%lld", f->folder, (long long)step);
    if (!mx_store_manifest(arena, dir, &manifest, &ignored)) manifest = NULL;
    mx_error_release(&ignored);
    return manifest;
}

static int64_t bytes_of(const MxJson *manifest) {
    const MxJson *files = mx_json_get(manifest, "files");
    const char *name;
    MxJson *file;
    int64_t sum = 0;
    for (size_t i = 0; mx_json_member(files, i, &name, &file); i++) {
        int64_t bytes = 0;
        mx_json_int(mx_json_get(file, "bytes"), &bytes);
        sum += bytes;
    }
    return sum;
}

static void put_checkpoints(Report *report, const MxRunFacts *f) {
    enum { MOST = 40 };
    MxText *out = report->out;
    int first = f->n_checkpoints > MOST ? f->n_checkpoints - MOST : 0;
    mx_text_add(out, "<h3>Checkpoints</h3>\n");
    if (!f->n_checkpoints) mx_text_add(out, "<p class=\"note\">none</p>\n");
    if (first)
        mx_text_add(out, "<p class=\"note\">the last %d of %d</p>\n", MOST, f->n_checkpoints);
    if (!f->n_checkpoints) return;
    mx_text_add(
        out, "<table><thead><tr><th class=\"number\">step</th><th class=\"number\">eval loss</th>"
             "<th class=\"number\">size</th></tr></thead><tbody>\n");
    for (int i = first; i < f->n_checkpoints; i++) {
        MxArena scratch = {.name = "manifest"};
        const MxJson *manifest = manifest_of(&scratch, f, f->checkpoints[i]);
        double loss = NAN;
        mx_json_number(mx_json_get(manifest, "eval_loss"), &loss);
        mx_text_add(out,
                    "<tr><td class=\"number\">%lld</td><td class=\"number\">%s</td><td "
                    "class=\"number\">%s</td></tr>\n",
                    (long long)f->checkpoints[i], figure(&scratch, loss),
                    manifest ? report_bytes(&scratch, bytes_of(manifest))
                             : "no manifest that holds");
        mx_arena_release(&scratch);
    }
    mx_text_add(out, "</tbody></table>\n");
}

static void put_pair(Report *report, const char *name, const char *text) {
    mx_text_add(report->out, "<tr><th>%s</th><td>%s</td></tr>\n", name,
                mx_html(report->arena, text));
}

/* What the newest checkpoint says of who made it, and of what. */
static void put_environment(Report *report, const ReportRun *run) {
    MxArena *arena = report->arena;
    const MxRunFacts *f = &run->facts;
    const MxJson *manifest =
        f->n_checkpoints ? manifest_of(arena, f, f->checkpoints[f->n_checkpoints - 1]) : NULL;
    const MxJson *maker = mx_json_get(manifest, "made_by"), *value;
    const MxJson *files = mx_json_get(mx_json_get(manifest, "data"), "train");
    const char *name;
    MxJson *member;
    mx_text_add(report->out, "<h3>Environment</h3>\n<table><tbody>\n");
    put_pair(report, "folder", f->folder);
    if (run->config)
        put_pair(report, "config",
                 mx_arena_strndup(arena, run->config, strcspn(run->config, "\n")));
    for (size_t i = 0; mx_json_member(maker, i, &name, &member); i++) {
        const char *text = mx_json_string(member);
        put_pair(report, mx_html(arena, name), text ? text : mx_json_dump(arena, member, false));
    }
    for (size_t i = 0; (value = mx_json_at(files, i)); i++) {
        int64_t bytes = 0;
        const char *path = mx_json_string(mx_json_get(value, "path"));
        mx_json_int(mx_json_get(value, "bytes"), &bytes);
        put_pair(report, "training data",
                 mx_arena_printf(arena, "%s, %s", path ? path : "", report_bytes(arena, bytes)));
    }
    mx_text_add(report->out, "</tbody></table>\n");
}

static void put_log(Report *report, const MxRunFacts *f) {
    enum { SHOWN = 40 };
    MxArena scratch = {.name = "log"};
    char *text = report_last_lines(&scratch, mx_path_join(&scratch, f->folder, "run.log"));
    const char *last[SHOWN];
    int n = 0;
    for (char *line; (line = report_next_line(&text)); n++) last[n % SHOWN] = line;
    mx_text_add(report->out, "<details><summary>The last lines of the log</summary><pre>");
    for (int i = n > SHOWN ? n - SHOWN : 0; i < n; i++)
        mx_text_add(report->out, "%s\n", mx_html(&scratch, last[i % SHOWN]));
    mx_text_add(report->out, "</pre></details>\n");
    mx_arena_release(&scratch);
}

static void put_run(Report *report, const ReportRun *run) {
    mx_text_add(report->out, "<section><h2>%s</h2>\n", mx_html(report->arena, run->facts.name));
    report_put_samples(report, &run->facts);
    report_put_plan(report, run);
    put_environment(report, run);
    put_checkpoints(report, &run->facts);
    put_log(report, &run->facts);
    mx_text_add(report->out, "</section>\n");
}

/* ---- */

static int points_of_each(int n_runs) {
    int points = MOST_POINTS / n_runs;
    return points > MOST_POINTS_OF_A_RUN ? MOST_POINTS_OF_A_RUN
           : points < LEAST_POINTS       ? LEAST_POINTS
                                         : points;
}

static bool read_runs(Report *report, const char *const *folders, MxError *err) {
    MxArena *arena = report->arena;
    bool ok = true;
    report->runs = mx_new_n(arena, ReportRun, report->n_runs);
    for (int r = 0; r < report->n_runs; r++) {
        ReportRun *run = &report->runs[r];
        if (!mx_report_run(arena, folders[r], &run->facts, err)) {
            ok = false; /* all that are none are told */
            continue;
        }
        run->config = report_config_text(arena, folders[r]);
        if (run->facts.step >= report->n_steps) report->n_steps = run->facts.step + 1;
    }
    for (int r = 0; ok && r < report->n_runs; r++)
        ok = report_read_series(arena, &report->runs[r], report->n_steps,
                                points_of_each(report->n_runs), err);
    return ok;
}

const char *mx_report_page(MxArena *arena, const char *const *folders, int n, MxError *err) {
    MxText out;
    Report report = {.arena = arena, .n_runs = n, .n_steps = 1, .out = &out};
    mx_text_init(&out, arena);
    if (!read_runs(&report, folders, err)) return NULL;
    mx_html_begin(&out, names_of(&report), report_style);
    put_overview(&report);
    report_put_charts(&report);
    report_put_config(&report);
    for (int r = 0; r < n; r++) put_run(&report, &report.runs[r]);
    mx_text_add(&out, "<script>%s</script>\n", report_script);
    mx_html_end(&out);
    return out.data;
}
