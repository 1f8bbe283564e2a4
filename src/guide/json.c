/* json.c — parts of JSON's grammar (RFC 8259) that schemas are made of: spaces, texts,
 * numbers. Texts are UTF-8, without escapes of surrogates, which many parsers refuse if they stand
 * alone. */
#include "internal.h"

#include <stdlib.h>

/* A space, or a new line and its indentation. More is seldom wanted, and a model that may write any
 * number of spaces may find no end. One rule for all places: it holds how many there have been. */
void guide_spaces(MxGrammar *g, int32_t from, int32_t to) {
    if (!g->spaces) {
        int32_t end, at = mx_grammar_state(g);
        g->spaces = guide_rule(g, &end);
        mx_grammar_nothing(g, g->spaces, end);
        mx_grammar_bytes(g, g->spaces, ' ', ' ', end);
        mx_grammar_bytes(g, g->spaces, '\n', '\n', at);
        for (int i = 0; i < GUIDE_MOST_SPACES; i++) {
            int32_t next = mx_grammar_state(g);
            mx_grammar_nothing(g, at, end);
            guide_set(g, at, " \t", next);
            at = next;
        }
        mx_grammar_nothing(g, at, end);
    }
    guide_call(g, from, g->spaces, to);
}

/* ---- characters */

/* Bytes of characters (Unicode 15, table 3-7), from low to high: the first one, the second one, and
 * how many more. */
static const struct {
    uint8_t low, high, second_low, second_high, more;
} sequences[] = {
    {0xc2, 0xdf, 0x80, 0xbf, 0}, {0xe0, 0xe0, 0xa0, 0xbf, 1}, {0xe1, 0xec, 0x80, 0xbf, 1},
    {0xed, 0xed, 0x80, 0x9f, 1}, {0xee, 0xef, 0x80, 0xbf, 1}, {0xf0, 0xf0, 0x90, 0xbf, 2},
    {0xf1, 0xf3, 0x80, 0xbf, 2}, {0xf4, 0xf4, 0x80, 0x8f, 2},
};

void guide_character(MxGrammar *g, int32_t from, int32_t to) {
    if (!g->character) {
        int32_t end, tail[3];
        g->character = guide_rule(g, &end);
        tail[0] = end;
        for (int i = 1; i < MX_COUNT(tail); i++) {
            tail[i] = mx_grammar_state(g);
            mx_grammar_bytes(g, tail[i], 0x80, 0xbf, tail[i - 1]);
        }
        for (int i = 0; i < MX_COUNT(sequences); i++) {
            int32_t second = mx_grammar_state(g);
            mx_grammar_bytes(g, g->character, sequences[i].low, sequences[i].high, second);
            mx_grammar_bytes(g, second, sequences[i].second_low, sequences[i].second_high,
                             tail[sequences[i].more]);
        }
    }
    guide_call(g, from, g->character, to);
}

/* Bytes 2 and on of characters from low to high, whose first bytes are the same: of those that the
 * ends share, a sequence; else the first ones, those between, and the last ones. */
static void add_tails(MxGrammar *g, int32_t from, const uint8_t *low, const uint8_t *high, int n,
                      int32_t to) {
    static const uint8_t lowest[] = {0x80, 0x80, 0x80}, highest[] = {0xbf, 0xbf, 0xbf};
    if (n == 1) {
        mx_grammar_bytes(g, from, *low, *high, to);
        return;
    }
    bool has_low = memcmp(low + 1, lowest, (size_t)n - 1) != 0;
    bool has_high = memcmp(high + 1, highest, (size_t)n - 1) != 0;
    if (*low == *high) has_low = has_high = false;
    int first = *low + has_low, last = *high - has_high;
    int32_t next = mx_grammar_state(g);
    if (*low == *high) {
        mx_grammar_bytes(g, from, *low, *low, next);
        add_tails(g, next, low + 1, high + 1, n - 1, to);
        return;
    }
    if (has_low) {
        mx_grammar_bytes(g, from, *low, *low, next);
        add_tails(g, next, low + 1, highest, n - 1, to);
        next = mx_grammar_state(g);
    }
    if (has_high) {
        mx_grammar_bytes(g, from, *high, *high, next);
        add_tails(g, next, lowest, high + 1, n - 1, to);
        next = mx_grammar_state(g);
    }
    if (first > last) return;
    mx_grammar_bytes(g, from, (uint8_t)first, (uint8_t)last, next);
    add_tails(g, next, lowest, highest, n - 1, to);
}

