/* guess.c — detects what data a path names, by its first file: the kind of dataset that reads it,
 * and the purpose of its first record. */
#include "columns.h"
#include "formats.h"

/* Formats whose files tell themselves, and what reads their records; a record of JSON tells itself
 * by its first byte. */
static const RecordFormat *const formats[] = {&format_json_lines, &format_json_array,
                                              &format_parquet,    &format_arrow,
                                              &format_tfrecord,   &format_array_record};
static const MxDataGuess readers[] = {
    {.kind = "hf", .format = "json"},        {.kind = "hf", .format = "json"},
    {.kind = "hf", .format = "parquet"},     {.kind = "hf", .format = "arrow"},
    {.kind = "grain", .format = "tfrecord"}, {.kind = "grain", .format = "arrayrecord"}};
_Static_assert(MX_COUNT(readers) == MX_COUNT(formats), "one each");
static const FormatChoice any = {"text, JSON Lines, Parquet, Arrow, TFRecord or ArrayRecord",
                                 formats, MX_COUNT(formats), true};

static MxDataGuess reader_of(const RecordFormat *format) {
    int i = 0;
    while (formats[i] != format) i++;
    return readers[i];
}

/* Whether a file that no format knows is text: no object stands at its beginning. */
static bool is_text(const RecordFile *file) {
    size_t n, i = 0;
    const uint8_t *head = stream_held(&file->stream, &n);
    if (n >= 3 && !memcmp(head, "\xef\xbb\xbf", 3)) i = 3;
    while (i < n && (head[i] == ' ' || head[i] == '\t' || head[i] == '\r' || head[i] == '\n')) i++;
    return file->format == &format_json_lines && (i == n || head[i] != '{');
}

/* What the first record is for. */
static bool read_first(MxArena *arena, RecordFile *file, const MxDataConfig *config,
                       MxDataGuess *out, MxError *err) {
    const char *bytes;
    size_t n;
    bool goes_on;
    Fields fields;
    if (!file->format->next(file, &bytes, &n, err))
        return err->count ? false
                          : mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = file->stream.path},
                                    "has no records");
    MxWhere where = record_file_where(arena, file);
    const char *copy = mx_arena_strndup(arena, bytes, n);
    return file->format->parse(arena, copy, n, where, &fields, &goes_on, err) &&
           columns_guess(arena, config, &fields, where, out, err);
}

bool mx_data_guess(MxArena *arena, const char *path, bool asks, MxWhere where, MxDataGuess *out,
                   MxError *err) {
    /* JSON and text behind formats of their own, beside which they often are descriptions. */
    static const char *const suffixes[] = {"jsonl",    "parquet", "arrow", "array_record",
                                           "tfrecord", "json",    "txt",   NULL};
    MxArena reading = {.name = "first file"};
    MxDataConfig config = {.path = path, .where = where, .asks = asks};
    DataPart part;
    RecordFile file;
    bool ok = data_find_part(&reading, &config, path, suffixes, &part, err) &&
              record_file_open(&reading, part.paths[0], &any, &file, err);
    if (ok && is_text(&file)) {
        *out = (MxDataGuess){.kind = "text", .columns = ""};
    } else if (ok) {
        *out = reader_of(file.format);
        ok = read_first(arena, &file, &config, out, err);
    }
    mx_arena_release(&reading);
    return ok;
}
