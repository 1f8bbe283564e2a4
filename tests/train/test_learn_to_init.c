/* test_learn_to_init.c — students whose attention maps make of their teacher's weights: steps of
 * MaxText's trainer and what its code folds behind them (scripts/golden_learn_to_init.py). Runs
 * from start to end are in test_distill_runs.c. */
#include "golden.h"
#include "train_test.h"

#include <check.h>
#include <math.h>

static MxArena arena = {.name = "learn to init"};

/* ---- steps of MaxText */

enum { STEPS = 3, KERNELS = 8 };

static const char *const cases[] = {"two_maps", "general_map", "one_layer_ties"};

static const char *const ways[] = {"", "remat_policy=full",
                                   "gradient_accumulation_steps=2 per_device_batch_size=1"};

/* Within what gradients of other tests are off, of the largest number of an array. */
static void check_array(const char *what, const MxLeaf *want, const float *got, double bound) {
    int64_t n = mx_shape_count(want->shape);
    double largest = 0, off = golden_max_abs(got, want->data, n);
    for (int64_t i = 0; i < n; i++)
        largest = fmax(largest, fabs((double)((const float *)want->data)[i]));
    ck_assert_msg(off <= bound * fmax(largest, 1e-2), "%s: %s is off by %g of %g", what, want->path,
                  off, largest);
}

/* The model's arrays of a tree whose paths have this in them, with those of a group. */
static void check_tree(MxH5 *file, const char *name, const char *what, const char *part,
                       const MxTree *tree) {
    MxTree want;
    MxError err = {0};
    mx_tree_init(&want, &arena);
    for (int i = 0; i < tree->n; i++) {
        MxLeaf leaf = tree->leaves[i];
        bool is_models = mx_text_has_prefix(leaf.path, "model/") && strstr(leaf.path, part);
        if (!is_models || leaf.kind == MX_KIND_ALIAS || !mx_leaf_has_values(&leaf)) continue;
        leaf.keeper = NULL;
        leaf.division = NULL;
        leaf.data = mx_new_n(&arena, float, mx_shape_count(leaf.shape) + 1);
        mx_tree_add(&want, leaf);
    }
    ck_assert_msg(mx_ckpt_read(file, mx_path_join(&arena, name, what), "model/", 1, &want, &err),
                  "%s", err.text.data);
    ck_assert_int_ge(want.n, KERNELS);
    for (int i = 0; i < want.n; i++) {
        int at = mx_tree_find(tree, want.leaves[i].path);
        check_array(what, &want.leaves[i], golden_values(&arena, &tree->leaves[at]), 1e-4);
    }
}

static void read_start(MxTrainState *s, MxH5 *file, const char *name) {
    MxError err = {0};
    MxTree own, *tree = mx_train_state_tree(s);
    mx_tree_init(&own, &arena);
    for (int i = 0; i < tree->n; i++)
        if (tree->leaves[i].kind != MX_KIND_ALIAS) mx_tree_add(&own, tree->leaves[i]);
    ck_assert_msg(
        mx_ckpt_read(file, mx_path_join(&arena, name, "start"), "model/", 1, &own, &err) &&
            mx_ckpt_read(file, mx_path_join(&arena, name, "teacher"), "model/", 1,
                         mx_train_teacher_tree(s), &err),
        "%s", err.text.data);
    mx_train_state_restored(s);
}

START_TEST(steps_of_maxtext) {
    const char *name = cases[_i % MX_COUNT(cases)], *way = ways[_i / MX_COUNT(cases)];
    MxH5 *file = golden_open(&arena, "train/learn_to_init.h5");
    MxTrainState *s;
    MxError err = {0};
    int64_t n;
    if (!file) return;
    MxConfig *config = golden_yaml_config(&arena, file, name, way);
    ck_assert_msg(mx_train_state_open(&arena, config, &s, &err), "%s", err.text.data);
    mx_train_state_init(s);
    read_start(s, file, name);
    const float *losses = golden_read(&arena, file, mx_path_join(&arena, name, "loss"), &n);
    const float *norms = golden_read(&arena, file, mx_path_join(&arena, name, "grad_norm"), &n);
    for (int step = 0; step < STEPS; step++) {
        MxBatch batch = golden_batch(&arena, file, "batches", step);
        ck_assert(mx_train_before_batch(s, false, step, &batch, &err));
        MxLoss loss = mx_train_loss_and_grad(s, &batch);
        MxTree gradient = golden_gradient_tree(&arena, s);
        if (!step) check_tree(file, name, "grads", "/", &gradient);
        MxUpdate update = mx_train_update(s);
        ck_assert_msg(fabs(loss.loss - (double)losses[step]) <= 1e-5 * (double)losses[step],
                      "step %d: loss %.9g, not %.9g", step, loss.loss, (double)losses[step]);
        ck_assert_msg(
            fabs(update.raw_grad_norm - (double)norms[step]) <= 1e-4 * (double)norms[step],
            "step %d: norm %.9g, not %.9g", step, update.raw_grad_norm, (double)norms[step]);
    }
    check_tree(file, name, "final", "/", mx_train_state_tree(s));
    check_tree(file, name, "folded", "/self_attention/", mx_train_folded_tree(&arena, s));
    mx_arena_release(&arena);
}
END_TEST

Suite *learn_to_init_suite(void) {
    Suite *suite = suite_create("learn to init");
    TCase *tcase = tcase_create("steps");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, steps_of_maxtext, 0, MX_COUNT(cases) * MX_COUNT(ways));
    suite_add_tcase(suite, tcase);
    return suite;
}
