/* lines.c — files whose lines are records: JSON (json_files.c), or plain text in which a line is a
 * document. Only the longest line of a file is in memory, never the whole file. */
#include "formats.h"

enum { STEP_BYTES = 1 << 16 };

static bool is_blank(const char *text, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!strchr(" \t\r", text[i]) || !text[i]) return false;
    return true;
}

/* The next line, without its end; false when there is none. */
static bool next_line(RecordFile *file, const char **text, size_t *n, MxError *err) {
    DataStream *stream = &file->stream;
    size_t seen = 0, held = 0;
    const uint8_t *from, *end = NULL;
    for (;;) {
        from = stream_held(stream, &held);
        end = held > seen ? memchr(from + seen, '\n', held - seen) : NULL;
        if (end || (stream->is_at_end && held == seen)) break;
        if (held >= STREAM_LONGEST_BYTES)
            return mx_fail(err, MX_EXIT_BAD_INPUT,
                           (MxWhere){.file = stream->path, .line = file->line + 1},
                           "more than %d bytes in one line", STREAM_LONGEST_BYTES);
        seen = held;
        if (!stream_hold(stream, held + (held < STEP_BYTES ? STEP_BYTES : held), err)) return false;
    }
    if (!end && !held) return false;
    *text = (const char *)from;
    *n = end ? (size_t)(end - from) : held;
    stream_take(stream, *n + (end != NULL));
    file->line++;
    return true;
}

bool lines_next(RecordFile *file, const char **text, size_t *n, MxError *err) {
    static const char mark[] = "\xef\xbb\xbf"; /* of byte order */
    while (next_line(file, text, n, err)) {
        if (file->line == 1 && *n >= 3 && !memcmp(*text, mark, 3)) {
            *text += 3;
            *n -= 3;
        }
        if (!is_blank(*text, *n)) {
            file->number++;
            return true;
        }
    }
    return false;
}

static bool text_parse(MxArena *arena, const char *text, size_t bytes, MxWhere where, Fields *out,
                       bool *goes_on, MxError *err) {
    *goes_on = true;
    if (bytes && text[bytes - 1] == '\r') bytes--;
    *out = fields_of_text(arena, text, bytes);
    size_t valid = mx_utf8_valid_bytes(text, bytes);
    if (valid == bytes) return true;
    where.col = (int)valid + 1;
    return mx_fail(err, MX_EXIT_BAD_INPUT, where, "is not UTF-8: byte 0x%02x",
                   (uint8_t)text[valid]);
}

const RecordFormat format_text_lines = {
    .name = "lines of text",
    .hint = "dataset_type=hf hf_path=text reads a document in each line, dataset_type=text one in "
            "each file",
    .next = lines_next,
    .parse = text_parse,
};
