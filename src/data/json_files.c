/* json_files.c — JSON records: the objects in the lines of a file (from lines.c), or those of one
 * list that is the file, which is parsed here without being completely in memory. */
#include "formats.h"

/* ---- one record */

/* How much of a text is shown: no part of a character. */
static int shown_bytes(const char *text, size_t bytes) {
    enum { MOST_SHOWN = 40 };
    if (bytes <= MOST_SHOWN) return (int)bytes;
    int n = MOST_SHOWN;
    while (n && (text[n] & 0xc0) == 0x80) n--;
    return n;
}

/* What is no object, in one message. */
static bool refuse(const char *text, size_t bytes, MxWhere where, MxError *err) {
    if (text[strspn(text, " \t")] == '[')
        return mx_fail(err, MX_EXIT_BAD_INPUT, where,
                       "found a list, wanted an object in each line");
    int shown = shown_bytes(text, bytes);
    bool is_table = memchr(text, ',', bytes) || memchr(text, '\t', bytes);
    mx_fail(err, MX_EXIT_BAD_INPUT, where, "found \"%.*s%s\", wanted an object in each line", shown,
            text, (size_t)shown < bytes ? " …" : "");
    mx_note(err, "hint: %s (JSON Lines)",
            is_table ? "is it CSV? write each row as an object in a line of its own"
                     : "write each record as an object in a line of its own");
    return false;
}

static bool parse_object(MxArena *arena, const char *text, size_t bytes, MxWhere where, Fields *out,
                         MxError *err) {
    MxJson *record = mx_json_parse_line(arena, text, bytes, where, err);
    if (record) *out = fields_of_json(record);
    return record != NULL;
}

static bool line_parse(MxArena *arena, const char *text, size_t bytes, MxWhere where, Fields *out,
                       bool *goes_on, MxError *err) {
    char first = text[strspn(text, " \t")];
    *goes_on = true;
    if (first != '[' && (first == '{' || where.line > 1))
        return parse_object(arena, text, bytes, where, out, err);
    *goes_on = where.line > 1; /* the first line tells what the file is */
    return refuse(text, bytes, where, err);
}

/* ---- a list of them */

/* Where in the file the list is being read. */
typedef struct Place {
    int line, col;
    bool has_begun, wants_comma, has_comma, has_ended;
} Place;

static bool is_space(uint8_t byte) {
    return byte == ' ' || byte == '\t' || byte == '\r' || byte == '\n';
}

static bool list_test(const uint8_t *head, size_t n) {
    size_t i = n >= 3 && !memcmp(head, "\xef\xbb\xbf", 3) ? 3 : 0;
    while (i < n && is_space(head[i])) i++;
    return i < n && head[i] == '[';
}

static bool list_open(RecordFile *file, MxError *err) {
    Place *place = mx_new(file->stream.arena, Place);
    *place = (Place){.line = 1};
    file->state = place;
    size_t n;
    const uint8_t *head = stream_held(&file->stream, &n);
    if (n >= 3 && !memcmp(head, "\xef\xbb\xbf", 3)) stream_take(&file->stream, 3);
    (void)err;
    return true;
}

static void move_on(RecordFile *file, const uint8_t *bytes, size_t n) {
    Place *place = file->state;
    for (size_t i = 0; i < n; i++) {
        place->col = bytes[i] == '\n' ? 0 : place->col + 1;
        place->line += bytes[i] == '\n';
    }
    stream_take(&file->stream, n);
}

static bool fail_here(const RecordFile *file, const char *what, MxError *err) {
    const Place *place = file->state;
    return mx_fail(err, MX_EXIT_BAD_INPUT,
                   (MxWhere){file->stream.path, place->line, place->col + 1}, "%s", what);
}

/* The next byte that is no space, which stays; 0 at the end of the file. false = failed. */
static bool look(RecordFile *file, uint8_t *out, MxError *err) {
    for (;;) {
        size_t n, i = 0;
        if (!stream_hold(&file->stream, 1, err)) return false;
        const uint8_t *bytes = stream_held(&file->stream, &n);
        while (i < n && is_space(bytes[i])) i++;
        *out = i < n ? bytes[i] : 0;
        move_on(file, bytes, i);
        if (i < n || file->stream.is_at_end) return true;
    }
}

