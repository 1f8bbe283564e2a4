/* test_policy.c — losses of rewarded responses against the systems that they come from: MaxText's
 * from tokens to gradients of every parameter, TRL's on given log-probabilities. */
#include "close.h"
#include "common/vars.h"
#include "golden.h"
#include "process.h"
#include "program/rewards.h"
#include "train_test.h"

#include <mx/run.h>

#include <check.h>
#include <math.h>
#include <stdlib.h>

static MxArena arena = {.name = "policy"};
static MxError err;
static MxH5 *file;
static const char *golden; /* its name, with the group */

static void close_all(void) {
    mx_arena_release(&arena);
}

static bool open_file(const char *name) {
    file = golden_open(&arena, golden = name);
    return file != NULL;
}

static const float *array(const char *group, const char *name, int64_t *n) {
    int64_t count;
    const char *path = mx_arena_printf(&arena, "%s/%s", group, name);
    const float *data = golden_read(&arena, file, path, n ? n : &count);
    ck_assert_msg(data != NULL, "no %s", path);
    return data;
}

static const char *text_of(const char *group, const char *name) {
    char *text = NULL;
    ck_assert_msg(mx_h5_attr(&arena, file, group, name, &text, &err) && text, "%s has no %s", group,
                  name);
    return text;
}

static void check_figure(CloseKind kind, const char *what, double got, double want) {
    close_number(&(Close){.golden = golden, .kind = kind, .what = what}, got, want);
}

/* ---- MaxText */

static const struct {
    const char *name, *words;
} cases[] = {
    {"old_b0.08_e0.2", "rl.grpo_beta=0.08 rl.grpo_epsilon=0.2 rl.recorded_logprobs=true"},
    {"old_b0_e0.1", "rl.grpo_beta=0 rl.grpo_epsilon=0.1 rl.recorded_logprobs=true"},
    {"old_b0.5_temp0.7", "rl.grpo_beta=0.5 rl.grpo_epsilon=0.2 rl.recorded_logprobs=true "
                         "decode_sampling_temperature=0.7"},
    {"onpolicy_b0.08", "rl.grpo_beta=0.08"},
};

enum { GROUPS = 2, SIDES = 2, ROWS = GROUPS * SIDES, LENGTH = 24 };

/* MaxText's groups lie together, here the first responses to all prompts come first. */
static int64_t row_of_golden(int64_t row) {
    return row % GROUPS * SIDES + row / GROUPS;
}

static MxTrainState *open_state(const char *words) {
    enum { CAP = 32 };
    MxConfig *config;
    MxTrainState *state;
    const char *yaml = text_of("", "config"), *overrides[CAP];
    const char *path = mx_path_join(&arena, process_dir(&arena, "policy"), "config.yml");
    ck_assert(mx_file_write(path, yaml, strlen(yaml), &err));
    const char *files[] = {"configs/base.yml", path};
    MxConfigRequest request = {.files = files, .n_files = 2, .overrides = overrides};
    char *save = NULL, *all = mx_arena_printf(&arena,
                                              "override_model_config=true use_grpo=true "
                                              "packing=false dataset_type=hf hf_train_files=x "
                                              "tokenizer_type=tiktoken tokenizer_path=x "
                                              "eval_interval=-1 per_device_batch_size=2 %s",
                                              words);
    for (char *w = strtok_r(all, " ", &save); w; w = strtok_r(NULL, " ", &save))
        overrides[request.n_overrides++] = w;
    ck_assert_msg(mx_config_load(&arena, &request, &config, &err) &&
                      mx_train_state_open(&arena, config, &state, &err),
                  "%s", err.text.data);
    mx_train_state_init(state);
    MxTree *tree = mx_train_state_tree(state);
    int axis = (int)config->param_scan_axis;
    ck_assert_msg(mx_ckpt_read(file, "nnx", "model/", axis, tree, &err), "%s", err.text.data);
    mx_train_state_begin(state);
    ck_assert_msg(config->grpo_beta == 0 ||
                      mx_ckpt_read(file, "nnx", "reference_model/", axis, tree, &err),
                  "%s", err.text.data);
    mx_train_state_restored(state);
    return state;
}

