/* messages.c — messages of a request: their form, and parts of texts for templates that take
 * nothing but a text. */
#include "internal.h"

static bool is_kind(const MxJson *value, const char *kind) {
    return value && !strcmp(mx_json_kind(value), kind);
}

static bool is_text_part(const MxJson *part) {
    const char *type = mx_json_string(mx_json_get(part, "type"));
    return type && !strcmp(type, "text") && mx_json_string(mx_json_get(part, "text"));
}

static bool is_image_part(const MxJson *part) {
    const char *type = mx_json_string(mx_json_get(part, "type"));
    return type && (!strcmp(type, "image_url") || !strcmp(type, "image"));
}

static bool check_parts(const MxJson *parts, size_t message, MxError *err) {
    for (size_t i = 0; i < mx_json_length(parts); i++) {
        const MxJson *part = mx_json_at(parts, i);
        if (!is_text_part(part) && !is_image_part(part))
            return mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE,
                           "messages[%zu].content[%zu]: wanted {\"type\": \"text\", \"text\": a "
                           "text} or {\"type\": \"image_url\", \"image_url\": {\"url\": …}}",
                           message, i);
    }
    return true;
}

static bool check_message(const MxJson *message, size_t i, MxError *err) {
    const MxJson *content = mx_json_get(message, "content");
    bool is_none = !content || is_kind(content, "null");
    if (!mx_json_string(mx_json_get(message, "role")))
        return mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE,
                       "messages[%zu]: wanted {\"role\": a text, \"content\": …}", i);
    if (is_none && mx_json_length(mx_json_get(message, "tool_calls"))) return true;
    if (!is_none && mx_json_string(content)) return true;
    if (is_kind(content, "a list")) return check_parts(content, i, err);
    return mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE,
                   "messages[%zu].content: found %s, wanted a text or a list of parts", i,
                   content ? mx_json_kind(content) : "nothing");
}

bool messages_check(const MxJson *messages, MxError *err) {
    for (size_t i = 0; i < mx_json_length(messages); i++)
        if (!check_message(mx_json_at(messages, i), i, err)) return false;
    return true;
}

/* ---- parts */

/* Renders one message of a user's; NULL = the template cannot. */
static const char *render(MxArena *arena, const MxChat *chat, const char *content) {
    const char *json =
        mx_arena_printf(arena, "{\"messages\":[{\"role\":\"user\",\"content\":%s}]}", content);
    MxError err = {0};
    MxRendered out;
    const MxJson *request = mx_json_parse(arena, json, strlen(json), "probe", &err);
    bool ok = request && mx_chat_render(arena, chat, request, MX_NOWHERE, &out, &err);
    mx_error_release(&err);
    return ok ? out.text : NULL;
}

bool messages_take_parts(const MxChat *chat) {
    MxArena arena = {.name = "probe"};
    const char *whole = render(&arena, chat, "\"Hi\"");
    const char *parts = render(&arena, chat, "[{\"type\":\"text\",\"text\":\"Hi\"}]");
    bool takes = !whole || (parts && !strcmp(whole, parts));
    mx_arena_release(&arena);
    return takes;
}

/* The parts' texts, a line each; NULL = there are others. */
static const MxJson *join(MxArena *arena, const MxJson *parts) {
    MxError err = {0};
    MxText text;
    mx_text_init(&text, arena);
    for (size_t i = 0; i < mx_json_length(parts); i++) {
        const MxJson *part = mx_json_at(parts, i), *piece = mx_json_get(part, "text");
        if (!is_text_part(part)) return NULL;
        if (i) mx_text_addn(&text, "\n", 1);
        mx_text_addn(&text, mx_json_string(piece), mx_json_string_bytes(piece));
    }
    const char *quoted = mx_json_quote(arena, text.len ? text.data : "", text.len);
    const MxJson *joined = mx_json_parse_value(arena, quoted, strlen(quoted), MX_NOWHERE, &err);
    mx_error_release(&err);
    return joined;
}

const MxJson *messages_join_parts(MxArena *arena, const MxJson *messages) {
    MxJson *list = mx_json_put_array(mx_json_object(arena), "messages"), *value;
    const char *name;
    for (size_t i = 0; i < mx_json_length(messages); i++) {
        MxJson *made = mx_json_push_object(list);
        for (void *at = NULL; mx_json_next(mx_json_at(messages, i), &at, &name, &value);) {
            bool is_parts = !strcmp(name, "content") && is_kind(value, "a list");
            const MxJson *joined = is_parts ? join(arena, value) : NULL;
            mx_json_set(made, name, joined ? joined : value);
        }
    }
    return list;
}
