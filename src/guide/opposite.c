/* opposite.c — schemas of what is not of another one: a row for each word whose opposite is told by
 * other words. With it "not", "if" and "oneOf" become choices. What is left of "not" are atoms:
 * values, and patterns of texts. */
#include "internal.h"

enum { DEEPEST = 16, QUICK = 64 /* as many pairs of values cost what a schema does */ };

/* The opposite in the making. */
typedef struct Opposite {
    Schemas *s;
    MxJson *list; /* schemas, any of which a value may be of */
    int depth;
    const char **why; /* becomes a word whose opposite is not available */
} Opposite;

static MxJson *new_schema(Opposite *o, const char *type) {
    MxJson *out = mx_json_object(o->s->g->arena);
    if (type) mx_json_set_string(out, "type", type);
    return out;
}

static MxJson *new_list(Schemas *s) {
    return mx_json_put_array(mx_json_object(s->g->arena), "list");
}

static MxJson *new_bool(Schemas *s, bool value) {
    MxJson *holder = mx_json_object(s->g->arena);
    mx_json_set_bool(holder, "value", value);
    return mx_json_get(holder, "value");
}

/* ---- words */

/* Adds what a word's opposite is to the list; false = it is not available. */
typedef bool Word(Opposite *o, const MxJson *schema, const char *word, const MxJson *own);

/* A number that is no integer is of none of the types that are left. */
static bool not_type(Opposite *o, const MxJson *schema, const char *word, const MxJson *own) {
    static const char *const types[] = {"object",  "array",   "string", "number",
                                        "integer", "boolean", "null"};
    const bool is_list = schema_is(own, "a list");
    unsigned bits = 0;
    (void)schema, (void)word;
    for (size_t i = 0; i < (is_list ? mx_json_length(own) : 1); i++)
        bits |= schema_type_bits(mx_json_string(is_list ? mx_json_at(own, i) : own));
    MxJson *out = new_schema(o, NULL), *list = mx_json_put_array(out, "type");
    if (bits & (TYPE_NUMBER | TYPE_INTEGER)) bits |= TYPE_NUMBER | TYPE_INTEGER;
    for (int i = 0; i < MX_COUNT(types); i++)
        if (!(schema_type_bits(types[i]) & bits)) mx_json_push_string(list, types[i]);
    mx_json_push(o->list, mx_json_length(list) ? out : new_bool(o->s, false));
    return true;
}

static bool not_atom(Opposite *o, const MxJson *schema, const char *word, const MxJson *own) {
    MxJson *out = new_schema(o, !strcmp(word, "pattern") ? "string" : NULL);
    (void)schema;
    mx_json_set(mx_json_put_object(out, "not"), word, own);
    mx_json_push(o->list, out);
    return true;
}

static const struct {
    const char *word, *type, *opposite;
    int more; /* than the limit */
} limits[] = {
    {"minimum", "number", "exclusiveMaximum", 0},
    {"maximum", "number", "exclusiveMinimum", 0},
    {"exclusiveMinimum", "number", "maximum", 0},
    {"exclusiveMaximum", "number", "minimum", 0},
    {"minLength", "string", "maxLength", -1},
    {"maxLength", "string", "minLength", 1},
    {"minItems", "array", "maxItems", -1},
    {"maxItems", "array", "minItems", 1},
    {"minProperties", "object", "maxProperties", -1},
    {"maxProperties", "object", "minProperties", 1},
};

static bool not_limit(Opposite *o, const MxJson *schema, const char *word, const MxJson *own) {
    double number = 0;
    int i = 0;
    (void)schema;
    while (strcmp(limits[i].word, word)) i++;
    mx_json_number(own, &number);
    if (number + limits[i].more < 0 && limits[i].more) return true; /* every count is */
    MxJson *out = new_schema(o, limits[i].type);
    mx_json_set_number(out, limits[i].opposite, number + limits[i].more);
    mx_json_push(o->list, out);
    return true;
}

