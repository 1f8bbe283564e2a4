/* mxconvert.h — shared by the files of mxconvert: the command line, and the facts about a
 * conversion before a child process makes it. */
#ifndef TOOLS_MXCONVERT_H
#define TOOLS_MXCONVERT_H

#include <mx/ckpt.h>
#include <mx/ckpt_gguf.h>
#include <mx/config.h>
#include <mx/model.h>

typedef struct CommandLine {
    const char *source, *target;
    const char *layout, *scan, *scan_axis, *dtype, *decoder_block, *cycle;
    const char *base, *config, *alpha_text, *shard_text, *quantize;
    bool params_only, dry_run, verifies, force, benchmark;
    bool quantizes, merges, extracts, to_peft, to_hf, to_gguf, assumes_bf16, sees;
    int64_t shard_bytes;
    double alpha;    /* 0 = not said */
    MxGgufKind kind; /* of dtype, if there is one */
    MxConvert how;
} CommandLine;

typedef struct Work {
    CommandLine *line;
    MxCkptRef from, base;
    MxCkptOutput *output;
    bool is_between; /* the result is not what is asked for, and is not told */
    MxPeftConvert peft;
    MxHfExport hf;
    const char *remark; /* on where config.json comes from, a line; NULL = nothing is to be said */
} Work;

/* mxconvert_options — the command line, into what it means. Errors: what cannot be understood, or
 * does not go together. */
bool mxconvert_options(int argc, char **argv, MxArena *arena, CommandLine *line, MxError *err);

/* mxconvert_adapters — what adapters need to be merged or exported; mxconvert_model — what an
 * export to Hugging Face needs to know of the model. From the config of the run, the command line,
 * and config.json. Errors: they do not tell it, or contradict one another. */
bool mxconvert_adapters(Work *work, MxArena *arena, MxError *err);
bool mxconvert_model(Work *work, MxArena *arena, MxError *err);
/* mxconvert_names_json — whether --config names a config.json, no config of ours. */
bool mxconvert_names_json(const CommandLine *line);
/* mxconvert_quantized — which parameters --quantize writes in few bits: those that a run keeps so
 * under lora.lora_weight_qtype. Errors: the model is not known; its shapes do not allow it. */
bool mxconvert_quantized(Work *work, MxArena *arena, MxError *err);

#endif