/* What counts is the completion, moved to the places that predict it. */
static MxBatch make_batch(float *rewards, float *logprobs) {
    MxBatch batch = mx_batch_new(&arena, ROWS, LENGTH);
    const float *tokens = array("batch", "prompt_completions", NULL);
    const float *positions = array("batch", "prompt_completions_position", NULL);
    const float *segments = array("batch", "prompt_completions_segmentation", NULL);
    const float *counts = array("batch", "ar_completions_segmentation", NULL);
    const float *old = golden_read(&arena, file, "completions_logprobs", &(int64_t){0});
    for (int64_t row = 0; row < ROWS; row++) {
        int64_t from = row_of_golden(row) * LENGTH, n = 0;
        for (int64_t t = 0; t < LENGTH; t++) {
            int64_t to = row * LENGTH + t, at = from + t;
            batch.field[MX_INPUTS][to] = (int32_t)tokens[at];
            batch.field[MX_INPUTS_POSITION][to] = (int32_t)positions[at];
            batch.field[MX_INPUTS_SEGMENTATION][to] = (int32_t)segments[at];
            if (t + 1 == LENGTH) continue;
            batch.field[MX_TARGETS][to] = (int32_t)tokens[at + 1];
            batch.field[MX_TARGETS_SEGMENTATION][to] = (int32_t)counts[at + 1];
            logprobs[to] = old[row_of_golden(row) * (LENGTH - 1) + t];
            n += counts[at + 1] != 0;
        }
        rewards[row] = -fabsf(20 - (float)(1 + n));
    }
    return batch;
}

START_TEST(maxtext_loss_and_gradient) {
    if (!open_file("train/grpo.h5")) return;
    const char *group = mx_arena_printf(&arena, "cases/%s", cases[_i].name);
    golden = mx_arena_printf(&arena, "train/grpo.h5:%s", cases[_i].name);
    float rewards[ROWS], logprobs[ROWS * LENGTH] = {0};
    MxBatch batch = make_batch(rewards, logprobs);
    MxTrainState *state = open_state(cases[_i].words);
    mx_train_give_rewards(state, &batch, rewards, logprobs);
    MxLoss loss = mx_train_loss_and_grad(state, &batch);
    const double *told = mx_train_sum(state, &loss, "rewards");
    check_figure(CLOSE_LOSS, "loss", loss.loss, (double)*array(group, "loss", NULL));
    check_figure(CLOSE_LOSS, "reward", told[0], (double)*array(group, "aux/avg_reward", NULL));
    check_figure(CLOSE_LOSS, "deviation", told[1],
                 (double)*array(group, "aux/avg_reward_std", NULL));
    check_figure(CLOSE_LOSS, "length",
                 mx_train_sum(state, &loss, "policy")[MX_POLICY_TOKENS] / ROWS,
                 (double)*array(group, "aux/completion_length", NULL));
    if (!mx_h5_has_array(file, mx_path_join(&arena, group, "grads/token_embedder/embedding")))
        return; /* the file has them of some cases */
    MxTree got = golden_gradient_tree(&arena, state), want;
    ck_assert(
        golden_like(&arena, state, file, mx_path_join(&arena, group, "grads"), 1, &want, &err));
    for (int i = 0; i < got.n; i++) {
        Close c = {.golden = golden, .kind = CLOSE_GRADIENT, .what = got.leaves[i].path};
        close_array(&c, got.leaves[i].data, want.leaves[i].data,
                    mx_shape_count(got.leaves[i].shape));
    }
}
END_TEST

/* A batch in two parts is the same batch: advantages are of groups, not of parts. */
START_TEST(accumulation_changes_nothing) {
    static const char *const algos[] = {"grpo", "dr_grpo", "dapo", "reinforce_pp", "rloo"};
    if (!open_file("train/grpo.h5")) return;
    float rewards[ROWS], logprobs[ROWS * LENGTH] = {0};
    MxBatch batch = make_batch(rewards, logprobs);
    double got[2];
    for (int parts = 1; parts <= 2; parts++) {
        MxTrainState *state = open_state(mx_arena_printf(
            &arena,
            "rl.recorded_logprobs=true rl.loss_algo=%s gradient_accumulation_steps=%d "
            "per_device_batch_size=%d",
            algos[_i], parts, GROUPS / parts));
        mx_train_give_rewards(state, &batch, rewards, logprobs);
        got[parts - 1] = mx_train_loss_and_grad(state, &batch).loss;
    }
    ck_assert_double_eq_tol(got[1], got[0], 1e-6 * fmax(1, fabs(got[0])));
    ck_assert_double_ne(got[0], 0);
}
END_TEST

