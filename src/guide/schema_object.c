/* schema_object.c — objects of schemas. Members come in the order in which the schema has them,
 * those that it only requires behind them, and then any others. */
#include "internal.h"

typedef struct Member {
    const char *name;
    const MxJson *schema; /* NULL = any value */
    bool is_required, is_false;
    int32_t rule;
} Member;

enum { MOST_PATTERNS = 4 };

typedef struct Object {
    Schemas *s;
    const MxGrammarValues *values;
    const MxJson *schema, *names; /* names: a schema of them; NULL = any */
    Member *member;               /* [n] */
    int64_t n;
    int64_t min, max;
    bool has_others; /* besides those of patterns */
    const MxJson *others;
    const char *pattern[MOST_PATTERNS];
    const MxJson *of_pattern[MOST_PATTERNS];
    int n_patterns;
    int32_t other; /* the rule of one without a name; 0 = there is none */
} Object;

/* ---- what an object may have */

static bool is_false(const MxJson *schema) {
    bool is_true = true;
    return mx_json_bool(schema, &is_true) && !is_true;
}

static bool read_patterns(Object *o) {
    const MxJson *patterns = mx_json_get(o->schema, "patternProperties");
    const char *pattern;
    MxJson *value;
    if (patterns && !schema_is(patterns, "an object"))
        return schema_want(o->s, "patternProperties", patterns, "an object");
    if (mx_json_length(patterns) > MOST_PATTERNS)
        return schema_fail(o->s, "patternProperties", "more than %d patterns are not available",
                           MOST_PATTERNS);
    for (void *at = NULL; mx_json_next(patterns, &at, &pattern, &value);) {
        o->pattern[o->n_patterns] = pattern;
        o->of_pattern[o->n_patterns++] = value;
    }
    return true;
}

static MxJson *new_text(Object *o, const char *text) {
    MxJson *holder = mx_json_object(o->s->g->arena);
    mx_json_set_string(holder, "text", text);
    return mx_json_get(holder, "text");
}

/* Whether a name is of a schema; false = an error, too. */
static bool name_fits(Object *o, const char *member, const MxJson *schema, const char *name,
                      bool *fits) {
    const Fit fit = schema_fits(o->s->g->arena, o->s->root, schema, new_text(o, name));
    *fits = fit == FIT;
    return fit != UNSURE ||
           schema_fail(o->s, member, "whether \"%.60s\" fits it is not available", name);
}

/* What a member must be of: its own schema, and those of patterns that its name has; or, without
 * either, the schema of others. */
static bool find_schema(Object *o, const char *name, const MxJson *own, Member *out) {
    bool fits = true, is_known = own != NULL;
    if (o->names && !name_fits(o, "propertyNames", o->names, name, &fits)) return false;
    *out = (Member){.name = name, .schema = own, .is_false = !fits};
    for (int i = 0; i < o->n_patterns; i++) {
        MxJson *pattern = mx_json_object(o->s->g->arena);
        mx_json_set_string(pattern, "pattern", o->pattern[i]);
        if (!name_fits(o, "patternProperties", pattern, name, &fits)) return false;
        if (!fits) continue;
        out->schema =
            is_known ? schema_merge(o->s, out->schema, o->of_pattern[i], 0) : o->of_pattern[i];
        is_known = true;
        if (!out->schema) return false;
    }
    if (!is_known) out->schema = o->others;
    out->is_false |= is_false(out->schema);
    return true;
}

static bool add_member(Object *o, MxMap *names, const char *name, const MxJson *own) {
    mx_map_set(names, name, o->n);
    if (!find_schema(o, name, own, &o->member[o->n])) return false;
    if (!o->member[o->n].is_false && !values_has_name(o->values, name))
        return schema_fail(o->s, "properties",
                           "found the name \"%.60s\", which cannot be written in this format",
                           name);
    o->n++;
    return true;
}

/* Of names that are listed, each is a member, and there are no others. */
static bool read_names(Object *o, MxMap *names, const MxJson *list) {
    for (size_t i = 0; i < mx_json_length(list); i++) {
        const char *name = mx_json_string(mx_json_at(list, i));
        if (name && mx_map_get(names, name, -1) < 0 && !add_member(o, names, name, NULL))
            return false;
    }
    o->has_others = false;
    o->n_patterns = 0;
    return true;
}

static bool read_members(Object *o) {
    Schemas *s = o->s;
    const MxJson *properties = mx_json_get(o->schema, "properties");
    const MxJson *required = mx_json_get(o->schema, "required"), *list = NULL;
    const char *name;
    MxJson *value;
    if (properties && !schema_is(properties, "an object"))
        return schema_want(s, "properties", properties, "an object");
    if (required && !schema_is(required, "a list"))
        return schema_want(s, "required", required, "a list of names");
    if (o->names && (o->has_others || o->n_patterns)) list = schema_values(s, o->names);
    if (s->err->count) return false;
    MxMap names;
    mx_map_init(&names, s->g->arena);
    o->member =
        mx_new_n(s->g->arena, Member,
                 mx_json_length(properties) + mx_json_length(required) + mx_json_length(list) + 1);
    for (void *at = NULL; mx_json_next(properties, &at, &name, &value);)
        if (!add_member(o, &names, name, value)) return false;
    for (size_t i = 0; i < mx_json_length(required); i++) {
        name = mx_json_string(mx_json_at(required, i));
        if (!name) return schema_want(s, "required", mx_json_at(required, i), "a name");
        if (mx_map_get(&names, name, -1) < 0 && !add_member(o, &names, name, NULL)) return false;
        o->member[mx_map_get(&names, name, 0)].is_required = true;
    }
    return !list || read_names(o, &names, list);
}

