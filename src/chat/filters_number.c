/* filters_number.c — filters of numbers, and to numbers. Source: jinja2 3.1, filters.py. */
#include "internal.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static ChatValue do_abs(ChatRun *run, ChatCall *call) {
    double number;
    if (!chat_use(run, call->self)) return call->self;
    if (!chat_number(call->self, &number))
        return chat_fail(run, "bad operand type for abs(): '%s'", chat_type(call->self));
    bool falls = chat_order(run, call->self, chat_whole(0), "<") < 0;
    return falls ? chat_operate(run, CHAT_MUL, call->self, chat_whole(-1)) : call->self;
}

/* Without the spaces around, and the "_" between digits. */
static ChatText bare(ChatRun *run, ChatText text) {
    text = chat_strip(text, (ChatText){0}, true, true);
    MxText out = chat_builder(run);
    for (size_t i = 0; i < text.n; i++) {
        bool is_between = i && i + 1 < text.n && isalnum((unsigned char)text.data[i - 1]) &&
                          isalnum((unsigned char)text.data[i + 1]);
        if (text.data[i] != '_' || !is_between) chat_add(run, &out, text.data + i, 1);
    }
    return chat_built(&out).text;
}

/* Digits with an optional sign and spaces around, of this base. */
static bool read_whole(ChatRun *run, ChatText text, int64_t base, ChatWhole *out) {
    const ChatWhole most = (ChatWhole)(~(unsigned __int128)0 >> 1);
    text = bare(run, text);
    bool falls = text.n && *text.data == '-';
    size_t at = text.n && strchr("+-", *text.data) ? 1 : 0;
    *out = 0;
    bool has_mark = at + 2 < text.n && text.data[at] == '0' && base != 10;
    char mark = has_mark ? (char)(text.data[at + 1] | 0x20) : '\0';
    if ((base == 16 && mark == 'x') || (base == 8 && mark == 'o') || (base == 2 && mark == 'b'))
        at += 2;
    if (at == text.n) return false;
    for (; at < text.n; at++) {
        char c = text.data[at], letter = (char)(c | 0x20);
        int64_t digit = c >= '0' && c <= '9' ? c - '0' : letter >= 'a' ? letter - 'a' + 10 : base;
        if (digit >= base || *out > (most - digit) / base) return false;
        *out = *out * base + digit;
    }
    if (falls) *out = -*out;
    return true;
}

static bool read_real(ChatRun *run, ChatText text, double *out) {
    text = bare(run, text);
    char *copy = mx_arena_strndup(run->arena, text.data, text.n), *end;
    *out = strtod(copy, &end);
    return text.n && !*end && !strpbrk(copy, "xX");
}

static ChatValue do_int(ChatRun *run, ChatCall *call) {
    ChatValue otherwise = call->arg[0].kind != CHAT_ABSENT ? call->arg[0] : chat_whole(0);
    int64_t base = chat_argument_index(run, call->arg[1], 10);
    ChatWhole whole;
    double real;
    if (call->self.kind == CHAT_WHOLE || !chat_use(run, call->self)) return call->self;
    if (call->self.kind == CHAT_BOOL) return chat_whole(call->self.truth);
    if (call->self.kind == CHAT_TEXT && read_whole(run, call->self.text, base, &whole))
        return chat_whole(whole);
    bool is_real = call->self.kind == CHAT_REAL ||
                   (call->self.kind == CHAT_TEXT && read_real(run, call->self.text, &real));
    if (!is_real) return otherwise;
    if (call->self.kind == CHAT_REAL) real = call->self.real;
    return isfinite(real) && fabs(real) < 1e38 ? chat_whole((ChatWhole)real) : otherwise;
}

static ChatValue do_float(ChatRun *run, ChatCall *call) {
    double real;
    if (!chat_use(run, call->self)) return call->self;
    if (chat_number(call->self, &real)) return chat_real(real);
    if (call->self.kind == CHAT_TEXT && read_real(run, call->self.text, &real))
        return chat_real(real);
    return call->arg[0].kind != CHAT_ABSENT ? call->arg[0] : chat_real(0);
}

static bool is_word(ChatText text, const char *word) {
    return text.n == strlen(word) && !memcmp(text.data, word, text.n);
}

/* To a multiple of a power of ten, halves to even. */
static ChatValue round_whole(ChatWhole value, int64_t places) {
    enum { MOST = 38 }; /* digits */
    ChatWhole unit = 1;
    if (places < -MOST) return chat_whole(0);
    for (; places < 0; places++) unit *= 10;
    ChatWhole rest = value % unit < 0 ? value % unit + unit : value % unit, below = value - rest;
    bool rises = rest > unit - rest || (rest == unit - rest && below / unit % 2 != 0);
    return chat_whole(below + (rises ? unit : 0));
}

static ChatValue do_round(ChatRun *run, ChatCall *call) {
    enum { LONGEST = 400 };
    int64_t places = chat_argument_index(run, call->arg[0], 0);
    ChatText how = chat_argument_text(run, call->arg[1], CHAT_TEXT_OF("common"));
    double value;
    char text[LONGEST + 32];
    if (!chat_number(call->self, &value))
        return chat_fail(run, "type %s doesn't define __round__ method", chat_type(call->self));
    double scale = pow(10, (double)places);
    if (is_word(how, "ceil")) return chat_real(ceil(value * scale) / scale);
    if (is_word(how, "floor")) return chat_real(floor(value * scale) / scale);
    if (!is_word(how, "common")) return chat_fail(run, "method must be common, ceil or floor");
    if (call->self.kind == CHAT_BOOL) return round_whole(call->self.truth, places);
    if (call->self.kind == CHAT_WHOLE) return round_whole(call->self.whole, places);
    if (places < 0 || places > 20 || fabs(value) > 1e30) {
        double rounded = rint(value * scale) / scale;
        return chat_real(isfinite(rounded) ? rounded : value);
    }
    snprintf(text, sizeof text, "%.*f", (int)places, value); /* halves to even, by exact value */
    return chat_real(strtod(text, NULL));
}

static const ChatRow filters[] = {
    {"abs", "", 0, do_abs},
    {"float", "default", 0, do_float},
    {"int", "default base", 0, do_int},
    {"round", "precision method", 0, do_round},
};
const ChatTable chat_filters_of_numbers = {.rows = filters, .n = MX_COUNT(filters)};
