/* mask.c — the tokens of a conversation that was rendered, and which of them the assistant said:
 * those that a character of its spans is in. conversation.c finds the spans. */
#include <mx/chat.h>

#include <string.h>

/* How far the text of tokens reaches: end[i] is behind token i, and where several make a character,
 * behind all of it. */
static size_t *token_ends(MxArena *arena, const MxTokenizer *tokenizer, MxTokens tokens,
                          MxText *text) {
    MxArena scratch = {.name = "text of tokens"};
    MxTextStream *stream = mx_text_stream_new(&scratch, tokenizer, false);
    size_t *end = mx_new_n(arena, size_t, tokens.n + 1), bytes;
    int64_t waiting = 0;
    for (int64_t i = 0; i <= tokens.n; i++) {
        bool is_end = i == tokens.n;
        const char *more = is_end ? mx_text_stream_end(stream, &bytes)
                                  : mx_text_stream_next(stream, tokens.ids[i], &bytes);
        mx_text_addn(text, more, bytes);
        if (!bytes && !is_end) continue;
        for (; waiting <= i && waiting < tokens.n; waiting++) end[waiting] = text->len;
    }
    mx_arena_release(&scratch);
    return end;
}

/* The place in the text of tokens of a place in the text itself: normalizers move it. */
static bool place_of(MxArena *arena, const MxTokenizer *tokenizer, MxEncoding what, size_t *out,
                     MxError *err) {
    MxTokens tokens;
    MxText text;
    mx_text_init(&text, arena);
    if (!mx_tokenizer_encode(arena, tokenizer, what, &tokens, err)) return false;
    token_ends(arena, tokenizer, tokens, &text);
    *out = text.len;
    return true;
}

/* Marks the tokens that a character of these bytes is in. */
static void mark_tokens(MxSpan span, const size_t *end, int64_t *token, MxConversation *out) {
    int64_t n = out->tokens.n;
    while (*token < n && end[*token] <= span.start) ++*token;
    for (; *token < n; ++*token) {
        size_t begins = *token ? end[*token - 1] : 0;
        if (begins >= span.end && begins != end[*token]) break;
        out->mask[*token] = 1;
    }
}

static bool mark_said(MxArena *scratch, const MxTokenizer *tokenizer, MxEncoding what,
                      MxConversation *out, MxError *err) {
    MxText text;
    mx_text_init(&text, scratch);
    const size_t *end = token_ends(scratch, tokenizer, out->tokens, &text);
    bool is_plain = text.len == what.n && !memcmp(text.data, what.text, what.n);
    int64_t token = 0;
    for (int i = 0; i < out->rendered.n_spans; i++) {
        MxSpan span = out->rendered.spans[i];
        MxEncoding to_start = what, to_end = what;
        if (span.start == span.end) continue;
        to_start.n = span.start;
        to_end.n = span.end;
        if (!is_plain && (!place_of(scratch, tokenizer, to_start, &span.start, err) ||
                          !place_of(scratch, tokenizer, to_end, &span.end, err)))
            return false;
        mark_tokens(span, end, &token, out);
    }
    return true;
}

bool mx_chat_tokens(MxArena *arena, const MxTokenizer *tokenizer, MxWhere where,
                    MxConversation *out, MxError *err) {
    MxArena scratch = {.name = "conversation"};
    MxEncoding what = {
        .text = out->rendered.text, .n = out->rendered.n, .where = where, .is_rendered = true};
    if (!mx_tokenizer_encode(arena, tokenizer, what, &out->tokens, err)) return false;
    out->mask = mx_new_n(arena, uint8_t, out->tokens.n + 1);
    bool ok = mark_said(&scratch, tokenizer, what, out, err);
    mx_arena_release(&scratch);
    return ok;
}
