/* verify.c — that a published folder is what was published. Every array of an HDF5 file, what is no
 * array's in it, and every other file are pieces of work: they are shared among processes and, in
 * each, among threads. */
#include <mx/store.h>

#include "folder.h"
#include "h5.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { MAX_MANIFEST_BYTES = 1 << 28, MOST_TOLD = 8 /* damaged pieces of one file */ };

/* ---- the manifest ---- */

char *store_seal_line(MxArena *arena, uint64_t hash) {
    return mx_arena_printf(arena, " \"manifest_xxh3_64\": \"%s\"\n}\n", store_hex(hash).text);
}

static MxJson *read_manifest(MxArena *arena, const char *dir, MxError *err) {
    char *path = mx_path_join(arena, dir, STORE_MANIFEST);
    MxWhere where = {.file = path};
    if (access(path, F_OK) && errno == ENOENT) {
        mx_fail(err, MX_EXIT_BAD_INPUT, where, "is missing: the folder was not completed");
        return NULL;
    }
    MxBytes bytes;
    if (!mx_file_read(arena, path, MAX_MANIFEST_BYTES, &bytes, err)) return NULL;
    size_t tail = strlen(store_seal_line(arena, 0));
    size_t body = bytes.size < tail ? 0 : bytes.size - tail;
    const char *want = store_seal_line(arena, mx_hash64(bytes.data, body));
    if (bytes.size < tail || memcmp(bytes.data + body, want, tail)) {
        mx_fail(err, MX_EXIT_BAD_INPUT, where, "is damaged: its last line does not match the rest");
        return NULL;
    }
    return mx_json_parse(arena, (const char *)bytes.data, bytes.size, path, err);
}

bool mx_store_manifest(MxArena *arena, const char *dir, MxJson **manifest, MxError *err) {
    *manifest = read_manifest(arena, dir, err);
    if (!*manifest) return false;
    int64_t format = 0;
    mx_json_int(mx_json_get(*manifest, "format"), &format);
    if (format != STORE_FORMAT)
        return mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE,
                       "\"%s/%s\": format %" PRId64 ", wanted %d", dir, STORE_MANIFEST, format,
                       STORE_FORMAT);
    return mx_json_length(mx_json_get(*manifest, "files")) ||
           mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE,
                   "\"%s/%s\" lists no files: it vouches for nothing", dir, STORE_MANIFEST);
}

/* ---- pieces of work ---- */

typedef struct File {
    const char *path;
    int64_t bytes;
    int fd; /* -1 = not opened */
    bool is_bad, is_looked_at;
    int n_told;
} File;

/* Spans of one file that have a hash together. */
typedef struct Piece {
    int file;
    const char *array; /* NULL = the file, or what is no array's in it */
    StoreSpan *spans;
    int n;
    int64_t bytes;
    const char *want;
    StoreHex found;
    int failed; /* as store_hash_spans returns it */
} Piece;

typedef struct Check {
    MxArena arena;
    const char *dir;
    File *files;
    int n_files;
    Piece *pieces;
    int n, cap;
    MxError *err;
} Check;

static bool refuse_entry(const Check *check, const char *name, MxError *err) {
    return mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE, "\"%s/%s\": no entry for \"%s\" to use",
                   check->dir, STORE_MANIFEST, name);
}

static Piece *add_piece(Check *check, Piece piece) {
    if (check->n == check->cap) {
        check->cap = check->cap ? 2 * check->cap : 64;
        check->pieces = mx_arena_grow(&check->arena, check->pieces, (size_t)check->n,
                                      (size_t)check->cap, sizeof *check->pieces);
    }
    check->pieces[check->n] = piece;
    return &check->pieces[check->n++];
}

/* The arrays of a file, in the order of its bytes, and what is between them. */
static bool add_arrays(Check *check, int file, const MxJson *entry, const MxJson *tensors) {
    size_t n = mx_json_length(tensors);
    Piece rest = {.file = file, .spans = mx_new_n(&check->arena, StoreSpan, n + 1)};
    int64_t at = 0;
    rest.want = mx_json_string(mx_json_get(entry, "rest_xxh3_64"));
    for (size_t i = 0; i <= n; i++) {
        const MxJson *tensor = i < n ? mx_json_at(tensors, i) : NULL;
        StoreSpan *span = mx_new(&check->arena, StoreSpan);
        Piece piece = {.file = file, .spans = span, .n = 1};
        span->at = check->files[file].bytes;
        if (tensor) {
            piece.array = mx_json_string(mx_json_get(tensor, "path"));
            piece.want = mx_json_string(mx_json_get(tensor, "xxh3_64"));
            if (!piece.array || !piece.want || !mx_json_int(mx_json_get(tensor, "at"), &span->at) ||
                !mx_json_int(mx_json_get(tensor, "bytes"), &span->bytes))
                return false;
        }
        if (span->at < at || span->bytes < 0 || span->bytes > check->files[file].bytes - span->at)
            return false;
        rest.spans[rest.n++] = (StoreSpan){at, span->at - at};
        rest.bytes += span->at - at;
        at = span->at + (piece.bytes = span->bytes);
        if (tensor) add_piece(check, piece);
    }
    add_piece(check, rest);
    return rest.want != NULL;
}