static int put_code(uint32_t code, uint8_t out[4]) {
    MxArena scratch = {.name = "character"};
    MxText text;
    mx_text_init(&text, &scratch);
    mx_char_add(&text, code);
    memcpy(out, text.data, text.len);
    int n = (int)text.len;
    mx_arena_release(&scratch);
    return n;
}

void guide_codes(MxGrammar *g, int32_t from, uint32_t low, uint32_t high, int32_t to) {
    static const uint32_t last[] = {0x7f, 0x7ff, 0xd7ff, 0xffff, 0x10ffff}; /* of as many bytes */
    enum { SURROGATES = 0xd800, BEHIND = 0xe000 };
    if (low <= 0x80 && high == last[MX_COUNT(last) - 1]) {
        guide_character(g, from, to);
        high = 0x7f;
    }
    for (int i = 0; i < MX_COUNT(last) && low <= high; i++) {
        uint8_t a[4], b[4];
        if (low >= SURROGATES && low < BEHIND) low = BEHIND;
        uint32_t end = high < last[i] ? high : last[i];
        if (low > end) continue;
        put_code(low, a);
        add_tails(g, from, a, b, put_code(end, b), to);
        low = end + 1;
    }
}

/* ---- texts */

/* Four digits, not of a surrogate, and not of NUL, which some readers refuse. */
static void add_code(MxGrammar *g, int32_t from, int32_t to) {
    static const char hex[] = "123456789abcefABCEF", d[] = "dD", zero[] = "0";
    enum { DIGITS = 4 };
    int32_t after_d = mx_grammar_state(g);
    int32_t digit[DIGITS + 1], zeros[DIGITS]; /* zeros: nothing else so far */
    for (int i = 0; i < DIGITS; i++) digit[i] = mx_grammar_state(g), zeros[i] = mx_grammar_state(g);
    digit[DIGITS] = to;
    mx_grammar_nothing(g, from, zeros[0]);
    mx_grammar_bytes(g, after_d, '0', '7', digit[2]);
    for (int i = 0; i < DIGITS; i++) {
        guide_set(g, zeros[i], hex, digit[i + 1]);
        guide_set(g, zeros[i], d, i ? digit[i + 1] : after_d);
        if (i + 1 < DIGITS) guide_set(g, zeros[i], zero, zeros[i + 1]);
        guide_set(g, digit[i], hex, digit[i + 1]);
        guide_set(g, digit[i], d, digit[i + 1]);
        guide_set(g, digit[i], zero, digit[i + 1]);
    }
}

/* The rule of one character that is no ASCII, or an escape. */
static int32_t rare_character(MxGrammar *g, const char *escapes) {
    const char *key = mx_arena_printf(g->arena, "escapes %s", escapes);
    int32_t end, rule = (int32_t)mx_map_get(&g->known, key, 0);
    if (rule) return rule;
    int32_t escape = mx_grammar_state(g), code = mx_grammar_state(g);
    rule = guide_rule(g, &end);
    mx_map_set(&g->known, key, rule);
    guide_character(g, rule, end);
    mx_grammar_bytes(g, rule, '\\', '\\', escape);
    for (; *escapes; escapes++)
        mx_grammar_bytes(g, escape, (uint8_t)*escapes, (uint8_t)*escapes,
                         *escapes == 'u' ? code : end);
    add_code(g, code, end);
    return rule;
}

static void add_plain(MxGrammar *g, int32_t from, char quote, int32_t to) {
    mx_grammar_bytes(g, from, ' ', (uint8_t)quote - 1, to);
    mx_grammar_bytes(g, from, (uint8_t)quote + 1, '\\' - 1, to);
    mx_grammar_bytes(g, from, '\\' + 1, 0x7f, to);
}

