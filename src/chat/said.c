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

/* A rendering with a mark before the text of a message, or behind it. */
static bool render_marked(MxArena *arena, const MxChat *chat, const ChatPart *part, size_t i,
                          bool marks_front, MxRendered *out, MxError *err) {
    ChatPart with = *part;
    with.marked = (int64_t)i;
    with.field = "content";
    with.mark = found_mark;
    with.marks_front = marks_front;
    return chat_render_part(arena, chat, &with, out, err);
}

/* Where the text of a message ends in a rendering. */
static bool text_end(MxArena *arena, const MxChat *chat, const ChatPart *part, size_t i,
                     MxRendered plain, size_t *out, MxError *err) {
    MxRendered marked;
    if (!render_marked(arena, chat, part, i, false, &marked, err)) return false;
    *out = plain.n - same_end(plain, marked);
    return true;
}

/* Where it begins; the end of the rendering if it has no text. */
static bool text_begin(MxArena *arena, const MxChat *chat, const ChatPart *part, size_t i,
                       MxRendered plain, size_t *out, MxError *err) {
    MxRendered marked;
    if (!render_marked(arena, chat, part, i, true, &marked, err)) return false;
    *out = same_front(plain, marked);
    return true;
}

/* ---- where the assistant begins */

/* A stretch of a rendering. */
typedef struct Range {
    size_t low, high;
} Range;

/* Where a text in a rendering best agrees with the end of another one; `high` if nowhere. */
static size_t find_place(MxRendered full, Range in, const char *text, size_t n) {
    size_t best = in.high, longest = 0;
    for (size_t at = in.high; at > in.low; at--) {
        size_t same = 0;
        while (same < at && same < n && full.text[at - 1 - same] == text[n - 1 - same]) same++;
        if (same > longest) longest = same, best = at;
    }
    return best;
}

static size_t find_text(MxRendered full, size_t most, const char *text, size_t n) {
    const char *found = n ? memmem(full.text, most, text, n) : NULL;
    return found ? (size_t)(found - full.text) + n : most;
}

/* The generation prompt, which a template adds to messages, is at the end of a rendering of them.
 */
static size_t prompt_bytes(MxArena *arena, const MxChat *chat, const ChatPart *messages,
                           MxRendered prompted) {
    ChatPart plain = *messages;
    MxRendered without;
    MxError ignored = {0};
    plain.prompts = false;
    bool ok = chat_render_part(arena, chat, &plain, &without, &ignored);
    mx_error_release(&ignored);
    return ok ? prompted.n - same_front(prompted, without) : 0;
}

/* Behind the generation prompt, as far as the rendering has it, and within a stretch. What stands
 * before it may be told otherwise than where the message is the next one; then it is found by the
 * end of the messages before it. Before the first message, many templates want another. */
static bool find_start(MxArena *arena, const MxChat *chat, const ChatPart *all, size_t i,
                       MxRendered full, MxRendered prompted, Range in, size_t *out, MxError *err) {
    ChatPart messages = *all;
    messages.prompts = true;
    if (!i) {
        MxRendered whole;
        if (!chat_render_part(arena, chat, &messages, &whole, err)) return false;
        size_t n = prompt_bytes(arena, chat, &messages, whole);
        *out = find_text(full, in.high, whole.text + whole.n - n, n);
        return true;
    }
    *out = same_front(full, prompted);
    if (*out > in.high) *out = in.high;
    if (*out >= in.low) return true;
    messages.n = i;
    size_t n = prompt_bytes(arena, chat, &messages, prompted), before = prompted.n - n, same = 0;
    size_t at = find_place(full, in, prompted.text, before);
    while (same < n && at + same < in.high && full.text[at + same] == prompted.text[before + same])
        same++;
    *out = mx_char_start(full.text, at + same);
    return true;
}

/* ---- where it ends */

/* Without the token that ends a text, if it stands there: templates put it behind the last message.
 */
static MxRendered without_eos(const MxChat *chat, const ChatPart *all, MxRendered text) {
    const MxJson *own = mx_json_get(all->request, "eos_token");
    const char *eos = mx_json_string(own ? own : mx_json_get(chat->tokens, "eos_token"));
    size_t n = eos ? strlen(eos) : 0;
    if (n && n <= text.n && !memcmp(text.text + text.n - n, eos, n)) text.n -= n;
    return text;
}

/* What ended a message when it was the last, if it does so here. */
static size_t same_ending(MxRendered full, size_t end, MxRendered alone, size_t alone_end) {
    size_t n = alone.n > alone_end ? alone.n - alone_end : 0;
    return n <= full.n - end && !memcmp(full.text + end, alone.text + alone_end, n) ? n : 0;
}

/* A template that tells a message otherwise when others follow: to behind its text and what ended
 * it when it was the last. */
