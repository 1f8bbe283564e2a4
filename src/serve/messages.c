/* messages.c — messages of a request: their form, and what a chat template takes them in: parts of
 * texts, tools, arguments of calls. */
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

static bool is_sound_part(const MxJson *part) {
    const char *type = mx_json_string(mx_json_get(part, "type"));
    if (type && !strcmp(type, "audio")) return mx_json_string(mx_json_get(part, "audio")) != NULL;
    return type && !strcmp(type, "input_audio") &&
           mx_json_string(mx_json_get(mx_json_get(part, "input_audio"), "data")) != NULL;
}

static bool check_parts(const MxJson *parts, size_t message, MxError *err) {
    for (size_t i = 0; i < mx_json_length(parts); i++) {
        const MxJson *part = mx_json_at(parts, i);
        if (!is_text_part(part) && !is_image_part(part) && !is_sound_part(part))
            return mx_fail(
                err, MX_EXIT_BAD_INPUT, MX_NOWHERE,
                "messages[%zu].content[%zu]: wanted {\"type\": \"text\", \"text\": a "
                "text}, {\"type\": \"image_url\", \"image_url\": {\"url\": …}} or {\"type\": "
                "\"input_audio\", \"input_audio\": {\"data\": …, \"format\": …}}",
                message, i);
    }
    return true;
}

/* Arguments: an object, or its text. */
static MxJson *open_arguments(MxArena *arena, const MxJson *value) {
    MxError err = {0};
    const char *text = mx_json_string(value);
    size_t n = mx_json_string_bytes(value);
    MxJson *out = text && !n ? mx_json_object(arena)
                  : text     ? mx_json_parse_value(arena, text, n, MX_NOWHERE, &err)
                             : (MxJson *)(uintptr_t)value;
    mx_error_release(&err);
    return is_kind(out, "an object") ? out : NULL;
}

static bool check_calls(const MxJson *calls, size_t message, MxError *err) {
    MxArena scratch = {.name = "arguments"};
    bool ok = true;
    for (size_t i = 0; ok && i < mx_json_length(calls); i++) {
        const MxJson *function = mx_json_get(mx_json_at(calls, i), "function");
        const MxJson *arguments = mx_json_get(function, "arguments");
        ok = mx_json_string(mx_json_get(function, "name")) &&
             (!arguments || open_arguments(&scratch, arguments));
        if (!ok)
            mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE,
                    "messages[%zu].tool_calls[%zu]: wanted {\"function\": {\"name\": a text, "
                    "\"arguments\": a text of a JSON object}}",
                    message, i);
    }
    mx_arena_release(&scratch);
    return ok;
}

static bool check_message(const MxJson *message, size_t i, MxError *err) {
    const MxJson *content = mx_json_get(message, "content");
    const MxJson *calls = mx_json_get(message, "tool_calls");
    bool is_none = !content || is_kind(content, "null");
    if (!mx_json_string(mx_json_get(message, "role")))
        return mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE,
                       "messages[%zu]: wanted {\"role\": a text, \"content\": …}", i);
    if (!check_calls(calls, i, err)) return false;
    if (is_none && mx_json_length(calls)) return true;
    if (!is_none && mx_json_string(content)) return true;
    if (is_kind(content, "a list")) return check_parts(content, i, err);
    return mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE,
                   "messages[%zu].content: found %s, wanted a text or a list of parts", i,
                   content ? mx_json_kind(content) : "nothing");
}

bool messages_check_tools(const MxJson *tools, MxError *err) {
    for (size_t i = 0; i < mx_json_length(tools); i++)
        if (!mx_json_string(mx_json_get(mx_json_get(mx_json_at(tools, i), "function"), "name")))
            return mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE,
                           "tools[%zu]: wanted {\"type\": \"function\", \"function\": {\"name\": a "
                           "text, …}}",
                           i);
    return true;
}

bool messages_check(const MxJson *messages, MxError *err) {
    for (size_t i = 0; i < mx_json_length(messages); i++)
        if (!check_message(mx_json_at(messages, i), i, err)) return false;
    return true;
}

/* ---- what a template takes */

/* Renders messages; NULL = the template cannot. */
static const char *render(MxArena *arena, const MxChat *chat, const char *messages,
                          const char *more) {
    return mx_chat_try(arena, chat,
                       mx_arena_printf(arena, "{\"messages\":[%s],%s}", messages, more));
}

