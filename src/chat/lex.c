/* lex.c — a template as tokens: text, and names, constants and operators inside tags. Whitespace
 * around tags is handled as with trim_blocks and lstrip_blocks. Source: jinja2 3.1, lexer.py. */
#include "parse.h"

#include <stdlib.h>

typedef struct Lexer {
    MxArena *arena;
    MxError *err;
    const char *name;
    ChatText in;
    size_t at;
    int line;
    bool line_starts; /* what was taken last ended a line */
    ChatToken *token;
    int64_t n, cap;
    MxText open; /* brackets that are open */
} Lexer;

static bool fail(Lexer *lexer, const char *message) {
    return mx_fail(lexer->err, MX_EXIT_BAD_INPUT,
                   (MxWhere){.file = lexer->name, .line = lexer->line}, "%s", message);
}

static ChatToken *add(Lexer *lexer, ChatTokenKind kind, size_t from, size_t to) {
    if (lexer->n == lexer->cap) {
        lexer->cap = 2 * lexer->cap + 64;
        lexer->token = mx_arena_grow(lexer->arena, lexer->token, (size_t)lexer->n,
                                     (size_t)lexer->cap, sizeof *lexer->token);
    }
    ChatToken *token = &lexer->token[lexer->n++];
    *token =
        (ChatToken){.kind = kind, .line = lexer->line, .text = {lexer->in.data + from, to - from}};
    return token;
}

static bool is_here(const Lexer *lexer, size_t at, const char *what) {
    size_t n = strlen(what);
    return at <= lexer->in.n && lexer->in.n - at >= n && !memcmp(lexer->in.data + at, what, n);
}

/* Moves to `to`, counting lines. */
static void move(Lexer *lexer, size_t to) {
    for (size_t i = lexer->at; i < to; i++) lexer->line += lexer->in.data[i] == '\n';
    if (to > lexer->at) lexer->line_starts = lexer->in.data[to - 1] == '\n';
    lexer->at = to;
}

static size_t after_spaces(const Lexer *lexer, size_t at) {
    while (at < lexer->in.n) {
        size_t next = at;
        if (!chat_is_space(mx_char_next(lexer->in.data, &next))) break;
        at = next;
    }
    return at;
}

/* ---- ends of marks */

/* Where a mark ends that closes with `close`, as "%}": behind spaces after a "-", and behind the
 * end of the line where `trims`, unless there is a "+". 0 = it is not here. */
static size_t mark_end(const Lexer *lexer, size_t at, const char *close, bool trims) {
    if (is_here(lexer, at, "-") && is_here(lexer, at + 1, close))
        return after_spaces(lexer, at + 3);
    if (trims && is_here(lexer, at, "+") && is_here(lexer, at + 1, close)) return at + 3;
    if (!is_here(lexer, at, close)) return 0;
    return at + 2 + (trims && is_here(lexer, at + 2, "\n"));
}

/* ---- text */

/* Without the spaces that a mark behind it takes away. sign: what stands in the mark. */
static size_t stripped_end(const Lexer *lexer, size_t from, size_t to, char sign, bool is_print) {
    ChatText text = {lexer->in.data + from, to - from};
    if (sign == '-') return from + chat_strip(text, (ChatText){0}, false, true).n;
    if (sign == '+' || is_print) return to;
    size_t line = text.n;
    while (line && text.data[line - 1] != '\n') line--;
    if (!line && !lexer->line_starts) return to;
    ChatText rest = {text.data + line, text.n - line};
    return chat_strip(rest, (ChatText){0}, true, false).n ? to : from + line;
}

/* Text up to `to`, where a mark with this sign stands. */
static void take_text(Lexer *lexer, size_t to, char sign, bool is_print) {
    size_t from = lexer->at, end = stripped_end(lexer, from, to, sign, is_print);
    if (end > from) add(lexer, CHAT_DATA_TOKEN, from, end);
    move(lexer, to);
}

static char sign_at(const Lexer *lexer, size_t at) {
    return is_here(lexer, at, "-") ? '-' : is_here(lexer, at, "+") ? '+' : '\0';
}

