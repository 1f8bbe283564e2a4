/* options.c — a command line's options, from a table. */
#include <mx/base.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* What follows "--name" in an argument: "" or "=…"; NULL if the argument is another option. */
static const char *after_name(const char *arg, const char *name) {
    size_t n = strlen(name);
    return !strncmp(arg, name, n) && (!arg[n] || arg[n] == '=') ? arg + n : NULL;
}

/* The table, and what every program answers. */
static MxOptions with_answers(MxArena *arena, MxOptions options, bool *helps, bool *tells_version) {
    const MxOption answers[] = {{.name = "--help", .flag = helps},
                                {.name = "-h", .flag = helps},
                                {.name = "--version", .flag = tells_version}};
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

/* Sets what the option at argv[*i] points to; moves on to its value. tail  follows its name. */
static bool take(const MxOption *option, const char *tail, int argc, char **argv, int *i,
                 MxError *err) {
    if (option->flag) *option->flag = !option->clears;
    if (!option->value)
        return !*tail ||
               mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "%s takes no value", option->name);
    const char *next = *i + 1 < argc ? argv[*i + 1] : NULL;
    bool is_option = next && next[0] == '-' && next[1];
    if (!*tail && option->flag && (!next || is_option)) return true;
    if (!*tail && !next)
        return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE, "%s wants %s", option->name, option->wants);
    option->value[option->count ? (*option->count)++ : 0] = *tail ? tail + 1 : argv[++*i];
    return true;
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
        if (option && !take(option, tail, argc, argv, &i, err)) return false;
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

bool mx_options_read(MxOptions options, int argc, char **argv, const char **rest, MxError *err) {
    MxArena arena = {.name = "options"};
    bool helps = false, tells_version = false;
    options = with_answers(&arena, options, &helps, &tells_version);
    bool ok = read_line(options, argc, argv, rest, err);
    mx_arena_release(&arena);
    if (!ok || (!helps && !tells_version)) return ok;
    int written =
        helps ? fputs(options.usage, stdout) : printf("%s " MX_VERSION "\n", options.program);
    return (written < 0 || fflush(stdout)) && mx_fail_errno(err, "could not write to stdout");
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

bool mx_option_number(const char *name, const char *text, double *out, MxError *err) {
    if (!text) return true;
    char *end;
    double value = strtod(text, &end);
    if (!*text || *end || !(value >= 0))
        return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE,
                       "%s: found \"%s\", wanted a number that is not negative", name, text);
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
