/* proto.h — private to the room: messages of protocol buffers, field by field. */
#ifndef DATA_PROTO_H
#define DATA_PROTO_H

#include <mx/base.h>

/* What is left of a message. */
typedef struct ProtoMessage {
    const uint8_t *at, *end;
} ProtoMessage;

typedef enum ProtoWire { PROTO_VARINT, PROTO_64, PROTO_BYTES, PROTO_32 = 5 } ProtoWire;

/* One field of a message. */
typedef struct ProtoPart {
    uint64_t number;
    ProtoWire wire;
    uint64_t value;     /* of PROTO_VARINT */
    ProtoMessage bytes; /* of PROTO_BYTES: a message, a text, or numbers */
} ProtoPart;

/* proto_varint — a number of 1 to 10 bytes; false when there is none. proto_next — the next field;
 * false when the message is damaged, or at its end. Source: protobuf.dev, Encoding. */
bool proto_varint(ProtoMessage *message, uint64_t *out);
bool proto_next(ProtoMessage *message, ProtoPart *out);

#endif
