/* numbers.c — the kernels' own exp, log, tanh and sine against libm's in f64, conversions of bf16,
 * sums of squares, and statistics of random arrays. */
#include "device/cpu/cpu.h"
#include "device/cpu/kernels/vec.h"
#include "probe.h"
#include "suites.h"

#include <float.h>
#include <math.h>

/* ---- functions */

static double exp_of(double x) {
    return exp(x);
}
static double exp2_of(double x) {
    return exp2(x);
}
static double tanh_of(double x) {
    return tanh(x);
}
static double log_of(double x) {
    return log(x);
}
static double sigmoid_of(double x) {
    return 1 / (1 + exp(-x));
}

/* Largest errors, in units of the last place of the result, over a range walked in even steps. */
static const struct {
    const char *name;
    float (*mine)(float);
    double (*exact)(double);
    double low, high, ulps;
} functions[] = {
    {"exp", vec_exp, exp_of, -87.3, 88.3, 2},
    {"exp near 0", vec_exp, exp_of, -1, 1, 2},
    {"exp2", vec_exp2, exp2_of, -126, 126, 3},
    {"exp2 near 0", vec_exp2, exp2_of, -1, 1, 3},
    {"tanh", vec_tanh, tanh_of, -10, 10, 3},
    {"tanh near 0", vec_tanh, tanh_of, -0.7, 0.7, 3},
    {"log", vec_log, log_of, 1e-7, 4, 2},
    {"log, large", vec_log, log_of, 4, 1e6, 2},
    {"sigmoid", vec_sigmoid, sigmoid_of, -87, 40, 4},
};

static double ulp_of(double x) {
    return ldexp(1, ilogb(x) - 23);
}

START_TEST(functions_are_close) {
    enum { STEPS = 2000003 };
    double worst = 0;
    for (int i = 0; i < STEPS; i++) {
        float x = (float)(functions[_i].low +
                          (functions[_i].high - functions[_i].low) * (double)i / (STEPS - 1));
        double want = functions[_i].exact((double)x);
        double error = want != 0 ? fabs((double)functions[_i].mine(x) - want) / ulp_of(want) : 0;
        if (error > functions[_i].ulps) /* an assertion a step would take most of the time */
            ck_abort_msg("%s(%.9g) is off by %.3g ulp", functions[_i].name, (double)x, error);
        worst = fmax(worst, error);
    }
    ck_assert_msg(worst > 0.25, "%s: suspiciously good", functions[_i].name);
}
END_TEST

START_TEST(ends_of_ranges) {
    ck_assert(vec_exp(-INFINITY) == 0.0f && vec_exp(-1e30f) == 0.0f && vec_exp(-87.4f) == 0.0f);
    ck_assert(isinf(vec_exp(INFINITY)) && isinf(vec_exp(1e30f)));
    ck_assert(vec_exp2(-INFINITY) == 0.0f && vec_exp2(-1e30f) == 0.0f && vec_exp2(-126.6f) == 0.0f);
    ck_assert(vec_exp2(0.0f) == 1.0f && vec_exp2(-126.0f) == 0x1p-126f && isnan(vec_exp2(NAN)));
    ck_assert(isnan(vec_exp(NAN)) && isnan(vec_tanh(NAN)) && isnan(vec_sigmoid(NAN)));
    ck_assert(vec_tanh(INFINITY) == 1.0f && vec_tanh(-INFINITY) == -1.0f);
    ck_assert(vec_sigmoid(INFINITY) == 1.0f && vec_sigmoid(-INFINITY) == 0.0f);
    ck_assert(vec_exp(0.0f) == 1.0f && vec_tanh(0.0f) == 0.0f && vec_log(1.0f) == 0.0f);
}
END_TEST

START_TEST(pairs_round_as_single_ones_do) {
    for (uint64_t i = 0; i < 1000000; i++) {
        float low = vec_from_bits(case_word(1, i)), high = vec_from_bits(case_word(2, i));
        if (isnan(low) || isnan(high)) continue;
        uint32_t want = mx_f32_to_bf16(low) | (uint32_t)mx_f32_to_bf16(high) << 16;
        ck_assert_uint_eq(vec_bf16_pair(low, high), want);
    }
    uint32_t nans = vec_bf16_pair(vec_from_bits(0x7fff0000u), vec_from_bits(0xffc00000u));
    ck_assert_uint_eq(nans, 0xffc07fffu);
}
END_TEST

