/* schema_list.c — lists of schemas: first items and others, how many of them, how many that another
 * schema describes, and lists without the same item twice. */
#include "internal.h"

#include <math.h>

enum { MOST_UNIQUE = 10 };

/* What an item is of besides its place's schema. */
typedef enum Kind { PLAIN, INSIDE, OUTSIDE, N_KINDS } Kind;

typedef struct List {
    Schemas *s;
    const MxGrammarValues *values;
    const MxJson *first, *items; /* of the first ones, and of those behind; NULL = any */
    const MxJson *of[N_KINDS];   /* "contains", and its opposite where it matters */
    int64_t n_first, min, max;
    int64_t least, most; /* that it contains */
    bool is_unique;
    int32_t rule[N_KINDS]; /* of items, 0 = none so far */
} List;

static bool read_contains(List *l, const MxJson *schema) {
    Schemas *s = l->s;
    const char *why = NULL;
    l->of[INSIDE] = mx_json_get(schema, "contains");
    l->most = GUIDE_UNBOUNDED;
    if (!l->of[INSIDE]) return true;
    l->least = 1;
    if (!schema_count(s, schema, "minContains", &l->least) ||
        !schema_count(s, schema, "maxContains", &l->most))
        return false;
    if (l->most == GUIDE_UNBOUNDED) return true;
    l->of[OUTSIDE] = schema_opposite(s, l->of[INSIDE], 0, &why);
    if (why)
        return schema_fail(s, "maxContains", "the opposite of \"%.60s\" is not available", why);
    return l->of[OUTSIDE] != NULL;
}

static bool read_list(List *l, const MxJson *schema) {
    Schemas *s = l->s;
    const MxJson *items = mx_json_get(schema, "items"), *first = mx_json_get(schema, "prefixItems");
    bool is_any = true;
    if (schema_is(items, "a list")) { /* as before draft 2020-12 */
        first = items;
        items = mx_json_get(schema, "additionalItems");
    }
    if (first && !schema_is(first, "a list"))
        return schema_want(s, "prefixItems", first, "a list of schemas");
    l->first = first, l->items = items;
    l->max = GUIDE_UNBOUNDED;
    l->n_first = (int64_t)mx_json_length(first);
    mx_json_bool(mx_json_get(schema, "uniqueItems"), &l->is_unique);
    if (!schema_count(s, schema, "minItems", &l->min) ||
        !schema_count(s, schema, "maxItems", &l->max) || !read_contains(l, schema))
        return false;
    if (items && mx_json_bool(items, &is_any) && !is_any && l->max > l->n_first)
        l->max = l->n_first;
    return true;
}

/* The schema of an item at a place; NULL = any value. */
static const MxJson *schema_of(const List *l, int64_t i) {
    return i < l->n_first ? mx_json_at(l->first, (size_t)i) : l->items;
}

static void write_spaces(List *l, int32_t from, int32_t to) {
    if (l->values->has_spaces)
        guide_spaces(l->s->g, from, to);
    else
        mx_grammar_nothing(l->s->g, from, to);
}

/* ---- lists whose items need not differ */

static bool write_one(List *l, int64_t i, Kind kind, int32_t from, int32_t to) {
    Schemas *s = l->s;
    const MxJson *own = schema_of(l, i);
    const char *path =
        i < l->n_first ? mx_arena_printf(s->g->arena, "prefixItems/%lld", (long long)i) : "items";
    if (kind != PLAIN) own = own ? schema_merge(s, own, l->of[kind], 0) : l->of[kind];
    if (kind != PLAIN && !own) return false;
    if (own) return schema_write(s, own, path, from, to);
    guide_call(s->g, from, schema_any(s), to);
    return true;
}

static bool write_item(List *l, int64_t i, Kind kind, int32_t from, int32_t to) {
    MxGrammar *g = l->s->g;
    bool ok = true;
    l->s->values = values_within(l->values);
    if (i < l->n_first) {
        ok = write_one(l, i, kind, from, to);
    } else {
        if (!l->rule[kind]) {
            int32_t end;
            l->rule[kind] = guide_rule(g, &end);
            ok = write_one(l, i, kind, l->rule[kind], end);
        }
        guide_call(g, from, l->rule[kind], to);
    }
    l->s->values = l->values;
    return ok;
}

/* States by how many items there are, and how many of these the list must contain, as far as it
 * matters. */
typedef struct Grid {
    int64_t places, counts;
    int32_t *before, *behind; /* [(places + 1) (counts + 1)] an item; 0 = none so far */
} Grid;

