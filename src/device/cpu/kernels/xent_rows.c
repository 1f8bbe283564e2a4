/* xent_rows.c — the work on a row of logits: cross-entropy, the log-probability of its target, the
 * cotangents of both, or its largest element. */
#include "vec.h"
#include "xent.h"

#include <math.h>

static void cap_logits(int64_t n, const float *x, float cap, float *y) {
    float inverse = 1.0f / cap;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = cap * vec_tanh(x[i] * inverse);
}

const float *xent_logits_at(const MxXentAttr *attr, MxDtype dtype, const void *row, int64_t at,
                            int64_t n, float *block) {
    const float *y = cpu_read(row, dtype, at, n, block);
    if (attr->scale != 1.0) {
        vec_scale(n, (float)attr->scale, y, block);
        y = block;
    }
    if (attr->softcap > 0) {
        cap_logits(n, y, (float)attr->softcap, block);
        y = block;
    }
    return y;
}

static const float *logits_at(const Xent *x, const void *row, int64_t at, int64_t n, float *block) {
    return xent_logits_at(x->attr, x->dtype, row, at, n, block);
}

/* Sums of so many lanes a block: as exact, and the same, whatever the width of vectors. */
enum { LANES = 16 };

/* The sum of a block's exponentials below `most`, and if it bends, that of them times their
 * exponents. An exponential of 0 adds nothing, however small its logit is. */
static inline double exp_sums(int64_t n, const float *x, float most, bool bends, double *bent) {
    double total = 0.0;
    int64_t i = 0;
    float sum[LANES] = {0}, times[LANES] = {0};
    for (; i + LANES <= n; i += LANES)
#pragma omp simd
        for (int lane = 0; lane < LANES; lane++) {
            float below = x[i + lane] - most, e = vec_exp(below);
            sum[lane] += e;
            if (bends) times[lane] += e > 0.0f ? e * below : 0.0f;
        }
    for (; i < n; i++) {
        float below = x[i] - most, e = vec_exp(below);
        total += (double)e;
        if (bends) *bent += e > 0.0f ? (double)(e * below) : 0.0;
    }
    for (int lane = 0; lane < LANES; lane++) {
        total += (double)sum[lane];
        if (bends) *bent += (double)times[lane];
    }
    return total;
}

/* What a row's logits are turned into cotangents with. */
typedef struct RowGrad {
    float most, inverse_cap, factor, bend, level;
} RowGrad;

/* d = the exponential below `most` times the slope of the cap times factor + bend (x - most -
 * level). */
static void bent_grad(int64_t n, const float *x, const RowGrad *row, float *d) {
    const float most = row->most, inverse_cap = row->inverse_cap, factor = row->factor;
    const float bend = row->bend, level = row->level;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float tangent = x[i] * inverse_cap, below = x[i] - most, e = vec_exp(below);
        float weight = factor + bend * (below - level);
        d[i] = e > 0.0f ? weight * (e * (1.0f - tangent * tangent)) : 0.0f;
    }
}

/* The same without a bend. */
static void exp_grad(int64_t n, const float *x, const RowGrad *row, float *d) {
    const float most = row->most, inverse_cap = row->inverse_cap, factor = row->factor;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float tangent = x[i] * inverse_cap;
        d[i] = factor * (vec_exp(x[i] - most) * (1.0f - tangent * tangent));
    }
}

int64_t xent_target(const Chunk *c, int64_t row) {
    const Xent *x = c->x;
    int64_t id = ((const int32_t *)x->call->in[TARGETS])[c->token[row]];
    int64_t at = id - x->attr->first_id;
    MX_ASSERT(id >= 0 && id < x->vocab * cpu_max(1, x->attr->group.size)); /* parts are alike */
    return at >= 0 && at < x->vocab ? at : -1;
}

static float inverse_cap(const Xent *x) {
    return x->attr->softcap > 0 ? (float)(1 / x->attr->softcap) : 0.0f;
}

