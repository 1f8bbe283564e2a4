/* test_regex.c — patterns as the keys hold them, what is no pattern, and one that never ends. */
#include "base_test.h"

static const struct {
    const char *pattern, *text;
    MxMatch match;
} cases[] = {
    {"decoder/layers/mlp/wo", "decoder/layers/mlp/wo", MX_MATCH_WHOLE},
    {".*mlp/wo", "decoder/layers/mlp/wo", MX_MATCH_WHOLE},
    {"mlp/(wi_0|wo)", "decoder/layers/mlp/wo", MX_MATCH_PART},
    {"mlp/(wi_0|wo)$", "decoder/layers/mlp/wo/kernel", MX_MATCH_NONE},
    {"a|ab", "ab", MX_MATCH_WHOLE}, /* the first alternative alone would stop short */
    {"layers(?:_[0-9]+|/[0-9]+)?/out", "layers_12/out", MX_MATCH_WHOLE},
    {"layers(?:_[0-9]+|/[0-9]+)?/out", "layers_/out", MX_MATCH_NONE},
    {"(?P<x>\\d)(?!5)", "15", MX_MATCH_PART},
    {"", "", MX_MATCH_WHOLE},
    {"(a+)+$", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab", MX_MATCH_GAVE_UP},
};

START_TEST(patterns_match_as_in_python) {
    const char *why = "";
    MxRegex *regex = mx_regex_new(&arena, cases[_i].pattern, &why);
    ck_assert_msg(regex != NULL, "\"%s\": %s", cases[_i].pattern, why);
    ck_assert_msg(mx_regex_match(regex, cases[_i].text) == cases[_i].match, "\"%s\" on \"%s\"",
                  cases[_i].pattern, cases[_i].text);
}
END_TEST

START_TEST(what_is_no_pattern_says_why) {
    const char *why = NULL;
    ck_assert_ptr_null(mx_regex_new(&arena, "a(b", &why));
    ck_assert_str_eq(why, "missing closing parenthesis at position 3");
}
END_TEST

Suite *regex_suite(void) {
    Suite *suite = suite_create("regex");
    TCase *tcase = add_case(suite, "regex");
    tcase_add_loop_test(tcase, patterns_match_as_in_python, 0, MX_COUNT(cases));
    tcase_add_test(tcase, what_is_no_pattern_says_why);
    return suite;
}
