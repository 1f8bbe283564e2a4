/* mxconvert_options.c — the converter's command line. */
#include "mxconvert.h"

#include <math.h>
#include <stddef.h>

static const MxManual manual = {
    .program = "mxconvert",
    .does = "write a checkpoint in another layout",
    .synopsis = "[OPTION]... SRC DST",
    .intro = "Writes a checkpoint in another layout: parameters, optimizer state, step and "
             "everything else.\n\nSRC is a checkpoint folder, a run's folder (its newest "
             "checkpoint), or FILE.h5[:GROUP], with MaxText's Linen or NNX names, scanned or not; "
             "the layout is detected. It may also be a Hugging Face folder (config.json, "
             "model.safetensors or shards); then the config to train with, model.yml, is written "
             "to DST (for FILE.h5: FILE.yml beside it). DST is a checkpoint folder, or one file if "
             "it ends in .h5 or, with --to-gguf, in .gguf; it appears complete or not at all.",
    .notes =
        (const MxManualRow[]){
            {"Exit codes", "0 done, 2 command line, 65 bad input file, 73/74/77 could not create, "
                           "read or write, 130/143 interrupted; DST is then unchanged."},
            {0}},
};

/* ---- operations */

enum { LAYOUT = 1, DTYPE = 2, SPEED = 4, FACTS = 8, CONFIG = 16, SHARDS = 32, DRY = 64 };

/* Options that say what the result holds, by bit. */
enum { MERGES = 1, EXTRACTS = 2, TO_PEFT = 4, TO_HF = 8, QUANTIZES = 16, TO_GGUF = 32 };
static const struct {
    const char *option;
    size_t flag; /* in CommandLine */
} asks[] = {
    {"--merge-lora", offsetof(CommandLine, merges)},
    {"--extract-lora", offsetof(CommandLine, extracts)},
    {"--to-peft", offsetof(CommandLine, to_peft)},
    {"--to-hf", offsetof(CommandLine, to_hf)},
    {"--quantize", offsetof(CommandLine, quantizes)},
    {"--to-gguf", offsetof(CommandLine, to_gguf)},
};

/* What may be asked for together, and which options have a meaning then. */
static const struct {
    int asks;
    const char *words;
    MxAdapters adapters;
    int takes;
} operations[] = {
    {0, "a conversion that leaves adapters as they are", MX_ADAPTERS_STAY,
     LAYOUT | DTYPE | SPEED | DRY},
    {MERGES, "--merge-lora, whose result is float32", MX_ADAPTERS_MERGED,
     LAYOUT | SPEED | FACTS | CONFIG | DRY},
    {MERGES | TO_HF, "--merge-lora with --to-hf", MX_ADAPTERS_MERGED,
     DTYPE | FACTS | CONFIG | SHARDS},
    {EXTRACTS, "--extract-lora", MX_ADAPTERS_ALONE, LAYOUT | DTYPE | SPEED | DRY},
    {TO_PEFT, "--to-peft", MX_ADAPTERS_STAY, FACTS | CONFIG | DRY},
    {TO_HF, "--to-hf", MX_ADAPTERS_STAY, DTYPE | CONFIG | SHARDS | DRY},
    {TO_GGUF, "--to-gguf", MX_ADAPTERS_STAY, DTYPE | CONFIG | DRY},
    {MERGES | TO_GGUF, "--merge-lora with --to-gguf", MX_ADAPTERS_MERGED, DTYPE | FACTS | CONFIG},
    {QUANTIZES, "--quantize", MX_ADAPTERS_STAY, LAYOUT | SPEED | CONFIG | DRY},
};

/* The operation that does all that is asked for; -1 = none. */
static int find_operation(int asked) {
    int i = MX_COUNT(operations) - 1;
    while (i >= 0 && operations[i].asks != asked) i--;
    return i;
}

/* Two options that no operation does both of; one is there. */
static bool tell_exclusion(int asked, MxError *err) {
    for (int i = 0; i < MX_COUNT(asks); i++)
        for (int k = i + 1; k < MX_COUNT(asks); k++) {
            int both = 1 << i | 1 << k;
            if ((asked & both) == both && find_operation(both) < 0)
                return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "%s and %s exclude each other",
                               asks[i].option, asks[k].option);
        }
    MX_ASSERT(false);
    return false;
}

