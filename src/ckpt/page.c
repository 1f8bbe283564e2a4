/* page.c — a comparison of checkpoints as one HTML page: the arrays that differ as a table, those
 * with the largest differences first. */
#include "compare.h"

#include <mx/base_html.h>

#include <inttypes.h>

static const char style[] =
    "body { font: 14px/1.45 system-ui, sans-serif; margin: 0 auto; padding: 1em 2em 4em; "
    "max-width: 1560px; color-scheme: light dark; }\n"
    "table { border-collapse: collapse; } th, td { text-align: left; vertical-align: top; "
    "padding: .15em .8em .15em 0; } td.number, th.number { text-align: right; }\n"
    "td.path { overflow-wrap: anywhere; } thead th { border-bottom: 1px solid #888; } "
    ".note { opacity: .7; font-size: .9em; } svg { background: #8884; } .bar { fill: #d6602b; }\n";

static void put_lone(MxText *out, const char *side, const CkptLone *list, int n) {
    if (n) mx_text_add(out, "<h2>Only in %s: %d</h2>\n<table><tbody>\n", side, n);
    for (int i = 0; i < n; i++)
        mx_text_add(out, "<tr><td class=\"path\">%s</td><td>%s</td><td>%s</td></tr>\n",
                    mx_html(out->arena, list[i].path), mx_dtype_name(list[i].dtype),
                    mx_shape_text(out->arena, list[i].shape));
    if (n) mx_text_add(out, "</tbody></table>\n");
}

static void put_structure(MxText *out, const CkptReport *r) {
    int n = 0;
    for (int i = 0; i < r->n_pairs; i++) {
        const CkptPair *p = &r->pairs[i];
        if (!p->is_shape_other && !p->is_dtype_other) continue;
        if (!n++)
            mx_text_add(out, "<h2>Other shapes and dtypes</h2>\n<table><thead><tr><th>array</th>"
                             "<th>in A</th><th>in B</th></tr></thead><tbody>\n");
        mx_text_add(out, "<tr><td class=\"path\">%s</td><td>%s %s</td><td>%s %s</td></tr>\n",
                    mx_html(out->arena, p->path), mx_dtype_name(p->dtype_a),
                    mx_shape_text(out->arena, p->shape), mx_dtype_name(p->dtype_b),
                    mx_shape_text(out->arena, p->shape_b));
    }
    if (n) mx_text_add(out, "</tbody></table>\n");
}

static void put_value(MxText *out, const CkptPair *p) {
    int64_t n = mx_shape_count(p->shape);
    mx_text_add(out, "<tr><td class=\"path\">%s</td><td>%s %s</td><td>",
                mx_html(out->arena, p->path), mx_dtype_name(p->dtype_a),
                mx_shape_text(out->arena, p->shape));
    mx_html_bar(out, n ? (double)p->n_different / (double)n : 0);
    mx_text_add(out,
                "</td><td class=\"number\">%" PRId64 " of %" PRId64 "</td><td class=\"number\">%.6g"
                "</td><td class=\"number\">%.6g</td><td class=\"number\">%" PRId64 "</td><td>%s"
                "</td><td class=\"number\">%.9g</td><td class=\"number\">%.9g</td></tr>\n",
                p->n_different, n, p->max_abs, p->max_rel, p->max_ulp,
                mx_shape_text(out->arena, ckpt_pair_place(p)), p->value_a, p->value_b);
}

static void put_values(MxText *out, const CkptReport *r, int top) {
    int n = 0, n_shown = 0;
    for (int i = 0; i < r->n_pairs; i++) n += r->pairs[i].n_different > 0;
    if (!n) return;
    mx_text_add(out,
                "<h2>Other values: %d arrays</h2>\n<table><thead><tr><th>array</th><th></th>"
                "<th>elements that differ</th><th></th><th class=\"number\">largest |A - B|</th>"
                "<th class=\"number\">relative</th><th class=\"number\">floats between</th>"
                "<th>where</th><th class=\"number\">A there</th><th class=\"number\">B there</th>"
                "</tr></thead><tbody>\n",
                n);
    for (int i = 0; i < r->n_pairs && (!top || n_shown < top); i++)
        if (r->pairs[i].n_different && ++n_shown) put_value(out, &r->pairs[i]);
    mx_text_add(out, "</tbody></table>\n");
    if (n > n_shown)
        mx_text_add(out, "<p class=\"note\">and %d more arrays; --top 0 shows all</p>\n",
                    n - n_shown);
}

const char *ckpt_report_page(MxArena *arena, const CkptReport *r, const MxCompare *how) {
    MxText out;
    mx_text_init(&out, arena);
    mx_html_begin(&out, ckpt_report_is_equal(r) ? "Equal checkpoints" : "Different checkpoints",
                  style);
    mx_text_add(&out, "<table><tbody><tr><th>A</th><td>%s</td><td>%s</td></tr>\n",
                mx_html(arena, r->name_a), mx_html(arena, r->form_a));
    mx_text_add(&out, "<tr><th>B</th><td>%s</td><td>%s</td></tr></tbody></table>\n",
                mx_html(arena, r->name_b), mx_html(arena, r->form_b));
    mx_text_add(&out, "<p>%d arrays in both, %d only in A, %d only in B", r->n_pairs, r->n_only_a,
                r->n_only_b);
    if (how->structure_only)
        mx_text_add(&out, "; values were not compared</p>\n");
    else
        mx_text_add(&out,
                    "; %" PRId64 " elements compared (atol %g, rtol %g, ulp %" PRId64 ")</p>\n",
                    r->n_elements, how->atol, how->rtol, how->ulp);
    put_values(&out, r, how->top);
    put_structure(&out, r);
    put_lone(&out, "A", r->only_a, r->n_only_a);
    put_lone(&out, "B", r->only_b, r->n_only_b);
    mx_html_end(&out);
    return out.data;
}
