/* json_text.c — the text of a JSON object, byte by byte: a table of states and of the bytes that
 * lead to others, and a stack of one bit for each open object or list. */
#include "json_text.h"

/* States, and behind them what a byte may do instead of leading to a state. */
enum {
    START,
    BEGUN, /* with a space */
    VALUE,
    FIRST_VALUE, /* or the end of a list */
    KEY,
    FIRST_KEY, /* or the end of an object */
    COLON,
    AFTER, /* a value */
    TEXT,
    TAIL, /* of a character in UTF-8: one byte is missing */
    TAIL_2,
    TAIL_3,
    TAIL_E0, /* behind a byte that allows fewer next ones */
    TAIL_ED,
    TAIL_F0,
    TAIL_F4,
    ESCAPE,
    HEX_1,
    HEX_2,
    HEX_2D, /* behind d */
    HEX_3,
    HEX_4,
    MINUS,
    ZERO,
    DIGITS,
    POINT,
    FRACTION,
    EXPONENT,
    SIGN,
    POWER,
    TRUE_R,
    TRUE_U,
    TRUE_E,
    FALSE_A,
    FALSE_L,
    FALSE_S,
    FALSE_E,
    NULL_U,
    NULL_L,
    NULL_LL,
    DONE,
    STATES,
    OPEN_OBJECT = STATES,
    OPEN_LIST,
    CLOSE_OBJECT,
    CLOSE_LIST,
    COMMA,
    OPEN_KEY,
    OPEN_TEXT,
    CLOSE_TEXT,
    REFUSED,
};

struct JsonGrammar {
    uint8_t next[STATES][256];
};

#define SPACES      "\t\n\r "
#define ONE_TO_NINE "123456789"
#define DIGIT       "0" ONE_TO_NINE
#define NOT_D       DIGIT "abcefABCEF"

static const struct {
    uint8_t state;
    const char *bytes;
    uint8_t next;
} rows[] = {
    {START, SPACES, BEGUN},
    {START, "{", OPEN_OBJECT},
    {BEGUN, "{", OPEN_OBJECT},
    {VALUE, SPACES, VALUE},
    {VALUE, "{", OPEN_OBJECT},
    {VALUE, "[", OPEN_LIST},
    {VALUE, "\"", OPEN_TEXT},
    {VALUE, "-", MINUS},
    {VALUE, "0", ZERO},
    {VALUE, ONE_TO_NINE, DIGITS},
    {VALUE, "t", TRUE_R},
    {VALUE, "f", FALSE_A},
    {VALUE, "n", NULL_U},
    {FIRST_VALUE, SPACES, FIRST_VALUE},
    {FIRST_VALUE, "]", CLOSE_LIST},
    {KEY, SPACES, KEY},
    {KEY, "\"", OPEN_KEY},
    {FIRST_KEY, SPACES, FIRST_KEY},
    {FIRST_KEY, "}", CLOSE_OBJECT},
    {COLON, SPACES, COLON},
    {COLON, ":", VALUE},
    {AFTER, SPACES, AFTER},
    {AFTER, ",", COMMA},
    {AFTER, "}", CLOSE_OBJECT},
    {AFTER, "]", CLOSE_LIST},
    {TEXT, "\"", CLOSE_TEXT},
    {TEXT, "\\", ESCAPE},
    {ESCAPE, "\"\\/bfnrt", TEXT},
    {ESCAPE, "u", HEX_1},
    {HEX_1, NOT_D, HEX_2},
    {HEX_1, "dD", HEX_2D},
    {HEX_2, NOT_D "dD", HEX_3},
    {HEX_2D, "01234567", HEX_3},
    {HEX_3, NOT_D "dD", HEX_4},
    {HEX_4, NOT_D "dD", TEXT},
    {MINUS, "0", ZERO},
    {MINUS, ONE_TO_NINE, DIGITS},
    {ZERO, ".", POINT},
    {ZERO, "eE", EXPONENT},
    {DIGITS, DIGIT, DIGITS},
    {DIGITS, ".", POINT},
    {DIGITS, "eE", EXPONENT},
    {POINT, DIGIT, FRACTION},
    {FRACTION, DIGIT, FRACTION},
    {FRACTION, "eE", EXPONENT},
    {EXPONENT, "+-", SIGN},
    {EXPONENT, DIGIT, POWER},
    {SIGN, DIGIT, POWER},
    {POWER, DIGIT, POWER},
    {TRUE_R, "r", TRUE_U},
    {TRUE_U, "u", TRUE_E},
    {TRUE_E, "e", AFTER},
    {FALSE_A, "a", FALSE_L},
    {FALSE_L, "l", FALSE_S},
    {FALSE_S, "s", FALSE_E},
    {FALSE_E, "e", AFTER},
    {NULL_U, "u", NULL_L},
    {NULL_L, "l", NULL_LL},
    {NULL_LL, "l", AFTER},
    {DONE, SPACES, DONE},
};

