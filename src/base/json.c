/* json.c — JSON; the only file that uses jansson. Roots are released with their arena; children
 * belong to their parent. */
#include <mx/base.h>

#include <ctype.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>

static json_t *unwrap(const MxJson *value) {
    return (json_t *)(uintptr_t)value;
}
static MxJson *wrap(json_t *value) {
    return (MxJson *)value;
}
static void release(void *value) {
    json_decref(value);
}

static MxJson *root(MxArena *arena, json_t *value) {
    MX_ASSERT(value);
    mx_arena_on_release(arena, release, value);
    return wrap(value);
}

MxJson *mx_json_object(MxArena *arena) {
    return root(arena, json_object());
}
static void set(MxJson *object, const char *key, json_t *value) {
    int failed = json_object_set_new(unwrap(object), key, value);
    MX_ASSERT(!failed);
}

void mx_json_set_number(MxJson *object, const char *key, double value) {
    set(object, key, isfinite(value) ? json_real(value) : json_null());
}
void mx_json_set_int(MxJson *object, const char *key, int64_t value) {
    set(object, key, json_integer(value));
}
void mx_json_set_bool(MxJson *object, const char *key, bool value) {
    set(object, key, json_boolean(value));
}

/* Text of any bytes: where it is not UTF-8, which JSON wants, bytes that are no ASCII stand there
 * in C's spelling. */
static json_t *text_of_bytes(const char *value, size_t n) {
    json_t *text = json_stringn(value, n);
    if (text) return text;
    MxArena arena = {.name = "escape"};
    MxText escaped;
    mx_text_init(&escaped, &arena);
    for (size_t i = 0; i < n; i++) {
        unsigned char byte = (unsigned char)value[i];
        if (byte < 0x80)
            mx_text_addn(&escaped, value + i, 1);
        else
            mx_text_add(&escaped, "\\x%02x", byte);
    }
    text = json_stringn(escaped.data, escaped.len);
    mx_arena_release(&arena);
    return text;
}

static json_t *text_of(const char *value) {
    return text_of_bytes(value, strlen(value));
}

void mx_json_set_string(MxJson *object, const char *key, const char *value) {
    set(object, key, text_of(value));
}
void mx_json_set(MxJson *object, const char *key, const MxJson *value) {
    set(object, key, json_incref(unwrap(value)));
}
void mx_json_remove(MxJson *object, const char *key) {
    json_object_del(unwrap(object), key);
}

MxJson *mx_json_put_object(MxJson *object, const char *key) {
    json_t *child = json_object();
    set(object, key, child);
    return wrap(child);
}

MxJson *mx_json_put_array(MxJson *object, const char *key) {
    json_t *child = json_array();
    set(object, key, child);
    return wrap(child);
}

MxJson *mx_json_push_object(MxJson *array) {
    json_t *child = json_object();
    int failed = json_array_append_new(unwrap(array), child);
    MX_ASSERT(!failed);
    return wrap(child);
}

void mx_json_push_string(MxJson *array, const char *value) {
    int failed = json_array_append_new(unwrap(array), text_of(value));
    MX_ASSERT(!failed);
}

void mx_json_push_int(MxJson *array, int64_t value) {
    int failed = json_array_append_new(unwrap(array), json_integer(value));
    MX_ASSERT(!failed);
}

/* The end of a text in quotes, behind them. */
static const char *after_string(const char *p) {
    for (p++; *p != '"'; p++) p += *p == '\\';
    return p + 1;
}

/* jansson writes 17 digits of every real; here are as few as read back the same. */
static char *with_short_reals(MxArena *arena, const char *text) {
    static const char number[] = "-+.0123456789eE";
    MxText out;
    mx_text_init(&out, arena);
    while (*text) {
        size_t n_plain = strcspn(text, "\"-0123456789");
        mx_text_addn(&out, text, n_plain);
        text += n_plain;
        const char *end = *text == '"' ? after_string(text) : text + strspn(text, number);
        if (*text != '"' && strcspn(text, ".eE") < (size_t)(end - text))
            mx_text_add(&out, "%s", mx_number_text(arena, strtod(text, NULL)));
        else
            mx_text_addn(&out, text, (size_t)(end - text));
        text = end;
    }
    return out.data;
}

void mx_json_push(MxJson *array, const MxJson *value) {
    int failed = json_array_append(unwrap(array), unwrap(value));
    MX_ASSERT(!failed);
}

char *mx_json_dump(MxArena *arena, const MxJson *value, bool indent) {
    size_t flags =
        JSON_ENCODE_ANY | JSON_REAL_PRECISION(17) | (indent ? (size_t)JSON_INDENT(1) : 0);
    size_t n = json_dumpb(unwrap(value), NULL, 0, flags);
    char *text = mx_arena_alloc(arena, n + 1);
    json_dumpb(unwrap(value), text, n, flags);
    text[n] = '\0';
    return with_short_reals(arena, text);
}

char *mx_json_quote(MxArena *arena, const char *bytes, size_t n) {
    json_t *value = text_of_bytes(bytes, n);
    size_t size = json_dumpb(value, NULL, 0, JSON_ENCODE_ANY);
    char *text = mx_arena_alloc(arena, size + 1);
    json_dumpb(value, text, size, JSON_ENCODE_ANY);
    json_decref(value);
    return text;
}

