/* test_optimizers.c — optimizers alone, on given gradients, against trajectories of optax as
 * MaxText calls it; and what they keep against MaxText's trees of whole models. */
#include "golden.h"
#include "train_test.h"

#include <mx/optim.h>
#include <mx/run.h>

#include <check.h>
#include <math.h>
#include <stdlib.h>

enum { STEPS = 20 };

/* An optimizer as a program of its own. */
typedef struct Bench {
    MxArena arena;
    MxError err;
    MxH5 *file;
    const char *group; /* of the case */
    MxConfig *config;
    MxTree params;
    MxOptim *optim;
    MxVars vars;
    int *param, *gradient, *kept, *hyper, limit, left_out;
    MxDevice *device;
    MxRun *run;
} Bench;

static const char *join(Bench *b, const char *group, const char *path) {
    return mx_path_join(&b->arena, group, path);
}

/* ---- arrays of the file, of which those below "layers" are stacks along dim 1 */

/* One layer's part of an array [lead, layers, rest], or all of one without layers. */
static const float *layer_of(Bench *b, const float *whole, const MxLeaf *leaf) {
    int64_t n = mx_shape_count(leaf->shape), lead = leaf->shape.dim[0], rest = n / lead;
    float *part = mx_new_n(&b->arena, float, n);
    int64_t count = leaf->stack.count ? leaf->stack.count : 1, index = leaf->stack.index;
    for (int64_t i = 0; i < n; i++) part[i] = whole[(i / rest * count + index) * rest + i % rest];
    return part;
}

/* Step `step` of [steps, ..] datasets, or all of one (step 0). */
static const float *want(Bench *b, const char *group, const MxLeaf *leaf, int64_t step) {
    int64_t n, count = leaf->stack.count ? leaf->stack.count : 1;
    const char *path = join(b, group, leaf->stack.count ? leaf->stack.path : leaf->path);
    float *all = golden_read(&b->arena, b->file, path, &n);
    int64_t each = mx_shape_count(leaf->shape) * count;
    ck_assert_msg(all && n >= (step + 1) * each, "no %s", path);
    return layer_of(b, all + step * each, leaf);
}

/* The parameters at the start; their attribute says what muon makes of them. */
static void add_params(Bench *b) {
    MxH5Array *arrays;
    int n;
    ck_assert(mx_h5_list(&b->arena, b->file, "params0", &arrays, &n, &b->err));
    mx_tree_init(&b->params, &b->arena);
    for (int i = 0; i < n; i++) {
        MxLeaf leaf = {.path = arrays[i].path, .dtype = MX_F32, .shape = arrays[i].shape};
        char *muon = NULL, *tail = strstr(leaf.path, "layers/");
        bool ok =
            mx_h5_attr(&b->arena, b->file, join(b, "params0", leaf.path), "muon", &muon, &b->err);
        ck_assert(ok);
        leaf.n_contract = muon && strstr(muon, "reduction=[0, ") ? 2 : 1;
        leaf.n_batch = muon && strstr(muon, "reduction=[-2] ") ? 1 : 0;
        int layers = muon && tail ? (int)leaf.shape.dim[1] : 0;
        for (int d = 1; layers && d + 1 < leaf.shape.rank; d++)
            leaf.shape.dim[d] = leaf.shape.dim[d + 1];
        leaf.shape.rank -= layers > 0;
        for (int l = 0; l < (layers ? layers : 1); l++) {
            if (layers) {
                leaf.stack = (MxStack){
                    .path = arrays[i].path, .axis = "layers", .index = l, .count = layers};
                leaf.path = mx_arena_printf(&b->arena, "decoder/layers_%d/%s", l, tail + 7);
            }
            mx_tree_add(&b->params, leaf);
        }
    }
}

/* ---- the program */

static int add_var(Bench *b, const char *prefix, const MxLeaf *leaf) {
    return mx_vars_add(&b->vars, join(b, prefix, leaf->path), (MxType){leaf->dtype, leaf->shape});
}

