/* test_quant.c — codes and scales of blocks: their definition in plain loops on drawn numbers,
 * edges, and what cannot be kept so. Against qwix itself: tests/train/test_qlora.c. */
#include "base_test.h"

#include <math.h>

enum { ROWS = 24, COLUMNS = 6, TILE = 8, COUNT = ROWS * COLUMNS };

static const MxShape shape = {2, {ROWS, COLUMNS}};

static void fill_with(float *x, float size) {
    for (int i = 0; i < COUNT; i++) {
        uint32_t words[4];
        mx_philox(5, 9, (uint64_t)i, words);
        x[i] = size * (mx_uniform(words[0]) - 0.5f);
    }
}

/* Decade i of n, from the least, is as wide as all below it nine times, and has 2^i codes. */
static void ck_decades(const float *values, int n, bool squares) {
    ck_assert(values[0] == 0);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < 1 << i; k++) {
            double value = pow(10, i + 1 - n) * (0.1 + 0.9 * (k + 0.5) / (1 << i));
            if (i == n - 1 && k == (1 << i) - 1) value = 1;
            if (squares) value *= value;
            ck_assert(values[(1 << i) + k] == (float)value);
        }
}

START_TEST(bytes_stand_for_decades) {
    ck_decades(mx_dynamic_values, 7, false);
    ck_decades(mx_square_values, 8, true);
    for (int i = 0; i < 128; i++) ck_assert(mx_dynamic_values[128 + i] == -mx_dynamic_values[i]);
}
END_TEST

/* Whether a code's width has a magnitude, of n decades; the last one may be a width off. */
static bool is_code_of(int code, double x, int n) {
    int decade = 0;
    if (!code) return x < pow(10, -n) * 1.00001;
    while (code >> (decade + 1)) decade++;
    double width = 0.9 * pow(10, decade + 1 - n) / (1 << decade);
    double low = pow(10, decade - n) + width * (code - (1 << decade));
    return x > low - 1e-5 * width && x < low + 1.00001 * width;
}

/* What a code stands for has that code again. */
START_TEST(bytes_stay_what_they_are) {
    static const float sizes[] = {3, 1e-6f, 1e9f};
    const bool squares = _i % 2;
    MxQuant quant = {.type = squares ? MX_SQUARES : MX_DYNAMIC, .tile = TILE};
    float x[COUNT], y[COUNT], z[COUNT], scales[COUNT / TILE];
    uint8_t codes[COUNT];
    fill_with(x, sizes[_i / 2]);
    for (int i = 0; i < COUNT; i++) x[i] = i % 7 ? x[i] * powf(0.5f, (float)(i % 40)) : x[i];
    for (int i = 0; i < COUNT && squares; i++) x[i] = fabsf(x[i]);
    ck_assert(mx_quantize(quant, shape, x, codes, scales));
    mx_dequantize(quant, shape, codes, scales, y);
    for (int i = 0; i < COUNT; i++) {
        float scale = scales[i / COLUMNS / TILE * COLUMNS + i % COLUMNS];
        double size = fabs((double)x[i]) / (double)scale;
        ck_assert_msg(squares ? is_code_of(codes[i], sqrt(size), 8)
                              : is_code_of(codes[i] & 127, size, 7),
                      "%d: %g for %g", i, (double)y[i], (double)x[i]);
        ck_assert(squares || !codes[i] || (codes[i] > 127) == (x[i] < 0));
    }
    ck_assert(mx_quantize(quant, shape, y, codes, scales));
    mx_dequantize(quant, shape, codes, scales, z);
    for (int i = 0; i < COUNT; i++) ck_assert(y[i] == z[i]);
}
END_TEST

/* Nothing between two neighbours is nearer to another value; the largest of a block is kept. */
START_TEST(codes_are_the_nearest) {
    float x[COUNT], scales[COUNT / TILE], y[COUNT];
    uint8_t codes[COUNT];
    MxQuant quant = {.type = (MxQtype)_i, .tile = TILE};
    const MxQtypeRow *row = &mx_qtypes[_i];
    fill_with(x, 3);
    ck_assert(mx_quantize(quant, shape, x, codes, scales));
    mx_dequantize(quant, shape, codes, scales, y);
    for (int i = 0; i < COUNT; i++) {
        float scale = scales[i / COLUMNS / TILE * COLUMNS + i % COLUMNS], most = 0, best = INFINITY;
        for (int k = 0; k < TILE; k++)
            most = fmaxf(most, fabsf(x[(i / COLUMNS / TILE * TILE + k) * COLUMNS + i % COLUMNS]));
        ck_assert(scale == mx_scale_rounded(row->scale, most * (1 / row->bound)));
        for (int k = 0; k < 1 << row->bits; k++) /* fminf leaves out what is no number */
            best = fminf(best, fabsf(row->values[k] * scale - x[i]));
        float rounding = row->by_f16 ? fabsf(x[i]) * 0x1p-10f : 0; /* of both distances */
        ck_assert_msg(fabsf(y[i] - x[i]) <= best * 1.00001f + 1e-7f + rounding, "%d: %g for %g", i,
                      (double)y[i], (double)x[i]);
    }
}
END_TEST

