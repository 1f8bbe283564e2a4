/* stream.c — the bytes of a file in order, decompressed if its first bytes show that it is
 * compressed. Memory is limited to what a reader needs at a time; a file that decompresses to far
 * more than text does is refused. */
#include "stream.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FIRST_BYTES = 1 << 17, PACKED_BYTES = 1 << 16 };

/* Text packs five times, repeated text perhaps fifty times. */
static const int64_t MOST_RATIO = 200, FREE_BYTES = (int64_t)1 << 30;

static const Codec *const codecs[] = {&codec_gzip, &codec_zstd, &codec_lz4};

int stream_open_file(const char *path, MxError *err) {
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

ssize_t stream_read_at(int fd, void *to, size_t n, int64_t at) {
    size_t got = 0;
    while (got < n) {
        ssize_t more = pread(fd, (char *)to + got, n - got, at + (int64_t)got);
        if (more < 0 && errno == EINTR) continue;
        if (more < 0) return -1;
        if (!more) break;
        got += (size_t)more;
    }
    return (ssize_t)got;
}

/* Bytes of the file as it is; -1 after an error. */
static ssize_t read_file(DataStream *stream, uint8_t *to, size_t n, MxError *err) {
    ssize_t got = stream_read_at(stream->fd, to, n, stream->n_read);
    if (got < 0) {
        mx_fail_errno(err, "could not read %s", stream->path);
        return -1;
    }
    mx_hash_add(stream->hash, to, (size_t)got);
    stream->n_read += got;
    return got;
}

static bool fail_unpacking(const DataStream *stream, const char *why, MxError *err) {
    return mx_fail(
        err, MX_EXIT_BAD_INPUT, (MxWhere){.file = stream->path},
        "could not unpack %s, at byte %lld of the file: %s", stream->codec->name,
        (long long)(stream->n_read + (int64_t)stream->packed_start - (int64_t)stream->packed_end),
        why);
}

static bool check_ratio(const DataStream *stream, MxError *err) {
    if (stream->n_unpacked <= FREE_BYTES || stream->n_unpacked / MOST_RATIO <= stream->n_read)
        return true;
    mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = stream->path},
            "%lld bytes of %s unpack to more than %lld, over %lld times as many",
            (long long)stream->n_read, stream->codec->name, (long long)stream->n_unpacked,
            (long long)MOST_RATIO);
    mx_note(err, "hint: unpack it first if that is meant");
    return false;
}

/* The next bytes of the file that the unpacker gets; 0 at the end, -1 after an error. */
static ssize_t refill(DataStream *stream, MxError *err) {
    ssize_t got = read_file(stream, stream->packed, PACKED_BYTES, err);
    stream->packed_start = 0;
    stream->packed_end = got > 0 ? (size_t)got : 0;
    if (got || stream->is_whole) return got;
    fail_unpacking(stream, "it ends too early", err);
    return -1;
}

/* Up to n bytes of what the file holds, 0 at its end; -1 after an error. */
static ssize_t read_unpacked(DataStream *stream, uint8_t *to, size_t n, MxError *err) {
    CodecStep step = {.out = to, .n_out = n};
    while (step.n_out == n) {
        size_t n_in = stream->packed_end - stream->packed_start;
        step.in = stream->packed + stream->packed_start;
        step.n_in = n_in;
        const char *why = stream->codec->step(stream->unpacker, &step, &stream->is_whole);
        stream->packed_start = stream->packed_end - step.n_in;
        if (!why && step.n_out == n && step.n_in && step.n_in == n_in) why = "it is damaged";
        if (why) {
            fail_unpacking(stream, why, err);
            return -1;
        }
        if (step.n_in || step.n_out < n) continue;
        ssize_t got = refill(stream, err);
        if (got <= 0) return got;
    }
    stream->n_unpacked += (int64_t)(n - step.n_out);
    return check_ratio(stream, err) ? (ssize_t)(n - step.n_out) : -1;
}

static void close_file(void *stream) {
    close(((DataStream *)stream)->fd);
}

void stream_unpack(DataStream *stream) {
    size_t n = stream->end;
    MX_ASSERT(!stream->n_taken && !stream->codec && n <= PACKED_BYTES);
    for (int i = 0; i < MX_COUNT(codecs) && !stream->codec; i++)
        if (n >= codecs[i]->n_magic && !memcmp(stream->bytes, codecs[i]->magic, codecs[i]->n_magic))
            stream->codec = codecs[i];
    if (!stream->codec) return;
    stream->unpacker = stream->codec->open(stream->arena);
    stream->packed = mx_arena_alloc(stream->arena, PACKED_BYTES);
    memcpy(stream->packed, stream->bytes, n);
    stream->packed_end = n;
    stream->end = 0;
}

bool stream_open(MxArena *arena, const char *path, DataStream *out, MxError *err) {
    struct stat st = {0};
    int fd = stream_open_file(path, err);
    if (fd < 0) return false;
    *out = (DataStream){.arena = arena, .path = path, .fd = fd, .cap = FIRST_BYTES};
    mx_arena_on_release(arena, close_file, out);
    out->hash = mx_hash_new(arena);
    out->bytes = mx_arena_alloc(arena, out->cap);
    if (fstat(fd, &st)) return mx_fail_errno(err, "could not read \"%s\"", path);
    out->file_bytes = st.st_size;
    ssize_t got = read_file(out, out->bytes, PACKED_BYTES, err);
    if (got < 0) return false;
    out->end = (size_t)got;
    return true;
}

/* Room behind the bytes that are held: moves them to the front, or doubles the buffer. */
static void make_room(DataStream *stream) {
    size_t held = stream->end - stream->start;
    if (held > stream->cap / 2) {
        stream->cap *= 2;
        stream->bytes =
            mx_arena_grow(stream->arena, stream->bytes + stream->start, held, stream->cap, 1);
    } else {
        memmove(stream->bytes, stream->bytes + stream->start, held);
    }
    stream->start = 0;
    stream->end = held;
}

bool stream_hold(DataStream *stream, size_t n, MxError *err) {
    while (stream->end - stream->start < n && !stream->is_at_end) {
        if (stream->cap - stream->end < stream->cap / 4) make_room(stream);
        uint8_t *to = stream->bytes + stream->end;
        size_t room = stream->cap - stream->end;
        ssize_t got =
            stream->codec ? read_unpacked(stream, to, room, err) : read_file(stream, to, room, err);
        if (got < 0) return false;
        stream->end += (size_t)got;
        stream->is_at_end = !got;
    }
    return true;
}

bool stream_hold_all(DataStream *stream, MxError *err) {
    for (size_t n = 0; !stream->is_at_end; stream_held(stream, &n))
        if (!stream_hold(stream, n + 1, err)) return false;
    return true;
}

void stream_take(DataStream *stream, size_t n) {
    MX_ASSERT(n <= stream->end - stream->start);
    stream->start += n;
    stream->n_taken += (int64_t)n;
}

bool stream_finish(DataStream *stream, MxError *err) {
    while (!stream->is_at_end) {
        stream_take(stream, stream->end - stream->start);
        if (!stream_hold(stream, 1, err)) return false;
    }
    return true;
}

MxDataFile stream_file(const DataStream *stream) {
    MX_ASSERT(stream->is_at_end);
    return (MxDataFile){stream->path, stream->n_read, mx_hash_value(stream->hash)};
}
