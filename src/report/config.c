/* config.c — the configs of the runs side by side. They are read as texts, key by key, from
 * config.yml, because runs of other versions have other keys. */
#include "internal.h"

/* One key of a config.yml. */
typedef struct Line {
    const char *key, *value, *origin; /* whole texts */
} Line;

typedef struct Lines {
    Line *line;
    int n;
    MxMap by_key;
} Lines;

/* What stands before the last "  # " of a line is a value, what follows says where it is from. */
static void split(MxArena *arena, const char *text, Line *line) {
    const char *mark = NULL;
    for (const char *p = text; (p = strstr(p, "  # ")); p++) mark = p;
    line->origin = mark ? mark + strlen("  # ") : "";
    line->value = mark ? mx_arena_strndup(arena, text, (size_t)(mark - text)) : text;
    while (*line->value == ' ') line->value++;
}

/* Lists of rules go on in lines of their own. */
static void go_on(MxArena *arena, Line *line, const char *text) {
    while (*text == ' ') text++;
    line->value = mx_arena_printf(arena, "%s%s%s", line->value, *line->value ? "\n" : "", text);
}

static Lines lines_of(MxArena *arena, const char *config) {
    Lines out = {0};
    char *text = mx_arena_printf(arena, "%s\n", config ? config : "");
    size_t n_lines = 0;
    for (const char *p = text; *p; p++) n_lines += *p == '\n';
    out.line = mx_new_n(arena, Line, n_lines);
    mx_map_init(&out.by_key, arena);
    for (char *line; (line = report_next_line(&text));) {
        const char *colon = strchr(line, ':');
        if (*line == ' ' && out.n) go_on(arena, &out.line[out.n - 1], line);
        if (*line == ' ' || *line == '#' || !colon) continue;
        Line *l = &out.line[out.n];
        l->key = mx_arena_strndup(arena, line, (size_t)(colon - line));
        split(arena, colon + 1, l);
        if (mx_map_get(&out.by_key, l->key, -1) < 0) mx_map_set(&out.by_key, l->key, out.n++);
    }
    return out;
}

static const Line *find(const Lines *lines, const char *key) {
    int64_t i = mx_map_get(&lines->by_key, key, -1);
    return i < 0 ? NULL : &lines->line[i];
}

/* What a run without any file of its own would have. */
static Lines defaults(MxArena *arena) {
    MxConfig *config;
    MxError ignored = {0};
    const MxConfigRequest request = {.text = "log_config: true\n", .text_name = "defaults"};
    bool ok = mx_config_load(arena, &request, &config, &ignored);
    mx_error_release(&ignored);
    return lines_of(arena, ok ? mx_config_text(arena, config) : NULL);
}

/* ---- tables */

typedef struct Table {
    Report *report;
    const Lines *runs;
    Lines defaults;
} Table;

/* Between those that have the key: other versions may lack it. */
static bool differs_between_runs(const Table *t, const char *key) {
    const Line *first = NULL;
    for (int r = 0; r < t->report->n_runs; r++) {
        const Line *line = find(&t->runs[r], key);
        if (line && first && strcmp(line->value, first->value)) return true;
        if (!first) first = line;
    }
    return false;
}

static bool differs(const Table *t, const char *key) {
    const Line *usual = find(&t->defaults, key);
    for (int r = 0; r < t->report->n_runs; r++) {
        const Line *line = find(&t->runs[r], key);
        if (line && (!usual || strcmp(line->value, usual->value))) return true;
    }
    return differs_between_runs(t, key);
}

static void put_row(const Table *t, const char *key) {
    MxArena *arena = t->report->arena;
    MxText *out = t->report->out;
    const Line *usual = find(&t->defaults, key);
    mx_text_add(out, "<tr%s><th>%s</th><td>%s</td>",
                differs_between_runs(t, key) ? " class=\"differs\"" : "", mx_html(arena, key),
                usual ? mx_html(arena, usual->value) : "<i>unrecognized</i>");
    for (int r = 0; r < t->report->n_runs; r++) {
        const Line *line = find(&t->runs[r], key);
        if (!line)
            mx_text_add(out, "<td></td>");
        else
            mx_text_add(out, "<td>%s <span class=\"origin\">%s</span></td>",
                        mx_html(arena, line->value), mx_html(arena, line->origin));
    }
    mx_text_add(out, "</tr>\n");
}

static void put_table(const Table *t, bool is_all) {
    MxArena *arena = t->report->arena;
    MxText *out = t->report->out;
    MxMap seen;
    mx_map_init(&seen, arena);
    mx_text_add(out, "<div class=\"wide\"><table><thead><tr><th>key</th><th>default</th>");
    for (int r = 0; r < t->report->n_runs; r++)
        mx_text_add(out, "<th>%s</th>", mx_html(arena, t->report->runs[r].facts.name));
    mx_text_add(out, "</tr></thead><tbody>\n");
    for (int r = 0; r < t->report->n_runs; r++)
        for (int i = 0; i < t->runs[r].n; i++) {
            const char *key = t->runs[r].line[i].key;
            if (mx_map_get(&seen, key, 0)) continue;
            mx_map_set(&seen, key, 1);
            if (is_all || differs(t, key)) put_row(t, key);
        }
    mx_text_add(out, "</tbody></table></div>\n");
}

void report_put_config(Report *report) {
    Lines *runs = mx_new_n(report->arena, Lines, report->n_runs);
    for (int r = 0; r < report->n_runs; r++)
        runs[r] = lines_of(report->arena, report->runs[r].config);
    const Table table = {report, runs, defaults(report->arena)};
    mx_text_add(report->out,
                "<section id=\"config\"><h2>Config</h2>\n<p class=\"note\">What differs from "
                "the defaults%s, and where it comes from.</p>\n",
                report->n_runs > 1 ? " or between the runs (marked)" : "");
    put_table(&table, false);
    mx_text_add(report->out, "<details><summary>All keys</summary>\n");
    put_table(&table, true);
    mx_text_add(report->out, "</details></section>\n");
}
