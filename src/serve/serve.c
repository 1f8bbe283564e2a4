/* serve.c — the worker: requests join the running sequences as rows become free, and leave when
 * they are answered. Only the worker uses the model, the tokenizer and the template, so it also
 * parses a request's text, between two steps. */
#include "internal.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { CHUNK = 128, CAPACITY = 4096 /* of a prompt */ };

typedef struct List {
    Job *first, *last;
    int64_t n;
} List;

typedef struct Server {
    const MxServe *what;
    MxSource source;
    MxGenerate how;
    MxTrainState *state;
    MxSequences *sequences;
    MxWords words;
    Http *http;
    const char *name, *model, *models;
    bool takes_parts; /* see messages_take_parts */
    List waiting;
    List running;
    uint64_t n_jobs;
    /* Under the lock. */
    pthread_mutex_t lock;
    List inbox;
    int64_t n_held; /* jobs that have no row yet */
    bool is_closed; /* there will be no more */
} Server;

/* ---- signals: the first lets what has begun end, the second does not */

static volatile sig_atomic_t n_signals;
static sem_t wakes;

static void hear_signal(int signal) {
    int kept = errno;
    (void)signal;
    n_signals++;
    sem_post(&wakes);
    errno = kept;
}

static const int heard[] = {SIGTERM, SIGINT, SIGHUP};

/* Other threads are made with these blocked. */
static void block_signals(int how) {
    sigset_t set;
    sigemptyset(&set);
    for (int i = 0; i < MX_COUNT(heard); i++) sigaddset(&set, heard[i]);
    pthread_sigmask(how, &set, NULL);
}

static void hear_signals(void) {
    struct sigaction action = {.sa_handler = hear_signal};
    sem_init(&wakes, 0, 0);
    for (int i = 0; i < MX_COUNT(heard); i++) sigaction(heard[i], &action, NULL);
}

/* ---- lists */

static void push(List *list, Job *job) {
    job->next = NULL;
    *(list->last ? &list->last->next : &list->first) = job;
    list->last = job;
    list->n++;
}

static Job *pop(List *list) {
    Job *job = list->first;
    if (!job) return NULL;
    list->first = job->next;
    if (!list->first) list->last = NULL;
    list->n--;
    return job;
}

/* ---- from http.c's threads */

bool serve_submit(void *server, Job *job) {
    Server *s = server;
    pthread_mutex_lock(&s->lock);
    bool has_room = s->n_held < s->what->queue && !s->is_closed;
    if (has_room) {
        push(&s->inbox, job);
        s->n_held++;
    }
    pthread_mutex_unlock(&s->lock);
    if (has_room) sem_post(&wakes);
    return has_room;
}

const char *serve_models(const void *server, const char *rest) {
    (void)rest;
    return ((const Server *)server)->models;
}

const char *serve_model(const void *server, const char *rest) {
    const Server *s = server;
    return strcmp(rest, s->name) ? NULL : s->model;
}

static Job *take(Server *s) {
    pthread_mutex_lock(&s->lock);
    Job *job = pop(&s->inbox);
    pthread_mutex_unlock(&s->lock);
    return job;
}

static void no_longer_held(Server *s) {
    pthread_mutex_lock(&s->lock);
    s->n_held--;
    pthread_mutex_unlock(&s->lock);
}

/* ---- answers */

static Answer answer_of(const Server *s, const Job *job) {
    return (Answer){job, s->name, s->what->tokenizer};
}

static void write_text(Job *job, const char *text) {
    if (text) http_write(job, text, strlen(text));
}

static const Trouble too_late = {504, "server_error", "timeout", NULL,
                                 "the answer took longer than --timeout"};
static const Trouble closing = {503, "server_error", "closing", NULL, "the server ends"};

static void fail(Job *job, const Trouble *t, bool has_begun) {
    const char *text = answer_error(&job->arena, t);
    if (!has_begun) http_begin(job, t->status, false);
    write_text(job, has_begun ? answer_broken(&job->arena, text) : text);
    http_end(job);
}

/* Text of a reply as it comes, with the tokens that have come since the last text. */
typedef struct Listener {
    Answer answer;
    Job *job;
    const MxSequences *sequences;
    int64_t n_told; /* tokens */
} Listener;

static Piece piece_of(const Listener *from, MxReply reply, const char *text, size_t n) {
    return (Piece){.text = text, .n = n, .reply = reply, .from = from->n_told};
}

static void say(void *context, const char *text, size_t n) {
    Listener *to = context;
    MxArena scratch = {.name = "event"};
    Piece piece = piece_of(to, mx_sequences_reply(to->sequences, to->job->row), text, n);
    to->n_told = piece.reply.tokens.n;
    write_text(to->job, answer_text(&scratch, &to->answer, &piece));
    mx_arena_release(&scratch);
}

/* ---- requests */

