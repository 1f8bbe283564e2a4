/* test_lora.c — adapters against MaxText with qwix: what is made and how it starts, logits, merged
 * weights, loss, gradients and five steps, for every golden/train/lora_*.h5 that says its config;
 * once through the library and once through the command line. The base must not change by a bit. */
#include "close.h"
#include "golden.h"
#include "process.h"
#include "train_test.h"

#include <check.h>
#include <math.h>
#include <stdio.h>

enum { STEPS = 5 };

/* ---- the files */

static MxArena files_arena = {.name = "lora files"};
static char **files;
static int n_files;

static bool has_config(const char *path) {
    MxArena arena = {.name = "config"};
    MxError err = {0};
    MxH5 *file;
    char *text = NULL;
    bool ok = mx_h5_open(&arena, path, &file, &err) &&
              mx_h5_attr(&arena, file, "", "config", &text, &err) && text;
    mx_error_release(&err);
    mx_arena_release(&arena);
    return ok;
}

static void list_files(void) {
    MxError err = {0};
    char **names;
    int n;
    const char *dir = mx_path_join(&files_arena, goldens_dir(), "train");
    if (!mx_dir_list(&files_arena, dir, &names, &n, &err)) { /* no test runs yet */
        fprintf(stderr, "%s\n", err.text.data);
        return;
    }
    files = mx_new_n(&files_arena, char *, n);
    for (int i = 0; i < n; i++) {
        if (mx_text_has_prefix(names[i], "lora_") && mx_text_has_suffix(names[i], ".h5") &&
            has_config(mx_path_join(&files_arena, dir, names[i])))
            files[n_files++] = mx_path_join(&files_arena, "train", names[i]);
    }
}

/* One file, opened, with its model. */
typedef struct Lora {
    MxArena arena;
    const char *golden, *path, *yaml; /* the golden file, its path, and its config as a file */
    MxH5 *file;
    MxConfig *config;
    MxTrainState *state;
    MxError err;
} Lora;

static bool load_config(Lora *l, const char *more) {
    const char *config[] = {"configs/base.yml", l->yaml};
    const char *words[] = {"override_model_config=true", "lora.enable_lora=true", more};
    MxConfigRequest request = {.files = config, .n_files = 2, .overrides = words, .n_overrides = 3};
    return mx_config_load(&l->arena, &request, &l->config, &l->err);
}

static void open_state(Lora *l, const char *more) {
    ck_assert_msg(load_config(l, more) &&
                      mx_train_state_open(&l->arena, l->config, &l->state, &l->err),
                  "%s: %s", l->path, l->err.text.data);
    mx_train_state_init(l->state);
}

static void set_config(Lora *l, const char *yaml) {
    l->yaml = mx_path_join(&l->arena, process_dir(&l->arena, "lora_config"), "x.yml");
    ck_assert(mx_file_write(l->yaml, yaml, strlen(yaml), &l->err));
}

static void open_lora(Lora *l, const char *golden) {
    char *config;
    *l = (Lora){.arena = {.name = "lora"}, .golden = golden};
    const char *path = l->path = goldens_need(&l->arena, golden);
    ck_assert_msg(mx_h5_open(&l->arena, path, &l->file, &l->err) &&
                      mx_h5_attr(&l->arena, l->file, "", "config", &config, &l->err),
                  "%s", l->err.text.data);
    set_config(l, config);
    open_state(l, "steps=5");
}

static void close_lora(Lora *l) {
    mx_error_release(&l->err);
    mx_arena_release(&l->arena);
}

/* Fills the leaves of the state that are below a section. */
static void read_state(Lora *l, const char *group, const char *section) {
    ck_assert_msg(mx_ckpt_read(l->file, group, section, (int)l->config->param_scan_axis,
                               mx_train_state_tree(l->state), &l->err),
                  "%s: %s", l->path, l->err.text.data);
    close_nudge(mx_train_state_tree(l->state));
}

