/* format.c — Python's "…" % values and "…".format(values). */
#include "internal.h"

#include <math.h>
#include <stdio.h>

/* How one value is written. */
typedef struct Spec {
    ChatText fill;
    char align, sign, type; /* 0 = as usual */
    bool alternate, zeros, commas;
    int64_t width, precision; /* -1 = none */
} Spec;

enum { LONGEST_NUMBER = 400, MOST_PLACES = 1000, MOST_WIDTH = 1 << 20 };

/* ---- numbers */

static void add_digits(ChatRun *run, MxText *out, ChatWhole whole, const Spec *spec) {
    char digits[132];
    size_t at = sizeof digits;
    unsigned base = spec->type == 'x' || spec->type == 'X' ? 16
                    : spec->type == 'o'                    ? 8
                    : spec->type == 'b'                    ? 2
                                                           : 10;
    const char *letters = spec->type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef";
    unsigned __int128 rest = (unsigned __int128)(whole < 0 ? -whole : whole);
    do digits[--at] = letters[rest % base];
    while (rest /= base);
    if (spec->alternate && base != 10) {
        char mark[] = {'0', spec->type, '\0'};
        chat_add(run, out, mark, 2);
    }
    for (int64_t n = (int64_t)(sizeof digits - at); n < spec->precision && !run->failed; n++)
        chat_add(run, out, "0", 1);
    for (size_t i = at; i < sizeof digits; i++) {
        if (spec->commas && i > at && (sizeof digits - i) % 3 == 0) chat_add(run, out, ",", 1);
        chat_add(run, out, digits + i, 1);
    }
}

static void add_real(ChatRun *run, MxText *out, double real, const Spec *spec) {
    char text[LONGEST_NUMBER + MOST_PLACES], form[] = "%.*f";
    int precision = spec->precision < 0 ? 6 : (int)spec->precision;
    form[3] = spec->type == '%' ? 'f' : spec->type ? spec->type : 'g';
    if (spec->type == '%') real *= 100;
    if (!spec->type && spec->precision < 0) {
        chat_add_real(run, out, fabs(real));
        return;
    }
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(text, sizeof text, form, precision, fabs(real));
#pragma GCC diagnostic pop
    size_t point = strcspn(text, ".e"), n = strlen(text);
    for (size_t i = 0; i < n; i++) {
        if (spec->commas && i && i < point && (point - i) % 3 == 0) chat_add(run, out, ",", 1);
        chat_add(run, out, text + i, 1);
    }
    if (spec->type == '%') chat_add(run, out, "%", 1);
}

/* ---- one value */

static void add_padded(ChatRun *run, MxText *out, ChatText sign, ChatText body, const Spec *spec) {
    int64_t room = spec->width - chat_chars(sign) - chat_chars(body);
    int64_t left = spec->align == '>' ? room : spec->align == '^' ? room / 2 : 0;
    if (spec->align != '=') chat_pad(run, out, spec->fill, left);
    chat_add(run, out, sign.data, sign.n);
    if (spec->align == '=') chat_pad(run, out, spec->fill, left = room);
    chat_add(run, out, body.data, body.n);
    chat_pad(run, out, spec->fill, room - left);
}

static void add_number(ChatRun *run, MxText *out, ChatValue value, const Spec *spec) {
    MxText body = chat_builder(run);
    double real = 0;
    bool is_whole = value.kind == CHAT_WHOLE || value.kind == CHAT_BOOL, falls;
    bool as_whole = is_whole && (!spec->type || strchr("dixXob", spec->type));
    chat_number(value, &real);
    if (as_whole) {
        ChatWhole whole = value.kind == CHAT_BOOL ? value.truth : value.whole;
        falls = whole < 0;
        add_digits(run, &body, whole, spec);
    } else {
        falls = signbit(real);
        add_real(run, &body, real, spec);
    }
    char sign = falls ? '-' : spec->sign;
    Spec with = *spec;
    if (!with.align) with.align = spec->zeros ? '=' : '>';
    add_padded(run, out, (ChatText){&sign, sign != 0}, (ChatText){body.data, body.len}, &with);
}

