/* text.h — text to token ids and back. One tokenizer so far: a byte is a token. */
#ifndef MX_TEXT_H
#define MX_TEXT_H

#include <mx/base.h>

typedef struct MxTokenizer MxTokenizer;

/* Token ids; in the arena that the function which made them was given. */
typedef struct MxTokens {
    int32_t *ids; /* [n] */
    int64_t n;
} MxTokens;

/* mx_tokenizer_open — a tokenizer by type name ("byte": ids 0..255 are bytes, bos 256, eos 257).
 *   path  file or folder that describes it; "" or NULL where the type needs none
 * Errors: unrecognized type, with the nearest name. */
bool mx_tokenizer_open(MxArena *arena, const char *type, const char *path, MxTokenizer **out,
                       MxError *err);
const char *mx_tokenizer_type(const MxTokenizer *tokenizer);
/* Ids are below mx_tokenizer_vocab; an id that the tokenizer lacks is -1. */
int32_t mx_tokenizer_vocab(const MxTokenizer *tokenizer);
int32_t mx_tokenizer_bos(const MxTokenizer *tokenizer);
int32_t mx_tokenizer_eos(const MxTokenizer *tokenizer);

/* mx_tokenizer_encode — the ids of n bytes of UTF-8, without bos and eos. */
MxTokens mx_tokenizer_encode(MxArena *arena, const MxTokenizer *tokenizer, const char *text,
                             size_t n);
/* mx_tokenizer_decode — the text of n ids, terminated; bos, eos and ids out of range give nothing.
 * Pieces of cut characters stay as they are. */
char *mx_tokenizer_decode(MxArena *arena, const MxTokenizer *tokenizer, const int32_t *ids,
                          int64_t n);

#endif
