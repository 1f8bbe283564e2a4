/* merges.c — the merges of a tokenizer.json, three quarters of a big one: read from its bytes,
 * which takes a fifth of the time that a tree of JSON takes. Only what the tokenizers library
 * writes is read here. Whatever else a file holds, it is read as JSON as a whole, and that tells
 * what is wrong with it; so what a file means does not depend on this. */
#include "internal.h"

static const char *skip_blank(const char *at) {
    while (*at == ' ' || *at == '\t' || *at == '\n' || *at == '\r') at++;
    return at;
}

/* ---- where they are */

/* Behind a text; NULL = it does not end. */
static const char *after_text(const char *at) {
    for (at++; *at && *at != '"'; at++)
        if (*at == '\\' && !*++at) return NULL;
    return *at ? at + 1 : NULL;
}

static bool is_key(const char *from, const char *to, const char *key) {
    size_t n = strlen(key);
    return (size_t)(to - from) == n + 2 && !memcmp(from + 1, key, n);
}

/* The value of "merges" in "model". NULL = there is none, or perhaps several: keys with escapes may
 * be the same as others. */
static const char *find(const char *at) {
    enum { IN_FILE = 1, IN_MODEL };
    const char *found = NULL;
    bool is_model = false, had_model = false;
    for (int depth = 0; *at;) {
        if (*at != '"') {
            depth += (*at == '{' || *at == '[') - (*at == '}' || *at == ']');
            at++;
            continue;
        }
        const char *from = at;
        if (!(at = after_text(at))) return NULL;
        if (depth > IN_MODEL || *skip_blank(at) != ':') continue;
        if (memchr(from, '\\', (size_t)(at - from))) return NULL;
        bool is_wanted = is_key(from, at, depth == IN_FILE ? "model" : "merges");
        if (depth == IN_FILE) {
            if (is_wanted && had_model) return NULL;
            had_model |= is_model = is_wanted;
        } else if (is_wanted && is_model) {
            if (found) return NULL;
            found = skip_blank(skip_blank(at) + 1);
        }
    }
    return found && *found == '[' ? found : NULL;
}

/* ---- what they are */

typedef struct Cursor {
    MxArena *arena;
    const char *at; /* in a file whose last byte a NUL follows */
} Cursor;

static bool take(Cursor *c, char wanted) {
    c->at = skip_blank(c->at);
    if (*c->at != wanted) return false;
    c->at++;
    return true;
}

/* Of an escape behind its backslash, the character; -1 = another kind of escape. */
static int64_t escaped(const char **at) {
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    const char *name = **at ? strchr(names, **at) : NULL;
    uint32_t code = 0;
    if (name) {
        (*at)++;
        return values[name - names];
    }
    if (*(*at)++ != 'u') return -1;
    for (int i = 0; i < 4; i++, (*at)++) {
        const char *digits = "0123456789abcdef", c = **at;
        const char *digit = c ? strchr(digits, c >= 'A' && c <= 'F' ? c + ('a' - 'A') : c) : NULL;
        if (!digit) return -1;
        code = 16 * code + (uint32_t)(digit - digits);
    }
    return code >= 0xd800 && code < 0xe000 ? -1 : (int64_t)code; /* half of a character */
}

static bool read_escapes(Cursor *c, const char *from, TextSpan *out) {
    const char *end = after_text(from - 1);
    if (!end) return false;
    MxText text;
    mx_text_init(&text, c->arena);
    for (c->at = from; c->at < end - 1;) {
        if ((uint8_t)*c->at < ' ') return false;
        if (*c->at != '\\') {
            mx_text_addn(&text, c->at++, 1);
            continue;
        }
        c->at++;
        int64_t code = escaped(&c->at);
        if (code < 0) return false;
        text_add_char(&text, (uint32_t)code);
    }
    c->at = end;
    *out = (TextSpan){text.data, text.len};
    return true;
}

static bool read_text(Cursor *c, TextSpan *out) {
    if (!take(c, '"')) return false;
    const char *from = c->at;
    while ((uint8_t)*c->at >= ' ' && *c->at != '"' && *c->at != '\\') c->at++;
    if (*c->at == '\\') return read_escapes(c, from, out);
    *out = (TextSpan){from, (size_t)(c->at - from)};
    return take(c, '"');
}

/* ["a", "b"] or "a b". */
static bool read_row(Cursor *c, TextSpan pair[2]) {
    if (take(c, '['))
        return read_text(c, &pair[0]) && take(c, ',') && read_text(c, &pair[1]) && take(c, ']');
    TextSpan line;
    if (!read_text(c, &line)) return false;
    const char *space = memchr(line.data, ' ', line.n);
    if (!space || space != memrchr(line.data, ' ', line.n)) return false;
    pair[0] = (TextSpan){line.data, (size_t)(space - line.data)};
    pair[1] = (TextSpan){space + 1, line.n - pair[0].n - 1};
    return true;
}

static bool read_rows(Cursor *c, TextMerges *out) {
    size_t cap = 0;
    *out = (TextMerges){0};
    if (!take(c, '[')) return false;
    do {
        if (out->n == cap) {
            size_t more = 2 * cap + 1024;
            out->pair = mx_arena_grow(c->arena, out->pair, cap, more, sizeof *out->pair);
            cap = more;
        }
        if (!read_row(c, out->pair[out->n++])) return false;
    } while (take(c, ','));
    return take(c, ']');
}

bool text_merges_read(MxArena *arena, MxBytes file, TextMerges *out, MxBytes *rest) {
    static const char none[] = "[]";
    const char *text = (const char *)file.data, *from = find(text);
    Cursor c = {.arena = arena, .at = from};
    if (!from || !read_rows(&c, out)) return false;
    size_t before = (size_t)(from - text), n = (size_t)(c.at - from), n_none = strlen(none);
    if (mx_utf8_valid_bytes(from, n) < n) return false;
    *rest = (MxBytes){mx_arena_alloc(arena, file.size - n + n_none + 1), file.size - n + n_none};
    memcpy(rest->data, text, before);
    memcpy(rest->data + before, none, n_none);
    memcpy(rest->data + before + n_none, c.at, file.size - before - n + 1);
    return true;
}
