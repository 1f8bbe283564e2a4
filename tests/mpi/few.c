/* few.c — gradients that ranks exchange in few bits: bytes as planned, a half and a quarter of
 * those of float32; what an exchange loses is made good by the next ones; training close to that
 * with float32; the same state after a checkpoint. */
#include "common/saving.h"
#include "common/vars.h"
#include "record.h"

#include <program/internal.h>
#include <train/checkpoint.h>
#include <train/internal.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Meshes of 2 and 4 ranks, by the sizes of axes: sums along data, sums scattered along fsdp, both
 * one after the other, and beside an axis along which nothing is summed. */
static const struct {
    const char *axes[2];
    int64_t size[2];
    int slices;       /* along data; 0 = one */
    const char *more; /* the key that says so */
} meshes[] = {
    {.axes = {"data"}, .size = {2}},
    {.axes = {"fsdp"}, .size = {2}},
    {.axes = {"data"}, .size = {4}},
    {.axes = {"fsdp"}, .size = {4}},
    {.axes = {"data", "fsdp"}, .size = {2, 2}},
    {.axes = {"fsdp", "tensor"}, .size = {2, 2}},
    {.axes = {"data", "context"}, .size = {2, 2}},
    {.axes = {"data"}, .size = {2}, .slices = 2, .more = "dcn_data_parallelism=2"},
};

static const struct {
    const char *set;
    double share; /* of the bytes of float32 */
} wires[] = {
    {"gradient_exchange_dtype=bfloat16", 0.5},
    {"gradient_exchange_dtype=int8", 0.25},
};

static bool rank_mesh(int i, RankMesh *out) {
    int64_t ranks = meshes[i].slices ? meshes[i].slices : 1;
    *out = (RankMesh){{0}};
    for (int a = 0; a < MX_MESH_DEFAULT_COUNT; a++) {
        out->size[a] = 1;
        for (int k = 0; k < MX_COUNT(meshes[i].axes); k++)
            if (meshes[i].axes[k] && !strcmp(meshes[i].axes[k], mx_mesh_default_axes[a]))
                out->size[a] = meshes[i].size[k];
        ranks *= out->size[a];
    }
    return ranks == mx_comm_size(comm);
}

static int64_t planned(const PlanTraffic *traffic) {
    int64_t bytes = 0;
    for (int i = 0; i < traffic->n; i++) bytes += traffic->rows[i].bytes;
    return bytes;
}

/* ---- bytes */

/* What an update sends, where all micro-batches' gradients are exchanged: these, and scalars. */
static uint64_t update_bytes(MxArena *arena, int number, const RankMesh *mesh, const char *set) {
    const Variant v = {.name = "update",
                       .set = {"gradient_accumulation_steps=2", set, meshes[number].more},
                       .parts = 2};
    MxTrainState *s = record_open(arena, small_config(arena, &v, mesh));
    MxBatch batch = small_batch(arena, NULL, 0);
    mx_train_loss_and_grad(s, &batch);
    MxCommCount before = mx_comm_count(comm);
    mx_train_update(s);
    return mx_comm_count(comm).bytes - before.bytes;
}

START_TEST(bytes_are_as_planned_and_fewer) {
    int mesh_number = _i / MX_COUNT(wires), wire = _i % MX_COUNT(wires);
    MxArena arena = {.name = "bytes"};
    RankMesh mesh;
    if (!rank_mesh(mesh_number, &mesh) || small_rows(NULL) % (4 * mx_comm_size(comm))) return;
    const Variant v = {.name = "few", .set = {wires[wire].set, meshes[mesh_number].more}};
    const MxConfig *config = small_config(&arena, &v, &mesh);
    MxTrainState *s = record_open(&arena, config);
    MxCommCount before = mx_comm_count(comm);
    MxBatch batch = small_batch(&arena, NULL, 0);
    mx_train_loss_and_grad(s, &batch);
    mx_train_update(s);
    MxCommCount sent = mx_comm_count(comm);
    sent.bytes -= before.bytes;
    PlanTraffic traffic = small_plan(&arena, config).traffic;
    uint64_t whole = update_bytes(&arena, mesh_number, &mesh, "reduce_gradients_once=true");
    uint64_t few = update_bytes(&arena, mesh_number, &mesh, wires[wire].set);
    double share = (double)few / (double)whole;
    if (mx_comm_rank(comm) == 0)
        ck_assert_msg((uint64_t)planned(&traffic) == sent.bytes, "planned %lld bytes, sent %llu",
                      (long long)planned(&traffic), (unsigned long long)sent.bytes);
    /* scales, and ends of rows, of the small decoder's small arrays */
    ck_assert_msg(share > 0.98 * wires[wire].share && share < 1.08 * wires[wire].share,
                  "%s on mesh %d: %llu bytes, %g of those of float32", wires[wire].set, mesh_number,
                  (unsigned long long)few, share);
    mx_arena_release(&arena);
}
END_TEST

