/* process.c — a program's main function, and what must be set up before it runs: an environment
 * with which the libraries were loaded correctly, open descriptors 0 to 2, and threads. */
#include <mx/base.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <unistd.h>

static bool is_missing(const MxEnvVar *variable) {
    return variable->value && !getenv(variable->name) &&
           !(variable->unless && getenv(variable->unless));
}

/* By its own path, not /proc/self/exe, which would become the process's name. */
static void start_again(char **argv) {
    char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n < 0) return;
    path[n] = '\0';
    execv(path, argv);
}

/* A process that starts again finds all variables set, so it does not do so twice. */
void mx_process_prepare(const MxEnvVar *variables, int n, char **argv) {
    bool starts_again = false;
    if (!getauxval(AT_BASE)) return; /* the file that runs is the loader, given a program by hand */
    for (int i = 0; i < n; i++) {
        if (!is_missing(&variables[i])) continue;
        starts_again = true;
        setenv(variables[i].name, variables[i].value, true);
    }
    if (!starts_again) return;
    start_again(argv);
    mx_warn("could not start again with %s=%s in the environment: %s", variables[0].name,
            getenv(variables[0].name), strerror(errno));
}

int mx_thread_start(pthread_t *thread, void *(*run)(void *data), void *data) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(thread, NULL, run, data);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed;
}

enum { MOST_THREADS = 16 };

typedef struct Team {
    int n;
    void (*fn)(void *data, int i);
    void *data;
    atomic_int next;
} Team;

static int processors(void) {
    const char *said = getenv("OMP_NUM_THREADS");
    long n = said ? strtol(said, NULL, 10) : 0;
    cpu_set_t set;
    if (n <= 0) n = sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
    return n > INT_MAX ? INT_MAX : (int)n;
}

static void *work(void *data) {
    Team *team = data;
    for (int i; (i = atomic_fetch_add(&team->next, 1)) < team->n;) team->fn(team->data, i);
    return NULL;
}

void mx_parallel(int64_t n_threads, int n, void (*fn)(void *data, int i), void *data) {
    Team team = {.n = n, .fn = fn, .data = data};
    pthread_t threads[MOST_THREADS];
    int64_t wanted = n_threads > 0 ? n_threads : processors();
    int started = 0;
    if (wanted > MOST_THREADS) wanted = MOST_THREADS;
    if (wanted > n) wanted = n;
    while (started < wanted - 1 && !mx_thread_start(&threads[started], work, &team)) started++;
    work(&team);
    for (int i = 0; i < started; i++) pthread_join(threads[i], NULL);
}

/* Else the next file that is opened would get what is written to stdout or stderr. They are opened
 * the wrong way round, so that reading and writing still fail as on closed ones. */
static void fill_standard_descriptors(void) {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
            MX_ASSERT(open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) == fd);
}

int mx_tool_main(MxTool *run, int argc, char **argv) {
    fill_standard_descriptors();
    MxArena program = {.name = "program"};
    MxError err = {0};
    MxExit code = run(argc, argv, &program, &err);
    mx_progress_end();
    mx_error_tell(&err);
    mx_error_release(&err);
    mx_arena_release(&program);
    return (int)code;
}
