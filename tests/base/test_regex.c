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

/* Values of Python 3.11: re.fullmatch(pattern, text).expand(template); NULL = no match. */
static const struct {
    const char *pattern, *text, *template, *want;
} expansions[] = {
    {"a/layers_(\\d+)/(.*)", "a/layers_3/mlp/wo", "b/layers_\\1/\\2", "b/layers_3/mlp/wo"},
    {"a/layers_(?P<n>\\d+)/w", "a/layers_12/w", "c/\\g<n>\\g<1>x\\\\", "c/1212x\\"},
    {"a(b)?c", "ac", "[\\1]", "[]"},
    {"a", "ab", "x", NULL},
    {"a|ab", "ab", "\\g<0>", "ab"},
};

START_TEST(templates_expand_as_in_python) {
    const char *why = "";
    MxRegex *regex = mx_regex_new(&arena, expansions[_i].pattern, &why);
    const char *got =
        mx_regex_expand(&arena, regex, expansions[_i].text, expansions[_i].template, &why);
    ck_assert_ptr_null(why);
    if (!expansions[_i].want)
        ck_assert_ptr_null(got);
    else
        ck_assert_str_eq(got, expansions[_i].want);
}
END_TEST

START_TEST(templates_without_a_group_say_so) {
    static const char *const wrong[] = {"\\2", "\\g<x>", "\\g<1", "\\z", "\\"};
    const char *why;
    MxRegex *regex = mx_regex_new(&arena, "(a)", &why);
    for (int i = 0; i < MX_COUNT(wrong); i++) {
        ck_assert_ptr_null(mx_regex_expand(&arena, regex, "a", wrong[i], &why));
        ck_assert_msg(why && mx_text_has_prefix(why, "no such group: \\"), "%s", wrong[i]);
    }
    MxRegex *endless = mx_regex_new(&arena, "(a+)+$", &why);
    const char *text = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab";
    ck_assert_ptr_null(mx_regex_expand(&arena, endless, text, "x", &why));
    ck_assert_str_eq(why, "it takes too long to match");
}
END_TEST

Suite *regex_suite(void) {
    Suite *suite = suite_create("regex");
    TCase *tcase = add_case(suite, "regex");
    tcase_add_loop_test(tcase, patterns_match_as_in_python, 0, MX_COUNT(cases));
    tcase_add_test(tcase, what_is_no_pattern_says_why);
    tcase_add_loop_test(tcase, templates_expand_as_in_python, 0, MX_COUNT(expansions));
    tcase_add_test(tcase, templates_without_a_group_say_so);
    return suite;
}
