/* json.c — fuzz target for reading JSON: bytes are a value or an error, never both and never
 * neither; a value can be walked, and survives being printed and read again. */
#include <mx/base.h>

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Looks at everything one level down with every getter. */
static void look(const MxJson *value) {
    const char *key;
    MxJson *member;
    double number;
    int64_t integer;
    bool flag;
    size_t n = mx_json_length(value);
    for (size_t i = 0; i < n && i < 16; i++) { /* finding member i takes i steps */
        bool is_member = mx_json_member(value, i, &key, &member);
        const MxJson *child = is_member ? member : mx_json_at(value, i);
        if (!child || (is_member && mx_json_get(value, key) != member)) abort();
        if (mx_json_int(child, &integer) && !mx_json_number(child, &number)) abort();
        if (mx_json_string(child) && mx_json_bool(child, &flag)) abort();
    }
    if (mx_json_member(value, n, &key, &member) || mx_json_at(value, n)) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    MxArena arena = {.name = "fuzz"};
    MxError err = {0};
    MxJson *value = mx_json_parse(&arena, (const char *)data, size, "fuzz", &err);
    if ((value != NULL) != (err.count == 0)) abort();
    if (!value && err.exit != MX_EXIT_BAD_INPUT) abort();
    if (value) {
        look(value);
        const char *text = mx_json_dump(&arena, value, false);
        MxJson *again = mx_json_parse(&arena, text, strlen(text), "again", &err);
        if (!again || strcmp(text, mx_json_dump(&arena, again, false))) abort();
        const char *lines = mx_json_dump(&arena, value, true);
        again = mx_json_parse(&arena, lines, strlen(lines), "lines", &err);
        if (!again || strcmp(text, mx_json_dump(&arena, again, false))) abort();
    }
    mx_error_release(&err);
    mx_arena_release(&arena);
    return 0;
}
