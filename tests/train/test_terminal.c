/* test_terminal.c — a run on a terminal: some lines of steps above a status line that is drawn in
 * place, fits, and is gone in the end, whatever ends the run; all lines in run.log. */
#include "process.h"
#include "train_test.h"

#include <common/terminal.h>

#include <check.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

/* In place of the process that is on the terminal. */
static void become_trainer(const void *words) {
    enum { MAX_WORDS = 64 };
    MxArena arena = {0};
    char *argv[MAX_WORDS] = {mx_arena_strdup(&arena, process_binary())}, *save = NULL;
    int n = 1;
    for (char *w = strtok_r(mx_arena_strdup(&arena, words), " ", &save); w;
         w = strtok_r(NULL, " ", &save))
        argv[n++] = w;
    execv(argv[0], argv);
    _exit(101);
}

static MxArena arena;
static const char *dir;
static Terminal terminal;

static void start(int columns, const char *more) {
    dir = process_dir(&arena, "terminal");
    terminal_start(&arena, &terminal, "xterm", columns, become_trainer,
                   process_tiny(&arena, dir, more));
}

/* The lines that stay; none is left of the status line. */
static const char *end(int want) {
    int code = terminal_end(&terminal);
    const char *screen = terminal_screen(&arena, terminal.written.data);
    ck_assert_msg(code == want, "exit %d: %s", code, screen);
    ck_assert_msg(!strstr(screen, "ETA "), "%s", screen);
    ck_assert_msg(!*screen || mx_text_has_suffix(screen, "\n"), "%s", screen);
    return screen;
}

static int count(const char *text, const char *what) {
    int n = 0;
    for (const char *at = text; (at = strstr(at, what)); at += strlen(what)) n++;
    return n;
}

static const char *run_log(void) {
    return process_file(&arena, dir, "x/run.log", NULL);
}

static void tear_down(void) {
    mx_arena_release(&arena);
}

START_TEST(a_terminal_shows_some_steps_and_where_the_run_is) {
    static const char *const parts[] = {" of 40", "  ETA 0:0", "  loss ", " tokens/s  ",
                                        " GiB  save at 5  evaluation at 10"};
    start(200, "steps=40");
    const char *screen = end(0);
    ck_assert_int_eq(count(screen, "completed step: 0,"), 1);
    ck_assert_int_eq(count(screen, "completed step: 39,"), 1);
    ck_assert_int_lt(count(screen, "completed step: "), 40);
    ck_assert_int_eq(count(screen, "Completed eval"), 5); /* 0, 10, 20, 30, the last */
    ck_assert_int_eq(count(run_log(), "completed step: "), 40);
    for (int i = 0; i < MX_COUNT(parts); i++)
        ck_assert_msg(strstr(terminal.written.data, parts[i]), "no \"%s\": %s", parts[i],
                      terminal.written.data);
}
END_TEST

static const struct {
    const char *words;
    int n_steps; /* printed, of ten */
} levels[] = {{"--verbose", 10}, {"log_every=4", 4}, {"log_every=1", 10}, {"--quiet", 0}};

START_TEST(how_many_steps_are_printed_can_be_said) {
    start(200, mx_arena_printf(&arena, "steps=10 %s", levels[_i].words));
    const char *screen = end(0);
    ck_assert_int_eq(count(screen, "completed step: "), levels[_i].n_steps);
    if (!levels[_i].n_steps) ck_assert_str_eq(screen, "");
    ck_assert_int_eq(count(run_log(), "completed step: "), 10);
}
END_TEST

