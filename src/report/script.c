/* script.c — texts of any kind as data of a page's script. */
#include "internal.h"

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
