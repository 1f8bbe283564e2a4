/* test_log.c — log lines and warnings, and the progress line: absent from files, drawn on a
 * terminal, and gone before anything else is printed. */
#include "base_test.h"
#include "child.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <termios.h>
#include <time.h>

static void log_and_warn(const void *unused) {
    (void)unused;
    mx_log("completed step: %d", 3);
    mx_progress(0.5, 60, "half");
    mx_warn("too %s", "slow");
    mx_progress_end();
    mx_log("%s", "");
}

START_TEST(files_get_lines_only) {
    Child child = run_child(&arena, log_and_warn, NULL);
    ck_assert_int_eq(child.status, 0);
    ck_assert_str_eq(child.out, "completed step: 3\n\n");
    ck_assert_str_eq(child.err, "warning: too slow\n");
}
END_TEST

static void log_then_die(const void *unused) {
    (void)unused;
    mx_log("flushed");
    _exit(0); /* without flushing anything */
}

START_TEST(lines_are_flushed) {
    ck_assert_str_eq(run_child(&arena, log_then_die, NULL).out, "flushed\n");
}
END_TEST

/* Names and contents of files once reached the terminal as they were. */
static void log_anything(const void *unused) {
    (void)unused;
    char line[3000];
    memset(line, 'a', sizeof line);
    memcpy(line + sizeof line - 3, "\x1b[", 3);
    mx_log("\x1b]0;title\x07 \xe2\x80\xa6\tand\n\xc3\xa9 \x80 \xc2\x9b"
           "1m \xf0\x9f\x98\x80 \x7f\r");
    mx_warn("%s", "\xc3");
    mx_complain("\"%s\"", "\x01");
    mx_print("%s", line);
    exit(0);
}

START_TEST(no_line_commands_a_terminal) {
    Child child = run_child(&arena, log_anything, NULL);
    static const char want[] = "\\x1b]0;title\\x07 \xe2\x80\xa6\tand\n\xc3\xa9 \\x80 \\xc2\\x9b"
                               "1m \xf0\x9f\x98\x80 \\x7f\\r\n";
    ck_assert_int_eq(child.status, 0);
    ck_assert_msg(mx_text_has_prefix(child.out, want), "%s", child.out);
    ck_assert(mx_text_has_suffix(child.out, "aaa\\x1b["));
    ck_assert_ptr_nonnull(strstr(child.err, "warning: \\xc3\n"));
    ck_assert_ptr_nonnull(strstr(child.err, "\"\\x01\"\n"));
}
END_TEST

START_TEST(quoted_text_is_one_line) {
    MxText text;
    mx_text_init(&text, &arena);
    mx_text_add_quoted(&text, "a\n\"b\"\t\\\0\xff", 9);
    ck_assert_str_eq(text.data, "\"a\\n\\\"b\\\"\\t\\\\\\x00\\xff\"");
}
END_TEST

static const char copy_path[] = "build/tests/log.copy";

/* What a silent rank does. */
static void log_silently(const void *unused) {
    (void)unused;
    mx_log_silence(3);
    mx_log("before");
    if (!mx_log_copy(copy_path, &err)) exit(1);
    mx_log("step %d", 7);
    mx_warn("too %s", "slow");
    mx_complain("the end");
}

START_TEST(silent_lines_are_copied) {
    MxBytes bytes;
    ck_assert(mx_dir_make("build/tests", &err));
    unlink(copy_path);
    Child child = run_child(&arena, log_silently, NULL);
    ck_assert_int_eq(child.status, 0);
    ck_assert_str_eq(child.out, "");
    ck_assert_str_eq(child.err, "test_base: error: the end\n");
    ck_assert(mx_file_read(&arena, copy_path, 1000, &bytes, &err));
    const char *const want[] = {"rank 3: before", "rank 3: step 7", "rank 3: warning: too slow",
                                "rank 3: test_base: error: the end"};
    char *save = NULL, *text = mx_arena_strndup(&arena, (char *)bytes.data, bytes.size);
    for (int i = 0; i < MX_COUNT(want); i++) {
        enum { TIME = sizeof "2026-01-31T23:59:59.999Z" }; /* and a blank */
        const char *line = strtok_r(i ? NULL : text, "\n", &save);
        ck_assert(line && strlen(line) > TIME && line[TIME - 2] == 'Z');
        ck_assert_str_eq(line + TIME, want[i]);
    }
    ck_assert_ptr_null(strtok_r(NULL, "\n", &save));
}
END_TEST

/* What a silent rank without a log of its own says is kept nowhere. */
static void log_for_nobody(const void *unused) {
    enum { LINES = 200000, MOST_KIB = 4096 };
    (void)unused;
    struct rusage before, after;
    mx_log_silence(3);
    if (!mx_log_copy(NULL, &err)) exit(1);
    getrusage(RUSAGE_SELF, &before);
    for (int i = 0; i < LINES; i++)
        mx_log("completed step: %d, and a hundred bytes more: %090d", i, i);
    getrusage(RUSAGE_SELF, &after);
    if (after.ru_maxrss - before.ru_maxrss > MOST_KIB) exit(2);
}