static void add_text(ChatRun *run, MxText *out, ChatText text, const Spec *spec) {
    Spec with = *spec;
    if (!with.align) with.align = '<';
    if (spec->precision >= 0) text.n = chat_char_at(text, spec->precision);
    add_padded(run, out, (ChatText){"", 0}, text, &with);
}

/* ---- percent */

static int64_t take_number(ChatText format, size_t *at) {
    int64_t n = 0;
    while (*at < format.n && format.data[*at] >= '0' && format.data[*at] <= '9' && n < MOST_WIDTH)
        n = n * 10 + (format.data[(*at)++] - '0');
    return n;
}

/* Values that a format takes one after the other, or by name. */
typedef struct Values {
    ChatValue all;
    int64_t next, n;
} Values;

static ChatValue next_value(ChatRun *run, Values *values) {
    bool is_tuple = values->all.kind == CHAT_LIST && values->all.list->form == CHAT_IS_TUPLE;
    if (values->next == values->n) return chat_fail(run, "not enough arguments for format string");
    int64_t i = values->next++;
    return is_tuple ? values->all.list->item[i] : values->all;
}

static int64_t number_or_value(ChatRun *run, ChatText format, size_t *at, Values *values) {
    int64_t n = 0;
    if (*at >= format.n || format.data[*at] != '*') return take_number(format, at);
    ++*at;
    if (!chat_index(next_value(run, values), &n)) chat_fail(run, "* wants int");
    return n;
}

static ChatValue value_by_name(ChatRun *run, ChatText format, size_t *at, ChatValue values) {
    ChatText rest = {format.data, format.n};
    size_t end = chat_find(rest, *at, CHAT_TEXT_OF(")"));
    if (end == SIZE_MAX) return chat_fail(run, "incomplete format key");
    ChatText name = {format.data + *at, end - *at};
    *at = end + 1;
    if (values.kind != CHAT_DICT) return chat_fail(run, "format requires a mapping");
    const ChatEntry *entry = chat_dict_find(run, values.dict, chat_text(name.data, name.n));
    return entry ? entry->value : chat_fail(run, "%s", chat_quoted(run->arena, name));
}

static void add_percent(ChatRun *run, MxText *out, ChatValue value, Spec *spec) {
    double number;
    MxText repr = chat_builder(run);
    if (strchr("diuxXofFeEgG", spec->type)) {
        bool is_real = strchr("fFeEgG", spec->type);
        if (spec->type == 'i' || spec->type == 'u') spec->type = 'd';
        if (!chat_number(value, &number)) {
            chat_fail(run, "%%%c format: a real number is required, not %s", spec->type,
                      chat_type(value));
            return;
        }
        if (!is_real && value.kind == CHAT_REAL) value = chat_whole((ChatWhole)number);
        if (spec->zeros) spec->fill = CHAT_TEXT_OF("0");
        add_number(run, out, value, spec);
        return;
    }
    if (!spec->align) spec->align = '>';
    if (spec->type == 'r' || spec->type == 'a')
        chat_repr(run, &repr, value);
    else if (spec->type == 's')
        chat_show(run, &repr, value);
    else if (spec->type == 'c' && value.kind == CHAT_TEXT && chat_chars(value.text) == 1)
        chat_show(run, &repr, value);
    else
        chat_fail(run, "unsupported format character '%c'", spec->type);
    add_text(run, out, (ChatText){repr.data, repr.len}, spec);
}