static bool is_ours(const Server *s, const Job *job, Trouble *t) {
    if (!job->ask.model || !strcmp(job->ask.model, s->name)) return true;
    *t = (Trouble){404, "invalid_request_error", "model_not_found", "model", NULL};
    return false;
}

/* An error in a file of the model's is told by its name alone: the client need not know where the
 * model is. */
static const char *without_folder(const char *message) {
    size_t n = strcspn(message, ": \"");
    const char *slash = memrchr(message, '/', n);
    return slash ? slash + 1 : message;
}

static bool read_job(const Server *s, Job *job, MxError *err) {
    MxJson *messages = mx_json_get(job->ask.prompt, "messages");
    if (messages && !s->takes_parts)
        mx_json_set(job->ask.prompt, "messages", messages_join_parts(&job->arena, messages));
    if (!mx_prompt_read(&job->arena, s->words, job->ask.prompt, MX_NOWHERE, &job->prompt, err))
        return false;
    if (job->ask.n_stops && !s->what->tokenizer)
        return mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE, "stop: the model has no tokenizer");
    return mx_prompt_check(s->state, "the prompt", &job->prompt, job->ask.max_tokens, err);
}

/* How it is answered: as requests are by default, but for what it says. */
static void prepare(const Server *s, Job *job) {
    Listener *to = mx_new(&job->arena, Listener);
    *to = (Listener){.answer = answer_of(s, job), .job = job, .sequences = s->sequences};
    job->how = s->how;
    job->how.sampling = job->ask.sampling;
    job->how.max_tokens = job->ask.max_tokens;
    job->how.n_top = job->ask.n_top;
    job->how.stops = job->ask.stops;
    job->how.n_stops = job->ask.n_stops;
    job->how.say = job->ask.streams ? say : NULL;
    job->how.context = to;
}

/* A request that has come: it waits for a row, or is told what is wrong with it. */
static void admit(Server *s, Job *job) {
    MxError err = {0};
    Trouble trouble = {400, "invalid_request_error", NULL, NULL, NULL};
    job->number = s->n_jobs++;
    job->created = (int64_t)time(NULL);
    job->deadline = mx_clock_s() + s->what->timeout_s;
    bool ok = mx_ask_read(&job->arena, job->kind, job->body.data, job->body.len, s->what->speak,
                          &job->ask, &err);
    if (ok && !is_ours(s, job, &trouble))
        ok = mx_fail(&err, MX_EXIT_BAD_INPUT, MX_NOWHERE, "model: found \"%.100s\", wanted \"%s\"",
                     job->ask.model, s->name);
    ok = ok && read_job(s, job, &err);
    if (ok) {
        prepare(s, job);
        push(&s->waiting, job);
    } else {
        trouble.message = without_folder(err.text.data);
        if (!trouble.param) trouble.param = job->ask.wrong;
        no_longer_held(s);
        fail(job, &trouble, false);
    }
    mx_error_release(&err);
}

/* A sequence that has joined sees its images; if it cannot, that was all. */
static bool look(Server *s, Job *job) {
    MxError err = {0};
    bool ok = mx_prompt_look(&job->arena, s->words, &job->prompt, &err);
    if (!ok) {
        mx_sequences_leave(s->sequences, job->row);
        fail(job, &(Trouble){400, "invalid_request_error", NULL, NULL, err.text.data}, false);
    }
    mx_error_release(&err);
    return ok;
}

static bool join(Server *s, Job *job) {
    uint64_t stream = job->ask.has_seed ? 0 : job->number;
    job->row = mx_sequences_join(s->sequences, &job->arena, &job->how, &job->prompt, stream);
    if (job->row < 0) return false;
    no_longer_held(s);
    if (!look(s, job)) return true;
    push(&s->running, job);
    if (!job->ask.streams) return true;
    Answer answer = answer_of(s, job);
    http_begin(job, 200, true);
    write_text(job, answer_first(&job->arena, &answer));
    return true;
}

/* Ends those that wait no longer, for whatever reason; the others go into rows as far as there are
 * free ones. */
static void join_waiting(Server *s) {
    List left = {0};
    bool is_full = false;
    for (Job *job; (job = pop(&s->waiting));) {
        bool is_late = mx_clock_s() > job->deadline;
        if (http_is_gone(job) || is_late || n_signals) {
            no_longer_held(s);
            fail(job, is_late ? &too_late : &closing, false);
        } else if (is_full || !join(s, job)) {
            is_full = true;
            push(&left, job);
        }
    }
    s->waiting = left;
}

static void finish(Server *s, Job *job) {
    Answer answer = answer_of(s, job);
    MxReply reply = mx_sequences_leave(s->sequences, job->row);
    if (job->ask.streams) {
        Piece rest = piece_of(job->how.context, reply, "", 0);
        write_text(job, answer_last(&job->arena, &answer, &rest));
    } else {
        http_begin(job, 200, false);
        write_text(job, answer_whole(&job->arena, &answer, &reply));
    }
    http_end(job);
}

