/* plan.c — the plan of a run: its config.yml is planned again, on the machine that makes the
 * report. Memory of a rank as a bar, figures, and the exchanges of ranks. A plan alone is a page,
 * too. */
#include "internal.h"

#include <mx/plan.h>

/* Members of a plan's "memory_per_rank", in the order of the bar. */
static const struct {
    const char *member, *name;
} parts[] = {
    {"weights", "weights"},         {"gradients", "gradients"},
    {"optimizer", "optimizer"},     {"outer", "outer"},
    {"reference", "reference"},     {"casts", "casts"},
    {"activations", "activations"}, {"buffers", "buffers"},
    {"saving", "saving"},           {"process", "process"},
};

static int64_t whole(const MxJson *object, const char *name) {
    int64_t value = 0;
    mx_json_int(mx_json_get(object, name), &value);
    return value;
}

/* The bar is as long as the memory that there is, or that is needed. */
static void put_memory(Report *report, const MxJson *memory) {
    enum { LENGTH = 720, HEIGHT = 28 };
    MxArena *arena = report->arena;
    MxText *out = report->out;
    int64_t total = whole(memory, "total");
    double x = 0, unit = total > 0 ? (double)LENGTH / (double)total : 0;
    mx_text_add(out,
                "<svg class=\"memory\" viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"memory of a "
                "rank\">",
                LENGTH, HEIGHT);
    for (int i = 0; i < MX_COUNT(parts); i++) {
        double width = (double)whole(memory, parts[i].member) * unit;
        if (width > 0)
            mx_text_add(
                out,
                "<rect class=\"f%d\" x=\"%.2f\" y=\"0\" width=\"%.2f\" height=\"%d\"><title>%s: "
                "%s</title></rect>",
                i, x, width, HEIGHT, parts[i].name,
                report_bytes(arena, whole(memory, parts[i].member)));
        x += width;
    }
    mx_text_add(out, "</svg>\n<ul class=\"legend\">");
    for (int i = 0; i < MX_COUNT(parts); i++)
        if (whole(memory, parts[i].member))
            mx_text_add(out, "<li><span class=\"swatch f%d\"></span>%s %s</li>", i, parts[i].name,
                        report_bytes(arena, whole(memory, parts[i].member)));
    mx_text_add(out, "</ul>\n<p>%s of %s that this machine has%s</p>\n", report_bytes(arena, total),
                report_bytes(arena, whole(memory, "machine")),
                total > whole(memory, "machine") ? ": <strong>not enough</strong>" : "");
}

static void put_figures(Report *report, const MxJson *plan) {
    MxArena *arena = report->arena;
    const MxJson *mesh = mx_json_get(plan, "mesh"), *axes = mx_json_get(mesh, "axes");
    const MxJson *parameters = mx_json_get(plan, "parameters"), *batch = mx_json_get(plan, "batch");
    MxText *out = report->out;
    double tflops = 0;
    const char *name;
    MxJson *value;
    mx_json_number(mx_json_get(mx_json_get(plan, "tflops_per_device"), "total"), &tflops);
    mx_text_add(out,
                "<p>%lld parameters, %lld trained; %lld rows and %lld tokens a step; %.4g TFLOP a "
                "step and device; %lld device%s",
                (long long)whole(parameters, "total"), (long long)whole(parameters, "trainable"),
                (long long)whole(batch, "rows"), (long long)whole(batch, "tokens"), tflops,
                (long long)whole(mesh, "devices"), whole(mesh, "devices") == 1 ? "" : "s: mesh");
    for (size_t i = 0; mx_json_member(axes, i, &name, &value); i++)
        if (whole(axes, name) > 1)
            mx_text_add(out, " %s=%lld", mx_html(arena, name), (long long)whole(axes, name));
    mx_text_add(out, "</p>\n");
}

