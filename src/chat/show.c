/* show.c — values as text: Python's str(), repr() and json.dumps(). */
#include "internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- numbers */

/* The shortest digits that read back the same, with an exponent below 1e-4 and from 1e16 on. */
void chat_add_real(ChatRun *run, MxText *out, double real) {
    enum { MOST_DIGITS = 17, LARGEST = 16, SMALLEST = -4 };
    char text[40];
    int digits = 1;
    if (!isfinite(real)) {
        const char *name = isnan(real) ? "nan" : real > 0 ? "inf" : "-inf";
        chat_add(run, out, name, strlen(name));
        return;
    }
    for (; digits <= MOST_DIGITS; digits++) {
        snprintf(text, sizeof text, "%.*e", digits - 1, real);
        if (strtod(text, NULL) == real) break;
    }
    int power = (int)strtol(strchr(text, 'e') + 1, NULL, 10);
    if (power >= SMALLEST && power < LARGEST) {
        int decimals = digits - 1 - power;
        snprintf(text, sizeof text, "%.*f", decimals < 1 ? 1 : decimals, real);
    }
    chat_add(run, out, text, strlen(text));
}

void chat_add_whole(ChatRun *run, MxText *out, ChatWhole whole) {
    char digits[48];
    size_t at = sizeof digits;
    unsigned __int128 rest = (unsigned __int128)whole;
    if (whole < 0) rest = -rest;
    do digits[--at] = (char)('0' + (int)(rest % 10));
    while (rest /= 10);
    if (whole < 0) digits[--at] = '-';
    chat_add(run, out, digits + at, sizeof digits - at);
}

/* ---- texts as repr() */

static void add_code(MxText *out, uint32_t c) {
    if (c < 0x100)
        mx_text_add(out, "\\x%02x", c);
    else if (c < 0x10000)
        mx_text_add(out, "\\u%04x", c);
    else
        mx_text_add(out, "\\U%08x", c);
}

static void add_quoted(MxText *out, ChatText text) {
    static const char plain[] = "\nn\tt\rr\\\\";
    bool has_single = text.n && memchr(text.data, '\'', text.n);
    bool has_double = text.n && memchr(text.data, '"', text.n);
    char quote = has_single && !has_double ? '"' : '\'';
    mx_text_addn(out, &quote, 1);
    for (size_t at = 0, from = 0; at < text.n; from = at) {
        uint32_t c = mx_char_next(text.data, &at);
        const char *escape = plain;
        while (*escape && (uint8_t)*escape != c) escape += 2;
        if (*escape || c == (uint8_t)quote)
            mx_text_add(out, "\\%c", *escape ? escape[1] : quote);
        else if (c < 0x7f ? c < ' ' : !(mx_char_class(c) & MX_CHAR_PRINTABLE))
            add_code(out, c);
        else
            mx_text_addn(out, text.data + from, at - from);
    }
    mx_text_addn(out, &quote, 1);
}

const char *chat_quoted(MxArena *arena, ChatText text) {
    MxText out;
    mx_text_init(&out, arena);
    add_quoted(&out, text);
    return out.data;
}

static void repr_text(ChatRun *run, MxText *out, ChatText text) {
    MxText quoted = chat_builder(run);
    if (!chat_spend(run, text.n / 16)) return;
    add_quoted(&quoted, text);
    chat_add(run, out, quoted.data, quoted.len);
}

/* ---- values as repr() and str() */

static void repr_list(ChatRun *run, MxText *out, const ChatList *list) {
    static const char *const around[][2] = {
        [CHAT_IS_LIST] = {"[", "]"},
        [CHAT_IS_TUPLE] = {"(", ")"},
        [CHAT_IS_GROUP] = {"(", ")"},
        [CHAT_IS_RANGE] = {"range(", ")"},
        [CHAT_IS_KEYS] = {"dict_keys([", "])"},
        [CHAT_IS_VALUES] = {"dict_values([", "])"},
        [CHAT_IS_ITEMS] = {"dict_items([", "])"},
        [CHAT_IS_GENERATOR] = {"<generator object", ">"},
    };
    const char *const *pair = around[list->form];
    chat_add(run, out, pair[0], strlen(pair[0]));
    bool has_items = list->form != CHAT_IS_GENERATOR && list->form != CHAT_IS_RANGE;
    for (int64_t i = 0; has_items && i < list->n && !run->failed; i++) {
        if (i) chat_add(run, out, ", ", 2);
        chat_repr(run, out, list->item[i]);
    }
    if (list->form == CHAT_IS_TUPLE && list->n == 1) chat_add(run, out, ",", 1);
    if (list->form == CHAT_IS_RANGE) {
        chat_add_whole(run, out, list->from);
        chat_add(run, out, ", ", 2);
        chat_add_whole(run, out, list->to);
        if (list->step != 1) chat_add(run, out, ", ", 2);
        if (list->step != 1) chat_add_whole(run, out, list->step);
    }
    chat_add(run, out, pair[1], strlen(pair[1]));
}

