/* mxcompare.c — the comparer's command line. The files are read in a child process, because they
 * may come from others and be damaged. */
#include <mx/ckpt.h>
#include <mx/config.h>
#include <mx/model.h>

#include <math.h>
#include <stdio.h>

static const MxManual manual = {
    .program = "mxcompare",
    .does = "compare two checkpoints, or logits of two models",
    .synopsis = "[OPTION]... A B",
    .intro = "Compares two checkpoints: their arrays, shapes, dtypes and values. They may have "
             "different layouts: Linen or NNX names, layers stacked or separate. A and B are "
             "checkpoint folders, runs' folders (the newest checkpoint) or "
             "FILE.h5[:GROUP].\n\nWith --logits they are files with logits of the same prompts, "
             "written by mxdecode --logits or scripts/hf_logits.py.",
    .notes =
        (const MxManualRow[]){{"Exit codes",
                               "0 equal, 1 different, 2 command line, 65 bad input file, 74/77 "
                               "could not read or write, 130/143 interrupted."},
                              {0}},
};

typedef struct CommandLine {
    const char *a, *b;
    const char *rtol, *atol, *ulp, *top, *json, *html;
    bool structure_only, params_only;
    MxCompare how;
    bool logits;
    const char *max_kl, *top_k;
    double most_kl;
    MxLogitsHow logits_how;
} CommandLine;

/* Options of one of the two comparisons. */
static bool check_kind(const CommandLine *line, MxError *err) {
    const struct {
        const char *name;
        bool is_said, of_logits;
    } options[] = {
        {"--rtol", line->rtol != NULL, false},
        {"--atol", line->atol != NULL, false},
        {"--ulp", line->ulp != NULL, false},
        {"--top", line->top != NULL, false},
        {"--html", line->html != NULL, false},
        {"--structure-only", line->structure_only, false},
        {"--params-only", line->params_only, false},
        {"--max-kl", line->max_kl != NULL, true},
        {"--top-k", line->top_k != NULL, true},
    };
    for (int i = 0; i < MX_COUNT(options); i++)
        if (options[i].is_said && options[i].of_logits != line->logits)
            return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "%s %s --logits", options[i].name,
                           line->logits ? "does not go with" : "goes with");
    return true;
}

enum { MOST_OPTIONS = 16 };

/* Returns how many. */
static int list_options(CommandLine *line, MxOption *out) {
    const MxOption rows[] = {
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
         .doc = "compare paths, shapes and dtypes, but no values"},
        {.name = "--params-only", .flag = &line->params_only, .doc = "only the parameters"},
        {.name = "--top",
         .value = &line->top,
         .takes = "N",
         .doc =
             "number of arrays to show, those with the largest differences (default 20, 0 = all)"},
        {.name = "--logits",
         .flag = &line->logits,
         .doc = "compare logits: KL(B || A), the likeliest tokens, the largest difference"},
        {.name = "--max-kl",
         .value = &line->max_kl,
         .takes = "X",
         .doc =
             "equal if no token has a larger KL; without this option logits must have equal bits"},
        {.name = "--top-k",
         .value = &line->top_k,
         .takes = "N",
         .doc = "number of likeliest tokens to compare (default 10)"},
        {.name = "--json",
         .value = &line->json,
         .takes = "FILE",
         .doc = "write the report as JSON (- = stdout, instead of the text)"},
        {.name = "--html", .value = &line->html, .takes = "FILE", .doc = "write it as a page"},
    };
    memcpy(out, rows, sizeof rows);
    return MX_COUNT(rows);
}

