/* call_guide.c — grammars of answers: JSON; calls of tools that must be there, or that may stand
 * behind text, with arguments as the functions' schemas say; and reasoning before these. */
#include "call_formats.h"

typedef struct Writer {
    MxArena *arena;
    const CallRules *rules;
    MxGrammar *g;
    const CallWriting *writes;
    const MxGrammarValues *arguments; /* with marks as the vocabulary has them */
    MxError *err;
} Writer;

static const char *spell(const Writer *w, const char *text) {
    return text ? mx_vocabulary_spell(w->arena, w->rules->vocabulary, text) : NULL;
}

/* What texts do not have in them is told as it reads. */
static const MxGrammarValues *spell_values(Writer *w, const MxGrammarValues *values) {
    if (!values || values == &mx_values_json) return values;
    MxGrammarValues *out = mx_new(w->arena, MxGrammarValues);
    *out = *values;
    const char **const texts[] = {&out->begin,       &out->end,         &out->other,
                                  &out->open,        &out->close,       &out->between,
                                  &out->before_name, &out->behind_name, &out->behind_value};
    for (int i = 0; i < MX_COUNT(texts); i++) *texts[i] = spell(w, *texts[i]);
    out->within = spell_values(w, values->within);
    return out;
}

static int32_t write_text(Writer *w, int32_t from, const char *text) {
    int32_t to = mx_grammar_state(w->g);
    mx_grammar_text(w->g, from, spell(w, text), to);
    return to;
}

/* What stands before arguments. */
static int32_t write_head(Writer *w, int32_t at, const char *head, const char *name) {
    enum { MOST_DIGITS = 2 };
    for (const char *next; *head; head = next) {
        size_t n = strcspn(head, "%#");
        next = head + n + (head[n] != '\0');
        at = write_text(w, at, mx_arena_strndup(w->arena, head, n));
        if (head[n] == '%') at = write_text(w, at, name);
        if (head[n] != '#') continue;
        int32_t end = mx_grammar_state(w->g);
        for (int i = 0; i < MOST_DIGITS; i++) {
            int32_t digit = mx_grammar_state(w->g);
            mx_grammar_bytes(w->g, at, '0', '9', digit);
            mx_grammar_nothing(w->g, digit, end);
            at = digit;
        }
        at = end;
    }
    return at;
}

/* Where calls need not be, only strict functions have arguments of their schemas. */
static const MxJson *schema_of(const CallRules *rules, const MxJson *function) {
    const MxJson *own = mx_json_get(function, "parameters");
    bool is_strict = false;
    mx_json_bool(mx_json_get(function, "strict"), &is_strict);
    return own && (is_strict || rules->choice == CALLS_NEEDED) ? own : NULL;
}

static bool write_call(Writer *w, const MxJson *function, int32_t from, int32_t to) {
    const CallWriting *how = w->writes;
    const char *name = mx_json_string(mx_json_get(function, "name"));
    const MxJson *schema = schema_of(w->rules, function);
    static const char any[] = "{\"type\": \"object\"}";
    const char *title = mx_arena_printf(w->arena, "tools: function \"%.60s\": parameters", name);
    for (const char *at = name; *at; at++)
        if (!calls_is_of_name(*at))
            return mx_fail(w->err, MX_EXIT_BAD_INPUT, MX_NOWHERE,
                           "tools: found the name \"%.60s\", wanted letters, digits, '_', '-' and "
                           "'.', so that calls of it can be told from other text",
                           name);
    if (!schema) schema = mx_json_parse(w->arena, any, strlen(any), "schema", w->err);
    int32_t made = mx_grammar_state(w->g);
    return mx_grammar_schema(w->g, write_head(w, from, how->head, name), schema, title,
                             w->arguments, made, w->err) &&
           (mx_grammar_nothing(w->g, write_text(w, made, how->tail), to), true);
}