/* The adapters in a group of the file, as a tree of their own. */
static MxTree *read_adapters(Lora *l, const char *group) {
    MxTree *tree = mx_tree_select(&l->arena, mx_train_state_tree(l->state), MX_KIND_LORA_PARAM);
    for (int i = 0; i < tree->n; i++)
        tree->leaves[i].data = mx_new_n(&l->arena, float, mx_shape_count(tree->leaves[i].shape));
    ck_assert_msg(
        mx_ckpt_read(l->file, group, "model/", (int)l->config->param_scan_axis, tree, &l->err),
        "%s: %s", l->path, l->err.text.data);
    ck_assert_int_gt(tree->n, 0);
    return tree;
}

static double scalar(Lora *l, const char *path, int64_t i) {
    int64_t n;
    const float *value = golden_read(&l->arena, l->file, path, &n);
    ck_assert_msg(value && i < n, "%s: no %s", l->path, path);
    return (double)value[i];
}

static Close figure(const Lora *l, CloseKind kind, const char *what) {
    return (Close){.golden = l->golden, .kind = kind, .what = what};
}

static void check_number(const Lora *l, CloseKind kind, const char *what, double got, double want) {
    Close c = figure(l, kind, what);
    close_number(&c, got, want);
}

static void check_array(const Lora *l, CloseKind kind, const MxLeaf *leaf, const float *got,
                        const float *want) {
    Close c = figure(l, kind, leaf->path);
    close_array(&c, got, want, mx_shape_count(leaf->shape));
}

/* ---- how adapters start */

/* Uniform around 0 up to sqrt(6 / rows), as he_uniform has it. */
static void check_a(const Lora *l, const MxLeaf *leaf) {
    MxArena arena = {.name = "a"};
    const float *x = mx_leaf_values(&arena, leaf);
    double limit = sqrt(6 / (double)leaf->shape.dim[0]), squares = 0, largest = 0;
    int64_t n = mx_shape_count(leaf->shape);
    for (int64_t i = 0; i < n; i++) {
        squares += (double)x[i] * (double)x[i] / (double)n;
        largest = fmax(largest, fabs((double)x[i]));
    }
    ck_assert_msg(largest <= limit && largest > 0.8 * limit, "%s: %s reaches %g of %g", l->path,
                  leaf->path, largest, limit);
    ck_assert_double_eq_tol(sqrt(squares) / limit * sqrt(3), 1, 0.25);
    mx_arena_release(&arena);
}

static bool is_a(const MxLeaf *leaf) {
    return mx_text_has_suffix(leaf->path, "_lora_a");
}

START_TEST(adapters_start_as_in_maxtext) {
    Lora l;
    open_lora(&l, files[_i]);
    MxTree *want = read_adapters(&l, "init/nnx"); /* refuses other names and shapes */
    const MxTree *state = mx_train_state_tree(l.state);
    const float *last = NULL;
    for (int i = 0; i < want->n; i++) {
        const MxLeaf *leaf = &state->leaves[mx_tree_find(state, want->leaves[i].path)];
        int64_t n = mx_shape_count(leaf->shape);
        const float *x = mx_leaf_values(&l.arena, leaf);
        if (!is_a(leaf)) {
            ck_assert(golden_max_abs(x, want->leaves[i].data, n) <= 0);
            continue;
        }
        check_a(&l, leaf);
        check_a(&l, &want->leaves[i]); /* the bounds are the original's */
        ck_assert_msg(!last || memcmp(last, x, 8 * sizeof *last), "%s is a copy", leaf->path);
        last = x;
    }
    close_lora(&l);
}
END_TEST

/* ---- forward and backward */

START_TEST(logits_agree) {
    Lora l;
    int64_t n;
    open_lora(&l, files[_i]);
    read_state(&l, "nnx", "model/");
    MxBatch batch = golden_batch(&l.arena, l.file, "batch", 0);
    const float *want = golden_read(&l.arena, l.file, "forward/logits", &n);
    const float *got = golden_logits(golden_program(&l.arena, l.config, false),
                                     mx_train_state_tree(l.state), &batch);
    Close c = figure(&l, CLOSE_LOGITS, "logits");
    close_array(&c, got, want, n);
    close_lora(&l);
}
END_TEST

