/* call_literals.c — reader of calls whose arguments are written as Python's or Gemma's values,
 * which become JSON. A call is one when it is complete. */
#include "call_formats.h"

enum { DEEPEST = 32 };

/* A call in work. */
typedef struct Reading {
    Calls *calls;
    const CallLiterals *how;
    MxText out; /* its arguments */
    int depth;
} Reading;

static MxFound read_value(Reading *r, MxRest *rest);

static void add_text(Reading *r, const char *text, size_t n) {
    mx_text_add(&r->out, "%s", mx_json_quote(&r->calls->opened, n ? text : "", n));
}

/* ---- texts */

/* Up to the next mark. */
static MxFound find_marked(const char *quote, MxRest *rest, const char **text, size_t *n) {
    const char *end = memmem(rest->at, (size_t)(rest->end - rest->at), quote, strlen(quote));
    if (!end) return calls_at_end(rest);
    *text = rest->at;
    *n = (size_t)(end - rest->at);
    rest->at = end + strlen(quote);
    return MX_FOUND_CALL;
}

static int digit_of(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* An escape as a character; one that is none stands for itself, with its backslash. */
static void add_escape(MxText *out, const char *at, const char *end, size_t *used) {
    static const char letters[] = "ntr\\'\"", characters[] = "\n\t\r\\'\"";
    const char *letter = *at ? strchr(letters, *at) : NULL;
    size_t digits = *at == 'x' ? 2 : *at == 'u' ? 4 : 0;
    uint32_t code = 0;
    *used = 1;
    if (letter) {
        mx_text_addn(out, &characters[letter - letters], 1);
        return;
    }
    bool is_code = digits && (size_t)(end - at) > digits;
    for (size_t i = 1; is_code && i <= digits; i++) {
        is_code = digit_of(at[i]) >= 0;
        code = code * 16 + (uint32_t)digit_of(at[i]);
    }
    if (is_code && code && (code < 0xd800 || code > 0xdfff)) {
        mx_char_add(out, code);
        *used = 1 + digits;
        return;
    }
    mx_text_addn(out, "\\", 1);
    mx_text_addn(out, at, 1);
}

/* Python's, between quotes of one kind. */
static MxFound read_quoted(MxRest *rest, MxText *out) {
    const char quote = *rest->at++;
    while (rest->at < rest->end && *rest->at != quote) {
        if (*rest->at != '\\') {
            mx_text_addn(out, rest->at++, 1);
            continue;
        }
        size_t used;
        if (++rest->at == rest->end) break;
        add_escape(out, rest->at, rest->end, &used);
        rest->at += used;
    }
    if (rest->at == rest->end) return calls_at_end(rest);
    rest->at++;
    return MX_FOUND_CALL;
}

static bool is_quote(const Reading *r, char c) {
    return !r->how->quote && (c == '\'' || c == '"');
}

/* A text, if one begins here. */
static MxFound read_text(Reading *r, MxRest *rest, MxText *out) {
    const char *text = NULL;
    size_t n = 0;
    mx_text_init(out, &r->calls->opened);
    if (is_quote(r, *rest->at)) return read_quoted(rest, out);
    MxFound found = r->how->quote ? mx_rest_skip(rest, r->how->quote) : MX_FOUND_NONE;
    if (found == MX_FOUND_CALL) found = find_marked(r->how->quote, rest, &text, &n);
    if (found == MX_FOUND_CALL && n) mx_text_addn(out, text, n);
    return found;
}

/* ---- other values */

/* A word, as far as letters, digits and what numbers have go. */
static MxFound read_word(Reading *r, MxRest *rest) {
    static const struct {
        const char *word, *json;
    } words[] = {{"True", "true"}, {"False", "false"}, {"None", "null"}};
    const char *from = rest->at;
    MxArena scratch = {.name = "word"};
    MxError err = {0};
    while (rest->at < rest->end && (calls_is_of_name(*rest->at) || *rest->at == '+')) rest->at++;
    if (rest->at == rest->end) return calls_at_end(rest);
    const char *word = mx_arena_strndup(&scratch, from, (size_t)(rest->at - from));
    for (int i = 0; i < MX_COUNT(words); i++)
        if (!strcmp(word, words[i].word)) word = words[i].json;
    const MxJson *json = mx_json_parse_value(&scratch, word, strlen(word), MX_NOWHERE, &err);
    if (json) mx_text_add(&r->out, "%s", word);
    mx_error_release(&err);
    mx_arena_release(&scratch);
    return json ? MX_FOUND_CALL : MX_FOUND_NONE;
}

/* A comma, or the end of what stands between brackets. */
static MxFound read_comma(Reading *r, MxRest *rest, char close, bool *is_over) {
    mx_rest_skip_spaces(rest);
    if (rest->at == rest->end) return calls_at_end(rest);
    *is_over = *rest->at == close;
    if (!*is_over && *rest->at != ',') return MX_FOUND_NONE;
    rest->at++;
    if (*is_over) return MX_FOUND_CALL;
    mx_rest_skip_spaces(rest);
    if (rest->at == rest->end) return calls_at_end(rest);
    *is_over = *rest->at == close; /* behind a last comma */
    rest->at += *is_over;
    if (!*is_over) mx_text_add(&r->out, ", ");
    return MX_FOUND_CALL;
}

/* Whether it ends at once. */
static MxFound read_open(MxRest *rest, char close, bool *is_over) {
    rest->at++;
    mx_rest_skip_spaces(rest);
    if (rest->at == rest->end) return calls_at_end(rest);
    *is_over = *rest->at == close;
    rest->at += *is_over;
    return MX_FOUND_CALL;
}

static MxFound read_list(Reading *r, MxRest *rest) {
    bool is_over = false;
    mx_text_add(&r->out, "[");
    MxFound found = read_open(rest, ']', &is_over);
    while (found == MX_FOUND_CALL && !is_over) {
        found = read_value(r, rest);
        if (found == MX_FOUND_CALL) found = read_comma(r, rest, ']', &is_over);
    }
    mx_text_add(&r->out, "]");
    return found;
}

/* A name of a member: a word, or a text. */
static MxFound read_name(Reading *r, MxRest *rest, char behind, MxText *name) {
    MxFound found = read_text(r, rest, name);
    if (found == MX_FOUND_NONE && !is_quote(r, *rest->at)) {
        const char *from = rest->at;
        while (rest->at < rest->end && calls_is_of_name(*rest->at)) rest->at++;
        if (rest->at == from) return rest->at == rest->end ? calls_at_end(rest) : MX_FOUND_NONE;
        mx_text_addn(name, from, (size_t)(rest->at - from));
        found = MX_FOUND_CALL;
    }
    mx_rest_skip_spaces(rest);
    if (found != MX_FOUND_CALL) return found;
    if (rest->at == rest->end) return calls_at_end(rest);
    if (*rest->at++ != behind) return MX_FOUND_NONE;
    mx_rest_skip_spaces(rest);
    return MX_FOUND_CALL;
}

/* Names and values; a text of a function's argument may be another value there. */
static MxFound read_members(Reading *r, MxRest *rest, char behind, char close,
                            const char *function) {
    bool is_over = false;
    mx_text_add(&r->out, "{");
    MxFound found = read_open(rest, close, &is_over);
    while (found == MX_FOUND_CALL && !is_over) {
        MxText name, text;
        found = read_name(r, rest, behind, &name);
        if (found != MX_FOUND_CALL) break;
        add_text(r, name.data, name.len);
        mx_text_add(&r->out, ": ");
        if (rest->at == rest->end) return calls_at_end(rest);
        MxRest here = *rest;
        MxFound is_text = function && r->how->quote ? read_text(r, &here, &text) : MX_FOUND_NONE;
        if (is_text == MX_FOUND_CALL) {
            *rest = here;
            calls_add_value(r->calls, &r->out, function, name.data, text.len ? text.data : "",
                            text.len);
        } else {
            found = read_value(r, rest);
        }
        if (found == MX_FOUND_CALL) found = read_comma(r, rest, close, &is_over);
    }
    mx_text_add(&r->out, "}");
    return found;
}

static MxFound read_value(Reading *r, MxRest *rest) {
    MxText text;
    if (rest->at == rest->end) return calls_at_end(rest);
    MxFound found = read_text(r, rest, &text);
    if (found == MX_FOUND_CALL) add_text(r, text.data, text.len);
    if (found != MX_FOUND_NONE || is_quote(r, *rest->at)) return found;
    if (*rest->at != '[' && *rest->at != '{') return read_word(r, rest);
    if (++r->depth > DEEPEST) return MX_FOUND_NONE;
    found = *rest->at == '[' ? read_list(r, rest) : read_members(r, rest, ':', '}', NULL);
    r->depth--;
    return found;
}

const char *calls_literal(MxArena *arena, const char *value, size_t n) {
    static const CallLiterals python = {.quote = NULL};
    Calls calls = {.opened = {.name = "value"}};
    Reading r = {.calls = &calls, .how = &python};
    const char *text = mx_arena_printf(arena, "%.*s ", (int)n, value); /* words have an end */
    MxRest rest = {text, text + strlen(text), true};
    mx_text_init(&r.out, arena);
    MxFound found = read_value(&r, &rest);
    mx_rest_skip_spaces(&rest);
    mx_arena_release(&calls.opened);
    return found == MX_FOUND_CALL && rest.at == rest.end ? r.out.data : NULL;
}

/* ---- calls */

static MxFound read_call(Calls *calls, MxRest *rest) {
    const CallLiterals *how = calls->format->literals;
    Reading r = {.calls = calls, .how = how};
    MxFound found = mx_rest_skip(rest, how->head);
    const char *name = rest->at;
    if (found != MX_FOUND_CALL) return found;
    while (rest->at < rest->end && calls_is_of_name(*rest->at)) rest->at++;
    if (rest->at == rest->end) return calls_at_end(rest);
    if (rest->at == name || *rest->at != how->open) return MX_FOUND_NONE;
    const char *own = mx_arena_strndup(&calls->opened, name, (size_t)(rest->at - name));
    mx_text_init(&r.out, &calls->opened);
    found = read_members(&r, rest, how->behind_name, how->close, own);
    if (found != MX_FOUND_CALL) return found;
    calls_open(calls, own, strlen(own));
    calls_open_arguments(calls, r.out.data, r.out.len);
    return MX_FOUND_CALL;
}

/* [call, …] */
static MxFound read_calls(Calls *calls, MxRest *rest) {
    MxFound found = mx_rest_skip(rest, "[");
    while (found == MX_FOUND_CALL) {
        mx_rest_skip_spaces(rest);
        found = read_call(calls, rest);
        mx_rest_skip_spaces(rest);
        if (found != MX_FOUND_CALL) break;
        if (rest->at == rest->end) return calls_at_end(rest);
        if (*rest->at != ',') return mx_rest_skip(rest, "]");
        rest->at++;
    }
    return found;
}

MxFound calls_read_literals(Calls *calls, MxRest *rest) {
    const CallLiterals *how = calls->format->literals;
    mx_rest_skip(rest, how->begin);
    mx_rest_skip_spaces(rest);
    MxFound found = how->is_list ? read_calls(calls, rest) : read_call(calls, rest);
    if (found != MX_FOUND_CALL) {
        calls->n_open = 0; /* only complete ones are calls */
        return found;
    }
    mx_rest_skip_spaces(rest);
    return how->end && mx_rest_skip(rest, how->end) == MX_FOUND_PART ? MX_FOUND_PART
                                                                     : MX_FOUND_CALL;
}
