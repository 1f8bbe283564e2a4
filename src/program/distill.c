/* distill.c — the loss of a student: cross-entropy with targets, the KL divergence from the
 * teacher's distribution at a temperature, and the distance of attention features from the
 * teacher's. Evaluation compares the student only with targets. Source: MaxText
 * trainers/post_train/distillation/distillation_utils.py @e591f30c. */
#include <mx/program.h>

#include "internal.h"
#include "teacher.h"

#include <math.h>

enum { SUMS, FEATURE, NUMBERS, BALANCE, TEACHER_BALANCE, OUTPUTS };
/* The first of each among all sums. */
enum {
    AT_FEATURE = MX_DISTILL_SUMS,
    AT_NUMBERS = AT_FEATURE + 1,
    AT_BALANCE = AT_NUMBERS + MX_DISTILL_NUMBERS,
    AT_TEACHER_BALANCE = AT_BALANCE + 1
};

static bool is_meant(const MxConfig *config) {
    return mx_config_distils(config);
}

static void weigh(MxTrainState *s, MxTrace *t, const int *batch, MxValue *weights) {
    (void)s;
    weights[0] = mx_count_nonzero(t, mx_variable(t, batch[MX_TARGETS_SEGMENTATION]));
}

/* ---- features */

/* Layers whose features are compared: those of distill_layer_indices, which were checked, or all.
 */
static int64_t *list_layers(MxArena *arena, const MxConfig *c, int64_t *n) {
    const MxYaml *list = c->distill_layer_indices;
    bool is_all = list->kind != MX_YAML_LIST;
    *n = is_all ? c->num_decoder_layers : list->n;
    int64_t *layers = mx_new_n(arena, int64_t, *n);
    for (int64_t i = 0; is_all && i < *n; i++) layers[i] = i;
    if (!is_all) mx_config_numbers(list, list->n, layers);
    return layers;
}

/* Features of both, one of them a layer; NULL = they are not asked for. */
typedef struct Features {
    MxValue *student, *teacher;
} Features;

static Features ask_features(MxTrainState *s) {
    const MxConfig *c = s->config;
    if (c->distill_beta == 0) return (Features){0};
    return (Features){mx_new_n(s->arena, MxValue, c->num_decoder_layers),
                      mx_new_n(s->arena, MxValue, c->teacher->num_decoder_layers)};
}

/* Their mean distance over layers and tokens, added to a loss. */
static MxValue add_features(MxTrainState *s, MxTrace *t, const int *batch, Features features,
                            MxValue weight, MxValue loss) {
    const MxConfig *c = s->config;
    const MxFeatureAttr attr = {.is_cosine = !strcmp(c->distill_feature_loss_type, "cosine")};
    MxValue sum = MX_NONE;
    if (!features.student || loss < 0) return loss;
    int64_t n, *layers = list_layers(s->arena, c, &n);
    MxValue weights = mx_variable(t, batch[MX_TARGETS_SEGMENTATION]);
    MxValue numbers = mx_variable(t, teacher_of(s)->numbers);
    t->scope = "features";
    for (int64_t i = 0; i < n; i++) {
        int64_t layer = layers[i];
        MxValue distance =
            mx_feature(t, features.student[layer], features.teacher[layer], weights, numbers, attr);
        sum = i ? mx_add(t, sum, distance) : distance;
    }
    MxValue mean = mx_scale(t, mx_ratio(t, sum, weight, LOSS_EPS), 1 / (double)n);
    mx_trace_assign(t, mean, loss_output(s, FEATURE), false);
    return mx_add(t, loss, mean);
}

/* ---- traces */

/* What no sum over examples is, told of the whole batch. */
static void tell(MxTrainState *s, MxTrace *t, MxValue value, int output) {
    value = mx_scale(t, value, 1.0 / (double)s->config->micro_batches);
    mx_trace_assign(t, value, loss_output(s, output), false);
}

static MxValue trace(MxTrainState *s, MxTrace *t, const MxValue *params, const int *batch,
                     const MxValue *total) {
    MxModelInputs in = program_inputs(s, t, batch), of_other = program_plain(in);
    Features features = ask_features(s);
    MxBalance balance = {.sum = MX_NONE}, of_teacher = {.sum = MX_NONE};
    MxValue numbers = mx_variable(t, teacher_of(s)->numbers);
    of_other.balance = &of_teacher;
    of_other.features = features.teacher;
    MxModelSide teacher = {0};
    if (s->config->teacher)
        teacher = teacher_side(s, t, of_other); /* first: little is kept of it */
    in.balance = &balance;
    in.features = features.student;
    MxModelSide student = {s->model, params, mx_model_hidden(t, s->model, params, in)};
    MxValue targets = mx_variable(t, batch[MX_TARGETS]), sum, top, ids;
    MxValue weights = mx_variable(t, batch[MX_TARGETS_SEGMENTATION]);
    if (teacher.model) {
        sum = mx_model_distill(t, student, teacher, targets, weights, numbers);
    } else {
        const Teacher *known = teacher_of(s);
        top = mx_variable(t, batch[known->top]);
        ids = mx_variable(t, batch[known->ids]);
        sum = mx_model_distill_top(t, student, top, ids, targets, weights, numbers);
    }
    if (sum < 0) return sum;
    t->scope = "loss";
    mx_trace_assign(t, sum + 1, loss_output(s, SUMS), false);
    tell(s, t, numbers, NUMBERS);
    if (of_teacher.n) tell(s, t, mx_scale(t, of_teacher.sum, 1.0 / of_teacher.n), TEACHER_BALANCE);
    MxValue loss = mx_ratio(t, sum, total[0], LOSS_EPS);
    loss = add_features(s, t, batch, features, total[0], loss);
    return program_add_balance(s, t, batch, balance, BALANCE, loss);
}

