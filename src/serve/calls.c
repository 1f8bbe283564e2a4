/* calls.c — calls of tools in an answer's text, in the formats of models: one row each. A call is
 * read when all of it is there; text that looks like one and is none stays text. Sources: chat
 * templates of the models; vLLM 0.11, entrypoints/openai/tool_parsers. */
#include "calls.h"

/* Text that has not been read yet. */
typedef struct Rest {
    const char *at, *end;
    bool is_over; /* nothing follows */
} Rest;

/* What a reader finds. */
typedef enum Found { FOUND_NONE, FOUND_CALL, FOUND_PART /* which may become one */ } Found;

enum { MOST_MARKS = 3 };

struct CallFormat {
    const char *name;
    const char *sign; /* what templates write at a call's beginning; a space stands for any number
                         of them, and % for the function */
    const char *marks[MOST_MARKS + 1];
    int n_begins;   /* of the marks, the first are those that calls begin with */
    bool is_whole;  /* nothing but calls may stand before one */
    char separator; /* between two, beside spaces; 0 = none */
    /* Reads a call, or some, at its mark; `rest` ends up behind it. */
    Found (*read)(Calls *calls, Rest *rest);
};

static bool is_space(char c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static void skip_spaces(Rest *rest) {
    while (rest->at < rest->end && is_space(*rest->at)) rest->at++;
}

/* Whether a text stands here, which is then skipped; FOUND_PART: its beginning, at the end. */
static Found skip(Rest *rest, const char *text) {
    size_t n = strlen(text), left = (size_t)(rest->end - rest->at);
    if (left < n) return memcmp(rest->at, text, left) || rest->is_over ? FOUND_NONE : FOUND_PART;
    if (memcmp(rest->at, text, n)) return FOUND_NONE;
    rest->at += n;
    return FOUND_CALL;
}

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

/* The object or list here, after spaces; it begins with the character `first`. */
static Found read_json(const Calls *calls, Rest *rest, char first, MxJson **out) {
    MxError err = {0};
    skip_spaces(rest);
    if (rest->at == rest->end) return rest->is_over ? FOUND_NONE : FOUND_PART;
    if (*rest->at != first) return FOUND_NONE;
    const char *end = find_end(rest);
    if (!end) return rest->is_over ? FOUND_NONE : FOUND_PART;
    *out = mx_json_parse_value(calls->arena, rest->at, (size_t)(end - rest->at), MX_NOWHERE, &err);
    mx_error_release(&err);
    rest->at = end;
    return *out ? FOUND_CALL : FOUND_NONE;
}

static bool is_object(const MxJson *value) {
    return value && !strcmp(mx_json_kind(value), "an object");
}

/* {"name": …, "arguments" or "parameters": …}, which are an object or its text, or missing. */
static bool is_call(Calls *calls, const MxJson *json, Call *out) {
    const MxJson *value = mx_json_get(json, "arguments");
    if (!value) value = mx_json_get(json, "parameters");
    const char *text = value ? mx_json_string(value) : "{}";
    *out = (Call){.name = is_object(json) ? mx_json_string(mx_json_get(json, "name")) : NULL,
                  .arguments = text};
    if (!text && is_object(value)) out->arguments = mx_json_dump(calls->arena, value, false);
    return out->name && *out->name && out->arguments;
}

static void add_call(Calls *calls, Call call) {
    if (calls->n == calls->most) return;
    if (calls->n == calls->cap) {
        int64_t more = 2 * calls->cap + 4;
        calls->call = mx_arena_grow(calls->arena, calls->call, (size_t)calls->cap, (size_t)more,
                                    sizeof *calls->call);
        calls->cap = more;
    }
    calls->call[calls->n++] = call;
}

/* ---- formats */

static Found read_object(Calls *calls, Rest *rest) {
    MxJson *json;
    Call call;
    Found found = read_json(calls, rest, '{', &json);
    if (found != FOUND_CALL) return found;
    if (!is_call(calls, json, &call)) return FOUND_NONE;
    add_call(calls, call);
    return FOUND_CALL;
}

/* <tool_call> {"name": …, "arguments": …} </tool_call>; the end may lack its mark. */
static Found read_tagged(Calls *calls, Rest *rest) {
    int64_t n = calls->n;
    skip(rest, "<tool_call>");
    Found found = read_object(calls, rest);
    if (found != FOUND_CALL) return found;
    skip_spaces(rest);
    if (skip(rest, "</tool_call>") != FOUND_PART) return FOUND_CALL;
    calls->n = n;
    return FOUND_PART;
}

/* [TOOL_CALLS] [{"name": …, "arguments": …}, …] */
static Found read_list(Calls *calls, Rest *rest) {
    MxJson *json;
    Call call;
    skip(rest, "[TOOL_CALLS]");
    Found found = read_json(calls, rest, '[', &json);
    if (found != FOUND_CALL) return found;
    for (size_t i = 0; i < mx_json_length(json); i++)
        if (!is_call(calls, mx_json_at(json, i), &call)) return FOUND_NONE;
    for (size_t i = 0; i < mx_json_length(json); i++)
        if (is_call(calls, mx_json_at(json, i), &call)) add_call(calls, call);
    return mx_json_length(json) ? FOUND_CALL : FOUND_NONE;
}

/* Skips a word up to a bracket, a space or what cannot be printed. */
static void skip_word(Rest *rest) {
    while (rest->at < rest->end && (uint8_t)*rest->at > ' ' && *rest->at != '[' && *rest->at != '{')
        rest->at++;
}

/* [TOOL_CALLS]name[ARGS]{…}, with [CALL_ID] and an id before the arguments, or without marks. */
static Found read_named(Calls *calls, Rest *rest) {
    MxJson *json;
    skip(rest, "[TOOL_CALLS]");
    skip_spaces(rest);
    const char *name = rest->at;
    skip_word(rest);
    const char *end = rest->at;
    Found has_id = skip(rest, "[CALL_ID]");
    if (has_id == FOUND_CALL) skip_word(rest);
    Found has_args = has_id == FOUND_PART ? FOUND_PART : skip(rest, "[ARGS]");
    if (has_args == FOUND_PART) return FOUND_PART;
    Found found = read_json(calls, rest, '{', &json);
    if (found != FOUND_CALL || end == name) return found == FOUND_PART ? found : FOUND_NONE;
    add_call(calls, (Call){mx_arena_strndup(calls->arena, name, (size_t)(end - name)),
                           mx_json_dump(calls->arena, json, false)});
    return FOUND_CALL;
}

/* {"name": …, "parameters": …}; the mark is for the interpreter, too, whose calls are code. */
static Found read_bare(Calls *calls, Rest *rest) {
    skip(rest, "<|python_tag|>");
    return read_object(calls, rest);
}

static const CallFormat formats[] = {
    {
        .name = "hermes",
        .sign = "<tool_call> {",
        .marks = {"<tool_call>", "</tool_call>"},
        .n_begins = 1,
        .read = read_tagged,
    },
    {
        .name = "mistral",
        .sign = "[TOOL_CALLS] [ {\"name\": \"%\"",
        .marks = {"[TOOL_CALLS]"},
        .n_begins = 1,
        .read = read_list,
    },
    {
        .name = "mistral_args",
        .sign = "[TOOL_CALLS] % [",
        .marks = {"[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"},
        .n_begins = 1,
        .read = read_named,
    },
    {
        .name = "llama3_json",
        .sign = "{\"name\": \"%\", \"parameters\":",
        .marks = {"{", "<|python_tag|>"},
        .n_begins = 2,
        .is_whole = true,
        .separator = ';',
        .read = read_bare,
    },
};

const char *calls_format_name(const CallFormat *format) {
    return format->name;
}
const char *calls_mark(const CallFormat *format, int i) {
    return format->marks[i];
}

/* Whether a text begins as a sign says. */
static bool fits(const char *text, const char *sign, const char *name) {
    for (; *sign; sign++) {
        size_t n = *sign == '%' ? strlen(name) : 1;
        if (*sign == ' ') {
            while (is_space(*text)) text++;
            continue;
        }
        if (strncmp(text, *sign == '%' ? name : sign, n)) return false;
        text += n;
    }
    return true;
}

const CallFormat *calls_format_of(const char *text, const char *name) {
    for (int i = 0; i < MX_COUNT(formats); i++)
        for (const char *at = text; *at; at++)
            if (fits(at, formats[i].sign, name)) return &formats[i];
    return NULL;
}

/* ---- */

void calls_init(Calls *calls, MxArena *arena, const CallFormat *format, int64_t most) {
    *calls = (Calls){.arena = arena, .format = format, .most = most};
    mx_text_init(&calls->text, arena);
    mx_text_init(&calls->content, arena);
}

static bool is_blank(const MxText *text) {
    for (size_t i = 0; i < text->len; i++)
        if (!is_space(text->data[i])) return false;
    return true;
}

/* Whether a call begins here. */
static Found is_mark(const CallFormat *format, Rest here) {
    Found found = FOUND_NONE;
    for (int i = 0; i < format->n_begins && found == FOUND_NONE; i++) {
        Rest rest = here;
        found = skip(&rest, format->marks[i]);
    }
    return found;
}

/* Skips text up to a call; FOUND_PART: to what may become one. */
static Found find_mark(const Calls *calls, Rest *rest) {
    const CallFormat *f = calls->format;
    bool may = !f->is_whole || is_blank(&calls->content);
    for (; rest->at < rest->end; rest->at++) {
        Found found = may ? is_mark(f, *rest) : FOUND_NONE;
        if (found != FOUND_NONE) return found;
        may &= !f->is_whole || is_space(*rest->at);
    }
    return FOUND_NONE;
}

static void add_content(Calls *calls, const char *from, const char *to) {
    if (to == from) return;
    mx_text_addn(&calls->content, from, (size_t)(to - from));
    calls->is_behind = false;
}

/* Some text, or a call; false = there is nothing that can be read yet. */
static bool read_on(Calls *calls, bool is_over) {
    const char *start = calls->text.data + calls->done;
    Rest rest = {start, calls->text.data + calls->text.len, is_over};
    while (calls->is_behind && rest.at < rest.end &&
           (is_space(*rest.at) || *rest.at == calls->format->separator))
        rest.at++;
    const char *from = rest.at;
    Found found = find_mark(calls, &rest);
    add_content(calls, from, rest.at);
    calls->done += (size_t)(rest.at - start);
    if (found != FOUND_CALL) return false;
    const char *mark = rest.at;
    found = calls->format->read(calls, &rest);
    if (found == FOUND_PART) return false;
    if (found == FOUND_NONE) {
        add_content(calls, mark, mark + 1);
        rest.at = mark + 1;
    } else {
        calls->is_behind = true;
    }
    calls->done += (size_t)(rest.at - mark);
    return true;
}

void calls_add(Calls *calls, const char *text, size_t n, bool is_over) {
    if (n) mx_text_addn(&calls->text, text, n);
    while (calls->text.len && read_on(calls, is_over)) {
    }
}

bool calls_are_all(const Calls *calls) {
    return is_blank(&calls->content);
}
