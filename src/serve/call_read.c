/* call_read.c — readers of calls whose arguments are JSON. */
#include "call_formats.h"

/* ---- JSON */

/* Where an object or a list ends that begins here, by its brackets; NULL = it does not. */
static const char *find_end(const MxRest *rest) {
    bool in_text = false;
    int64_t depth = 0;
    for (const char *at = rest->at; at < rest->end; at++) {
        if (*at == '\\' && in_text)
            at++;
        else if (*at == '"')
            in_text = !in_text;
        else if (!in_text && (*at == '{' || *at == '['))
            depth++;
        else if (!in_text && (*at == '}' || *at == ']') && !--depth)
            return at + 1;
    }
    return NULL;
}

/* The end of the text: more may come. */
MxFound calls_at_end(const MxRest *rest) {
    return rest->is_over ? MX_FOUND_NONE : MX_FOUND_PART;
}

/* Arguments of the call that is open: an object, as it is written. */
MxFound calls_read_arguments(Calls *calls, MxRest *rest) {
    const char *end = find_end(rest), *from = rest->at;
    rest->at = end ? end : rest->end;
    calls_open_arguments(calls, from, (size_t)(rest->at - from));
    return end ? MX_FOUND_CALL : calls_at_end(rest);
}

/* A text in quotes with no escapes and nothing that would be one, such as a name. */
static MxFound read_quoted(MxRest *rest, const char **text, size_t *n) {
    MxFound found = mx_rest_skip(rest, "\"");
    if (found != MX_FOUND_CALL) return found;
    const char *end = memchr(rest->at, '"', (size_t)(rest->end - rest->at));
    if (!end) return calls_at_end(rest);
    *text = rest->at;
    *n = (size_t)(end - rest->at);
    rest->at = end + 1;
    for (size_t i = 0; i < *n; i++)
        if ((uint8_t)(*text)[i] < ' ' || (*text)[i] == '\\') return MX_FOUND_NONE;
    return *n ? MX_FOUND_CALL : MX_FOUND_NONE;
}

/* {NAME: up to the object of arguments. */
static MxFound read_named_head(MxRest *rest, const char **name, size_t *n) {
    MxFound found = mx_rest_skip(rest, "{");
    mx_rest_skip_spaces(rest);
    if (found == MX_FOUND_CALL) found = read_quoted(rest, name, n);
    mx_rest_skip_spaces(rest);
    if (found == MX_FOUND_CALL) found = mx_rest_skip(rest, ":");
    mx_rest_skip_spaces(rest);
    if (found != MX_FOUND_CALL) return found;
    return rest->at == rest->end ? calls_at_end(rest)
           : *rest->at == '{'    ? MX_FOUND_CALL
                                 : MX_FOUND_NONE;
}

/* {"name": …, "arguments" or "parameters": up to the object that they are. */
static MxFound read_head(MxRest *rest, const char **name, size_t *n) {
    static const char *const form[] = {"{", "\"name\"", ":", NULL, ",", NULL, ":", NULL};
    const char *key = "";
    size_t n_key = 0;
    for (int i = 0; i < MX_COUNT(form); i++) {
        mx_rest_skip_spaces(rest);
        bool is_last = i + 1 == MX_COUNT(form);
        if (is_last)
            return rest->at == rest->end ? calls_at_end(rest)
                   : *rest->at == '{'    ? MX_FOUND_CALL
                                         : MX_FOUND_NONE;
        MxFound found = form[i]  ? mx_rest_skip(rest, form[i])
                        : i == 3 ? read_quoted(rest, name, n)
                                 : read_quoted(rest, &key, &n_key);
        if (found != MX_FOUND_CALL) return found;
        bool is_key = (n_key == 9 && !memcmp(key, "arguments", n_key)) ||
                      (n_key == 10 && !memcmp(key, "parameters", n_key));
        if (n_key && !is_key) return MX_FOUND_NONE;
    }
    return MX_FOUND_NONE;
}

static bool is_object(const MxJson *value) {
    return value && !strcmp(mx_json_kind(value), "an object");
}

/* {"name" or "tool_name": …, "arguments" or "parameters": …}, which are an object or its text, or
 * missing. */
static bool open_object(Calls *calls, const MxJson *json) {
    const MxJson *value = mx_json_get(json, "arguments"), *own = mx_json_get(json, "name");
    if (!value) value = mx_json_get(json, "parameters");
    if (!own) own = mx_json_get(json, "tool_name");
    const char *name = is_object(json) ? mx_json_string(own) : NULL;
    const char *text = value ? mx_json_string(value) : "{}";
    if (text)
        text = mx_arena_strdup(&calls->opened, text);
    else if (is_object(value))
        text = mx_json_dump(&calls->opened, value, false);
    if (!name || !*name || !text) return false;
    calls_open(calls, name, strlen(name));
    calls_open_arguments(calls, text, strlen(text));
    return true;
}

/* An object in any other order, when it is there. */
static MxFound read_other_object(Calls *calls, MxRest *rest) {
    MxArena scratch = {.name = "call"};
    MxError err = {0};
    const char *end = find_end(rest);
    if (!end) return calls_at_end(rest);
    const MxJson *json =
        mx_json_parse_value(&scratch, rest->at, (size_t)(end - rest->at), MX_NOWHERE, &err);
    bool ok = json && open_object(calls, json);
    if (ok) rest->at = end;
    mx_error_release(&err);
    mx_arena_release(&scratch);
    return ok ? MX_FOUND_CALL : MX_FOUND_NONE;
}