/* ---- tunix */

/* All weights are 0, so that every token has the probability 1/300, and all have the largest
 * entropy. dr_grpo has a mean of its own, if no key says another. */
START_TEST(means_are_tunixs) {
    static const char *const modes[] = {"token-mean", "sequence-mean-token-mean",
                                        "sequence-mean-token-scale", "seq-mean-token-sum", ""};
    enum { MEAN_LENGTH = 8 };
    if (!open_file("train/loss_agg.h5")) return;
    MxConfig *config;
    MxTrainState *s;
    const char *words = "base_emb_dim=16 base_num_decoder_layers=1 base_num_query_heads=2 "
                        "base_num_kv_heads=2 head_dim=8 base_mlp_dim=16 vocab_size=300 "
                        "max_target_length=8 per_device_batch_size=2 use_grpo=true packing=false "
                        "dataset_type=hf hf_train_files=x rl.grpo_beta=0 "
                        "rl.recorded_logprobs=true rl.entropy_coef=0.25 "
                        "rl.top_entropy_quantile=0.3";
    const char *more =
        mx_arena_printf(&arena, "rl.loss_algo=dr_grpo rl.loss_agg_mode=%s", modes[_i]);
    ck_assert_msg(golden_config(&arena, words, more, &config, &err) &&
                      mx_train_state_open(&arena, config, &s, &err),
                  "%s", err.text.data);
    mx_train_state_init(s);
    MxBatch batch = mx_batch_new(&arena, ROWS, MEAN_LENGTH);
    const float *mask = array("", "mask", NULL), *given = array("", "rewards", NULL);
    float rewards[ROWS], logprobs[ROWS * MEAN_LENGTH];
    MxTree *tree = mx_train_state_tree(s);
    for (int i = 0; i < tree->n; i++)
        if (mx_text_has_prefix(tree->leaves[i].path, "model/"))
            mx_leaf_write(&tree->leaves[i],
                          mx_new_n(&arena, float, mx_shape_count(tree->leaves[i].shape)));
    for (int64_t i = 0; i < ROWS * MEAN_LENGTH; i++) {
        batch.field[MX_INPUTS][i] = batch.field[MX_TARGETS][i] = (int32_t)(i % 32);
        batch.field[MX_INPUTS_POSITION][i] = (int32_t)(i % MEAN_LENGTH);
        batch.field[MX_INPUTS_SEGMENTATION][i] = 1;
        batch.field[MX_TARGETS_SEGMENTATION][i] = (int32_t)mask[i];
    }
    memcpy(rewards, given, sizeof rewards);
    memcpy(logprobs, array("", "logprobs", NULL), sizeof logprobs);
    mx_train_give_rewards(s, &batch, rewards, logprobs);
    const char *name = *modes[_i] ? modes[_i] : "sequence-mean-token-scale";
    MxLoss loss = mx_train_loss_and_grad(s, &batch);
    check_figure(CLOSE_LOSS, name, loss.loss + 0.25 * log(300), (double)*array("loss", name, NULL));
    check_figure(CLOSE_LOSS, "entropy", *mx_train_sum(s, &loss, "entropy"),
                 mx_train_sum(s, &loss, "policy")[MX_POLICY_TOKENS] * log(300));
}
END_TEST

/* ---- TRL */