/* An object whose member of this name is of a schema. */
static MxJson *with_member(Opposite *o, const char *name, const MxJson *schema, bool is_required) {
    MxJson *out = new_schema(o, "object");
    mx_json_set(mx_json_put_object(out, "properties"), name, schema);
    if (is_required) mx_json_push_string(mx_json_put_array(out, "required"), name);
    return out;
}

static bool not_required(Opposite *o, const MxJson *schema, const char *word, const MxJson *own) {
    (void)schema, (void)word;
    for (size_t i = 0; i < mx_json_length(own); i++) {
        const char *name = mx_json_string(mx_json_at(own, i));
        if (name) mx_json_push(o->list, with_member(o, name, new_bool(o->s, false), false));
    }
    return true;
}

static MxJson *part_of(Opposite *o, const MxJson *schema) {
    return schema_opposite(o->s, schema, o->depth + 1, o->why);
}

static bool not_properties(Opposite *o, const MxJson *schema, const char *word, const MxJson *own) {
    const char *name;
    MxJson *value;
    (void)schema, (void)word;
    for (void *at = NULL; mx_json_next(own, &at, &name, &value);) {
        const MxJson *part = part_of(o, value);
        bool is_true = true;
        if (!part) return false;
        if (!mx_json_bool(part, &is_true) || is_true)
            mx_json_push(o->list, with_member(o, name, part, true));
    }
    return true;
}

static bool not_items(Opposite *o, const MxJson *schema, const char *word, const MxJson *own) {
    bool is_any = false;
    if (mx_json_bool(own, &is_any) && is_any) return true;
    const MxJson *part = part_of(o, own);
    if (!part || schema_is(own, "a list") || mx_json_get(schema, "prefixItems")) return false;
    MxJson *out = new_schema(o, "array");
    mx_json_set(out, !strcmp(word, "items") ? "contains" : "items", part);
    mx_json_push(o->list, out);
    return true;
}

static bool not_contains(Opposite *o, const MxJson *schema, const char *word, const MxJson *own) {
    bool is_counted = mx_json_get(schema, "minContains") || mx_json_get(schema, "maxContains");
    return !is_counted && not_items(o, mx_json_object(o->s->g->arena), word, own);
}

static bool not_any(Opposite *o, const MxJson *schema, const char *word, const MxJson *own) {
    MxJson *out = new_schema(o, NULL), *list = mx_json_put_array(out, "allOf");
    (void)schema, (void)word;
    for (size_t i = 0; i < mx_json_length(own); i++) {
        const MxJson *part = part_of(o, mx_json_at(own, i));
        if (!part) return false;
        mx_json_push(list, part);
    }
    mx_json_push(o->list, out);
    return true;
}

static bool not_all(Opposite *o, const MxJson *schema, const char *word, const MxJson *own) {
    (void)schema, (void)word;
    for (size_t i = 0; i < mx_json_length(own); i++) {
        const MxJson *part = part_of(o, mx_json_at(own, i));
        if (!part) return false;
        mx_json_push(o->list, part);
    }
    return true;
}

static bool not_not(Opposite *o, const MxJson *schema, const char *word, const MxJson *own) {
    (void)schema, (void)word;
    mx_json_push(o->list, own);
    return true;
}

/* Where other members may be anything, nothing is said. */
static bool not_others(Opposite *o, const MxJson *schema, const char *word, const MxJson *own) {
    bool is_any = false;
    (void)o, (void)schema, (void)word;
    return mx_json_bool(own, &is_any) && is_any;
}

static const struct {
    const char *word;
    Word *add;
} rows[] = {
    {"type", not_type},
    {"enum", not_atom},
    {"pattern", not_atom},
    {"required", not_required},
    {"properties", not_properties},
    {"additionalProperties", not_others},
    {"items", not_items},
    {"contains", not_contains},
    {"anyOf", not_any},
    {"allOf", not_all},
    {"not", not_not},
};

static bool add_word(Opposite *o, const MxJson *schema, const char *word, const MxJson *own) {
    for (int i = 0; i < MX_COUNT(rows); i++)
        if (!strcmp(rows[i].word, word)) return rows[i].add(o, schema, word, own);
    for (int i = 0; i < MX_COUNT(limits); i++)
        if (!strcmp(limits[i].word, word)) return not_limit(o, schema, word, own);
    return false;
}

