/* logprobs.c — log-probabilities of a reply's tokens, in the forms of completions and
 * conversations.
 */
#include "internal.h"

#include <math.h>

static const char *token_text(MxArena *arena, const Job *job, int32_t id, size_t *n) {
    *n = 0;
    return job->tokenizer ? mx_tokenizer_decode(arena, job->tokenizer, &id, 1, false, n) : "";
}

/* The likeliest tokens at a place by their texts, of several with one text the likeliest, and the
 * chosen token. */
static void add_top_columns(MxText *out, const Job *job, const MxReply *reply, int64_t at) {
    MxArena scratch = {.name = "top_logprobs"};
    const int64_t n = reply->n_top;
    const char **texts = mx_new_n(&scratch, const char *, n + 1);
    int n_texts = 0;
    mx_text_add(out, "{");
    for (int64_t k = 0; k <= n; k++) {
        const MxChoice own = {reply->tokens.ids[at], (double)reply->logprobs[at]};
        const MxChoice *choice = k < n ? &reply->top[at * n + k] : &own;
        size_t bytes;
        const char *text = token_text(&scratch, job, choice->id, &bytes);
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
static void add_columns(MxText *out, const Job *job, const MxReply *reply, int64_t from) {
    MxArena scratch = {.name = "logprobs"};
    const MxTokens *t = &reply->tokens;
    size_t n;
    mx_text_add(out, "{\"tokens\":[");
    for (int64_t i = from; i < t->n; i++) {
        const char *text = token_text(&scratch, job, t->ids[i], &n);
        mx_text_add(out, "%s%s", i > from ? "," : "", mx_json_quote(&scratch, text, n));
    }
    mx_text_add(out, "],\"token_logprobs\":[");
    for (int64_t i = from; i < t->n; i++) {
        mx_text_add(out, "%s", i > from ? "," : "");
        if (isnan(reply->logprobs[i]))
            mx_text_add(out, "null");
        else
            mx_text_add(out, "%.9g", (double)reply->logprobs[i]);
    }
    mx_text_add(out, "],\"top_logprobs\":%s", reply->n_top ? "[" : "null");
    for (int64_t i = from; reply->n_top && i < t->n; i++) {
        mx_text_add(out, "%s", i > from ? "," : "");
        if (isnan(reply->logprobs[i]))
            mx_text_add(out, "null");
        else
            add_top_columns(out, job, reply, i);
    }
    mx_text_add(out, "%s,\"text_offset\":null}", reply->n_top ? "]" : "");
    mx_arena_release(&scratch);
}

/* "token", "logprob" and "bytes" of a conversation's token. */
static void add_token(MxText *out, const Job *job, MxChoice choice) {
    MxArena scratch = {.name = "token"};
    size_t n;
    const char *text = token_text(&scratch, job, choice.id, &n);
    mx_text_add(out, "\"token\":%s,\"logprob\":%.9g,\"bytes\":[", mx_json_quote(&scratch, text, n),
                (double)(float)choice.logprob);
    for (size_t b = 0; b < n; b++) mx_text_add(out, "%s%d", b ? "," : "", (unsigned char)text[b]);
    mx_text_add(out, "]");
    mx_arena_release(&scratch);
}

/* {"content": [{"token", "logprob", …}]} of conversations. */
static void add_content(MxText *out, const Job *job, const MxReply *reply, int64_t from) {
    mx_text_add(out, "{\"content\":[");
    for (int64_t i = from; i < reply->tokens.n; i++) {
        mx_text_add(out, "%s{", i > from ? "," : "");
        add_token(out, job, (MxChoice){reply->tokens.ids[i], (double)reply->logprobs[i]});
        mx_text_add(out, ",\"top_logprobs\":[");
        for (int64_t k = 0; k < reply->n_top; k++) {
            mx_text_add(out, "%s{", k ? "," : "");
            add_token(out, job, reply->top[i * reply->n_top + k]);
            mx_text_add(out, "}");
        }
        mx_text_add(out, "]}");
    }
    mx_text_add(out, "],\"refusal\":null}");
}

void answer_add_logprobs(MxText *out, const Job *job, const MxReply *reply, int64_t from) {
    mx_text_add(out, ",\"logprobs\":");
    if (!job->ask.tells_logprobs || from >= reply->tokens.n)
        mx_text_add(out, "null");
    else
        (job->kind == MX_ASK_CHAT ? add_content : add_columns)(out, job, reply, from);
}
