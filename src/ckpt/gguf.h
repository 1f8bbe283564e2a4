/* gguf.h — shared by the files that write GGUF. */
#ifndef CKPT_GGUF_H
#define CKPT_GGUF_H

#include "hf_make.h"

#include <mx/ckpt_gguf.h>
#include <mx/store_gguf.h>

/* gguf_add_vocabulary — the facts of a tokenizer for a model of so many ids (gguf_vocabulary.c).
 * notes receives a line. */
bool gguf_add_vocabulary(MxArena *arena, const MxGgufTokenizer *tokenizer, int64_t n, MxGguf *out,
                         MxText *notes, MxError *err);

#endif
