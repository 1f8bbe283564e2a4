/* text.c — strings under construction, and the nearest known word for a misspelt one. */
#include <mx/base.h>

#include <stdio.h>
#include <stdlib.h>

void mx_text_init(MxText *text, MxArena *arena) {
    *text = (MxText){.arena = arena, .cap = 64};
    text->data = mx_arena_alloc(arena, text->cap);
}

static void reserve(MxText *text, size_t extra) {
    if (text->len + extra + 1 <= text->cap) return;
    size_t cap = text->cap * 2;
    while (cap < text->len + extra + 1) cap *= 2;
    text->data = mx_arena_grow(text->arena, text->data, text->len, cap, 1);
    text->cap = cap;
}

void mx_text_addn(MxText *text, const char *bytes, size_t n) {
    reserve(text, n);
    memcpy(text->data + text->len, bytes, n);
    text->len += n;
    text->data[text->len] = '\0';
}

void mx_text_vadd(MxText *text, const char *fmt, va_list ap) {
    va_list again;
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, again);
    va_end(again);
    MX_ASSERT(n >= 0);
    reserve(text, (size_t)n);
    vsnprintf(text->data + text->len, (size_t)n + 1, fmt, ap);
    text->len += (size_t)n;
}

void mx_text_add(MxText *text, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    mx_text_vadd(text, fmt, ap);
    va_end(ap);
}

void mx_text_clear(MxText *text) {
    text->len = 0;
    text->data[0] = '\0';
}

bool mx_text_has_prefix(const char *s, const char *prefix) {
    return !strncmp(s, prefix, strlen(prefix));
}

bool mx_text_has_suffix(const char *s, const char *suffix) {
    size_t n = strlen(s), m = strlen(suffix);
    return n >= m && !strcmp(s + n - m, suffix);
}

enum { LONGEST_WORD = 63 };

/* Optimal string alignment distance: insertions, deletions, substitutions and swaps of neighbours
 * cost one each. */
static int edit_distance(const char *a, const char *b) {
    int n = (int)strlen(a), m = (int)strlen(b);
    if (n > LONGEST_WORD || m > LONGEST_WORD) return LONGEST_WORD;
    int row[3][LONGEST_WORD + 1];
    for (int j = 0; j <= m; j++) row[0][j] = j;
    for (int i = 1; i <= n; i++) {
        int *now = row[i % 3], *up = row[(i + 2) % 3], *up2 = row[(i + 1) % 3];
        now[0] = i;
        for (int j = 1; j <= m; j++) {
            int best = up[j - 1] + (a[i - 1] != b[j - 1]);
            if (up[j] + 1 < best) best = up[j] + 1;
            if (now[j - 1] + 1 < best) best = now[j - 1] + 1;
            bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (swapped && up2[j - 2] + 1 < best) best = up2[j - 2] + 1;
            now[j] = best;
        }
    }
    return row[n % 3][m];
}

const char *mx_nearest(const char *word, const char *const *candidates, int n) {
    int limit = (int)strlen(word) / 3;
    if (limit < 2) limit = 2;
    const char *nearest = NULL;
    for (int i = 0, best = limit + 1; i < n; i++) {
        int d = edit_distance(word, candidates[i]);
        if (d < best) {
            best = d;
            nearest = candidates[i];
        }
    }
    return nearest;
}

const char *mx_number_text(MxArena *arena, double number) {
    char text[40];
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, number);
        if (strtod(text, NULL) == number) break;
    }
    bool is_float = strpbrk(text, ".e");
    return mx_arena_printf(arena, "%s%s", text, is_float ? "" : ".0");
}
