/* unicode.c — properties and normal forms of characters; the only file that uses utf8proc. Its
 * tables are those of one version of Unicode; characters that were added later count as unassigned.
 */
#include "internal.h"

#include <utf8proc.h>

size_t text_find_span(TextSpan in, size_t from, TextSpan what) {
    if (from > in.n) return SIZE_MAX;
    const char *found = memmem(in.data + from, in.n - from, what.data, what.n);
    return found ? (size_t)(found - in.data) : SIZE_MAX;
}

uint32_t text_last_char(TextSpan text, size_t *where) {
    size_t at = *where = mx_char_start(text.data, text.n - 1);
    return mx_char_next(text.data, &at);
}

void text_add_char(MxText *out, uint32_t c) {
    utf8proc_uint8_t bytes[4];
    utf8proc_ssize_t n = utf8proc_encode_char((utf8proc_int32_t)c, bytes);
    mx_text_addn(out, (const char *)bytes, (size_t)n);
}

/* ---- properties */

static utf8proc_category_t category(uint32_t c) {
    return utf8proc_category((utf8proc_int32_t)c);
}

bool text_is_space(uint32_t c) {
    return (c >= 9 && c <= 13) || c == 0x85 ||
           (category(c) >= UTF8PROC_CATEGORY_ZS && category(c) <= UTF8PROC_CATEGORY_ZP);
}
bool text_is_punctuation(uint32_t c) {
    if (c < 0x80)
        return c > ' ' && c < 0x7f && !((c | 0x20) >= 'a' && (c | 0x20) <= 'z') &&
               !(c >= '0' && c <= '9');
    return category(c) >= UTF8PROC_CATEGORY_PC && category(c) <= UTF8PROC_CATEGORY_PO;
}
bool text_is_numeric(uint32_t c) {
    return category(c) >= UTF8PROC_CATEGORY_ND && category(c) <= UTF8PROC_CATEGORY_NO;
}
bool text_is_mark(uint32_t c) {
    return category(c) >= UTF8PROC_CATEGORY_MN && category(c) <= UTF8PROC_CATEGORY_ME;
}
bool text_is_nonspacing(uint32_t c) {
    return category(c) == UTF8PROC_CATEGORY_MN;
}
bool text_is_other(uint32_t c) {
    return category(c) >= UTF8PROC_CATEGORY_CC;
}
/* Letters and numbers of letters, marks, digits, connectors and joiners; circled letters, too. */
bool text_is_word(uint32_t c) {
    utf8proc_category_t is = category(c);
    return (is >= UTF8PROC_CATEGORY_LU && is <= UTF8PROC_CATEGORY_NL) ||
           is == UTF8PROC_CATEGORY_PC || (c >= 0x24b6 && c <= 0x24e9) || c == 0x200c || c == 0x200d;
}

/* Digits that are not decimal: raised, lowered, circled. */
static bool is_odd_digit(uint32_t c) {
    return c == 0xb2 || c == 0xb3 || c == 0xb9 || c == 0x2070 || (c >= 0x2074 && c <= 0x2079) ||
           (c >= 0x2080 && c <= 0x2089) || (c >= 0x2460 && c <= 0x2468);
}

unsigned text_class(uint32_t c) {
    utf8proc_category_t is = category(c);
    bool is_letter = is >= UTF8PROC_CATEGORY_LU && is <= UTF8PROC_CATEGORY_LO;
    bool is_decimal = is == UTF8PROC_CATEGORY_ND, is_digit = is_decimal || is_odd_digit(c);
    unsigned out = 0;
    if (text_is_space(c) || (c >= 0x1c && c <= 0x1f)) out |= MX_CHAR_SPACE;
    if (is_letter) out |= MX_CHAR_LETTER;
    if (is == UTF8PROC_CATEGORY_LU) out |= MX_CHAR_UPPER;
    if (is == UTF8PROC_CATEGORY_LL) out |= MX_CHAR_LOWER;
    if (is == UTF8PROC_CATEGORY_LT) out |= MX_CHAR_TITLE;
    if (is_decimal) out |= MX_CHAR_DECIMAL;
    if (is_digit) out |= MX_CHAR_DIGIT;
    if (text_is_numeric(c)) out |= MX_CHAR_NUMERIC;
    if (is_letter || text_is_numeric(c) || c == '_') out |= MX_CHAR_WORD;
    bool is_hidden = is == UTF8PROC_CATEGORY_CN || is >= UTF8PROC_CATEGORY_CC ||
                     (is >= UTF8PROC_CATEGORY_ZS && is <= UTF8PROC_CATEGORY_ZP);
    if (!is_hidden || c == ' ') out |= MX_CHAR_PRINTABLE;
    return out;
}

uint32_t text_case(uint32_t c, MxCharCase to) {
    static utf8proc_int32_t (*const cases[])(utf8proc_int32_t) = {
        [MX_CASE_UPPER] = utf8proc_toupper,
        [MX_CASE_LOWER] = utf8proc_tolower,
        [MX_CASE_TITLE] = utf8proc_totitle,
    };
    return (uint32_t)cases[to]((utf8proc_int32_t)c);
}

/* ---- forms */

/* Below this, characters never change, nor join one before them. */
static const struct {
    utf8proc_option_t options;
    uint32_t inert;
} forms[] = {
    [TEXT_NFC] = {UTF8PROC_STABLE | UTF8PROC_COMPOSE, 0x300},
    [TEXT_NFD] = {UTF8PROC_STABLE | UTF8PROC_DECOMPOSE, 0x80},
    [TEXT_NFKC] = {UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT, 0x80},
    [TEXT_NFKD] = {UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT, 0x80},
};

