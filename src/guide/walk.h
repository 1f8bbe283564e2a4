/* walk.h — which states of a grammar a text may be in (walk.c). */
#ifndef GUIDE_WALK_H
#define GUIDE_WALK_H

#include "internal.h"

/* A state, and the rules that it is in: what they return to. */
typedef struct Place {
    int32_t state, frame;
} Place;

typedef struct Frame {
    int32_t to, below, depth;
} Frame;

/* All places where a text may be. */
typedef struct Node {
    Place *place; /* [n] in order */
    int32_t n;
    int32_t *next;       /* [256] nodes by byte, 0 = not known; NULL = none is known */
    const uint64_t *may; /* tokens that may come, a bit each; NULL = not known */
    int32_t plain;       /* see MxGrammar.plain */
    bool may_end, must_end;
} Node;

enum { WALK_REFUSED = -1, WALK_START = 1, WALK_MOST_PLACES = 1024 };

/* An index of items by their hash: numbers from 1, 0 = none. */
typedef struct Table {
    int32_t *slot; /* [cap] */
    int64_t cap, n;
} Table;

typedef struct Walk {
    MxArena arena; /* all that may be forgotten */
    const MxGrammar *grammar;
    Node *node; /* [n_nodes] number 0 is none, 1 the beginning */
    int32_t n_nodes, cap_nodes;
    Frame *frame; /* [n_frames] number 0 is none */
    int32_t n_frames, cap_frames;
    Table nodes, frames, seen;
    Place *work; /* [WALK_MOST_PLACES] */
    int32_t n_work;
    uint64_t n_steps; /* places looked at so far */
} Walk;

/* walk_begin — forgets all, and finds the beginning. walk_next — where a byte leads; WALK_REFUSED:
 * nowhere. walk_once — the same without keeping where it led, for places that are not looked at
 * again. Of more than WALK_MOST_PLACES places, the others are left out: texts that only they
 * would allow do not come. */
void walk_begin(Walk *walk, const MxGrammar *grammar);
int32_t walk_next(Walk *walk, int32_t node, uint8_t byte);
int32_t walk_once(Walk *walk, int32_t node, uint8_t byte);

#endif
