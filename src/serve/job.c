/* job.c — one request: its prompts, its replies, and what its client is told of them. */
#include "job.h"

#include <time.h>

static void write_text(Job *job, const char *text) {
    if (text) http_write(job, text, strlen(text));
}

static void begin(Job *job, int status, bool streams) {
    if (!job->has_begun) http_begin(job, status, streams);
    job->has_begun = true;
}

/* The job is gone. */
static void end(Job *job) {
    if (job->guided) guides_leave(job->guided);
    for (int64_t i = 0; i < job->n_choices; i++)
        if (job->choice[i].calls) calls_release(job->choice[i].calls);
    http_end(job);
}

static void leave(Server *s, Choice *choice) {
    if (choice->row >= 0) choice->reply = mx_sequences_leave(s->sequences, choice->row);
    choice->row = -1;
}

void job_fail(Server *s, Job *job, const Trouble *t) {
    const char *text = answer_error(&job->arena, t);
    if (job->has_begun) text = answer_broken(&job->arena, text);
    for (int64_t i = 0; i < job->n_joined; i++) leave(s, &job->choice[i]);
    begin(job, t->status, false);
    write_text(job, text);
    end(job);
}

/* ---- events */

/* With the tokens that have come since the last one. */
static Piece next_piece(Choice *choice, const MxReply *reply, const char *text, size_t n) {
    const MxText *reasoning = choice->calls ? &choice->calls->reasoned.text : NULL;
    const size_t told = choice->reasoning_told;
    return (Piece){.text = text,
                   .n = n,
                   .reasoning = reasoning && reasoning->len ? reasoning->data + told : "",
                   .n_reasoning = reasoning ? reasoning->len - told : 0,
                   .call = choice->n_calls_told,
                   .argument = choice->arguments_told,
                   .reply = *reply,
                   .from = choice->n_told};
}

static void write_piece(Choice *choice, const MxReply *reply, const char *text, size_t n) {
    MxArena scratch = {.name = "event"};
    Piece piece = next_piece(choice, reply, text, n);
    write_text(choice->job, answer_text(&scratch, choice, &piece));
    choice->n_told = reply->tokens.n;
    choice->has_echoed = true;
    if (choice->calls) {
        const Calls *calls = choice->calls;
        choice->n_calls_told = calls->n + calls->n_open;
        if (choice->n_calls_told)
            choice->arguments_told = calls->call[choice->n_calls_told - 1].n_arguments;
    }
    mx_arena_release(&scratch);
}

/* What has turned out to be reasoning, content, a call, or more of its arguments, if anything has.
 */
static void write_read(Choice *choice, const MxReply *reply) {
    const Calls *calls = choice->calls;
    size_t from = choice->content_told, n = calls->content.len - from;
    const int64_t told = choice->n_calls_told;
    bool has_more = told && calls->call[told - 1].n_arguments > choice->arguments_told;
    const MxText *reasoning = &calls->reasoned.text;
    bool reasons = reasoning->len > choice->reasoning_told;
    if (!n && !reasons && !has_more && calls->n + calls->n_open == told) return;
    write_piece(choice, reply, n ? calls->content.data + from : "", n);
    choice->content_told = calls->content.len;
    choice->reasoning_told = reasoning->len;
}

static void say(void *context, const char *text, size_t n) {
    Choice *choice = context;
    MxReply reply = mx_sequences_reply(choice->sequences, choice->row);
    if (!choice->calls) {
        write_piece(choice, &reply, text, n);
        return;
    }
    calls_add(choice->calls, text, n, false);
    write_read(choice, &reply);
}

/* ---- reading */

/* An error in a file of the model's is told by its name alone: the client need not know where the
 * model is. */
static const char *without_folder(const char *message) {
    size_t n = strcspn(message, ": \"");
    const char *slash = memrchr(message, '/', n);
    return slash ? slash + 1 : message;
}

