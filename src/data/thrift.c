/* thrift.c — Thrift's compact protocol, as far as Parquet uses it. */
#include "thrift.h"

enum { DEEPEST = 32 };

static uint8_t take(Thrift *t) {
    if (t->at < t->end && !t->is_bad) return *t->at++;
    t->is_short |= !t->is_bad;
    t->is_bad = true;
    return 0;
}

static uint64_t varint(Thrift *t) {
    uint64_t x = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        uint8_t byte = take(t);
        x |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) return x;
    }
    t->is_bad = true;
    return 0;
}

static int64_t zigzag(Thrift *t) {
    uint64_t x = varint(t);
    return (int64_t)(x >> 1 ^ (~(x & 1) + 1));
}

static void skip_bytes(Thrift *t, uint64_t n) {
    if (n <= (uint64_t)(t->end - t->at)) {
        t->at += n;
        return;
    }
    t->is_short |= !t->is_bad;
    t->is_bad = true;
}

static void skip(Thrift *t, int type, int depth);

static uint64_t list_head(Thrift *t, int *type) {
    uint8_t head = take(t);
    *type = head & 15;
    return head >> 4 == 15 ? varint(t) : head >> 4;
}

static void skip_all(Thrift *t, uint64_t n, const int types[2], int depth) {
    for (uint64_t i = 0; i < n && !t->is_bad; i++) {
        if (types[0]) skip(t, types[0], depth);
        skip(t, types[1], depth);
    }
}

static void skip_list(Thrift *t, int depth) {
    int types[2] = {0};
    uint64_t n = list_head(t, &types[1]);
    skip_all(t, n, types, depth);
}

static void skip_map(Thrift *t, int depth) {
    uint64_t n = varint(t);
    uint8_t both = n ? take(t) : 0;
    skip_all(t, n, (const int[]){both >> 4, both & 15}, depth);
}

/* The next field's head; false at the end of the structure. */
static bool head(Thrift *t, ThriftField *field) {
    uint8_t byte = take(t);
    if (t->is_bad || !byte) return false;
    int64_t id = byte >> 4 ? field->id + (byte >> 4) : zigzag(t);
    if (id < 0 || id > INT16_MAX) t->is_bad = true;
    field->id = (int)id;
    field->type = byte & 15;
    field->is_taken = false;
    return !t->is_bad;
}

/* Elements of lists have a byte where fields have none: true and false. */
static void skip(Thrift *t, int type, int depth) {
    ThriftField field = {0};
    if (depth > DEEPEST) t->is_bad = true;
    if (t->is_bad) return;
    if (type == THRIFT_TRUE || type == THRIFT_FALSE || type == THRIFT_I8)
        take(t);
    else if (type == THRIFT_I16 || type == THRIFT_I32 || type == THRIFT_I64)
        varint(t);
    else if (type == THRIFT_DOUBLE)
        skip_bytes(t, sizeof(double));
    else if (type == THRIFT_BYTES)
        skip_bytes(t, varint(t));
    else if (type == THRIFT_LIST || type == THRIFT_SET)
        skip_list(t, depth + 1);
    else if (type == THRIFT_MAP)
        skip_map(t, depth + 1);
    else if (type == THRIFT_STRUCT)
        while (head(t, &field)) {
            if (field.type > THRIFT_FALSE) skip(t, field.type, depth + 1);
        }
    else
        t->is_bad = true;
}

bool thrift_next(Thrift *t, ThriftField *field) {
    if (field->type > THRIFT_FALSE && !field->is_taken) skip(t, field->type, 0);
    return head(t, field);
}

/* Whether the field is of a type; it is taken then. */
static bool is_type(Thrift *t, ThriftField *field, int least, int most) {
    if (field->type < least || field->type > most) t->is_bad = true;
    field->is_taken = true;
    return !t->is_bad;
}

int64_t thrift_int(Thrift *t, ThriftField *field) {
    return is_type(t, field, THRIFT_I16, THRIFT_I64) ? zigzag(t) : 0;
}

bool thrift_bool(Thrift *t, ThriftField *field) {
    return is_type(t, field, THRIFT_TRUE, THRIFT_FALSE) && field->type == THRIFT_TRUE;
}

MxProto thrift_bytes(Thrift *t, ThriftField *field) {
    uint64_t n = is_type(t, field, THRIFT_BYTES, THRIFT_BYTES) ? varint(t) : 0;
    const uint8_t *at = t->at;
    if (!t->is_bad) skip_bytes(t, n);
    return t->is_bad ? (MxProto){0} : mx_proto_of(at, n);
}

size_t thrift_list(Thrift *t, ThriftField *field, int type) {
    int found = 0;
    uint64_t n = is_type(t, field, THRIFT_LIST, THRIFT_LIST) ? list_head(t, &found) : 0;
    if ((n && found != type) || n > (uint64_t)(t->end - t->at)) t->is_bad = true;
    return t->is_bad ? 0 : (size_t)n;
}

bool thrift_struct(Thrift *t, ThriftField *field) {
    return is_type(t, field, THRIFT_STRUCT, THRIFT_STRUCT);
}
