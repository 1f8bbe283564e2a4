/* test_guard.c — how work in a child process ended: what went wrong with the file, with us, with
 * whoever reads our output, and what others did to the process are told apart. */
#include "store_test.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
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

/* ---- what code that came with a file might try */

static MxExit open_socket(void *data) {
    (void)data;
    return socket(AF_INET, SOCK_STREAM, 0) >= 0 ? MX_EXIT_OK : MX_EXIT_IO;
}

static MxExit run_program(void *data) {
    (void)data;
    execl("/bin/true", "true", NULL);
    return MX_EXIT_IO;
}

static MxExit start_process(void *data) {
    (void)data;
    return fork() >= 0 ? MX_EXIT_OK : MX_EXIT_IO;
}

static MxExit write_file(void *data) {
    return open(data, O_WRONLY | O_CREAT | O_CLOEXEC, 0666) >= 0 ? MX_EXIT_OK : MX_EXIT_IO;
}

static MxExit cut_file(void *data) {
    (void)data;
    return open("/dev/null", O_RDONLY | O_TRUNC | O_CLOEXEC) >= 0 ? MX_EXIT_OK : MX_EXIT_IO;
}

static MxExit remove_file(void *data) {
    return unlink(data) ? MX_EXIT_IO : MX_EXIT_OK;
}

static MxExit kill_parent(void *data) {
    (void)data;
    return kill(getppid(), SIGKILL) ? MX_EXIT_IO : MX_EXIT_OK;
}

/* A pipe may have a signal sent to whoever is said to own it. */
static MxExit signal_parent(void *data) {
    int ends[2];
    (void)data;
    bool ok = !pipe(ends) && !fcntl(ends[0], F_SETOWN, getppid());
    return ok ? MX_EXIT_OK : MX_EXIT_IO;
}

static MxExit choose_signal(void *data) {
    int ends[2];
    (void)data;
    return !pipe(ends) && !fcntl(ends[0], F_SETSIG, SIGKILL) ? MX_EXIT_OK : MX_EXIT_IO;
}

static const struct {
    MxConfine how;
    MxExit (*work)(void *);
} attacks[] = {
    {MX_CONFINE_TO_READING, open_socket},   {MX_CONFINE_TO_FILES, open_socket},
    {MX_CONFINE_TO_READING, run_program},   {MX_CONFINE_TO_FILES, run_program},
    {MX_CONFINE_TO_READING, start_process}, {MX_CONFINE_TO_FILES, start_process},
    {MX_CONFINE_TO_READING, kill_parent},   {MX_CONFINE_TO_FILES, kill_parent},
    {MX_CONFINE_TO_READING, signal_parent}, {MX_CONFINE_TO_FILES, signal_parent},
    {MX_CONFINE_TO_READING, choose_signal}, {MX_CONFINE_TO_FILES, choose_signal},
    {MX_CONFINE_TO_READING, write_file},    {MX_CONFINE_TO_READING, cut_file},
    {MX_CONFINE_TO_READING, remove_file},
};

START_TEST(attacks_end_the_child) {
    if (!mx_can_confine()) {
        if (!_i) puts("guard: seccomp is not here, NOT TESTED what attacks meet");
        return;
    }
    MxConfine how = attacks[_i].how;
    int code = (int)mx_store_guarded("good.h5", how, attacks[_i].work, in_folder("big"), &err);
    ck_assert_int_eq(code, MX_EXIT_BAD_INPUT);
    ck_failed(false, "good.h5: the process that read it was stopped as it tried");
    ck_assert(!mx_file_exists(in_folder("big")));
}
END_TEST

static void hit(void *hits, int i) {
    ((int *)hits)[i]++;
}

/* What readers do: files, their locks, memory, threads, a look at the clock and the terminal. */
static MxExit read_files(void *data) {
    MxArena scratch = {.name = "reading"};
    MxError why = {0};
    MxBytes bytes;
    char **names;
    int n, hits[8] = {0};
    struct timespec now;
    bool ok = mx_file_read(&scratch, "Makefile", 1 << 20, &bytes, &why) &&
              mx_dir_list(&scratch, ".", &names, &n, &why) && !mx_file_exists(data);
    mx_parallel(4, MX_COUNT(hits), hit, hits);
    for (int i = 0; i < MX_COUNT(hits); i++) ok = ok && hits[i] == 1;
    int fd = open("Makefile", O_RDONLY | O_CLOEXEC), copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    ok = ok && copy >= 0 && fcntl(fd, F_GETFL) >= 0 && fcntl(copy, F_GETFD) == FD_CLOEXEC &&
         !fcntl(fd, F_SETLK, &(struct flock){.l_type = F_RDLCK, .l_whence = SEEK_SET});
    ok = ok && !clock_gettime(CLOCK_REALTIME, &now) && isatty(STDIN_FILENO) >= 0;
    mx_error_release(&why);
    mx_arena_release(&scratch);
    return ok ? MX_EXIT_DIFFERENT : MX_EXIT_OK;
}

static MxExit write_files(void *data) {
    MxError why = {0};
    bool ok = mx_dir_make(data, &why);
    char *path = mx_path_join(&arena, data, "file");
    ok = ok && mx_file_write(path, "text", 4, &why) && mx_dir_remove(data, &why);
    MxExit code = ok ? MX_EXIT_DIFFERENT : why.exit;
    mx_error_release(&why);
    return code;
}

START_TEST(readers_read) {
    MxConfine how = _i ? MX_CONFINE_TO_FILES : MX_CONFINE_TO_READING;
    ck_assert_int_eq(mx_store_guarded("good.h5", how, read_files, in_folder("none"), &err),
                     MX_EXIT_DIFFERENT);
    if (_i)
        ck_assert_int_eq(mx_store_guarded("good.h5", how, write_files, in_folder("made"), &err),
                         MX_EXIT_DIFFERENT);
}
END_TEST

static const struct {
    MxExit (*work)(void *);
    int code;
    const char *words; /* NULL = the child said it */
} ends[] = {
    {crash, MX_EXIT_BAD_INPUT, "good.h5: what reads it crashed (Segmentation fault"},
    {abort_in_library, MX_EXIT_BAD_INPUT, "good.h5: what reads it crashed (Aborted"},
    {meet_bug, 128 + SIGABRT, "ended at a bug of mxtrain; the files may be good"},
    {be_killed, MX_EXIT_IO, "good.h5: the process that read it was killed (User defined signal 1"},
    {print_to_nobody, MX_EXIT_IO, NULL},
    {write_beyond_limit, MX_EXIT_IO, NULL},
};

START_TEST(ends_are_told_apart) {
    int code = (int)mx_store_guarded("good.h5", MX_CONFINE_TO_FILES, ends[_i].work,
                                     in_folder("big"), &err);
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
    ck_assert_int_eq(
        mx_store_guarded("good.h5", MX_CONFINE_TO_FILES, ends[0].work, in_folder("big"), &err),
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
    tcase_add_loop_test(tests, attacks_end_the_child, 0, MX_COUNT(attacks));
    tcase_add_loop_test(tests, readers_read, 0, 2);
    suite_add_tcase(suite, tests);
    return suite;
}
