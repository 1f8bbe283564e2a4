/* distill.c — a row of a student's logits with its teacher's, and the distance of features. The
 * row's sums of exponentials are computed with and without the temperature, unless that is 1; both
 * distributions are related by the mean, under the teacher's, of the difference of their logits.
 * The cotangents overwrite the student's logits. */
#include "vec.h"
#include "xent.h"

#include <math.h>

/* Sums of so many lanes a block, as in xent_rows.c. */
enum { LANES = 16 };

/* A row's logits divided by a temperature. */
typedef struct Scaled {
    float inverse;                       /* 1 / temperature */
    double student, teacher, cross;      /* sums of exponentials; of teacher's times t - s */
    double student_log, teacher_log, kl; /* logs of those sums, with the maxima */
} Scaled;

typedef struct Row {
    const Chunk *chunk;
    const void *student, *teacher; /* products */
    float s_most, t_most, s_target, t_target;
} Row;

/* n logits of both from `at` on. */
static void read_both(const Row *r, int64_t at, int64_t n, float *const block[2],
                      const float *out[2]) {
    const Xent *x = r->chunk->x;
    out[0] = xent_logits_at(x->attr, x->dtype, r->student, at, n, block[0]);
    out[1] = xent_logits_at(x->teacher.attr, x->teacher.dtype, r->teacher, at, n, block[1]);
}

static void find_most(Row *r, int64_t target) {
    float s_block[CPU_BLOCK], t_block[CPU_BLOCK];
    const float *both[2];
    r->s_most = r->t_most = -INFINITY;
    for (int64_t at = 0, n; at < r->chunk->x->vocab; at += n) {
        n = cpu_min(CPU_BLOCK, r->chunk->x->vocab - at);
        read_both(r, at, n, (float *const[]){s_block, t_block}, both);
        r->s_most = vec_max(n, both[0], r->s_most);
        r->t_most = vec_max(n, both[1], r->t_most);
        if (target < at || target >= at + n) continue;
        r->s_target = both[0][target - at];
        r->t_target = both[1][target - at];
    }
}

/* Adds a block's sums: s and t are logits, n of them. */
static void add_block(const Row *r, int64_t n, const float *s, const float *t, Scaled *sum) {
    const float s_most = r->s_most, t_most = r->t_most, inverse = sum->inverse;
    float student[LANES] = {0}, teacher[LANES] = {0}, cross[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
#pragma omp simd
        for (int lane = 0; lane < LANES; lane++) {
            float p = vec_exp((t[i + lane] - t_most) * inverse);
            student[lane] += vec_exp((s[i + lane] - s_most) * inverse);
            teacher[lane] += p;
            cross[lane] += p * (t[i + lane] - t_most - (s[i + lane] - s_most));
        }
    for (int lane = 0; i + lane < n; lane++) {
        float p = vec_exp((t[i + lane] - t_most) * inverse);
        student[lane] += vec_exp((s[i + lane] - s_most) * inverse);
        teacher[lane] += p;
        cross[lane] += p * (t[i + lane] - t_most - (s[i + lane] - s_most));
    }
    for (int lane = 0; lane < LANES; lane++) {
        sum->student += (double)student[lane];
        sum->teacher += (double)teacher[lane];
        sum->cross += (double)cross[lane];
    }
}

/* KL(teacher || student) of logits below their maxima. */
static void end_sums(Scaled *sum) {
    sum->student_log = log(sum->student);
    sum->teacher_log = log(sum->teacher);
    sum->kl =
        sum->cross / sum->teacher * (double)sum->inverse - sum->teacher_log + sum->student_log;
}

static void make_sums(const Row *r, Scaled *plain, Scaled *warm) {
    float s_block[CPU_BLOCK], t_block[CPU_BLOCK];
    const float *both[2];
    for (int64_t at = 0, n; at < r->chunk->x->vocab; at += n) {
        n = cpu_min(CPU_BLOCK, r->chunk->x->vocab - at);
        read_both(r, at, n, (float *const[]){s_block, t_block}, both);
        add_block(r, n, both[0], both[1], plain);
        if (warm->inverse != 1.0f) add_block(r, n, both[0], both[1], warm);
    }
    if (warm->inverse == 1.0f) *warm = *plain;
    end_sums(plain);
    end_sums(warm);
}

/* What exponentials are multiplied with in the cotangent of a logit. */
typedef struct Slope {
    float hard, student, teacher; /* of plain ones; of those at the temperature */
    float inverse, inverse_cap;
} Slope;

static void grad_block(const Row *r, int64_t n, const float *s, const float *t, const Slope *slope,
                       float *d) {
    const float s_most = r->s_most, t_most = r->t_most;
    const Slope k = *slope;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float tangent = s[i] * k.inverse_cap;
        float sum = k.hard * vec_exp(s[i] - s_most) +
                    k.student * vec_exp((s[i] - s_most) * k.inverse) -
                    k.teacher * vec_exp((t[i] - t_most) * k.inverse);
        d[i] = sum * (1.0f - tangent * tangent);
    }
}

