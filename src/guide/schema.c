/* schema.c — JSON schemas as grammars: their types, values that they name, choices and references.
 */
#include "internal.h"

#include <math.h>

enum { DEEPEST = 64 };

MxJson *schema_without(Schemas *s, const MxJson *schema, const char *word) {
    MxJson *out = mx_json_object(s->g->arena);
    const char *name;
    MxJson *value;
    for (void *at = NULL; mx_json_next(schema, &at, &name, &value);)
        if (strcmp(name, word) && !schema_is_note(name)) mx_json_set(out, name, value);
    return out;
}

/* ---- types */

enum {
    ALL = TYPE_OBJECT | TYPE_LIST | TYPE_TEXT | TYPE_NUMBER | TYPE_BOOLEAN | TYPE_NULL,
    WORDED = TYPE_OBJECT | TYPE_LIST | TYPE_TEXT | TYPE_NUMBER
};

/* The types that a schema allows; where it names none, those that its words are of, or all. */
static bool read_types(Schemas *s, const MxJson *schema, unsigned words_of, unsigned *out) {
    const MxJson *type = mx_json_get(schema, "type");
    *out = 0;
    if (!type) {
        *out = words_of & WORDED ? words_of & WORDED : ALL;
        return true;
    }
    bool is_list = schema_is(type, "a list");
    for (size_t i = 0; i < (is_list ? mx_json_length(type) : 1); i++) {
        const MxJson *word = is_list ? mx_json_at(type, i) : type;
        unsigned one = schema_type_bits(mx_json_string(word));
        if (!one)
            return schema_want(s, "type", word,
                               "\"object\", \"array\", \"string\", \"number\", \"integer\", "
                               "\"boolean\", \"null\", or a list of these");
        *out |= one;
    }
    if (*out & TYPE_NUMBER) *out &= ~(unsigned)TYPE_INTEGER;
    return true;
}

/* Whether the atoms of "not" leave a value of a type that is named in whole. */
static bool is_left(Schemas *s, const MxJson *schema, const char *json) {
    MxError err = {0};
    const MxJson *value = mx_json_parse_value(s->g->arena, json, strlen(json), MX_NOWHERE, &err);
    const MxJson *without = mx_json_get(schema, "not");
    return !without || schema_fits(s->g->arena, s->root, without, value) == MISFIT;
}

/* Of objects and lists, none is told apart from others; what has no pattern is a text. */
static bool read_not(Schemas *s, const MxJson *schema, unsigned *of) {
    const MxJson *without = mx_json_get(schema, "not"), *atoms = mx_json_get(without, "anyOf");
    for (size_t i = 0; without && i < (atoms ? mx_json_length(atoms) : 1); i++) {
        const MxJson *values = mx_json_get(atoms ? mx_json_at(atoms, i) : without, "enum");
        if (!values) *of &= TYPE_TEXT;
        for (size_t k = 0; k < mx_json_length(values); k++)
            if (schema_type_of(mx_json_at(values, k)) & *of & (TYPE_OBJECT | TYPE_LIST))
                return schema_fail(s, "not", "objects and lists that are named are not available");
    }
    return true;
}

static bool write_types(Schemas *s, const MxJson *schema, unsigned of, int32_t from, int32_t to) {
    const MxGrammarValues *v = s->values;
    const int32_t other = mx_grammar_state(s->g);
    if (v->is_object) of &= TYPE_OBJECT;
    if (!read_not(s, schema, &of)) return false;
    mx_grammar_text(s->g, from, v->is_object ? "" : v->other, other);
    if (of & TYPE_NULL && is_left(s, schema, "null"))
        mx_grammar_text(s->g, other, v->null_word, to);
    if (of & TYPE_BOOLEAN && is_left(s, schema, "true"))
        mx_grammar_text(s->g, other, v->true_word, to);
    if (of & TYPE_BOOLEAN && is_left(s, schema, "false"))
        mx_grammar_text(s->g, other, v->false_word, to);
    s->values = v->is_object ? v : values_within(v);
    bool ok = (!(of & TYPE_OBJECT) || schema_object(s, schema, other, to)) &&
              (!(of & TYPE_LIST) || schema_array(s, schema, other, to));
    s->values = v;
    return ok && (!(of & TYPE_TEXT) || schema_string(s, schema, from, to)) &&
           (!(of & (TYPE_NUMBER | TYPE_INTEGER)) ||
            schema_number(s, schema, !(of & TYPE_NUMBER), other, to));
}