/* Bytes of texts (Unicode 15, table 3-7), from low to high. */
static const struct {
    uint8_t state, low, high, next;
} ranges[] = {
    {TEXT, 0x20, 0x7f, TEXT},      {TEXT, 0xc2, 0xdf, TAIL},    {TEXT, 0xe0, 0xe0, TAIL_E0},
    {TEXT, 0xe1, 0xec, TAIL_2},    {TEXT, 0xed, 0xed, TAIL_ED}, {TEXT, 0xee, 0xef, TAIL_2},
    {TEXT, 0xf0, 0xf0, TAIL_F0},   {TEXT, 0xf1, 0xf3, TAIL_3},  {TEXT, 0xf4, 0xf4, TAIL_F4},
    {TAIL, 0x80, 0xbf, TEXT},      {TAIL_2, 0x80, 0xbf, TAIL},  {TAIL_3, 0x80, 0xbf, TAIL_2},
    {TAIL_E0, 0xa0, 0xbf, TAIL},   {TAIL_ED, 0x80, 0x9f, TAIL}, {TAIL_F0, 0x90, 0xbf, TAIL_2},
    {TAIL_F4, 0x80, 0x8f, TAIL_2},
};

/* States that go on as another one, too, where they have no row of their own. */
static const uint8_t like[][2] = {{FIRST_VALUE, VALUE}, {FIRST_KEY, KEY},  {ZERO, AFTER},
                                  {DIGITS, AFTER},      {FRACTION, AFTER}, {POWER, AFTER}};

const JsonGrammar *json_grammar_new(MxArena *arena) {
    JsonGrammar *g = mx_new(arena, JsonGrammar);
    memset(g->next, REFUSED, sizeof g->next);
    for (int i = 0; i < MX_COUNT(ranges); i++)
        for (int byte = ranges[i].low; byte <= ranges[i].high; byte++)
            g->next[ranges[i].state][byte] = ranges[i].next;
    for (int i = 0; i < MX_COUNT(rows); i++)
        for (const char *at = rows[i].bytes; *at; at++)
            g->next[rows[i].state][(uint8_t)*at] = rows[i].next;
    for (int i = 0; i < MX_COUNT(like); i++)
        for (int byte = 0; byte < 256; byte++)
            if (g->next[like[i][0]][byte] == REFUSED)
                g->next[like[i][0]][byte] = g->next[like[i][1]][byte];
    return g;
}

/* ---- what bytes do */

static bool in_list(const JsonText *text) {
    return text->lists >> (text->depth - 1) & 1;
}

static bool open_object(JsonText *text) {
    if (text->depth == JSON_TEXT_DEEPEST) return false;
    text->lists &= ~((uint64_t)1 << text->depth++);
    text->state = FIRST_KEY;
    return true;
}

static bool open_list(JsonText *text) {
    if (text->depth == JSON_TEXT_DEEPEST) return false;
    text->lists |= (uint64_t)1 << text->depth++;
    text->state = FIRST_VALUE;
    return true;
}

static bool close_either(JsonText *text) {
    text->state = --text->depth ? AFTER : DONE;
    return true;
}

static bool close_object(JsonText *text) {
    return !in_list(text) && close_either(text);
}

static bool close_list(JsonText *text) {
    return in_list(text) && close_either(text);
}

static bool comma(JsonText *text) {
    text->state = in_list(text) ? VALUE : KEY;
    return true;
}

static bool open_key(JsonText *text) {
    text->is_key = true;
    text->state = TEXT;
    return true;
}

static bool open_text(JsonText *text) {
    text->is_key = false;
    text->state = TEXT;
    return true;
}

static bool close_text(JsonText *text) {
    text->state = text->is_key ? COLON : AFTER;
    return true;
}

static bool (*const acts[])(JsonText *text) = {
    [OPEN_OBJECT - STATES] = open_object,
    [OPEN_LIST - STATES] = open_list,
    [CLOSE_OBJECT - STATES] = close_object,
    [CLOSE_LIST - STATES] = close_list,
    [COMMA - STATES] = comma,
    [OPEN_KEY - STATES] = open_key,
    [OPEN_TEXT - STATES] = open_text,
    [CLOSE_TEXT - STATES] = close_text,
};

bool json_text_add(const JsonGrammar *g, JsonText *text, const char *bytes, size_t n) {
    JsonText now = *text;
    for (size_t i = 0; i < n; i++) {
        bool is_space = now.state != TEXT && (uint8_t)bytes[i] <= ' ';
        uint8_t next = g->next[now.state][(uint8_t)bytes[i]];
        now.n_spaces = is_space ? now.n_spaces + 1 : 0;
        if (next == REFUSED || now.n_spaces > JSON_TEXT_MOST_SPACES) return false;
        if (next >= STATES && !acts[next - STATES](&now)) return false;
        if (next < STATES) now.state = next;
    }
    *text = now;
    return true;
}

bool json_text_may(const JsonGrammar *g, const JsonText *text, char byte) {
    return g->next[text->state][(uint8_t)byte] != REFUSED;
}

bool json_text_is_complete(const JsonText *text) {
    return text->state == DONE;
}

bool json_text_is_plain(const JsonGrammar *g, const char *bytes, size_t n) {
    uint8_t state = TEXT;
    for (size_t i = 0; i < n && state >= TEXT && state <= TAIL_F4; i++)
        state = g->next[state][(uint8_t)bytes[i]];
    return state == TEXT;
}

bool json_text_in_plain(const JsonText *text) {
    return text->state == TEXT;
}