static void add_form(MxArena *scratch, utf8proc_option_t options, TextSpan in, MxText *out) {
    enum { ON_STACK = 256 };
    utf8proc_int32_t few[ON_STACK + 1], *all = few;
    const utf8proc_uint8_t *bytes = (const utf8proc_uint8_t *)in.data;
    utf8proc_ssize_t size = (utf8proc_ssize_t)in.n;
    utf8proc_ssize_t n = utf8proc_decompose(bytes, size, few, ON_STACK, options);
    MX_ASSERT(n >= 0); /* the text is well-formed */
    if (n > ON_STACK) {
        all = mx_new_n(scratch, utf8proc_int32_t, n + 1);
        n = utf8proc_decompose(bytes, size, all, n, options);
    }
    n = utf8proc_reencode(all, n, options);
    mx_text_addn(out, (const char *)all, (size_t)n);
}

void text_normal_form(MxArena *scratch, TextForm form, TextSpan in, MxText *out) {
    size_t plain = 0; /* from here to `start` nothing changes */
    for (size_t at = 0, start = 0; at < in.n;) {
        size_t before = at;
        if (mx_char_next(in.data, &at) < forms[form].inert) {
            start = before; /* what follows may join this one */
            continue;
        }
        while (at < in.n) {
            size_t end = at;
            if (mx_char_next(in.data, &end) < forms[form].inert) break;
            at = end;
        }
        mx_text_addn(out, in.data + plain, start - plain);
        add_form(scratch, forms[form].options, (TextSpan){in.data + start, at - start}, out);
        plain = start = at;
    }
    mx_text_addn(out, in.data + plain, in.n - plain);
}

void text_lower(TextSpan in, MxText *out) {
    enum { I_WITH_DOT = 0x130, DOT_ABOVE = 0x307 };
    for (size_t at = 0; at < in.n;) {
        uint32_t c = mx_char_next(in.data, &at);
        text_add_char(out, c == I_WITH_DOT ? 'i' : (uint32_t)utf8proc_tolower((int32_t)c));
        if (c == I_WITH_DOT) text_add_char(out, DOT_ABOVE); /* the one that becomes two */
    }
}

size_t text_grapheme_end(TextSpan text, size_t at) {
    utf8proc_int32_t state = 0;
    uint32_t before = mx_char_next(text.data, &at);
    while (at < text.n) {
        size_t end = at;
        uint32_t c = mx_char_next(text.data, &end);
        if (utf8proc_grapheme_break_stateful((int32_t)before, (int32_t)c, &state)) break;
        before = c;
        at = end;
    }
    return at;
}

/* Bytes that begin a well-formed sequence, which then breaks off: at least 1. */
static size_t broken_bytes(TextSpan bytes) {
    const uint8_t *s = (const uint8_t *)bytes.data;
    if (s[0] < 0xc2 || s[0] > 0xf4) return 1;
    size_t wanted = text_char_bytes(s[0]), n = 1;
    uint8_t low = s[0] == 0xe0 ? 0xa0 : s[0] == 0xf0 ? 0x90 : 0x80;
    uint8_t high = s[0] == 0xed ? 0x9f : s[0] == 0xf4 ? 0x8f : 0xbf;
    while (n < wanted && n < bytes.n && s[n] >= low && s[n] <= high) {
        n++;
        low = 0x80;
        high = 0xbf;
    }
    return n;
}

void text_add_lossy(MxText *out, TextSpan bytes) {
    while (bytes.n) {
        size_t valid = mx_utf8_valid_bytes(bytes.data, bytes.n);
        mx_text_addn(out, bytes.data, valid);
        bytes = (TextSpan){bytes.data + valid, bytes.n - valid};
        if (!bytes.n) break;
        size_t broken = broken_bytes(bytes);
        mx_text_addn(out, "\xef\xbf\xbd", 3);
        bytes = (TextSpan){bytes.data + broken, bytes.n - broken};
    }
}

/* ---- the alphabet of bytes */

static bool is_printable(uint32_t c) {
    return (c >= '!' && c <= '~') || (c >= 0xa1 && c <= 0xac) || (c >= 0xae && c <= 0xff);
}

enum { SHIFTED = 256, SHIFTED_END = 0x144 }; /* where bytes that cannot be printed lie, in order */

uint32_t text_of_byte(uint8_t byte) {
    if (is_printable(byte)) return byte;
    uint32_t n = SHIFTED;
    for (uint32_t c = 0; c < byte; c++) n += !is_printable(c);
    return n;
}

int text_byte_of(uint32_t c) {
    if (c < SHIFTED) return is_printable(c) ? (int)c : -1;
    if (c >= SHIFTED_END) return -1;
    int byte = -1;
    for (uint32_t n = SHIFTED; n <= c; n++) /* to the next that cannot be printed */
        do byte++;
        while (is_printable((uint32_t)byte));
    return byte;
}

void text_add_byte_level(MxText *out, TextSpan bytes) {
    for (size_t i = 0; i < bytes.n; i++) {
        uint8_t byte = (uint8_t)bytes.data[i];
        if (byte >= '!' && byte <= '~')
            mx_text_addn(out, bytes.data + i, 1);
        else
            text_add_char(out, text_of_byte(byte));
    }
}
