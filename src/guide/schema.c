/* schema.c — JSON schemas as grammars: what a schema is of, its types, choices and references. A
 * table has the words of schemas. What is not among them is an error, not ignored. */
#include "internal.h"

#include <math.h>

enum {
    OBJECT = 1 << 0,
    LIST = 1 << 1,
    TEXT = 1 << 2,
    NUMBER = 1 << 3,
    INTEGER = 1 << 4,
    BOOLEAN = 1 << 5,
    NOTHING = 1 << 6,
    NOTE = 1 << 7, /* changes no value */
    WHOLE = 1 << 8 /* of all types */
};
enum { DEEPEST = 64 };

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
    {"properties", OBJECT},
    {"required", OBJECT},
    {"additionalProperties", OBJECT},
    {"patternProperties", OBJECT},
    {"propertyNames", OBJECT},
    {"minProperties", OBJECT},
    {"maxProperties", OBJECT},
    {"items", LIST},
    {"prefixItems", LIST},
    {"additionalItems", LIST},
    {"minItems", LIST},
    {"maxItems", LIST},
    {"uniqueItems", LIST},
    {"minLength", TEXT},
    {"maxLength", TEXT},
    {"pattern", TEXT},
    {"format", TEXT},
    {"minimum", NUMBER | INTEGER},
    {"maximum", NUMBER | INTEGER},
    {"exclusiveMinimum", NUMBER | INTEGER},
    {"exclusiveMaximum", NUMBER | INTEGER},
    {"multipleOf", NUMBER | INTEGER},
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
} types[] = {{"object", OBJECT},   {"array", LIST},      {"string", TEXT}, {"number", NUMBER},
             {"integer", INTEGER}, {"boolean", BOOLEAN}, {"null", NOTHING}};

bool schema_is(const MxJson *value, const char *kind) {
    return value && !strcmp(mx_json_kind(value), kind);
}

