/* array_record.c — ArrayRecord files: chunks of records as written by Riegeli, then a chunk with
 * the position of each chunk, then a block of 64 KiB with the position of that one. Records are
 * read in order, so only the end and the number of records are needed from these. Checksums are
 * verified. Sources: Riegeli, doc/riegeli_records_file_format.md; array_record, cpp/layout.proto.
 */
#include "formats.h"
#include "highway.h"

enum { BLOCK_BYTES = 1 << 16, BLOCK_HEAD_BYTES = 24, CHUNK_HEAD_BYTES = 40 };
static const uint64_t LARGEST_CHUNK_BYTES = UINT64_C(1) << 30;

/* What such a file begins with: the head of its first block and of a chunk without data. */
static const uint8_t signature[] = {0x83, 0xaf, 0x70, 0xd1, 0x0d, 0x88, 0x4a, 0x3f};

/* The head of a chunk. */
typedef struct Chunk {
    uint64_t data_bytes, data_hash, n_records, decoded_bytes;
    uint8_t type;
} Chunk;

/* Memory that is used again for each chunk. */
typedef struct Room {
    uint8_t *bytes;
    size_t cap;
} Room;

typedef struct ArrayRecord {
    int64_t records_end;      /* where the chunk that describes them begins, byte of the file */
    Room data, sizes, values; /* of the chunk: as it is stored, and decoded */
    MxProto size_left;        /* sizes of records that were not given yet */
    MxProto value_left;       /* and those records */
    uint64_t n_left, n_given;
} ArrayRecord;

static uint64_t get_u64(const uint8_t *at) {
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static uint64_t hash(const uint8_t *bytes, size_t n) {
    static const uint64_t key[4] = {0x2f696c6567656952, 0x0a7364726f636572, 0x2f696c6567656952,
                                    0x0a7364726f636572}; /* "Riegeli/records\n" twice */
    return highway_hash(key, bytes, n);
}

static uint8_t *make_room(MxArena *arena, Room *room, size_t n) {
    if (!room->bytes || room->cap < n) {
        room->cap = room->cap > n / 2 ? 2 * room->cap : n + 1;
        room->bytes = mx_arena_alloc(arena, room->cap);
    }
    return room->bytes;
}

static bool fail_at(const RecordFile *file, int64_t at, const char *what, MxError *err) {
    return mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = file->stream.path},
                   "chunk at byte %lld: %s", (long long)at, what);
}

/* ---- chunks */

static bool parse_head(const uint8_t bytes[CHUNK_HEAD_BYTES], Chunk *out) {
    *out = (Chunk){.data_bytes = get_u64(bytes + 8),
                   .data_hash = get_u64(bytes + 16),
                   .type = bytes[24],
                   .n_records = get_u64(bytes + 24) >> 8,
                   .decoded_bytes = get_u64(bytes + 32)};
    return get_u64(bytes) == hash(bytes + 8, CHUNK_HEAD_BYTES - 8);
}

/* A buffer of a chunk, unpacked as its first byte says; must give `wants` bytes unless that is
 * UINT64_MAX. NULL = well, else why not. */
static const char *unpack(MxArena *arena, uint8_t how, MxProto from, uint64_t wants, Room *room,
                          MxProto *out) {
    static const struct {
        uint8_t letter;
        const Codec *codec;
    } codecs[] = {{'z', &codec_zstd}, {'b', &codec_brotli}};
    uint64_t n = (uint64_t)(from.end - from.at);
    *out = from;
    if (!how) return wants == UINT64_MAX || n == wants ? NULL : "its sizes do not fit";
    for (int i = 0; i < MX_COUNT(codecs); i++) {
        if (codecs[i].letter != how) continue;
        if (!mx_proto_varint(&from, &n) || n > LARGEST_CHUNK_BYTES) return "it is damaged";
        if (wants != UINT64_MAX && n != wants) return "its sizes do not fit";
        uint8_t *to = make_room(arena, room, (size_t)n);
        *out = mx_proto_of(to, n);
        if (!n || codecs[i].codec->unpack(from.at, (size_t)(from.end - from.at), to, (size_t)n))
            return NULL;
        return "its records could not be unpacked";
    }
    return how == 's' ? "its records are packed by snappy, wanted zstd, brotli or none (an option "
                        "of ArrayRecordWriter)"
                      : "its records are packed in an unrecognized way";
}