/* Behind "{%- word %}" with `close` trimmed or not; 0 = it is not here. */
static size_t tag_end(const Lexer *lexer, size_t at, const char *word, bool trims) {
    if (!is_here(lexer, at, "{%")) return 0;
    at += 2;
    at = after_spaces(lexer, at + (sign_at(lexer, at) != 0));
    if (!is_here(lexer, at, word)) return 0;
    at = after_spaces(lexer, at + strlen(word));
    if (!trims && is_here(lexer, at, "+%}")) return 0;
    return mark_end(lexer, at, "%}", trims);
}

static bool take_raw(Lexer *lexer, size_t begin) {
    move(lexer, begin);
    for (size_t at = begin; at + 1 < lexer->in.n; at++) {
        size_t end = tag_end(lexer, at, "endraw", true);
        if (!end) continue;
        take_text(lexer, at, sign_at(lexer, at + 2), false);
        move(lexer, end);
        return true;
    }
    return fail(lexer, "Missing end of raw directive");
}

static bool take_comment(Lexer *lexer, size_t begin) {
    for (size_t at = begin; at + 1 < lexer->in.n; at++) {
        size_t end = mark_end(lexer, at, "#}", true);
        if (!end) continue;
        move(lexer, end);
        return true;
    }
    return fail(lexer, "Missing end of comment tag");
}

/* ---- constants */

static bool add_escaped(Lexer *lexer, MxText *out, ChatText text, size_t *at) {
    static const char plain[] = "n\nt\tr\rb\bf\fv\va\a\\\\''\"\"";
    static const struct {
        char letter;
        size_t digits;
    } codes[] = {{'x', 2}, {'u', 4}, {'U', 8}};
    enum { LAST_CHAR = 0x10ffff };
    char letter = text.data[(*at)++];
    if (letter == '\n') return true;
    for (const char *p = plain; *p; p += 2)
        if (*p == letter) return mx_text_addn(out, p + 1, 1), true;
    for (int i = 0; i < MX_COUNT(codes); i++) {
        if (codes[i].letter != letter) continue;
        uint32_t c = 0;
        for (size_t k = 0; k < codes[i].digits; k++, ++*at) {
            const char *digits = "0123456789abcdef", *digit = NULL;
            if (*at < text.n && text.data[*at])
                digit = strchr(digits, text.data[*at] | (text.data[*at] > '9' ? 0x20 : 0));
            if (!digit || c >> 28) return fail(lexer, "wanted hexadecimal digits behind \"\\\"");
            c = c << 4 | (uint32_t)(digit - digits);
        }
        if (c > LAST_CHAR || (c >= 0xd800 && c < 0xe000))
            return fail(lexer, "an escape in a text is no character");
        mx_char_add(out, c);
        return true;
    }
    if (letter == 'N') return fail(lexer, "characters by name (\"\\N{...}\") are not available");
    if (letter >= '0' && letter <= '7') {
        uint32_t c = (uint32_t)(letter - '0');
        for (int k = 0; k < 2 && *at < text.n; k++, ++*at) {
            if (text.data[*at] < '0' || text.data[*at] > '7') break;
            c = c << 3 | (uint32_t)(text.data[*at] - '0');
        }
        mx_char_add(out, c);
        return true;
    }
    mx_text_addn(out, "\\", 1);
    mx_text_addn(out, &letter, 1);
    return true;
}

/* A text in quotes; false and no failure if it does not end. */
static bool take_quoted(Lexer *lexer, char quote) {
    size_t end = lexer->at + 1;
    while (end < lexer->in.n && lexer->in.data[end] != quote)
        end += lexer->in.data[end] == '\\' ? 2 : 1;
    if (end >= lexer->in.n)
        return fail(lexer,
                    mx_arena_printf(lexer->arena, "unexpected char %s at %zu",
                                    chat_quoted(lexer->arena, (ChatText){&quote, 1}), lexer->at));
    ChatText text = {lexer->in.data + lexer->at + 1, end - lexer->at - 1};
    ChatToken *token = add(lexer, CHAT_TEXT_TOKEN, lexer->at, end + 1);
    MxText out;
    mx_text_init(&out, lexer->arena);
    for (size_t at = 0; at < text.n;) {
        const char *escape = memchr(text.data + at, '\\', text.n - at);
        size_t plain = escape ? (size_t)(escape - text.data) - at : text.n - at;
        mx_text_addn(&out, text.data + at, plain);
        at += plain;
        if (!escape) break;
        at++;
        if (!add_escaped(lexer, &out, text, &at)) return false;
    }
    token->value = chat_built(&out);
    move(lexer, end + 1);
    return true;
}