static void declare(Bench *b) {
    const MxOptim *o = b->optim;
    b->vars.arena = &b->arena;
    b->param = mx_new_n(&b->arena, int, b->params.n);
    b->gradient = mx_new_n(&b->arena, int, b->params.n);
    b->kept = mx_new_n(&b->arena, int, o->n_arrays + 1);
    b->hyper = mx_new_n(&b->arena, int, o->n_paces);
    for (int i = 0; i < b->params.n; i++) {
        b->param[i] = add_var(b, "param", &b->params.leaves[i]);
        b->gradient[i] = add_var(b, "gradient", &b->params.leaves[i]);
    }
    for (int i = 0; i < o->n_arrays; i++) b->kept[i] = add_var(b, "kept", &o->arrays[i].leaf);
    for (int i = 0; i < o->n_paces; i++)
        b->hyper[i] = mx_vars_add(&b->vars, mx_optim_pace(&b->arena, o, i),
                                  (MxType){MX_F32, MX_SHAPE(MX_HYPER_COUNT)});
    b->limit = mx_vars_add(&b->vars, "limit", (MxType){MX_F32, MX_SHAPE(2)});
    b->left_out = mx_vars_add(&b->vars, "left_out", (MxType){MX_F32, MX_SCALAR});
}

static void trace_step(Bench *b, MxTrace *t, int i, MxOptimStep step) {
    const int *array = &b->optim->array[i * MX_OPTIM_KEPT];
    if (b->optim->part[i] == MX_NONE) return;
    step.p = mx_variable(t, b->param[i]);
    step.hyper = mx_variable(t, b->hyper[b->optim->pace[i]]);
    for (int k = 0; k < MX_OPTIM_KEPT; k++)
        if (array[k] != MX_NONE) step.kept[k] = mx_variable(t, b->kept[array[k]]);
    mx_optim_trace(t, b->optim, i, &step);
    mx_trace_assign(t, step.p, b->param[i], false);
    for (int k = 0; k < MX_OPTIM_KEPT; k++)
        if (array[k] != MX_NONE) mx_trace_assign(t, step.kept[k], b->kept[array[k]], false);
}

static double threshold_of(const Bench *b) {
    double threshold = b->config->gradient_clipping_threshold;
    return threshold > 0 ? threshold : INFINITY;
}

static void trace(Bench *b, MxTrace *t) {
    MxDtype dtype;
    ck_assert(mx_dtype_parse(b->config->grad_dtype, &dtype));
    MxValue *g = mx_new_n(&b->arena, MxValue, b->params.n);
    for (int i = 0; i < b->params.n; i++)
        g[i] = mx_cast(t, mx_cast(t, mx_variable(t, b->gradient[i]), dtype), MX_F32);
    MxValue squares = mx_sum_squares(t, g, b->params.n);
    MxOptimStep step = {.clip = mx_clip_factor(t, squares, threshold_of(b)),
                        .is_left_out = MX_NONE};
    if (mx_optim_leaves_out(b->optim)) {
        step.is_left_out = mx_spike(t, squares, mx_variable(t, b->limit), threshold_of(b));
        mx_trace_assign(t, step.is_left_out, b->left_out, false);
    }
    for (int i = 0; i < b->params.n; i++) {
        step.g = g[i];
        trace_step(b, t, i, step);
    }
}

static void write_var(Bench *b, int var, const void *values) {
    mx_run_write(b->run, var, mx_run_box(b->run, var), values);
}

static void open_bench(Bench *b, MxH5 *file, const char *group, const char *more) {
    b->file = file;
    b->group = group;
    b->config = golden_yaml_config(&b->arena, file, group, more);
    add_params(b);
    ck_assert_msg(mx_optim_new(&b->arena, b->config, &b->params, MX_KIND_PARAM, &b->optim, &b->err),
                  "%s", b->err.text.data);
    declare(b);
    MxTrace t;
    MxGraph *graph = mx_graph_new(&b->arena, "update", &b->vars);
    mx_trace_begin(&t, graph);
    trace(b, &t);
    ck_assert_msg(mx_trace_end(&t, &b->err), "%s: %s", group, b->err.text.data);
    MxDeviceConfig device = {.n_threads = 1};
    ck_assert(mx_device_open(&b->arena, &device, &b->device, &b->err));
    ck_assert(
        mx_run_open(&b->arena, b->device, &b->vars, &graph, 1, MX_REMAT_NONE, &b->run, &b->err));
    for (int i = 0; i < b->params.n; i++)
        write_var(b, b->param[i], want(b, "params0", &b->params.leaves[i], 0));
    mx_optim_start(b->optim, 0);
}

/* The original's clipped norms are equal but for rounding, by which it left steps out: its distance
 * from ours is added to what the present norm is compared with. */
static void limit_as_original(Bench *b, int64_t step, double loss) {
    int64_t n;
    const float *noisy = golden_read(&b->arena, b->file, join(b, b->group, "grad_norm"), &n);
    float limit[2];
    mx_optim_limit(b->optim, loss, limit);
    if (noisy[step] >= 1 - 1e-6f && isfinite(limit[1]) && isfinite(threshold_of(b)))
        limit[0] += (float)threshold_of(b) - noisy[step];
    write_var(b, b->limit, limit);
}

