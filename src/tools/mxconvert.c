/* mxconvert.c — the converter. Its input is read in a child process, because it may come from
 * others and be damaged; this process finds the source, verifies it, and cleans up. */
#include "mxconvert.h"

#include <mx/ckpt_gguf.h>
#include <mx/text.h>

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
    if (mx_ckpt_convert_show(&work->from, &work->line->how, &text, &err)) mx_print("%s", text.data);
    mx_arena_release(&arena);
    return end(&err);
}

/* Whether the result is of another kind than ours. */
static bool goes_abroad(const CommandLine *line) {
    return line->to_peft || line->to_hf || line->to_gguf;
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
    if (work->remark) mx_text_add(notes, "%s\n", work->remark);
    return tell_tokens(notes->arena, tokenizer, &hf, err) &&
           mx_hf_export(&work->from, &hf, dir, notes, err) &&
           (!dir || !*tokenizer->path ||
            mx_hf_carry(home_of(notes->arena, tokenizer), dir, notes, err));
}

/* What a tokenizer does, beside its files. */
static bool tell_tokenizer(MxArena *arena, const MxCkptTokenizer *t, MxGgufTokenizer *out,
                           MxError *err) {
    MxTokenizer *ours;
    MxTokens around;
    const MxEncoding empty = {.text = "", .special = true};
    *out = (MxGgufTokenizer){.dir = home_of(arena, t), .bos = -1, .eos = -1, .unk = -1, .pad = -1};
    if (!*out->dir || !mx_tokenizer_guess(out->dir)) {
        out->dir = "";
        return true;
    }
    if (!mx_tokenizer_open(arena, t->type, t->path, &ours, err) ||
        !mx_tokenizer_encode(arena, ours, empty, &around, err))
        return false;
    out->bos = mx_tokenizer_bos(ours);
    out->eos = mx_tokenizer_eos(ours);
    out->unk = mx_tokenizer_unk(ours);
    out->pad = mx_tokenizer_pad(ours);
    out->adds_bos = around.n && around.ids[0] == out->bos;
    out->adds_eos = around.n && around.ids[around.n - 1] == out->eos && out->eos != out->bos;
    return true;
}

static bool to_gguf(const Work *work, const MxCkptTokenizer *tokenizer, const char *path,
                    MxText *notes, MxError *err) {
    MxArena *arena = notes->arena;
    const char *target = work->line->dry_run ? work->line->source : work->line->target;
    const char *slash = strrchr(target, '/'), *name = slash ? slash + 1 : target;
    size_t n =
        strlen(name) - (mx_text_has_suffix(name, MX_GGUF_SUFFIX) ? strlen(MX_GGUF_SUFFIX) : 0);
    MxGgufKind as_found = work->hf.dtype == MX_F32 ? MX_GGUF_F32 : MX_GGUF_BF16;
    MxGgufExport how = {.hf = work->hf,
                        .kind = work->line->dtype ? work->line->kind : as_found,
                        .name = mx_arena_strndup(arena, name, n)};
    if (work->remark) mx_text_add(notes, "%s\n", work->remark);
    return tell_tokenizer(arena, tokenizer, &how.tokenizer, err) &&
           mx_gguf_export(&work->from, &how, path, notes, err);
}

static MxExit go_abroad(void *data) {
    const Work *work = data;
    const CommandLine *line = work->line;
    MxArena arena = {.name = "folder"};
    MxError err = {0};
    MxText notes;
    mx_text_init(&notes, &arena);
    const char *dir = line->dry_run ? NULL : mx_ckpt_output_dir(work->output);
    const char *file = line->dry_run ? NULL : mx_ckpt_output_file(work->output);
    MxCkptOrigin origin = {0};
    bool ok = mx_ckpt_tokenizer(&arena, &work->from, &origin.tokenizer, &err) &&
              (line->to_gguf ? to_gguf(work, &origin.tokenizer, file, &notes, &err)
               : line->to_hf ? export(work, &origin.tokenizer, dir, &notes, &err)
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
    const char *from = mx_hf_config_path(arena, work->from.path);
    if (!mx_hf_read_config(arena, from, &model, err)) return false;
    model.sees = work->from.sees;
    model.hears = work->from.hears && model.audio;
    const char *dir = mx_ckpt_output_dir(work->output), *target = work->line->target;
    if (dir && !put_text(mx_path_join(arena, dir, MX_HF_CONFIG),
                         mx_json_dump(arena, model.sees ? model.outer : model.config, true), err))
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

static bool commit(const Work *work, const MxForm *form, MxArena *arena, MxError *err) {
    MxHfModel theirs;
    MxCkptOrigin origin = {
        .form = form, .source = work->from.manifest, .adapters = work->line->how.adapters};
    if (work->line->quantizes) origin.kept = work->line->quantize;
    if (work->from.is_hf) {
        const char *config = mx_hf_config_path(arena, work->from.path);
        if (!mx_hf_read_config(arena, config, &theirs, err)) return false;
        origin.model = &theirs;
    }
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
        keep_configs(work, &arena, &notes, &err) && commit(work, &form, &arena, &err)) {
        mx_print("%s", notes.data);
        if (!work->is_between)
            mx_print("wrote \"%s\"%s in %.2f s\n", work->line->target,
                     work->line->how.verifies ? " and verified it" : "", mx_clock_s() - start_s);
    }
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
        !commit(work, &form, arena, err))
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
    bool is_gguf = mx_text_has_suffix(line->target, MX_GGUF_SUFFIX);
    if (is_gguf != line->to_gguf)
        return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "\"%s\": --to-gguf makes %s", line->target,
                       "a file whose name ends in " MX_GGUF_SUFFIX ", and nothing else does");
    if (is_file && goes_abroad(line) && !is_gguf)
        return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "\"%s\": %s makes a folder", line->target,
                       line->to_hf ? "--to-hf" : "--to-peft");
    const char *beside =
        is_file && work->from.is_hf && !line->force ? yaml_beside(arena, line->target) : NULL;
    return !beside || !mx_file_exists(beside) ||
           mx_fail(err, MX_EXIT_CANNOT_CREATE, MX_NOWHERE,
                   "\"%s\" exists already; --force replaces it", beside);
}