/* How TRL's losses are put together: what a row counts as, and what all are divided by. */
static const struct {
    const char *name;
    bool sums;
    enum { BY_ROWS, BY_TOKENS, BY_LENGTH } divisor;
    MxTrust trust;
} trl[] = {{"grpo", false, BY_ROWS, MX_TRUST_CLIP},     {"cispo", true, BY_TOKENS, MX_TRUST_WEIGHT},
           {"sapo", false, BY_ROWS, MX_TRUST_GATE},     {"bnpo", true, BY_TOKENS, MX_TRUST_CLIP},
           {"dapo", true, BY_TOKENS, MX_TRUST_CLIP},    {"luspo", true, BY_ROWS, MX_TRUST_CLIP},
           {"dr_grpo", true, BY_LENGTH, MX_TRUST_CLIP}, {"vespo", true, BY_TOKENS, MX_TRUST_GAMMA}};

typedef struct Given {
    MxVars vars;
    MxRun *run;
    int logp, weights, advantages, old, reference, entropy, loss, dlogp, dentropy;
} Given;

static int new_var(Given *g, MxDtype dtype, MxShape shape) {
    return mx_vars_add(&g->vars, "x", (MxType){dtype, shape});
}

/* Of tokens: the share with the largest entropies that count, and the weight of entropies. */
typedef struct Entropies {
    double share, weight;
} Entropies;

static void open_given(Given *g, MxShape shape, MxPolicyAttr attr, double divisor,
                       Entropies entropies) {
    MxTrace t;
    MxDevice *device;
    *g = (Given){.vars.arena = &arena};
    MxGraph *graph = mx_graph_new(&arena, "test", &g->vars);
    mx_trace_begin(&t, graph);
    g->logp = new_var(g, MX_F32, shape);
    g->weights = new_var(g, MX_I32, shape);
    g->advantages = new_var(g, MX_F32, shape);
    g->old = new_var(g, MX_F32, shape);
    g->reference = new_var(g, MX_F32, shape);
    g->entropy = new_var(g, MX_F32, shape);
    g->loss = new_var(g, MX_F32, MX_SCALAR);
    g->dlogp = new_var(g, MX_F32, shape);
    g->dentropy = new_var(g, MX_F32, shape);
    MxLogps logp = {mx_variable(&t, g->logp), mx_variable(&t, g->old),
                    attr.beta > 0 ? mx_variable(&t, g->reference) : MX_NONE};
    MxValue weights = mx_variable(&t, g->weights), entropy = mx_variable(&t, g->entropy);
    MxValue kept = mx_upper_tokens(&t, entropy, weights, (MxUpperAttr){entropies.share});
    MxValue loss = mx_policy(&t, logp, weights, mx_variable(&t, g->advantages),
                             entropies.share < 1 ? kept : MX_NONE, attr);
    loss = mx_scale(&t, loss, 1 / divisor);
    MxValue sum = mx_sum_lead(&t, mx_multiply(&t, entropy, kept), 2);
    MxValue mean = mx_ratio(&t, sum, mx_count_nonzero(&t, weights), 0);
    loss = mx_add(&t, loss, mx_scale(&t, mean, -entropies.weight));
    mx_trace_assign(&t, loss, g->loss, false);
    const MxGradTarget targets[] = {{.wrt = logp.policy, .var = g->dlogp},
                                    {.wrt = entropy, .var = g->dentropy}};
    mx_grad(&t, loss, targets, 2);
    ck_assert_msg(
        mx_trace_end(&t, &err) && mx_device_open(&arena, &(MxDeviceConfig){0}, &device, &err) &&
            mx_run_open(&arena, device, &g->vars, &graph, 1, MX_REMAT_NONE, &g->run, &err),
        "%s", err.text.data);
}

static double value_of(const char *group, const char *name) {
    return strtod(text_of(group, name), NULL);
}

/* Older files lack those of later losses. */
static double value_or(const char *group, const char *name, double other) {
    char *text = NULL;
    return mx_h5_attr(&arena, file, group, name, &text, &err) && text ? strtod(text, NULL) : other;
}

/* What a golden group says of log-probabilities; want: loss and gradient [rows, length]. */
typedef struct Judged {
    const char *logps, *old, *reference, *name;
    const int32_t *weights;
    const float *advantages, *loss, *gradient;
    Entropies how;
    const float *entropies, *of_entropies; /* the latter: their gradient; NULL = none */
} Judged;

