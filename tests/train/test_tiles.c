/* test_tiles.c — cross-entropy a part of the tokens at a time (num_vocab_tiling) against MaxText's,
 * and the memory that it takes. */
#include "golden.h"
#include "train_test.h"

#include <mx/run.h>

#include <check.h>
#include <math.h>

static const double loss_bound = 1e-5, gradient_bound = 2e-5, same_bound = 1e-6;

static MxArena arena = {.name = "tiles"};
static MxH5 *file;

static void close_all(void) {
    mx_arena_release(&arena);
}

static void check_loss(const char *group, const char *name, double got, double bound) {
    int64_t n;
    const float *want =
        golden_read(&arena, file, mx_arena_printf(&arena, "%s/%s", group, name), &n);
    ck_assert_msg(want != NULL, "%s has no %s", group, name);
    ck_assert_msg(fabs(got - (double)*want) <= bound * fmax(fabs((double)*want), 1e-3),
                  "%s/%s is %.9g, not %.9g", group, name, got, (double)*want);
}

static const char *const tiled_files[] = {"train/vocab_tiling_untied.h5",
                                          "train/vocab_tiling_tied.h5"};

static MxTrainState *open_tiles(const char *group, MxConfig **config) {
    MxTrainState *state;
    MxError err = {0};
    *config = golden_yaml_config(&arena, file, group, "");
    bool ok = mx_train_state_open(&arena, *config, &state, &err) &&
              mx_ckpt_read(file, "nnx", "model/", (int)(*config)->param_scan_axis,
                           mx_train_state_tree(state), &err);
    ck_assert_msg(ok, "%s", err.text.data);
    return state;
}

/* As for other tied models the original's output table is rounded to bfloat16, and its gradient
 * once a tile: the test's table is rounded too, its gradient once. */
static void check_tiles(const char *group, bool is_tied) {
    MxConfig *config;
    MxTrainState *state = open_tiles(group, &config);
    MxBatch batch = golden_batch(&arena, file, "batch", 0);
    const MxTree *params = mx_model_params(mx_train_state_model(state));
    MxLoss loss = is_tied
                      ? golden_loss_and_grad(golden_program(&arena, config, true), state, &batch)
                      : mx_train_loss_and_grad(state, &batch);
    check_loss(group, "loss", loss.loss, loss_bound);
    check_loss(group, "aux/xent_sum", *mx_train_sum(state, &loss, "xent_sum"), loss_bound);
    check_loss(group, "aux/z_loss", *mx_train_sum(state, &loss, "z_sum") / loss.total_weights,
               loss_bound);
    const char *grads = mx_arena_printf(&arena, "%s/grads", group);
    MxTree want;
    MxError err = {0};
    if (!mx_h5_has_group(file, grads)) return;
    bool ok = golden_like(&arena, state, file, grads, (int)config->param_scan_axis, &want, &err);
    ck_assert_msg(ok, "%s", err.text.data);
    for (int i = 0; i < params->n; i++) {
        bool is_rounded = is_tied && strstr(params->leaves[i].path, "embedding");
        double error = golden_error(mx_train_gradient(&arena, state, i), want.leaves[i].data,
                                    mx_shape_count(params->leaves[i].shape));
        ck_assert_msg(error <= (is_rounded ? 1e-3 : gradient_bound),
                      "%s: gradient of %s off by %.3g", group, params->leaves[i].path, error);
    }
}

/* Against the file's case of the same z-loss in one tile. */
static void check_same_in_one(const char *group) {
    const char *end = strstr(group, "_tiles");
    ck_assert_ptr_nonnull(end);
    const char *one = mx_arena_printf(&arena, "%.*s_tiles1", (int)(end - group), group);
    MxConfig *config;
    MxTrainState *state = open_tiles(group, &config), *whole = open_tiles(one, &config);
    MxBatch batch = golden_batch(&arena, file, "batch", 0);
    MxLoss got = mx_train_loss_and_grad(state, &batch),
           want = mx_train_loss_and_grad(whole, &batch);
    const MxTree *params = mx_model_params(mx_train_state_model(state));
    ck_assert_msg(fabs(got.loss - want.loss) <= same_bound * want.loss, "%s: %.9g, not %.9g", group,
                  got.loss, want.loss);
    for (int i = 0; i < params->n; i++) {
        double error =
            golden_error(mx_train_gradient(&arena, state, i), mx_train_gradient(&arena, whole, i),
                         mx_shape_count(params->leaves[i].shape));
        ck_assert_msg(error <= same_bound, "%s: gradient of %s off by %.3g", group,
                      params->leaves[i].path, error);
    }
}

