/* distill.cu — a row of a student's logits with its teacher's, and the distance of features, a
 * block for each token. A row's sums of exponentials are computed with and without the temperature;
 * both distributions are related by the mean, under the teacher's, of the difference of their
 * logits. The cotangents overwrite the student's logits. */
#include "logits.cuh"

namespace gpu_distill {

typedef struct DistillRows {
    GpuArray student, teacher;
    int64_t first, stride, vocab;
    LogitsTargets targets;
    LogitsScale s_scale, t_scale;
    double *sums; /* [n][1 + MX_DISTILL_SUMS] */
    const float *numbers, *cotangent;
} DistillRows;

/* Logits of both at one place, and what the block knows of their rows. */
typedef struct Both {
    float s[GPU_PACK], t[GPU_PACK];
} Both;

typedef struct Most {
    float s, t;
} Most;

__device__ static inline void read_both(const DistillRows &r, int64_t row, int64_t at, Both *both) {
    logits_get(r.student, row, at, r.vocab, r.s_scale, both->s);
    logits_get(r.teacher, row, at, r.vocab, r.t_scale, both->t);
}

__device__ static Most find_most(const DistillRows &r, int64_t row) {
    Most most = {-INFINITY, -INFINITY};
    Both both;
    for (int64_t at = threadIdx.x * GPU_PACK; at < r.vocab; at += blockDim.x * GPU_PACK) {
        read_both(r, row, at, &both);
#pragma unroll
        for (int j = 0; j < GPU_PACK; j++) {
            most.s = both.s[j] > most.s ? both.s[j] : most.s;
            most.t = both.t[j] > most.t ? both.t[j] : most.t;
        }
    }
    return Most{gpu_block_max(most.s), gpu_block_max(most.t)};
}

/* Sums over a row of logits divided by a temperature. */
typedef struct Scaled {
    float inverse;                  /* 1 / temperature */
    double student, teacher, cross; /* sums of exponentials; of teacher's times t - s */
} Scaled;

__device__ static void add_pack(const DistillRows &r, const Both &both, int64_t at, Most most,
                                Scaled *sum) {
    float student = 0, teacher = 0, cross = 0;
#pragma unroll
    for (int j = 0; j < GPU_PACK; j++) {
        if (at + j >= r.vocab) continue;
        float s = both.s[j] - most.s, t = both.t[j] - most.t, p = logits_exp(t * sum->inverse);
        student += logits_exp(s * sum->inverse);
        teacher += p;
        cross += p * (t - s);
    }
    sum->student += (double)student;
    sum->teacher += (double)teacher;
    sum->cross += (double)cross;
}

__device__ static void join(Scaled *sum) {
    sum->student = gpu_block_sum(sum->student);
    sum->teacher = gpu_block_sum(sum->teacher);
    sum->cross = gpu_block_sum(sum->cross);
}

__device__ static void make_sums(const DistillRows &r, int64_t row, Most most, Scaled *plain,
                                 Scaled *warm) {
    Both both;
    for (int64_t at = threadIdx.x * GPU_PACK; at < r.vocab; at += blockDim.x * GPU_PACK) {
        read_both(r, row, at, &both);
        add_pack(r, both, at, most, plain);
        add_pack(r, both, at, most, warm);
    }
    join(plain);
    join(warm);
}

/* KL(teacher || student) of logits below their maxima. */
__device__ static double divergence(const Scaled &sum) {
    return sum.cross / sum.teacher * (double)sum.inverse - log(sum.teacher) + log(sum.student);
}

/* What exponentials are multiplied with in the cotangent of a logit. */
typedef struct Slope {
    float hard, student, teacher; /* of plain ones; of those at the temperature */
    float at_target;
} Slope;

__device__ static Slope finish_row(const DistillRows &r, Most most, const Scaled &plain,
                                   const Scaled &warm, float s_target, float t_target) {
    double *sums = r.sums + blockIdx.x * (int64_t)(1 + MX_DISTILL_SUMS), *own = sums + 1;
    double alpha = (double)r.numbers[MX_DISTILL_ALPHA],
           heat = (double)r.numbers[MX_DISTILL_TEMPERATURE];
    own[MX_DISTILL_HARD] = log(plain.student) + (double)most.s - (double)s_target;
    own[MX_DISTILL_KL] = divergence(warm);
    own[MX_DISTILL_KL_PLAIN] = divergence(plain);
    own[MX_DISTILL_TEACHER] = log(plain.teacher) + (double)most.t - (double)t_target;
    sums[0] = alpha * heat * heat * own[MX_DISTILL_KL] + (1 - alpha) * own[MX_DISTILL_HARD];
    if (!r.cotangent) return Slope{};
    double d = (double)*r.cotangent * (double)r.s_scale.factor;
    double soft = d * alpha * heat, hard = d * (1 - alpha);
    float tangent = s_target * r.s_scale.inverse_cap;
    return Slope{(float)(hard / plain.student), (float)(soft / warm.student),
                 (float)(soft / warm.teacher), (float)hard * (1.0f - tangent * tangent)};
}

__device__ static void write_cotangents(const DistillRows &r, int64_t row, int64_t target,
                                        Most most, float inverse, Slope slope) {
    Both both;
    for (int64_t at = threadIdx.x * GPU_PACK; at < r.vocab; at += blockDim.x * GPU_PACK) {
        float d[GPU_PACK] = {};
        read_both(r, row, at, &both);
#pragma unroll
        for (int j = 0; j < GPU_PACK; j++) {
            if (at + j >= r.vocab) continue;
            float s = both.s[j] - most.s, t = both.t[j] - most.t;
            float tangent = both.s[j] * r.s_scale.inverse_cap;
            float sum = slope.hard * logits_exp(s) + slope.student * logits_exp(s * inverse) -
                        slope.teacher * logits_exp(t * inverse);
            d[j] = sum * (1.0f - tangent * tangent);
            if (at + j == target) d[j] -= slope.at_target;
        }
        gpu_put_pack(r.student, row + at, d);
    }
}

__device__ static void skip_row(const DistillRows &r, int64_t row) {
    if (r.cotangent) logits_clear(r.student, row, r.vocab);
    for (int k = (int)threadIdx.x; k < 1 + MX_DISTILL_SUMS; k += (int)blockDim.x)
        r.sums[blockIdx.x * (int64_t)(1 + MX_DISTILL_SUMS) + k] = 0;
}

__global__ void __launch_bounds__(LOGITS_BLOCK) distill_kernel(DistillRows r) {
    __shared__ Slope shared;
    int64_t token = r.first + blockIdx.x, row = blockIdx.x * r.stride;
    if (!r.targets.weights[token]) {
        skip_row(r, row);
        return;
    }
    int64_t target = logits_target(r.targets, token);
    Scaled plain = {}, warm = {};
    plain.inverse = 1;
    warm.inverse = (float)(1 / (double)r.numbers[MX_DISTILL_TEMPERATURE]);
    Most most = find_most(r, row);
    make_sums(r, row, most, &plain, &warm);
    if (!threadIdx.x)
        shared =
            finish_row(r, most, plain, warm, logits_of(r.s_scale, gpu_get(r.student, row + target)),
                       logits_of(r.t_scale, gpu_get(r.teacher, row + target)));
    if (!r.cotangent) return;
    __syncthreads(); /* also: the target is read before it is overwritten */
    write_cotangents(r, row, target, most, warm.inverse, shared);
}

static void distill_rows(const MxDevice *device, const MxKernelCall *call, const Logits *l,
                         const LogitsChunk *c) {
    DistillRows r = {};
    r.student = c->logits, r.teacher = c->teacher;
    r.first = c->first, r.stride = l->stride, r.vocab = l->vocab;
    r.targets = logits_targets(call, l);
    r.s_scale = logits_scale(l->own.attr);
    r.t_scale = logits_scale(l->teacher.attr);
    r.sums = c->sums;
    r.numbers = (const float *)call->in[NUMBERS];
    if (l->is_grad) r.cotangent = (const float *)call->in[DISTILL_DLOSS];
    gpu_launch(device, distill_kernel, (unsigned)c->n, logits_threads(l), 0, r);
}

static void distill_run(const MxDevice *device, const MxKernelCall *call) {
    logits_run(device, call, distill_rows);
}
GPU_KERNEL(distill, .scratch = logits_scratch, .prepare = logits_prepare, .run = distill_run);
GPU_KERNEL(distill_grad, .scratch = logits_scratch, .prepare = logits_prepare, .run = distill_run);

/* ---- features */

enum { X, Y, TOKEN_WEIGHTS, BETA, DDISTANCE };

typedef struct Feature {
    GpuArray x, y, dx;
    const int32_t *weights;
    const float *numbers, *cotangent;
    double *sums; /* [token] */
    int64_t tokens, width;
    bool is_cosine;
} Feature;

/* Sums over a token's elements. */
typedef struct Products {
    double xx, yy, xy, square; /* square: of the difference */
} Products;

__device__ static Products multiply(const Feature &f) {
    Products p = {};
    for (int64_t i = threadIdx.x; i < f.width; i += GPU_BLOCK) {
        double a = (double)gpu_get(f.x, blockIdx.x * f.width + i);
        double b = (double)gpu_get(f.y, blockIdx.x * f.width + i);
        p.xx += a * a;
        p.yy += b * b;
        p.xy += a * b;
        p.square += (a - b) * (a - b);
    }
    return Products{gpu_block_sum(p.xx), gpu_block_sum(p.yy), gpu_block_sum(p.xy),
                    gpu_block_sum(p.square)};
}

__device__ static double norm_of(double squares) {
    return fmax(sqrt(squares), MX_FEATURE_LEAST_NORM);
}

__global__ void __launch_bounds__(GPU_BLOCK) measure_kernel(Feature f) {
    double distance = 0;
    if (f.weights[blockIdx.x]) {
        Products p = multiply(f);
        distance =
            f.is_cosine ? 1 - p.xy / (norm_of(p.xx) * norm_of(p.yy)) : p.square / (double)f.width;
    }
    if (!threadIdx.x) f.sums[blockIdx.x] = distance;
}

__global__ void __launch_bounds__(GPU_BLOCK) measured_kernel(Feature f, float *out) {
    double sum = 0;
    for (int64_t i = threadIdx.x; i < f.tokens; i += GPU_BLOCK) sum += f.sums[i];
    sum = gpu_block_sum(sum);
    if (!threadIdx.x) *out = (float)((double)f.numbers[MX_DISTILL_BETA] * sum);
}

/* dx = of_y y + of_x x. */
__device__ static void slope_of(const Feature &f, double *of_x, double *of_y) {
    double d = (double)f.numbers[MX_DISTILL_BETA] * (double)*f.cotangent;
    *of_x = 2 * d / (double)f.width;
    *of_y = -*of_x;
    if (!f.is_cosine) return;
    Products p = multiply(f);
    double x = norm_of(p.xx), y = norm_of(p.yy);
    bool is_floor = sqrt(p.xx) <= MX_FEATURE_LEAST_NORM; /* then the norm has no slope */
    *of_x = is_floor ? 0 : d * p.xy / (x * x * x * y);
    *of_y = -d / (x * y);
}

__global__ void __launch_bounds__(GPU_BLOCK) differ_kernel(Feature f) {
    double of_x = 0, of_y = 0;
    if (f.weights[blockIdx.x]) slope_of(f, &of_x, &of_y);
    for (int64_t i = threadIdx.x; i < f.width; i += GPU_BLOCK) {
        int64_t at = blockIdx.x * f.width + i;
        double x = (double)gpu_get(f.x, at), y = (double)gpu_get(f.y, at);
        gpu_put(f.dx, at, (float)(of_x * x + of_y * y));
    }
}

static Feature feature_of(const MxKernelCall *call) {
    MxShape x = call->in_type[X].shape;
    Feature f = {};
    f.x = gpu_in(call, X), f.y = gpu_in(call, Y), f.dx = gpu_out(call, 0);
    f.weights = (const int32_t *)call->in[TOKEN_WEIGHTS];
    f.numbers = (const float *)call->in[BETA];
    f.sums = (double *)call->scratch;
    f.tokens = mx_shape_count(call->in_type[TOKEN_WEIGHTS].shape);
    f.width = x.dim[x.rank - 1];
    f.is_cosine = ((const MxFeatureAttr *)call->attr)->is_cosine;
    return f;
}

static size_t feature_scratch(const MxDevice *, const MxKernelCall *call) {
    return (size_t)mx_shape_count(call->in_type[TOKEN_WEIGHTS].shape) * sizeof(double);
}

static void feature_run(const MxDevice *device, const MxKernelCall *call) {
    Feature f = feature_of(call);
    if (!call->out[0]) return;
    gpu_launch(device, measure_kernel, (unsigned)f.tokens, GPU_BLOCK, 0, f);
    gpu_launch(device, measured_kernel, 1, GPU_BLOCK, 0, f, (float *)call->out[0]);
}
GPU_KERNEL(feature, .scratch = feature_scratch, .run = feature_run);

static void feature_grad_run(const MxDevice *device, const MxKernelCall *call) {
    Feature f = feature_of(call);
    f.cotangent = (const float *)call->in[DDISTANCE];
    if (call->out[0]) gpu_launch(device, differ_kernel, (unsigned)f.tokens, GPU_BLOCK, 0, f);
}
GPU_KERNEL(feature_grad, .run = feature_grad_run);

} // namespace gpu_distill
