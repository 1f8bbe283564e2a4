/* manual.c — help, manual page and shell completion of a program. All are generated from the rows
 * of its options, so that no option can be forgotten. */
#include "manual.h"

#include <ctype.h>

enum { WIDTH = 96, INDENT = 28 };

/* "--top N", "--runs [DIR]". */
static const char *shown(MxArena *arena, const MxOption *option) {
    if (!option->value) return option->name;
    return mx_arena_printf(arena, option->flag ? "%s [%s]" : "%s %s", option->name, option->takes);
}

/* ---- help */

/* A paragraph in lines, from a column on; the first line is there up to `at`. */
static void wrap(const char *text, int at, int indent, MxText *out) {
    bool is_first = true;
    while (*text) {
        size_t n = strcspn(text, " \n");
        bool ends_paragraph = text[0] == '\n';
        if (!is_first && !ends_paragraph && at + 1 + (int)n > WIDTH) {
            mx_text_add(out, "\n%*s", indent, "");
            at = indent;
            is_first = true;
        }
        mx_text_add(out, "%s%.*s", is_first || !n ? "" : " ", (int)n, text);
        at += (int)n + !is_first;
        is_first = false;
        text += n;
        if (*text == '\n') {
            mx_text_add(out, "\n%*s", indent, "");
            at = indent;
            is_first = true;
        }
        if (*text) text++;
    }
    mx_text_add(out, "\n");
}

static void help_row(const char *name, const char *text, MxText *out) {
    int n = (int)strlen(name) + 2;
    mx_text_add(out, "  %s", name);
    if (n + 1 < INDENT)
        mx_text_add(out, "%*s", INDENT - n, "");
    else
        mx_text_add(out, "\n%*s", INDENT, "");
    wrap(text, INDENT, INDENT, out);
}

/* A description up to its first part that can be left out. */
static const char *brief(MxArena *arena, const char *text) {
    static const char *const ends[] = {"; ", ". ", " ("};
    size_t n = strlen(text);
    for (int i = 0; i < MX_COUNT(ends); i++) {
        const char *at = strstr(text, ends[i]);
        if (at && (size_t)(at - text) < n) n = (size_t)(at - text);
    }
    return mx_arena_strndup(arena, text, n);
}

static void help_rows(const MxManualRow *rows, bool has_all, MxText *out) {
    for (; rows && rows->name; rows++)
        help_row(rows->name, has_all ? rows->text : brief(out->arena, rows->text), out);
}

static bool has_main(const MxOptions *options) {
    for (int i = 0; i < options->n; i++)
        if (options->rows[i].is_main) return true;
    return false;
}

void manual_help(const MxOptions *options, bool has_all, MxText *out) {
    const MxManual *m = options->manual;
    has_all = has_all || !has_main(options);
    mx_text_add(out, "usage: ");
    wrap(mx_arena_printf(out->arena, "%s %s", m->program, m->synopsis), 7, 7, out);
    mx_text_add(out, "\n");
    wrap(has_all ? m->intro : mx_arena_strndup(out->arena, m->intro, strcspn(m->intro, "\n")), 0, 0,
         out);
    mx_text_add(out, "\n");
    help_rows(m->arguments, has_all, out);
    for (int i = 0; i < options->n; i++) {
        const MxOption *option = &options->rows[i];
        if (!option->doc || (!has_all && !option->is_main)) continue;
        help_row(shown(out->arena, option), has_all ? option->doc : brief(out->arena, option->doc),
                 out);
    }
    for (const MxManualRow *row = m->notes; has_all && row && row->name; row++) {
        mx_text_add(out, "\n%s: ", row->name);
        wrap(row->text, (int)strlen(row->name) + 2, 0, out);
    }
    if (m->examples) mx_text_add(out, "\nExamples:\n");
    help_rows(m->examples, true, out);
    if (!has_all)
        mx_text_add(out,
                    "\n%s --help-all shows every option and the exit codes; %s --man is a "
                    "manual page.\n",
                    m->program, m->program);
}

