/* schema_numbers.c — numbers of schemas. */
#include "internal.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>

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

static int64_t common(int64_t a, int64_t b) {
    while (b) {
        const int64_t rest = a % b;
        a = b, b = rest;
    }
    return a;
}

/* What "multipleOf" says: the unit, and of how many a number is a multiple. */
static bool read_step(Schemas *s, const MxJson *schema, bool is_integer, NumberRange *out) {
    const MxJson *multiple = mx_json_get(schema, "multipleOf");
    double number;
    out->step = 1;
    out->decimals = is_integer ? 0 : MOST_DECIMALS;
    if (!multiple) return true;
    if (!mx_json_number(multiple, &number) || number <= 0)
        return schema_want(s, "multipleOf", multiple, "a number above 0");
    const char *text = mx_number_text(s->g->arena, number);
    int decimals = 0;
    while (decimals < MOST_DECIMALS && !scale(text, decimals, &out->step)) decimals++;
    if (!scale(text, decimals, &out->step))
        return schema_fail(s, "multipleOf", "wanted at most %d digits behind the point",
                           MOST_DECIMALS);
    out->decimals = is_integer ? 0 : decimals;
    if (is_integer) out->step /= common(out->step, power_of_ten(decimals));
    return out->step <= GUIDE_MOST_STEP ||
           schema_fail(s, "multipleOf", "wanted at most %d in the last digit's place",
                       GUIDE_MOST_STEP);
}

static int64_t divide(int64_t value, int64_t by, bool goes_up) {
    const int64_t out = value / by, rest = value % by;
    return out + (goes_up ? rest > 0 : -(rest < 0));
}

static int compare(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Numbers that may not be, in units and in order, as far as they could be written. */
static int64_t *find_others(Schemas *s, const MxJson *schema, int decimals, size_t *n) {
    const MxJson *without = mx_json_get(schema, "not"), *atoms = mx_json_get(without, "anyOf");
    size_t most = 0;
    *n = 0;
    for (size_t i = 0; i < (atoms ? mx_json_length(atoms) : 1); i++)
        most += mx_json_length(mx_json_get(atoms ? mx_json_at(atoms, i) : without, "enum"));
    int64_t *out = mx_new_n(s->g->arena, int64_t, most + 1);
    for (size_t i = 0; i < (atoms ? mx_json_length(atoms) : 1); i++) {
        const MxJson *values = mx_json_get(atoms ? mx_json_at(atoms, i) : without, "enum");
        double number;
        for (size_t k = 0; k < mx_json_length(values); k++)
            if (mx_json_number(mx_json_at(values, k), &number) &&
                scale(mx_number_text(s->g->arena, number), decimals, &out[*n]))
                ++*n;
    }
    qsort(out, *n, sizeof *out, compare);
    return out;
}

bool schema_number(Schemas *s, const MxJson *schema, bool is_integer, int32_t from, int32_t to) {
    const int read = is_integer ? 0 : MOST_DECIMALS;
    NumberRange range;
    bool is_limited = mx_json_get(schema, "multipleOf") != NULL;
    int64_t high = power_of_ten(REAL_DIGITS) - 1, low = -high;
    size_t n;
    for (int i = 0; i < MX_COUNT(bounds); i++) {
        is_limited |= mx_json_get(schema, bounds[i].name) != NULL;
        if (!read_bound(s, schema, i, read, &low, &high)) return false;
    }
    if (!read_step(s, schema, is_integer, &range)) return false;
    const int64_t *others = find_others(s, schema, range.decimals, &n);
    if (!is_limited && !n) {
        guide_number(s->g, from, is_integer, to);
        return true;
    }
    const int64_t units = power_of_ten(read - range.decimals);
    low = divide(low, units, true), high = divide(high, units, false);
    for (size_t i = 0; i <= n && !s->g->is_full; i++) {
        range.low = i && others[i - 1] >= low ? others[i - 1] + 1 : low;
        range.high = i < n && others[i] <= high ? others[i] - 1 : high;
        if (range.low <= range.high) guide_range(s->g, from, range, to);
    }
    return true;
}

/* ---- numbers that a schema names */

bool schema_is_multiple(MxArena *arena, double value, double step, bool *out) {
    int64_t units, steps;
    const char *text = mx_number_text(arena, value), *of = mx_number_text(arena, step);
    for (int decimals = 0; decimals <= MOST_DECIMALS; decimals++)
        if (scale(text, decimals, &units) && scale(of, decimals, &steps) && steps) {
            *out = units % steps == 0;
            return true;
        }
    return false;
}
