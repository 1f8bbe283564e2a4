/* mxconvert.c — the converter's command line. What it reads is read in a child process, since
 * nobody vouches for files of others; this process names the source, verifies it, and cleans up. */
#include <mx/ckpt.h>
#include <mx/config.h>
#include <mx/model.h>
#include <mx/text.h>

#include <math.h>
#include <stddef.h>
#include <stdio.h>

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

typedef struct CommandLine {
    const char *source, *target;
    const char *layout, *scan, *scan_axis, *dtype, *decoder_block, *cycle;
    const char *base, *config, *alpha_text, *shard_text;
    bool params_only, dry_run, verifies, force, benchmark;
    bool merges, extracts, to_peft, to_hf, assumes_bf16;
    int64_t shard_bytes;
    double alpha; /* 0 = not said */
    MxConvert how;
} CommandLine;

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

static bool read_command_line(int argc, char **argv, MxArena *arena, CommandLine *line,
                              MxError *err) {
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

/* ---- what is known of adapters */

typedef struct Work {
    CommandLine *line;
    MxCkptRef from, base;
    MxCkptOutput *output;
    MxPeftConvert peft;
    MxHfExport hf;
} Work;

/* The config that SRC holds, or the one that is named; NULL = there is none. */
static bool load_config(const Work *work, const char *file, MxArena *arena, const MxConfig **out,
                        MxError *err) {
    const MxJson *manifest = work->from.manifest;
    MxConfigRequest request = {
        .files = &file,
        .n_files = file != NULL,
        .text = manifest ? mx_json_string(mx_json_get(manifest, "config")) : NULL,
        .text_name = mx_arena_printf(arena, "the config in %s", work->from.ref)};
    MxConfig *config = NULL;
    *out = NULL;
    if (!file && !request.text) return true;
    if (file && request.text)
        return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "--config: \"%s\" holds its config itself",
                       work->from.ref);
    if (!mx_config_load(arena, &request, &config, err)) return false;
    *out = config;
    return true;
}

static bool settle_alpha(const Work *work, const MxConfig *config, double *out, MxError *err) {
    double said = work->line->alpha, theirs = config ? config->lora_alpha : 0;
    *out = said > 0 ? said : theirs;
    if (!(said > 0 && theirs > 0) || said == theirs) return true;
    return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE,
                   "--lora-alpha: found %.15g, but the config says %.15g", said, theirs);
}

static bool find_base(Work *work, const MxConfig *config, MxArena *arena, MxError *err) {
    MxAdapterFacts *facts = &work->line->how.facts;
    const char *ref = work->line->base;
    facts->is_base_said = ref != NULL;
    if (!ref && config) {
        ref = config->load_parameters_path;
        facts->base_hint =
            ref ? mx_arena_printf(arena,
                                  "hint: that is the load_parameters_path in the config of \"%s\"; "
                                  "--base names another place",
                                  work->from.ref)
                : mx_arena_printf(
                      arena, "hint: its config draws them (init_weights_seed %lld), from no file",
                      (long long)config->init_weights_seed);
    }
    if (!ref) return true;
    facts->base = &work->base;
    if (mx_ckpt_find(arena, ref, NULL, &work->base, err)) return true;
    if (facts->base_hint) mx_note(err, "%s", facts->base_hint);
    return false;
}

static bool collect_facts(Work *work, MxArena *arena, MxError *err) {
    const MxConfig *config;
    MxModel *model = NULL;
    MxAdapterFacts *facts = &work->line->how.facts;
    bool merges = work->line->merges;
    if (!merges && !work->line->to_peft) return true;
    if (!load_config(work, work->line->config, arena, &config, err) ||
        !settle_alpha(work, config, &facts->alpha, err) ||
        (config && !mx_model_new(arena, config, &model, err)) ||
        (merges && !find_base(work, config, arena, err)))
        return false;
    if (model) {
        work->peft.heads = mx_model_head_form(model);
        facts->weights = mx_model_params(model);
    }
    const char *base = work->line->base;
    if (!base && config) base = config->load_parameters_path;
    work->peft.base = base ? base : "";
    work->peft.alpha = facts->alpha;
    work->peft.verifies = work->line->how.verifies;
    return true;
}

