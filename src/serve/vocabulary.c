/* vocabulary.c — the bytes of each token, and which tokens may come next in the text of a JSON
 * object. Most are refused by their first byte, or are accepted in a text because all of their
 * bytes are part of it; the automaton reads only the rest. */
#include "vocabulary.h"

#include <math.h>

struct Vocabulary {
    const JsonGrammar *grammar;
    int64_t n;
    size_t *start; /* [n + 1] in bytes */
    char *bytes;
    char *first;    /* [n] byte of each; NUL, which JSON does not have, if the token never comes */
    bool *is_plain; /* [n] see json_text_is_plain */
};

static const char broken[] = "\xef\xbf\xbd"; /* U+FFFD */

/* The bytes of the last of n tokens: their text without that of those before. Parts of characters
 * count as U+FFFD, which is allowed where they are. */
static size_t bytes_of_last(MxArena *arena, const MxTokenizer *tokenizer, const int32_t *ids,
                            int64_t n, const char **out) {
    size_t n_bytes, n_before;
    const char *before = mx_tokenizer_decode(arena, tokenizer, ids, n - 1, true, &n_before);
    const char *text = mx_tokenizer_decode(arena, tokenizer, ids, n, true, &n_bytes);
    *out = text + n_before;
    return n_bytes > n_before && !memcmp(text, before, n_before) ? n_bytes - n_before : 0;
}

static int32_t find_anchor(const MxTokenizer *tokenizer) {
    MxArena scratch = {.name = "anchor"};
    MxError ignored = {0};
    MxTokens ids = {0};
    bool ok =
        mx_tokenizer_encode(&scratch, tokenizer, (MxEncoding){.text = "a", .n = 1}, &ids, &ignored);
    int32_t anchor = ok && ids.n ? ids.ids[ids.n - 1] : -1;
    mx_error_release(&ignored);
    mx_arena_release(&scratch);
    return anchor;
}

static bool is_among(const int32_t *ids, int n, int32_t id) {
    for (int i = 0; i < n; i++)
        if (ids[i] == id) return true;
    return false;
}

/* The first token that is a part of a character; -1 = there is none. */
static int32_t find_part(const Vocabulary *v) {
    const size_t n = sizeof broken - 1;
    for (int32_t id = 0; id < v->n; id++)
        if (v->start[id + 1] - v->start[id] == n && !memcmp(v->bytes + v->start[id], broken, n))
            return id;
    return -1;
}

/* Tokens that are bytes may stand for nothing of their own behind a part of a character, as in
 * vocabularies of sentencepiece. Those that would change what JSON means never come. */
static void drop_fragile(Vocabulary *v, const MxTokenizer *tokenizer, int32_t anchor) {
    const int32_t part = find_part(v);
    for (int32_t id = 0; part >= 0 && id < v->n; id++) {
        MxArena scratch = {.name = "token"};
        const int32_t ids[] = {anchor, part, id};
        const char *behind, own = v->bytes[v->start[id]];
        bool is_byte = v->start[id + 1] - v->start[id] == 1 && (uint8_t)own < 0x80;
        if (is_byte && (bytes_of_last(&scratch, tokenizer, ids, 3, &behind) != 1 || *behind != own))
            v->first[id] = '\0';
        mx_arena_release(&scratch);
    }
}

const Vocabulary *vocabulary_new(MxArena *arena, const MxTokenizer *tokenizer, const int32_t *ends,
                                 int n_ends) {
    Vocabulary *v = mx_new(arena, Vocabulary);
    const int32_t n = mx_tokenizer_vocab(tokenizer), anchor = find_anchor(tokenizer);
    MxText bytes;
    mx_text_init(&bytes, arena);
    *v = (Vocabulary){.grammar = json_grammar_new(arena), .n = n};
    v->start = mx_new_n(arena, size_t, n + 1);
    v->is_plain = mx_new_n(arena, bool, n);
    v->first = mx_new_n(arena, char, n);
    for (int32_t id = 0; id < n; id++) {
        MxArena scratch = {.name = "token"};
        const int32_t ids[] = {anchor, id};
        const char *text;
        size_t own = bytes_of_last(&scratch, tokenizer, ids, 2, &text);
        if (own && !is_among(ends, n_ends, id)) mx_text_addn(&bytes, text, own);
        v->start[id + 1] = bytes.len;
        mx_arena_release(&scratch);
    }
    mx_text_addn(&bytes, "", 1);
    v->bytes = bytes.data;
    for (int32_t id = 0; id < n; id++) {
        const char *own = v->bytes + v->start[id];
        size_t own_bytes = v->start[id + 1] - v->start[id];
        v->first[id] = own_bytes ? *own : '\0';
        v->is_plain[id] = json_text_is_plain(v->grammar, own, own_bytes);
    }
    drop_fragile(v, tokenizer, anchor);
    return v;
}

static bool may_come(const Vocabulary *v, const JsonText *text, int64_t id) {
    JsonText next = *text;
    if (!json_text_may(v->grammar, text, v->first[id])) return false;
    if (v->is_plain[id] && json_text_in_plain(text)) return true;
    return json_text_add(v->grammar, &next, v->bytes + v->start[id],
                         v->start[id + 1] - v->start[id]);
}

bool vocabulary_limit(const Vocabulary *v, const JsonText *text, float *logits, int64_t vocab) {
    int64_t n = 0;
    for (int64_t id = 0; id < vocab; id++) {
        bool may = id < v->n && may_come(v, text, id);
        if (!may) logits[id] = -INFINITY;
        n += may;
    }
    return n > 0;
}

bool vocabulary_add(const Vocabulary *v, JsonText *text, int32_t id) {
    bool ok =
        json_text_add(v->grammar, text, v->bytes + v->start[id], v->start[id + 1] - v->start[id]);
    MX_ASSERT(ok);
    return json_text_is_complete(text);
}