/* The same model without adapters over weights in which they are merged. */
START_TEST(merged_weights_give_the_same_logits) {
    Lora l;
    int64_t n;
    open_lora(&l, files[_i]);
    read_state(&l, "nnx", "model/");
    const MxTree *adapted = mx_train_state_tree(l.state);
    const float *want = golden_read(&l.arena, l.file, "forward/logits", &n);
    open_state(&l, "lora.enable_lora=false");
    MxTree *state = mx_train_state_tree(l.state);
    int n_merged = 0;
    for (int i = 0; i < mx_model_params(mx_train_state_model(l.state))->n; i++) {
        const MxLeaf *leaf = &state->leaves[i];
        const MxLeaf *from = &adapted->leaves[mx_tree_find(adapted, leaf->path)];
        mx_leaf_write(leaf, mx_leaf_values(&l.arena, from));
        const char *a = mx_arena_printf(&l.arena, "%s_lora_a", leaf->path);
        if (mx_tree_find(adapted, a) < 0) continue;
        MxTree one;
        mx_tree_init(&one, &l.arena);
        mx_tree_add(&one, *leaf);
        ck_assert_msg(mx_ckpt_read(l.file, "merged/nnx", leaf->path, (int)l.config->param_scan_axis,
                                   &one, &l.err),
                      "%s", l.err.text.data);
        n_merged++;
    }
    ck_assert_int_gt(n_merged, 0);
    MxBatch batch = golden_batch(&l.arena, l.file, "batch", 0);
    const float *got = golden_logits(golden_program(&l.arena, l.config, false), state, &batch);
    Close c = figure(&l, CLOSE_LOGITS, "logits of merged weights");
    close_array(&c, got, want, n);
    close_lora(&l);
}
END_TEST

START_TEST(loss_and_gradients_agree) {
    Lora l;
    open_lora(&l, files[_i]);
    read_state(&l, "nnx", "model/");
    MxBatch batch = golden_batch(&l.arena, l.file, "batch", 0);
    MxLoss loss = mx_train_loss_and_grad(l.state, &batch);
    check_number(&l, CLOSE_LOSS, "loss", loss.loss, scalar(&l, "loss/loss", 0));
    check_number(&l, CLOSE_LOSS, "xent_sum", *mx_train_sum(l.state, &loss, "xent_sum"),
                 scalar(&l, "loss/xent_sum", 0));
    ck_assert(loss.total_weights == scalar(&l, "loss/total_weights", 0));
    const MxTree *params = mx_model_params(mx_train_state_model(l.state));
    MxTree *want = read_adapters(&l, "loss/grads");
    for (int i = 0, k = 0; i < params->n; i++) {
        const MxLeaf *leaf = &params->leaves[i];
        const float *got = mx_train_gradient(&l.arena, l.state, i);
        ck_assert((got != NULL) == (leaf->kind == MX_KIND_LORA_PARAM));
        if (got) check_array(&l, CLOSE_GRADIENT, leaf, got, want->leaves[k++].data);
    }
    close_lora(&l);
}
END_TEST

/* ---- training */

static uint64_t base_hash(const MxTree *state) {
    MxArena arena = {.name = "hash"};
    uint64_t hash = 0;
    for (int i = 0; i < state->n; i++) {
        const MxLeaf *leaf = &state->leaves[i];
        if (leaf->kind == MX_KIND_PARAM)
            hash = hash * 31 + mx_hash64(mx_leaf_values(&arena, leaf), mx_leaf_bytes(leaf));
    }
    mx_arena_release(&arena);
    return hash;
}

static void check_adapters(Lora *l, const char *group) {
    const MxTree *state = mx_train_state_tree(l->state);
    if (!mx_h5_has_group(l->file, group)) return;
    MxTree *want = read_adapters(l, group);
    for (int i = 0; i < want->n; i++) {
        const MxLeaf *leaf = &want->leaves[i];
        const float *got =
            mx_leaf_values(&l->arena, &state->leaves[mx_tree_find(state, leaf->path)]);
        Close c = figure(l, CLOSE_FINAL, mx_arena_printf(&l->arena, "%s in %s", leaf->path, group));
        close_final(&c, got, leaf->data, mx_shape_count(leaf->shape));
    }
}

