/* ckpt_gguf.h — a checkpoint as a GGUF file, for llama.cpp and programs around it
 * (docs/HUGGING_FACE.md). */
#ifndef MX_CKPT_GGUF_H
#define MX_CKPT_GGUF_H

#include <mx/ckpt_hf.h>
#include <mx/store_gguf.h>

#define MX_GGUF_SUFFIX ".gguf"

/* What is known of a tokenizer beside its files. */
typedef struct MxGgufTokenizer {
    const char *dir;            /* where its files are; "" = there is none */
    int32_t bos, eos, unk, pad; /* -1 = it has none */
    bool adds_bos, adds_eos;    /* around a text */
} MxGgufTokenizer;

/* How a checkpoint becomes such a file. */
typedef struct MxGgufExport {
    MxHfExport hf;   /* the model */
    MxGgufKind kind; /* of matrices whose innermost dim its blocks divide, float16 of others;
                        vectors are float32 */
    const char *name;
    MxGgufTokenizer tokenizer;
} MxGgufExport;

/* mx_gguf_export — writes the file, tensor by tensor; NULL = only tells what would be in it, one
 * line a tensor.
 *   notes  receives what was found, in lines
 * Errors: a family, or a way to rotate, to see or to split texts, that llama.cpp lacks; as of
 * mx_hf_export; I/O. Source: llama.cpp conversion/, gguf-py/gguf/ (llama-cpp-python 0.3.36). */
bool mx_gguf_export(const MxCkptRef *from, const MxGgufExport *how, const char *path, MxText *notes,
                    MxError *err);

#endif