static bool is_digit(const Lexer *lexer, size_t at) {
    return at < lexer->in.n && lexer->in.data[at] >= '0' && lexer->in.data[at] <= '9';
}

static size_t after_digits(const Lexer *lexer, size_t at) {
    while (is_digit(lexer, at) || (is_here(lexer, at, "_") && is_digit(lexer, at + 1))) at++;
    return at;
}

/* Behind a real number's fraction and exponent, or where a whole number ends. */
static size_t number_end(const Lexer *lexer, size_t at, bool *is_real) {
    size_t whole = after_digits(lexer, at), end = whole;
    if (is_here(lexer, at ? at - 1 : 0, ".") && at) return whole;
    if (is_here(lexer, end, ".") && is_digit(lexer, end + 1)) end = after_digits(lexer, end + 1);
    if (is_here(lexer, end, "e") || is_here(lexer, end, "E")) {
        size_t digits = end + 1 + (sign_at(lexer, end + 1) != 0);
        if (is_digit(lexer, digits)) end = after_digits(lexer, digits);
    }
    *is_real = end > whole;
    return end;
}

static bool take_whole(Lexer *lexer, size_t from, size_t to, unsigned base) {
    const ChatWhole most = (ChatWhole)(~(unsigned __int128)0 >> 1);
    ChatWhole value = 0;
    for (size_t i = from; i < to; i++) {
        char c = lexer->in.data[i];
        if (c == '_') continue;
        unsigned digit = c <= '9' ? (unsigned)(c - '0') : (unsigned)((c | 0x20) - 'a' + 10);
        if (value > (most - digit) / base)
            return fail(lexer, "a whole number has more than 127 bits");
        value = value * base + digit;
    }
    add(lexer, CHAT_WHOLE_TOKEN, lexer->at, to)->value = chat_whole(value);
    move(lexer, to);
    return true;
}

static bool take_number(Lexer *lexer) {
    static const struct {
        char letter;
        unsigned base;
        const char *digits;
    } bases[] = {{'x', 16, "0123456789abcdefABCDEF_"}, {'o', 8, "01234567_"}, {'b', 2, "01_"}};
    size_t at = lexer->at;
    bool is_real = false;
    for (int i = 0; i < MX_COUNT(bases) && is_here(lexer, at, "0"); i++) {
        if (at + 2 >= lexer->in.n || (lexer->in.data[at + 1] | 0x20) != bases[i].letter) continue;
        size_t end = at + 2;
        while (end < lexer->in.n && lexer->in.data[end] &&
               strchr(bases[i].digits, lexer->in.data[end]))
            end++;
        if (end > at + 2) return take_whole(lexer, at + 2, end, bases[i].base);
    }
    size_t end = number_end(lexer, at, &is_real);
    if (!is_real) {
        size_t zeros = at; /* "01" is two numbers, which no place takes */
        while (is_here(lexer, zeros, "0") || is_here(lexer, zeros, "_0")) zeros++;
        return take_whole(lexer, at, zeros > at ? zeros : end, 10);
    }
    MxText digits;
    mx_text_init(&digits, lexer->arena);
    for (size_t i = at; i < end; i++)
        if (lexer->in.data[i] != '_') mx_text_addn(&digits, lexer->in.data + i, 1);
    add(lexer, CHAT_REAL_TOKEN, at, end)->value = chat_real(strtod(digits.data, NULL));
    move(lexer, end);
    return true;
}

/* ---- what stands in marks */

static bool take_bracket(Lexer *lexer, char c) {
    static const char pairs[] = "()[]{}";
    const char *place = strchr(pairs, c);
    MxText *open = &lexer->open;
    if (!place || !c) return true;
    if ((place - pairs) % 2 == 0) return mx_text_addn(open, place + 1, 1), true;
    char wanted = open->len ? open->data[open->len - 1] : '\0';
    if (!wanted) return fail(lexer, mx_arena_printf(lexer->arena, "unexpected '%c'", c));
    if (wanted != c)
        return fail(lexer,
                    mx_arena_printf(lexer->arena, "unexpected '%c', expected '%c'", c, wanted));
    open->data[--open->len] = '\0';
    return true;
}