/* The moments, which exist for adapters alone. */
static void check_optimizer(Lora *l, int64_t steps) {
    const char *group = mx_arena_printf(&l->arena, "traj/step%d/nnx", (int)steps);
    const MxTree *state = mx_train_state_tree(l->state);
    MxTree *want = mx_tree_select(&l->arena, state, MX_KIND_OPTIMIZER);
    for (int i = 0; i < want->n; i++)
        want->leaves[i].data = mx_new_n(&l->arena, float, mx_shape_count(want->leaves[i].shape));
    for (int i = 0; i < 2; i++)
        ck_assert_msg(mx_ckpt_read(l->file, group,
                                   i ? "optimizer/opt_state/0/nu/" : "optimizer/opt_state/0/mu/", 1,
                                   want, &l->err),
                      "%s", l->err.text.data);
    for (int i = 0; i < want->n; i++) {
        const MxLeaf *leaf = &want->leaves[i];
        const float *got =
            mx_leaf_values(&l->arena, &state->leaves[mx_tree_find(state, leaf->path)]);
        check_array(l, CLOSE_FINAL, leaf, got, leaf->data);
    }
}

START_TEST(five_steps_agree) {
    Lora l;
    open_lora(&l, files[_i]);
    read_state(&l, "nnx", "model/");
    uint64_t base = base_hash(mx_train_state_tree(l.state));
    for (int64_t step = 0; step < STEPS; step++) {
        MxBatch batch = golden_batch(&l.arena, l.file, "batches", step);
        MxLoss loss = mx_train_loss_and_grad(l.state, &batch);
        MxUpdate update = mx_train_update(l.state);
        const CloseKind a_norm = step ? CLOSE_LATER_NORM : CLOSE_NORM;
        const struct {
            const char *name;
            CloseKind kind;
            double got;
        } metrics[] = {
            {"loss", step ? CLOSE_LATER_LOSS : CLOSE_LOSS, loss.loss},
            {"total_weights", CLOSE_COUNT, loss.total_weights},
            {"raw_grad_norm", a_norm, update.raw_grad_norm},
            {"grad_norm", a_norm, update.grad_norm},
            {"param_norm", a_norm, update.param_norm},
        };
        for (int i = 0; i < MX_COUNT(metrics); i++) {
            const char *path =
                mx_arena_printf(&l.arena, "traj/metrics/learning/%s", metrics[i].name);
            check_number(&l, metrics[i].kind,
                         mx_arena_printf(&l.arena, "%s at step %d", metrics[i].name, (int)step),
                         metrics[i].got, scalar(&l, path, step));
        }
        double rate = scalar(&l, "learning_rate", step);
        ck_assert_double_eq_tol(update.learning_rate, rate, 1e-7 * rate); /* a float32 there */
        check_adapters(&l, mx_arena_printf(&l.arena, "traj/step%d/nnx", (int)step + 1));
    }
    check_optimizer(&l, STEPS);
    ck_assert_msg(base == base_hash(mx_train_state_tree(l.state)), "%s: the base changed", l.path);
    close_lora(&l);
}
END_TEST

/* ---- accumulation: the original makes gradients of the base too and clips by the norm of all, so
 * norms, and what is clipped, are compared with its undivided run */

static const struct {
    const char *config, *norms, *values;
} splits[] = {
    {"ga1_clip0.0", "ga1_clip0.0", "ga1_clip0.0"},
    {"ga1_clip1.0", "ga1_clip1.0", "ga1_clip1.0"},
    {"ga2_clip0.0", "ga1_clip0.0", "ga2_clip0.0"},
    {"ga2_clip1.0", "ga1_clip1.0", "ga1_clip1.0"},
};

