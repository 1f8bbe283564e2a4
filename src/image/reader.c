/* reader.c — the child process that reads files of pictures or sounds, which may do little else
 * (mx_confine). It is asked by messages and answers by messages; pixels and samples come by memory
 * that both see. Whatever is wrong with a file, the child says so if it still can and ends, since
 * the libraries do not come back from their errors; the next request starts another. So a crash or
 * an endless loop is an error here too. */
#include "internal.h"

#include <mx/base_confine.h>

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PATIENCE_MS = 120 * 1000, TEXT_BYTES = 400, PATH_BYTES = 4096 };

struct Reader {
    pthread_mutex_t lock;
    const ReaderKind *kind;
    void *room; /* what is made of a file, shared with the child */
    size_t room_bytes;
    char *url;   /* the request's, shared too; pages that no URL needed are never there */
    pid_t child; /* 0 = none */
    int line;    /* the socket to it */
};

typedef struct Request {
    ReaderWish wish;
    char path[PATH_BYTES];
    size_t url_bytes; /* 0 = it is the file of that path */
} Request;

typedef struct Answer {
    bool is_good;
    ReaderFacts facts;
    char text[TEXT_BYTES]; /* what is wrong */
} Answer;

/* Of a data: URL in base64. */
static size_t most_of_url(const ReaderKind *kind) {
    return (size_t)kind->most_bytes / 3 * 4 + PATH_BYTES;
}

/* ---- in the child */

enum { LINE = STDERR_FILENO + 1 }; /* the child's end; of all others only 0, 1, 2 stay open */

static void answer(const Answer *a) {
    if (write(LINE, a, sizeof *a) != sizeof *a) _exit(MX_EXIT_IO);
}

_Noreturn void image_fail(const char *fmt, ...) {
    Answer a = {0};
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(a.text, sizeof a.text, fmt, ap);
    va_end(ap);
    answer(&a);
    _exit(MX_EXIT_BAD_INPUT);
}

/* What a data: URL holds. Source: RFC 2397. */
static MxBytes decode_url(MxArena *arena, const char *url, size_t n) {
    static const char mark[] = ";base64,";
    const char *at = memmem(url, n, mark, strlen(mark));
    MxBytes out;
    if (!at || memchr(url, ',', n) != at + strlen(mark) - 1)
        image_fail("is no data: URL in base64");
    at += strlen(mark);
    if (!mx_base64(arena, at, n - (size_t)(at - url), &out)) image_fail("is no base64");
    return out;
}

static void serve(const Reader *reader, const Request *request) {
    MxArena arena = {.name = "file"};
    MxError err = {0};
    MxBytes file;
    Answer a = {.is_good = true};
    if (request->url_bytes)
        file = decode_url(&arena, reader->url, request->url_bytes);
    else if (!mx_file_read(&arena, request->path, (size_t)reader->kind->most_bytes, &file, &err))
        image_fail("%s", err.text.data);
    reader->kind->read(&arena, file, &request->wish, reader->room, reader->room_bytes, &a.facts);
    mx_arena_release(&arena);
    answer(&a);
}

/* Whoever stops the run stops the other end too. */
static _Noreturn void run_child(const Reader *reader, int line) {
    Request request;
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0});
    if (dup2(line, LINE) != LINE) _exit(MX_EXIT_IO);
    close_range(LINE + 1, ~0U, 0);
    mx_confine(MX_CONFINE_TO_READING);
    while (read(LINE, &request, sizeof request) == sizeof request) serve(reader, &request);
    _exit(MX_EXIT_OK);
}

/* ---- in the parent */

static bool start(Reader *reader, MxError *err) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
        return mx_fail_errno(err, "could not open a socket to a reader of %ss", reader->kind->name);
    pid_t pid = fork();
    if (!pid) {
        close(ends[0]);
        run_child(reader, ends[1]);
    }
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        return mx_fail_errno(err, "could not start a reader of %ss", reader->kind->name);
    }
    reader->child = pid;
    reader->line = ends[0];
    return true;
}

/* Its end, as waitpid tells it. */
static int stop(Reader *reader) {
    int status = 0;
    close(reader->line);
    while (waitpid(reader->child, &status, 0) < 0 && errno == EINTR) continue;
    reader->child = 0;
    return status;
}

