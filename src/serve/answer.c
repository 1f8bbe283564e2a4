/* answer.c — answers in OpenAI's JSON, complete or as events of a stream. */
#include "internal.h"

typedef struct Words {
    const char *id, *whole, *piece; /* prefix of ids; names of objects */
} Words;

static const Words words[MX_ASK_KINDS] = {
    [MX_ASK_COMPLETION] = {"cmpl", "text_completion", "text_completion"},
    [MX_ASK_CHAT] = {"chatcmpl", "chat.completion", "chat.completion.chunk"},
};

static void add_head(MxText *out, const Answer *a, const char *object) {
    const Job *job = a->job;
    MxArena scratch = {.name = "name"};
    mx_text_add(out, "{\"id\":\"%s-%llu\",\"object\":\"%s\",\"created\":%lld,\"model\":%s",
                words[job->kind].id, (unsigned long long)job->number, object,
                (long long)job->created, mx_json_quote(&scratch, a->model, strlen(a->model)));
    mx_arena_release(&scratch);
}

static void add_usage(MxText *out, const Answer *a, const MxReply *reply) {
    long long prompt = a->job->prompt.tokens.n, made = reply->tokens.n;
    mx_text_add(out,
                ",\"usage\":{\"prompt_tokens\":%lld,\"completion_tokens\":%lld,"
                "\"total_tokens\":%lld}",
                prompt, made, prompt + made);
}

static const char *quoted(MxArena *arena, const char *text, size_t n) {
    return text ? mx_json_quote(arena, text, n) : "\"\"";
}

static const char *text_or_null(MxArena *arena, const char *text) {
    return text ? mx_json_quote(arena, text, strlen(text)) : "null";
}

static const char *token_text(MxArena *arena, const Answer *a, int32_t id, size_t *n) {
    *n = 0;
    return a->tokenizer ? mx_tokenizer_decode(arena, a->tokenizer, &id, 1, false, n) : "";
}

/* The likeliest tokens at a place by their texts, of several with one text the likeliest, and the
 * chosen token. */
static void add_top_columns(MxText *out, const Answer *a, const MxReply *reply, int64_t at) {
    MxArena scratch = {.name = "top_logprobs"};
    const int64_t n = reply->n_top;
    const char **texts = mx_new_n(&scratch, const char *, n + 1);
    int n_texts = 0;
    mx_text_add(out, "{");
    for (int64_t k = 0; k <= n; k++) {
        const MxChoice own = {reply->tokens.ids[at], (double)reply->logprobs[at]};
        const MxChoice *choice = k < n ? &reply->top[at * n + k] : &own;
        size_t bytes;
        const char *text = token_text(&scratch, a, choice->id, &bytes);
        const char *quoted = mx_json_quote(&scratch, text, bytes);
        bool is_there = false;
        for (int i = 0; i < n_texts; i++) is_there |= !strcmp(texts[i], quoted);
        if (is_there) continue;
        mx_text_add(out, "%s%s:%.9g", n_texts ? "," : "", quoted, (double)(float)choice->logprob);
        texts[n_texts++] = quoted;
    }
    mx_text_add(out, "}");
    mx_arena_release(&scratch);
}

/* {"tokens", "token_logprobs", …} of completions. */
static void add_columns(MxText *out, const Answer *a, const MxReply *reply, int64_t from) {
    MxArena scratch = {.name = "logprobs"};
    const MxTokens *t = &reply->tokens;
    size_t n;
    mx_text_add(out, "{\"tokens\":[");
    for (int64_t i = from; i < t->n; i++) {
        const char *text = token_text(&scratch, a, t->ids[i], &n);
        mx_text_add(out, "%s%s", i > from ? "," : "", mx_json_quote(&scratch, text, n));
    }
    mx_text_add(out, "],\"token_logprobs\":[");
    for (int64_t i = from; i < t->n; i++)
        mx_text_add(out, "%s%.9g", i > from ? "," : "", (double)reply->logprobs[i]);
    mx_text_add(out, "],\"top_logprobs\":%s", reply->n_top ? "[" : "null");
    for (int64_t i = from; reply->n_top && i < t->n; i++) {
        mx_text_add(out, "%s", i > from ? "," : "");
        add_top_columns(out, a, reply, i);
    }
    mx_text_add(out, "%s,\"text_offset\":null}", reply->n_top ? "]" : "");
    mx_arena_release(&scratch);
}

/* "token", "logprob" and "bytes" of a conversation's token. */
static void add_token(MxText *out, const Answer *a, MxChoice choice) {
    MxArena scratch = {.name = "token"};
    size_t n;
    const char *text = token_text(&scratch, a, choice.id, &n);
    mx_text_add(out, "\"token\":%s,\"logprob\":%.9g,\"bytes\":[", mx_json_quote(&scratch, text, n),
                (double)(float)choice.logprob);
    for (size_t b = 0; b < n; b++) mx_text_add(out, "%s%d", b ? "," : "", (unsigned char)text[b]);
    mx_text_add(out, "]");
    mx_arena_release(&scratch);
}

