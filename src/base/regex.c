/* regex.c — regular expressions in the syntax of Python's re, for which the keys that contain
 * patterns are written; the only file that uses PCRE2. The two differ only in details: PCRE2 has no
 * {,n}. All memory comes from the arena. */
#include <mx/base.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

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