static int32_t state_of(MxGrammar *g, const Grid *grid, int32_t *of, int64_t i, int64_t k) {
    int32_t *state = &of[i * (grid->counts + 1) + k];
    if (!*state) *state = mx_grammar_state(g);
    return *state;
}

/* What may follow i items of which k are contained; the last place is also the one behind it. */
static bool write_place(List *l, const Grid *grid, int64_t i, int64_t k, int32_t to) {
    MxGrammar *g = l->s->g;
    const bool has_max = l->max < GUIDE_UNBOUNDED, has_most = l->most < GUIDE_UNBOUNDED;
    const int32_t before = grid->before[i * (grid->counts + 1) + k];
    const int32_t behind = grid->behind[i * (grid->counts + 1) + k];
    if (behind && i >= l->min && k >= l->least) mx_grammar_bytes(g, behind, ']', ']', to);
    if (has_max && i == l->max) return true;
    if (behind) {
        int32_t comma = mx_grammar_state(g);
        mx_grammar_bytes(g, behind, ',', ',', comma);
        write_spaces(l, comma, state_of(g, grid, grid->before, i, k));
    }
    if (!before && !behind) return true;
    const int32_t from = state_of(g, grid, grid->before, i, k);
    const int64_t next = i < grid->places ? i + 1 : i;
    for (int hit = 0; hit <= (l->of[INSIDE] != NULL); hit++) {
        const Kind kind = hit ? INSIDE : has_most ? OUTSIDE : PLAIN;
        const int64_t count = hit && (k < grid->counts || has_most) ? k + 1 : k;
        if (count > grid->counts || (hit && count == k)) continue;
        int32_t made = mx_grammar_state(g);
        if (!write_item(l, i, kind, from, made)) return false;
        write_spaces(l, made, state_of(g, grid, grid->behind, next, count));
    }
    return true;
}

static bool write_plain(List *l, int32_t start, int32_t to) {
    MxGrammar *g = l->s->g;
    Grid grid = {.places = l->max < GUIDE_UNBOUNDED ? l->max : l->n_first};
    if (l->max == GUIDE_UNBOUNDED && grid.places < l->min) grid.places = l->min;
    if (l->max == GUIDE_UNBOUNDED && !grid.places) grid.places = 1;
    grid.counts = l->most < GUIDE_UNBOUNDED ? l->most : l->least;
    if (grid.places > GUIDE_MOST_STATES || grid.counts > GUIDE_MOST_STATES ||
        (grid.places + 1) * (grid.counts + 1) > GUIDE_MOST_STATES)
        g->is_full = true;
    if (g->is_full) return true;
    const int64_t n = (grid.places + 1) * (grid.counts + 1);
    grid.before = mx_new_n(g->arena, int32_t, n);
    grid.behind = mx_new_n(g->arena, int32_t, n);
    grid.before[0] = start;
    for (int64_t i = 0; i <= grid.places && !g->is_full; i++)
        for (int64_t k = 0; k <= grid.counts; k++)
            if (!write_place(l, &grid, i, k, to)) return false;
    return true;
}

/* ---- lists whose items differ */

/* Adds the values of a schema that has few, and perhaps others. */
static bool add_values(List *l, const MxJson *schema, MxJson *out) {
    enum { MOST = 64 };
    static const char *const types[] = {"boolean", "null"}, *const values[] = {"[true,false]",
                                                                               "[null]"};
    static const char *const words[] = {"anyOf", "oneOf"};
    Schemas *s = l->s;
    MxError err = {0};
    const MxJson *open = schema ? schema_open(s, schema, 0) : NULL;
    const MxJson *type = mx_json_get(open, "type"), *list = mx_json_get(open, "enum");
    double low, high;
    if (!open || mx_json_length(out) > MOST) return false;
    for (int i = 0; i < MX_COUNT(types); i++)
        if (mx_json_string(type) && !strcmp(mx_json_string(type), types[i]))
            list = mx_json_parse_value(s->g->arena, values[i], strlen(values[i]), MX_NOWHERE, &err);
    for (size_t i = 0; i < mx_json_length(list); i++) mx_json_push(out, mx_json_at(list, i));
    if (list) return true;
    for (int i = 0; i < MX_COUNT(words); i++) {
        list = mx_json_get(open, words[i]);
        bool ok = mx_json_length(list) > 0;
        for (size_t k = 0; ok && k < mx_json_length(list); k++)
            ok = add_values(l, mx_json_at(list, k), out);
        if (ok) return true;
    }
    if (!mx_json_string(type) || strcmp(mx_json_string(type), "integer") ||
        !mx_json_number(mx_json_get(open, "minimum"), &low) ||
        !mx_json_number(mx_json_get(open, "maximum"), &high) || high - low >= MOST)
        return false;
    for (low = ceil(low); low <= high; low++) mx_json_push_int(out, (int64_t)low);
    return true;
}

