/* check.c — whether a value is one of a schema's: a row for each word. What cannot be told, such as
 * a format that is not known, is neither a yes nor a no. */
#include "pattern.h"

#include <math.h>

enum { DEEPEST = 64, MOST_STEPS = 1 << 16 };

typedef struct Check {
    MxArena *arena;
    const MxJson *root;
    int depth;
    int64_t n_steps;
} Check;

static Fit fits(Check *c, const MxJson *schema, const MxJson *value);

static Fit of(bool ok) {
    return ok ? FIT : MISFIT;
}

static Fit both(Fit a, Fit b) {
    return a < b ? a : b;
}

static Fit either(Fit a, Fit b) {
    return a > b ? a : b;
}

static Fit opposite(Fit a) {
    return (Fit)(FIT - a);
}

bool json_is_same(const MxJson *a, const MxJson *b) {
    double x, y;
    const char *name, *text = mx_json_string(a), *other = mx_json_string(b);
    MxJson *value;
    if (mx_json_number(a, &x) && mx_json_number(b, &y)) return x == y;
    if (strcmp(mx_json_kind(a), mx_json_kind(b))) return false;
    if (text) return !strcmp(text, other);
    bool flag, same = true;
    if (mx_json_bool(a, &flag)) return mx_json_bool(b, &same) && flag == same;
    if (mx_json_length(a) != mx_json_length(b)) return false;
    if (schema_is(a, "a list"))
        for (size_t i = 0; same && i < mx_json_length(a); i++)
            same = json_is_same(mx_json_at(a, i), mx_json_at(b, i));
    else
        for (void *at = NULL; same && mx_json_next(a, &at, &name, &value);)
            same = mx_json_get(b, name) && json_is_same(value, mx_json_get(b, name));
    return same;
}

/* ---- words */

typedef Fit Word(Check *c, const MxJson *schema, const MxJson *own, const MxJson *value);

static Fit fit_type(Check *c, const MxJson *schema, const MxJson *own, const MxJson *value) {
    const unsigned bits = schema_type_of(value);
    const bool is_list = schema_is(own, "a list");
    bool ok = false;
    (void)c, (void)schema;
    for (size_t i = 0; i < (is_list ? mx_json_length(own) : 1); i++)
        ok |= (schema_type_bits(mx_json_string(is_list ? mx_json_at(own, i) : own)) & bits) != 0;
    return of(ok);
}

static Fit fit_enum(Check *c, const MxJson *schema, const MxJson *own, const MxJson *value) {
    bool ok = false;
    (void)c, (void)schema;
    for (size_t i = 0; !ok && i < mx_json_length(own); i++)
        ok = json_is_same(mx_json_at(own, i), value);
    return of(ok);
}

static Fit fit_const(Check *c, const MxJson *schema, const MxJson *own, const MxJson *value) {
    (void)c, (void)schema;
    return of(json_is_same(own, value));
}

static Fit fit_any(Check *c, const MxJson *schema, const MxJson *own, const MxJson *value) {
    Fit out = MISFIT;
    (void)schema;
    for (size_t i = 0; i < mx_json_length(own); i++)
        out = either(out, fits(c, mx_json_at(own, i), value));
    return out;
}

static Fit fit_all(Check *c, const MxJson *schema, const MxJson *own, const MxJson *value) {
    Fit out = FIT;
    (void)schema;
    for (size_t i = 0; i < mx_json_length(own); i++)
        out = both(out, fits(c, mx_json_at(own, i), value));
    return out;
}

static Fit fit_one(Check *c, const MxJson *schema, const MxJson *own, const MxJson *value) {
    int n[FIT + 1] = {0};
    (void)schema;
    for (size_t i = 0; i < mx_json_length(own); i++) n[fits(c, mx_json_at(own, i), value)]++;
    return n[FIT] > 1 || !(n[FIT] + n[UNSURE]) ? MISFIT : n[UNSURE] ? UNSURE : FIT;
}

static Fit fit_not(Check *c, const MxJson *schema, const MxJson *own, const MxJson *value) {
    (void)schema;
    return opposite(fits(c, own, value));
}

static Fit fit_if(Check *c, const MxJson *schema, const MxJson *own, const MxJson *value) {
    const MxJson *then = mx_json_get(schema, "then"), *other = mx_json_get(schema, "else");
    const Fit is = fits(c, own, value);
    const Fit a = then ? fits(c, then, value) : FIT, b = other ? fits(c, other, value) : FIT;
    return is == FIT ? a : is == MISFIT ? b : a == b ? a : UNSURE;
}

static Fit fit_reference(Check *c, const MxJson *schema, const MxJson *own, const MxJson *value) {
    const MxJson *found = schema_at(c->arena, c->root, mx_json_string(own));
    (void)schema;
    return found ? fits(c, found, value) : UNSURE;
}

