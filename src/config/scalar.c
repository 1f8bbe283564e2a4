/* scalar.c — the type and value of a plain YAML scalar: YAML 1.1 as in PyYAML, with OmegaConf's
 * floats (1e5 is one) and without timestamps. The grammar is that of the regular expressions in
 * PyYAML's resolver.py and OmegaConf's _utils.py; tests/config/typing.c has the table. */
#include "room.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>

enum { LONGEST_NUMBER = 120 };

static const struct {
    const char *text;
    bool value, is_word; /* yes/no/on/off look like words */
} booleans[] = {
    {"true", true, false},   {"True", true, false},   {"TRUE", true, false},
    {"false", false, false}, {"False", false, false}, {"FALSE", false, false},
    {"yes", true, true},     {"Yes", true, true},     {"YES", true, true},
    {"no", false, true},     {"No", false, true},     {"NO", false, true},
    {"on", true, true},      {"On", true, true},      {"ON", true, true},
    {"off", false, true},    {"Off", false, true},    {"OFF", false, true},
};
static const char *const nulls[] = {"", "~", "null", "Null", "NULL"};

static bool read_word(MxYaml *node) {
    for (int i = 0; i < MX_COUNT(nulls); i++) {
        if (strcmp(node->text, nulls[i])) continue;
        node->kind = MX_YAML_NULL;
        return true;
    }
    for (int i = 0; i < MX_COUNT(booleans); i++) {
        if (strcmp(node->text, booleans[i].text)) continue;
        node->kind = MX_YAML_BOOL;
        node->boolean = booleans[i].value;
        node->surprise = booleans[i].is_word ? "boolean" : NULL;
        return true;
    }
    return false;
}

static int digit_value(char c) {
    if (isdigit((unsigned char)c)) return c - '0';
    if (isxdigit((unsigned char)c)) return tolower((unsigned char)c) - 'a' + 10;
    return 99;
}

/* Digits and underscores to the end of the text, at least one digit. integer is -1 where it does
 * not fit into 63 bits. */
static bool read_digits(const char *s, int base, double *number, int64_t *integer) {
    bool has_digit = false;
    *number = 0;
    *integer = 0;
    for (; *s; s++) {
        if (*s == '_') continue;
        int digit = digit_value(*s);
        if (digit >= base) return false;
        *number = *number * base + digit;
        bool fits = *integer >= 0 && *integer <= (INT64_MAX - digit) / base;
        *integer = fits ? *integer * base + digit : -1;
        has_digit = true;
    }
    return has_digit;
}

/* [1-9][0-9_]*(:[0-5]?[0-9])+ with an optional fraction: base 60. */
static bool read_base60(const char *s, bool is_float, double *number) {
    if (!isdigit((unsigned char)*s) || (!is_float && *s == '0')) return false;
    double part = 0;
    for (; isdigit((unsigned char)*s) || *s == '_'; s++)
        if (*s != '_') part = part * 10 + digit_value(*s);
    if (*s != ':') return false;
    *number = part;
    while (*s == ':') {
        s++;
        if (!isdigit((unsigned char)*s)) return false;
        part = digit_value(*s++);
        if (isdigit((unsigned char)*s)) {
            if (part > 5) return false;
            part = part * 10 + digit_value(*s++);
        }
        *number = *number * 60 + part;
    }
    if (!is_float) return !*s;
    if (*s++ != '.') return false;
    for (double unit = 0.1; *s; s++) {
        if (*s == '_') continue;
        if (!isdigit((unsigned char)*s)) return false;
        *number += unit * digit_value(*s);
        unit /= 10;
    }
    return true;
}

static bool is_decimal(const char *s) {
    if (*s == '0') return !s[1];
    return isdigit((unsigned char)*s) && strspn(s, "0123456789_") == strlen(s);
}

