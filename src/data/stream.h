/* stream.h — private to the room: the bytes of a file in order, decompressed if it is compressed.
 */
#ifndef DATA_STREAM_H
#define DATA_STREAM_H

#include "codec.h"
#include "source.h"

#include <sys/types.h>

/* The most that a line or a record may have, so that a damaged file cannot ask for more. */
enum { STREAM_LONGEST_BYTES = 1 << 28 };

/* A file that is being read; closed with its arena. */
typedef struct DataStream {
    MxArena *arena;
    const char *path;
    int fd;
    int64_t file_bytes;
    uint8_t *bytes; /* of which [start, end) were read and not taken yet */
    size_t start, end, cap;
    int64_t n_taken;
    bool is_at_end;     /* nothing comes behind those that are held */
    const Codec *codec; /* NULL = not packed; else packed [packed_start, packed_end) are next */
    void *unpacker;
    uint8_t *packed;
    size_t packed_start, packed_end;
    bool is_whole; /* the file may end after what was unpacked */
    MxHash *hash;  /* of the file as it is */
    int64_t n_read, n_unpacked;
} DataStream;

/* stream_open — holds the first bytes of the file as it is. stream_unpack — of a file that is
 * packed, which those tell, holds and gives what it unpacks to from here on. */
bool stream_open(MxArena *arena, const char *path, DataStream *out, MxError *err);
void stream_unpack(DataStream *stream);
/* stream_hold — reads on until n bytes are held or the file ends, which takes at most four times
 * the memory; false with a failure: could not read, damaged, it unpacks to too much for what it is.
 */
bool stream_hold(DataStream *stream, size_t n, MxError *err);
/* stream_hold_all — all of the file. */
bool stream_hold_all(DataStream *stream, MxError *err);
/* stream_held — those bytes, valid until the next stream_hold. stream_take — the first n are done
 * with. */
static inline const uint8_t *stream_held(const DataStream *stream, size_t *n) {
    *n = stream->end - stream->start;
    return stream->bytes + stream->start;
}
void stream_take(DataStream *stream, size_t n);
/* stream_finish — passes over what is left. */
bool stream_finish(DataStream *stream, MxError *err);
/* stream_file — what was read, as data_add_file wants it. The file must have been read to its end.
 */
MxDataFile stream_file(const DataStream *stream);
/* stream_open_file — opens a regular file to read; -1 after an error. stream_read_at — n bytes from
 * an offset on, fewer at the end; -1 = failed, with errno. */
int stream_open_file(const char *path, MxError *err);
ssize_t stream_read_at(int fd, void *to, size_t n, int64_t at);

#endif