START_TEST(turns_are_close) {
    enum { STEPS = 1000003 };
    const double limit = 2e-7;
    for (int i = 0; i < STEPS; i++) {
        float u = (float)((double)i / (STEPS - 1)), sine, cosine;
        vec_sincos_turns(u, &sine, &cosine);
        double angle = 2 * 3.14159265358979323846 * (double)u;
        if (fabs((double)sine - sin(angle)) > limit || fabs((double)cosine - cos(angle)) > limit)
            ck_abort_msg("at %.9g turns: %.9g, %.9g", (double)u, (double)sine, (double)cosine);
    }
}
END_TEST

/* ---- roundings */

static float rounded(float x) {
    return mx_bf16_to_f32(mx_f32_to_bf16(x));
}

/* Numbers below the normal ones may become zeros. */
static bool is_rounded(float x, MxBf16 got) {
    MxBf16 want = mx_f32_to_bf16(x);
    if (isnan(x)) return isnan(mx_bf16_to_f32(got));
    return got == want || (fabsf(x) < FLT_MIN && got == (want & 0x8000u));
}

/* Zeros, infinities, numbers that are none, ties, ends of ranges, and any. */
static float any_float(uint64_t seed, int64_t i) {
    static const uint32_t special[] = {0x00000000u, 0x80000000u, 0x7f800000u, 0xff800000u,
                                       0x7f800001u, 0xffbfffffu, 0x7fffffffu, 0x3f808000u,
                                       0x3f818000u, 0xbf808001u, 0x7f7fffffu, 0xff7f7fffu,
                                       0x00800000u, 0x807fffffu, 0x00000001u, 0x007f8000u};
    uint32_t word = case_word(seed, (uint64_t)i);
    return vec_from_bits(word % 3 ? special[word / 3 % MX_COUNT(special)] : word * 0x9e3779b9u);
}

/* Of every length, from any element on, and nothing beside it. */
START_TEST(conversions_of_any_length) {
    enum { MOST = 140, ROOM = MOST + 8, BESIDE = 0x1234 };
    MxArena arena = {.name = "test"};
    MxError err = {0};
    MxDevice *device = NULL;
    ck_assert(
        mx_device_open(&arena, &(MxDeviceConfig){.backend = "cpu", .n_threads = 1}, &device, &err));
    const CpuKernels *kernels = cpu_of(device)->level->kernels;
    for (int64_t n = 0; n <= MOST; n++) {
        MxBf16 y[ROOM], sum[ROOM];
        float x[ROOM], wide[ROOM];
        int64_t at = n % 5, from = n % 3;
        for (int64_t i = 0; i < ROOM; i++) {
            x[i] = any_float((uint64_t)n, i);
            y[i] = sum[i] = BESIDE;
            wide[i] = BESIDE;
            if (i >= at && i < at + n) sum[i] = mx_f32_to_bf16(any_float((uint64_t)n + 1000, i));
        }
        MxBf16 addend[ROOM];
        memcpy(addend, sum, sizeof sum);
        kernels->narrow(x + from, n, y + at);
        kernels->add_to(x + from, n, sum, MX_BF16, at);
        kernels->widen(addend + at, n, wide + from);
        for (int64_t i = 0; i < ROOM; i++) {
            bool is_inside = i >= at && i < at + n, is_wide = i >= from && i < from + n;
            float one = x[is_inside ? i - at + from : 0];
            bool narrows = is_inside ? is_rounded(one, y[i]) : y[i] == BESIDE;
            bool adds =
                is_inside ? is_rounded(mx_bf16_to_f32(addend[i]) + one, sum[i]) : sum[i] == BESIDE;
            bool widens = is_wide ? vec_bits(wide[i]) == (uint32_t)addend[i - from + at] << 16
                                  : wide[i] == BESIDE;
            ck_assert_msg(narrows && adds && widens, "%lld elements, at %lld: %a gave %04x, %04x",
                          (long long)n, (long long)i, (double)one, y[i], sum[i]);
        }
    }
    mx_arena_release(&arena);
}
END_TEST

