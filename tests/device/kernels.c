/* kernels.c — every kernel against its reference. One loop over the cases of tests/cases: plain,
 * again, added to what is there, with outputs that nobody wants, in place, and on other numbers of
 * threads. */
#include "probe.h"
#include "suites.h"
#include "tolerance.h"

#include <math.h>
#include <signal.h>

/* A shot with its contents. */
typedef struct Check {
    const Shot *shot;
    MxArena arena;
    double *in[SHOT_INPUTS], *want[MX_MAX_OUT];
    double *beside[MX_MAX_OUT]; /* outputs of the forward op beside the point, once they are made */
} Check;

static double *doubles(Check *s, MxType type) {
    return mx_new_n(&s->arena, double, element_count(type) + 1);
}

static void open_check(Check *s, const Shot *shot) {
    *s = (Check){.shot = shot, .arena = {.name = "check"}};
    shot_inputs(shot, &s->arena, s->in);
    for (int i = 0; i < shot->n_out; i++) s->want[i] = doubles(s, shot->out[i]);
}

/* Rounds to the dtype, so that a sum and a kernel start from the same numbers. */
static void round_to(Check *s, MxType type, double *x) {
    void *buffer = mx_arena_alloc(&s->arena, probe_bytes(type) + 1);
    probe_store(x, type, buffer);
    probe_load(buffer, type, x);
}

/* ---- comparison */

static bool any_bf16(const MxType *types, int n) {
    for (int i = 0; i < n; i++)
        if (types[i].dtype == MX_BF16) return true;
    return false;
}

static Tolerance tolerance_of(const Check *s, int out) {
    const Shot *shot = s->shot;
    if (any_bf16(shot->in, shot->n_in) || any_bf16(&shot->out[out], 1))
        return shot->forward ? tolerance_gradient_bf16 : tolerance_bf16;
    return shot->forward ? tolerance_gradient_f32 : tolerance_forward_f32;
}

static void compare(const Check *s, const Probe *p, int out, const double *want) {
    int64_t n = element_count(s->shot->out[out]);
    double *got = mx_new_n((MxArena *)&s->arena, double, n + 1), error = 0, size = 0, largest = 0;
    Tolerance tolerance = tolerance_of(s, out);
    probe_load(p->out[out], s->shot->out[out], got);
    for (int64_t i = 0; i < n; i++) {
        error += pow(got[i] - want[i], 2);
        size += pow(want[i], 2);
        largest = fmax(largest, fabs(want[i]));
    }
    size = fmax(size, (double)n * tolerance_smallest * tolerance_smallest);
    largest = fmax(largest, tolerance_smallest);
    ck_assert_msg(sqrt(error) <= tolerance.norm * sqrt(size),
                  "%s: output %d is off by %.3g of its norm, more than %g", s->shot->name, out,
                  sqrt(error / size), tolerance.norm);
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(got[i] - want[i]) <=
              tolerance.element * fmax(fabs(want[i]), tolerance.floor * largest)))
            ck_abort_msg("%s: output %d[%lld] is %.9g, not %.9g", s->shot->name, out, (long long)i,
                         got[i], want[i]);
}

/* Cotangents times outputs of the forward op, as a function of its inputs. */
static double loss_at(Check *s, double *const *in) {
    const Shot *forward = s->shot->forward;
    shot_reference(forward, &s->arena, in, s->beside);
    double loss = 0;
    for (int out = forward->n_out - 1, input = s->shot->n_in - 1; out >= 0; out--) {
        if (forward->op->no_gradient >> out & 1) continue;
        for (int64_t i = 0; i < element_count(forward->out[out]); i++)
            loss += s->beside[out][i] * s->in[input][i];
        input--;
    }
    return loss;
}

static const double step = 1e-5;

/* All elements by central differences. */
static void differentiate(Check *s, int wrt, double *want) {
    double *in[SHOT_INPUTS];
    memcpy(in, s->in, sizeof in);
    for (int64_t i = 0; i < element_count(s->shot->in[wrt]); i++) {
        double x = in[wrt][i];
        in[wrt][i] = x + step;
        double above = loss_at(s, in);
        in[wrt][i] = x - step;
        want[i] = (above - loss_at(s, in)) / (2 * step);
        in[wrt][i] = x;
    }
}

