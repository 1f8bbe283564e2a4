/* http.c — fuzz target for what a server hears: bytes that a client sends, in pieces that end where
 * the input has a zero byte. If its last byte is 0xff, the client resets the connection then, else
 * it waits. What is asked for is answered at once or by another thread, when the request rests and
 * perhaps nobody waits for it any more. Whatever comes, the server goes on: the next client is told
 * that it is well. */
#include "serve/internal.h"

#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
/* The linker puts these in the place of the server's (Makefile). */
bool __wrap_serve_submit(void *server, Job *job);
const char *__wrap_serve_models(const void *server, const char *rest);
const char *__wrap_serve_model(const void *server, const char *rest);

enum { PATIENCE_MS = 5000, LARGEST = 1 << 16 };

static void need(bool holds) {
    if (!holds) abort();
}

static void reply(Job *job, bool streams) {
    const char answer[] = "{\"heard\":true}";
    http_begin(job, 200, streams);
    for (int i = 0; i <= streams && !http_is_gone(job); i++)
        http_write(job, answer, strlen(answer));
    http_end(job);
}

/* ---- the worker */

enum { MOST_JOBS = 16 };

static struct {
    pthread_mutex_t lock;
    pthread_cond_t has_more;
    Job *job[MOST_JOBS];
    int n;
} queue = {.lock = PTHREAD_MUTEX_INITIALIZER, .has_more = PTHREAD_COND_INITIALIZER};

static void *work(void *none) {
    for (;;) {
        pthread_mutex_lock(&queue.lock);
        while (!queue.n) pthread_cond_wait(&queue.has_more, &queue.lock);
        Job *job = queue.job[--queue.n];
        pthread_mutex_unlock(&queue.lock);
        reply(job, job->body.len % 2);
    }
    return none;
}

static bool enqueue(Job *job) {
    pthread_mutex_lock(&queue.lock);
    bool has_room = queue.n < MOST_JOBS;
    if (has_room) queue.job[queue.n++] = job;
    pthread_cond_signal(&queue.has_more);
    pthread_mutex_unlock(&queue.lock);
    return has_room;
}

bool __wrap_serve_submit(void *server, Job *job) {
    size_t way = job->body.len % 6;
    (void)server;
    if (way == 2) return false; /* too many wait */
    if (way > 2) return enqueue(job);
    reply(job, way);
    return true;
}

const char *__wrap_serve_models(const void *server, const char *rest) {
    (void)server, (void)rest;
    return "{\"data\":[]}";
}

const char *__wrap_serve_model(const void *server, const char *rest) {
    (void)server;
    return *rest == 'a' ? "{}" : NULL;
}

/* ---- clients */

static int port;

static int connect_to(void) {
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    need(fd >= 0 && !connect(fd, (const struct sockaddr *)&at, sizeof at));
    return fd;
}

/* The server may have had enough before all is sent. */
static void send_all(int fd, const void *data, size_t n) {
    for (size_t done = 0; done < n;) {
        ssize_t some = send(fd, (const char *)data + done, n - done, MSG_NOSIGNAL);
        if (some <= 0) return;
        done += (size_t)some;
    }
}

/* What comes, until the server ends it. */
static void hear(int fd, char *out, size_t most) {
    size_t n = 0;
    for (struct pollfd waits = {.fd = fd, .events = POLLIN}; n < most;) {
        need(poll(&waits, 1, PATIENCE_MS) == 1);
        ssize_t some = recv(fd, out + n, most - n, 0);
        if (some <= 0) return;
        n += (size_t)some;
    }
}

static void is_well(void) {
    static const char asks[] = "GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    char answer[512] = "";
    int fd = connect_to();
    send_all(fd, asks, strlen(asks));
    hear(fd, answer, sizeof answer - 1);
    need(strstr(answer, "200 OK") && strstr(answer, "{\"status\":\"ok\"}"));
    close(fd);
}

static void tell(const uint8_t *data, size_t size) {
    char answer[256];
    int fd = connect_to();
    for (size_t at = 0; at < size;) {
        const uint8_t *stop = memchr(data + at, 0, size - at);
        size_t n = stop ? (size_t)(stop - data) - at : size - at;
        send_all(fd, data + at, n);
        at += n + 1;
    }
    if (size && data[size - 1] == 0xff) {
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger));
        close(fd);
        is_well();
        return;
    }
    shutdown(fd, SHUT_WR);
    is_well(); /* by then what was asked has an answer, if it gets one */
    ssize_t n = recv(fd, answer, sizeof answer, MSG_DONTWAIT);
    need(n <= 0 || (n > 9 && !memcmp(answer, "HTTP/1.", 7)));
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static MxArena arena = {.name = "server"};
    static Http *http;
    MxError err = {0};
    int descriptor;
    char *url;
    if (size > LARGEST) return 0;
    if (!http) {
        pthread_t worker;
        need(!mx_thread_start(&worker, work, NULL));
        need(serve_bind(&arena, "127.0.0.1:0", &descriptor, &url, &err) &&
             http_open(&arena, descriptor, HTTP_LARGEST_BODY, NULL, &http, &err));
        const char *colon = strrchr(url, ':');
        port = (int)strtol(colon + 1, NULL, 10);
    }
    tell(data, size);
    return 0;
}
