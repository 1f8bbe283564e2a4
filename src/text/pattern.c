/* pattern.c — patterns of tokenizers. Their regular expressions are written for Oniguruma (Ruby's
 * syntax) and converted to PCRE2's. Syntax that the two interpret differently is rewritten or
 * refused: character classes (\s, \w, [:punct:], \p{Han}), intersections of classes, nested
 * classes, a "+" after {n,m}. */
#include "internal.h"

#include <ctype.h>

#define WORDS "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"

/* What \w matches outside of brackets: small numbers of Latin-1 too. */
static const char words[] = WORDS "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}";

/* What Oniguruma's names of characters match in brackets: after a backslash, and between "[:" and
 * ":]". */
static const struct {
    const char *name, *inside;
} sets[] = {
    {"s", "\\p{Z}\\t-\\r\\x{85}"},
    {"w", WORDS},
    {"h", "0-9A-Fa-f"},
    {"alnum", "\\p{Alphabetic}\\p{Nd}"},
    {"alpha", "\\p{Alphabetic}"},
    {"ascii", "\\x{0}-\\x{7f}"},
    {"blank", "\\p{Zs}\\t"},
    {"cntrl", "\\p{Cc}"},
    {"digit", "\\p{Nd}"},
    {"graph", "\\p{L}\\p{M}\\p{N}\\p{P}\\p{S}\\p{Cf}\\p{Co}"},
    {"lower", "\\p{Lowercase}"},
    {"print", "\\p{L}\\p{M}\\p{N}\\p{P}\\p{S}\\p{Cf}\\p{Co}\\p{Zs}"},
    {"punct", "\\p{P}\\p{S}"},
    {"space", "\\p{Z}\\t-\\r\\x{85}"},
    {"upper", "\\p{Uppercase}"},
    {"word", WORDS},
    {"xdigit", "0-9A-Fa-f"},
};

static const char *set_named(const char *name, size_t n) {
    for (int i = 0; i < MX_COUNT(sets); i++)
        if (strlen(sets[i].name) == n && !strncmp(sets[i].name, name, n)) return sets[i].inside;
    return NULL;
}

typedef struct Translation {
    MxText out;
    const char *at, *why;
    size_t open;             /* where the class that is open begins in `out`, with its bracket */
    MxText beside;           /* what it has that cannot be written inside of brackets: "|[^…]" */
    bool in_class, excludes; /* … and [^ */
    int depth;               /* of classes inside of the class that is open */
    uint64_t folds;          /* a bit for each open group, the innermost lowest: (?i) acts there */
    size_t branch;           /* where the alternative that is open begins in `out` */
} Translation;

static bool refuse(Translation *t, const char *why) {
    t->why = why;
    return false;
}

/* Oniguruma adds their counterparts in brackets where (?i) acts. */
static const char letters_of_a_case[] = "letters of a case in brackets with (?i)";

/* \p{Han}: the characters of a script. PCRE2 adds those that are used with it, unless it is asked
 * for "sc:Han", which versions that do not add them lack. */
static bool add_property(Translation *t) {
    MxArena scratch = {.name = "property"};
    const char *end = strchr(t->at, '}'), *name = t->at + 1, *why;
    bool is_not = *name == '^';
    name += is_not;
    bool is_case = end - name == 2 && *name == 'L' && strchr("ult", name[1]);
    const char *script = mx_arena_printf(&scratch, "\\p{sc:%.*s}", (int)(end - name), name);
    bool is_script = mx_regex_new(&scratch, script, &why);
    mx_text_add(&t->out, "{%s%s%.*s}", is_not ? "^" : "", is_script ? "sc:" : "", (int)(end - name),
                name);
    mx_arena_release(&scratch);
    if (is_case && (t->folds & 1) && t->in_class) return refuse(t, letters_of_a_case);
    t->at = end + 1;
    return true;
}

/* \b and \B as \w has words. */
static void add_border(Translation *t, bool is_border) {
    mx_text_add(&t->out, "(?:(?<=[%s])(?%c[%s])|(?<![%s])(?%c[%s]))", words, is_border ? '!' : '=',
                words, words, is_border ? '=' : '!', words);
}

static void add_set(Translation *t, const char *set, bool is_not) {
    if (!t->in_class)
        mx_text_add(&t->out, "[%s%s]", is_not ? "^" : "", set);
    else if (is_not)
        mx_text_add(&t->beside, "|[^%s]", set);
    else
        mx_text_add(&t->out, "%s", set);
}

