/* ties.c — parameters of a student that are one array (distill_student_weights_share_map). The
 * parameter that a pattern matches takes the place of the one that the pattern's path names: both
 * uses read it, its gradient is the sum of theirs, and it has the only moments.
 *
 * The tree is made twice. The first one, without ties, says what there is; where the second would
 * get a parameter that is another one, model_add returns that one's index.
 *
 * Source: MaxText trainers/post_train/distillation/lti_utils.py @e591f30c, prepare_student_weights.
 * There the last of several parameters that want one place gets it, and one that others took the
 * place of lives on where it went itself; both are refused here. */
#include <mx/model.h>

#include "internal.h"

struct Ties {
    MxTree own;         /* all parameters, as they are without ties */
    int *is, *n_placed; /* [own.n] the one that is in its place; in how many others it is */
};

static const MxKey key = MX_KEY_distill_student_weights_share_map;

int model_add_tied(MxTree *tree, const Ties *ties, const char *path) {
    int own = mx_tree_find(&ties->own, path);
    MX_ASSERT(own >= 0); /* both trees are made alike */
    const MxLeaf *leaf = &ties->own.leaves[ties->is[own]];
    int at = mx_tree_find(tree, leaf->path);
    return at >= 0 ? at : mx_tree_add(tree, *leaf);
}

static int count_layers(const MxConfig *c, const MxLeaf *leaf) {
    return c->scan_layers && leaf->stack.path ? leaf->stack.count : 0;
}

/* Read alike: by products over the same dims. */
static bool is_alike(const MxConfig *c, const MxLeaf *a, const MxLeaf *b) {
    return mx_shape_equal(a->shape, b->shape) && a->kind == b->kind && a->dtype == b->dtype &&
           a->n_batch == b->n_batch && a->n_contract == b->n_contract &&
           count_layers(c, a) == count_layers(c, b);
}

static bool tie(const MxConfig *c, Ties *ties, int from, const char *path, MxError *err) {
    MxArena arena = {.name = "message"};
    const MxLeaf *leaf = &ties->own.leaves[from];
    const MxLeaf *to = mx_config_find(c, &ties->own, path, leaf);
    int place = to ? (int)(to - ties->own.leaves) : -1;
    bool ok = true;
    if (!to)
        ok = mx_config_fail(err, c, key, "the student has no %s that could be %s", path,
                            mx_config_path(c, leaf));
    else if (place != from && !is_alike(c, leaf, to))
        ok = mx_config_fail(err, c, key,
                            "%s %s cannot be %s %s: another shape, stack or kind of product",
                            mx_config_path(c, to), mx_shape_text(&arena, to->shape),
                            mx_config_path(c, leaf), mx_shape_text(&arena, leaf->shape));
    else if (place != from && ties->is[place] != place && ties->is[place] != from)
        ok = mx_config_fail(err, c, key, "%s cannot be both %s and %s", path,
                            mx_config_path(c, &ties->own.leaves[ties->is[place]]),
                            mx_config_path(c, leaf));
    else if (place != from && ties->is[place] == place) {
        ties->is[place] = from;
        ties->n_placed[from]++;
    }
    mx_arena_release(&arena);
    return ok;
}

static bool tie_matches(const MxConfig *c, Ties *ties, const char *pattern, const char *template,
                        MxError *err) {
    MxArena arena = {.name = "ties"};
    const char *why;
    MxRegex *regex = mx_regex_new(&arena, pattern, &why);
    MX_ASSERT(regex); /* the config was checked when it was loaded */
    int n_matched = 0;
    bool ok = true;
    for (int i = 0; ok && i < ties->own.n; i++) {
        const char *from = mx_config_path(c, &ties->own.leaves[i]);
        const char *path = mx_regex_expand(&arena, regex, from, template, &why);
        if (path) ok = tie(c, ties, i, path, err);
        if (why) ok = mx_config_fail(err, c, key, "%s: %s: %s", pattern, template, why);
        n_matched += path != NULL;
    }
    if (ok && !n_matched)
        ok = mx_config_fail(err, c, key, "\"%s\" matches no parameter of the student", pattern);
    mx_arena_release(&arena);
    return ok;
}

static bool check_chains(const MxConfig *c, const Ties *ties, MxError *err) {
    for (int i = 0; i < ties->own.n; i++)
        if (ties->is[i] != i && ties->n_placed[i])
            return mx_config_fail(err, c, key, "%s cannot be %s and be another parameter itself",
                                  mx_config_path(c, &ties->own.leaves[i]),
                                  mx_config_path(c, &ties->own.leaves[ties->is[i]]));
    return true;
}

/* What steps change besides the optimizer would be changed once for each use. */
static bool check_changed(const MxModel *model, MxError *err) {
    const MxConfig *c = model->config;
    for (int i = 0; i < model->n_routers; i++)
        for (int k = 0; k < i; k++)
            if (model->routers[i].bias >= 0 && model->routers[i].bias == model->routers[k].bias)
                return mx_config_fail(err, c, key,
                                      "not available for routers, whose biases are of a layer");
    for (int i = 0; c->use_qk_clip && i < model->n_heads; i++)
        for (int k = 0; k < i; k++)
            if (model->heads[i].query == model->heads[k].query ||
                model->heads[i].key == model->heads[k].key)
                return mx_config_fail(err, c, key, "not available for what use_qk_clip scales");
    return true;
}

/* The places that another parameter has taken. */
static void list_aliases(MxArena *arena, MxModel *model, const Ties *ties) {
    mx_tree_init(&model->aliases, arena);
    model->alias_of = mx_new_n(arena, int, ties->own.n + 1);
    for (int i = 0; i < ties->own.n; i++) {
        if (ties->is[i] == i) continue;
        MxLeaf leaf = ties->own.leaves[i];
        leaf.kind = MX_KIND_ALIAS;
        const char *path = ties->own.leaves[ties->is[i]].path;
        model->alias_of[mx_tree_add(&model->aliases, leaf)] = mx_tree_find(&model->params, path);
    }
}

bool model_tie_params(MxArena *arena, MxModel *model, MxError *err) {
    const MxConfig *c = model->config;
    const MxYaml *map = c->distill_student_weights_share_map;
    if (!mx_config_ties(c)) return true;
    Ties *ties = mx_new(arena, Ties);
    ties->own = model->params;
    ties->is = mx_new_n(arena, int, ties->own.n);
    ties->n_placed = mx_new_n(arena, int, ties->own.n);
    for (int i = 0; i < ties->own.n; i++) ties->is[i] = i;
    for (int i = 0; i < map->n; i++)
        if (!tie_matches(c, ties, map->pair[i].key, map->pair[i].value->text, err)) return false;
    if (!check_chains(c, ties, err)) return false;
    model->ties = ties;
    model->n_routers = model->n_heads = 0;
    model_add_params(arena, model);
    list_aliases(arena, model, ties);
    return check_changed(model, err);
}

const MxTree *mx_model_aliases(const MxModel *model, const int **of) {
    *of = model->alias_of;
    return &model->aliases;
}
