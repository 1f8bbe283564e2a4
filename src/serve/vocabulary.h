/* vocabulary.h — the bytes of each token, and which tokens may come next in the text of a JSON
 * object (vocabulary.c). */
#ifndef SERVE_VOCABULARY_H
#define SERVE_VOCABULARY_H

#include "json_text.h"

#include <mx/text.h>

typedef struct Vocabulary Vocabulary;

/* vocabulary_new — of a tokenizer, but for special tokens and [n_ends] others. vocabulary_limit —
 * sets logits [vocab] of tokens that cannot come next to -INFINITY; false = none can.
 * vocabulary_add — a token that came; returns whether the object is complete. */
const Vocabulary *vocabulary_new(MxArena *arena, const MxTokenizer *tokenizer, const int32_t *ends,
                                 int n_ends);
bool vocabulary_limit(const Vocabulary *vocabulary, const JsonText *text, float *logits,
                      int64_t vocab);
bool vocabulary_add(const Vocabulary *vocabulary, JsonText *text, int32_t id);

#endif
