/* shards.c — the mesh of a plan and how it cuts each parameter, as pictures: the ranks in a grid,
 * and of each parameter a rectangle with the part of the first rank filled. Parameters that are cut
 * alike in many layers are one row. */
#include "internal.h"

#include <stdlib.h>

enum { MOST_AXES = 16, MOST_DIMS = 8 };

/* Axes of the mesh with more than one place. */
typedef struct Axes {
    const char *name[MOST_AXES];
    int64_t size[MOST_AXES];
    int n;
    int64_t n_ranks;
} Axes;

static Axes read_axes(const MxJson *plan) {
    const MxJson *list = mx_json_get(mx_json_get(plan, "mesh"), "axes");
    Axes axes = {.n_ranks = 1};
    const char *name;
    MxJson *value;
    for (size_t i = 0; axes.n < MOST_AXES && mx_json_member(list, i, &name, &value); i++) {
        int64_t size = 1;
        mx_json_int(value, &size);
        if (size < 2) continue;
        axes.name[axes.n] = name;
        axes.size[axes.n++] = size;
        axes.n_ranks *= size;
    }
    return axes;
}

/* ---- the mesh */

enum { CELL_WIDTH = 40, CELL_HEIGHT = 22, MOST_CELLS = 16 };

static int at_most(int64_t n, int most) {
    return n < most ? (int)n : most;
}

/* Where a row of ranks is on all axes but the last: "data=0 fsdp=1". */
static const char *row_label(MxArena *arena, const Axes *axes, int64_t row) {
    const char *label = "";
    for (int a = axes->n - 2; a >= 0; a--) {
        label = mx_arena_printf(arena, "%s=%lld%s%s", axes->name[a],
                                (long long)(row % axes->size[a]), *label ? " " : "", label);
        row /= axes->size[a];
    }
    return label;
}

static int widest_label(MxArena *arena, const Axes *axes, int n_rows) {
    enum { LETTER = 7 };
    size_t most = 0;
    for (int r = 0; r < n_rows; r++) {
        size_t n = strlen(row_label(arena, axes, r));
        if (n > most) most = n;
    }
    return (int)most * LETTER + LETTER;
}

/* Ranks follow each other along the last axis, then along the one before it. */
static void put_mesh(Report *report, const Axes *axes) {
    MxArena *arena = report->arena;
    MxText *out = report->out;
    const int64_t n_columns = axes->size[axes->n - 1], n_rows = axes->n_ranks / n_columns;
    const int columns = at_most(n_columns, MOST_CELLS), rows = at_most(n_rows, MOST_CELLS);
    const int left = widest_label(arena, axes, rows), width = left + columns * CELL_WIDTH + 1,
              height = (rows + 1) * CELL_HEIGHT + 1;
    mx_text_add(out,
                "<p>Mesh: ranks by %s, from left to right, and the other axes, downwards%s</p>\n"
                "<div class=\"wide\"><svg class=\"mesh\" width=\"%d\" height=\"%d\" viewBox=\"0 0 "
                "%d %d\" role=\"img\" aria-label=\"mesh\">",
                mx_html(arena, axes->name[axes->n - 1]),
                n_columns > columns || n_rows > rows ? " (the first ones)" : "", width, height,
                width, height);
    for (int c = 0; c < columns; c++)
        mx_text_add(out, "<text x=\"%d\" y=\"%d\">%d</text>",
                    left + c * CELL_WIDTH + CELL_WIDTH / 2, CELL_HEIGHT - 7, c);
    for (int r = 0; r < rows; r++) {
        int y = (r + 1) * CELL_HEIGHT;
        mx_text_add(out, "<text class=\"y\" x=\"%d\" y=\"%d\">%s</text>", left - 6, y + 15,
                    mx_html(arena, row_label(arena, axes, r)));
        for (int c = 0; c < columns; c++) {
            int x = left + c * CELL_WIDTH;
            mx_text_add(out,
                        "<rect class=\"cell\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>"
                        "<text x=\"%d\" y=\"%d\">%lld</text>",
                        x, y, CELL_WIDTH, CELL_HEIGHT, x + CELL_WIDTH / 2, y + 15,
                        (long long)(r * n_columns + c));
        }
    }
    mx_text_add(out, "</svg></div>\n");
}

