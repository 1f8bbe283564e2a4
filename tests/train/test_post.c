/* test_post.c — accumulation and preference training against MaxText: loss and every gradient of a
 * batch, trajectories of several steps, the reference model. Batches of pairs are cut here once
 * more, by the formulas of golden/train/README.md, so that the data room is not its own judge. */
#include "close.h"
#include "golden.h"
#include "process.h"
#include "train_test.h"

#include <check.h>
#include <math.h>
#include <stdio.h>

/* One file under one configuration, with the state made of it. */
typedef struct Post {
    MxArena arena;
    const char *name, *golden; /* golden: with the group, for bounds */
    MxH5 *file;
    MxConfig *config;
    MxTrainState *state;
    MxError err;
} Post;

#define POST_OK(p, condition) ck_assert_msg(condition, "%s: %s", (p)->name, (p)->err.text.data)

/* The configuration that stands as YAML at a group, and more overrides, separated by blanks. */
static void load_config(Post *p, const char *group, const char *more) {
    enum { CAP = 32 };
    char *yaml;
    POST_OK(p, mx_h5_attr(&p->arena, p->file, group, "config", &yaml, &p->err) && yaml);
    const char *path = mx_path_join(&p->arena, process_dir(&p->arena, "post"), "config.yml");
    POST_OK(p, mx_file_write(path, yaml, strlen(yaml), &p->err));
    const char *files[] = {"configs/base.yml", path}, *overrides[CAP];
    int n = 0;
    char *save = NULL;
    overrides[n++] = "override_model_config=true";
    for (char *w = strtok_r(mx_arena_strdup(&p->arena, more), " ", &save); w;
         w = strtok_r(NULL, " ", &save))
        overrides[n++] = w;
    MxConfigRequest request = {
        .files = files, .n_files = 2, .overrides = overrides, .n_overrides = n};
    POST_OK(p, mx_config_load(&p->arena, &request, &p->config, &p->err));
}

/* False where the folder of goldens lacks the file. */
static bool open_post(Post *p, const char *name, const char *group, const char *more) {
    *p = (Post){.arena = {.name = "post"}, .name = name};
    p->file = golden_open(&p->arena, mx_path_join(&p->arena, "train", name));
    if (!p->file) return false;
    p->golden = mx_arena_printf(&p->arena, "train/%s%s%s", name, *group ? ":" : "", group);
    load_config(p, group, more);
    POST_OK(p, mx_train_state_open(&p->arena, p->config, &p->state, &p->err));
    mx_train_state_init(p->state);
    POST_OK(p, mx_ckpt_read(p->file, "nnx", "model/", (int)p->config->param_scan_axis,
                            mx_train_state_tree(p->state), &p->err));
    close_nudge(mx_train_state_tree(p->state));
    mx_train_state_begin(p->state);
    return true;
}

static void close_post(Post *p) {
    mx_error_release(&p->err);
    mx_arena_release(&p->arena);
}

static double number(Post *p, const char *path, int64_t i) {
    int64_t n;
    const float *value = golden_read(&p->arena, p->file, path, &n);
    ck_assert_msg(value && i < n, "%s: no %s", p->name, path);
    return (double)value[i];
}

static void check_number(Post *p, CloseKind kind, const char *what, double got, double want) {
    Close c = {.golden = p->golden, .kind = kind, .what = what};
    close_number(&c, got, want);
}

static MxTree read_like(Post *p, const char *group) {
    MxTree tree;
    POST_OK(p, golden_like(&p->arena, p->state, p->file, group, (int)p->config->param_scan_axis,
                           &tree, &p->err));
    return tree;
}

/* Only what is trained. */
static MxTree read_trained(Post *p, const char *group) {
    MxKind kind = mx_model_trains(mx_train_state_model(p->state));
    MxTree *tree = mx_tree_select(&p->arena, mx_train_state_tree(p->state), kind);
    for (int i = 0; i < tree->n; i++)
        tree->leaves[i].data = mx_new_n(&p->arena, float, mx_shape_count(tree->leaves[i].shape));
    POST_OK(p,
            mx_ckpt_read(p->file, group, "model/", (int)p->config->param_scan_axis, tree, &p->err));
    return *tree;
}