int32_t schema_any(Schemas *s) {
    const char *key = mx_arena_printf(s->g->arena, "any %p", (const void *)s->values);
    int32_t behind, rule = (int32_t)mx_map_get(&s->g->known, key, 0);
    if (rule) return rule;
    rule = guide_rule(s->g, &behind);
    mx_map_set(&s->g->known, key, rule);
    write_types(s, mx_json_object(s->g->arena), ALL, rule, behind);
    return rule;
}

/* ---- values that are named */

const MxJson *schema_values(Schemas *s, const MxJson *schema) {
    const MxJson *list = mx_json_get(schema, "enum"), *one = mx_json_get(schema, "const");
    const MxJson *rest = one ? schema : schema_without(s, schema, "enum");
    MxJson *out = mx_json_put_array(mx_json_object(s->g->arena), "list");
    if (!one && !list) return NULL;
    if (!one && !schema_is(list, "a list")) {
        schema_want(s, "enum", list, "a list");
        return NULL;
    }
    for (size_t i = 0; i < (one ? 1 : mx_json_length(list)); i++) {
        const MxJson *value = one ? one : mx_json_at(list, i);
        const Fit fit = schema_fits(s->g->arena, s->root, rest, value);
        if (fit == FIT) mx_json_push(out, value);
        if (fit != UNSURE) continue;
        schema_fail(s, one ? "const" : "enum",
                    "whether %.60s fits what stands beside it is not "
                    "available",
                    mx_json_dump(s->g->arena, value, false));
        return NULL;
    }
    return out;
}

static bool write_values(Schemas *s, const MxJson *schema, int32_t from, int32_t to) {
    const MxJson *list = schema_values(s, schema);
    const char *quotes = s->values->escapes ? s->values->quotes : " ";
    if (!list) return false;
    const size_t n = mx_json_length(list);
    const char **texts = mx_new_n(s->g->arena, const char *, strlen(quotes) * n + 1);
    int64_t n_texts = 0;
    for (const char *quote = quotes; *quote; quote++)
        for (size_t i = 0; i < n; i++) {
            const MxJson *value = mx_json_at(list, i);
            const char *text = values_write(s->g->arena, s->values, value, *quote);
            if (!text && !s->values->is_object)
                return schema_fail(s, "", "found %.60s, which cannot be written in this format",
                                   mx_json_dump(s->g->arena, value, false));
            if (text) texts[n_texts++] = text;
        }
    guide_choice(s->g, from, texts, n_texts, to);
    return true;
}

/* ---- choices */

/* Alternative i of a choice, with what stands beside it; NULL = an error. */
static const MxJson *alternative(Schemas *s, const MxJson *list, const MxJson *rest, size_t i) {
    const MxJson *one = mx_json_at(list, i);
    return mx_json_length(rest) ? schema_merge(s, rest, one, 0) : one;
}

static bool write_choices(Schemas *s, const MxJson *schema, int32_t from, int32_t to) {
    const MxJson *list = mx_json_get(schema, "anyOf"), *rest = schema_without(s, schema, "anyOf");
    if (!schema_is(list, "a list") || !mx_json_length(list))
        return schema_want(s, "anyOf", list, "a list of schemas");
    for (size_t i = 0; i < mx_json_length(list); i++) {
        const char *member = mx_arena_printf(s->g->arena, "anyOf/%zu", i);
        const MxJson *one = alternative(s, list, rest, i);
        if (!one || !schema_write(s, one, member, from, to)) return false;
    }
    return true;
}

