/* values.c — how values are written: the tables of JSON and Python, and values that a schema names,
 * written as a table says. */
#include "internal.h"

/* Objects in braces, whose names are texts. */
#define BRACED                                                                                     \
    .other = "", .open = "{", .between = ",", .close = "}", .behind_name = ":",                    \
    .behind_value = "", .has_spaces = true

const MxGrammarValues mx_values_json = {
    .true_word = "true",
    .false_word = "false",
    .null_word = "null",
    .quotes = "\"",
    .escapes = "\"\\/bfnrtu",
    BRACED,
};

const MxGrammarValues mx_values_python = {
    .true_word = "True",
    .false_word = "False",
    .null_word = "None",
    .quotes = "'\"",
    .escapes = "'\"\\bfnrtu",
    BRACED,
};

const MxGrammarValues *values_within(const MxGrammarValues *values) {
    return values->within ? values->within : values;
}

bool values_has_name(const MxGrammarValues *values, const char *name) {
    return !values->before_name || (*name && !strpbrk(name, values->name_without));
}

typedef struct Writer {
    MxArena *arena;
    MxText out;
    char quote;
} Writer;

/* As JSON, but for quotes of the other kind. */
static void add_quoted(Writer *w, const MxGrammarValues *v, const char *text) {
    const char *json = mx_json_quote(w->arena, text, strlen(text));
    const char quote = strchr(v->quotes, w->quote) ? w->quote : *v->quotes;
    mx_text_addn(&w->out, &quote, 1);
    for (const char *at = json + 1; at[1]; at++) {
        const bool is_escape = *at == '\\', is_quote = is_escape && at[1] == '"';
        if (*at == quote || (is_quote && quote == '"')) mx_text_addn(&w->out, "\\", 1);
        at += is_quote;
        mx_text_addn(&w->out, at, 1);
        if (is_escape && !is_quote) mx_text_addn(&w->out, ++at, 1);
    }
    mx_text_addn(&w->out, &quote, 1);
}

static bool add_text(Writer *w, const MxGrammarValues *v, const char *text) {
    if (v->escapes)
        add_quoted(w, v, text);
    else
        mx_text_add(&w->out, "%s%s%s", v->begin, text, v->end);
    return v->escapes || !strstr(text, v->without);
}

static bool add_value(Writer *w, const MxGrammarValues *v, const MxJson *value);

static bool add_members(Writer *w, const MxGrammarValues *v, const MxJson *value) {
    const char *name, *space = v->has_spaces ? " " : "";
    MxJson *member;
    bool is_first = true, ok = true;
    mx_text_add(&w->out, "%s", v->open);
    for (void *at = NULL; ok && mx_json_next(value, &at, &name, &member); is_first = false) {
        if (!is_first) mx_text_add(&w->out, "%s%s", v->between, space);
        if (v->before_name)
            mx_text_add(&w->out, "%s%s%s", v->before_name, name, v->behind_name);
        else
            ok = add_text(w, v, name);
        if (!v->before_name) mx_text_add(&w->out, "%s%s", v->behind_name, space);
        ok = ok && values_has_name(v, name) && add_value(w, values_within(v), member);
        mx_text_add(&w->out, "%s", v->behind_value);
    }
    mx_text_add(&w->out, "%s", v->close);
    return ok;
}

static bool add_items(Writer *w, const MxGrammarValues *v, const MxJson *value) {
    bool ok = true;
    mx_text_add(&w->out, "[");
    for (size_t i = 0; ok && i < mx_json_length(value); i++) {
        if (i) mx_text_add(&w->out, ",%s", v->has_spaces ? " " : "");
        ok = add_value(w, values_within(v), mx_json_at(value, i));
    }
    mx_text_add(&w->out, "]");
    return ok;
}

static bool add_value(Writer *w, const MxGrammarValues *v, const MxJson *value) {
    const char *text = mx_json_string(value);
    bool is_true, is_object = schema_is(value, "an object");
    if (v->is_object && !is_object) return false;
    if (text) return add_text(w, v, text);
    if (v->is_object) return add_members(w, v, value);
    mx_text_add(&w->out, "%s", v->other);
    if (is_object) return add_members(w, values_within(v), value);
    if (schema_is(value, "a list")) return add_items(w, values_within(v), value);
    if (mx_json_bool(value, &is_true))
        mx_text_add(&w->out, "%s", is_true ? v->true_word : v->false_word);
    else
        mx_text_add(&w->out, "%s",
                    schema_is(value, "null") ? v->null_word : mx_json_dump(w->arena, value, false));
    return true;
}

const char *values_write(MxArena *arena, const MxGrammarValues *values, const MxJson *value,
                         char quote) {
    Writer w = {.arena = arena, .quote = quote};
    mx_text_init(&w.out, arena);
    return add_value(&w, values, value) ? w.out.data : NULL;
}
