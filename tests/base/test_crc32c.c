/* test_crc32c.c — CRC-32C against the sums of RFC 3720, against TensorBoard's masked ones, and
 * against the definition, bit by bit. */
#include "base_test.h"

static const struct {
    int first, step; /* 32 bytes */
    uint32_t sum;
} published[] = {
    {0x00, 0, 0x8a9136aa},
    {0xff, 0, 0x62a8ab43},
    {0x00, 1, 0x46dd794e},
    {0x1f, -1, 0x113fdb5c},
};

START_TEST(sums_are_the_published_ones) {
    uint8_t bytes[32];
    for (int i = 0; i < MX_COUNT(bytes); i++)
        bytes[i] = (uint8_t)(published[_i].first + i * published[_i].step);
    ck_assert_uint_eq(mx_crc32c(bytes, sizeof bytes), published[_i].sum);
}
END_TEST

/* tensorboard 2.21.0, compat/tensorflow_stub/pywrap_tensorflow.py: masked_crc32c. */
static const struct {
    const char *data;
    size_t bytes;
    uint32_t sum;
} masked[] = {
    {"", 0, 0xa282ead8},
    {"a", 1, 0x28e46e78},
    {"\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b", 12, 0xf7f791df},
    {"\x18\x00\x00\x00\x00\x00\x00\x00", 8, 0x224b7fa3},
};

START_TEST(masked_sums_are_those_of_tensorboard) {
    ck_assert_uint_eq(mx_crc32c_masked(masked[_i].data, masked[_i].bytes), masked[_i].sum);
}
END_TEST

/* The remainder of a polynomial division, lowest bit first. */
static uint32_t by_definition(const uint8_t *data, size_t bytes) {
    uint32_t rest = UINT32_MAX;
    for (size_t bit = 0; bit < 8 * bytes; bit++) {
        uint32_t out = (rest ^ (uint32_t)(data[bit / 8] >> bit % 8)) & 1;
        rest = rest >> 1 ^ (out ? 0x82f63b78 : 0);
    }
    return ~rest;
}

START_TEST(any_length_at_any_place) {
    enum { MOST = 80 };
    uint8_t bytes[MOST + 8];
    uint64_t state = 0;
    for (int i = 0; i < MX_COUNT(bytes); i++) bytes[i] = (uint8_t)draw(&state);
    for (size_t at = 0; at < 8; at++)
        for (size_t n = 0; n <= MOST; n++)
            ck_assert_msg(mx_crc32c(bytes + at, n) == by_definition(bytes + at, n),
                          "%zu bytes at %zu", n, at);
}
END_TEST

Suite *crc32c_suite(void) {
    Suite *suite = suite_create("crc32c");
    TCase *tcase = add_case(suite, "crc32c");
    tcase_add_loop_test(tcase, sums_are_the_published_ones, 0, MX_COUNT(published));
    tcase_add_loop_test(tcase, masked_sums_are_those_of_tensorboard, 0, MX_COUNT(masked));
    tcase_add_test(tcase, any_length_at_any_place);
    return suite;
}
