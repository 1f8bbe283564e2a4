/* reader.c — the child process that reads files of pictures, which may do little else (mx_confine).
 * It is asked by messages and answers by messages; pixels come by memory that both see. Whatever is
 * wrong with a file, the child says so if it still can and ends, since the libraries do not come
 * back from their errors; the next request starts another. So a crash or an endless loop is an
 * error here too. */
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

enum { PATIENCE_MS = 120 * 1000, TEXT_BYTES = 400, PATH_BYTES = 4096, CHANNELS = 3 };
enum { URL_BYTES = MX_IMAGE_MOST_BYTES / 3 * 4 + PATH_BYTES };

struct MxImages {
    pthread_mutex_t lock;
    uint8_t *rgb; /* canvases of a picture, shared with the child */
    size_t rgb_bytes;
    char *url;   /* the request's, shared too; pages that no URL needed are never there */
    pid_t child; /* 0 = none */
    int line;    /* the socket to it */
};

typedef struct Request {
    MxImageTiles wanted; /* no canvases = its size alone */
    char path[PATH_BYTES];
    size_t url_bytes; /* 0 = it is the file of that path */
} Request;

typedef struct Answer {
    bool is_good;
    MxImageSize size;
    char text[TEXT_BYTES]; /* what is wrong */
} Answer;

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

void image_check_size(int64_t width, int64_t height) {
    if (width < 1 || height < 1)
        image_fail("%lld x %lld pixels, wanted at least one", (long long)width, (long long)height);
    if (width > MX_IMAGE_MOST_PIXELS / height)
        image_fail("%lld x %lld pixels, wanted at most %d in all", (long long)width,
                   (long long)height, MX_IMAGE_MOST_PIXELS);
}

/* Kinds of files by their first bytes; format NULL = known, and not read. */
static const struct {
    const char *magic;
    size_t n;
    const ImageFormat *format;
    const char *name;
} kinds[] = {{"\x89PNG\r\n\x1a\n", 8, &image_png, "PNG"},
             {"\xff\xd8\xff", 3, &image_jpeg, "JPEG"},
             {"GIF8", 4, NULL, "GIF"},
             {"RIFF", 4, NULL, "WebP"},
             {"BM", 2, NULL, "BMP"},
             {"II*\0", 4, NULL, "TIFF"},
             {"MM\0*", 4, NULL, "TIFF"}};

static const ImageFormat *format_of(MxBytes file) {
    for (int i = 0; i < MX_COUNT(kinds); i++) {
        if (file.size < kinds[i].n || memcmp(file.data, kinds[i].magic, kinds[i].n)) continue;
        if (kinds[i].format) return kinds[i].format;
        image_fail("found a file of %s, wanted PNG or JPEG", kinds[i].name);
    }
    image_fail("is no picture of PNG or JPEG");
}

static size_t bytes_of(MxImageSize size) {
    return (size_t)(size.width * size.height * CHANNELS);
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

static void serve(const MxImages *images, const Request *request) {
    MxArena arena = {.name = "picture"};
    MxError err = {0};
    MxBytes file;
    Answer a = {.is_good = true};
    uint8_t *rgb = NULL;
    if (request->url_bytes)
        file = decode_url(&arena, images->url, request->url_bytes);
    else if (!mx_file_read(&arena, request->path, MX_IMAGE_MOST_BYTES, &file, &err))
        image_fail("%s", err.text.data);
    const MxImageTiles *wanted = &request->wanted;
    format_of(file)->decode(&arena, file, &a.size, wanted->n ? &rgb : NULL);
    uint8_t *to = images->rgb;
    for (int i = 0; i < wanted->n; to += bytes_of(wanted->canvas[i++].canvas))
        mx_image_resize(rgb, a.size, to, wanted->canvas[i]);
    mx_arena_release(&arena);
    answer(&a);
}

/* Whoever stops the run stops the other end too. */
static _Noreturn void run_child(const MxImages *images, int line) {
    Request request;
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0});
    if (dup2(line, LINE) != LINE) _exit(MX_EXIT_IO);
    close_range(LINE + 1, ~0U, 0);
    mx_confine(MX_CONFINE_TO_READING);
    while (read(LINE, &request, sizeof request) == sizeof request) serve(images, &request);
    _exit(MX_EXIT_OK);
}

/* ---- in the parent */

static bool start(MxImages *images, MxError *err) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
        return mx_fail_errno(err, "could not open a socket to a reader of images");
    pid_t pid = fork();
    if (!pid) {
        close(ends[0]);
        run_child(images, ends[1]);
    }
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        return mx_fail_errno(err, "could not start a reader of images");
    }
    images->child = pid;
    images->line = ends[0];
    return true;
}

