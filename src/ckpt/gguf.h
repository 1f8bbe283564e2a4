/* gguf.h — shared by the files that write GGUF. */
#ifndef CKPT_GGUF_H
#define CKPT_GGUF_H

#include "hf_make.h"

#include <mx/ckpt_gguf.h>
#include <mx/store_gguf.h>

/* One of the file: all experts' matrices, or one tensor of Hugging Face's. */
typedef struct GgufOutput {
    MxGgufArray array;
    HfItem **items; /* [n]; 0 = the numbers that a rotation is stretched by */
    int n;
    uint64_t hash; /* of its bytes */
} GgufOutput;

typedef struct GgufArch GgufArch; /* gguf.c */

typedef struct GgufExport {
    HfMaker made;
    const MxGgufExport *how;
    const GgufArch *arch;
    MxGguf facts;
    GgufOutput *outputs; /* [n] */
    int n;
    const float *stretch; /* of the rotation, one a pair */
    uint8_t *encoded;     /* a piece */
} GgufExport;

/* gguf_write — the file, and reads it back if that is asked for (gguf_write.c). */
bool gguf_write(GgufExport *x, const char *path);

/* gguf_add_vocabulary — the facts of a tokenizer for a model of so many ids (gguf_vocabulary.c).
 * notes receives a line. */
bool gguf_add_vocabulary(MxArena *arena, const MxGgufTokenizer *tokenizer, int64_t n, MxGguf *out,
                         MxText *notes, MxError *err);

#endif
