/* seal.c — hashes of files: of all of a file, and of an HDF5 file also of each array and of what is
 * no array's, so that parts of it can be verified by themselves, at the same time. */
#include <mx/store.h>

#include "folder.h"
#include "h5.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECE_BYTES = 256 << 10 };

StoreHex store_hex(uint64_t hash) {
    StoreHex hex;
    snprintf(hex.text, sizeof hex.text, "%016" PRIx64, hash);
    return hex;
}

static void start_writeback(int fd) {
    sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE);
}

void mx_store_writeback(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    start_writeback(fd);
    close(fd);
}

bool store_open(const char *path, int *fd, int64_t *bytes, MxError *err) {
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    bool is_wrong = *fd < 0 && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP);
    if (is_wrong)
        return mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE, "could not open \"%s\": %s", path,
                       strerror(errno));
    if (*fd < 0) return mx_fail_errno(err, "could not open \"%s\"", path);
    struct stat st = {0};
    bool ok = !fstat(*fd, &st) || mx_fail_errno(err, "could not look at \"%s\"", path);
    if (ok && !S_ISREG(st.st_mode))
        ok = mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE, "\"%s\" is not a regular file", path);
    *bytes = st.st_size;
    if (!ok) close(*fd);
    return ok;
}

/* Adds bytes of a file to two hashes, the second of which may be NULL. Not by a mapping, where a
 * file that shrinks or a bad disk is a signal. */
static int add_span(int fd, StoreSpan span, MxPace *pace, MxHash *hash, MxHash *also, char *piece) {
    while (span.bytes) {
        size_t want = span.bytes < PIECE_BYTES ? (size_t)span.bytes : PIECE_BYTES;
        ssize_t n = pread(fd, piece, want, span.at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return n ? errno : -1;
        mx_hash_add(hash, piece, (size_t)n);
        if (also) mx_hash_add(also, piece, (size_t)n);
        span.at += n;
        span.bytes -= n;
        mx_pace(pace);
    }
    return 0;
}

int store_hash_spans(int fd, const StoreSpan *spans, int n, MxPace *pace, uint64_t *hash) {
    MxArena scratch = {.name = "hash"};
    MxHash *one = mx_hash_new(&scratch);
    char *piece = mx_arena_alloc(&scratch, PIECE_BYTES);
    int failed = 0;
    for (int i = 0; i < n && !failed; i++) failed = add_span(fd, spans[i], pace, one, NULL, piece);
    *hash = mx_hash_value(one);
    mx_arena_release(&scratch);
    return failed;
}

/* ---- sealing ---- */

/* The arrays of a file that lie in one piece each; none in one that is not HDF5. */
static bool find_spans(MxArena *arena, const char *path, MxH5Span **spans, int *n, MxError *err) {
    MxH5 *file;
    *n = 0;
    if (!mx_text_has_suffix(path, ".h5") || !h5_has_signature(path)) return true;
    bool ok = mx_h5_open(arena, path, &file, err) && mx_h5_spans(arena, file, spans, n, err);
    return ok && mx_h5_close(file, err);
}

/* A file while it is hashed from start to end. */
typedef struct Sealing {
    int fd;
    MxPace *pace;
    MxHash *all, *rest;
    char *piece;
} Sealing;

static int add_array(Sealing *s, const MxH5Span *span, MxJson *tensors) {
    MxArena scratch = {.name = "array"};
    MxHash *hash = mx_hash_new(&scratch);
    MxJson *entry = mx_json_push_object(tensors);
    StoreSpan bytes = {span->offset, span->bytes};
    int failed = add_span(s->fd, bytes, s->pace, s->all, hash, s->piece);
    mx_json_set_string(entry, "path", span->path);
    mx_json_set_int(entry, "at", span->offset);
    mx_json_set_int(entry, "bytes", span->bytes);
    mx_json_set_string(entry, "xxh3_64", store_hex(mx_hash_value(hash)).text);
    mx_arena_release(&scratch);
    return failed;
}

static int hash_file(Sealing *s, const MxH5Span *spans, int n, int64_t bytes, MxJson *tensors) {
    int64_t at = 0;
    int failed = 0;
    for (int i = 0; i < n && !failed; i++) {
        MX_ASSERT(spans[i].offset >= at);
        StoreSpan before = {at, spans[i].offset - at};
        failed = add_span(s->fd, before, s->pace, s->all, s->rest, s->piece);
        if (!failed) failed = add_array(s, &spans[i], tensors);
        at = spans[i].offset + spans[i].bytes;
    }
    StoreSpan last = {at, bytes - at};
    return failed ? failed : add_span(s->fd, last, s->pace, s->all, s->rest, s->piece);
}

static bool sync_file(int fd, const char *path, MxError *err) {
    mx_failpoint("save.before_sync");
    return !fsync(fd) || mx_fail_errno(err, "could not sync \"%s\"", path);
}

static bool take_file(MxArena *arena, const char *path, MxPace *pace, MxJson *entry, MxError *err) {
    Sealing s = {.pace = pace,
                 .all = mx_hash_new(arena),
                 .rest = mx_hash_new(arena),
                 .piece = mx_arena_alloc(arena, PIECE_BYTES)};
    MxH5Span *spans;
    int n;
    int64_t bytes;
    if (!find_spans(arena, path, &spans, &n, err) || !store_open(path, &s.fd, &bytes, err))
        return false;
    start_writeback(s.fd); /* the disk works while we hash */
    posix_fadvise(s.fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    MxJson *tensors = mx_json_put_array(mx_json_object(arena), "tensors");
    int failed = hash_file(&s, spans, n, bytes, tensors);
    if (failed) errno = failed < 0 ? EIO : failed;
    bool ok = (!failed || mx_fail_errno(err, "could not read \"%s\"", path)) &&
              sync_file(s.fd, path, err);
    close(s.fd);
    mx_json_set_int(entry, "bytes", bytes);
    mx_json_set_string(entry, "xxh3_64", store_hex(mx_hash_value(s.all)).text);
    if (!n) return ok;
    mx_json_set_string(entry, "rest_xxh3_64", store_hex(mx_hash_value(s.rest)).text);
    mx_json_set(entry, "tensors", tensors);
    return ok;
}

bool mx_store_seal(const char *path, MxPace *pace, MxJson *entry, MxError *err) {
    MxArena scratch = {.name = "seal"};
    bool ok = take_file(&scratch, path, pace, entry, err);
    mx_arena_release(&scratch);
    return ok;
}
