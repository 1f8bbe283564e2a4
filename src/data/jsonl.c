/* jsonl.c — the lines of a JSON Lines file, one at a time: a file is never in memory as a whole,
 * only its longest line. */
#include "jsonl.h"

enum { FIRST_BYTES = 1 << 16, LONGEST_LINE_BYTES = 1 << 28 };

static void close_file(void *file) {
    fclose(file);
}

bool jsonl_open(MxArena *arena, const char *path, JsonLines *out, MxError *err) {
    FILE *file = fopen(path, "rb");
    if (!file) return mx_fail_errno(err, "could not open %s", path);
    mx_arena_on_release(arena, close_file, file);
    *out = (JsonLines){.arena = arena, .file = file, .path = path, .cap = FIRST_BYTES};
    out->hash = mx_hash_new(arena);
    out->bytes = mx_arena_alloc(arena, out->cap);
    return true;
}

/* Room behind the bytes that are held: moves them to the front, or doubles the buffer. */
static bool make_room(JsonLines *lines, MxError *err) {
    size_t held = lines->end - lines->start;
    if (lines->start) memmove(lines->bytes, lines->bytes + lines->start, held);
    lines->start = 0;
    lines->end = held;
    if (held < lines->cap) return true;
    if (lines->cap >= LONGEST_LINE_BYTES)
        return mx_fail(err, MX_EXIT_BAD_INPUT,
                       (MxWhere){.file = lines->path, .line = lines->line + 1},
                       "more than %d bytes in one line", LONGEST_LINE_BYTES);
    lines->bytes = mx_arena_grow(lines->arena, lines->bytes, held, 2 * lines->cap, 1);
    lines->cap *= 2;
    return true;
}

/* Reads on; false at the end of the file and on errors. */
static bool fill(JsonLines *lines, MxError *err) {
    if (lines->is_at_end || !make_room(lines, err)) return false;
    size_t n = fread(lines->bytes + lines->end, 1, lines->cap - lines->end, lines->file);
    mx_hash_add(lines->hash, lines->bytes + lines->end, n);
    lines->n_read += (int64_t)n;
    lines->end += n;
    if (n) return true;
    lines->is_at_end = true;
    if (ferror(lines->file)) mx_fail_errno(err, "could not read %s", lines->path);
    return false;
}

static bool is_blank(const char *text, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!strchr(" \t\r", text[i]) || !text[i]) return false;
    return true;
}

/* The next line, without its end; false when there is none. */
static bool next_line(JsonLines *lines, const char **text, size_t *n, MxError *err) {
    size_t seen = 0;
    for (;;) {
        const char *from = lines->bytes + lines->start;
        size_t held = lines->end - lines->start;
        const char *end = held > seen ? memchr(from + seen, '\n', held - seen) : NULL;
        if (!end && fill(lines, err)) {
            seen = held;
            continue;
        }
        if (err->count || !(end || held)) return false;
        *text = lines->bytes + lines->start;
        *n = end ? (size_t)(end - from) : held;
        lines->start += *n + (end != NULL);
        lines->line++;
        return true;
    }
}

bool jsonl_next(JsonLines *lines, const char **text, size_t *n, MxError *err) {
    static const char mark[] = "\xef\xbb\xbf"; /* of byte order */
    while (next_line(lines, text, n, err)) {
        if (lines->line == 1 && *n >= 3 && !memcmp(*text, mark, 3)) {
            *text += 3;
            *n -= 3;
        }
        if (!is_blank(*text, *n)) return true;
    }
    return false;
}
