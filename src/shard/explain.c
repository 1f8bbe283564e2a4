/* explain.c — explains a resolution to a user: which rules were skipped and what that costs on this
 * mesh, and the complete trail of one array. Nothing is decided here; the trail comes from
 * resolve.c, and the caller decides whether a finding is a warning or an error. */
#include "internal.h"

/* One array's resolution as it ended. */
typedef struct Outcome {
    MxArena *arena;
    const MxRules *rules;
    MxSpec names;
    const MxMesh *mesh;
    const MxRule **taken; /* [rank] the rule that bound each dim, NULL = none */
} Outcome;

static Outcome outcome_of(MxArena *arena, const MxRules *rules, MxSpec names, const MxTrail *trail,
                          const MxMesh *mesh) {
    Outcome o = {.arena = arena, .rules = rules, .names = names, .mesh = mesh};
    o.taken = mx_new_n(arena, const MxRule *, names.rank > 0 ? names.rank : 0);
    for (int i = 0; i < trail->n; i++)
        if (trail->steps[i].verdict == MX_RULE_TAKEN)
            o.taken[trail->steps[i].dim] = &rules->rule[trail->steps[i].rule];
    return o;
}

static bool dim_has(const Outcome *o, int d, const char *mesh_axis) {
    MxSpecDim bound = o->names.dim[d];
    if (bound.is_name) bound = (MxSpecDim){0};
    if (o->taken[d]) bound = (MxSpecDim){.n = o->taken[d]->n, .axes = o->taken[d]->mesh_axes};
    return spec_holds(&bound, mesh_axis);
}

static bool any_has(const Outcome *o, const char *mesh_axis) {
    for (int d = 0; d < o->names.rank; d++)
        if (dim_has(o, d, mesh_axis)) return true;
    return false;
}

/* "\"mlp\" (dim 2)", or the mesh axes of a dim that has no name. */
static const char *dim_text(const Outcome *o, int d) {
    const MxSpecDim *dim = &o->names.dim[d];
    if (dim->is_name) return mx_arena_printf(o->arena, "\"%s\" (dim %d)", dim->axes[0], d);
    return mx_arena_printf(o->arena, "dim %d", d);
}

static MxFinding *push(MxArena *arena, MxFindings *out) {
    if (out->n == out->cap) {
        int cap = out->cap ? 2 * out->cap : 8;
        out->items =
            mx_arena_grow(arena, out->items, (size_t)out->n, (size_t)cap, sizeof *out->items);
        out->cap = cap;
    }
    out->items[out->n] = (MxFinding){0};
    return &out->items[out->n++];
}

/* What the passed-over rule would have given and the dim does not have, sizes above one only:
 * `lost` lists it; the answer says whether no other dim has it either. */
static bool lose(const Outcome *o, const MxRule *rule, int d, MxText *lost) {
    bool is_unused = false;
    for (int i = 0; i < rule->n; i++) {
        const char *axis = rule->mesh_axes[i];
        if (!axis || mx_mesh_size(o->mesh, axis) < 2 || dim_has(o, d, axis)) continue;
        mx_text_add(lost, "%s\"%s\"", lost->len ? ", " : "", axis);
        is_unused = is_unused || !any_has(o, axis);
    }
    return is_unused;
}

static void find_blocked(const Outcome *o, const MxTrailStep *step, MxFindings *out) {
    const MxRule *rule = &o->rules->rule[step->rule];
    MxText lost;
    mx_text_init(&lost, o->arena);
    bool is_unused = lose(o, rule, step->dim, &lost);
    bool is_made_up = o->taken[step->dim] && !is_unused;
    MxFinding *f = push(o->arena, out);
    *f = (MxFinding){.dim = step->dim, .rule = rule, .where = rule->where, .costs = lost.len > 0};
    f->is_strict = f->costs && !is_made_up;
    f->kind = f->is_strict || !o->taken[step->dim] ? MX_FIND_CONFLICT : MX_FIND_FALLBACK;
    MxText text;
    mx_text_init(&text, o->arena);
    mx_text_add(&text, "axis %s: rule %s is passed over because mesh axis \"%s\" belongs to %s",
                dim_text(o, step->dim), rule_text(o->arena, rule), step->mesh_axis,
                dim_text(o, step->holder));
    if (o->taken[step->dim])
        mx_text_add(&text, "; %s is used instead", rule_text(o->arena, o->taken[step->dim]));
    if (!f->costs)
        mx_text_add(&text, "; nothing is lost on this mesh");
    else
        mx_text_add(&text, "; not sharded over %s%s", lost.data,
                    is_unused ? ", which no dim uses" : "");
    f->text = text.data;
}

/* Mesh axes that no parameter is expected to use. */
static const char *const replica_axes[] = {"diloco", "data", "autoregressive"};

/* Is there a mesh axis of size > 1 left that this array could have been cut by? */
static bool leaves_axis_unused(const Outcome *o) {
    for (int i = 0; i < o->mesh->n; i++) {
        bool is_for_replicas = false;
        for (int k = 0; k < MX_COUNT(replica_axes); k++)
            is_for_replicas = is_for_replicas || !strcmp(o->mesh->axes[i], replica_axes[k]);
        if (o->mesh->sizes[i] > 1 && !is_for_replicas && !any_has(o, o->mesh->axes[i])) return true;
    }
    return false;
}

