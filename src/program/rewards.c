/* rewards.c — rewards of responses as a part of a program: an advantage for every row of a batch,
 * made of the rewards of the whole batch, and the log-probabilities that rows were written with. */
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
    own->old =
        s->config->rl_recorded_logprobs ? program_declare_input(s, "old_logp", MX_F32) : MX_NONE;
    own->numbers = program_add_var(s, "in", "rewards", (MxType){MX_F32, MX_SHAPE(REWARDS_NUMBERS)});
    return true;
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

void rewards_advantages(Baseline baseline, const float *rewards, int64_t sides, int64_t groups,
                        double *out) {
    Moments of_batch = moments_of(rewards, sides * groups, 1);
    for (int64_t g = 0; g < groups; g++) {
        Moments of_group = moments_of(rewards + g, sides, groups);
        Moments m = baseline == BASELINE_BATCH ? of_batch : of_group;
        double scale = m.deviation + LOSS_EPS;
        if (baseline == BASELINE_GROUP_MEAN) scale = 1;
        /* r - (sum - r) / (n - 1) = (r - mean) n / (n - 1) */
        if (baseline == BASELINE_OTHERS) scale = m.n > 1 ? 1 - 1 / (double)m.n : 1;
        for (int64_t s = 0; s < sides; s++) {
            double off = (double)rewards[s * groups + g] - m.mean;
            out[s * groups + g] = isnan(off) ? 0 : off / scale;
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
    int64_t sides = program_rows(s->config), groups = part->of_rows / sides;
    MX_ASSERT(own && (own->old == MX_NONE || logprobs));
    MxArena arena = {.name = "advantages"};
    double *advantages = mx_new_n(&arena, double, part->of_rows);
    rewards_advantages(policy_row(s->config)->baseline, rewards, sides, groups, advantages);
    make_room(s, own, part->rows * part->length);
    for (int64_t at = 0; at < part->rows; at++) {
        float advantage = (float)advantages[part->row ? part->row[at] : at];
        for (int64_t t = 0; t < part->length; t++) own->given[0][at * part->length + t] = advantage;
    }
    program_give(s, own->advantage, own->given[0]);
    if (own->old != MX_NONE) program_give(s, own->old, logprobs);
    tell_numbers(s, rewards, advantages, sides, groups);
    mx_arena_release(&arena);
}

static bool before_batch(MxTrainState *s, bool is_eval, int64_t i, const MxBatch *batch,
                         MxError *err) {
    (void)err;
    Rewards *own = rewards_of(s);
    if (mx_config_writes(s->config)) return true; /* whoever let it write them gave the rewards */
    MxArena arena = {.name = "rewards"};
    float *rewards = mx_new_n(&arena, float, batch->part.of_rows);
    make_room(s, own, batch->rows * batch->length);
    float *logprobs = own->old == MX_NONE ? NULL : own->given[1];
    mx_data_scores(own->data[is_eval], i, &batch->part, rewards, logprobs);
    mx_train_give_rewards(s, batch, rewards, logprobs);
    mx_arena_release(&arena);
    return true;
}

const Part part_rewards = {
    .is_wanted = is_wanted,
    .bytes = sizeof(Rewards),
    .declare = declare,
    .open = open,
    .before_batch = before_batch,
};
