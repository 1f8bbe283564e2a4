/* schema_values.c — texts and numbers of schemas. */
#include "internal.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>

bool schema_want(Schemas *s, const char *member, const MxJson *found, const char *wanted) {
    return schema_fail(s, member, "found %.60s, wanted %s", mx_json_dump(s->g->arena, found, false),
                       wanted);
}

/* ---- texts */

#define MONTHS_28 "(?:0[1-9]|1[0-9]|2[0-8])"
#define DATE                                                                                       \
    "[0-9]{3}[1-9]-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|"      \
    "[12][0-9]|30)|02-" MONTHS_28 ")"
#define TIME   "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,6})?"
#define OFFSET "(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
#define BYTE   "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define LABEL  "[a-z0-9]{1,15}(?:-[a-z0-9]{1,15}){0,2}"
#define HOST   LABEL "(?:\\." LABEL "){0,4}"

/* What is of each format, if not all: dates without the 29th of February, host names in lower case.
 * Source: JSON Schema 2020-12 validation, 7.3; RFC 3339, 4122, 5321, 3986. */
static const struct {
    const char *name, *pattern;
} formats[] = {
    {"date", "^" DATE "$"},
    {"time", "^" TIME OFFSET "$"},
    {"date-time", "^" DATE "T" TIME OFFSET "$"},
    {"duration", "^P(?:[0-9]{1,6}W|[0-9]{1,6}D(?:T[0-9]{1,6}[HMS])?|T[0-9]{1,6}[HMS])$"},
    {"uuid", "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"},
    {"email", "^[A-Za-z0-9_+-]{1,20}(?:\\.[A-Za-z0-9_+-]{1,20}){0,2}@" HOST "\\.[a-z]{2,12}$"},
    {"hostname", "^" HOST "$"},
    {"ipv4", "^" BYTE "(?:\\." BYTE "){3}$"},
    {"ipv6", "^[0-9a-fA-F]{1,4}(?::[0-9a-fA-F]{1,4}){7}$"},
    {"uri", "^[a-z][a-z0-9+.-]{0,15}://[A-Za-z0-9._~-]+(?::[0-9]{1,4})?(?:/[A-Za-z0-9._~@:-]*)*$"},
};

static const char *find_format(Schemas *s, const char *name) {
    MxText all;
    for (int i = 0; i < MX_COUNT(formats); i++)
        if (name && !strcmp(formats[i].name, name)) return formats[i].pattern;
    mx_text_init(&all, s->g->arena);
    for (int i = 0; i < MX_COUNT(formats); i++)
        mx_text_add(&all, "%s%s", i ? ", " : "", formats[i].name);
    schema_fail(s, "format", "found \"%.60s\", wanted one of %s", name ? name : "no text",
                all.data);
    return NULL;
}

bool schema_string(Schemas *s, const MxJson *schema, int32_t from, int32_t to) {
    const MxJson *pattern = mx_json_get(schema, "pattern"), *format = mx_json_get(schema, "format");
    Writing how = {.is_raw = s->end != NULL, .max = GUIDE_UNBOUNDED};
    if (!schema_count(s, schema, "minLength", &how.min) ||
        !schema_count(s, schema, "maxLength", &how.max))
        return false;
    if (pattern && !mx_json_string(pattern)) return schema_want(s, "pattern", pattern, "a text");
    if (pattern && format)
        return schema_fail(s, "format", "\"pattern\" beside it is not available");
    const char *text = format ? find_format(s, mx_json_string(format)) : mx_json_string(pattern);
    if (format && !text) return false;
    bool is_free = !text && !how.min && how.max == GUIDE_UNBOUNDED;
    if (is_free && s->end) {
        mx_grammar_other(s->g, from, &s->end, 1, to);
        return true;
    }
    if (!text && !s->end) {
        if (how.min <= how.max) guide_json_text(s->g, from, how.min, how.max, to);
        return true;
    }
    const char *wrong = guide_pattern(s->g, from, text ? text : "", how, to);
    return !wrong || schema_fail(s, "pattern", "the pattern %s", wrong);
}

/* ---- numbers */

enum { MOST_DECIMALS = 6, REAL_DIGITS = 15 /* that a double tells apart */ };

