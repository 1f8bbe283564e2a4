/* schema_parts.c — objects and lists of schemas. Members come in the order in which the schema has
 * them, those that it only requires behind them, and then any others. */
#include "internal.h"

typedef struct Member {
    const char *name;
    const MxJson *schema; /* NULL = any value */
    bool is_required;
    int32_t rule;
} Member;

typedef struct Object {
    Schemas *s;
    const MxJson *schema;
    Member *member; /* [n] */
    int64_t n;
    /* What others may be there. */
    bool has_others;
    const MxJson *key, *value; /* NULL = any */
    const char *pattern;       /* of keys; NULL = none */
} Object;

/* ---- what an object may have */

static bool read_members(Object *o) {
    Schemas *s = o->s;
    const MxJson *properties = mx_json_get(o->schema, "properties");
    const MxJson *required = mx_json_get(o->schema, "required");
    const char *name;
    MxJson *value;
    if (properties && !schema_is(properties, "an object"))
        return schema_want(s, "properties", properties, "an object");
    if (required && !schema_is(required, "a list"))
        return schema_want(s, "required", required, "a list of names");
    size_t most = mx_json_length(properties) + mx_json_length(required);
    MxMap names;
    mx_map_init(&names, s->g->arena);
    o->member = mx_new_n(s->g->arena, Member, most + 1);
    for (void *at = NULL; mx_json_next(properties, &at, &name, &value);) {
        mx_map_set(&names, name, o->n);
        o->member[o->n++] = (Member){.name = name, .schema = value};
    }
    for (size_t i = 0; i < mx_json_length(required); i++) {
        name = mx_json_string(mx_json_at(required, i));
        if (!name) return schema_want(s, "required", mx_json_at(required, i), "a name");
        int64_t known = mx_map_get(&names, name, -1);
        if (known < 0) {
            mx_map_set(&names, name, known = o->n);
            o->member[o->n++] = (Member){.name = name, .schema = o->value};
        }
        o->member[known].is_required = true;
    }
    return true;
}

/* Where nothing is said of others, only an object of which no member is named has them. */
static bool read_others(Object *o) {
    const MxJson *others = mx_json_get(o->schema, "additionalProperties");
    const MxJson *patterns = mx_json_get(o->schema, "patternProperties");
    const MxJson *names = mx_json_get(o->schema, "propertyNames");
    bool is_any = true, has_named = mx_json_length(mx_json_get(o->schema, "properties")) > 0;
    MxJson *value;
    mx_json_bool(others, &is_any);
    o->value = others;
    o->has_others = is_any && (others || !has_named);
    o->key = names;
    if (!mx_json_length(patterns)) {
        if (names && has_named)
            return schema_fail(o->s, "propertyNames", "\"properties\" beside it are not available");
        return true;
    }
    bool is_alone = mx_json_length(patterns) == 1 && !has_named && !names && !(others && is_any);
    if (!is_alone)
        return schema_fail(o->s, "patternProperties",
                           "several patterns, or others beside it, are not available");
    void *at = NULL;
    mx_json_next(patterns, &at, &o->pattern, &value);
    o->value = value;
    o->has_others = true;
    return true;
}

/* How many members there may be is known as far as they have names. */
static bool check_counts(Object *o) {
    int64_t min = 0, max = GUIDE_UNBOUNDED, n_required = 0;
    for (int64_t i = 0; i < o->n; i++) n_required += o->member[i].is_required;
    if (!schema_count(o->s, o->schema, "minProperties", &min) ||
        !schema_count(o->s, o->schema, "maxProperties", &max))
        return false;
    if (min > n_required)
        return schema_fail(o->s, "minProperties", "more than \"required\" has is not available");
    return max == GUIDE_UNBOUNDED || (!o->has_others && max >= o->n) ||
           schema_fail(o->s, "maxProperties", "less than there may be is not available");
}

/* ---- members */

/* Spaces, a colon, spaces, and a value. */
static bool write_value(Object *o, const MxJson *schema, const char *name, int32_t from,
                        int32_t to) {
    MxGrammar *g = o->s->g;
    int32_t colon = mx_grammar_state(g), behind = mx_grammar_state(g), value = mx_grammar_state(g);
    guide_spaces(g, from, colon);
    mx_grammar_bytes(g, colon, ':', ':', behind);
    guide_spaces(g, behind, value);
    if (schema) return schema_write(o->s, schema, name, value, to);
    guide_call(g, value, schema_any(o->s), to);
    return true;
}

