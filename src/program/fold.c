/* fold.c — the part of a program whose students learn to initialise: behind the last step, what
 * maps make of the teacher's kernels becomes a model's ordinary weights. Source: MaxText
 * layers/learn_to_init_layer.py @e591f30c, apply_lti_model_update. */
#include "internal.h"

typedef struct Fold {
    int *kernel; /* variables, by number of mx_model_kernels */
} Fold;

static bool is_wanted(const MxConfig *config) {
    return mx_config_learns_init(config);
}

static bool declare(MxTrainState *s, MxError *err) {
    Fold *own = program_part(s, PART_fold);
    (void)err;
    if (program_is_training(s))
        own->kernel = program_declare_tree(s, "folded", mx_model_kernels(s->model));
    return true;
}

static void trace_fold(MxTrainState *s, MxTrace *t) {
    const Fold *own = program_part(s, PART_fold);
    const MxTree *kernels = mx_model_kernels(s->model);
    MxValue *params = program_read_held(s, t);
    for (int i = 0; i < kernels->n; i++) {
        t->scope = kernels->leaves[i].path;
        mx_trace_assign(t, mx_model_kernel(t, s->model, params, i), own->kernel[i], false);
    }
}

static const Entry entry_fold = {
    .name = "fold", .trace = trace_fold, .is_wanted = program_is_training};
static const Entry *const entries[] = {&entry_fold, NULL};

/* Of the model's leaves, whether it is one that a folded model has none of. */
static bool is_in_map(const MxTrainState *s, const char *path) {
    int param = mx_tree_find(mx_model_params(s->model), path);
    return param >= 0 && mx_model_is_in_map(s->model, param);
}

MxTree *mx_train_folded_tree(MxArena *arena, MxTrainState *s) {
    static const char model[] = "model/";
    const Fold *own = program_part(s, PART_fold);
    const MxTree *kernels = mx_model_kernels(s->model);
    if (!own) return NULL;
    program_run_entry(s, &entry_fold);
    MxTree *tree = mx_new(arena, MxTree);
    mx_tree_init(tree, arena);
    for (int i = 0; i < s->tree.n; i++) {
        const MxLeaf *leaf = &s->tree.leaves[i];
        bool is_models = mx_text_has_prefix(leaf->path, model);
        if (is_models && !is_in_map(s, leaf->path + strlen(model))) mx_tree_add(tree, *leaf);
    }
    MxLeaf *leaf = mx_tree_add_under(tree, "model", kernels);
    for (int i = 0; i < kernels->n; i++) program_show_var(s, &leaf[i], own->kernel[i]);
    return tree;
}

const Part part_fold = {
    .is_wanted = is_wanted,
    .bytes = sizeof(Fold),
    .declare = declare,
    .entries = entries,
};