START_TEST(splits_agree) {
    enum { SPLIT_STEPS = 3 };
    Lora l = {.arena = {.name = "lora"}, .path = "train/lora_ga2.h5"};
    char *config;
    l.file = golden_open(&l.arena, l.path);
    if (!l.file) return;
    l.golden = mx_arena_printf(&l.arena, "%s:%s", l.path, splits[_i].config);
    ck_assert(mx_h5_attr(&l.arena, l.file, splits[_i].config, "config", &config, &l.err));
    set_config(&l, config);
    open_state(&l, "steps=5");
    read_state(&l, "nnx", "model/");
    for (int64_t step = 0; step < SPLIT_STEPS; step++) {
        MxBatch batch = golden_batch(&l.arena, l.file, "batches", step);
        MxLoss loss = mx_train_loss_and_grad(l.state, &batch);
        MxUpdate update = mx_train_update(l.state);
        const CloseKind a_norm = step ? CLOSE_LATER_NORM : CLOSE_NORM;
        const struct {
            const char *name, *group;
            CloseKind kind;
            double got;
        } metrics[] = {
            {"loss", splits[_i].values, step ? CLOSE_LATER_LOSS : CLOSE_LOSS, loss.loss},
            {"raw_grad_norm", splits[_i].norms, a_norm, update.raw_grad_norm},
            {"grad_norm", splits[_i].norms, a_norm, update.grad_norm},
            {"param_norm", splits[_i].values, a_norm, update.param_norm},
        };
        for (int i = 0; i < MX_COUNT(metrics); i++) {
            const char *path = mx_arena_printf(&l.arena, "%s/metrics/learning/%s", metrics[i].group,
                                               metrics[i].name);
            check_number(&l, metrics[i].kind,
                         mx_arena_printf(&l.arena, "%s at step %d", metrics[i].name, (int)step),
                         metrics[i].got, scalar(&l, path, step));
        }
    }
    check_adapters(&l, mx_arena_printf(&l.arena, "%s/step3/nnx", splits[_i].values));
    close_lora(&l);
}
END_TEST

START_TEST(five_steps_through_the_command_line) {
    static const struct {
        const char *name;
        CloseKind kind;
    } metrics[] = {{"loss", CLOSE_LATER_LOSS},      {"lm_loss", CLOSE_LATER_LOSS},
                   {"total_weights", CLOSE_COUNT},  {"raw_grad_norm", CLOSE_LATER_NORM},
                   {"grad_norm", CLOSE_LATER_NORM}, {"param_norm", CLOSE_LATER_NORM}};
    Lora l;
    int n;
    open_lora(&l, files[_i]);
    const char *dir = process_dir(&l.arena, "lora");
    int code = process_run(
        &l.arena, dir,
        mx_arena_printf(&l.arena,
                        "--config configs/base.yml --config %s override_model_config=true "
                        "dataset_type=hdf5 hdf5_train_files=%s:batches "
                        "enable_data_shuffling=false eval_interval=-1 enable_checkpointing=false "
                        "load_parameters_path=%s:nnx base_output_directory=%s run_name=x "
                        "metrics_file=%s/m.jsonl",
                        l.yaml, l.path, l.path, dir, dir));
    ck_assert_msg(code == 0, "exit %d: %s", code, process_file(&l.arena, dir, "log", NULL));
    MetricsLine *lines = process_metrics(&l.arena, dir, "learning/loss", &n);
    ck_assert_int_eq(n, STEPS);
    for (int k = 0; k < MX_COUNT(metrics) * n; k++) {
        const char *name = mx_arena_printf(&l.arena, "learning/%s", metrics[k / n].name);
        double got = NAN;
        mx_json_number(mx_json_get(lines[k % n].json, name), &got);
        const char *path = mx_arena_printf(&l.arena, "traj/metrics/%s", name);
        const char *what = mx_arena_printf(&l.arena, "%s of a run at %d", name, k % n);
        check_number(&l, metrics[k / n].kind, what, got, scalar(&l, path, k % n));
    }
    close_lora(&l);
}
END_TEST

Suite *lora_suite(void) {
    Suite *suite = suite_create("lora");
    TCase *tcase = tcase_create("golden");
    list_files();
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, adapters_start_as_in_maxtext, 0, n_files);
    tcase_add_loop_test(tcase, logits_agree, 0, n_files);
    tcase_add_loop_test(tcase, merged_weights_give_the_same_logits, 0, n_files);
    tcase_add_loop_test(tcase, loss_and_gradients_agree, 0, n_files);
    tcase_add_loop_test(tcase, five_steps_agree, 0, n_files);
    tcase_add_loop_test(tcase, splits_agree, 0, MX_COUNT(splits));
    tcase_add_loop_test(tcase, five_steps_through_the_command_line, 0, n_files);
    suite_add_tcase(suite, tcase);
    return suite;
}
