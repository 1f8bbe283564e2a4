/* mxconvert.c — the converter's command line. What it reads is read in a child process, since
 * nobody vouches for files of others; this process names the source, verifies it, and cleans up. */
#include <mx/ckpt.h>

#include <stdio.h>

static const char usage[] =
    "usage: mxconvert [OPTION]... SRC DST\n"
    "\n"
    "Writes a checkpoint in another layout: parameters, optimizer state, step and all.\n"
    "SRC is a checkpoint folder, a run's folder (its newest checkpoint), or FILE.h5[:GROUP], of\n"
    "MaxText's Linen or NNX names, scanned or not; which is found by looking. DST is a checkpoint\n"
    "folder, or one file if it ends in .h5; it appears complete or not at all.\n"
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
    "  --dtype float32|bfloat16  of the parameters; the optimizer's state keeps its own\n"
    "  --dry-run                 print what would become of each array, and exit\n"
    "  --verify, --no-verify     read DST back and compare every bit (default: --verify)\n"
    "  --force                   replace DST if it exists\n"
    "  --benchmark               write DST, read it, print the speed, remove it\n"
    "                            (instead of --verify; not with --force)\n"
    "  --help, --version\n"
    "\n"
    "Exit codes: 0 done, 2 command line, 65 bad input file, 73/74/77 could not create, read or\n"
    "write, 130/143 interrupted; DST is then as it was.\n";

typedef struct CommandLine {
    const char *source, *target;
    const char *layout, *scan, *scan_axis, *dtype, *decoder_block, *cycle;
    bool params_only, dry_run, verifies, force, benchmark, help, version;
    MxConvert how;
} CommandLine;

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
    how->scan = line->scan ? scan : -1;
    how->scan_axis = (int)axis;
    how->restack.cycle = (int)cycle;
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
        {.name = "--dtype", .value = &line->dtype, .wants = "float32 or bfloat16"},
        {.name = "--dry-run", .flag = &line->dry_run},
        {.name = "--verify", .flag = &line->verifies},
        {.name = "--no-verify", .flag = &line->verifies, .clears = true},
        {.name = "--force", .flag = &line->force},
        {.name = "--benchmark", .flag = &line->benchmark},
        {.name = "--help", .flag = &line->help},
        {.name = "-h", .flag = &line->help},
        {.name = "--version", .flag = &line->version},
    };
    const char **rest = mx_new_n(arena, const char *, argc + 1);
    if (!mx_options_read(options, MX_COUNT(options), argc, argv, rest, err)) return false;
    if (line->help || line->version) return true;
    line->source = rest[0];
    line->target = rest[0] ? rest[1] : NULL;
    if (line->target && rest[2])
        return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "\"%s\" is one argument too many", rest[2]);
    if (!line->source)
        return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE,
                       "wanted SRC and DST; mxconvert --help tells more");
    return understand(line, err);
}

/* ---- in the child */

typedef struct Work {
    const CommandLine *line;
    MxCkptRef from;
    MxCkptOutput *output;
} Work;

static MxExit end(MxError *err) {
    MxExit code = err->count ? err->exit : MX_EXIT_OK;
    if (err->count) fprintf(stderr, "%s\n", err->text.data);
    mx_error_release(err);
    return code;
}

static MxExit print_plan(void *data) {
    const Work *work = data;
    MxArena arena = {.name = "plan"};
    MxError err = {0};
    MxText text;
    mx_text_init(&text, &arena);
    if (mx_ckpt_convert_plan(&work->from, &work->line->how, &text, &err)) fputs(text.data, stdout);
    mx_arena_release(&arena);
    return end(&err);
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
        mx_ckpt_output_commit(work->output, form, work->from.manifest, &err))
        printf("%swrote \"%s\"%s in %.2f s\n", notes.data, work->line->target,
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
        !mx_ckpt_output_commit(work->output, form, work->from.manifest, err))
        return false;
    double write_s = mx_clock_s() - start_s;
    mx_ckpt_output_forget(work->output);
    start_s = mx_clock_s();
    bool ok = mx_ckpt_find(arena, work->line->target, &written, err);
    double verify_s = mx_clock_s() - start_s;
    mx_ckpt_output_forget(work->output);
    start_s = mx_clock_s();
    ok = ok && mx_ckpt_read_through(&written, &bytes, err);
    double read_s = mx_clock_s() - start_s;
    if (ok)
        printf("%swrote %.1f MB in %.3f s (%.0f MB/s), verified its hashes in %.3f s, read it in "
               "%.3f s (%.0f MB/s)\n",
               notes.data, (double)bytes * 1e-6, write_s, (double)bytes * 1e-6 / write_s, verify_s,
               read_s, (double)bytes * 1e-6 / read_s);
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

static MxExit run(int argc, char **argv, MxArena *arena, MxError *err) {
    CommandLine line = {.verifies = true};
    if (!read_command_line(argc, argv, arena, &line, err)) return err->exit;
    if (line.help) return fputs(usage, stdout) < 0 ? MX_EXIT_IO : MX_EXIT_OK;
    if (line.version) return puts("mxconvert " MX_VERSION) < 0 ? MX_EXIT_IO : MX_EXIT_OK;
    Work work = {.line = &line};
    if (!mx_ckpt_find(arena, line.source, &work.from, err)) return err->exit;
    if (line.dry_run) return mx_store_guarded(line.source, print_plan, &work, err);
    mx_store_guard_catch();
    if (!mx_ckpt_output_begin(arena, line.target, line.force, &work.output, err)) return err->exit;
    return mx_store_guarded(line.source, line.benchmark ? benchmark : convert, &work, err);
}

int main(int argc, char **argv) {
    MxArena program = {.name = "program"};
    MxError err = {0};
    MxExit code = run(argc, argv, &program, &err);
    if (err.count) fprintf(stderr, "%s\n", err.text.data);
    mx_error_release(&err);
    mx_arena_release(&program);
    return (int)code;
}