/* Returns whether the step was left out. */
static bool make_step(Bench *b, int64_t step) {
    int64_t n;
    const float *losses = golden_read(&b->arena, b->file, "losses", &n);
    const float *norms = golden_read(&b->arena, b->file, join(b, b->group, "grad_norm"), &n);
    const int64_t at = mx_optim_count(b->optim);
    const MxRates rates = {mx_learning_rate(b->config, at), mx_learning_rate(b->config, at + 1)};
    float hyper[MX_HYPER_COUNT], left_out = 0;
    for (int i = 0; i < b->params.n; i++)
        write_var(b, b->gradient[i], want(b, "grads", &b->params.leaves[i], step));
    for (int pace = 0; pace < b->optim->n_paces; pace++) {
        mx_optim_hyper(b->optim, pace, rates, hyper);
        write_var(b, b->hyper[pace], hyper);
    }
    bool watches = mx_optim_leaves_out(b->optim);
    if (watches) limit_as_original(b, step, (double)losses[step]);
    mx_run_entry(b->run, 0);
    if (watches) mx_run_read(b->run, b->left_out, mx_run_box(b->run, b->left_out), &left_out);
    mx_optim_stepped(b->optim, watches ? (double)losses[step] : 0,
                     watches ? (double)norms[step] : 0, left_out != 0);
    return left_out != 0;
}

static void compare(Bench *b, int var, const float *wanted, const MxLeaf *leaf, double bound) {
    int64_t n = mx_shape_count(leaf->shape);
    float *got = mx_new_n(&b->arena, float, n);
    mx_run_read(b->run, var, mx_run_box(b->run, var), got);
    double off = golden_max_abs(got, wanted, n);
    ck_assert_msg(off <= bound, "%s: %s is off by %g", b->group, leaf->path, off);
}

static void compare_params(Bench *b, const char *group, int64_t step, double bound) {
    for (int i = 0; i < b->params.n; i++)
        compare(b, b->param[i], want(b, group, &b->params.leaves[i], step), &b->params.leaves[i],
                bound);
}

/* What is kept, below a folder that stands for "optimizer/", where the file has it. */
static void compare_kept(Bench *b, const char *folder, double bound) {
    const size_t skipped = strlen("optimizer/");
    if (!mx_h5_has_group(b->file, join(b, folder, "opt_state"))) return;
    for (int i = 0; i < b->optim->n_arrays; i++) {
        MxLeaf leaf = b->optim->arrays[i].leaf;
        leaf.path += skipped;
        if (leaf.stack.count) leaf.stack.path += skipped;
        if (leaf.dtype == MX_F32) compare(b, b->kept[i], want(b, folder, &leaf, 0), &leaf, bound);
    }
}

static void close_bench(Bench *b) {
    mx_error_release(&b->err);
    mx_arena_release(&b->arena);
}

/* Names of the groups below "cases". */
static int list_cases(MxArena *arena, MxH5 *file, const char **names, int cap) {
    MxH5Array *arrays;
    int n, n_names = 0;
    MxError err = {0};
    ck_assert(mx_h5_list(arena, file, "cases", &arrays, &n, &err));
    for (int i = 0; i < n; i++) {
        const char *name = mx_arena_strndup(arena, arrays[i].path, strcspn(arrays[i].path, "/"));
        if (n_names && !strcmp(names[n_names - 1], name)) continue;
        ck_assert_int_lt(n_names, cap);
        names[n_names++] = name;
    }
    ck_assert_int_gt(n_names, 0);
    return n_names;
}

typedef void RunCase(Bench *b, const char *name);

static void run_cases(const char *golden, RunCase *run) {
    enum { MOST = 32 };
    MxArena arena = {.name = "optimizers"};
    const char *names[MOST];
    MxH5 *file = golden_open(&arena, golden);
    if (!file) return;
    int n = list_cases(&arena, file, names, MOST);
    for (int i = 0; i < n; i++) {
        Bench b = {.arena = {.name = "bench"}};
        const char *group = mx_path_join(&arena, "cases", names[i]);
        open_bench(&b, file, group, "dataset_type=synthetic");
        run(&b, names[i]);
        close_bench(&b);
    }
    mx_arena_release(&arena);
}

