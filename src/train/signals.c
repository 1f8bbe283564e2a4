/* signals.c — signals of a run. Handlers only set flags, which the loop reads between steps. */
#include "signals.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#define STOPS(signal)                                                                              \
    { signal, "received " #signal, "received " #signal " before the first step, nothing to save\n" }

static const struct {
    int number;
    const char *reason, *early;
} stops[] = {STOPS(SIGINT), STOPS(SIGTERM), STOPS(SIGHUP)};

/* A signal is the process's, so is what was asked. */
static volatile sig_atomic_t stop_signal; /* the first one that asked to leave, 0 = none */
static volatile sig_atomic_t seen;        /* a bit for each that did */
static volatile sig_atomic_t save_is_asked;
static volatile sig_atomic_t is_starting, speaks;

/* Whether a launcher reads what this process prints. While it stops a run it may not: neither its
 * silence nor its end is a reason to stop before the save. */
static volatile sig_atomic_t is_launched;

static void print_without_waiting(void) {
    for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++)
        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

static void leave_early(int number) {
    ssize_t ignored = 0;
    mx_progress_abandon();
    for (int i = 0; i < MX_COUNT(stops) && speaks; i++)
        if (stops[i].number == number)
            ignored = write(STDERR_FILENO, stops[i].early, strlen(stops[i].early));
    (void)ignored;
    _exit(128 + number);
}

static void leave_at_once(int number) {
    mx_progress_abandon();
    _exit(128 + number);
}

static void on_stop(int number) {
    int bit = 1 << number;
    if (is_starting) leave_early(number);
    if ((seen & bit) && number != SIGHUP) leave_at_once(number); /* the second one means it */
    seen |= bit;
    if (!stop_signal) stop_signal = number;
    if (is_launched) print_without_waiting();
}

static void on_save(int number) {
    (void)number;
    save_is_asked = 1;
}

static bool is_ignored(int number) {
    struct sigaction now;
    return !sigaction(number, NULL, &now) && now.sa_handler == SIG_IGN;
}

/* Handlers run on a stack of their own: code of the device's libraries may have the stack pointer
 * anywhere (src/device/cpu/threads.c). */
static void use_own_stack(void) {
    enum { STACK_BYTES = 64 << 10 }; /* a frame with all of AMX' tiles takes 11 KiB */
    static _Alignas(16) char memory[STACK_BYTES];
    stack_t stack = {.ss_sp = memory, .ss_size = sizeof memory};
    sigaltstack(&stack, NULL);
}

void signals_catch(const MxComm *comm) {
    struct sigaction stop = {.sa_handler = on_stop, .sa_flags = SA_ONSTACK},
                     save = {.sa_handler = on_save, .sa_flags = SA_ONSTACK};
    sigfillset(&stop.sa_mask); /* else of several that wait the one sent last is seen first */
    use_own_stack();
    is_launched = mx_comm_size(comm) > 1;
    speaks = mx_comm_rank(comm) == 0;
    is_starting = 1;
    stop_signal = seen = save_is_asked = 0;
    for (int i = 0; i < MX_COUNT(stops); i++)
        if (stops[i].number != SIGHUP || !is_ignored(SIGHUP))
            sigaction(stops[i].number, &stop, NULL);
    sigaction(SIGUSR1, &save, NULL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
}

void signals_begin(void) {
    is_starting = 0;
}

int64_t signals_wish(void) {
    return 2 * (int64_t)stop_signal + save_is_asked;
}

Wish signals_hear(int64_t most) {
    if (most % 2) save_is_asked = 0;
    return (Wish){.stop = (int)(most / 2), .saves = most % 2 != 0};
}

const char *signals_reason(int number) {
    int i = 0;
    while (i < MX_COUNT(stops) - 1 && stops[i].number != number) i++;
    return stops[i].reason;
}