/* The values that items may have, each once; NULL = they are not few. */
static MxJson *find_values(List *l) {
    Schemas *s = l->s;
    MxJson *all = mx_json_put_array(mx_json_object(s->g->arena), "list");
    MxJson *out = mx_json_put_array(mx_json_object(s->g->arena), "list");
    for (int64_t i = 0; i <= l->n_first && i < l->max; i++)
        if (!add_values(l, schema_of(l, i), all)) return NULL;
    for (size_t i = 0; i < mx_json_length(all); i++) {
        const MxJson *value = mx_json_at(all, i);
        bool is_there = false;
        for (size_t k = 0; k < mx_json_length(out); k++)
            is_there |= json_is_same(mx_json_at(out, k), value);
        if (!is_there) mx_json_push(out, value);
    }
    return mx_json_length(out) <= MOST_UNIQUE ? out : NULL;
}

/* Which of the values a list has so far, a bit each. */
typedef struct Chosen {
    const MxJson *value;             /* their list */
    int32_t rule[MOST_UNIQUE];       /* of each value */
    int32_t state[1 << MOST_UNIQUE]; /* before an item; 0 = none so far */
} Chosen;

static bool write_chosen(List *l, Chosen *c, unsigned bits, int32_t to) {
    Schemas *s = l->s;
    MxGrammar *g = s->g;
    const int64_t n = __builtin_popcount(bits);
    int64_t n_inside = 0;
    for (size_t i = 0; l->of[INSIDE] && i < mx_json_length(c->value); i++)
        n_inside += (bits >> i & 1) &&
                    schema_fits(g->arena, s->root, l->of[INSIDE], mx_json_at(c->value, i)) == FIT;
    if (n) { /* behind an item */
        int32_t comma = mx_grammar_state(g), next = mx_grammar_state(g);
        if (n >= l->min && n_inside >= l->least && n_inside <= l->most)
            mx_grammar_bytes(g, c->state[bits], ']', ']', to);
        mx_grammar_bytes(g, c->state[bits], ',', ',', comma);
        write_spaces(l, comma, next);
        c->state[bits] = next;
    }
    for (size_t i = 0; i < mx_json_length(c->value) && n < l->max; i++) {
        const MxJson *own = schema_of(l, n), *value = mx_json_at(c->value, i);
        const unsigned next = bits | 1u << i;
        if (next == bits || schema_fits(g->arena, s->root, own, value) != FIT) continue;
        if (!c->state[next]) c->state[next] = mx_grammar_state(g);
        int32_t made = mx_grammar_state(g);
        guide_call(g, c->state[bits], c->rule[i], made);
        write_spaces(l, made, c->state[next]);
    }
    return true;
}

static bool write_unique(List *l, int32_t start, int32_t to) {
    Schemas *s = l->s;
    MxGrammar *g = s->g;
    Chosen *c = mx_new(g->arena, Chosen);
    c->value = find_values(l);
    if (s->err->count) return false;
    if (!c->value)
        return schema_fail(s, "uniqueItems", "wanted items of at most %d values that are named",
                           MOST_UNIQUE);
    s->values = values_within(l->values);
    for (size_t i = 0; i < mx_json_length(c->value); i++) {
        MxJson *one = mx_json_object(g->arena);
        int32_t end;
        mx_json_set(one, "const", mx_json_at(c->value, i));
        c->rule[i] = guide_rule(g, &end);
        if (!schema_write(s, one, "items", c->rule[i], end)) return false;
    }
    s->values = l->values;
    c->state[0] = start;
    for (unsigned bits = 0; bits < 1u << mx_json_length(c->value) && !g->is_full; bits++)
        if (c->state[bits] && !write_chosen(l, c, bits, to)) return false;
    return true;
}

bool schema_array(Schemas *s, const MxJson *schema, int32_t from, int32_t to) {
    List l = {.s = s, .values = s->values};
    MxGrammar *g = s->g;
    int32_t open = mx_grammar_state(g), start = mx_grammar_state(g);
    if (!read_list(&l, schema)) return false;
    mx_grammar_bytes(g, from, '[', '[', open);
    write_spaces(&l, open, start);
    if (!l.min && !l.least) mx_grammar_bytes(g, start, ']', ']', to);
    return l.is_unique && l.max > 1 ? write_unique(&l, start, to) : write_plain(&l, start, to);
}