void guide_quoted(MxGrammar *g, int32_t from, Writing how, int32_t to) {
    const bool has_end = how.max < GUIDE_UNBOUNDED;
    const int32_t rare = rare_character(g, how.values->escapes);
    int32_t at = mx_grammar_state(g);
    mx_grammar_nothing(g, from, at);
    for (int64_t i = 0; !g->is_full; i++) {
        bool is_last = has_end ? i == how.max : i == how.min;
        int32_t next = has_end || !is_last ? mx_grammar_state(g) : at;
        if (how.quote == '"') g->plain[at] = has_end ? (int32_t)(how.max - i) : GUIDE_UNBOUNDED;
        if (i >= how.min) mx_grammar_nothing(g, at, to);
        if (is_last && has_end) return;
        add_plain(g, at, how.quote, next);
        guide_call(g, at, rare, next);
        if (is_last) return;
        at = next;
    }
}

static int compare(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The states of a text so far, one for each byte. */
typedef struct Trail {
    int32_t *state;
    size_t n;
    const char *text;
} Trail;

/* Goes on with the states that a text shares with the one before, and with new ones. Returns the
 * state at its end. */
static int32_t follow(MxGrammar *g, Trail *trail, const char *text) {
    size_t n = strlen(text), k = 0;
    while (k < trail->n && text[k] == trail->text[k]) k++;
    for (; k < n; k++) {
        trail->state[k + 1] = mx_grammar_state(g);
        mx_grammar_bytes(g, trail->state[k], (uint8_t)text[k], (uint8_t)text[k],
                         trail->state[k + 1]);
    }
    trail->n = n;
    trail->text = text;
    return trail->state[n];
}

static Trail new_trail(MxGrammar *g, int32_t from, const char *const *texts, int64_t n) {
    size_t longest = 0;
    for (int64_t i = 0; i < n; i++) {
        size_t bytes = strlen(texts[i]);
        longest = bytes > longest ? bytes : longest;
    }
    Trail trail = {.state = mx_new_n(g->arena, int32_t, longest + 1), .text = ""};
    trail.state[0] = from;
    return trail;
}

void guide_choice(MxGrammar *g, int32_t from, const char **texts, int64_t n, int32_t to) {
    int32_t start = mx_grammar_state(g);
    qsort(texts, (size_t)n, sizeof *texts, compare);
    Trail trail = new_trail(g, start, texts, n);
    mx_grammar_nothing(g, from, start);
    for (int64_t i = 0; i < n && !g->is_full; i++)
        if (!i || strcmp(texts[i], texts[i - 1]))
            mx_grammar_nothing(g, follow(g, &trail, texts[i]), to);
}

/* ---- numbers */

/* One to `most` digits, behind each of which it may go on. */
static void add_digits(MxGrammar *g, int32_t from, int most, int32_t to) {
    for (int i = 0; i < most; i++) {
        int32_t next = mx_grammar_state(g);
        mx_grammar_bytes(g, from, '0', '9', next);
        mx_grammar_nothing(g, next, to);
        from = next;
    }
}

static void write_number(MxGrammar *g, int32_t start, bool is_integer, int32_t end) {
    enum { DIGITS = 18, POWER = 2 };
    int32_t digits = mx_grammar_state(g), whole = mx_grammar_state(g);
    int32_t one = mx_grammar_state(g);
    mx_grammar_nothing(g, start, digits);
    mx_grammar_bytes(g, start, '-', '-', digits);
    mx_grammar_bytes(g, digits, '0', '0', whole);
    mx_grammar_bytes(g, digits, '1', '9', one);
    mx_grammar_nothing(g, one, whole);
    add_digits(g, one, DIGITS - 1, whole);
    mx_grammar_nothing(g, whole, end);
    if (is_integer) return;
    int32_t point = mx_grammar_state(g), fraction = mx_grammar_state(g);
    int32_t exponent = mx_grammar_state(g), power = mx_grammar_state(g);
    mx_grammar_bytes(g, whole, '.', '.', point);
    add_digits(g, point, DIGITS, fraction);
    mx_grammar_nothing(g, fraction, end);
    guide_set(g, whole, "eE", exponent);
    guide_set(g, fraction, "eE", exponent);
    guide_set(g, exponent, "+-", power);
    mx_grammar_nothing(g, exponent, power);
    add_digits(g, power, POWER, end);
}

void guide_number(MxGrammar *g, int32_t from, bool is_integer, int32_t to) {
    int32_t *rule = is_integer ? &g->integer : &g->number, end;
    if (!*rule) {
        *rule = guide_rule(g, &end);
        write_number(g, *rule, is_integer, end);
    }
    guide_call(g, from, *rule, to);
}