/* The largest of a row's logits, and the target's. */
static void find_most(const Chunk *c, int64_t row, const void *products) {
    const Xent *x = c->x;
    MxXentPart *part = &c->work->part[row];
    int64_t target = x->kind.is_argmax ? -1 : xent_target(c, row);
    float block[CPU_BLOCK];
    *part = (MxXentPart){.most = -INFINITY, .sum = (double)x->attr->first_id};
    for (int64_t at = 0, n; at < x->vocab; at += n) {
        n = cpu_min(CPU_BLOCK, x->vocab - at);
        const float *y = logits_at(x, products, at, n, block);
        float most = vec_max(n, y, part->most);
        if (target >= at && target < at + n) part->target = y[target - at];
        if (x->kind.is_argmax && most > part->most) {
            int64_t i = 0;
            while (y[i] != most) i++;
            part->sum = (double)(x->attr->first_id + at + i);
        }
        part->most = most;
    }
}

void xent_sum_row(const Chunk *c, int64_t row, const void *products) {
    const Xent *x = c->x;
    MxXentPart *part = &c->work->part[row];
    float block[CPU_BLOCK];
    find_most(c, row, products);
    part->sum = 0;
    if (x->attr->entropy) c->work->bent[row] = 0;
    for (int64_t at = 0, n; at < x->vocab; at += n) {
        n = cpu_min(CPU_BLOCK, x->vocab - at);
        const float *y = logits_at(x, products, at, n, block);
        part->sum += x->attr->entropy ? exp_sums(n, y, part->most, true, &c->work->bent[row])
                                      : exp_sums(n, y, part->most, false, NULL);
    }
}

void xent_begin_row(const Chunk *c, int64_t row, const void *products) {
    const XentKind *kind = &c->x->kind;
    if (kind->row) return;
    if (!kind->is_argmax && !kind->knows_sums) {
        xent_sum_row(c, row, products);
        return;
    }
    find_most(c, row, products);
    if (kind->knows_sums)
        c->work->part[row].most = ((const float *)c->x->call->in[LOG_SUM])[c->token[row]];
}

/* What a rank gives of a row, or all together. */
typedef struct RowSums {
    MxXentPart part;
    double bent; /* the sum of exponentials times exponents, where the entropy is wanted */
} RowSums;

static RowSums given_by(const Chunk *c, int64_t rank, int64_t row) {
    const Xent *x = c->x;
    const char *parts = c->work->parts + (size_t)(rank * x->chunk) * mx_xent_part_bytes(x->attr);
    const MxXentPart *part = (const MxXentPart *)parts;
    const double *bent = (const double *)(part + x->chunk);
    return (RowSums){part[row], x->attr->entropy ? bent[row] : 0};
}

/* The same relative to another maximum, which is not below its own. */
static RowSums relative_to(RowSums sums, float most) {
    double rise = (double)sums.part.most - (double)most, share = exp(rise);
    if (share > 0) sums.bent = share * (sums.bent + rise * sums.part.sum);
    sums.part.sum *= share;
    return sums;
}

/* What all parts of a row give, in the order of the ranks. */
static RowSums joined(const Chunk *c, int64_t row) {
    const Xent *x = c->x;
    RowSums all = given_by(c, x->exchange ? 0 : x->attr->group.index, row);
    for (int rank = 1; rank < x->attr->group.size && x->exchange; rank++) {
        RowSums other = given_by(c, rank, row);
        float most = other.part.most > all.part.most ? other.part.most : all.part.most;
        if (x->kind.is_argmax) {
            all.part.sum = other.part.most > all.part.most ? other.part.sum : all.part.sum;
        } else {
            all = relative_to(all, most);
            all.part.sum += relative_to(other, most).part.sum;
            all.bent += relative_to(other, most).bent;
        }
        all.part.most = most;
        all.part.target += other.part.target;
    }
    return all;
}

static double log_of(MxXentPart row) {
    return (double)row.most + log(row.sum);
}

