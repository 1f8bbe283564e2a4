/* test_log.c — log lines and warnings, how many of them are printed, and the status line: absent
 * from files, below all lines of a terminal, and gone in the end, whatever the end is. */
#include "base_test.h"
#include "child.h"

#include <common/terminal.h>

#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
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

/* A launcher passes on what each write brings: lines of two ranks or two streams must not mix. */
static void warn_and_complain(const void *to) {
    dup2(*(const int *)to, STDERR_FILENO);
    mx_warn("too %s", "slow");
    mx_complain("too %s", "fast");
}

START_TEST(a_line_is_one_write) {
    static const char *const want[] = {"warning: too slow\n", "test_base: error: too fast\n"};
    int ends[2];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends), 0);
    ck_assert_int_eq(run_child(&arena, warn_and_complain, &ends[1]).status, 0);
    for (int i = 0; i < MX_COUNT(want); i++) {
        char line[100] = "";
        ck_assert_int_ge(recv(ends[0], line, sizeof line - 1, MSG_DONTWAIT), 0);
        ck_assert_str_eq(line, want[i]);
    }
    close(ends[0]);
    close(ends[1]);
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

/* ---- on a terminal */

#define ERASE      "\r\033[K"
#define CYAN(text) "\033[36m" text "\033[0m"

static void set_color(const char *when) {
    if (!mx_color_set(when, &err)) _exit(1);
}

/* What appeared on a terminal of so many columns (0 = it does not say). */
static char *on_terminal(const char *term, int columns, void (*fn)(const void *),
                         const void *data) {
    Terminal t;
    terminal_start(&arena, &t, term, columns, fn, data);
    ck_assert_int_eq(terminal_end(&t), 0);
    return t.written.data;
}

static void draw_bars(const void *color) {
    set_color(color);
    mx_progress(0.5, 3725, "step %d", 7);
    mx_log("line");
    mx_progress_end();
    mx_progress(2, -1, "done\tbehind it");
    mx_progress_end();
    mx_progress_end(); /* nothing to take away */
    mx_log("two");
    mx_progress(-1, 0, "none");
    mx_warn("careful");
    mx_complain("broken");
    mx_log("three");
}

START_TEST(the_status_line_stays_below_lines_and_goes_away) {
    const char *shown = on_terminal("xterm", 0, draw_bars, "never");
#define HALF "[############............]  50%  step 7  ETA 1:02:05"
#define NONE "[........................] -100%  none  ETA 0:00:00"
    ck_assert_str_eq(shown,
                     ERASE HALF ERASE "line\n" ERASE HALF ERASE ERASE
                                      "[########################] 200%  done  behind it" ERASE
                                      "two\n" ERASE NONE ERASE "warning: careful\n" ERASE NONE ERASE
                                      "test_base: error: broken\nthree\n");
    ck_assert_str_eq(terminal_screen(&arena, shown),
                     "line\ntwo\nwarning: careful\ntest_base: error: broken\nthree\n");
}
END_TEST

START_TEST(colours_are_for_terminals) {
    const char *shown = on_terminal("xterm", 0, draw_bars, "auto");
    ck_assert_ptr_nonnull(strstr(shown, CYAN("[############............] ") " 50%  step 7"));
    ck_assert_ptr_nonnull(strstr(shown, ERASE "\033[33mwarning: \033[0mcareful\n"));
    ck_assert_ptr_nonnull(strstr(shown, "\033[1;31mtest_base: error: \033[0mbroken\n"));
    ck_assert_str_eq(run_child(&arena, draw_bars, "auto").err,
                     "warning: careful\ntest_base: error: broken\n");
    ck_assert_str_eq(run_child(&arena, draw_bars, "always").err,
                     "\033[33mwarning: \033[0mcareful\n"
                     "\033[1;31mtest_base: error: \033[0mbroken\n");
}
END_TEST

static void draw_without_colour(const void *no_color) {
    setenv("NO_COLOR", no_color, 1);
    draw_bars("auto");
}

START_TEST(no_color_is_heard_if_it_says_something) {
    ck_assert_ptr_null(strstr(on_terminal("xterm", 0, draw_without_colour, "1"), "\033[3"));
    ck_assert_ptr_nonnull(strstr(on_terminal("xterm", 0, draw_without_colour, ""), "\033[33m"));
    ck_failed(mx_color_set("sometimes", &err), MX_EXIT_CONFIG,
              "--color: found \"sometimes\", wanted auto, always or never");
}
END_TEST

/* A line that fills the last column goes on in the next row, where it is never taken away. */
static void draw_one_bar(const void *unused) {
    (void)unused;
    set_color("never");
    mx_progress(0.5, 3725, "step %d of %d\tloss 3.5 falling\t80 tokens/s", 7, 14);
    _exit(0);
}

