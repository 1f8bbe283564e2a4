/* serve.c — the worker: replies of requests join the running sequences as rows become free, and
 * leave when they are over. Only the worker uses the model, the tokenizer and the template, so it
 * also parses a request's text, between two steps. What becomes of one request is in job.c. */
#include "job.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { CHUNK = 128, CAPACITY = 4096 /* of a prompt */ };

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

/* ---- requests */

static void no_longer_held(Server *s) {
    pthread_mutex_lock(&s->lock);
    s->n_held--;
    pthread_mutex_unlock(&s->lock);
}

static void admit(Server *s, Job *job) {
    job->number = s->n_jobs++;
    if (job_read(s, job))
        push(&s->waiting, job);
    else
        no_longer_held(s);
}

/* Rows for the replies of requests that wait, one for each in turn, as far as there are free ones.
 */
static void join_waiting(Server *s) {
    for (Job *job; (job = s->waiting.first) && job_join(s, job);) {
        bool waits = job->n_joined < job->n_choices && !job->refusal;
        pop(&s->waiting);
        if (!waits) no_longer_held(s);
        push(waits ? &s->waiting : &s->running, job);
    }
}

static const Trouble too_late = {504, "server_error", "timeout", NULL,
                                 "the answer took longer than --timeout"};
static const Trouble closing = {503, "server_error", "closing", NULL, "the server ends"};

/* Why a request that is not answered yet will not be; NULL = it will. */
static const Trouble *trouble_of(const Job *job) {
    bool has_rows = job->n_joined > 0;
    if (job->refusal) return job->refusal;
    if (mx_clock_s() > job->deadline) return &too_late;
    return http_is_gone(job) || n_signals > has_rows ? &closing : NULL;
}

/* Ends requests that are answered, or that will not be. */
static void end_some(Server *s, List *list) {
    List left = {0};
    for (Job *job; (job = pop(list));) {
        if (job_tell(s, job)) continue;
        const Trouble *trouble = trouble_of(job);
        if (trouble && list == &s->waiting) no_longer_held(s);
        if (trouble)
            job_fail(s, job, trouble);
        else
            push(&left, job);
    }
    *list = left;
}

/* Until a signal, and all that has begun has ended. */
static void work(Server *s) {
    bool hears = true;
    while (hears || s->running.n || s->waiting.n) {
        if (!s->running.n && !s->waiting.n && !n_signals) sem_wait(&wakes);
        while (!sem_trywait(&wakes)) {
        }
        if (hears && n_signals) {
            http_quiesce(s->http);
            hears = false;
        }
        for (Job *job; (job = take(s));) admit(s, job);
        end_some(s, &s->waiting);
        join_waiting(s);
        if (s->running.n || s->waiting.n) mx_sequences_step(s->sequences);
        end_some(s, &s->running);
    }
}

/* ---- */

static const char *name_of(MxArena *arena, const char *dir) {
    size_t n = strlen(dir);
    while (n > 1 && dir[n - 1] == '/') n--;
    char *name = mx_arena_strndup(arena, dir, n), *slash = strrchr(name, '/');
    return slash && slash[1] ? slash + 1 : name;
}

/* A template that takes tools may have no calls, or refuse those of a probe: then the vocabulary
 * tells the format, by the first mark of one that is a token. */
static const CallFormat *find_format(const MxTokenizer *tokenizer) {
    for (int i = 0; tokenizer && calls_format_at(i); i++) {
        const char *mark = calls_mark(calls_format_at(i), 0);
        if (strlen(mark) > 1 && mx_mark_token(tokenizer, mark) >= 0) return calls_format_at(i);
    }
    return NULL;
}

/* A mark that is a special token is told in answers' texts. */
static void show(Server *s, const char *mark) {
    const int32_t id = mx_mark_hidden(s->what->tokenizer, mark);
    for (int i = 0; i < s->n_shown; i++)
        if (s->shown[i] == id) return;
    if (id >= 0) s->shown[s->n_shown++] = id;
}

/* Special tokens among the marks of reasoning, and behind them those of calls. */
static void find_shown(MxArena *arena, Server *s) {
    const CallFormat *format = s->habits.format;
    const MxReasoning *reasoning = s->habits.reasoning;
    const char *mark;
    int n = 0;
    if (!s->what->tokenizer) return;
    while (format && calls_mark(format, n)) n++;
    for (int i = 0; reasoning && mx_reasoning_mark(reasoning, i); i++) n++;
    s->shown = mx_new_n(arena, int32_t, n + 1);
    for (int i = 0; reasoning && (mark = mx_reasoning_mark(reasoning, i)); i++) show(s, mark);
    s->n_reasoning_shown = s->n_shown;
    for (int i = 0; format && (mark = calls_mark(format, i)); i++) show(s, mark);
}

static bool open_server(MxArena *arena, const MxServe *what, Server *s, MxError *err) {
    const MxSpeak *speak = what->speak;
    MxGeneration shape = {.rows = speak->rows,
                          .capacity = CAPACITY + speak->max_tokens,
                          .chunk = CHUNK,
                          .all_logits = true};
    const char *name = what->dir ? name_of(arena, what->dir) : speak->weights.config->run_name;
    *s = (Server){.arena = arena, .what = what, .name = name};
    guides_init(&s->guides);
    s->model = mx_arena_printf(
        arena, "{\"id\":%s,\"object\":\"model\",\"created\":%lld,\"owned_by\":\"mxtrain\"}",
        mx_json_quote(arena, s->name, strlen(s->name)), (long long)time(NULL));
    s->models = mx_arena_printf(arena, "{\"object\":\"list\",\"data\":[%s]}\n", s->model);
    if (speak->chat) s->habits = messages_habits(s->arena, speak->chat);
    if (s->habits.takes_tools && !s->habits.format) s->habits.format = find_format(what->tokenizer);
    find_shown(arena, s);
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
    const CallFormat *format = s->habits.format;
    if (speak->chat && !s->habits.takes_tools)
        printf("the chat template takes no tools: requests with \"tools\" are refused\n");
    else if (speak->chat)
        printf("calls of tools are %s%s\n",
               format ? "read in the format " : "told as text: the template's format is not known",
               format ? calls_format_name(format) : "");
    if (speak->chat && s->habits.reasoning)
        printf("reasoning is told apart, as marked in the format %s\n",
               mx_reasoning_name(s->habits.reasoning));
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
    for (Job *job; (job = take(&s));) job_fail(&s, job, &closing);
    http_close(s.http);
    guides_release(&s.guides);
    pthread_mutex_destroy(&s.lock);
    return true;
}