/* What a code stands for has that code. */
START_TEST(numbers_have_their_codes) {
    const MxQtypeRow *row = &mx_qtypes[_i];
    int n = 0;
    for (unsigned code = 0; code < 1u << row->bits; code++) {
        if (!isfinite(row->values[code])) continue;
        ck_assert_uint_eq(mx_grid_code(row->grid, row->values[code]), code);
        n++;
    }
    ck_assert_int_ge(n, (1 << row->bits) - 8); /* of e5m2 eight are none */
    ck_assert_uint_eq(mx_grid_code(row->grid, NAN), 0);
}
END_TEST

START_TEST(scales_have_their_forms) {
    ck_assert_float_eq(mx_scale_rounded(MX_SCALE_FLOAT, 0.3f), 0.3f);
    ck_assert_float_eq(mx_scale_rounded(MX_SCALE_POWER, 0.25f), 0.25f);
    ck_assert_float_eq(mx_scale_rounded(MX_SCALE_POWER, 0.2500001f), 0.5f);
    ck_assert_float_eq(mx_scale_rounded(MX_SCALE_POWER, 3), 4);
    ck_assert_float_eq(mx_scale_rounded(MX_SCALE_E4M3, 0.3f), 0.3125f);
    ck_assert_float_eq(mx_scale_rounded(MX_SCALE_E4M3, 1000), 448);
    ck_assert_float_eq(mx_scale_rounded(MX_SCALE_E4M3, 1e-4f), 0); /* and so are its values */
}
END_TEST

START_TEST(blocks_of_nothing_are_zeros) {
    float x[COUNT] = {0}, scales[COUNT / TILE], y[COUNT];
    uint8_t codes[COUNT];
    MxQuant quant = {.type = (MxQtype)_i, .tile = TILE};
    x[3] = 1e-30f;
    ck_assert(mx_quantize(quant, shape, x, codes, scales));
    mx_dequantize(quant, shape, codes, scales, y);
    for (int i = 0; i < COUNT; i++) ck_assert(y[i] == 0);
    for (int i = 0; i < COUNT / TILE; i++) ck_assert(scales[i] == 1);
}
END_TEST

START_TEST(what_is_not_finite_is_told) {
    static const float values[] = {NAN, INFINITY, -INFINITY};
    float x[COUNT], scales[COUNT / TILE];
    uint8_t codes[COUNT];
    fill_with(x, 1);
    x[100] = values[_i % 3];
    ck_assert(!mx_quantize((MxQuant){.type = (MxQtype)(1 + _i / 3), .tile = TILE}, shape, x, codes,
                           scales));
}
END_TEST

START_TEST(boxes_grow_to_blocks) {
    MxQuant quant = {.type = MX_NF4, .tile = TILE};
    MxBox box = {.rank = 2, .start = {9, 3}, .count = {8, 2}};
    MxBox want = {.rank = 2, .start = {8, 2}, .count = {16, 4}}, got = mx_quant_blocks(quant, box);
    ck_assert(mx_box_equal(&got, &want));
    got = mx_quant_blocks(quant, want);
    ck_assert(mx_box_equal(&got, &want));
    quant.type = MX_INT8;
    want.start[1] = 3;
    want.count[1] = 2;
    got = mx_quant_blocks(quant, box);
    ck_assert(mx_box_equal(&got, &want));
}
END_TEST

