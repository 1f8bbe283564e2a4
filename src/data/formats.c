/* formats.c — detects file formats by their first bytes, also in compressed files; and
 * fingerprints. The files that a path names are in find.c. */
#include "formats.h"

#include <sys/stat.h>
#include <unistd.h>

/* ---- formats that nothing here reads */

/* What to do with a file that is packed, a table or a container of arrays. */
static const char unpack[] = "unpack it first";
static const char export[] = "write its records as JSON Lines first, one object a line";
static const char convert[] =
    "write its arrays as HDF5 first (docs/DATA.md tells the names); flat ones of token ids are "
    "read by dataset_type=olmo_grain";

/* Sources: the formats' own specifications. */
// clang-format off
static const struct Foreign {
    const char *name, *bytes;
    size_t n, at;
    const char *hint;
} foreign[] = {
    {"Avro", "Obj\x01", 4, 0, export},
    {"ORC", "ORC", 3, 0, export},
    {"SQLite", "SQLite format 3", 16, 0, export},
    {"gzip inside of another", "\x1f\x8b", 2, 0, unpack},
    {"zstd inside of another", "\x28\xb5\x2f\xfd", 4, 0, unpack},
    {"lz4 inside of another", "\x04\x22\x4d\x18", 4, 0, unpack},
    {"bzip2", "BZh", 3, 0, unpack},
    {"xz", "\xfd" "7zXZ", 5, 0, unpack},
    {"7z", "7z\xbc\xaf\x27\x1c", 6, 0, unpack},
    {"zip", "PK\x03\x04", 4, 0, unpack},
    {"tar", "ustar", 5, 257, unpack},
    {"HDF5", "\x89HDF\r\n\x1a\n", 8, 0, "dataset_type=hdf5 reads it"},
    {"NumPy", "\x93NUMPY", 6, 0, convert},
    {"a Python pickle", "\x80\x04\x95", 3, 0, convert},
    {"PDF", "%PDF-", 5, 0, "take its text out first"},
    {"UTF-32", "\xff\xfe\0\0", 4, 0, "write it in UTF-8"},
    {"UTF-16", "\xff\xfe", 2, 0, "write it in UTF-8"},
    {"UTF-16", "\xfe\xff", 2, 0, "write it in UTF-8"},
};
// clang-format on

/* ---- the choice */

/* Formats that tell themselves by their first bytes. */
static const RecordFormat *const told[] = {&format_tfrecord, &format_array_record, &format_parquet,
                                           &format_arrow, &format_json_array};

static bool is_among(const FormatChoice *choice, const RecordFormat *format) {
    for (int i = 0; i < choice->n; i++)
        if (choice->formats[i] == format) return true;
    return false;
}

static bool refuse(const DataStream *stream, const char *name, const FormatChoice *choice,
                   const char *hint, MxError *err) {
    mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = stream->path}, "is %s, wanted %s", name,
            choice->wants);
    mx_note(err, "hint: %s", hint);
    return false;
}

/* The format that a beginning tells, NULL = none. */
static const RecordFormat *find_told(const uint8_t *head, size_t n) {
    for (int i = 0; i < MX_COUNT(told); i++)
        if (told[i]->test(head, n)) return told[i];
    return NULL;
}

static const struct Foreign *find_foreign(const uint8_t *head, size_t n,
                                          const FormatChoice *choice) {
    for (int i = 0; i < MX_COUNT(foreign); i++) {
        const struct Foreign *format = &foreign[i];
        if (n >= format->at + format->n && strcmp(format->name, choice->wants) &&
            !memcmp(head + format->at, format->bytes, format->n))
            return format;
    }
    return NULL;
}

/* Lengths of records may look like the beginning of anything, but their checksum does not, so that
 * is looked at first. */