static RowSlope xent_row(const Chunk *c, int64_t row) {
    const Xent *x = c->x;
    MxXentPart all = joined(c, row).part;
    double z_loss = x->attr->z_loss, log_sum = log_of(all);
    double *sums = c->work->sums + row * c->x->kind.n_sums;
    sums[1] = z_loss * log_sum * log_sum;
    sums[0] = log_sum - (double)all.target + sums[1];
    if (!x->kind.is_grad) return (RowSlope){0};
    double d = (double)*(const float *)x->call->in[DSUM];
    double share = exp((double)c->work->part[row].most - log_sum);
    return (RowSlope){.softmax = d * (1 + 2 * z_loss * log_sum) * share, .target = d};
}

static double given(const Chunk *c, int64_t row, int input) {
    return (double)((const float *)c->x->call->in[input])[c->token[row]];
}

/* dH/dx = -p (log p + H), where log p is the logit below the log of the sum, which part->most is.
 */
static RowSlope logprob_slope(const Chunk *c, int64_t row) {
    if (!c->x->attr->entropy) {
        double d = given(c, row, DLOGP);
        return (RowSlope){.softmax = -d, .target = -d};
    }
    double d = given(c, row, DLOGP_BESIDE);
    return (RowSlope){.softmax = -d,
                      .target = -d,
                      .bend = -given(c, row, DENTROPY),
                      .level = -given(c, row, ENTROPY)};
}

static RowSlope logprob_row(const Chunk *c, int64_t row) {
    const Xent *x = c->x;
    if (x->kind.is_grad) return logprob_slope(c, row);
    int64_t token = c->token[row];
    RowSums all = joined(c, row);
    double sum = all.part.sum, log_sum = log_of(all.part);
    float *const *out = (float *const *)x->call->out;
    if (out[0]) out[0][token] = (float)((double)all.part.target - log_sum);
    if (out[1]) out[1][token] = (float)log_sum;
    if (x->attr->entropy && out[2]) out[2][token] = (float)(log(sum) - all.bent / sum);
    return (RowSlope){0};
}

/* A row of products to their cotangents, block by block. Exponentials are made anew, which costs
 * less than keeping them would: they are wider than what they came from. */
void xent_grad_row(const Chunk *c, int64_t row, void *products, RowSlope slope) {
    const Xent *x = c->x;
    const MxXentPart *part = &c->work->part[row];
    int64_t target = xent_target(c, row);
    const RowGrad grad = {.most = part->most,
                          .inverse_cap = inverse_cap(x),
                          .factor = (float)(slope.softmax * x->attr->scale),
                          .bend = (float)(slope.bend * x->attr->scale),
                          .level = (float)slope.level};
    float tangent = part->target * grad.inverse_cap, block[CPU_BLOCK];
    float at_target = (float)(slope.target * x->attr->scale) * (1.0f - tangent * tangent);
    for (int64_t at = 0, n; at < x->vocab; at += n) {
        n = cpu_min(CPU_BLOCK, x->vocab - at);
        const float *y = logits_at(x, products, at, n, block);
        float *d = cpu_place(products, x->dtype, at, block);
        (slope.bend != 0 ? bent_grad : exp_grad)(n, y, &grad, d);
        if (target >= at && target < at + n) d[target - at] -= at_target;
        for (int64_t i = 0; i < slope.n; i++)
            if (slope.ids[i] >= at && slope.ids[i] < at + n) d[slope.ids[i] - at] += slope.more[i];
        cpu_write(d, n, products, x->dtype, at);
    }
}

void xent_end_row(const Chunk *c, int64_t row, void *products) {
    const Xent *x = c->x;
    if (x->kind.is_argmax) {
        int32_t *out = x->call->out[0];
        if (out) out[c->token[row]] = (int32_t)joined(c, row).part.sum;
        return;
    }
    if (x->kind.row) {
        x->kind.row(c, row, products);
        return;
    }
    RowSlope slope = (x->kind.n_sums ? xent_row : logprob_row)(c, row);
    if (x->kind.is_grad) xent_grad_row(c, row, products, slope);
}