/* ---- what is known of Hugging Face's models */

static bool model_of_config(MxArena *arena, const MxConfig *c, MxHfModel *out, MxError *err) {
    MxModel *model;
    if (!mx_hf_fits(c, err) || !mx_model_new(arena, c, &model, err)) return false;
    *out = mx_hf_of_config(c, mx_model_head_form(model));
    return true;
}

/* The config.json that tells the model to export: the one that is named, or SRC's own, which a
 * conversion left there; NULL = a config of ours does. */
static const char *find_json(const Work *work, MxArena *arena) {
    const char *named = work->line->config,
               *dir = work->from.is_hf ? work->from.path : work->from.dir;
    if (named) return mx_text_has_suffix(named, ".json") ? named : NULL;
    const char *path = dir ? mx_path_join(arena, dir, MX_HF_CONFIG) : NULL;
    return path && mx_file_exists(path) ? path : NULL;
}

static bool find_model(Work *work, MxArena *arena, MxError *err) {
    const MxConfig *config;
    const CommandLine *line = work->line;
    const char *json = find_json(work, arena);
    MxHfExport *hf = &work->hf;
    *hf = (MxHfExport){.shard_bytes = line->shard_bytes, .verifies = line->how.verifies};
    MxHfModel theirs = {.dtype = MX_F32};
    if ((json && !mx_hf_read_config(arena, json, &theirs, err)) ||
        !load_config(work, json ? NULL : line->config, arena, &config, err) ||
        (config && !model_of_config(arena, config, &hf->model, err)))
        return false;
    hf->dtype = line->how.casts ? line->how.param_dtype : theirs.dtype;
    if (!json && !config)
        return mx_fail(
            err, MX_EXIT_BAD_INPUT, (MxWhere){.file = work->from.ref},
            "its model is not known; --config names the config of its run, or a config.json");
    if (json && config) { /* of a run, which may hold kernels in its own way */
        if (!mx_hf_agree(&theirs, &hf->model, (MxWhere){.file = json}, err)) return false;
        theirs.heads = hf->model.heads;
    }
    if (json) hf->model = theirs;
    return true;
}

/* ---- in the child */

static MxExit end(MxError *err) {
    MxExit code = err->count ? err->exit : MX_EXIT_OK;
    mx_error_tell(err);
    mx_error_release(err);
    return code;
}

static MxExit print_plan(void *data) {
    const Work *work = data;
    MxArena arena = {.name = "plan"};
    MxError err = {0};
    MxText text;
    mx_text_init(&text, &arena);
    if (mx_ckpt_convert_plan(&work->from, &work->line->how, &text, &err)) mx_print("%s", text.data);
    mx_arena_release(&arena);
    return end(&err);
}

/* Whether the result is a folder of another kind than ours. */
static bool goes_abroad(const CommandLine *line) {
    return line->to_peft || line->to_hf;
}

/* The folder that a tokenizer lies in; "" = none. */
static const char *home_of(MxArena *arena, const MxCkptTokenizer *t) {
    return !*t->path || mx_dir_exists(t->path) ? t->path : mx_path_dir(arena, t->path);
}

/* What config.json is to say of tokens: as the folder of the tokenizer has it, or as ours does. */
static bool tell_tokens(MxArena *arena, const MxCkptTokenizer *t, MxHfExport *hf, MxError *err) {
    MxTokenizer *ours;
    MxError ignored = {0};
    MxJson *ids = mx_json_object(arena);
    hf->special_tokens = ids;
    if (!mx_hf_special_tokens(arena, home_of(arena, t), ids, err)) return false;
    if (!mx_json_length(ids) && t->type &&
        mx_tokenizer_open(arena, t->type, t->path, &ours, &ignored)) {
        int32_t bos = mx_tokenizer_bos(ours), eos = mx_tokenizer_eos(ours);
        if (bos >= 0) mx_json_set_int(ids, "bos_token_id", bos);
        if (eos >= 0) mx_json_set_int(ids, "eos_token_id", eos);
    }
    mx_error_release(&ignored);
    return true;
}

