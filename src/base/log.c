/* log.c — log lines on stdout, warnings and the one progress line on stderr; lines also in a file,
 * if one was named. The progress line exists only on a terminal and is taken away before anything
 * else is printed, so that files never see it. */
#include <mx/base.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* Whether a progress line stands on the terminal: a property of the terminal, so of the process. */
static bool bar_is_drawn;

/* Set in ranks other than the first. */
static bool is_silent;

/* Where lines are copied to, like stdout the process's; NULL = nowhere. */
static FILE *copy;
static const char *copy_who;

void mx_log_silence(void) {
    is_silent = true;
}

bool mx_log_copy(const char *path, const char *who, MxError *err) {
    MX_ASSERT(!copy);
    copy = fopen(path, "a");
    copy_who = who;
    return copy || mx_fail_errno(err, "could not open \"%s\"", path);
}

/* What is printed may hold bytes of files and names, which shall not command a terminal. Allocates
 * nothing for usual lines. */
static void print_shown(FILE *to, const char *fmt, va_list ap) {
    char line[2048];
    va_list again;
    va_copy(again, ap);
    int n = vsnprintf(line, sizeof line, fmt, again);
    va_end(again);
    if (n >= 0 && n < (int)sizeof line && mx_text_shown_bytes(line, (size_t)n) == (size_t)n) {
        fputs(line, to);
        return;
    }
    MxArena arena = {.name = "line"};
    MxText text, shown;
    mx_text_init(&text, &arena);
    mx_text_init(&shown, &arena);
    mx_text_vadd(&text, fmt, ap);
    mx_text_add_shown(&shown, text.data, text.len);
    fputs(shown.data, to);
    mx_arena_release(&arena);
}

/* A line is one write, whichever thread it is of. */
static void copy_line(const char *mark, const char *fmt, va_list ap) {
    struct timespec now;
    struct tm utc;
    char at[32];
    if (!copy) return;
    clock_gettime(CLOCK_REALTIME, &now);
    strftime(at, sizeof at, "%Y-%m-%dT%H:%M:%S", gmtime_r(&now.tv_sec, &utc));
    flockfile(copy);
    fprintf(copy, "%s.%03ldZ %s: %s", at, now.tv_nsec / 1000000, copy_who, mark);
    print_shown(copy, fmt, ap);
    putc('\n', copy);
    fflush(copy);
    funlockfile(copy);
}

static void clear_bar(void) {
    if (!bar_is_drawn) return;
    fputs("\r\033[K", stderr);
    fflush(stderr);
    bar_is_drawn = false;
}

/* A line behind a mark, on a stream and in the copy. */
static void put_line(FILE *to, const char *mark, const char *fmt, va_list ap) {
    va_list again;
    va_copy(again, ap);
    copy_line(mark, fmt, again);
    va_end(again);
    if (!to) return;
    clear_bar();
    fputs(mark, to);
    print_shown(to, fmt, ap);
    putc('\n', to);
    fflush(to);
}

void mx_log(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    put_line(is_silent ? NULL : stdout, "", fmt, ap);
    va_end(ap);
}

void mx_warn(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    put_line(is_silent ? NULL : stderr, "warning: ", fmt, ap);
    va_end(ap);
}

void mx_complain(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    put_line(stderr, "", fmt, ap);
    va_end(ap);
}

void mx_print(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    print_shown(stdout, fmt, ap);
    va_end(ap);
}

static bool has_terminal(void) {
    const char *term = getenv("TERM");
    return isatty(STDERR_FILENO) && !(term && !strcmp(term, "dumb"));
}

void mx_progress(double fraction, double eta_s, const char *fmt, ...) {
    enum { WIDTH = 24 };
    if (is_silent || !has_terminal()) return;
    char bar[WIDTH + 1], label[128], eta[32] = "";
    int filled = (int)(fmin(fmax(fraction, 0), 1) * WIDTH);
    memset(bar, '.', WIDTH);
    memset(bar, '#', (size_t)filled);
    bar[WIDTH] = '\0';
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(label, sizeof label, fmt, ap);
    va_end(ap);
    long s = eta_s < 0 ? 0 : lround(eta_s);
    if (eta_s >= 0)
        snprintf(eta, sizeof eta, "  ETA %ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    fprintf(stderr, "\r\033[K[%s] %3.0f%%  %s%s", bar, fraction * 100, label, eta);
    fflush(stderr);
    bar_is_drawn = true;
}

void mx_progress_end(void) {
    clear_bar();
}

double mx_clock_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
