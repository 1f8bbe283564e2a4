/* proto.c — the encoding of protocol buffers. What fields mean is their readers' matter. */
#include "proto.h"

bool proto_varint(ProtoMessage *message, uint64_t *out) {
    *out = 0;
    for (unsigned shift = 0; shift < 64 && message->at < message->end; shift += 7) {
        uint8_t byte = *message->at++;
        *out |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) return true;
    }
    return false;
}

bool proto_next(ProtoMessage *message, ProtoPart *out) {
    uint64_t tag, n = 0;
    if (!proto_varint(message, &tag)) return false;
    *out = (ProtoPart){.number = tag >> 3, .wire = (ProtoWire)(tag & 7)};
    switch (out->wire) {
    case PROTO_VARINT:
        if (!proto_varint(message, &out->value)) return false;
        break;
    case PROTO_64:
        n = 8;
        break;
    case PROTO_32:
        n = 4;
        break;
    case PROTO_BYTES:
        if (!proto_varint(message, &n)) return false;
        break;
    default: /* groups, which no message that is read here has */
        return false;
    }
    if (!out->number || n > (uint64_t)(message->end - message->at)) return false;
    if (out->wire == PROTO_BYTES) out->bytes = (ProtoMessage){message->at, message->at + n};
    message->at += n;
    return true;
}
