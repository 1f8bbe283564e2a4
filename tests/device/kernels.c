/* kernels.c — every kernel against its reference. One loop over the table of cases: plain, again,
 * added to what is there, with outputs that nobody wants, in place, and on other numbers of
 * threads. An op without a case fails the suite. */
#include "cases.h"
#include "reference.h"
#include "suites.h"
#include "tolerance.h"

#include <math.h>
#include <signal.h>

/* A case as it is run: attributes and types for one dtype, inputs as doubles that are exactly what
 * the kernel gets. */
typedef struct Shot {
    const Case *c;
    MxDtype dtype;
    MxArena arena;
    const void *attr;
    MxType in_type[PROBE_INPUTS], out_type[MX_MAX_OUT];
    double *in[PROBE_INPUTS], *want[MX_MAX_OUT];
    int n_out;
} Shot;

static const char *name_of(const Shot *s) {
    return mx_arena_printf((MxArena *)&s->arena, "%s (%s), %s", s->c->op->name, s->c->label,
                           mx_dtype_name(s->dtype));
}

static int64_t count(MxType type) {
    return mx_shape_count(type.shape);
}

static double *doubles(Shot *s, MxType type) {
    return mx_new_n(&s->arena, double, count(type) ? count(type) : 1);
}

/* ---- inputs */

static MxDtype dtype_of(const Shot *s, const CaseInput *in) {
    switch (in->fill) {
    case FILL_NORMAL:
    case FILL_DY:
        return s->dtype;
    case FILL_IDS:
    case FILL_FLAGS:
    case FILL_SEGMENTS:
    case FILL_POSITIONS:
        return MX_I32;
    default:
        return MX_F32;
    }
}

static double element(const CaseInput *in, int input, int64_t i, int64_t n) {
    static const double hyper[] = {0.01, 0.3, 0.1};
    uint64_t seed = (uint64_t)input + 1, at = (uint64_t)i;
    double row = (double)in->shape.dim[in->shape.rank > 1 ? 1 : 0];
    switch (in->fill) {
    case FILL_VALUE:
        return in->a;
    case FILL_LOGP:
        return -in->a * (0.05 + pow(probe_normal(seed, at), 2));
    case FILL_SQUARE:
        return in->a * pow(probe_normal(seed, at), 2);
    case FILL_HYPER:
        return hyper[i];
    case FILL_TRIG: {
        double angle = 6.2831853 * (double)mx_uniform(probe_word(seed, at / 2));
        return i % 2 ? sin(angle) : cos(angle);
    }
    case FILL_IDS:
        return probe_word(seed, at) % 4 ? (double)(probe_word(seed + 9, at) % (uint32_t)in->a) : 1;
    case FILL_FLAGS:
        return (double)mx_uniform(probe_word(seed, at)) < in->a ? 0 : 1 + (double)(i % 3);
    case FILL_SEGMENTS: { /* the last tenth of a row is padding */
        double t = fmod((double)i, row);
        return row > 9 && t >= 0.9 * row ? 0
                                         : 1 + floor((t + 2.0 * floor((double)i / row)) / in->a);
    }
    case FILL_POSITIONS:
        return fmod(761.0 * (double)i, in->a);
    default:
        (void)n;
        return in->a * probe_normal(seed, at);
    }
}

/* Rounds to the dtype, so that reference and kernel see the same numbers. */
static void round_to(Shot *s, MxType type, double *x) {
    void *buffer = mx_arena_alloc(&s->arena, probe_bytes(type) + 1);
    probe_store(x, type, buffer);
    probe_load(buffer, type, x);
}

static void infer_outputs(Shot *s, const MxOp *op, int n_in, MxType *out_type, int *n_out) {
    MxText message;
    mx_text_init(&message, &s->arena);
    MxInfer infer = {
        .in = s->in_type, .n_in = n_in, .attr = s->attr, .n_out = 1, .message = &message};
    ck_assert_msg(op->infer(&infer), "%s: %s", name_of(s), message.data);
    for (int i = 0; i < infer.n_out; i++) out_type[i] = infer.out[i];
    *n_out = infer.n_out;
}

