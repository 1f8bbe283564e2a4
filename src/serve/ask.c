/* ask.c — parses a request's JSON. A table defines how each member of OpenAI's interface is
 * handled. */
#include "internal.h"

#include <stdlib.h>

typedef struct Reader {
    MxArena *arena;
    const MxSpeak *defaults;
    MxAsk *ask;
    MxError *err;
    MxJson *chat; /* what the chat template gets */
    bool hides_tools, has_called;
} Reader;

typedef struct Member {
    const char *name;
    unsigned kinds; /* of requests that have it */
    bool (*read)(Reader *r, const struct Member *m, const MxJson *value);
    const char *wanted; /* what a value must be */
    double low, high;   /* of numbers */
    size_t at;          /* in MxAsk */
} Member;

enum { COMPLETION = 1 << MX_ASK_COMPLETION, CHAT = 1 << MX_ASK_CHAT, BOTH = COMPLETION | CHAT };

static bool is_kind(const MxJson *value, const char *kind) {
    return value && !strcmp(mx_json_kind(value), kind);
}

static bool misfits(Reader *r, const Member *m, const MxJson *value) {
    MxArena scratch = {.name = "value"};
    enum { SHOWN = 60 };
    char *shown = mx_json_dump(&scratch, value, false);
    bool is_long = strlen(shown) > SHOWN;
    r->ask->wrong = m->name;
    mx_fail(r->err, MX_EXIT_BAD_INPUT, MX_NOWHERE, "%s: found %s, wanted %s", m->name,
            is_long ? mx_json_kind(value) : shown, m->wanted);
    mx_arena_release(&scratch);
    return false;
}

static void *place(const Reader *r, const Member *m) {
    return (char *)r->ask + m->at;
}

static bool read_number(Reader *r, const Member *m, const MxJson *value) {
    double x;
    if (!mx_json_number(value, &x) || !(x >= m->low && x <= m->high)) return misfits(r, m, value);
    *(double *)place(r, m) = x;
    return true;
}

static bool read_count(Reader *r, const Member *m, const MxJson *value) {
    int64_t x;
    if (!mx_json_int(value, &x) || x < (int64_t)m->low || x > (int64_t)m->high)
        return misfits(r, m, value);
    *(int64_t *)place(r, m) = x;
    return true;
}

static bool read_bool(Reader *r, const Member *m, const MxJson *value) {
    return mx_json_bool(value, place(r, m)) || misfits(r, m, value);
}

static bool read_text(Reader *r, const Member *m, const MxJson *value) {
    const char *text = mx_json_string(value);
    if (!text) return misfits(r, m, value);
    *(const char **)place(r, m) = text;
    return true;
}

/* What the request may not ask for more of. */
static bool read_max_tokens(Reader *r, const Member *m, const MxJson *value) {
    int64_t most = r->defaults->max_tokens;
    Member own = *m;
    own.wanted = mx_arena_printf(r->arena, "an integer from 1 to %lld", (long long)most);
    own.high = (double)most;
    return read_count(r, &own, value);
}

static bool read_seed(Reader *r, const Member *m, const MxJson *value) {
    int64_t seed;
    if (!mx_json_int(value, &seed)) return misfits(r, m, value);
    r->ask->sampling.seed = (uint64_t)seed;
    r->ask->has_seed = true;
    return true;
}

/* {"464": -100, …}; whether the model has these ids is known later. */
static bool read_biases(Reader *r, const Member *m, const MxJson *value) {
    const char *name;
    MxJson *member;
    MxBias *out = mx_new_n(r->arena, MxBias, (int64_t)mx_json_length(value) + 1);
    if (!is_kind(value, "an object")) return misfits(r, m, value);
    r->ask->sampling.biases = out;
    for (void *at = NULL; mx_json_next(value, &at, &name, &member); out++) {
        double x;
        char *end;
        long id = strtol(name, &end, 10);
        bool is_id = *name >= '0' && *name <= '9' && !*end && id <= INT32_MAX;
        if (!is_id || !mx_json_number(member, &x) || !(x >= m->low && x <= m->high))
            return misfits(r, m, value);
        *out = (MxBias){(int32_t)id, (float)x};
    }
    r->ask->sampling.n_biases = out - r->ask->sampling.biases;
    return true;
}

