/* parquet_delta.c — pages of a Parquet column whose values are written as differences, behind what
 * they share with the one before, or with their bytes apart: they become plain ones. Source:
 * apache/parquet-format 2.10, Encodings.md (DELTA_BINARY_PACKED, DELTA_LENGTH_BYTE_ARRAY,
 * DELTA_BYTE_ARRAY, BYTE_STREAM_SPLIT). */
#include "parquet.h"

enum { LARGEST_BLOCK = 1 << 20, LENGTH_BYTES = 4 };

/* What is left of a page. */
typedef struct Packed {
    MxProto bytes;
    bool is_bad;
} Packed;

static uint64_t take_number(Packed *p) {
    uint64_t x;
    if (!mx_proto_varint(&p->bytes, &x)) p->is_bad = true;
    return p->is_bad ? 0 : x;
}

/* Of numbers with a sign, 0 -1 1 -2 …; differences wrap around. */
static uint64_t take_signed(Packed *p) {
    uint64_t x = take_number(p);
    return x >> 1 ^ -(x & 1);
}

static uint64_t take_bits(const uint8_t *at, size_t bit, unsigned width) {
    uint64_t x = 0;
    for (unsigned k = 0; k < width;) {
        unsigned in = (unsigned)((bit + k) & 7), n = 8 - in;
        if (n > width - k) n = width - k;
        x |= (uint64_t)((unsigned)at[(bit + k) >> 3] >> in & ((1U << n) - 1)) << k;
        k += n;
    }
    return x;
}

/* Differences of one width, as many as are still wanted. */
static void take_part(Packed *p, unsigned width, size_t n_part, uint64_t least, uint64_t *last,
                      uint64_t **out, uint64_t *out_end) {
    size_t n = (size_t)(out_end - *out) < n_part ? (size_t)(out_end - *out) : n_part;
    size_t bytes = n_part / 8 * width, left = (size_t)(p->bytes.end - p->bytes.at);
    if (width > 64 || (n * width + 7) / 8 > left) p->is_bad = true;
    for (size_t i = 0; i < n && !p->is_bad; i++)
        *(*out)++ = *last += least + take_bits(p->bytes.at, i * width, width);
    p->bytes.at += bytes < left ? bytes : left; /* the last one may be cut */
}

/* Whole numbers, at most `most`, in out; how many. */
static size_t take_deltas(Packed *p, uint64_t *out, size_t most) {
    uint64_t block = take_number(p), parts = take_number(p), n = take_number(p);
    uint64_t last = take_signed(p), *next = out, *end = out + n;
    if (!block || block % 128 || block > LARGEST_BLOCK || !parts || block % parts ||
        block / parts % 32 || n > most)
        p->is_bad = true;
    if (p->is_bad || !n) return 0;
    *next++ = last;
    while (next < end && !p->is_bad) {
        uint64_t least = take_signed(p);
        const uint8_t *width = p->bytes.at;
        if (parts > (uint64_t)(p->bytes.end - p->bytes.at)) p->is_bad = true;
        if (p->is_bad) break;
        p->bytes.at += parts;
        for (uint64_t i = 0; i < parts && next < end && !p->is_bad; i++)
            take_part(p, width[i], (size_t)(block / parts), least, &last, &next, end);
    }
    return (size_t)n;
}

/* ---- plain values */

static void put_number(uint8_t *to, uint64_t x, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) to[i] = (uint8_t)(x >> (8 * i));
}

/* Numbers, for `most` of which there is room in a scratch of the column. */
static bool open_numbers(ParquetColumn *c, size_t most, int which, uint64_t **out, MxError *err) {
    if (!parquet_make_room(c, &c->deltas[which], most * sizeof **out + 1, err)) return false;
    *out = (uint64_t *)(void *)c->deltas[which].bytes;
    return true;
}

static bool numbers(ParquetColumn *c, Packed *p, size_t most, MxError *err) {
    const size_t bytes = c->node->type == PARQUET_INT64 ? 8 : 4;
    uint64_t *x;
    if (!open_numbers(c, most, 0, &x, err)) return false;
    size_t n = take_deltas(p, x, most);
    if (!parquet_make_room(c, &c->plain, n * bytes + 1, err)) return false;
    for (size_t i = 0; i < n && !p->is_bad; i++)
        put_number(c->plain.bytes + i * bytes, x[i], bytes);
    c->values = c->plain.bytes;
    c->values_end = c->values + n * bytes;
    return true;
}