/* Outputs of the forward op of a gradient. */
static void run_forward(Shot *s, const GradientOf *g, double *const *in, double **out) {
    MxType out_type[MX_MAX_OUT];
    int n_out;
    infer_outputs(s, g->forward, g->n_in, out_type, &n_out);
    for (int i = 0; i < n_out; i++)
        if (!out[i]) out[i] = doubles(s, out_type[i]);
    Reference r = {s->attr, s->in_type, out_type, in, out, g->n_in};
    reference_of(g->forward)(&r);
}

static void make_inputs(Shot *s) {
    const GradientOf *g = reference_gradient(s->c->op, s->c->n_in);
    double *forward[MX_MAX_OUT] = {0};
    for (int i = 0; i < s->c->n_in; i++) {
        const CaseInput *in = &s->c->in[i];
        s->in_type[i] = (MxType){dtype_of(s, in), in->shape};
        s->in[i] = doubles(s, s->in_type[i]);
        if (in->fill == FILL_FORWARD) {
            int out = (int)in->a;
            if (!forward[0]) run_forward(s, g, s->in, forward);
            if (s->c->op == &op_attention_grad && out == 0) s->in_type[i].dtype = s->dtype;
            memcpy(s->in[i], forward[out], (size_t)count(s->in_type[i]) * sizeof(double));
        } else {
            int64_t n = count(s->in_type[i]);
            for (int64_t j = 0; j < n; j++) s->in[i][j] = element(in, i, j, n);
        }
        round_to(s, s->in_type[i], s->in[i]);
    }
}

static void open_shot(Shot *s, const Case *c, MxDtype dtype) {
    *s = (Shot){.c = c, .dtype = dtype, .arena = {.name = "shot"}};
    if (c->op->attr_bytes || c->attr) {
        size_t bytes = c->op->attr_bytes ? c->op->attr_bytes : sizeof(MxRmsnormAttr);
        void *attr = mx_arena_grow(&s->arena, c->attr, 1, 1, bytes);
        if (c->dtype_follows) memcpy(attr, &dtype, sizeof dtype);
        s->attr = attr;
    }
    make_inputs(s);
    infer_outputs(s, c->op, c->n_in, s->out_type, &s->n_out);
    for (int i = 0; i < s->n_out; i++) s->want[i] = doubles(s, s->out_type[i]);
}

/* ---- comparison */

static Tolerance tolerance_of(const Shot *s, int out) {
    bool is_gradient = reference_gradient(s->c->op, s->c->n_in) != NULL;
    bool is_bf16 = s->dtype == MX_BF16 || s->out_type[out].dtype == MX_BF16;
    if (is_bf16) return tolerance_bf16;
    return is_gradient ? tolerance_gradient_f32 : tolerance_forward_f32;
}

static void compare(const Shot *s, const Probe *p, int out, const double *want) {
    int64_t n = count(s->out_type[out]);
    double *got = mx_new_n((MxArena *)&s->arena, double, n + 1), error = 0, size = 0, largest = 0;
    Tolerance tolerance = tolerance_of(s, out);
    probe_load(p->out[out], s->out_type[out], got);
    for (int64_t i = 0; i < n; i++) {
        error += pow(got[i] - want[i], 2);
        size += pow(want[i], 2);
        largest = fmax(largest, fabs(want[i]));
    }
    size = fmax(size, (double)n * tolerance_smallest * tolerance_smallest);
    largest = fmax(largest, tolerance_smallest);
    ck_assert_msg(sqrt(error) <= tolerance.norm * sqrt(size),
                  "%s: output %d is off by %.3g of its norm, more than %g", name_of(s), out,
                  sqrt(error / size), tolerance.norm);
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(got[i] - want[i]) <=
              tolerance.element * fmax(fabs(want[i]), tolerance.floor * largest)))
            ck_abort_msg("%s: output %d[%lld] is %.9g, not %.9g", name_of(s), out, (long long)i,
                         got[i], want[i]);
}

