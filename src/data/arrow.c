/* arrow.c — Arrow streams and files as records: a schema, then batches of rows, each a message
 * whose body has the buffers of all columns. A file is a stream preceded by a mark and followed by
 * an index, which is not needed. One batch is in memory at a time. */
#include "arrow.h"

#include "formats.h"
#include "table.h"

enum { MARK_BYTES = 8, LARGEST_BODY = 1 << 30, LARGEST_HEAD = 1 << 26 };

/* Rows that have nothing but nulls take no bytes. */
static const int64_t FREE_ROWS = 1 << 16, MOST_ROWS_A_BYTE = 1000;

enum { MESSAGE_SCHEMA = 1, MESSAGE_DICTIONARY, MESSAGE_BATCH };

typedef struct Arrow {
    RecordFile *file;
    ArrowField root; /* its children are the columns */
    MxArena batch;   /* of what was unpacked of the present batch */
    size_t taken;    /* bytes of the stream that it is in */
    ArrowRow row;
} Arrow;

static bool fail_at(const Arrow *a, const char *what, MxError *err) {
    return mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = a->file->stream.path},
                   "the message at byte %lld%s: %s", (long long)a->row.batch_at,
                   a->file->stream.codec ? " of what it unpacks to" : "", what);
}

/* ---- messages */

/* A message: what it is, and where its body is. */
typedef struct Message {
    int64_t type;
    FlatTable head;
    const uint8_t *body;
    size_t body_bytes;
} Message;

enum { PREFIX_BYTES = 8 };

/* The size of the next message's head, behind a mark; 0 at the end. */
static bool read_size(Arrow *a, uint32_t *out, MxError *err) {
    DataStream *stream = &a->file->stream;
    size_t held;
    a->row.batch_at = stream->n_taken;
    *out = 0;
    if (!stream_hold(stream, PREFIX_BYTES, err)) return false;
    const uint8_t *bytes = stream_held(stream, &held);
    if (!held) return true;
    if (held < PREFIX_BYTES) return fail_at(a, "the file ends inside it", err);
    *out = (uint32_t)arrow_get(bytes + 4, 4);
    return arrow_get(bytes, 4) == UINT32_MAX || fail_at(a, "it does not begin as messages do", err);
}

/* The next message, in memory until the next call; type 0 at the end. */
static bool next_message(Arrow *a, Flat *flat, Message *out, MxError *err) {
    DataStream *stream = &a->file->stream;
    size_t held;
    uint32_t n;
    *out = (Message){0};
    stream_take(stream, a->taken);
    a->taken = 0;
    if (!read_size(a, &n, err)) return false;
    if (!n) return true;
    if (n > LARGEST_HEAD) return fail_at(a, "its head has more than 67108864 bytes", err);
    if (!stream_hold(stream, PREFIX_BYTES + n, err)) return false;
    const uint8_t *bytes = stream_held(stream, &held);
    if (held < PREFIX_BYTES + n) return fail_at(a, "the file ends inside it", err);
    *flat = (Flat){.data = bytes + PREFIX_BYTES, .n = n};
    int64_t body = flat_int(flat_root(flat), 3, 8, 0);
    if (body < 0) flat->is_bad = true;
    if (flat->is_bad) return fail_at(a, "its head is damaged", err);
    if (body > LARGEST_BODY) {
        fail_at(a, "it has more than 1073741824 bytes", err);
        mx_note(err, "hint: write smaller batches, as pyarrow does: writer.write_table(table, "
                     "max_chunksize=1000)");
        return false;
    }
    if (!stream_hold(stream, PREFIX_BYTES + n + (size_t)body, err)) return false;
    bytes = stream_held(stream, &held);
    a->taken = PREFIX_BYTES + n + (size_t)body;
    if (held < a->taken) return fail_at(a, "the file ends inside it", err);
    flat->data = bytes + PREFIX_BYTES;
    FlatTable root = flat_root(flat);
    *out = (Message){flat_int(root, 1, 1, 0), flat_table(root, 2), bytes + PREFIX_BYTES + n,
                     (size_t)body};
    return true;
}

/* ---- batches */

/* What is handed out of a batch, column by column: Message.fbs, table RecordBatch: 0 length, 1
 * nodes, 2 buffers, 3 compression, 4 counts of buffers of views. */
