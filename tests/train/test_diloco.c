/* test_diloco.c — runs of two ranks that DiLoCo joins, by the command line, beside MaxText's: its
 * batches as HDF5 data, the losses of both replicas in metrics, and in the checkpoint of every step
 * what its file has of that step (common/trajectory.h). */
#include "common/trajectory.h"
#include "golden.h"
#include "process.h"
#include "train_test.h"

#include <math.h>

static MxArena arena = {.name = "test"};
static MxError err;

static void tear_down(void) {
    mx_arena_release(&arena);
    mx_error_release(&err);
}

/* The batches of all steps as a trainer's data: [steps, rows of all replicas, tokens]. */
static const char *write_data(MxH5 *file, const char *dir) {
    const char *path = mx_path_join(&arena, dir, "batches.h5");
    int64_t steps = trajectory_steps(file);
    MxH5 *out;
    ck_assert_msg(mx_h5_create(&arena, path, &out, &err), "%s", err.text.data);
    for (int64_t step = 0; step < steps; step++) {
        MxBatch batch = trajectory_batch(&arena, file, step);
        const MxBox box = {.rank = 3, .start = {step}, .count = {1, batch.rows, batch.length}};
        for (int f = 0; f < MX_BATCH_FIELDS; f++) {
            const char *name =
                mx_arena_printf(&arena, "rows/%s", mx_batch_field_name((MxBatchField)f));
            bool ok = step || mx_h5_make(out, name, MX_I32,
                                         MX_SHAPE(steps, batch.rows, batch.length), &err);
            ck_assert_msg(ok && mx_h5_write_box(out, name, box, batch.field[f], &err), "%s",
                          err.text.data);
        }
    }
    ck_assert_msg(mx_h5_close(out, &err), "%s", err.text.data);
    return path;
}

static void check_losses(MxH5 *file, const char *dir) {
    int n;
    MetricsLine *lines = process_metrics(&arena, dir, "learning/loss_island_0", &n);
    ck_assert_int_eq(n, trajectory_steps(file));
    for (int step = 0; step < n; step++)
        for (int r = 0; r < TRAJECTORY_REPLICAS; r++) {
            double got = NAN, want = trajectory_loss(file, step, r);
            const char *name = mx_arena_printf(&arena, "learning/loss_island_%d", r);
            mx_json_number(mx_json_get(lines[step].json, name), &got);
            ck_assert_msg(fabs(got - want) <= trajectory_loss_bound, "%s at step %d: %g, not %g",
                          name, step, got, want);
        }
}

/* All arrays of a checkpoint that stand for a group of a step; how many they are. */
static int check_group(MxH5 *file, MxH5 *saved, const char *step, int group) {
    const char *prefix = trajectory_groups[group].prefix;
    MxH5Array *arrays;
    int n, checked = 0;
    if (!mx_h5_has_group(file,
                         mx_arena_printf(&arena, "%s/%s", step, trajectory_groups[group].group)))
        return 0;
    ck_assert_msg(mx_h5_list(&arena, saved, "", &arrays, &n, &err), "%s", err.text.data);
    for (int i = 0; i < n; i++) {
        if (!mx_text_has_prefix(arrays[i].path, prefix)) continue;
        const char *path = arrays[i].path + strlen(prefix);
        int64_t n_want, n_got;
        float *want = trajectory_array(&arena, file, step, group, path, -1, &n_want);
        float *got = golden_read(&arena, saved, arrays[i].path, &n_got);
        ck_assert_int_eq(n_got, n_want);
        double far = golden_max_abs(got, want, n_got);
        ck_assert_msg(far <= trajectory_bound, "%s: %s is off by %g", step, arrays[i].path, far);
        checked++;
    }
    ck_assert_int_gt(checked, 0);
    return checked;
}

START_TEST(a_run_is_that_of_maxtext) {
    MxH5 *file = trajectory_open(&arena, _i);
    if (!file) return;
    const char *dir = process_dir(&arena, "diloco");
    int code = process_run_ranks(
        &arena, dir, TRAJECTORY_REPLICAS,
        mx_arena_printf(&arena,
                        "--config configs/base.yml %s override_model_config=true "
                        "dataset_type=hdf5 hdf5_train_files=%s:rows enable_data_shuffling=false "
                        "eval_interval=-1 enable_checkpointing=true checkpoint_period=1 "
                        "load_parameters_path=%s:linen base_output_directory=%s run_name=x "
                        "metrics_file=%s/m.jsonl",
                        trajectory_words(&arena, file), write_data(file, dir), mx_h5_path(file),
                        dir, dir));
    ck_assert_msg(code == 0, "exit %d: %s", code, process_file(&arena, dir, "log", NULL));
    check_losses(file, dir);
    int checked = 0;
    for (int step = 1; step <= trajectory_steps(file); step++) {
        MxH5 *saved;
        const char *path = mx_arena_printf(&arena, "%s/x/checkpoints/%d/state.h5", dir, step - 1);
        ck_assert_msg(mx_h5_open(&arena, path, &saved, &err), "%s", err.text.data);
        for (int g = 0; g < MX_COUNT(trajectory_groups); g++)
            checked += check_group(file, saved, mx_arena_printf(&arena, "step%d", step), g);
    }
    ck_assert_int_gt(checked, MX_COUNT(trajectory_groups));
}
END_TEST

Suite *diloco_suite(void) {
    Suite *suite = suite_create("diloco");
    TCase *tcase = tcase_create("by command line");
    tcase_add_checked_fixture(tcase, NULL, tear_down);
    tcase_add_loop_test(tcase, a_run_is_that_of_maxtext, 0, MX_COUNT(trajectories));
    tcase_set_timeout(tcase, 120);
    suite_add_tcase(suite, tcase);
    return suite;
}
