/* test_features.c — the interpreter of templates: what transformers' Jinja makes of small
 * templates, where errors are told, and that a template without end comes to one. */
#include "chat_test.h"

#include "common/goldens.h"

#include <stdlib.h>

/* ---- golden features */

static void check_feature(const MxJson *line, int number) {
    const char *text = mx_json_string(mx_json_get(line, "template"));
    size_t n = mx_json_string_bytes(mx_json_get(line, "template"));
    const char *wanted = mx_json_string(mx_json_get(line, "text"));
    const char *message = mx_json_string(mx_json_get(line, "error_message"));
    MxTemplate *template;
    MxRendered out = {0};
    bool ok = mx_template_parse(&arena, text, n, "t", &template, &err) &&
              mx_template_render(&arena, template, mx_json_get(line, "context"), &out, &err);
    if (wanted) {
        ck_assert_msg(ok, "%d: %s: %s", number, text, ok ? "" : err.text.data);
        ck_assert_msg(!strcmp(out.text, wanted), "%d: %s: \"%s\", wanted \"%s\"", number, text,
                      out.text, wanted);
    } else {
        ck_assert_msg(!ok, "%d: %s: \"%s\", wanted an error", number, text, out.text);
        ck_assert_msg(mx_text_has_suffix(err.text.data, message) && err.count == 1,
                      "%d: %s: \"%s\", wanted \"%s\"", number, text, err.text.data, message);
        ck_assert_int_eq(err.exit, MX_EXIT_BAD_INPUT);
    }
    mx_error_release(&err);
    err = (MxError){0};
}

START_TEST(features_are_jinjas) {
    static const char *const files[] = {"hf/chat/jinja_features.jsonl", "hf/chat/jinja_more.jsonl"};
    const char *path = goldens_find(&arena, files[_i]);
    if (path) chat_lines_of(path, check_feature);
}
END_TEST

/* ---- errors of our own: what is told, and where */

static const struct {
    const char *template, *message;
} failures[] = {
    {"a\nb {{ x }}\n{% for i in l %}\n  {{ i.a.b }}\n{% endfor %}",
     "t.jinja:4: 'dict object' has no attribute 'a'"},
    {"{% macro m(a) %}\n{{ a.x.y }}\n{% endmacro %}\n\n{{ m({}) }}",
     "t.jinja:2: 'dict object' has no attribute 'x'"},
    {"\n{{ 'a' |\n upper(1) }}", "t.jinja:3: upper takes at most 0 arguments, found 1"},
    {"{% include 'other' %}",
     "t.jinja:1: this tag wants other templates or another setting of Jinja; a chat template "
     "stands alone"},
    {"\n\n{{ x | urlize }}", "t.jinja:3: No filter named 'urlize'."},
    {"{{ 2 ** 127 }}", "t.jinja:1: a whole number has more than 127 bits"},
    {"{{ (-1.0) ** 0.5 }}",
     "t.jinja:1: a negative number to a fractional power is a complex number"},
    {"{{ 0.0 ** -1 }}", "t.jinja:1: zero to a negative power"},
    {"{{ range(1)[::2 ** 61][::2 ** 61][::2 ** 61] }}",
     "t.jinja:1: a whole number has more than 127 bits"},
    {"{{ lipsum() }}", "t.jinja:1: lipsum() makes random text, which no chat wants"},
    {"{{ '\\ud800' }}", "t.jinja:1: an escape in a text is no character"},
    /* what has no end of its own */
    {"{% for i in range(99999) %}\n{% for j in range(99999) %}\n{% endfor %}{% endfor %}",
     "t.jinja:2: the template takes more than 256 MiB of memory"},
    {"{% set n = namespace(s='ab') %}{% for i in range(99) %}{% set n.s = n.s ~ n.s %}{% endfor %}",
     "t.jinja:1: the template takes more than 256 MiB of memory"},
    {"{{ 'ab' * 10 ** 15 }}", "t.jinja:1: the template takes more than 20000000 steps"},
    {"{{ 'ab'.center(10 ** 12) }}", "t.jinja:1: the template takes more than 20000000 steps"},
    {"{% macro f() %}{{ f() }}{% endmacro %}\n{{ f() }}",
     "t.jinja:1: nested deeper than 400 levels"},
    {"{% set n = namespace() %}{% set n.n = n %}{{ n }}",
     "t.jinja:1: nested deeper than 400 levels"},
    {"{% set n = namespace(l=[]) %}{% for i in range(999) %}{% set n.l = [n.l] %}{% endfor %}"
     "{{ n.l|tojson }}",
     "t.jinja:1: nested deeper than 400 levels"},
};