static bool add_escape(Translation *t) {
    char c = t->at[1], lower = c == 'S' || c == 'W' ? (char)(c - 'A' + 'a') : c;
    const char *set = lower == 'w' && !t->in_class ? words : set_named(&lower, 1);
    if (!c) return refuse(t, "it ends in a backslash");
    if (strchr("HKRXOyYgkG", c)) return refuse(t, "an escape that has another meaning here");
    if (set)
        add_set(t, set, c != lower);
    else if ((c == 'b' || c == 'B') && !t->in_class)
        add_border(t, c == 'b');
    else if (c != 'u')
        mx_text_addn(&t->out, t->at, 2);
    t->at += 2;
    const char *end = strchr("pPx", c) && *t->at == '{' ? strchr(t->at, '}') : NULL;
    if (end && c != 'x') return add_property(t);
    if (end) { /* \x{41}: no number of times */
        mx_text_addn(&t->out, t->at, (size_t)(end + 1 - t->at));
        t->at = end + 1;
    } else if (c == 'u') {
        if (strspn(t->at, "0123456789ABCDEFabcdef") < 4) return refuse(t, "\\u without 4 digits");
        mx_text_add(&t->out, "\\x{%.4s}", t->at);
        t->at += 4;
    }
    return true;
}

/* "&&[^…]" behind what a class has so far: a look ahead excludes it. [^…&&[^…]] is all else. */
static bool add_intersection(Translation *t) {
    static const char start[] = "&&[^";
    if (t->beside.len) return refuse(t, "\"&&\" behind \\S or \\W");
    if (!mx_text_has_prefix(t->at, start)) return refuse(t, "\"&&\" with something else than [^…]");
    const char *inner = t->at + strlen(start), *end = inner;
    while (*end && *end != ']') end += 1 + (*end == '\\' && end[1]);
    if (*end != ']' || end[1] != ']') return refuse(t, "\"&&\" before the end of brackets");
    char *class = mx_arena_strdup(t->out.arena, t->out.data + t->open);
    t->out.len = t->open;
    t->out.data[t->open] = '\0';
    if (t->excludes)
        mx_text_add(&t->out, "(?:%s]|[%.*s])", class, (int)(end - inner), inner);
    else
        mx_text_add(&t->out, "(?:(?![%.*s])%s])", (int)(end - inner), inner, class);
    t->at = end + 2;
    t->in_class = false;
    return true;
}

/* [a[bc]d] is [abcd], unless a range would come of it. */
static bool add_inner(Translation *t) {
    bool opens = *t->at == '[';
    if (opens && (strchr("^]", t->at[1]) || t->at[-1] == '-'))
        return refuse(t, "such brackets inside of brackets");
    if (!opens && t->at[1] == '-') return refuse(t, "\"-\" behind brackets inside of brackets");
    t->depth += opens ? 1 : -1;
    t->at++;
    return true;
}

/* A class with what stands beside it: [a\S] is (?:[a]|[^\s]). */
static void close_beside(Translation *t) {
    char *inside = mx_arena_strdup(t->out.arena, t->out.data + t->open + 1 + t->excludes);
    t->out.len = t->open;
    t->out.data[t->open] = '\0';
    mx_text_add(&t->out, t->excludes ? "(?:(?!" : "(?:");
    if (*inside) mx_text_add(&t->out, "[%s%s]|", *inside == '^' ? "\\" : "", inside);
    mx_text_add(&t->out, "%s%s", t->beside.data + 1, t->excludes ? ")(?s:.))" : ")");
}

static bool add_in_class(Translation *t) {
    if ((*t->at == '[' && t->at[1] != ':') || (*t->at == ']' && t->depth)) return add_inner(t);
    if (t->at[0] == '&' && t->at[1] == '&' && t->depth)
        return refuse(t, "\"&&\" in brackets inside of brackets");
    if (t->at[0] == '&' && t->at[1] == '&') return add_intersection(t);
    if (*t->at == '[') { /* [:alpha:] */
        const char *name = t->at + 2, *end = strstr(name, ":]");
        bool is_not = *name == '^';
        name += is_not;
        const char *set = end ? set_named(name, (size_t)(end - name)) : NULL;
        if (!set) return refuse(t, "such a name between \"[:\" and \":]\"");
        bool is_case = mx_text_has_prefix(name, "upper") || mx_text_has_prefix(name, "lower");
        if (is_case && (t->folds & 1)) return refuse(t, letters_of_a_case);
        add_set(t, set, is_not);
        t->at = end + 2;
        return true;
    }
    t->in_class = *t->at != ']';
    if (!t->in_class && t->beside.len)
        close_beside(t);
    else
        mx_text_addn(&t->out, t->at, 1);
    t->at++;
    return true;
}