static void repr_dict(ChatRun *run, MxText *out, const ChatDict *dict) {
    chat_add(run, out, dict->is_namespace ? "<Namespace {" : "{", dict->is_namespace ? 12 : 1);
    for (int64_t i = 0; i < dict->n && !run->failed; i++) {
        if (i) chat_add(run, out, ", ", 2);
        chat_repr(run, out, dict->entry[i].key);
        chat_add(run, out, ": ", 2);
        chat_repr(run, out, dict->entry[i].value);
    }
    chat_add(run, out, dict->is_namespace ? "}>" : "}", dict->is_namespace ? 2 : 1);
}

void chat_repr(ChatRun *run, MxText *out, ChatValue value) {
    static const char undefined[] = "Undefined";
    if (!chat_spend(run, 1)) return;
    if (value.kind == CHAT_TEXT) {
        repr_text(run, out, value.text);
    } else if (value.kind == CHAT_UNDEFINED) {
        chat_add(run, out, undefined, sizeof undefined - 1);
    } else if (value.kind == CHAT_LIST || value.kind == CHAT_DICT) {
        if (!chat_enter(run)) return;
        if (value.kind == CHAT_LIST)
            repr_list(run, out, value.list);
        else
            repr_dict(run, out, value.dict);
        chat_leave(run);
    } else {
        chat_show(run, out, value);
    }
}

void chat_show(ChatRun *run, MxText *out, ChatValue value) {
    const char *word;
    switch (value.kind) {
    case CHAT_UNDEFINED:
    case CHAT_ABSENT:
        return;
    case CHAT_NONE:
        chat_add(run, out, "None", 4);
        return;
    case CHAT_BOOL:
        word = value.truth ? "True" : "False";
        chat_add(run, out, word, strlen(word));
        return;
    case CHAT_WHOLE:
        chat_add_whole(run, out, value.whole);
        return;
    case CHAT_REAL:
        chat_add_real(run, out, value.real);
        return;
    case CHAT_TEXT:
        chat_add(run, out, value.text.data, value.text.n);
        return;
    case CHAT_LIST:
    case CHAT_DICT:
        chat_repr(run, out, value);
        return;
    case CHAT_FUNCTION:
    case CHAT_LOOP:
        chat_fail(run, "a %s is no text", chat_type(value));
        return;
    }
}

ChatText chat_string(ChatRun *run, ChatValue value) {
    if (value.kind == CHAT_TEXT) return value.text;
    MxText out = chat_builder(run);
    chat_show(run, &out, value);
    return (ChatText){out.data, out.len};
}

/* ---- JSON */

static void dump_char(ChatRun *run, MxText *out, uint32_t c) {
    static const char plain[] = "\nn\tt\rr\bb\ff\"\"\\\\";
    char code[16];
    const char *escape = plain;
    while (*escape && (uint8_t)*escape != c) escape += 2;
    if (*escape && c)
        snprintf(code, sizeof code, "\\%c", escape[1]);
    else if (c < 0x10000)
        snprintf(code, sizeof code, "\\u%04x", c);
    else
        snprintf(code, sizeof code, "\\u%04x\\u%04x", 0xd7c0 + (c >> 10), 0xdc00 + (c & 0x3ff));
    chat_add(run, out, code, strlen(code));
}

static void dump_text(ChatRun *run, MxText *out, ChatText text, bool is_ascii) {
    size_t plain = 0;
    chat_add(run, out, "\"", 1);
    for (size_t at = 0, from = 0; at < text.n; from = at) {
        uint32_t c = mx_char_next(text.data, &at);
        bool stays = c >= ' ' && c != '"' && c != '\\' && !(is_ascii && c > 0x7e);
        if (is_ascii && c == 0x7f) stays = true;
        if (stays) continue;
        chat_add(run, out, text.data + plain, from - plain);
        dump_char(run, out, c);
        plain = at;
    }
    chat_add(run, out, text.data + plain, text.n - plain);
    chat_add(run, out, "\"", 1);
}

static void dump_break(ChatRun *run, MxText *out, const ChatDump *how, int level) {
    if (!how->indent.data) return;
    chat_add(run, out, "\n", 1);
    for (int i = 0; i < level && !run->failed; i++)
        chat_add(run, out, how->indent.data, how->indent.n);
}

static void dump_value(ChatRun *run, MxText *out, ChatValue value, const ChatDump *how, int level);

