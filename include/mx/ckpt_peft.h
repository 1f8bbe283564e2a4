/* ckpt_peft.h — adapters in PEFT's files. Part of ckpt.h. */
#ifndef MX_CKPT_PEFT_H
#define MX_CKPT_PEFT_H

#include <mx/ckpt.h>

/* mx_peft_is_dir — whether a folder holds adapter_config.json. */
bool mx_peft_is_dir(const char *dir);
/* mx_peft_load — fills the adapters of a tree from adapter_config.json and
 * adapter_model.safetensors.
 *   scale  alpha / rank of the model, which the files' must be (alpha / sqrt(rank) under
 * use_rslora) Errors: every tensor that is missing, mis-shaped or for a module without adapters,
 * one line each; another scale; what is not LoRA alone (DoRA, biases, ranks by module …). Source:
 * peft 0.21.2, src/peft/tuners/lora. */
bool mx_peft_load(const char *dir, const MxHeadForm *heads, double scale, MxTree *state,
                  MxError *err);
/* The adapters of a checkpoint of any layout as a folder of PEFT's. */
typedef struct MxPeftConvert {
    MxHeadForm heads; /* width 0 = not known */
    double alpha;     /* 0 = not known */
    const char *base; /* base_model_name_or_path */
    bool verifies;    /* read the tensors back and compare every bit */
} MxPeftConvert;

/* mx_peft_convert — writes both files into a folder; NULL = only tells what would be in it, one
 * line an array.
 *   notes  receives what was found, in lines
 * Errors: no adapters; ranks that differ; alpha not known; an adapter that PEFT has no name for;
 * I/O. */
bool mx_peft_convert(const MxCkptRef *from, const MxPeftConvert *how, const char *dir,
                     MxText *notes, MxError *err);

#endif
