/* trajectories.c — whole runs of DiLoCo beside MaxText's: its start, its batches, and after every
 * step the losses of both replicas, their parameters, the outer ones and the outer momentum, as far
 * as the file has them (common/trajectory.h). */
#include "common/told.h"
#include "common/trajectory.h"
#include "record.h"

#include <mx/ckpt.h>
#include <program/internal.h>

#include <math.h>

static MxArena arena = {.name = "test"};
static MxError err;

static void tear_down(void) {
    mx_arena_release(&arena);
    mx_error_release(&err);
}

/* What the two ranks of a replica share where there are four: its rows, these and its arrays, or
 * its layers. */
static const char *const beside[] = {"data", "fsdp", "pipeline"};

static MxTrainState *open_run(MxH5 *file, const char *words) {
    enum { MOST = 64 };
    const char *files[] = {"configs/base.yml"}, *set[MOST];
    char *environ[] = {NULL}, *save = NULL, *all = mx_arena_strdup(&arena, words);
    MxConfig *config;
    MxTrainState *s;
    int n = 0;
    for (char *w = strtok_r(all, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
        ck_assert_int_lt(n, MOST);
        set[n++] = w;
    }
    MxConfigRequest request = {.n_ranks = mx_comm_size(comm),
                               .files = files,
                               .n_files = 1,
                               .overrides = set,
                               .n_overrides = n,
                               .environ = environ};
    ck_assert_msg(mx_config_load(&arena, &request, &config, &err) &&
                      mx_train_state_open_on(&arena, config, comm, &s, &err),
                  "%s: %s", mx_h5_path(file), err.text.data);
    return s;
}

static MxLeaf *leaf_at(MxTrainState *s, const char *prefix, const char *path) {
    int at = mx_tree_find(&s->tree, mx_arena_printf(&arena, "%s%s", prefix, path));
    ck_assert_msg(at >= 0, "no %s%s", prefix, path);
    return &s->tree.leaves[at];
}

static void start(MxTrainState *s, MxH5 *file) {
    mx_train_state_init(s);
    ck_assert_msg(mx_ckpt_read(file, "linen", "model/", 1, &s->tree, &err), "%s", err.text.data);
    mx_train_state_restored(s);
    mx_train_state_begin(s);
}

/* How far what ends with a step is off; -1 = the file does not tell. */
static double group_distance(MxTrainState *s, MxH5 *file, int64_t step, int group) {
    const MxTree *params = mx_model_params(s->model);
    const char *name = mx_arena_printf(&arena, "step%lld", (long long)step);
    bool has_replicas = trajectory_groups[group].has_replicas;
    int64_t n, replica = has_replicas ? program_replica(&s->mesh.mesh, s->rank) : -1;
    double far = 0;
    if (!mx_h5_has_group(file,
                         mx_arena_printf(&arena, "%s/%s", name, trajectory_groups[group].group)))
        return -1;
    for (int i = 0; i < params->n; i++) {
        const char *path = params->leaves[i].path;
        float *want = trajectory_array(&arena, file, name, group, path, replica, &n);
        ck_assert_int_eq(n, mx_shape_count(params->leaves[i].shape));
        far = fmax(far,
                   record_distance(&arena, s,
                                   leaf_at(s, trajectory_groups[group].prefix, path)->array, want));
    }
    return far;
}

START_TEST(a_run_is_that_of_maxtext) {
    int ranks = mx_comm_size(comm), compared = 0;
    const char *other = beside[_i / MX_COUNT(trajectories)];
    if (ranks != 4 && (ranks != TRAJECTORY_REPLICAS || _i >= MX_COUNT(trajectories))) return;
    MxH5 *file = trajectory_open(&arena, _i % MX_COUNT(trajectories));
    if (!file) return;
    const char *at = mx_arena_printf(&arena, "%s beside %s", mx_h5_path(file), other);
    MxTrainState *s = open_run(
        file, mx_arena_printf(&arena, "%s ici_%s_parallelism=%d per_device_batch_size=%d",
                              trajectory_words(&arena, file), other, ranks / TRAJECTORY_REPLICAS,
                              2 * TRAJECTORY_REPLICAS / ranks));
    start(s, file);
    double loss_off = 0, far[MX_COUNT(trajectory_groups)] = {0};
    for (int64_t step = 0; step < trajectory_steps(file); step++) {
        MxBatch batch = trajectory_batch(&arena, file, step);
        record_loss(s, (int)step, &batch);
        for (int r = 0; r < TRAJECTORY_REPLICAS; r++) {
            double loss = told_value(s, mx_arena_printf(&arena, "learning/loss_island_%d", r));
            loss_off = fmax(loss_off, fabs(loss - trajectory_loss(file, step, r)));
        }
        mx_train_update(s);
        for (int g = 0; g < MX_COUNT(trajectory_groups); g++) {
            double off = group_distance(s, file, step + 1, g);
            compared += off >= 0;
            far[g] = fmax(far[g], off);
        }
    }
    ck_assert_int_gt(compared, MX_COUNT(trajectory_groups));
    ck_assert_msg(loss_off <= trajectory_loss_bound, "%s: losses are off by %g", at, loss_off);
    for (int g = 0; g < MX_COUNT(trajectory_groups); g++)
        ck_assert_msg(far[g] <= trajectory_bound, "%s: %s is off by %g", at,
                      trajectory_groups[g].prefix, far[g]);
}
END_TEST

Suite *trajectories_suite(void) {
    Suite *suite = suite_create("mpi/trajectories");
    TCase *tcase = tcase_create("trajectories");
    tcase_add_checked_fixture(tcase, NULL, tear_down);
    tcase_add_loop_test(tcase, a_run_is_that_of_maxtext, 0,
                        MX_COUNT(beside) * MX_COUNT(trajectories));
    tcase_set_timeout(tcase, 120);
    suite_add_tcase(suite, tcase);
    return suite;
}
