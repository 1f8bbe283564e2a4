/* call_read.c — readers of calls whose arguments are JSON. */
#include "call_formats.h"

/* ---- JSON */

/* Where an object or a list ends that begins here, by its brackets; NULL = it does not. */
static const char *find_end(const Rest *rest) {
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
Found calls_at_end(const Rest *rest) {
    return rest->is_over ? FOUND_NONE : FOUND_PART;
}

/* Arguments of the call that is open: an object, as it is written. */
Found calls_read_arguments(Calls *calls, Rest *rest) {
    const char *end = find_end(rest), *from = rest->at;
    rest->at = end ? end : rest->end;
    calls_open_arguments(calls, from, (size_t)(rest->at - from));
    return end ? FOUND_CALL : calls_at_end(rest);
}

/* A text in quotes with no escapes and nothing that would be one, such as a name. */
static Found read_quoted(Rest *rest, const char **text, size_t *n) {
    Found found = calls_skip(rest, "\"");
    if (found != FOUND_CALL) return found;
    const char *end = memchr(rest->at, '"', (size_t)(rest->end - rest->at));
    if (!end) return calls_at_end(rest);
    *text = rest->at;
    *n = (size_t)(end - rest->at);
    rest->at = end + 1;
    for (size_t i = 0; i < *n; i++)
        if ((uint8_t)(*text)[i] < ' ' || (*text)[i] == '\\') return FOUND_NONE;
    return *n ? FOUND_CALL : FOUND_NONE;
}

/* {NAME: up to the object of arguments. */
static Found read_named_head(Rest *rest, const char **name, size_t *n) {
    Found found = calls_skip(rest, "{");
    calls_skip_spaces(rest);
    if (found == FOUND_CALL) found = read_quoted(rest, name, n);
    calls_skip_spaces(rest);
    if (found == FOUND_CALL) found = calls_skip(rest, ":");
    calls_skip_spaces(rest);
    if (found != FOUND_CALL) return found;
    return rest->at == rest->end ? calls_at_end(rest) : *rest->at == '{' ? FOUND_CALL : FOUND_NONE;
}

/* {"name": …, "arguments" or "parameters": up to the object that they are. */
static Found read_head(Rest *rest, const char **name, size_t *n) {
    static const char *const form[] = {"{", "\"name\"", ":", NULL, ",", NULL, ":", NULL};
    const char *key = "";
    size_t n_key = 0;
    for (int i = 0; i < MX_COUNT(form); i++) {
        calls_skip_spaces(rest);
        bool is_last = i + 1 == MX_COUNT(form);
        if (is_last)
            return rest->at == rest->end ? calls_at_end(rest)
                   : *rest->at == '{'    ? FOUND_CALL
                                         : FOUND_NONE;
        Found found = form[i]  ? calls_skip(rest, form[i])
                      : i == 3 ? read_quoted(rest, name, n)
                               : read_quoted(rest, &key, &n_key);
        if (found != FOUND_CALL) return found;
        bool is_key = (n_key == 9 && !memcmp(key, "arguments", n_key)) ||
                      (n_key == 10 && !memcmp(key, "parameters", n_key));
        if (n_key && !is_key) return FOUND_NONE;
    }
    return FOUND_NONE;
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
static Found read_other_object(Calls *calls, Rest *rest) {
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
    return ok ? FOUND_CALL : FOUND_NONE;
}

static Found read_object(Calls *calls, Rest *rest) {
    const char *name;
    size_t n;
    calls_skip_spaces(rest);
    if (rest->at == rest->end) return calls_at_end(rest);
    if (*rest->at != '{') return FOUND_NONE;
    Rest head = *rest;
    bool is_named = calls->format->objects->is_named;
    Found found = is_named ? read_named_head(&head, &name, &n) : read_head(&head, &name, &n);
    if (found == FOUND_NONE && is_named) return found;
    if (found == FOUND_NONE) return read_other_object(calls, rest);
    if (found == FOUND_PART) return found;
    const char *end = find_end(rest);
    calls_open(calls, name, n);
    found = calls_read_arguments(calls, &head);
    rest->at = end ? end : head.at;
    return found == FOUND_CALL && !end ? calls_at_end(rest) : found;
}

/* ---- formats */

static Found read_list(Calls *calls, Rest *rest) {
    Found found = calls_skip(rest, "[");
    while (found == FOUND_CALL) {
        found = read_object(calls, rest);
        if (found != FOUND_CALL) break;
        calls_skip_spaces(rest);
        if (rest->at == rest->end) return calls_at_end(rest);
        if (*rest->at != ',') return calls_skip(rest, "]");
        rest->at++;
    }
    return found;
}

/* Objects up to what is none. */
static Found read_run(Calls *calls, Rest *rest) {
    Found found = FOUND_CALL;
    while (found == FOUND_CALL) {
        found = read_object(calls, rest);
        calls_skip_spaces(rest);
        if (found != FOUND_CALL || rest->at == rest->end || *rest->at != '{') break;
    }
    return found == FOUND_CALL && rest->at == rest->end ? calls_at_end(rest) : found;
}

/* Objects behind a mark, which may be missing, as the mark behind them. */
Found calls_read_objects(Calls *calls, Rest *rest) {
    const CallObjects *how = calls->format->objects;
    Found found = FOUND_CALL;
    calls_skip(rest, how->begin);
    calls_skip_spaces(rest);
    if (how->fence) found = calls_skip(rest, how->fence);
    if (found != FOUND_CALL) return found;
    calls_skip_spaces(rest);
    found = how->is_list  ? read_list(calls, rest)
            : how->is_run ? read_run(calls, rest)
                          : read_object(calls, rest);
    if (found != FOUND_CALL || !how->end) return found;
    calls_skip_spaces(rest);
    return calls_skip(rest, how->end) == FOUND_PART ? FOUND_PART : FOUND_CALL;
}

/* Skips a word up to a bracket, a space or what cannot be printed. */
static void skip_word(Rest *rest) {
    while (rest->at < rest->end && (uint8_t)*rest->at > ' ' && *rest->at != '[' && *rest->at != '{')
        rest->at++;
}

/* [TOOL_CALLS]name[ARGS]{…}, with [CALL_ID] and an id before the arguments, or without marks. */
Found calls_read_named(Calls *calls, Rest *rest) {
    calls_skip(rest, "[TOOL_CALLS]");
    calls_skip_spaces(rest);
    const char *name = rest->at;
    skip_word(rest);
    const char *end = rest->at;
    Found has_id = calls_skip(rest, "[CALL_ID]");
    if (has_id == FOUND_CALL) skip_word(rest);
    Found has_args = has_id == FOUND_PART ? FOUND_PART : calls_skip(rest, "[ARGS]");
    if (has_args == FOUND_PART) return FOUND_PART;
    calls_skip_spaces(rest);
    if (rest->at == rest->end) return calls_at_end(rest);
    if (*rest->at != '{' || end == name) return FOUND_NONE;
    calls_open(calls, name, (size_t)(end - name));
    return calls_read_arguments(calls, rest);
}

bool calls_is_of_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
}

/* As the format's form says: a space stands for any number of them, % for the name, # for digits, {
 * for arguments. What is behind these may be missing. */
Found calls_read_form(Calls *calls, Rest *rest) {
    Found found = FOUND_CALL;
    for (const char *form = calls->format->form; *form && found == FOUND_CALL; form++) {
        char one[] = {*form, '\0'};
        const char *from = rest->at;
        if (*form == ' ') {
            calls_skip_spaces(rest);
        } else if (*form == '%') {
            while (rest->at < rest->end && calls_is_of_name(*rest->at)) rest->at++;
            if (rest->at == rest->end) return calls_at_end(rest);
            if (rest->at == from) return FOUND_NONE;
            calls_open(calls, from, (size_t)(rest->at - from));
        } else if (*form == '#') {
            while (rest->at < rest->end && *rest->at >= '0' && *rest->at <= '9') rest->at++;
        } else if (*form == '{') {
            if (rest->at == rest->end)
                found = calls_at_end(rest);
            else
                found = *rest->at == '{' ? calls_read_arguments(calls, rest) : FOUND_NONE;
        } else {
            found = calls_skip(rest, one);
        }
    }
    bool has_begun = calls->n_open && calls->call[calls->n].n_arguments;
    if (!has_begun) calls->n_open = 0; /* the name alone is no call */
    return found;
}
