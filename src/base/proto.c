/* proto.c — the encoding of protocol buffers. */
#include <mx/base.h>

MxProto mx_proto_of(const void *data, uint64_t bytes) {
    const uint8_t *at = data;
    return (MxProto){.at = at, .end = at + bytes};
}

static bool refuse(MxProto *message, const char *why) {
    message->why = why;
    return false;
}

bool mx_proto_varint(MxProto *message, uint64_t *out) {
    *out = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        if (message->at == message->end) return refuse(message, "it ends in a number");
        uint8_t byte = *message->at++;
        *out |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) return true;
    }
    return refuse(message, "a number is longer than 64 bits");
}

static bool read_fixed(MxProto *message, unsigned n, uint64_t *out) {
    if (message->end - message->at < (ptrdiff_t)n) return refuse(message, "it ends in a field");
    for (unsigned i = 0; i < n; i++) *out |= (uint64_t)*message->at++ << (8 * i);
    return true;
}

static bool read_bytes(MxProto *message, MxProtoField *out) {
    if (!mx_proto_varint(message, &out->value)) return false;
    if (out->value > (uint64_t)(message->end - message->at))
        return refuse(message, "a field is longer than what is left");
    out->bytes = mx_proto_of(message->at, out->value);
    message->at += out->value;
    return true;
}

bool mx_proto_next(MxProto *message, MxProtoField *out) {
    uint64_t tag;
    if (message->at == message->end || !mx_proto_varint(message, &tag)) return false;
    *out = (MxProtoField){.number = tag >> 3, .wire = (MxProtoWire)(tag & 7)};
    if (!out->number) return refuse(message, "a field has no number");
    switch (out->wire) {
    case MX_PROTO_VARINT:
        return mx_proto_varint(message, &out->value);
    case MX_PROTO_64:
        return read_fixed(message, 8, &out->value);
    case MX_PROTO_32:
        return read_fixed(message, 4, &out->value);
    case MX_PROTO_BYTES:
        return read_bytes(message, out);
    default: /* groups, which no message that is read here has */
        return refuse(message, "a field has a type that is not known");
    }
}