START_TEST(lines_for_nobody_take_no_memory) {
    ck_assert_int_eq(run_child(&arena, log_for_nobody, NULL).status, 0);
}
END_TEST

static void draw_bars(const void *unused) {
    (void)unused;
    mx_progress(0.5, 3725, "step %d", 7);
    mx_log("line");
    mx_progress(2, -1, "done");
    mx_progress_end();
    mx_progress_end(); /* nothing to take away */
    mx_progress(-1, 0, "none");
    mx_warn("careful");
}

/* Runs a function whose stdout and stderr are a terminal of so many columns (0 = it does not say);
 * what appeared on it. */
static char *on_terminal(const char *term, int columns, void (*fn)(const void *)) {
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    ck_assert_int_ge(master, 0);
    ck_assert(!grantpt(master) && !unlockpt(master));
    int slave = open(ptsname(master), O_RDWR | O_NOCTTY);
    ck_assert_int_ge(slave, 0);
    struct termios raw;
    tcgetattr(slave, &raw);
    cfmakeraw(&raw);
    tcsetattr(slave, TCSANOW, &raw);
    struct winsize size = {.ws_row = 24, .ws_col = (unsigned short)columns};
    ck_assert(!ioctl(slave, TIOCSWINSZ, &size));
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (!pid) {
        setenv("TERM", term, 1);
        unsetenv("COLUMNS");
        dup2(slave, STDOUT_FILENO);
        dup2(slave, STDERR_FILENO);
        fn(NULL);
        fflush(NULL);
        _exit(0);
    }
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
    char *shown = mx_arena_alloc(&arena, 4096);
    ck_assert_int_gt(read(master, shown, 4095), 0);
    close(slave);
    close(master);
    return shown;
}

#define ERASE "\r\033[K"

START_TEST(a_terminal_gets_a_bar_that_goes_away) {
    ck_assert_str_eq(on_terminal("xterm", 0, draw_bars),
                     ERASE "[############............]  50%  step 7  ETA 1:02:05" ERASE
                           "line\n" ERASE "[########################] 200%  done" ERASE ERASE
                           "[........................] -100%  none  ETA 0:00:00" ERASE
                           "warning: careful\n");
}
END_TEST

/* A line that fills the last column goes on in the next row, where it is never taken away. */
static void draw_one_bar(const void *unused) {
    (void)unused;
    mx_progress(0.5, 3725, "step %d of %d", 7, 14);
}

static const struct {
    int columns;
    const char *line;
} widths[] = {
    {200, "[############............]  50%  step 7 of 14  ETA 1:02:05"},
    {60, "[############............]  50%  step 7 of 14  ETA 1:02:05"},
    {59, "[############............]  50%  step 7 of 14  ETA 1:02:05"},
    {58, "[###########............]  50%  step 7 of 14  ETA 1:02:05"},
    {50, "[#######........]  50%  step 7 of 14  ETA 1:02:05"},
    {39, "[##..]  50%  step 7 of 14  ETA 1:02:05"},
    {38, " 50%  step 7 of 14  ETA 1:02:05"},
    {20, " 50%  step 7 of 14 "},
};

START_TEST(the_bar_fits_the_terminal) {
    const char *want = mx_arena_printf(&arena, ERASE "%s", widths[_i].line);
    ck_assert_str_eq(on_terminal("xterm", widths[_i].columns, draw_one_bar), want);
    ck_assert_int_lt((int)strlen(widths[_i].line), widths[_i].columns);
}
END_TEST

START_TEST(a_dumb_terminal_gets_none) {
    ck_assert_str_eq(on_terminal("dumb", 0, draw_bars), "line\nwarning: careful\n");
}
END_TEST

START_TEST(the_clock_runs) {
    struct timespec before, after;
    clock_gettime(CLOCK_MONOTONIC, &before);
    double start = mx_clock_s();
    usleep(20000);
    double passed = mx_clock_s() - start;
    clock_gettime(CLOCK_MONOTONIC, &after);
    double most =
        difftime(after.tv_sec, before.tv_sec) + 1e-9 * (double)(after.tv_nsec - before.tv_nsec);
    ck_assert_msg(passed >= 0.02 && passed <= most, "%g s of %g", passed, most);
}
END_TEST

Suite *log_suite(void) {
    Suite *suite = suite_create("base/log");
    TCase *tcase = add_case(suite, "log");
    tcase_add_test(tcase, lines_for_nobody_take_no_memory);
    tcase_add_test(tcase, silent_lines_are_copied);
    tcase_add_test(tcase, files_get_lines_only);
    tcase_add_test(tcase, lines_are_flushed);
    tcase_add_test(tcase, a_terminal_gets_a_bar_that_goes_away);
    tcase_add_loop_test(tcase, the_bar_fits_the_terminal, 0, MX_COUNT(widths));
    tcase_add_test(tcase, a_dumb_terminal_gets_none);
    tcase_add_test(tcase, the_clock_runs);
    tcase_add_test(tcase, no_line_commands_a_terminal);
    tcase_add_test(tcase, quoted_text_is_one_line);
    return suite;
}
