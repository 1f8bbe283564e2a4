/* conversation.c — a conversation as text, as transformers' apply_chat_template makes it. The
 * assistant's parts are those that the template marks; else said.c finds them. */
#include "conversation.h"
#include "internal.h"

#include <math.h>

/* What a final message that is continued ends with, until the text is cut there. Source:
 * transformers 5, utils/chat_template_utils.py. */
static const char cut_mark[] = "CONTINUE_FINAL_MESSAGE_TAG ";

/* ---- variables */

static bool is_null(const MxJson *value) {
    return !strcmp(mx_json_kind(value), "null");
}

/* A text with a mark at one end. */
static void set_marked(MxArena *arena, MxJson *to, const char *key, const MxJson *value,
                       const ChatPart *part) {
    const char *text = mx_json_string(value);
    MxText out;
    mx_text_init(&out, arena);
    if (part->marks_front) mx_text_add(&out, "%s", part->mark);
    mx_text_addn(&out, text, mx_json_string_bytes(value));
    if (!part->marks_front) mx_text_add(&out, "%s", part->mark);
    MxError ignored = {0};
    const char *quoted = mx_json_quote(arena, out.data, out.len);
    mx_json_set(to, key, mx_json_parse_value(arena, quoted, strlen(quoted), MX_NOWHERE, &ignored));
    mx_error_release(&ignored);
}

static void add_members(MxJson *to, const MxJson *from) {
    const char *key;
    MxJson *value;
    for (void *at = NULL; mx_json_next(from, &at, &key, &value);) mx_json_set(to, key, value);
}

/* The last block of content that is a text is marked. */
static void mark_blocks(MxArena *arena, MxJson *to, const MxJson *blocks, const ChatPart *part) {
    MxJson *list = mx_json_put_array(to, part->field);
    size_t last = mx_json_length(blocks);
    while (last && !mx_json_string(mx_json_get(mx_json_at(blocks, last - 1), "text"))) last--;
    for (size_t i = 0; i < mx_json_length(blocks); i++) {
        const MxJson *block = mx_json_at(blocks, i);
        if (i + 1 != last) {
            mx_json_push(list, block);
            continue;
        }
        MxJson *copy = mx_json_push_object(list);
        add_members(copy, block);
        set_marked(arena, copy, "text", mx_json_get(block, "text"), part);
    }
}

/* Reasoning has several names; templates read the first two. */
static const char *const reasons[] = {"reasoning_content", "thinking", "reasoning"};

static const MxJson *reasoning_of(const MxJson *message) {
    for (int i = 0; i < MX_COUNT(reasons); i++) {
        const MxJson *value = mx_json_get(message, reasons[i]);
        if (value && !is_null(value)) return value;
    }
    return NULL;
}

static bool is_reasoning(const char *key) {
    bool out = false;
    for (int i = 0; i < MX_COUNT(reasons); i++) out |= !strcmp(key, reasons[i]);
    return out;
}

static bool is_same_text(const MxJson *a, const MxJson *b) {
    size_t n = a ? mx_json_string_bytes(a) : 0;
    return a && mx_json_string(a) && mx_json_string(b) && n == mx_json_string_bytes(b) &&
           !memcmp(mx_json_string(a), mx_json_string(b), n);
}

/* The member that is marked; reasoning under all of its names. */
static void mark(MxArena *arena, MxJson *message, const ChatPart *part) {
    const MxJson *value = mx_json_get(message, part->field);
    bool is_reason = is_reasoning(part->field);
    for (int i = 0; is_reason && i < MX_COUNT(reasons); i++)
        if (is_same_text(mx_json_get(message, reasons[i]), value))
            set_marked(arena, message, reasons[i], value, part);
    if (is_reason || !value) return;
    if (mx_json_string(value))
        set_marked(arena, message, part->field, value, part);
    else if (!strcmp(mx_json_kind(value), "a list"))
        mark_blocks(arena, message, value, part);
}

/* Members that are null are left out. Source: transformers 5.24 chat_template_utils.py,
 * _normalize_chat_messages, _alias_reasoning_fields. */
static void add_message(MxArena *arena, MxJson *list, const MxJson *message, const ChatPart *part,
                        bool is_marked) {
    MxJson *copy = mx_json_push_object(list);
    const MxJson *reasoning = reasoning_of(message);
    const char *key;
    MxJson *value;
    if (reasoning) mx_json_set(copy, "thinking", reasoning);
    for (void *at = NULL; mx_json_next(message, &at, &key, &value);)
        if (!is_null(value)) mx_json_set(copy, key, value);
    if (reasoning) mx_json_set(copy, "reasoning_content", reasoning);
    if (is_marked) mark(arena, copy, part);
}

