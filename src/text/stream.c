/* stream.c — text of tokens in a stream. The text of a token depends on its neighbours, so a few
 * tokens are decoded again with each new one: those whose text was returned last, and later ones.
 * The additional text is new, unless it ends in a part of a character. */
#include "internal.h"

struct MxTextStream {
    MxArena *arena;
    const MxTokenizer *tokenizer;
    bool skips_special;
    TextIds ids;
    int64_t start, done; /* decoding starts here; text of those before `done` was handed out */
    MxText text;
};

MxTextStream *mx_text_stream_new(MxArena *arena, const MxTokenizer *tokenizer, bool skip_special) {
    MxTextStream *stream = mx_new(arena, MxTextStream);
    enum { FEW = 16 };
    *stream = (MxTextStream){
        .arena = arena, .tokenizer = tokenizer, .skips_special = skip_special, .ids.arena = arena};
    stream->ids.ids = mx_new_n(arena, int32_t, FEW);
    stream->ids.cap = FEW;
    mx_text_init(&stream->text, arena);
    return stream;
}

/* Whether a text ends in what may be a part of a character: U+FFFD, or bytes that could go on. */
static bool is_cut(TextSpan text) {
    static const char broken[] = "\xef\xbf\xbd";
    size_t n = sizeof broken - 1, back = 0;
    if (text.n >= n && !memcmp(text.data + text.n - n, broken, n)) return true;
    while (back < 3 && back < text.n && ((uint8_t)text.data[text.n - 1 - back] & 0xc0) == 0x80)
        back++;
    if (back == text.n) return false;
    uint8_t first = (uint8_t)text.data[text.n - 1 - back];
    return first >= 0xc2 && first <= 0xf4 && text_char_bytes(first) > back + 1;
}

/* Where new text begins. A run of bytes that stopped being UTF-8 is told otherwise than before:
 * then behind as much as was told, at the next character. */
static size_t new_from(TextSpan text, TextSpan before) {
    size_t from = before.n;
    while (from < text.n && ((uint8_t)text.data[from] & 0xc0) == 0x80) from++;
    return from;
}

/* The text of what waits. */
static const char *hand_out(MxTextStream *stream, bool is_end, size_t *n_bytes) {
    MxArena scratch = {.name = "stream"};
    const MxTokenizer *t = stream->tokenizer;
    const int32_t *ids = stream->ids.ids + stream->start;
    int64_t n = stream->ids.n - stream->start, n_old = stream->done - stream->start;
    TextSpan text, before;
    text.data = mx_tokenizer_decode(&scratch, t, ids, n, stream->skips_special, &text.n);
    before.data = mx_tokenizer_decode(&scratch, t, ids, n_old, stream->skips_special, &before.n);
    mx_text_clear(&stream->text);
    if (text.n > before.n && (is_end || !is_cut(text))) {
        size_t from = new_from(text, before);
        mx_text_addn(&stream->text, text.data + from, text.n - from);
        stream->start = stream->done;
        stream->done = stream->ids.n;
    }
    mx_arena_release(&scratch);
    if (n_bytes) *n_bytes = stream->text.len;
    return stream->text.data;
}

const char *mx_text_stream_next(MxTextStream *stream, int32_t id, size_t *n_bytes) {
    if (stream->start > 0) { /* those before are not needed again */
        TextIds *ids = &stream->ids;
        ids->n -= stream->start;
        memmove(ids->ids, ids->ids + stream->start, (size_t)ids->n * sizeof *ids->ids);
        stream->done -= stream->start;
        stream->start = 0;
    }
    text_ids_add(&stream->ids, id);
    return hand_out(stream, false, n_bytes);
}

const char *mx_text_stream_end(MxTextStream *stream, size_t *n_bytes) {
    return hand_out(stream, true, n_bytes);
}