/* ---- a parameter */

/* A dim of it: its size, its logical axis, the mesh axes that cut it, and into how many parts. */
typedef struct Dim {
    int64_t size, parts;
    const char *logical, *axes;
} Dim;

typedef struct Cut {
    const char *path, *shape, *shard;
    Dim dim[MOST_DIMS];
    int n;
    int64_t n_parts;
    int n_alike; /* others with the same cut, in other layers */
} Cut;

/* The next field before a separator, or the end; NULL = there is none. */
static const char *next_field(MxArena *arena, const char **text, char separator) {
    if (!*text) return NULL;
    const char *end = strchr(*text, separator);
    const char *field =
        end ? mx_arena_strndup(arena, *text, (size_t)(end - *text)) : mx_arena_strdup(arena, *text);
    *text = end ? end + 1 : NULL;
    return field;
}

/* Whether a list of names, "(data,fsdp)", has one. */
static bool lists(const char *list, const char *name) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz_0123456789";
    for (const char *p = list; *p; p += strspn(p, letters), p += strcspn(p, letters))
        if (strspn(p, letters) == strlen(name) && !strncmp(p, name, strlen(name))) return true;
    return false;
}

static Dim read_dim(MxArena *arena, const Axes *axes, const char *size, const char *logical,
                    const char *spec) {
    Dim dim = {.size = strtoll(size, NULL, 10), .parts = 1};
    dim.logical = logical && strcmp(logical, "None") ? logical : "";
    dim.axes = "";
    for (int a = 0; spec && a < axes->n; a++)
        if (lists(spec, axes->name[a])) {
            dim.parts *= axes->size[a];
            dim.axes =
                mx_arena_printf(arena, "%s%s%s", dim.axes, *dim.axes ? ", " : "", axes->name[a]);
        }
    return dim;
}

static const char *text_of(const MxJson *object, const char *name) {
    const char *text = mx_json_string(mx_json_get(object, name));
    return text ? text : "";
}

static Cut read_cut(MxArena *arena, const Axes *axes, const MxJson *array) {
    Cut cut = {.path = text_of(array, "path"),
               .shape = text_of(array, "shape"),
               .shard = text_of(array, "shard_shape"),
               .n_parts = 1};
    const char *shape = cut.shape, *logical = text_of(array, "logical"), *size;
    const char *spec = text_of(array, "spec");
    while (cut.n < MOST_DIMS && (size = next_field(arena, &shape, 'x'))) {
        const char *name = next_field(arena, &logical, '|');
        Dim dim = read_dim(arena, axes, size, name, next_field(arena, &spec, '|'));
        cut.n_parts *= dim.parts;
        cut.dim[cut.n++] = dim;
    }
    return cut;
}

/* The first cut dim is drawn downwards and the second to the right; of one alone the last dim goes
 * to the right. Further ones are in the text. */
static void put_picture(MxText *out, const Cut *cut) {
    enum { WIDTH = 120, HEIGHT = 40, MOST_LINES = 32 };
    int64_t down = 1, right = 1;
    for (int d = 0; d < cut->n; d++) {
        int64_t parts = cut->dim[d].parts;
        if (parts > 1 && down == 1 && (right > 1 || d < cut->n - 1))
            down = parts;
        else if (parts > 1 && right == 1)
            right = parts;
    }
    mx_text_add(out,
                "<svg class=\"cut\" width=\"%d\" height=\"%d\" viewBox=\"-1 -1 %d %d\" "
                "role=\"img\" aria-label=\"%lld parts\"><rect class=\"f0\" x=\"0\" y=\"0\" "
                "width=\"%.2f\" height=\"%.2f\"/><path d=\"M0 0H%dV%dH0Z",
                WIDTH + 2, HEIGHT + 2, WIDTH + 2, HEIGHT + 2, (long long)cut->n_parts,
                (double)WIDTH / (double)right, (double)HEIGHT / (double)down, WIDTH, HEIGHT);
    for (int64_t i = 1; i < right && right <= MOST_LINES; i++)
        mx_text_add(out, "M%.1f 0V%d", (double)(i * WIDTH) / (double)right, HEIGHT);
    for (int64_t i = 1; i < down && down <= MOST_LINES; i++)
        mx_text_add(out, "M0 %.1fH%d", (double)(i * HEIGHT) / (double)down, WIDTH);
    mx_text_add(out, "\"/></svg>");
}

