/* ops_update.h — ops that initialise parameters and update them. */
#ifndef MX_OPS_UPDATE_H
#define MX_OPS_UPDATE_H

#include <mx/graph.h>

/* ---- state */

/* The distributions of MX_INIT_* in tree.h; a separate enum, so that ops do not depend on trees. */
typedef enum MxFill {
    MX_FILL_CONSTANT,
    MX_FILL_NORMAL,
    MX_FILL_TRUNCATED_NORMAL,
    MX_FILL_UNIFORM,
    MX_FILL_LOG_UNIFORM,
    MX_FILL_CYCLE,
    MX_FILL_COUNT
} MxFill;

typedef struct MxInitAttr {
    MxType type;
    MxFill fill;
    double value; /* the constant, the standard deviation, or the cycle */
    uint64_t seed, stream;
    MxShape whole; /* shape of the array of which this is a part; rank 0 = this is the whole */
    int64_t start[MX_MAX_RANK]; /* the beginning of the part */
} MxInitAttr;

/* mx_init — an array that depends only on (seed, stream, element index). Normal numbers by
 * Box–Muller; truncated ones lie within two deviations of the parent normal and have standard
 * deviation `value` themselves; so do uniform ones, which lie within sqrt(3) `value` of 0.
 * Log-uniform: log(u value), u uniform in (0, 1). Cycle: the element's index modulo `value`; this
 * and constants may be i32. */
MxValue mx_init(MxTrace *t, MxInitAttr attr);

/* mx_sum_squares — the sum of squares of all elements of all inputs, in f64, as an f32 scalar. */
MxValue mx_sum_squares(MxTrace *t, const MxValue *x, int n);

/* mx_moments — of all elements of x, f32 [MX_MOMENTS]: how many there are, how many are 0, their
 * sum and that of their squares, added up in f64. They add up over parts of an array, as mean and
 * deviation would not. */
enum { MX_MOMENT_COUNT, MX_MOMENT_ZEROS, MX_MOMENT_SUM, MX_MOMENT_SQUARES, MX_MOMENTS };
MxValue mx_moments(MxTrace *t, MxValue x);

typedef struct MxClipFactorAttr {
    double threshold;
} MxClipFactorAttr;

/* mx_clip_factor — the clipping factor for gradients with this sum of squares: 1 if norm <
 * threshold, else threshold / norm. Source: MaxText utils/gradient_clipping
 * (optax.clip_by_global_norm). */
MxValue mx_clip_factor(MxTrace *t, MxValue sum_squares, double threshold);

/* Numbers of one update that change from step to step, in a variable f32 [MX_HYPER_COUNT]; t counts
 * updates from 1. Each rule uses those that it needs. */
enum {
    MX_HYPER_LR,
    MX_HYPER_B1, /* decay of the first moment, and 1 minus that, computed in double */
    MX_HYPER_ONE_B1,
    MX_HYPER_B2, /* decay of the second moment */
    MX_HYPER_ONE_B2,
    MX_HYPER_BIAS1, /* 1 - b1^t */
    MX_HYPER_BIAS2, /* 1 - b2^t */
    MX_HYPER_NEXT1, /* 1 - b1^(t + 1) */
    MX_HYPER_COUNT
};

/* Updates. p, g and moments have the same shape, f32; a first moment mu is f32 or bf16. g is first
 * multiplied by the f32 scalar `clip`. New values may take over the buffers of the old ones. A bf16
 * mu is rounded after the update was computed from it, and decays by b1 rounded to bf16 (JAX's weak
 * types). */

typedef struct MxAdamwAttr {
    double eps, eps_root, weight_decay;
    bool nesterov;
} MxAdamwAttr;

/* mx_adamw — outputs the new p, mu, nu. mu = b1 mu + (1-b1) g; nu = b2 nu + (1-b2) g^2; p -= lr (m
 * / (sqrt(nu/bias2 + eps_root) + eps) + weight_decay p), where m = mu/bias1, or, with nesterov, b1
 * mu/next1 + (1-b1) g/bias1. Source: optax.adamw. */
MxValue mx_adamw(MxTrace *t, const MxValue p_g_mu_nu[4], MxValue hyper, MxValue clip,
                 MxAdamwAttr attr);

/* mx_sgd — p - lr * clip * g. */
MxValue mx_sgd(MxTrace *t, MxValue p, MxValue g, MxValue hyper, MxValue clip);

typedef struct MxLionAttr {
    double weight_decay;
} MxLionAttr;

/* mx_lion — p -= lr (sign(b1 mu + (1-b1) g) + weight_decay p), the sign of 0 being 0; then mu = b2
 * mu
 * + (1-b2) g. Outputs the new p and mu. Source: optax.lion; Chen et al. 2023. */