static bool read_stop(Reader *r, const Member *m, const MxJson *value) {
    enum { MOST = 16 };
    bool is_list = !strcmp(mx_json_kind(value), "a list");
    size_t n = is_list ? mx_json_length(value) : 1;
    if (n > MOST) return misfits(r, m, value);
    r->ask->stops = mx_new_n(r->arena, const char *, n + 1);
    for (size_t i = 0; i < n; i++) {
        const char *text = mx_json_string(is_list ? mx_json_at(value, i) : value);
        if (!text || !*text) return misfits(r, m, value);
        r->ask->stops[r->ask->n_stops++] = text;
    }
    return true;
}

static bool read_stream_options(Reader *r, const Member *m, const MxJson *value) {
    const char *name;
    MxJson *member;
    if (strcmp(mx_json_kind(value), "an object")) return misfits(r, m, value);
    for (void *at = NULL; mx_json_next(value, &at, &name, &member);)
        if (strcmp(name, "include_usage") || !mx_json_bool(member, &r->ask->tells_usage))
            return misfits(r, m, value);
    return true;
}

/* How many likeliest tokens to tell besides the chosen one; 0 asks for that one. */
static bool read_logprobs(Reader *r, const Member *m, const MxJson *value) {
    r->ask->tells_logprobs = true;
    return read_count(r, m, value);
}

/* Prompts: a text, a list of ids, or a list of these. */
static bool read_prompts(Reader *r, const Member *m, const MxJson *value) {
    const MxJson *first = mx_json_at(value, 0);
    bool is_nested = is_kind(first, "a list") || is_kind(first, "a text");
    int64_t n = is_nested ? (int64_t)mx_json_length(value) : 1;
    r->ask->prompts = mx_new_n(r->arena, MxJson *, n);
    for (int64_t i = 0; i < n; i++) {
        const MxJson *one = is_nested ? mx_json_at(value, (size_t)i) : value;
        if (!is_kind(one, "a list") && !is_kind(one, "a text")) return misfits(r, m, value);
        r->ask->prompts[i] = mx_json_object(r->arena);
        mx_json_set(r->ask->prompts[i], "prompt", one);
    }
    r->ask->n_prompts = n;
    return true;
}

/* Members of what the chat template gets. */
static bool read_chat(Reader *r, const Member *m, const MxJson *value) {
    if (!is_kind(value, "a list")) return misfits(r, m, value);
    mx_json_set(r->chat, m->name, value);
    return true;
}

static bool read_tools(Reader *r, const Member *m, const MxJson *value) {
    if (!read_chat(r, m, value)) return false;
    r->ask->wrong = m->name;
    if (!messages_check_tools(value, r->err)) return false;
    r->ask->wrong = NULL;
    return true;
}

/* A variable for the chat template, which must read it: else it would change nothing. */
static bool set_variable(Reader *r, const Member *m, const char *name, const MxJson *value) {
    static const char *const others[] = {"messages", "tools", "add_generation_prompt",
                                         "continue_final_message"};
    const MxChat *chat = r->defaults->chat;
    r->ask->wrong = m->name;
    for (int i = 0; i < MX_COUNT(others); i++)
        if (!strcmp(others[i], name))
            return mx_fail(r->err, MX_EXIT_BAD_INPUT, MX_NOWHERE,
                           "%s: found \"%s\", which is no variable of its own", m->name, name);
    if (chat && !mx_chat_reads(chat, name))
        return mx_fail(r->err, MX_EXIT_BAD_INPUT, MX_NOWHERE,
                       "%s: the chat template does not read \"%.60s\"", m->name, name);
    mx_json_set(r->chat, name, value);
    r->ask->wrong = NULL;
    return true;
}

static bool read_variables(Reader *r, const Member *m, const MxJson *value) {
    const char *name;
    MxJson *member;
    if (!is_kind(value, "an object")) return misfits(r, m, value);
    for (void *at = NULL; mx_json_next(value, &at, &name, &member);)
        if (!set_variable(r, m, name, member)) return false;
    return true;
}

static bool read_variable(Reader *r, const Member *m, const MxJson *value) {
    return mx_json_string(value) ? set_variable(r, m, m->name, value) : misfits(r, m, value);
}