/* The scan of an element: how deep in lists and objects, and whether in a text. */
typedef struct Scan {
    size_t at;
    int64_t depth;
    bool in_text, is_escaped;
} Scan;

/* Goes on over n bytes; whether the element has ended, before bytes[scan->at]. */
static bool scan_on(Scan *scan, const uint8_t *bytes, size_t n) {
    for (; scan->at < n; scan->at++) {
        uint8_t byte = bytes[scan->at];
        if (scan->in_text) {
            scan->in_text = scan->is_escaped || byte != '"';
            scan->is_escaped = !scan->is_escaped && byte == '\\';
        } else if (byte == '"') {
            scan->in_text = true;
        } else if (byte == '{' || byte == '[') {
            scan->depth++;
        } else if (!scan->depth && (byte == ',' || byte == ']' || is_space(byte))) {
            return true;
        } else if ((byte == '}' || byte == ']') && --scan->depth <= 0) {
            scan->at++;
            return true;
        }
    }
    return false;
}

/* Up to the element that comes next; false at the end of the list, or with a failure. */
static bool find_element(RecordFile *file, MxError *err) {
    Place *place = file->state;
    uint8_t byte;
    while (!place->has_ended) {
        if (!look(file, &byte, err)) return false;
        if (!byte) return fail_here(file, "the file ends inside the list", err);
        bool opens = !place->has_begun && byte == '[';
        bool parts = place->wants_comma && byte == ',';
        if (place->has_begun && !place->has_comma && byte == ']')
            place->has_ended = true;
        else if (place->wants_comma && !parts)
            return fail_here(file, "wanted a comma or the end of the list", err);
        else if (!opens && !parts)
            return true;
        place->has_begun = true;
        place->wants_comma = false;
        place->has_comma = parts;
        move_on(file, &byte, 1);
    }
    if (!look(file, &byte, err)) return false;
    return byte && fail_here(file, "found more behind the end of the list", err);
}

static bool list_next(RecordFile *file, const char **text, size_t *n, MxError *err) {
    Place *place = file->state;
    DataStream *stream = &file->stream;
    Scan scan = {0};
    size_t held;
    if (!find_element(file, err)) return false;
    const uint8_t *bytes = stream_held(stream, &held);
    while (!scan_on(&scan, bytes, held)) {
        if (stream->is_at_end) return fail_here(file, "the file ends inside this record", err);
        if (held >= STREAM_LONGEST_BYTES) break;
        if (!stream_hold(stream, 2 * held, err)) return false;
        bytes = stream_held(stream, &held);
    }
    if (scan.at > STREAM_LONGEST_BYTES || held >= STREAM_LONGEST_BYTES)
        return fail_here(file, "a record of more than 268435456 bytes", err);
    if (!scan.at) return fail_here(file, "wanted a record", err);
    file->line = place->line;
    file->col = place->col + 1;
    file->number++;
    place->wants_comma = true;
    place->has_comma = false;
    *text = (const char *)bytes;
    *n = scan.at;
    move_on(file, bytes, scan.at);
    return true;
}

static bool list_parse(MxArena *arena, const char *text, size_t bytes, MxWhere where, Fields *out,
                       bool *goes_on, MxError *err) {
    *goes_on = true;
    int shown = shown_bytes(text, bytes);
    MxWhere before = {where.file, where.line, where.col - 1};
    if (*text == '{') return parse_object(arena, text, bytes, before, out, err);
    return mx_fail(err, MX_EXIT_BAD_INPUT, where, "found \"%.*s%s\", wanted an object", shown, text,
                   (size_t)shown < bytes ? " …" : "");
}

const RecordFormat format_json_lines = {
    .name = "JSON Lines",
    .hint = "dataset_type=hf reads it",
    .next = lines_next,
    .parse = line_parse,
};

const RecordFormat format_json_array = {
    .name = "a list in JSON",
    .hint = "dataset_type=hf reads it",
    .test = list_test,
    .open = list_open,
    .next = list_next,
    .parse = list_parse,
};
