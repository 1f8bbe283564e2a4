/* said.c — the parts of a rendering that the assistant says, of templates that do not mark them:
 * found by rendering parts of the conversation. */
#include "conversation.h"

/* What is put beside a message's text to find it. */
static const char found_mark[] = "\xc2\xa4"
                                 "mark"
                                 "\xc2\xa4";

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
static bool text_end(MxArena *arena, const MxChat *chat, const ChatPart *part, size_t i,
                     MxRendered plain, size_t *out, MxError *err) {
    ChatPart with = *part;
    MxRendered marked;
    with.marked = (int64_t)i;
    with.field = "content";
    with.mark = found_mark;
    with.marks_front = false;
    if (!chat_render_part(arena, chat, &with, &marked, err)) return false;
    *out = plain.n - same_end(plain, marked);
    return true;
}

/* A template that tells a message otherwise when others follow: from behind the prompt, or else
 * where its text begins, to behind its text and what ended it when it was the last. */
static bool find_by_marks(MxArena *arena, const MxChat *chat, const ChatPart *all, size_t i,
                          MxRendered full, const MxRendered around[2], MxSpan *out, MxError *err) {
    ChatPart front = *all, alone = *all;
    MxRendered marked;
    size_t alone_end;
    front.marked = (int64_t)i;
    front.field = "content";
    front.mark = found_mark;
    front.marks_front = true;
    alone.n = i + 1;
    alone.prompts = false;
    if (!chat_render_part(arena, chat, &front, &marked, err) ||
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

static bool find_said(MxArena *arena, const MxChat *chat, const ChatPart *all, size_t i,
                      MxRendered full, MxSpan *out, MxError *err) {
    ChatPart before = *all, with = *all;
    MxRendered around[2];
    before.n = i;
    before.prompts = true;
    with.n = i + 1;
    with.prompts = false;
    const MxJson *message = mx_json_at(mx_json_get(all->request, "messages"), i);
    if (!i) /* many templates want a message before a prompt */
        around[0] = (MxRendered){.text = "", .n = 0};
    else if (!chat_render_part(arena, chat, &before, &around[0], err))
        return false;
    if (!chat_render_part(arena, chat, &with, &around[1], err)) return false;
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

bool chat_find_said(MxArena *arena, const MxChat *chat, const ChatPart *all, MxRendered *full,
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