static bool export(const Work *work, const MxCkptTokenizer *tokenizer, const char *dir,
                   MxText *notes, MxError *err) {
    MxHfExport hf = work->hf;
    return tell_tokens(notes->arena, tokenizer, &hf, err) &&
           mx_hf_export(&work->from, &hf, dir, notes, err) &&
           (!dir || !*tokenizer->path ||
            mx_hf_carry(home_of(notes->arena, tokenizer), dir, notes, err));
}

static MxExit to_folder(void *data) {
    const Work *work = data;
    const CommandLine *line = work->line;
    MxArena arena = {.name = "folder"};
    MxError err = {0};
    MxText notes;
    mx_text_init(&notes, &arena);
    const char *dir = line->dry_run ? NULL : mx_ckpt_output_dir(work->output);
    MxCkptOrigin origin = {0};
    bool ok = mx_ckpt_tokenizer(&arena, &work->from, &origin.tokenizer, &err) &&
              (line->to_hf ? export(work, &origin.tokenizer, dir, &notes, &err)
                           : mx_peft_convert(&work->from, &work->peft, dir, &notes, &err));
    if (ok && (line->dry_run || mx_ckpt_output_commit(work->output, &origin, &err))) {
        mx_print("%s", notes.data);
        if (!line->dry_run)
            mx_print("wrote \"%s\"%s\n", line->target,
                     line->how.verifies ? " and verified it" : "");
    }
    mx_arena_release(&arena);
    return end(&err);
}

static bool put_text(const char *path, const char *text, MxError *err) {
    return mx_file_write(path, text, strlen(text), err);
}

static const char *yaml_beside(MxArena *arena, const char *file) {
    return mx_arena_printf(arena, "%.*s.yml", (int)(strrchr(file, '.') - file), file);
}

/* What was known of a model of Hugging Face's: its config.json in the folder, for the way back, and
 * the config to train it, there or beside the file. */
static bool keep_configs(const Work *work, MxArena *arena, MxText *notes, MxError *err) {
    MxHfModel model;
    if (!work->from.is_hf) return true;
    const char *from = mx_path_join(arena, work->from.path, MX_HF_CONFIG);
    if (!mx_hf_read_config(arena, from, &model, err)) return false;
    const char *dir = mx_ckpt_output_dir(work->output), *target = work->line->target;
    if (dir && !put_text(mx_path_join(arena, dir, MX_HF_CONFIG),
                         mx_json_dump(arena, model.config, true), err))
        return false;
    if (dir && !mx_hf_carry(work->from.path, dir, notes, err)) return false;
    if (*model.lacks) {
        mx_text_add(notes, "no model.yml, for this is not available in mxtrain: %s\n", model.lacks);
        return true;
    }
    const char *path = dir ? mx_path_join(arena, dir, "model.yml") : yaml_beside(arena, target);
    mx_text_add(notes, "the config to train it: \"%s\"\n",
                dir ? mx_path_join(arena, target, "model.yml") : path);
    const char *type = mx_tokenizer_guess(work->from.path), *yaml = mx_hf_yaml(arena, &model);
    if (type) /* tokenizer_path is then where the weights are */
        yaml = mx_arena_printf(arena, "%stokenizer_type: %s\n", yaml, type);
    return put_text(path, yaml, err);
}

static bool commit(const Work *work, const MxForm *form, MxError *err) {
    MxCkptOrigin origin = {
        .form = form, .source = work->from.manifest, .adapters = work->line->how.adapters};
    return mx_ckpt_output_commit(work->output, &origin, err);
}

static MxExit convert(void *data) {
    const Work *work = data;
    MxArena arena = {.name = "notes"};
    MxError err = {0};
    MxForm form;
    MxText notes;
    mx_text_init(&notes, &arena);
    double start_s = mx_clock_s();
    if (mx_ckpt_convert(&work->from, &work->line->how, mx_ckpt_output_file(work->output), &form,
                        &notes, &err) &&
        keep_configs(work, &arena, &notes, &err) && commit(work, &form, &err))
        mx_print("%swrote \"%s\"%s in %.2f s\n", notes.data, work->line->target,
                 work->line->how.verifies ? " and verified it" : "", mx_clock_s() - start_s);
    mx_arena_release(&arena);
    return end(&err);
}

