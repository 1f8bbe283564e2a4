/* pattern.h — a regular expression as a network of characters: pattern.c reads it,
 * pattern_product.c makes one of several, pattern_write.c writes it into a grammar. */
#ifndef GUIDE_PATTERN_H
#define GUIDE_PATTERN_H

#include "internal.h"

/* Characters from low to high lead on; low above high: nothing does. */
typedef struct Link {
    uint32_t low, high;
    int32_t to, next;
} Link;

typedef struct Pattern {
    MxArena *arena;
    const char *text;
    size_t at;
    int depth;
    const char *wrong; /* NULL = nothing so far */
    int32_t *first;    /* [n_states] link of each state, 0 = none */
    int32_t n_states;
    Link *link; /* [n_links] number 0 is none */
    int32_t n_links, cap_links;
    int32_t start, end;
    bool is_narrow; /* finds less than Python or JavaScript, beyond printable ASCII */
} Pattern;

/* What a text must have in it, or must not. */
typedef struct Demand {
    Pattern pattern;
    bool is_wanted;
} Demand;

enum { PATTERN_LAST_CODE = 0x10ffff };

/* pattern_read — NULL, or what is wrong with it. pattern_of_texts — the network of [n] texts.
 * pattern_finds — whether it finds something in a text. pattern_link. pattern_product — a
 * deterministic network of the texts that satisfy [n] demands, with its states where they may end;
 * of those with a narrow pattern that must not be found, in printable ASCII. */
const char *pattern_read(MxArena *arena, const char *text, Pattern *out);
const char *pattern_of_texts(MxArena *arena, const char *const *texts, int64_t n, Pattern *out);
bool pattern_finds(const Pattern *pattern, const char *text);
void pattern_link(Pattern *p, int32_t from, uint32_t low, uint32_t high, int32_t to);
const char *pattern_product(MxArena *arena, const Demand *demand, int n, Pattern *out,
                            bool **is_end);
/* pattern_write — the texts that satisfy [n] demands, as they are written. */
const char *pattern_write(MxGrammar *g, int32_t from, const Demand *demand, int n, Writing how,
                          int32_t to);

#endif