static void finish_running(Server *s) {
    List left = {0};
    for (Job *job; (job = pop(&s->running));) {
        bool is_late = mx_clock_s() > job->deadline;
        if (mx_sequences_is_over(s->sequences, job->row)) {
            finish(s, job);
        } else if (is_late || http_is_gone(job) || n_signals > 1) {
            mx_sequences_leave(s->sequences, job->row);
            fail(job, is_late ? &too_late : &closing, job->ask.streams);
        } else {
            push(&left, job);
        }
    }
    s->running = left;
}

/* Until a signal, and all that has begun has ended. */
static void work(Server *s) {
    bool hears = true;
    while (hears || s->running.n) {
        if (!s->running.n && !s->waiting.n && !n_signals) sem_wait(&wakes);
        while (!sem_trywait(&wakes)) {
        }
        if (hears && n_signals) {
            http_quiesce(s->http);
            hears = false;
        }
        for (Job *job; (job = take(s));) admit(s, job);
        join_waiting(s);
        if (s->running.n) mx_sequences_step(s->sequences);
        finish_running(s);
    }
}

/* ---- */

static const char *name_of(MxArena *arena, const char *dir) {
    size_t n = strlen(dir);
    while (n > 1 && dir[n - 1] == '/') n--;
    char *name = mx_arena_strndup(arena, dir, n), *slash = strrchr(name, '/');
    return slash && slash[1] ? slash + 1 : name;
}

static bool open_server(MxArena *arena, const MxServe *what, Server *s, MxError *err) {
    const MxSpeak *speak = what->speak;
    MxGeneration shape = {
        .rows = speak->rows, .capacity = CAPACITY + speak->max_tokens, .chunk = CHUNK};
    const char *name = what->dir ? name_of(arena, what->dir) : speak->weights.config->run_name;
    *s = (Server){.what = what, .name = name};
    s->model = mx_arena_printf(
        arena, "{\"id\":%s,\"object\":\"model\",\"created\":%lld,\"owned_by\":\"mxtrain\"}",
        mx_json_quote(arena, s->name, strlen(s->name)), (long long)time(NULL));
    s->models = mx_arena_printf(arena, "{\"object\":\"list\",\"data\":[%s]}\n", s->model);
    s->takes_parts = !speak->chat || messages_take_parts(speak->chat);
    if (!mx_speak_find(arena, what->dir, true, what->tokenizer, speak, &s->source, &s->how, err))
        return false;
    s->words = mx_speak_words(arena, &s->source, what->tokenizer, speak, true);
    if (s->source.config->use_multimodal) shape.seen = shape.capacity;
    if (!mx_source_open(arena, &s->source, shape, &s->state, err)) return false;
    s->sequences = mx_sequences_new(arena, s->state);
    pthread_mutex_init(&s->lock, NULL);
    return true;
}

/* What answers, and what a client must know of it. */
static void print_start(const Server *s, const char *url) {
    const MxSpeak *speak = s->what->speak;
    const char *chat = speak->chat ? " and /v1/chat/completions" : "";
    printf("serving %s at %s/v1, %lld at a time\n", s->name, url, (long long)speak->rows);
    printf("answers /v1/completions%s with up to %lld tokens (--max-tokens)\n", chat,
           (long long)speak->max_tokens);
    if (!s->what->tokenizer)
        printf("no tokenizer: prompts are lists of ids, and /v1/chat/completions is refused\n");
    else if (!speak->chat)
        printf("no chat template: /v1/chat/completions is refused; --chat-template FILE or a name "
               "such as chatml sets one\n");
    fflush(stdout);
}

/* The address is taken before the model is read, which takes long. */
bool mx_serve(MxArena *arena, const MxServe *what, MxError *err) {
    Server s;
    char *url;
    int descriptor;
    if (!serve_bind(arena, what->address, &descriptor, &url, err)) return false;
    bool ok = open_server(arena, what, &s, err);
    if (ok) {
        size_t largest =
            s.source.config->use_multimodal ? HTTP_LARGEST_BODY_SEEN : HTTP_LARGEST_BODY;
        hear_signals();
        block_signals(SIG_BLOCK);
        ok = http_open(arena, descriptor, largest, &s, &s.http, err);
        block_signals(SIG_UNBLOCK);
    }
    if (!ok) {
        close(descriptor);
        return false;
    }
    print_start(&s, url);
    work(&s);
    pthread_mutex_lock(&s.lock);
    s.is_closed = true;
    pthread_mutex_unlock(&s.lock);
    for (Job *job; (job = take(&s));) fail(job, &closing, false);
    http_close(s.http);
    pthread_mutex_destroy(&s.lock);
    return true;
}