bool schema_fail(Schemas *s, const char *member, const char *fmt, ...) {
    MxArena scratch = {.name = "message"};
    MxText text;
    va_list ap;
    mx_text_init(&text, &scratch);
    va_start(ap, fmt);
    mx_text_vadd(&text, fmt, ap);
    va_end(ap);
    mx_fail(s->err, MX_EXIT_BAD_INPUT, MX_NOWHERE, "%s: at %s%s%s: %s", s->name, s->path,
            *member ? "/" : "", member, text.data);
    mx_arena_release(&scratch);
    return false;
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

bool schema_is_note(const char *word) {
    return word_of(word) == NOTE;
}

/* What all words of a schema are of; false = an error. */
static bool read_words(Schemas *s, const MxJson *schema, unsigned *out) {
    const char *name;
    MxJson *value;
    *out = 0;
    for (void *at = NULL; mx_json_next(schema, &at, &name, &value);) {
        if (!word_of(name)) return schema_fail(s, "", "\"%.60s\" is not available", name);
        *out |= word_of(name);
    }
    return true;
}

/* A schema without one of its words, and without notes. */
static MxJson *without(Schemas *s, const MxJson *schema, const char *word) {
    MxJson *out = mx_json_object(s->g->arena);
    const char *name;
    MxJson *value;
    for (void *at = NULL; mx_json_next(schema, &at, &name, &value);)
        if (strcmp(name, word) && !schema_is_note(name)) mx_json_set(out, name, value);
    return out;
}

/* ---- types */

static unsigned type_of(const char *name) {
    for (int i = 0; name && i < MX_COUNT(types); i++)
        if (!strcmp(types[i].name, name)) return types[i].bits;
    return 0;
}

/* The types that a schema allows; where it names none, those that its words are of, or all. */
static bool read_types(Schemas *s, const MxJson *schema, unsigned words_of, unsigned *out) {
    const MxJson *type = mx_json_get(schema, "type");
    const unsigned all = OBJECT | LIST | TEXT | NUMBER | BOOLEAN | NOTHING;
    *out = 0;
    if (!type) {
        *out = words_of & (OBJECT | LIST | TEXT | NUMBER);
        if (!*out) *out = all;
        return true;
    }
    bool is_list = schema_is(type, "a list");
    for (size_t i = 0; i < (is_list ? mx_json_length(type) : 1); i++) {
        const MxJson *word = is_list ? mx_json_at(type, i) : type;
        unsigned one = type_of(mx_json_string(word));
        if (!one)
            return schema_want(s, "type", word,
                               "\"object\", \"array\", \"string\", \"number\", \"integer\", "
                               "\"boolean\", \"null\", or a list of these");
        *out |= one;
    }
    if (*out & NUMBER) *out &= ~(unsigned)INTEGER;
    return true;
}

static bool write_types(Schemas *s, const MxJson *schema, unsigned of, int32_t from, int32_t to) {
    if (of & NOTHING) mx_grammar_text(s->g, from, "null", to);
    if (of & BOOLEAN) mx_grammar_text(s->g, from, "true", to);
    if (of & BOOLEAN) mx_grammar_text(s->g, from, "false", to);
    return (!(of & OBJECT) || schema_object(s, schema, from, to)) &&
           (!(of & LIST) || schema_array(s, schema, from, to)) &&
           (!(of & TEXT) || schema_string(s, schema, from, to)) &&
           (!(of & (NUMBER | INTEGER)) || schema_number(s, schema, !(of & NUMBER), from, to));
}

int32_t schema_any(Schemas *s) {
    if (!s->g->any) {
        const char *end = s->end;
        int32_t behind;
        s->g->any = guide_rule(s->g, &behind);
        s->end = NULL;
        write_types(s, mx_json_object(s->g->arena),
                    OBJECT | LIST | TEXT | NUMBER | BOOLEAN | NOTHING, s->g->any, behind);
        s->end = end;
    }
    return s->g->any;
}

/* ---- values that are named */

static unsigned type_of_value(const MxJson *value) {
    static const struct {
        const char *kind;
        unsigned bits;
    } kinds[] = {{"an object", OBJECT},
                 {"a list", LIST},
                 {"a text", TEXT},
                 {"true or false", BOOLEAN},
                 {"null", NOTHING}};
    double number;
    for (int i = 0; i < MX_COUNT(kinds); i++)
        if (schema_is(value, kinds[i].kind)) return kinds[i].bits;
    bool is_whole = mx_json_number(value, &number) && number == floor(number);
    return is_whole ? NUMBER | INTEGER : NUMBER;
}

static bool write_values(Schemas *s, const MxJson *schema, unsigned words_of, int32_t from,
                         int32_t to) {
    const MxJson *list = mx_json_get(schema, "enum");
    const MxJson *one = mx_json_get(schema, "const");
    unsigned allowed;
    if (!read_types(s, schema, 0, &allowed)) return false;
    if (words_of & (OBJECT | LIST | TEXT | NUMBER))
        return schema_fail(s, one ? "const" : "enum", "other limits beside it are not available");
    if (one && list) return schema_fail(s, "const", "\"enum\" beside it is not available");
    if (!one && !schema_is(list, "a list")) return schema_want(s, "enum", list, "a list");
    size_t n = one ? 1 : mx_json_length(list);
    const char **texts = mx_new_n(s->g->arena, const char *, n + 1);
    int64_t n_texts = 0;
    for (size_t i = 0; i < n; i++) {
        const MxJson *value = one ? one : mx_json_at(list, i);
        const char *raw = s->end ? mx_json_string(value) : NULL;
        if (type_of_value(value) & allowed)
            texts[n_texts++] = raw ? raw : mx_json_dump(s->g->arena, value, false);
    }
    guide_choice(s->g, from, texts, n_texts, to);
    return true;
}

/* ---- choices and references */

static bool write_choices(Schemas *s, const MxJson *schema, const char *word, int32_t from,
                          int32_t to) {
    const MxJson *list = mx_json_get(schema, word), *rest = without(s, schema, word);
    if (!schema_is(list, "a list") || !mx_json_length(list))
        return schema_want(s, word, list, "a list of schemas");
    for (size_t i = 0; i < mx_json_length(list); i++) {
        const char *member = mx_arena_printf(s->g->arena, "%s/%zu", word, i);
        const MxJson *one = mx_json_at(list, i);
        if (mx_json_length(rest)) one = schema_merge(s, rest, one, 0);
        if (!one || !schema_write(s, one, member, from, to)) return false;
    }
    return true;
}

static bool write_all_of(Schemas *s, const MxJson *schema, int32_t from, int32_t to) {
    const MxJson *list = mx_json_get(schema, "allOf"), *whole = without(s, schema, "allOf");
    if (!schema_is(list, "a list")) return schema_want(s, "allOf", list, "a list of schemas");
    for (size_t i = 0; whole && i < mx_json_length(list); i++)
        whole = schema_merge(s, whole, mx_json_at(list, i), 0);
    return whole && schema_write(s, whole, "", from, to);
}

/* A part of a JSON pointer, up to the next slash, as a member's name. */
static char *read_part(MxArena *arena, const char *part, size_t n) {
    char *out = mx_arena_strndup(arena, part, n), *to = out;
    for (const char *at = out; *at; at++, to++) {
        *to = *at;
        if (at[0] != '~' || (at[1] != '0' && at[1] != '1')) continue;
        *to = at[1] == '0' ? '~' : '/';
        at++;
    }
    *to = '\0';
    return out;
}

const MxJson *schema_find(Schemas *s, const MxJson *schema) {
    const char *path = mx_json_string(mx_json_get(schema, "$ref"));
    const MxJson *at = s->root;
    if (!path || *path != '#' || (path[1] && path[1] != '/')) {
        schema_want(s, "$ref", mx_json_get(schema, "$ref"),
                    "a place in the schema itself, such as \"#/$defs/NAME\"");
        return NULL;
    }
    for (path++; at && *path; path += strcspn(path, "/")) {
        size_t n = strcspn(++path, "/");
        const char *part = read_part(s->g->arena, path, n);
        char *end = NULL;
        bool is_number = *part >= '0' && *part <= '9' && schema_is(at, "a list");
        size_t index = 0;
        for (end = (char *)(uintptr_t)part; is_number && *end >= '0' && *end <= '9'; end++)
            index = 10 * index + (size_t)(*end - '0');
        at = is_number ? mx_json_at(at, index) : mx_json_get(at, part);
    }
    if (!at) schema_fail(s, "$ref", "the schema has no such place");
    return at;
}

/* What is named becomes a rule, which is written later. */
static bool write_reference(Schemas *s, const MxJson *schema, int32_t from, int32_t to) {
    const MxJson *found = schema_find(s, schema), *rest = without(s, schema, "$ref");
    if (!found) return false;
    if (mx_json_length(rest)) {
        const MxJson *both = schema_merge(s, rest, found, 0);
        return both && schema_write(s, both, "", from, to);
    }
    const char *path = mx_json_string(mx_json_get(schema, "$ref"));
    const char *key = s->tags  ? mx_arena_printf(s->g->arena, "in tags %s", path)
                      : s->end ? mx_arena_printf(s->g->arena, "raw %s", path)
                               : path;
    int64_t rule = mx_map_get(&s->rules, key, 0);
    if (!rule) {
        if (s->n_pending == s->cap_pending) {
            int64_t cap = 2 * s->cap_pending + 16;
            s->pending = mx_arena_grow(s->g->arena, s->pending, (size_t)s->n_pending, (size_t)cap,
                                       sizeof *s->pending);
            s->cap_pending = cap;
        }
        struct Pending *one = &s->pending[s->n_pending++];
        *one =
            (struct Pending){.path = path, .schema = found, .tags = s->tags, .end_of_raw = s->end};
        one->start = guide_rule(s->g, &one->end);
        rule = one->start;
        mx_map_set(&s->rules, key, rule);
    }
    guide_call(s->g, from, (int32_t)rule, to);
    return true;
}

/* ---- */

static bool write_object(Schemas *s, const MxJson *schema, int32_t from, int32_t to) {
    unsigned words_of, of;
    const char *const choices[] = {"anyOf", "oneOf"};
    if (!read_words(s, schema, &words_of)) return false;
    if (mx_json_get(schema, "allOf")) return write_all_of(s, schema, from, to);
    if (mx_json_get(schema, "$ref")) return write_reference(s, schema, from, to);
    for (int i = 0; i < MX_COUNT(choices); i++)
        if (mx_json_get(schema, choices[i])) return write_choices(s, schema, choices[i], from, to);
    if (mx_json_get(schema, "enum") || mx_json_get(schema, "const"))
        return write_values(s, schema, words_of, from, to);
    if (!(words_of & ~(unsigned)NOTE) && !s->end && !s->tags) {
        guide_call(s->g, from, schema_any(s), to);
        return true;
    }
    bool is_free = !(words_of & ~(unsigned)NOTE);
    of = s->tags ? OBJECT : TEXT; /* what is raw and may be anything is a text */
    return (is_free || read_types(s, schema, words_of, &of)) &&
           write_types(s, schema, of, from, to);
}

bool schema_write(Schemas *s, const MxJson *schema, const char *member, int32_t from, int32_t to) {
    const char *path = s->path;
    bool is_true, ok = true;
    if (s->g->is_full) return true; /* told when it is finished */
    if (s->depth == DEEPEST)
        return schema_fail(s, "", "schemas within schemas, more than %d levels deep", DEEPEST);
    if (!schema_may_read(s, 1)) return false;
    if (*member) s->path = mx_arena_printf(s->g->arena, "%s/%.100s", path, member);
    s->depth++;
    if (mx_json_bool(schema, &is_true)) {
        if (is_true) ok = write_object(s, mx_json_object(s->g->arena), from, to);
    } else if (schema_is(schema, "an object")) {
        ok = write_object(s, schema, from, to);
    } else {
        ok = schema_want(s, "", schema, "a schema: an object, true or false");
    }
    s->depth--;
    s->path = path;
    return ok;
}

bool mx_grammar_schema(MxGrammar *g, int32_t from, const MxJson *schema, const char *name,
                       const MxGrammarTags *tags, int32_t to, MxError *err) {
    Schemas s = {.g = g, .root = schema, .name = name, .tags = tags, .path = "#", .err = err};
    mx_map_init(&s.rules, g->arena);
    bool ok = schema_write(&s, schema, "", from, to);
    for (int64_t i = 0; ok && i < s.n_pending; i++) {
        const struct Pending one = s.pending[i];
        s.path = one.path;
        s.tags = one.tags;
        s.end = one.end_of_raw;
        ok = schema_write(&s, one.schema, "", one.start, one.end);
    }
    return ok;
}

bool mx_grammar_of_schema(MxArena *arena, const MxJson *schema, const char *name, MxGrammar **out,
                          MxError *err) {
    MxGrammar *g = *out = mx_grammar_new(arena);
    int32_t start = mx_grammar_state(g);
    mx_grammar_nothing(g, MX_GRAMMAR_START, start);
    guide_set(g, MX_GRAMMAR_START, "\t\n\r ", start);
    guide_set(g, MX_GRAMMAR_END, "\t\n\r ", MX_GRAMMAR_END);
    return mx_grammar_schema(g, start, schema, name, NULL, MX_GRAMMAR_END, err) &&
           mx_grammar_finish(g, name, err);
}
