/* call_tags.c — readers of calls whose arguments stand between tags, and of messages in channels.
 */
#include "call_formats.h"

/* ---- arguments between tags */

/* A function's parameters; NULL = they are not known. */
static const MxJson *parameters_of(const Calls *calls, const char *function) {
    for (size_t i = 0; i < mx_json_length(calls->tools); i++) {
        const MxJson *one = mx_json_get(mx_json_at(calls->tools, i), "function");
        const char *own = mx_json_string(mx_json_get(one, "name"));
        if (own && !strcmp(own, function)) return mx_json_get(one, "parameters");
    }
    return NULL;
}

/* A value that is written as a text, and the schema that it must be of. */
typedef struct Untold {
    MxArena *arena;
    const MxJson *root, *schema;
    const char *value;
    size_t n;
} Untold;

/* What a text of JSON is, if it is one; false: the schema does not allow it. */
static bool is_allowed(const Untold *of, const char *json, const char **out) {
    MxError err = {0};
    const MxJson *value =
        json ? mx_json_parse_value(of->arena, json, strlen(json), MX_NOWHERE, &err) : NULL;
    mx_error_release(&err);
    *out = value ? mx_json_dump(of->arena, value, false) : NULL;
    return value && (!of->schema || mx_schema_allows(of->root, of->schema, value));
}

/* A text, JSON, or what Python writes for it, as templates give it to models: the first that the
 * schema allows, of "null" the second. Where it allows none, or is not known, the last that it is.
 */
static const char *as_json(const Untold *of) {
    const char *own = mx_arena_strndup(of->arena, of->value, of->n), *found[3] = {NULL};
    const char *const ways[] = {mx_json_quote(of->arena, of->value, of->n), own,
                                calls_literal(of->arena, of->value, of->n)};
    const bool is_json_first = !of->schema || !strcmp(own, "null");
    const int order[] = {is_json_first, !is_json_first, 2}, n = of->schema ? MX_COUNT(ways) : 2;
    for (int i = 0; i < n; i++)
        if (is_allowed(of, ways[order[i]], &found[order[i]])) return found[order[i]];
    return found[1] ? found[1] : found[2] && n > 2 ? found[2] : ways[0];
}

void calls_add_value(const Calls *calls, MxText *out, const char *function, const char *name,
                     const char *value, size_t n) {
    MxArena scratch = {.name = "value"};
    const MxJson *root = parameters_of(calls, function);
    const Untold of = {.arena = &scratch,
                       .root = root,
                       .value = value,
                       .n = n,
                       .schema = mx_json_get(mx_json_get(root, "properties"), name)};
    mx_text_add(out, "%s", as_json(&of));
    mx_arena_release(&scratch);
}

/* Text up to another one, which is skipped; MX_FOUND_PART: that may still come. */
static MxFound read_until(MxRest *rest, const char *end, const char **text, size_t *n) {
    *text = rest->at;
    const char *found = memmem(rest->at, (size_t)(rest->end - rest->at), end, strlen(end));
    if (!found) return calls_at_end(rest);
    *n = (size_t)(found - rest->at);
    rest->at = found + strlen(end);
    return MX_FOUND_CALL;
}

/* One argument: its name and value; a new line around the value is not of it. */
static MxFound read_argument(Calls *calls, MxRest *rest, const char *function, MxText *out) {
    const CallTags *tags = calls->format->tags;
    const char *name, *value, *type = "";
    size_t n_name, n_value, n_type = 0;
    MxFound found = read_until(rest, tags->name_end, &name, &n_name);
    if (found == MX_FOUND_CALL && tags->type_end)
        found = read_until(rest, tags->type_end, &type, &n_type);
    mx_rest_skip_spaces(rest);
    if (found == MX_FOUND_CALL) found = mx_rest_skip(rest, tags->value);
    if (found == MX_FOUND_CALL) found = read_until(rest, tags->value_end, &value, &n_value);
    if (found != MX_FOUND_CALL) return found;
    if (n_value && *value == '\n') value++, n_value--;
    if (n_value && value[n_value - 1] == '\n') n_value--;
    const char *own = mx_arena_strndup(&calls->opened, name, n_name);
    mx_text_add(out, "%s%s: ", out->len > 1 ? ", " : "",
                mx_json_quote(&calls->opened, own, n_name));
    if (n_type == 4 && !memcmp(type, "true", n_type))
        mx_text_add(out, "%s", mx_json_quote(&calls->opened, value, n_value));
    else
        calls_add_value(calls, out, function, own, value, n_value);
    return MX_FOUND_CALL;
}

