/* log.c — log lines on stdout, warnings and errors on stderr. All lines also go to a file,
 * including those logged before the file was named. The status line below them is in terminal.c. */
#include "terminal.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

/* Which lines are printed, a property of the process. */
static MxLogLevel level = MX_LOG_USUAL;

/* Of ranks other than the first: they print nothing and mark their lines. */
static bool is_silent;
static char who[32];

/* Where lines are copied to, like stdout the process's: into memory until it is known whether there
 * is a file. A program that never says so has few lines. */
static FILE *copy, *early; /* early: the one into memory */
static char *held;
static size_t n_held;
static bool is_decided;

void mx_log_mute(void) {
    is_silent = is_decided = true;
    copy = NULL;
    terminal_silence();
}

void mx_log_silence(int rank) {
    is_silent = true;
    terminal_silence();
    snprintf(who, sizeof who, "rank %d: ", rank);
}

void mx_log_level(MxLogLevel wanted) {
    level = wanted;
    if (wanted == MX_LOG_QUIET) terminal_silence();
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

/* Between what is ours. What is printed may hold bytes of files and names, which shall not command
 * a terminal. Allocates nothing for usual lines, and writes once, so that lines of several ranks or
 * of two streams do not mix even where the stream has no buffer. */
static void print_shown(FILE *to, const char *before, const char *fmt, va_list ap,
                        const char *after) {
    char line[2048];
    va_list again;
    va_copy(again, ap);
    int n = vsnprintf(line, sizeof line, fmt, again);
    va_end(again);
    if (n >= 0 && n < (int)sizeof line && mx_text_shown_bytes(line, (size_t)n) == (size_t)n) {
        fprintf(to, "%s%s%s", before, line, after);
        return;
    }
    MxArena arena = {.name = "line"};
    MxText text, shown;
    mx_text_init(&text, &arena);
    mx_text_init(&shown, &arena);
    mx_text_vadd(&text, fmt, ap);
    mx_text_add_shown(&shown, text.data, text.len);
    fprintf(to, "%s%s%s", before, shown.data, after);
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
    fprintf(copy, "%s.%03ldZ %s", at, now.tv_nsec / 1000000, who);
    print_shown(copy, mark, fmt, ap, "\n");
    fflush(copy);
    funlockfile(copy);
}

/* A mark in a look, and a line behind it, on a stream and in the copy; the stream NULL = only
 * there.
 */
static void put_line(FILE *to, Look look, const char *mark, const char *fmt, va_list ap) {
    char dressed[128];
    va_list again;
    va_copy(again, ap);
    copy_line(mark, fmt, again);
    va_end(again);
    if (!to) return;
    flockfile(stderr);
    terminal_hide();
    print_shown(to, terminal_dress(dressed, to, look, mark), fmt, ap, "\n");
    fflush(to);
    terminal_show();
    funlockfile(stderr);
}

void mx_log(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    put_line(is_silent || level < MX_LOG_USUAL ? NULL : stdout, LOOK_PLAIN, "", fmt, ap);
    va_end(ap);
}

void mx_detail(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    put_line(is_silent || level < MX_LOG_VERBOSE ? NULL : stdout, LOOK_PLAIN, "", fmt, ap);
    va_end(ap);
}

void mx_warn(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    put_line(is_silent ? NULL : stderr, LOOK_WARNING, "warning: ", fmt, ap);
    va_end(ap);
}

void mx_complain(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    char mark[64];
    snprintf(mark, sizeof mark, "%.40s: error: ", program_invocation_short_name);
    mx_progress_end();
    put_line(stderr, LOOK_ERROR, mark, fmt, ap);
    va_end(ap);
}

void mx_print(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    flockfile(stderr);
    terminal_hide();
    print_shown(stdout, "", fmt, ap, "");
    funlockfile(stderr);
    va_end(ap);
}

double mx_clock_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
