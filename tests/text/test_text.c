/* test_text.c — which bytes are UTF-8, and the byte tokenizer. */
#include "text_test.h"
#include "common/suite.h"

static void tear_down(void) {
    text_tear_down();
}

START_TEST(bytes) {
    MxTokenizer *t = text_opened("byte", NULL);
    ck_assert_str_eq(mx_tokenizer_type(t), "byte");
    ck_assert_int_eq(mx_tokenizer_vocab(t), 258);
    ck_assert_int_eq(mx_tokenizer_bos(t), 256);
    ck_assert_int_eq(mx_tokenizer_eos(t), 257);
    ck_assert_str_eq(text_ids(t, "a\0ü\xff", 5), "97 0 195 188 255");
    ck_assert_str_eq(text_ids(t, "", 0), "");
    const int32_t ids[] = {256, 'h', 0xc3, 0xbc, -1, 258, 'i', 257};
    ck_assert_str_eq(mx_tokenizer_decode(&arena, t, ids, 8, false, NULL), "hüi");
}
END_TEST

START_TEST(unrecognized) {
    MxTokenizer *tokenizer;
    ck_assert(!mx_tokenizer_open(&arena, "bytes", NULL, &tokenizer, &err));
    ck_assert_str_eq(err.text.data,
                     "unrecognized tokenizer type \"bytes\"\nhint: did you mean \"byte\"");
    ck_assert_int_eq(err.exit, MX_EXIT_CONFIG);
}
END_TEST

static const struct {
    const char *text;
    size_t valid;
} utf8[] = {
    {"", 0},
    {"plain", 5},
    {"gr\xc3\xbc\xc3\x9f", 6},
    {"\xe2\x82\xac\xf0\x9f\x98\x80", 7},
    {"\xf4\x8f\xbf\xbf", 4}, /* U+10FFFF */
    {"ab\xff", 2},
    {"ab\x80", 2},           /* a continuation alone */
    {"a\xc0\xaf", 1},        /* overlong */
    {"a\xe0\x80\xaf", 1},    /* overlong */
    {"a\xed\xa0\x80", 1},    /* surrogate */
    {"\xf4\x90\x80\x80", 0}, /* above U+10FFFF */
    {"ab\xe2\x82", 2},       /* cut short */
    {"ab\xe2\x82z", 2},
    {"\xf0\x9f\x98z", 0},
};

START_TEST(well_formed) {
    ck_assert_uint_eq(mx_utf8_valid_bytes(utf8[_i].text, strlen(utf8[_i].text)), utf8[_i].valid);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("text");
    TCase *tests = tcase_create("text");
    tcase_add_checked_fixture(tests, NULL, tear_down);
    tcase_add_test(tests, bytes);
    tcase_add_test(tests, unrecognized);
    tcase_add_loop_test(tests, well_formed, 0, MX_COUNT(utf8));
    suite_add_tcase(suite, tests);
    return RUN_SUITES(suite, text_golden_suite(), text_json_suite(), text_train_suite());
}