START_TEST(sizes_add_up) {
    MxArena scratch = {.name = "sizes"};
    MxQuant quant = {.type = MX_NF4, .tile = TILE};
    ck_assert_int_eq(mx_shape_count(mx_quant_codes(quant, shape)) +
                         4 * mx_shape_count(mx_quant_scales(quant, shape)),
                     mx_quant_bytes(quant, COUNT));
    ck_assert(mx_shape_equal(mx_quant_shape(quant, mx_quant_codes(quant, shape)), shape));
    ck_assert_ptr_null(mx_quant_why_not(&scratch, quant, shape));
    ck_assert_str_eq(mx_quant_why_not(&scratch, quant, MX_SHAPE(12, 6)),
                     "blocks of 8 do not divide dim 0 = 12");
    ck_assert_str_eq(mx_quant_why_not(&scratch, quant, MX_SHAPE(8, 5)),
                     "nf4 wants an even dim 1, found 5");
    ck_assert_str_eq(mx_quant_why_not(&scratch, quant, MX_SHAPE(8)), "it is no matrix");
    mx_arena_release(&scratch);
}
END_TEST

static int nearest_of_nf4(float x) {
    int best = 0;
    for (int k = 1; k < MX_HALF_BYTE_CODES; k++)
        if (fabsf(mx_nf4_values[k] - x) < fabsf(mx_nf4_values[best] - x)) best = k;
    return best;
}

/* Every code begins at its bound, and not one float earlier. */
START_TEST(codes_of_nf4_are_the_nearest) {
    for (int k = 0; k + 1 < MX_HALF_BYTE_CODES; k++) {
        ck_assert_int_eq(nearest_of_nf4(mx_nf4_bounds[k]), k + 1);
        ck_assert_int_eq(nearest_of_nf4(nextafterf(mx_nf4_bounds[k], -2)), k);
    }
}
END_TEST

START_TEST(types_have_names) {
    MxQtype type;
    ck_assert(mx_qtype_parse("nf4", &type) && type == MX_NF4);
    ck_assert(mx_qtype_parse("int8", &type) && type == MX_INT8);
    ck_assert(!mx_qtype_parse("int9", &type) && !mx_qtype_parse("", &type));
    ck_assert_str_eq(mx_qtype_name(MX_INT8), "int8");
}
END_TEST

/* ---- numbers of few bits */

/* How many numbers a grid has above 0; 4 and 8 bits have 7 and 127 such, of floats those that stand
 * for infinity and NaN are none. Sources: OCP OFP8 (2023), table 1; OCP MX (2023), 5.3.3. */
static const struct {
    MxGrid grid;
    int n;
    float smallest, most, least;
} grids[] = {
    {MX_GRID_INT4, 7, 1, 7, -8},
    {MX_GRID_INT8, 127, 1, 127, -128},
    {MX_GRID_E2M1, 7, 0.5f, 6, -6},
    {MX_GRID_E4M3, 126, 0x1p-9f, 448, -448},
    {MX_GRID_E5M2, 123, 0x1p-16f, 57344, -57344},
};

static float on_grid(MxGrid grid, float x) {
    float y;
    mx_grid_round(grid, &x, 1, &y);
    return y;
}

/* The number after `low`, where numbers before it are `step` apart: at a power of two twice as far.
 */
static float after(MxGrid grid, float low, float *step) {
    if (on_grid(grid, low + *step) != low + *step) *step *= 2;
    return low + *step;
}

START_TEST(grids_have_their_numbers) {
    MxGrid grid = grids[_i].grid;
    float last = 0, step = grids[_i].smallest;
    for (int n = 0; n < grids[_i].n; n++) {
        last = after(grid, last, &step);
        ck_assert_msg(on_grid(grid, last) == last, "%g", (double)last);
        ck_assert(on_grid(grid, -last) == -last);
    }
    ck_assert(last == grids[_i].most && on_grid(grid, 2 * last) == last);
    ck_assert(on_grid(grid, 3 * grids[_i].least) == grids[_i].least);
    ck_assert(on_grid(grid, 0) == 0 && isnan(on_grid(grid, NAN)));
}
END_TEST

/* Between neighbours the nearer one counts, in the middle the one whose last bit is 0. */
START_TEST(grids_round_to_even) {
    MxGrid grid = grids[_i].grid;
    float low = 0, step = grids[_i].smallest;
    for (bool is_odd = false; low < grids[_i].most; is_odd = !is_odd) {
        float high = after(grid, low, &step), middle = low + (high - low) / 2;
        ck_assert(on_grid(grid, middle) == (is_odd ? high : low));
        ck_assert(on_grid(grid, -middle) == -(is_odd ? high : low));
        ck_assert(on_grid(grid, nextafterf(middle, 0)) == low);
        ck_assert(on_grid(grid, nextafterf(middle, INFINITY)) == high);
        low = high;
    }
}
END_TEST

