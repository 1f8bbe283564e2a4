/* pattern.c — patterns of tokenizers. Their regular expressions are written for Oniguruma (Ruby's
 * syntax) and converted to PCRE2's. Syntax that the two interpret differently is rewritten or
 * refused: character classes (\s, \w), intersections of classes, nested classes, a "+" after {n,m}.
 */
#include "internal.h"

/* What \s and \w match, inside of a class: White_Space; letters, marks, digits and connectors as
 * Unicode has them, and the small numbers of Latin-1. */
static const char spaces[] = "\\p{Z}\\t-\\r\\x{85}";
static const char words[] =
    "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}";

typedef struct Translation {
    MxText out;
    const char *at, *why;
    size_t open; /* where the class that is open begins in `out`, with its bracket */
    bool in_class;
} Translation;

static bool refuse(Translation *t, const char *why) {
    t->why = why;
    return false;
}

/* One escape; \S and \W inside of a class cannot be written as a part of it. */
static bool add_escape(Translation *t) {
    char c = t->at[1];
    const char *set = c == 's' || c == 'S' ? spaces : c == 'w' || c == 'W' ? words : NULL;
    bool is_not = c == 'S' || c == 'W';
    if (!c) return refuse(t, "it ends in a backslash");
    if (strchr("hHKRXOyYgkGzZ", c)) return refuse(t, "an escape that has another meaning here");
    if (set && is_not && t->in_class) return refuse(t, "\\S or \\W inside of brackets");
    if (set && t->in_class)
        mx_text_add(&t->out, "%s", set);
    else if (set)
        mx_text_add(&t->out, "[%s%s]", is_not ? "^" : "", set);
    else
        mx_text_addn(&t->out, t->at, 2);
    t->at += 2;
    const char *end = strchr("pPx", c) && *t->at == '{' ? strchr(t->at, '}') : NULL;
    if (end) { /* \p{L}: no number of times */
        mx_text_addn(&t->out, t->at, (size_t)(end + 1 - t->at));
        t->at = end + 1;
    }
    return true;
}

/* "&&[^…]" behind what a class has so far: a look ahead excludes it. */
static bool add_intersection(Translation *t) {
    static const char start[] = "&&[^";
    if (!mx_text_has_prefix(t->at, start)) return refuse(t, "\"&&\" with something else than [^…]");
    const char *inner = t->at + strlen(start), *end = inner;
    while (*end && *end != ']') end += 1 + (*end == '\\' && end[1]);
    if (*end != ']' || end[1] != ']') return refuse(t, "\"&&\" before the end of brackets");
    char *class = mx_arena_strdup(t->out.arena, t->out.data + t->open);
    t->out.len = t->open;
    t->out.data[t->open] = '\0';
    mx_text_add(&t->out, "(?:(?![%.*s])%s])", (int)(end - inner), inner, class);
    t->at = end + 2;
    t->in_class = false;
    return true;
}

static bool add_in_class(Translation *t) {
    if (*t->at == '[' && t->at[1] != ':') return refuse(t, "brackets inside of brackets");
    if (t->at[0] == '&' && t->at[1] == '&') return add_intersection(t);
    if (*t->at == '[') { /* [:alpha:] */
        const char *end = strstr(t->at, ":]");
        if (!end) return refuse(t, "\"[:\" without \":]\"");
        mx_text_addn(&t->out, t->at, (size_t)(end + 2 - t->at));
        t->at = end + 2;
        return true;
    }
    t->in_class = *t->at != ']';
    mx_text_addn(&t->out, t->at++, 1);
    return true;
}

static bool add_outside(Translation *t) {
    if (*t->at == '[') {
        t->in_class = true;
        t->open = t->out.len;
        size_t n = 1u + (t->at[1] == '^');
        n += t->at[n] == ']'; /* the first one is a character */
        mx_text_addn(&t->out, t->at, n);
        t->at += n;
        return true;
    }
    if (*t->at == '}' && t->at[1] == '+') return refuse(t, "\"+\" behind {n,m}");
    if (t->at[0] == '(' && t->at[1] == '?')
        for (const char *p = t->at + 2; (*p >= 'a' && *p <= 'z') || *p == '-'; p++)
            if (*p != 'i' && *p != '-') return refuse(t, "an option other than (?i)");
    mx_text_addn(&t->out, t->at++, 1);
    return true;
}

const MxRegex *text_regex_new(MxArena *arena, const char *pattern, const char **why) {
    Translation t = {.at = pattern};
    mx_text_init(&t.out, arena);
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

bool text_match(TextWork *work, int slot, const TextPattern *pattern, TextPlace *place) {
    TextSpan text = place->text;
    if (pattern->string.data) {
        place->start = text_find_span(text, place->end, pattern->string);
        place->found = place->start != SIZE_MAX;
        if (place->found) place->end = place->start + pattern->string.n;
        return true;
    }
    if (!work->finder[slot]) work->finder[slot] = mx_finder_new(&work->arena, pattern->regex);
    size_t span[2] = {0}, from = place->end;
    MxMatch match;
    while ((match = mx_finder_next(work->finder[slot], text.data, text.n, from, span)) ==
               MX_MATCH_PART &&
           span[0] == span[1]) { /* it matches nothing: on behind the next character */
        if (span[1] >= text.n) match = MX_MATCH_NONE;
        if (match == MX_MATCH_NONE) break;
        from = span[1] + text_char_bytes((uint8_t)text.data[span[1]]);
    }
    if (match == MX_MATCH_GAVE_UP)
        return mx_fail(work->err, MX_EXIT_BAD_INPUT, work->where,
                       "a pattern of the tokenizer has too many ways to match at byte %zu of %zu",
                       place->end, text.n);
    place->found = match == MX_MATCH_PART;
    place->start = span[0];
    if (place->found) place->end = span[1];
    return true;
}