static void check_gradients(Post *p, const char *group) {
    MxTree got = golden_gradient_tree(&p->arena, p->state), want = read_like(p, group);
    for (int i = 0; i < got.n; i++) {
        Close c = {.golden = p->golden, .kind = CLOSE_GRADIENT, .what = got.leaves[i].path};
        close_array(&c, got.leaves[i].data, want.leaves[i].data,
                    mx_shape_count(got.leaves[i].shape));
    }
}

/* ---- batches of pairs, MaxText's mask */

static const int32_t *ids(Post *p, const char *group, const char *name, int64_t step,
                          MxShape *out) {
    MxH5Array array;
    const char *path = mx_arena_printf(&p->arena, "%s/%s", group, name);
    POST_OK(p, mx_h5_stat(p->file, path, &array, &p->err));
    int32_t *data = mx_new_n(&p->arena, int32_t, mx_shape_count(array.shape));
    POST_OK(p, mx_h5_read(p->file, path, MX_I32, array.shape, data, &p->err));
    bool has_steps = array.shape.rank == 3;
    *out = MX_SHAPE(array.shape.dim[has_steps], array.shape.dim[has_steps + 1]);
    return data + (has_steps ? step * mx_shape_count(*out) : 0);
}

static MxBatch pair_batch(Post *p, const char *group, int64_t step) {
    static const char *const sides[] = {"chosen", "rejected"};
    const int32_t *token[2], *position[2], *segment[2];
    MxShape shape;
    for (int s = 0; s < 2; s++) {
        const char *side = sides[s];
        token[s] = ids(p, group, side, step, &shape);
        position[s] = ids(p, group, mx_arena_printf(&p->arena, "%s_position", side), step, &shape);
        segment[s] =
            ids(p, group, mx_arena_printf(&p->arena, "%s_segmentation", side), step, &shape);
    }
    int64_t pairs = shape.dim[0], length = shape.dim[1];
    MxBatch batch = mx_batch_new(&p->arena, 2 * pairs, length);
    for (int64_t row = 0; row < pairs; row++) {
        bool differs = false;
        for (int64_t t = 0; t < length; t++) {
            int64_t i = row * length + t;
            differs = differs || (t && token[0][i] != token[1][i]);
            bool counts = t && differs && segment[0][i] == 1 && segment[1][i] == 1;
            for (int s = 0; s < 2; s++) {
                int64_t k = i + s * pairs * length;
                int32_t is_own = segment[s][i] == 1;
                batch.field[MX_INPUTS][k] = token[s][i];
                batch.field[MX_INPUTS_POSITION][k] = position[s][i] * is_own;
                batch.field[MX_INPUTS_SEGMENTATION][k] = is_own;
                if (!t) continue;
                batch.field[MX_TARGETS][k - 1] = token[s][i];
                batch.field[MX_TARGETS_SEGMENTATION][k - 1] = counts;
            }
        }
    }
    return batch;
}

static MxBatch read_batch(Post *p, const char *group, int64_t step) {
    return p->config->use_dpo ? pair_batch(p, group, step)
                              : golden_batch(&p->arena, p->file, group, step);
}

/* ---- loss and gradient of one batch */

/* The configuration of a group on a batch, against the values of a group. Accumulation leaves
 * losses of modules that look further ahead, and of experts that are chosen unevenly, as they are
 * in the undivided batch; the original's do not. */
