/* reasoning.h — the text that a model writes before its answer, to reason, between marks of its
 * own (reasoning.c). */
#ifndef SERVE_REASONING_H
#define SERVE_REASONING_H

#include <mx/text.h>

/* How a model marks it. */
typedef struct Reasoning Reasoning;

/* Where an answer is. */
typedef enum ReasoningState {
    REASONING_OVER, /* there is none, or no more: the rest is the answer's text */
    REASONING_MAY,  /* it may begin */
    REASONING_IN,
} ReasoningState;

/* What an answer's text has been read as so far. */
typedef struct Reasoned {
    const Reasoning *how; /* NULL = the model does not reason */
    ReasoningState state;
    MxText text;
} Reasoned;

/* Text that has not been read yet. */
typedef struct Rest {
    const char *at, *end;
    bool is_over; /* nothing follows */
} Rest;

/* reasoning_of — the marks that a text has, which a chat template wrote; NULL = none that are
 * known. reasoning_name — of the row, for messages. reasoning_mark — text i that may be a special
 * token, NULL after the last. */
const Reasoning *reasoning_of(const char *text);
const char *reasoning_name(const Reasoning *how);
const char *reasoning_mark(const Reasoning *how, int i);
/* reasoning_state — where an answer begins, by the end of its prompt's text: templates open the
 * reasoning, or close it where it is not wanted. */
ReasoningState reasoning_state(const Reasoning *how, const char *prompt, size_t n);

/* reasoning_init. reasoning_read — reads on in the text, as far as it tells what it is; returns
 * false until the reasoning is over. Spaces at its ends are not of it. Pieces of any size make the
 * same. Test: tests/serve/test_reasoning.c. */
void reasoning_init(Reasoned *out, MxArena *arena, const Reasoning *how, ReasoningState state);
bool reasoning_read(Reasoned *out, Rest *rest);

/* What stands around it, and, in answers that are held to a grammar, between its end and the
 * answer, and before an answer that is no call. */
struct Reasoning {
    const char *name, *sign; /* sign: what tells that a template has it; NULL = either mark */
    const char *begin, *end;
    const char *next, *lead;
    const char *marks[6];
};

#endif