/* The original clips bfloat16 gradients in bfloat16. */
static void run_basic(Bench *b, const char *name) {
    const double bound = strstr(name, "grad_bf16") ? 1e-3 : 1e-5;
    int64_t n;
    const float *rate = golden_read(&b->arena, b->file, join(b, b->group, "learning_rate"), &n);
    for (int64_t step = 0; step < STEPS; step++) {
        ck_assert_double_eq_tol(mx_learning_rate(b->config, step), (double)rate[step], 1e-7);
        make_step(b, step);
        compare_params(b, join(b, b->group, "params"), step, bound);
    }
    compare_kept(b, b->group, bound);
}

START_TEST(basic_optimizers) {
    run_cases("train/optim_basic.h5", run_basic);
}
END_TEST

START_TEST(lion) {
    run_cases("train/optim_lion.h5", run_basic);
}
END_TEST

/* Moments are factored by their dims alone; how far they may be off is their own size. */
START_TEST(adafactor) {
    run_cases("train/optim_adafactor.h5", run_basic);
}
END_TEST

/* Where gradients are taken: the original's parameters. Ours are those that it evaluates. */
static void compare_points(Bench *b, int64_t step, double bound) {
    const char *group = join(b, b->group, "points");
    for (int i = 0; i < b->params.n; i++) {
        const MxLeaf *leaf = &b->params.leaves[i];
        int64_t n = mx_shape_count(leaf->shape);
        float *x = mx_new_n(&b->arena, float, n), *d = mx_new_n(&b->arena, float, n);
        int kept = b->kept[b->optim->array[i * MX_OPTIM_KEPT]];
        mx_run_read(b->run, b->param[i], mx_run_box(b->run, b->param[i]), x);
        mx_run_read(b->run, kept, mx_run_box(b->run, kept), d);
        for (int64_t k = 0; k < n; k++) x[k] += (float)(1 - b->config->adam_b1) * d[k];
        double off = golden_max_abs(x, want(b, group, leaf, step), n);
        ck_assert_msg(off <= bound, "%s: point %s is off by %g", b->group, leaf->path, off);
    }
}

static void run_schedule_free(Bench *b, const char *name) {
    (void)name;
    for (int64_t step = 0; step < STEPS; step++) {
        make_step(b, step);
        compare_params(b, join(b, b->group, "params"), step, 1e-5);
        compare_points(b, step, 1e-5);
    }
    compare_kept(b, b->group, 1e-5);
}

START_TEST(schedule_free) {
    run_cases("train/optim_schedule_free.h5", run_schedule_free);
}
END_TEST

static void run_skip(Bench *b, const char *name) {
    int64_t n;
    const float *skipped = golden_read(&b->arena, b->file, join(b, b->group, "is_skipped"), &n);
    for (int64_t step = 0; step < STEPS; step++) {
        bool was_left_out = make_step(b, step);
        ck_assert_msg(was_left_out == (skipped[step] != 0), "%s, step %d", name, (int)step);
        compare_params(b, join(b, b->group, "params"), step, 1e-5);
    }
}

START_TEST(spikes) {
    run_cases("train/optim_skip.h5", run_skip);
}
END_TEST

/* A matrix in float32 is orthogonalized by 15 products, and small singular values grow 480-fold. */
static void follow_muon(Bench *b, int64_t steps) {
    for (int64_t step = 0; step < steps; step++) {
        make_step(b, step);
        const char *group = mx_arena_printf(&b->arena, "%s/step%d", b->group, (int)step + 1);
        if (!mx_h5_has_group(b->file, group)) continue;
        compare_params(b, join(b, group, "params"), 0, 1e-4);
        compare_kept(b, join(b, group, "optimizer"), 1e-4);
    }
}

static void run_muon(Bench *b, const char *name) {
    (void)name;
    follow_muon(b, STEPS);
}

START_TEST(muon) {
    run_cases("train/optim_muon.h5", run_muon);
}
END_TEST

/* Every expert of every layer has a matrix, with a norm of its own. */
static void run_experts(Bench *b, const char *name) {
    enum { GIVEN = 3 };
    (void)name;
    follow_muon(b, GIVEN);
}

START_TEST(muon_of_experts) {
    run_cases("train/optim_muon_experts.h5", run_experts);
}
END_TEST

Suite *optimizers_suite(void) {
    Suite *suite = suite_create("optimizers");
    TCase *tcase = tcase_create("trajectories");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, basic_optimizers);
    tcase_add_test(tcase, lion);
    tcase_add_test(tcase, adafactor);
    tcase_add_test(tcase, schedule_free);
    tcase_add_test(tcase, spikes);
    tcase_add_test(tcase, muon);
    tcase_add_test(tcase, muon_of_experts);
    suite_add_tcase(suite, tcase);
    return suite;
}
