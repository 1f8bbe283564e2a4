/* http.c — requests and answers over HTTP; the only file that uses libmicrohttpd. One thread of the
 * library reads and sends; a complete request is suspended until the worker has something to send.
 * One lock protects all data that both threads use. */
#include "internal.h"
#include "watch.h"

#include <microhttpd.h>
#include <pthread.h>
#include <unistd.h>

enum {
    IDLE_S = 60,  /* of a connection between two requests, or whose client does not read */
    HEAD_S = 10,  /* for the first request's head to come */
    BODY_S = 30,  /* for the body, and 1 more for each MiB that it may have */
    DRAINED = 16, /* times the largest body: of one that is too large, before it is cut off */
    CLOSING_S = 5
};

struct Http {
    struct MHD_Daemon *daemon;
    void *server;
    size_t largest; /* body */
    pthread_mutex_t lock;
    int n_open; /* requests */
    Watch watch;
};

typedef struct Route Route;

/* A request and its answer. */
typedef struct Connection {
    MxArena memory; /* holds this, too */
    Http *http;
    struct MHD_Connection *mhd;
    const Route *route;
    const char *rest; /* of the path, behind the route's */
    Job *job;         /* NULL = none is needed */
    size_t bytes;     /* of the body so far */
    bool is_submitted;
    /* Under the lock. */
    MxArena out_memory;
    MxText out;
    size_t sent; /* bytes of it */
    int status;
    bool streams, has_ended, is_gone, is_suspended;
    int users;
} Connection;

struct Route {
    const char *url, *method;
    /* NULL = the worker does. Gets what follows the url, and returns NULL if it means nothing. */
    const char *(*answer)(const void *server, const char *rest);
    MxAskKind kind;
    bool has_rest;
};

static const char *health(const void *server, const char *rest) {
    (void)server, (void)rest;
    return "{\"status\":\"ok\"}\n";
}

static const Route routes[] = {
    {"/v1/completions", "POST", NULL, MX_ASK_COMPLETION, false},
    {"/v1/chat/completions", "POST", NULL, MX_ASK_CHAT, false},
    {"/v1/models", "GET", serve_models, MX_ASK_KINDS, false},
    {"/v1/models/", "GET", serve_model, MX_ASK_KINDS, true},
    {"/health", "GET", health, MX_ASK_KINDS, false},
};

/* ---- answers */