static bool read_command_line(int argc, char **argv, MxArena *arena, CommandLine *line,
                              MxError *err) {
    MxOption options[MOST_OPTIONS];
    const char **rest = mx_new_n(arena, const char *, argc + 1);
    const MxOptions table = {.rows = options, .n = list_options(line, options), .manual = &manual};
    if (!mx_options_read(table, argc, argv, rest, err)) return false;
    if (!rest[0] || !rest[1] || rest[2])
        return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE,
                       "wanted two checkpoints, or files of logits; mxcompare --help tells more");
    line->a = rest[0];
    line->b = rest[1];
    int64_t top = 20;
    mx_option_number("--rtol", line->rtol, 0, INFINITY, &line->how.rtol, err);
    mx_option_number("--atol", line->atol, 0, INFINITY, &line->how.atol, err);
    mx_option_int("--ulp", line->ulp, 0, INT64_MAX, &line->how.ulp, err);
    mx_option_int("--top", line->top, 0, INT32_MAX, &top, err);
    line->logits_how.top_k = 10;
    mx_option_number("--max-kl", line->max_kl, 0, INFINITY, &line->most_kl, err);
    mx_option_int("--top-k", line->top_k, 1, 1000, &line->logits_how.top_k, err);
    line->how.top = (int)top;
    line->how.structure_only = line->structure_only;
    line->how.params_only = line->params_only;
    line->how.json_path = line->json;
    line->how.html_path = line->html;
    return check_kind(line, err) && !err->count;
}

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
    const CommandLine *line = data;
    MxArena arena = {.name = "comparison"};
    MxError err = {0};
    MxCkptRef a, b;
    bool is_equal = false;
    bool ok = mx_ckpt_find(&arena, line->a, NULL, &a, &err) &&
              mx_ckpt_find(&arena, line->b, NULL, &b, &err) && find_heads(&arena, &a, &b, &err) &&
              find_heads(&arena, &b, &a, &err) &&
              mx_ckpt_compare(&a, &b, &line->how, &is_equal, &err);
    MxExit code = !ok ? err.exit : is_equal ? MX_EXIT_OK : MX_EXIT_DIFFERENT;
    mx_error_tell(&err);
    mx_error_release(&err);
    mx_arena_release(&arena);
    return code;
}

/* ---- logits */

static bool tell_logits(const CommandLine *line, const MxLogitsReport *r, bool is_equal,
                        MxError *err) {
    MxArena arena = {.name = "report"};
    const struct {
        const char *name;
        double value;
    } figures[] = {
        {"prompts", (double)r->n_prompts}, {"tokens", (double)r->n_tokens},
        {"kl_mean", r->mean_kl},           {"kl_largest", r->largest_kl},
        {"top_1_same", r->same_top},       {"top_k", (double)line->logits_how.top_k},
        {"top_k_shared", r->shared_top},   {"largest_difference", r->largest},
    };
    MxJson *json = mx_json_object(&arena);
    bool ok = true;
    for (int i = 0; i < MX_COUNT(figures); i++)
        mx_json_set_number(json, figures[i].name, figures[i].value);
    mx_json_set_bool(json, "equal", is_equal);
    const char *text = mx_arena_printf(&arena, "%s\n", mx_json_dump(&arena, json, true));
    bool is_stdout = line->json && !strcmp(line->json, "-");
    if (line->json && !is_stdout) ok = mx_file_write(line->json, text, strlen(text), err);
    for (int i = 0; i < MX_COUNT(figures) && !is_stdout; i++)
        printf("%-18s %.6g\n", figures[i].name, figures[i].value);
    if (is_stdout)
        printf("%s", text);
    else
        printf("%s\n", is_equal ? "equal" : "different");
    mx_arena_release(&arena);
    return ok;
}

/* In the child. */
static MxExit compare_logits(void *data) {
    const CommandLine *line = data;
    MxLogitsReport report;
    MxError err = {0};
    bool ok = mx_logits_compare(line->a, line->b, &line->logits_how, &report, &err);
    bool is_equal = ok && (line->max_kl ? report.largest_kl <= line->most_kl : report.largest == 0);
    ok = ok && tell_logits(line, &report, is_equal, &err);
    MxExit code = !ok ? err.exit : is_equal ? MX_EXIT_OK : MX_EXIT_DIFFERENT;
    mx_error_tell(&err);
    mx_error_release(&err);
    return code;
}

static MxExit run(int argc, char **argv, MxArena *arena, MxError *err) {
    CommandLine line = {0};
    if (!read_command_line(argc, argv, arena, &line, err)) return err->exit;
    const char *what = mx_arena_printf(arena, "%s, %s", line.a, line.b);
    MxConfine how = line.json || line.html ? MX_CONFINE_TO_FILES : MX_CONFINE_TO_READING;
    return mx_store_guarded(what, how, line.logits ? compare_logits : compare, &line, err);
}

int main(int argc, char **argv) {
    return mx_tool_main(run, argc, argv);
}
