/* trajectory.h — what MaxText's DiLoCo left of a run of two replicas, files that only the larger
 * set has: its config, the batches of each step and, after some steps, the outer parameters, their
 * momentum and the parameters of all replicas. Layers lie in stacks, at dim 1 of an array's own. */
#ifndef TESTS_COMMON_TRAJECTORY_H
#define TESTS_COMMON_TRAJECTORY_H

#include "common/goldens.h"

#include <check.h>
#include <mx/data.h>
#include <mx/store.h>

#include <stdlib.h>

enum { TRAJECTORY_REPLICAS = 2 };
/* Ten times what both are off, and more. */
static const double trajectory_loss_bound = 1e-5, trajectory_bound = 1e-5;

static const char *const trajectories[] = {"vanilla_sgd", "vanilla_adamw", "streaming"};

/* The groups of a step, and what checkpoints call them. */
static const struct {
    const char *group, *prefix;
    bool has_replicas;
} trajectory_groups[] = {
    {"params", "model/", false},
    {"outer_trace", "outer_opt_state/0/trace/", false},
    {"inner", "inner_state/model/", true},
};

/* NULL if the folder lacks it. */
static inline MxH5 *trajectory_open(MxArena *arena, int number) {
    MxH5 *file = NULL;
    MxError err = {0};
    const char *path =
        goldens_find(arena, mx_arena_printf(arena, "train/diloco_%s.h5", trajectories[number]));
    ck_assert_msg(!path || mx_h5_open(arena, path, &file, &err), "%s", err.text.data);
    return file;
}

/* Its config as words KEY=VALUE, a blank between them. */
static inline const char *trajectory_words(MxArena *arena, MxH5 *file) {
    char *text = NULL, *to;
    MxError err = {0};
    ck_assert(mx_h5_attr(arena, file, "", "config", &text, &err) && text);
    to = text;
    for (const char *from = text; *from; from++) {
        if (*from == '"' || (*from == ' ' && to[-1] == '=')) continue;
        *to++ = *from == ':' ? '=' : *from == '\n' ? ' ' : *from;
    }
    *to = 0;
    return text;
}

static inline int64_t trajectory_steps(MxH5 *file) {
    MxH5Array array;
    MxError err = {0};
    ck_assert_msg(mx_h5_stat(file, "loss_per_replica", &array, &err), "%s", err.text.data);
    return array.shape.dim[0];
}

static inline double trajectory_loss(MxH5 *file, int64_t step, int64_t replica) {
    float loss;
    MxError err = {0};
    const MxBox box = {.rank = 2, .start = {step, replica}, .count = {1, 1}};
    ck_assert_msg(mx_h5_read_box(file, "loss_per_replica", MX_F32, box, &loss, &err), "%s",
                  err.text.data);
    return (double)loss;
}

/* Of step 0, 1, …: the rows of replica 0, then those of replica 1. */
static inline MxBatch trajectory_batch(MxArena *arena, MxH5 *file, int64_t step) {
    MxBatch batch = {0};
    for (int f = 0; f < MX_BATCH_FIELDS; f++) {
        MxH5Array array;
        MxError err = {0};
        const char *path =
            mx_arena_printf(arena, "batches/%s", mx_batch_field_name((MxBatchField)f));
        ck_assert_msg(mx_h5_stat(file, path, &array, &err), "%s", err.text.data);
        MxBox box = mx_box_of(array.shape);
        box.start[0] = step;
        box.count[0] = 1;
        if (!f) batch = mx_batch_new(arena, box.count[1] * box.count[2], box.count[3]);
        ck_assert_msg(mx_h5_read_box(file, path, MX_I32, box, batch.field[f], &err), "%s",
                      err.text.data);
    }
    return batch;
}

/* An array of a group of a step, "decoder/layers_1/…" out of its stack; of one replica, or (-1) of
 * all. */
static inline float *trajectory_array(MxArena *arena, MxH5 *file, const char *step, int group,
                                      const char *path, int64_t replica, int64_t *n) {
    static const char layers[] = "decoder/layers_";
    char *rest = NULL;
    MxH5Array array;
    MxError err = {0};
    bool is_layer = mx_text_has_prefix(path, layers);
    long layer = is_layer ? strtol(path + strlen(layers), &rest, 10) : 0;
    if (is_layer) path = mx_arena_printf(arena, "decoder/layers%s", rest);
    path = mx_arena_printf(arena, "%s/%s/%s", step, trajectory_groups[group].group, path);
    ck_assert_msg(mx_h5_stat(file, path, &array, &err), "%s", err.text.data);
    MxBox box = mx_box_of(array.shape);
    int axis = trajectory_groups[group].has_replicas ? 2 : 1;
    if (is_layer) box.start[axis] = layer;
    if (is_layer) box.count[axis] = 1;
    if (replica >= 0) box.start[0] = replica;
    if (replica >= 0) box.count[0] = 1;
    *n = mx_box_count(&box);
    float *values = mx_new_n(arena, float, *n);
    ck_assert_msg(mx_h5_read_box(file, path, MX_F32, box, values, &err), "%s", err.text.data);
    return values;
}

#endif
