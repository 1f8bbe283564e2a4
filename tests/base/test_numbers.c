/* test_numbers.c — random numbers against the published vectors, bfloat16 against a slow version of
 * its definition, dtypes and shapes, and the hash. */
#include "base_test.h"

#include <math.h>

/* Known answers of Random123 (kat_vectors, philox 4x32 10): counter words 0..3, key words 0..1. */
static const struct {
    uint32_t counter[4], key[2], out[4];
} known[] = {
    {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
    {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
     {0xffffffff, 0xffffffff},
     {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
    {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
     {0xa4093822, 0x299f31d0},
     {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
};

static uint64_t wide(const uint32_t *words) {
    return (uint64_t)words[1] << 32 | words[0];
}

START_TEST(philox_gives_the_published_words) {
    uint32_t out[4];
    mx_philox(wide(known[_i].key), wide(known[_i].counter + 2), wide(known[_i].counter), out);
    for (int i = 0; i < 4; i++)
        ck_assert_msg(out[i] == known[_i].out[i], "vector %d word %d: %08x, not %08x", _i, i,
                      out[i], known[_i].out[i]);
}
END_TEST

/* Both ends of the range: the logarithm of either must be finite, and angles below a full turn. */
static const uint32_t words[] = {0,          1,          0xff,       0x100,      0x7fffffff,
                                 0x80000000, 0xfffffdff, 0xfffffeff, 0xffffff00, 0xffffffff};

START_TEST(uniform_is_inside_the_open_interval) {
    float u = mx_uniform(words[_i]);
    ck_assert_msg(u > 0 && u < 1, "%08x: %.9g", words[_i], (double)u);
    double want = ((double)(words[_i] >> 8) + 0.5) / 16777216;
    ck_assert_msg(fabs((double)u - want) <= 0x1p-24, "%08x: %.9g", words[_i], (double)u);
}
END_TEST

/* ---- bfloat16 */

static float float_of(uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static uint32_t bits_of(float f) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

START_TEST(every_bf16_survives_the_way_to_f32_and_back) {
    for (uint32_t x = 0; x <= 0xffff; x++) {
        float f = mx_bf16_to_f32((MxBf16)x);
        MxBf16 back = mx_f32_to_bf16(f);
        uint32_t want = isnan(f) ? x | 0x40 : x; /* NaNs become quiet, else nothing changes */
        if (bits_of(f) != x << 16 || back != want) ck_abort_msg("%04x became %04x", x, back);
    }
}
END_TEST

/* Halfway cases and the ends of the range. */
static const struct {
    uint32_t f32;
    MxBf16 bf16;
    const char *what;
} rounded[] = {
    {0x3f800000, 0x3f80, "1"},
    {0x3f808000, 0x3f80, "a tie goes to the even one below"},
    {0x3f808001, 0x3f81, "just above a tie"},
    {0x3f818000, 0x3f82, "a tie goes to the even one above"},
    {0x3f817fff, 0x3f81, "just below a tie"},
    {0x3fffffff, 0x4000, "carry into the exponent"},
    {0x7f7f7fff, 0x7f7f, "the largest that stays finite"},
    {0x7f7f8000, 0x7f80, "the least that becomes infinite"},
    {0xff7fffff, 0xff80, "the most negative float"},
    {0x7f800000, 0x7f80, "infinity"},
    {0xff800000, 0xff80, "minus infinity"},
    {0x80000000, 0x8000, "minus zero"},
    {0x00000001, 0x0000, "the least subnormal"},
    {0x00008000, 0x0000, "a subnormal tie"},
    {0x00008001, 0x0001, "above a subnormal tie"},
    {0x007fffff, 0x0080, "the largest subnormal"},
    {0x7fc00000, 0x7fc0, "a quiet NaN"},
    {0x7f800001, 0x7fc0, "a signalling NaN in the low bits only"},
    {0xffffffff, 0xffff, "the last NaN"},
};

START_TEST(rounds_to_nearest_even) {
    MxBf16 got = mx_f32_to_bf16(float_of(rounded[_i].f32));
    ck_assert_msg(got == rounded[_i].bf16, "%s: %08x became %04x, not %04x", rounded[_i].what,
                  rounded[_i].f32, got, rounded[_i].bf16);
}
END_TEST

/* The nearest of the two neighbours, by distance in double; of equals the even one. Infinity
 * counts as the next power of two. */
static MxBf16 slow_bf16(float f) {
    MxBf16 low = (MxBf16)(bits_of(f) >> 16), high = (MxBf16)(low + 1); /* towards zero, away */
    double below = (double)mx_bf16_to_f32(low);
    double above =
        isinf(mx_bf16_to_f32(high)) ? copysign(0x1p128, (double)f) : (double)mx_bf16_to_f32(high);
    double down = fabs((double)f - below), up = fabs(above - (double)f);
    if (down != up) return down < up ? low : high;
    return low & 1 ? high : low;
}

START_TEST(agrees_with_the_slow_rounding) {
    uint64_t state = (uint64_t)_i << 32;
    for (int i = 0; i < 200000; i++) {
        uint32_t bits = (uint32_t)draw(&state);
        if (i % 3 == 0) bits = (bits & 0xffff0000) | 0x7ffe | (bits & 3); /* near a tie */
        float f = float_of(bits);
        if (!isfinite(f)) continue;
        MxBf16 got = mx_f32_to_bf16(f), want = slow_bf16(f);
        if (got != want) ck_abort_msg("%08x became %04x, not %04x", bits, got, want);
    }
}
END_TEST

/* ---- dtypes, shapes, hash */

static const struct {
    MxDtype dtype;
    const char *name;
    size_t bytes;
} dtypes[] = {
    {MX_F32, "float32", 4}, {MX_BF16, "bfloat16", 2}, {MX_F64, "float64", 8},
    {MX_F16, "float16", 2}, {MX_I64, "int64", 8},     {MX_I32, "int32", 4},
    {MX_U32, "uint32", 4},  {MX_U16, "uint16", 2},    {MX_I8, "int8", 1},
    {MX_U8, "uint8", 1},
};

START_TEST(dtypes_have_names_and_sizes) {
    ck_assert_int_eq(MX_COUNT(dtypes), MX_DTYPE_COUNT);
    ck_assert_str_eq(mx_dtype_name(dtypes[_i].dtype), dtypes[_i].name);
    ck_assert_uint_eq(mx_dtype_bytes(dtypes[_i].dtype), dtypes[_i].bytes);
    MxDtype parsed = MX_DTYPE_COUNT;
    ck_assert(mx_dtype_parse(dtypes[_i].name, &parsed));
    ck_assert_int_eq(parsed, dtypes[_i].dtype);
}
END_TEST

START_TEST(unrecognized_dtypes_are_refused) {
    MxDtype parsed = MX_DTYPE_COUNT;
    static const char *const names[] = {"", "float", "float3", "float32 ", "Float32", "f32"};
    for (int i = 0; i < MX_COUNT(names); i++)
        ck_assert_msg(!mx_dtype_parse(names[i], &parsed), "\"%s\"", names[i]);
    ck_assert_int_eq(parsed, MX_DTYPE_COUNT);
}
END_TEST

START_TEST(shapes) {
    ck_assert_int_eq(MX_SHAPE(2, 3, 4).rank, 3);
    ck_assert_int_eq(mx_shape_count(MX_SHAPE(2, 3, 4)), 24);
    ck_assert_int_eq(mx_shape_count(MX_SCALAR), 1);
    ck_assert_int_eq(mx_shape_count(MX_SHAPE(7, 0)), 0);
    ck_assert_int_eq(mx_shape_count(MX_SHAPE((int64_t)1 << 20, (int64_t)1 << 20)),
                     (int64_t)1 << 40);
    ck_assert_str_eq(mx_shape_text(&arena, MX_SHAPE(4, 512)), "[4, 512]");
    ck_assert_str_eq(mx_shape_text(&arena, MX_SHAPE(4)), "[4]");
    ck_assert_str_eq(mx_shape_text(&arena, MX_SCALAR), "[]");
    ck_assert(mx_shape_equal(MX_SHAPE(2, 3), MX_SHAPE(2, 3)));
    ck_assert(!mx_shape_equal(MX_SHAPE(2, 3), MX_SHAPE(3, 2)));
    ck_assert(!mx_shape_equal(MX_SHAPE(2, 3), MX_SHAPE(2, 3, 1)));
    MxShape stale = MX_SHAPE(2, 3, 4); /* dims beyond the rank mean nothing */
    stale.rank = 2;
    ck_assert(mx_shape_equal(stale, MX_SHAPE(2, 3)));
    ck_assert_int_eq(mx_shape_count(stale), 6);
}
END_TEST

/* XXH3-64 with seed 0, as xxhsum -H3 prints it. */
static const struct {
    const char *text;
    uint64_t hash;
} hashes[] = {
    {"", 0x2d06800538d394c2},
    {"a", 0xe6c632b61e964e1f},
    {"abc", 0x78af5f94892f3950},
};

START_TEST(hash_is_xxh3) {
    ck_assert_uint_eq(mx_hash64(hashes[_i].text, strlen(hashes[_i].text)), hashes[_i].hash);
}
END_TEST

/* However the data is cut, the hash is that of the whole. */
START_TEST(hash_of_pieces_is_hash_of_the_whole) {
    enum { BYTES = 5000 };
    char *data = mx_arena_alloc(&arena, BYTES);
    for (int i = 0; i < BYTES; i++) data[i] = (char)(i * 31 % 251);
    for (int piece = 1; piece < BYTES; piece = piece * 3 + 1) {
        MxHash *hash = mx_hash_new(&arena);
        for (int at = 0; at < BYTES; at += piece)
            mx_hash_add(hash, data + at, (size_t)(at + piece < BYTES ? piece : BYTES - at));
        ck_assert_uint_eq(mx_hash_value(hash), mx_hash64(data, BYTES));
    }
}
END_TEST

/* Far above what an exponential can hold, and below what it tells from 0. */
START_TEST(log_sum_is_that_of_the_definition) {
    const float shifts[] = {0, 1000, -1000};
    for (int i = 0; i < MX_COUNT(shifts); i++) {
        const float x[] = {logf(1) + shifts[i], logf(5) + shifts[i], -INFINITY,
                           logf(2) + shifts[i]};
        ck_assert_double_eq_tol(mx_log_sum(x, MX_COUNT(x)), log(8) + (double)shifts[i], 1e-4);
    }
    const float one[] = {3.5f}, bad[] = {1, NAN};
    ck_assert_double_eq(mx_log_sum(one, 1), 3.5);
    ck_assert(isnan(mx_log_sum(bad, 2)));
}
END_TEST

Suite *numbers_suite(void) {
    Suite *suite = suite_create("base/numbers");
    TCase *tcase = add_case(suite, "random");
    tcase_add_loop_test(tcase, philox_gives_the_published_words, 0, MX_COUNT(known));
    tcase_add_loop_test(tcase, uniform_is_inside_the_open_interval, 0, MX_COUNT(words));
    tcase = add_case(suite, "bf16");
    tcase_add_test(tcase, every_bf16_survives_the_way_to_f32_and_back);
    tcase_add_loop_test(tcase, rounds_to_nearest_even, 0, MX_COUNT(rounded));
    tcase_add_loop_test(tcase, agrees_with_the_slow_rounding, 0, 10);
    tcase = add_case(suite, "dtype and shape");
    tcase_add_loop_test(tcase, dtypes_have_names_and_sizes, 0, MX_COUNT(dtypes));
    tcase_add_test(tcase, unrecognized_dtypes_are_refused);
    tcase_add_test(tcase, shapes);
    tcase_add_test(tcase, log_sum_is_that_of_the_definition);
    tcase_add_loop_test(tcase, hash_is_xxh3, 0, MX_COUNT(hashes));
    tcase_add_test(tcase, hash_of_pieces_is_hash_of_the_whole);
    return suite;
}