static const struct {
    int columns;
    const char *line;
} widths[] = {
    {200, "[############............]  50%  step 7 of 14  ETA 1:02:05  loss 3.5 falling  80 "
          "tokens/s"},
    {70, "[##..]  50%  step 7 of 14  ETA 1:02:05  loss 3.5 falling  80 tokens/s"},
    {69, " 50%  step 7 of 14  ETA 1:02:05  loss 3.5 falling  80 tokens/s"},
    {63, " 50%  step 7 of 14  ETA 1:02:05  loss 3.5 falling  80 tokens/s"},
    {62, "[####.....]  50%  step 7 of 14  ETA 1:02:05  loss 3.5 falling"},
    {50, " 50%  step 7 of 14  ETA 1:02:05  loss 3.5 falling"},
    {49, "[#######.......]  50%  step 7 of 14  ETA 1:02:05"},
    {39, "[##..]  50%  step 7 of 14  ETA 1:02:05"},
    {38, " 50%  step 7 of 14  ETA 1:02:05"},
    {20, " 50%  step 7 of 14"},
    {10, " 50%  ste"},
};

START_TEST(the_status_line_fits_the_terminal) {
    const char *want = mx_arena_printf(&arena, ERASE "%s", widths[_i].line);
    ck_assert_str_eq(on_terminal("xterm", widths[_i].columns, draw_one_bar, NULL), want);
    ck_assert_int_lt((int)strlen(widths[_i].line), widths[_i].columns);
}
END_TEST

static void draw_hostile_names(const void *unused) {
    (void)unused;
    mx_progress(0, -1, "writing \x1b]0;t\x07\xc3\xa9");
    mx_progress_end();
}

START_TEST(names_in_the_status_line_command_nothing) {
    ck_assert_ptr_nonnull(
        strstr(on_terminal("xterm", 0, draw_hostile_names, NULL), "  0%  writing ?]0;t???" ERASE));
}
END_TEST

/* What ends the process takes the line away, and still ends it. */
static void draw_and_die(const void *how) {
    int number = *(const int *)how;
    if (number) signal(number, SIG_DFL); /* Check has handlers of its own */
    mx_progress(0.5, -1, "step");
    if (number) raise(number);
    bool is_dead = false;
    MX_ASSERT(is_dead);
}

static const int deaths[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, 0};

START_TEST(a_process_that_ends_leaves_no_status_line) {
    Terminal t;
    terminal_start(&arena, &t, "xterm", 0, draw_and_die, &deaths[_i]);
    ck_assert_int_eq(terminal_end(&t), 128 + (deaths[_i] ? deaths[_i] : SIGABRT));
    const char *screen = terminal_screen(&arena, t.written.data);
    if (deaths[_i])
        ck_assert_str_eq(screen, "");
    else
        ck_assert_msg(mx_text_has_prefix(screen, "tests/base/test_log.c:"), "%s", screen);
}
END_TEST

START_TEST(a_dumb_terminal_gets_none) {
    ck_assert_str_eq(on_terminal("dumb", 0, draw_bars, "auto"),
                     "line\ntwo\nwarning: careful\ntest_base: error: broken\nthree\n");
}
END_TEST

/* ---- how much is printed */

static const char level_path[] = "build/tests/log.level";

static void log_at_level(const void *level) {
    if (!mx_log_copy(level_path, &err)) exit(1);
    mx_log_level(*(const MxLogLevel *)level);
    mx_progress(0.5, -1, "half");
    mx_detail("a detail");
    mx_log("a line");
    mx_warn("a warning");
    mx_print("a list\n");
    mx_progress_end();
}

START_TEST(levels_choose_lines_but_not_those_of_the_copy) {
    static const MxLogLevel levels[] = {MX_LOG_QUIET, MX_LOG_USUAL, MX_LOG_VERBOSE};
    static const char *const printed[] = {"a list\n", "a line\na list\n",
                                          "a detail\na line\na list\n"};
    MxBytes bytes;
    ck_ok(mx_dir_make("build/tests", &err));
    unlink(level_path);
    Child child = run_child(&arena, log_at_level, &levels[_i]);
    ck_assert_str_eq(child.out, printed[_i]);
    ck_assert_str_eq(child.err, "warning: a warning\n");
    ck_ok(mx_file_read(&arena, level_path, 1000, &bytes, &err));
    ck_assert_ptr_nonnull(strstr((char *)bytes.data, "Z a detail\n"));
    ck_assert_ptr_nonnull(strstr((char *)bytes.data, "Z a line\n"));
    bool is_drawn = strstr(on_terminal("xterm", 0, log_at_level, &levels[_i]), "half") != NULL;
    ck_assert_int_eq(is_drawn, levels[_i] != MX_LOG_QUIET);
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
    tcase_add_test(tcase, a_line_is_one_write);
    tcase_add_test(tcase, the_status_line_stays_below_lines_and_goes_away);
    tcase_add_test(tcase, colours_are_for_terminals);
    tcase_add_test(tcase, no_color_is_heard_if_it_says_something);
    tcase_add_loop_test(tcase, the_status_line_fits_the_terminal, 0, MX_COUNT(widths));
    tcase_add_test(tcase, names_in_the_status_line_command_nothing);
    tcase_add_loop_test(tcase, a_process_that_ends_leaves_no_status_line, 0, MX_COUNT(deaths));
    tcase_add_loop_test(tcase, levels_choose_lines_but_not_those_of_the_copy, 0, 3);
    tcase_add_test(tcase, a_dumb_terminal_gets_none);
    tcase_add_test(tcase, the_clock_runs);
    tcase_add_test(tcase, no_line_commands_a_terminal);
    tcase_add_test(tcase, quoted_text_is_one_line);
    return suite;
}