static bool find_text_end(MxArena *arena, const MxChat *chat, const ChatPart *all, size_t i,
                          MxRendered full, MxRendered alone, size_t *out, MxError *err) {
    ChatPart part = *all;
    size_t alone_end;
    part.n = i + 1;
    part.prompts = false;
    if (!text_end(arena, chat, all, i, full, out, err) ||
        !text_end(arena, chat, &part, i, alone, &alone_end, err))
        return false;
    size_t n = same_ending(full, *out, alone, alone_end);
    *out += n ? n : same_ending(full, *out, without_eos(chat, all, alone), alone_end);
    return true;
}

/* A text, or blocks of which one is. */
static bool has_text(const MxJson *content) {
    for (size_t i = 0; content && i < mx_json_length(content); i++)
        if (has_text(mx_json_get(mx_json_at(content, i), "text"))) return true;
    return content && mx_json_string(content) && mx_json_string_bytes(content);
}

/* The same of a message without text, such as calls of tools: as much behind the prompt as ends the
 * text in which the message is the last one. That may have less of the prompt. */
static size_t find_other_end(MxRendered full, size_t start, MxRendered alone, MxRendered prompted) {
    enum { LESS = 64 };
    size_t front = same_front(alone, prompted), n = alone.n - front;
    n += front < LESS ? front : LESS;
    if (n > full.n - start) n = full.n - start;
    while (n && memcmp(full.text + start, alone.text + alone.n - n, n)) n--;
    return start + n;
}

/* Between the texts of the messages beside it, behind what the assistant said last. */
static bool find_range(MxArena *arena, const MxChat *chat, const ChatPart *all, size_t i,
                       MxRendered full, Range *out, MxError *err) {
    const MxJson *messages = mx_json_get(all->request, "messages");
    size_t end;
    *out = (Range){full.n_spans ? full.spans[full.n_spans - 1].end : 0, full.n};
    if (i && has_text(mx_json_get(mx_json_at(messages, i - 1), "content"))) {
        if (!text_end(arena, chat, all, i - 1, full, &end, err)) return false;
        if (end > out->low) out->low = end;
    }
    return i + 1 == all->n || !has_text(mx_json_get(mx_json_at(messages, i + 1), "content")) ||
           text_begin(arena, chat, all, i + 1, full, &out->high, err);
}

/* `full` has the spans so far. */
static bool find_said(MxArena *arena, const MxChat *chat, const ChatPart *all, size_t i,
                      MxRendered full, MxSpan *out, MxError *err) {
    ChatPart before = *all, with = *all;
    MxRendered around[2];
    Range in;
    size_t text = full.n;
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
    bool has_own = has_text(mx_json_get(message, "content"));
    if (!find_range(arena, chat, all, i, full, &in, err) ||
        (has_own && !text_begin(arena, chat, all, i, full, &text, err)))
        return false;
    has_own &= text < full.n; /* some templates leave it out when others follow */
    const size_t most = in.high;
    if (text < in.high) in.high = text;
    if (!find_start(arena, chat, all, i, full, around[0], in, &out->start, err)) return false;
    out->end = find_other_end(full, out->start, around[1], around[0]);
    if (out->end == out->start)
        out->end = find_other_end(full, out->start, without_eos(chat, all, around[1]), around[0]);
    if (has_own && !find_text_end(arena, chat, all, i, full, around[1], &out->end, err))
        return false;
    if (in.low <= out->start && out->start < out->end && out->end <= most) return true;
    return mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE,
                   "what the assistant says in message %zu cannot be found in the text; a chat "
                   "template can mark it: {%% generation %%} … {%% endgeneration %%}",
                   i + 1);
}

static bool is_assistant(const MxJson *message) {
    const char *role = mx_json_string(mx_json_get(message, "role"));
    return role && !strcmp(role, "assistant");
}

bool chat_find_said(MxArena *arena, const MxChat *chat, const ChatPart *whole, MxRendered *full,
                    MxError *err) {
    const MxJson *messages = mx_json_get(whole->request, "messages");
    ChatPart all = *whole;
    MxRendered text = *full;
    all.always = chat_always_prompts(chat, whole);
    if (!all.prompts) text.n -= all.always;
    text.spans = full->spans = mx_new_n(arena, MxSpan, all.n + 1);
    for (size_t i = 0; i < all.n; i++) {
        MxArena scratch = {.name = "part of a conversation"};
        bool ok = !is_assistant(mx_json_at(messages, i)) ||
                  find_said(&scratch, chat, &all, i, text, &text.spans[text.n_spans], err);
        mx_arena_release(&scratch);
        if (!ok) return false;
        full->n_spans = text.n_spans += is_assistant(mx_json_at(messages, i));
    }
    return true;
}
