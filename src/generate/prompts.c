/* prompts.c — prompts in JSON Lines files. */
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

static bool find_pictures(MxArena *arena, MxWords words, const MxJson *record, MxWhere where,
                          MxPrompt *out, MxError *err) {
    MxPictures *pictures;
    if (!mx_seer_find(arena, words.seer, record, where, &pictures, err)) return false;
    out->pictures = pictures;
    return true;
}

/* ---- conversations */

/* A sound of OpenAI's interface as a data: URL; NULL = the item is none. */
static const char *sound_of(MxArena *arena, const MxJson *item) {
    const MxJson *sound = mx_json_get(item, "input_audio");
    const char *data = mx_json_string(mx_json_get(sound, "data"));
    const char *format = mx_json_string(mx_json_get(sound, "format"));
    return data ? mx_arena_printf(arena, "data:audio/%s;base64,%s", format ? format : "wav", data)
                : NULL;
}

static void add_item(MxArena *arena, MxJson *items, const MxJson *item) {
    const char *type = mx_json_string(mx_json_get(item, "type"));
    const MxJson *url = mx_json_get(mx_json_get(item, "image_url"), "url");
    const char *sound = sound_of(arena, item);
    bool is_image = type && url && !strcmp(type, "image_url");
    bool is_sound = type && sound && !strcmp(type, "input_audio");
    if (!is_image && !is_sound) {
        mx_json_push(items, item);
        return;
    }
    MxJson *made = mx_json_push_object(items);
    mx_json_set_string(made, "type", is_image ? "image" : "audio");
    if (is_image)
        mx_json_set(made, "url", url);
    else
        mx_json_set_string(made, "audio", sound);
}

/* Messages whose images and sounds are as transformers has them, which templates know. */
static const MxJson *plain_messages(MxArena *arena, const MxJson *messages) {
    MxJson *list = mx_json_put_array(mx_json_object(arena), "messages"), *value;
    const char *name;
    for (size_t m = 0; m < mx_json_length(messages); m++) {
        const MxJson *message = mx_json_at(messages, m);
        MxJson *made = mx_json_push_object(list);
        for (void *at = NULL; mx_json_next(message, &at, &name, &value);) {
            if (strcmp(name, "content") || strcmp(mx_json_kind(value), "a list")) {
                mx_json_set(made, name, value);
                continue;
            }
            MxJson *items = mx_json_put_array(made, name);
            for (size_t i = 0; i < mx_json_length(value); i++)
                add_item(arena, items, mx_json_at(value, i));
        }
    }
    return list;
}

/* A conversation whose next message is wanted, unless it says otherwise. */
static bool read_messages(MxArena *arena, MxWords words, const MxJson *json, MxWhere where,
                          MxPrompt *out, MxError *err) {
    MxConversation conversation;
    MxJson *request = mx_json_object(arena), *value;
    const char *name;
    if (!words.chat || !words.tokenizer)
        return mx_fail(err, MX_EXIT_BAD_INPUT, where,
                       "found a conversation, but there is no chat template for it");
    mx_json_set_bool(request, "add_generation_prompt", true);
    for (void *at = NULL; mx_json_next(json, &at, &name, &value);)
        mx_json_set(request, name, value);
    const MxJson *messages = mx_json_get(json, "messages");
    if (!strcmp(mx_json_kind(messages), "a list"))
        mx_json_set(request, "messages", plain_messages(arena, messages));
    if (!find_pictures(arena, words, request, where, out, err) ||
        !mx_chat_render(arena, words.chat, request, where, &conversation.rendered, err))
        return false;
    mx_seer_tell(arena, words.seer, out->pictures, false, &conversation.rendered);
    if (!mx_chat_tokens(arena, words.tokenizer, where, &conversation, err)) return false;
    out->tokens = conversation.tokens;
    return true;
}

/* ---- */

static bool read_prompt(MxArena *arena, MxWords words, const MxJson *json, MxWhere where,
                        MxPrompt *out, MxError *err) {
    bool is_object = !strcmp(mx_json_kind(json), "an object");
    if (is_object && mx_json_get(json, "messages"))
        return read_messages(arena, words, json, where, out, err);
    if (is_object && !find_pictures(arena, words, json, where, out, err)) return false;
    const MxJson *prompt = is_object ? mx_json_get(json, "prompt") : json;
    const char *text = prompt ? mx_json_string(prompt) : NULL;
    if (!prompt)
        return mx_fail(err, MX_EXIT_BAD_INPUT, where,
                       "found an object without \"prompt\", wanted {\"prompt\": \"...\"} or "
                       "{\"messages\": [...]}");
    bool is_list = !strcmp(mx_json_kind(prompt), "a list");
    if (is_list && out->pictures)
        return mx_fail(err, MX_EXIT_BAD_INPUT, where,
                       "found a list of ids with an image, which has no place in it; wanted a "
                       "text");
    if (is_list) return read_ids(arena, prompt, where, &out->tokens, err);
    if (!text)
        return mx_fail(err, MX_EXIT_BAD_INPUT, where,
                       "found %s, wanted a text, a list of ids, or {\"prompt\": one of these}",
                       mx_json_kind(prompt));
    if (!words.tokenizer)
        return mx_fail(err, MX_EXIT_BAD_INPUT, where,
                       "found a text, but the model has no tokenizer; wanted a list of ids");
    MxRendered told = {.text = (char *)(uintptr_t)text, .n = mx_json_string_bytes(prompt)};
    mx_seer_tell(arena, words.seer, out->pictures, true, &told);
    return mx_tokenizer_encode(
        arena, words.tokenizer,
        (MxEncoding){.text = told.text, .n = told.n, .special = true, .where = where}, &out->tokens,
        err);
}

bool mx_prompt_read(MxArena *arena, MxWords words, const MxJson *json, MxWhere where, MxPrompt *out,
                    MxError *err) {
    *out = (MxPrompt){0};
    if (!words.seer) words.seer = mx_seer_new(arena, (MxSeerHow){0});
    return read_prompt(arena, words, json, where, out, err) &&
           mx_seer_index(arena, words.seer, out->pictures, out->tokens, where, &out->image, err);
}

bool mx_prompt_look(MxArena *arena, MxWords words, MxPrompt *prompt, MxError *err) {
    return !prompt->pictures ||
           mx_seer_read(arena, words.seer, prompt->pictures, &prompt->views, err);
}

static bool is_blank(const char *line, size_t n) {
    while (n && strchr(" \t\r", line[n - 1])) n--;
    return n == 0;
}

bool mx_prompts_read(MxArena *arena, const char *path, MxWords words, MxPrompt **out, int64_t *n,
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