MxJson *schema_opposite(Schemas *s, const MxJson *schema, int depth, const char **why) {
    Opposite o = {.s = s, .list = new_list(s), .depth = depth, .why = why};
    const char *word;
    MxJson *own, *out;
    bool is_true;
    if (mx_json_bool(schema, &is_true)) return new_bool(s, !is_true);
    if (depth > DEEPEST || !schema_may_read(s, 1)) return NULL;
    const MxJson *open = schema_open(s, schema, 0);
    if (!open) return NULL;
    if (mx_json_bool(open, &is_true)) return new_bool(s, !is_true);
    for (void *at = NULL; mx_json_next(open, &at, &word, &own);) {
        if (add_word(&o, open, word, own)) continue;
        if (!*why) *why = word;
        return NULL;
    }
    if (mx_json_length(o.list) == 1) return mx_json_at(o.list, 0);
    if (!mx_json_length(o.list)) return new_bool(s, false);
    out = mx_json_object(s->g->arena);
    mx_json_set(out, "anyOf", o.list);
    return out;
}

/* ---- "not" */

static bool is_atom(const MxJson *schema) {
    return mx_json_length(schema) == 1 &&
           (mx_json_get(schema, "enum") || mx_json_get(schema, "pattern"));
}

bool schema_is_atoms(const MxJson *schema) {
    const MxJson *list = mx_json_get(schema, "anyOf");
    if (mx_json_length(schema) != 1 || !list) return is_atom(schema);
    bool ok = mx_json_length(list) > 0;
    for (size_t i = 0; ok && i < mx_json_length(list); i++) ok = is_atom(mx_json_at(list, i));
    return ok;
}

/* ---- what two schemas have in common */

/* The value of one, if it is named, or the types that it allows. */
static unsigned types_of(const MxJson *schema) {
    const MxJson *type = mx_json_get(schema, "type"), *list = mx_json_get(schema, "enum");
    const bool is_list = schema_is(type, "a list");
    unsigned bits = 0;
    for (size_t i = 0; type && i < (is_list ? mx_json_length(type) : 1); i++)
        bits |= schema_type_bits(mx_json_string(is_list ? mx_json_at(type, i) : type));
    if (bits & TYPE_NUMBER) bits |= TYPE_INTEGER;
    for (size_t i = 0; !type && i < mx_json_length(list); i++)
        bits |= schema_type_of(mx_json_at(list, i));
    return type || list ? bits : ~0u;
}

static bool is_none_of(Schemas *s, const MxJson *values, const MxJson *schema) {
    const size_t n = mx_json_length(values), others = mx_json_length(mx_json_get(schema, "enum"));
    bool ok = schema_may_read(s, (int64_t)(n * (others + 1) / QUICK));
    for (size_t i = 0; ok && i < n; i++)
        ok = schema_fits(s->g->arena, s->root, schema, mx_json_at(values, i)) == MISFIT;
    return ok;
}

static bool is_named(const MxJson *list, const char *name) {
    for (size_t i = 0; i < mx_json_length(list); i++) {
        const char *one = mx_json_string(mx_json_at(list, i));
        if (one && !strcmp(one, name)) return true;
    }
    return false;
}

/* Whether other schemas are to be merged into one. */
static bool has_parts(const MxJson *schema) {
    static const char *const words[] = {"allOf", "anyOf", "oneOf", "not"};
    bool out = false;
    for (int i = 0; i < MX_COUNT(words); i++) out |= mx_json_get(schema, words[i]) != NULL;
    return out;
}

/* Whether nothing but what an object names is written. */
static bool is_closed(const MxJson *schema) {
    return mx_json_length(mx_json_get(schema, "properties")) && !has_parts(schema) &&
           !mx_json_get(schema, "additionalProperties") &&
           !mx_json_get(schema, "patternProperties");
}

