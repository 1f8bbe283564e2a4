/* conversation.c — a conversation as text, and the parts that the assistant says. The text is
 * transformers' (apply_chat_template). If the template marks nothing, the assistant's parts are
 * found by rendering parts of the conversation. */
#include "conversation.h"

#include <math.h>

/* What a final message that is continued ends with, until the text is cut there. Source:
 * transformers 5, utils/chat_template_utils.py. */
static const char cut_mark[] = "CONTINUE_FINAL_MESSAGE_TAG ";
/* What is put beside a message's text to find it. */
static const char found_mark[] = "\xc2\xa4"
                                 "mark"
                                 "\xc2\xa4";

/* A rendering of some of a request's messages. */
typedef struct Part {
    const MxJson *request;
    size_t n;       /* the first ones */
    bool prompts;   /* with a generation prompt */
    int64_t marked; /* this message's text is marked; -1 = none */
    const char *mark;
    bool marks_front;
} Part;

/* ---- variables */

static bool is_null(const MxJson *value) {
    return !strcmp(mx_json_kind(value), "null");
}

/* A text with a mark at one end. */
static void set_marked(MxArena *arena, MxJson *to, const char *key, const MxJson *value,
                       const Part *part) {
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

/* The last block of content that is a text is marked. */
static void mark_blocks(MxArena *arena, MxJson *to, const MxJson *blocks, const Part *part) {
    MxJson *list = mx_json_put_array(to, "content");
    size_t last = mx_json_length(blocks);
    while (last && !mx_json_string(mx_json_get(mx_json_at(blocks, last - 1), "text"))) last--;
    for (size_t i = 0; i < mx_json_length(blocks); i++) {
        const MxJson *block = mx_json_at(blocks, i);
        const char *key;
        MxJson *value;
        if (i + 1 != last) {
            mx_json_push(list, block);
            continue;
        }
        MxJson *copy = mx_json_push_object(list);
        for (void *at = NULL; mx_json_next(block, &at, &key, &value);)
            mx_json_set(copy, key, value);
        set_marked(arena, copy, "text", mx_json_get(block, "text"), part);
    }
}

/* Members that are null are left out. Reasoning has several names; templates read the first two.
 * Source: transformers 5.24 chat_template_utils.py, _alias_reasoning_fields. */
static void add_message(MxArena *arena, MxJson *list, const MxJson *message, const Part *part,
                        bool is_marked) {
    enum { READ = 2 };
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    MxJson *copy = mx_json_push_object(list);
    const MxJson *reasoning = NULL;
    const char *key;
    MxJson *value;
    for (void *at = NULL; mx_json_next(message, &at, &key, &value);) {
        bool is_content = is_marked && !strcmp(key, "content");
        if (is_null(value)) continue;
        if (is_content && mx_json_string(value))
            set_marked(arena, copy, key, value, part);
        else if (is_content && !strcmp(mx_json_kind(value), "a list"))
            mark_blocks(arena, copy, value, part);
        else
            mx_json_set(copy, key, value);
    }
    for (int i = 0; !reasoning && i < MX_COUNT(names); i++) reasoning = mx_json_get(copy, names[i]);
    for (int i = 0; reasoning && i < READ; i++)
        if (!mx_json_get(copy, names[i])) mx_json_set(copy, names[i], reasoning);
}

static MxJson *variables(MxArena *arena, const MxChat *chat, const Part *part) {
    const MxJson *messages = mx_json_get(part->request, "messages");
    MxJson *out = mx_json_object(arena);
    const char *key;
    MxJson *value;
    for (void *at = NULL; mx_json_next(chat->tokens, &at, &key, &value);)
        mx_json_set(out, key, value);
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

static bool render(MxArena *arena, const MxChat *chat, const Part *part, MxRendered *out,
                   MxError *err) {
    const MxJson *all = variables(arena, chat, part);
    return mx_template_render(arena, template_for(chat, part->request), all, out, err);
}

/* ---- what the assistant says, without marks */

static size_t same_front(MxRendered a, MxRendered b) {
    size_t n = 0;
    while (n < a.n && n < b.n && a.text[n] == b.text[n]) n++;
    return mx_char_start(a.text, n);
}

static size_t same_end(MxRendered a, MxRendered b) {
    size_t n = 0;
    while (n < a.n && n < b.n && a.text[a.n - 1 - n] == b.text[b.n - 1 - n]) n++;
    while (n && ((uint8_t)a.text[a.n - n] & 0xc0) == 0x80) n--;
    return n;
}

/* Where the text of a message ends in a rendering, told by a mark behind it. */
static bool text_end(MxArena *arena, const MxChat *chat, const Part *part, size_t i,
                     MxRendered plain, size_t *out, MxError *err) {
    Part with = *part;
    MxRendered marked;
    with.marked = (int64_t)i;
    with.mark = found_mark;
    with.marks_front = false;
    if (!render(arena, chat, &with, &marked, err)) return false;
    *out = plain.n - same_end(plain, marked);
    return true;
}

/* A template that tells a message otherwise when others follow: from behind the prompt, or else
 * where its text begins, to behind its text and what ended it when it was the last. */
static bool find_by_marks(MxArena *arena, const MxChat *chat, const Part *all, size_t i,
                          MxRendered full, const MxRendered around[2], MxSpan *out, MxError *err) {
    Part front = *all, alone = *all;
    MxRendered marked;
    size_t alone_end;
    front.marked = (int64_t)i;
    front.mark = found_mark;
    front.marks_front = true;
    alone.n = i + 1;
    alone.prompts = false;
    if (!render(arena, chat, &front, &marked, err) ||
        !text_end(arena, chat, all, i, full, &out->end, err) ||
        !text_end(arena, chat, &alone, i, around[1], &alone_end, err))
        return false;
    size_t prompt = same_front(full, around[0]), content = same_front(full, marked);
    out->start = prompt < content ? prompt : content;
    size_t behind = around[1].n - alone_end;
    if (behind <= full.n - out->end &&
        !memcmp(full.text + out->end, around[1].text + alone_end, behind))
        out->end += behind;
    return true;
}

/* A text, or blocks of which one is. */
static bool has_text(const MxJson *content) {
    for (size_t i = 0; content && i < mx_json_length(content); i++)
        if (has_text(mx_json_get(mx_json_at(content, i), "text"))) return true;
    return content && mx_json_string(content) && mx_json_string_bytes(content);
}

/* The same of a message without text, such as calls of tools: as much behind the prompt as ends the
 * text in which the message is the last one. */
static void find_by_end(MxRendered full, const MxRendered around[2], MxSpan *out) {
    size_t start = same_front(full, around[0]), n = around[1].n - same_front(around[1], around[0]);
    if (n > full.n - start) n = full.n - start;
    while (n && memcmp(full.text + start, around[1].text + around[1].n - n, n)) n--;
    *out = (MxSpan){start, start + n};
}

static bool find_said(MxArena *arena, const MxChat *chat, const Part *all, size_t i,
                      MxRendered full, MxSpan *out, MxError *err) {
    Part before = *all, with = *all;
    MxRendered around[2];
    before.n = i;
    before.prompts = true;
    with.n = i + 1;
    with.prompts = false;
    const MxJson *message = mx_json_at(mx_json_get(all->request, "messages"), i);
    if (!i) /* many templates want a message before a prompt */
        around[0] = (MxRendered){.text = "", .n = 0};
    else if (!render(arena, chat, &before, &around[0], err))
        return false;
    if (!render(arena, chat, &with, &around[1], err)) return false;
    *out = (MxSpan){around[0].n, around[1].n};
    bool is_front = same_front(full, around[1]) == around[1].n &&
                    same_front(around[1], around[0]) == around[0].n;
    if (is_front && i) return true;
    if (!has_text(mx_json_get(message, "content")))
        find_by_end(full, around, out);
    else if (!find_by_marks(arena, chat, all, i, full, around, out, err))
        return false;
    if (out->start < out->end && out->end <= full.n) return true;
    return mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE,
                   "what the assistant says in message %zu cannot be found in the text; a chat "
                   "template can mark it: {%% generation %%} … {%% endgeneration %%}",
                   i + 1);
}

static bool is_assistant(const MxJson *message) {
    const char *role = mx_json_string(mx_json_get(message, "role"));
    return role && !strcmp(role, "assistant");
}

static bool find_all_said(MxArena *arena, const MxChat *chat, const Part *all, MxRendered *full,
                          MxError *err) {
    const MxJson *messages = mx_json_get(all->request, "messages");
    full->spans = mx_new_n(arena, MxSpan, all->n + 1);
    for (size_t i = 0; i < all->n; i++) {
        MxArena scratch = {.name = "part of a conversation"};
        bool ok = !is_assistant(mx_json_at(messages, i)) ||
                  find_said(&scratch, chat, all, i, *full, &full->spans[full->n_spans], err);
        mx_arena_release(&scratch);
        if (!ok) return false;
        full->n_spans += is_assistant(mx_json_at(messages, i));
    }
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

static bool flag(const MxJson *request, const char *key) {
    bool out = false;
    const MxJson *value = mx_json_get(request, key);
    return value && mx_json_bool(value, &out) && out;
}

/* All messages; the last one is marked where it is to be continued. */
static Part whole(const MxJson *request) {
    size_t n = mx_json_length(mx_json_get(request, "messages"));
    bool continues = flag(request, "continue_final_message");
    return (Part){.request = request,
                  .n = n,
                  .prompts = flag(request, "add_generation_prompt"),
                  .marked = continues ? (int64_t)n - 1 : -1,
                  .mark = cut_mark};
}

/* The text up to where the final message ends. */
static bool cut_final(MxRendered *out, MxWhere where, MxError *err) {
    size_t n = sizeof cut_mark - 2, at = out->n; /* without its space */
    do at--;
    while (at != SIZE_MAX && (at + n > out->n || memcmp(out->text + at, cut_mark, n)));
    if (at == SIZE_MAX)
        return mx_fail(err, MX_EXIT_BAD_INPUT, where,
                       "continue_final_message: the final message has no text, or the chat "
                       "template does not tell it");
    bool keeps_spaces = out->text[at + n] == ' ';
    while (!keeps_spaces && at && strchr(" \t\n\r\f\v", out->text[at - 1])) at--;
    out->n = at;
    out->text[at] = '\0';
    for (int i = 0; i < out->n_spans; i++) {
        if (out->spans[i].start > at) out->spans[i].start = at;
        if (out->spans[i].end > at) out->spans[i].end = at;
    }
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
    Part all = whole(request);
    if (all.marked >= 0 && all.prompts)
        return mx_fail(err, MX_EXIT_BAD_INPUT, where,
                       "add_generation_prompt and continue_final_message exclude each other");
    if (!render(arena, chat, &all, out, &why)) return fail_at(where, &why, err);
    return all.marked < 0 || cut_final(out, where, err);
}

bool mx_chat_tell(MxArena *arena, const MxChat *chat, const MxJson *request, MxWhere where,
                  MxRendered *out, MxError *err) {
    MxError why = {0};
    if (!mx_chat_render(arena, chat, request, where, out, err)) return false;
    Part all = whole(request);
    bool is_marked = mx_template_has_generation(template_for(chat, request)) || all.marked >= 0;
    return is_marked || find_all_said(arena, chat, &all, out, &why) || fail_at(where, &why, err);
}

bool mx_chat_encode(MxArena *arena, const MxChat *chat, const MxTokenizer *tokenizer,
                    const MxJson *request, MxWhere where, MxConversation *out, MxError *err) {
    return mx_chat_tell(arena, chat, request, where, &out->rendered, err) &&
           mx_chat_tokens(arena, tokenizer, where, out, err);
}