static bool begin_output(Work *work, MxArena *arena, MxError *err) {
    const CommandLine *line = work->line;
    return mx_ckpt_output_begin(arena, line->target, line->force, &work->output, err) &&
           check_target(work, arena, err);
}

/* What a command line asks for, with one reading and one writing. */
static MxExit carry_out(Work *work, MxArena *arena, MxError *err) {
    CommandLine *line = work->line;
    if ((mx_hf_is_dir(line->source) && !mx_ckpt_try(line->source, err)) ||
        !mx_ckpt_find(arena, line->source, NULL, &work->from, err) ||
        !mxconvert_adapters(work, arena, err) ||
        ((line->to_hf || line->to_gguf) && !mxconvert_model(work, arena, err)) ||
        (line->quantizes && !mxconvert_quantized(work, arena, err)))
        return err->exit;
    work->from.assumes_bf16 = line->assumes_bf16;
    work->from.sees = work->from.hears = line->sees;
    if (line->sees && !work->from.is_hf) {
        mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "--images: \"%s\" is no folder of Hugging Face's",
                line->source);
        return err->exit;
    }
    if (line->dry_run)
        return mx_store_guarded(line->source, MX_CONFINE_TO_READING,
                                goes_abroad(line) ? go_abroad : print_plan, work, err);
    mx_store_guard_catch();
    if (!work->output && !begin_output(work, arena, err)) return err->exit;
    return mx_store_guarded(line->source, MX_CONFINE_TO_FILES,
                            goes_abroad(line) ? go_abroad
                            : line->benchmark ? benchmark
                                              : convert,
                            work, err);
}

static void remove_between(void *data) {
    MxError ignored = {0};
    if (mx_dir_exists(data)) mx_store_remove(data, &ignored);
    mx_error_release(&ignored);
}

/* Whether a run's output matrix is its own, and the embedding in the folder below it: then its
 * config says what becomes of that folder's. */
static bool unties(const MxCkptRef *base, MxArena *arena) {
    MxHfModel theirs;
    MxError ignored = {0};
    bool is_tied =
        base->unties &&
        mx_hf_read_config(arena, mx_hf_config_path(arena, base->path), &theirs, &ignored) &&
        theirs.is_tied;
    mx_error_release(&ignored);
    return is_tied;
}

/* Merged weights become others' by way of a checkpoint beside DST, which is removed. Over a
 * folder of Hugging Face's the result has its config.json. */
static MxExit merge_abroad(CommandLine *line, MxArena *arena, MxError *err) {
    CommandLine merging = *line, exporting = *line;
    Work first = {.line = &merging, .is_between = true}, last = {.line = &exporting};
    bool is_json = mxconvert_names_json(line);
    if (!begin_output(&last, arena, err)) return err->exit;
    const char *dir = mx_ckpt_output_dir(last.output);
    char *between =
        mx_arena_printf(arena, "%s.merged", dir ? dir : mx_ckpt_output_file(last.output));
    mx_arena_on_release(arena, remove_between, between);
    merging.target = between;
    merging.to_hf = merging.to_gguf = false;
    merging.how.casts = true;
    merging.how.param_dtype = MX_F32;
    if (is_json) merging.config = NULL;
    MxExit exit = carry_out(&first, arena, err);
    if (exit != MX_EXIT_OK) return exit;
    exporting.source = between;
    exporting.merges = false;
    exporting.how.adapters = MX_ADAPTERS_STAY;
    if (!is_json && first.base.is_hf && !unties(&first.base, arena))
        exporting.config = mx_hf_config_path(arena, first.base.path);
    return carry_out(&last, arena, err);
}

static MxExit run(int argc, char **argv, MxArena *arena, MxError *err) {
    CommandLine line = {.verifies = true};
    if (!mxconvert_options(argc, argv, arena, &line, err)) return err->exit;
    if (mx_peft_is_dir(line.source)) {
        mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = line.source},
                "a folder of peft: lora.lora_restore_path takes it as it is");
        return err->exit;
    }
    return line.merges && goes_abroad(&line) ? merge_abroad(&line, arena, err)
                                             : carry_out(&(Work){.line = &line}, arena, err);
}

int main(int argc, char **argv) {
    return mx_tool_main(run, argc, argv);
}