static MxFound read_object(Calls *calls, MxRest *rest) {
    const char *name;
    size_t n;
    mx_rest_skip_spaces(rest);
    if (rest->at == rest->end) return calls_at_end(rest);
    if (*rest->at != '{') return MX_FOUND_NONE;
    MxRest head = *rest;
    bool is_named = calls->format->objects->is_named;
    MxFound found = is_named ? read_named_head(&head, &name, &n) : read_head(&head, &name, &n);
    if (found == MX_FOUND_NONE && is_named) return found;
    if (found == MX_FOUND_NONE) return read_other_object(calls, rest);
    if (found == MX_FOUND_PART) return found;
    const char *end = find_end(rest);
    calls_open(calls, name, n);
    found = calls_read_arguments(calls, &head);
    rest->at = end ? end : head.at;
    return found == MX_FOUND_CALL && !end ? calls_at_end(rest) : found;
}

/* ---- formats */

static MxFound read_list(Calls *calls, MxRest *rest) {
    MxFound found = mx_rest_skip(rest, "[");
    while (found == MX_FOUND_CALL) {
        found = read_object(calls, rest);
        if (found != MX_FOUND_CALL) break;
        mx_rest_skip_spaces(rest);
        if (rest->at == rest->end) return calls_at_end(rest);
        if (*rest->at != ',') return mx_rest_skip(rest, "]");
        rest->at++;
    }
    return found;
}

/* Objects up to what is none. */
static MxFound read_run(Calls *calls, MxRest *rest) {
    MxFound found = MX_FOUND_CALL;
    while (found == MX_FOUND_CALL) {
        found = read_object(calls, rest);
        mx_rest_skip_spaces(rest);
        if (found != MX_FOUND_CALL || rest->at == rest->end || *rest->at != '{') break;
    }
    return found == MX_FOUND_CALL && rest->at == rest->end ? calls_at_end(rest) : found;
}

/* Objects behind a mark, which may be missing, as the mark behind them. */
MxFound calls_read_objects(Calls *calls, MxRest *rest) {
    const CallObjects *how = calls->format->objects;
    MxFound found = MX_FOUND_CALL;
    mx_rest_skip(rest, how->begin);
    mx_rest_skip_spaces(rest);
    if (how->fence) found = mx_rest_skip(rest, how->fence);
    if (found != MX_FOUND_CALL) return found;
    mx_rest_skip_spaces(rest);
    found = how->is_list  ? read_list(calls, rest)
            : how->is_run ? read_run(calls, rest)
                          : read_object(calls, rest);
    if (found != MX_FOUND_CALL || !how->end) return found;
    mx_rest_skip_spaces(rest);
    return mx_rest_skip(rest, how->end) == MX_FOUND_PART ? MX_FOUND_PART : MX_FOUND_CALL;
}

/* Skips a word up to a bracket, a space or what cannot be printed. */
static void skip_word(MxRest *rest) {
    while (rest->at < rest->end && (uint8_t)*rest->at > ' ' && *rest->at != '[' && *rest->at != '{')
        rest->at++;
}

/* [TOOL_CALLS]name[ARGS]{…}, with [CALL_ID] and an id before the arguments, or without marks. */
MxFound calls_read_named(Calls *calls, MxRest *rest) {
    mx_rest_skip(rest, "[TOOL_CALLS]");
    mx_rest_skip_spaces(rest);
    const char *name = rest->at;
    skip_word(rest);
    const char *end = rest->at;
    MxFound has_id = mx_rest_skip(rest, "[CALL_ID]");
    if (has_id == MX_FOUND_CALL) skip_word(rest);
    MxFound has_args = has_id == MX_FOUND_PART ? MX_FOUND_PART : mx_rest_skip(rest, "[ARGS]");
    if (has_args == MX_FOUND_PART) return MX_FOUND_PART;
    mx_rest_skip_spaces(rest);
    if (rest->at == rest->end) return calls_at_end(rest);
    if (*rest->at != '{' || end == name) return MX_FOUND_NONE;
    calls_open(calls, name, (size_t)(end - name));
    return calls_read_arguments(calls, rest);
}

bool calls_is_of_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
}

/* As the format's form says: a space stands for any number of them, % for the name, # for digits, {
 * for arguments. What is behind these may be missing. */
MxFound calls_read_form(Calls *calls, MxRest *rest) {
    MxFound found = MX_FOUND_CALL;
    for (const char *form = calls->format->form; *form && found == MX_FOUND_CALL; form++) {
        char one[] = {*form, '\0'};
        const char *from = rest->at;
        if (*form == ' ') {
            mx_rest_skip_spaces(rest);
        } else if (*form == '%') {
            while (rest->at < rest->end && calls_is_of_name(*rest->at)) rest->at++;
            if (rest->at == rest->end) return calls_at_end(rest);
            if (rest->at == from) return MX_FOUND_NONE;
            calls_open(calls, from, (size_t)(rest->at - from));
        } else if (*form == '#') {
            while (rest->at < rest->end && *rest->at >= '0' && *rest->at <= '9') rest->at++;
        } else if (*form == '{') {
            if (rest->at == rest->end)
                found = calls_at_end(rest);
            else
                found = *rest->at == '{' ? calls_read_arguments(calls, rest) : MX_FOUND_NONE;
        } else {
            found = mx_rest_skip(rest, one);
        }
    }
    bool has_begun = calls->n_open && calls->call[calls->n].n_arguments;
    if (!has_begun) calls->n_open = 0; /* the name alone is no call */
    return found;
}
