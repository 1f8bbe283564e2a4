/* example.c — tf.train.Example, a message of protocol buffers: a map from names to lists of bytes,
 * reals or whole numbers. Source: tensorflow/core/example, example.proto and feature.proto. */
#include "fields.h"

/* ---- features */

typedef struct Feature {
    const char *name; /* [name_bytes] */
    size_t name_bytes;
    Field field;
    MxProto whole; /* its list of whole numbers; at NULL = it has none */
} Feature;

typedef struct Example {
    MxArena *arena;
    Feature *feature;
    size_t n, cap;
} Example;

/* BytesList, FloatList or Int64List. */
static bool read_list(uint64_t kind, MxProto list, Feature *out) {
    enum { BYTES = 1, INTS = 3 };
    MxProto value = {0}, all = list;
    size_t n = 0;
    MxProtoField part;
    while (list.at < list.end) {
        if (!mx_proto_next(&list, &part)) return false;
        if (part.number != 1) continue;
        if (kind == BYTES && part.wire != MX_PROTO_BYTES) return false;
        value = part.bytes;
        n++;
    }
    const char *name = kind == BYTES ? "a list of texts" : "a list of numbers";
    *out = (Feature){.field = {.kind = n ? name : "null"}};
    if (kind == INTS && n) out->whole = all;
    if (kind == BYTES && n == 1)
        out->field = (Field){.kind = "a text",
                             .text = (const char *)value.at,
                             .bytes = (size_t)(value.end - value.at)};
    return true;
}

/* Feature: one of three lists, of which the last counts. */
static bool read_feature(MxProto feature, Feature *out) {
    enum { LISTS = 3 };
    MxProtoField part;
    *out = (Feature){.field = {.kind = "null"}};
    while (feature.at < feature.end) {
        if (!mx_proto_next(&feature, &part)) return false;
        if (part.number > LISTS) continue;
        if (part.wire != MX_PROTO_BYTES || !read_list(part.number, part.bytes, out)) return false;
    }
    return true;
}

/* An entry of the map: 1 = key, 2 = value. */
static bool read_entry(Example *example, MxProto entry) {
    MxProtoField part;
    Feature found = {.field = {.kind = "null"}};
    const char *name = "";
    size_t name_bytes = 0;
    while (entry.at < entry.end) {
        if (!mx_proto_next(&entry, &part)) return false;
        if (part.number > 2) continue;
        if (part.wire != MX_PROTO_BYTES) return false;
        if (part.number == 2) {
            if (!read_feature(part.bytes, &found)) return false;
        } else {
            name = (const char *)part.bytes.at;
            name_bytes = (size_t)(part.bytes.end - part.bytes.at);
        }
    }
    found.name = name;
    found.name_bytes = name_bytes;
    if (example->n == example->cap) {
        example->cap = example->cap ? 2 * example->cap : 8;
        example->feature = mx_arena_grow(example->arena, example->feature, example->n, example->cap,
                                         sizeof *example->feature);
    }
    example->feature[example->n++] = found;
    return true;
}

/* Example and Features: 1 = what they hold. */
static bool read_features(Example *example, MxProto message) {
    MxProtoField part, entry;
    while (message.at < message.end) {
        if (!mx_proto_next(&message, &part)) return false;
        if (part.number != 1) continue;
        if (part.wire != MX_PROTO_BYTES) return false;
        for (MxProto features = part.bytes; features.at < features.end;) {
            if (!mx_proto_next(&features, &entry)) return false;
            if (entry.number != 1) continue;
            if (entry.wire != MX_PROTO_BYTES || !read_entry(example, entry.bytes)) return false;
        }
    }
    return true;
}

/* ---- by name */

/* Bytes that are wanted as a text; told with their place if they are none. */
static Field text_of(MxArena *arena, Field field) {
    size_t valid = mx_utf8_valid_bytes(field.text, field.bytes);
    if (valid == field.bytes) return field;
    return (Field){.kind = mx_arena_printf(arena, "bytes that are not UTF-8 (0x%02x at byte %zu)",
                                           (uint8_t)field.text[valid], valid)};
}

/* Whole numbers, packed or each by itself. */
static bool read_numbers(MxProto list, int64_t *out, size_t *n) {
    MxProtoField part;
    uint64_t value;
    while (list.at < list.end) {
        if (!mx_proto_next(&list, &part)) return false;
        if (part.number != 1) continue;
        if (part.wire == MX_PROTO_VARINT) out[(*n)++] = (int64_t)part.value;
        while (part.wire == MX_PROTO_BYTES && part.bytes.at < part.bytes.end) {
            if (!mx_proto_varint(&part.bytes, &value)) return false;
            out[(*n)++] = (int64_t)value;
        }
    }
    return true;
}

static Field numbers_of(MxArena *arena, MxProto list) {
    int64_t *numbers =
        mx_new_n(arena, int64_t, list.end - list.at); /* each takes a byte at least */
    Field field = {.kind = "a list of numbers", .numbers = numbers};
    if (read_numbers(list, numbers, &field.n_numbers)) return field;
    return (Field){.kind = "a damaged list of numbers"};
}

/* Of a repeated name the last counts, as in any map of protocol buffers. */
static bool example_get(const void *record, const char *column, Field *out) {
    const Example *example = record;
    size_t n = strlen(column);
    for (size_t i = example->n; i-- > 0;) {
        const Feature *feature = &example->feature[i];
        if (feature->name_bytes != n || memcmp(feature->name, column, n)) continue;
        *out = feature->field.text ? text_of(example->arena, feature->field)
               : feature->whole.at ? numbers_of(example->arena, feature->whole)
                                   : feature->field;
        return true;
    }
    return false;
}

static const char *example_name(const void *record, size_t i) {
    const Example *example = record;
    if (i >= example->n) return NULL;
    const Feature *feature = &example->feature[i];
    return mx_arena_strndup(example->arena, feature->name, feature->name_bytes);
}

bool example_parse(MxArena *arena, const char *bytes, size_t n, MxWhere where, Fields *out,
                   bool *goes_on, MxError *err) {
    Example *example = mx_new(arena, Example);
    *goes_on = true;
    example->arena = arena;
    const uint8_t *at = (const uint8_t *)bytes;
    *out = (Fields){example, example_get, example_name};
    bool is_message = read_features(example, mx_proto_of(at, n));
    if (is_message && example->n) return true;
    return mx_fail(err, MX_EXIT_BAD_INPUT, where,
                   "%s, wanted a tf.train.Example with its texts in features of bytes",
                   is_message ? "has no features" : "is no tf.train.Example, or damaged");
}