static void grad_row(const Row *r, void *products, int64_t target, Slope slope, double hard) {
    const Xent *x = r->chunk->x;
    float s_block[CPU_BLOCK], t_block[CPU_BLOCK], out[CPU_BLOCK];
    const float *both[2];
    float tangent = r->s_target * slope.inverse_cap;
    float at_target = (float)hard * (1.0f - tangent * tangent);
    for (int64_t at = 0, n; at < x->vocab; at += n) {
        n = cpu_min(CPU_BLOCK, x->vocab - at);
        read_both(r, at, n, (float *const[]){s_block, t_block}, both);
        grad_block(r, n, both[0], both[1], &slope, out);
        if (target >= at && target < at + n) out[target - at] -= at_target;
        cpu_store(out, n, products, x->dtype, at);
    }
}

void xent_distill_row(const Chunk *c, int64_t row, void *products) {
    const Xent *x = c->x;
    const float *numbers = x->call->in[NUMBERS];
    double alpha = (double)numbers[MX_DISTILL_ALPHA],
           heat = (double)numbers[MX_DISTILL_TEMPERATURE];
    double *sums = c->work->sums + row * x->kind.n_sums, *own = sums + 1;
    size_t step = (size_t)x->vocab * mx_dtype_bytes(x->teacher.dtype);
    Row r = {.chunk = c,
             .student = products,
             .teacher = (const char *)c->work->teacher_logits + (size_t)row * step};
    int64_t target = xent_target(c, row);
    Scaled plain = {.inverse = 1.0f}, warm = {.inverse = (float)(1 / heat)};
    find_most(&r, target);
    make_sums(&r, &plain, &warm);
    own[MX_DISTILL_HARD] = plain.student_log + (double)r.s_most - (double)r.s_target;
    own[MX_DISTILL_KL] = warm.kl;
    own[MX_DISTILL_KL_PLAIN] = plain.kl;
    own[MX_DISTILL_TEACHER] = plain.teacher_log + (double)r.t_most - (double)r.t_target;
    sums[0] = alpha * heat * heat * warm.kl + (1 - alpha) * own[MX_DISTILL_HARD];
    if (!x->kind.is_grad) return;
    double d = (double)*(const float *)x->call->in[DISTILL_DLOSS] * x->attr->scale;
    double soft = d * alpha * heat, hard = d * (1 - alpha);
    Slope slope = {.hard = (float)(hard / plain.student),
                   .student = (float)(soft / warm.student),
                   .teacher = (float)(soft / warm.teacher),
                   .inverse = warm.inverse,
                   .inverse_cap = x->attr->softcap > 0 ? (float)(1 / x->attr->softcap) : 0.0f};
    grad_row(&r, products, target, slope, hard);
}

/* ---- features */

enum { X, Y, TOKEN_WEIGHTS, BETA, DDISTANCE };
enum { FEATURE_TOKENS = 16 }; /* a thread's piece: sums are made in their order */

typedef struct Feature {
    const MxKernelCall *call;
    int64_t width;
    double *sums; /* [token] */
} Feature;

/* Sums over a token's elements. */
typedef struct Products {
    double xx, yy, xy, square; /* square: of the difference */
} Products;

static Products multiply(const Feature *f, int64_t token) {
    const MxKernelCall *call = f->call;
    float x_block[CPU_BLOCK], y_block[CPU_BLOCK];
    Products p = {0};
    for (int64_t at = 0, n; at < f->width; at += n) {
        n = cpu_min(CPU_BLOCK, f->width - at);
        int64_t from = token * f->width + at;
        const float *x = cpu_read(call->in[X], call->in_type[X].dtype, from, n, x_block);
        const float *y = cpu_read(call->in[Y], call->in_type[Y].dtype, from, n, y_block);
        for (int64_t i = 0; i < n; i++) {
            double a = (double)x[i], b = (double)y[i];
            p.xx += a * a;
            p.yy += b * b;
            p.xy += a * b;
            p.square += (a - b) * (a - b);
        }
    }
    return p;
}