bool formats_choose(DataStream *stream, const FormatChoice *choice, const RecordFormat **out,
                    MxError *err) {
    enum { HEAD_BYTES = 512 };
    size_t n;
    const uint8_t *head = stream_held(stream, &n);
    const RecordFormat *found = find_told(head, n);
    const RecordFormat *usual = *out = choice->n ? choice->formats[0] : NULL;
    if (!found) {
        stream_unpack(stream);
        if (stream->codec && !choice->takes_packed)
            return refuse(stream, stream->codec->name, choice, unpack, err);
        if (!stream_hold(stream, HEAD_BYTES, err)) return false;
        head = stream_held(stream, &n);
        found = find_told(head, n);
    }
    if (found && is_among(choice, found)) {
        *out = found;
        return true;
    }
    bool is_text = !usual || !usual->is_binary; /* which may begin as JSON does */
    if (found && !(is_text && !found->is_binary))
        return refuse(stream, found->name, choice, found->hint, err);
    const struct Foreign *other = find_foreign(head, n, choice);
    if (other) return refuse(stream, other->name, choice, other->hint, err);
    return is_text || !n ||
           mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = stream->path},
                   "is no %s: it does not begin as such files do", choice->wants);
}

bool formats_check(const char *path, const FormatChoice *choice, MxError *err) {
    MxArena arena = {.name = "format"};
    DataStream stream;
    const RecordFormat *format;
    bool ok =
        stream_open(&arena, path, &stream, err) && formats_choose(&stream, choice, &format, err);
    mx_arena_release(&arena);
    return ok;
}

/* ---- files of records */

bool record_file_open(MxArena *arena, const char *path, const FormatChoice *choice, RecordFile *out,
                      MxError *err) {
    *out = (RecordFile){0};
    return stream_open(arena, path, &out->stream, err) &&
           formats_choose(&out->stream, choice, &out->format, err) &&
           (!out->format || !out->format->open || out->format->open(out, err));
}

MxWhere record_file_where(MxArena *arena, const RecordFile *file) {
    const char *path = file->stream.path;
    if (!file->format->is_binary)
        return (MxWhere){.file = path, .line = file->line, .col = file->col};
    return (MxWhere){.file =
                         mx_arena_printf(arena, "%s: record %lld", path, (long long)file->number)};
}

/* ---- fingerprints */

void data_add_file(MxArena *arena, MxDataset *dataset, MxDataFile file) {
    int n = dataset->n_files;
    if ((n & (n - 1)) == 0) /* full, as the room doubles */
        dataset->files = mx_arena_grow(arena, dataset->files, (size_t)n, n ? 2 * (size_t)n : 1,
                                       sizeof *dataset->files);
    dataset->files[dataset->n_files++] = file;
}

enum { PIECE_BYTES = 1 << 20, MOST_PIECES = 1024 };

static bool hash_pieces(const char *path, int64_t most, MxDataFile *out, MxError *err) {
    MxArena arena = {.name = "hash"};
    MxHash *hash = mx_hash_new(&arena);
    void *piece = mx_arena_alloc(&arena, PIECE_BYTES);
    struct stat st = {0};
    int fd = stream_open_file(path, err);
    bool ok = fd >= 0 && (!fstat(fd, &st) || mx_fail_errno(err, "could not read \"%s\"", path));
    int64_t n = (st.st_size + PIECE_BYTES - 1) / PIECE_BYTES, read = n < most ? n : most;
    for (int64_t i = 0; ok && i < read; i++) {
        int64_t at =
            read == n ? i : i * (n - 1) / (read - 1); /* the first and the last are in it */
        ssize_t got = stream_read_at(fd, piece, PIECE_BYTES, at * PIECE_BYTES);
        if (got < 0) ok = mx_fail_errno(err, "could not read \"%s\"", path);
        if (ok) mx_hash_add(hash, piece, (size_t)got);
    }
    *out = (MxDataFile){.path = path, .bytes = st.st_size, .hash = mx_hash_value(hash)};
    if (fd >= 0) close(fd);
    mx_arena_release(&arena);
    return ok;
}

bool data_hash_file(const char *path, MxDataFile *out, MxError *err) {
    return hash_pieces(path, MOST_PIECES, out, err);
}

bool data_hash_whole(const char *path, MxDataFile *out, MxError *err) {
    return hash_pieces(path, INT64_MAX, out, err);
}
