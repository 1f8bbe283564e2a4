/* rules.c — lists of rules: indexed by name, merged by name, joined, rewritten for pipelines; and
 * checks of their mesh axes that need no array. Resolution is in resolve.c. */
#include "internal.h"

MxRules mx_rules_new(MxArena *arena, const MxRule *list, int n) {
    MxRule *rule = mx_new_n(arena, MxRule, n);
    int *next = mx_new_n(arena, int, n);
    MxRules out = {.rule = rule, .n = n, .next = next};
    mx_map_init(&out.first, arena);
    for (int i = n - 1; i >= 0; i--) { /* from the end, so that chains run forwards */
        rule[i] = list[i];
        next[i] = -1;
        if (!rule[i].axis) continue;
        next[i] = (int)mx_map_get(&out.first, rule[i].axis, -1);
        mx_map_set(&out.first, rule[i].axis, i);
    }
    return out;
}

MxRules mx_rules_concat(MxArena *arena, const MxRules *first, const MxRules *second) {
    MxRule *list = mx_new_n(arena, MxRule, first->n + second->n);
    for (int i = 0; i < first->n; i++) list[i] = first->rule[i];
    for (int i = 0; i < second->n; i++) list[first->n + i] = second->rule[i];
    return mx_rules_new(arena, list, first->n + second->n);
}

const char *rule_text(MxArena *arena, const MxRule *rule) {
    MxText text;
    mx_text_init(&text, arena);
    mx_text_add(&text, "%s -> ", rule->axis ? rule->axis : "None");
    spec_add(&text, rule->mesh_axes, rule->n);
    return text.data;
}

/* Mesh axes that some mesh of MaxText has or had; a mesh without them treats them as size one. */
static const char *const once_axes[] = {"sequence", "tensor_transpose"};

static bool is_known_elsewhere(const char *axis) {
    for (int i = 0; i < MX_MESH_DEFAULT_COUNT; i++)
        if (!strcmp(axis, mx_mesh_default_axes[i])) return true;
    for (int i = 0; i < MX_COUNT(once_axes); i++)
        if (!strcmp(axis, once_axes[i])) return true;
    return false;
}

static bool is_twice(const MxRule *rule, int k) {
    for (int i = 0; i < k; i++)
        if (rule->mesh_axes[i] && !strcmp(rule->mesh_axes[i], rule->mesh_axes[k])) return true;
    return false;
}

static MxFinding *push(MxArena *arena, MxFindings *out, const MxRule *rule) {
    if (out->n == out->cap) {
        int cap = out->cap ? 2 * out->cap : 8;
        out->items =
            mx_arena_grow(arena, out->items, (size_t)out->n, (size_t)cap, sizeof *out->items);
        out->cap = cap;
    }
    MxFinding *f = &out->items[out->n++];
    *f = (MxFinding){.dim = -1, .rule = rule, .where = rule->where};
    return f;
}

static void look_at_axis(MxArena *arena, const MxRule *rule, int k, const MxMesh *mesh,
                         MxFindings *out) {
    const char *axis = rule->mesh_axes[k];
    if (!axis || !strcmp(axis, "*")) return;
    if (is_twice(rule, k)) {
        MxFinding *f = push(arena, out, rule);
        f->kind = MX_FIND_TWICE;
        f->is_strict = true;
        f->text = mx_arena_printf(arena, "rule %s names mesh axis \"%s\" more than once",
                                  rule_text(arena, rule), axis);
    } else if (!*axis) {
        MxFinding *f = push(arena, out, rule);
        f->kind = MX_FIND_EMPTY_AXIS;
        f->is_strict = true;
        f->text = mx_arena_printf(arena, "rule %s has an empty mesh axis: replicated",
                                  rule_text(arena, rule));
        f->hint = "write [] to leave an axis unsharded";
    } else if (mx_mesh_find(mesh, axis) < 0) {
        bool is_known = is_known_elsewhere(axis);
        MxFinding *f = push(arena, out, rule);
        f->kind = is_known ? MX_FIND_ABSENT_AXIS : MX_FIND_UNKNOWN_AXIS;
        f->is_strict = true;
        f->text = is_known ? mx_arena_printf(arena, "rule %s: the mesh has no axis \"%s\"",
                                             rule_text(arena, rule), axis)
                           : mx_arena_printf(arena, "rule %s: unrecognized mesh axis \"%s\"",
                                             rule_text(arena, rule), axis);
        const char *nearest = is_known ? NULL : mx_nearest(axis, mesh->axes, mesh->n);
        if (nearest) f->hint = mx_arena_printf(arena, "did you mean \"%s\"?", nearest);
    }
}

void mx_rules_findings(MxArena *arena, const MxRules *rules, const MxMesh *mesh, MxFindings *out) {
    for (int i = 0; i < rules->n; i++)
        for (int k = 0; k < rules->rule[i].n; k++)
            look_at_axis(arena, &rules->rule[i], k, mesh, out);
}

bool mx_findings_fail(const MxFindings *findings, const char *path, MxError *err) {
    bool ok = true;
    for (int i = 0; i < findings->n; i++) {
        const MxFinding *f = &findings->items[i];
        if (!f->is_strict) continue;
        ok = mx_fail(err, MX_EXIT_CONFIG, f->where, "%s%s%s", path ? path : "", path ? ": " : "",
                     f->text);
        if (f->hint) mx_note(err, "hint: %s", f->hint);
    }
    return ok;
}
