/* report.c — a comparison as text and as JSON. The arrays with the largest differences come first.
 */
#include "compare.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct Counts {
    int shapes, dtypes, values;
} Counts;

static Counts count(const CkptReport *r) {
    Counts n = {0};
    for (int i = 0; i < r->n_pairs; i++) {
        n.shapes += r->pairs[i].is_shape_other;
        n.dtypes += r->pairs[i].is_dtype_other;
        n.values += r->pairs[i].n_different > 0;
    }
    return n;
}

bool ckpt_report_is_equal(const CkptReport *r) {
    Counts n = count(r);
    return !r->n_only_a && !r->n_only_b && !n.shapes && !n.dtypes && !n.values;
}

/* Those that differ first, by largest difference, then by path. */
static int by_difference(const void *a, const void *b) {
    const CkptPair *x = a, *y = b;
    if (!x->n_different != !y->n_different) return x->n_different ? -1 : 1;
    if (x->max_abs != y->max_abs) return x->max_abs > y->max_abs ? -1 : 1;
    return strcmp(x->path, y->path);
}

MxShape ckpt_pair_place(const CkptPair *pair) {
    MxShape index = {.rank = pair->shape.rank};
    int64_t at = pair->at;
    for (int i = index.rank - 1; i >= 0; i--) {
        index.dim[i] = at % pair->shape.dim[i];
        at /= pair->shape.dim[i];
    }
    return index;
}

/* ---- text */

static void print_lone(MxArena *arena, const char *side, const CkptLone *list, int n) {
    for (int i = 0; i < n; i++)
        mx_print("only in %s: %s %s %s\n", side, list[i].path, mx_dtype_name(list[i].dtype),
                 mx_shape_text(arena, list[i].shape));
}

static void print_structure(MxArena *arena, const CkptReport *r) {
    print_lone(arena, "A", r->only_a, r->n_only_a);
    print_lone(arena, "B", r->only_b, r->n_only_b);
    for (int i = 0; i < r->n_pairs; i++) {
        const CkptPair *p = &r->pairs[i];
        if (p->is_shape_other)
            mx_print("shape: %s is %s in A, %s in B\n", p->path, mx_shape_text(arena, p->shape),
                     mx_shape_text(arena, p->shape_b));
        if (p->is_dtype_other)
            mx_print("dtype: %s is %s in A, %s in B\n", p->path, mx_dtype_name(p->dtype_a),
                     mx_dtype_name(p->dtype_b));
    }
}

static void print_values(MxArena *arena, const CkptReport *r, int top) {
    int n_shown = 0, n = count(r).values;
    for (int i = 0; i < r->n_pairs && (!top || n_shown < top); i++) {
        const CkptPair *p = &r->pairs[i];
        if (!p->n_different) continue;
        n_shown++;
        mx_print("value: %s: %" PRId64 " of %" PRId64 " elements differ; max abs %.6g, rel %.6g, "
                 "ulp %" PRId64 "; at %s A has %.9g, B %.9g\n",
                 p->path, p->n_different, mx_shape_count(p->shape), p->max_abs, p->max_rel,
                 p->max_ulp, mx_shape_text(arena, ckpt_pair_place(p)), p->value_a, p->value_b);
    }
    if (n > n_shown) mx_print("… and %d more arrays; --top 0 shows all\n", n - n_shown);
}

static void print_report(MxArena *arena, const CkptReport *r, const MxCompare *how) {
    Counts n = count(r);
    mx_print("A %s: %s\nB %s: %s\n", r->name_a, r->form_a, r->name_b, r->form_b);
    if (r->is_split) mx_print("stacked differently: layers are compared one by one\n");
    print_structure(arena, r);
    print_values(arena, r, how->top);
    if (r->n_optional)
        mx_print("%d arrays of state, which the other need not have, are only in one; that is no "
                 "difference\n",
                 r->n_optional);
    mx_print("%d arrays in both, %d only in A, %d only in B; %d other shapes, %d other dtypes\n",
             r->n_pairs, r->n_only_a, r->n_only_b, n.shapes, n.dtypes);
    if (!how->structure_only)
        mx_print("%" PRId64 " elements compared (atol %g, rtol %g, ulp %" PRId64
                 "): %d arrays have other values\n",
                 r->n_elements, how->atol, how->rtol, how->ulp, n.values);
    mx_print("%s\n", ckpt_report_is_equal(r) ? "EQUAL" : "DIFFERENT");
}

