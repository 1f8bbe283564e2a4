/* tfrecord.c — TFRecord files: for each record its length, a masked CRC-32C of that, its bytes, and
 * a masked CRC-32C of those. Source: tensorflow/core/lib/io/record_writer.h. */
#include "formats.h"

enum { HEAD_BYTES = 12, FOOT_BYTES = 4 };

static uint32_t get_u32(const uint8_t *at) {
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static uint64_t get_u64(const uint8_t *at) {
    return get_u32(at) | (uint64_t)get_u32(at + 4) << 32;
}

static bool sum_fits(const uint8_t *bytes, size_t n, const uint8_t *stored) {
    return get_u32(stored) == mx_crc32c_masked(bytes, n);
}

static bool tfrecord_test(const uint8_t *head, size_t n) {
    return n >= HEAD_BYTES && sum_fits(head, 8, head + 8);
}

static bool fail_at(const RecordFile *file, const char *what, MxError *err) {
    return mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = file->stream.path},
                   "record %lld, at byte %lld%s: %s", (long long)file->number,
                   (long long)file->stream.n_taken,
                   file->stream.codec ? " of what it unpacks to" : "", what);
}

static bool tfrecord_next(RecordFile *file, const char **bytes, size_t *n, MxError *err) {
    DataStream *stream = &file->stream;
    size_t held, *last = file->state;
    stream_take(stream, *last); /* the record given before */
    *last = 0;
    if (!stream_hold(stream, HEAD_BYTES, err)) return false;
    const uint8_t *head = stream_held(stream, &held);
    if (!held) return false;
    file->number++;
    if (held < HEAD_BYTES) return fail_at(file, "the file ends inside its length", err);
    if (!sum_fits(head, 8, head + 8))
        return fail_at(file, "the checksum of its length does not fit", err);
    uint64_t length = get_u64(head);
    if (length > STREAM_LONGEST_BYTES)
        return fail_at(file, "it has more than 268435456 bytes", err);
    size_t all = HEAD_BYTES + (size_t)length + FOOT_BYTES;
    if (!stream_hold(stream, all, err)) return false;
    head = stream_held(stream, &held);
    if (held < all) return fail_at(file, "the file ends inside it", err);
    if (!sum_fits(head + HEAD_BYTES, (size_t)length, head + HEAD_BYTES + length))
        return fail_at(file, "its checksum does not fit", err);
    *bytes = (const char *)head + HEAD_BYTES;
    *n = (size_t)length;
    *last = all;
    return true;
}

static bool tfrecord_open(RecordFile *file, MxError *err) {
    (void)err;
    file->state = mx_new(file->stream.arena, size_t);
    return true;
}

const RecordFormat format_tfrecord = {
    .name = "TFRecord",
    .hint = "dataset_type=grain grain_file_type=tfrecord reads it",
    .is_binary = true,
    .test = tfrecord_test,
    .open = tfrecord_open,
    .next = tfrecord_next,
    .parse = example_parse,
};