/* The norm of a bf16 row is rounded before the scale, and the scale too (MaxText's order). */
START_TEST(bf16_norm_rounds_twice) {
    enum { ROWS = 5, WIDTH = 67 };
    const MxRmsnormAttr attr = {.eps = 1e-6};
    const MxType types[] = {{MX_BF16, MX_SHAPE(ROWS, WIDTH)}, {MX_F32, MX_SHAPE(WIDTH)}};
    Probe *p = probe_open(&(MxDeviceConfig){0}, &(ProbeOp){&op_rmsnorm, &attr, types, 2, 0});
    MxBf16 *x = p->in[0], *y = p->out[0];
    float *scale = p->in[1], *rstd = p->out[1];
    for (int i = 0; i < ROWS * WIDTH; i++)
        x[i] = mx_f32_to_bf16((float)case_normal(1, (uint64_t)i));
    for (int i = 0; i < WIDTH; i++) scale[i] = (float)case_normal(2, (uint64_t)i);
    probe_run(p);
    for (int i = 0; i < ROWS * WIDTH; i++) {
        float want = rounded(mx_bf16_to_f32(x[i]) * rstd[i / WIDTH]) * rounded(scale[i % WIDTH]);
        ck_assert_msg(y[i] == mx_f32_to_bf16(want), "element %d", i);
    }
}
END_TEST

/* ---- sums of squares */

static float squares_of(const float *x, int64_t n) {
    const MxType type = {MX_F32, MX_SHAPE(n)};
    Probe *p = probe_open(&(MxDeviceConfig){0}, &(ProbeOp){&op_sum_squares, NULL, &type, 1, 0});
    memcpy(p->in[0], x, (size_t)n * sizeof *x);
    probe_run(p);
    return *(float *)p->out[0];
}

enum { MOST_SQUARES = 99999 };
static float squared[MOST_SQUARES];
static const int64_t lengths[] = {1,    31,   32,    33,    70,    1023,        1024,
                                  1025, 1071, 32767, 32768, 32801, MOST_SQUARES};

/* Small whole numbers add up exactly: every element counts once, wherever a block ends; and one
 * that is no number, the last, spoils the sum. */
START_TEST(squares_of_any_length) {
    int64_t n = lengths[_i];
    double want = 0;
    for (int64_t i = 0; i < n; i++) {
        squared[i] = (float)(i % 7 - 3);
        want += (double)squared[i] * (double)squared[i];
    }
    ck_assert_msg((double)squares_of(squared, n) == want, "%lld elements", (long long)n);
    squared[n - 1] = NAN;
    ck_assert(isnan(squares_of(squared, n)));
    squared[n - 1] = 1e20f;
    ck_assert(isinf(squares_of(squared, n)));
}
END_TEST

START_TEST(squares_are_close) {
    double want = 0;
    for (int64_t i = 0; i < MOST_SQUARES; i++) {
        squared[i] = (float)exp(3 * case_normal(1, (uint64_t)i));
        want += (double)squared[i] * (double)squared[i];
    }
    ck_assert_double_eq_tol((double)squares_of(squared, MOST_SQUARES) / want, 1, 3e-7);
}
END_TEST

/* ---- random arrays */

static float *random_array(MxFill fill, uint64_t seed_stream[2], int64_t n) {
    const MxInitAttr attr = {.type = {MX_F32, MX_SHAPE(n)},
                             .fill = fill,
                             .value = 0.5,
                             .seed = seed_stream[0],
                             .stream = seed_stream[1]};
    Probe *p = probe_open(&(MxDeviceConfig){0}, &(ProbeOp){&op_init, &attr, NULL, 0, 0});
    probe_run(p);
    return p->out[0];
}

