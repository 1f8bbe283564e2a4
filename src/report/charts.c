/* charts.c — the curves of all runs, as SVG that needs no script, and their points for the script
 * that shows values and zooms (page.js, which draws in the same way). */
#include "internal.h"

#include <math.h>

/* What people look at first; the rest of the metrics follow under their own names. */
static const struct {
    const char *title, *metric, *second; /* drawn with dashes in the same chart; NULL = none */
    bool must_change;                    /* a constant one is of no interest */
} rows[] = {
    {"Loss; dashed: evaluation", "learning/loss", "eval/avg_loss", false},
    {"Learning rate", "learning/current_learning_rate", NULL, false},
    {"Gradient norm before clipping", "learning/raw_grad_norm", NULL, false},
    {"Parameter norm", "learning/param_norm", NULL, false},
    {"Tokens/s of a device", "perf/per_device_tokens_per_sec", NULL, false},
    {"Seconds of a step", "perf/step_time_seconds", NULL, false},
    {"Load-balancing loss of experts; dashed: evaluation", "learning/moe_lb_loss",
     "eval/avg_moe_lb_loss", true},
};

/* A picture in units of its viewBox; page.js has the same. */
enum { WIDTH = 720, HEIGHT = 240, LEFT = 64, RIGHT = 12, TOP = 8, BOTTOM = 24 };

typedef struct Range {
    double lo, hi;
} Range;

typedef struct Chart {
    const char *title, *metric[2];
    int number;
    Range x, y;
} Chart;

static Range range_of(const Report *report, const Chart *chart) {
    Range y = {INFINITY, -INFINITY};
    for (int r = 0; r < report->n_runs; r++)
        for (int m = 0; m < 2 && chart->metric[m]; m++) {
            const ReportSeries *s = report_series(&report->runs[r], chart->metric[m]);
            for (int i = 0; s && i < s->n; i++) {
                if (isfinite(s->point[i].lo)) y.lo = fmin(y.lo, s->point[i].lo);
                if (isfinite(s->point[i].hi)) y.hi = fmax(y.hi, s->point[i].hi);
            }
        }
    return y;
}

/* ---- SVG */

/* A distance of 1, 2 or 5 times a power of ten, about n of which lie in a range. */
static double nice(Range r, int n) {
    double raw = (r.hi - r.lo) / n, power = pow(10, floor(log10(raw)));
    double factor = raw / power;
    return power * (factor <= 1 ? 1 : factor <= 2 ? 2 : factor <= 5 ? 5 : 10);
}

static double x_of(const Chart *c, double step) {
    return LEFT + (step - c->x.lo) / (c->x.hi - c->x.lo) * (WIDTH - LEFT - RIGHT);
}

static double y_of(const Chart *c, double value) {
    return HEIGHT - BOTTOM - (value - c->y.lo) / (c->y.hi - c->y.lo) * (HEIGHT - TOP - BOTTOM);
}

static void put_axes(MxText *out, const Chart *c) {
    double dx = fmax(1, nice(c->x, 8)), dy = nice(c->y, 5);
    mx_text_add(out, "<g class=\"axes\">");
    for (double v = ceil(c->y.lo / dy) * dy; v <= c->y.hi; v += dy)
        mx_text_add(
            out, "<path d=\"M%d %.1fH%d\"/><text x=\"%d\" y=\"%.1f\" class=\"y\">%.5g</text>", LEFT,
            y_of(c, v), WIDTH - RIGHT, LEFT - 6, y_of(c, v) + 4, fabs(v) < dy / 2 ? 0 : v);
    for (double v = ceil(c->x.lo / dx) * dx; v <= c->x.hi; v += dx)
        mx_text_add(out, "<text x=\"%.1f\" y=\"%d\">%.7g</text>", x_of(c, v), HEIGHT - 6, v);
    mx_text_add(out, "</g>");
}

static void put_curve(MxText *out, const Chart *c, const ReportSeries *s, int run, bool is_second) {
    bool is_drawing = false;
    mx_text_add(out, "<path class=\"k%d%s\" d=\"", run % REPORT_COLORS, is_second ? " second" : "");
    for (int i = 0; i < s->n; i++) {
        const ReportPoint *p = &s->point[i];
        bool is_there = isfinite(p->lo) && isfinite(p->hi);
        double x = x_of(c, (double)p->step);
        if (is_there) mx_text_add(out, "%c%.1f %.1f", is_drawing ? 'L' : 'M', x, y_of(c, p->lo));
        if (is_there && p->hi > p->lo) mx_text_add(out, "V%.1f", y_of(c, p->hi));
        if (is_there && !is_drawing) mx_text_add(out, "h0"); /* a dot, if nothing follows */
        is_drawing = is_there;
    }
    mx_text_add(out, "\"/>");
}

/* ---- data */

static void put_number(MxText *out, double value) {
    if (isfinite(value))
        mx_text_add(out, "%.6g,", value);
    else
        mx_text_add(out, "null,");
}

static void end_list(MxText *out) {
    if (out->data[out->len - 1] == ',') out->data[--out->len] = '\0';
    mx_text_add(out, "]");
}

static void put_points(MxText *out, const ReportSeries *s) {
    mx_text_add(out, "\"step\":[");
    for (int i = 0; i < s->n; i++) mx_text_add(out, "%lld,", (long long)s->point[i].step);
    end_list(out);
    mx_text_add(out, ",\"lo\":[");
    for (int i = 0; i < s->n; i++) put_number(out, s->point[i].lo);
    end_list(out);
    if (s->is_whole) return;
    mx_text_add(out, ",\"hi\":[");
    for (int i = 0; i < s->n; i++) put_number(out, s->point[i].hi);
    end_list(out);
}

