/* options.c — a command line's options, from a table. */
#include "manual.h"

#include <mx/base_confine.h>

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* What follows "--name" in an argument: "" or "=…"; NULL if the argument is another option. */
static const char *after_name(const char *arg, const char *name) {
    size_t n = strlen(name);
    return !strncmp(arg, name, n) && (!arg[n] || arg[n] == '=') ? arg + n : NULL;
}

/* What every program answers, and how it prints. */
typedef struct Asked {
    bool help, help_all, version, manual, is_quiet, is_verbose;
    const char *shell, *color;
} Asked;

/* The table, and that. */
static MxOptions with_answers(MxArena *arena, MxOptions options, Asked *asked) {
    const char *more = options.manual->details;
    const char *verbose = mx_arena_printf(arena, "%s%swith --version: the libraries, too",
                                          more ? more : "", more ? "; " : "");
    const MxOption answers[] = {
        {.name = "--quiet",
         .flag = &asked->is_quiet,
         .doc = "print no more than warnings, errors and what was asked for"},
        {.name = "--verbose", .flag = &asked->is_verbose, .doc = verbose},
        {.name = "--color",
         .value = &asked->color,
         .takes = "auto|always|never",
         .doc = "auto: on a terminal, unless NO_COLOR is set"},
        {.name = "--help", .flag = &asked->help, .doc = "a screen of the main options"},
        {.name = "--help-all", .flag = &asked->help_all, .doc = "all of them"},
        {.name = "-h", .flag = &asked->help},
        {.name = "--version", .flag = &asked->version, .doc = "the version"},
        {.name = "--man", .flag = &asked->manual, .doc = "this as a manual page"},
        {.name = "--completion",
         .value = &asked->shell,
         .takes = "bash|zsh|fish",
         .doc = "a script that completes command lines of this program"},
    };
    MxOption *rows = mx_new_n(arena, MxOption, options.n + MX_COUNT(answers));
    memcpy(rows, options.rows, (size_t)options.n * sizeof *rows);
    memcpy(rows + options.n, answers, sizeof answers);
    options.rows = rows;
    options.n += MX_COUNT(answers);
    return options;
}

static const MxOption *find(MxOptions options, const char *arg, const char **tail) {
    for (int i = 0; i < options.n; i++)
        if ((*tail = after_name(arg, options.rows[i].name))) return &options.rows[i];
    return NULL;
}

/* next  the argument after it, or NULL */
static bool fail_unrecognized(MxOptions options, const char *arg, const char *next, MxError *err) {
    MxArena scratch = {.name = "options"};
    const char **names = mx_new_n(&scratch, const char *, options.n);
    for (int i = 0; i < options.n; i++) names[i] = options.rows[i].name;
    mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "unrecognized option \"%s\"", arg);
    const char *near = mx_nearest(arg, names, options.n);
    if (near)
        mx_note(err, "hint: did you mean \"%s\"?", near);
    else if (options.passes_pairs && mx_text_has_prefix(arg, "--") && next && next[0] != '-')
        mx_note(err, "hint: keys are set as KEY=VALUE, without a space: %s=%s", arg + 2, next);
    else if (options.passes_pairs)
        mx_note(err, "hint: keys are set as KEY=VALUE");
    mx_arena_release(&scratch);
    return false;
}

/* Whether an argument is meant for itself and not as an option's value: "--name", or, of pairs,
 * KEY=VALUE. A file of such a name is ./KEY=VALUE. */
static bool is_apart(const char *arg, bool passes_pairs) {
    size_t n = strspn(arg, "abcdefghijklmnopqrstuvwxyz0123456789_.");
    bool is_pair = n && arg[0] != '.' && arg[n] == '=';
    return (passes_pairs && is_pair) || (mx_text_has_prefix(arg, "--") && arg[2]);
}

/* Sets what the option at argv[*i] points to; moves on to its value. tail  follows its name. */
static bool take(const MxOption *option, const char *tail, bool passes_pairs, int argc, char **argv,
                 int *i, MxError *err) {
    if (option->flag) *option->flag = !option->clears;
    if (!option->value)
        return !*tail ||
               mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "%s takes no value", option->name);
    const char *next = *i + 1 < argc ? argv[*i + 1] : NULL;
    bool is_option = next && next[0] == '-' && next[1];
    if (!*tail && option->flag && (!next || is_option)) return true;
    if (!*tail && (!next || is_apart(next, passes_pairs)))
        return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "%s wants a value%s%s: %s %s", option->name,
                       next ? ", found " : "", next ? next : "", option->name, option->takes);
    option->value[option->count ? (*option->count)++ : 0] = *tail ? tail + 1 : argv[++*i];
    return true;
}

