/* base64.c — base64 to bytes. Source: RFC 4648. */
#include <mx/base.h>

bool mx_base64(MxArena *arena, const char *text, size_t n, MxBytes *out) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    while (n && text[n - 1] == '=') n--;
    *out = (MxBytes){.data = mx_arena_alloc(arena, n + 1)};
    uint32_t bits = 0;
    for (size_t i = 0; i < n; i++) {
        const char *digit = text[i] ? strchr(digits, text[i]) : NULL;
        if (!digit) return false;
        bits = bits << 6 | (uint32_t)(digit - digits);
        if (i % 4) out->data[out->size++] = (uint8_t)(bits >> (6 - 2 * (i % 4)) & 0xff);
    }
    out->data[out->size] = 0;
    return n % 4 != 1;
}