/* Whether an answer may have several calls. */
static bool read_parallel(Reader *r, const Member *m, const MxJson *value) {
    if (!read_bool(r, m, value)) return false;
    r->ask->calls_one = !r->ask->calls_one;
    return true;
}

static bool read_messages(Reader *r, const Member *m, const MxJson *value) {
    if (!read_chat(r, m, value)) return false;
    r->ask->wrong = m->name;
    if (!messages_check(value, r->err)) return false;
    r->ask->wrong = NULL;
    return true;
}

/* Whether the template gets the tools, and whether one must be called, or which. */
static bool read_tool_choice(Reader *r, const Member *m, const MxJson *value) {
    static const char *const choices[] = {"auto", "none", "required", "function"};
    const char *text = mx_json_string(value), *type = mx_json_string(mx_json_get(value, "type"));
    int i = 0;
    r->ask->called = mx_json_string(mx_json_get(mx_json_get(value, "function"), "name"));
    if (!text && r->ask->called) text = type;
    while (text && i < MX_COUNT(choices) && strcmp(text, choices[i])) i++;
    bool is_function = i + 1 == MX_COUNT(choices);
    if (!text || i == MX_COUNT(choices) || is_function != (r->ask->called != NULL))
        return misfits(r, m, value);
    r->hides_tools = i == 1;
    r->ask->needs_calls = i > 1;
    return true;
}

/* What changes nothing: notes of the client's. */
static bool read_note(Reader *r, const Member *m, const MxJson *value) {
    (void)r, (void)m, (void)value;
    return true;
}

static bool read_false(Reader *r, const Member *m, const MxJson *value) {
    bool x;
    return (mx_json_bool(value, &x) && !x) || misfits(r, m, value);
}

static bool read_empty(Reader *r, const Member *m, const MxJson *value) {
    const char *kind = mx_json_kind(value), *text = mx_json_string(value);
    bool holds = !strcmp(kind, "an object") || !strcmp(kind, "a list");
    return (text ? !*text : holds && !mx_json_length(value)) || misfits(r, m, value);
}

static bool read_modalities(Reader *r, const Member *m, const MxJson *value) {
    const char *text = mx_json_string(mx_json_at(value, 0));
    return (mx_json_length(value) == 1 && text && !strcmp(text, "text")) || misfits(r, m, value);
}

/* What an answer is: any text, any object, or of a schema. */
static bool read_format(Reader *r, const Member *m, const MxJson *value) {
    static const char any[] = "{\"type\": \"object\"}";
    const char *type = mx_json_string(mx_json_get(value, "type"));
    const MxJson *own = mx_json_get(value, "json_schema");
    bool is_object = type && !strcmp(type, "json_object");
    if (type && !strcmp(type, "text")) return true;
    if (is_object) r->ask->schema = mx_json_get(value, "schema");
    if (is_object && !r->ask->schema)
        r->ask->schema = mx_json_parse(r->arena, any, strlen(any), "schema", r->err);
    if (type && !strcmp(type, "json_schema")) r->ask->schema = mx_json_get(own, "schema");
    return r->ask->schema || misfits(r, m, value);
}

