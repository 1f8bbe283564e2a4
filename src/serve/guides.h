/* guides.h — guides that several requests use (guides.c). */
#ifndef SERVE_GUIDES_H
#define SERVE_GUIDES_H

#include <mx/guide.h>

/* A guide and who uses it. */
typedef struct Guided {
    MxArena arena;
    const char *key; /* a text that tells the grammar */
    MxGuide *guide;  /* NULL = none yet, or there was an error */
    int64_t n_users;
    uint64_t used; /* when, among all uses */
} Guided;

enum { GUIDES_KEPT = 8 };

typedef struct Guides {
    Guided kept[GUIDES_KEPT];
    uint64_t n_uses;
} Guides;

/* guides_find — the one with a key, for one more user; NULL = there is none. guides_new — an empty
 * one, whose guide the caller makes in its arena; NULL = all are in use. guides_leave — a user of
 * one of both needs it no more. */
void guides_init(Guides *guides);
void guides_release(Guides *guides);
Guided *guides_find(Guides *guides, const char *key);
Guided *guides_new(Guides *guides, const char *key);
void guides_leave(Guided *guided);

#endif