static enum MHD_Result respond(struct MHD_Connection *mhd, int status, const char *type,
                               struct MHD_Response *response) {
    if (!response) return MHD_NO;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    enum MHD_Result result = MHD_queue_response(mhd, (unsigned)status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result respond_text(struct MHD_Connection *mhd, int status, const char *text,
                                    size_t n) {
    return respond(
        mhd, status, "application/json",
        MHD_create_response_from_buffer(n, (void *)(uintptr_t)text, MHD_RESPMEM_MUST_COPY));
}

static enum MHD_Result refuse(Connection *c, int status, const char *message) {
    const Trouble trouble = {status, "invalid_request_error", NULL, NULL, message};
    const char *text = answer_error(&c->memory, &trouble);
    return respond_text(c->mhd, status, text, strlen(text));
}

/* Rests until there is more. */
static void suspend(Connection *c) {
    c->is_suspended = true;
    MHD_suspend_connection(c->mhd);
}

static void resume(Connection *c) {
    if (c->is_suspended) MHD_resume_connection(c->mhd);
    c->is_suspended = false;
}

static ssize_t send_some(void *context, uint64_t at, char *to, size_t most) {
    Connection *c = context;
    (void)at;
    pthread_mutex_lock(&c->http->lock);
    size_t left = c->out.len - c->sent, n = left < most ? left : most;
    bool is_over = !left && c->has_ended;
    if (!left && !is_over) suspend(c);
    memcpy(to, c->out.data + c->sent, n);
    c->sent += n;
    if (c->sent == c->out.len) {
        mx_text_clear(&c->out);
        c->sent = 0;
    }
    pthread_mutex_unlock(&c->http->lock);
    return is_over ? MHD_CONTENT_READER_END_OF_STREAM : (ssize_t)n;
}

static enum MHD_Result send_answer(Connection *c) {
    enum { BLOCK = 4096 };
    if (c->streams)
        return respond(
            c->mhd, c->status, "text/event-stream",
            MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK, send_some, c, NULL));
    return respond_text(c->mhd, c->status, c->out.data, c->out.len);
}

/* ---- requests */

/* Who of two lets go last frees it. */
static void let_go(Connection *c) {
    pthread_mutex_lock(&c->http->lock);
    bool is_last = --c->users == 0;
    pthread_mutex_unlock(&c->http->lock);
    if (!is_last) return;
    if (c->job) mx_arena_release(&c->job->arena);
    mx_arena_release(&c->out_memory);
    MxArena memory = c->memory;
    mx_arena_release(&memory);
}

static const Route *find_route(const char *url) {
    for (int i = 0; i < MX_COUNT(routes); i++)
        if (routes[i].has_rest ? !strncmp(routes[i].url, url, strlen(routes[i].url))
                               : !strcmp(routes[i].url, url))
            return &routes[i];
    return NULL;
}

static Guest *guest_of(struct MHD_Connection *mhd) {
    return MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
}

/* The head of a request is there. */
static Connection *begin(Http *http, struct MHD_Connection *mhd, const char *url,
                         const char *method) {
    MxArena memory = {.name = "connection"};
    Connection *c = mx_new(&memory, Connection);
    *c = (Connection){.http = http, .mhd = mhd, .users = 1, .out_memory = {.name = "answer"}};
    c->route = find_route(url);
    if (c->route) c->rest = mx_arena_printf(&memory, "%s", url + strlen(c->route->url));
    mx_text_init(&c->out, &c->out_memory);
    if (c->route && !c->route->answer && !strcmp(c->route->method, method)) {
        c->job = mx_new(&memory, Job);
        *c->job = (Job){.arena = {.name = "request"}, .kind = c->route->kind, .connection = c};
        mx_text_init(&c->job->body, &c->job->arena);
    }
    c->memory = memory;
    pthread_mutex_lock(&http->lock);
    http->n_open++;
    watch_expect(guest_of(mhd), &c->is_gone, BODY_S + (double)(http->largest >> 20));
    pthread_mutex_unlock(&http->lock);
    return c;
}

/* Once it is handed over it belongs to the worker, which may have answered before this returns. */
static void submit(Connection *c) {
    pthread_mutex_lock(&c->http->lock);
    c->is_submitted = true;
    c->users++;
    watch_expect(guest_of(c->mhd), &c->is_gone, 0);
    suspend(c);
    pthread_mutex_unlock(&c->http->lock);
    if (serve_submit(c->http->server, c->job)) return;
    const Trouble trouble = {MHD_HTTP_SERVICE_UNAVAILABLE, "server_error", "overloaded", NULL,
                             "too many requests wait, try again later"};
    const char *text = answer_error(&c->job->arena, &trouble);
    http_begin(c->job, trouble.status, false);
    http_write(c->job, text, strlen(text));
    http_end(c->job);
}

static enum MHD_Result answer_at_once(Connection *c, const char *method) {
    const Route *route = c->route;
    if (!route) return refuse(c, MHD_HTTP_NOT_FOUND, "there is no such path");
    if (strcmp(route->method, method))
        return refuse(c, MHD_HTTP_METHOD_NOT_ALLOWED,
                      mx_arena_printf(&c->memory, "the method is not %s", route->method));
    const char *text = route->answer(c->http->server, c->rest);
    if (!text) return refuse(c, MHD_HTTP_NOT_FOUND, "there is no such model");
    return respond_text(c->mhd, MHD_HTTP_OK, text, strlen(text));
}

/* The library calls this when the headers are there, for each piece of the body, when it is there
 * whole, and when a connection that was suspended goes on. */
static enum MHD_Result handle(void *context, struct MHD_Connection *mhd, const char *url,
                              const char *method, const char *version, const char *data, size_t *n,
                              void **own) {
    Connection *c = *own;
    (void)version;
    if (!c) {
        *own = begin(context, mhd, url, method);
        return MHD_YES;
    }
    if (*n) {
        c->bytes += *n;
        if (c->job && c->bytes <= c->http->largest) mx_text_addn(&c->job->body, data, *n);
        *n = 0;
        return c->bytes <= DRAINED * c->http->largest ? MHD_YES : MHD_NO;
    }
    if (c->bytes > c->http->largest)
        return refuse(
            c, MHD_HTTP_CONTENT_TOO_LARGE,
            mx_arena_printf(&c->memory, "the body has more than %zu MiB", c->http->largest >> 20));
    if (!c->job) return answer_at_once(c, method);
    if (c->is_submitted) return send_answer(c);
    submit(c);
    return MHD_YES;
}

static void completed(void *context, struct MHD_Connection *mhd, void **own,
                      enum MHD_RequestTerminationCode code) {
    Http *http = context;
    Connection *c = *own;
    (void)code;
    if (!c) return;
    *own = NULL;
    pthread_mutex_lock(&http->lock);
    c->is_gone = true;
    http->n_open--;
    watch_expect(guest_of(mhd), NULL, IDLE_S);
    pthread_mutex_unlock(&http->lock);
    let_go(c);
}

static void come_or_go(void *context, struct MHD_Connection *mhd, void **guest,
                       enum MHD_ConnectionNotificationCode what) {
    Http *http = context;
    int fd = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    if (what == MHD_CONNECTION_NOTIFY_STARTED)
        *guest = watch_come(&http->watch, fd, HEAD_S);
    else
        watch_go(&http->watch, *guest);
}

/* ---- the worker's side */

void http_begin(Job *job, int status, bool streams) {
    Connection *c = job->connection;
    pthread_mutex_lock(&c->http->lock);
    c->status = status;
    c->streams = streams;
    if (streams) resume(c);
    pthread_mutex_unlock(&c->http->lock);
}

void http_write(Job *job, const char *bytes, size_t n) {
    Connection *c = job->connection;
    pthread_mutex_lock(&c->http->lock);
    if (!c->is_gone) mx_text_addn(&c->out, bytes, n);
    if (c->streams) resume(c);
    pthread_mutex_unlock(&c->http->lock);
}

void http_end(Job *job) {
    Connection *c = job->connection;
    pthread_mutex_lock(&c->http->lock);
    c->has_ended = true;
    resume(c);
    pthread_mutex_unlock(&c->http->lock);
    let_go(c);
}

bool http_is_gone(const Job *job) {
    Connection *c = job->connection;
    pthread_mutex_lock(&c->http->lock);
    bool is_gone = c->is_gone;
    pthread_mutex_unlock(&c->http->lock);
    return is_gone;
}

/* ---- */

bool http_open(MxArena *arena, int descriptor, size_t largest, void *server, Http **out,
               MxError *err) {
    if (listen(descriptor, SOMAXCONN)) return mx_fail_errno(err, "--serve: could not listen");
    Http *http = *out = mx_new(arena, Http);
    http->server = server;
    http->largest = largest;
    pthread_mutex_init(&http->lock, NULL);
    bool is_watched = !watch_start(&http->watch, &http->lock);
    if (is_watched)
        http->daemon = MHD_start_daemon(
            MHD_USE_AUTO_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, handle, http,
            MHD_OPTION_LISTEN_SOCKET, descriptor, MHD_OPTION_NOTIFY_COMPLETED, completed, http,
            MHD_OPTION_NOTIFY_CONNECTION, come_or_go, http, MHD_OPTION_CONNECTION_LIMIT,
            (unsigned)WATCH_MOST, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_S, MHD_OPTION_END);
    if (http->daemon) return true;
    if (is_watched) watch_stop(&http->watch);
    return mx_fail(err, MX_EXIT_IO, MX_NOWHERE, "--serve: could not start to listen");
}

void http_quiesce(Http *http) {
    int descriptor = MHD_quiesce_daemon(http->daemon);
    if (descriptor >= 0) close(descriptor);
}

static int count_open(Http *http) {
    pthread_mutex_lock(&http->lock);
    int n = http->n_open;
    pthread_mutex_unlock(&http->lock);
    return n;
}

void http_close(Http *http) {
    const struct timespec nap = {.tv_nsec = 10000000};
    double until = mx_clock_s() + CLOSING_S;
    while (count_open(http) && mx_clock_s() < until) nanosleep(&nap, NULL);
    MHD_stop_daemon(http->daemon);
    watch_stop(&http->watch);
    pthread_mutex_destroy(&http->lock);
}