/* Cotangents times outputs of the forward op, as a function of one input. */
static double loss_at(Shot *s, const GradientOf *g, double *const *in) {
    static double *out[MX_MAX_OUT];
    MxType out_type[MX_MAX_OUT];
    int n_out;
    infer_outputs(s, g->forward, g->n_in, out_type, &n_out);
    for (int i = 0; i < n_out; i++)
        if (!out[i]) out[i] = doubles(s, out_type[i]);
    Reference r = {s->attr, s->in_type, out_type, in, out, g->n_in};
    reference_of(g->forward)(&r);
    double loss = 0;
    for (int64_t i = 0; i < count(out_type[0]); i++) loss += out[0][i] * s->in[g->dy][i];
    return loss;
}

static const double step = 1e-5;

/* All elements by central differences. */
static void differentiate(Shot *s, const GradientOf *g, int wrt, double *want) {
    double *in[PROBE_INPUTS];
    memcpy(in, s->in, sizeof in);
    for (int64_t i = 0; i < count(s->in_type[wrt]); i++) {
        double x = in[wrt][i];
        in[wrt][i] = x + step;
        double above = loss_at(s, g, in);
        in[wrt][i] = x - step;
        want[i] = (above - loss_at(s, g, in)) / (2 * step);
        in[wrt][i] = x;
    }
}

/* Along one direction: what the gradient says and what differences say. */
static void compare_direction(Shot *s, const GradientOf *g, const Probe *p, int out) {
    int wrt = g->wrt[out];
    int64_t n = count(s->in_type[wrt]);
    double *got = doubles(s, s->out_type[out]), *in[PROBE_INPUTS], said = 0, norm = 0, at[2];
    probe_load(p->out[out], s->out_type[out], got);
    memcpy(in, s->in, sizeof in);
    in[wrt] = doubles(s, s->in_type[wrt]);
    for (int side = 0; side < 2; side++) {
        for (int64_t i = 0; i < n; i++)
            in[wrt][i] = s->in[wrt][i] + (side ? -step : step) * probe_normal(99, (uint64_t)i);
        at[side] = loss_at(s, g, in);
    }
    for (int64_t i = 0; i < n; i++) {
        said += got[i] * probe_normal(99, (uint64_t)i);
        norm += got[i] * got[i];
    }
    double want = (at[0] - at[1]) / (2 * step), limit = tolerance_of(s, out).norm * sqrt(norm);
    ck_assert_msg(fabs(said - want) <= limit,
                  "%s: output %d gives %.9g along a direction, not %.9g", name_of(s), out, said,
                  want);
}

enum { MOST_WORK = 40 << 20 }; /* multiplications that are worth differences of every element */

/* Multiplications of one forward run, roughly. */
static double work_of(const Shot *s) {
    const MxOp *op = reference_gradient(s->c->op, s->c->n_in)->forward;
    double flops = op->flops ? op->flops(s->in_type, s->out_type, s->attr) : 0;
    return flops + 10.0 * (double)count(s->in_type[0]);
}

static void compare_gradient(Shot *s, const GradientOf *g, const Probe *p) {
    for (int out = 0; out < s->n_out; out++) {
        int wrt = g->wrt[out];
        if (wrt < 0) {
            double *forward[MX_MAX_OUT] = {0};
            run_forward(s, g, s->in, forward);
            compare(s, p, out, forward[-1 - wrt]);
        } else if (work_of(s) * (double)count(s->in_type[wrt]) < MOST_WORK) {
            differentiate(s, g, wrt, s->want[out]);
            compare(s, p, out, s->want[out]);
        } else {
            compare_direction(s, g, p, out);
        }
    }
}

static void compare_all(Shot *s, const Probe *p) {
    const GradientOf *g = reference_gradient(s->c->op, s->c->n_in);
    if (g) {
        compare_gradient(s, g, p);
        return;
    }
    Reference r = {s->attr, s->in_type, s->out_type, s->in, s->want, s->c->n_in};
    reference_of(s->c->op)(&r);
    for (int i = 0; i < s->n_out; i++) compare(s, p, i, s->want[i]);
}

/* ---- the checks */

static Probe *opened(const Shot *s, int n_threads, unsigned accumulate) {
    ProbeOp op = {s->c->op, s->attr, s->in_type, s->c->n_in, accumulate};
    Probe *p = probe_open(&(MxDeviceConfig){.n_threads = n_threads}, &op);
    for (int i = 0; i < s->c->n_in; i++) probe_store(s->in[i], s->in_type[i], p->in[i]);
    return p;
}