static bool read_model(const Server *s, Job *job, Trouble *t, MxError *err) {
    if (!job->ask.model || !strcmp(job->ask.model, s->name)) return true;
    *t = (Trouble){404, "invalid_request_error", "model_not_found", "model", NULL};
    return mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE, "model: found \"%.100s\", wanted \"%s\"",
                   job->ask.model, s->name);
}

/* The text of a prompt, which is a text or ids. */
static void read_echo(const Server *s, Job *job, const MxJson *json, Asked *out) {
    const MxJson *text = mx_json_get(json, "prompt");
    const MxTokens *ids = &out->prompt.tokens;
    out->echo = mx_json_string(text);
    out->echo_bytes = mx_json_string_bytes(text);
    if (!out->echo && s->what->tokenizer)
        out->echo = mx_tokenizer_decode(&job->arena, s->what->tokenizer, ids->ids, ids->n, false,
                                        &out->echo_bytes);
}

/* Where a conversation's answer begins: its prompt may open the reasoning. */
static MxReasoningState state_of(const Server *s, Job *job, const Asked *asked) {
    enum { LAST = 32 };
    const MxTokens *ids = &asked->prompt.tokens;
    int64_t n = ids->n < LAST ? ids->n : LAST;
    size_t bytes;
    if (!s->habits.reasoning) return MX_REASONING_OVER;
    const char *text = mx_tokenizer_decode(&job->arena, s->what->tokenizer, ids->ids + ids->n - n,
                                           n, false, &bytes);
    return mx_reasoning_state(s->habits.reasoning, text, bytes);
}

static bool read_prompt(const Server *s, Job *job, int64_t i, MxError *err) {
    MxJson *json = job->ask.prompts[i], *messages = mx_json_get(json, "messages");
    Asked *out = &job->asked[i];
    const char *name = job->ask.n_prompts == 1
                           ? "the prompt"
                           : mx_arena_printf(&job->arena, "prompt %lld", (long long)i);
    if (messages)
        mx_json_set(json, "messages", messages_as_taken(&job->arena, &s->habits, messages));
    if (!mx_prompt_read(&job->arena, s->words, json, MX_NOWHERE, &out->prompt, err)) return false;
    if (messages) out->state = state_of(s, job, out);
    if (job->ask.echoes) read_echo(s, job, json, out);
    return mx_prompt_check(s->state, name, &out->prompt, job->ask.max_tokens, err);
}

static bool check_biases(const Server *s, Job *job, MxError *err) {
    const MxSampling *how = &job->ask.sampling;
    const int64_t vocab = s->source.config->vocab_size;
    for (int64_t i = 0; i < how->n_biases; i++)
        if (how->biases[i].id >= vocab) {
            job->ask.wrong = "logit_bias";
            return mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE,
                           "logit_bias: found the id %d, and the model has ids from 0 to %lld",
                           how->biases[i].id, (long long)vocab - 1);
        }
    return true;
}

static bool check_tools(const Server *s, Job *job, MxError *err) {
    if (!job->ask.has_tools || !s->what->speak->chat || s->habits.takes_tools) return true;
    job->ask.wrong = "tools";
    return mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE, "tools: the chat template takes none");
}

static bool read_prompts(const Server *s, Job *job, MxError *err) {
    job->asked = mx_new_n(&job->arena, Asked, job->ask.n_prompts);
    if (job->ask.n_stops && !s->what->tokenizer)
        return mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE, "stop: the model has no tokenizer");
    for (int64_t i = 0; i < job->ask.n_prompts; i++)
        if (!read_prompt(s, job, i, err)) return false;
    return true;
}

/* The first such request takes the time to read the vocabulary. */
static const MxVocabulary *vocabulary_of(Server *s) {
    const MxGenerate *how = &s->how;
    if (!s->vocabulary)
        s->vocabulary = mx_vocabulary_new(s->arena, s->what->tokenizer, how->ends, how->n_ends,
                                          s->shown, s->n_shown);
    return s->vocabulary;
}

