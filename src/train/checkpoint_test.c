/* checkpoint_test.c — checkpoints without training: saves and restores a state of a config's size,
 * measures the time, and checks that the restored arrays equal the saved ones. Moments, which are
 * zeros in a new state, are first filled with random numbers, so that nothing on the way can
 * compress them. Source: MaxText utils/standalone_checkpointer.py @e591f30c, which fills them with
 * cosines and sines of the parameters and compares nothing. */
#include <mx/train.h>

#include "checkpoint.h"
#include "internal.h"

typedef struct Test {
    MxArena arena;
    const MxConfig *config;
    MxComm *comm;
    Checkpoints *checkpoints;
    MxTrainState *state;
    MxTree *tree;     /* what is saved */
    uint64_t *hashes; /* [leaf] of what this rank has of it */
    double bytes;     /* of whole arrays */
    int64_t n_saves;
} Test;

/* ---- values */

/* Element `at` of a part, counted in the whole array: ranks with the same part have the same. */
static uint64_t index_of(const MxBox *box, MxShape shape, int64_t at) {
    int64_t index = 0, stride = 1;
    for (int d = shape.rank - 1; d >= 0; d--) {
        index += (box->start[d] + at % box->count[d]) * stride;
        stride *= shape.dim[d];
        at /= box->count[d];
    }
    return (uint64_t)index;
}

static void put(MxDtype dtype, void *to, int64_t at, uint32_t bits) {
    const float x = 2 * mx_uniform(bits) - 1;
    if (dtype == MX_F32)
        ((float *)to)[at] = x;
    else if (dtype == MX_BF16)
        ((MxBf16 *)to)[at] = mx_f32_to_bf16(x);
    else
        memset((char *)to + at * (int64_t)mx_dtype_bytes(dtype), (int)(bits >> 24),
               mx_dtype_bytes(dtype));
}

static void add_entropy(const Test *test, int leaf_index, int64_t step) {
    const MxLeaf *leaf = &test->tree->leaves[leaf_index];
    MxArena arena = {.name = "entropy"};
    const MxBox box = mx_leaf_part(leaf);
    void *values = mx_arena_alloc(&arena, mx_leaf_bytes(leaf) + 1);
    for (int64_t i = 0; i < mx_box_count(&box); i++) {
        uint32_t bits[4];
        mx_philox((uint64_t)step, (uint64_t)leaf_index, index_of(&box, leaf->shape, i), bits);
        put(leaf->dtype, values, i, bits[0]);
    }
    mx_leaf_write(leaf, values);
    mx_arena_release(&arena);
}

static uint64_t hash_of(const MxLeaf *leaf) {
    MxArena arena = {.name = "hash"};
    uint64_t hash = mx_hash64(mx_leaf_values(&arena, leaf), mx_leaf_bytes(leaf));
    mx_arena_release(&arena);
    return hash;
}

static void fill(Test *test, int64_t step) {
    for (int i = 0; i < test->tree->n; i++) {
        const MxLeaf *leaf = &test->tree->leaves[i];
        if (!mx_leaf_has_values(leaf)) continue;
        if (leaf->kind == MX_KIND_OPTIMIZER) add_entropy(test, i, step);
        test->hashes[i] = hash_of(leaf);
    }
}

static void forget(const Test *test) {
    for (int i = 0; i < test->tree->n; i++) {
        const MxLeaf *leaf = &test->tree->leaves[i];
        MxArena arena = {.name = "zeros"};
        if (mx_leaf_has_values(leaf))
            mx_leaf_write(leaf, mx_arena_alloc(&arena, mx_leaf_bytes(leaf) + 1));
        mx_arena_release(&arena);
    }
}

static bool compare(const Test *test, int64_t step, MxError *err) {
    bool ok = true;
    for (int i = 0; ok && i < test->tree->n; i++) {
        const MxLeaf *leaf = &test->tree->leaves[i];
        if (mx_leaf_has_values(leaf) && hash_of(leaf) != test->hashes[i])
            ok = mx_fail(err, MX_EXIT_IO, MX_NOWHERE,
                         "step %lld: %s came back with other values than were saved",
                         (long long)step, leaf->path);
    }
    return train_agree(test->comm, ok, err);
}

