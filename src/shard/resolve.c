/* resolve.c — logical names to PartitionSpecs. One walk over the rules determines both the spec and
 * the reasons: every rule whose name occurs is a step, and a trail, if requested, keeps the steps.
 * The walk visits only rules for the array's own names, in list order, by merging the chains of the
 * index. explain.c presents a trail to users. */
#include "internal.h"

/* One resolution under way. */
typedef struct Walk {
    MxArena scratch;
    const MxRules *rules;
    MxSpec names;
    MxSpecDim *dim;  /* result */
    bool *is_open;   /* no rule has bound the dim yet */
    int *next_rule;  /* of the dim's name, -1 = none left */
    MxMap holder_of; /* mesh axis to the dim that has it */
    MxTrail *trail;
} Walk;

/* None and UNCONSTRAINED are nobody's. */
static bool can_be_taken(const char *mesh_axis) {
    return mesh_axis && strcmp(mesh_axis, "*") != 0;
}

static void take(Walk *w, const char *const *mesh_axes, int n, int dim) {
    for (int i = 0; i < n; i++)
        if (can_be_taken(mesh_axes[i])) mx_map_set(&w->holder_of, mesh_axes[i], dim);
}

static bool repeats_earlier(MxSpec names, int d) {
    for (int i = 0; i < d; i++)
        if (names.dim[i].is_name && !strcmp(names.dim[i].axes[0], names.dim[d].axes[0]))
            return true;
    return false;
}

/* Refuses names that occur twice, each listed once, in the order in which they first occur. */
static bool check_names(MxArena *scratch, MxSpec names, MxError *err) {
    MxText text;
    mx_text_init(&text, scratch);
    for (int d = 0; d < names.rank; d++) {
        if (!names.dim[d].is_name || repeats_earlier(names, d)) continue;
        for (int later = d + 1; later < names.rank; later++)
            if (names.dim[later].is_name &&
                !strcmp(names.dim[later].axes[0], names.dim[d].axes[0])) {
                mx_text_add(&text, "%s\"%s\"", text.len ? ", " : "", names.dim[d].axes[0]);
                break;
            }
    }
    if (!text.len) return true;
    return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "axis %s occurs more than once in %s",
                   text.data, mx_spec_text(scratch, names));
}

static void start(Walk *w, MxArena *arena) {
    int rank = w->names.rank;
    w->dim = spec_room(arena, rank);
    w->is_open = mx_new_n(&w->scratch, bool, rank);
    w->next_rule = mx_new_n(&w->scratch, int, rank);
    mx_map_init(&w->holder_of, &w->scratch);
    for (int d = 0; d < rank; d++) {
        const MxSpecDim *name = &w->names.dim[d];
        w->is_open[d] = name->is_name;
        w->next_rule[d] = name->is_name ? (int)mx_map_get(&w->rules->first, name->axes[0], -1) : -1;
        if (name->is_name) continue;
        w->dim[d] = *name;
        take(w, name->axes, name->n, d);
    }
}

/* The dim whose next rule comes first in the list, or -1. */
static int earliest(const Walk *w) {
    int best = -1;
    for (int d = 0; d < w->names.rank; d++)
        if (w->next_rule[d] >= 0 && (best < 0 || w->next_rule[d] < w->next_rule[best])) best = d;
    return best;
}

static void record(MxTrail *trail, MxTrailStep step) {
    if (!trail) return;
    if (trail->n == trail->cap) {
        int cap = trail->cap ? 2 * trail->cap : 8;
        trail->steps = mx_arena_grow(trail->arena, trail->steps, (size_t)trail->n, (size_t)cap,
                                     sizeof *trail->steps);
        trail->cap = cap;
    }
    trail->steps[trail->n++] = step;
}

/* What the rule does to the dim; on MX_RULE_TAKEN the caller binds it. */
static MxTrailStep judge(const Walk *w, int rule, int dim) {
    MxTrailStep step = {.rule = rule, .dim = dim, .verdict = MX_RULE_TAKEN, .holder = -1};
    if (!w->is_open[dim]) {
        step.verdict = MX_RULE_TOO_LATE;
        return step;
    }
    const MxRule *r = &w->rules->rule[rule];
    for (int i = 0; i < r->n; i++) {
        if (!can_be_taken(r->mesh_axes[i])) continue;
        int holder = (int)mx_map_get(&w->holder_of, r->mesh_axes[i], -1);
        if (holder < 0) continue;
        step.verdict = MX_RULE_BLOCKED;
        step.mesh_axis = r->mesh_axes[i];
        step.holder = holder;
        return step;
    }
    return step;
}

static void bind(Walk *w, const MxRule *rule, int dim) {
    w->is_open[dim] = false;
    take(w, rule->mesh_axes, rule->n, dim);
    /* P() turns a lone '' into None, but it has counted as taken above. */
    bool is_empty = rule->n == 1 && rule->mesh_axes[0] && !*rule->mesh_axes[0];
    w->dim[dim] = (MxSpecDim){.n = is_empty ? 0 : rule->n, .axes = rule->mesh_axes, .rule = rule};
}