/* The types of which values are written: without "type", those of its words. */
static unsigned types_written(Schemas *s, const MxJson *schema) {
    unsigned of = 0;
    bool is_told = mx_json_get(schema, "type") || mx_json_get(schema, "enum");
    if (!is_told && !has_parts(schema) && !schema_words(s, schema, &of)) return ~0u;
    of &= TYPE_OBJECT | TYPE_LIST | TYPE_TEXT | TYPE_NUMBER | TYPE_INTEGER;
    return of ? of : types_of(schema);
}

/* Members: one that only one of both has, or whose values exclude each other. */
static bool exclude_members(Schemas *s, const MxJson *written, const MxJson *other, bool is_whole,
                            int depth) {
    const MxJson *own = mx_json_get(written, "properties"), *value;
    const MxJson *needs = mx_json_get(other, "required"), *has = mx_json_get(written, "required");
    bool is_any = true;
    for (size_t i = 0; i < mx_json_length(needs); i++) {
        const char *name = mx_json_string(mx_json_at(needs, i));
        value = name ? mx_json_get(own, name) : NULL;
        if (name && !value && is_whole && is_closed(written) && !is_named(has, name)) return true;
        if (value && mx_json_bool(value, &is_any) && !is_any) return true;
    }
    const char *name;
    MxJson *theirs;
    for (void *at = NULL; mx_json_next(mx_json_get(other, "properties"), &at, &name, &theirs);) {
        const bool is_there = is_named(has, name) || is_named(needs, name);
        value = mx_json_get(own, name);
        if (value && is_there && schema_excludes(s, value, theirs, true, depth + 1)) return true;
    }
    bool others = true;
    mx_json_bool(mx_json_get(other, "additionalProperties"), &others);
    for (size_t i = 0; !others && i < mx_json_length(has); i++) {
        name = mx_json_string(mx_json_at(has, i));
        if (name && !mx_json_get(mx_json_get(other, "properties"), name) &&
            !mx_json_get(other, "patternProperties"))
            return true;
    }
    return false;
}

/* Whether all alternatives of one exclude another one. */
static bool exclude_choices(Schemas *s, const MxJson *of, const MxJson *other, bool is_written,
                            bool is_whole, int depth) {
    static const char *const words[] = {"anyOf", "oneOf"};
    for (int i = 0; i < MX_COUNT(words); i++) {
        const MxJson *list = mx_json_get(of, words[i]);
        bool ok = mx_json_length(list) > 0;
        for (size_t k = 0; ok && k < mx_json_length(list); k++)
            ok = is_written ? schema_excludes(s, mx_json_at(list, k), other, false, depth + 1)
                            : schema_excludes(s, other, mx_json_at(list, k), is_whole, depth + 1);
        if (ok) return true;
    }
    return false;
}

bool schema_excludes(Schemas *s, const MxJson *written, const MxJson *other, bool is_whole,
                     int depth) {
    bool is_true;
    if (mx_json_bool(written, &is_true) || mx_json_bool(other, &is_true) || depth > DEEPEST)
        return (mx_json_bool(written, &is_true) && !is_true) ||
               (mx_json_bool(other, &is_true) && !is_true);
    const MxJson *one = mx_json_get(written, "const"), *another = mx_json_get(other, "const");
    if (one && another && !json_is_same(one, another))
        return ++s->n_quick % QUICK || schema_may_read(s, 1);
    if (!schema_may_read(s, 1) || !(written = schema_open(s, written, 0)) ||
        !(other = schema_open(s, other, 0)))
        return false;
    if (mx_json_bool(written, &is_true) || mx_json_bool(other, &is_true))
        return schema_excludes(s, written, other, is_whole, depth + 1);
    const unsigned common =
        (is_whole ? types_written(s, written) : types_of(written)) & types_of(other);
    if (!common) return true;
    const MxJson *named = mx_json_get(written, "enum"), *theirs = mx_json_get(other, "enum");
    if ((named && is_none_of(s, named, other)) || (theirs && is_none_of(s, theirs, written)))
        return true;
    if (exclude_choices(s, written, other, true, false, depth) ||
        exclude_choices(s, other, written, false, is_whole, depth))
        return true;
    return common == TYPE_OBJECT && exclude_members(s, written, other, is_whole, depth);
}
