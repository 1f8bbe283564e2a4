/* schema_texts.c — texts of schemas: how long they are, and what must be found in them, or must
 * not: regular expressions, formats, and texts that a schema names. */
#include "pattern.h"

#define MONTHS_28 "(?:0[1-9]|1[0-9]|2[0-8])"
#define DATE                                                                                       \
    "[0-9]{3}[1-9]-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|"      \
    "[12][0-9]|30)|02-" MONTHS_28 ")"
#define TIME   "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,6})?"
#define OFFSET "(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
#define BYTE   "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define LABEL  "[a-z0-9]{1,15}(?:-[a-z0-9]{1,15}){0,2}"
#define HOST   LABEL "(?:\\." LABEL "){0,4}"

/* What is of each format, if not all: dates without the 29th of February, host names in lower case.
 * Source: JSON Schema 2020-12 validation, 7.3; RFC 3339, 4122, 5321, 3986. */
static const struct {
    const char *name, *pattern;
} formats[] = {
    {"date", "^" DATE "$"},
    {"time", "^" TIME OFFSET "$"},
    {"date-time", "^" DATE "T" TIME OFFSET "$"},
    {"duration", "^P(?:[0-9]{1,6}W|[0-9]{1,6}D(?:T[0-9]{1,6}[HMS])?|T[0-9]{1,6}[HMS])$"},
    {"uuid", "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"},
    {"email", "^[A-Za-z0-9_+-]{1,20}(?:\\.[A-Za-z0-9_+-]{1,20}){0,2}@" HOST "\\.[a-z]{2,12}$"},
    {"hostname", "^" HOST "$"},
    {"ipv4", "^" BYTE "(?:\\." BYTE "){3}$"},
    {"ipv6", "^[0-9a-fA-F]{1,4}(?::[0-9a-fA-F]{1,4}){7}$"},
    {"uri", "^[a-z][a-z0-9+.-]{0,15}://[A-Za-z0-9._~-]+(?::[0-9]{1,4})?(?:/[A-Za-z0-9._~@:-]*)*$"},
};

const char *schema_format(const MxJson *name) {
    const char *text = mx_json_string(name);
    for (int i = 0; text && i < MX_COUNT(formats); i++)
        if (!strcmp(formats[i].name, text)) return formats[i].pattern;
    return NULL;
}

static const char *find_format(Schemas *s, const MxJson *name) {
    const char *text = mx_json_string(name), *found = schema_format(name);
    MxText all;
    if (found) return found;
    mx_text_init(&all, s->g->arena);
    for (int i = 0; i < MX_COUNT(formats); i++)
        mx_text_add(&all, "%s%s", i ? ", " : "", formats[i].name);
    schema_fail(s, "format", "found \"%.60s\", wanted one of %s", text ? text : "no text",
                all.data);
    return NULL;
}

/* ---- demands */

typedef struct Demands {
    Schemas *s;
    Demand *demand; /* [n] */
    int n;
    size_t most;
} Demands;

static Demand *new_demand(Demands *d, bool is_wanted) {
    MX_ASSERT((size_t)d->n < d->most);
    d->demand[d->n].is_wanted = is_wanted;
    return &d->demand[d->n++];
}

static bool add_pattern(Demands *d, const char *member, const char *pattern, bool is_wanted) {
    Schemas *s = d->s;
    const char *wrong = pattern_read(s->g->arena, pattern, &new_demand(d, is_wanted)->pattern);
    return !wrong || schema_fail(s, member, "the pattern %s", wrong);
}

/* What a schema's "pattern" and "format" say. */
static bool add_words(Demands *d, const MxJson *schema, bool is_wanted) {
    Schemas *s = d->s;
    const MxJson *pattern = mx_json_get(schema, "pattern"), *format = mx_json_get(schema, "format");
    if (pattern && !mx_json_string(pattern)) return schema_want(s, "pattern", pattern, "a text");
    if (pattern && !add_pattern(d, "pattern", mx_json_string(pattern), is_wanted)) return false;
    const char *own = format ? find_format(s, format) : NULL;
    return !format || (own && add_pattern(d, "format", own, is_wanted));
}

/* Texts that may not be. */
static bool add_others(Demands *d, const MxJson *values) {
    Schemas *s = d->s;
    const char **texts = mx_new_n(s->g->arena, const char *, mx_json_length(values) + 1);
    int64_t n = 0;
    for (size_t i = 0; i < mx_json_length(values); i++)
        if (mx_json_string(mx_json_at(values, i)))
            texts[n++] = mx_json_string(mx_json_at(values, i));
    if (!n) return true;
    const char *wrong = pattern_of_texts(s->g->arena, texts, n, &new_demand(d, false)->pattern);
    return !wrong || schema_fail(s, "not", "what it names %s", wrong);
}

/* Those of the schema itself, of what could not be merged into it (see merge.c), and the atoms of
 * its "not" (see opposite.c). */
static bool find_demands(Demands *d, const MxJson *schema) {
    const MxJson *more = mx_json_get(schema, "allOf"), *without = mx_json_get(schema, "not");
    const MxJson *atoms = mx_json_get(without, "anyOf");
    bool ok = true;
    d->most = 2 + 2 * mx_json_length(more) + 1 + mx_json_length(atoms);
    d->demand = mx_new_n(d->s->g->arena, Demand, d->most);
    ok = add_words(d, schema, true);
    for (size_t i = 0; ok && i < mx_json_length(more); i++)
        ok = add_words(d, mx_json_at(more, i), true);
    for (size_t i = 0; ok && without && i < (atoms ? mx_json_length(atoms) : 1); i++) {
        const MxJson *atom = atoms ? mx_json_at(atoms, i) : without;
        const MxJson *values = mx_json_get(atom, "enum");
        ok = values ? add_others(d, values) : add_words(d, atom, false);
    }
    return ok;
}

/* ---- */

/* Texts between quotes of one kind, or as they are. */
static bool write_text(Demands *d, Writing how, int32_t from, int32_t to) {
    Schemas *s = d->s;
    const MxGrammarValues *v = s->values;
    const char quote[] = {how.quote, '\0'};
    const bool is_free = !how.min && how.max == GUIDE_UNBOUNDED;
    int32_t first = mx_grammar_state(s->g), last = mx_grammar_state(s->g);
    mx_grammar_text(s->g, from, how.quote ? quote : v->begin, first);
    mx_grammar_text(s->g, last, how.quote ? quote : v->end, to);
    if (!d->n && !how.quote && is_free) {
        mx_grammar_other(s->g, first, &v->without, 1, last);
        return true;
    }
    if (!d->n && how.quote) {
        guide_quoted(s->g, first, how, last);
        return true;
    }
    if (!d->n && !add_pattern(d, "", "", true)) return false;
    const char *wrong = pattern_write(s->g, first, d->demand, d->n, how, last);
    return !wrong || schema_fail(s, "pattern", "the pattern %s", wrong);
}

bool schema_string(Schemas *s, const MxJson *schema, int32_t from, int32_t to) {
    Writing how = {.values = s->values, .max = GUIDE_UNBOUNDED};
    Demands d = {.s = s};
    if (!schema_count(s, schema, "minLength", &how.min) ||
        !schema_count(s, schema, "maxLength", &how.max) || !find_demands(&d, schema))
        return false;
    if (how.min > how.max) return true;
    if (!s->values->escapes) return write_text(&d, how, from, to);
    for (const char *quote = s->values->quotes; *quote; quote++) {
        how.quote = *quote;
        if (!write_text(&d, how, from, to)) return false;
    }
    return true;
}