static bool await(const Reader *reader, Answer *a) {
    struct pollfd line = {.fd = reader->line, .events = POLLIN};
    int n;
    while ((n = poll(&line, 1, PATIENCE_MS)) < 0 && errno == EINTR) continue;
    if (!n) kill(reader->child, SIGKILL);
    return n > 0 && recv(reader->line, a, sizeof *a, 0) == sizeof *a;
}

static bool ask(Reader *reader, const Request *request, MxWhere where, Answer *a, MxError *err) {
    const char *path = request->url_bytes ? MX_IMAGE_DATA " …" : request->path;
    if (!reader->child && !start(reader, err)) return false;
    *a = (Answer){0};
    bool is_sent = send(reader->line, request, sizeof *request, MSG_NOSIGNAL) == sizeof *request;
    bool is_answered = is_sent && await(reader, a);
    if (is_answered && a->is_good) return true;
    int status = stop(reader);
    if (is_answered)
        return mx_fail(err, MX_EXIT_BAD_INPUT, where, "%s \"%s\": %s", reader->kind->name, path,
                       a->text);
    return mx_fail(err, MX_EXIT_BAD_INPUT, where, "%s \"%s\": the process that read it %s",
                   reader->kind->name, path,
                   WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL ? "crashed; is it damaged?"
                                                                      : "did not come to an end");
}

static bool ask_for(Reader *reader, const char *path, MxWhere where, const ReaderWish *wish,
                    Answer *a, MxError *err) {
    Request request = {.wish = *wish};
    const char *name = reader->kind->name;
    size_t n = strlen(path);
    if (!strncmp(path, MX_IMAGE_DATA, strlen(MX_IMAGE_DATA))) {
        if (n > most_of_url(reader->kind))
            return mx_fail(err, MX_EXIT_BAD_INPUT, where,
                           "the data: URL of a file (%s) has %zu bytes, wanted at most %zu", name,
                           n, most_of_url(reader->kind));
        memcpy(reader->url, path, n);
        request.url_bytes = n;
        return ask(reader, &request, where, a, err);
    }
    if (n >= sizeof request.path)
        return mx_fail(err, MX_EXIT_BAD_INPUT, where,
                       "the name of an %s has %zu bytes, wanted at most %d", name, n,
                       PATH_BYTES - 1);
    memcpy(request.path, path, n);
    return ask(reader, &request, where, a, err);
}

bool image_reader_ask(Reader *reader, const char *path, MxWhere where, const ReaderWish *wish,
                      ReaderFacts *facts, void *out, size_t bytes, MxError *err) {
    Answer a;
    MX_ASSERT(bytes <= reader->room_bytes);
    pthread_mutex_lock(&reader->lock);
    bool ok = ask_for(reader, path, where, wish, &a, err);
    if (ok && bytes) memcpy(out, reader->room, bytes);
    pthread_mutex_unlock(&reader->lock);
    if (ok) *facts = a.facts;
    return ok;
}

static void close_on_release(void *data) {
    Reader *reader = data;
    if (reader->child) stop(reader);
    munmap(reader->room, reader->room_bytes);
    munmap(reader->url, most_of_url(reader->kind));
    pthread_mutex_destroy(&reader->lock);
}

static void *share(size_t bytes) {
    const int how = MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE;
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, how, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

bool image_reader_open(MxArena *arena, const ReaderKind *kind, size_t room_bytes, Reader **out,
                       MxError *err) {
    MX_ASSERT(room_bytes > 0);
    Reader *reader = mx_new(arena, Reader);
    *reader = (Reader){.kind = kind, .room_bytes = room_bytes};
    reader->room = share(room_bytes);
    reader->url = reader->room ? share(most_of_url(kind)) : NULL;
    if (!reader->url) {
        mx_fail_errno(err, "no memory to share with a reader of %ss", kind->name);
        if (reader->room) munmap(reader->room, reader->room_bytes);
        return false;
    }
    pthread_mutex_init(&reader->lock, NULL);
    mx_arena_on_release(arena, close_on_release, reader);
    *out = reader;
    return true;
}
