/* merge.c — what is of two schemas, as one schema: a row for each word that both may have. */
#include "internal.h"

enum { DEEPEST = 32, COST = 32 /* of as many schemas that are only read */ };

/* What becomes of a word's two values; NULL = an error. */
typedef const MxJson *Merge(Schemas *s, const char *word, const MxJson *a, const MxJson *b,
                            int depth);

static const MxJson *fail(Schemas *s, const char *word, const char *why) {
    schema_fail(s, word, "%s", why);
    return NULL;
}

static bool are_equal(Schemas *s, const MxJson *a, const MxJson *b) {
    return !strcmp(mx_json_dump(s->g->arena, a, false), mx_json_dump(s->g->arena, b, false));
}

static MxJson *new_list(Schemas *s) {
    return mx_json_put_array(mx_json_object(s->g->arena), "list");
}

static bool is_apart(const char *word) {
    static const char *const words[] = {"anyOf", "oneOf", "pattern", "format"};
    for (int i = 0; i < MX_COUNT(words); i++)
        if (!strcmp(words[i], word)) return true;
    return false;
}

static const MxJson *merge_equal(Schemas *s, const char *word, const MxJson *a, const MxJson *b,
                                 int depth) {
    (void)depth;
    return are_equal(s, a, b) ? a : fail(s, word, "two of them in one value are not available");
}

/* What is of neither. Values are one list. */
static const MxJson *merge_not(Schemas *s, const char *word, const MxJson *a, const MxJson *b,
                               int depth) {
    MxJson *out = mx_json_object(s->g->arena), *list = mx_json_put_array(out, "anyOf");
    const MxJson *const both[] = {a, b};
    (void)word, (void)depth;
    for (int i = 0; i < MX_COUNT(both); i++) {
        const MxJson *atoms = mx_json_get(both[i], "anyOf");
        if (atoms && mx_json_length(both[i]) == 1)
            for (size_t k = 0; k < mx_json_length(atoms); k++)
                mx_json_push(list, mx_json_at(atoms, k));
        else
            mx_json_push(list, both[i]);
    }
    return out;
}

/* Of two integers, what both divide. */
static const MxJson *merge_multiples(Schemas *s, const char *word, const MxJson *a, const MxJson *b,
                                     int depth) {
    enum { MOST = 1 << 30 };
    int64_t x, y;
    if (!mx_json_int(a, &x) || !mx_json_int(b, &y) || x < 1 || y < 1 || x > MOST || y > MOST)
        return merge_equal(s, word, a, b, depth);
    int64_t common = x, rest = y;
    while (rest) {
        const int64_t next = common % rest;
        common = rest, rest = next;
    }
    MxJson *out = mx_json_object(s->g->arena);
    mx_json_set_int(out, word, x / common * y);
    return mx_json_get(out, word);
}

/* Of two numbers the larger one, or the smaller one. */
static const MxJson *nearer(Schemas *s, const char *word, const MxJson *a, const MxJson *b,
                            bool is_larger) {
    double x, y;
    if (!mx_json_number(a, &x) || !mx_json_number(b, &y)) return fail(s, word, "wanted a number");
    return (is_larger ? x > y : x < y) ? a : b;
}

static const MxJson *merge_low(Schemas *s, const char *word, const MxJson *a, const MxJson *b,
                               int depth) {
    (void)depth;
    return nearer(s, word, a, b, true);
}

static const MxJson *merge_high(Schemas *s, const char *word, const MxJson *a, const MxJson *b,
                                int depth) {
    (void)depth;
    return nearer(s, word, a, b, false);
}

static const MxJson *merge_union(Schemas *s, const char *word, const MxJson *a, const MxJson *b,
                                 int depth) {
    MxJson *out = new_list(s);
    (void)word, (void)depth;
    for (size_t i = 0; i < mx_json_length(a); i++) mx_json_push(out, mx_json_at(a, i));
    for (size_t i = 0; i < mx_json_length(b); i++) mx_json_push(out, mx_json_at(b, i));
    return out;
}

static bool has(Schemas *s, const MxJson *list, const MxJson *value) {
    for (size_t i = 0; i < mx_json_length(list); i++)
        if (are_equal(s, mx_json_at(list, i), value)) return true;
    return false;
}

static const MxJson *merge_common(Schemas *s, const char *word, const MxJson *a, const MxJson *b,
                                  int depth) {
    enum { MOST = 1 << 20 };
    MxJson *out = new_list(s);
    (void)depth;
    if (mx_json_length(a) * mx_json_length(b) > MOST) return fail(s, word, "too many values");
    for (size_t i = 0; i < mx_json_length(a); i++)
        if (has(s, b, mx_json_at(a, i))) mx_json_push(out, mx_json_at(a, i));
    return out;
}

