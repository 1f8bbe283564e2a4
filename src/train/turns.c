/* turns.c — completions of several turns: the tokens of the policy and those that it is told, one
 * behind the other. */
#include "turns.h"

Response *turns_new(MxArena *arena, int64_t n, int64_t length) {
    Response *out = mx_new_n(arena, Response, n);
    for (int64_t i = 0; i < n; i++) {
        out[i].ids = mx_new_n(arena, int32_t, length);
        out[i].logprobs = mx_new_n(arena, float, length);
        mx_text_init(&out[i].history, arena);
    }
    return out;
}

MxTokens turns_prompt(MxArena *arena, MxTokens prompt, const Response *response) {
    MxTokens out = {mx_new_n(arena, int32_t, prompt.n + response->n), prompt.n + response->n};
    memcpy(out.ids, prompt.ids, (size_t)prompt.n * sizeof *out.ids);
    for (int64_t i = 0; i < response->n; i++) {
        int32_t id = response->ids[i];
        out.ids[prompt.n + i] = id < 0 ? TURNS_TOLD(id) : id;
    }
    return out;
}

void turns_write(Response *response, const MxReply *reply) {
    const size_t n = (size_t)reply->tokens.n;
    memcpy(response->ids + response->n, reply->tokens.ids, n * sizeof *response->ids);
    memcpy(response->logprobs + response->n, reply->logprobs, n * sizeof *response->logprobs);
    response->n += reply->tokens.n;
    response->is_cut = reply->is_cut;
}

void turns_tell(Response *response, const MxTokens *told) {
    for (int64_t i = 0; i < told->n; i++) {
        response->ids[response->n] = TURNS_TOLD(told->ids[i]);
        response->logprobs[response->n++] = 0;
    }
}

void turns_drop(Response *response) {
    for (int64_t i = 0; i < response->n; i++)
        if (response->ids[i] >= 0) response->ids[i] = TURNS_TOLD(response->ids[i]);
}

/* ---- what is told */

/* What the assistant says in the conversation whose end is wanted. */
static const char said[] = "mxtrain-turn";

/* A conversation in which the assistant has said that, and then what is told. */
static const MxJson *converse(MxArena *arena, const MxJson *told) {
    static const char *const first[][2] = {{"user", "-"}, {"assistant", said}};
    MxJson *request = mx_json_object(arena), *list = mx_json_put_array(request, "messages");
    for (int i = 0; i < MX_COUNT(first); i++) {
        MxJson *message = mx_json_push_object(list);
        mx_json_set_string(message, "role", first[i][0]);
        mx_json_set_string(message, "content", first[i][1]);
    }
    for (size_t i = 0; i < mx_json_length(told); i++) mx_json_push(list, mx_json_at(told, i));
    mx_json_set_bool(request, "add_generation_prompt", true);
    return request;
}

/* Behind the text of eos, if it begins with that. */
static const char *behind_eos(MxArena *arena, const MxTokenizer *tokenizer, const char *text) {
    const int32_t eos = mx_tokenizer_eos(tokenizer);
    const char *end = mx_tokenizer_decode(arena, tokenizer, &eos, 1, false, NULL);
    return mx_text_has_prefix(text, end) ? text + strlen(end) : text;
}

static bool render(MxArena *arena, const MxWords *words, const MxJson *told, bool has_ended,
                   MxEncoding *out, MxError *err) {
    MxRendered all;
    if (!words->chat)
        return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE,
                       "messages want a chat template, and the tokenizer has none: set "
                       "chat_template_path");
    if (!mx_chat_render(arena, words->chat, converse(arena, told), MX_NOWHERE, &all, err))
        return false;
    const char *behind = strstr(all.text, said);
    if (!behind)
        return mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE,
                       "the chat template leaves out the assistant's message before what is told");
    behind += strlen(said);
    if (has_ended) behind = behind_eos(arena, words->tokenizer, behind);
    *out = (MxEncoding){.text = behind, .n = strlen(behind), .is_rendered = true};
    return true;
}

bool turns_encode(MxArena *arena, const MxWords *words, const MxJson *told, bool has_ended,
                  MxTokens *out, MxError *err) {
    const char *text = mx_json_string(told);
    MxEncoding what = {.text = text, .n = mx_json_string_bytes(told)};
    *out = (MxTokens){0};
    return (text || render(arena, words, told, has_ended, &what, err)) &&
           mx_tokenizer_encode(arena, words->tokenizer, what, out, err);
}
