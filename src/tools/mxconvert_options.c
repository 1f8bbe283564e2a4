/* mxconvert_options.c — the converter's command line. */
#include "mxconvert.h"

#include <math.h>
#include <stddef.h>

static const char usage[] =
    "usage: mxconvert [OPTION]... SRC DST\n"
    "\n"
    "Writes a checkpoint in another layout: parameters, optimizer state, step and all.\n"
    "SRC is a checkpoint folder, a run's folder (its newest checkpoint), or FILE.h5[:GROUP], of\n"
    "MaxText's Linen or NNX names, scanned or not; which is found by looking. It may be a folder\n"
    "of Hugging Face's too (config.json, model.safetensors or shards): llama, mistral, qwen2,\n"
    "qwen3; model.yml is then written in DST (beside FILE.h5: FILE.yml), the config to train "
    "with.\n"
    "DST is a checkpoint folder, or one file if it ends in .h5; it appears complete or not at "
    "all.\n"
    "\n"
    "  --layout linen|nnx        names of the result (default: as SRC). Linen checkpoints hold no\n"
    "                            reference model\n"
    "  --scan-layers true|false  layers stacked in one array, or one by one (default: as SRC)\n"
    "  --param-scan-axis N       the dim in which they are stacked (default: as SRC, or 1)\n"
    "  --decoder-block NAME      family of decoders, where SRC does not show whose layers take "
    "turns\n"
    "  --layer-cycle N           layers that make a block, where it is not the family's usual "
    "number\n"
    "  --params-only             only the parameters\n"
    "  --merge-lora              the parameters alone, W + A B alpha / rank in float32, adapters "
    "gone\n"
    "  --extract-lora            the adapters alone\n"
    "  --to-peft                 DST is a folder of Hugging Face's peft with SRC's adapters\n"
    "  --to-hf                   DST is a folder of Hugging Face's: config.json, "
    "model.safetensors\n"
    "  --shard-bytes N           most bytes of tensors in a file of it (default: 5000000000)\n"
    "  --base REF                the weights below the adapters (default: the "
    "load_parameters_path\n"
    "                            in SRC's config); for --to-peft the name that peft's config "
    "gives\n"
    "  --config FILE.yml         config of the run, where SRC does not hold it; for --to-hf also\n"
    "                            FILE.json, a config.json that DST gets as it is\n"
    "  --lora-alpha X            lora.lora_alpha, where no config tells it\n"
    "  --dtype float32|bfloat16  of the parameters; the optimizer's state keeps its own\n"
    "  --assume-bfloat16         SRC's uint16 arrays are bfloat16, though no attribute says so\n"
    "  --dry-run                 print what would become of each array, and exit\n"
    "  --verify, --no-verify     read DST back and compare every bit (default: --verify)\n"
    "  --force                   replace DST if it exists; of a folder what its manifest lists\n"
    "  --benchmark               write DST, read it, print the speed, remove it\n"
    "                            (instead of --verify; not with --force)\n"
    "  --help, --version\n"
    "\n"
    "Exit codes: 0 done, 2 command line, 65 bad input file, 73/74/77 could not create, read or\n"
    "write, 130/143 interrupted; DST is then as it was.\n";

/* ---- operations */

enum { LAYOUT = 1, DTYPE = 2, SPEED = 4, FACTS = 8, CONFIG = 16, SHARDS = 32 };