/* ---- manual page */

/* A dot at the beginning of a line would be a command, a lone - a hyphen. */
void mx_troff_add(MxText *out, const char *text) {
    bool begins_line = true;
    for (; *text; text++) {
        if (begins_line && (*text == '.' || *text == '\'')) mx_text_add(out, "\\&");
        if (*text == '\n' && begins_line) mx_text_add(out, ".PP");
        if (*text == '\\')
            mx_text_add(out, "\\e");
        else if (*text == '-')
            mx_text_add(out, "\\-");
        else
            mx_text_addn(out, text, 1);
        begins_line = *text == '\n';
    }
}

void mx_troff_section(MxText *out, const char *title) {
    mx_text_add(out, ".SH ");
    for (const char *p = title; *p; p++) mx_text_add(out, "%c", toupper((unsigned char)*p));
    mx_text_add(out, "\n");
}

static void add_line(const char *text, MxText *out) {
    mx_troff_add(out, text);
    mx_text_add(out, "\n");
}

static void page_row(const char *name, const char *text, MxText *out) {
    mx_text_add(out, ".TP\n.B ");
    add_line(name, out);
    add_line(text, out);
}

static void page_rows(const MxManualRow *rows, MxText *out) {
    for (; rows && rows->name; rows++) page_row(rows->name, rows->text, out);
}

static void page_section(const char *title, const char *text, MxText *out) {
    mx_troff_section(out, title);
    if (text) add_line(text, out);
}

void manual_page(const MxOptions *options, MxText *out) {
    const MxManual *m = options->manual;
    mx_text_add(out, ".TH %s 1 " MX_VERSION_DATE " \"mxtrain " MX_VERSION "\" \"User Commands\"\n",
                m->program);
    mx_text_add(out, ".SH NAME\n%s \\- %s\n.SH SYNOPSIS\n.B %s\n", m->program, m->does, m->program);
    add_line(m->synopsis, out);
    page_section("description", m->intro, out);
    page_section("options", NULL, out);
    page_rows(m->arguments, out);
    for (int i = 0; i < options->n; i++) {
        const MxOption *option = &options->rows[i];
        if (option->doc) page_row(shown(out->arena, option), option->doc, out);
    }
    for (const MxManualRow *row = m->notes; row && row->name; row++)
        page_section(row->name, row->text, out);
    if (m->examples) page_section("examples", NULL, out);
    page_rows(m->examples, out);
}

/* ---- completion */

/* Scripts ask the program. Bash breaks words at "=" too, so what stands before the last one is
 * taken off what it is told. */
