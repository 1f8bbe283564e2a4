/* test_guard.c — how work in a child process ended: what went wrong with the file, with us, with
 * whoever reads our output, and what others did to the process are told apart. */
#include "store_test.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

static MxExit crash(void *data) {
    (void)data;
    signal(SIGSEGV, SIG_DFL); /* a sanitizer has a handler of its own */
    raise(SIGSEGV);
    return MX_EXIT_OK;
}

static MxExit abort_in_library(void *data) {
    (void)data;
    abort();
}

static MxExit meet_bug(void *data) {
    (void)data;
    MX_BUG("a test");
}

static MxExit be_killed(void *data) {
    (void)data;
    raise(SIGUSR1);
    return MX_EXIT_OK;
}

/* Nobody reads stdout: what is printed last is as lost as what is printed before. */
static MxExit print_to_nobody(void *data) {
    int ends[2];
    (void)data;
    if (pipe(ends) || dup2(ends[1], STDOUT_FILENO) < 0) return MX_EXIT_OK;
    close(ends[0]);
    puts("a report");
    return MX_EXIT_DIFFERENT;
}

static MxExit write_beyond_limit(void *data) {
    static const char big[1 << 16];
    MxError why = {0};
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){1 << 10, 1 << 10});
    bool ok = mx_file_write(data, big, sizeof big, &why);
    MxExit code = ok ? MX_EXIT_OK : why.exit;
    mx_error_release(&why);
    return code;
}

static const struct {
    MxExit (*work)(void *);
    int code;
    const char *words; /* NULL = the child said it */
} ends[] = {
    {crash, MX_EXIT_BAD_INPUT, "good.h5: the HDF5 library crashed on it (Segmentation fault"},
    {abort_in_library, MX_EXIT_BAD_INPUT, "good.h5: the HDF5 library crashed on it (Aborted"},
    {meet_bug, 128 + SIGABRT, "ended at a bug of mxtrain; the files may be good"},
    {be_killed, MX_EXIT_IO, "good.h5: the process that read it was killed (User defined signal 1"},
    {print_to_nobody, MX_EXIT_IO, NULL},
    {write_beyond_limit, MX_EXIT_IO, NULL},
};

START_TEST(ends_are_told_apart) {
    int code = (int)mx_store_guarded("good.h5", ends[_i].work, in_folder("big"), &err);
    ck_assert_int_eq(code, ends[_i].code);
    if (ends[_i].words)
        ck_failed(false, ends[_i].words);
    else
        ck_assert_int_eq(err.count, 0);
}
END_TEST

/* A plan that looks into a file can be interrupted afterwards. */
START_TEST(signals_mean_what_they_did) {
    struct sigaction now;
    ck_assert(signal(SIGINT, SIG_DFL) != SIG_ERR && signal(SIGTERM, SIG_IGN) != SIG_ERR);
    ck_assert_int_eq(mx_store_guarded("good.h5", ends[0].work, in_folder("big"), &err),
                     ends[0].code);
    ck_assert(!sigaction(SIGINT, NULL, &now) && now.sa_handler == SIG_DFL);
    ck_assert(!sigaction(SIGTERM, NULL, &now) && now.sa_handler == SIG_IGN);
}
END_TEST

Suite *guard_suite(void) {
    Suite *suite = suite_create("store: guard");
    TCase *tests = tcase_create("guard");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_loop_test(tests, ends_are_told_apart, 0, MX_COUNT(ends));
    tcase_add_test(tests, signals_mean_what_they_did);
    suite_add_tcase(suite, tests);
    return suite;
}
