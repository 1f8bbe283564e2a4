/* test_clip.c — QK-clip against MaxText: a step whose learning rate is 0 leaves all as it is but
 * the kernels of heads that had too large a score. Layers are not stacked in that golden; where
 * they are, the original takes the largest score of a stack (docs/DIFFERENCES.md). */
#include "close.h"
#include "common/told.h"
#include "golden.h"
#include "train_test.h"

#include <check.h>

static const char name[] = "train/qk_clip_unscan.h5";

/* Layers are made once or twice, batches are split: the largest score is the same. */
static const char *const ways[] = {
    "remat_policy=none",
    "remat_policy=full",
    "remat_policy=minimal",
    "remat_policy=full per_device_batch_size=2 gradient_accumulation_steps=2",
    "remat_policy=none per_device_batch_size=1 gradient_accumulation_steps=4",
};

/* Kernels of queries and keys are what the original made of them, all others as they were. */
static void check_kernels(MxArena *arena, MxH5 *file, const MxTree *state) {
    int n_clipped = 0;
    for (int i = 0; i < state->n; i++) {
        const MxLeaf *leaf = &state->leaves[i];
        int64_t n;
        if (!mx_text_has_prefix(leaf->path, "model/")) continue;
        const float *was = golden_read(arena, file, mx_path_join(arena, "nnx", leaf->path), &n);
        const float *want =
            golden_read(arena, file, mx_path_join(arena, "clipped/nnx", leaf->path), &n);
        Close c = {.golden = name, .kind = CLOSE_FINAL, .what = leaf->path};
        close_array(&c, golden_values(arena, leaf), want ? want : was, n);
        n_clipped += want && golden_max_abs(want, was, n) > 0;
    }
    ck_assert_int_eq(n_clipped, 6);
}

START_TEST(heads_with_large_scores_are_clipped) {
    MxArena arena = {.name = "clip"};
    MxError err = {0};
    MxTrainState *state;
    int64_t n;
    MxH5 *file = golden_open(&arena, name);
    if (!file) return;
    MxConfig *config = golden_yaml_config(&arena, file, "",
                                          mx_arena_printf(&arena, "learning_rate=0 %s", ways[_i]));
    ck_assert_msg(mx_train_state_open(&arena, config, &state, &err), "%s", err.text.data);
    mx_train_state_init(state);
    MxTree *tree = mx_train_state_tree(state);
    ck_assert_msg(mx_ckpt_read(file, "nnx", "model/", (int)config->param_scan_axis, tree, &err),
                  "%s", err.text.data);
    mx_train_state_begin(state);
    MxBatch batch = golden_batch(&arena, file, "batch", 0);
    mx_train_loss_and_grad(state, &batch);
    mx_train_update(state);
    const float *most = golden_read(&arena, file, "global_max_logit", &n);
    Close c = {.golden = name, .kind = CLOSE_NORM, .what = "largest score"};
    close_number(&c, told_value(state, "learning/max_logits"), (double)*most);
    check_kernels(&arena, file, tree);
    mx_arena_release(&arena);
}
END_TEST

Suite *clip_suite(void) {
    Suite *suite = suite_create("clip");
    TCase *tcase = tcase_create("heads");
    tcase_add_loop_test(tcase, heads_with_large_scores_are_clipped, 0, MX_COUNT(ways));
    suite_add_tcase(suite, tcase);
    return suite;
}
