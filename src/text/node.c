/* node.c — JSON files whose errors are reported with their place, and lists of steps in them. */
#include "internal.h"

/* ---- values */

bool text_node_parse(MxArena *arena, const char *path, MxBytes bytes, TextNode *out, MxError *err) {
    *out = (TextNode){.arena = arena, .file = path, .place = "", .err = err};
    /* As a line of a JSON Lines file, since tokens may hold NUL. */
    out->json = mx_json_parse_line(arena, (const char *)bytes.data, bytes.size,
                                   (MxWhere){.file = path, .line = 1}, err);
    if (!out->json) return false;
    return !strcmp(mx_json_kind(out->json), "an object") || text_node_wants(*out, "an object");
}

static TextNode child(TextNode node, const MxJson *json, const char *place) {
    node.json = json && strcmp(mx_json_kind(json), "null") ? json : NULL;
    node.place = place;
    return node;
}

TextNode text_node_get(TextNode object, const char *key) {
    return child(
        object, object.json ? mx_json_get(object.json, key) : NULL,
        mx_arena_printf(object.arena, "%s%s%s", object.place, *object.place ? "." : "", key));
}

TextNode text_node_at(TextNode array, size_t i) {
    return child(array, mx_json_at(array.json, i),
                 mx_arena_printf(array.arena, "%s[%zu]", array.place, i));
}

bool text_node_fail(TextNode node, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    const char *text = mx_arena_vprintf(node.arena, fmt, ap);
    va_end(ap);
    return mx_fail(node.err, MX_EXIT_BAD_INPUT, (MxWhere){.file = node.file}, "%s%s%s", node.place,
                   *node.place ? ": " : "", text);
}

bool text_node_wants(TextNode node, const char *what) {
    if (!node.json) return text_node_fail(node, "is missing, wanted %s", what);
    return text_node_fail(node, "found %s, wanted %s", mx_json_kind(node.json), what);
}

bool text_node_members(TextNode object, const char *members) {
    void *at = NULL;
    const char *key;
    MxJson *value;
    while (mx_json_next(object.json, &at, &key, &value))
        if (!mx_text_has_word(members, key))
            return text_node_fail(text_node_get(object, key), "unrecognized; known here: %s",
                                  members);
    return true;
}

bool text_node_flag(TextNode object, const char *key, bool *out) {
    TextNode node = text_node_get(object, key);
    return !node.json || mx_json_bool(node.json, out) || text_node_wants(node, "true or false");
}

bool text_node_int(TextNode object, const char *key, bool needed, int64_t low, int64_t *out) {
    TextNode node = text_node_get(object, key);
    int64_t value;
    if (!node.json && !needed) return true;
    if (!node.json || !mx_json_int(node.json, &value)) return text_node_wants(node, "a number");
    if (value < low || value > INT32_MAX)
        return text_node_fail(node, "%lld is out of range", (long long)value);
    *out = value;
    return true;
}

bool text_node_span(TextNode object, const char *key, bool needed, TextSpan *out) {
    TextNode node = text_node_get(object, key);
    if (!node.json && !needed) return true;
    if (!node.json || !mx_json_string(node.json)) return text_node_wants(node, "a text");
    *out = (TextSpan){mx_json_string(node.json), mx_json_string_bytes(node.json)};
    return true;
}

bool text_node_list(TextNode object, const char *key, bool needed, TextNode *out) {
    *out = text_node_get(object, key);
    if (!out->json && !needed) return true;
    return (out->json && !strcmp(mx_json_kind(out->json), "a list")) ||
           text_node_wants(*out, "a list");
}

/* ---- steps */

void text_steps_add(MxArena *arena, TextSteps *steps, TextStep step) {
    steps->item = mx_arena_grow(arena, steps->item, (size_t)steps->n, (size_t)steps->n + 1,
                                sizeof *steps->item);
    steps->item[steps->n++] = step;
}

static const TextKind *kind_at(const TextTable *table, int i) {
    return (const TextKind *)((const char *)table->rows + (size_t)i * table->row_bytes);
}

static bool refuse_kind(TextNode type, const TextTable *table, const char *name) {
    const char **names = mx_new_n(type.arena, const char *, table->n);
    MxText all;
    mx_text_init(&all, type.arena);
    for (int i = 0; i < table->n; i++) {
        names[i] = kind_at(table, i)->name;
        mx_text_add(&all, "%s%s", i ? ", " : "", names[i]);
    }
    text_node_fail(type, "unrecognized %s \"%s\"", table->what, name);
    const char *nearest = mx_nearest(name, names, table->n);
    if (nearest)
        mx_note(type.err, "hint: did you mean \"%s\"?", nearest);
    else
        mx_note(type.err, "hint: there are %s", all.data);
    return false;
}

bool text_kind_read(TextNode node, const TextTable *table, TextStep *out) {
    TextSpan name = {0};
    if (strcmp(mx_json_kind(node.json), "an object")) return text_node_wants(node, "an object");
    if (!text_node_span(node, "type", true, &name)) return false;
    for (int i = 0; i < table->n; i++) {
        const TextKind *kind = kind_at(table, i);
        if (strcmp(kind->name, name.data)) continue;
        *out = (TextStep){.kind = kind};
        const char *members = mx_arena_printf(node.arena, "type %s", kind->members);
        return text_node_members(node, members) &&
               (!kind->read || kind->read(node, &out->settings));
    }
    return refuse_kind(text_node_get(node, "type"), table, name.data);
}

/* What waits to be read, the first on top. */
typedef struct Stack {
    TextNode *item;
    size_t n;
} Stack;

static bool push_list(Stack *stack, TextNode object, const char *key) {
    TextNode list;
    if (!text_node_list(object, key, true, &list)) return false;
    size_t n = mx_json_length(list.json);
    stack->item =
        mx_arena_grow(object.arena, stack->item, stack->n, stack->n + n + 1, sizeof *stack->item);
    for (size_t i = n; i-- > 0;) stack->item[stack->n++] = text_node_at(list, i);
    return true;
}

bool text_steps_read(TextNode node, const TextTable *table, TextSteps *out) {
    *out = (TextSteps){0};
    Stack stack = {.item = mx_new(node.arena, TextNode)};
    if (node.json) stack.item[stack.n++] = node;
    while (stack.n) {
        TextNode top = stack.item[--stack.n];
        TextStep step;
        const char *type = top.json ? mx_json_string(mx_json_get(top.json, "type")) : NULL;
        if (!top.json) return text_node_wants(top, "an object");
        if (type && !strcmp(type, "Sequence")) {
            if (!push_list(&stack, top, table->sequence)) return false;
            continue;
        }
        if (!text_kind_read(top, table, &step)) return false;
        text_steps_add(node.arena, out, step);
    }
    return true;
}