/* The grammar that the replies are held to: calls and what may stand beside them, or a schema. */
static bool write_grammar(Server *s, Job *job, MxArena *arena, MxGrammar **out, MxError *err) {
    const MxAsk *ask = &job->ask;
    const CallRules rules = {.format = s->habits.format,
                             .writes = s->habits.writes,
                             .vocabulary = vocabulary_of(s),
                             .tools = ask->has_tools ? mx_json_get(*ask->prompts, "tools") : NULL,
                             .choice = ask->needs_calls ? CALLS_NEEDED : CALLS_FREE,
                             .name = ask->called,
                             .has_one = ask->calls_one,
                             .schema = ask->schema,
                             .reasoning = s->habits.reasoning,
                             .state = job->asked[0].state};
    if (ask->has_tools) job->ask.wrong = "tools";
    if (!ask->has_tools || rules.format) return calls_grammar(arena, &rules, out, err);
    return mx_fail(
        err, MX_EXIT_BAD_INPUT, MX_NOWHERE,
        "tools: the format in which the chat template has calls is not known, so that an "
        "answer cannot be held to it (tool_choice, strict, "
        "response_format)");
}

/* What tells the grammar. */
static const char *key_of(Job *job) {
    const MxAsk *ask = &job->ask;
    const MxJson *tools = ask->has_tools ? mx_json_get(*ask->prompts, "tools") : NULL;
    MxArena *arena = &job->arena;
    return mx_arena_printf(
        arena, "%s\n%d %d %d %s\n%s", ask->schema ? mx_json_dump(arena, ask->schema, false) : "",
        job->asked[0].state, ask->needs_calls, ask->calls_one, ask->called ? ask->called : "",
        tools ? mx_json_dump(arena, tools, false) : "");
}

/* The guide of the replies, if they are held to a grammar; one that was made before, if it is of
 * the same. */
static bool find_guide(Server *s, Job *job, MxError *err) {
    const MxAsk *ask = &job->ask;
    bool has_one = ask->calls_one && s->habits.format;
    bool calls = ask->has_tools && (ask->needs_calls || has_one || ask->has_strict_tools);
    if (!ask->schema && !calls) return true;
    const char *key = key_of(job);
    MxGrammar *grammar;
    job->ask.wrong = "response_format";
    job->guided = guides_find(&s->guides, key);
    if (job->guided) {
        job->guide = job->guided->guide;
        return true;
    }
    job->guided = guides_new(&s->guides, key);
    MxArena *arena = job->guided ? &job->guided->arena : &job->arena;
    if (!write_grammar(s, job, arena, &grammar, err)) return false;
    job->guide = mx_guide_new(arena, grammar, vocabulary_of(s));
    if (job->guided) job->guided->guide = job->guide;
    return true;
}

/* Takes a conversation's answer apart, if there is anything to tell of it. */
static void read_answer(const Server *s, Choice *choice) {
    const MxAsk *ask = &choice->job->ask;
    MxArena *arena = &choice->job->arena;
    const CallFormat *format = s->habits.format;
    if (!ask->has_tools && !(format && calls_is_all(format))) format = NULL;
    if (!format && !s->habits.reasoning) return;
    choice->calls = mx_new(arena, Calls);
    calls_init(choice->calls, arena,
               (CallReading){.format = format,
                             .tools = mx_json_get(*ask->prompts, "tools"),
                             .most = !ask->has_tools  ? 0
                                     : ask->calls_one ? 1
                                                      : INT64_MAX,
                             .reasoning = s->habits.reasoning,
                             .state = choice->asked->state});
    choice->how.shown = s->shown;
    choice->how.n_shown = format ? s->n_shown : s->n_reasoning_shown;
}

/* The replies, as by default, but for what the request says. With a seed, reply i to a prompt draws
 * the same numbers in every request. */
