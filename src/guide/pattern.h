/* pattern.h — a regular expression as a network of characters: pattern.c reads it, pattern_write.c
 * writes it into a grammar. */
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
} Pattern;

/* pattern_read — NULL, or what is wrong with it. */
const char *pattern_read(MxArena *arena, const char *text, Pattern *out);

#endif
