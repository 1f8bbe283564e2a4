/* thrift.h — private to the room: messages in Thrift's compact protocol. Source: Apache Thrift,
 * doc/specs/thrift-compact-protocol.md. */
#ifndef DATA_THRIFT_H
#define DATA_THRIFT_H

#include <mx/base.h>

/* A message that is being read. What is wrong with it is noted once, and then nothing more is
 * found in it. */
typedef struct Thrift {
    const uint8_t *at, *end;
    bool is_bad;   /* it is none, or damaged … */
    bool is_short; /* … or it ends too early */
} Thrift;

/* Types of fields. */
enum {
    THRIFT_TRUE = 1,
    THRIFT_FALSE,
    THRIFT_I8,
    THRIFT_I16,
    THRIFT_I32,
    THRIFT_I64,
    THRIFT_DOUBLE,
    THRIFT_BYTES,
    THRIFT_LIST,
    THRIFT_SET,
    THRIFT_MAP,
    THRIFT_STRUCT
};

/* A field of a structure; starts as {0}. */
typedef struct ThriftField {
    int id, type;
    bool is_taken; /* by one of the functions below; else thrift_next passes it over */
} ThriftField;

/* thrift_next — the next field of a structure; false behind the last one. */
bool thrift_next(Thrift *t, ThriftField *field);
/* thrift_int, thrift_bool — the value of a field that is one; else the message is bad. */
int64_t thrift_int(Thrift *t, ThriftField *field);
bool thrift_bool(Thrift *t, ThriftField *field);
/* thrift_bytes — they are the message's; at NULL = bad. */
MxProto thrift_bytes(Thrift *t, ThriftField *field);
/* thrift_list — how many elements of this type a list has, which are then to be read one by one;
 * at most as many as the message has bytes. thrift_struct — that a field is a structure, whose
 * fields are then to be read. */
size_t thrift_list(Thrift *t, ThriftField *field, int type);
bool thrift_struct(Thrift *t, ThriftField *field);

#endif
