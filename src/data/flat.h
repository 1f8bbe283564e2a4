/* flat.h — private to the room: FlatBuffers, by the position of fields in tables. Nothing outside
 * of the buffer is read; wrong offsets mark it as bad. Source: google/flatbuffers, internals.md. */
#ifndef DATA_FLAT_H
#define DATA_FLAT_H

#include <mx/base.h>

typedef struct Flat {
    const uint8_t *data;
    size_t n;
    bool is_bad;
} Flat;

/* A table: where it is, and where its list of fields is. */
typedef struct FlatTable {
    Flat *flat; /* NULL = there is none; then it has no fields */
    size_t at, fields, n_fields;
} FlatTable;

typedef struct FlatVector {
    Flat *flat;
    size_t at, n, step; /* bytes of an element */
} FlatVector;

FlatTable flat_root(Flat *flat);
/* flat_int — a field of 1, 2, 4 or 8 bytes as a number with a sign; `missing` if it is not there.
 * flat_table, flat_vector, flat_text — what a field points to; nothing if it is not there. */
int64_t flat_int(FlatTable table, int field, size_t bytes, int64_t missing);
FlatTable flat_table(FlatTable table, int field);
FlatVector flat_vector(FlatTable table, int field, size_t step);
MxProto flat_text(FlatTable table, int field);
/* flat_at — a number of a vector's element, `offset` bytes inside of it. flat_table_at — the table
 * that an element points to. */
int64_t flat_at(FlatVector vector, size_t i, size_t offset, size_t bytes);
FlatTable flat_table_at(FlatVector vector, size_t i);

#endif