static const struct {
    const char *file, *group, *batch, *values;
} batches[] = {
    {"grad_accum_dense.h5", "ga1", "batch", "ga1"},
    {"grad_accum_dense.h5", "ga2", "batch", "ga2"},
    {"grad_accum_dense.h5", "ga4", "batch", "ga4"},
    {"grad_accum_mtp.h5", "ga1", "batch", "ga1"},
    {"grad_accum_mtp.h5", "ga2", "batch", "ga1"},
    {"grad_accum_mtp.h5", "ga4", "batch", "ga1"},
    {"grad_accum_moe.h5", "ga1", "batch", "ga1"},
    {"grad_accum_moe.h5", "ga2", "batch", "ga1"},
    {"grad_accum_moe.h5", "ga4", "batch", "ga1"},
    {"mtp_mtp1.h5", "padded", "padded/batch", "padded"},
    {"mtp_mtp1.h5", "packed", "packed/batch", "packed"},
    {"mtp_mtp2.h5", "padded", "padded/batch", "padded"},
    {"mtp_mtp2.h5", "packed", "packed/batch", "packed"},
};

/* A scalar that the loss sums up; 0 if it does not. */
static double sum_of(const Post *p, const MxLoss *loss, const char *name) {
    const double *sum = mx_train_sum(p->state, loss, name);
    return sum ? *sum : 0;
}

START_TEST(loss_and_gradient) {
    Post p;
    if (!open_post(&p, batches[_i].file, batches[_i].group, "")) return;
    MxBatch batch = read_batch(&p, batches[_i].batch, 0);
    MxLoss loss = mx_train_loss_and_grad(p.state, &batch);
    const char *values = batches[_i].values;
    const struct {
        const char *name;
        CloseKind kind;
        double got;
    } figures[] = {
        {"loss", CLOSE_LOSS, loss.loss},
        {"aux/total_weights", CLOSE_COUNT, loss.total_weights},
        {"aux/xent_sum", CLOSE_LOSS, sum_of(&p, &loss, "xent_sum")},
        {"aux/mtp_loss", CLOSE_LOSS, sum_of(&p, &loss, "ahead_loss")},
        {"aux/moe_lb_loss", CLOSE_LOSS, sum_of(&p, &loss, "moe_lb_loss")},
    };
    for (int i = 0; i < MX_COUNT(figures); i++)
        check_number(&p, figures[i].kind, figures[i].name, figures[i].got,
                     number(&p, mx_path_join(&p.arena, values, figures[i].name), 0));
    check_gradients(&p, mx_path_join(&p.arena, values, "grads"));
    close_post(&p);
}
END_TEST

/* Evaluation leaves the modules' loss out. */
static const char *const evaluations[] = {"mtp_mtp1.h5", "mtp_mtp2.h5"};

START_TEST(evaluation) {
    Post p;
    if (!open_post(&p, evaluations[_i], "padded", "")) return;
    MxBatch batch = read_batch(&p, "padded/batch", 0);
    MxLoss loss = mx_train_eval(p.state, &batch);
    check_number(&p, CLOSE_LOSS, "evaluation", loss.loss,
                 number(&p, "eval_padded/evaluation/loss", 0));
    check_number(&p, CLOSE_COUNT, "weights", loss.total_weights,
                 number(&p, "eval_padded/evaluation/total_weights", 0));
    ck_assert(sum_of(&p, &loss, "predicted") == 0 && sum_of(&p, &loss, "ahead_loss") == 0);
    close_post(&p);
}
END_TEST

/* A case is the name of a group, "beta0.1_ls0.05". */
static void check_preference_case(const char *name) {
    Post p;
    double beta, smoothing;
    ck_assert_int_eq(sscanf(name, "beta%lf_ls%lf", &beta, &smoothing), 2);
    MxArena arena = {.name = "words"};
    const char *more = mx_arena_printf(&arena,
                                       "use_dpo=true dpo.formula=maxtext dpo.dpo_beta=%g "
                                       "dpo.dpo_label_smoothing=%g",
                                       beta, smoothing);
    if (!open_post(&p, "dpo_loss.h5", "", more)) {
        mx_arena_release(&arena);
        return;
    }
    MxTree *tree = mx_train_state_tree(p.state);
    POST_OK(&p, mx_ckpt_read(p.file, "nnx", "reference_model/", (int)p.config->param_scan_axis,
                             tree, &p.err));
    mx_train_state_restored(p.state);
    MxBatch batch = pair_batch(&p, "batch", 0);
    MxLoss loss = mx_train_loss_and_grad(p.state, &batch);
    const char *group = mx_arena_printf(&arena, "cases/%s", name);
    p.golden = mx_arena_printf(&arena, "train/%s:%s", p.name, name);
    check_number(&p, CLOSE_LOSS, "loss", loss.loss,
                 number(&p, mx_path_join(&arena, group, "loss"), 0));
    check_number(&p, CLOSE_COUNT, "reward accuracy",
                 mx_train_sum(p.state, &loss, "pairs")[MX_PAIRS_CORRECT] / loss.total_weights,
                 number(&p, mx_path_join(&arena, group, "aux/reward_accuracy"), 0));
    if (mx_h5_has_array(p.file, mx_path_join(&arena, group, "grads/decoder/decoder_norm/scale")))
        check_gradients(&p, mx_path_join(&arena, group, "grads"));
    close_post(&p);
    mx_arena_release(&arena);
}