static void check_given(const char *group, MxShape shape, MxPolicyAttr attr, double divisor,
                        const Judged *j) {
    Given g;
    open_given(&g, shape, attr, divisor, j->how);
    var_fill(g.run, g.logp, array(group, j->logps, NULL));
    var_fill(g.run, g.old, array(group, j->old, NULL));
    var_fill(g.run, g.reference, array(group, j->reference, NULL));
    var_fill(g.run, g.weights, j->weights);
    var_fill(g.run, g.advantages, j->advantages);
    var_fill(g.run, g.entropy, j->entropies ? j->entropies : j->advantages);
    mx_run_entry(g.run, 0);
    check_figure(CLOSE_LOSS, j->name, (double)*(const float *)var_values(&arena, g.run, g.loss),
                 (double)*j->loss);
    close_array(&(Close){.golden = golden, .kind = CLOSE_GRADIENT, .what = j->name},
                var_values(&arena, g.run, g.dlogp), j->gradient, mx_shape_count(shape));
    if (j->of_entropies)
        close_array(&(Close){.golden = golden, .kind = CLOSE_GRADIENT, .what = j->name},
                    var_values(&arena, g.run, g.dentropy), j->of_entropies, mx_shape_count(shape));
}

/* TRL's gradient outside the completions is nobody's. */
static void check_trl(const char *name, int how) {
    enum { TRL_ROWS = 6, TRL_LENGTH = 9, N = TRL_ROWS * TRL_LENGTH };
    const float *mask = array("grpo", "mask", NULL), *given = array("grpo", "advantages", NULL);
    float advantages[N], want[N];
    int32_t weights[N];
    double tokens = 0;
    const float *gradient = array(name, "grad_logps", NULL);
    for (int i = 0; i < N; i++) {
        advantages[i] = given[i / TRL_LENGTH];
        weights[i] = (int32_t)mask[i];
        tokens += (double)mask[i];
        want[i] = gradient[i] * mask[i];
    }
    MxPolicyAttr attr = {
        .ratio = strcmp(text_of(name, "level"), "token") ? MX_RATIO_MEAN : MX_RATIO_TOKEN,
        .trust = trl[how].trust,
        .sums = trl[how].sums,
        .most = value_of(name, "delta"),
        .rise = value_or(name, "sapo_temperature_pos", 1),
        .fall = value_or(name, "sapo_temperature_neg", 1.05), /* TRL's own */
        .shape = {value_or(name, "vespo_k_pos", 0), value_or(name, "vespo_k_neg", 0)},
        .rate = {value_or(name, "vespo_lambda_pos", 0), value_or(name, "vespo_lambda_neg", 0)},
        .off = value_or(name, "off", 0),
        .weighs_kl = value_or(name, "weighs_kl", 0) > 0,
        .low = value_of(name, "epsilon_low"),
        .high = value_of(name, "epsilon_high"),
        .beta = value_of(name, "beta")};
    if (attr.trust == MX_TRUST_WEIGHT) attr.most = attr.high;
    double divisor = trl[how].divisor == BY_TOKENS ? tokens : TRL_ROWS;
    if (trl[how].divisor == BY_LENGTH) divisor *= value_of(name, "max_completion_length");
    Judged judged = {
        .logps = "logps",
        .old = "old_logps",
        .reference = "ref_logps",
        .name = name,
        .weights = weights,
        .advantages = advantages,
        .loss = array(name, "loss", NULL),
        .gradient = want,
        .how = {value_or(name, "top_entropy_quantile", 1), value_or(name, "entropy_coef", 0)}};
    if (mx_h5_has_array(file, "grpo/entropies"))
        judged.entropies = array("grpo", "entropies", NULL);
    if (judged.how.weight != 0) judged.of_entropies = array(name, "grad_entropies", NULL);
    check_given("grpo", MX_SHAPE(TRL_ROWS, TRL_LENGTH), attr, divisor, &judged);
}

