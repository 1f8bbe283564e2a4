/* held.h — replies on stdout that are held to a JSON schema, behind the reasoning of models whose
 * chat template marks it (held.c). */
#ifndef GENERATE_HELD_H
#define GENERATE_HELD_H

#include <mx/generate.h>
#include <mx/generate_reasoning.h>

typedef struct Held {
    MxArena *arena;
    const MxTokenizer *tokenizer;
    const MxReasoning *reasoning; /* NULL = none that is known */
    const MxJson *schema;
    const char *name; /* of the schema, for messages */
    MxVocabulary *vocabulary;
    MxGuide *guide[MX_REASONING_IN + 1]; /* by where a reply begins; NULL = none so far */
} Held;

/* What a reply is so far. */
typedef struct HeldReply {
    MxReasoned reasoned;
    MxText text, answer; /* all of it; what follows the reasoning */
    size_t done;         /* bytes of `text` that have been read */
} HeldReply;

/* held_open — reads a schema; the settings of replies become such that their text has the marks of
 * reasoning. Errors: the file, the schema, no tokenizer. Without a schema the next ones do nothing.
 * held_begin — a reply to a prompt, which gets its guide. held_say — text of it as it is generated,
 * of which the answer goes to stdout (context: the HeldReply). held_take — the text of a reply
 * becomes its answer; streams: what was not told so far goes to stdout. Test: tests/cli/reply.sh.
 */
bool held_open(MxArena *arena, const MxSpeak *what, const char *dir, MxGenerate *how, Held *out,
               MxError *err);
bool held_begin(Held *held, MxArena *arena, MxPrompt *prompt, HeldReply *out, MxError *err);
void held_say(void *reply, const char *text, size_t n);
void held_take(const Held *held, MxArena *arena, const MxPrompt *prompt, bool streams,
               HeldReply *reply, MxReply *out);

#endif