/* Behind the text that begins with a quote. */
static size_t text_end(const char *text, size_t size, size_t at) {
    for (at++; at < size && text[at] != '"'; at++) at += text[at] == '\\';
    return at < size ? at + 1 : size;
}

/* The text with a point behind whole numbers of more digits than 64 bits have, so that they are
 * reals: other programs write 1e30 so, for what has no limit. */
static MxText with_large_as_reals(MxArena *arena, const char *text, size_t size) {
    enum { DIGITS = 18 }; /* as many always fit */
    static const char number[] = "+-.eE0123456789";
    MxText out;
    mx_text_init(&out, arena);
    for (size_t at = 0, end; at < size; at = end) {
        bool is_number = isdigit((unsigned char)text[at]);
        end = text[at] == '"' ? text_end(text, size, at) : at + 1;
        while (is_number && end < size && text[end] && strchr(number, text[end])) end++;
        mx_text_addn(&out, text + at, end - at);
        size_t digits = 0;
        while (is_number && at + digits < end && isdigit((unsigned char)text[at + digits]))
            digits++;
        if (digits > DIGITS && at + digits == end) mx_text_addn(&out, ".0", 2);
    }
    return out;
}

static json_t *load(const char *text, size_t size, size_t flags, bool takes_large,
                    json_error_t *why) {
    json_t *value = json_loadb(text, size, flags, why);
    if (value || !takes_large || json_error_code(why) != json_error_numeric_overflow) return value;
    MxArena scratch = {.name = "large numbers"};
    MxText reals = with_large_as_reals(&scratch, text, size);
    value = json_loadb(reals.data, reals.len, flags, why);
    mx_arena_release(&scratch);
    return value;
}

MxJson *mx_json_parse(MxArena *arena, const char *text, size_t size, const char *name,
                      MxError *err) {
    json_error_t why;
    json_t *value = load(text, size, JSON_REJECT_DUPLICATES, true, &why);
    if (value) return root(arena, value);
    MxWhere where = {.file = name, .line = why.line, .col = why.column};
    mx_fail(err, MX_EXIT_BAD_INPUT, where, "not valid JSON: %s", why.text);
    return NULL;
}

static MxJson *parse_line(MxArena *arena, const char *text, size_t size, size_t flags,
                          bool takes_large, MxWhere where, MxError *err) {
    json_error_t why;
    json_t *value = load(text, size, flags, takes_large, &why);
    if (value) return root(arena, value);
    where.col = why.line > 1 ? why.column : where.col + why.column;
    where.line += why.line - 1;
    mx_fail(err, MX_EXIT_BAD_INPUT, where, "not valid JSON: %s", why.text);
    return NULL;
}

MxJson *mx_json_parse_line(MxArena *arena, const char *text, size_t size, MxWhere where,
                           MxError *err) {
    return parse_line(arena, text, size, JSON_ALLOW_NUL, true, where, err);
}

MxJson *mx_json_parse_value(MxArena *arena, const char *text, size_t size, MxWhere where,
                            MxError *err) {
    return parse_line(arena, text, size, JSON_ALLOW_NUL | JSON_DECODE_ANY, false, where, err);
}

MxJson *mx_json_get(const MxJson *object, const char *key) {
    return wrap(json_object_get(unwrap(object), key));
}
const char *mx_json_string(const MxJson *value) {
    return json_string_value(unwrap(value));
}

size_t mx_json_string_bytes(const MxJson *value) {
    return json_string_length(unwrap(value));
}

const char *mx_json_kind(const MxJson *value) {
    static const char *const names[] = {
        [JSON_OBJECT] = "an object",    [JSON_ARRAY] = "a list",  [JSON_STRING] = "a text",
        [JSON_INTEGER] = "a number",    [JSON_REAL] = "a number", [JSON_TRUE] = "true or false",
        [JSON_FALSE] = "true or false", [JSON_NULL] = "null",
    };
    return names[json_typeof(unwrap(value))];
}

bool mx_json_number(const MxJson *value, double *out) {
    if (!json_is_number(unwrap(value))) return false;
    *out = json_number_value(unwrap(value));
    return true;
}

bool mx_json_int(const MxJson *value, int64_t *out) {
    if (!json_is_integer(unwrap(value))) return false;
    *out = json_integer_value(unwrap(value));
    return true;
}

bool mx_json_bool(const MxJson *value, bool *out) {
    if (!json_is_boolean(unwrap(value))) return false;
    *out = json_is_true(unwrap(value));
    return true;
}

size_t mx_json_length(const MxJson *value) {
    json_t *v = unwrap(value);
    return json_is_array(v) ? json_array_size(v) : json_object_size(v);
}

MxJson *mx_json_at(const MxJson *array, size_t i) {
    return wrap(json_array_get(unwrap(array), i));
}

bool mx_json_member(const MxJson *object, size_t i, const char **key, MxJson **value) {
    void *iter = json_object_iter(unwrap(object));
    while (iter && i--) iter = json_object_iter_next(unwrap(object), iter);
    if (!iter) return false;
    *key = json_object_iter_key(iter);
    *value = wrap(json_object_iter_value(iter));
    return true;
}

bool mx_json_next(const MxJson *object, void **at, const char **key, MxJson **value) {
    json_t *o = unwrap(object);
    *at = *at ? json_object_iter_next(o, *at) : json_object_iter(o);
    if (!*at) return false;
    *key = json_object_iter_key(*at);
    *value = wrap(json_object_iter_value(*at));
    return true;
}