static bool choose_operation(CommandLine *line, MxError *err) {
    const struct {
        const char *option;
        bool is_given;
        int kind;
    } given[] = {
        {"--layout", line->layout, LAYOUT},
        {"--scan-layers", line->scan, LAYOUT},
        {"--param-scan-axis", line->scan_axis, LAYOUT},
        {"--decoder-block", line->decoder_block, LAYOUT},
        {"--layer-cycle", line->cycle, LAYOUT},
        {"--dtype", line->dtype, DTYPE},
        {"--benchmark", line->benchmark, SPEED},
        {"--base", line->base, FACTS},
        {"--config", line->config, CONFIG},
        {"--shard-bytes", line->shard_text, SHARDS},
        {"--lora-alpha", line->alpha_text, FACTS},
        {"--dry-run", line->dry_run, DRY},
    };
    int asked = 0;
    for (int i = 0; i < MX_COUNT(asks); i++)
        asked |= (int)*(const bool *)((const char *)line + asks[i].flag) << i;
    int chosen = find_operation(asked);
    if (chosen < 0) return tell_exclusion(asked, err);
    for (int i = 0; i < MX_COUNT(given); i++)
        if (given[i].is_given && !(given[i].kind & operations[chosen].takes))
            mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "%s does not go with %s", given[i].option,
                    operations[chosen].words);
    line->how.adapters = operations[chosen].adapters;
    return !err->count;
}

static void read_alpha(CommandLine *line, MxError *err) {
    if (!mx_option_number("--lora-alpha", line->alpha_text, 0, INFINITY, &line->alpha, err) ||
        !line->alpha_text)
        return;
    if (!(line->alpha > 0 && isfinite(line->alpha)))
        mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "--lora-alpha: found \"%s\", wanted more than 0",
                line->alpha_text);
}

/* ---- the command line */

/* Texts to what they mean. */
static bool understand(CommandLine *line, MxError *err) {
    MxConvert *how = &line->how;
    bool scan = false;
    int64_t axis = -1, cycle = 0;
    *how = (MxConvert){.layout = line->layout,
                       .params_only = line->params_only,
                       .verifies = line->verifies && !line->benchmark,
                       .restack.decoder_block = line->decoder_block};
    if (line->layout && strcmp(line->layout, "linen") && strcmp(line->layout, "nnx"))
        mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "--layout: found \"%s\", wanted linen or nnx",
                line->layout);
    if (line->dtype) {
        const int n = line->to_gguf ? MX_GGUF_TYPES : MX_GGUF_F16; /* other forms have the first */
        for (line->kind = 0; (int)line->kind < n; line->kind++)
            if (!strcmp(mx_gguf_types[line->kind].name, line->dtype)) break;
        how->casts = (int)line->kind < n;
        if (how->casts)
            how->param_dtype = mx_gguf_types[line->kind].from;
        else
            mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "--dtype: found \"%s\", wanted %s",
                    line->dtype,
                    line->to_gguf ? "float32, bfloat16, float16 or q8_0" : "float32 or bfloat16");
    }
    MxQtype type;
    line->quantizes = line->quantize != NULL;
    if (line->quantize &&
        !(mx_qtype_parse(line->quantize, &type) && mx_qtypes[type].is_of_weights)) {
        MxArena arena = {.name = "types"};
        mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "--quantize: found \"%s\", wanted one of %s",
                line->quantize, mx_qtype_list(&arena));
        mx_arena_release(&arena);
    }
    mx_option_bool("--scan-layers", line->scan, &scan, err);
    mx_option_int("--param-scan-axis", line->scan_axis, 0, MX_MAX_RANK - 1, &axis, err);
    mx_option_int("--layer-cycle", line->cycle, 1, 64, &cycle, err);
    line->shard_bytes = 5000000000; /* as save_pretrained's "5GB" */
    mx_option_int("--shard-bytes", line->shard_text, 1, INT64_MAX, &line->shard_bytes, err);
    how->scan = line->scan ? scan : -1;
    how->scan_axis = (int)axis;
    how->restack.cycle = (int)cycle;
    read_alpha(line, err);
    choose_operation(line, err);
    if (line->merges && !line->to_hf && !line->to_gguf) {
        how->casts = true;
        how->param_dtype = MX_F32;
    }
    if (line->benchmark && line->force)
        mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "--benchmark removes DST: it cannot --force one");
    if (!line->target && !line->dry_run && !err->count)
        mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "wanted SRC and DST; mxconvert --help tells more");
    return !err->count;
}

enum { MOST_OPTIONS = 32 };

