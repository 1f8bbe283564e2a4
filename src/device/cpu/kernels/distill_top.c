/* distill_top.c — the largest logits of a row, and a row of a student's logits beside the largest
 * ones of its teacher. Both distributions of the divergence are over the same few ids; the
 * cross-entropy with the target is over all. */
#include "xent.h"

#include <math.h>

/* ---- the largest logits */

/* A heap whose root is the least of those found so far, of equal ones the one with the largest id.
 */
typedef struct Found {
    float logit;
    int32_t id;
} Found;

static bool is_less(Found a, Found b) {
    return a.logit < b.logit || (a.logit == b.logit && a.id > b.id);
}

static void sink(Found *heap, int64_t n, int64_t at) {
    for (;;) {
        int64_t child = 2 * at + 1;
        if (child >= n) return;
        if (child + 1 < n && is_less(heap[child + 1], heap[child])) child++;
        if (!is_less(heap[child], heap[at])) return;
        Found own = heap[at];
        heap[at] = heap[child];
        heap[child] = own;
        at = child;
    }
}

/* Ids rise, so that of equal logits the first ones stay. */
static void find(const Xent *x, const void *products, int64_t k, Found *heap) {
    float block[CPU_BLOCK];
    for (int64_t i = 0; i < k; i++) heap[i] = (Found){-INFINITY, INT32_MAX};
    for (int64_t at = 0, n; at < x->vocab; at += n) {
        n = cpu_min(CPU_BLOCK, x->vocab - at);
        const float *y = xent_logits_at(x->attr, x->dtype, products, at, n, block);
        for (int64_t i = 0; i < n; i++) {
            Found own = {y[i], (int32_t)(at + i)};
            if (!is_less(heap[0], own)) continue;
            heap[0] = own;
            sink(heap, k, 0);
        }
    }
}

void xent_top_row(const Chunk *c, int64_t row, void *products) {
    const Xent *x = c->x;
    int64_t k = ((const MxTopAttr *)x->call->attr)->k, token = c->token[row];
    float *logits = x->call->out[0];
    int32_t *ids = x->call->out[1];
    Found heap[MX_MOST_TOP];
    find(x, products, k, heap);
    for (int64_t n = k; n > 0; n--) { /* the least of those left comes last */
        int64_t at = token * k + n - 1;
        if (logits) logits[at] = heap[0].logit;
        if (ids) ids[at] = heap[0].id;
        heap[0] = heap[n - 1];
        sink(heap, n - 1, 0);
    }
}

/* ---- the loss */

/* What is known of a row at the teacher's ids. */
typedef struct Few {
    int64_t k;
    const float *teacher;
    const int32_t *ids;
    float student[MX_MOST_TOP];
} Few;

/* The logarithm of the sum of exponentials of k logits divided by a temperature. */
static double log_sum(const float *logits, int64_t k, double inverse) {
    double most = -INFINITY, sum = 0;
    for (int64_t i = 0; i < k; i++) most = fmax(most, (double)logits[i]);
    for (int64_t i = 0; i < k; i++) sum += exp(((double)logits[i] - most) * inverse);
    return most * inverse + log(sum);
}

static void read_few(const Chunk *c, int64_t row, const void *products, Few *few) {
    const Xent *x = c->x;
    MxShape shape = x->call->in_type[TOP].shape;
    few->k = shape.dim[shape.rank - 1];
    few->teacher = (const float *)x->call->in[TOP] + c->token[row] * few->k;
    few->ids = (const int32_t *)x->call->in[TOP_IDS] + c->token[row] * few->k;
    for (int64_t i = 0; i < few->k; i++) {
        float block[1];
        MX_ASSERT(few->ids[i] >= 0 && few->ids[i] < x->vocab);
        few->student[i] = *xent_logits_at(x->attr, x->dtype, products, few->ids[i], 1, block);
    }
}

/* soft (softmax of the student - that of the teacher), through the cap, at the ids. */
static void make_slopes(const Chunk *c, const Few *few, const double log_sums[2], double inverse,
                        double soft, float *slope) {
    double cap = c->x->attr->softcap;
    for (int64_t i = 0; i < few->k; i++) {
        double s = (double)few->student[i], t = (double)few->teacher[i];
        double tangent = cap > 0 ? s / cap : 0;
        double d = exp(s * inverse - log_sums[0]) - exp(t * inverse - log_sums[1]);
        slope[i] = (float)(soft * d * (1 - tangent * tangent));
    }
}

void xent_distill_top_row(const Chunk *c, int64_t row, void *products) {
    const Xent *x = c->x;
    const float *numbers = x->call->in[NUMBERS];
    double alpha = (double)numbers[MX_DISTILL_ALPHA],
           heat = (double)numbers[MX_DISTILL_TEMPERATURE], inverse = 1 / heat, kl = 0;
    double *sums = c->work->sums + row * x->kind.n_sums, *own = sums + 1;
    const MxXentPart *part = &c->work->part[row];
    Few few;
    read_few(c, row, products, &few);
    xent_sum_row(c, row, products);
    double log_sums[] = {log_sum(few.student, few.k, inverse),
                         log_sum(few.teacher, few.k, inverse)};
    for (int64_t i = 0; i < few.k; i++) {
        double s = (double)few.student[i] * inverse - log_sums[0];
        double t = (double)few.teacher[i] * inverse - log_sums[1];
        kl += exp(t) * (t - s);
    }
    double all = (double)part->most + log(part->sum);
    memset(sums, 0, (size_t)x->kind.n_sums * sizeof *sums);
    own[MX_DISTILL_HARD] = all - (double)part->target;
    own[MX_DISTILL_KL] = kl;
    sums[0] = alpha * heat * heat * kl + (1 - alpha) * own[MX_DISTILL_HARD];
    if (!x->kind.is_grad) return;
    double d = (double)*(const float *)x->call->in[DISTILL_DLOSS], hard = d * (1 - alpha);
    float more[MX_MOST_TOP];
    make_slopes(c, &few, log_sums, inverse, d * alpha * heat * x->attr->scale, more);
    xent_grad_row(c, row, products,
                  (RowSlope){.softmax = hard * exp((double)part->most - all),
                             .target = hard,
                             .n = few.k,
                             .ids = few.ids,
                             .more = more});
}