ChatValue chat_format_percent(ChatRun *run, ChatText format, ChatValue all) {
    bool is_tuple = all.kind == CHAT_LIST && all.list->form == CHAT_IS_TUPLE;
    Values values = {.all = all, .n = is_tuple ? all.list->n : 1};
    MxText out = chat_builder(run);
    for (size_t at = 0; at < format.n && chat_spend(run, 1);) {
        Spec spec = {.fill = CHAT_TEXT_OF(" "), .precision = -1};
        ChatValue value = {.kind = CHAT_ABSENT};
        if (format.data[at] != '%') {
            chat_add(run, &out, format.data + at++, 1);
            continue;
        }
        if (++at < format.n && format.data[at] == '(') {
            at++;
            value = value_by_name(run, format, &at, all);
            values.next = values.n;
        }
        for (; at < format.n && format.data[at] && strchr("-+ #0", format.data[at]); at++) {
            char flag = format.data[at];
            if (flag == '-') spec.align = '<';
            if (flag == '+' || (flag == ' ' && !spec.sign)) spec.sign = flag;
            spec.zeros = spec.zeros || flag == '0';
            spec.alternate = spec.alternate || flag == '#';
        }
        spec.width = number_or_value(run, format, &at, &values);
        if (at < format.n && format.data[at] == '.') {
            at++;
            spec.precision = number_or_value(run, format, &at, &values);
        }
        if (at >= format.n) return chat_fail(run, "incomplete format");
        spec.type = format.data[at++];
        if (spec.precision > MOST_PLACES || spec.width >= MOST_WIDTH)
            return chat_fail(run, "too wide a format");
        if (spec.type == '%') {
            chat_add(run, &out, "%", 1);
            continue;
        }
        if (value.kind == CHAT_ABSENT) value = next_value(run, &values);
        if (!run->failed) add_percent(run, &out, value, &spec);
    }
    if (values.next < values.n && all.kind != CHAT_DICT)
        return chat_fail(run, "not all arguments converted during string formatting");
    return chat_built(&out);
}

/* ---- braces */

/* [[fill]align][sign][#][0][width][,][.precision][type] */
static bool read_spec(ChatRun *run, ChatText text, Spec *spec) {
    size_t at = 0, behind = 0;
    if (text.n) mx_char_next(text.data, &behind);
    if (behind < text.n && strchr("<>^=", text.data[behind]) && text.data[behind]) {
        spec->fill = (ChatText){text.data, behind};
        spec->align = text.data[behind];
        at = behind + 1;
    } else if (text.n && text.data[0] && strchr("<>^=", text.data[0])) {
        spec->align = text.data[at++];
    }
    if (at < text.n && text.data[at] && strchr("+- ", text.data[at])) {
        spec->sign = text.data[at] == '-' ? '\0' : text.data[at];
        at++;
    }
    if (at < text.n && text.data[at] == '#') spec->alternate = true, at++;
    if (at < text.n && text.data[at] == '0') {
        spec->zeros = true;
        if (!spec->align) spec->fill = CHAT_TEXT_OF("0");
        at++;
    }
    spec->width = take_number(text, &at);
    if (at < text.n && text.data[at] == ',') spec->commas = true, at++;
    if (at < text.n && text.data[at] == '.') {
        at++;
        spec->precision = take_number(text, &at);
    }
    if (at < text.n) spec->type = text.data[at++];
    bool fits = at == text.n && spec->precision <= MOST_PLACES && spec->width < MOST_WIDTH &&
                (!spec->type || strchr("sdxXobfFeEgG%", spec->type));
    if (!fits) chat_fail(run, "Invalid format specifier %s", chat_quoted(run->arena, text));
    return fits;
}

static void add_braced(ChatRun *run, MxText *out, ChatValue value, ChatText format) {
    Spec spec = {.fill = CHAT_TEXT_OF(" "), .precision = -1};
    double number;
    if (!read_spec(run, format, &spec)) return;
    bool is_number = chat_number(value, &number) && (value.kind != CHAT_BOOL || format.n);
    bool wants_number = spec.type && spec.type != 's';
    if (is_number && spec.type != 's') {
        if (value.kind == CHAT_REAL && strchr("dxXob", spec.type) && spec.type)
            chat_fail(run, "Unknown format code '%c' for object of type 'float'", spec.type);
        else
            add_number(run, out, value, &spec);
    } else if (wants_number || (is_number && spec.type == 's')) {
        chat_fail(run, "Unknown format code '%c' for object of type '%s'", spec.type,
                  chat_type(value));
    } else {
        add_text(run, out, chat_string(run, value), &spec);
    }
}

