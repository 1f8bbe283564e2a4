/* terminal.h — a terminal for what is tested: a pseudo terminal of some width, all that was written
 * to it, and what of that stands there in the end. */
#ifndef TESTS_COMMON_TERMINAL_H
#define TESTS_COMMON_TERMINAL_H

#include <mx/base.h>

#include <sys/types.h>

typedef struct Terminal {
    int master;
    pid_t pid; /* of the process on it */
    MxText written;
} Terminal;

/* terminal_start — runs fn(data) in a process whose stdout and stderr are a terminal; it exits with
 * 0 when fn returns. columns 0 = the terminal does not say. NO_COLOR and COLUMNS are not set there.
 */
void terminal_start(MxArena *arena, Terminal *out, const char *term, int columns,
                    void (*fn)(const void *), const void *data);
void terminal_resize(const Terminal *terminal, int columns);
/* terminal_wait_for — reads until a text was written. terminal_end — reads all; the exit code, or
 * 128 + the signal. */
void terminal_wait_for(Terminal *terminal, const char *text);
int terminal_end(Terminal *terminal);
/* terminal_screen — the lines that stand on an endless screen after these bytes: colours do not
 * show, "\r" goes to the beginning of the line, ESC[K erases what follows in it. */
char *terminal_screen(MxArena *arena, const char *bytes);

#endif
