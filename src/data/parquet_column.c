/* parquet_column.c — the values of a Parquet column: levels, then values, plain or as indices into
 * a dictionary. One page of each column is in memory, and its dictionary. */
#include "parquet.h"

static uint64_t get_u64(const uint8_t *at) {
    return parquet_u32(at) | (uint64_t)parquet_u32(at + 4) << 32;
}

/* ---- runs */

static bool next_run(ParquetRuns *r) {
    uint64_t head = 0;
    unsigned shift = 0;
    for (uint8_t byte = 0x80; byte & 0x80; shift += 7) {
        if (r->at == r->end || shift > 35) return false;
        byte = *r->at++;
        head |= (uint64_t)(byte & 0x7f) << shift;
    }
    size_t left = (size_t)(r->end - r->at);
    r->is_packed = head & 1;
    r->n_left = r->is_packed ? (head >> 1) * 8 : head >> 1;
    size_t bytes = r->is_packed ? (size_t)(head >> 1) * r->width : (r->width + 7) / 8;
    if (r->is_packed && bytes > left) { /* the last group may be cut behind its last value */
        bytes = left;
        if (r->width) r->n_left = bytes * 8 / r->width;
    }
    if (bytes > left) return false;
    r->value = 0;
    for (size_t i = 0; i < bytes && !r->is_packed; i++) r->value |= (uint32_t)r->at[i] << (8 * i);
    r->packed = r->at;
    r->packed_bytes = bytes;
    r->bit = 0;
    r->at += bytes;
    return true;
}

bool parquet_runs_next(ParquetRuns *r, uint32_t *out) {
    while (!r->n_left)
        if (!next_run(r)) return false;
    r->n_left--;
    *out = r->value;
    if (!r->is_packed) return true;
    uint64_t word = 0;
    size_t byte = (size_t)(r->bit >> 3);
    for (size_t i = 0; i < 5 && byte + i < r->packed_bytes; i++)
        word |= (uint64_t)r->packed[byte + i] << (8 * i);
    *out = (uint32_t)(word >> (r->bit & 7) & ((UINT64_C(1) << r->width) - 1));
    r->bit += r->width;
    return true;
}

/* ---- values */

static const size_t sizes[PARQUET_TYPES] = {[PARQUET_INT32] = 4,
                                            [PARQUET_INT64] = 8,
                                            [PARQUET_INT96] = 12,
                                            [PARQUET_FLOAT] = 4,
                                            [PARQUET_DOUBLE] = 8};

size_t parquet_width(const ParquetNode *node) {
    return node->type == PARQUET_FIXED ? (size_t)node->length : sizes[node->type];
}

/* The next plain value but a truth; false = there is none. */
bool parquet_plain_next(const ParquetNode *node, const uint8_t **at, const uint8_t *end,
                        MxBytes *out) {
    size_t left = (size_t)(end - *at), n = parquet_width(node);
    if (node->type == PARQUET_BYTES) {
        if (left < 4) return false;
        n = parquet_u32(*at);
        *at += 4;
        left -= 4;
    }
    if (n > left) return false;
    *out = (MxBytes){(uint8_t *)(uintptr_t)*at, n};
    *at += n;
    return true;
}

/* ---- */

bool parquet_column_step(ParquetColumn *c, MxError *err) {
    uint32_t rep = 0, def = 0;
    c->has = c->n_page || c->n_left;
    c->rep = c->def = 0;
    if (!c->has) return true;
    if (!c->n_page && !parquet_next_page(c, err)) return false;
    c->n_page--;
    if ((c->node->rep && !parquet_runs_next(&c->reps, &rep)) ||
        (c->node->def && !parquet_runs_next(&c->defs, &def)))
        return parquet_fail(c, err, "it has fewer levels than values");
    if (rep > (uint32_t)c->node->rep || def > (uint32_t)c->node->def)
        return parquet_fail(c, err, "a level above %d or %d", c->node->rep, c->node->def);
    c->rep = (int)rep;
    c->def = (int)def;
    return true;
}

bool parquet_column_open(ParquetColumn *c, ParquetChunk chunk, MxError *err) {
    c->chunk = chunk;
    c->at = c->page_at = chunk.at;
    c->end = chunk.at + chunk.bytes;
    c->n_left = chunk.n_values;
    c->n_page = 0;
    c->n_dictionary = 0;
    return parquet_check_codec(c, err) && parquet_column_step(c, err);
}

static void write_value(const ParquetNode *node, MxBytes value, MxText *row) {
    const uint8_t *at = value.data;
    uint32_t u32 = node->type == PARQUET_INT32 || node->type == PARQUET_FLOAT ? parquet_u32(at) : 0;
    uint64_t u64 = node->type == PARQUET_INT64 || node->type == PARQUET_DOUBLE ? get_u64(at) : 0;
    float real;
    double wide;
    memcpy(&real, &u32, sizeof real);
    memcpy(&wide, &u64, sizeof wide);
    if (node->type == PARQUET_INT32)
        mx_text_add(row, "%lld", node->is_unsigned ? (long long)u32 : (long long)(int32_t)u32);
    else if (node->type == PARQUET_INT64 && node->is_unsigned)
        mx_text_add(row, "%llu", (unsigned long long)u64);
    else if (node->type == PARQUET_INT64)
        mx_text_add(row, "%lld", (long long)(int64_t)u64);
    else if (node->type == PARQUET_FLOAT || node->type == PARQUET_DOUBLE)
        table_real(row, node->type == PARQUET_FLOAT ? (double)real : wide);
    else if (node->is_text || node->type == PARQUET_BYTES)
        table_text(row, at, value.size);
    else
        table_other(row, "%zu bytes that are no text", value.size);
}

static bool write_truth(ParquetColumn *c, MxText *row, MxError *err) {
    uint32_t truth = 0;
    if (c->way == PARQUET_PLAIN) {
        if (c->values == c->values_end) return parquet_fail(c, err, "it ends inside its values");
        truth = *c->values >> c->bit & 1;
        c->bit = (c->bit + 1) % 8;
        c->values += !c->bit;
    } else if (!parquet_runs_next(&c->numbers, &truth)) {
        return parquet_fail(c, err, "it ends inside its values");
    }
    mx_text_add(row, truth ? "true" : "false");
    return true;
}

bool parquet_column_write(ParquetColumn *c, MxText *row, MxError *err) {
    MxBytes value = {0};
    uint32_t number = 0;
    if (c->way == PARQUET_UNREAD) {
        table_other(row, "values in the encoding %s, which is not available yet", c->unread);
        return true;
    }
    if (c->node->type == PARQUET_BOOLEAN && c->way != PARQUET_DICTIONARY)
        return write_truth(c, row, err);
    if (c->way == PARQUET_DICTIONARY) {
        if (!parquet_runs_next(&c->numbers, &number))
            return parquet_fail(c, err, "it ends inside its values");
        if (number >= c->n_dictionary)
            return parquet_fail(c, err, "value %u of a dictionary of %zu", number, c->n_dictionary);
        value = c->dictionary[number];
    } else if (!parquet_plain_next(c->node, &c->values, c->values_end, &value)) {
        return parquet_fail(c, err, "it ends inside its values");
    }
    write_value(c->node, value, row);
    return true;
}
