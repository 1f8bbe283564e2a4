/* vocabulary.h — the bytes of tokens in the order in which a walk reads them (vocabulary.c). */
#ifndef GUIDE_VOCABULARY_H
#define GUIDE_VOCABULARY_H

#include "internal.h"

/* Tokens in the order of their bytes. */
typedef struct Words {
    int32_t *id;     /* [n] */
    int32_t *shared; /* [n] bytes that each begins with as the one before does */
    int32_t n;
} Words;

enum { WORDS_MOST_PLAIN = 32 };

struct MxVocabulary {
    int32_t n;
    size_t *start; /* [n + 1] in bytes */
    char *bytes;
    size_t longest;
    const int32_t *ends; /* [n_ends] */
    int n_ends;
    const char **mark; /* [n_marks] texts */
    int n_marks;
    int64_t n_bits; /* words of 64 tokens */
    /* Tokens of up to WORDS_MOST_PLAIN characters that may stand anywhere in a text of JSON; all
     * others; and a bit for each of the former with up to so many characters. */
    Words plain, other;
    uint64_t *upto[WORDS_MOST_PLAIN + 1];
};

static inline size_t token_bytes(const MxVocabulary *v, int32_t id, const char **bytes) {
    *bytes = v->bytes + v->start[id];
    return v->start[id + 1] - v->start[id];
}

#endif
