/* bounds.c — numbers between two bounds, digit by digit: as long as the digits are those of a
 * bound, it limits the next one; behind, only what is left of a division matters. */
#include "internal.h"

/* Numbers with `whole` digits before the point, and the digits of the bounds. */
typedef struct Range {
    MxGrammar *g;
    int decimals, all;
    int64_t step;
    char low[GUIDE_DIGITS + 1], high[GUIDE_DIGITS + 1];
    int64_t left[GUIDE_DIGITS + 1];        /* of 10 to as many digits, divided by the step */
    int32_t state[GUIDE_DIGITS + 1][2][2]; /* by digits so far, and whether they are the bounds' */
    int64_t rest[GUIDE_DIGITS + 1][2][2];  /* of these digits, divided by the step */
    int32_t *free; /* [GUIDE_DIGITS + 1, step] by digits to come and the rest: within the bounds */
    int32_t to;
} Range;

static bool is_zero(const char *digits) {
    return digits[strspn(digits, "0")] == '\0';
}

/* The state that a digit is written from, with the point before it if it is the first behind. */
static int32_t before_digit(Range *r, int32_t from, int to_come) {
    if (to_come != r->decimals) return from;
    int32_t point = mx_grammar_state(r->g);
    mx_grammar_bytes(r->g, from, '.', '.', point);
    return point;
}

static void may_end(Range *r, int32_t from, int to_come, int64_t rest) {
    if (to_come <= r->decimals && rest * r->left[to_come] % r->step == 0)
        mx_grammar_nothing(r->g, from, r->to);
}

/* Behind it, any digits may come that make a multiple. */
static int32_t free_state(Range *r, int to_come, int64_t rest) {
    int32_t *state = &r->free[to_come * r->step + rest];
    if (*state || r->g->is_full) return *state;
    *state = mx_grammar_state(r->g);
    may_end(r, *state, to_come, rest);
    if (!to_come) return *state;
    int32_t from = before_digit(r, *state, to_come), same = 0;
    for (int digit = 0, first = 0; digit <= 9; digit++) {
        int32_t next = free_state(r, to_come - 1, (10 * rest + digit) % r->step);
        if (digit && next != same)
            mx_grammar_bytes(r->g, from, (uint8_t)('0' + first), (uint8_t)('0' + digit - 1), same);
        if (!digit || next != same) first = digit, same = next;
        if (digit == 9) mx_grammar_bytes(r->g, from, (uint8_t)('0' + first), '9', same);
    }
    return *state;
}

static int32_t state_of(Range *r, int n, bool is_low, bool is_high, int64_t rest) {
    if (!is_low && !is_high) return free_state(r, r->all - n, rest);
    int32_t *state = &r->state[n][is_low][is_high];
    if (!*state) *state = mx_grammar_state(r->g);
    r->rest[n][is_low][is_high] = rest;
    return *state;
}

/* What follows n digits of a bound: the end, where no more of them would have to be there, or one
 * more. */
static void write_digit(Range *r, int n, bool is_low, bool is_high) {
    int32_t from = r->state[n][is_low][is_high];
    const int64_t rest = r->rest[n][is_low][is_high];
    if (!from) return;
    if (!is_low || is_zero(r->low + n)) may_end(r, from, r->all - n, rest);
    if (n == r->all) return;
    from = before_digit(r, from, r->all - n);
    char low = is_low ? r->low[n] : '0', high = is_high ? r->high[n] : '9';
    for (char digit = low; digit <= high; digit++)
        mx_grammar_bytes(r->g, from, (uint8_t)digit, (uint8_t)digit,
                         state_of(r, n + 1, is_low && digit == low, is_high && digit == high,
                                  (10 * rest + digit - '0') % r->step));
}

static void put_digits(char *out, int n, int64_t value) {
    for (out[n] = '\0'; n; value /= 10) out[--n] = (char)('0' + value % 10);
}

/* Numbers of 0 and more. */
static void write_positive(Range *all, int32_t from, int64_t low, int64_t high) {
    enum { TIGHT = 3 };
    int64_t least = 0, unit = 1;
    for (int i = 0; i < all->decimals; i++) unit *= 10;
    for (int whole = 1; whole + all->decimals <= GUIDE_DIGITS; whole++, least = unit) {
        unit *= 10;
        Range r = *all;
        r.all = whole + all->decimals;
        int64_t a = low > least ? low : least, b = high < unit - 1 ? high : unit - 1;
        if (a > b) continue;
        put_digits(r.low, r.all, a);
        put_digits(r.high, r.all, b);
        r.state[0][true][true] = from;
        for (int n = 0; n <= r.all; n++)
            for (int tight = 1; tight <= TIGHT; tight++) write_digit(&r, n, tight & 1, tight >> 1);
    }
}

void guide_range(MxGrammar *g, int32_t from, NumberRange range, int32_t to) {
    const int64_t low = range.low, high = range.high;
    int32_t positive = mx_grammar_state(g), minus = mx_grammar_state(g);
    Range r = {.g = g, .decimals = range.decimals, .step = range.step, .to = to};
    r.free = mx_new_n(g->arena, int32_t, (GUIDE_DIGITS + 1) * range.step);
    r.left[0] = 1 % range.step;
    for (int i = 1; i <= GUIDE_DIGITS; i++) r.left[i] = 10 * r.left[i - 1] % range.step;
    mx_grammar_nothing(g, from, positive);
    mx_grammar_bytes(g, from, '-', '-', minus);
    if (high >= 0) write_positive(&r, positive, low > 0 ? low : 0, high);
    if (low < 0) write_positive(&r, minus, high < 0 ? -high : 1, -low);
}
