/* parquet_page.c — pages of a Parquet column: headers, decompression, dictionaries, and the
 * beginnings of levels and values in a page. */
#include "parquet.h"

enum { LARGEST_PAGE = 1 << 28, LARGEST_HEAD = 1 << 24, FIRST_HEAD = 1 << 12 };

enum { PAGE_DATA, PAGE_INDEX, PAGE_DICTIONARY, PAGE_DATA_2 };

enum {
    ENCODING_PLAIN = 0,
    ENCODING_PLAIN_DICTIONARY = 2,
    ENCODING_RLE = 3,
    ENCODING_BIT_PACKED = 4,
    ENCODING_RLE_DICTIONARY = 8
};

bool parquet_fail(const ParquetColumn *c, MxError *err, const char *fmt, ...) {
    MxArena arena = {.name = "message"};
    va_list ap;
    va_start(ap, fmt);
    const char *text = mx_arena_vprintf(&arena, fmt, ap);
    va_end(ap);
    mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = c->stream->path},
            "column \"%s\", the page at byte %lld: %s", c->node->path, (long long)c->page_at, text);
    mx_arena_release(&arena);
    return false;
}

static unsigned bits_for(int most) {
    unsigned bits = 0;
    for (; most; most >>= 1) bits++;
    return bits;
}

/* ---- pages */

typedef struct PageHead {
    int64_t type, bytes, packed_bytes;
    int64_t n_values, encoding, def_bytes, rep_bytes, def_encoding, rep_encoding;
    bool is_packed;
} PageHead;

/* The structure of one type of page: field numbers of its members, 0 = it has none. */
typedef struct PageForm {
    int field; /* of the head that holds it */
    int n_values, encoding, def_encoding, rep_encoding, def_bytes, rep_bytes, is_packed;
} PageForm;

static const PageForm forms[] = {
    [PAGE_DATA] = {.field = 5, .n_values = 1, .encoding = 2, .def_encoding = 3, .rep_encoding = 4},
    [PAGE_DICTIONARY] = {.field = 7, .n_values = 1, .encoding = 2},
    [PAGE_DATA_2] =
        {.field = 8, .n_values = 1, .encoding = 4, .def_bytes = 5, .rep_bytes = 6, .is_packed = 7},
};

static void parse_form(Thrift *t, const PageForm *form, PageHead *out) {
    const struct {
        int id;
        int64_t *to;
    } members[] = {
        {form->n_values, &out->n_values},         {form->encoding, &out->encoding},
        {form->def_encoding, &out->def_encoding}, {form->rep_encoding, &out->rep_encoding},
        {form->def_bytes, &out->def_bytes},       {form->rep_bytes, &out->rep_bytes}};
    ThriftField field = {0};
    while (thrift_next(t, &field)) {
        for (int i = 0; i < MX_COUNT(members); i++)
            if (members[i].id && field.id == members[i].id) *members[i].to = thrift_int(t, &field);
        if (form->is_packed && field.id == form->is_packed) out->is_packed = thrift_bool(t, &field);
    }
}

static void parse_head(Thrift *t, PageHead *out) {
    ThriftField field = {0};
    *out = (PageHead){.type = -1,
                      .n_values = -1,
                      .encoding = -1,
                      .def_encoding = ENCODING_RLE,
                      .rep_encoding = ENCODING_RLE,
                      .is_packed = true};
    while (thrift_next(t, &field)) {
        if (field.id == 1) out->type = thrift_int(t, &field);
        if (field.id == 2) out->bytes = thrift_int(t, &field);
        if (field.id == 3) out->packed_bytes = thrift_int(t, &field);
        bool is_known = out->type >= 0 && out->type < MX_COUNT(forms) && forms[out->type].field;
        if (is_known && field.id == forms[out->type].field && thrift_struct(t, &field))
            parse_form(t, &forms[out->type], out);
    }
}

bool parquet_make_room(ParquetColumn *c, ParquetRoom *room, size_t n, MxError *err) {
    if (room->bytes && room->cap >= n) return true;
    size_t cap = n < FIRST_HEAD / 2 ? FIRST_HEAD : n + n / 2;
    if (cap > *c->room_left)
        return parquet_fail(c, err, "the columns of the file want more than %d bytes at a time",
                            PARQUET_MOST_ROOM);
    *c->room_left -= cap;
    *room = (ParquetRoom){mx_arena_alloc(c->arena, cap), cap};
    return true;
}

/* Bytes of the file as they are, in c->packed. */
static bool read_bytes(ParquetColumn *c, int64_t at, size_t n, MxError *err) {
    if (!parquet_make_room(c, &c->packed, n, err)) return false;
    ssize_t got = stream_read_at(c->stream->fd, c->packed.bytes, n, at);
    if (got < 0) return mx_fail_errno(err, "could not read %s", c->stream->path);
    return got == (ssize_t)n || parquet_fail(c, err, "the file ends inside it");
}

