/* words.c — the words and types of schemas, and errors at them. What is not among the words is an
 * error, not ignored. */
#include "internal.h"

#include <math.h>

enum {
    NUMBERS = TYPE_NUMBER | TYPE_INTEGER,
    NOTE = 1 << 7, /* changes no value */
    WHOLE = 1 << 8 /* of all types */
};

static const struct {
    const char *name;
    unsigned of; /* types that it says something of */
} words[] = {
    {"type", WHOLE},
    {"enum", WHOLE},
    {"const", WHOLE},
    {"anyOf", WHOLE},
    {"oneOf", WHOLE},
    {"allOf", WHOLE},
    {"$ref", WHOLE},
    {"not", WHOLE},
    {"if", WHOLE},
    {"then", WHOLE},
    {"else", WHOLE},
    {"properties", TYPE_OBJECT},
    {"required", TYPE_OBJECT},
    {"additionalProperties", TYPE_OBJECT},
    {"patternProperties", TYPE_OBJECT},
    {"propertyNames", TYPE_OBJECT},
    {"minProperties", TYPE_OBJECT},
    {"maxProperties", TYPE_OBJECT},
    {"items", TYPE_LIST},
    {"prefixItems", TYPE_LIST},
    {"additionalItems", TYPE_LIST},
    {"minItems", TYPE_LIST},
    {"maxItems", TYPE_LIST},
    {"uniqueItems", TYPE_LIST},
    {"contains", TYPE_LIST},
    {"minContains", TYPE_LIST},
    {"maxContains", TYPE_LIST},
    {"minLength", TYPE_TEXT},
    {"maxLength", TYPE_TEXT},
    {"pattern", TYPE_TEXT},
    {"format", TYPE_TEXT},
    {"minimum", NUMBERS},
    {"maximum", NUMBERS},
    {"exclusiveMinimum", NUMBERS},
    {"exclusiveMaximum", NUMBERS},
    {"multipleOf", NUMBERS},
    {"title", NOTE},
    {"description", NOTE},
    {"default", NOTE},
    {"example", NOTE},
    {"examples", NOTE},
    {"deprecated", NOTE},
    {"readOnly", NOTE},
    {"writeOnly", NOTE},
    {"discriminator", NOTE},
    {"contentEncoding", NOTE},
    {"contentMediaType", NOTE},
    {"$schema", NOTE},
    {"$id", NOTE},
    {"$comment", NOTE},
    {"$defs", NOTE},
    {"definitions", NOTE},
    {"strict", NOTE},
};

static const struct {
    const char *name;
    unsigned bits;
} types[] = {{"object", TYPE_OBJECT}, {"array", TYPE_LIST},      {"string", TYPE_TEXT},
             {"number", TYPE_NUMBER}, {"integer", TYPE_INTEGER}, {"boolean", TYPE_BOOLEAN},
             {"null", TYPE_NULL}};

bool schema_is(const MxJson *value, const char *kind) {
    return value && !strcmp(mx_json_kind(value), kind);
}

/* ---- errors */

bool schema_fail(Schemas *s, const char *member, const char *fmt, ...) {
    MxArena scratch = {.name = "message"};
    va_list ap;
    va_start(ap, fmt);
    const char *text = mx_arena_vprintf(&scratch, fmt, ap);
    va_end(ap);
    mx_fail(s->err, MX_EXIT_BAD_INPUT, MX_NOWHERE, "%s: at %s%s%s: %s", s->name, s->path,
            *member ? "/" : "", member, text);
    mx_arena_release(&scratch);
    return false;
}

bool schema_want(Schemas *s, const char *member, const MxJson *found, const char *wanted) {
    return schema_fail(s, member, "found %.60s, wanted %s", mx_json_dump(s->g->arena, found, false),
                       wanted);
}

bool schema_may_read(Schemas *s, int64_t cost) {
    enum { MOST = 1 << 16 };
    s->n_read += cost;
    return s->n_read <= MOST || schema_fail(s, "", "too many schemas");
}

bool schema_count(Schemas *s, const MxJson *schema, const char *member, int64_t *out) {
    const MxJson *value = mx_json_get(schema, member);
    double number;
    if (!value) return true;
    if (!mx_json_number(value, &number) || number < 0 || number != floor(number))
        return schema_want(s, member, value, "an integer, 0 or more");
    *out = number < GUIDE_UNBOUNDED ? (int64_t)number : GUIDE_UNBOUNDED;
    return true;
}

/* ---- words */

static unsigned word_of(const char *name) {
    for (int i = 0; i < MX_COUNT(words); i++)
        if (!strcmp(words[i].name, name)) return words[i].of;
    return 0;
}

bool schema_knows(const char *word) {
    return word_of(word) != 0;
}

bool schema_is_note(const char *word) {
    return word_of(word) == NOTE;
}

bool schema_words(Schemas *s, const MxJson *schema, unsigned *out) {
    const char *name;
    MxJson *value;
    *out = 0;
    for (void *at = NULL; mx_json_next(schema, &at, &name, &value);) {
        if (!word_of(name)) return schema_fail(s, "", "\"%.60s\" is not available", name);
        *out |= word_of(name) & ~(unsigned)NOTE;
    }
    return true;
}

/* ---- types */

unsigned schema_type_bits(const char *name) {
    for (int i = 0; name && i < MX_COUNT(types); i++)
        if (!strcmp(types[i].name, name)) return types[i].bits;
    return 0;
}

unsigned schema_type_of(const MxJson *value) {
    static const struct {
        const char *kind;
        unsigned bits;
    } kinds[] = {{"an object", TYPE_OBJECT},
                 {"a list", TYPE_LIST},
                 {"a text", TYPE_TEXT},
                 {"true or false", TYPE_BOOLEAN},
                 {"null", TYPE_NULL}};
    double number;
    for (int i = 0; i < MX_COUNT(kinds); i++)
        if (schema_is(value, kinds[i].kind)) return kinds[i].bits;
    bool is_whole = mx_json_number(value, &number) && number == floor(number);
    return is_whole ? NUMBERS : TYPE_NUMBER;
}