/* ---- a save and its restore, timed from when all ranks are ready to when all are done */

static double now(const Test *test) {
    mx_comm_max(test->comm, 0);
    return mx_clock_s();
}

static bool restore(Test *test, int64_t step, MxError *err) {
    MxArena arena = {.name = "restore"};
    const MxCkptSearch how = {.team = train_team(&arena, test->comm)};
    const char *dir = NULL;
    int64_t found = -1;
    bool ok = mx_ckpt_newest(&arena, test->config->checkpoint_dir, &how, &dir, &found, err) &&
              (found == step || mx_fail(err, MX_EXIT_IO, MX_NOWHERE,
                                        "step %lld was saved, the newest that verifies is %lld",
                                        (long long)step, (long long)found)) &&
              train_restore(test->state, dir, err);
    mx_arena_release(&arena);
    return ok;
}

static bool test_step(Test *test, int64_t step, MxError *err) {
    fill(test, step);
    const double giga = 1e9, start = now(test);
    if (!checkpoints_save(test->checkpoints, step, err) ||
        !checkpoints_finish(test->checkpoints, err))
        return false;
    const double saved = now(test);
    forget(test);
    const double forgotten = now(test);
    if (!restore(test, step, err)) return false;
    const double save_s = saved - start, restore_s = now(test) - forgotten;
    test->n_saves++;
    mx_log("checkpoint test: step %lld: saved in %.3f seconds (%.3f GB/s), restored in %.3f "
           "seconds (%.3f GB/s)",
           (long long)step, save_s, test->bytes / giga / save_s, restore_s,
           test->bytes / giga / restore_s);
    return compare(test, step, err);
}

/* ---- all of them */

static bool open_test(Test *test, MxError *err) {
    const MxConfig *c = test->config;
    MxTrainMesh mesh;
    if (!c->enable_checkpointing)
        return mx_config_fail(err, c, MX_KEY_enable_checkpointing,
                              "--checkpoint-test has nothing to test");
    if (!train_same_config(c, test->comm, err) || !mx_train_mesh(&test->arena, c, &mesh, err) ||
        !mx_train_check_ranks(&mesh, test->comm, err))
        return false;
    mx_comm_watch(test->comm, (double)c->watchdog_seconds);
    if (!checkpoints_open(&test->arena, c, test->comm, CHECKPOINTS_TRAIN, &test->checkpoints, err))
        return false;
    if (checkpoints_own(test->checkpoints))
        return mx_config_fail(err, c, MX_KEY_run_name,
                              "\"%s\" has checkpoints; --checkpoint-test wants a run of its own",
                              c->run_name);
    return (mx_comm_rank(test->comm) || mx_dir_make(c->checkpoint_dir, err)) &&
           mx_train_state_open_on(&test->arena, c, test->comm, &test->state, err) &&
           checkpoints_restore(test->checkpoints, test->state, err);
}

static void measure(Test *test) {
    test->tree = mx_train_saved_tree(&test->arena, test->state);
    test->hashes = mx_new_n(&test->arena, uint64_t, test->tree->n + 1);
    for (int i = 0; i < test->tree->n; i++) {
        const MxLeaf *leaf = &test->tree->leaves[i];
        test->bytes += (double)mx_shape_count(leaf->shape) * (double)mx_dtype_bytes(leaf->dtype);
    }
}

bool mx_train_checkpoint_test(const MxConfig *config, MxComm *comm, MxError *err) {
    Test test = {.arena = {.name = "checkpoint test"}, .config = config, .comm = comm};
    bool ok = open_test(&test, err);
    if (ok) measure(&test);
    for (int64_t step = 0; ok && step < config->steps; step++)
        if (checkpoints_are_due(test.checkpoints, step)) ok = test_step(&test, step, err);
    const double giga = 1e9;
    if (ok)
        mx_log("checkpoint test: %lld saves of %.3f GB, each came back as it was",
               (long long)test.n_saves, test.bytes / giga);
    mx_arena_release(&test.arena);
    return ok;
}