/* What a field names: a number, a name, or the next one; then members of it. */
static ChatValue field_value(ChatRun *run, ChatText name, const ChatCall *call, int64_t *next) {
    size_t at = 0, end = 0;
    ChatValue value = {.kind = CHAT_ABSENT};
    while (end < name.n && name.data[end] != '.' && name.data[end] != '[') end++;
    ChatText first = {name.data, end};
    int64_t i = first.n ? take_number(name, &at) : (*next)++;
    bool is_place = !first.n || at == end;
    if (is_place && i < call->n) value = call->at[i];
    for (int64_t k = 0; k < call->n_named && !is_place; k++)
        if (strlen(call->named[k].name) == first.n &&
            !memcmp(call->named[k].name, first.data, first.n))
            value = call->named[k].value;
    if (value.kind == CHAT_ABSENT)
        return is_place ? chat_fail(run,
                                    "Replacement index %lld out of range for positional args "
                                    "tuple",
                                    (long long)i)
                        : chat_fail(run, "%s", chat_quoted(run->arena, first));
    for (at = end; at < name.n && !run->failed; at = end) {
        bool is_item = name.data[at] == '[';
        end = at + 1;
        while (end < name.n &&
               (is_item ? name.data[end] != ']' : name.data[end] != '.' && name.data[end] != '['))
            end++;
        ChatText part = {name.data + at + 1, end - at - 1};
        size_t digits = 0;
        int64_t place = take_number(part, &digits);
        bool is_number = is_item && part.n && digits == part.n;
        value = chat_item(run, value, is_number ? chat_whole(place) : chat_text(part.data, part.n));
        end += is_item && end < name.n;
    }
    return value;
}

static void add_field(ChatRun *run, MxText *out, ChatText field, const ChatCall *call,
                      int64_t *next) {
    size_t colon = chat_find(field, 0, CHAT_TEXT_OF(":"));
    ChatText spec = {"", 0}, name = field;
    if (colon != SIZE_MAX) {
        name.n = colon;
        spec = (ChatText){field.data + colon + 1, field.n - colon - 1};
    }
    size_t mark = chat_find(name, 0, CHAT_TEXT_OF("!"));
    char conversion = mark != SIZE_MAX && mark + 1 < name.n ? name.data[mark + 1] : '\0';
    if (mark != SIZE_MAX) name.n = mark;
    ChatValue value = field_value(run, name, call, next);
    if (run->failed || !chat_use(run, value)) return;
    if (conversion) {
        MxText shown = chat_builder(run);
        (conversion == 's' ? chat_show : chat_repr)(run, &shown, value);
        value = chat_built(&shown);
    }
    add_braced(run, out, value, spec);
}

ChatValue chat_format_braces(ChatRun *run, ChatText format, const ChatCall *call) {
    MxText out = chat_builder(run);
    int64_t next = 0;
    for (size_t at = 0; at < format.n && chat_spend(run, 1);) {
        char c = format.data[at];
        bool is_double = (c == '{' || c == '}') && at + 1 < format.n && format.data[at + 1] == c;
        if (is_double || (c != '{' && c != '}')) {
            chat_add(run, &out, &c, 1);
            at += is_double ? 2 : 1;
            continue;
        }
        size_t end = chat_find(format, at, CHAT_TEXT_OF("}"));
        if (c == '}') return chat_fail(run, "Single '}' encountered in format string");
        if (end == SIZE_MAX) return chat_fail(run, "expected '}' before end of string");
        add_field(run, &out, (ChatText){format.data + at + 1, end - at - 1}, call, &next);
        at = end + 1;
    }
    return chat_built(&out);
}