static Fit fit_properties(Check *c, const MxJson *schema, const MxJson *own, const MxJson *value) {
    Fit out = FIT;
    const char *name;
    MxJson *one;
    (void)schema;
    for (void *at = NULL; mx_json_next(own, &at, &name, &one);)
        if (mx_json_get(value, name)) out = both(out, fits(c, one, mx_json_get(value, name)));
    return out;
}

static Fit fit_required(Check *c, const MxJson *schema, const MxJson *own, const MxJson *value) {
    bool ok = true;
    (void)c, (void)schema;
    for (size_t i = 0; i < mx_json_length(own); i++) {
        const char *name = mx_json_string(mx_json_at(own, i));
        ok &= name && mx_json_get(value, name);
    }
    return of(ok);
}

/* A text, as far as our pattern finds what others find. */
static Fit fit_text(Check *c, const char *pattern, const char *text) {
    Pattern p;
    if (!pattern || pattern_read(c->arena, pattern, &p)) return UNSURE;
    bool is_plain = true;
    for (const char *at = text; *at; at++) is_plain &= *at >= ' ' && *at <= '~';
    return pattern_finds(&p, text) ? FIT : p.is_narrow && !is_plain ? UNSURE : MISFIT;
}

static Fit fit_patterns(Check *c, const MxJson *schema, const MxJson *own, const MxJson *value) {
    Fit out = FIT;
    const char *name, *pattern;
    MxJson *one, *member;
    (void)schema;
    for (void *at = NULL; mx_json_next(own, &at, &pattern, &one);)
        for (void *to = NULL; mx_json_next(value, &to, &name, &member);)
            out = both(out, either(opposite(fit_text(c, pattern, name)), fits(c, one, member)));
    return out;
}

static Fit fit_others(Check *c, const MxJson *schema, const MxJson *own, const MxJson *value) {
    Fit out = FIT;
    const char *name, *pattern;
    MxJson *one, *member;
    for (void *at = NULL; mx_json_next(value, &at, &name, &member);) {
        Fit named = of(mx_json_get(mx_json_get(schema, "properties"), name) != NULL);
        void *to = NULL;
        while (mx_json_next(mx_json_get(schema, "patternProperties"), &to, &pattern, &one))
            named = either(named, fit_text(c, pattern, name));
        out = both(out, either(named, fits(c, own, member)));
    }
    return out;
}

static Fit fit_names(Check *c, const MxJson *schema, const MxJson *own, const MxJson *value) {
    Fit out = FIT;
    const char *name;
    MxJson *member;
    (void)schema;
    for (void *at = NULL; mx_json_next(value, &at, &name, &member);) {
        MxJson *holder = mx_json_object(c->arena);
        mx_json_set_string(holder, "name", name);
        out = both(out, fits(c, own, mx_json_get(holder, "name")));
    }
    return out;
}

static Fit fit_items(Check *c, const MxJson *schema, const MxJson *own, const MxJson *value) {
    const bool is_list = schema_is(own, "a list"); /* as before draft 2020-12 */
    const MxJson *first = is_list ? own : mx_json_get(schema, "prefixItems");
    const MxJson *rest = is_list ? mx_json_get(schema, "additionalItems") : own;
    Fit out = FIT;
    for (size_t i = 0; i < mx_json_length(value); i++) {
        const MxJson *one = i < mx_json_length(first) ? mx_json_at(first, i) : rest;
        if (one) out = both(out, fits(c, one, mx_json_at(value, i)));
    }
    return out;
}

static Fit fit_first(Check *c, const MxJson *schema, const MxJson *own, const MxJson *value) {
    Fit out = FIT;
    (void)schema;
    for (size_t i = 0; i < mx_json_length(value) && i < mx_json_length(own); i++)
        out = both(out, fits(c, mx_json_at(own, i), mx_json_at(value, i)));
    return out;
}

static Fit fit_contains(Check *c, const MxJson *schema, const MxJson *own, const MxJson *value) {
    double min = 1, max = INFINITY;
    int n[FIT + 1] = {0};
    mx_json_number(mx_json_get(schema, "minContains"), &min);
    mx_json_number(mx_json_get(schema, "maxContains"), &max);
    for (size_t i = 0; i < mx_json_length(value); i++) n[fits(c, own, mx_json_at(value, i))]++;
    const double least = n[FIT], most = n[FIT] + n[UNSURE];
    return most < min || least > max ? MISFIT : least < min || most > max ? UNSURE : FIT;
}

static Fit fit_unique(Check *c, const MxJson *schema, const MxJson *own, const MxJson *value) {
    bool is_unique = false, ok = true;
    (void)c, (void)schema;
    mx_json_bool(own, &is_unique);
    for (size_t i = 0; is_unique && i < mx_json_length(value); i++)
        for (size_t k = 0; k < i; k++)
            ok &= !json_is_same(mx_json_at(value, i), mx_json_at(value, k));
    return of(ok);
}

static Fit fit_pattern(Check *c, const MxJson *schema, const MxJson *own, const MxJson *value) {
    (void)schema;
    return fit_text(c, mx_json_string(own), mx_json_string(value));
}