/* ---- charts */

static void put_notes(Report *report, const Chart *chart) {
    for (int r = 0; r < report->n_runs; r++)
        for (int m = 0; m < 2 && chart->metric[m]; m++) {
            const ReportSeries *s = report_series(&report->runs[r], chart->metric[m]);
            if (!s || !s->n_odd) continue;
            mx_text_add(
                report->out, "<p class=\"note\">%s: %s is not finite at %lld of %lld steps</p>",
                mx_html(report->arena, report->runs[r].facts.name), mx_html(report->arena, s->name),
                (long long)s->n_odd, (long long)s->n_values);
        }
}

/* The picture; the points behind those of the charts before. Nothing, if no run has any. */
static bool put_chart(Report *report, Chart *chart, MxText *data) {
    MxText *out = report->out;
    chart->y = range_of(report, chart);
    if (!(chart->y.lo <= chart->y.hi)) return false;
    double room = chart->y.hi > chart->y.lo ? 0.03 * (chart->y.hi - chart->y.lo)
                                            : fmax(fabs(chart->y.hi) * 0.1, 1e-9);
    chart->y = (Range){chart->y.lo - room, chart->y.hi + room};
    const char *title = mx_html(report->arena, chart->title);
    mx_text_add(out,
                "<figure class=\"chart\" id=\"chart%d\"><figcaption>%s</figcaption><svg "
                "viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">",
                chart->number, title, WIDTH, HEIGHT, title);
    put_axes(out, chart);
    mx_text_add(out, "<g class=\"curves\">");
    mx_text_add(data, "%s{\"id\":\"chart%d\",\"series\":[", chart->number ? "," : "",
                chart->number);
    for (int r = 0, n = 0; r < report->n_runs; r++)
        for (int m = 0; m < 2 && chart->metric[m]; m++) {
            const ReportSeries *s = report_series(&report->runs[r], chart->metric[m]);
            if (!s) continue;
            put_curve(out, chart, s, r, m);
            mx_text_add(data, "%s{\"run\":%d,\"second\":%s,\"name\":%s,", n++ ? "," : "", r,
                        m ? "true" : "false", report_json_string(report->arena, s->name));
            put_points(data, s);
            mx_text_add(data, "}");
        }
    mx_text_add(data, "]}");
    mx_text_add(out, "</g></svg></figure>\n");
    put_notes(report, chart);
    return true;
}

static bool is_in_a_row(const char *metric) {
    for (int i = 0; i < MX_COUNT(rows); i++)
        if (!strcmp(metric, rows[i].metric) || (rows[i].second && !strcmp(metric, rows[i].second)))
            return true;
    return false;
}

/* One value throughout is no curve. */
static bool is_flat(const Report *report, const char *metric) {
    const Chart chart = {.metric = {metric}};
    Range y = range_of(report, &chart);
    return !(y.lo < y.hi);
}

static void put_others(Report *report, Chart chart, MxText *data) {
    MxMap seen;
    mx_map_init(&seen, report->arena);
    for (int r = 0; r < report->n_runs; r++)
        for (int i = 0; i < report->runs[r].n_series; i++) {
            const char *name = report->runs[r].series[i].name;
            if (is_in_a_row(name) || mx_map_get(&seen, name, 0) || is_flat(report, name)) continue;
            mx_map_set(&seen, name, 1);
            chart.title = chart.metric[0] = name;
            chart.number += put_chart(report, &chart, data);
        }
}

static bool is_cut(const Report *report) {
    for (int r = 0; r < report->n_runs; r++)
        for (int i = 0; i < report->runs[r].n_series; i++)
            if (!report->runs[r].series[i].is_whole) return true;
    return false;
}

void report_put_charts(Report *report) {
    MxText data, *out = report->out;
    Chart chart = {.x = {0, fmax(1, (double)report->n_steps - 1)}};
    mx_text_init(&data, report->arena);
    mx_text_add(out,
                "<section id=\"curves\"><h2>Curves</h2>\n<p class=\"note\">By step. Drag over a "
                "chart to zoom all, double-click to see all again.%s</p>\n<div class=\"charts\">\n",
                is_cut(report)
                    ? " Long curves are drawn as the least and the greatest value of equal "
                      "parts of the run: no peak is lost, but zooming shows no single steps."
                    : "");
    mx_text_add(&data, "{\"runs\":[");
    for (int r = 0; r < report->n_runs; r++)
        mx_text_add(&data, "%s%s", r ? "," : "",
                    report_json_string(report->arena, report->runs[r].facts.name));
    mx_text_add(&data, "],\"last\":%.0f,\"charts\":[", chart.x.hi);
    for (int i = 0; i < MX_COUNT(rows); i++) {
        if (rows[i].must_change && is_flat(report, rows[i].metric)) continue;
        chart.title = rows[i].title;
        chart.metric[0] = rows[i].metric;
        chart.metric[1] = rows[i].second;
        chart.number += put_chart(report, &chart, &data);
    }
    chart.metric[1] = NULL;
    mx_text_add(out, "</div>\n<details><summary>All other metrics that change</summary><div "
                     "class=\"charts\">\n");
    put_others(report, chart, &data);
    mx_text_add(out, "</div></details></section>\n");
    mx_text_add(&data, "]}");
    mx_text_add(out, "<script type=\"application/json\" id=\"data\">%s</script>\n", data.data);
}