static void prepare(Server *s, Job *job) {
    const MxAsk *ask = &job->ask;
    job->n_choices = ask->n_prompts * ask->best_of;
    job->choice = mx_new_n(&job->arena, Choice, job->n_choices);
    for (int64_t i = 0; i < job->n_choices; i++) {
        Choice *choice = &job->choice[i];
        *choice = (Choice){.job = job,
                           .index = i,
                           .asked = &job->asked[i / ask->best_of],
                           .how = s->how,
                           .sequences = s->sequences,
                           .row = -1};
        MxGenerate *how = &choice->how;
        how->sampling = ask->sampling;
        how->max_tokens = ask->max_tokens;
        how->echoes = ask->echoes && ask->tells_logprobs;
        how->n_top = ask->n_top;
        how->stops = ask->stops;
        how->n_stops = ask->n_stops;
        how->say = ask->streams ? say : NULL;
        how->context = choice;
        if (job->kind == MX_ASK_CHAT) read_answer(s, choice);
        how->guide = job->guide;
        how->stream = ask->has_seed ? (uint64_t)(i % ask->best_of) : s->n_streams++;
    }
}

bool job_read(Server *s, Job *job) {
    MxError err = {0};
    Trouble trouble = {400, "invalid_request_error", NULL, NULL, NULL};
    job->created = (int64_t)time(NULL);
    job->deadline = mx_clock_s() + s->what->timeout_s;
    job->model = s->name;
    job->tokenizer = s->what->tokenizer;
    bool ok = mx_ask_read(&job->arena, job->kind, job->body.data, job->body.len, s->what->speak,
                          &job->ask, &err) &&
              read_model(s, job, &trouble, &err) && check_biases(s, job, &err) &&
              check_tools(s, job, &err) && read_prompts(s, job, &err) && find_guide(s, job, &err);
    if (ok) {
        prepare(s, job);
    } else {
        trouble.message = without_folder(err.text.data);
        if (!trouble.param) trouble.param = job->ask.wrong;
        job_fail(s, job, &trouble);
    }
    mx_error_release(&err);
    return ok;
}

/* ---- replies */

/* A prompt whose first reply joins sees its images. */
static bool look(const Server *s, Job *job, Asked *asked) {
    MxError err = {0};
    bool ok = asked->has_looked || mx_prompt_look(&job->arena, s->words, &asked->prompt, &err);
    asked->has_looked = true;
    if (!ok) {
        Trouble *refusal = mx_new(&job->arena, Trouble);
        *refusal = (Trouble){400, "invalid_request_error", NULL, NULL,
                             mx_arena_printf(&job->arena, "%s", err.text.data)};
        job->refusal = refusal;
    }
    mx_error_release(&err);
    return ok;
}

bool job_join(Server *s, Job *job) {
    Choice *choice = &job->choice[job->n_joined];
    choice->row = mx_sequences_join(s->sequences, &job->arena, &choice->how, &choice->asked->prompt,
                                    choice->how.stream);
    if (choice->row < 0) return false;
    job->n_joined++;
    bool sees = look(s, job, choice->asked);
    if (!sees) leave(s, choice);
    if (!sees || !job->ask.streams) return true;
    begin(job, 200, true);
    write_text(job, answer_first(&job->arena, choice));
    return true;
}

/* A reply is over. */
static void tell(Server *s, Job *job, Choice *choice) {
    leave(s, choice);
    job->n_over++;
    const MxReply *reply = &choice->reply;
    if (choice->calls && job->ask.streams)
        calls_add(choice->calls, "", 0, true);
    else if (choice->calls)
        calls_add(choice->calls, reply->text, reply->text_bytes, true);
    if (!job->ask.streams) return;
    if (choice->calls) write_read(choice, reply);
    Piece rest = next_piece(choice, reply, "", 0);
    write_text(job, answer_last(&job->arena, choice, &rest));
}

bool job_tell(Server *s, Job *job) {
    for (int64_t i = 0; i < job->n_joined; i++) {
        Choice *choice = &job->choice[i];
        if (choice->row >= 0 && mx_sequences_is_over(s->sequences, choice->row))
            tell(s, job, choice);
    }
    if (job->n_over < job->n_choices) return false;
    begin(job, 200, false);
    write_text(job,
               job->ask.streams ? answer_end(&job->arena, job) : answer_whole(&job->arena, job));
    end(job);
    return true;
}