/* {"content": [{"token", "logprob", …}]} of conversations. */
static void add_content(MxText *out, const Answer *a, const MxReply *reply, int64_t from) {
    mx_text_add(out, "{\"content\":[");
    for (int64_t i = from; i < reply->tokens.n; i++) {
        mx_text_add(out, "%s{", i > from ? "," : "");
        add_token(out, a, (MxChoice){reply->tokens.ids[i], (double)reply->logprobs[i]});
        mx_text_add(out, ",\"top_logprobs\":[");
        for (int64_t k = 0; k < reply->n_top; k++) {
            mx_text_add(out, "%s{", k ? "," : "");
            add_token(out, a, reply->top[i * reply->n_top + k]);
            mx_text_add(out, "}");
        }
        mx_text_add(out, "]}");
    }
    mx_text_add(out, "],\"refusal\":null}");
}

/* Of the tokens from `from` on, if they are asked for. */
static void add_logprobs(MxText *out, const Answer *a, const MxReply *reply, int64_t from) {
    mx_text_add(out, ",\"logprobs\":");
    if (!a->job->ask.tells_logprobs || from >= reply->tokens.n)
        mx_text_add(out, "null");
    else
        (a->job->kind == MX_ASK_CHAT ? add_content : add_columns)(out, a, reply, from);
}

static const char *reason(const MxReply *reply) {
    return reply->is_cut ? "length" : "stop";
}

const char *answer_whole(MxArena *arena, const Answer *a, const MxReply *reply) {
    bool is_chat = a->job->kind == MX_ASK_CHAT;
    const char *text = quoted(arena, reply->text, reply->text_bytes);
    MxText out;
    mx_text_init(&out, arena);
    add_head(&out, a, words[a->job->kind].whole);
    mx_text_add(&out, ",\"choices\":[{\"index\":0,");
    if (is_chat)
        mx_text_add(&out, "\"message\":{\"role\":\"assistant\",\"content\":%s,\"refusal\":null}",
                    text);
    else
        mx_text_add(&out, "\"text\":%s", text);
    add_logprobs(&out, a, reply, 0);
    mx_text_add(&out, ",\"finish_reason\":\"%s\"}]", reason(reply));
    add_usage(&out, a, reply);
    mx_text_add(&out, "}\n");
    return out.data;
}

/* An event with a choice; `finish_reason` NULL = it goes on. */
static const char *event(MxArena *arena, const Answer *a, const char *choice, const Piece *piece,
                         const char *finish_reason) {
    MxText out;
    mx_text_init(&out, arena);
    mx_text_add(&out, "data: ");
    add_head(&out, a, words[a->job->kind].piece);
    mx_text_add(&out, ",\"choices\":[{\"index\":0,%s", choice);
    add_logprobs(&out, a, &piece->reply, piece->from);
    mx_text_add(&out, ",\"finish_reason\":%s}]}\n\n", text_or_null(arena, finish_reason));
    return out.data;
}

const char *answer_first(MxArena *arena, const Answer *a) {
    if (a->job->kind != MX_ASK_CHAT) return NULL;
    return event(arena, a, "\"delta\":{\"role\":\"assistant\",\"content\":\"\"}", &(Piece){0},
                 NULL);
}

const char *answer_text(MxArena *arena, const Answer *a, const Piece *piece) {
    const char *value = quoted(arena, piece->text, piece->n);
    bool is_chat = a->job->kind == MX_ASK_CHAT;
    return event(arena, a,
                 is_chat ? mx_arena_printf(arena, "\"delta\":{\"content\":%s}", value)
                         : mx_arena_printf(arena, "\"text\":%s", value),
                 piece, NULL);
}

const char *answer_last(MxArena *arena, const Answer *a, const Piece *piece) {
    bool is_chat = a->job->kind == MX_ASK_CHAT;
    MxText out;
    mx_text_init(&out, arena);
    mx_text_add(
        &out, "%s",
        event(arena, a, is_chat ? "\"delta\":{}" : "\"text\":\"\"", piece, reason(&piece->reply)));
    if (a->job->ask.tells_usage) {
        mx_text_add(&out, "data: ");
        add_head(&out, a, words[a->job->kind].piece);
        mx_text_add(&out, ",\"choices\":[]");
        add_usage(&out, a, &piece->reply);
        mx_text_add(&out, "}\n\n");
    }
    mx_text_add(&out, "data: [DONE]\n\n");
    return out.data;
}

const char *answer_error(MxArena *arena, const Trouble *t) {
    return mx_arena_printf(arena,
                           "{\"error\":{\"message\":%s,\"type\":\"%s\",\"param\":%s,"
                           "\"code\":%s}}\n",
                           mx_json_quote(arena, t->message, strlen(t->message)), t->type,
                           text_or_null(arena, t->param), text_or_null(arena, t->code));
}

const char *answer_broken(MxArena *arena, const char *error) {
    return mx_arena_printf(arena, "data: %s\n", error);
}