static const char *const preference_cases[] = {
    "beta0.0_ls0.0", "beta0.1_ls0.0", "beta0.1_ls0.1", "beta0.5_ls0.0",
    "beta1.0_ls0.0", "beta1.0_ls0.3", "beta2.0_ls0.5",
};

START_TEST(preference_loss_and_gradient) {
    check_preference_case(preference_cases[_i]);
}
END_TEST

/* Losses of pairs leave modules that look ahead alone, as the original does: they are there, they
 * add nothing, and no gradient reaches them. */
START_TEST(pairs_leave_modules_alone) {
    static const char *const more[] = {"use_dpo=true", "use_dpo=true mtp_num_layers=2"};
    Post p[2];
    MxLoss loss[2];
    int n_alone = 0;
    for (int i = 0; i < 2; i++) {
        p[i] = (Post){.arena = {.name = "post"}, .name = "dpo_loss.h5"};
        p[i].file = golden_open(&p[i].arena, "train/dpo_loss.h5");
        if (!p[i].file) return;
        load_config(&p[i], "", more[i]);
        POST_OK(&p[i], mx_train_state_open(&p[i].arena, p[i].config, &p[i].state, &p[i].err));
        mx_train_state_init(p[i].state);
        mx_train_state_begin(p[i].state);
        MxBatch batch = pair_batch(&p[i], "batch", 0);
        loss[i] = mx_train_loss_and_grad(p[i].state, &batch);
    }
    const MxTree *with = mx_model_params(mx_train_state_model(p[1].state));
    const MxTree *without = mx_model_params(mx_train_state_model(p[0].state));
    ck_assert(loss[1].loss == loss[0].loss && !mx_train_sum(p[1].state, &loss[1], "ahead_loss"));
    for (int i = 0; i < with->n; i++) {
        int other = mx_tree_find(without, with->leaves[i].path);
        const float *got = mx_train_gradient(&p[1].arena, p[1].state, i);
        const float *want = other < 0 ? NULL : mx_train_gradient(&p[0].arena, p[0].state, other);
        n_alone += other < 0;
        for (int64_t k = 0; k < mx_shape_count(with->leaves[i].shape); k++)
            ck_assert_msg(got[k] == (want ? want[k] : 0), "gradient of %s", with->leaves[i].path);
    }
    ck_assert_int_gt(n_alone, 0);
    for (int i = 0; i < 2; i++) close_post(&p[i]);
}
END_TEST

/* A copy of the policy that is taken anew is seen at once, though steps read it in bfloat16: policy
 * and reference are the same, else mx_train_loss_and_grad stops the program. */
START_TEST(a_reference_taken_anew_is_seen) {
    Post p = {.arena = {.name = "post"}, .name = "dpo_loss.h5"};
    p.file = golden_open(&p.arena, "train/dpo_loss.h5");
    if (!p.file) return;
    load_config(&p, "", "use_dpo=true dtype=bfloat16 learning_rate=0.1 warmup_steps_fraction=0");
    POST_OK(&p, mx_train_state_open(&p.arena, p.config, &p.state, &p.err));
    mx_train_state_init(p.state);
    MxBatch batch = pair_batch(&p, "batch", 0);
    mx_train_state_begin(p.state);
    double start = mx_train_loss_and_grad(p.state, &batch).loss;
    mx_train_update(p.state);
    double later = mx_train_loss_and_grad(p.state, &batch).loss;
    mx_train_state_begin(p.state);
    ck_assert_double_ne(later, start);
    ck_assert_double_eq_tol(mx_train_loss_and_grad(p.state, &batch).loss, start, 1e-6);
    close_post(&p);
}
END_TEST