START_TEST(failure_is_told_with_its_line) {
    MxRendered out;
    const char *text = chat_rendered(failures[_i].template, "{\"x\": 1, \"l\": [{}]}", &out);
    ck_assert_msg(!text, "%s: %s", failures[_i].template, text);
    ck_assert_str_eq(err.text.data, failures[_i].message);
    ck_assert_int_eq(err.exit, MX_EXIT_BAD_INPUT);
}
END_TEST

static void check_nested(const char *const part[5]) {
    MxText text;
    MxRendered out;
    mx_text_init(&text, &arena);
    for (int i = 0; i < 5; i++)
        for (int n = i % 2 ? 5000 : 1; n > 0; n--) mx_text_add(&text, "%s", part[i]);
    ck_assert(!chat_rendered(text.data, "{}", &out));
    ck_assert_msg(strstr(err.text.data, "nested deeper than"), "%s", err.text.data);
    mx_error_release(&err);
    err = (MxError){0};
}

START_TEST(nesting_is_bounded) {
    check_nested((const char *const[]){"", "{% if 1 %}", "", "{% endif %}", ""});
    check_nested((const char *const[]){"{{ ", "[", "1", "]", " }}"});
    check_nested((const char *const[]){"{{ ", "(", "1", ")", " }}"});
    check_nested((const char *const[]){"{{ ", "{1:", "1", "}", " }}"});
    check_nested((const char *const[]){"{{ x", "", "", ".y", " }}"});
    check_nested((const char *const[]){"{{ 1", "", "", "|abs", " }}"});
    check_nested((const char *const[]){"{{ ", "not ", "1", "", " }}"});
    check_nested((const char *const[]){"{{ ", "- ", "1", "", " }}"});
    check_nested((const char *const[]){"{{ 1", "", "", "+ 1", " }}"});
    check_nested((const char *const[]){"{{ ", "1 if 0 else ", "1", "", " }}"});
}
END_TEST

/* ---- what is marked */

START_TEST(generation_is_marked) {
    static const char template[] = "é{% for x in l %}<{% generation %}{{ x }}{% endgeneration %}>"
                                   "{% endfor %}";
    MxRendered out;
    ck_assert_str_eq(chat_rendered(template, "{\"l\": [\"ab\", \"\", \"ß\"]}", &out), "é<ab><><ß>");
    ck_assert_int_eq(out.n_spans, 3);
    for (int i = 0; i < 3; i++)
        ck_assert_uint_eq(out.spans[i].end - out.spans[i].start, i == 1 ? 0 : 2);
    ck_assert_uint_eq(out.spans[0].start, 3);
    ck_assert_uint_eq(out.spans[2].start, 9);
}
END_TEST

START_TEST(time_can_be_fixed) {
    MxRendered out;
    setenv("SOURCE_DATE_EPOCH", "86400", 1);
    ck_assert_str_eq(
        chat_rendered("{{ strftime_now('%d %b %Y%z') }}{{ strftime_now('') }}", "{}", &out),
        "02 Jan 1970");
    unsetenv("SOURCE_DATE_EPOCH");
    ck_assert(chat_rendered("{{ strftime_now('%Y') }}", "{}", &out) && out.n == 4);
    ck_assert_int_ne(strncmp(out.text, "1970", 4), 0);
}
END_TEST

Suite *chat_features_suite(void) {
    Suite *suite = suite_create("features");
    TCase *tcase = tcase_create("features");
    tcase_add_checked_fixture(tcase, NULL, chat_tear_down);
    tcase_add_loop_test(tcase, features_are_jinjas, 0, 2);
    tcase_add_loop_test(tcase, failure_is_told_with_its_line, 0, MX_COUNT(failures));
    tcase_add_test(tcase, nesting_is_bounded);
    tcase_add_test(tcase, generation_is_marked);
    tcase_add_test(tcase, time_can_be_fixed);
    suite_add_tcase(suite, tcase);
    return suite;
}