/* Of an alternative, what is of no other one. */
static const MxJson *only_of(Schemas *s, const MxJson *list, const MxJson *rest, size_t i) {
    const MxJson *one = alternative(s, list, rest, i);
    for (size_t k = 0; one && k < mx_json_length(list); k++) {
        const char *why = NULL;
        const MxJson *other = mx_json_at(list, k);
        if (k == i || schema_excludes(s, one, other, true, 0)) continue;
        if (s->err->count) return NULL;
        const MxJson *opposite = schema_opposite(s, other, 0, &why);
        if (why)
            schema_fail(s, "oneOf",
                        "alternatives %zu and %zu are not told apart by a type, a constant or a "
                        "member, and the opposite of \"%.60s\" is not available",
                        i, k, why);
        one = opposite ? schema_merge(s, one, opposite, 0) : NULL;
    }
    return one;
}

static bool write_one_of(Schemas *s, const MxJson *schema, int32_t from, int32_t to) {
    const MxJson *list = mx_json_get(schema, "oneOf"), *rest = schema_without(s, schema, "oneOf");
    if (!schema_is(list, "a list") || !mx_json_length(list))
        return schema_want(s, "oneOf", list, "a list of schemas");
    for (size_t i = 0; i < mx_json_length(list); i++) {
        const char *member = mx_arena_printf(s->g->arena, "oneOf/%zu", i);
        const MxJson *one = only_of(s, list, rest, i);
        if (!one || !schema_write(s, one, member, from, to)) return false;
    }
    return true;
}

/* Those of its own words that could not be merged stay in it: see merge.c. */
static bool is_merged(const MxJson *schema) {
    const MxJson *list = mx_json_get(schema, "allOf");
    bool ok = mx_json_get(schema, "pattern") || mx_json_get(schema, "format");
    for (size_t i = 0; i < mx_json_length(list); i++) {
        const MxJson *one = mx_json_at(list, i);
        ok &=
            mx_json_length(one) == 1 && (mx_json_get(one, "pattern") || mx_json_get(one, "format"));
    }
    return ok;
}

static bool write_all_of(Schemas *s, const MxJson *schema, int32_t from, int32_t to) {
    const MxJson *list = mx_json_get(schema, "allOf"), *whole = schema_without(s, schema, "allOf");
    if (!schema_is(list, "a list")) return schema_want(s, "allOf", list, "a list of schemas");
    for (size_t i = 0; whole && i < mx_json_length(list); i++)
        whole = schema_merge(s, whole, mx_json_at(list, i), 0);
    return whole && schema_write(s, whole, "", from, to);
}

static bool write_condition(Schemas *s, const MxJson *schema, int32_t from, int32_t to) {
    const MxJson *open = schema_open(s, schema, 0);
    return open && schema_write(s, open, "", from, to);
}

static bool write_not(Schemas *s, const MxJson *schema, int32_t from, int32_t to) {
    const char *why = NULL;
    const MxJson *opposite = schema_opposite(s, mx_json_get(schema, "not"), 0, &why);
    if (why) return schema_fail(s, "not", "the opposite of \"%.60s\" is not available", why);
    const MxJson *rest = schema_without(s, schema, "not");
    const MxJson *both = opposite ? schema_merge(s, rest, opposite, 0) : NULL;
    return both && schema_write(s, both, "", from, to);
}

static bool is_atoms(const MxJson *schema) {
    return schema_is_atoms(mx_json_get(schema, "not"));
}

/* ---- references */

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

const MxJson *schema_at(MxArena *arena, const MxJson *root, const char *path) {
    const MxJson *at = root;
    if (!path || *path != '#' || (path[1] && path[1] != '/')) return NULL;
    for (path++; at && *path; path += strcspn(path, "/")) {
        size_t n = strcspn(++path, "/");
        const char *part = read_part(arena, path, n);
        char *end = NULL;
        bool is_number = *part >= '0' && *part <= '9' && schema_is(at, "a list");
        size_t index = 0;
        for (end = (char *)(uintptr_t)part; is_number && *end >= '0' && *end <= '9'; end++)
            index = 10 * index + (size_t)(*end - '0');
        at = is_number ? mx_json_at(at, index) : mx_json_get(at, part);
    }
    return at;
}

