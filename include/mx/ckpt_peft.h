/* ckpt_peft.h — adapters in PEFT's files. Part of ckpt.h. */
#ifndef MX_CKPT_PEFT_H
#define MX_CKPT_PEFT_H

#include <mx/ckpt.h>

struct MxHfModel; /* mx/ckpt_hf.h */

/* mx_peft_is_dir — whether a folder holds adapter_config.json. */
bool mx_peft_is_dir(const char *dir);
/* mx_peft_load — fills the adapters of a tree, and what is trained as it is beside them, from
 * adapter_config.json and adapter_model.safetensors. A module of less than the model's rank leaves
 * the other ranks of A as they are, with a B of zeros.
 *   model  of a config of ours (mx_hf_of_config)
 *   scale  alpha / rank of the model, which the files' must be (alpha / sqrt(rank) under
 *          use_rslora)
 * Errors: every tensor that is missing, mis-shaped or for a module without adapters, one line each;
 * another scale; more ranks than the model's; adapters of ours that peft has no modules for; what
 * the folder trains as it is and the tree does not, or the other way; members of the config with
 * which peft computes something else. Source: peft 0.21.2, src/peft/tuners/lora. */
bool mx_peft_load(const char *dir, const struct MxHfModel *model, double scale, MxTree *state,
                  MxError *err);
/* mx_peft_dropout — the lora_dropout with which a folder's adapters were trained. Errors: those of
 * its config. */
bool mx_peft_dropout(const char *dir, double *out, MxError *err);

/* The adapters of a checkpoint of any layout as a folder of PEFT's. */
typedef struct MxPeftConvert {
    const struct MxHfModel *model; /* NULL = not known */
    double alpha;                  /* 0 = not known */
    double dropout;                /* with which they were trained */
    const char *base;              /* base_model_name_or_path */
    bool verifies;                 /* read the tensors back and compare every bit */
} MxPeftConvert;

/* mx_peft_convert — writes both files into a folder; NULL = only tells what would be in it, one
 * line an array.
 *   notes  receives what was found, in lines
 * Errors: no adapters; ranks that differ; alpha or the model not known; adapters that PEFT has no
 * modules for; I/O. */
bool mx_peft_convert(const MxCkptRef *from, const MxPeftConvert *how, const char *dir,
                     MxText *notes, MxError *err);

#endif
