/* main.c — the tests of room chat. */
#include "chat_test.h"
#include "common/suite.h"

MxArena arena = {.name = "test"};
MxError err;

void chat_tear_down(void) {
    mx_error_release(&err);
    mx_arena_release(&arena);
}

void chat_lines_of(const char *path, ChatEachLine *each) {
    MxBytes bytes;
    int number = 0;
    ck_assert(mx_file_read(&arena, path, (size_t)1 << 26, &bytes, &err));
    for (const char *at = (const char *)bytes.data, *end; *at; at = *end ? end + 1 : end) {
        end = strchrnul(at, '\n');
        MxWhere where = {.file = path, .line = ++number};
        const MxJson *line = mx_json_parse_value(&arena, at, (size_t)(end - at), where, &err);
        ck_assert_msg(line != NULL, "%s", err.text.data);
        each(line, number);
    }
    ck_assert_int_gt(number, 0);
}

const char *chat_rendered(const char *text, const char *variables, MxRendered *out) {
    MxTemplate *template;
    const MxJson *json = mx_json_parse_value(&arena, variables, strlen(variables),
                                             (MxWhere){.file = "variables"}, &err);
    ck_assert_msg(json != NULL, "%s", err.count ? err.text.data : "");
    if (!mx_template_parse(&arena, text, strlen(text), "t.jinja", &template, &err)) return NULL;
    return mx_template_render(&arena, template, json, out, &err) ? out->text : NULL;
}

int main(void) {
    return RUN_SUITES(chat_features_suite(), chat_cases_suite());
}