static MxValue eval(MxTrainState *s, MxTrace *t, const MxValue *params, const int *batch,
                    const MxValue *weights) {
    MxValue hidden = mx_model_hidden(t, s->model, params, program_inputs(s, t, batch));
    MxValue sum = mx_model_nll(t, s->model, params, hidden, mx_variable(t, batch[MX_TARGETS]),
                               mx_variable(t, batch[MX_TARGETS_SEGMENTATION]));
    t->scope = "loss";
    return mx_ratio(t, sum, weights[0], LOSS_EPS);
}

/* ---- what is told of them */

/* A batch that goes wrong does not make all means infinite. Source: _PPL_CE_CAP. */
static double perplexity_of(double loss) {
    static const double most = 20;
    return exp(fmin(loss, most));
}

static double perplexity(const MxLoss *loss, int i) {
    return perplexity_of(loss_mean(loss, i));
}

static double soft(const MxLoss *loss, int i) {
    double heat = loss->sum[AT_NUMBERS + MX_DISTILL_TEMPERATURE];
    return heat * heat * loss_mean(loss, i);
}

static double whole(const MxLoss *loss, int i) {
    (void)i;
    return loss->loss;
}

static double eval_perplexity(const MxLoss *loss, int i) {
    (void)i;
    return perplexity_of(loss->loss);
}

static bool knows_all_logits(const MxConfig *config) {
    return config->teacher != NULL;
}

static bool teacher_has_balance(const MxConfig *config) {
    return config->teacher && loss_has_balance(config->teacher);
}

static bool has_features(const MxConfig *config) {
    return config->distill_beta > 0;
}

static const LossOutput outputs[] = {
    [SUMS] = {"distill", MX_DISTILL_SUMS},          [FEATURE] = {"feature", 1},
    [NUMBERS] = {"numbers", MX_DISTILL_NUMBERS},    [BALANCE] = {"moe_lb_loss", 1},
    [TEACHER_BALANCE] = {"teacher_moe_lb_loss", 1}, [OUTPUTS] = {0}};

// clang-format off
static const MxFigure figures[] = {
    {.metric = "distill/total_loss", .value = whole},
    {.metric = "distill/hard_loss", .value = loss_mean, .sum = MX_DISTILL_HARD, .label = "hard_loss", .decimals = 3},
    {.metric = "distill/soft_loss", .value = soft, .sum = MX_DISTILL_KL, .label = "soft_loss", .decimals = 3},
    {.metric = "distill/teacher_loss", .is_meant = knows_all_logits, .value = loss_mean, .sum = MX_DISTILL_TEACHER, .label = "teacher_loss", .decimals = 3},
    {.metric = "distill/kl_div_T1", .is_meant = knows_all_logits, .value = loss_mean, .sum = MX_DISTILL_KL_PLAIN, .label = "kl_div_T1", .decimals = 3},
    {.metric = "distill/kl_div_at_T", .value = loss_mean, .sum = MX_DISTILL_KL},
    {.metric = "distill/student_perplexity", .value = perplexity, .sum = MX_DISTILL_HARD},
    {.metric = "distill/teacher_perplexity", .is_meant = knows_all_logits, .value = perplexity, .sum = MX_DISTILL_TEACHER},
    {.metric = "distill/out_proj_feature_loss", .is_meant = has_features, .value = loss_sum, .sum = AT_FEATURE, .label = "feature_loss", .decimals = 3},
    {.metric = "distill/teacher_moe_lb_loss", .is_meant = teacher_has_balance, .value = loss_sum, .sum = AT_TEACHER_BALANCE},
    {.metric = "distill/temperature", .value = loss_sum, .sum = AT_NUMBERS + MX_DISTILL_TEMPERATURE},
    {.metric = "distill/alpha", .value = loss_sum, .sum = AT_NUMBERS + MX_DISTILL_ALPHA},
    {.metric = "distill/beta_feature", .value = loss_sum, .sum = AT_NUMBERS + MX_DISTILL_BETA},
    {.metric = "distill/moe_lb_loss", .is_meant = loss_has_balance, .value = loss_sum, .sum = AT_BALANCE},
    LOSS_BALANCE_FIGURE(AT_BALANCE),
    {0},
};

static const MxFigure eval_figures[] = {
    {.metric = "eval/hard_loss", .value = whole, .label = "hard_loss", .decimals = 3},
    {.metric = "eval/student_perplexity", .value = eval_perplexity, .label = "perplexity", .decimals = 3},
    {.metric = "eval/total_weights", .label = "total_weights"},
    {0},
};
// clang-format on

const Loss loss_distill = {
    .is_meant = is_meant,
    .weights = {"weights"},
    .weigh = weigh,
    .trace = trace,
    .eval = eval,
    .outputs = outputs,
    .figures = figures,
    .eval_figures = eval_figures,
};