static bool read_int(MxYaml *node) {
    const char *s = node->text;
    bool is_negative = *s == '-';
    if (*s == '-' || *s == '+') s++;
    double number;
    int64_t integer;
    bool ok;
    if (is_decimal(s))
        ok = read_digits(s, 10, &number, &integer);
    else if (s[0] == '0' && s[1] == 'b')
        ok = read_digits(s + 2, 2, &number, &integer);
    else if (s[0] == '0' && s[1] == 'x')
        ok = read_digits(s + 2, 16, &number, &integer);
    else if (s[0] == '0') {
        ok = read_digits(s, 8, &number, &integer);
        if (ok && number > 7) node->surprise = "octal";
    } else {
        ok = read_base60(s, false, &number);
        integer = ok && number < 1e18 ? (int64_t)number : -1;
        if (ok) node->surprise = "base 60";
    }
    if (!ok) return false;
    if (integer >= 0) number = (double)integer;
    node->number = is_negative ? -number : number;
    node->kind = integer < 0 ? MX_YAML_FLOAT : MX_YAML_INT; /* too large for an int64_t */
    node->integer = is_negative ? -integer : integer;
    return true;
}

/* Digits (underscores skipped) from *s to *out; the number of digits. */
static int copy_digits(const char **s, char **out, bool has_underscores) {
    int n = 0;
    for (; isdigit((unsigned char)**s) || (has_underscores && **s == '_'); (*s)++) {
        if (**s == '_') continue;
        *(*out)++ = **s;
        n++;
    }
    return n;
}

/* The three decimal forms: 1.5e3, 1e3, .5e+3 (the last one wants a sign in its exponent). */
static bool copy_decimal(const char *s, char *out) {
    bool has_sign = *s == '-' || *s == '+';
    if (has_sign) *out++ = *s++;
    bool starts_with_digit = isdigit((unsigned char)*s), has_point = false;
    int n = starts_with_digit ? copy_digits(&s, &out, true) : 0;
    if (*s == '.') {
        has_point = true;
        *out++ = *s++;
        n += copy_digits(&s, &out, true);
    }
    if (!n || (!starts_with_digit && has_sign)) return false;
    bool has_exponent = *s == 'e' || *s == 'E';
    if (has_exponent) {
        *out++ = *s++;
        bool is_signed = *s == '-' || *s == '+';
        if (!starts_with_digit && !is_signed) return false;
        if (is_signed) *out++ = *s++;
        if (!copy_digits(&s, &out, false)) return false;
    }
    *out = '\0';
    return !*s && (has_point || has_exponent);
}

static bool read_special(const char *s, double *number) {
    bool has_sign = *s == '-' || *s == '+';
    const char *word = has_sign ? s + 1 : s;
    if (!strcmp(word, ".inf") || !strcmp(word, ".Inf") || !strcmp(word, ".INF"))
        *number = *s == '-' ? -INFINITY : INFINITY;
    else if (!strcmp(s, ".nan") || !strcmp(s, ".NaN") || !strcmp(s, ".NAN"))
        *number = NAN;
    else
        return false;
    return true;
}

static bool read_float(MxYaml *node) {
    char plain[LONGEST_NUMBER + 1];
    const char *s = node->text;
    bool has_sign = *s == '-' || *s == '+';
    if (copy_decimal(s, plain))
        node->number = strtod(plain, NULL);
    else if (read_base60(has_sign ? s + 1 : s, true, &node->number)) {
        if (*s == '-') node->number = -node->number;
        node->surprise = "base 60";
    } else if (!read_special(s, &node->number))
        return false;
    node->kind = MX_YAML_FLOAT;
    return true;
}

void config_type_scalar(MxYaml *node) {
    node->kind = MX_YAML_STRING;
    node->surprise = NULL;
    if (read_word(node)) return;
    if (strlen(node->text) > LONGEST_NUMBER || !strchr("+-.0123456789", node->text[0])) return;
    if (!read_int(node)) read_float(node);
}