START_TEST(random_moments) {
    enum { N = 4000000 };
    static const double kurtosis[] = {
        [MX_FILL_NORMAL] = 3, [MX_FILL_TRUNCATED_NORMAL] = 2.3655, [MX_FILL_UNIFORM] = 1.8};
    const float *x = random_array((MxFill)_i, (uint64_t[]){7, 11}, N);
    double sum[5] = {0}, largest = 0;
    for (int i = 0; i < N; i++) {
        double z = (double)x[i] / 0.5, power = 1;
        for (int k = 1; k <= 4; k++) sum[k] += (power *= z) / N;
        largest = fmax(largest, fabs(z));
    }
    ck_assert_double_eq_tol(sum[1], 0, 0.003);
    ck_assert_double_eq_tol(sum[2], 1, 0.003);
    ck_assert_double_eq_tol(sum[3], 0, 0.01);
    ck_assert_double_eq_tol(sum[4], kurtosis[_i], 0.02);
    double limit = _i == MX_FILL_UNIFORM ? sqrt(3) : 2 / 0.87962566103424;
    if (_i == MX_FILL_NORMAL)
        ck_assert(largest > 4.5 && largest < 6);
    else
        ck_assert(largest <= limit * (1 + 1e-6) && largest > 0.999 * limit);
}
END_TEST

/* ---- dropout */

enum { DROP_ROWS = 64, DROP_BETWEEN = 2, DROP_WIDTH = 1024, DROPS = DROP_ROWS * DROP_WIDTH };

static const double rates[] = {0.1, 0.5, 0.9};

/* Which columns of ones are left out, 1 or 0 [DROPS]; the dims between agree. */
static void drop(double rate, uint64_t stream, int32_t step, bool *is_left_out) {
    const MxShape x = MX_SHAPE(DROP_ROWS, DROP_BETWEEN, DROP_WIDTH);
    MxRandomAttr attr = {
        .amount = rate, .seed = 5, .stream = stream, .by_column = true, .whole = x};
    MxType in[] = {{MX_F32, x}, {MX_I32, MX_SHAPE(DROP_ROWS)}, {MX_I32, MX_SCALAR}};
    Probe *p = probe_open(&(MxDeviceConfig){0}, &(ProbeOp){&op_dropout, &attr, in, 3, 0});
    for (int i = 0; i < DROPS * DROP_BETWEEN; i++) ((float *)p->in[0])[i] = 1;
    for (int i = 0; i < DROP_ROWS; i++) ((int32_t *)p->in[1])[i] = i;
    *(int32_t *)p->in[2] = step;
    probe_run(p);
    for (int i = 0; i < DROPS; i++) {
        const float *y =
            (const float *)p->out[0] + i / DROP_WIDTH * DROP_BETWEEN * DROP_WIDTH + i % DROP_WIDTH;
        ck_assert(y[0] == y[DROP_WIDTH]);
        ck_assert(y[0] == 0 || fabs((double)y[0] * (1 - rate) - 1) < 1e-6);
        is_left_out[i] = y[0] == 0;
    }
    probe_close();
}

/* So large a share is left out, and of what one step, place or row leaves out others leave out
 * neither more nor less. */
START_TEST(dropout_is_by_chance) {
    static bool mask[3][DROPS];
    double p = rates[_i], sigmas = 5;
    drop(p, 0, 7, mask[0]);
    drop(p, 0, 8, mask[1]);
    drop(p, 1, 7, mask[2]);
    int n = 0, together[3] = {0};
    for (int i = 0; i < DROPS; i++) {
        n += mask[0][i];
        for (int k = 1; k < 3; k++) together[k] += mask[0][i] && mask[k][i];
        together[0] += mask[0][i] && mask[0][(i + DROP_WIDTH) % DROPS];
    }
    ck_assert_double_eq_tol((double)n, p * DROPS, sigmas * sqrt(p * (1 - p) * DROPS));
    for (int k = 0; k < 3; k++)
        ck_assert_double_eq_tol((double)together[k], p * p * DROPS,
                                sigmas * sqrt(p * p * (1 - p * p) * DROPS));
}
END_TEST

enum { DRAW_ROWS = 16, DRAW_LENGTH = 512, DRAW_K = 3, DRAW_OF = 7 };
enum { DRAW_ROW = DRAW_LENGTH * DRAW_K, DRAWS = DRAW_ROWS * DRAW_ROW };

