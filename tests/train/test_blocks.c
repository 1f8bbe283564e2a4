/* test_blocks.c — block diffusion: the loss and its gradients on masked tokens against MaxText
 * (scripts/golden_blocks.py), and runs from start to end. */
#include "golden.h"
#include "process.h"
#include "train_test.h"

#include <check.h>
#include <math.h>

static const char *const alignments[] = {"same_position", "shifted"};

/* MaxText's batch as ours: a target stands where the logits are that tell it. */
static MxBatch batch_of(MxArena *arena, MxH5 *file, const char *group, bool shifts) {
    MxBatch batch = golden_batch(arena, file, group, 0);
    int64_t n, length = batch.length;
    const float *mask =
        golden_read(arena, file, mx_path_join(arena, group, "targets_loss_mask"), &n);
    ck_assert(mask && n == batch.rows * length);
    int32_t *targets = batch.field[MX_TARGETS], *told = batch.field[MX_TARGETS_SEGMENTATION];
    for (int64_t i = 0; i < n; i++) {
        bool is_last = i % length == length - 1;
        told[i] = shifts && is_last ? 0 : (int32_t)mask[i + shifts];
        if (shifts && !is_last) targets[i] = targets[i + 1];
    }
    return batch;
}

START_TEST(losses_are_maxtexts) {
    MxArena arena = {.name = "blocks"};
    MxTrainState *s;
    MxError err = {0};
    int64_t n;
    MxH5 *file = golden_open(&arena, "train/block_diffusion.h5");
    if (!file) return;
    const char *group = alignments[_i];
    MxConfig *config =
        golden_yaml_config(&arena, file, group, "packing=false dataset_type=synthetic");
    bool ok = mx_train_state_open(&arena, config, &s, &err);
    ck_assert_msg(ok, "%s", ok ? "" : err.text.data);
    mx_train_state_init(s);
    ck_assert_msg(mx_ckpt_read(file, "nnx", "model/", 1, mx_train_state_tree(s), &err), "%s",
                  err.text.data);
    MxBatch batch = batch_of(&arena, file, mx_path_join(&arena, group, "batch"), _i);
    MxLoss loss = mx_train_loss_and_grad(s, &batch);
    double want = (double)*golden_read(&arena, file, mx_path_join(&arena, group, "loss"), &n);
    double weights =
        (double)*golden_read(&arena, file, mx_path_join(&arena, group, "total_weights"), &n);
    ck_assert_msg(fabs(loss.loss - want) <= 1e-5 * want, "%.9g, not %.9g", loss.loss, want);
    ck_assert(loss.total_weights == weights);
    MxTree got = golden_gradient_tree(&arena, s), wanted;
    ok = golden_like(&arena, s, file, mx_path_join(&arena, group, "grads"), 1, &wanted, &err);
    ck_assert_msg(ok, "%s", ok ? "" : err.text.data);
    for (int i = 0; i < got.n; i++) {
        const float *x = got.leaves[i].data, *y = wanted.leaves[i].data;
        for (int64_t e = 0; e < mx_shape_count(got.leaves[i].shape); e++)
            ck_assert_msg(fabsf(x[e] - y[e]) <= 1e-4f * fabsf(y[e]) + 2e-5f, "%s: %g, not %g",
                          got.leaves[i].path, (double)x[e], (double)y[e]);
    }
    mx_arena_release(&arena);
}
END_TEST

/* A run that is cut and goes on draws the same masks, and learns: fewer bits a token than before.
 */
START_TEST(runs_go_on_exactly) {
    MxArena arena = {.name = "runs"};
    const char *dir = process_dir(&arena, "blocks_resume");
    MxText lines;
    MxError err = {0};
    mx_text_init(&lines, &arena);
    for (int i = 0; i < 64; i++)
        mx_text_add(&lines, "{\"text\": \"abcdefgh abcdefgh abcdefgh\"}\n");
    const char *data = mx_path_join(&arena, dir, "a.jsonl");
    ck_assert(mx_file_write(data, lines.data, strlen(lines.data), &err));
    static const char *const runs[][2] = {{"whole", "6"}, {"cut", "3"}, {"cut", "6"}};
    for (int i = 0; i < MX_COUNT(runs); i++)
        ck_assert_int_eq(
            process_run(
                &arena, dir,
                mx_arena_printf(
                    &arena,
                    "--config configs/base.yml base_emb_dim=32 base_num_decoder_layers=2 "
                    "base_num_query_heads=2 base_num_kv_heads=2 head_dim=16 base_mlp_dim=64 "
                    "vocab_size=300 max_target_length=32 per_device_batch_size=4 dataset_type=hf "
                    "hf_train_files=%s packing=false attention_type=block_diffusion "
                    "training_objective=block_diffusion causal_block_size=8 "
                    "block_diffusion_mask_id=299 eval_interval=-1 learning_rate=0.01 "
                    "learning_rate_schedule_steps=6 run_name=%s base_output_directory=%s steps=%s",
                    data, runs[i][0], dir, runs[i][1])),
            0);
    size_t size[2];
    const char *state[] = {
        process_file(&arena, dir, "whole/checkpoints/5/state.h5", &size[0]),
        process_file(&arena, dir, "cut/checkpoints/5/state.h5", &size[1]),
    };
    ck_assert(size[0] && size[0] == size[1] && !memcmp(state[0], state[1], size[0]));
    mx_arena_release(&arena);
}
END_TEST

Suite *blocks_suite(void) {
    Suite *suite = suite_create("block diffusion");
    TCase *tcase = tcase_create("states");
    tcase_add_loop_test(tcase, losses_are_maxtexts, 0, MX_COUNT(alignments));
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("runs");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, runs_go_on_exactly);
    suite_add_tcase(suite, tcase);
    return suite;
}