/* Of all parameters along "data"; of vectors alone where "context" cuts matrices behind "fsdp". */
START_TEST(the_share_is_told) {
    MxArena arena = {.name = "share"};
    const Variant v = {.name = "share", .set = {wires[_i].set}};
    if (mx_comm_size(comm) != 4) return;
    for (int behind = 0; behind < 2; behind++) {
        RankMesh mesh = {{0}};
        for (int a = 0; a < MX_MESH_DEFAULT_COUNT; a++) {
            const char *axis = mx_mesh_default_axes[a];
            bool is_cut =
                behind ? !strcmp(axis, "fsdp") || !strcmp(axis, "context") : !strcmp(axis, "data");
            mesh.size[a] = !is_cut ? 1 : behind ? 2 : 4;
        }
        double share = mx_train_few_share(record_open(&arena, small_config(&arena, &v, &mesh)));
        ck_assert_msg(behind ? share > 0 && share < 0.1 : share == 1, "%d: %g", behind, share);
    }
    mx_arena_release(&arena);
}
END_TEST

/* ---- what is lost */

/* A gradient that each rank has the same term of in every step: a large number in each block, and
 * small ones beside it that int8 rounds to 0. */
static float term_of(const MxTrainState *s, int64_t index) {
    enum { APART = 64 };
    float small = (float)(1 + s->rank) * 1e-4f;
    return index % APART ? small : 1;
}

/* Adds a step's terms to what the gradient holds, and all that it holds then to `sum`. */
static void give(MxTrainState *s, MxArena *arena, int param) {
    int var = s->var.gradient[param];
    int64_t n = mx_box_count(&s->box[var]);
    float *values = mx_new_n(arena, float, n);
    program_read_all(s, var, values);
    for (int64_t i = 0; i < n; i++)
        values[i] += term_of(s, record_index(&s->box[var], s->vars.item[var].type.shape, i));
    program_write_all(s, var, values);
}

/* SGD with a rate of 1 takes every sum from the parameters, so that they tell what came through:
 * all that was given but what ranks have still to send. Without feedback the small ones never do.
 */
START_TEST(what_is_lost_is_sent_later) {
    enum { ROUNDS = 100 };
    MxArena arena = {.name = "lost"};
    int mesh_number = _i / MX_COUNT(wires), wire = _i % MX_COUNT(wires);
    RankMesh mesh;
    if (!rank_mesh(mesh_number, &mesh)) return;
    const Variant v = {.name = "few",
                       .set = {wires[wire].set, "opt_type=sgd", "learning_rate=1",
                               "learning_rate_schedule_steps=100000", "lr_schedule_type=wsd",
                               "steps=1000", "gradient_clipping_threshold=0",
                               meshes[mesh_number].more}};
    MxTrainState *s = record_open(&arena, small_config(&arena, &v, &mesh));
    int n = mx_model_params(s->model)->n;
    double off = 0, small_part = 0;
    for (int i = 0; i < n; i++) {
        float *zeros = mx_new_n(&arena, float, mx_box_count(&s->box[s->var.param[i]]));
        program_write_all(s, s->var.param[i], zeros);
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < n; i++) give(s, &arena, i);
        mx_train_update(s);
    }
    for (int i = 0; i < n; i++) {
        if (!program_keeps_lost(s, i)) continue;
        int var = s->var.param[i], gradient = s->var.gradient[i];
        MxGroup group =
            mx_lower_group(&arena, &s->mesh.mesh, s->rank, s->sharding[gradient].partial);
        double per_step = 0;
        for (int r = 0; r < group.size; r++) per_step += 1e-4 * (1 + group.ranks[r]);
        const float *p = record_floats(&arena, s, var);
        for (int64_t k = 0; k < mx_box_count(&s->box[var]); k++) {
            int64_t index = record_index(&s->box[var], s->vars.item[var].type.shape, k);
            bool is_small = index % 64 != 0;
            double given = ROUNDS * (is_small ? per_step : group.size);
            /* Of a sum ranks have at most half a step of int8 to send yet, 1/254 of the largest
             * number: of their terms, of what two sums make of them, and of the last sum. */
            double may_wait = (3.0 * group.size) / 254 * 1.02;
            double missing = fabs(given + (double)p[k]);
            off = fmax(off, missing / may_wait);
            if (is_small) small_part = fmax(small_part, missing / given);
        }
    }
    ck_assert_msg(off > 0 && off <= 1, "%s on mesh %d: %g of what may wait is missing",
                  wires[wire].set, mesh_number, off);
    ck_assert_msg(small_part < 1, "%s on mesh %d: small numbers never came", wires[wire].set,
                  mesh_number);
    mx_arena_release(&arena);
}
END_TEST

