/* calls.h — calls of tools in an answer's text (calls.c). */
#ifndef SERVE_CALLS_H
#define SERVE_CALLS_H

#include <mx/chat.h>

/* A format in which models write calls. */
typedef struct CallFormat CallFormat;

typedef struct Call {
    const char *name, *arguments; /* arguments: a text of JSON */
} Call;

/* What an answer's text has been read as so far. */
typedef struct Calls {
    MxArena *arena;
    const CallFormat *format;
    int64_t most;   /* further calls are dropped */
    MxText text;    /* all of it */
    size_t done;    /* bytes that have been read */
    bool is_behind; /* nothing but spaces since a call */
    MxText content; /* what is no call */
    Call *call;     /* [n] */
    int64_t n, cap;
} Calls;

/* calls_format_of — the format in which a text has a call of the function `name`; NULL = in none.
 * calls_format_name — its name. calls_mark — text i that calls of a format are marked with, NULL
 * after the last: it may be a special token. */
const CallFormat *calls_format_of(const char *text, const char *name);
const char *calls_format_name(const CallFormat *format);
const char *calls_mark(const CallFormat *format, int i);

/* calls_init — without text. calls_add — n more bytes, the last of it if it is over; what may
 * become a call is content only when it has turned out to be none. Pieces of any size make the
 * same. Test: tests/serve/test_calls.c, tests/fuzz/calls.c. */
void calls_init(Calls *calls, MxArena *arena, const CallFormat *format, int64_t most);
void calls_add(Calls *calls, const char *text, size_t n, bool is_over);
/* calls_are_all — whether there is nothing but spaces beside them. */
bool calls_are_all(const Calls *calls);

#endif
