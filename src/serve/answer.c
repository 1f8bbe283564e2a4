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

static const char *reason(const Choice *choice, const MxReply *reply) {
    bool calls = choice->calls && choice->calls->n;
    return reply->is_cut ? "length" : calls ? "tool_calls" : "stop";
}

/* ---- calls of tools */

/* Nine letters and digits, which templates of Mistral want, and other ones for each call. */
static const char *id_of(MxArena *arena, const Choice *choice, int64_t call) {
    static const char letters[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    enum { LENGTH = 9, LETTERS = sizeof letters - 1 };
    const Job *job = choice->job;
    char *id = mx_arena_alloc(arena, LENGTH + 1);
    uint32_t w[4];
    mx_philox((uint64_t)job->created, job->number, (uint64_t)choice->index << 32 | (uint64_t)call,
              w);
    uint64_t left = w[0] | (uint64_t)w[1] << 32;
    for (int i = 0; i < LENGTH; i++, left /= LETTERS) id[i] = letters[left % LETTERS];
    id[LENGTH] = '\0';
    return id;
}

/* A call; in events it has its number. */
static void add_call(MxText *out, MxArena *arena, const Choice *choice, int64_t i, bool is_event) {
    const Call *call = &choice->calls->call[i];
    const char *id = calls_id(arena, choice->calls, i);
    if (!id) id = id_of(arena, choice, i);
    if (is_event) mx_text_add(out, "\"index\":%lld,", (long long)i);
    mx_text_add(out,
                "\"id\":%s,\"type\":\"function\",\"function\":{\"name\":%s,"
                "\"arguments\":%s}",
                mx_json_quote(arena, id, strlen(id)),
                mx_json_quote(arena, call->name, strlen(call->name)),
                mx_json_quote(arena, call->arguments, call->n_arguments));
}

static void add_calls(MxText *out, MxArena *arena, const Choice *choice) {
    for (int64_t i = 0; i < choice->calls->n; i++) {
        mx_text_add(out, i ? "},{" : "[{");
        add_call(out, arena, choice, i, false);
    }
    mx_text_add(out, "}]");
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

/* Beside calls, a content of spaces is none. */
static void add_message(MxText *out, MxArena *arena, const Choice *choice) {
    const MxReply *reply = &choice->reply;
    const Calls *calls = choice->calls;
    const char *text = calls ? calls->content.data : reply->text;
    size_t n = calls ? calls->content.len : reply->text_bytes;
    bool has_calls = calls && calls->n;
    mx_text_add(out, "\"message\":{\"role\":\"assistant\",\"content\":%s",
                has_calls && calls_are_all(calls) ? "null"
                                                  : mx_json_quote(arena, n ? text : "", n));
    if (calls && calls->reasoned.text.len)
        mx_text_add(out, ",\"reasoning_content\":%s",
                    mx_json_quote(arena, calls->reasoned.text.data, calls->reasoned.text.len));
    if (has_calls) mx_text_add(out, ",\"tool_calls\":");
    if (has_calls) add_calls(out, arena, choice);
    mx_text_add(out, ",\"refusal\":null}");
}

static void add_choice(MxText *out, MxArena *arena, const Choice *choice, int64_t index) {
    const MxReply *reply = &choice->reply;
    mx_text_add(out, "%s{\"index\":%lld,", index ? "," : "", (long long)index);
    if (choice->job->kind == MX_ASK_CHAT)
        add_message(out, arena, choice);
    else
        mx_text_add(out, "\"text\":%s", quoted(arena, choice, reply->text, reply->text_bytes));
    answer_add_logprobs(out, choice->job, reply, 0);
    mx_text_add(out, ",\"finish_reason\":\"%s\"}", reason(choice, reply));
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

/* More arguments of the call that was told last, and calls behind it. */
static void add_more_calls(MxText *out, MxArena *arena, const Choice *choice, const Piece *piece) {
    const Calls *calls = choice->calls;
    const char *comma = "";
    if (piece->call && calls->call[piece->call - 1].n_arguments > piece->argument) {
        const Call *last = &calls->call[piece->call - 1];
        mx_text_add(out, "{\"index\":%lld,\"function\":{\"arguments\":%s}}",
                    (long long)piece->call - 1,
                    mx_json_quote(arena, last->arguments + piece->argument,
                                  last->n_arguments - piece->argument));
        comma = ",";
    }
    for (int64_t i = piece->call; i < calls->n + calls->n_open; i++, comma = ",") {
        mx_text_add(out, "%s{", comma);
        add_call(out, arena, choice, i, true);
        mx_text_add(out, "}");
    }
}

/* {"reasoning_content", "content", "tool_calls"}, each if there is some. */
static const char *delta(MxArena *arena, const Choice *choice, const Piece *piece) {
    MxText out, more;
    mx_text_init(&out, arena);
    mx_text_init(&more, arena);
    if (choice->calls) add_more_calls(&more, arena, choice, piece);
    mx_text_add(&out, "\"delta\":{");
    if (piece->n_reasoning)
        mx_text_add(&out, "\"reasoning_content\":%s%s",
                    mx_json_quote(arena, piece->reasoning, piece->n_reasoning),
                    piece->n || more.len ? "," : "");
    if (piece->n)
        mx_text_add(&out, "\"content\":%s%s", mx_json_quote(arena, piece->text, piece->n),
                    more.len ? "," : "");
    if (more.len) mx_text_add(&out, "\"tool_calls\":[%s]", more.data);
    mx_text_add(&out, "}");
    return out.data;
}

const char *answer_text(MxArena *arena, const Choice *choice, const Piece *piece) {
    if (choice->job->kind == MX_ASK_CHAT)
        return event(arena, choice, delta(arena, choice, piece), piece, NULL);
    const char *text = quoted(arena, choice, piece->text, piece->n);
    return event(arena, choice, mx_arena_printf(arena, "\"text\":%s", text), piece, NULL);
}

const char *answer_last(MxArena *arena, const Choice *choice, const Piece *piece) {
    bool is_chat = choice->job->kind == MX_ASK_CHAT;
    const char *text = quoted(arena, choice, NULL, 0);
    return event(arena, choice,
                 is_chat ? "\"delta\":{}" : mx_arena_printf(arena, "\"text\":%s", text), piece,
                 reason(choice, &piece->reply));
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