static void check_same_bits(const Shot *s, const Probe *a, const Probe *b, const char *what) {
    for (int i = 0; i < s->n_out; i++)
        if (a->out[i] && b->out[i])
            ck_assert_msg(!memcmp(a->out[i], b->out[i], probe_bytes(s->out_type[i])),
                          "%s: output %d has other bits %s", name_of(s), i, what);
}

static void check_repeats_itself(Shot *s, const Probe *first) {
    Probe *again = opened(s, 2, 0);
    for (int i = 0; i < 3; i++) probe_run(again);
    check_same_bits(s, first, again, "when it is run again");
    for (int i = 0; i < s->c->n_in; i++) {
        double *in = doubles(s, s->in_type[i]);
        probe_load(again->in[i], s->in_type[i], in);
        ck_assert_msg(!memcmp(in, s->in[i], (size_t)count(s->in_type[i]) * sizeof *in),
                      "%s: input %d was changed", name_of(s), i);
    }
}

/* Libraries may share a matrix product differently among more threads; all else may not. */
static bool promises_bits(const MxOp *op) {
    return op != &op_dot && op != &op_xent && op != &op_xent_grad && op != &op_logprob &&
           op != &op_logprob_grad && op != &op_argmax;
}

static void check_threads_do_not_matter(Shot *s, const Probe *two) {
    for (int n = 1; n <= 3 && promises_bits(s->c->op); n += 2) {
        Probe *other = opened(s, n, 0);
        probe_run(other);
        check_same_bits(s, two, other, n == 1 ? "on one thread" : "on three threads");
    }
}

/* Adding is compared with the plain result, which was compared with the reference. */
static void check_accumulates(Shot *s, const Probe *plain) {
    unsigned mask = s->c->op->accumulates;
    if (!mask) return;
    Probe *added = opened(s, 2, mask);
    for (int i = 0; i < s->n_out; i++) {
        if (!(mask >> i & 1)) continue;
        for (int64_t j = 0; j < count(s->out_type[i]); j++)
            s->want[i][j] = probe_normal(55, (uint64_t)j);
        round_to(s, s->out_type[i], s->want[i]);
        probe_store(s->want[i], s->out_type[i], added->out[i]);
    }
    probe_run(added);
    for (int i = 0; i < s->n_out; i++) {
        double *before = doubles(s, s->out_type[i]);
        probe_load(plain->out[i], s->out_type[i], before);
        for (int64_t j = 0; j < count(s->out_type[i]); j++)
            s->want[i][j] = before[j] + (mask >> i & 1 ? s->want[i][j] : 0);
        compare(s, added, i, s->want[i]);
    }
}

static void check_unwanted_outputs(Shot *s, const Probe *all) {
    for (unsigned wanted = 0; wanted + 1 < 1u << s->n_out; wanted++) {
        Probe *some = opened(s, 2, 0);
        for (int i = 0; i < s->n_out; i++)
            if (!(wanted >> i & 1)) some->out[i] = NULL;
        probe_run(some);
        check_same_bits(s, all, some, "when another is not wanted");
    }
}

/* The input that an output may replace, or -1. */
static int replaced_by(const MxOp *op, int out) {
    static const int state_of_adamw[] = {0, 2, 3};
    if (op == &op_adamw) return state_of_adamw[out];
    if (op == &op_sgd) return 0;
    return out == 0 ? op->inplace - 1 : -1;
}

static void check_in_place(Shot *s, const Probe *apart) {
    if (replaced_by(s->c->op, 0) < 0) return;
    Probe *in_place = opened(s, 2, 0);
    for (int i = 0; i < s->n_out; i++) in_place->out[i] = in_place->in[replaced_by(s->c->op, i)];
    probe_run(in_place);
    check_same_bits(s, apart, in_place, "in place");
}

