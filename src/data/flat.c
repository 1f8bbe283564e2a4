/* flat.c — FlatBuffers. */
#include "flat.h"

/* The number at a place, of 1, 2, 4 or 8 bytes; 0 from a bad buffer. */
static uint64_t number(Flat *flat, size_t at, size_t bytes) {
    uint64_t x = 0;
    if (bytes > flat->n || at > flat->n - bytes) flat->is_bad = true;
    for (size_t i = 0; i < bytes && !flat->is_bad; i++)
        x |= (uint64_t)flat->data[at + i] << (8 * i);
    return x;
}

static int64_t with_sign(uint64_t x, size_t bytes) {
    unsigned shift = 64 - 8 * (unsigned)bytes;
    return (int64_t)(x << shift) >> shift;
}

static FlatTable table_at(Flat *flat, size_t at) {
    int64_t back = with_sign(number(flat, at, 4), 4), fields = (int64_t)at - back;
    FlatTable table = {.flat = flat, .at = at};
    if (fields < 0 || (uint64_t)fields > flat->n) flat->is_bad = true;
    if (flat->is_bad) return (FlatTable){0};
    table.fields = (size_t)fields;
    table.n_fields = (size_t)number(flat, table.fields, 2);
    table.n_fields = table.n_fields < 4 ? 0 : (table.n_fields - 4) / 2;
    return table;
}

/* Where a field is; 0 = it is not there. */
static size_t place(FlatTable table, int field) {
    if (!table.flat || table.flat->is_bad || (size_t)field >= table.n_fields) return 0;
    size_t offset = (size_t)number(table.flat, table.fields + 4 + 2 * (size_t)field, 2);
    return offset ? table.at + offset : 0;
}

/* Where what a place points to is. */
static size_t follow(Flat *flat, size_t at) {
    size_t to = at + (size_t)number(flat, at, 4);
    if (to > flat->n) flat->is_bad = true;
    return flat->is_bad ? 0 : to;
}

FlatTable flat_root(Flat *flat) {
    return table_at(flat, follow(flat, 0));
}

int64_t flat_int(FlatTable table, int field, size_t bytes, int64_t missing) {
    size_t at = place(table, field);
    return at ? with_sign(number(table.flat, at, bytes), bytes) : missing;
}

FlatTable flat_table(FlatTable table, int field) {
    size_t at = place(table, field);
    return at ? table_at(table.flat, follow(table.flat, at)) : (FlatTable){0};
}

FlatVector flat_vector(FlatTable table, int field, size_t step) {
    size_t at = place(table, field);
    if (!at) return (FlatVector){0};
    size_t from = follow(table.flat, at), n = (size_t)number(table.flat, from, 4);
    if (n > (table.flat->n - from) / step) table.flat->is_bad = true;
    return table.flat->is_bad ? (FlatVector){0} : (FlatVector){table.flat, from + 4, n, step};
}

MxProto flat_text(FlatTable table, int field) {
    FlatVector text = flat_vector(table, field, 1);
    return text.n ? mx_proto_of(text.flat->data + text.at, text.n) : (MxProto){0};
}

int64_t flat_at(FlatVector vector, size_t i, size_t offset, size_t bytes) {
    MX_ASSERT(i < vector.n);
    return with_sign(number(vector.flat, vector.at + i * vector.step + offset, bytes), bytes);
}

FlatTable flat_table_at(FlatVector vector, size_t i) {
    MX_ASSERT(i < vector.n);
    return table_at(vector.flat, follow(vector.flat, vector.at + i * vector.step));
}