/* ---- JSON */

static void put_shape(MxArena *arena, MxJson *object, const char *key, MxShape shape) {
    mx_json_set_string(object, key, mx_shape_text(arena, shape));
}

static void put_lone(MxArena *arena, MxJson *top, const char *key, const CkptLone *list, int n) {
    MxJson *array = mx_json_put_array(top, key);
    for (int i = 0; i < n; i++) {
        MxJson *row = mx_json_push_object(array);
        mx_json_set_string(row, "path", list[i].path);
        mx_json_set_string(row, "dtype", mx_dtype_name(list[i].dtype));
        put_shape(arena, row, "shape", list[i].shape);
    }
}

static void put_values(MxArena *arena, MxJson *row, const CkptPair *p) {
    mx_json_set_int(row, "different", p->n_different);
    mx_json_set_int(row, "elements", mx_shape_count(p->shape));
    mx_json_set_number(row, "max_abs", p->max_abs);
    mx_json_set_number(row, "max_rel", p->max_rel);
    mx_json_set_int(row, "max_ulp", p->max_ulp);
    put_shape(arena, row, "index", ckpt_pair_place(p));
    mx_json_set_number(row, "a", p->value_a);
    mx_json_set_number(row, "b", p->value_b);
}

static const char *json_text(MxArena *arena, const CkptReport *r, const MxCompare *how) {
    MxJson *top = mx_json_object(arena);
    mx_json_set_string(top, "a", r->name_a);
    mx_json_set_string(top, "b", r->name_b);
    mx_json_set_bool(top, "equal", ckpt_report_is_equal(r));
    mx_json_set_bool(top, "structure_only", how->structure_only);
    mx_json_set_number(top, "atol", how->atol);
    mx_json_set_number(top, "rtol", how->rtol);
    mx_json_set_int(top, "ulp", how->ulp);
    mx_json_set_int(top, "arrays", r->n_pairs);
    mx_json_set_int(top, "elements", r->n_elements);
    put_lone(arena, top, "only_in_a", r->only_a, r->n_only_a);
    put_lone(arena, top, "only_in_b", r->only_b, r->n_only_b);
    MxJson *differences = mx_json_put_array(top, "differences");
    for (int i = 0; i < r->n_pairs; i++) {
        const CkptPair *p = &r->pairs[i];
        if (!p->is_shape_other && !p->is_dtype_other && !p->n_different) continue;
        MxJson *row = mx_json_push_object(differences);
        mx_json_set_string(row, "path", p->path);
        put_shape(arena, row, "shape_a", p->shape);
        put_shape(arena, row, "shape_b", p->shape_b);
        mx_json_set_string(row, "dtype_a", mx_dtype_name(p->dtype_a));
        mx_json_set_string(row, "dtype_b", mx_dtype_name(p->dtype_b));
        if (p->n_different) put_values(arena, row, p);
    }
    return mx_json_dump(arena, top, true);
}

bool ckpt_report_tell(MxArena *arena, CkptReport *report, const MxCompare *how, MxError *err) {
    if (report->n_pairs)
        qsort(report->pairs, (size_t)report->n_pairs, sizeof *report->pairs, by_difference);
    bool is_json = how->json_path && !strcmp(how->json_path, "-");
    if (!is_json) print_report(arena, report, how);
    if (how->html_path) {
        const char *page = ckpt_report_page(arena, report, how);
        if (!mx_file_write(how->html_path, page, strlen(page), err)) return false;
    }
    if (!how->json_path) return true;
    const char *text = json_text(arena, report, how);
    if (!is_json) return mx_file_write(how->json_path, text, strlen(text), err);
    return puts(text) >= 0 || mx_fail_errno(err, "could not write to stdout");
}
