/* vocabulary.c — the bytes of each token, sorted, so that tokens that begin alike are read
 * together. */
#include "vocabulary.h"

#include <stdlib.h>

/* Behind this token, the others have the text that they have within one. */
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

static void add_own_bytes(MxText *out, const MxTokenizer *tokenizer, int32_t anchor, int32_t id) {
    MxArena scratch = {.name = "token"};
    const int32_t ids[] = {anchor, id};
    size_t n, n_before;
    const char *own = mx_tokenizer_bytes(&scratch, tokenizer, id, &n);
    if (own) {
        mx_text_addn(out, own, n);
    } else {
        const char *before = mx_tokenizer_decode(&scratch, tokenizer, ids, 1, true, &n_before);
        const char *text = mx_tokenizer_decode(&scratch, tokenizer, ids, 2, true, &n);
        if (n > n_before && !memcmp(text, before, n_before))
            mx_text_addn(out, text + n_before, n - n_before);
    }
    mx_arena_release(&scratch);
}

static int find(const int32_t *ids, int n, int32_t id) {
    for (int i = 0; i < n; i++)
        if (ids[i] == id) return i;
    return -1;
}

/* ---- in order */

static int compare(const void *a, const void *b, void *vocabulary) {
    const MxVocabulary *v = vocabulary;
    const char *x, *y;
    size_t n_x = token_bytes(v, *(const int32_t *)a, &x);
    size_t n_y = token_bytes(v, *(const int32_t *)b, &y);
    int order = memcmp(x, y, n_x < n_y ? n_x : n_y);
    return order ? order : (n_x > n_y) - (n_x < n_y);
}

static void sort(MxArena *arena, MxVocabulary *v, Words *words) {
    qsort_r(words->id, (size_t)words->n, sizeof *words->id, compare, v);
    words->shared = mx_new_n(arena, int32_t, words->n + 1);
    for (int32_t i = 1; i < words->n; i++) {
        const char *a, *b;
        size_t n_a = token_bytes(v, words->id[i - 1], &a), n_b = token_bytes(v, words->id[i], &b);
        size_t k = 0;
        while (k < n_a && k < n_b && a[k] == b[k]) k++;
        words->shared[i] = (int32_t)k;
    }
}

/* Characters of a token that may stand anywhere in a text of JSON; -1 = it may not. */
static int64_t count_plain(const char *bytes, size_t n) {
    int64_t characters = 0;
    if (mx_utf8_valid_bytes(bytes, n) < n) return -1;
    for (size_t i = 0; i < n; i++) {
        uint8_t c = (uint8_t)bytes[i];
        if (c < ' ' || c == '"' || c == '\\') return -1;
        characters += (c & 0xc0) != 0x80;
    }
    return characters;
}

static void divide(MxArena *arena, MxVocabulary *v) {
    v->n_bits = ((int64_t)v->n + 63) / 64;
    v->plain.id = mx_new_n(arena, int32_t, v->n + 1);
    v->other.id = mx_new_n(arena, int32_t, v->n + 1);
    for (int i = 0; i <= WORDS_MOST_PLAIN; i++) v->upto[i] = mx_new_n(arena, uint64_t, v->n_bits);
    for (int32_t id = 0; id < v->n; id++) {
        const char *bytes;
        size_t n = token_bytes(v, id, &bytes);
        int64_t characters = count_plain(bytes, n);
        bool is_plain = characters >= 0 && characters <= WORDS_MOST_PLAIN;
        Words *words = is_plain ? &v->plain : &v->other;
        if (!n) continue;
        words->id[words->n++] = id;
        v->longest = n > v->longest ? n : v->longest;
        for (int64_t k = characters; is_plain && k <= WORDS_MOST_PLAIN; k++)
            v->upto[k][id / 64] |= (uint64_t)1 << (id % 64);
    }
    sort(arena, v, &v->plain);
    sort(arena, v, &v->other);
}

/* ---- */

MxVocabulary *mx_vocabulary_new(MxArena *arena, const MxTokenizer *tokenizer, const int32_t *ends,
                                int n_ends, const int32_t *marks, int n_marks) {
    MxVocabulary *v = mx_new(arena, MxVocabulary);
    const int32_t n = mx_tokenizer_vocab(tokenizer), anchor = find_anchor(tokenizer);
    MxText bytes;
    mx_text_init(&bytes, arena);
    *v = (MxVocabulary){.n = n, .ends = ends, .n_ends = n_ends, .n_marks = n_marks};
    v->mark = mx_new_n(arena, const char *, n_marks + 1);
    v->start = mx_new_n(arena, size_t, n + 1);
    for (int i = 0; i < n_marks; i++)
        v->mark[i] = mx_tokenizer_decode(arena, tokenizer, &marks[i], 1, false, NULL);
    for (int32_t id = 0; id < n; id++) {
        int mark = find(marks, n_marks, id);
        const char own[] = {(char)GUIDE_MARK, (char)(mark + 1)};
        if (mark >= 0)
            mx_text_addn(&bytes, own, sizeof own);
        else if (find(ends, n_ends, id) < 0)
            add_own_bytes(&bytes, tokenizer, anchor, id);
        v->start[id + 1] = bytes.len;
    }
    v->bytes = bytes.data;
    divide(arena, v);
    return v;
}

const char *mx_vocabulary_spell(MxArena *arena, const MxVocabulary *v, const char *text) {
    MxText out;
    mx_text_init(&out, arena);
    while (*text) {
        int i = 0;
        while (i < v->n_marks && !mx_text_has_prefix(text, v->mark[i])) i++;
        const char own[] = {(char)GUIDE_MARK, (char)(i + 1)};
        bool is_mark = i < v->n_marks;
        mx_text_addn(&out, is_mark ? own : text, is_mark ? sizeof own : 1);
        text += is_mark ? strlen(v->mark[i]) : 1;
    }
    return out.data;
}
