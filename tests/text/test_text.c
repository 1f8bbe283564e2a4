/* test_text.c — the byte tokenizer, and which bytes are UTF-8. */
#include <check.h>
#include <mx/text.h>

static MxArena arena = {.name = "test"};
static MxError err;

static void tear_down(void) {
    mx_error_release(&err);
    mx_arena_release(&arena);
}

START_TEST(bytes) {
    MxTokenizer *tokenizer;
    ck_assert(mx_tokenizer_open(&arena, "byte", NULL, &tokenizer, &err));
    ck_assert_str_eq(mx_tokenizer_type(tokenizer), "byte");
    ck_assert_int_eq(mx_tokenizer_vocab(tokenizer), 258);
    ck_assert_int_eq(mx_tokenizer_bos(tokenizer), 256);
    ck_assert_int_eq(mx_tokenizer_eos(tokenizer), 257);
    const char text[] = "a\0ü";
    MxTokens tokens = mx_tokenizer_encode(&arena, tokenizer, text, sizeof text - 1);
    const int32_t want[] = {'a', 0, 0xc3, 0xbc};
    ck_assert_int_eq(tokens.n, 4);
    ck_assert_mem_eq(tokens.ids, want, sizeof want);
    ck_assert_int_eq(mx_tokenizer_encode(&arena, tokenizer, "", 0).n, 0);
    const int32_t ids[] = {256, 'h', 0xc3, 0xbc, -1, 258, 'i', 257};
    ck_assert_str_eq(mx_tokenizer_decode(&arena, tokenizer, ids, 8), "hüi");
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
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
