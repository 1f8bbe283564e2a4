/* text.c — building strings, and finding the nearest known word for a misspelt one. */
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

/* Bytes of the character at the start, 0 if it may not be shown as it is. */
static size_t shown_bytes(const char *s, size_t n, const char *escaped) {
    enum { LONGEST = 4, DELETE = 0x7f, FIRST_OF_C1 = 0xc2, END_OF_C1 = 0xa0 };
    unsigned char first = (unsigned char)s[0], second = n > 1 ? (unsigned char)s[1] : 0;
    if (first < ' ' || first == DELETE || memchr(escaped, first, strlen(escaped)))
        return (first == '\t' || first == '\n') && !strchr(escaped, first);
    if (first < 0x80) return 1;
    if (first == FIRST_OF_C1 && second < END_OF_C1) return 0; /* U+0080 … U+009F */
    size_t bytes = 2;
    while (bytes <= LONGEST && bytes <= n && mx_utf8_valid_bytes(s, bytes) != bytes) bytes++;
    return bytes <= LONGEST && bytes <= n ? bytes : 0;
}

static void add_shown(MxText *text, const char *s, size_t n, const char *escaped) {
    static const char letters[] = "n\nt\tr\r\"\"\\\\"; /* what is written, what is meant */
    for (size_t at = 0, bytes; at < n; at += bytes ? bytes : 1) {
        bytes = shown_bytes(s + at, n - at, escaped);
        const char *letter = letters;
        while (*letter && letter[1] != s[at]) letter += 2;
        if (bytes)
            mx_text_addn(text, s + at, bytes);
        else if (*letter)
            mx_text_add(text, "\\%c", *letter);
        else
            mx_text_add(text, "\\x%02x", (unsigned char)s[at]);
    }
}

size_t mx_text_shown_bytes(const char *s, size_t n) {
    size_t at = 0;
    for (size_t bytes = 1; at < n && bytes; at += bytes) bytes = shown_bytes(s + at, n - at, "");
    return at;
}

void mx_text_add_shown(MxText *text, const char *bytes, size_t n) {
    add_shown(text, bytes, n, "");
}

void mx_text_add_quoted(MxText *text, const char *bytes, size_t n) {
    mx_text_addn(text, "\"", 1);
    add_shown(text, bytes, n, "\n\t\"\\");
    mx_text_addn(text, "\"", 1);
}

/* Behind a field of a form that begins at a brace; NULL = it is none of these names. */
static const char *add_field(MxText *text, const char *at, const char *const *names,
                             const char *const *values, int n) {
    size_t bytes = strcspn(++at, "{}");
    for (int i = 0; i < n && at[bytes] == '}'; i++) {
        if (strlen(names[i]) != bytes || memcmp(names[i], at, bytes)) continue;
        mx_text_addn(text, values[i], strlen(values[i]));
        return at + bytes + 1;
    }
    return NULL;
}

const char *mx_text_add_form(MxText *text, const char *form, const char *const *names,
                             const char *const *values, int n) {
    for (const char *at = form; *at;) {
        size_t plain = strcspn(at, "{}");
        mx_text_addn(text, at, plain);
        at += plain;
        if (!*at) break;
        const char *brace = at;
        bool is_double = at[1] == at[0];
        if (is_double) mx_text_addn(text, at, 1);
        at = is_double ? at + 2 : *at == '{' ? add_field(text, at, names, values, n) : NULL;
        if (!at) return brace;
    }
    return NULL;
}

void mx_text_clear(MxText *text) {
    text->len = 0;
    text->data[0] = '\0';
}

const char *mx_figure(char out[MX_FIGURE], double value, int decimals) {
    enum { SIGNIFICANT = 3, SMALLEST = -4, LARGEST = 15 }; /* powers of ten */
    char rounded[MX_FIGURE];
    snprintf(rounded, sizeof rounded, "%.*e", SIGNIFICANT - 1, value);
    const char *e = strchr(rounded, 'e'); /* none in inf and nan */
    int power = e && value != 0 ? (int)strtol(e + 1, NULL, 10) : 0;
    if (power < 0 && SIGNIFICANT - 1 - power > decimals) decimals = SIGNIFICANT - 1 - power;
    bool is_plain = power >= SMALLEST && power < LARGEST;
    snprintf(out, MX_FIGURE, is_plain ? "%.*f" : "%.*e", is_plain ? decimals : SIGNIFICANT - 1,
             value);
    return out;
}

bool mx_text_has_prefix(const char *s, const char *prefix) {
    return !strncmp(s, prefix, strlen(prefix));
}

bool mx_text_has_suffix(const char *s, const char *suffix) {
    size_t n = strlen(s), m = strlen(suffix);
    return n >= m && !strcmp(s + n - m, suffix);
}

bool mx_text_has_word(const char *words, const char *word) {
    size_t n = strlen(word);
    for (const char *at = words; n && (at = strstr(at, word)); at += n)
        if ((at == words || at[-1] == ' ') && (!at[n] || at[n] == ' ')) return true;
    return false;
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
    enum { MOST_SLIPS = 3, LETTERS_A_SLIP = 4 };
    int limit = ((int)strlen(word) + 1) / LETTERS_A_SLIP;
    if (limit < 1) limit = 1;
    if (limit > MOST_SLIPS) limit = MOST_SLIPS;
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

bool mx_text_stdin_line(MxText *text) {
    char part[4096];
    mx_text_clear(text);
    while (fgets(part, sizeof part, stdin)) {
        mx_text_addn(text, part, strlen(part));
        if (text->data[text->len - 1] != '\n') continue;
        text->data[--text->len] = '\0';
        return true;
    }
    return text->len > 0;
}
