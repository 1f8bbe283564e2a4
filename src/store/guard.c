/* guard.c — work on files that may be hostile, in a child process. libhdf5 crashes on about one
 * damaged file in a hundred, and sometimes never ends; the child bounds both: its death is an error
 * message here, and processor time is granted piece by piece, so that a big file may take as long
 * as it needs while a loop inside the library ends soon. Wall time is not bounded: disks may be
 * slow. What a file's code might do there, should it come to run, is little (mx_confine). */
#include <mx/store.h>

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Of processor time from one call of the library to the next. What we make of what it read is in
 * between, on processors that others may share. */
static const rlim_t GRANT_S = 9;
static const off_t GRANT_BYTES_PER_S = 20 << 20;
#ifndef __has_feature /* gcc */
#define __has_feature(name) 0
#endif
#if defined __SANITIZE_ADDRESS__ || __has_feature(address_sanitizer)
static const rlim_t MAX_MEMORY = RLIM_INFINITY; /* the sanitizer's own is beyond any limit */
#else
static const rlim_t MAX_MEMORY = (rlim_t)3 << 30;
#endif

static bool is_guarded; /* a property of the process: it is the child */
/* For the handler, in the parent. */
static volatile sig_atomic_t stopped_by;
static volatile pid_t child;

static void on_stop(int number) {
    stopped_by = number;
    if (child > 0) kill(child, number);
}

void mx_store_guard_rearm(const char *path) {
    if (!is_guarded) return;
    struct rusage used;
    struct stat st = {0};
    struct rlimit limit;
    getrusage(RUSAGE_SELF, &used);
    getrlimit(RLIMIT_CPU, &limit);
    if (stat(path, &st)) st.st_size = 0;
    limit.rlim_cur = (rlim_t)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) + 1 + GRANT_S +
                     (rlim_t)(st.st_size / GRANT_BYTES_PER_S);
    if (limit.rlim_max != RLIM_INFINITY && limit.rlim_cur > limit.rlim_max)
        limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_CPU, &limit);
}

/* The exit of a child that met a bug of ours, which mx_assert_fail has told. */
enum { BUG = 128 + SIGABRT };

static void on_abort(int number) {
    (void)number;
    if (mx_bug_is_told()) _exit(BUG);
}

/* What the library aborts at is its crash; what we do is not. A reader of our output that went, or
 * a limit on files, is an error of the write. */
static void tell_signals_apart(void) {
    signal(SIGABRT, on_abort);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
}

static _Noreturn void run_child(MxConfine how, MxExit (*work)(void *), void *data) {
    is_guarded = true;
    tell_signals_apart();
    setrlimit(RLIMIT_CORE, &(struct rlimit){0});
    setrlimit(RLIMIT_AS, &(struct rlimit){MAX_MEMORY, MAX_MEMORY});
    mx_confine(how);
    MxExit code = work(data);
    errno = 0;
    bool is_written = !fflush(stdout) && !ferror(stdout);
    if (is_written) _exit((int)code);
    mx_complain("could not write to stdout%s%s", errno ? ": " : "", errno ? strerror(errno) : "");
    _exit(MX_EXIT_IO);
}

static bool await_child(int *status, MxError *err) {
    if (stopped_by) kill(child, stopped_by); /* before the handler knew the child */
    while (waitpid(child, status, 0) < 0)
        if (errno != EINTR) return mx_fail_errno(err, "could not wait for a child process");
    return true;
}

/* Signals by which a process that went wrong ends; by others it is ended. */
static bool is_crash(int number) {
    static const int crashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    for (int i = 0; i < MX_COUNT(crashes); i++)
        if (crashes[i] == number) return true;
    return false;
}

/* The child's end as an exit code, with a message if it was no exit. */
static MxExit judge(int status, const char *what, MxError *err) {
    if (WIFEXITED(status) && WEXITSTATUS(status) != BUG) return (MxExit)WEXITSTATUS(status);
    if (stopped_by) return (MxExit)(128 + stopped_by);
    int number = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    if (!number)
        mx_fail(err, (MxExit)BUG, MX_NOWHERE,
                "%s: the process that read it ended at a bug of mxtrain; the files may be good",
                what);
    else if (number == SIGXCPU)
        mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE,
                "%s: what reads it does not come to an end; is it damaged?", what);
    else if (number == SIGSYS)
        mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE,
                "%s: the process that read it was stopped as it tried what readers of files never "
                "do (networks, programs, changes of files); the file may be an attack",
                what);
    else if (is_crash(number))
        mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE,
                "%s: what reads it crashed (%s); is it damaged?", what, strsignal(number));
    else
        mx_fail(err, MX_EXIT_IO, MX_NOWHERE, "%s: the process that read it was killed (%s)", what,
                strsignal(number));
    return err->exit;
}

static const int caught[] = {SIGINT, SIGTERM};

static void catch_stops(struct sigaction before[MX_COUNT(caught)]) {
    struct sigaction action = {.sa_handler = on_stop};
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < MX_COUNT(caught); i++) sigaction(caught[i], &action, &before[i]);
}

void mx_store_guard_catch(void) {
    struct sigaction before[MX_COUNT(caught)];
    catch_stops(before);
}

MxExit mx_store_guarded(const char *what, MxConfine how, MxExit (*work)(void *), void *data,
                        MxError *err) {
    struct sigaction before[MX_COUNT(caught)];
    catch_stops(before);
    fflush(NULL);
    pid_t pid = fork();
    if (!pid) {
        for (int i = 0; i < MX_COUNT(caught); i++) signal(caught[i], SIG_DFL);
        if (stopped_by) _exit(128 + stopped_by);
        run_child(how, work, data);
    }
    if (pid < 0) {
        mx_fail_errno(err, "could not start a child process");
        return err->exit;
    }
    int status = 0;
    child = pid;
    MxExit code = await_child(&status, err) ? judge(status, what, err) : err->exit;
    child = 0;
    for (int i = 0; i < MX_COUNT(caught); i++) sigaction(caught[i], &before[i], NULL);
    return stopped_by ? (MxExit)(128 + stopped_by) : code;
}

typedef struct Attempt {
    MxAttempt *work;
    const void *data;
} Attempt;

static MxExit attempt(void *data) {
    const Attempt *a = data;
    MxArena arena = {.name = "try"};
    MxError ignored = {0};
    mx_log_mute();
    a->work(&arena, a->data, &ignored);
    mx_error_release(&ignored);
    mx_arena_release(&arena);
    return MX_EXIT_OK;
}

bool mx_store_try(const char *what, MxAttempt *work, const void *data, MxError *err) {
    enum { MAX_CODE = 128 }; /* above are those of signals that asked us to stop */
    MxExit code =
        mx_store_guarded(what, MX_CONFINE_TO_READING, attempt, &(Attempt){work, data}, err);
    if (code && !err->count)
        mx_fail(err, (int)code > MAX_CODE ? code : MX_EXIT_BAD_INPUT, MX_NOWHERE,
                "%s: could not be read in a child process", what);
    return !code;
}