/* A type, or a list of types, as a list, in which a number may be an integer. */
static const MxJson *merge_types(Schemas *s, const char *word, const MxJson *a, const MxJson *b,
                                 int depth) {
    MxJson *list[2] = {new_list(s), new_list(s)}, *out = new_list(s);
    const MxJson *const of[2] = {a, b};
    (void)word, (void)depth;
    for (int k = 0; k < 2; k++) {
        bool is_list = schema_is(of[k], "a list");
        for (size_t i = 0; i < (is_list ? mx_json_length(of[k]) : 1); i++) {
            const MxJson *one = is_list ? mx_json_at(of[k], i) : of[k];
            const char *name = mx_json_string(one);
            mx_json_push(list[k], one);
            if (name && !strcmp(name, "number")) mx_json_push_string(list[k], "integer");
        }
    }
    for (size_t i = 0; i < mx_json_length(list[0]); i++)
        if (has(s, list[1], mx_json_at(list[0], i))) mx_json_push(out, mx_json_at(list[0], i));
    return out;
}

static const MxJson *merge_schemas(Schemas *s, const char *word, const MxJson *a, const MxJson *b,
                                   int depth) {
    (void)word;
    return schema_merge(s, a, b, depth + 1);
}

/* Objects of schemas are merged with those of objects, below. */
static const MxJson *keep(Schemas *s, const char *word, const MxJson *a, const MxJson *b,
                          int depth) {
    (void)s, (void)word, (void)b, (void)depth;
    return a;
}

static const struct {
    const char *word;
    Merge *merge;
} rows[] = {
    {"type", merge_types},
    {"enum", merge_common},
    {"required", merge_union},
    {"allOf", merge_union},
    {"not", merge_not},
    {"multipleOf", merge_multiples},
    {"properties", keep},
    {"additionalProperties", keep},
    {"items", merge_schemas},
    {"propertyNames", merge_schemas},
    {"minItems", merge_low},
    {"maxItems", merge_high},
    {"minLength", merge_low},
    {"maxLength", merge_high},
    {"minProperties", merge_low},
    {"maxProperties", merge_high},
    {"minimum", merge_low},
    {"maximum", merge_high},
    {"exclusiveMinimum", merge_low},
    {"exclusiveMaximum", merge_high},
};

static const MxJson *merge_word(Schemas *s, const char *word, const MxJson *a, const MxJson *b,
                                int depth) {
    for (int i = 0; i < MX_COUNT(rows); i++)
        if (!strcmp(rows[i].word, word)) return rows[i].merge(s, word, a, b, depth);
    return merge_equal(s, word, a, b, depth);
}

/* Words that are of what another word of the same schema leaves. */
static bool check_others(Schemas *s, const MxJson *a, const MxJson *b) {
    static const char *const words[][2] = {{"items", "prefixItems"},
                                           {"additionalProperties", "patternProperties"}};
    const MxJson *const both[] = {a, b};
    for (int i = 0; i < MX_COUNT(words); i++)
        for (int k = 0; k < MX_COUNT(both); k++)
            if (mx_json_get(both[k], words[i][0]) && !mx_json_get(both[k], words[i][1]) &&
                mx_json_get(both[!k], words[i][1]))
                return schema_fail(s, words[i][0], "\"%s\" of another one is not available",
                                   words[i][1]);
    return true;
}

/* ---- members of objects */

/* What a schema says of a member; NULL = nothing. */
static const MxJson *schema_of(const MxJson *schema, const char *name) {
    const MxJson *own = mx_json_get(mx_json_get(schema, "properties"), name);
    return own ? own : mx_json_get(schema, "additionalProperties");
}

static const MxJson *merge_or_keep(Schemas *s, const MxJson *a, const MxJson *b, int depth) {
    return a && b ? schema_merge(s, a, b, depth + 1) : a ? a : b;
}

static bool merge_members(Schemas *s, MxJson *out, const MxJson *a, const MxJson *b, int depth) {
    const MxJson *of[] = {mx_json_get(a, "properties"), mx_json_get(b, "properties")};
    const MxJson *others = merge_or_keep(s, mx_json_get(a, "additionalProperties"),
                                         mx_json_get(b, "additionalProperties"), depth);
    const char *name;
    MxJson *value;
    if (s->err->count) return false;
    if (others) mx_json_set(out, "additionalProperties", others);
    if (!of[0] && !of[1]) return true;
    MxJson *properties = mx_json_put_object(out, "properties");
    for (int k = 0; k < MX_COUNT(of); k++)
        for (void *at = NULL; mx_json_next(of[k], &at, &name, &value);) {
            const MxJson *one = merge_or_keep(s, schema_of(a, name), schema_of(b, name), depth);
            if (!one) return false;
            mx_json_set(properties, name, one);
        }
    return true;
}

/* ---- */

static MxJson *new_bool(Schemas *s, bool value) {
    MxJson *holder = mx_json_object(s->g->arena);
    mx_json_set_bool(holder, "value", value);
    return mx_json_get(holder, "value");
}