MxValue mx_lion(MxTrace *t, const MxValue p_g_mu[3], MxValue hyper, MxValue clip, MxLionAttr attr);

typedef struct MxScheduleFreeAttr {
    double b1, eps, weight_decay;
} MxScheduleFreeAttr;

/* mx_schedule_free — from x g d nu, where z = x + d descends and x is its average: nu = b2 nu +
 * (1-b2) g^2; z -= lr (g / (sqrt(nu/bias2) + eps) + weight_decay (x + (1-b1) d)), with b1 of the
 * attributes; x += c (z - x), where c is the number ONE_B1. Outputs the new x, d and nu. Source:
 * optax.contrib.schedule_free_adamw; Defazio et al. 2024. */
MxValue mx_schedule_free(MxTrace *t, const MxValue x_g_d_nu[4], MxValue hyper, MxValue clip,
                         MxScheduleFreeAttr attr);

/* mx_momentum — mu = b1 mu + (1-b1) g. Outputs the direction b1 mu/next1 + (1-b1) g/bias1, f32, and
 * the new mu. Source: optax.contrib.scale_by_muon. */
MxValue mx_momentum(MxTrace *t, MxValue g, MxValue mu, MxValue hyper, MxValue clip);

typedef struct MxUnitAttr {
    double eps;
} MxUnitAttr;

/* mx_unit — x / (sqrt(squares) + eps); squares f32 has the first dims of x, or is a scalar. */
MxValue mx_unit(MxTrace *t, MxValue x, MxValue squares, double eps);

typedef struct MxDescendAttr {
    double factor, weight_decay;
} MxDescendAttr;

/* mx_descend — p - lr (factor u + weight_decay p), f32. */
MxValue mx_descend(MxTrace *t, MxValue p, MxValue u, MxValue hyper, MxDescendAttr attr);

/* ---- factored moments: arrays that lack a dim of another one. All f32. */

typedef struct MxSumDimAttr {
    int dim; /* MX_NONE = no dim is summed over */
    bool squares;
} MxSumDimAttr;

/* mx_sum_dim — the sum of elements or their squares over one dim, which the result lacks. */
MxValue mx_sum_dim(MxTrace *t, MxValue x, MxSumDimAttr attr);

/* How a factor is computed. */
typedef enum MxFactor {
    MX_FACTOR_PLAIN,
    MX_FACTOR_INVERSE,
    MX_FACTOR_INVERSE_ROOT,
    MX_FACTOR_COUNT
} MxFactor;

typedef struct MxTimesAttr {
    int dim; /* dim that y lacks; MX_NONE = y has x's shape, or is a scalar */
    MxFactor factor;
} MxTimesAttr;

/* mx_times — x times y, its inverse, or the inverse of its root. No gradient flows to y. */
MxValue mx_times(MxTrace *t, MxValue x, MxValue y, MxTimesAttr attr);

typedef struct MxDecayedAttr {
    bool is_second; /* use the decay of the second moment, otherwise that of the first */
    double factor, plus;
} MxDecayedAttr;

/* mx_decayed — b v + (1-b) (factor x + plus), f32, all of one shape; v may be bf16, and b is then
 * rounded to bf16. */
MxValue mx_decayed(MxTrace *t, MxValue v, MxValue x, MxValue hyper, MxDecayedAttr attr);

typedef struct MxRmsStepAttr {
    int64_t count;    /* elements of the parameter */
    double threshold; /* largest root mean square of u; 0 = none */
    bool scales;      /* multiply by the parameter's root mean square, at least MX_LEAST_RMS */
} MxRmsStepAttr;
#define MX_LEAST_RMS 1e-3

/* mx_rms_step — the factor of a direction u, from the sums of squares of u and the parameter: lr
 * max(rms p, 1e-3) / max(1, rms u / threshold), an f32 scalar. Source: optax.clip_by_block_rms,
 * scale_by_param_block_rms. */
MxValue mx_rms_step(MxTrace *t, MxValue squares_u, MxValue squares_p, MxValue hyper,
                    MxRmsStepAttr attr);

typedef struct MxSpikeAttr {
    double threshold;
} MxSpikeAttr;

/* mx_spike — 1 unless min(sqrt(squares), threshold) - limit[0] <= limit[1], then 0: an f32 scalar;
 * limit is f32 [2]. NaN is a spike. */
MxValue mx_spike(MxTrace *t, MxValue squares, MxValue limit, double threshold);

/* mx_select — x if the f32 scalar flag is 0, else y; both have the same type. */
MxValue mx_select(MxTrace *t, MxValue x, MxValue y, MxValue flag);

#endif