static void find_unruled(const Outcome *o, int d, MxFindings *out) {
    MxFinding *f = push(o->arena, out);
    *f = (MxFinding){.kind = MX_FIND_NO_RULE, .dim = d, .costs = leaves_axis_unused(o)};
    f->is_strict = f->costs;
    f->text =
        mx_arena_printf(o->arena, "axis %s: no rule names it, so it is replicated", dim_text(o, d));
    f->hint = "write [name, []] to leave an axis unsharded on purpose";
}

void mx_shard_findings(MxArena *arena, const MxRules *rules, MxSpec names, const MxTrail *trail,
                       const MxMesh *mesh, MxFindings *out) {
    Outcome o = outcome_of(arena, rules, names, trail, mesh);
    for (int i = 0; i < trail->n; i++)
        if (trail->steps[i].verdict == MX_RULE_BLOCKED) find_blocked(&o, &trail->steps[i], out);
    for (int d = 0; d < names.rank; d++)
        if (names.dim[d].is_name && mx_map_get(&rules->first, names.dim[d].axes[0], -1) < 0)
            find_unruled(&o, d, out);
}

static void add_where(MxText *out, MxWhere where) {
    if (where.file && where.line)
        mx_text_add(out, "%s:%d: ", where.file, where.line);
    else if (where.file)
        mx_text_add(out, "%s: ", where.file);
}

static void tell_step(const Outcome *o, const MxTrailStep *step, MxText *out) {
    static const char *const words[] = {
        [MX_RULE_TAKEN] = "won ", [MX_RULE_TOO_LATE] = "late", [MX_RULE_BLOCKED] = "lost"};
    const MxRule *rule = &o->rules->rule[step->rule];
    mx_text_add(out, "    %s  ", words[step->verdict]);
    add_where(out, rule->where);
    mx_text_add(out, "%s", rule_text(o->arena, rule));
    if (step->verdict == MX_RULE_TOO_LATE) mx_text_add(out, ": this dim is bound already");
    if (step->verdict == MX_RULE_BLOCKED)
        mx_text_add(out, ": mesh axis \"%s\" belongs to %s", step->mesh_axis,
                    dim_text(o, step->holder));
    mx_text_add(out, "\n");
}

/* "  => fsdp: 8 parts of 512", and why an entry of the rule came to nothing. */
static void tell_entry(const Outcome *o, MxSpec spec, int d, int64_t size, MxText *out) {
    int64_t parts = mx_shard_parts(o->mesh, &spec.dim[d]);
    mx_text_add(out, "    => ");
    spec_add(out, spec.dim[d].axes, spec.dim[d].n);
    if (spec_is_unconstrained(&spec.dim[d]))
        mx_text_add(out, ": left to the compiler");
    else if (parts == 1)
        mx_text_add(out, o->taken[d] && o->taken[d]->n ? ": replicated, its mesh axes have size 1"
                                                       : ": replicated");
    else if (size < 0)
        mx_text_add(out, ": %lld parts", (long long)parts);
    else if (size % parts)
        mx_text_add(out, ": %lld parts do not divide %lld", (long long)parts, (long long)size);
    else
        mx_text_add(out, ": %lld parts of %lld", (long long)parts, (long long)(size / parts));
    mx_text_add(out, "\n");
}

static void tell_dim(const Outcome *o, const MxTrail *trail, int d, int64_t size, MxText *out) {
    const MxSpecDim *name = &o->names.dim[d];
    mx_text_add(out, "  dim %d  ", d);
    spec_add(out, name->axes, name->n);
    if (size >= 0) mx_text_add(out, "  size %lld", (long long)size);
    mx_text_add(out, "\n");
    if (!name->is_name) mx_text_add(out, "    not a logical name: passes unchanged\n");
    if (name->is_name && mx_map_get(&o->rules->first, name->axes[0], -1) < 0)
        mx_text_add(out, "    no rule names \"%s\"\n", name->axes[0]);
    for (int i = 0; i < trail->n; i++)
        if (trail->steps[i].dim == d) tell_step(o, &trail->steps[i], out);
}

bool mx_shard_explain(MxArena *arena, const MxRules *rules, const MxMesh *mesh,
                      const MxShardArray *array, MxText *out, MxError *err) {
    MxSpec names = array->spec, raw;
    MxTrail trail = {.arena = arena};
    if (!mx_shard_resolve(arena, rules, names, &trail, &raw, err)) return false;
    Outcome o = outcome_of(arena, rules, names, &trail, mesh);
    MxSpec spec = mx_shard_clean(arena, mesh, raw);
    bool has_sizes = array->shape.rank >= names.rank && array->shape.rank > 0;
    if (array->path) mx_text_add(out, "%s\n", array->path);
    mx_text_add(out, "  mesh      %s\n  logical   %s\n", mx_mesh_text(arena, mesh),
                mx_spec_text(arena, names));
    for (int d = 0; d < names.rank; d++) {
        int64_t size = has_sizes ? array->shape.dim[d] : -1;
        tell_dim(&o, &trail, d, size, out);
        tell_entry(&o, spec, d, size, out);
    }
    mx_text_add(out, "  spec_raw  %s\n  spec      %s\n", mx_spec_text(arena, raw),
                mx_spec_text(arena, spec));
    MxFindings findings = {0};
    mx_shard_findings(arena, rules, names, &trail, mesh, &findings);
    for (int i = 0; i < findings.n; i++) {
        mx_text_add(out, "  warning: ");
        add_where(out, findings.items[i].where);
        mx_text_add(out, "%s\n", findings.items[i].text);
    }
    return true;
}