static bool take_operator(Lexer *lexer) {
    static const char *const operators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                            "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                            ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    for (int i = 0; i < MX_COUNT(operators); i++) {
        if (!is_here(lexer, lexer->at, operators[i])) continue;
        if (!take_bracket(lexer, operators[i][0])) return false;
        add(lexer, CHAT_OPERATOR, lexer->at, lexer->at + strlen(operators[i]));
        move(lexer, lexer->at + strlen(operators[i]));
        return true;
    }
    size_t end = lexer->at;
    mx_char_next(lexer->in.data, &end);
    ChatText found = {lexer->in.data + lexer->at, end - lexer->at};
    return fail(lexer, mx_arena_printf(lexer->arena, "unexpected char %s at %zu",
                                       chat_quoted(lexer->arena, found), lexer->at));
}

static size_t name_end(const Lexer *lexer, size_t at) {
    while (at < lexer->in.n) {
        size_t next = at;
        if (!(mx_char_class(mx_char_next(lexer->in.data, &next)) & MX_CHAR_WORD)) break;
        at = next;
    }
    return at;
}

static bool take_token(Lexer *lexer) {
    char c = lexer->in.data[lexer->at];
    if (c == '"' || c == '\'') return take_quoted(lexer, c);
    if (is_digit(lexer, lexer->at)) return take_number(lexer);
    size_t end = name_end(lexer, lexer->at);
    if (end == lexer->at) return take_operator(lexer);
    add(lexer, CHAT_NAME_TOKEN, lexer->at, end);
    move(lexer, end);
    return true;
}

/* From behind a mark's beginning to behind its end. */
static bool take_mark(Lexer *lexer, bool is_print) {
    const char *close = is_print ? "}}" : "%}";
    for (;;) {
        move(lexer, after_spaces(lexer, lexer->at));
        if (lexer->at == lexer->in.n) return true; /* which the parser tells */
        size_t end = lexer->open.len ? 0 : mark_end(lexer, lexer->at, close, !is_print);
        if (end) {
            add(lexer, is_print ? CHAT_PRINT_END : CHAT_BLOCK_END, lexer->at, end);
            move(lexer, end);
            return true;
        }
        if (!take_token(lexer)) return false;
    }
}

/* ---- the whole */

static bool take_next(Lexer *lexer) {
    size_t at = lexer->at;
    while (at < lexer->in.n && !(lexer->in.data[at] == '{' && at + 1 < lexer->in.n &&
                                 (lexer->in.data[at + 1] == '%' || lexer->in.data[at + 1] == '{' ||
                                  lexer->in.data[at + 1] == '#')))
        at++;
    if (at == lexer->in.n) {
        take_text(lexer, at, '+', true);
        return true;
    }
    char mark = lexer->in.data[at + 1], sign = sign_at(lexer, at + 2);
    size_t raw = tag_end(lexer, at, "raw", false);
    take_text(lexer, at, sign, mark == '{');
    if (raw) return take_raw(lexer, raw);
    size_t begin = at + 2 + (sign != 0);
    if (mark == '#') return take_comment(lexer, begin);
    add(lexer, mark == '{' ? CHAT_PRINT_BEGIN : CHAT_BLOCK_BEGIN, at, begin);
    move(lexer, begin);
    return take_mark(lexer, mark == '{');
}

/* Ends of lines become "\n"; one at the very end goes. */
static ChatText with_plain_lines(MxArena *arena, ChatText source) {
    char *out = mx_arena_alloc(arena, source.n + 1);
    size_t n = 0;
    for (size_t i = 0; i < source.n; i++) {
        if (source.data[i] == '\r' && i + 1 < source.n && source.data[i + 1] == '\n') continue;
        out[n++] = source.data[i] == '\r' ? '\n' : source.data[i];
    }
    if (n && out[n - 1] == '\n') n--;
    out[n] = '\0';
    return (ChatText){out, n};
}

bool chat_lex(MxArena *arena, ChatText source, const char *name, ChatToken **out, int64_t *n,
              MxError *err) {
    Lexer lexer = {.arena = arena,
                   .err = err,
                   .name = name,
                   .in = with_plain_lines(arena, source),
                   .line = 1,
                   .line_starts = true};
    mx_text_init(&lexer.open, arena);
    while (lexer.at < lexer.in.n)
        if (!take_next(&lexer)) return false;
    add(&lexer, CHAT_END_TOKEN, lexer.in.n, lexer.in.n);
    *out = lexer.token;
    *n = lexer.n;
    return true;
}