const MxJson *schema_find(Schemas *s, const MxJson *schema) {
    const char *path = mx_json_string(mx_json_get(schema, "$ref"));
    const MxJson *found = schema_at(s->g->arena, s->root, path);
    if (found) return found;
    if (!path || *path != '#' || (path[1] && path[1] != '/'))
        schema_want(s, "$ref", mx_json_get(schema, "$ref"),
                    "a place in the schema itself, such as \"#/$defs/NAME\"");
    else
        schema_fail(s, "$ref", "the schema has no such place");
    return NULL;
}

/* What is named becomes a rule, which is written later. */
static bool write_reference(Schemas *s, const MxJson *schema, int32_t from, int32_t to) {
    const MxJson *found = schema_find(s, schema), *rest = schema_without(s, schema, "$ref");
    if (!found) return false;
    if (mx_json_length(rest)) {
        const MxJson *both = schema_merge(s, rest, found, 0);
        return both && schema_write(s, both, "", from, to);
    }
    const char *path = mx_json_string(mx_json_get(schema, "$ref"));
    const char *key = mx_arena_printf(s->g->arena, "%p %s", (const void *)s->values, path);
    int64_t rule = mx_map_get(&s->rules, key, 0);
    if (!rule) {
        if (s->n_pending == s->cap_pending) {
            int64_t cap = 2 * s->cap_pending + 16;
            s->pending = mx_arena_grow(s->g->arena, s->pending, (size_t)s->n_pending, (size_t)cap,
                                       sizeof *s->pending);
            s->cap_pending = cap;
        }
        struct Pending *one = &s->pending[s->n_pending++];
        *one = (struct Pending){.path = path, .schema = found, .values = s->values};
        one->start = guide_rule(s->g, &one->end);
        rule = one->start;
        mx_map_set(&s->rules, key, rule);
    }
    guide_call(s->g, from, (int32_t)rule, to);
    return true;
}

/* ---- */

/* What is more than types and their words, in this order; each leaves a schema without it. */
static const struct {
    const char *word;
    bool (*write)(Schemas *s, const MxJson *schema, int32_t from, int32_t to);
    bool (*is_left)(const MxJson *schema); /* whether it stays; NULL = it does not */
} steps[] = {
    {"anyOf", write_choices, NULL},  {"oneOf", write_one_of, NULL},
    {"if", write_condition, NULL},   {"allOf", write_all_of, is_merged},
    {"$ref", write_reference, NULL}, {"not", write_not, is_atoms},
    {"enum", write_values, NULL},    {"const", write_values, NULL},
};

static bool write_object(Schemas *s, const MxJson *schema, int32_t from, int32_t to) {
    unsigned words_of, of;
    if (!schema_words(s, schema, &words_of)) return false;
    for (int i = 0; i < MX_COUNT(steps); i++)
        if (mx_json_get(schema, steps[i].word) && !(steps[i].is_left && steps[i].is_left(schema)))
            return steps[i].write(s, schema, from, to);
    if (!words_of) {
        guide_call(s->g, from, schema_any(s), to);
        return true;
    }
    return read_types(s, schema, words_of, &of) && write_types(s, schema, of, from, to);
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
                       const MxGrammarValues *values, int32_t to, MxError *err) {
    Schemas s = {.g = g, .root = schema, .name = name, .values = values, .path = "#", .err = err};
    mx_map_init(&s.rules, g->arena);
    bool ok = schema_write(&s, schema, "", from, to);
    for (int64_t i = 0; ok && i < s.n_pending; i++) {
        const struct Pending one = s.pending[i];
        s.path = one.path;
        s.values = one.values;
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
    return mx_grammar_schema(g, start, schema, name, &mx_values_json, MX_GRAMMAR_END, err) &&
           mx_grammar_finish(g, name, err);
}
