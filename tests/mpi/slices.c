/* slices.c — meshes of several slices: sums over ranks of all of them are those of one slice, and
 * half as many bytes go between two slices of two ranks as if every rank sent to all. */
#include "record.h"

#include <program/internal.h>

#include <math.h>

/* Ranks of two slices, along one axis or two; and the same ranks in one. */
static const struct {
    const char *slices[3], *whole[3];
    double share; /* of the bytes between slices, if half of the ranks were elsewhere */
} meshes[] = {
    {{"ici_data_parallelism=2", "dcn_data_parallelism=2"}, {"ici_data_parallelism=4"}, 0.5},
    {{"dcn_data_parallelism=2", "ici_fsdp_parallelism=2"},
     {"ici_data_parallelism=2", "ici_fsdp_parallelism=2"},
     1},
};

static MxConfig *config_of(MxArena *arena, const char *const mesh[3]) {
    const RankMesh none = {{0}};
    const Variant v = {.name = "slices",
                       .set = {"opt_type=sgd", "learning_rate=0.01", mesh[0], mesh[1], mesh[2]}};
    return small_config(arena, &v, &none);
}

/* The largest difference of two states' parameters, relative to the norm of each. */
static double parameters_apart(MxArena *arena, const MxTrainState *a, const MxTrainState *b) {
    double far = 0;
    for (int i = 0; i < mx_model_params(a->model)->n; i++) {
        int var = a->var.param[i];
        const float *x = record_floats(arena, a, var), *y = record_floats(arena, b, var);
        double off = 0, size = 0;
        for (int64_t k = 0; k < mx_box_count(&a->box[var]); k++) {
            off += ((double)x[k] - (double)y[k]) * ((double)x[k] - (double)y[k]);
            size += (double)y[k] * (double)y[k];
        }
        far = fmax(far, sqrt(off / fmax(size, 1e-30)));
    }
    return far;
}

static MxCommCount train(MxTrainState *s, MxArena *arena, double *losses) {
    MxCommCount before = {0}, after;
    for (int step = 0; step < STEPS; step++) {
        MxBatch batch = small_batch(arena, NULL, step);
        before = mx_comm_count(comm);
        losses[step] = mx_train_loss_and_grad(s, &batch).loss;
        mx_train_update(s);
    }
    after = mx_comm_count(comm);
    return (MxCommCount){.calls = after.calls - before.calls, .bytes = after.bytes - before.bytes};
}

START_TEST(slices_sum_as_one) {
    MxArena arena = {.name = "slices"};
    double losses[2][STEPS], off = 0;
    if (mx_comm_size(comm) != 4) return;
    MxConfig *config = config_of(&arena, meshes[_i].slices);
    MxTrainState *s = record_open(&arena, config);
    MxTrainState *whole = record_open(&arena, config_of(&arena, meshes[_i].whole));
    MxCommCount sent = train(s, &arena, losses[0]);
    train(whole, &arena, losses[1]);
    for (int step = 0; step < STEPS; step++)
        off = fmax(off, fabs(losses[0][step] / losses[1][step] - 1));
    double far = parameters_apart(&arena, s, whole);
    PlanTraffic traffic = small_plan(&arena, config).traffic;
    int64_t calls = 0, bytes = 0;
    for (int i = 0; i < traffic.n; i++) {
        calls += traffic.rows[i].calls;
        bytes += traffic.rows[i].bytes;
    }
    if (mx_comm_rank(comm) == 0)
        ck_assert_msg((uint64_t)calls == sent.calls && (uint64_t)bytes == sent.bytes,
                      "planned %lld exchanges of %lld bytes, made %llu of %llu", (long long)calls,
                      (long long)bytes, (unsigned long long)sent.calls,
                      (unsigned long long)sent.bytes);
    ck_assert_msg(off <= 1e-6, "losses are off by %g", off);
    ck_assert_msg(far <= 1e-5, "parameters are off by %g", far);
    mx_arena_release(&arena);
}
END_TEST

/* Bytes of sums between slices, and what they would be if every rank sent to all along data, of
 * which those in other slices are two of three, or the only one. */
START_TEST(fewer_bytes_go_between_slices) {
    MxArena arena = {.name = "slices"};
    if (mx_comm_size(comm) != 4) return;
    PlanTraffic cut = small_plan(&arena, config_of(&arena, meshes[_i].slices)).traffic;
    PlanTraffic whole = small_plan(&arena, config_of(&arena, meshes[_i].whole)).traffic;
    double slow = 0, usual = 0, others = meshes[_i].share < 1 ? 2.0 / 3 : 1;
    for (int i = 0; i < cut.n; i++)
        if (!strcmp(cut.rows[i].op, "all_reduce")) slow += (double)cut.rows[i].slow;
    for (int i = 0; i < whole.n; i++) {
        ck_assert_int_eq(whole.rows[i].slow, 0);
        if (!strcmp(whole.rows[i].op, "all_reduce") && strstr(whole.rows[i].axes, "data"))
            usual += others * (double)whole.rows[i].bytes;
    }
    ck_assert_msg(slow > 0.9 * meshes[_i].share * usual && slow < 1.1 * meshes[_i].share * usual,
                  "%g bytes between slices, %g if every rank sent to all", slow, usual);
    mx_arena_release(&arena);
}
END_TEST

Suite *slices_suite(void) {
    Suite *suite = suite_create("mpi/slices");
    TCase *tcase = tcase_create("slices");
    tcase_add_loop_test(tcase, slices_sum_as_one, 0, MX_COUNT(meshes));
    tcase_add_loop_test(tcase, fewer_bytes_go_between_slices, 0, MX_COUNT(meshes));
    tcase_set_timeout(tcase, 120);
    suite_add_tcase(suite, tcase);
    return suite;
}
