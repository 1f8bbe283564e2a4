/* canon.c — which tokens count as one: those whose texts differ in case, accents, spaces around
 * them, and forms of characters alone. Source: MaxText layers/engram.py (CompressedTokenizer)
 * @e591f30c. */
#include "internal.h"

/* A space alone stays one: it is hidden while texts are stripped. */
static const char layout[] =
    "{\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": ["
    "{\"type\": \"NFKC\"}, {\"type\": \"NFD\"}, {\"type\": \"StripAccents\"}, "
    "{\"type\": \"Lowercase\"}, "
    "{\"type\": \"Replace\", \"pattern\": {\"Regex\": \"[ \\\\t\\\\r\\\\n]+\"}, \"content\": \" "
    "\"}, "
    "{\"type\": \"Replace\", \"pattern\": {\"Regex\": \"^ $\"}, \"content\": \"\\uE000\"}, "
    "{\"type\": \"Strip\", \"strip_left\": true, \"strip_right\": true}, "
    "{\"type\": \"Replace\", \"pattern\": {\"String\": \"\\uE000\"}, \"content\": \" \"}]}}";

static bool read_steps(MxArena *arena, MxTokenizer *steps, MxError *err) {
    MxBytes bytes = {(uint8_t *)(uintptr_t)layout, strlen(layout)};
    TextNode top;
    return text_node_parse(arena, "the canon of tokens", bytes, &top, err) &&
           text_steps_read(text_node_get(top, "normalizer"), &text_normalizers,
                           &steps->normalizers);
}

/* What tokens that count as one have in common. A token that is a part of a character is itself. */
static bool find_key(TextWork *work, MxArena *scratch, const MxTokenizer *tokenizer, int32_t id,
                     TextSpan *out) {
    static const char replacement[] = "\xef\xbf\xbd";
    TextSpan text;
    text.data = mx_tokenizer_decode(scratch, tokenizer, &id, 1, false, &text.n);
    *out = tokenizer->text[id];
    if (mx_utf8_valid_bytes(text.data, text.n) < text.n ||
        text_find_span(text, 0, TEXT_SPAN(replacement)) != SIZE_MAX)
        return true;
    if (!text_normalize(work, text, out)) return false;
    if (!out->n) *out = text;
    return true;
}

bool mx_tokenizer_canon(MxArena *arena, const MxTokenizer *tokenizer, const int32_t **out,
                        MxError *err) {
    MxTokenizer steps = {0};
    TextWork work = {.err = err};
    MxArena own = {.name = "canon of tokens"};
    TextVocab keys;
    int32_t *canon = mx_new_n(arena, int32_t, tokenizer->vocab), n_keys = 0;
    bool ok = read_steps(&own, &steps, err);
    text_work_init(&work, &steps);
    text_vocab_init(&keys, &own, (size_t)tokenizer->vocab);
    for (int32_t id = 0; ok && id < tokenizer->vocab; id++) {
        MxArena scratch = {.name = "token"};
        TextSpan key;
        ok = find_key(&work, &scratch, tokenizer, id, &key);
        int32_t known = ok ? text_vocab_find(&keys, key) : 0;
        if (ok && known < 0) {
            known = n_keys++;
            key.data = mx_arena_strndup(&own, key.n ? key.data : "", key.n);
            text_vocab_add(&keys, key, known);
        }
        canon[id] = known;
        mx_arena_release(&scratch);
    }
    mx_arena_release(&work.arena);
    mx_arena_release(&own);
    *out = canon;
    return ok;
}