/* Without advantages the loss is the mean divergence. */
START_TEST(divergences_are_tunixs) {
    static const char *const names[MX_KL_COUNT] = {"low_var_kl", "kl", "mse_kl"};
    enum { KL_LENGTH = 8, N = ROWS * KL_LENGTH };
    if (!open_file("train/loss_agg.h5")) return;
    const char *group = mx_arena_printf(&arena, "kl/%s", names[_i]);
    const float *mask = array("", "mask", NULL), none[N] = {0};
    int32_t weights[N];
    double tokens = 0;
    for (int i = 0; i < N; i++) tokens += weights[i] = (int32_t)mask[i];
    check_given("", MX_SHAPE(ROWS, KL_LENGTH),
                (MxPolicyAttr){.kl = (MxKl)_i, .beta = 1, .sums = true}, tokens,
                &(Judged){.logps = "logprobs",
                          .old = "logprobs",
                          .reference = "reference",
                          .name = group,
                          .weights = weights,
                          .advantages = none,
                          .loss = array(group, "mean", NULL),
                          .gradient = array(group, "gradient", NULL),
                          .how = {.share = 1}});
}
END_TEST

/* TRL's deviations are those of samples, and 1e-4 is added to them. */
START_TEST(advantages_are_trls) {
    enum { SIDES_OF = 4, N = 12 };
    static const char *const names[SCALE_COUNT] = {"group", "batch", "none"};
    if (!open_file("hf/trl/losses.h5")) return;
    const float *given = array("grpo", "rewards_3_groups_of_4", NULL);
    const float *want = array("grpo", mx_arena_printf(&arena, "advantages_%s", names[_i]), NULL);
    float rewards[N];
    double got[N];
    for (int i = 0; i < N; i++) rewards[i % SIDES_OF * (N / SIDES_OF) + i / SIDES_OF] = given[i];
    rewards_advantages(BASELINE_GROUP, (RewardScale)_i, rewards, SIDES_OF, N / SIDES_OF, got);
    for (int i = 0; i < N; i++) {
        const float *of = _i == SCALE_GROUP ? given + i / SIDES_OF * SIDES_OF : given;
        const int n = _i == SCALE_GROUP ? SIDES_OF : N;
        double mean = 0, squares = 0;
        for (int k = 0; k < n; k++) mean += (double)of[k] / n;
        for (int k = 0; k < n; k++) squares += pow((double)of[k] - mean, 2);
        double theirs = _i == SCALE_NONE ? 1 : sqrt(squares / (n - 1)) + 1e-4;
        double ours = _i == SCALE_NONE ? 1 : sqrt(squares / n) + 1e-8;
        double own = got[i % SIDES_OF * (N / SIDES_OF) + i / SIDES_OF];
        ck_assert_double_eq_tol(own * ours / theirs, (double)want[i], 1e-5);
    }
}
END_TEST

static const char *const of_trl[] = {"hf/trl/losses.h5", "hf/trl/policies.h5"};

START_TEST(trl_losses) {
    enum { CAP = 60, LEAST = 28 }; /* seven losses of tokens and sequences, with and without kl */
    const char *all[CAP];
    int n_checked = 0;
    if (!open_file(of_trl[_i])) return;
    int n = golden_cases(&arena, file, "grpo", all, CAP);
    for (int i = 0; i < n; i++)
        for (int how = 0; how < MX_COUNT(trl); how++) {
            if (strcmp(text_of(all[i], "loss_type"), trl[how].name)) continue;
            check_trl(all[i], how);
            n_checked++;
        }
    ck_assert_int_eq(n_checked, n);
    ck_assert_int_ge(n, LEAST);
}
END_TEST

Suite *policy_suite(void) {
    Suite *suite = suite_create("policy");
    TCase *tcase = tcase_create("policy");
    tcase_add_checked_fixture(tcase, NULL, close_all);
    tcase_add_loop_test(tcase, maxtext_loss_and_gradient, 0, MX_COUNT(cases));
    tcase_add_loop_test(tcase, accumulation_changes_nothing, 0, 5);
    tcase_add_loop_test(tcase, means_are_tunixs, 0, 5);
    tcase_add_loop_test(tcase, divergences_are_tunixs, 0, MX_KL_COUNT);
    tcase_add_loop_test(tcase, advantages_are_trls, 0, SCALE_COUNT);
    tcase_add_loop_test(tcase, trl_losses, 0, MX_COUNT(of_trl));
    suite_add_tcase(suite, tcase);
    return suite;
}