/* n texts: of each the first shared[i] bytes of the one before, and own[i] of its own. */
static bool texts(ParquetColumn *c, Packed *p, const uint64_t *shared, const uint64_t *own,
                  size_t n, MxError *err) {
    const size_t head = c->node->type == PARQUET_FIXED ? 0 : LENGTH_BYTES;
    size_t left = (size_t)(p->bytes.end - p->bytes.at), total = 0, before = 0, at = 0;
    for (size_t i = 0; i < n && !p->is_bad; i++) {
        const uint64_t common = shared ? shared[i] : 0;
        p->is_bad = own[i] > left || common > before;
        left -= p->is_bad ? 0 : (size_t)own[i];
        before = (size_t)(common + own[i]);
        total += head + before;
        if (total > PARQUET_MOST_ROOM) p->is_bad = true;
    }
    if (p->is_bad) return true;
    if (!parquet_make_room(c, &c->plain, total + 1, err)) return false;
    uint8_t *to = c->plain.bytes;
    for (size_t i = 0; i < n; i++) {
        const size_t common = shared ? (size_t)shared[i] : 0, more = (size_t)own[i];
        put_number(to, common + more, head);
        if (common) memcpy(to + head, c->plain.bytes + at, common);
        if (more) memcpy(to + head + common, p->bytes.at, more);
        at = (size_t)(to - c->plain.bytes) + head;
        to += head + common + more;
        p->bytes.at += more;
    }
    c->values = c->plain.bytes;
    c->values_end = c->values + total;
    return true;
}

static bool lengths(ParquetColumn *c, Packed *p, size_t most, MxError *err) {
    uint64_t *own;
    if (!open_numbers(c, most, 0, &own, err)) return false;
    size_t n = take_deltas(p, own, most);
    return p->is_bad || texts(c, p, NULL, own, n, err);
}

static bool prefixes(ParquetColumn *c, Packed *p, size_t most, MxError *err) {
    uint64_t *shared, *own;
    if (!open_numbers(c, most, 0, &shared, err) || !open_numbers(c, most, 1, &own, err))
        return false;
    size_t n = take_deltas(p, shared, most);
    if (!p->is_bad && take_deltas(p, own, most) != n) p->is_bad = true;
    return p->is_bad || texts(c, p, shared, own, n, err);
}

static bool streams(ParquetColumn *c, Packed *p, size_t most, MxError *err) {
    const size_t width = parquet_width(c->node), left = (size_t)(p->bytes.end - p->bytes.at);
    const size_t n = width ? left / width : 0;
    (void)most;
    if (!width || left % width) p->is_bad = true;
    if (p->is_bad || !parquet_make_room(c, &c->plain, left + 1, err)) return p->is_bad;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < width; k++) c->plain.bytes[i * width + k] = p->bytes.at[k * n + i];
    c->values = c->plain.bytes;
    c->values_end = c->values + left;
    return true;
}

/* ---- */

#define TYPE(name) (1U << PARQUET_##name)

static const struct {
    int encoding;
    unsigned types; /* bits of those that it is for */
    bool (*take)(ParquetColumn *column, Packed *packed, size_t most, MxError *err);
} rows[] = {
    {5, TYPE(INT32) | TYPE(INT64), numbers},
    {6, TYPE(BYTES), lengths},
    {7, TYPE(BYTES) | TYPE(FIXED), prefixes},
    {9, TYPE(INT32) | TYPE(INT64) | TYPE(FLOAT) | TYPE(DOUBLE) | TYPE(FIXED), streams},
};

bool parquet_is_delta(const ParquetNode *node, int64_t encoding) {
    bool is = false;
    for (int i = 0; i < MX_COUNT(rows); i++)
        is = is || (rows[i].encoding == encoding && rows[i].types >> node->type & 1);
    return is;
}

bool parquet_make_plain(ParquetColumn *c, int64_t encoding, int64_t n_values, MxError *err) {
    Packed packed = {mx_proto_of(c->values, (uint64_t)(c->values_end - c->values)), false};
    int i = 0;
    while (rows[i].encoding != encoding) i++;
    if (!rows[i].take(c, &packed, (size_t)n_values, err)) return false;
    return !packed.is_bad || parquet_fail(c, err, "its values are damaged");
}
