/* terminal.c — output to a terminal: colours, and the status line, which stays below all other
 * lines and is redrawn in place. It is removed before a line is printed and drawn again afterwards,
 * so that it never gets into files or mixes with other lines. Its width is read at each drawing, so
 * the size of the terminal may change. */
#include "terminal.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

/* Properties of the terminal, so of the process. */
static volatile sig_atomic_t is_drawn; /* handlers of signals ask */
static bool is_silent;
static char text[512]; /* parts of the status line, a tab between two; "" = there is none */
static double fraction, drawn_s;
enum { AUTO, ALWAYS, NEVER };
static int colors;

#define ERASE "\r\033[K"

/* ---- what the terminal can do */

static bool takes_commands(int fd) {
    const char *term = getenv("TERM");
    return isatty(fd) && term && strcmp(term, "dumb");
}

/* A pipe from stdout ends in something that writes to the same terminal: tee, less. */
static bool has_status(void) {
    struct stat out;
    return !is_silent && takes_commands(STDERR_FILENO) &&
           !(!fstat(STDOUT_FILENO, &out) && S_ISFIFO(out.st_mode));
}

bool mx_log_is_live(void) {
    return has_status() && isatty(STDOUT_FILENO);
}

bool mx_color_set(const char *when, MxError *err) {
    static const char *const words[] = {[AUTO] = "auto", [ALWAYS] = "always", [NEVER] = "never"};
    for (int i = 0; i < MX_COUNT(words); i++) {
        if (strcmp(when, words[i])) continue;
        colors = i;
        return true;
    }
    return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE,
                   "--color: found \"%s\", wanted auto, always or never", when);
}

/* Source of NO_COLOR: no-color.org, where an empty one says nothing. */
bool mx_has_color(int fd) {
    const char *no = getenv("NO_COLOR");
    return colors == AUTO ? takes_commands(fd) && !(no && *no) : colors == ALWAYS;
}

const char *terminal_dress(char out[128], FILE *to, Look look, const char *what) {
    static const char *const looks[LOOK_COUNT] = {
        [LOOK_WARNING] = "\033[33m", [LOOK_ERROR] = "\033[1;31m", [LOOK_BAR] = "\033[36m"};
    bool has_color = looks[look] && *what && mx_has_color(fileno(to));
    snprintf(out, 128, "%s%s%s", has_color ? looks[look] : "", what, has_color ? "\033[0m" : "");
    return out;
}

/* Columns that a line may have without going on in the next one. */
static int columns(void) {
    enum { USUAL = 80 };
    struct winsize size = {0};
    const char *said = getenv("COLUMNS");
    int n = said ? (int)strtol(said, NULL, 10) : 0;
    if (!ioctl(STDERR_FILENO, TIOCGWINSZ, &size) && size.ws_col) n = size.ws_col;
    return n > 0 ? n - 1 : USUAL - 1;
}

/* ---- the status line */

/* "[####....] ", as wide as the columns left allow; nothing where too few are. */
static void make_bar(int n_columns, char out[32]) {
    enum { WIDEST = 24, NARROWEST = 4, FRAME = 3 };
    int width = n_columns - FRAME;
    *out = '\0';
    if (width < NARROWEST) return;
    if (width > WIDEST) width = WIDEST;
    int filled = (int)(fmin(fmax(fraction, 0), 1) * width);
    out[0] = '[';
    memset(out + 1, '#', (size_t)filled);
    memset(out + 1 + filled, '.', (size_t)(width - filled));
    memcpy(out + 1 + width, "] ", sizeof "] ");
}

/* The parts that fit, two blanks between them; the first is cut if it does not. */
static int fit_parts(int n_columns, char out[sizeof text + 64]) {
    int n = snprintf(out, sizeof text, "%3.0f%%", fraction * 100);
    for (const char *part = text; *part;) {
        int length = (int)strcspn(part, "\t");
        if (part != text && n + 2 + length > n_columns) break;
        n += snprintf(out + n, sizeof text + 64 - (size_t)n, "  %.*s", length, part);
        part += length + (part[length] == '\t');
    }
    if (n > n_columns) out[n = n_columns] = '\0';
    return n;
}

/* As without a handler, but for the line. */
static void on_end(int number) {
    mx_progress_abandon();
    raise(number);
}

/* What ends the process without asking would leave the line where the shell goes on. */
static void watch_signals(void) {
    static const int ends[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    struct sigaction now, ours = {.sa_handler = on_end, .sa_flags = (int)SA_RESETHAND | SA_ONSTACK};
    for (int i = 0; i < MX_COUNT(ends); i++)
        if (!sigaction(ends[i], NULL, &now) && now.sa_handler == SIG_DFL)
            sigaction(ends[i], &ours, NULL);
}

static void draw(void) {
    static bool is_watched;
    char bar[32], dressed[128], parts[sizeof text + 64];
    int n_columns = columns(), n = fit_parts(n_columns, parts);
    make_bar(n_columns - n, bar);
    if (!is_watched) watch_signals();
    is_watched = true;
    fprintf(stderr, ERASE "%s%s", terminal_dress(dressed, stderr, LOOK_BAR, bar), parts);
    fflush(stderr);
    is_drawn = true;
    drawn_s = mx_clock_s();
}

void terminal_hide(void) {
    if (!is_drawn) return;
    fputs(ERASE, stderr);
    fflush(stderr);
    is_drawn = false;
}

void terminal_show(void) {
    if (*text) draw();
}

void terminal_silence(void) {
    is_silent = true;
}

/* Names of files and tensors are in it, too. A byte takes one column so. */
static void keep_printable(char *line) {
    for (; *line; line++)
        if (*line != '\t' && (*line < ' ' || *line > '~')) *line = '?';
}

void mx_progress(double done, double eta_s, const char *fmt, ...) {
    static const double OFTEN_S = 0.05; /* more than eyes follow */
    char eta[32] = "", label[sizeof text - sizeof eta];
    if (!has_status()) return;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(label, sizeof label, fmt, ap);
    va_end(ap);
    long s = eta_s < 0 ? 0 : lround(eta_s);
    if (eta_s >= 0)
        snprintf(eta, sizeof eta, "\tETA %ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    size_t first = strcspn(label, "\t");
    flockfile(stderr);
    fraction = done;
    snprintf(text, sizeof text, "%.*s%s%s", (int)first, label, eta, label + first);
    keep_printable(text);
    if (!is_drawn || mx_clock_s() - drawn_s >= OFTEN_S) draw();
    funlockfile(stderr);
}

void mx_progress_end(void) {
    flockfile(stderr);
    *text = '\0';
    terminal_hide();
    funlockfile(stderr);
}

void mx_progress_abandon(void) {
    ssize_t ignored = is_drawn ? write(STDERR_FILENO, ERASE, sizeof ERASE - 1) : 0;
    (void)ignored;
}