MxFound calls_read_tags(Calls *calls, MxRest *rest) {
    const CallTags *tags = calls->format->tags;
    MxText out;
    if (tags->begin) mx_rest_skip(rest, tags->begin);
    mx_rest_skip_spaces(rest);
    MxFound found = mx_rest_skip(rest, tags->head);
    if (found != MX_FOUND_CALL) return found;
    const char *name = rest->at;
    while (rest->at < rest->end && calls_is_of_name(*rest->at)) rest->at++;
    if (rest->at == rest->end) return calls_at_end(rest);
    if (rest->at == name || !strchr(tags->name_ends, *rest->at)) return MX_FOUND_NONE;
    size_t n = (size_t)(rest->at - name);
    if (*rest->at != '<') rest->at++;
    if (tags->head_end) found = mx_rest_skip(rest, tags->head_end);
    if (found != MX_FOUND_CALL) return found;
    mx_text_init(&out, &calls->opened);
    mx_text_add(&out, "{");
    calls_open(calls, name, n);
    const char *own = calls->call[calls->n + calls->n_open - 1].name;
    bool is_cut = false;
    while (found == MX_FOUND_CALL) {
        mx_rest_skip_spaces(rest);
        MxRest here = {rest->at, rest->end, false};
        found = mx_rest_skip(&here, tags->name);
        if (found == MX_FOUND_CALL) found = read_argument(calls, &here, own, &out);
        is_cut = found == MX_FOUND_PART && rest->is_over;
        if (found == MX_FOUND_CALL) rest->at = here.at;
    }
    if (is_cut) rest->at = rest->end, found = MX_FOUND_NONE;
    MxFound closes = found == MX_FOUND_NONE && !is_cut ? mx_rest_skip(rest, tags->close) : found;
    if (closes != MX_FOUND_PART && !is_cut) mx_text_add(&out, "}");
    calls_open_arguments(calls, out.data, out.len);
    if (closes != MX_FOUND_CALL) return closes;
    if (!tags->end) return closes;
    mx_rest_skip_spaces(rest);
    return mx_rest_skip(rest, tags->end) == MX_FOUND_PART ? MX_FOUND_PART : MX_FOUND_CALL;
}

/* ---- channels */

/* A message with its head: to a function, whose arguments it is; in the channel analysis, which is
 * reasoning behind the first one; or in another one, whose text follows. */
MxFound calls_read_channel(Calls *calls, MxRest *rest) {
    static const char to[] = "to=functions.";
    const char *head, *text;
    size_t n, n_text;
    MxFound found = read_until(rest, "<|message|>", &head, &n);
    if (found != MX_FOUND_CALL) return found;
    const char *name = memmem(head, n, to, sizeof to - 1);
    if (!name && memmem(head, n, "<|channel|>analysis", sizeof "<|channel|>analysis" - 1)) {
        const char *from = rest->at;
        found = read_until(rest, "<|end|>", &text, &n_text);
        if (found != MX_FOUND_CALL && !rest->is_over) return found;
        if (found != MX_FOUND_CALL) n_text = (size_t)(rest->end - from), rest->at = rest->end;
        if (calls->reasoned.text.len) mx_text_addn(&calls->reasoned.text, "\n", 1);
        mx_text_addn(&calls->reasoned.text, text, n_text);
        return MX_FOUND_CALL;
    }
    if (!name) return MX_FOUND_CALL;
    name += sizeof to - 1;
    size_t n_name = 0;
    while (name + n_name < head + n && calls_is_of_name(name[n_name])) n_name++;
    mx_rest_skip_spaces(rest);
    if (rest->at == rest->end) return calls_at_end(rest);
    if (*rest->at != '{' || !n_name) return MX_FOUND_NONE;
    calls_open(calls, name, n_name);
    return calls_read_arguments(calls, rest);
}