static MxJson *variables(MxArena *arena, const MxChat *chat, const ChatPart *part) {
    const MxJson *messages = mx_json_get(part->request, "messages");
    MxJson *out = mx_json_object(arena);
    const char *key;
    MxJson *value;
    add_members(out, chat->tokens);
    for (void *at = NULL; mx_json_next(part->request, &at, &key, &value);)
        if (strcmp(key, "messages")) mx_json_set(out, key, value);
    MxJson *list = mx_json_put_array(out, "messages");
    for (size_t i = 0; i < part->n; i++)
        add_message(arena, list, mx_json_at(messages, i), part, (int64_t)i == part->marked);
    mx_json_set_bool(out, "add_generation_prompt", part->prompts);
    /* transformers always gives these two */
    static const char *const always[] = {"tools", "documents"};
    for (int i = 0; i < MX_COUNT(always); i++)
        if (!mx_json_get(out, always[i])) mx_json_set_number(out, always[i], INFINITY);
    return out;
}

static const MxTemplate *template_for(const MxChat *chat, const MxJson *request) {
    const MxJson *tools = mx_json_get(request, "tools");
    return tools && !is_null(tools) && chat->with_tools ? chat->with_tools : chat->usual;
}

bool chat_render_part(MxArena *arena, const MxChat *chat, const ChatPart *part, MxRendered *out,
                      MxError *err) {
    const MxJson *all = variables(arena, chat, part);
    if (!mx_template_render(arena, template_for(chat, part->request), all, out, err)) return false;
    if (!part->prompts && part->always <= out->n) out->n -= part->always;
    return true;
}

/* ---- the whole */

static bool check(const MxJson *request, MxWhere where, MxError *err) {
    const MxJson *messages = mx_json_get(request, "messages");
    size_t n = messages ? mx_json_length(messages) : 0;
    if (strcmp(mx_json_kind(request), "an object"))
        return mx_fail(err, MX_EXIT_BAD_INPUT, where, "found %s, wanted {\"messages\": [...]}",
                       mx_json_kind(request));
    if (!messages || strcmp(mx_json_kind(messages), "a list") || !n)
        return mx_fail(err, MX_EXIT_BAD_INPUT, where, "\"messages\" %s; wanted a list of messages",
                       messages ? n ? mx_json_kind(messages) : "is empty" : "is missing");
    for (size_t i = 0; i < n; i++) {
        const MxJson *message = mx_json_at(messages, i), *role = mx_json_get(message, "role");
        if (!role || !mx_json_string(role))
            return mx_fail(err, MX_EXIT_BAD_INPUT, where,
                           "message %zu has no \"role\"; a message that fits: {\"role\": \"user\", "
                           "\"content\": \"Hi\"}",
                           i + 1);
    }
    return true;
}

/* A switch; missing or null, it is off. */
static bool read_flag(const MxJson *request, const char *key, MxWhere where, bool *out,
                      MxError *err) {
    const MxJson *value = mx_json_get(request, key);
    *out = false;
    return !value || is_null(value) || mx_json_bool(value, out) ||
           mx_fail(err, MX_EXIT_BAD_INPUT, where, "%s: found %s, wanted true or false", key,
                   mx_json_kind(value));
}

/* All messages. Of the last one, the content or the member that the request names is marked where
 * it is to be continued. */
static bool read_whole(const MxJson *request, MxWhere where, ChatPart *out, MxError *err) {
    static const char key[] = "continue_final_message";
    size_t n = mx_json_length(mx_json_get(request, "messages"));
    const char *field = mx_json_string(mx_json_get(request, key));
    bool continues = field != NULL;
    *out = (ChatPart){.request = request, .n = n, .mark = cut_mark};
    if (!read_flag(request, "add_generation_prompt", where, &out->prompts, err) ||
        (!field && !read_flag(request, key, where, &continues, err)))
        return false;
    out->marked = continues ? (int64_t)n - 1 : -1;
    out->field = field ? field : "content";
    return !continues || !out->prompts ||
           mx_fail(err, MX_EXIT_BAD_INPUT, where,
                   "add_generation_prompt and continue_final_message exclude each other");
}

static void clip_spans(MxRendered *text) {
    for (int i = 0; i < text->n_spans; i++) {
        MxSpan *span = &text->spans[i];
        if (span->start > text->n) span->start = text->n;
        if (span->end > text->n) span->end = text->n;
    }
}