typedef struct Batch {
    const Message *message;
    FlatVector nodes, buffers, views;
    size_t node, buffer, view; /* that come next */
    const Codec *codec;        /* NULL = nothing is packed */
    size_t unpacked_bytes;
} Batch;

/* Source: Message.fbs, CompressionType. */
static const Codec *const codecs[] = {&codec_lz4, &codec_zstd};

static int64_t most_values(const Message *message) {
    return FREE_ROWS + MOST_ROWS_A_BYTE * (int64_t)message->body_bytes;
}

/* A buffer as it is, or unpacked: behind its size, which -1 says it is not packed. */
static const char *take_buffer(Arrow *a, Batch *b, MxBytes *out) {
    *out = (MxBytes){0};
    if (b->buffer == b->buffers.n) return "it has fewer buffers than its columns need";
    int64_t at = flat_at(b->buffers, b->buffer, 0, 8), n = flat_at(b->buffers, b->buffer, 8, 8);
    size_t body = b->message->body_bytes;
    b->buffer++;
    if (at < 0 || n < 0 || (uint64_t)n > body || (uint64_t)at > body - (size_t)n)
        return "a buffer lies outside of it";
    *out = (MxBytes){(uint8_t *)(uintptr_t)b->message->body + at, (size_t)n};
    if (!b->codec || !n) return NULL;
    if (n < 8) return "a buffer that is packed is too short";
    int64_t size = (int64_t)arrow_get(out->data, 8);
    out->data += 8;
    out->size -= 8;
    if (size == -1) return NULL;
    if (size < 0 || (uint64_t)size > LARGEST_BODY - b->unpacked_bytes)
        return "its buffers unpack to more than 1073741824 bytes";
    b->unpacked_bytes += (size_t)size;
    uint8_t *to = mx_arena_alloc(&a->batch, (size_t)size + 1);
    bool ok = b->codec->unpack(out->data, out->size, to, (size_t)size);
    *out = (MxBytes){to, (size_t)size};
    return ok ? NULL : "could not unpack a buffer: it is damaged";
}

static const char *take_views(Arrow *a, Batch *b, ArrowField *field) {
    const char *why = NULL;
    if (b->view == b->views.n) return "it does not tell how many buffers a column of views has";
    int64_t n = flat_at(b->views, b->view++, 0, 8);
    if (n < 0 || (uint64_t)n > b->buffers.n) return "a column of views has too many buffers";
    field->n_views = n;
    field->views = mx_new_n(&a->batch, MxBytes, n + 1);
    for (int64_t i = 0; i < n && !why; i++) why = take_buffer(a, b, &field->views[i]);
    return why;
}

static const char *take_column(Arrow *a, Batch *b, ArrowField *field) {
    const char *why = NULL;
    if (b->node == b->nodes.n) return "it has fewer columns than its schema";
    field->n = flat_at(b->nodes, b->node++, 0, 8);
    field->done = 0;
    if (field->n < 0 || field->n > most_values(b->message)) return "a column of no size";
    for (int i = 0; i < field->n_buffers && !why; i++) why = take_buffer(a, b, &field->buffer[i]);
    if (!why && field->kind == ARROW_VIEW) why = take_views(a, b, field);
    for (int i = 0; i < field->n_children && !why; i++) why = take_column(a, b, &field->child[i]);
    return why;
}

/* The columns of root, all of them with as many rows. */
static bool take_columns(Arrow *a, const Message *message, FlatTable head, ArrowField *root,
                         MxError *err) {
    Batch b = {.message = message,
               .nodes = flat_vector(head, 1, 16),
               .buffers = flat_vector(head, 2, 16),
               .views = flat_vector(head, 4, 8)};
    FlatTable packing = flat_table(head, 3);
    int64_t codec = flat_int(packing, 0, 1, 0);
    const char *why = NULL;
    mx_arena_release(&a->batch);
    root->n = flat_int(head, 0, 8, 0);
    if (codec < 0 || codec >= MX_COUNT(codecs))
        return fail_at(a, "it is packed in an unknown way", err);
    if (packing.flat) b.codec = codecs[codec];
    if (root->n < 0 || root->n > most_values(message)) why = "it has more rows than it can hold";
    for (int i = 0; i < root->n_children && !why; i++) {
        why = take_column(a, &b, &root->child[i]);
        if (!why && root->child[i].n != root->n) why = "a column has not as many rows as it has";
    }
    if (!why && head.flat && head.flat->is_bad) why = "its head is damaged";
    return !why || fail_at(a, why, err);
}