START_TEST(scales_fill_the_grid) {
    ck_assert_float_eq(mx_grid_scale(MX_GRID_INT8, 255), 2);
    ck_assert_float_eq(mx_grid_scale(MX_GRID_E4M3, 896), 2);
    ck_assert_float_eq(mx_grid_scale(MX_GRID_E5M2, 0), 1);
    ck_assert_float_eq(mx_grid_scale(MX_GRID_INT4, 1e-19f), 1);
}
END_TEST

static const struct {
    const char *text;
    MxMeasure measure; /* MX_MEASURE_COUNT: refused */
    double by;
    const char *why;
} calibrations[] = {
    {"absmax", MX_ABSMAX, 1, NULL},
    {"AbsMax,0.75", MX_ABSMAX, 0.75, NULL},
    {"rms, 2.5 ", MX_RMS, 2.5, NULL},
    {"fixed,4e1", MX_FIXED, 40, NULL},
    {"fixed,-3,3", MX_FIXED, 3, NULL},
    {"", MX_MEASURE_COUNT, 0, "unrecognized method \"\", wants absmax"},
    {"absmax ", MX_MEASURE_COUNT, 0, "unrecognized method"},
    {"minmax,0.9", MX_MEASURE_COUNT, 0, "minmax has a zero point"},
    {"rms", MX_MEASURE_COUNT, 0, "found \"rms\", wants absmax"},
    {"absmax,1,2", MX_MEASURE_COUNT, 0, "found \"absmax,1,2\""},
    {"absmax,", MX_MEASURE_COUNT, 0, "found \"absmax,\""},
    {"absmax,0x2", MX_MEASURE_COUNT, 0, "found \"absmax,0x2\""},
    {"absmax,1f", MX_MEASURE_COUNT, 0, "found \"absmax,1f\""},
    {"fixed,inf", MX_MEASURE_COUNT, 0, "found \"fixed,inf\""},
    {"fixed,-1,2", MX_MEASURE_COUNT, 0, "a range from -1 to 2 is not symmetrical"},
    {"fixed,1,-1", MX_MEASURE_COUNT, 0, "wants a number above 0 in float32, found -1"},
    {"absmax,0", MX_MEASURE_COUNT, 0, "wants a number above 0 in float32, found 0"},
    {"fixed,1e39", MX_MEASURE_COUNT, 0, "wants a number above 0 in float32"},
};

START_TEST(calibrations_are_read) {
    MxCalibration got;
    const char *why = mx_calibration_parse(&arena, calibrations[_i].text, &got);
    if (calibrations[_i].why) {
        ck_assert_msg(why && strstr(why, calibrations[_i].why), "%s: %s", calibrations[_i].text,
                      why ? why : "taken");
    } else {
        ck_assert_msg(!why, "%s: %s", calibrations[_i].text, why);
        ck_assert_int_eq(got.measure, calibrations[_i].measure);
        ck_assert_double_eq((double)got.by, calibrations[_i].by);
    }
}
END_TEST

Suite *quant_suite(void) {
    Suite *suite = suite_create("quant");
    TCase *tcase = add_case(suite, "codes");
    tcase_add_loop_test(tcase, codes_are_the_nearest, MX_NF4, MX_DYNAMIC);
    tcase_add_loop_test(tcase, numbers_have_their_codes, MX_INT8, MX_DYNAMIC);
    tcase_add_test(tcase, scales_have_their_forms);
    tcase_add_test(tcase, bytes_stand_for_decades);
    tcase_add_loop_test(tcase, bytes_stay_what_they_are, 0, 6);
    tcase_add_loop_test(tcase, blocks_of_nothing_are_zeros, MX_NF4, MX_QTYPE_COUNT);
    tcase_add_loop_test(tcase, what_is_not_finite_is_told, 0, 3 * (MX_QTYPE_COUNT - MX_NF4));
    tcase_add_test(tcase, boxes_grow_to_blocks);
    tcase_add_test(tcase, sizes_add_up);
    tcase_add_test(tcase, codes_of_nf4_are_the_nearest);
    tcase_add_test(tcase, types_have_names);
    tcase = add_case(suite, "grids");
    tcase_add_loop_test(tcase, grids_have_their_numbers, 0, MX_COUNT(grids));
    tcase_add_loop_test(tcase, grids_round_to_even, 0, MX_COUNT(grids));
    tcase_add_test(tcase, scales_fill_the_grid);
    tcase = add_case(suite, "calibrations");
    tcase_add_loop_test(tcase, calibrations_are_read, 0, MX_COUNT(calibrations));
    return suite;
}
