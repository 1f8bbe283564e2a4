/* terminal.c — a pseudo terminal, and the few commands of one that we use. */
#include "terminal.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

void terminal_resize(const Terminal *t, int columns) {
    struct winsize size = {.ws_row = 24, .ws_col = (unsigned short)columns};
    ck_assert(!ioctl(t->master, TIOCSWINSZ, &size));
}

/* In the process on it. */
static void run_there(const char *path, const char *term, void (*fn)(const void *),
                      const void *data) {
    setsid();
    int slave = open(path, O_RDWR);
    struct termios raw;
    if (slave < 0 || tcgetattr(slave, &raw)) _exit(100);
    raw.c_oflag = 0;
    raw.c_lflag = 0;
    tcsetattr(slave, TCSANOW, &raw);
    setenv("TERM", term, 1);
    unsetenv("COLUMNS");
    unsetenv("NO_COLOR");
    dup2(slave, STDOUT_FILENO);
    dup2(slave, STDERR_FILENO);
    fn(data);
    fflush(NULL);
    _exit(0);
}

void terminal_start(MxArena *arena, Terminal *out, const char *term, int columns,
                    void (*fn)(const void *), const void *data) {
    *out = (Terminal){.master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)};
    ck_assert_int_ge(out->master, 0);
    ck_assert(!grantpt(out->master) && !unlockpt(out->master));
    mx_text_init(&out->written, arena);
    terminal_resize(out, columns);
    const char *path = ptsname(out->master);
    out->pid = fork();
    ck_assert_int_ge(out->pid, 0);
    if (!out->pid) run_there(path, term, fn, data);
}

/* What comes next; false when nobody has the terminal open any more, which is an error of reading.
 */
static bool read_more(Terminal *t) {
    char bytes[4096];
    ssize_t n = read(t->master, bytes, sizeof bytes);
    if (n > 0) mx_text_addn(&t->written, bytes, (size_t)n);
    return n > 0;
}

void terminal_wait_for(Terminal *t, const char *text) {
    while (!strstr(t->written.data, text))
        ck_assert_msg(read_more(t), "never written: %s\n%s", text, t->written.data);
}

int terminal_end(Terminal *t) {
    int status;
    while (read_more(t)) continue;
    ck_assert_int_eq(waitpid(t->pid, &status, 0), t->pid);
    close(t->master);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* The letter that ends a command, behind "ESC[". */
static const char *end_of_command(const char *at) {
    return at + strspn(at, "0123456789;?");
}

char *terminal_screen(MxArena *arena, const char *bytes) {
    char *screen = mx_arena_alloc(arena, strlen(bytes) + 1);
    size_t line = 0, column = 0, length = 0; /* of the line */
    for (const char *at = bytes; *at; at++) {
        if (mx_text_has_prefix(at, "\033[")) {
            at = end_of_command(at + 2);
            if (*at == 'K') length = column;
        } else if (*at == '\r') {
            column = 0;
        } else if (*at == '\n') {
            screen[line + length] = '\n';
            line += length + 1;
            column = length = 0;
        } else {
            screen[line + column++] = *at;
            if (column > length) length = column;
        }
    }
    screen[line + length] = '\0';
    return screen;
}