bool mx_shard_resolve(MxArena *arena, const MxRules *rules, MxSpec names, MxTrail *trail,
                      MxSpec *out, MxError *err) {
    *out = names;
    if (names.rank <= 0) return true;
    Walk w = {.scratch = {.name = "resolve"}, .rules = rules, .names = names, .trail = trail};
    bool ok = check_names(&w.scratch, names, err);
    if (ok) {
        start(&w, arena);
        for (int d; (d = earliest(&w)) >= 0;) {
            int rule = w.next_rule[d];
            w.next_rule[d] = rules->next[rule];
            MxTrailStep step = judge(&w, rule, d);
            if (step.verdict == MX_RULE_TAKEN) bind(&w, &rules->rule[rule], d);
            record(trail, step);
        }
        *out = (MxSpec){.rank = names.rank, .dim = w.dim};
    }
    mx_arena_release(&w.scratch);
    return ok;
}

static bool is_cut(const char *axis, const void *mesh) {
    return axis && mx_mesh_size(mesh, axis) > 1;
}

MxSpec mx_shard_clean(MxArena *arena, const MxMesh *mesh, MxSpec spec) {
    MxSpecDim *dim = spec_room(arena, spec.rank);
    for (int d = 0; d < spec.rank; d++) dim[d] = spec_filter(arena, &spec.dim[d], is_cut, mesh);
    return (MxSpec){.rank = spec.rank, .dim = dim};
}

/* Mesh axis k of dim d, for the two checks below: where it was asked for and how a message begins.
 */
typedef struct Use {
    const MxMesh *mesh;
    MxSpec spec;
    int d, k;
    const char *prefix, *colon; /* "PATH" and ": ", or empty */
} Use;

static MxWhere where_of(const Use *use) {
    const MxSpecDim *dim = &use->spec.dim[use->d];
    return dim->rule ? dim->rule->where : MX_NOWHERE;
}

/* Whether dim `before` has the axis, among the first n of its axes. */
static bool has_axis(const MxSpecDim *before, int n, const char *axis) {
    for (int i = 0; i < n && !spec_is_unconstrained(before); i++)
        if (before->axes[i] && !strcmp(before->axes[i], axis)) return true;
    return false;
}

static bool is_used_once(const Use *use, MxError *err) {
    const MxSpecDim *dim = use->spec.dim;
    const char *axis = dim[use->d].axes[use->k];
    if (!axis) return true;
    for (int before = 0; before < use->d; before++)
        if (has_axis(&dim[before], dim[before].n, axis))
            return mx_fail(err, MX_EXIT_CONFIG, where_of(use),
                           "%s%smesh axis \"%s\" is used more than once: by dim %d and dim %d",
                           use->prefix, use->colon, axis, before, use->d);
    if (!has_axis(&dim[use->d], use->k, axis)) return true;
    return mx_fail(err, MX_EXIT_CONFIG, where_of(use),
                   "%s%smesh axis \"%s\" is used more than once by dim %d", use->prefix, use->colon,
                   axis, use->d);
}

static bool is_of_mesh(const Use *use, MxError *err) {
    const MxMesh *mesh = use->mesh;
    const char *axis = use->spec.dim[use->d].axes[use->k];
    if (mx_mesh_find(mesh, axis) >= 0) return true;
    mx_fail(err, MX_EXIT_CONFIG, where_of(use), "%s%sdim %d: the mesh has no axis \"%s\"",
            use->prefix, use->colon, use->d, axis ? axis : "None");
    const char *nearest = axis ? mx_nearest(axis, mesh->axes, mesh->n) : NULL;
    if (nearest) mx_note(err, "hint: did you mean \"%s\"?", nearest);
    return false;
}

bool mx_shard_check(const MxMesh *mesh, MxSpec spec, const char *path, MxError *err) {
    bool (*const checks[])(const Use *, MxError *) = {is_used_once, is_of_mesh};
    Use use = {.mesh = mesh, .spec = spec, .prefix = path ? path : "", .colon = path ? ": " : ""};
    for (int i = 0; i < MX_COUNT(checks); i++)
        for (use.d = 0; use.d < spec.rank; use.d++) {
            if (spec_is_unconstrained(&spec.dim[use.d])) continue;
            for (use.k = 0; use.k < spec.dim[use.d].n; use.k++)
                if (!checks[i](&use, err)) return false;
        }
    return true;
}

/* The names as mesh axes, for runs without rules. */
static MxSpec as_mesh_axes(MxArena *arena, MxSpec names) {
    MxSpecDim *dim = spec_room(arena, names.rank);
    for (int d = 0; d < names.rank; d++) {
        dim[d] = names.dim[d];
        dim[d].is_name = false;
    }
    return (MxSpec){.rank = names.rank, .dim = dim};
}

bool mx_shard_resolve_variable(MxArena *arena, const MxVariable *variable, const MxRules *rules,
                               const MxMesh *mesh, MxResolved *out, MxError *err) {
    *out = (MxResolved){.names = variable->names};
    if (variable->names.rank <= 0) { /* no annotation: P() whatever the rank */
        *out = (MxResolved){0};
        return true;
    }
    if (variable->partition)
        out->names =
            mx_spec_insert(arena, variable->names, variable->partition, variable->scan_axis);
    MxRules joined = *rules;
    if (variable->local) joined = mx_rules_concat(arena, variable->local, rules);
    if (!joined.n)
        out->raw = as_mesh_axes(arena, out->names);
    else if (!mx_shard_resolve(arena, &joined, out->names, NULL, &out->raw, err))
        return false;
    out->spec = mx_shard_clean(arena, mesh, out->raw);
    return true;
}