/* Its end, as waitpid tells it. */
static int stop(MxImages *images) {
    int status = 0;
    close(images->line);
    while (waitpid(images->child, &status, 0) < 0 && errno == EINTR) continue;
    images->child = 0;
    return status;
}

static bool await(const MxImages *images, Answer *a) {
    struct pollfd line = {.fd = images->line, .events = POLLIN};
    int n;
    while ((n = poll(&line, 1, PATIENCE_MS)) < 0 && errno == EINTR) continue;
    if (!n) kill(images->child, SIGKILL);
    return n > 0 && recv(images->line, a, sizeof *a, 0) == sizeof *a;
}

static bool ask(MxImages *images, const Request *request, MxWhere where, Answer *a, MxError *err) {
    const char *path = request->url_bytes ? MX_IMAGE_DATA " …" : request->path;
    if (!images->child && !start(images, err)) return false;
    *a = (Answer){0};
    bool is_sent = send(images->line, request, sizeof *request, MSG_NOSIGNAL) == sizeof *request;
    bool is_answered = is_sent && await(images, a);
    if (is_answered && a->is_good) return true;
    int status = stop(images);
    if (is_answered)
        return mx_fail(err, MX_EXIT_BAD_INPUT, where, "image \"%s\": %s", path, a->text);
    return mx_fail(err, MX_EXIT_BAD_INPUT, where, "image \"%s\": the process that read it %s", path,
                   WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL ? "crashed; is it damaged?"
                                                                      : "did not come to an end");
}

static bool ask_for(MxImages *images, const MxImageTiles *tiles, const char *path, MxWhere where,
                    Answer *a, MxError *err) {
    Request request = {.wanted = *tiles};
    size_t n = strlen(path);
    if (!strncmp(path, MX_IMAGE_DATA, strlen(MX_IMAGE_DATA))) {
        if (n > URL_BYTES)
            return mx_fail(err, MX_EXIT_BAD_INPUT, where,
                           "the data: URL of an image has %zu bytes, wanted at most %d", n,
                           URL_BYTES);
        memcpy(images->url, path, n);
        request.url_bytes = n;
        return ask(images, &request, where, a, err);
    }
    if (n >= sizeof request.path)
        return mx_fail(err, MX_EXIT_BAD_INPUT, where,
                       "the name of an image has %zu bytes, wanted at most %d", n, PATH_BYTES - 1);
    memcpy(request.path, path, n);
    return ask(images, &request, where, a, err);
}

bool mx_image_look(MxImages *images, const char *path, MxWhere where, MxImageSize *out,
                   MxError *err) {
    Answer a;
    pthread_mutex_lock(&images->lock);
    bool ok = ask_for(images, &(MxImageTiles){0}, path, where, &a, err);
    pthread_mutex_unlock(&images->lock);
    if (ok) *out = a.size;
    return ok;
}

bool mx_image_read(MxImages *images, const char *path, MxWhere where, const MxImageTiles *tiles,
                   uint8_t *rgb, MxError *err) {
    Answer a;
    size_t bytes = 0;
    for (int i = 0; i < tiles->n; i++) bytes += bytes_of(tiles->canvas[i].canvas);
    MX_ASSERT(tiles->n && bytes <= images->rgb_bytes);
    pthread_mutex_lock(&images->lock);
    bool ok = ask_for(images, tiles, path, where, &a, err);
    if (ok) memcpy(rgb, images->rgb, bytes);
    pthread_mutex_unlock(&images->lock);
    return ok;
}

static void close_on_release(void *data) {
    MxImages *images = data;
    if (images->child) stop(images);
    munmap(images->rgb, images->rgb_bytes);
    munmap(images->url, URL_BYTES);
    pthread_mutex_destroy(&images->lock);
}

static void *share(size_t bytes) {
    const int how = MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE;
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, how, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

bool mx_images_open(MxArena *arena, int64_t most_pixels, MxImages **out, MxError *err) {
    MX_ASSERT(most_pixels > 0);
    MxImages *images = mx_new(arena, MxImages);
    *images = (MxImages){.rgb_bytes = (size_t)most_pixels * CHANNELS};
    images->rgb = share(images->rgb_bytes);
    images->url = images->rgb ? share(URL_BYTES) : NULL;
    if (!images->url) {
        mx_fail_errno(err, "no memory to share with a reader of images");
        if (images->rgb) munmap(images->rgb, images->rgb_bytes);
        return false;
    }
    pthread_mutex_init(&images->lock, NULL);
    mx_arena_on_release(arena, close_on_release, images);
    *out = images;
    return true;
}