/* What the arrays become. Returns how many. */
static int array_options(CommandLine *line, MxOption *out) {
    const MxOption rows[] = {
        {.name = "--layout",
         .is_main = true,
         .value = &line->layout,
         .takes = "linen|nnx",
         .doc = "names of the result (default: as in SRC). Linen checkpoints contain no reference "
                "model"},
        {.name = "--scan-layers",
         .is_main = true,
         .value = &line->scan,
         .takes = "true|false",
         .doc = "layers stacked in one array, or separate (default: as in SRC)"},
        {.name = "--param-scan-axis",
         .value = &line->scan_axis,
         .takes = "N",
         .doc = "the dim along which layers are stacked (default: as in SRC, or 1)"},
        {.name = "--decoder-block",
         .value = &line->decoder_block,
         .takes = "NAME",
         .doc = "family of decoders, if SRC does not show the pattern in which its layers repeat"},
        {.name = "--layer-cycle",
         .value = &line->cycle,
         .takes = "N",
         .doc = "number of layers in that pattern, if it is not the family's usual number"},
        {.name = "--images",
         .flag = &line->sees,
         .doc = "also convert the image encoder of a Hugging Face model, and the audio encoder "
                "beside it, not only its text model"},
        {.name = "--params-only",
         .is_main = true,
         .flag = &line->params_only,
         .doc = "only the parameters"},
        {.name = "--quantize",
         .is_main = true,
         .value = &line->quantize,
         .takes = "TYPE",
         .doc = "store kernels of layers as codes of 4 or 8 bits with a scale for each block of "
                "64, as lora.lora_weight_qtype does: nf4, int8, int4, float8_e4m3fn, float8_e5m2; "
                "with blocks of 32: mxfp8, mxfp4; of 16: nvfp4"},
        {.name = "--merge-lora",
         .is_main = true,
         .flag = &line->merges,
         .doc = "merge adapters into the weights: only the parameters W + A B alpha / rank, with "
                "magnitudes scaled to them, in float32"},
        {.name = "--extract-lora", .flag = &line->extracts, .doc = "only the adapters"},
    };
    memcpy(out, rows, sizeof rows);
    return MX_COUNT(rows);
}

/* What is written, and from what. Returns how many. */
static int file_options(CommandLine *line, MxOption *out) {
    const MxOption rows[] = {
        {.name = "--to-peft",
         .is_main = true,
         .flag = &line->to_peft,
         .doc = "write SRC's adapters as a folder for Hugging Face's peft"},
        {.name = "--to-hf",
         .is_main = true,
         .flag = &line->to_hf,
         .doc = "write a Hugging Face folder: config.json, model.safetensors; of a run with "
                "adapters together with --merge-lora"},
        {.name = "--to-gguf",
         .is_main = true,
         .flag = &line->to_gguf,
         .doc = "write a GGUF file for llama.cpp: DST ends in .gguf; of a run with adapters "
                "together with --merge-lora"},
        {.name = "--shard-bytes",
         .value = &line->shard_text,
         .takes = "N",
         .doc =
             "maximum number of bytes of tensors in a file of that folder (default: 5000000000)"},
        {.name = "--base",
         .value = &line->base,
         .takes = "REF",
         .doc = "the weights below the adapters (default: the load_parameters_path in SRC's "
                "config); for --to-peft the name in peft's config"},
        {.name = "--config",
         .value = &line->config,
         .takes = "FILE",
         .doc = "config of the run (FILE.yml), if SRC does not contain it; for --to-hf also "
                "FILE.json, a config.json that is copied to DST"},
        {.name = "--lora-alpha",
         .value = &line->alpha_text,
         .takes = "X",
         .doc = "lora.lora_alpha, if no config contains it"},
        {.name = "--dtype",
         .is_main = true,
         .value = &line->dtype,
         .takes = "float32|bfloat16",
         .doc = "dtype of the parameters; the optimizer's state keeps its own; with --to-gguf "
                "also float16 or q8_0"},
        {.name = "--assume-bfloat16",
         .flag = &line->assumes_bf16,
         .doc = "treat SRC's uint16 arrays as bfloat16, although no attribute says so"},
    };
    memcpy(out, rows, sizeof rows);
    return MX_COUNT(rows);
}

/* How it is written. Returns how many. */
static int write_options(CommandLine *line, MxOption *out) {
    const MxOption rows[] = {
        {.name = "--dry-run",
         .is_main = true,
         .flag = &line->dry_run,
         .doc = "print how each array would be converted, and exit"},
        {.name = "--verify",
         .flag = &line->verifies,
         .doc = "read DST back and compare every bit (default)"},
        {.name = "--no-verify",
         .flag = &line->verifies,
         .clears = true,
         .doc = "do not read DST back"},
        {.name = "--force",
         .is_main = true,
         .flag = &line->force,
         .doc = "replace DST if it exists; of a folder, the files in its manifest"},
        {.name = "--benchmark",
         .flag = &line->benchmark,
         .doc = "write DST, read it, print the speed, remove it (instead of --verify; not with "
                "--force)"},
    };
    memcpy(out, rows, sizeof rows);
    return MX_COUNT(rows);
}

bool mxconvert_options(int argc, char **argv, MxArena *arena, CommandLine *line, MxError *err) {
    MxOption options[MOST_OPTIONS];
    int n = array_options(line, options);
    n += file_options(line, options + n);
    n += write_options(line, options + n);
    MX_ASSERT(n <= MOST_OPTIONS);
    const char **rest = mx_new_n(arena, const char *, argc + 1);
    const MxOptions table = {.rows = options, .n = n, .manual = &manual};
    if (!mx_options_read(table, argc, argv, rest, err)) return false;
    line->source = rest[0];
    line->target = rest[0] ? rest[1] : NULL;
    if (line->target && rest[2])
        return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "\"%s\" is one argument too many", rest[2]);
    if (!line->source)
        return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE,
                       "wanted SRC and DST; mxconvert --help tells more");
    return understand(line, err);
}
