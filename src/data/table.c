/* table.c — rows of tables as records of JSON. */
#include "table.h"

#include <math.h>

static void quote(MxText *row, const void *bytes, size_t n) {
    const char *text = bytes;
    mx_text_addn(row, "\"", 1);
    for (size_t at = 0, plain; at < n; at += plain + 1) {
        for (plain = 0; at + plain < n; plain++) {
            uint8_t byte = (uint8_t)text[at + plain];
            if (byte < 0x20 || byte == '"' || byte == '\\') break;
        }
        mx_text_addn(row, text + at, plain);
        if (at + plain < n) mx_text_add(row, "\\u%04x", (unsigned)(uint8_t)text[at + plain]);
    }
    mx_text_addn(row, "\"", 1);
}

void table_text(MxText *row, const void *bytes, size_t n) {
    size_t valid = mx_utf8_valid_bytes(bytes, n);
    if (valid == n)
        quote(row, bytes, n);
    else
        table_other(row, "bytes that are not UTF-8 (0x%02x at byte %zu)",
                    ((const uint8_t *)bytes)[valid], valid);
}

void table_real(MxText *row, double x) {
    size_t start = row->len;
    if (isfinite(x)) {
        mx_text_add(row, "%.17g", x);
        if (!strpbrk(row->data + start, ".e")) mx_text_add(row, ".0"); /* a whole number is none */
    } else {
        table_other(row, isnan(x) ? "a number that is none (NaN)" : "a number that is infinite");
    }
}

void table_other(MxText *row, const char *fmt, ...) {
    va_list ap;
    mx_text_add(row, "{\"\":\"");
    va_start(ap, fmt);
    mx_text_vadd(row, fmt, ap);
    va_end(ap);
    mx_text_add(row, "\"}");
}

void table_name(MxText *row, bool is_first, const char *name) {
    if (!is_first) mx_text_addn(row, ",", 1);
    quote(row, name, strlen(name));
    mx_text_addn(row, ":", 1);
}

/* ---- by name */

static bool get(const void *record, const char *column, Field *out) {
    Fields plain = fields_of_json(record);
    if (!plain.get(record, column, out)) return false;
    const MxJson *other = strcmp(out->kind, "an object") ? NULL : mx_json_get(out->json, "");
    if (other && mx_json_string(other)) out->kind = mx_json_string(other);
    return true;
}

bool table_parse(MxArena *arena, const char *bytes, size_t n, MxWhere where, Fields *out,
                 bool *goes_on, MxError *err) {
    MxJson *record = mx_json_parse_line(arena, bytes, n, where, err);
    *goes_on = true;
    if (!record) return false;
    *out = fields_of_json(record);
    out->get = get;
    return true;
}
