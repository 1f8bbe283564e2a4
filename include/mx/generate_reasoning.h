/* generate_reasoning.h — the text that a model writes before its answer, to reason, between marks
 * of its own: which they are, what of a text it is, and grammars of answers with it before them. */
#ifndef MX_GENERATE_REASONING_H
#define MX_GENERATE_REASONING_H

#include <mx/chat.h>
#include <mx/guide.h>

/* ---- text that comes in pieces */

/* What has not been read yet. */
typedef struct MxRest {
    const char *at, *end;
    bool is_over; /* nothing follows */
} MxRest;

/* What is found there. */
typedef enum MxFound { MX_FOUND_NONE, MX_FOUND_CALL, MX_FOUND_PART /* may become it */ } MxFound;

/* mx_rest_skip — whether a text stands here, which is then skipped; MX_FOUND_PART: its beginning,
 * at the end. mx_rest_skip_spaces. mx_is_space. */
MxFound mx_rest_skip(MxRest *rest, const char *text);
void mx_rest_skip_spaces(MxRest *rest);
bool mx_is_space(char c);

/* mx_mark_token — the token that a mark is, -1 = none. mx_mark_hidden — the same, if it is a
 * special token, whose text replies do not have unless it is shown (MxGenerate.shown). */
int32_t mx_mark_token(const MxTokenizer *tokenizer, const char *mark);
int32_t mx_mark_hidden(const MxTokenizer *tokenizer, const char *mark);

/* ---- reasoning */

/* How a model marks it. */
typedef struct MxReasoning MxReasoning;

/* Where an answer is. */
typedef enum MxReasoningState {
    MX_REASONING_OVER, /* there is none, or no more: the rest is the answer's text */
    MX_REASONING_MAY,  /* it may begin */
    MX_REASONING_IN,
} MxReasoningState;

/* What an answer's text has been read as so far. */
typedef struct MxReasoned {
    const MxReasoning *how; /* NULL = the model does not reason */
    MxReasoningState state;
    MxText text;
} MxReasoned;

/* mx_reasoning_of — whose marks a text has; NULL = none that are known, or there is no text.
 * mx_reasoning_find — those that a chat template writes around reasoning, or opens or closes for an
 * answer. mx_reasoning_name — of the row, for messages. mx_reasoning_mark — text i that may be a
 * special token, NULL after the last. */
const MxReasoning *mx_reasoning_of(const char *text);
const MxReasoning *mx_reasoning_find(const MxChat *chat);
const char *mx_reasoning_name(const MxReasoning *how);
const char *mx_reasoning_mark(const MxReasoning *how, int i);
/* mx_reasoning_state — where an answer begins, by the end of its prompt's text: templates open the
 * reasoning, or close it where it is not wanted. */
MxReasoningState mx_reasoning_state(const MxReasoning *how, const char *prompt, size_t n);

/* mx_reasoning_init. mx_reasoning_read — reads on in the text, as far as it tells what it is;
 * returns false until the reasoning is over. Spaces at its ends are not of it. Pieces of any size
 * make the same. Test: tests/serve/test_reasoning.c. */
void mx_reasoning_init(MxReasoned *out, MxArena *arena, const MxReasoning *how,
                       MxReasoningState state);
bool mx_reasoning_read(MxReasoned *out, MxRest *rest);

/* mx_reasoning_write — paths of the reasoning before an answer, of any length, as `state` has it;
 * returns the state where the answer begins. mx_reasoning_lead — of what stands before an answer
 * that is no call. Test: tests/serve/test_reasoning.c. */
int32_t mx_reasoning_write(MxGrammar *grammar, MxArena *arena, const MxVocabulary *vocabulary,
                           const MxReasoning *how, MxReasoningState state, int32_t from);
int32_t mx_reasoning_lead(MxGrammar *grammar, MxArena *arena, const MxVocabulary *vocabulary,
                          const MxReasoning *how, int32_t from);

#endif
