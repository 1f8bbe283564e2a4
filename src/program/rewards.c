/* rewards.c — rewards of responses as a part of a program: an advantage for every row of a batch,
 * computed from the rewards of the whole batch, and the log-probabilities with which rows were
 * generated. If several steps learn from one batch, these are the first step's, and are leaves of
 * the state, like the generated responses, so that a run can resume between the steps. */
#include "rewards.h"

#include "internal.h"

#include <math.h>

static bool is_wanted(const MxConfig *config) {
    return config->use_grpo;
}

Rewards *rewards_of(const MxTrainState *s) {
    return program_part(s, PART_rewards);
}

static bool declare(MxTrainState *s, MxError *err) {
    (void)err;
    Rewards *own = rewards_of(s);
    own->advantage = program_declare_input(s, "advantage", MX_F32);
    own->measures = !s->config->rl_recorded_logprobs && mx_config_iterations(s->config) > 1;
    own->old = s->config->rl_recorded_logprobs || own->measures
                   ? program_declare_input(s, "old_logp", MX_F32)
                   : MX_NONE;
    own->numbers = program_add_var(s, "in", "rewards", (MxType){MX_F32, MX_SHAPE(REWARDS_NUMBERS)});
    return true;
}

MxValue rewards_old(MxTrainState *s, MxTrace *t, const int *batch) {
    const Rewards *own = rewards_of(s);
    bool is_eval = batch == s->var.batch[true];
    if (own->old == MX_NONE || (own->measures && is_eval)) return MX_NONE;
    return mx_variable(t, batch[own->old]);
}

/* ---- what steps with the same batch have in common */

static void *keep(MxTrainState *s, const char *name, MxType type) {
    int64_t n = mx_shape_count(type.shape);
    void *data = mx_arena_alloc(s->arena, (size_t)n * mx_dtype_bytes(type.dtype));
    program_add_numbers(s, mx_arena_printf(s->arena, "mxtrain/responses/%s", name), type, data);
    return data;
}

static void show(MxTrainState *s) {
    const MxConfig *c = s->config;
    Rewards *own = rewards_of(s);
    int64_t rows = mx_train_rows(c) * c->global_batch_size_to_load;
    const MxShape all = MX_SHAPE(rows, c->max_target_length);
    bool writes = mx_config_writes(c);
    if (mx_config_iterations(c) == 1 || !program_is_training(s)) return;
    own->batch = keep(s, "batch", (MxType){MX_I64, MX_SCALAR});
    if (writes) own->kept.tokens = keep(s, "tokens", (MxType){MX_I32, all});
    if (writes) own->kept.rewards = keep(s, "rewards", (MxType){MX_F32, MX_SHAPE(rows)});
    if (writes || own->measures) own->kept.logprobs = keep(s, "logprobs", (MxType){MX_F32, all});
}

static int64_t batch_of(const MxTrainState *s) {
    return 1 + *s->step / mx_config_iterations(s->config);
}

MxResponses *mx_train_responses(MxTrainState *s, bool *are_here) {
    Rewards *own = rewards_of(s);
    *are_here = own && own->batch && *own->batch == batch_of(s);
    return own && own->batch ? &own->kept : NULL;
}

static void trace_remember(MxTrainState *s, MxTrace *t) {
    const int *batch = s->var.batch[false];
    MxValue *params = program_read_points(s, t);
    MxModelInputs in = program_plain(program_inputs(s, t, batch));
    mx_trace_assign(t, program_logp(t, s->model, params, batch, in, NULL),
                    batch[rewards_of(s)->old], false);
}

static bool remembers(const MxTrainState *s) {
    return program_is_training(s) && rewards_of(s)->measures;
}

/* The policy's log-probabilities of a micro-batch. */
static const Entry entry_remember = {
    .name = "remember", .trace = trace_remember, .is_wanted = remembers};
static const Entry *const entries[] = {&entry_remember, NULL};

/* Between what a rank has of a batch and an array of all of it. */
static void copy_part(const MxBatchPart *part, int64_t length, float *own, float *all, bool out) {
    for (int64_t at = 0; at < part->rows; at++) {
        float *here = own + at * part->length;
        float *there = all + (part->row ? part->row[at] : at) * length + part->column;
        memcpy(out ? there : here, out ? here : there, (size_t)part->length * sizeof *own);
    }
}

/* The first step with a batch makes the log-probabilities that all of its steps have as old ones.
 * The first rank then has those of all ranks, for checkpoints. */
static void give_old(MxTrainState *s, const MxBatch *batch) {
    Rewards *own = rewards_of(s);
    const int64_t length = s->config->max_target_length;
    if (*own->batch == batch_of(s)) {
        copy_part(&batch->part, length, own->given[1], own->kept.logprobs, false);
    } else {
        int64_t n = batch->part.of_rows * length;
        program_make_inputs(s, &entry_remember, &own->old, 1, false, batch,
                            (void *[]){own->given[1]});
        memset(own->kept.logprobs, 0, (size_t)n * sizeof(float));
        copy_part(&batch->part, length, own->given[1], own->kept.logprobs, true);
        program_add_parts(s, s->var.batch[false][own->old], own->kept.logprobs, n);
    }
    program_give(s, own->old, own->given[1]);
}

/* ---- advantages */

/* Of rewards that lie `stride` apart; NAN is none. */
typedef struct Moments {
    int64_t n;
    double mean, deviation;
} Moments;