/* ---- training */

/* How far the parameters are from those of an exchange in float32, relative to how far training has
 * moved those. */
static double distance(MxArena *arena, const MxTrainState *s, const MxTrainState *whole,
                       float *const *start) {
    double off = 0, moved = 0;
    for (int i = 0; i < mx_model_params(s->model)->n; i++) {
        int var = s->var.param[i];
        const float *x = record_floats(arena, s, var), *y = record_floats(arena, whole, var);
        for (int64_t k = 0; k < mx_box_count(&s->box[var]); k++) {
            off += ((double)x[k] - (double)y[k]) * ((double)x[k] - (double)y[k]);
            moved += ((double)y[k] - (double)start[i][k]) * ((double)y[k] - (double)start[i][k]);
        }
    }
    return sqrt(off / moved);
}

/* With SGD the sum of all steps counts, of which an exchange loses what is left of the last one: of
 * a number at most 2^-9 of it in bfloat16, and 1/254 of its block's largest in int8. The bounds are
 * less than twice what was seen; what is forgotten in each step makes 1.1e-3 and 5.4e-3 at least.
 */
START_TEST(trains_like_float32) {
    enum { STEPS_FAR = 20 };
    static const double bounds[] = {8e-4, 4e-3};
    MxArena arena = {.name = "training"};
    int mesh_number = _i / MX_COUNT(wires), wire = _i % MX_COUNT(wires);
    double losses = 0;
    RankMesh mesh;
    if (!rank_mesh(mesh_number, &mesh)) return;
    const Variant few = {.name = "few",
                         .set = {wires[wire].set, "opt_type=sgd", "learning_rate=0.1", "steps=1000",
                                 meshes[mesh_number].more}};
    const Variant all = {
        .name = "float32",
        .set = {"opt_type=sgd", "learning_rate=0.1", "steps=1000", meshes[mesh_number].more}};
    MxTrainState *s = record_open(&arena, small_config(&arena, &few, &mesh));
    MxTrainState *whole = record_open(&arena, small_config(&arena, &all, &mesh));
    int n = mx_model_params(s->model)->n;
    float **start = mx_new_n(&arena, float *, n);
    for (int i = 0; i < n; i++) {
        start[i] = mx_new_n(&arena, float, mx_box_count(&s->box[s->var.param[i]]));
        program_read_all(s, s->var.param[i], start[i]);
    }
    for (int step = 0; step < STEPS_FAR; step++) {
        MxBatch batch = small_batch(&arena, NULL, step);
        double a = mx_train_loss_and_grad(s, &batch).loss,
               b = mx_train_loss_and_grad(whole, &batch).loss;
        losses = fmax(losses, fabs(a / b - 1));
        mx_train_update(s);
        mx_train_update(whole);
    }
    double far = distance(&arena, s, whole, start);
    if (getenv("MX_SHOW") && mx_comm_rank(comm) == 0)
        printf("mesh %d, %s: parameters %g, losses %g\n", mesh_number, wires[wire].set, far,
               losses);
    ck_assert_msg(far <= bounds[wire], "%s on mesh %d: parameters are off by %g", wires[wire].set,
                  mesh_number, far);
    ck_assert_msg(losses <= 1e-3, "%s on mesh %d: losses are off by %g", wires[wire].set,
                  mesh_number, losses);
    mx_arena_release(&arena);
}
END_TEST

Suite *few_suite(void) {
    Suite *suite = suite_create("mpi/few");
    TCase *tcase = tcase_create("few");
    int n = MX_COUNT(meshes) * MX_COUNT(wires);
    tcase_add_loop_test(tcase, bytes_are_as_planned_and_fewer, 0, n);
    tcase_add_loop_test(tcase, the_share_is_told, 0, MX_COUNT(wires));
    tcase_add_loop_test(tcase, what_is_lost_is_sent_later, 0, n);
    tcase_add_loop_test(tcase, trains_like_float32, 0, n);
    tcase_set_timeout(tcase, 120);
    suite_add_tcase(suite, tcase);
    return suite;
}
