/* test_error.c — errors: their place, their lines, context, notes and exit codes; and what a bug
 * prints before it aborts. */
#include "base_test.h"
#include "child.h"

#include <errno.h>

static const struct {
    MxWhere where;
    const char *text;
} places[] = {
    {{0}, "too wide: 7"},
    {{"a.yml", 0, 0}, "a.yml: too wide: 7"},
    {{"a.yml", 12, 0}, "a.yml:12: too wide: 7"},
    {{"a.yml", 12, 5}, "a.yml:12:5: too wide: 7"},
    {{"a.yml", 0, 5}, "a.yml: too wide: 7"}, /* a column without a line says nothing */
    {{NULL, 12, 5}, "too wide: 7"},
};

START_TEST(says_where) {
    bool ok = mx_fail(&err, MX_EXIT_CONFIG, places[_i].where, "too wide: %d", 7);
    ck_assert(!ok);
    ck_assert_str_eq(err.text.data, places[_i].text);
    ck_assert_int_eq(err.count, 1);
    ck_assert_int_eq(err.exit, MX_EXIT_CONFIG);
}
END_TEST

START_TEST(collects_lines_and_keeps_the_first_exit) {
    mx_fail(&err, MX_EXIT_BAD_INPUT, MX_NOWHERE, "one");
    mx_fail(&err, MX_EXIT_CONFIG, (MxWhere){.file = "b"}, "two");
    mx_fail(&err, MX_EXIT_IO, MX_NOWHERE, "three");
    ck_assert_str_eq(err.text.data, "one\nb: two\nthree");
    ck_assert_int_eq(err.count, 3);
    ck_assert_int_eq(err.exit, MX_EXIT_BAD_INPUT);
}
END_TEST

START_TEST(takes_notes_and_context) {
    mx_fail(&err, MX_EXIT_CONFIG, MX_NOWHERE, "unrecognized key \"%s\"", "stepz");
    mx_note(&err, "hint: did you mean \"%s\"?", "steps");
    bool ok = mx_context(&err, "reading %s", "a.yml");
    ck_assert(!ok);
    mx_context(&err, "outer");
    ck_assert_str_eq(err.text.data, "outer: reading a.yml: unrecognized key \"stepz\"\n"
                                    "hint: did you mean \"steps\"?");
    ck_assert_int_eq(err.count, 1);
    mx_fail(&err, MX_EXIT_CONFIG, MX_NOWHERE, "next");
    ck_assert_int_eq(err.count, 2);
    ck_assert_msg(mx_text_has_suffix(err.text.data, "?\nnext"), "%s", err.text.data);
}
END_TEST

static void tell_three(const void *unused) {
    (void)unused;
    mx_fail(&err, MX_EXIT_CONFIG, (MxWhere){"a.yml", 3, 1}, "too wide");
    mx_note(&err, "  3 | wide");
    mx_fail(&err, MX_EXIT_CONFIG, MX_NOWHERE, "too %s", "late");
    mx_context(&err, "plan");
    mx_fail(&err, MX_EXIT_CONFIG, MX_NOWHERE, "100%%");
    mx_note(&err, "hint: less");
    mx_error_tell(&err);
}

static void tell_nothing(const void *unused) {
    (void)unused;
    mx_error_tell(&err);
}

START_TEST(every_failure_is_told_behind_the_program) {
    ck_assert_str_eq(run_child(&arena, tell_three, NULL).err,
                     "test_base: error: plan: a.yml:3:1: too wide\n  3 | wide\n"
                     "test_base: error: too late\n"
                     "test_base: error: 100%\nhint: less\n");
    ck_assert_str_eq(run_child(&arena, tell_nothing, NULL).err, "");
}
END_TEST

START_TEST(long_messages_are_whole) {
    for (int i = 0; i < 1000; i++) mx_fail(&err, MX_EXIT_CONFIG, MX_NOWHERE, "%0*d", 100, i);
    ck_assert_uint_eq(err.text.len, 1000 * 101 - 1);
    ck_assert_msg(mx_text_has_suffix(err.text.data, "0999"), "%s", err.text.data + 100000);
}
END_TEST

START_TEST(released_errors_start_anew) {
    mx_fail(&err, MX_EXIT_IO, MX_NOWHERE, "old");
    mx_error_release(&err);
    ck_assert_int_eq(err.count, 0);
    ck_assert_int_eq(err.exit, MX_EXIT_OK);
    mx_fail(&err, MX_EXIT_CONFIG, MX_NOWHERE, "new");
    ck_assert_str_eq(err.text.data, "new");
    ck_assert_int_eq(err.exit, MX_EXIT_CONFIG);
}
END_TEST

static const struct {
    int code;
    MxExit exit;
} codes[] = {
    {EACCES, MX_EXIT_PERMISSION},
    {EPERM, MX_EXIT_PERMISSION},
    {EROFS, MX_EXIT_PERMISSION},
    {ENOENT, MX_EXIT_CANNOT_CREATE},
    {ENOTDIR, MX_EXIT_CANNOT_CREATE},
    {EISDIR, MX_EXIT_CANNOT_CREATE},
    {ENAMETOOLONG, MX_EXIT_CANNOT_CREATE},
    {EIO, MX_EXIT_IO},
    {ENOSPC, MX_EXIT_IO},
    {EDQUOT, MX_EXIT_IO},
    {EMFILE, MX_EXIT_IO},
};

START_TEST(errno_has_an_exit_and_a_reason) {
    errno = codes[_i].code;
    bool ok = mx_fail_errno(&err, "could not open \"%s\"", "x");
    ck_assert(!ok);
    const char *want =
        mx_arena_printf(&arena, "could not open \"x\": %s", strerror(codes[_i].code));
    ck_assert_str_eq(err.text.data, want);
    ck_assert_msg(err.exit == codes[_i].exit, "%s: exit %d", want, err.exit);
}
END_TEST

static void break_an_assertion(const void *unused) {
    (void)unused;
    MX_ASSERT(1 + 1 == 2);
    MX_ASSERT(1 + 1 == 3);
}
static void note_nothing(const void *unused) {
    (void)unused;
    mx_note(&err, "hint");
}
static void put_nothing_in_context(const void *unused) {
    (void)unused;
    mx_context(&err, "reading");
}

START_TEST(a_bug_names_its_line_and_aborts) {
    ck_aborts(break_an_assertion, NULL, "tests/base/test_error.c:", "1 + 1 == 3");
    ck_aborts(note_nothing, NULL, "src/base/error.c:", "err->count");
    ck_aborts(put_nothing_in_context, NULL, "src/base/error.c:", "err->count");
}
END_TEST

Suite *error_suite(void) {
    Suite *suite = suite_create("base/error");
    TCase *tcase = add_case(suite, "error");
    tcase_add_loop_test(tcase, says_where, 0, MX_COUNT(places));
    tcase_add_test(tcase, collects_lines_and_keeps_the_first_exit);
    tcase_add_test(tcase, takes_notes_and_context);
    tcase_add_test(tcase, every_failure_is_told_behind_the_program);
    tcase_add_test(tcase, long_messages_are_whole);
    tcase_add_test(tcase, released_errors_start_anew);
    tcase_add_loop_test(tcase, errno_has_an_exit_and_a_reason, 0, MX_COUNT(codes));
    tcase_add_test(tcase, a_bug_names_its_line_and_aborts);
    return suite;
}
