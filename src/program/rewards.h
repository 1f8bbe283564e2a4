/* rewards.h — private to the room: rewards of responses, as inputs of every batch. */
#ifndef PROGRAM_REWARDS_H
#define PROGRAM_REWARDS_H

#include "parts.h"

/* Against what a response's reward is measured. */
typedef enum Baseline {
    BASELINE_GROUP,  /* the mean of its group */
    BASELINE_OTHERS, /* the mean of the others of its group */
    BASELINE_BATCH,  /* the mean of the batch */
} Baseline;

/* A word of rl.scale_rewards: in what the difference is measured. */
typedef enum RewardScale {
    SCALE_GROUP, /* standard deviations of its group */
    SCALE_BATCH, /* … of the batch */
    SCALE_NONE,
    SCALE_COUNT
} RewardScale;

/* A word of rl.loss_agg_mode: how losses of tokens become that of a batch. */
typedef enum PolicyMean {
    MEAN_OF_ROWS,   /* means over tokens of a row, then their mean over rows */
    MEAN_OF_TOKENS, /* the mean over tokens of the batch */
    MEAN_BY_LENGTH, /* the sum, divided by rows times max_target_length */
    MEAN_OF_SUMS,   /* the sum, divided by rows */
    MEAN_COUNT
} PolicyMean;

/* A word of rl.loss_algo. */
typedef struct PolicyRow {
    const char *name;
    MxRatio ratio;
    MxTrust trust;
    PolicyMean mean; /* if no key says another */
    Baseline baseline;
    RewardScale scale; /* likewise */
} PolicyRow;

/* policy_row — the one that the config means, with what keys say otherwise. */
PolicyRow policy_row(const MxConfig *config);

/* Numbers of a batch that the host makes: means over its responses, or groups. */
enum { REWARDS_MEAN, REWARDS_STD, REWARDS_ADVANTAGE, REWARDS_NUMBERS };

/* What the part keeps in a state. */
typedef struct Rewards {
    int advantage, old; /* inputs of every batch; old: MX_NONE = the policy wrote the responses */
    bool measures;      /* old ones are not recorded: training makes them as a batch begins */
    int numbers;        /* variable of REWARDS_NUMBERS numbers of the next batch */
    MxDataset *data[2]; /* of training and evaluation */
    float *given[2];    /* [rows, length] of the present batch: advantages, log-probabilities */
    int64_t cap;        /* elements of each */
    int64_t *batch;     /* 1 + the batch that `kept` is of, 0 = none; NULL = nothing is kept */
    MxResponses kept;
} Rewards;

/* rewards_of — NULL = there are none. rewards_advantages — rewards [sides, groups] less what they
 * are measured against, in f64; NAN = a response that has none, and the advantage 0. Source:
 * MaxText experimental/rl/grpo_trainer.py @e591f30c (population deviation, 1e-8 added to it); TRL
 * 1.16 has the words of rl.scale_rewards. */
Rewards *rewards_of(const MxTrainState *state);
/* rewards_old — log-probabilities of the policy that wrote a batch; MX_NONE = the present one. */
MxValue rewards_old(MxTrainState *state, MxTrace *t, const int *batch);
void rewards_advantages(Baseline baseline, RewardScale scale, const float *rewards, int64_t sides,
                        int64_t groups, double *out);

#endif