static void draw(uint64_t stream, int32_t step, int32_t *id) {
    MxDrawIdsAttr attr = {.k = DRAW_K, .seed = 5, .stream = stream, .length = DRAW_LENGTH};
    MxType in[] = {{MX_F32, MX_SHAPE(DRAW_ROWS, DRAW_LENGTH, DRAW_OF)},
                   {MX_I32, MX_SHAPE(DRAW_ROWS)},
                   {MX_I32, MX_SCALAR}};
    Probe *p = probe_open(&(MxDeviceConfig){0}, &(ProbeOp){&op_draw_ids, &attr, in, 3, 0});
    for (int i = 0; i < DRAW_ROWS; i++) ((int32_t *)p->in[1])[i] = i;
    *(int32_t *)p->in[2] = step;
    probe_run(p);
    memcpy(id, p->out[0], sizeof *id * DRAWS);
    probe_close();
}

/* All pairs of an index and the one `ahead` of it are equally often: chi squared of so many cells
 * is below its mean by five of its deviations. */
static void check_pairs(const int32_t *a, const int32_t *b, int ahead) {
    enum { CELLS = DRAW_OF * DRAW_OF };
    int n[CELLS] = {0};
    double even = (double)DRAWS / CELLS, chi = 0;
    for (int i = 0; i < DRAWS; i++) {
        int32_t other = b[(i + ahead) % DRAWS];
        ck_assert(a[i] >= 0 && a[i] < DRAW_OF);
        n[a[i] * DRAW_OF + other]++;
    }
    for (int i = 0; i < CELLS; i++) chi += (n[i] - even) * (n[i] - even) / even;
    ck_assert_double_le(chi, CELLS - 1 + 5 * sqrt(2.0 * (CELLS - 1)));
}

/* Whatever the token's other choices, the next token's, the next row's, the next step's and those
 * of another place are. */
START_TEST(indices_are_by_chance) {
    static int32_t id[3][DRAWS];
    static const int ahead[] = {1, DRAW_K, DRAW_ROW};
    draw(0, 7, id[0]);
    draw(0, 8, id[1]);
    draw(1, 7, id[2]);
    for (int i = 0; i < MX_COUNT(ahead); i++) check_pairs(id[0], id[0], ahead[i]);
    for (int k = 1; k < 3; k++) check_pairs(id[0], id[k], 0);
}
END_TEST

START_TEST(random_streams_are_independent) {
    enum { N = 1000000 };
    static uint64_t keys[][2] = {{7, 11}, {7, 12}, {8, 11}, {7 + (1ull << 32), 11}};
    const float *x = random_array(MX_FILL_NORMAL, keys[0], N);
    for (int k = 1; k < MX_COUNT(keys); k++) {
        const float *y = random_array(MX_FILL_NORMAL, keys[k], N);
        double product = 0;
        for (int i = 0; i < N; i++) product += (double)x[i] * (double)y[i] / (0.25 * N);
        ck_assert_msg(fabs(product) < 0.005, "key %d correlates by %g", k, product);
    }
}
END_TEST

/* An element depends on its index alone, so a longer array starts with the shorter one. */
START_TEST(random_prefix) {
    const float *x = random_array((MxFill)_i, (uint64_t[]){7, 11}, 100003);
    const float *y = random_array((MxFill)_i, (uint64_t[]){7, 11}, 1001);
    ck_assert(!memcmp(x, y, 1001 * sizeof *x));
}
END_TEST

Suite *suite_numbers(void) {
    Suite *suite = suite_create("numbers");
    TCase *t = tcase_create("numbers");
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, NULL, probe_close);
    tcase_add_loop_test(t, functions_are_close, 0, MX_COUNT(functions));
    tcase_add_test(t, ends_of_ranges);
    tcase_add_test(t, pairs_round_as_single_ones_do);
    tcase_add_test(t, turns_are_close);
    tcase_add_test(t, conversions_of_any_length);
    tcase_add_test(t, bf16_norm_rounds_twice);
    tcase_add_loop_test(t, squares_of_any_length, 0, MX_COUNT(lengths));
    tcase_add_test(t, squares_are_close);
    tcase_add_loop_test(t, random_moments, MX_FILL_NORMAL, MX_FILL_LOG_UNIFORM);
    tcase_add_loop_test(t, dropout_is_by_chance, 0, MX_COUNT(rates));
    tcase_add_test(t, indices_are_by_chance);
    tcase_add_test(t, random_streams_are_independent);
    tcase_add_loop_test(t, random_prefix, MX_FILL_NORMAL, MX_FILL_CYCLE);
    suite_add_tcase(suite, t);
    return suite;
}