/* What the result holds, and which options have a meaning then. */
static const struct {
    const char *option, *words;
    size_t flag; /* in CommandLine; 0 = none of the others */
    MxAdapters adapters;
    int takes;
} operations[] = {
    {"--merge-lora", "--merge-lora, whose result is float32", offsetof(CommandLine, merges),
     MX_ADAPTERS_MERGED, LAYOUT | SPEED | FACTS | CONFIG},
    {"--extract-lora", "--extract-lora", offsetof(CommandLine, extracts), MX_ADAPTERS_ALONE,
     LAYOUT | DTYPE | SPEED},
    {"--to-peft", "--to-peft", offsetof(CommandLine, to_peft), MX_ADAPTERS_STAY, FACTS | CONFIG},
    {"--to-hf", "--to-hf", offsetof(CommandLine, to_hf), MX_ADAPTERS_STAY, DTYPE | CONFIG | SHARDS},
    {NULL, "a conversion that leaves adapters as they are", 0, MX_ADAPTERS_STAY,
     LAYOUT | DTYPE | SPEED},
};

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
    };
    const int none = MX_COUNT(operations) - 1;
    int chosen = none;
    for (int i = 0; i < none; i++) {
        if (!*(const bool *)((const char *)line + operations[i].flag)) continue;
        if (chosen != none)
            return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "%s and %s exclude each other",
                           operations[chosen].option, operations[i].option);
        chosen = i;
    }
    for (int i = 0; i < MX_COUNT(given); i++)
        if (given[i].is_given && !(given[i].kind & operations[chosen].takes))
            mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "%s does not go with %s", given[i].option,
                    operations[chosen].words);
    line->how.adapters = operations[chosen].adapters;
    return !err->count;
}

static void read_alpha(CommandLine *line, MxError *err) {
    if (!mx_option_number("--lora-alpha", line->alpha_text, &line->alpha, err) || !line->alpha_text)
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
        how->casts = mx_dtype_parse(line->dtype, &how->param_dtype) &&
                     (how->param_dtype == MX_F32 || how->param_dtype == MX_BF16);
        if (!how->casts)
            mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE,
                    "--dtype: found \"%s\", wanted float32 or bfloat16", line->dtype);
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
    if (how->adapters == MX_ADAPTERS_MERGED) {
        how->casts = true;
        how->param_dtype = MX_F32;
    }
    if (line->benchmark && line->force)
        mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "--benchmark removes DST: it cannot --force one");
    if (!line->target && !line->dry_run && !err->count)
        mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "wanted SRC and DST; mxconvert --help tells more");
    return !err->count;
}

bool mxconvert_options(int argc, char **argv, MxArena *arena, CommandLine *line, MxError *err) {
    const MxOption options[] = {
        {.name = "--layout", .value = &line->layout, .wants = "linen or nnx"},
        {.name = "--scan-layers", .value = &line->scan, .wants = "true or false"},
        {.name = "--param-scan-axis", .value = &line->scan_axis, .wants = "a dim"},
        {.name = "--decoder-block", .value = &line->decoder_block, .wants = "a family"},
        {.name = "--layer-cycle", .value = &line->cycle, .wants = "a number of layers"},
        {.name = "--params-only", .flag = &line->params_only},
        {.name = "--merge-lora", .flag = &line->merges},
        {.name = "--extract-lora", .flag = &line->extracts},
        {.name = "--to-peft", .flag = &line->to_peft},
        {.name = "--to-hf", .flag = &line->to_hf},
        {.name = "--shard-bytes", .value = &line->shard_text, .wants = "a number of bytes"},
        {.name = "--base", .value = &line->base, .wants = "a checkpoint"},
        {.name = "--config", .value = &line->config, .wants = "a file"},
        {.name = "--lora-alpha", .value = &line->alpha_text, .wants = "a number"},
        {.name = "--dtype", .value = &line->dtype, .wants = "float32 or bfloat16"},
        {.name = "--assume-bfloat16", .flag = &line->assumes_bf16},
        {.name = "--dry-run", .flag = &line->dry_run},
        {.name = "--verify", .flag = &line->verifies},
        {.name = "--no-verify", .flag = &line->verifies, .clears = true},
        {.name = "--force", .flag = &line->force},
        {.name = "--benchmark", .flag = &line->benchmark},
    };
    const char **rest = mx_new_n(arena, const char *, argc + 1);
    const MxOptions table = {
        .rows = options, .n = MX_COUNT(options), .program = "mxconvert", .usage = usage};
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