/* A number in units of 10^-decimals; false = it has more digits. Its text has the fewest. */
static bool scale(const char *text, int decimals, int64_t *out) {
    int64_t value = 0;
    bool is_negative = *text == '-';
    int exponent = 0, digits = 0, behind = 0;
    bool has_point = false;
    const char *power = strpbrk(text, "eE");
    if (power) exponent = (int)strtol(power + 1, NULL, 10);
    for (const char *at = text + is_negative; *at && at != power; at++) {
        if (*at == '.') has_point = true;
        if (!isdigit((unsigned char)*at)) continue;
        if (++digits > GUIDE_DIGITS) return false;
        value = 10 * value + (*at - '0');
        behind += has_point;
    }
    for (; behind > 0 && value % 10 == 0; behind--) value /= 10;
    int shift = decimals - behind + exponent;
    for (; value && shift < 0 && value % 10 == 0; shift++) value /= 10;
    if (value && (shift < 0 || shift > GUIDE_DIGITS)) return false;
    for (; value && shift > 0; shift--) {
        if (value > INT64_MAX / 10) return false;
        value *= 10;
    }
    *out = is_negative ? -value : value;
    return true;
}

static int64_t power_of_ten(int n) {
    int64_t out = 1;
    for (; n; n--) out *= 10;
    return out;
}

static const struct {
    const char *name;
    bool is_low, is_without;
} bounds[] = {{"minimum", true, false},
              {"exclusiveMinimum", true, true},
              {"maximum", false, false},
              {"exclusiveMaximum", false, true}};

/* A bound of integers lies on one. */
static double on_integer(double bound, bool is_low, bool is_without) {
    if (bound != floor(bound)) return is_low ? ceil(bound) : floor(bound);
    return !is_without ? bound : is_low ? bound + 1 : bound - 1;
}

/* One bound, in units; `low` and `high` become nearer. */
static bool read_bound(Schemas *s, const MxJson *schema, int i, int decimals, int64_t *low,
                       int64_t *high) {
    const MxJson *value = mx_json_get(schema, bounds[i].name);
    double number;
    int64_t bound;
    bool is_integer = !decimals;
    if (!value) return true;
    if (!mx_json_number(value, &number)) return schema_want(s, bounds[i].name, value, "a number");
    if (is_integer && fabs(number) >= (double)power_of_ten(REAL_DIGITS)) {
        if ((number < 0) == bounds[i].is_low) return true; /* no value that comes is beyond */
        return schema_fail(s, bounds[i].name, "wanted a bound of at most %d digits", REAL_DIGITS);
    }
    if (is_integer) number = on_integer(number, bounds[i].is_low, bounds[i].is_without);
    if (!scale(mx_number_text(s->g->arena, number), decimals, &bound) ||
        bound >= power_of_ten(REAL_DIGITS) || bound <= -power_of_ten(REAL_DIGITS))
        return schema_fail(s, bounds[i].name,
                           "wanted a bound of at most %d digits, %d of them behind the point",
                           REAL_DIGITS, decimals);
    if (!is_integer && bounds[i].is_without) bound += bounds[i].is_low ? 1 : -1;
    if (bounds[i].is_low && bound > *low) *low = bound;
    if (!bounds[i].is_low && bound < *high) *high = bound;
    return true;
}

bool schema_number(Schemas *s, const MxJson *schema, bool is_integer, int32_t from, int32_t to) {
    const MxJson *multiple = mx_json_get(schema, "multipleOf");
    double unit = 1;
    bool has_bounds = false;
    if (multiple && (!mx_json_number(multiple, &unit) || unit != 1))
        return schema_fail(s, "multipleOf", "other numbers than 1 are not available");
    is_integer |= multiple != NULL;
    const int decimals = is_integer ? 0 : MOST_DECIMALS;
    int64_t high = power_of_ten(REAL_DIGITS) - 1, low = -high;
    for (int i = 0; i < MX_COUNT(bounds); i++) {
        has_bounds |= mx_json_get(schema, bounds[i].name) != NULL;
        if (!read_bound(s, schema, i, decimals, &low, &high)) return false;
    }
    if (has_bounds)
        guide_range(s->g, from, low, high, decimals, to);
    else
        guide_json_number(s->g, from, is_integer, to);
    return true;
}