/* Source: Message.fbs, table DictionaryBatch: 0 id, 1 data, 2 isDelta. */
static bool take_dictionary(Arrow *a, const Message *message, MxError *err) {
    int64_t id = flat_int(message->head, 0, 8, 0);
    FlatTable data = flat_table(message->head, 1);
    for (ArrowDictionary *to = a->root.dictionary; to; to = to->next) {
        if (to->id != id) continue;
        if (!take_columns(a, message, data, &to->root, err)) return false;
        if (!flat_int(message->head, 2, 1, 0)) {
            to->n = 0;
            mx_text_clear(&to->text);
        }
        if (!arrow_write_values(&a->row, to, err)) return false;
    }
    return true;
}

/* ---- */

static bool is_file(const uint8_t *head, size_t n) {
    return n >= MARK_BYTES && !memcmp(head, "ARROW1\0\0", MARK_BYTES);
}

static bool arrow_test(const uint8_t *head, size_t n) {
    return is_file(head, n) || (n >= MARK_BYTES && !memcmp(head, "\xff\xff\xff\xff", 4));
}

static void release_batch(void *arrow) {
    mx_arena_release(&((Arrow *)arrow)->batch);
}

/* A file's mark, which stands at its end too. */
static bool check_end(DataStream *stream, MxError *err) {
    enum { END_BYTES = 6 };
    char end[END_BYTES] = {0};
    stream_take(stream, MARK_BYTES);
    if (stream->codec) return true;
    stream_read_at(stream->fd, end, END_BYTES, stream->file_bytes - END_BYTES);
    return !memcmp(end, "ARROW1", END_BYTES) ||
           mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = stream->path},
                   "is Arrow that does not end as such files do: it was cut short");
}

static bool arrow_open(RecordFile *file, MxError *err) {
    DataStream *stream = &file->stream;
    Arrow *a = file->state = mx_new(stream->arena, Arrow);
    Flat flat;
    Message message;
    size_t n;
    *a = (Arrow){.file = file, .batch = {.name = "batch"}, .row = {.file = stream->path}};
    mx_text_init(&a->row.text, stream->arena);
    mx_arena_on_release(stream->arena, release_batch, a);
    const uint8_t *head = stream_held(stream, &n);
    if (is_file(head, n) && !check_end(stream, err)) return false;
    if (!next_message(a, &flat, &message, err)) return false;
    if (message.type != MESSAGE_SCHEMA) return fail_at(a, "wanted a schema", err);
    const char *why = arrow_schema(stream->arena, message.head, &a->root);
    if (flat.is_bad) why = "its head is damaged";
    return !why || fail_at(a, why, err);
}

static bool arrow_next(RecordFile *file, const char **bytes, size_t *n, MxError *err) {
    Arrow *a = file->state;
    Flat flat;
    Message message;
    while (a->row.number == a->root.n) {
        if (!next_message(a, &flat, &message, err)) return false;
        if (!message.type) return stream_finish(&file->stream, err) && false;
        bool has_rows = message.type == MESSAGE_BATCH;
        if (!has_rows && message.type != MESSAGE_DICTIONARY) return fail_at(a, "wanted rows", err);
        if (!has_rows && !take_dictionary(a, &message, err)) return false;
        if (has_rows && !take_columns(a, &message, message.head, &a->root, err)) return false;
        if (has_rows) a->row.number = 0;
    }
    file->number++;
    if (!arrow_write_row(&a->row, &a->root, err)) return false;
    a->row.number++;
    *bytes = a->row.text.data;
    *n = a->row.text.len;
    return true;
}

const RecordFormat format_arrow = {
    .name = "Arrow",
    .hint = "dataset_type=hf reads it",
    .is_binary = true,
    .test = arrow_test,
    .open = arrow_open,
    .next = arrow_next,
    .parse = table_parse,
};