/* The text that is to be continued; NULL = there is none. */
static const MxJson *final_text(const ChatPart *all) {
    const MxJson *message = mx_json_at(mx_json_get(all->request, "messages"), all->n - 1);
    const MxJson *value = mx_json_get(message, all->field), *text = NULL;
    if (is_reasoning(all->field) && (!value || is_null(value))) value = reasoning_of(message);
    if (!value || mx_json_string(value)) return value;
    for (size_t i = 0; i < mx_json_length(value); i++) {
        const MxJson *own = mx_json_get(mx_json_at(value, i), "text");
        if (own && mx_json_string(own)) text = own;
    }
    return text;
}

/* Whether the rendering has the text, but for spaces at its ends. */
static bool tells_final(const ChatPart *all, const MxRendered *out) {
    const MxJson *final = final_text(all);
    if (!final) return false;
    const ChatText whole = {mx_json_string(final), mx_json_string_bytes(final)};
    const ChatText text = chat_strip(whole, (ChatText){0}, true, true);
    return !text.n || memmem(out->text, out->n, text.data, text.n);
}

/* The text up to where the final message ends. As str.rstrip, it loses spaces at the end unless the
 * template keeps them. */
static bool cut_final(const ChatPart *all, MxRendered *out, MxWhere where, MxError *err) {
    size_t n = sizeof cut_mark - 2, at = out->n; /* without its space */
    do at--;
    while (at != SIZE_MAX && (at + n > out->n || memcmp(out->text + at, cut_mark, n)));
    if (at == SIZE_MAX || !tells_final(all, out))
        return mx_fail(err, MX_EXIT_BAD_INPUT, where,
                       "continue_final_message: the final message has no text \"%s\", or the chat "
                       "template does not tell it",
                       all->field);
    bool keeps_spaces = out->text[at + n] == ' ';
    if (!keeps_spaces) at = chat_strip((ChatText){out->text, at}, (ChatText){0}, false, true).n;
    out->n = at;
    out->text[at] = '\0';
    clip_spans(out);
    return true;
}

/* A failure with the place that a conversation comes from, and that in the template. */
static bool fail_at(MxWhere where, MxError *why, MxError *err) {
    mx_fail(err, why->exit, where, "%s", why->text.data);
    mx_error_release(why);
    return false;
}

bool mx_chat_render(MxArena *arena, const MxChat *chat, const MxJson *request, MxWhere where,
                    MxRendered *out, MxError *err) {
    MxError why = {0};
    if (!check(request, where, err)) return false;
    ChatPart all;
    if (!read_whole(request, where, &all, err)) return false;
    if (!chat_render_part(arena, chat, &all, out, &why)) return fail_at(where, &why, err);
    return all.marked < 0 || cut_final(&all, out, where, err);
}

/* The spans of a text that ends where its final message is continued: those of the whole one, as
 * far as it goes. */
static bool find_said(MxArena *arena, const MxChat *chat, const ChatPart *all, MxRendered *out,
                      MxError *err) {
    ChatPart plain = *all;
    MxRendered whole;
    if (all->marked < 0) return chat_find_said(arena, chat, all, out, err);
    plain.marked = -1;
    if (!chat_render_part(arena, chat, &plain, &whole, err) ||
        !chat_find_said(arena, chat, &plain, &whole, err))
        return false;
    if (whole.n < out->n || memcmp(whole.text, out->text, out->n))
        return mx_fail(
            err, MX_EXIT_BAD_INPUT, MX_NOWHERE,
            "continue_final_message: the chat template tells the final message otherwise "
            "where it is continued");
    out->spans = whole.spans;
    out->n_spans = whole.n_spans;
    clip_spans(out);
    return true;
}

bool mx_chat_tell(MxArena *arena, const MxChat *chat, const MxJson *request, MxWhere where,
                  MxRendered *out, MxError *err) {
    MxError why = {0};
    ChatPart all;
    if (!mx_chat_render(arena, chat, request, where, out, err) ||
        !read_whole(request, where, &all, err))
        return false;
    return mx_template_has_generation(template_for(chat, request)) ||
           find_said(arena, chat, &all, out, &why) || fail_at(where, &why, err);
}

bool mx_chat_encode(MxArena *arena, const MxChat *chat, const MxTokenizer *tokenizer,
                    const MxJson *request, MxWhere where, MxConversation *out, MxError *err) {
    return mx_chat_tell(arena, chat, request, where, &out->rendered, err) &&
           mx_chat_tokens(arena, tokenizer, where, out, err);
}

const char *mx_chat_try(MxArena *arena, const MxChat *chat, const char *request) {
    MxError err = {0};
    MxRendered out;
    const MxJson *json = mx_json_parse(arena, request, strlen(request), "probe", &err);
    bool ok = json && mx_chat_render(arena, chat, json, MX_NOWHERE, &out, &err);
    mx_error_release(&err);
    return ok ? out.text : NULL;
}
