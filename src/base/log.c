/* log.c — log lines on stdout; warnings, errors and the one progress line on stderr; all lines also
 * in a file, those too that came before it was named. The progress line exists only on a terminal
 * and is taken away before anything else is printed, so that files never see it. */
#include <mx/base.h>

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

/* Whether a progress line stands on the terminal: a property of the terminal, so of the process. */
static bool bar_is_drawn;

/* Of ranks other than the first: they print nothing and mark their lines. */
static bool is_silent;
static char who[32];

/* Where lines are copied to, like stdout the process's: into memory until it is known whether there
 * is a file. A program that never says so has few lines. */
static FILE *copy, *early; /* early: the one into memory */
static char *held;
static size_t n_held;
static bool is_decided;

void mx_log_silence(int rank) {
    is_silent = true;
    snprintf(who, sizeof who, "rank %d: ", rank);
}

bool mx_log_copy(const char *path, MxError *err) {
    MX_ASSERT(!is_decided);
    FILE *file = path ? fopen(path, "ae") : NULL;
    if (path && !file) return mx_fail_errno(err, "could not open \"%s\"", path);
    if (file && early) fwrite(held, 1, n_held, file);
    if (file && fflush(file)) {
        mx_fail_errno(err, "could not write \"%s\"", path);
        fclose(file);
        return false;
    }
    copy = file; /* the memory stays, as other threads may be writing to it */
    is_decided = true;
    return true;
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
    if (!copy && !is_decided) copy = early = open_memstream(&held, &n_held);
    if (!copy) return;
    clock_gettime(CLOCK_REALTIME, &now);
    strftime(at, sizeof at, "%Y-%m-%dT%H:%M:%S", gmtime_r(&now.tv_sec, &utc));
    flockfile(copy);
    fprintf(copy, "%s.%03ldZ %s%s", at, now.tv_nsec / 1000000, who, mark);
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
    char mark[64];
    snprintf(mark, sizeof mark, "%.40s: error: ", program_invocation_short_name);
    put_line(stderr, mark, fmt, ap);
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

/* Columns that a line may have without going on in the next one. */
static int terminal_columns(void) {
    enum { USUAL = 80 };
    struct winsize size = {0};
    const char *said = getenv("COLUMNS");
    int columns = said ? (int)strtol(said, NULL, 10) : 0;
    if (!ioctl(STDERR_FILENO, TIOCGWINSZ, &size) && size.ws_col) columns = size.ws_col;
    return columns > 0 ? columns - 1 : USUAL - 1;
}

/* "[####....] ", as wide as the columns left allow; nothing where too few are. */
static void draw_bar(double fraction, int columns, char *out) {
    enum { WIDEST = 24, NARROWEST = 4, FRAME = 3 };
    int width = columns - FRAME;
    *out = '\0';
    if (width < NARROWEST) return;
    if (width > WIDEST) width = WIDEST;
    int filled = (int)(fmin(fmax(fraction, 0), 1) * width);
    out[0] = '[';
    memset(out + 1, '#', (size_t)filled);
    memset(out + 1 + filled, '.', (size_t)(width - filled));
    memcpy(out + 1 + width, "] ", sizeof "] ");
}

void mx_progress(double fraction, double eta_s, const char *fmt, ...) {
    if (is_silent || !has_terminal()) return;
    char bar[32], label[128], text[192], eta[32] = "";
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(label, sizeof label, fmt, ap);
    va_end(ap);
    long s = eta_s < 0 ? 0 : lround(eta_s);
    if (eta_s >= 0)
        snprintf(eta, sizeof eta, "  ETA %ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    int columns = terminal_columns();
    int n = snprintf(text, sizeof text, "%3.0f%%  %s%s", fraction * 100, label, eta);
    draw_bar(fraction, columns - n, bar);
    fprintf(stderr, "\r\033[K%s%.*s", bar, columns, text);
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