/* Where nothing is said of others, only an object of which no member is named has them. */
static bool read_others(Object *o) {
    const MxJson *properties = mx_json_get(o->schema, "properties");
    const char *name;
    MxJson *value;
    bool has_named = false;
    for (void *at = NULL; mx_json_next(properties, &at, &name, &value);)
        has_named |= !is_false(value);
    o->names = mx_json_get(o->schema, "propertyNames");
    o->others = mx_json_get(o->schema, "additionalProperties");
    if (!read_patterns(o)) return false;
    o->has_others = o->others ? !is_false(o->others) : !has_named && !o->n_patterns;
    return true;
}

/* Others are not told apart, so that two of them may be the same. */
static bool read_counts(Object *o) {
    int64_t possible = 0;
    o->max = GUIDE_UNBOUNDED;
    if (!schema_count(o->s, o->schema, "minProperties", &o->min) ||
        !schema_count(o->s, o->schema, "maxProperties", &o->max))
        return false;
    for (int64_t i = 0; i < o->n; i++) possible += !o->member[i].is_false;
    const bool is_open = o->has_others || o->n_patterns;
    if (!is_open && o->max > possible) o->max = possible;
    return !is_open || o->min <= possible + 1 ||
           schema_fail(o->s, "minProperties",
                       "more than the members with names and one other is not available");
}

/* ---- members */

static void write_spaces(Object *o, int32_t from, int32_t to) {
    if (o->values->has_spaces)
        guide_spaces(o->s->g, from, to);
    else
        mx_grammar_nothing(o->s->g, from, to);
}

/* Behind the name: a value, and what stands around it. */
static bool write_value(Object *o, const MxJson *schema, const char *name, int32_t from,
                        int32_t to) {
    Schemas *s = o->s;
    MxGrammar *g = s->g;
    int32_t colon = mx_grammar_state(g), behind = mx_grammar_state(g), value = mx_grammar_state(g);
    int32_t made = mx_grammar_state(g);
    if (o->values->before_name)
        mx_grammar_nothing(g, from, colon);
    else
        write_spaces(o, from, colon);
    mx_grammar_text(g, colon, o->values->behind_name, behind);
    if (o->values->before_name)
        mx_grammar_nothing(g, behind, value);
    else
        write_spaces(o, behind, value);
    mx_grammar_text(g, made, o->values->behind_value, to);
    s->values = values_within(o->values);
    bool ok = true;
    if (schema)
        ok = schema_write(s, schema, name, value, made);
    else
        guide_call(g, value, schema_any(s), made);
    s->values = o->values;
    return ok;
}

static bool write_member(Object *o, Member *m) {
    MxGrammar *g = o->s->g;
    const MxGrammarValues *v = o->values;
    int32_t end, key = mx_grammar_state(g);
    m->rule = guide_rule(g, &end);
    if (v->before_name) {
        mx_grammar_text(g, m->rule, mx_arena_printf(g->arena, "%s%s", v->before_name, m->name),
                        key);
    } else {
        for (const char *quote = v->quotes; *quote; quote++)
            mx_grammar_text(g, m->rule, values_write(g->arena, v, new_text(o, m->name), *quote),
                            key);
    }
    const char *path = mx_arena_printf(g->arena, "properties/%.60s", m->name);
    return write_value(o, m->schema, path, key, end);
}

/* ---- members that have no names */

/* Names without quotes, which are words. */
static const MxGrammarValues bare = {.begin = "", .end = "", .without = "\n", .other = ""};
static const char word[] = "^[A-Za-z_][A-Za-z0-9_]*$";

static void demand(MxJson *list, const char *pattern) {
    mx_json_set_string(mx_json_push_object(list), "pattern", pattern);
}

/* Of names that have the patterns whose bits are set, and no others, and are not told. */
static MxJson *key_schema(Object *o, unsigned patterns) {
    MxJson *out = mx_json_object(o->s->g->arena), *value;
    mx_json_set_string(out, "type", "string");
    MxJson *all = mx_json_put_array(out, "allOf");
    MxJson *none = mx_json_put_array(mx_json_put_object(out, "not"), "anyOf");
    MxJson *names = mx_json_put_array(mx_json_push_object(none), "enum");
    for (int64_t i = 0; i < o->n; i++) mx_json_push_string(names, o->member[i].name);
    for (int i = 0; i < o->n_patterns; i++) demand(patterns >> i & 1 ? all : none, o->pattern[i]);
    if (o->values->before_name) demand(all, word);
    if (mx_json_length(none) == 1 && !o->n) mx_json_remove(out, "not");
    if (!mx_json_length(all)) mx_json_remove(out, "allOf");
    value = o->names ? schema_merge(o->s, out, o->names, 0) : out;
    return value;
}