/* ---- trajectories */

/* The original adds up figures of micro-batches that are means; `loss` and `pairs` correct what it
 * logs. */
static const struct {
    const char *file, *group, *batches;
    int steps;
    double loss, pairs;
    const char *more; /* overrides */
    const char *want; /* the undivided run whose values count, NULL = the file's own: under
                         accumulation the original clips adapters by a norm over the base too */
} trajectories[] = {
    {"grad_accum_dense.h5", "traj_ga2", "traj_batches", 3, 1, 1, "", NULL},
    {"dpo_traj_ga1.h5", "", "batches", 5, 1, 1, "", NULL},
    {"dpo_traj_ga2.h5", "", "batches", 5, 2, 0.5, "", NULL},
    {"dpo_lora_traj.h5", "", "batches", 5, 1, 1, " use_dpo=true", NULL},
    {"dpo_lora_traj_ga2.h5", "", "batches", 5, 1, 1, " use_dpo=true", "dpo_lora_traj.h5"},
};

/* An override for an attribute of the file, if it is there. */
static const char * override(Post *p, const char *key, const char *attribute) {
    char *value;
    POST_OK(p, mx_h5_attr(&p->arena, p->file, "", attribute, &value, &p->err));
    return value ? mx_arena_printf(&p->arena, " %s=%s", key, value) : "";
}

static bool open_trajectory(Post *p, int i, const char **traj) {
    Post first = {.arena = {.name = "attributes"}, .name = trajectories[i].file};
    first.file = golden_open(&first.arena, mx_path_join(&first.arena, "train", first.name));
    if (!first.file) return false;
    const char *beta = override(&first, "dpo.dpo_beta", "dpo_beta");
    const char *smoothing = override(&first, "dpo.dpo_label_smoothing", "dpo_label_smoothing");
    bool ok = open_post(p, trajectories[i].file, trajectories[i].group,
                        mx_arena_printf(&first.arena, "dpo.formula=maxtext%s%s%s", beta, smoothing,
                                        trajectories[i].more));
    *traj = *trajectories[i].group ? trajectories[i].group : "traj";
    close_post(&first);
    return ok;
}

static void check_step(Post *p, int i, const char *traj, int64_t step, MxLoss loss,
                       MxUpdate update) {
    const CloseKind a_loss = step ? CLOSE_LATER_LOSS : CLOSE_LOSS;
    const CloseKind a_norm = step ? CLOSE_LATER_NORM : CLOSE_NORM;
    const double *pairs = mx_train_sum(p->state, &loss, "pairs");
    const struct {
        const char *name;
        CloseKind kind;
        double got, factor;
    } metrics[] = {
        {"loss", a_loss, loss.loss, trajectories[i].loss},
        {"total_weights", CLOSE_COUNT, loss.total_weights, 1},
        {"raw_grad_norm", a_norm, update.raw_grad_norm, 1},
        {"grad_norm", a_norm, update.grad_norm, 1},
        {"param_norm", CLOSE_NORM, update.param_norm, 1},
        {"dpo_loss", a_loss, pairs ? pairs[MX_PAIRS_LOSS] / loss.total_weights : 0,
         trajectories[i].pairs},
        {"dpo_reward_accuracy", CLOSE_COUNT,
         pairs ? pairs[MX_PAIRS_CORRECT] / loss.total_weights : 0, trajectories[i].pairs},
    };
    const int n_common = MX_COUNT(metrics) - 2;
    for (int m = 0; m < (p->config->use_dpo ? MX_COUNT(metrics) : n_common); m++) {
        const char *path =
            mx_arena_printf(&p->arena, "%s/metrics/learning/%s", traj, metrics[m].name);
        if (m >= n_common && !mx_h5_has_array(p->file, path)) continue; /* runs with adapters */
        check_number(p, metrics[m].kind,
                     mx_arena_printf(&p->arena, "%s at step %d", metrics[m].name, (int)step),
                     metrics[m].got, metrics[m].factor * number(p, path, step));
    }
}

