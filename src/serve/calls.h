/* calls.h — what an answer's text is: reasoning, content, and calls of tools (calls.c), in the
 * formats of models (call_formats.c); and grammars that hold answers to them (call_guide.c). */
#ifndef SERVE_CALLS_H
#define SERVE_CALLS_H

#include <mx/generate_reasoning.h>

/* A format in which models write calls. */
typedef struct CallFormat CallFormat;

/* How calls are written by an answer that must have them: % is the function, # a number. */
typedef struct CallWriting {
    const char *begin, *head, *tail, *between, *end; /* between NULL: there is one call */
    const MxGrammarValues *arguments;                /* NULL = JSON */
} CallWriting;

typedef struct Call {
    const char *name, *arguments; /* arguments: a text of JSON, or its beginning */
    size_t n_arguments;           /* bytes */
} Call;

/* What an answer's text has been read as so far. */
typedef struct Calls {
    MxArena *arena;
    const CallFormat *format; /* NULL = there are no calls to read */
    const MxJson *tools; /* their list, whose schemas tell types where the text does not; or NULL */
    int64_t most;        /* further calls are dropped */
    MxText text;         /* all of it */
    size_t done;         /* bytes that have been read */
    bool is_behind;      /* nothing but spaces since a call, or since the reasoning */
    MxReasoned reasoned; /* what comes first */
    MxText content;      /* what is no call */
    Call *call;          /* [n + n_open] */
    int64_t n, n_open, cap; /* the open ones are not complete: their arguments grow */
    MxArena opened;         /* holds them until the next piece */
} Calls;

/* calls_format_of — the format in which a text has a call of the function `name`; NULL = in none.
 * calls_format_at — format i, NULL behind the last. calls_format_name — its name. calls_mark — text
 * i that calls of a format are marked with, NULL after the last: it may be a special token. */
const CallFormat *calls_format_of(const char *text, const char *name);
const CallFormat *calls_format_at(int i);
const char *calls_format_name(const CallFormat *format);
const char *calls_mark(const CallFormat *format, int i);
/* calls_is_all — whether text that is no call, too, is written in the format. */
bool calls_is_all(const CallFormat *format);

/* calls_writing — how the format's calls are written, with the spaces that a text has in one of the
 * function `name`, which a template wrote; NULL = they are not found in it, or there are none.
 * Test: tests/serve/test_calls.c. */
const CallWriting *calls_writing(MxArena *arena, const CallFormat *format, const char *text,
                                 const char *name);

/* calls_init — without text. calls_add — n more bytes, the last of it if it is over; what may
 * become a call is content only when it has turned out to be none. Once its name and the beginning
 * of its arguments are there, it is one, also if it is cut off. Pieces of any size make the same.
 * calls_release — frees what is not in the arena. Test: tests/serve/test_calls.c,
 * tests/fuzz/calls.c. */
typedef struct CallReading {
    const CallFormat *format;
    const MxJson *tools;
    int64_t most;
    const MxReasoning *reasoning; /* NULL = the model does not reason */
    MxReasoningState state;       /* at the beginning */
} CallReading;

void calls_init(Calls *calls, MxArena *arena, CallReading how);
void calls_add(Calls *calls, const char *text, size_t n, bool is_over);
void calls_release(Calls *calls);
/* calls_are_all — whether there is nothing but spaces beside them. calls_id — the id that a
 * format's calls have, in the arena; NULL = any. */
bool calls_are_all(const Calls *calls);
const char *calls_id(MxArena *arena, const Calls *calls, int64_t i);

/* ---- what answers may be */

typedef enum CallChoice { CALLS_FREE, CALLS_NEEDED } CallChoice;

typedef struct CallRules {
    const CallFormat *format;  /* NULL = there are no tools */
    const CallWriting *writes; /* NULL = as the format says */
    const MxVocabulary *vocabulary;
    const MxJson *tools; /* NULL = none */
    CallChoice choice;
    const char *name;             /* of the one function that may be called; NULL = any */
    bool has_one;                 /* no more than one call */
    const MxJson *schema;         /* of an answer without calls; NULL = any text */
    const MxReasoning *reasoning; /* before the answer; NULL = none */
    MxReasoningState state;
} CallRules;

/* calls_grammar — the answers that rules allow. Errors: as mx_grammar_schema. Test:
 * tests/serve/test_calls.c. */
bool calls_grammar(MxArena *arena, const CallRules *rules, MxGrammar **out, MxError *err);

#endif