/* The beginning of a group, or an option of the rest of the one around it. */
static bool add_group(Translation *t) {
    const char *p = t->at + 1;
    uint64_t folds = t->folds & 1;
    if (*p == '?') p++;
    for (bool acts = true; p > t->at + 1 && ((*p >= 'a' && *p <= 'z') || *p == '-'); p++) {
        if (*p != 'i' && *p != '-') return refuse(t, "an option other than (?i)");
        if (*p == 'i') folds = acts;
        acts = acts && *p != '-';
    }
    bool is_option = *p == ')' && t->at[1] == '?';
    if (is_option && t->out.len != t->branch) /* it would reach beyond the next "|" there */
        return refuse(t, "(?i) behind something else");
    t->folds = is_option ? (t->folds & ~(uint64_t)1) | folds : t->folds << 1 | folds;
    if (t->at[1] == '?' && *p) p += *p == '<' && p[1] ? 2 : 1; /* ")", ":", "<=" … */
    mx_text_addn(&t->out, t->at, (size_t)(p - t->at));
    t->at = p;
    t->branch = t->out.len;
    return true;
}

static bool add_outside(Translation *t) {
    if (*t->at == '[') {
        t->in_class = true;
        t->excludes = t->at[1] == '^';
        t->open = t->out.len;
        mx_text_clear(&t->beside);
        size_t n = 1u + t->excludes;
        n += t->at[n] == ']'; /* the first one is a character */
        mx_text_addn(&t->out, t->at, n);
        t->at += n;
        return true;
    }
    if (t->at[0] == '{' && t->at[1] == ',' && isdigit((unsigned char)t->at[2])) {
        mx_text_addn(&t->out, "{0", 2); /* {,n} */
        t->at++;
        return true;
    }
    if (*t->at == '}' && t->at[1] == '+') return refuse(t, "\"+\" behind {n,m}");
    if (*t->at == '(') return add_group(t);
    if (*t->at == ')') t->folds >>= 1;
    mx_text_addn(&t->out, t->at, 1);
    if (*t->at++ == '|') t->branch = t->out.len;
    return true;
}

const MxRegex *text_regex_new(MxArena *arena, const char *pattern, const char **why) {
    Translation t = {.at = pattern};
    mx_text_init(&t.out, arena);
    mx_text_init(&t.beside, arena);
    while (*t.at) {
        bool ok = *t.at == '\\' ? add_escape(&t) : t.in_class ? add_in_class(&t) : add_outside(&t);
        if (ok) continue;
        *why = mx_arena_printf(arena, "%s, which is not available, at position %zu", t.why,
                               (size_t)(t.at - pattern));
        return NULL;
    }
    return mx_regex_new_unicode(arena, t.out.data, why);
}

bool text_pattern_read(TextNode node, TextPattern *out) {
    TextSpan regex = {0};
    const char *why;
    *out = (TextPattern){0};
    if (!node.json || strcmp(mx_json_kind(node.json), "an object"))
        return text_node_wants(node, "{\"String\": …} or {\"Regex\": …}");
    if (!text_node_members(node, "String Regex") ||
        !text_node_span(node, "String", false, &out->string) ||
        !text_node_span(node, "Regex", !out->string.data, &regex))
        return false;
    if (out->string.data && !out->string.n) return text_node_fail(node, "the string is empty");
    if (out->string.data) return true;
    if (strlen(regex.data) != regex.n) return text_node_fail(node, "a pattern holds a NUL");
    out->regex = text_regex_new(node.arena, regex.data, &why);
    return out->regex || text_node_fail(node, "no pattern: %s", why);
}

MxMatch text_find_match(MxFinder *finder, const TextPattern *pattern, TextPlace *place) {
    TextSpan text = place->text;
    size_t span[2] = {0}, from = place->end;
    MxMatch match = MX_MATCH_NONE;
    if (pattern->string.data) {
        span[0] = text_find_span(text, from, pattern->string);
        if (span[0] != SIZE_MAX) match = MX_MATCH_PART;
        span[1] = span[0] + pattern->string.n;
    } else if (text.n) {
        match = mx_finder_next(finder, text.data, text.n, from, span);
        bool is_again = match == MX_MATCH_PART && place->found && span[1] == from;
        if (is_again && from == text.n) match = MX_MATCH_NONE;
        if (is_again && from < text.n) { /* nothing, where the last match ended */
            from += text_char_bytes((uint8_t)text.data[from]);
            match = mx_finder_next(finder, text.data, text.n, from, span);
        }
    }
    place->found = match == MX_MATCH_PART;
    if (!place->found) return match;
    place->start = span[0];
    place->end = span[1];
    return match;
}

bool text_match(TextWork *work, int slot, const TextPattern *pattern, TextPlace *place) {
    if (pattern->regex && !work->finder[slot])
        work->finder[slot] = mx_finder_new(&work->arena, pattern->regex);
    return text_find_match(work->finder[slot], pattern, place) != MX_MATCH_GAVE_UP ||
           mx_fail(work->err, MX_EXIT_BAD_INPUT, work->where,
                   "a pattern of the tokenizer has too many ways to match at byte %zu of %zu",
                   place->end, place->text.n);
}