/* The reference model has the bytes of the initial policy; with adapters it is the policy without
 * them, and those weights have not changed. */
static void check_reference(Post *p) {
    const MxTree *tree = mx_train_state_tree(p->state);
    MxTree initial = read_like(p, "nnx");
    int n = 0;
    for (int i = 0; p->config->enable_lora && i < initial.n; i++) {
        const MxLeaf *leaf = &initial.leaves[i];
        bool is_same = !memcmp(leaf->data, mx_leaf_values(&p->arena, &tree->leaves[i]),
                               (size_t)mx_shape_count(leaf->shape) * sizeof(float));
        ck_assert_msg(is_same == (leaf->kind == MX_KIND_PARAM), "%s: %s", p->name, leaf->path);
    }
    for (int i = 0; i < tree->n; i++) {
        const MxLeaf *leaf = &tree->leaves[i];
        if (leaf->kind != MX_KIND_REFERENCE) continue;
        ck_assert_msg(!memcmp(mx_leaf_values(&p->arena, leaf), initial.leaves[n++].data,
                              (size_t)mx_shape_count(leaf->shape) * sizeof(float)),
                      "%s: %s has changed", p->name, leaf->path);
    }
    ck_assert_int_eq(n, p->config->use_dpo && !p->config->enable_lora ? initial.n : 0);
}

START_TEST(trajectory) {
    Post p, want_from = {.arena = {.name = "undivided"}};
    const char *traj;
    if (!open_trajectory(&p, _i, &traj)) return;
    MxH5 *own = p.file;
    if (trajectories[_i].want)
        want_from.file =
            golden_open(&want_from.arena, mx_path_join(&p.arena, "train", trajectories[_i].want));
    if (trajectories[_i].want && !want_from.file) {
        close_post(&p);
        return;
    }
    for (int64_t step = 0; step < trajectories[_i].steps; step++) {
        p.file = own;
        MxBatch batch = read_batch(&p, trajectories[_i].batches, step);
        MxLoss loss = mx_train_loss_and_grad(p.state, &batch);
        if (want_from.file) p.file = want_from.file;
        check_step(&p, _i, traj, step, loss, mx_train_update(p.state));
    }
    MxTree *got = mx_train_state_tree(p.state);
    MxTree want =
        read_trained(&p, mx_arena_printf(&p.arena, "%s/step%d/nnx", traj, trajectories[_i].steps));
    for (int i = 0; i < want.n; i++) {
        const MxLeaf *leaf = &want.leaves[i];
        Close c = {.golden = p.golden, .kind = CLOSE_FINAL, .what = leaf->path};
        close_final(&c, mx_leaf_values(&p.arena, &got->leaves[mx_tree_find(got, leaf->path)]),
                    leaf->data, mx_shape_count(leaf->shape));
    }
    p.file = own;
    check_reference(&p);
    close_post(&p);
    close_post(&want_from);
}
END_TEST

Suite *post_suite(void) {
    Suite *suite = suite_create("post-training");
    TCase *tcase = tcase_create("golden");
    tcase_add_loop_test(tcase, loss_and_gradient, 0, MX_COUNT(batches));
    tcase_add_loop_test(tcase, evaluation, 0, MX_COUNT(evaluations));
    tcase_add_loop_test(tcase, preference_loss_and_gradient, 0, MX_COUNT(preference_cases));
    tcase_add_test(tcase, pairs_leave_modules_alone);
    tcase_add_test(tcase, a_reference_taken_anew_is_seen);
    tcase_add_loop_test(tcase, trajectory, 0, MX_COUNT(trajectories));
    suite_add_tcase(suite, tcase);
    return suite;
}