#define SAYS(content) "{\"role\":\"user\",\"content\":" content "}"
#define ANSWERS(content, more)                                                                     \
    SAYS("\"Hi\"") ",{\"role\":\"assistant\",\"content\":" content "," more "}"
#define CALLS(arguments)                                                                           \
    "\"tool_calls\":[{\"id\":\"abcdefghi\",\"type\":\"function\",\"function\":"                    \
    "{\"name\":\"probe\",\"arguments\":" arguments "}}]"
#define PROMPTS "\"add_generation_prompt\":true"
static const char no_tools[] = "\"tools\":null";
static const char probe_tools[] =
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"probe\",\"description\":\"d\","
    "\"parameters\":{\"type\":\"object\",\"properties\":{}}}}]";

/* What an answer adds to its prompt, whose text may speak of calls, too; marks are whole. */
static const char *behind(const char *text, const char *prompt) {
    const char *at = text;
    while (prompt && *at && *at == *prompt) at++, prompt++;
    while (at > text && !strchr(">] \n", at[-1])) at--;
    return at;
}

Habits messages_habits(MxArena *arena, const MxChat *chat) {
    MxArena scratch = {.name = "probe"};
    const char *whole = render(&scratch, chat, SAYS("\"Hi\""), no_tools);
    const char *parts =
        render(&scratch, chat, SAYS("[{\"type\":\"text\",\"text\":\"Hi\"}]"), no_tools);
    const char *tools = render(&scratch, chat, SAYS("\"Hi\""), probe_tools);
    const char *objects =
        render(&scratch, chat, ANSWERS("\"\"", CALLS("{\"probed\":1}")), probe_tools);
    const char *texts =
        render(&scratch, chat, ANSWERS("\"\"", CALLS("\"{\\\"probed\\\":1}\"")), probe_tools);
    const char *prompt = render(&scratch, chat, SAYS("\"Hi\""),
                                mx_arena_printf(&scratch, PROMPTS ",%s", probe_tools));
    const char *calls = objects || texts ? behind(objects ? objects : texts, prompt) : "";
    Habits out = {.takes_parts = !whole || (parts && !strcmp(whole, parts)),
                  .takes_tools = tools && (!whole || strcmp(whole, tools)),
                  .wants_texts = !objects && texts,
                  .format = calls_format_of(calls, "probe"),
                  .reasoning = mx_reasoning_find(chat)};
    if (out.format) out.writes = calls_writing(arena, out.format, calls, "probe");
    mx_arena_release(&scratch);
    return out;
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

static void add_members(MxJson *to, const MxJson *from) {
    const char *name;
    MxJson *value;
    for (void *at = NULL; mx_json_next(from, &at, &name, &value);) mx_json_set(to, name, value);
}

/* Calls whose arguments are as the template wants them. */
static void add_calls(MxArena *arena, const Habits *habits, const MxJson *calls, MxJson *to) {
    MxJson *list = mx_json_put_array(to, "tool_calls");
    for (size_t i = 0; i < mx_json_length(calls); i++) {
        const MxJson *call = mx_json_at(calls, i), *function = mx_json_get(call, "function");
        const MxJson *arguments = mx_json_get(function, "arguments");
        MxJson *made = mx_json_push_object(list);
        add_members(made, call);
        MxJson *own = mx_json_put_object(made, "function");
        add_members(own, function);
        if (!arguments) continue;
        const MxJson *opened = open_arguments(arena, arguments);
        if (habits->wants_texts)
            mx_json_set_string(own, "arguments", mx_json_dump(arena, opened, false));
        else
            mx_json_set(own, "arguments", opened);
    }
}

const MxJson *messages_as_taken(MxArena *arena, const Habits *habits, const MxJson *messages) {
    MxJson *list = mx_json_put_array(mx_json_object(arena), "messages");
    for (size_t i = 0; i < mx_json_length(messages); i++) {
        const MxJson *message = mx_json_at(messages, i);
        const MxJson *content = mx_json_get(message, "content"), *joined = NULL;
        const MxJson *calls = mx_json_get(message, "tool_calls");
        MxJson *made = mx_json_push_object(list);
        add_members(made, message);
        if (!habits->takes_parts && is_kind(content, "a list")) joined = join(arena, content);
        if (joined) mx_json_set(made, "content", joined);
        if (mx_json_length(calls)) add_calls(arena, habits, calls, made);
    }
    return list;
}
