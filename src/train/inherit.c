/* inherit.c — weights that a new student takes from its teacher (distill_weights_copy_map). Source:
 * MaxText trainers/post_train/distillation/lti_utils.py @e591f30c, prepare_student_weights. */
#include "internal.h"

/* A state's arrays of a model, by the paths that MaxText has: of stacks where layers are scanned.
 */
typedef struct Weights {
    const MxConfig *config;
    const MxTree *tree; /* "model/…" */
    bool *is_given;     /* [tree->n] of the student's: by the teacher; NULL = the teacher's */
} Weights;

static const char *path_of(const Weights *w, const MxLeaf *leaf) {
    static const char model[] = "model/";
    const char *path = mx_config_path(w->config, leaf);
    return mx_text_has_prefix(path, model) ? path + strlen(model) : NULL;
}

static int64_t count_layers(const Weights *w, const MxLeaf *leaf) {
    return w->config->scan_layers && leaf->stack.path ? leaf->stack.count : 0;
}

/* Ranks divide both alike: by the axes of the same rules. */
static bool is_alike(const MxLeaf *a, const MxLeaf *b) {
    MxBox part = mx_leaf_part(a), other = mx_leaf_part(b);
    return a->dtype == b->dtype && !a->quant.type && !b->quant.type &&
           mx_shape_equal(a->shape, b->shape) && mx_box_equal(&part, &other);
}

static bool refuse(const MxConfig *c, const char *from, const char *to, MxError *err) {
    return mx_config_fail(err, c, MX_KEY_distill_weights_copy_map,
                          "the teacher's %s does not fit the student's %s", from, to);
}

static const char *describe(MxArena *arena, const Weights *w, const MxLeaf *leaf) {
    int64_t n = count_layers(w, leaf);
    const char *layers = n ? mx_arena_printf(arena, " of %lld layers", (long long)n) : "";
    return mx_arena_printf(arena, "%s %s%s%s", path_of(w, leaf), mx_dtype_name(leaf->dtype),
                           mx_shape_text(arena, leaf->shape), layers);
}

static bool copy(MxArena *arena, const Weights *from, const Weights *to, const MxLeaf *leaf,
                 const char *path, MxError *err) {
    const MxLeaf *own =
        mx_config_find(to->config, to->tree, mx_path_join(arena, "model", path), leaf);
    if (!own)
        return mx_config_fail(err, to->config, MX_KEY_distill_weights_copy_map,
                              "the student has no %s to take the teacher's %s", path,
                              path_of(from, leaf));
    if (!is_alike(leaf, own) || count_layers(from, leaf) != count_layers(to, own))
        return refuse(to->config, describe(arena, from, leaf), describe(arena, to, own), err);
    mx_leaf_write(own, mx_leaf_values(arena, leaf));
    to->is_given[own - to->tree->leaves] = true;
    return true;
}

/* All that one pattern matches. */
static bool copy_matches(const Weights *from, const Weights *to, const char *pattern,
                         const char *template, MxError *err) {
    MxArena arena = {.name = "inherit"};
    const char *why;
    MxRegex *regex = mx_regex_new(&arena, pattern, &why);
    MX_ASSERT(regex); /* the config was checked when it was loaded */
    int n_copied = 0;
    bool ok = true;
    for (int i = 0; ok && i < from->tree->n; i++) {
        MxArena own = {.name = "values"};
        const MxLeaf *leaf = &from->tree->leaves[i];
        const char *path = mx_regex_expand(&arena, regex, path_of(from, leaf), template, &why);
        if (path) ok = copy(&own, from, to, leaf, path, err);
        if (why)
            ok = mx_config_fail(err, to->config, MX_KEY_distill_weights_copy_map, "%s: %s: %s",
                                pattern, template, why);
        n_copied += path != NULL;
        mx_arena_release(&own);
    }
    if (ok && !n_copied)
        ok = mx_config_fail(err, to->config, MX_KEY_distill_weights_copy_map,
                            "\"%s\" matches no parameter of the teacher", pattern);
    if (ok) mx_log("%s: took %d arrays from the teacher", pattern, n_copied);
    mx_arena_release(&arena);
    return ok;
}

/* What maps read of the teacher's weights is nothing before it is taken. */
static bool check_taken(const MxTrainState *s, const Weights *to, MxError *err) {
    const MxModel *model = mx_train_state_model(s);
    MxArena arena = {.name = "taken"};
    bool ok = true;
    for (int i = 0; ok && i < mx_model_kernels(model)->n; i++) {
        const char *path = mx_model_params(model)->leaves[mx_model_taken(model, i)].path;
        int at = mx_tree_find(to->tree, mx_path_join(&arena, "model", path));
        if (!to->is_given[at])
            ok = mx_config_fail(err, to->config, MX_KEY_learn_to_init_mode,
                                "distill_weights_copy_map takes nothing of the teacher's for %s",
                                path_of(to, &to->tree->leaves[at]));
    }
    mx_arena_release(&arena);
    return ok;
}

bool train_inherit(MxTrainState *s, MxError *err) {
    MxArena arena = {.name = "given"};
    const MxConfig *c = mx_train_state_config(s);
    const MxYaml *map = c->distill_weights_copy_map;
    const Weights from = {c->teacher, mx_train_teacher_tree(s), NULL};
    const MxTree *own = mx_train_state_tree(s);
    const Weights to = {c, own, mx_new_n(&arena, bool, own->n)};
    bool ok = true;
    for (int i = 0; ok && from.tree && i < map->n; i++)
        ok = copy_matches(&from, &to, map->pair[i].key, map->pair[i].value->text, err);
    if (ok && map->n) mx_train_state_restored(s);
    ok = ok && (!from.tree || c->load_parameters_path || check_taken(s, &to, err));
    mx_arena_release(&arena);
    return ok;
}