/* Along one direction: what the gradient says and what differences say. */
static void compare_direction(Check *s, const Probe *p, int out) {
    int wrt = s->shot->test->wrt[out];
    int64_t n = element_count(s->shot->in[wrt]);
    double *got = doubles(s, s->shot->out[out]), *in[SHOT_INPUTS], said = 0, norm = 0, at[2];
    probe_load(p->out[out], s->shot->out[out], got);
    memcpy(in, s->in, sizeof in);
    in[wrt] = doubles(s, s->shot->in[wrt]);
    for (int side = 0; side < 2; side++) {
        for (int64_t i = 0; i < n; i++)
            in[wrt][i] = s->in[wrt][i] + (side ? -step : step) * case_normal(99, (uint64_t)i);
        at[side] = loss_at(s, in);
    }
    for (int64_t i = 0; i < n; i++) {
        said += got[i] * case_normal(99, (uint64_t)i);
        norm += got[i] * got[i];
    }
    double want = (at[0] - at[1]) / (2 * step), limit = tolerance_of(s, out).norm * sqrt(norm);
    ck_assert_msg(fabs(said - want) <= limit,
                  "%s: output %d gives %.9g along a direction, not %.9g", s->shot->name, out, said,
                  want);
}

enum { MOST_WORK = 40 << 20 }; /* multiplications that are worth differences of every element */

/* Multiplications of one forward run, roughly. */
static double work_of(const Shot *forward) {
    const MxOp *op = forward->op;
    double flops = op->flops ? op->flops(forward->in, forward->out, forward->attr) : 0;
    return flops + 10.0 * (double)element_count(forward->in[0]);
}

static void compare_gradient(Check *s, const Probe *p) {
    const Shot *shot = s->shot;
    double *forward[MX_MAX_OUT] = {0};
    for (int out = 0; out < shot->n_out; out++) {
        int wrt = shot->test->wrt[out];
        if (wrt < 0) {
            shot_reference(shot->forward, &s->arena, s->in, forward);
            compare(s, p, out, forward[-1 - wrt]);
        } else if (work_of(shot->forward) * (double)element_count(shot->in[wrt]) < MOST_WORK) {
            differentiate(s, wrt, s->want[out]);
            compare(s, p, out, s->want[out]);
        } else {
            compare_direction(s, p, out);
        }
    }
}

static void compare_all(Check *s, const Probe *p) {
    if (s->shot->forward) {
        compare_gradient(s, p);
        return;
    }
    shot_reference(s->shot, &s->arena, s->in, s->want);
    for (int i = 0; i < s->shot->n_out; i++) compare(s, p, i, s->want[i]);
}

/* ---- the checks */

static Probe *opened(const Check *s, int n_threads, unsigned accumulate) {
    ProbeOp op = {s->shot->op, s->shot->attr, s->shot->in, s->shot->n_in, accumulate};
    Probe *p = probe_open(&(MxDeviceConfig){.n_threads = n_threads}, &op);
    for (int i = 0; i < s->shot->n_in; i++) probe_store(s->in[i], s->shot->in[i], p->in[i]);
    return p;
}

static void check_same_bits(const Check *s, const Probe *a, const Probe *b, const char *what) {
    for (int i = 0; i < s->shot->n_out; i++)
        if (a->out[i] && b->out[i])
            ck_assert_msg(!memcmp(a->out[i], b->out[i], probe_bytes(s->shot->out[i])),
                          "%s: output %d has other bits %s", s->shot->name, i, what);
}

/* Fibers take turns in one order, whatever the number of threads. */
static bool is_of_threads(const Probe *p) {
    return strcmp(p->device->backend->name, "fibers");
}

static void check_repeats_itself(Check *s, const Probe *first) {
    Probe *again = opened(s, 2, 0);
    for (int i = 0; i < (is_of_threads(first) ? 3 : 1); i++) probe_run(again);
    check_same_bits(s, first, again, "when it is run again");
    for (int i = 0; i < s->shot->n_in; i++) {
        double *in = doubles(s, s->shot->in[i]);
        probe_load(again->in[i], s->shot->in[i], in);
        ck_assert_msg(!memcmp(in, s->in[i], (size_t)element_count(s->shot->in[i]) * sizeof *in),
                      "%s: input %d was changed", s->shot->name, i);
    }
}

/* Libraries may share a matrix product differently among more threads; all else may not. */
static void check_threads_do_not_matter(Check *s, const Probe *two) {
    if (s->shot->test->any_bits || !is_of_threads(two)) return;
    for (int n = 1; n <= 3; n += 2) {
        Probe *other = opened(s, n, 0);
        probe_run(other);
        check_same_bits(s, two, other, n == 1 ? "on one thread" : "on three threads");
    }
}