static void dump_key(ChatRun *run, MxText *out, ChatValue key, const ChatDump *how) {
    MxText text = chat_builder(run);
    bool fits = key.kind == CHAT_TEXT || key.kind == CHAT_NONE || key.kind == CHAT_BOOL ||
                key.kind == CHAT_WHOLE || key.kind == CHAT_REAL;
    if (!fits) {
        chat_fail(run, "keys must be str, int, float, bool or None, not %s", chat_type(key));
        return;
    }
    if (key.kind == CHAT_TEXT)
        chat_show(run, &text, key);
    else
        dump_value(run, &text, key, how, 0);
    dump_text(run, out, (ChatText){text.data, text.len}, how->is_ascii);
    chat_add(run, out, how->behind_key.data, how->behind_key.n);
}

static int by_key(const void *a, const void *b) {
    ChatText x = ((const ChatEntry *)a)->key.text, y = ((const ChatEntry *)b)->key.text;
    size_t n = x.n < y.n ? x.n : y.n;
    int order = n ? memcmp(x.data, y.data, n) : 0;
    return order ? order : (x.n > y.n) - (x.n < y.n);
}

static const ChatEntry *sorted(ChatRun *run, const ChatDict *dict) {
    ChatEntry *entry = chat_alloc(run, (size_t)dict->n + 1, sizeof *entry);
    for (int64_t i = 0; entry && i < dict->n; i++) {
        if (dict->entry[i].key.kind != CHAT_TEXT) {
            chat_fail(run, "sort_keys wants keys that are texts, found %s",
                      chat_type(dict->entry[i].key));
            return dict->entry;
        }
        entry[i] = dict->entry[i];
    }
    if (!entry) return dict->entry;
    qsort(entry, (size_t)dict->n, sizeof *entry, by_key);
    return entry;
}

static void dump_dict(ChatRun *run, MxText *out, const ChatDict *dict, const ChatDump *how,
                      int level) {
    const ChatEntry *entry = how->sorts ? sorted(run, dict) : dict->entry;
    chat_add(run, out, "{", 1);
    for (int64_t i = 0; i < dict->n && !run->failed; i++) {
        if (i) chat_add(run, out, how->between.data, how->between.n);
        dump_break(run, out, how, level + 1);
        dump_key(run, out, entry[i].key, how);
        dump_value(run, out, entry[i].value, how, level + 1);
    }
    if (dict->n) dump_break(run, out, how, level);
    chat_add(run, out, "}", 1);
}

static void dump_list(ChatRun *run, MxText *out, const ChatList *list, const ChatDump *how,
                      int level) {
    chat_add(run, out, "[", 1);
    for (int64_t i = 0; i < list->n && !run->failed; i++) {
        if (i) chat_add(run, out, how->between.data, how->between.n);
        dump_break(run, out, how, level + 1);
        dump_value(run, out, list->item[i], how, level + 1);
    }
    if (list->n) dump_break(run, out, how, level);
    chat_add(run, out, "]", 1);
}

static void dump_number(ChatRun *run, MxText *out, double real) {
    const char *name = isnan(real) ? "NaN" : real > 0 ? "Infinity" : "-Infinity";
    if (isfinite(real))
        chat_add_real(run, out, real);
    else
        chat_add(run, out, name, strlen(name));
}

static void dump_value(ChatRun *run, MxText *out, ChatValue value, const ChatDump *how, int level) {
    bool is_list = value.kind == CHAT_LIST && value.list->form <= CHAT_IS_GROUP;
    bool is_dict = value.kind == CHAT_DICT && !value.dict->is_namespace;
    if (!chat_spend(run, 1)) return;
    if (value.kind == CHAT_TEXT) {
        dump_text(run, out, value.text, how->is_ascii);
    } else if (value.kind == CHAT_NONE) {
        chat_add(run, out, "null", 4);
    } else if (value.kind == CHAT_BOOL) {
        chat_add(run, out, value.truth ? "true" : "false", value.truth ? 4 : 5);
    } else if (value.kind == CHAT_REAL) {
        dump_number(run, out, value.real);
    } else if (value.kind == CHAT_WHOLE) {
        chat_add_whole(run, out, value.whole);
    } else if (!is_list && !is_dict) {
        chat_fail(run, "Object of type %s is not JSON serializable", chat_type(value));
    } else if (chat_enter(run)) {
        if (is_list)
            dump_list(run, out, value.list, how, level);
        else
            dump_dict(run, out, value.dict, how, level);
        chat_leave(run);
    }
}

void chat_dump(ChatRun *run, MxText *out, ChatValue value, const ChatDump *how) {
    dump_value(run, out, value, how, 0);
}
