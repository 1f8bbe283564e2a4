/* answer.c — answers in OpenAI's JSON, complete or as events of a stream. */
#include "internal.h"

typedef struct Words {
    const char *id, *whole, *piece; /* prefix of ids; names of objects */
} Words;

static const Words words[MX_ASK_KINDS] = {
    [MX_ASK_COMPLETION] = {"cmpl", "text_completion", "text_completion"},
    [MX_ASK_CHAT] = {"chatcmpl", "chat.completion", "chat.completion.chunk"},
};

static void add_head(MxText *out, const Job *job, const char *object) {
    MxArena scratch = {.name = "name"};
    mx_text_add(out, "{\"id\":\"%s-%llu\",\"object\":\"%s\",\"created\":%lld,\"model\":%s",
                words[job->kind].id, (unsigned long long)job->number, object,
                (long long)job->created, mx_json_quote(&scratch, job->model, strlen(job->model)));
    mx_arena_release(&scratch);
}

/* Of all prompts and choices, also those that are not told. */
static void add_usage(MxText *out, const Job *job) {
    long long prompt = 0, made = 0;
    for (int64_t i = 0; i < job->ask.n_prompts; i++) prompt += job->asked[i].prompt.tokens.n;
    for (int64_t i = 0; i < job->n_choices; i++) {
        const MxReply *reply = &job->choice[i].reply;
        made += reply->tokens.n - reply->n_echoed;
    }
    mx_text_add(out,
                ",\"usage\":{\"prompt_tokens\":%lld,\"completion_tokens\":%lld,"
                "\"total_tokens\":%lld}",
                prompt, made, prompt + made);
}

static const char *text_or_null(MxArena *arena, const char *text) {
    return text ? mx_json_quote(arena, text, strlen(text)) : "null";
}

/* A text, behind that of the prompt if the answer has not had it yet. */
static const char *quoted(MxArena *arena, const Choice *choice, const char *text, size_t n) {
    MxText all;
    mx_text_init(&all, arena);
    const Asked *asked = choice->asked;
    if (!choice->has_echoed && asked->echo) mx_text_addn(&all, asked->echo, asked->echo_bytes);
    if (n) mx_text_addn(&all, text, n);
    return mx_json_quote(arena, all.len ? all.data : "", all.len);
}

static const char *reason(const MxReply *reply) {
    return reply->is_cut ? "length" : "stop";
}

/* ---- complete answers */

static double logprob_of_token(const Choice *choice) {
    const MxReply *reply = &choice->reply;
    double sum = 0;
    int64_t n = reply->tokens.n - reply->n_echoed;
    for (int64_t i = reply->n_echoed; i < reply->tokens.n; i++) sum += (double)reply->logprobs[i];
    return n ? sum / (double)n : 0;
}

/* The best of those that were not told yet, the first of equal ones. */
static const Choice *next_best(const Choice *choices, int64_t n, bool *is_told) {
    int64_t best = -1;
    for (int64_t i = 0; i < n; i++)
        if (!is_told[i] &&
            (best < 0 || logprob_of_token(&choices[i]) > logprob_of_token(&choices[best])))
            best = i;
    is_told[best] = true;
    return &choices[best];
}

static void add_choice(MxText *out, MxArena *arena, const Choice *choice, int64_t index) {
    const Job *job = choice->job;
    const MxReply *reply = &choice->reply;
    const char *text = quoted(arena, choice, reply->text, reply->text_bytes);
    mx_text_add(out, "%s{\"index\":%lld,", index ? "," : "", (long long)index);
    if (job->kind == MX_ASK_CHAT)
        mx_text_add(out, "\"message\":{\"role\":\"assistant\",\"content\":%s,\"refusal\":null}",
                    text);
    else
        mx_text_add(out, "\"text\":%s", text);
    answer_add_logprobs(out, job, reply, 0);
    mx_text_add(out, ",\"finish_reason\":\"%s\"}", reason(reply));
}

const char *answer_whole(MxArena *arena, const Job *job) {
    const int64_t n = job->ask.n, of = job->ask.best_of;
    bool *is_told = mx_new_n(arena, bool, job->n_choices);
    MxText out;
    mx_text_init(&out, arena);
    add_head(&out, job, words[job->kind].whole);
    mx_text_add(&out, ",\"choices\":[");
    for (int64_t i = 0; i < job->ask.n_prompts * n; i++) {
        const int64_t first = i / n * of;
        const Choice *choice =
            n < of ? next_best(job->choice + first, of, is_told + first) : &job->choice[i];
        add_choice(&out, arena, choice, i);
    }
    mx_text_add(&out, "]");
    add_usage(&out, job);
    mx_text_add(&out, "}\n");
    return out.data;
}

/* ---- events */

/* An event with a choice; `finish_reason` NULL = it goes on. */
static const char *event(MxArena *arena, const Choice *choice, const char *what, const Piece *piece,
                         const char *finish_reason) {
    const Job *job = choice->job;
    MxText out;
    mx_text_init(&out, arena);
    mx_text_add(&out, "data: ");
    add_head(&out, job, words[job->kind].piece);
    mx_text_add(&out, ",\"choices\":[{\"index\":%lld,%s", (long long)choice->index, what);
    answer_add_logprobs(&out, job, &piece->reply, piece->from);
    mx_text_add(&out, ",\"finish_reason\":%s}]}\n\n", text_or_null(arena, finish_reason));
    return out.data;
}

const char *answer_first(MxArena *arena, const Choice *choice) {
    if (choice->job->kind != MX_ASK_CHAT) return NULL;
    return event(arena, choice, "\"delta\":{\"role\":\"assistant\",\"content\":\"\"}", &(Piece){0},
                 NULL);
}

const char *answer_text(MxArena *arena, const Choice *choice, const Piece *piece) {
    const char *value = quoted(arena, choice, piece->text, piece->n);
    bool is_chat = choice->job->kind == MX_ASK_CHAT;
    return event(arena, choice,
                 is_chat ? mx_arena_printf(arena, "\"delta\":{\"content\":%s}", value)
                         : mx_arena_printf(arena, "\"text\":%s", value),
                 piece, NULL);
}

const char *answer_last(MxArena *arena, const Choice *choice, const Piece *piece) {
    bool is_chat = choice->job->kind == MX_ASK_CHAT;
    const char *text = quoted(arena, choice, NULL, 0);
    return event(arena, choice,
                 is_chat ? "\"delta\":{}" : mx_arena_printf(arena, "\"text\":%s", text), piece,
                 reason(&piece->reply));
}

const char *answer_end(MxArena *arena, const Job *job) {
    MxText out;
    mx_text_init(&out, arena);
    if (job->ask.tells_usage) {
        mx_text_add(&out, "data: ");
        add_head(&out, job, words[job->kind].piece);
        mx_text_add(&out, ",\"choices\":[]");
        add_usage(&out, job);
        mx_text_add(&out, "}\n\n");
    }
    mx_text_add(&out, "data: [DONE]\n\n");
    return out.data;
}

/* ---- errors */

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