static double norm_of(double squares) {
    return fmax(sqrt(squares), MX_FEATURE_LEAST_NORM);
}

static double beta_of(const MxKernelCall *call) {
    return (double)((const float *)call->in[BETA])[MX_DISTILL_BETA];
}

static void measure(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const Feature *f = context;
    const MxFeatureAttr *attr = f->call->attr;
    const int32_t *weights = f->call->in[TOKEN_WEIGHTS];
    for (int64_t token = begin; token < end; token++) {
        f->sums[token] = 0;
        if (!weights[token]) continue;
        Products p = multiply(f, token);
        f->sums[token] = attr->is_cosine ? 1 - p.xy / (norm_of(p.xx) * norm_of(p.yy))
                                         : p.square / (double)f->width;
    }
}

static Feature feature_of(const MxKernelCall *call) {
    MxShape x = call->in_type[X].shape;
    return (Feature){.call = call, .width = x.dim[x.rank - 1], .sums = call->scratch};
}

static int64_t tokens_of(const MxKernelCall *call) {
    return mx_shape_count(call->in_type[TOKEN_WEIGHTS].shape);
}

static void run_feature(const MxDevice *device, const MxKernelCall *call) {
    Feature f = feature_of(call);
    double total = 0;
    if (!call->out[0]) return;
    cpu_for(device, tokens_of(call), FEATURE_TOKENS, measure, &f);
    for (int64_t i = 0; i < tokens_of(call); i++) total += f.sums[i];
    *(float *)call->out[0] = (float)(beta_of(call) * total);
}

static size_t feature_scratch(const MxDevice *device, const MxKernelCall *call) {
    (void)device;
    return (size_t)tokens_of(call) * sizeof(double);
}

/* dx = of_y y + of_x x. */
static void slope_of(const Feature *f, int64_t token, double *of_x, double *of_y) {
    const MxFeatureAttr *attr = f->call->attr;
    double d = beta_of(f->call) * (double)*(const float *)f->call->in[DDISTANCE];
    *of_x = 2 * d / (double)f->width;
    *of_y = -*of_x;
    if (!attr->is_cosine) return;
    Products p = multiply(f, token);
    double x = norm_of(p.xx), y = norm_of(p.yy);
    bool is_floor = sqrt(p.xx) <= MX_FEATURE_LEAST_NORM; /* then the norm has no slope */
    *of_x = is_floor ? 0 : d * p.xy / (x * x * x * y);
    *of_y = -d / (x * y);
}

static void differ(const void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const Feature *f = context;
    const MxKernelCall *call = f->call;
    const int32_t *weights = call->in[TOKEN_WEIGHTS];
    float x_block[CPU_BLOCK], y_block[CPU_BLOCK], out[CPU_BLOCK];
    for (int64_t token = begin; token < end; token++) {
        double of_x = 0, of_y = 0;
        if (weights[token]) slope_of(f, token, &of_x, &of_y);
        for (int64_t at = 0, n; at < f->width; at += n) {
            n = cpu_min(CPU_BLOCK, f->width - at);
            int64_t from = token * f->width + at;
            const float *x = cpu_read(call->in[X], call->in_type[X].dtype, from, n, x_block);
            const float *y = cpu_read(call->in[Y], call->in_type[Y].dtype, from, n, y_block);
            for (int64_t i = 0; i < n; i++)
                out[i] = (float)(of_x * (double)x[i] + of_y * (double)y[i]);
            cpu_store(out, n, call->out[0], call->out_type[0].dtype, from);
        }
    }
}

static void run_feature_grad(const MxDevice *device, const MxKernelCall *call) {
    Feature f = feature_of(call);
    if (call->out[0]) cpu_for(device, tokens_of(call), FEATURE_TOKENS, differ, &f);
}

const MxKernel cpu_feature = {.scratch = feature_scratch, .run = run_feature};
const MxKernel cpu_feature_grad = {.run = run_feature_grad};