static void put_cut(Report *report, const Axes *axes, const Cut *cut) {
    MxArena *arena = report->arena;
    MxText *out = report->out;
    int n = 0;
    mx_text_add(out, "<tr><td>%s", mx_html(arena, cut->path));
    if (cut->n_alike) mx_text_add(out, " <span class=\"note\">and %d more</span>", cut->n_alike);
    mx_text_add(out, "</td><td>");
    put_picture(out, cut);
    mx_text_add(out, "</td><td>");
    for (int d = 0; d < cut->n; d++) {
        const Dim *dim = &cut->dim[d];
        if (dim->parts < 2) continue;
        mx_text_add(out, "%sdim %d%s%s: %lld parts over %s", n++ ? "; " : "", d,
                    *dim->logical ? " " : "", mx_html(arena, dim->logical), (long long)dim->parts,
                    mx_html(arena, dim->axes));
    }
    if (!n) mx_text_add(out, "not cut");
    mx_text_add(out,
                "</td><td class=\"shape\">%s</td><td class=\"shape\">%s</td><td "
                "class=\"number\">%lld</td></tr>\n",
                mx_html(arena, cut->shape), mx_html(arena, cut->shard),
                (long long)(axes->n_ranks / cut->n_parts));
}

/* ---- all of them */

/* A path without the number of its layer, and how it is cut: the same for all layers. */
static const char *kind_of(MxArena *arena, const Cut *cut, const MxJson *array) {
    static const char layer[] = "/layers_";
    const char *at = strstr(cut->path, layer), *rest = at ? at + strlen(layer) : cut->path;
    MxText text;
    mx_text_init(&text, arena);
    mx_text_addn(&text, cut->path, (size_t)(rest - cut->path));
    mx_text_add(&text, "%s", at ? rest + strspn(rest, "0123456789") : rest);
    mx_text_add(&text, " %s %s %s", cut->shape, cut->shard, text_of(array, "spec"));
    return text.data;
}

static int read_cuts(MxArena *arena, const Axes *axes, const MxJson *arrays, Cut *out) {
    MxMap seen;
    int n = 0;
    mx_map_init(&seen, arena);
    for (size_t i = 0; i < mx_json_length(arrays); i++) {
        const MxJson *array = mx_json_at(arrays, i);
        Cut cut = read_cut(arena, axes, array);
        const char *kind = kind_of(arena, &cut, array);
        int64_t at = mx_map_get(&seen, kind, -1);
        if (at >= 0) {
            out[at].n_alike++;
            continue;
        }
        mx_map_set(&seen, kind, n);
        out[n++] = cut;
    }
    return n;
}

void report_put_shards(Report *report, const MxJson *plan) {
    const MxJson *arrays = mx_json_get(plan, "arrays");
    const Axes axes = read_axes(plan);
    MxText *out = report->out;
    if (!axes.n) return;
    Cut *cuts = mx_new_n(report->arena, Cut, (int64_t)mx_json_length(arrays) + 1);
    int n = read_cuts(report->arena, &axes, arrays, cuts);
    put_mesh(report, &axes);
    mx_text_add(
        out,
        "<details><summary>How each parameter is cut</summary>\n<p class=\"note\">The part of rank "
        "0 is filled.</p>\n<div class=\"wide\"><table><thead><tr><th>parameter</th><th></th>"
        "<th>cut</th><th>shape</th><th>part</th><th "
        "class=\"number\">ranks with the same part</th></tr></thead><tbody>\n");
    for (int i = 0; i < n; i++) put_cut(report, &axes, &cuts[i]);
    mx_text_add(out, "</tbody></table></div></details>\n");
}
