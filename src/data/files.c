/* files.c — what files hold before anybody reads them as data: their format, by the bytes that such
 * files begin with, and a fingerprint. Which files a path names is in find.c. */
#include "source.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- formats */

enum { HEAD_BYTES = 512 };

/* What to do with a file that is packed, a table or a container of arrays. */
static const char unpack[] = "unpack it first";
static const char export[] = "write its records as JSON Lines first, one object a line";
static const char convert[] = "write its arrays as HDF5 first (docs/DATA.md tells the names)";

/* Sources: the formats' own specifications. */
// clang-format off
static const struct Format {
    const char *name, *bytes;
    int n, at;
    const char *hint;
} formats[] = {
    {"Parquet", "PAR1", 4, 0, export},
    {"Arrow", "ARROW1", 6, 0, export},
    {"Arrow (a stream)", "\xff\xff\xff\xff", 4, 0, export},
    {"Avro", "Obj\x01", 4, 0, export},
    {"ORC", "ORC", 3, 0, export},
    {"SQLite", "SQLite format 3", 16, 0, export},
    {"gzip", "\x1f\x8b", 2, 0, unpack},
    {"zstd", "\x28\xb5\x2f\xfd", 4, 0, unpack},
    {"lz4", "\x04\x22\x4d\x18", 4, 0, unpack},
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

static int open_regular(const char *path, MxError *err) {
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe would wait for a writer */
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR)) {
        mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE, "no such file: \"%s\"", path);
    } else if (fd < 0) {
        mx_fail_errno(err, "could not open \"%s\"", path);
    } else if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
        close(fd);
        fd = -1;
        mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE, "\"%s\" is not a regular file", path);
    }
    return fd;
}

/* Reads n bytes from an offset on, fewer at the end; -1 = failed. */
static ssize_t read_at(int fd, void *to, size_t n, off_t at) {
    size_t got = 0;
    while (got < n) {
        ssize_t more = pread(fd, (char *)to + got, n - got, at + (off_t)got);
        if (more < 0 && errno == EINTR) continue;
        if (more < 0) return -1;
        if (!more) break;
        got += (size_t)more;
    }
    return (ssize_t)got;
}

bool data_check_format(const char *path, const char *wants, MxError *err) {
    char head[HEAD_BYTES];
    int fd = open_regular(path, err);
    if (fd < 0) return false;
    ssize_t n = read_at(fd, head, sizeof head, 0);
    if (n < 0) mx_fail_errno(err, "could not read \"%s\"", path);
    close(fd);
    for (int i = 0; i < MX_COUNT(formats) && n >= 0; i++) {
        const struct Format *format = &formats[i];
        if (n < format->at + format->n || !strcmp(format->name, wants) ||
            memcmp(head + format->at, format->bytes, (size_t)format->n))
            continue;
        mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = path}, "is %s, wanted %s", format->name,
                wants);
        mx_note(err, "hint: %s", format->hint);
        return false;
    }
    return n >= 0;
}

bool data_find_formats(MxArena *arena, const MxDataConfig *config, const char *suffix,
                       const char *wants, MxError *err) {
    char **paths;
    int n;
    bool ok = data_find_files(arena, config, suffix, &paths, &n, err);
    for (int i = 0; ok && i < n; i++) ok = data_check_format(paths[i], wants, err);
    return ok;
}

/* ---- fingerprints */

void data_add_file(MxArena *arena, MxDataset *dataset, MxDataFile file) {
    int n = dataset->n_files;
    if ((n & (n - 1)) == 0) /* full, as the room doubles */
        dataset->files = mx_arena_grow(arena, dataset->files, (size_t)n, n ? 2 * (size_t)n : 1,
                                       sizeof *dataset->files);
    dataset->files[dataset->n_files++] = file;
}

bool data_hash_file(const char *path, MxDataFile *out, MxError *err) {
    enum { PIECE_BYTES = 1 << 20, MOST_PIECES = 1024 };
    MxArena arena = {.name = "hash"};
    MxHash *hash = mx_hash_new(&arena);
    void *piece = mx_arena_alloc(&arena, PIECE_BYTES);
    struct stat st = {0};
    int fd = open_regular(path, err);
    bool ok = fd >= 0 && (!fstat(fd, &st) || mx_fail_errno(err, "could not read \"%s\"", path));
    int64_t n = (st.st_size + PIECE_BYTES - 1) / PIECE_BYTES,
            read = n < MOST_PIECES ? n : MOST_PIECES;
    for (int64_t i = 0; ok && i < read; i++) {
        int64_t at =
            read == n ? i : i * (n - 1) / (read - 1); /* the first and the last are in it */
        ssize_t got = read_at(fd, piece, PIECE_BYTES, (off_t)at * PIECE_BYTES);
        if (got < 0) ok = mx_fail_errno(err, "could not read \"%s\"", path);
        if (ok) mx_hash_add(hash, piece, (size_t)got);
    }
    *out = (MxDataFile){.path = path, .bytes = st.st_size, .hash = mx_hash_value(hash)};
    if (fd >= 0) close(fd);
    mx_arena_release(&arena);
    return ok;
}