/* How fast the result is written (to the disk: published and synced) and read; then it goes. */
static bool measure(const Work *work, MxArena *arena, MxError *err) {
    MxCkptRef written;
    MxForm form;
    MxText notes;
    int64_t bytes;
    mx_text_init(&notes, arena);
    double start_s = mx_clock_s();
    if (!mx_ckpt_convert(&work->from, &work->line->how, mx_ckpt_output_file(work->output), &form,
                         &notes, err) ||
        !commit(work, &form, err))
        return false;
    double write_s = mx_clock_s() - start_s;
    mx_ckpt_output_forget(work->output);
    start_s = mx_clock_s();
    bool ok = mx_ckpt_find(arena, work->line->target, NULL, &written, err);
    double verify_s = mx_clock_s() - start_s;
    mx_ckpt_output_forget(work->output);
    start_s = mx_clock_s();
    ok = ok && mx_ckpt_read_through(&written, &bytes, err);
    double read_s = mx_clock_s() - start_s;
    if (ok)
        mx_print("%swrote %.1f MB in %.3f s (%.0f MB/s), verified its hashes in %.3f s, read it in "
                 "%.3f s (%.0f MB/s)\n",
                 notes.data, (double)bytes * 1e-6, write_s, (double)bytes * 1e-6 / write_s,
                 verify_s, read_s, (double)bytes * 1e-6 / read_s);
    return mx_ckpt_output_remove(work->output, err) && ok;
}

static MxExit benchmark(void *data) {
    MxArena arena = {.name = "benchmark"};
    MxError err = {0};
    measure(data, &arena, &err);
    mx_arena_release(&arena);
    return end(&err);
}

/* ---- */

/* That the result can be what it is to be, and that nothing beside it is overwritten. */
static bool check_target(const Work *work, MxArena *arena, MxError *err) {
    const CommandLine *line = work->line;
    bool is_file = !mx_ckpt_output_dir(work->output);
    if (is_file && goes_abroad(line))
        return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "\"%s\": %s makes a folder", line->target,
                       line->to_hf ? "--to-hf" : "--to-peft");
    const char *beside =
        is_file && work->from.is_hf && !line->force ? yaml_beside(arena, line->target) : NULL;
    return !beside || !mx_file_exists(beside) ||
           mx_fail(err, MX_EXIT_CANNOT_CREATE, MX_NOWHERE,
                   "\"%s\" exists already; --force replaces it", beside);
}

static MxExit run(int argc, char **argv, MxArena *arena, MxError *err) {
    CommandLine line = {.verifies = true};
    if (!read_command_line(argc, argv, arena, &line, err)) return err->exit;
    Work work = {.line = &line};
    if (mx_peft_is_dir(line.source)) {
        mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = line.source},
                "a folder of peft: lora.lora_restore_path takes it as it is");
        return err->exit;
    }
    if (!mx_ckpt_find(arena, line.source, NULL, &work.from, err) ||
        !collect_facts(&work, arena, err) || (line.to_hf && !find_model(&work, arena, err)))
        return err->exit;
    work.from.assumes_bf16 = line.assumes_bf16;
    if (line.dry_run)
        return mx_store_guarded(line.source, goes_abroad(&line) ? to_folder : print_plan, &work,
                                err);
    mx_store_guard_catch();
    if (!mx_ckpt_output_begin(arena, line.target, line.force, &work.output, err)) return err->exit;
    if (!check_target(&work, arena, err)) return err->exit;
    return mx_store_guarded(line.source,
                            goes_abroad(&line) ? to_folder
                            : line.benchmark   ? benchmark
                                               : convert,
                            &work, err);
}

int main(int argc, char **argv) {
    return mx_tool_main(run, argc, argv);
}