START_TEST(tiles_of_the_vocabulary) {
    enum { CAP = 50 };
    const char *cases[CAP];
    file = golden_open(&arena, tiled_files[_i]);
    if (!file) return;
    int n = golden_cases(&arena, file, "", cases, CAP);
    for (int i = 0; i < n; i++) {
        check_tiles(cases[i], _i == 1);
        check_same_in_one(cases[i]);
    }
}
END_TEST

/* Logits are held a chunk at a time: the loss needs no more memory than those of a chunk, whatever
 * the number of tokens: 64 MiB, or 256 tokens of a vocabulary of which these are more. */
static size_t loss_bytes(int64_t tokens, int64_t vocab, int64_t tiles) {
    enum { WIDTH = 8 };
    MxVars vars = {.arena = &arena};
    MxType h_type = {MX_F32, MX_SHAPE(tokens, WIDTH)}, w_type = {MX_F32, MX_SHAPE(WIDTH, vocab)};
    MxGraph *graph = mx_graph_new(&arena, "loss", &vars);
    MxTrace t;
    mx_trace_begin(&t, graph);
    MxValue h = mx_variable(&t, mx_vars_add(&vars, "h", h_type));
    MxValue w = mx_variable(&t, mx_vars_add(&vars, "w", w_type));
    MxValue ids = mx_variable(&t, mx_vars_add(&vars, "ids", (MxType){MX_I32, MX_SHAPE(tokens)}));
    MxValue loss = mx_xent(&t, h, w, ids, ids, (MxXentAttr){.scale = 1, .tiles = tiles});
    mx_trace_assign(&t, loss, mx_vars_add(&vars, "loss", (MxType){MX_F32, MX_SCALAR}), false);
    MxGradTarget targets[] = {{h, mx_vars_add(&vars, "dh", h_type), false},
                              {w, mx_vars_add(&vars, "dw", w_type), false}};
    mx_grad(&t, loss, targets, MX_COUNT(targets));
    MxError err = {0};
    MxDevice *device;
    ck_assert(mx_trace_end(&t, &err));
    ck_assert(mx_device_open(&arena, &(MxDeviceConfig){0}, &device, &err));
    return mx_run_layout(&arena, device, &vars, &graph, 1, MX_REMAT_NONE).bytes.arena;
}

START_TEST(memory_is_flat) {
    enum { MIB = 1 << 20, SMALL = 4096 };
    static const struct {
        int64_t vocab;
        size_t mib;
    } chunks[] = {{32768, 64}, {65536, 64}, {131072, 128}, {262144, 256}};
    for (int i = 0; i < MX_COUNT(chunks); i++)
        for (int64_t tokens = 1024; tokens <= 16384; tokens *= 16) {
            size_t bytes = loss_bytes(tokens, chunks[i].vocab, 1);
            ck_assert_msg(bytes < (chunks[i].mib + 2) * MIB, "%lld tokens, vocab %lld: %zu MiB",
                          (long long)tokens, (long long)chunks[i].vocab, bytes / MIB);
        }
    size_t whole = loss_bytes(1024, SMALL, 1), quarter = loss_bytes(1024, SMALL, 4);
    ck_assert_msg(quarter < whole / 3, "%zu in one tile, %zu in four", whole, quarter);
}
END_TEST

Suite *tiles_suite(void) {
    enum { SECONDS = 120 };
    Suite *suite = suite_create("tiles");
    TCase *tcase = tcase_create("tiles");
    tcase_set_timeout(tcase, SECONDS);
    tcase_add_checked_fixture(tcase, NULL, close_all);
    tcase_add_loop_test(tcase, tiles_of_the_vocabulary, 0, MX_COUNT(tiled_files));
    tcase_add_test(tcase, memory_is_flat);
    suite_add_tcase(suite, tcase);
    return suite;
}