// clang-format off
#define ROW(title, whose, reads, what, ...) {.name = title, .kinds = whose, .read = reads, .wanted = what, __VA_ARGS__}
#define AT(member)    .at = offsetof(MxAsk, member)
#define WITHIN(a, b)  .low = a, .high = b
#define LATER         " (others are not available yet)"
static const Member members[] = {
    ROW("model",               BOTH,       read_text,           "a text", AT(model)),
    ROW("prompt",              COMPLETION, read_prompts,        "a text, a list of ids, or a list of these", AT(prompts)),
    ROW("messages",            CHAT,       read_messages,       "a list of messages", .low = 0),
    ROW("tools",               CHAT,       read_tools,          "a list of tools", .low = 0),
    ROW("tool_choice",         CHAT,       read_tool_choice,    "\"auto\", \"none\", \"required\" or {\"type\": \"function\", \"function\": {\"name\": …}}" LATER, .low = 0),
    ROW("parallel_tool_calls", CHAT,       read_parallel,       "true or false", AT(calls_one)),
    ROW("max_tokens",          COMPLETION, read_max_tokens,     NULL, AT(max_tokens), .low = 0),
    ROW("max_tokens",          CHAT,       read_max_tokens,     NULL, AT(max_tokens), .low = 1),
    ROW("max_completion_tokens", CHAT,     read_max_tokens,     NULL, AT(max_tokens), .low = 1),
    ROW("temperature",         BOTH,       read_number,         "a number from 0 to 100", AT(sampling.temperature), WITHIN(0, 100)),
    ROW("top_p",               BOTH,       read_number,         "a number above 0, up to 1", AT(sampling.top_p), WITHIN(1e-9, 1)),
    ROW("top_k",               BOTH,       read_count,          "an integer, 0 or more", AT(sampling.top_k), WITHIN(0, INT32_MAX)),
    ROW("min_p",               BOTH,       read_number,         "a number from 0 to 1", AT(sampling.min_p), WITHIN(0, 1)),
    ROW("repetition_penalty",  BOTH,       read_number,         "a number above 0, up to 100", AT(sampling.repetition_penalty), WITHIN(1e-9, 100)),
    ROW("seed",                BOTH,       read_seed,           "an integer of 64 bits", AT(sampling.seed)),
    ROW("stop",                BOTH,       read_stop,           "a text or a list of up to 16 texts, none of them empty", AT(stops)),
    ROW("stream",              BOTH,       read_bool,           "true or false", AT(streams)),
    ROW("stream_options",      BOTH,       read_stream_options, "{\"include_usage\": true or false}", AT(tells_usage)),
    ROW("logprobs",            COMPLETION, read_logprobs,       "an integer from 0 to 20", AT(n_top), WITHIN(0, 20)),
    ROW("logprobs",            CHAT,       read_bool,           "true or false", AT(tells_logprobs)),
    ROW("top_logprobs",        CHAT,       read_count,          "an integer from 0 to 20", AT(n_top), WITHIN(0, 20)),
    ROW("n",                   BOTH,       read_count,          "an integer from 1 to 128", AT(n), WITHIN(1, 128)),
    ROW("best_of",             COMPLETION, read_count,          "an integer from 1 to 128", AT(best_of), WITHIN(1, 128)),
    ROW("echo",                COMPLETION, read_bool,           "true or false", AT(echoes)),
    ROW("frequency_penalty",   BOTH,       read_number,         "a number from -2 to 2", AT(sampling.frequency_penalty), WITHIN(-2, 2)),
    ROW("presence_penalty",    BOTH,       read_number,         "a number from -2 to 2", AT(sampling.presence_penalty), WITHIN(-2, 2)),
    ROW("logit_bias",          BOTH,       read_biases,         "an object of ids with numbers from -100 to 100", WITHIN(-100, 100)),
    ROW("suffix",              COMPLETION, read_empty,          "\"\"" LATER, .low = 0),
    ROW("functions",           CHAT,       read_empty,          "[]; use \"tools\"", .low = 0),
    ROW("modalities",          CHAT,       read_modalities,     "[\"text\"]" LATER, .low = 0),
    ROW("audio",               CHAT,       read_empty,          "null" LATER, .low = 0),
    ROW("prediction",          CHAT,       read_empty,          "null" LATER, .low = 0),
    ROW("reasoning_effort",    CHAT,       read_variable,       "a text", .low = 0),
    ROW("chat_template_kwargs", CHAT,      read_variables,      "an object of variables", .low = 0),
    ROW("web_search_options",  CHAT,       read_empty,          "null" LATER, .low = 0),
    ROW("response_format",     CHAT,       read_format,         "{\"type\": \"text\"}, {\"type\": \"json_object\"} or {\"type\": \"json_schema\", \"json_schema\": {\"schema\": …}}", .low = 0),
    ROW("store",               CHAT,       read_false,          "false" LATER, .low = 0),
    ROW("user",                BOTH,       read_note,           NULL, .low = 0),
    ROW("metadata",            BOTH,       read_note,           NULL, .low = 0),
    ROW("service_tier",        BOTH,       read_note,           NULL, .low = 0),
    ROW("safety_identifier",   BOTH,       read_note,           NULL, .low = 0),
    ROW("prompt_cache_key",    BOTH,       read_note,           NULL, .low = 0),
};
// clang-format on