/* The records of a simple chunk; NULL = well, else why not. */
static const char *decode(MxArena *arena, ArrayRecord *state, const Chunk *chunk, MxProto data) {
    uint64_t n_sizes;
    if (chunk->type == 't')
        return "its records are transposed, wanted files written with transpose:false (an option "
               "of ArrayRecordWriter)";
    if (chunk->type != 'r') return "its type is unrecognized";
    if (chunk->decoded_bytes > LARGEST_CHUNK_BYTES) return "it has more than 1073741824 bytes";
    if (data.at == data.end) return "it is damaged";
    uint8_t how = *data.at++;
    if (!mx_proto_varint(&data, &n_sizes) || n_sizes > (uint64_t)(data.end - data.at))
        return "it is damaged";
    MxProto sizes = mx_proto_of(data.at, n_sizes), values = data;
    values.at = sizes.end;
    const char *why = unpack(arena, how, sizes, UINT64_MAX, &state->sizes, &state->size_left);
    if (!why)
        why = unpack(arena, how, values, chunk->decoded_bytes, &state->values, &state->value_left);
    state->n_left = chunk->n_records;
    return why;
}

/* The next record of the chunk; false when what it says of itself does not hold. */
static bool next_of_chunk(ArrayRecord *state, MxProto *out) {
    uint64_t n;
    if (!mx_proto_varint(&state->size_left, &n)) return false;
    if (n > (uint64_t)(state->value_left.end - state->value_left.at)) return false;
    *out = mx_proto_of(state->value_left.at, n);
    state->value_left.at += n;
    state->n_left--;
    return state->n_left || state->value_left.at == state->value_left.end;
}

/* ---- the file in order */

/* The next n bytes of the file but for heads of blocks; false at its end, or failed. */
static bool take(RecordFile *file, uint8_t *to, size_t n, MxError *err) {
    DataStream *stream = &file->stream;
    while (n) {
        size_t in_block = (size_t)(stream->n_taken % BLOCK_BYTES), held;
        bool is_head = !in_block;
        size_t run = is_head ? BLOCK_HEAD_BYTES : BLOCK_BYTES - in_block;
        if (!is_head && run > n) run = n;
        if (!stream_hold(stream, run, err)) return false;
        const uint8_t *bytes = stream_held(stream, &held);
        if (held < run) return false;
        if (!is_head) {
            memcpy(to, bytes, run);
            to += run;
            n -= run;
        }
        stream_take(stream, run);
    }
    return true;
}

/* What pads a chunk, so that it has a byte for each record and does not end in a block's head. */
static bool skip_padding(RecordFile *file, int64_t begin, uint64_t n_records, MxError *err) {
    DataStream *stream = &file->stream;
    int64_t end = begin + (int64_t)n_records, in_block = end % BLOCK_BYTES;
    if (in_block && in_block <= BLOCK_HEAD_BYTES) end += BLOCK_HEAD_BYTES + 1 - in_block;
    while (stream->n_taken < end) {
        size_t held;
        if (!stream_hold(stream, 1, err)) return false;
        stream_held(stream, &held);
        if (!held) return fail_at(file, begin, "the file ends inside it", err);
        int64_t left = end - stream->n_taken;
        stream_take(stream, left < (int64_t)held ? (size_t)left : held);
    }
    return true;
}

/* The next chunk, its data in state->data. */
static bool read_chunk(RecordFile *file, Chunk *out, MxError *err) {
    ArrayRecord *state = file->state;
    uint8_t head[CHUNK_HEAD_BYTES];
    int64_t begin = file->stream.n_taken;
    if (!take(file, head, sizeof head, err))
        return !err->count && fail_at(file, begin, "the file ends inside it", err);
    if (!parse_head(head, out)) return fail_at(file, begin, "its head is damaged", err);
    if (out->data_bytes > (uint64_t)file->stream.file_bytes ||
        out->n_records > (uint64_t)file->stream.file_bytes)
        return fail_at(file, begin, "it is larger than the file", err);
    uint8_t *data = make_room(file->stream.arena, &state->data, (size_t)out->data_bytes);
    if (!take(file, data, (size_t)out->data_bytes, err))
        return !err->count && fail_at(file, begin, "the file ends inside it", err);
    if (hash(data, (size_t)out->data_bytes) != out->data_hash)
        return fail_at(file, begin, "its checksum does not fit", err);
    return skip_padding(file, begin, out->n_records, err);
}

static bool has_records(uint8_t type) {
    return type != 's' && type != 'm' && type != 'p'; /* signature, metadata, padding */
}

