/* html.c — escapes arbitrary texts for a page. */
#include "internal.h"

/* What is no text for a page (control characters, bytes that are not UTF-8) is shown in C's
 * spelling, as in the log. */
const char *report_html(MxArena *arena, const char *text) {
    static const char special[] = "&<>\"'";
    MxText shown, out;
    mx_text_init(&shown, arena);
    mx_text_init(&out, arena);
    mx_text_add_shown(&shown, text, strlen(text));
    for (const char *p = shown.data; *p;) {
        size_t n = strcspn(p, special);
        mx_text_addn(&out, p, n);
        p += n;
        if (*p) mx_text_add(&out, "&#%d;", *p++);
    }
    return out.data;
}

/* A script ends at "</script", wherever that stands; so no "<" is left. */
const char *report_json_string(MxArena *arena, const char *text) {
    MxText shown, out;
    MxJson *object = mx_json_object(arena);
    mx_text_init(&shown, arena);
    mx_text_init(&out, arena);
    mx_text_add_shown(&shown, text, strlen(text));
    mx_json_set_string(object, "", shown.data);
    const char *json = mx_json_dump(arena, object, false), *p = json + strlen("{\"\": ");
    for (size_t n = strlen(p) - 1; n; n--, p++)
        if (*p == '<')
            mx_text_add(&out, "\\u003c");
        else
            mx_text_addn(&out, p, 1);
    return out.data;
}