static bool write_member(Object *o, Member *m) {
    MxGrammar *g = o->s->g;
    int32_t end, key = mx_grammar_state(g);
    m->rule = guide_rule(g, &end);
    mx_grammar_text(g, m->rule, mx_json_quote(g->arena, m->name, strlen(m->name)), key);
    const char *path = mx_arena_printf(g->arena, "properties/%.60s", m->name);
    return write_value(o, m->schema, path, key, end);
}

static bool write_key(Object *o, int32_t from, int32_t to) {
    Schemas *s = o->s;
    const Writing how = {.max = GUIDE_UNBOUNDED};
    const char **others = mx_new_n(s->g->arena, const char *, o->n + 1);
    const char *wrong = o->pattern ? guide_pattern(s->g, from, o->pattern, how, to) : NULL;
    for (int64_t i = 0; i < o->n; i++) others[i] = o->member[i].name;
    if (wrong) return schema_fail(s, "patternProperties", "the pattern %s", wrong);
    if (o->pattern) return true;
    if (o->key) {
        MxJson *texts = mx_json_object(s->g->arena);
        mx_json_set_string(texts, "type", "string");
        const MxJson *key = schema_merge(s, texts, o->key, 0);
        return key && schema_write(s, key, "propertyNames", from, to);
    }
    if (o->n)
        guide_json_key(s->g, from, others, o->n, to);
    else
        guide_json_text(s->g, from, 0, GUIDE_UNBOUNDED, to);
    return true;
}

/* The rule of a member that has no name. */
static bool write_other(Object *o, int32_t *rule) {
    int32_t end, key = mx_grammar_state(o->s->g);
    *rule = guide_rule(o->s->g, &end);
    return write_key(o, *rule, key) && write_value(o, o->value, "additionalProperties", key, end);
}

/* Before the first member, and behind one: any that may come next up to the first that must. */
static void write_order(Object *o, int32_t from, int32_t other, int32_t to) {
    MxGrammar *g = o->s->g;
    int32_t first = from, more = mx_grammar_state(g);
    for (int64_t i = 0; i <= o->n; i++) {
        const bool is_other = i == o->n;
        int32_t rule = is_other ? other : o->member[i].rule, made = mx_grammar_state(g);
        int32_t comma = mx_grammar_state(g), again = mx_grammar_state(g);
        int32_t next_first = is_other ? to : mx_grammar_state(g);
        int32_t next_more = is_other ? to : mx_grammar_state(g);
        if (is_other || !o->member[i].is_required) {
            mx_grammar_nothing(g, first, next_first);
            mx_grammar_nothing(g, more, next_more);
        }
        if (!rule) break;
        guide_call(g, first, rule, made);
        mx_grammar_bytes(g, more, ',', ',', comma);
        guide_spaces(g, comma, again);
        guide_call(g, again, rule, made);
        guide_spaces(g, made, is_other ? more : next_more);
        first = next_first, more = next_more;
    }
}

static bool write_object(Object *o, int32_t from, int32_t to) {
    MxGrammar *g = o->s->g;
    int32_t open = mx_grammar_state(g), first = mx_grammar_state(g), end = mx_grammar_state(g);
    int32_t other = 0;
    for (int64_t i = 0; i < o->n; i++)
        if (!write_member(o, &o->member[i])) return false;
    if (o->has_others && !write_other(o, &other)) return false;
    mx_grammar_bytes(g, from, '{', '{', open);
    guide_spaces(g, open, first);
    write_order(o, first, other, end);
    mx_grammar_bytes(g, end, '}', '}', to);
    return true;
}

/* Members between tags, each once and in their order. */
static bool write_tags(Object *o, const MxGrammarTags *tags, int32_t from, int32_t to) {
    MxGrammar *g = o->s->g;
    for (int64_t i = 0; i < o->n; i++) {
        const Member *m = &o->member[i];
        const char *const head[] = {tags->before_name, m->name, tags->before_value};
        int32_t next = mx_grammar_state(g), made = mx_grammar_state(g), at = from;
        if (!m->is_required) mx_grammar_nothing(g, from, next);
        for (int k = 0; k < MX_COUNT(head); k++) {
            int32_t behind = mx_grammar_state(g);
            mx_grammar_text(g, at, head[k], behind);
            at = behind;
        }
        const char *path = mx_arena_printf(g->arena, "properties/%.60s", m->name);
        const MxJson *schema = m->schema ? m->schema : mx_json_object(g->arena);
        o->s->end = tags->end;
        bool ok = schema_write(o->s, schema, path, at, made);
        o->s->end = NULL;
        if (!ok) return false;
        mx_grammar_text(g, made, tags->behind_value, next);
        from = next;
    }
    mx_grammar_nothing(g, from, to);
    return true;
}

