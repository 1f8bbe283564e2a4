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

/* Nothing between two neighbours is nearer to another value; the largest of a block is kept. */
START_TEST(codes_are_the_nearest) {
    float x[COUNT], scales[COUNT / TILE], y[COUNT];
    uint8_t codes[COUNT];
    MxQuant quant = {.type = (MxQtype)_i, .tile = TILE};
    fill_with(x, 3);
    ck_assert(mx_quantize(quant, shape, x, codes, scales));
    mx_dequantize(quant, shape, codes, scales, y);
    for (int i = 0; i < COUNT; i++) {
        float scale = scales[i / COLUMNS / TILE * COLUMNS + i % COLUMNS], most = 0, best = INFINITY;
        for (int k = 0; k < TILE; k++)
            most = fmaxf(most, fabsf(x[(i / COLUMNS / TILE * TILE + k) * COLUMNS + i % COLUMNS]));
        ck_assert(scale == (_i == MX_NF4 ? most : most * (1 / 127.5f)));
        int first = _i == MX_NF4 ? 0 : -128, n = _i == MX_NF4 ? MX_NF4_CODES : 256;
        for (int k = first; k < first + n; k++)
            best = fminf(best, fabsf((_i == MX_NF4 ? mx_nf4_values[k] : (float)k) * scale - x[i]));
        ck_assert_msg(fabsf(y[i] - x[i]) <= best * 1.00001f + 1e-7f, "%d: %g for %g", i,
                      (double)y[i], (double)x[i]);
    }
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

START_TEST(types_have_names) {
    MxQtype type;
    ck_assert(mx_qtype_parse("nf4", &type) && type == MX_NF4);
    ck_assert(mx_qtype_parse("int8", &type) && type == MX_INT8);
    ck_assert(!mx_qtype_parse("int9", &type) && !mx_qtype_parse("", &type));
    ck_assert_str_eq(mx_qtype_name(MX_INT8), "int8");
}
END_TEST

Suite *quant_suite(void) {
    Suite *suite = suite_create("quant");
    TCase *tcase = add_case(suite, "codes");
    tcase_add_loop_test(tcase, codes_are_the_nearest, MX_NF4, MX_QTYPE_COUNT);
    tcase_add_loop_test(tcase, blocks_of_nothing_are_zeros, MX_NF4, MX_QTYPE_COUNT);
    tcase_add_loop_test(tcase, what_is_not_finite_is_told, 0, 6);
    tcase_add_test(tcase, boxes_grow_to_blocks);
    tcase_add_test(tcase, sizes_add_up);
    tcase_add_test(tcase, types_have_names);
    return suite;
}