static bool write_other(Object *o, unsigned patterns, int32_t from, int32_t to) {
    Schemas *s = o->s;
    MxGrammar *g = s->g;
    const MxGrammarValues *v = o->values;
    const MxJson *key = key_schema(o, patterns), *value = patterns ? NULL : o->others;
    int32_t begin = mx_grammar_state(g), named = mx_grammar_state(g);
    for (int i = 0; i < o->n_patterns; i++) {
        if (!(patterns >> i & 1)) continue;
        value = value ? schema_merge(s, value, o->of_pattern[i], 0) : o->of_pattern[i];
        if (!value) return false;
    }
    if (!key) return false;
    if (is_false(value)) return true;
    mx_grammar_text(g, from, v->before_name ? v->before_name : "", begin);
    s->values = v->before_name ? &bare : v;
    bool ok = schema_write(s, key, patterns ? "patternProperties" : "propertyNames", begin, named);
    s->values = v;
    const char *path = patterns ? "patternProperties" : "additionalProperties";
    return ok && write_value(o, value, path, named, to);
}

static bool write_others(Object *o) {
    int32_t end;
    if (!o->has_others && !o->n_patterns) return true;
    o->other = guide_rule(o->s->g, &end);
    for (unsigned patterns = !o->has_others; patterns < 1u << o->n_patterns; patterns++)
        if (!write_other(o, patterns, o->other, end)) return false;
    return true;
}

/* ---- their order */

/* A member behind others, or the first one. */
static void write_next(Object *o, int32_t from, int32_t rule, bool is_first, int32_t to) {
    MxGrammar *g = o->s->g;
    int32_t again = mx_grammar_state(g), made = mx_grammar_state(g);
    if (is_first) {
        mx_grammar_nothing(g, from, again);
    } else {
        int32_t comma = mx_grammar_state(g);
        mx_grammar_text(g, from, o->values->between, comma);
        write_spaces(o, comma, again);
    }
    guide_call(g, again, rule, made);
    write_spaces(o, made, to);
}

/* Behind all that have names, of which there were some; of others, how many are told as far as it
 * matters. */
static void write_last(Object *o, int32_t from, int64_t named, int32_t to) {
    MxGrammar *g = o->s->g;
    const bool has_max = o->max < GUIDE_UNBOUNDED;
    for (int64_t others = 0; !g->is_full; others++) {
        const bool is_last = !o->other || (has_max ? named + others >= o->max : others == 1);
        if (named + (others > 0) >= o->min) mx_grammar_nothing(g, from, to);
        if (is_last && (has_max || !o->other)) return;
        int32_t next = is_last ? from : mx_grammar_state(g);
        write_next(o, from, o->other, !(named + others), next);
        if (is_last) return;
        from = next;
    }
}

/* By how many members there were, as far as it matters: a row of states before each member. */
static void write_order(Object *o, int32_t from, int32_t to) {
    MxGrammar *g = o->s->g;
    const bool has_max = o->max < GUIDE_UNBOUNDED;
    const int64_t most = has_max ? o->max : o->min > 1 ? o->min : 1;
    if (most > GUIDE_MOST_STATES) g->is_full = true;
    if (g->is_full) return;
    int32_t *now = mx_new_n(g->arena, int32_t, most + 1), *next = now;
    now[0] = from;
    for (int64_t i = 0; i < o->n && !g->is_full; i++, now = next) {
        const Member *m = &o->member[i];
        next = mx_new_n(g->arena, int32_t, most + 1);
        for (int64_t k = 0; k <= most; k++) {
            if (!now[k]) continue;
            const int64_t more = k < most || has_max ? k + 1 : k;
            if (!m->is_required && !next[k]) next[k] = mx_grammar_state(g);
            if (!m->is_required) mx_grammar_nothing(g, now[k], next[k]);
            if (m->is_false || more > most) continue;
            if (!next[more]) next[more] = mx_grammar_state(g);
            write_next(o, now[k], m->rule, !k, next[more]);
        }
    }
    for (int64_t k = 0; k <= most; k++)
        if (now[k]) write_last(o, now[k], k, to);
}

static bool write_object(Object *o, int32_t from, int32_t to) {
    MxGrammar *g = o->s->g;
    int32_t open = mx_grammar_state(g), first = mx_grammar_state(g), end = mx_grammar_state(g);
    for (int64_t i = 0; i < o->n; i++)
        if (!o->member[i].is_false && !write_member(o, &o->member[i])) return false;
    if (!write_others(o)) return false;
    mx_grammar_text(g, from, o->values->open, open);
    write_spaces(o, open, first);
    write_order(o, first, end);
    mx_grammar_text(g, end, o->values->close, to);
    return true;
}

bool schema_object(Schemas *s, const MxJson *schema, int32_t from, int32_t to) {
    Object o = {.s = s, .values = s->values, .schema = schema};
    return read_others(&o) && read_members(&o) && read_counts(&o) && write_object(&o, from, to);
}
