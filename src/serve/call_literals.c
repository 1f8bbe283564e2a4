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

static Found read_value(Reading *r, Rest *rest);

static void add_text(Reading *r, const char *text, size_t n) {
    mx_text_add(&r->out, "%s", mx_json_quote(&r->calls->opened, n ? text : "", n));
}

/* ---- texts */

/* Up to the next mark. */
static Found find_marked(const char *quote, Rest *rest, const char **text, size_t *n) {
    const char *end = memmem(rest->at, (size_t)(rest->end - rest->at), quote, strlen(quote));
    if (!end) return calls_at_end(rest);
    *text = rest->at;
    *n = (size_t)(end - rest->at);
    rest->at = end + strlen(quote);
    return FOUND_CALL;
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
static Found read_quoted(Rest *rest, MxText *out) {
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
    return FOUND_CALL;
}

static bool is_quote(const Reading *r, char c) {
    return !r->how->quote && (c == '\'' || c == '"');
}

/* A text, if one begins here. */
static Found read_text(Reading *r, Rest *rest, MxText *out) {
    const char *text = NULL;
    size_t n = 0;
    mx_text_init(out, &r->calls->opened);
    if (is_quote(r, *rest->at)) return read_quoted(rest, out);
    Found found = r->how->quote ? calls_skip(rest, r->how->quote) : FOUND_NONE;
    if (found == FOUND_CALL) found = find_marked(r->how->quote, rest, &text, &n);
    if (found == FOUND_CALL && n) mx_text_addn(out, text, n);
    return found;
}

/* ---- other values */

/* A word, as far as letters, digits and what numbers have go. */
static Found read_word(Reading *r, Rest *rest) {
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
    return json ? FOUND_CALL : FOUND_NONE;
}

/* A comma, or the end of what stands between brackets. */
static Found read_comma(Reading *r, Rest *rest, char close, bool *is_over) {
    calls_skip_spaces(rest);
    if (rest->at == rest->end) return calls_at_end(rest);
    *is_over = *rest->at == close;
    if (!*is_over && *rest->at != ',') return FOUND_NONE;
    rest->at++;
    if (*is_over) return FOUND_CALL;
    calls_skip_spaces(rest);
    if (rest->at == rest->end) return calls_at_end(rest);
    *is_over = *rest->at == close; /* behind a last comma */
    rest->at += *is_over;
    if (!*is_over) mx_text_add(&r->out, ", ");
    return FOUND_CALL;
}

/* Whether it ends at once. */
static Found read_open(Rest *rest, char close, bool *is_over) {
    rest->at++;
    calls_skip_spaces(rest);
    if (rest->at == rest->end) return calls_at_end(rest);
    *is_over = *rest->at == close;
    rest->at += *is_over;
    return FOUND_CALL;
}

static Found read_list(Reading *r, Rest *rest) {
    bool is_over = false;
    mx_text_add(&r->out, "[");
    Found found = read_open(rest, ']', &is_over);
    while (found == FOUND_CALL && !is_over) {
        found = read_value(r, rest);
        if (found == FOUND_CALL) found = read_comma(r, rest, ']', &is_over);
    }
    mx_text_add(&r->out, "]");
    return found;
}

/* A name of a member: a word, or a text. */
static Found read_name(Reading *r, Rest *rest, char behind, MxText *name) {
    Found found = read_text(r, rest, name);
    if (found == FOUND_NONE && !is_quote(r, *rest->at)) {
        const char *from = rest->at;
        while (rest->at < rest->end && calls_is_of_name(*rest->at)) rest->at++;
        if (rest->at == from) return rest->at == rest->end ? calls_at_end(rest) : FOUND_NONE;
        mx_text_addn(name, from, (size_t)(rest->at - from));
        found = FOUND_CALL;
    }
    calls_skip_spaces(rest);
    if (found != FOUND_CALL) return found;
    if (rest->at == rest->end) return calls_at_end(rest);
    if (*rest->at++ != behind) return FOUND_NONE;
    calls_skip_spaces(rest);
    return FOUND_CALL;
}

/* Names and values; a text of a function's argument may be another value there. */
static Found read_members(Reading *r, Rest *rest, char behind, char close, const char *function) {
    bool is_over = false;
    mx_text_add(&r->out, "{");
    Found found = read_open(rest, close, &is_over);
    while (found == FOUND_CALL && !is_over) {
        MxText name, text;
        found = read_name(r, rest, behind, &name);
        if (found != FOUND_CALL) break;
        add_text(r, name.data, name.len);
        mx_text_add(&r->out, ": ");
        if (rest->at == rest->end) return calls_at_end(rest);
        Rest here = *rest;
        Found is_text = function && r->how->quote ? read_text(r, &here, &text) : FOUND_NONE;
        if (is_text == FOUND_CALL) {
            *rest = here;
            calls_add_value(r->calls, &r->out, function, name.data, text.len ? text.data : "",
                            text.len);
        } else {
            found = read_value(r, rest);
        }
        if (found == FOUND_CALL) found = read_comma(r, rest, close, &is_over);
    }
    mx_text_add(&r->out, "}");
    return found;
}

static Found read_value(Reading *r, Rest *rest) {
    MxText text;
    if (rest->at == rest->end) return calls_at_end(rest);
    Found found = read_text(r, rest, &text);
    if (found == FOUND_CALL) add_text(r, text.data, text.len);
    if (found != FOUND_NONE || is_quote(r, *rest->at)) return found;
    if (*rest->at != '[' && *rest->at != '{') return read_word(r, rest);
    if (++r->depth > DEEPEST) return FOUND_NONE;
    found = *rest->at == '[' ? read_list(r, rest) : read_members(r, rest, ':', '}', NULL);
    r->depth--;
    return found;
}

const char *calls_literal(MxArena *arena, const char *value, size_t n) {
    static const CallLiterals python = {.quote = NULL};
    Calls calls = {.opened = {.name = "value"}};
    Reading r = {.calls = &calls, .how = &python};
    const char *text = mx_arena_printf(arena, "%.*s ", (int)n, value); /* words have an end */
    Rest rest = {text, text + strlen(text), true};
    mx_text_init(&r.out, arena);
    Found found = read_value(&r, &rest);
    calls_skip_spaces(&rest);
    mx_arena_release(&calls.opened);
    return found == FOUND_CALL && rest.at == rest.end ? r.out.data : NULL;
}

/* ---- calls */

static Found read_call(Calls *calls, Rest *rest) {
    const CallLiterals *how = calls->format->literals;
    Reading r = {.calls = calls, .how = how};
    Found found = calls_skip(rest, how->head);
    const char *name = rest->at;
    if (found != FOUND_CALL) return found;
    while (rest->at < rest->end && calls_is_of_name(*rest->at)) rest->at++;
    if (rest->at == rest->end) return calls_at_end(rest);
    if (rest->at == name || *rest->at != how->open) return FOUND_NONE;
    const char *own = mx_arena_strndup(&calls->opened, name, (size_t)(rest->at - name));
    mx_text_init(&r.out, &calls->opened);
    found = read_members(&r, rest, how->behind_name, how->close, own);
    if (found != FOUND_CALL) return found;
    calls_open(calls, own, strlen(own));
    calls_open_arguments(calls, r.out.data, r.out.len);
    return FOUND_CALL;
}

/* [call, …] */
static Found read_calls(Calls *calls, Rest *rest) {
    Found found = calls_skip(rest, "[");
    while (found == FOUND_CALL) {
        calls_skip_spaces(rest);
        found = read_call(calls, rest);
        calls_skip_spaces(rest);
        if (found != FOUND_CALL) break;
        if (rest->at == rest->end) return calls_at_end(rest);
        if (*rest->at != ',') return calls_skip(rest, "]");
        rest->at++;
    }
    return found;
}

Found calls_read_literals(Calls *calls, Rest *rest) {
    const CallLiterals *how = calls->format->literals;
    calls_skip(rest, how->begin);
    calls_skip_spaces(rest);
    Found found = how->is_list ? read_calls(calls, rest) : read_call(calls, rest);
    if (found != FOUND_CALL) {
        calls->n_open = 0; /* only complete ones are calls */
        return found;
    }
    calls_skip_spaces(rest);
    return how->end && calls_skip(rest, how->end) == FOUND_PART ? FOUND_PART : FOUND_CALL;
}
