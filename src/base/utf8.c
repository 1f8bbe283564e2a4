/* utf8.c — validation of UTF-8. Properties of characters (letters, normal forms) are in the room
 * text. */
#include <mx/base.h>

/* Well-formed sequences by their first byte; the second byte's range excludes overlong forms,
 * surrogates and what lies above U+10FFFF. Source: the Unicode Standard, table 3-7. */
// clang-format off
static const struct {
    uint8_t first_lo, first_hi, second_lo, second_hi;
    int bytes;
} sequences[] = {
    {0x00, 0x7f, 0x00, 0x00, 1},
    {0xc2, 0xdf, 0x80, 0xbf, 2},
    {0xe0, 0xe0, 0xa0, 0xbf, 3},
    {0xe1, 0xec, 0x80, 0xbf, 3},
    {0xed, 0xed, 0x80, 0x9f, 3},
    {0xee, 0xef, 0x80, 0xbf, 3},
    {0xf0, 0xf0, 0x90, 0xbf, 4},
    {0xf1, 0xf3, 0x80, 0xbf, 4},
    {0xf4, 0xf4, 0x80, 0x8f, 4},
};
// clang-format on

/* Bytes of the well-formed sequence at `s`, 0 if there is none in the n bytes left. */
static int sequence_bytes(const uint8_t *s, size_t n) {
    for (int i = 0; i < MX_COUNT(sequences); i++) {
        int bytes = sequences[i].bytes;
        if (s[0] < sequences[i].first_lo || s[0] > sequences[i].first_hi) continue;
        if ((size_t)bytes > n) return 0;
        if (bytes > 1 && (s[1] < sequences[i].second_lo || s[1] > sequences[i].second_hi)) return 0;
        for (int k = 2; k < bytes; k++)
            if (s[k] < 0x80 || s[k] > 0xbf) return 0;
        return bytes;
    }
    return 0;
}

size_t mx_utf8_valid_bytes(const char *text, size_t n) {
    const uint8_t *s = (const uint8_t *)text;
    size_t at = 0;
    while (at < n) {
        int bytes = sequence_bytes(s + at, n - at);
        if (!bytes) break;
        at += (size_t)bytes;
    }
    return at;
}