/* A head has no size of its own, so more is read until it is whole. */
static bool read_head(ParquetColumn *c, PageHead *out, MxError *err) {
    Thrift t = {0};
    int64_t most = c->end - c->at < LARGEST_HEAD ? c->end - c->at : LARGEST_HEAD;
    c->page_at = c->at;
    for (int64_t n = FIRST_HEAD;; n *= 4) {
        if (n > most) n = most;
        if (!read_bytes(c, c->at, (size_t)n, err)) return false;
        t = (Thrift){.at = c->packed.bytes, .end = c->packed.bytes + n};
        parse_head(&t, out);
        if (!t.is_short || n == most) break;
    }
    if (t.is_bad) return parquet_fail(c, err, "its head is damaged");
    c->at += t.at - c->packed.bytes;
    if (out->packed_bytes < 0 || out->packed_bytes > c->end - c->at)
        return parquet_fail(c, err, "it is said to have %lld bytes, but its column has %lld more",
                            (long long)out->packed_bytes, (long long)(c->end - c->at));
    if (out->bytes < 0 || out->bytes > LARGEST_PAGE || out->packed_bytes > LARGEST_PAGE)
        return parquet_fail(c, err, "it has more than %d bytes", LARGEST_PAGE);
    return true;
}

/* What pages are packed by, by number. */
static const struct {
    const char *name;
    const Codec *codec;
} codecs[] = {{"none", NULL},        {"snappy", &codec_snappy}, {"gzip", &codec_gzip},
              {"lzo", NULL},         {"brotli", &codec_brotli}, {"lz4", &codec_lz4_hadoop},
              {"zstd", &codec_zstd}, {"lz4", &codec_lz4_block}};

bool parquet_check_codec(const ParquetColumn *c, MxError *err) {
    int codec = c->chunk.codec;
    bool is_known = codec >= 0 && codec < MX_COUNT(codecs);
    if (is_known && (!codec || codecs[codec].codec)) return true;
    parquet_fail(c, err, "not available yet: it is packed by %s",
                 is_known ? codecs[codec].name : "a codec that is not known");
    mx_note(err, "hint: write it with another compression, as pyarrow does: "
                 "pyarrow.parquet.write_table(table, FILE, compression='zstd')");
    return false;
}

/* The page's bytes in a room of its own: the first n_plain are never packed. */
static bool unpack(ParquetColumn *c, const PageHead *head, size_t n_plain, ParquetRoom *room,
                   MxError *err) {
    size_t n = (size_t)head->bytes, n_packed = (size_t)head->packed_bytes;
    if (n_plain > n || n_plain > n_packed)
        return parquet_fail(c, err, "its levels are longer than it is");
    if (!read_bytes(c, c->at, n_packed, err)) return false;
    c->at += head->packed_bytes;
    if (!parquet_make_room(c, room, n, err)) return false;
    const uint8_t *from = c->packed.bytes;
    uint8_t *to = room->bytes;
    const Codec *codec = codecs[c->chunk.codec].codec;
    if (!codec || !head->is_packed) {
        if (n != n_packed) return parquet_fail(c, err, "it has two sizes, though it is not packed");
        if (n) memcpy(to, from, n);
        return true;
    }
    if (n_plain) memcpy(to, from, n_plain);
    if (n == n_plain) return true;
    return codec->unpack(from + n_plain, n_packed - n_plain, to + n_plain, n - n_plain) ||
           parquet_fail(c, err, "could not unpack %s: it is damaged", codec->name);
}

static bool read_dictionary(ParquetColumn *c, const PageHead *head, MxError *err) {
    if (!unpack(c, head, 0, &c->dictionary_page, err)) return false;
    const uint8_t *at = c->dictionary_page.bytes, *end = at + head->bytes;
    if (head->n_values < 0 || head->n_values > head->bytes || c->node->type == PARQUET_BOOLEAN)
        return parquet_fail(c, err, "a dictionary of %lld values in %lld bytes",
                            (long long)head->n_values, (long long)head->bytes);
    if (head->encoding != ENCODING_PLAIN && head->encoding != ENCODING_PLAIN_DICTIONARY)
        return parquet_fail(c, err, "a dictionary in the encoding %lld, wanted plain (0)",
                            (long long)head->encoding);
    c->n_dictionary = (size_t)head->n_values;
    if (!parquet_make_room(c, &c->dictionary_room, c->n_dictionary * sizeof(MxBytes), err))
        return false;
    c->dictionary = (MxBytes *)(void *)c->dictionary_room.bytes;
    for (size_t i = 0; i < c->n_dictionary; i++)
        if (!parquet_plain_next(c->node, &at, end, &c->dictionary[i]))
            return parquet_fail(c, err, "the dictionary ends inside value %zu", i);
    return true;
}

