/* bounds.c — numbers between two bounds, digit by digit: as long as the digits are those of a
 * bound, it limits the next one. */
#include "internal.h"

/* Numbers with `whole` digits before the point, and the digits of the bounds. */
typedef struct Range {
    MxGrammar *g;
    char low[GUIDE_DIGITS + 1], high[GUIDE_DIGITS + 1];
    int whole, all;
    int32_t state[GUIDE_DIGITS + 1][2][2]; /* by digits so far, and whether they are the bounds' */
    int32_t to;
} Range;

static int32_t state_of(Range *r, int n, bool is_low, bool is_high) {
    int32_t *state = &r->state[n][is_low][is_high];
    if (!*state) *state = mx_grammar_state(r->g);
    return *state;
}

static bool is_zero(const char *digits) {
    return digits[strspn(digits, "0")] == '\0';
}

/* What follows n digits: the end, where no more of them would have to be there, or one more. */
static void write_digit(Range *r, int n, bool is_low, bool is_high) {
    int32_t from = r->state[n][is_low][is_high];
    if (!from) return;
    if (n >= r->whole && (!is_low || is_zero(r->low + n))) mx_grammar_nothing(r->g, from, r->to);
    if (n == r->all) return;
    if (n == r->whole) {
        int32_t point = mx_grammar_state(r->g);
        mx_grammar_bytes(r->g, from, '.', '.', point);
        from = point;
    }
    char low = is_low ? r->low[n] : '0', high = is_high ? r->high[n] : '9';
    for (char digit = low; digit <= high; digit++)
        mx_grammar_bytes(r->g, from, (uint8_t)digit, (uint8_t)digit,
                         state_of(r, n + 1, is_low && digit == low, is_high && digit == high));
}

static void put_digits(char *out, int n, int64_t value) {
    for (out[n] = '\0'; n; value /= 10) out[--n] = (char)('0' + value % 10);
}

/* Numbers of 0 and more. */
static void write_positive(MxGrammar *g, int32_t from, int64_t low, int64_t high, int decimals,
                           int32_t to) {
    int64_t least = 0, unit = 1;
    for (int i = 0; i < decimals; i++) unit *= 10;
    for (int whole = 1; whole + decimals <= GUIDE_DIGITS; whole++, least = unit) {
        unit *= 10;
        Range r = {.g = g, .whole = whole, .all = whole + decimals, .to = to};
        int64_t a = low > least ? low : least, b = high < unit - 1 ? high : unit - 1;
        if (a > b) continue;
        put_digits(r.low, r.all, a);
        put_digits(r.high, r.all, b);
        r.state[0][true][true] = from;
        for (int n = 0; n <= r.all; n++)
            for (int tight = 0; tight < 4; tight++) write_digit(&r, n, tight & 1, tight >> 1);
    }
}

void guide_range(MxGrammar *g, int32_t from, int64_t low, int64_t high, int decimals, int32_t to) {
    int32_t positive = mx_grammar_state(g), minus = mx_grammar_state(g);
    mx_grammar_nothing(g, from, positive);
    mx_grammar_bytes(g, from, '-', '-', minus);
    if (high >= 0) write_positive(g, positive, low > 0 ? low : 0, high, decimals, to);
    if (low < 0) write_positive(g, minus, high < 0 ? -high : 1, -low, decimals, to);
}