/* What "if", "then" and "else" say, as a choice that is added to "allOf". */
static void add_condition(Schemas *s, const MxJson *schema, MxJson *out) {
    static const char *const words[] = {"then", "else"};
    const MxJson *condition = mx_json_get(schema, "if"), *known = mx_json_get(out, "allOf");
    MxJson *choice = mx_json_object(s->g->arena), *list = mx_json_put_array(choice, "anyOf");
    MxJson *all = new_list(s);
    for (int i = 0; condition && i < MX_COUNT(words); i++) {
        const MxJson *own = mx_json_get(schema, words[i]);
        MxJson *both = mx_json_put_array(mx_json_push_object(list), "allOf");
        if (i)
            mx_json_set(mx_json_push_object(both), "not", condition);
        else
            mx_json_push(both, condition);
        if (own) mx_json_push(both, own);
    }
    for (size_t i = 0; i < mx_json_length(known); i++) mx_json_push(all, mx_json_at(known, i));
    if (condition) mx_json_push(all, choice);
    if (mx_json_length(all)) mx_json_set(out, "allOf", all);
}

/* Without notes, and one value as a list of values. */
static MxJson *as_merged(Schemas *s, const MxJson *schema) {
    static const char *const others[] = {"$ref", "const", "enum", "if", "then", "else"};
    static const char *const counts[] = {"minContains", "maxContains"};
    MxJson *out = mx_json_object(s->g->arena), *value;
    const MxJson *one = mx_json_get(schema, "const"), *list = mx_json_get(schema, "enum");
    const char *name;
    for (void *at = NULL; mx_json_next(schema, &at, &name, &value);)
        if (!schema_is_note(name)) mx_json_set(out, name, value);
    for (int i = 0; i < MX_COUNT(others); i++) mx_json_remove(out, others[i]);
    for (int i = 0; i < MX_COUNT(counts) && !mx_json_get(schema, "contains"); i++)
        mx_json_remove(out, counts[i]);
    if (one || list) {
        MxJson *values = mx_json_put_array(out, "enum");
        for (size_t i = 0; i < mx_json_length(list); i++)
            if (!one || json_is_same(one, mx_json_at(list, i)))
                mx_json_push(values, mx_json_at(list, i));
        if (one && !list) mx_json_push(values, one);
    }
    add_condition(s, schema, out);
    return out;
}

const MxJson *schema_open(Schemas *s, const MxJson *schema, int depth) {
    const bool refers = mx_json_get(schema, "$ref") != NULL;
    const MxJson *found = refers ? schema_find(s, schema) : NULL;
    if (refers && !found) return NULL;
    MxJson *out = as_merged(s, schema);
    return refers ? schema_merge(s, out, found, depth + 1) : out;
}

/* What cannot be one word is a schema of its own in "allOf". */
static void keep_apart(Schemas *s, MxJson *apart, const char *word, const MxJson *value) {
    MxJson *one = mx_json_object(s->g->arena);
    mx_json_set(one, word, value);
    mx_json_push(apart, one);
}

static bool merge_words(Schemas *s, MxJson *out, const MxJson *a, const MxJson *b, int depth) {
    const char *name;
    MxJson *value, *apart = new_list(s);
    for (void *at = NULL; mx_json_next(a, &at, &name, &value);) mx_json_set(out, name, value);
    for (void *at = NULL; mx_json_next(b, &at, &name, &value);) {
        const MxJson *own = mx_json_get(a, name), *both = value;
        if (own && is_apart(name)) {
            if (!are_equal(s, own, value)) keep_apart(s, apart, name, value);
            continue;
        }
        if (own && !(both = merge_word(s, name, own, value, depth))) return false;
        mx_json_set(out, name, both);
    }
    if (!mx_json_length(apart)) return true;
    const MxJson *all = mx_json_get(out, "allOf");
    mx_json_set(out, "allOf", all ? merge_union(s, "", all, apart, 0) : apart);
    return true;
}

MxJson *schema_merge(Schemas *s, const MxJson *a, const MxJson *b, int depth) {
    MxJson *out = mx_json_object(s->g->arena);
    bool is_true;
    if (depth > DEEPEST) {
        schema_fail(s, "", "schemas that are merged, more than %d levels deep", DEEPEST);
        return NULL;
    }
    if (!schema_may_read(s, COST)) return NULL;
    if (mx_json_bool(a, &is_true)) return is_true ? (MxJson *)(uintptr_t)b : new_bool(s, false);
    if (mx_json_bool(b, &is_true)) return is_true ? (MxJson *)(uintptr_t)a : new_bool(s, false);
    if (!(a = schema_open(s, a, depth)) || !(b = schema_open(s, b, depth))) return NULL;
    if (mx_json_bool(a, &is_true) || mx_json_bool(b, &is_true))
        return schema_merge(s, a, b, depth + 1);
    bool ok = merge_words(s, out, a, b, depth) && check_others(s, a, b) &&
              merge_members(s, out, a, b, depth);
    return ok ? out : NULL;
}
