/* xent.cu — cross-entropy, log-probabilities and their gradients: a block for each row of logits,
 * which it reads once for the largest and the sum of exponentials, and once more to overwrite it
 * with cotangents. Where ranks would have to exchange parts of sums, the host does it all. */
#include "logits.cuh"

namespace gpu_xent {

enum XentKind { XENT, XENT_GRAD, LOGPROB, LOGPROB_GRAD };

typedef struct XentRows {
    GpuArray logits;
    int64_t first, stride, vocab;
    LogitsTargets targets;
    LogitsScale scale;
    double z_loss;
    double *sums;                            /* [n][2] */
    float *logp, *log_sum_out, *entropy_out; /* [token] */
    const float *cotangent;                  /* of the sum, or of all tokens */
    const float *log_sum;                    /* [token] */
    const float *entropy, *dentropy;         /* [token], NULL = no cotangents */
} XentRows;

/* What all threads of a row's block have to know to make cotangents: those are e^(x - most) times
 * the slope of the cap times factor + bend (x - most + entropy), less at_target at the target. */
typedef struct Slope {
    float most, factor, at_target, bend, entropy;
} Slope;

/* A row's largest logit, the sum of exponentials below it, and that of log-probabilities' the sum
 * of them times their exponents. */
typedef struct RowSum {
    float most;
    double sum, bent;
} RowSum;

/* A sum relative to another maximum, which is not below its own. */
__device__ static RowSum relative_to(RowSum s, float most) {
    float rise = s.most - most, share = s.sum > 0 ? logits_exp(rise) : 0;
    if (share <= 0) return RowSum{most, 0, 0};
    return RowSum{most, s.sum * (double)share, (double)share * (s.bent + (double)rise * s.sum)};
}

/* Of a thread's packs of a row, in one pass: the sum is scaled whenever a larger logit comes. */
template <XentKind KIND> __device__ static RowSum sum_of_thread(const XentRows &r, int64_t row) {
    RowSum s = {-INFINITY, 0, 0};
    for (int64_t at = threadIdx.x * GPU_PACK; at < r.vocab; at += blockDim.x * GPU_PACK) {
        float x[GPU_PACK], sum = 0, bent = 0, most = s.most;
        logits_get(r.logits, row, at, r.vocab, r.scale, x);
#pragma unroll
        for (int j = 0; j < GPU_PACK; j++) most = x[j] > most ? x[j] : most;
        if (most > s.most) s = relative_to(s, most);
#pragma unroll
        for (int j = 0; j < GPU_PACK; j++) {
            float e = logits_exp(x[j] - most);
            sum += e;
            if (KIND == LOGPROB && e > 0)
                bent += e * (x[j] - most); /* beyond the last one e is 0 */
        }
        s.sum += (double)sum;
        s.bent += (double)bent;
    }
    return s;
}

template <XentKind KIND> __device__ static RowSum sum_of_row(const XentRows &r, int64_t row) {
    RowSum own = sum_of_thread<KIND>(r, row);
    float most = gpu_block_max(own.most);
    own = relative_to(own, most);
    double bent = KIND == LOGPROB ? gpu_block_sum(own.bent) : 0;
    return RowSum{most, gpu_block_sum(own.sum), bent};
}

/* What a row gives, and what its exponentials and its target are multiplied with. */
template <XentKind KIND>
__device__ static Slope finish_row(const XentRows &r, int64_t token, RowSum s, float target) {
    float tangent = target * r.scale.inverse_cap, bend = 1.0f - tangent * tangent;
    if (KIND == LOGPROB_GRAD) {
        float d = -r.cotangent[token] * r.scale.factor;
        Slope slope = {r.log_sum[token], d, d * bend, 0, 0};
        if (!r.dentropy) return slope;
        slope.bend = -r.dentropy[token] * r.scale.factor;
        slope.entropy = r.entropy[token];
        return slope;
    }
    double log_sum = (double)s.most + log(s.sum);
    if (KIND == LOGPROB) {
        if (r.logp) r.logp[token] = (float)((double)target - log_sum);
        if (r.log_sum_out) r.log_sum_out[token] = (float)log_sum;
        if (r.entropy_out) r.entropy_out[token] = (float)(log(s.sum) - s.bent / s.sum);
        return Slope{};
    }
    double z = r.z_loss * log_sum * log_sum;
    double *sums = r.sums + 2 * blockIdx.x;
    sums[0] = log_sum - (double)target + z;
    sums[1] = z;
    if (KIND == XENT) return Slope{};
    double d = (double)*r.cotangent * (double)r.scale.factor;
    double share = d * (1 + 2 * r.z_loss * log_sum) / s.sum;
    return Slope{s.most, (float)share, (float)d * bend, 0, 0};
}

__device__ static void write_cotangents(const XentRows &r, int64_t row, int64_t target,
                                        Slope slope) {
    for (int64_t at = threadIdx.x * GPU_PACK; at < r.vocab; at += blockDim.x * GPU_PACK) {
        float x[GPU_PACK];
        logits_get(r.logits, row, at, r.vocab, r.scale, x);
#pragma unroll
        for (int j = 0; j < GPU_PACK; j++) {
            float tangent = x[j] * r.scale.inverse_cap, below = x[j] - slope.most;
            float e = logits_exp(below), factor = slope.factor;
            if (at + j >= r.vocab) tangent = 0;
            if (slope.bend != 0 && e > 0) factor += slope.bend * (below + slope.entropy);
            x[j] = factor * (e * (1.0f - tangent * tangent));
            if (at + j == target) x[j] -= slope.at_target;
        }
        gpu_put_pack(r.logits, row + at, x);
    }
}

/* A token that does not count adds nothing. */
template <XentKind KIND>
__device__ static void skip_row(const XentRows &r, int64_t token, int64_t row) {
    if (KIND == XENT_GRAD || KIND == LOGPROB_GRAD) logits_clear(r.logits, row, r.vocab);
    if (threadIdx.x) return;
    if (KIND == XENT || KIND == XENT_GRAD) r.sums[2 * blockIdx.x] = r.sums[2 * blockIdx.x + 1] = 0;
    if (KIND == LOGPROB && r.logp) r.logp[token] = 0;
    if (KIND == LOGPROB && r.log_sum_out) r.log_sum_out[token] = 0;
    if (KIND == LOGPROB && r.entropy_out) r.entropy_out[token] = 0;
}

template <XentKind KIND>
__global__ void __launch_bounds__(LOGITS_BLOCK) xent_rows_kernel(XentRows r) {
    __shared__ Slope shared;
    int64_t token = r.first + blockIdx.x, row = blockIdx.x * r.stride;
    if (!r.targets.weights[token]) {
        skip_row<KIND>(r, token, row);
        return;
    }
    int64_t at = logits_target(r.targets, token);
    RowSum s = {};
    if (KIND != LOGPROB_GRAD) s = sum_of_row<KIND>(r, row);
    if (!threadIdx.x) {
        float target = at < 0 ? 0 : logits_of(r.scale, gpu_get(r.logits, row + at));
        shared = finish_row<KIND>(r, token, s, target);
    }
    if (KIND == XENT || KIND == LOGPROB) return;
    __syncthreads(); /* also: the target is read before it is overwritten */
    write_cotangents(r, row, at, shared);
}

/* ---- calls */

template <XentKind KIND>
static void rows_run(const MxDevice *device, const MxKernelCall *call, const Logits *l,
                     const LogitsChunk *c) {
    XentRows r = {};
    r.logits = c->logits;
    r.first = c->first, r.stride = l->stride, r.vocab = l->vocab;
    r.targets = logits_targets(call, l);
    r.scale = logits_scale(l->own.attr);
    r.z_loss = l->own.attr->z_loss;
    r.sums = c->sums;
    if (KIND == LOGPROB) {
        r.logp = (float *)call->out[0];
        r.log_sum_out = (float *)call->out[1];
        if (l->own.attr->entropy) r.entropy_out = (float *)call->out[2];
    }
    int cotangent = KIND == XENT_GRAD ? DSUM : DLOGP;
    if (KIND == LOGPROB_GRAD) r.log_sum = (const float *)call->in[LOG_SUM];
    if (KIND == LOGPROB_GRAD && l->own.attr->entropy) {
        cotangent = DLOGP_BESIDE;
        r.entropy = (const float *)call->in[ENTROPY];
        r.dentropy = (const float *)call->in[DENTROPY];
    }
    if (l->is_grad) r.cotangent = (const float *)call->in[cotangent];
    gpu_launch(device, xent_rows_kernel<KIND>, (unsigned)c->n, logits_threads(l), 0, r);
}

/* Whether ranks tell each other of rows. A gradient that is given the sums needs no others. */
static bool is_joined(const MxKernelCall *call) {
    return call->op != &op_logprob_grad && ((const MxXentAttr *)call->attr)->group.size > 1;
}

static size_t scratch(const MxDevice *device, const MxKernelCall *call) {
    return is_joined(call) ? 0 : logits_scratch(device, call);
}

static bool prepare(MxDevice *device, MxKernelCall *call, MxError *err) {
    return is_joined(call) ? gpu_host_prepare(device, call, err)
                           : logits_prepare(device, call, err);
}

template <XentKind KIND> static void run(const MxDevice *device, const MxKernelCall *call) {
    if (is_joined(call))
        gpu_host_run(device, call);
    else
        logits_run(device, call, rows_run<KIND>);
}

GPU_KERNEL(xent, .scratch = scratch, .prepare = prepare, .run = run<XENT>);
GPU_KERNEL(xent_grad, .scratch = scratch, .prepare = prepare, .run = run<XENT_GRAD>);
GPU_KERNEL(logprob, .scratch = scratch, .prepare = prepare, .run = run<LOGPROB>);
GPU_KERNEL(logprob_grad, .scratch = scratch, .prepare = prepare, .run = run<LOGPROB_GRAD>);

} // namespace gpu_xent