static void put_collectives(Report *report, const MxJson *plan) {
    const MxJson *list = mx_json_get(plan, "collectives_per_step");
    MxText *out = report->out;
    if (!mx_json_length(list)) return;
    mx_text_add(
        out,
        "<table><thead><tr><th>exchange of a rank and step</th><th>mesh axes</th><th>times</th>"
        "<th>sent</th></tr></thead><tbody>\n");
    for (size_t i = 0; i < mx_json_length(list); i++) {
        const MxJson *row = mx_json_at(list, i);
        mx_text_add(out, "<tr><td>%s</td><td>%s</td><td>%lld</td><td>%s</td></tr>\n",
                    mx_html(report->arena, mx_json_string(mx_json_get(row, "op"))),
                    mx_html(report->arena, mx_json_string(mx_json_get(row, "mesh_axes"))),
                    (long long)whole(row, "exchanges"),
                    report_bytes(report->arena, whole(row, "bytes_sent")));
    }
    mx_text_add(out, "</tbody></table>\n");
}

static const MxJson *make_plan(MxArena *arena, const ReportRun *run, MxError *err) {
    const MxConfigRequest request = {.text = run->config, .text_name = "config.yml"};
    MxConfig *config;
    MxPlan *plan;
    if (!run->config) {
        mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE, "config.yml cannot be read");
        return NULL;
    }
    if (!mx_config_load(arena, &request, &config, err) ||
        !mx_plan_new(arena, config, NULL, &plan, err))
        return NULL;
    const char *text = mx_plan_json(arena, plan);
    return mx_json_parse(arena, text, strlen(text), "plan", err);
}

void report_put_planned(Report *report, const MxJson *plan) {
    put_memory(report, mx_json_get(plan, "memory_per_rank"));
    put_figures(report, plan);
    put_collectives(report, plan);
    report_put_shards(report, plan);
}

void report_put_plan(Report *report, const ReportRun *run) {
    MxError err = {0};
    const MxJson *plan = make_plan(report->arena, run, &err);
    mx_text_add(report->out, "<h3>Plan, memory of a rank</h3>\n");
    if (plan) {
        report_put_planned(report, plan);
    } else {
        mx_text_add(report->out,
                    "<p class=\"note\">This mxtrain (" MX_VERSION
                    ") cannot plan the run:</p><pre>%s</pre>\n",
                    mx_html(report->arena, err.text.data));
    }
    mx_error_release(&err);
}

/* ---- a page of its own */

/* What a run would be refused for, and what its rules pass over. */
static void put_findings(Report *report, const MxJson *plan) {
    static const struct {
        const char *member, *title;
    } lists[] = {{"errors_when_run", "A run would be refused"}, {"findings", "Findings"}};
    MxArena *arena = report->arena;
    for (int l = 0; l < MX_COUNT(lists); l++) {
        const MxJson *list = mx_json_get(plan, lists[l].member), *item;
        if (mx_json_length(list)) mx_text_add(report->out, "<h3>%s</h3>\n<ul>", lists[l].title);
        for (size_t i = 0; (item = mx_json_at(list, i)); i++) {
            const char *text = mx_json_string(item);
            if (!text) text = mx_json_string(mx_json_get(item, "text"));
            mx_text_add(report->out, "<li>%s</li>\n", mx_html(arena, text ? text : ""));
        }
        if (mx_json_length(list)) mx_text_add(report->out, "</ul>\n");
    }
}

const char *mx_report_plan(MxArena *arena, const MxPlan *plan, MxError *err) {
    MxText out, text;
    Report report = {.arena = arena, .out = &out};
    const char *json = mx_plan_json(arena, plan);
    const MxJson *parsed = mx_json_parse(arena, json, strlen(json), "plan", err);
    if (!parsed) return NULL;
    const char *name = mx_json_string(mx_json_get(parsed, "run_name"));
    mx_text_init(&out, arena);
    mx_text_init(&text, arena);
    mx_plan_print(plan, &text);
    mx_html_begin(&out, mx_arena_printf(arena, "Plan of %s", name ? name : "a run"), report_style);
    mx_text_add(&out, "<h3>Memory of a rank</h3>\n");
    report_put_planned(&report, parsed);
    put_findings(&report, parsed);
    mx_text_add(&out, "<details><summary>The plan as text</summary><pre>%s</pre></details>\n",
                mx_html(arena, text.data));
    mx_html_end(&out);
    return out.data;
}
