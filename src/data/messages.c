/* messages.c — messages whose texts become items, so that the images of a record's column have
 * places among them. */
#include "images.h"

/* NULL = a list, or a text that no text of C is. */
static const char *text_of(const MxJson *message) {
    const MxJson *content = mx_json_get(message, "content");
    const char *text = content ? mx_json_string(content) : NULL;
    return text && strlen(text) == mx_json_string_bytes(content) ? text : NULL;
}

static bool shows(const MxJson *content) {
    bool is_list = content && !strcmp(mx_json_kind(content), "a list");
    for (size_t i = 0; is_list && i < mx_json_length(content); i++) {
        const char *type = mx_json_string(mx_json_get(mx_json_at(content, i), "type"));
        if (type && (!strcmp(type, "image") || !strcmp(type, "audio"))) return true;
    }
    return false;
}

static bool is_user(const MxJson *message) {
    const char *role = mx_json_string(mx_json_get(message, "role"));
    return role && !strcmp(role, "user");
}

/* The first mark of an image; *bytes: of it. NULL = there is none. */
static const char *find_mark(const Seer *seer, const char *text, size_t *bytes) {
    const char *const marks[] = {seer->form->placeholder, "<image>"};
    const char *first = NULL;
    for (int i = 0; i < MX_COUNT(marks); i++) {
        const char *at = marks[i] && *marks[i] ? strstr(text, marks[i]) : NULL;
        if (!at || (first && first < at)) continue;
        first = at;
        *bytes = strlen(marks[i]);
    }
    return first;
}

static void add_image(MxJson *items) {
    mx_json_set_string(mx_json_push_object(items), "type", "image");
}

static void add_text(MxArena *arena, MxJson *items, const char *text, size_t n) {
    if (!n) return;
    MxJson *item = mx_json_push_object(items);
    mx_json_set_string(item, "type", "text");
    mx_json_set_string(item, "text", mx_arena_strndup(arena, text, n));
}

/* A copy of a message whose text is items: first n images, then one for each mark. */
static void push_items(MxArena *arena, const Seer *seer, const MxJson *message, size_t n,
                       MxJson *list) {
    MxJson *copy = mx_json_push_object(list), *value, *items = NULL;
    const char *key, *at = text_of(message), *next;
    size_t bytes = 0;
    for (void *member = NULL; mx_json_next(message, &member, &key, &value);)
        if (!strcmp(key, "content"))
            items = mx_json_put_array(copy, key);
        else
            mx_json_set(copy, key, value);
    for (; n; n--) add_image(items);
    for (; (next = find_mark(seer, at, &bytes)); at = next + bytes) {
        add_text(arena, items, at, (size_t)(next - at));
        add_image(items);
    }
    add_text(arena, items, at, strlen(at));
}

bool message_list_shows(const MxJson *messages) {
    bool any = false;
    for (size_t i = 0; i < mx_json_length(messages); i++)
        any = any || shows(mx_json_get(mx_json_at(messages, i), "content"));
    return any;
}

static bool is_marked(const Seer *seer, const MxJson *message) {
    size_t bytes;
    const char *text = text_of(message);
    return text && find_mark(seer, text, &bytes);
}

const MxJson *message_images(MxArena *arena, const Seer *seer, const MxJson *messages, size_t n) {
    if (strcmp(mx_json_kind(messages), "a list") != 0 || message_list_shows(messages))
        return messages;
    MxJson *out = mx_json_put_array(mx_json_object(arena), "messages");
    for (size_t i = 0; i < mx_json_length(messages); i++)
        if (is_marked(seer, mx_json_at(messages, i))) n = 0;
    for (size_t i = 0; i < mx_json_length(messages); i++) {
        const MxJson *message = mx_json_at(messages, i);
        bool is_first = n && text_of(message) && is_user(message);
        if (is_first || is_marked(seer, message))
            push_items(arena, seer, message, n, out);
        else
            mx_json_push(out, message);
        if (is_first) n = 0;
    }
    return out;
}
