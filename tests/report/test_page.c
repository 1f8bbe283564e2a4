/* test_page.c — the page about runs, as far as a text shows it: nothing of a run becomes markup,
 * what cannot be read is told, configs stand side by side. tests/watching parses and opens such
 * pages. */
#include "report_test.h"

#include <mx/report.h>

static const char *page_of(const char *a, const char *b) {
    const char *folders[] = {in(a), b ? in(b) : NULL};
    const char *page = mx_report_page(&arena, folders, b ? 2 : 1, &err);
    ck_assert_msg(page != NULL, "%s", err.text.data);
    return page;
}

static void has(const char *page, const char *text) {
    ck_assert_msg(strstr(page, text) != NULL, "the page lacks %s", text);
}

static void lacks(const char *page, const char *text) {
    ck_assert_msg(!strstr(page, text), "the page has %s", text);
}

START_TEST(nothing_of_a_run_is_markup) {
    put("<b>/config.yml", "steps: <kbd>  # <u>\n<s>: 1\n");
    put("<b>/run.log", "2026-01-02T03:04:05.678Z mxtrain: error: </pre><q>\033[0m\n");
    put("<b>/metrics.jsonl", "{\"</script><em>\": 1, \"learning/loss\": 1, \"step\": "
                             "0}\n{\"</script><em>\": 2, \"learning/loss\": 1, \"step\": 1}\n");
    const char *page = page_of("<b>", NULL);
    static const char *const marks[] = {"<b>", "<kbd>", "<u>", "<s>", "<q>", "<em>", "\033"};
    for (int i = 0; i < MX_COUNT(marks); i++) lacks(page, marks[i]);
    has(page, "&#60;b&#62;");
    has(page, "\"\\u003c/script>\\u003cem>\"");
    has(page, "&#60;/pre&#62;&#60;q&#62;\\x1b[0m");
}
END_TEST

START_TEST(configs_stand_side_by_side) {
    put("a/config.yml",
        "steps: 7  # a.yml:1\nlearning_rate: 0.5  # a.yml:2\nlog_period: 100  # default\n");
    put("b/config.yml",
        "steps: 7  # b.yml:9\nlearning_rate: 0.25  # <command line>\nnew_key: x  # b.yml:3\n");
    put("a/run.log", "");
    put("b/run.log", "");
    const char *page = page_of("a", "b");
    has(page, "<tr class=\"differs\"><th>learning_rate</th><td>0.001</td><td>0.5 <span "
              "class=\"origin\">a.yml:2</span></td>"
              "<td>0.25 <span class=\"origin\">&#60;command line&#62;</span></td></tr>");
    has(page, "<tr><th>steps</th><td>100</td><td>7 <span class=\"origin\">a.yml:1</span></td>");
    has(page, "<th>new_key</th><td><i>unrecognized</i></td><td></td><td>x ");
    const char *all = strstr(page, "All keys");
    ck_assert_ptr_nonnull(all);
    has(all, "<th>log_period</th>"); /* as by default, so only there */
    lacks(mx_arena_strndup(&arena, page, (size_t)(all - page)), "<th>log_period</th>");
}
END_TEST

START_TEST(what_cannot_be_read_is_told) {
    put("x/config.yml", "stepz: 1\n");
    put("x/metrics.jsonl", "{\"a\": 1}\n[]\n{\"learning/loss\": 1, \"step\": 0}\n{\"cut");
    put("x/run.log", "2026-01-02T03:04:05.678Z completed step: 0, loss: 1.0\n");
    put("x/checkpoints/0/MANIFEST.json", "{");
    const char *page = page_of("x", NULL);
    has(page, "x: 2 lines of metrics.jsonl cannot be read");
    has(page, "cannot plan the run");
    has(page, "unrecognized key");
    has(page, "no manifest that holds");
}
END_TEST

START_TEST(a_folder_that_is_no_run_is_an_error) {
    put_run("x", 3, "", NULL);
    put("empty/a", "");
    const char *folders[] = {in("empty"), in("x"), in("none")};
    ck_assert_ptr_null(mx_report_page(&arena, folders, 3, &err));
    ck_assert_int_eq(err.count, 2);
    ck_assert_int_eq(err.exit, MX_EXIT_BAD_INPUT);
}
END_TEST

Suite *page_suite(void) {
    Suite *suite = suite_create("page");
    TCase *tcase = add_case(suite, "page");
    tcase_set_timeout(tcase, 30);
    tcase_add_test(tcase, nothing_of_a_run_is_markup);
    tcase_add_test(tcase, configs_stand_side_by_side);
    tcase_add_test(tcase, what_cannot_be_read_is_told);
    tcase_add_test(tcase, a_folder_that_is_no_run_is_an_error);
    return suite;
}