static bool add_file(Check *check, const char *name, const MxJson *entry) {
    bool is_inside = *name != '/' && strcmp(name, "..") && !mx_text_has_prefix(name, "../") &&
                     !strstr(name, "/../") && !mx_text_has_suffix(name, "/..");
    int i = check->n_files;
    File *file = &check->files[i];
    *file = (File){.path = mx_path_join(&check->arena, check->dir, name), .fd = -1};
    if (!is_inside || !mx_json_int(mx_json_get(entry, "bytes"), &file->bytes) || file->bytes < 0)
        return refuse_entry(check, name, check->err);
    check->n_files++;
    const MxJson *tensors = mx_json_get(entry, "tensors");
    if (tensors)
        return add_arrays(check, i, entry, tensors) || refuse_entry(check, name, check->err);
    Piece all = {.file = i, .n = 1, .spans = mx_new(&check->arena, StoreSpan)};
    all.spans->bytes = all.bytes = file->bytes;
    all.want = mx_json_string(mx_json_get(entry, "xxh3_64"));
    add_piece(check, all);
    return all.want || refuse_entry(check, name, check->err);
}

static bool list_pieces(Check *check, const MxJson *files) {
    const char *name;
    MxJson *entry;
    bool ok = true;
    check->files = mx_new_n(&check->arena, File, mx_json_length(files) + 1);
    for (size_t i = 0; mx_json_member(files, i, &name, &entry); i++)
        ok = add_file(check, name, entry) && ok;
    return ok;
}

static int by_bytes(const void *a, const void *b) {
    const Piece *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    if (x->file != y->file) return x->file < y->file ? -1 : 1;
    return (x->spans->at > y->spans->at) - (x->spans->at < y->spans->at);
}

/* Leaves the pieces of one process of a team: the largest of all are dealt out in turn. */
static void keep_share(Check *check, const MxTeam *team) {
    int kept = 0;
    if (check->n) qsort(check->pieces, (size_t)check->n, sizeof *check->pieces, by_bytes);
    for (int i = 0; i < check->n && team; i++) {
        int turn = i % (2 * team->size); /* there and back, so that the first has not the most */
        int owner = turn < team->size ? turn : 2 * team->size - 1 - turn;
        if (owner == team->rank) check->pieces[kept++] = check->pieces[i];
    }
    if (team) check->n = kept;
}

/* ---- checking ---- */

/* Opens the file of a piece, if it has its size. A file that is bad as a whole is told once by
 * every process that has a piece of it. */
static void look_at(Check *check, File *file) {
    int64_t bytes = 0;
    if (file->is_looked_at) return;
    file->is_looked_at = true;
    file->is_bad = !store_open(file->path, &file->fd, &bytes, check->err);
    if (file->is_bad) file->fd = -1;
    if (file->is_bad || bytes == file->bytes) return;
    file->is_bad = true;
    mx_fail(check->err, MX_EXIT_BAD_INPUT, (MxWhere){.file = file->path},
            "has %" PRId64 " bytes, wanted %" PRId64, bytes, file->bytes);
}

static void hash_piece(void *data, int i) {
    Check *check = data;
    Piece *piece = &check->pieces[i];
    File *file = &check->files[piece->file];
    uint64_t hash;
    if (file->is_bad) return;
    piece->failed = store_hash_spans(file->fd, piece->spans, piece->n, NULL, &hash);
    piece->found = store_hex(hash);
}

static void judge(Check *check, const Piece *piece) {
    File *file = &check->files[piece->file];
    MxWhere where = {.file = file->path};
    if (file->is_bad || (!piece->failed && !strcmp(piece->found.text, piece->want))) return;
    if (++file->n_told > MOST_TOLD) return;
    if (piece->failed < 0)
        mx_fail(check->err, MX_EXIT_BAD_INPUT, where, "is shorter than it was");
    else if (piece->failed)
        mx_fail(check->err, MX_EXIT_IO, where, "could not be read: %s", strerror(piece->failed));
    else if (piece->array)
        mx_fail(check->err, MX_EXIT_BAD_INPUT, where, "is damaged: hash of \"%s\" %s, wanted %s",
                piece->array, piece->found.text, piece->want);
    else
        mx_fail(check->err, MX_EXIT_BAD_INPUT, where, "is damaged: hash %s, wanted %s",
                piece->found.text, piece->want);
}

static bool check_files(Check *check, const MxTeam *team, const MxJson *files) {
    int before = check->err->count;
    bool ok = list_pieces(check, files);
    keep_share(check, team);
    for (int i = 0; ok && i < check->n; i++) look_at(check, &check->files[check->pieces[i].file]);
    if (ok) mx_parallel(0, check->n, hash_piece, check);
    for (int i = 0; ok && i < check->n; i++) judge(check, &check->pieces[i]);
    for (int i = 0; i < check->n_files; i++)
        if (check->files[i].fd >= 0) close(check->files[i].fd);
    return check->err->count == before;
}

bool mx_store_verify(MxArena *arena, const char *dir, const MxTeam *team, MxJson **manifest,
                     MxError *err) {
    MxJson *found;
    bool ok = mx_store_manifest(arena, dir, &found, err);
    if (ok) {
        Check check = {.arena = {.name = "verify"}, .dir = dir, .err = err};
        ok = check_files(&check, team, mx_json_get(found, "files"));
        mx_arena_release(&check.arena);
    }
    if (manifest) *manifest = found;
    return team ? team->agree(team->data, ok, err) : ok;
}
