/* mxcompare.c — the comparer's command line. The files are read in a child process, since nobody
 * vouches for files of others. */
#include <mx/ckpt.h>
#include <mx/config.h>
#include <mx/model.h>

#include <stdio.h>

static const MxManual manual = {
    .program = "mxcompare",
    .does = "compare two checkpoints",
    .synopsis = "[OPTION]... A B",
    .intro =
        "Compares two checkpoints: which arrays they hold, their shapes, dtypes and values. "
        "Layouts need not agree: Linen or NNX names, layers stacked or one by one. A and B are "
        "checkpoint folders, runs' folders (the newest checkpoint) or FILE.h5[:GROUP].",
    .notes =
        (const MxManualRow[]){{"Exit codes",
                               "0 equal, 1 different, 2 command line, 65 bad input file, 74/77 "
                               "could not read or write, 130/143 interrupted."},
                              {0}},
};

typedef struct CommandLine {
    const char *a, *b;
    const char *rtol, *atol, *ulp, *top, *json;
    bool structure_only, params_only;
    MxCompare how;
} CommandLine;

static bool read_command_line(int argc, char **argv, MxArena *arena, CommandLine *line,
                              MxError *err) {
    const MxOption options[] = {
        {.name = "--rtol",
         .value = &line->rtol,
         .takes = "X",
         .doc = "values are equal if |a - b| <= atol + rtol |b|"},
        {.name = "--atol", .value = &line->atol, .takes = "X", .doc = "the same"},
        {.name = "--ulp",
         .value = &line->ulp,
         .takes = "N",
         .doc =
             "or if at most N floats are between them. Without any of these three they must have "
             "equal bits; with them NaN equals NaN"},
        {.name = "--structure-only",
         .flag = &line->structure_only,
         .doc = "paths, shapes and dtypes, no values"},
        {.name = "--params-only", .flag = &line->params_only, .doc = "only the parameters"},
        {.name = "--top",
         .value = &line->top,
         .takes = "N",
         .doc = "arrays to show, those with the largest differences (default 20, 0 = all)"},
        {.name = "--json",
         .value = &line->json,
         .takes = "FILE",
         .doc = "the report as JSON (- = stdout, instead of the text)"},
    };
    const char **rest = mx_new_n(arena, const char *, argc + 1);
    const MxOptions table = {.rows = options, .n = MX_COUNT(options), .manual = &manual};
    if (!mx_options_read(table, argc, argv, rest, err)) return false;
    if (!rest[0] || !rest[1] || rest[2])
        return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE,
                       "wanted two checkpoints; mxcompare --help tells more");
    line->a = rest[0];
    line->b = rest[1];
    int64_t top = 20;
    mx_option_number("--rtol", line->rtol, &line->how.rtol, err);
    mx_option_number("--atol", line->atol, &line->how.atol, err);
    mx_option_int("--ulp", line->ulp, 0, INT64_MAX, &line->how.ulp, err);
    mx_option_int("--top", line->top, 0, INT32_MAX, &top, err);
    line->how.top = (int)top;
    line->how.structure_only = line->structure_only;
    line->how.params_only = line->params_only;
    line->how.json_path = line->json;
    return !err->count;
}

typedef struct Work {
    const CommandLine *line;
    MxCkptRef a, b;
} Work;

/* How a checkpoint holds its heads, where it is compared with what was or is a folder of Hugging
 * Face's: a run's config says so, or what the conversion recorded. Two runs are compared as they
 * are. */
static bool find_heads(MxArena *arena, MxCkptRef *ref, const MxCkptRef *other, MxError *err) {
    MxHeadForm *heads = mx_new(arena, MxHeadForm);
    MxHfModel own, theirs;
    const MxJson *manifest = ref->manifest;
    MxConfigRequest request = {.text = manifest ? mx_json_string(mx_json_get(manifest, "config"))
                                                : NULL,
                               .text_name = mx_arena_printf(arena, "the config in %s", ref->ref)};
    MxConfig *config;
    MxModel *model;
    if (mx_ckpt_was_hf(ref, &own)) {
        *heads = own.heads;
        ref->heads = heads;
    }
    if (ref->heads || ref->is_hf || !request.text) return true;
    if (!other->is_hf && !mx_ckpt_was_hf(other, &theirs)) return true;
    if (!mx_config_load(arena, &request, &config, err) || !mx_model_new(arena, config, &model, err))
        return false;
    *heads = mx_model_head_form(model);
    ref->heads = heads;
    return true;
}

/* In the child. */
static MxExit compare(void *data) {
    const Work *work = data;
    MxError err = {0};
    bool is_equal = false;
    bool ok = mx_ckpt_compare(&work->a, &work->b, &work->line->how, &is_equal, &err);
    MxExit code = !ok ? err.exit : is_equal ? MX_EXIT_OK : MX_EXIT_DIFFERENT;
    mx_error_tell(&err);
    mx_error_release(&err);
    return code;
}

static MxExit run(int argc, char **argv, MxArena *arena, MxError *err) {
    CommandLine line = {0};
    if (!read_command_line(argc, argv, arena, &line, err)) return err->exit;
    Work work = {.line = &line};
    if (!mx_ckpt_find(arena, line.a, NULL, &work.a, err) ||
        !mx_ckpt_find(arena, line.b, NULL, &work.b, err) ||
        !find_heads(arena, &work.a, &work.b, err) || !find_heads(arena, &work.b, &work.a, err))
        return err->exit;
    return mx_store_guarded(mx_arena_printf(arena, "%s, %s", line.a, line.b), compare, &work, err);
}

int main(int argc, char **argv) {
    return mx_tool_main(run, argc, argv);
}