/* Ours is of a part of each format. */
static Fit fit_format(Check *c, const MxJson *schema, const MxJson *own, const MxJson *value) {
    (void)schema;
    return either(UNSURE, fit_text(c, schema_format(own), mx_json_string(value)));
}

static Fit fit_multiple(Check *c, const MxJson *schema, const MxJson *own, const MxJson *value) {
    double number, step;
    bool is;
    (void)schema;
    if (!mx_json_number(own, &step) || !mx_json_number(value, &number)) return UNSURE;
    return schema_is_multiple(c->arena, number, step, &is) ? of(is) : UNSURE;
}

/* ---- words of a number that is less or more than another one */

static double count_of(const MxJson *value) {
    const char *text = mx_json_string(value);
    double number = (double)mx_json_length(value);
    if (mx_json_number(value, &number)) return number;
    for (size_t at = 0; text && text[at]; number++) mx_char_next(text, &at);
    return number;
}

static const struct {
    const char *word;
    unsigned of;
    bool is_low, is_without;
} limits[] = {
    {"minimum", TYPE_NUMBER, true, false},         {"maximum", TYPE_NUMBER, false, false},
    {"exclusiveMinimum", TYPE_NUMBER, true, true}, {"exclusiveMaximum", TYPE_NUMBER, false, true},
    {"minLength", TYPE_TEXT, true, false},         {"maxLength", TYPE_TEXT, false, false},
    {"minItems", TYPE_LIST, true, false},          {"maxItems", TYPE_LIST, false, false},
    {"minProperties", TYPE_OBJECT, true, false},   {"maxProperties", TYPE_OBJECT, false, false},
};

static Fit fit_limit(int i, const MxJson *own, const MxJson *value) {
    double limit;
    if (!mx_json_number(own, &limit)) return UNSURE;
    const double number = count_of(value);
    return of((limits[i].is_low ? number > limit : number < limit) ||
              (number == limit && !limits[i].is_without));
}

/* ---- */

#define ALL UINT32_MAX
static const struct {
    const char *word;
    unsigned of; /* values of other types fit */
    Word *fits;
} rows[] = {
    {"type", ALL, fit_type},
    {"enum", ALL, fit_enum},
    {"const", ALL, fit_const},
    {"anyOf", ALL, fit_any},
    {"allOf", ALL, fit_all},
    {"oneOf", ALL, fit_one},
    {"not", ALL, fit_not},
    {"if", ALL, fit_if},
    {"$ref", ALL, fit_reference},
    {"properties", TYPE_OBJECT, fit_properties},
    {"required", TYPE_OBJECT, fit_required},
    {"patternProperties", TYPE_OBJECT, fit_patterns},
    {"additionalProperties", TYPE_OBJECT, fit_others},
    {"propertyNames", TYPE_OBJECT, fit_names},
    {"items", TYPE_LIST, fit_items},
    {"prefixItems", TYPE_LIST, fit_first},
    {"contains", TYPE_LIST, fit_contains},
    {"uniqueItems", TYPE_LIST, fit_unique},
    {"pattern", TYPE_TEXT, fit_pattern},
    {"format", TYPE_TEXT, fit_format},
    {"multipleOf", TYPE_NUMBER, fit_multiple},
};

static Fit fit_word(Check *c, const MxJson *schema, const char *word, const MxJson *value) {
    const MxJson *own = mx_json_get(schema, word);
    const unsigned type = schema_type_of(value);
    for (int i = 0; i < MX_COUNT(rows); i++)
        if (!strcmp(rows[i].word, word))
            return rows[i].of & type ? rows[i].fits(c, schema, own, value) : FIT;
    for (int i = 0; i < MX_COUNT(limits); i++)
        if (!strcmp(limits[i].word, word))
            return limits[i].of & type ? fit_limit(i, own, value) : FIT;
    return schema_knows(word) ? FIT : UNSURE; /* a note, or said with another word */
}

static Fit fits(Check *c, const MxJson *schema, const MxJson *value) {
    bool is_true;
    Fit out = FIT;
    const char *word;
    MxJson *own;
    if (mx_json_bool(schema, &is_true)) return of(is_true);
    if (c->depth == DEEPEST || ++c->n_steps > MOST_STEPS) return UNSURE;
    c->depth++;
    for (void *at = NULL; out != MISFIT && mx_json_next(schema, &at, &word, &own);)
        out = both(out, fit_word(c, schema, word, value));
    c->depth--;
    return out;
}

Fit schema_fits(MxArena *arena, const MxJson *root, const MxJson *schema, const MxJson *value) {
    Check c = {.arena = arena, .root = root};
    return fits(&c, schema, value);
}

bool mx_schema_allows(const MxJson *root, const MxJson *schema, const MxJson *value) {
    MxArena scratch = {.name = "check"};
    bool ok = schema_fits(&scratch, root, schema, value) != MISFIT;
    mx_arena_release(&scratch);
    return ok;
}