/* Reads a chunk, and decodes it if it has records. */
static bool next_chunk(RecordFile *file, MxError *err) {
    ArrayRecord *state = file->state;
    Chunk chunk = {0};
    int64_t begin = file->stream.n_taken;
    if (!read_chunk(file, &chunk, err)) return false;
    if (!has_records(chunk.type)) return true;
    const uint8_t *data = state->data.bytes;
    const char *why =
        decode(file->stream.arena, state, &chunk, mx_proto_of(data, chunk.data_bytes));
    return !why || fail_at(file, begin, why, err);
}

/* Behind the records: how many there are, and the chunks that only say where others are. */
static bool finish(RecordFile *file, MxError *err) {
    ArrayRecord *state = file->state;
    MxProto record;
    MxProtoField part, inner;
    uint64_t n = UINT64_MAX;
    Chunk chunk;
    while (!state->n_left)
        if (!next_chunk(file, err)) return false;
    if (next_of_chunk(state, &record) && mx_proto_next(&record, &part) && part.number == 1)
        while (part.bytes.at < part.bytes.end && mx_proto_next(&part.bytes, &inner))
            if (inner.number == 3) n = inner.value;
    if (n != state->n_given)
        return mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = file->stream.path},
                       "has %llu records, but does not say so at its end",
                       (unsigned long long)state->n_given);
    while (file->stream.n_taken < file->stream.file_bytes)
        if (!read_chunk(file, &chunk, err)) return false;
    stream_hold(&file->stream, 1, err); /* sees that nothing follows */
    return false;
}

static bool array_next(RecordFile *file, const char **bytes, size_t *n, MxError *err) {
    ArrayRecord *state = file->state;
    MxProto record;
    while (!state->n_left) {
        if (file->stream.n_taken >= state->records_end) return finish(file, err);
        if (!next_chunk(file, err)) return false;
    }
    file->number++;
    state->n_given++;
    if (!next_of_chunk(state, &record))
        return mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = file->stream.path},
                       "record %lld: its size does not fit its chunk", (long long)file->number);
    *bytes = (const char *)record.at;
    *n = (size_t)(record.end - record.at);
    return true;
}

/* ---- the last block */

/* Its only chunk holds a message, three times: 1 = where the records end, 2 = a magic number. */
static bool parse_last(MxArena *arena, ArrayRecord *state, const uint8_t block[BLOCK_BYTES]) {
    static const uint64_t magic = 0x71930e704fdae05e;
    uint64_t value[3] = {0};
    const uint8_t *head = block + BLOCK_HEAD_BYTES, *data = head + CHUNK_HEAD_BYTES;
    MxProto record;
    MxProtoField part;
    Chunk chunk;
    if (!parse_head(head, &chunk) ||
        chunk.data_bytes > BLOCK_BYTES - BLOCK_HEAD_BYTES - CHUNK_HEAD_BYTES ||
        hash(data, (size_t)chunk.data_bytes) != chunk.data_hash ||
        decode(arena, state, &chunk, mx_proto_of(data, chunk.data_bytes)) || !state->n_left ||
        !next_of_chunk(state, &record))
        return false;
    state->n_left = 0;
    while (record.at < record.end && mx_proto_next(&record, &part))
        if (part.number < MX_COUNT(value)) value[part.number] = part.value;
    state->records_end = value[1] < INT64_MAX ? (int64_t)value[1] : INT64_MAX;
    return value[2] == magic;
}

static bool array_open(RecordFile *file, MxError *err) {
    DataStream *stream = &file->stream;
    ArrayRecord *state = file->state = mx_new(stream->arena, ArrayRecord);
    uint8_t *block = mx_arena_alloc(stream->arena, BLOCK_BYTES);
    int64_t at = stream->file_bytes - BLOCK_BYTES;
    ssize_t got = at < 0 ? 0 : stream_read_at(stream->fd, block, BLOCK_BYTES, at);
    if (got < 0) return mx_fail_errno(err, "could not read %s", stream->path);
    if (got == BLOCK_BYTES && parse_last(stream->arena, state, block) && state->records_end <= at)
        return true;
    mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = stream->path},
            "is ArrayRecord without the block that ends such a file");
    mx_note(err, "hint: it was cut short, its writer was not closed, or Riegeli wrote it");
    return false;
}

static bool array_test(const uint8_t *head, size_t n) {
    return n >= sizeof signature && !memcmp(head, signature, sizeof signature);
}

const RecordFormat format_array_record = {
    .name = "ArrayRecord",
    .hint = "dataset_type=grain grain_file_type=arrayrecord reads it",
    .is_binary = true,
    .test = array_test,
    .open = array_open,
    .next = array_next,
    .parse = example_parse,
};