static const char *encoding_name(int64_t encoding) {
    return encoding == ENCODING_BIT_PACKED ? "BIT_PACKED" : "an unknown one";
}

/* Behind the levels. */
static bool begin_values(ParquetColumn *c, int64_t encoding, const uint8_t *at, const uint8_t *end,
                         MxError *err) {
    bool is_number = encoding == ENCODING_PLAIN_DICTIONARY || encoding == ENCODING_RLE_DICTIONARY;
    bool is_truth = c->node->type == PARQUET_BOOLEAN;
    c->values = at;
    c->values_end = end;
    c->bit = 0;
    c->way = PARQUET_PLAIN;
    if (is_number) {
        c->way = PARQUET_DICTIONARY;
        if (at<end && * at> 32)
            return parquet_fail(c, err, "its values are numbers of %d bits", *at);
        c->numbers = (ParquetRuns){.at = at + (at < end), .end = end};
        if (at < end) c->numbers.width = *at;
    } else if (encoding == ENCODING_RLE && is_truth) {
        size_t n = end - at < 4 ? 0 : parquet_u32(at);
        if (end - at < 4 || n > (size_t)(end - at - 4))
            return parquet_fail(c, err, "it ends inside its values");
        c->way = PARQUET_RUNS;
        c->numbers = (ParquetRuns){.at = at + 4, .end = at + 4 + n, .width = 1};
    } else if (parquet_is_delta(c->node, encoding)) {
        return parquet_make_plain(c, encoding, c->n_page, err);
    } else if (encoding != ENCODING_PLAIN) {
        c->way = PARQUET_UNREAD;
        c->unread = encoding_name(encoding);
    }
    return true;
}

/* The levels that a page of version 1 begins with. */
static bool take_levels(ParquetColumn *c, int most, int64_t encoding, const uint8_t **at,
                        const uint8_t *end, ParquetRuns *out, MxError *err) {
    *out = (ParquetRuns){.width = bits_for(most)};
    if (!most) return true;
    if (encoding != ENCODING_RLE)
        return parquet_fail(c, err, "not available yet: levels in the encoding %s",
                            encoding_name(encoding));
    size_t left = (size_t)(end - *at), n = left < 4 ? 0 : parquet_u32(*at);
    if (left < 4 || n > left - 4) return parquet_fail(c, err, "it ends inside its levels");
    out->at = *at + 4;
    out->end = *at += 4 + n;
    return true;
}

static bool read_data(ParquetColumn *c, const PageHead *head, MxError *err) {
    const ParquetNode *node = c->node;
    bool is_2 = head->type == PAGE_DATA_2;
    size_t n_rep = (size_t)head->rep_bytes, n_def = (size_t)head->def_bytes;
    if (head->n_values < 0 || head->n_values > c->n_left)
        return parquet_fail(c, err, "it is said to have %lld values, but its column has %lld more",
                            (long long)head->n_values, (long long)c->n_left);
    if (head->rep_bytes < 0 || head->def_bytes < 0 || n_rep + n_def > (size_t)head->bytes)
        return parquet_fail(c, err, "its levels are longer than it is");
    if (!unpack(c, head, n_rep + n_def, &c->page, err)) return false;
    const uint8_t *at = c->page.bytes, *end = at + head->bytes;
    if (is_2) {
        c->reps = (ParquetRuns){.at = at, .end = at + n_rep, .width = bits_for(node->rep)};
        c->defs = (ParquetRuns){
            .at = at + n_rep, .end = at + n_rep + n_def, .width = bits_for(node->def)};
        at += n_rep + n_def;
    } else if (!take_levels(c, node->rep, head->rep_encoding, &at, end, &c->reps, err) ||
               !take_levels(c, node->def, head->def_encoding, &at, end, &c->defs, err)) {
        return false;
    }
    c->n_page = head->n_values;
    c->n_left -= head->n_values;
    return begin_values(c, head->encoding, at, end, err);
}

/* Up to a page that has values. */
bool parquet_next_page(ParquetColumn *c, MxError *err) {
    PageHead head;
    while (!c->n_page) {
        c->page_at = c->at;
        if (c->at >= c->end)
            return parquet_fail(c, err, "%lld values of the column are missing",
                                (long long)c->n_left);
        if (!read_head(c, &head, err)) return false;
        if (head.type == PAGE_DICTIONARY) {
            if (!read_dictionary(c, &head, err)) return false;
        } else if (head.type == PAGE_DATA || head.type == PAGE_DATA_2) {
            if (!read_data(c, &head, err)) return false;
        } else {
            c->at += head.packed_bytes; /* an index, or what later versions have */
        }
    }
    return true;
}
