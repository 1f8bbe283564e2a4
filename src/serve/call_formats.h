/* call_formats.h — what the files of calls share: a format's row, and reading of text in pieces. */
#ifndef SERVE_CALL_FORMATS_H
#define SERVE_CALL_FORMATS_H

#include "calls.h"

enum { MOST_MARKS = 8 };

/* How arguments stand between tags. */
typedef struct CallTags {
    const char *begin, *end;                      /* around calls, either may be missing */
    const char *head;                             /* before the name */
    const char *name_ends;                        /* characters, of which '<' is not read */
    const char *head_end;                         /* behind them; NULL = nothing */
    const char *name, *value, *value_end, *close; /* before a name and a value; behind them */
    const char *name_end;
    const char *type_end; /* "true", for a text, or "false" stands before it; NULL = neither */
} CallTags;

/* How calls stand as JSON behind a mark: an object of its name and arguments. */
typedef struct CallObjects {
    const char *begin, *end; /* marks, either may be missing; end NULL = none */
    const char *fence;       /* behind the first; NULL = nothing */
    bool is_list, is_run;    /* is_run: several objects, one behind the other */
    bool is_named;           /* the object's member is the function */
} CallObjects;

/* How calls stand whose arguments are no JSON: NAME open, names and values, close. */
typedef struct CallLiterals {
    const char *begin, *end; /* marks; end NULL = none */
    const char *head;        /* before the name */
    char open, close, behind_name;
    const char *quote; /* around texts and nothing else; NULL = Python's quotes, also around names
                          in objects */
    bool is_list;      /* in brackets, with commas between */
} CallLiterals;

struct CallFormat {
    const char *name;
    const char *sign; /* what templates write at a call's beginning; a space stands for any number
                         of them, and % for the function */
    const char *marks[MOST_MARKS + 1];
    int n_begins;   /* of the marks, the first are those that calls begin with … */
    int n_skipped;  /* … and the next ones only stand around them */
    bool is_whole;  /* nothing but calls may stand before one */
    bool is_all;    /* text that is no call, too, is written in the format */
    char separator; /* between two, beside spaces; 0 = none */
    /* Reads a call, or some, at its mark; `rest` ends up behind it. Those that have begun are open
     * in `calls`. */
    MxFound (*read)(Calls *calls, MxRest *rest);
    const char *form;             /* of calls, for calls_read_form; see there */
    const CallTags *tags;         /* for calls_read_tags */
    const CallObjects *objects;   /* for calls_read_objects */
    const CallLiterals *literals; /* for calls_read_literals */
    const char *id;               /* of calls, by name and number; NULL = any */
    CallWriting writes;           /* as far as the template does not say otherwise */
};

#define DSML                                                                                       \
    "\xef\xbd\x9c"                                                                                 \
    "DSML\xef\xbd\x9c"

/* How arguments are written (call_values.c). */
extern const MxGrammarValues calls_coder, calls_glm, calls_seed, calls_minimax, calls_minicpm,
    calls_dsml, calls_gemma, calls_function_gemma, calls_python;

/* calls_other_format_at — format i of call_formats_other.c. */
const CallFormat *calls_other_format_at(int i);

/* calls_open — a call has begun. calls_open_arguments — what its arguments are so far: bytes that
 * live until the next piece. */
void calls_open(Calls *calls, const char *name, size_t n);
void calls_open_arguments(Calls *calls, const char *arguments, size_t n);

/* calls_at_end — where the text ends: more may come. calls_read_arguments — those of the call that
 * is open: an object, as it is written. calls_is_of_name — whether functions' names may have it. */
MxFound calls_at_end(const MxRest *rest);
MxFound calls_read_arguments(Calls *calls, MxRest *rest);
bool calls_is_of_name(char c);
/* calls_add_value — an argument's text as JSON: a text if the function's schema allows texts, or if
 * it is no JSON. */
void calls_add_value(const Calls *calls, MxText *out, const char *function, const char *name,
                     const char *value, size_t n);

/* calls_literal — a value as Python writes it, as JSON; NULL = it is none. */
const char *calls_literal(MxArena *arena, const char *value, size_t n);

/* Readers of the formats. */
MxFound calls_read_objects(Calls *calls, MxRest *rest);
MxFound calls_read_literals(Calls *calls, MxRest *rest);
MxFound calls_read_named(Calls *calls, MxRest *rest);
MxFound calls_read_form(Calls *calls, MxRest *rest);
MxFound calls_read_tags(Calls *calls, MxRest *rest);
MxFound calls_read_channel(Calls *calls, MxRest *rest);

#endif