/* Any function, or the one that must be. */
static bool write_choice(Writer *w, int32_t from, int32_t to) {
    const MxJson *tools = w->rules->tools;
    for (size_t i = 0; i < mx_json_length(tools); i++) {
        const MxJson *function = mx_json_get(mx_json_at(tools, i), "function");
        const char *name = mx_json_string(mx_json_get(function, "name"));
        if (w->rules->name && strcmp(w->rules->name, name)) continue;
        if (!write_call(w, function, from, to)) return false;
    }
    return true;
}

static bool write_calls(Writer *w, int32_t from, int32_t to) {
    const CallWriting *how = w->writes;
    int32_t first = write_text(w, from, how->begin), made = mx_grammar_state(w->g);
    if (!write_choice(w, first, made)) return false;
    if (how->between && !w->rules->has_one)
        mx_grammar_nothing(w->g, write_text(w, made, how->between), first);
    mx_grammar_nothing(w->g, write_text(w, made, how->end), to);
    return true;
}

/* Text before calls, or without: it has none of the marks that they begin with. Where calls must be
 * all of it, it begins otherwise. */
static void write_other(Writer *w, int32_t from, int32_t to) {
    const CallFormat *f = w->rules->format;
    const char *marks[2 * MOST_MARKS];
    int n = 0, first = f->is_whole ? 1 : 0, last = f->n_begins + f->n_skipped;
    for (int i = first; i < last; i++)
        marks[n++] = mx_vocabulary_spell(w->arena, w->rules->vocabulary, f->marks[i]);
    if (f->is_whole) {
        const uint8_t mark = (uint8_t)f->marks[0][0];
        int32_t begun = mx_grammar_state(w->g);
        mx_grammar_bytes(w->g, from, '!', mark - 1, begun);
        mx_grammar_bytes(w->g, from, mark + 1, 0xfe, begun);
        mx_grammar_nothing(w->g, from, to);
        from = begun;
    }
    mx_grammar_other(w->g, from, marks, n, to);
}

/* What stands before an answer that is no call. */
static int32_t write_lead(Writer *w, int32_t from) {
    const CallRules *rules = w->rules;
    return mx_reasoning_lead(w->g, w->arena, rules->vocabulary, rules->reasoning, from);
}

static bool write_json(Writer *w, int32_t from, MxError *err) {
    from = mx_grammar_spaces(w->g, write_lead(w, from), !w->rules->tools);
    return mx_grammar_schema(w->g, from, w->rules->schema, "response_format", &mx_values_json,
                             MX_GRAMMAR_END, err);
}

bool calls_grammar(MxArena *arena, const CallRules *rules, MxGrammar **out, MxError *err) {
    Writer w = {.arena = arena, .rules = rules, .g = *out = mx_grammar_new(arena), .err = err};
    w.writes = rules->writes ? rules->writes : rules->format ? &rules->format->writes : NULL;
    if (rules->tools) w.arguments = spell_values(&w, w.writes->arguments);
    if (!w.arguments) w.arguments = &mx_values_json;
    int32_t begin = mx_reasoning_write(w.g, arena, rules->vocabulary, rules->reasoning,
                                       rules->state, MX_GRAMMAR_START),
            start = mx_grammar_state(w.g), end = mx_grammar_state(w.g);
    bool is_free = rules->choice == CALLS_FREE;
    mx_grammar_nothing(w.g, begin, start);
    mx_grammar_nothing(w.g, end, MX_GRAMMAR_END);
    if (is_free && rules->schema && !write_json(&w, begin, err)) return false;
    if (!rules->tools) return mx_grammar_finish(w.g, "response_format", err);
    if (is_free && !rules->schema) {
        int32_t behind = mx_grammar_state(w.g);
        write_other(&w, write_lead(&w, begin), behind);
        mx_grammar_nothing(w.g, behind, end);
        if (!rules->format->is_whole) mx_grammar_nothing(w.g, behind, start);
    }
    return write_calls(&w, start, end) && mx_grammar_finish(w.g, "tools", err);
}