/* How the log prints from here on. */
static bool set_log(MxOptions options, const Asked *asked, MxError *err) {
    if (asked->is_quiet && asked->is_verbose)
        return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "--quiet and --verbose exclude each other");
    if (asked->is_verbose && !asked->version && !options.manual->details)
        return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "--verbose goes with --version");
    if (asked->is_quiet || asked->is_verbose)
        mx_log_level(asked->is_quiet ? MX_LOG_QUIET : MX_LOG_VERBOSE);
    return !asked->color || mx_color_set(asked->color, err);
}

static bool read_line(MxOptions options, int argc, char **argv, const char **rest, MxError *err) {
    int n_rest = 0;
    bool is_over = false; /* after "--" */
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i], *tail;
        const MxOption *option = NULL;
        if (!is_over && !strcmp(arg, "--")) {
            is_over = true;
            continue;
        }
        bool is_rest = is_over || arg[0] != '-' || !arg[1];
        if (!is_rest) option = find(options, arg, &tail);
        if (option && !take(option, tail, options.passes_pairs, argc, argv, &i, err)) return false;
        if (option) continue;
        is_rest =
            is_rest || (options.passes_pairs && mx_text_has_prefix(arg, "--") && strchr(arg, '='));
        const char *next = i + 1 < argc ? argv[i + 1] : NULL;
        if (!is_rest) return fail_unrecognized(options, arg, next, err);
        rest[n_rest++] = arg;
    }
    rest[n_rest] = NULL;
    return true;
}

static void add_version(const MxOptions *options, bool is_verbose, MxText *out) {
    mx_text_add(out, "%s " MX_VERSION "\n", options->manual->program);
    if (!is_verbose) return;
    manual_libraries(out);
    mx_text_add(out, "%-32s %s\n", "seccomp",
                mx_can_confine()
                    ? "confines readers of files of others"
                    : "is not here: readers of files of others may do all that you may");
}

bool mx_options_read(MxOptions options, int argc, char **argv, const char **rest, MxError *err) {
    MxArena arena = {.name = "options"};
    Asked asked = {0};
    MxText out;
    mx_text_init(&out, &arena);
    options = with_answers(&arena, options, &asked);
    bool completes = argc == 4 && !strcmp(argv[1], "--complete"), ok = true;
    if (completes)
        manual_complete(&options, argv[2], argv[3], &out);
    else
        ok = read_line(options, argc, argv, rest, err) && set_log(options, &asked, err);
    if (ok && (asked.help || asked.help_all))
        manual_help(&options, asked.help_all, &out);
    else if (ok && asked.version)
        add_version(&options, asked.is_verbose, &out);
    else if (ok && asked.manual)
        manual_page(&options, &out);
    else if (ok && asked.shell)
        ok = manual_completion(&options, asked.shell, &out, err);
    bool goes_on = ok && !out.len && !completes;
    if (ok && out.len && (fputs(out.data, stdout) < 0 || fflush(stdout)))
        mx_fail_errno(err, "could not write to stdout");
    mx_arena_release(&arena);
    return goes_on;
}

bool mx_option_int(const char *name, const char *text, int64_t low, int64_t high, int64_t *out,
                   MxError *err) {
    if (!text) return true;
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (!*text || *end || errno || value < low || value > high)
        return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE,
                       "%s: found \"%s\", wanted an integer from %lld to %lld", name, text,
                       (long long)low, (long long)high);
    *out = value;
    return true;
}

bool mx_option_number(const char *name, const char *text, double low, double high, double *out,
                      MxError *err) {
    if (!text) return true;
    char *end;
    double value = strtod(text, &end);
    bool is_number = *text && !*end && value >= low && value <= high;
    if (!is_number && low == 0 && isinf(high))
        return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE,
                       "%s: found \"%s\", wanted a number that is not negative", name, text);
    if (!is_number)
        return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE,
                       "%s: found \"%s\", wanted a number from %g to %g", name, text, low, high);
    *out = value;
    return true;
}

bool mx_option_bool(const char *name, const char *text, bool *out, MxError *err) {
    if (!text) return true;
    if (strcmp(text, "true") && strcmp(text, "false"))
        return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "%s: found \"%s\", wanted true or false",
                       name, text);
    *out = !strcmp(text, "true");
    return true;
}
