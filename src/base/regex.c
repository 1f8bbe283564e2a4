/* regex.c — regular expressions in the syntax of Python's re, for which the keys that contain
 * patterns are written; the only file that uses PCRE2. The two differ only in details: PCRE2 has no
 * {,n}. All memory comes from the arena. */
#include <mx/base.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>

struct MxRegex {
    pcre2_code *code;
};

struct MxFinder {
    const MxRegex *regex;
    pcre2_match_data *data;
};

static void *allocate(size_t bytes, void *arena) {
    return mx_arena_alloc(arena, bytes);
}
static void keep(void *memory, void *arena) {
    (void)memory;
    (void)arena;
}

static pcre2_general_context *memory_of(MxArena *arena) {
    return pcre2_general_context_create(allocate, keep, arena);
}

static const char *message(MxArena *arena, int code, size_t at) {
    PCRE2_UCHAR text[256]; /* PCRE2's own messages are shorter */
    pcre2_get_error_message(code, text, sizeof text);
    return mx_arena_printf(arena, "%s at position %zu", (const char *)text, at);
}

static MxRegex *new (MxArena *arena, const char *pattern, uint32_t options, const char **why) {
    MxRegex *regex = mx_new(arena, MxRegex);
    int code;
    PCRE2_SIZE at;
    pcre2_compile_context *compile = pcre2_compile_context_create(memory_of(arena));
    pcre2_set_newline(compile, PCRE2_NEWLINE_LF);
    regex->code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | options,
                                &code, &at, compile);
    if (regex->code) return regex;
    *why = message(arena, code, at);
    return NULL;
}

MxRegex *mx_regex_new(MxArena *arena, const char *pattern, const char **why) {
    return new (arena, pattern, 0, why);
}

static void release(void *code) {
    pcre2_code_free(code);
}

MxRegex *mx_regex_new_unicode(MxArena *arena, const char *pattern, const char **why) {
    MxRegex *regex = new (arena, pattern, PCRE2_UCP | PCRE2_MULTILINE, why);
    if (!regex) return NULL;
    /* Machine code is no memory of the arena. Without it the pattern is interpreted. */
    pcre2_jit_compile(regex->code, PCRE2_JIT_COMPLETE);
    mx_arena_on_release(arena, release, regex->code);
    return regex;
}

MxFinder *mx_finder_new(MxArena *arena, const MxRegex *regex) {
    MxFinder *finder = mx_new(arena, MxFinder);
    *finder = (MxFinder){regex, pcre2_match_data_create(1, memory_of(arena))};
    return finder;
}

MxMatch mx_finder_next(MxFinder *finder, const char *text, size_t n, size_t from, size_t span[2]) {
    const pcre2_code *code = finder->regex->code;
    uint32_t options = PCRE2_NO_UTF_CHECK;
    int found = pcre2_match(code, (PCRE2_SPTR)text, n, from, options, finder->data, NULL);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) /* the interpreter's stack can grow */
        found = pcre2_match(code, (PCRE2_SPTR)text, n, from, options | PCRE2_NO_JIT, finder->data,
                            NULL);
    if (found < 0) return found == PCRE2_ERROR_NOMATCH ? MX_MATCH_NONE : MX_MATCH_GAVE_UP;
    memcpy(span, pcre2_get_ovector_pointer(finder->data), 2 * sizeof *span);
    return MX_MATCH_PART;
}

static int match(const MxRegex *regex, const char *text, uint32_t options) {
    MxArena arena = {.name = "match"};
    pcre2_match_data *data = pcre2_match_data_create(1, memory_of(&arena));
    int code =
        pcre2_match(regex->code, (PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED, 0, options, data, NULL);
    mx_arena_release(&arena);
    return code;
}

MxMatch mx_regex_match(const MxRegex *regex, const char *text) {
    int whole = match(regex, text, PCRE2_ANCHORED | PCRE2_ENDANCHORED);
    if (whole >= 0) return MX_MATCH_WHOLE;
    int part = whole == PCRE2_ERROR_NOMATCH ? match(regex, text, 0) : whole;
    if (part >= 0) return MX_MATCH_PART;
    return part == PCRE2_ERROR_NOMATCH ? MX_MATCH_NONE : MX_MATCH_GAVE_UP;
}

/* ---- templates */

/* What a backslash in a template stands for. */
typedef struct Reference {
    int group; /* -1 = there is none */
    size_t n;  /* characters of it, the backslash among them */
} Reference;

static int group_of(const MxRegex *regex, const char *name, size_t n) {
    MxArena arena = {.name = "group"};
    char *word = mx_arena_strndup(&arena, name, n), *end;
    long number = strtol(word, &end, 10);
    uint32_t most = 0;
    pcre2_pattern_info(regex->code, PCRE2_INFO_CAPTURECOUNT, &most);
    if (*end) number = pcre2_substring_number_from_name(regex->code, (PCRE2_SPTR)word);
    bool is_number = n && !*end;
    mx_arena_release(&arena);
    if (is_number) return number <= (long)most ? (int)number : -1;
    return number > 0 ? (int)number : -1;
}

static Reference read_reference(const MxRegex *regex, const char *at) {
    const char *name = at + 1;
    if (name[0] == 'g' && name[1] == '<') {
        size_t n = strcspn(name + 2, ">");
        bool is_closed = name[2 + n] == '>';
        return (Reference){is_closed ? group_of(regex, name + 2, n) : -1, 1 + 2 + n + is_closed};
    }
    size_t n = strspn(name, "0123456789");
    if (n > 2) n = 2;
    return (Reference){n ? group_of(regex, name, n) : -1, 1 + n};
}

static const char *fill(MxArena *arena, const MxRegex *regex, const char *text, const char *form,
                        const PCRE2_SIZE *span, const char **why) {
    MxText out;
    mx_text_init(&out, arena);
    for (const char *at = form; *at;) {
        if (at[0] != '\\' || at[1] == '\\') {
            mx_text_add(&out, "%c", *at);
            at += at[0] == '\\' ? 2 : 1;
            continue;
        }
        Reference group = read_reference(regex, at);
        if (group.group < 0) {
            *why = mx_arena_printf(arena, "no such group: %.*s", (int)group.n, at);
            return NULL;
        }
        const PCRE2_SIZE *own = span + 2 * (size_t)group.group;
        if (own[0] != PCRE2_UNSET) mx_text_add(&out, "%.*s", (int)(own[1] - own[0]), text + own[0]);
        at += group.n;
    }
    return out.data;
}

const char *mx_regex_expand(MxArena *arena, const MxRegex *regex, const char *text,
                            const char *form, const char **why) {
    MxArena own = {.name = "match"};
    pcre2_match_data *data = pcre2_match_data_create_from_pattern(regex->code, memory_of(&own));
    int code = pcre2_match(regex->code, (PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED, 0,
                           PCRE2_ANCHORED | PCRE2_ENDANCHORED, data, NULL);
    const char *out = NULL;
    *why = code >= 0 || code == PCRE2_ERROR_NOMATCH ? NULL : "it takes too long to match";
    if (code >= 0) out = fill(arena, regex, text, form, pcre2_get_ovector_pointer(data), why);
    mx_arena_release(&own);
    return out;
}