/* Adding is compared with the plain result, which was compared with the reference. */
static void check_accumulates(Check *s, const Probe *plain) {
    unsigned mask = s->shot->op->accumulates;
    if (!mask) return;
    Probe *added = opened(s, 2, mask);
    for (int i = 0; i < s->shot->n_out; i++) {
        if (!(mask >> i & 1)) continue;
        for (int64_t j = 0; j < element_count(s->shot->out[i]); j++)
            s->want[i][j] = case_normal(55, (uint64_t)j);
        round_to(s, s->shot->out[i], s->want[i]);
        probe_store(s->want[i], s->shot->out[i], added->out[i]);
    }
    probe_run(added);
    for (int i = 0; i < s->shot->n_out; i++) {
        double *before = doubles(s, s->shot->out[i]);
        probe_load(plain->out[i], s->shot->out[i], before);
        for (int64_t j = 0; j < element_count(s->shot->out[i]); j++)
            s->want[i][j] = before[j] + (mask >> i & 1 ? s->want[i][j] : 0);
        compare(s, added, i, s->want[i]);
    }
}

static void check_unwanted_outputs(Check *s, const Probe *all) {
    for (unsigned wanted = 0; wanted + 1 < 1u << s->shot->n_out; wanted++) {
        Probe *some = opened(s, 2, 0);
        for (int i = 0; i < s->shot->n_out; i++)
            if (!(wanted >> i & 1)) some->out[i] = NULL;
        probe_run(some);
        check_same_bits(s, all, some, "when another is not wanted");
    }
}

/* The input that an output may replace, or -1. */
static int replaced_by(const Shot *shot, int out) {
    int by = shot->test->replaces[out];
    return (out == 0 && shot->op->inplace ? shot->op->inplace : by) - 1;
}

static void check_in_place(Check *s, const Probe *apart) {
    if (replaced_by(s->shot, 0) < 0) return;
    Probe *in_place = opened(s, 2, 0);
    for (int i = 0; i < s->shot->n_out; i++)
        if (replaced_by(s->shot, i) >= 0) in_place->out[i] = in_place->in[replaced_by(s->shot, i)];
    probe_run(in_place);
    check_same_bits(s, apart, in_place, "in place");
}

static void check_shot(const Shot *shot) {
    Check s;
    open_check(&s, shot);
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

enum { SHOTS_A_PROCESS = 8 };
static const Shot *const *shots;
static int n_shots;

/* Starting a process and looking for leaks at its end costs more than most checks. */
START_TEST(kernels_are_right) {
    for (int i = 0; i < SHOTS_A_PROCESS && _i * SHOTS_A_PROCESS + i < n_shots; i++)
        check_shot(shots[_i * SHOTS_A_PROCESS + i]);
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
    int id = ids[_i].id < 0 ? -2 : ids[_i].id; /* -1 asks for no row */
    run_with_id(&(ProbeOp){&op_embed, &attr, in, MX_COUNT(in), 0}, 1, id);
}
END_TEST

static bool runs(const Shot *shot) {
    bool runs_nothing = shot->op->flags & (MX_OP_SOURCE | MX_OP_VIEW);
    return !runs_nothing && !(shot->c->use & CASE_TYPES);
}

Suite *suite_kernels(void) {
    Suite *suite = suite_create("kernels");
    TCase *t = tcase_create("kernels");
    tcase_set_timeout(t, 60);
    tcase_set_tags(t, "tiles");
    shots = op_shots(runs, &n_shots);
    int n_processes = (n_shots + SHOTS_A_PROCESS - 1) / SHOTS_A_PROCESS;
    tcase_add_loop_test(t, kernels_are_right, 0, n_processes);
    tcase_add_loop_test(t, targets_are_in_the_vocabulary, 0, MX_COUNT(ids) / 2);
    tcase_add_loop_test(t, rows_are_in_the_table, 0, MX_COUNT(ids) / 2);
    enum { FIRST = MX_COUNT(ids) / 2, END = MX_COUNT(ids) };
    tcase_add_loop_test_raise_signal(t, targets_are_in_the_vocabulary, SIGABRT, FIRST, END);
    tcase_add_loop_test_raise_signal(t, rows_are_in_the_table, SIGABRT, FIRST, END);
    suite_add_tcase(suite, t);
    return suite;
}