/* One process a case and dtype: starting one costs more than most checks. */
START_TEST(kernel_is_right) {
    const Case *c = &cases[_i / 2];
    if (_i % 2 && c->only_f32) return;
    Shot s;
    open_shot(&s, c, _i % 2 ? MX_BF16 : MX_F32);
    Probe *plain = opened(&s, 2, 0);
    probe_run(plain);
    compare_all(&s, plain);
    check_repeats_itself(&s, plain);
    check_threads_do_not_matter(&s, plain);
    check_accumulates(&s, plain);
    check_unwanted_outputs(&s, plain);
    check_in_place(&s, plain);
    probe_close();
    mx_arena_release(&s.arena);
}
END_TEST

/* ---- ids that no vocabulary has: a bug of who made them, wherever it is cut */

enum { IDS = 8, PART = 5, PARTS = 3 };

static const struct {
    int n_parts, id;
} ids[] = {{0, 0},  {0, PART - 1}, {PARTS, 0},  {PARTS, PART *PARTS - 1}, /* these are there … */
           {0, -1}, {0, PART},     {PARTS, -1}, {PARTS, PART *PARTS}};    /* … these are not */

static void run_with_id(const ProbeOp *op, int input, int id) {
    Probe *p = probe_open(&(MxDeviceConfig){.n_threads = 1}, op);
    for (int i = 0; i < IDS; i++) ((int32_t *)p->in[input])[i] = i == 3 ? id : 0;
    for (int i = 0; i < IDS && op->op == &op_logprob_grad; i++)
        ((int32_t *)p->in[input + 1])[i] = 1;
    probe_run(p);
    probe_close();
}

START_TEST(targets_are_in_the_vocabulary) {
    MxXentAttr attr = {
        .scale = 1, .group = {.size = ids[_i].n_parts, .index = 1}, .first_id = PART};
    if (!ids[_i].n_parts) attr.group.index = 0, attr.first_id = 0;
    MxType row = {MX_I32, MX_SHAPE(1, IDS)}, sum = {MX_F32, MX_SHAPE(1, IDS)};
    MxType in[] = {{MX_F32, MX_SHAPE(1, IDS, 4)}, {MX_F32, MX_SHAPE(4, PART)}, row, row, sum, sum};
    run_with_id(&(ProbeOp){&op_logprob_grad, &attr, in, MX_COUNT(in), 0}, 2, ids[_i].id);
}
END_TEST

START_TEST(rows_are_in_the_table) {
    MxEmbedAttr attr = {.n_parts = ids[_i].n_parts, .first_id = ids[_i].n_parts ? PART : 0};
    MxType in[] = {{MX_F32, MX_SHAPE(PART, 4)}, {MX_I32, MX_SHAPE(1, IDS)}};
    run_with_id(&(ProbeOp){&op_embed, &attr, in, MX_COUNT(in), 0}, 1, ids[_i].id);
}
END_TEST

START_TEST(every_op_has_a_case) {
    for (int op = 0; op < MX_OP_COUNT; op++) {
        bool found = mx_ops[op]->flags & (MX_OP_SOURCE | MX_OP_VIEW); /* these run nothing */
        for (int i = 0; i < n_cases; i++) found |= cases[i].op == mx_ops[op];
        ck_assert_msg(found, "op %s has no case in tests/device/cases.c", mx_ops[op]->name);
    }
}
END_TEST

Suite *suite_kernels(void) {
    Suite *suite = suite_create("kernels");
    TCase *t = tcase_create("kernels");
    tcase_set_timeout(t, 60);
    tcase_set_tags(t, "tiles");
    tcase_add_test(t, every_op_has_a_case);
    tcase_add_loop_test(t, kernel_is_right, 0, 2 * n_cases);
    tcase_add_loop_test(t, targets_are_in_the_vocabulary, 0, MX_COUNT(ids) / 2);
    tcase_add_loop_test(t, rows_are_in_the_table, 0, MX_COUNT(ids) / 2);
    enum { FIRST = MX_COUNT(ids) / 2, END = MX_COUNT(ids) };
    tcase_add_loop_test_raise_signal(t, targets_are_in_the_vocabulary, SIGABRT, FIRST, END);
    tcase_add_loop_test_raise_signal(t, rows_are_in_the_table, SIGABRT, FIRST, END);
    suite_add_tcase(suite, t);
    return suite;
}