static const struct {
    const char *shell, *script; /* every TOOL is the program's name */
} scripts[] = {
    {"bash",
     "_TOOL() {\n"
     "    local IFS=$' \\t\\n' line=${COMP_LINE:0:COMP_POINT} word before=\n"
     "    word=${line##*[[:space:]]}\n"
     "    local -a words=(${line%\"$word\"})\n"
     "    ((${#words[@]})) && before=${words[${#words[@]} - 1]}\n"
     "    local head=${word%\"${word##*[=:]}\"}\n"
     "    local IFS=$'\\n' found\n"
     "    COMPREPLY=()\n"
     "    for found in $(TOOL --complete \"$before\" \"$word\" 2>/dev/null); do\n"
     "        if [[ $found == :files ]]; then\n"
     "            compopt -o filenames 2>/dev/null\n"
     "            COMPREPLY+=($(compgen -f -- \"${word#\"$head\"}\"))\n"
     "        else\n"
     "            COMPREPLY+=(\"${found#\"$head\"}\")\n"
     "        fi\n"
     "    done\n"
     "    [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace 2>/dev/null\n"
     "    return 0\n"
     "}\n"
     "complete -F _TOOL TOOL\n"},
    {"zsh", "#compdef TOOL\n"
            "_TOOL() {\n"
            "    local -a found ends\n"
            "    found=(\"${(@f)$(TOOL --complete \"${words[CURRENT-1]}\" \"${words[CURRENT]}\" "
            "2>/dev/null)}\")\n"
            "    ends=(${(M)found:#*=})\n"
            "    compadd -S '' -- $ends\n"
            "    compadd -- ${${found:#*=}:#:files}\n"
            "    if (( ${found[(Ie):files]} )); then\n"
            "        compset -P '*='\n"
            "        _files\n"
            "    fi\n"
            "}\n"
            "if [[ $funcstack[1] == _TOOL ]]; then _TOOL \"$@\"; else compdef _TOOL TOOL; fi\n"},
    {"fish", "function __TOOL_words\n"
             "    set -l before (commandline -opc)[-1]\n"
             "    set -l word (commandline -ct)\n"
             "    for found in (TOOL --complete \"$before\" \"$word\" 2>/dev/null)\n"
             "        if test \"$found\" = :files\n"
             "            set -l head (string match -r '^.*=' -- $word)\n"
             "            for path in (string replace -r '^.*=' '' -- $word)*\n"
             "                echo $head$path\n"
             "            end\n"
             "        else\n"
             "            echo $found\n"
             "        end\n"
             "    end\n"
             "end\n"
             "complete -c TOOL -f -a '(__TOOL_words)'\n"},
};

bool manual_completion(const MxOptions *options, const char *shell, MxText *out, MxError *err) {
    int i = 0;
    while (i < MX_COUNT(scripts) && strcmp(scripts[i].shell, shell)) i++;
    if (i == MX_COUNT(scripts))
        return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE,
                       "--completion wants bash, zsh or fish, found \"%s\"", shell);
    const char *at = scripts[i].script, *next;
    for (; (next = strstr(at, "TOOL")); at = next + strlen("TOOL"))
        mx_text_add(out, "%.*s%s", (int)(next - at), at, options->manual->program);
    mx_text_add(out, "%s", at);
    return true;
}

/* Whether words with spaces between them hold one, up to where it ends in a place of its own
 * ("FILE.yml" is a FILE). */
static bool names_file(const char *takes) {
    static const char names[] = MX_MANUAL_FILES;
    size_t n = strspn(takes, "ABCDEFGHIJKLMNOPQRSTUVWXYZ");
    for (const char *p = names; n && *p; p += strcspn(p, " "), p += strspn(p, " "))
        if (strcspn(p, " ") == n && !strncmp(p, takes, n)) return true;
    return false;
}

static void add_if(const char *word, size_t n, const char *begin, MxText *out) {
    size_t given = strlen(begin);
    if (given <= n && !strncmp(word, begin, given)) mx_text_add(out, "%.*s\n", (int)n, word);
}

/* Of choices: "linen|nnx". */
static void complete_value(const char *takes, const char *word, MxText *out) {
    if (names_file(takes)) mx_text_add(out, ":files\n");
    if (!strchr(takes, '|') || !islower((unsigned char)takes[0])) return;
    for (const char *p = takes; *p; p += strcspn(p, "|"), p += *p == '|')
        add_if(p, strcspn(p, "|"), word, out);
}

void manual_complete(const MxOptions *options, const char *before, const char *word, MxText *out) {
    const MxManual *m = options->manual;
    for (int i = 0; i < options->n; i++) {
        const MxOption *option = &options->rows[i];
        if (!option->value || strcmp(option->name, before) || (option->flag && *word == '-'))
            continue;
        complete_value(option->takes, word, out);
        if (!option->flag) return;
    }
    for (int i = 0; i < options->n && *word == '-'; i++)
        if (options->rows[i].doc)
            add_if(options->rows[i].name, strlen(options->rows[i].name), word, out);
    if (*word == '-') return;
    if (m->complete)
        m->complete(word, out);
    else
        mx_text_add(out, ":files\n");
}