bool schema_object(Schemas *s, const MxJson *schema, int32_t from, int32_t to) {
    Object o = {.s = s, .schema = schema};
    const MxGrammarTags *tags = s->tags;
    const char *end = s->end;
    s->end = NULL;
    s->tags = NULL;
    bool ok = read_others(&o) && read_members(&o) && check_counts(&o) &&
              (tags ? write_tags(&o, tags, from, to) : write_object(&o, from, to));
    s->end = end;
    s->tags = tags;
    return ok;
}

/* ---- lists */

typedef struct List {
    Schemas *s;
    const MxJson *first, *items; /* of the first ones, and of those behind; NULL = any */
    int64_t n_first, min, max;
    int32_t rule; /* of items, 0 = none so far */
} List;

static bool read_list(List *l, const MxJson *schema) {
    Schemas *s = l->s;
    const MxJson *items = mx_json_get(schema, "items"), *first = mx_json_get(schema, "prefixItems");
    bool is_unique = false, is_any = true;
    if (schema_is(items, "a list")) { /* as before draft 2020-12 */
        first = items;
        items = mx_json_get(schema, "additionalItems");
    }
    if (first && !schema_is(first, "a list"))
        return schema_want(s, "prefixItems", first, "a list of schemas");
    mx_json_bool(mx_json_get(schema, "uniqueItems"), &is_unique);
    if (is_unique) return schema_fail(s, "uniqueItems", "true is not available");
    *l = (List){.s = s, .first = first, .items = items, .max = GUIDE_UNBOUNDED};
    l->n_first = (int64_t)mx_json_length(first);
    if (!schema_count(s, schema, "minItems", &l->min) ||
        !schema_count(s, schema, "maxItems", &l->max))
        return false;
    if (items && mx_json_bool(items, &is_any) && !is_any && l->max > l->n_first)
        l->max = l->n_first;
    return true;
}

static bool write_item(List *l, int64_t i, int32_t from, int32_t to) {
    MxGrammar *g = l->s->g;
    if (i < l->n_first) {
        const char *path = mx_arena_printf(g->arena, "prefixItems/%lld", (long long)i);
        return schema_write(l->s, mx_json_at(l->first, (size_t)i), path, from, to);
    }
    if (!l->rule && !l->items) l->rule = schema_any(l->s);
    if (!l->rule) {
        int32_t end;
        l->rule = guide_rule(g, &end);
        if (!schema_write(l->s, l->items, "items", l->rule, end)) return false;
    }
    guide_call(g, from, l->rule, to);
    return true;
}

/* The last state, if there may be any number, is also the one behind itself. */
static bool write_list(List *l, int32_t from, int32_t to) {
    MxGrammar *g = l->s->g;
    const bool is_bounded = l->max < GUIDE_UNBOUNDED;
    int32_t open = mx_grammar_state(g), start = mx_grammar_state(g), at = mx_grammar_state(g);
    mx_grammar_bytes(g, from, '[', '[', open);
    guide_spaces(g, open, start);
    if (!l->min) mx_grammar_bytes(g, start, ']', ']', to);
    mx_grammar_nothing(g, start, at);
    for (int64_t i = 0; i < l->max && !g->is_full; i++) {
        int32_t made = mx_grammar_state(g), behind = mx_grammar_state(g);
        int32_t comma = mx_grammar_state(g), next = mx_grammar_state(g);
        bool is_last = !is_bounded && i >= l->n_first && i + 1 >= l->min;
        if (!write_item(l, i, at, made)) return false;
        guide_spaces(g, made, behind);
        if (i + 1 >= l->min) mx_grammar_bytes(g, behind, ']', ']', to);
        if (i + 1 == l->max) break;
        mx_grammar_bytes(g, behind, ',', ',', comma);
        guide_spaces(g, comma, is_last ? at : next);
        if (is_last) break;
        at = next;
    }
    return true;
}

bool schema_array(Schemas *s, const MxJson *schema, int32_t from, int32_t to) {
    List list = {.s = s};
    const char *end = s->end;
    s->end = NULL;
    bool ok = read_list(&list, schema) && write_list(&list, from, to);
    s->end = end;
    return ok;
}