static Moments moments_of(const float *x, int64_t n, int64_t stride) {
    Moments m = {0};
    for (int64_t i = 0; i < n; i++) m.n += !isnan(x[i * stride]);
    for (int64_t i = 0; i < n; i++)
        if (!isnan(x[i * stride])) m.mean += (double)x[i * stride] / (double)m.n;
    for (int64_t i = 0; i < n; i++) {
        double off = (double)x[i * stride] - m.mean;
        if (!isnan(off)) m.deviation += off * off / (double)m.n;
    }
    m.deviation = sqrt(m.deviation);
    return m;
}

void rewards_advantages(Baseline baseline, RewardScale scale, const float *rewards, int64_t sides,
                        int64_t groups, double *out) {
    Moments of_batch = moments_of(rewards, sides * groups, 1);
    for (int64_t g = 0; g < groups; g++) {
        Moments of_group = moments_of(rewards + g, sides, groups);
        double mean = baseline == BASELINE_BATCH ? of_batch.mean : of_group.mean;
        double deviation = scale == SCALE_BATCH ? of_batch.deviation : of_group.deviation;
        double unit = scale == SCALE_NONE ? 1 : deviation + LOSS_EPS;
        /* r - (sum - r) / (n - 1) = (r - mean) n / (n - 1) */
        if (baseline == BASELINE_OTHERS && of_group.n > 1) unit *= 1 - 1 / (double)of_group.n;
        for (int64_t s = 0; s < sides; s++) {
            double off = (double)rewards[s * groups + g] - mean;
            out[s * groups + g] = isnan(off) ? 0 : off / unit;
        }
    }
}

/* ---- while it is run */

static bool open(MxTrainState *s, MxDataset *const data[2], MxError *err) {
    (void)err;
    for (int i = 0; i < 2; i++) rewards_of(s)->data[i] = data[i];
    return true;
}

static void make_room(MxTrainState *s, Rewards *own, int64_t n) {
    if (own->cap >= n) return;
    for (int i = 0; i < 2; i++) own->given[i] = mx_new_n(s->arena, float, n);
    own->cap = n;
}

static void tell_numbers(MxTrainState *s, const float *rewards, const double *advantages,
                         int64_t sides, int64_t groups) {
    float numbers[REWARDS_NUMBERS];
    double deviation = 0, advantage = 0, rows = (double)(sides * groups);
    for (int64_t g = 0; g < groups; g++)
        deviation += moments_of(rewards + g, sides, groups).deviation / (double)groups;
    for (int64_t i = 0; i < sides * groups; i++) advantage += advantages[i] / rows;
    numbers[REWARDS_MEAN] = (float)moments_of(rewards, sides * groups, 1).mean;
    numbers[REWARDS_STD] = (float)deviation;
    numbers[REWARDS_ADVANTAGE] = (float)advantage;
    program_write_all(s, rewards_of(s)->numbers, numbers);
}

void mx_train_give_rewards(MxTrainState *s, const MxBatch *batch, const float *rewards,
                           const float *logprobs) {
    Rewards *own = rewards_of(s);
    const MxBatchPart *part = &batch->part;
    int64_t sides = mx_train_rows(s->config), groups = part->of_rows / sides;
    MX_ASSERT(own && (own->old == MX_NONE || own->measures || logprobs));
    MxArena arena = {.name = "advantages"};
    double *advantages = mx_new_n(&arena, double, part->of_rows);
    const PolicyRow row = policy_row(s->config);
    rewards_advantages(row.baseline, row.scale, rewards, sides, groups, advantages);
    make_room(s, own, part->rows * part->length);
    for (int64_t at = 0; at < part->rows; at++) {
        float advantage = (float)advantages[part->row ? part->row[at] : at];
        for (int64_t t = 0; t < part->length; t++) own->given[0][at * part->length + t] = advantage;
    }
    program_give(s, own->advantage, own->given[0]);
    if (own->old != MX_NONE) program_give(s, own->old, own->measures ? NULL : logprobs);
    tell_numbers(s, rewards, advantages, sides, groups);
    mx_arena_release(&arena);
}

static void give_scores(MxTrainState *s, bool is_eval, int64_t i, const MxBatch *batch) {
    Rewards *own = rewards_of(s);
    MxArena arena = {.name = "rewards"};
    float *rewards = mx_new_n(&arena, float, batch->part.of_rows);
    make_room(s, own, batch->rows * batch->length);
    float *logprobs = s->config->rl_recorded_logprobs ? own->given[1] : NULL;
    mx_data_scores(own->data[is_eval], i, &batch->part, rewards, logprobs);
    mx_train_give_rewards(s, batch, rewards, logprobs);
    mx_arena_release(&arena);
}

/* Who lets the policy write has given the rewards. */
static bool before_batch(MxTrainState *s, bool is_eval, int64_t i, const MxBatch *batch,
                         MxError *err) {
    (void)err;
    Rewards *own = rewards_of(s);
    if (!mx_config_writes(s->config)) give_scores(s, is_eval, i, batch);
    if (is_eval || !own->batch) return true;
    if (own->measures) give_old(s, batch);
    *own->batch = batch_of(s);
    return true;
}

const Part part_rewards = {
    .is_wanted = is_wanted,
    .bytes = sizeof(Rewards),
    .declare = declare,
    .entries = entries,
    .show = show,
    .open = open,
    .before_batch = before_batch,
};
