/* spec.c — PartitionSpecs as values: made from names, printed, extended, filtered. An entry keeps
 * the rule that bound it, so that messages can name the rule's line. */
#include "internal.h"

MxSpecDim *spec_room(MxArena *arena, int rank) {
    return mx_new_n(arena, MxSpecDim, rank > 0 ? rank : 0);
}

MxSpec mx_spec_names(MxArena *arena, const char *const *axes, int rank) {
    MxSpecDim *dim = spec_room(arena, rank);
    for (int d = 0; d < rank; d++)
        if (axes[d]) dim[d] = (MxSpecDim){.n = 1, .is_name = true, .axes = &axes[d]};
    return (MxSpec){.rank = rank, .dim = dim};
}

bool spec_is_unconstrained(const MxSpecDim *dim) {
    return dim->n == 1 && !dim->is_name && dim->axes[0] && !strcmp(dim->axes[0], "*");
}

bool spec_holds(const MxSpecDim *dim, const char *mesh_axis) {
    for (int i = 0; !dim->is_name && i < dim->n; i++)
        if (dim->axes[i] && !strcmp(dim->axes[i], mesh_axis)) return true;
    return false;
}

static void add_axis(MxText *text, const char *axis) {
    mx_text_add(text, "%s", !axis ? "None" : *axis ? axis : "''");
}

void spec_add(MxText *text, const char *const *axes, int n) {
    if (n == 1) {
        add_axis(text, axes[0]);
        return;
    }
    if (n == 0) {
        add_axis(text, NULL);
        return;
    }
    for (int i = 0; i < n; i++) {
        mx_text_add(text, i ? "," : "(");
        add_axis(text, axes[i]);
    }
    mx_text_add(text, ")");
}

const char *mx_spec_text(MxArena *arena, MxSpec spec) {
    MxText text;
    mx_text_init(&text, arena);
    if (spec.rank <= 0) mx_text_add(&text, spec.rank ? "<none>" : "<empty>");
    for (int d = 0; d < spec.rank; d++) {
        if (d) mx_text_add(&text, "|");
        spec_add(&text, spec.dim[d].axes, spec.dim[d].n);
    }
    return text.data;
}

static void add_quoted(MxText *text, const char *axis) {
    mx_text_add(text, axis ? "'%s'" : "None", axis);
}

static void add_python(MxText *text, const MxSpecDim *dim) {
    if (spec_is_unconstrained(dim)) {
        mx_text_add(text, "UNCONSTRAINED");
    } else if (dim->n <= 1) {
        add_quoted(text, dim->n ? dim->axes[0] : NULL);
    } else {
        for (int i = 0; i < dim->n; i++) {
            mx_text_add(text, i ? ", " : "(");
            add_quoted(text, dim->axes[i]);
        }
        mx_text_add(text, ")");
    }
}

const char *mx_spec_python(MxArena *arena, MxSpec spec) {
    MxText text;
    mx_text_init(&text, arena);
    mx_text_add(&text, spec.rank < 0 ? "None" : "P(");
    for (int d = 0; d < spec.rank; d++) {
        if (d) mx_text_add(&text, ", ");
        add_python(&text, &spec.dim[d]);
    }
    if (spec.rank >= 0) mx_text_add(&text, spec.rank == 1 ? ",)" : ")");
    return text.data;
}

bool mx_spec_uses(MxSpec spec, const char *mesh_axis) {
    for (int d = 0; d < spec.rank; d++)
        if (spec_holds(&spec.dim[d], mesh_axis)) return true;
    return false;
}

MxSpec mx_spec_insert(MxArena *arena, MxSpec names, const char *axis, int at) {
    MX_ASSERT(names.rank >= 0);
    for (int d = 0; d < names.rank; d++)
        if (names.dim[d].is_name && !strcmp(names.dim[d].axes[0], axis)) return names;
    if (at < 0) at += names.rank;
    if (at < 0) at = 0;
    if (at > names.rank) at = names.rank;
    const char **kept = mx_new(arena, const char *);
    *kept = axis;
    MxSpecDim *dim = spec_room(arena, names.rank + 1);
    for (int d = 0; d < names.rank; d++) dim[d + (d >= at)] = names.dim[d];
    dim[at] = (MxSpecDim){.n = 1, .is_name = true, .axes = kept};
    return (MxSpec){.rank = names.rank + 1, .dim = dim};
}

MxSpecDim spec_filter(MxArena *arena, const MxSpecDim *dim,
                      bool (*keep)(const char *axis, const void *data), const void *data) {
    MxSpecDim out = {.rule = dim->rule};
    if (dim->n == 0 || spec_is_unconstrained(dim)) return *dim;
    const char **axes = mx_new_n(arena, const char *, dim->n);
    for (int i = 0; i < dim->n; i++)
        if (keep(dim->axes[i], data)) axes[out.n++] = dim->axes[i];
    out.axes = axes;
    return out;
}