/* The same words mean the same where there is no terminal, but for the default. */
START_TEST(lines_of_some_steps_in_a_file) {
    static const struct {
        const char *words;
        int n_steps;
    } cases[] = {{"", 10}, {"log_every=4", 4}, {"log_every=4 --verbose", 10}, {"--quiet", 0}};
    dir = process_dir(&arena, "lines");
    const char *words =
        process_tiny(&arena, dir, mx_arena_printf(&arena, "steps=10 %s", cases[_i].words));
    ck_assert_int_eq(process_run(&arena, dir, words), 0);
    const char *log = process_file(&arena, dir, "log", NULL);
    ck_assert_int_eq(count(log, "completed step: "), cases[_i].n_steps);
    ck_assert_ptr_null(strchr(log, '\033'));
    if (*cases[_i].words == 'l' && cases[_i].n_steps == 4)
        ck_assert(strstr(log, "step: 0,") && strstr(log, "step: 4,") && strstr(log, "step: 8,") &&
                  strstr(log, "step: 9,"));
    if (!cases[_i].n_steps) ck_assert_str_eq(log, "");
    ck_assert_int_eq(count(run_log(), "completed step: "), 10);
}
END_TEST

static const int signals[] = {SIGINT, SIGTERM, SIGHUP};

START_TEST(a_signal_takes_the_status_line_away) {
    start(100, "steps=1000000");
    terminal_wait_for(&terminal, "  ETA ");
    ck_assert(!kill(terminal.pid, signals[_i]));
    const char *screen = end(128 + signals[_i]);
    ck_assert_msg(strstr(screen, "\nTraining stopped: received SIG"), "%s", screen);
}
END_TEST

START_TEST(an_error_stands_on_a_line_of_its_own) {
    start(100, "steps=200 learning_rate=1e30 warmup_steps_fraction=0");
    const char *screen = end(MX_EXIT_DIFFERENT);
    ck_assert_msg(strstr(terminal.written.data, "  ETA ") != NULL, "%s", screen);
    ck_assert_msg(strstr(screen, "\nmxtrain: error: Aborting training due to "), "%s", screen);
}
END_TEST

/* How wide the line is that was drawn last. */
static int last_width(void) {
    int width = 0;
    const char *at = terminal.written.data, *next;
    while ((next = strstr(at, "\r\033[K"))) {
        at = next + strlen("\r\033[K");
        const char *drawn =
            terminal_screen(&arena, mx_arena_strndup(&arena, at, strcspn(at, "\r\n")));
        if (strstr(drawn, "% ")) width = (int)strlen(drawn);
    }
    return width;
}

START_TEST(the_status_line_follows_the_terminals_width) {
    enum { WIDE = 150, NARROW = 40, AFTER_US = 300000 }; /* some drawings later */
    start(WIDE, "steps=1000000 eval_interval=-1");
    terminal_wait_for(&terminal, "save at ");
    terminal_wait_for(&terminal, "falling");
    int wide = last_width();
    terminal_resize(&terminal, NARROW);
    usleep(AFTER_US);
    ck_assert(!kill(terminal.pid, SIGTERM));
    end(MX_EXIT_SIGTERM);
    int narrow = last_width();
    ck_assert_msg(wide > NARROW && wide < WIDE && narrow > 0 && narrow < NARROW, "%d, then %d",
                  wide, narrow);
}
END_TEST

Suite *terminal_suite(void) {
    enum { SECONDS = 120 };
    Suite *suite = suite_create("terminal");
    TCase *tcase = tcase_create("terminal");
    tcase_set_timeout(tcase, SECONDS);
    tcase_add_checked_fixture(tcase, NULL, tear_down);
    tcase_add_test(tcase, a_terminal_shows_some_steps_and_where_the_run_is);
    tcase_add_loop_test(tcase, how_many_steps_are_printed_can_be_said, 0, MX_COUNT(levels));
    tcase_add_loop_test(tcase, lines_of_some_steps_in_a_file, 0, 4);
    tcase_add_loop_test(tcase, a_signal_takes_the_status_line_away, 0, MX_COUNT(signals));
    tcase_add_test(tcase, an_error_stands_on_a_line_of_its_own);
    tcase_add_test(tcase, the_status_line_follows_the_terminals_width);
    suite_add_tcase(suite, tcase);
    return suite;
}