/* Members of null are as if they were not there. */
static bool read_member(Reader *r, MxAskKind kind, const char *name, const MxJson *value) {
    for (int i = 0; i < MX_COUNT(members); i++)
        if (!strcmp(members[i].name, name) && members[i].kinds & 1u << kind)
            return is_kind(value, "null") || members[i].read(r, &members[i], value);
    if (is_kind(value, "null")) return true;
    r->ask->wrong = name;
    return mx_fail(r->err, MX_EXIT_BAD_INPUT, MX_NOWHERE, "unrecognized member \"%.100s\"", name);
}

/* A conversation is one prompt. */
static void take_chat(Reader *r) {
    if (r->hides_tools) mx_json_remove(r->chat, "tools");
    const MxJson *tools = mx_json_get(r->chat, "tools");
    r->ask->has_tools = mx_json_length(tools) > 0;
    for (size_t i = 0; i < mx_json_length(tools); i++) {
        const MxJson *function = mx_json_get(mx_json_at(tools, i), "function");
        bool is_strict = false;
        mx_json_bool(mx_json_get(function, "strict"), &is_strict);
        r->ask->has_strict_tools |= is_strict;
        if (r->ask->called &&
            !strcmp(r->ask->called, mx_json_string(mx_json_get(function, "name"))))
            r->has_called = true;
    }
    r->ask->prompts = mx_new(r->arena, MxJson *);
    r->ask->prompts[0] = r->chat;
    r->ask->n_prompts = 1;
}

/* What members say of each other; `wrong` becomes the one at fault. */
static bool check_whole(const Reader *r, MxAskKind kind) {
    MxAsk *ask = r->ask;
    const char *needs = kind == MX_ASK_CHAT ? "messages" : "prompt";
    const struct {
        bool is_good;
        const char *name, *wanted;
    } checks[] = {
        {!ask->tells_usage || ask->streams, "stream_options", "\"stream\": true with it"},
        {!ask->n_top || ask->tells_logprobs, "top_logprobs", "\"logprobs\": true with it"},
        {ask->max_tokens || ask->echoes, "max_tokens", "above 0 without \"echo\": true"},
        {!ask->needs_calls || ask->has_tools, "tool_choice", "\"tools\" with it"},
        {!ask->called || r->has_called, "tool_choice", "the name of one of the \"tools\""},
        {ask->best_of >= ask->n, "best_of", "no less than \"n\""},
        {ask->best_of == ask->n || !ask->streams, "best_of", "no \"stream\" with it"},
        {ask->n_prompts * ask->best_of <= MX_ASK_MOST_REPLIES, needs,
         mx_arena_printf(r->arena, "at most %d replies to all prompts", MX_ASK_MOST_REPLIES)},
    };
    ask->wrong = needs; /* what is found later is found there, too */
    if (!ask->n_prompts)
        return mx_fail(r->err, MX_EXIT_BAD_INPUT, MX_NOWHERE, "wanted a member \"%s\"", needs);
    for (int i = 0; i < MX_COUNT(checks); i++) {
        if (checks[i].is_good) continue;
        ask->wrong = checks[i].name;
        return mx_fail(r->err, MX_EXIT_BAD_INPUT, MX_NOWHERE, "%s: wanted %s", checks[i].name,
                       checks[i].wanted);
    }
    return true;
}

bool mx_ask_read(MxArena *arena, MxAskKind kind, const char *body, size_t n,
                 const MxSpeak *defaults, MxAsk *out, MxError *err) {
    Reader r = {.arena = arena, .defaults = defaults, .ask = out, .err = err};
    const char *name;
    MxJson *value;
    *out = (MxAsk){.sampling = defaults->sampling, .max_tokens = defaults->max_tokens, .n = 1};
    r.chat = mx_json_object(arena);
    const MxJson *json = mx_json_parse(arena, body, n, "body", err);
    if (!json) return false;
    for (void *at = NULL; mx_json_next(json, &at, &name, &value);)
        if (!read_member(&r, kind, name, value)) return false;
    if (!out->best_of) out->best_of = out->n;
    if (mx_json_get(r.chat, "messages")) take_chat(&r);
    return check_whole(&r, kind) && mx_sampling_check(&out->sampling, err);
}
