/* fields.c — JSON and plain text records by the names of their columns; those of tf.train.Example
 * are in example.c. */
#include "fields.h"

static bool json_get(const void *record, const char *column, Field *out) {
    const MxJson *value = mx_json_get(record, column);
    if (!value) return false;
    *out = (Field){.kind = mx_json_kind(value),
                   .text = mx_json_string(value),
                   .bytes = mx_json_string_bytes(value),
                   .json = value};
    return true;
}

static const char *json_name(const void *record, size_t i) {
    const char *name;
    MxJson *value;
    return mx_json_member(record, i, &name, &value) ? name : NULL;
}

Fields fields_of_json(const MxJson *object) {
    return (Fields){object, json_get, json_name};
}

static const char text_column[] = "text";

static bool text_get(const void *record, const char *column, Field *out) {
    if (strcmp(column, text_column)) return false;
    *out = *(const Field *)record;
    return true;
}

static const char *text_name(const void *record, size_t i) {
    (void)record;
    return i ? NULL : text_column;
}

Fields fields_of_text(MxArena *arena, const char *text, size_t bytes) {
    Field *field = mx_new(arena, Field);
    *field = (Field){.kind = "a text", .text = text, .bytes = bytes};
    return (Fields){field, text_get, text_name};
}
