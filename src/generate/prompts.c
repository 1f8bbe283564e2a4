/* prompts.c — prompts of JSON Lines files. */
#include <mx/generate.h>

static bool read_ids(MxArena *arena, const MxJson *list, MxWhere where, MxTokens *out,
                     MxError *err) {
    size_t n = mx_json_length(list);
    *out = (MxTokens){mx_new_n(arena, int32_t, n + 1), (int64_t)n};
    for (size_t i = 0; i < n; i++) {
        int64_t id;
        if (!mx_json_int(mx_json_at(list, i), &id) || id < 0 || id > INT32_MAX)
            return mx_fail(err, MX_EXIT_BAD_INPUT, where, "item %zu is no token id", i);
        out->ids[i] = (int32_t)id;
    }
    return true;
}

/* A conversation whose next message is wanted, unless it says otherwise. */
static bool read_messages(MxArena *arena, MxWords words, const MxJson *json, MxWhere where,
                          MxTokens *out, MxError *err) {
    MxConversation conversation;
    MxJson *request = mx_json_object(arena), *value;
    const char *name;
    if (!words.chat || !words.tokenizer)
        return mx_fail(err, MX_EXIT_BAD_INPUT, where,
                       "found a conversation, but there is no chat template for it");
    mx_json_set_bool(request, "add_generation_prompt", true);
    for (void *at = NULL; mx_json_next(json, &at, &name, &value);)
        mx_json_set(request, name, value);
    if (!mx_chat_encode(arena, words.chat, words.tokenizer, request, where, &conversation, err))
        return false;
    *out = conversation.tokens;
    return true;
}

bool mx_prompt_read(MxArena *arena, MxWords words, const MxJson *json, MxWhere where, MxTokens *out,
                    MxError *err) {
    bool is_object = !strcmp(mx_json_kind(json), "an object");
    if (is_object && mx_json_get(json, "messages"))
        return read_messages(arena, words, json, where, out, err);
    const MxJson *prompt = is_object ? mx_json_get(json, "prompt") : json;
    const char *text = prompt ? mx_json_string(prompt) : NULL;
    if (!prompt)
        return mx_fail(err, MX_EXIT_BAD_INPUT, where,
                       "found an object without \"prompt\", wanted {\"prompt\": \"...\"} or "
                       "{\"messages\": [...]}");
    if (!strcmp(mx_json_kind(prompt), "a list")) return read_ids(arena, prompt, where, out, err);
    if (!text)
        return mx_fail(err, MX_EXIT_BAD_INPUT, where,
                       "found %s, wanted a text, a list of ids, or {\"prompt\": one of these}",
                       mx_json_kind(prompt));
    if (!words.tokenizer)
        return mx_fail(err, MX_EXIT_BAD_INPUT, where,
                       "found a text, but the model has no tokenizer; wanted a list of ids");
    return mx_tokenizer_encode(arena, words.tokenizer,
                               (MxEncoding){text, mx_json_string_bytes(prompt), true, where}, out,
                               err);
}

static bool is_blank(const char *line, size_t n) {
    while (n && strchr(" \t\r", line[n - 1])) n--;
    return n == 0;
}

bool mx_prompts_read(MxArena *arena, const char *path, MxWords words, MxTokens **out, int64_t *n,
                     MxError *err) {
    enum { LARGEST = 1 << 30 };
    MxBytes bytes;
    int64_t cap = 0;
    *n = 0;
    if (!mx_file_read(arena, path, LARGEST, &bytes, err)) return false;
    const char *at = (const char *)bytes.data, *end = at + bytes.size;
    for (MxWhere where = {path, 1, 0}; at < end; where.line++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t length = (size_t)((stop ? stop : end) - at);
        if (!is_blank(at, length)) {
            if (*n == cap) {
                int64_t more = 2 * cap + 16;
                *out = mx_arena_grow(arena, cap ? *out : NULL, (size_t)cap, (size_t)more,
                                     sizeof **out);
                cap = more;
            }
            const MxJson *json = mx_json_parse_value(arena, at, length, where, err);
            if (!json || !mx_prompt_read(arena, words, json, where, &(*out)[*n], err)) return false;
            (*n)++;
        }
        at = stop ? stop + 1 : end;
    }
    return *n || mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = path}, "holds no prompts");
}
