/* log.c — log lines on stdout, warnings and the one progress line on stderr. The progress line
 * exists only on a terminal and is taken away before anything else is printed, so that files never
 * see it. */
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

void mx_log_silence(void) {
    is_silent = true;
}

static void clear_bar(void) {
    if (!bar_is_drawn) return;
    fputs("\r\033[K", stderr);
    fflush(stderr);
    bar_is_drawn = false;
}

void mx_log(const char *fmt, ...) {
    if (is_silent) return;
    clear_bar();
    va_list ap;
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    putchar('\n');
    fflush(stdout);
}

void mx_warn(const char *fmt, ...) {
    if (is_silent) return;
    clear_bar();
    fputs("warning: ", stderr);
    va_list ap;
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
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
