/* watchdog.c — the thread that watches how long a rank waits, whatever it waits for. */
#include "watchdog.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

enum { STILL_S = 2 }; /* without a sign of life this long, a rank does not run */

/* What is known of the ranks that others wait for. */
static void name_missing(Watchdog *dog, double now, MxText *out) {
    int n = atomic_load(&dog->n_near), n_named = 0;
    for (int i = 0; i < n; i++) {
        const WatchSign *sign = dog->near[i];
        double still = now - atomic_load(&sign->alive), since = now - atomic_load(&sign->since);
        bool is_still = still > STILL_S, is_busy = !atomic_load(&sign->waits);
        if (!is_still && !is_busy) continue;
        mx_text_add(out, "; rank %d hangs: it has %s for %.0f s", dog->near_rank[i],
                    is_still ? "not run" : "been at something else", is_still ? still : since);
        n_named++;
    }
    if (!n_named) mx_text_add(out, "; a rank that does not say so is the one that hangs");
}

/* How long a rank has been in one wait, by its watchdog's ticks: one that took far longer than
 * asked for is time in which this process was stopped, and perhaps all of them (a scheduler that
 * suspends a job, a machine that sleeps). It does not count. */
typedef struct Wait {
    double since; /* which wait */
    double last;  /* tick */
    double seconds;
} Wait;

static void count_wait(Wait *wait, const WatchSign *sign, double now) {
    const double longest_tick_s = 1;
    double since = atomic_load(&sign->since);
    if (wait->since != since) *wait = (Wait){.since = since, .last = since};
    wait->seconds += fmin(now - wait->last, longest_tick_s);
    wait->last = now;
}

static _Noreturn void give_up(Watchdog *dog, double now, double waited_s) {
    MxArena arena = {.name = "watchdog"};
    MxText missing;
    mx_text_init(&missing, &arena);
    name_missing(dog, now, &missing);
    mx_complain("rank %d has waited %.0f s for the other ranks in %s over %s: ending the run%s",
                dog->rank, waited_s, atomic_load(&dog->waits_in), atomic_load(&dog->waits_for),
                missing.data);
    _exit(MX_EXIT_IO);
}

/* Whether a process has ended, though its launcher may not have taken notice (Linux's state Z). */
static bool has_ended(pid_t process) {
    char path[64], text[256];
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)process);
    FILE *file = fopen(path, "r");
    if (!file) return kill(process, 0) && errno == ESRCH;
    size_t n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[n] = '\0';
    const char *name_end = strrchr(text, ')');
    return name_end && !strncmp(name_end, ") Z", 3);
}

/* Whether a rank of this machine has died. While it gives signs of life nobody looks. */
static bool has_died(const WatchSign *sign) {
    const double quiet_s = 0.5;
    return mx_clock_s() - atomic_load(&sign->alive) > quiet_s &&
           has_ended(atomic_load(&sign->process));
}

/* Ends this rank if another has died. The launcher gets time to do so, and to say how it died. */
static void follow_dead(Watchdog *dog) {
    const struct timespec time_for_the_launcher = {.tv_sec = 1};
    for (int i = 0; i < atomic_load(&dog->n_near); i++) {
        if (!has_died(dog->near[i])) continue;
        nanosleep(&time_for_the_launcher, NULL);
        if (!atomic_load(&dog->is_on)) return;
        mx_complain("rank %d: rank %d has died: ending the run", dog->rank, dog->near_rank[i]);
        _exit(MX_EXIT_IO);
    }
}

static void *watch(void *data) {
    Watchdog *dog = data;
    const struct timespec often = {.tv_nsec = 100000000};
    Wait wait = {0};
    while (atomic_load(&dog->is_on)) {
        follow_dead(dog);
        WatchSign *sign = atomic_load(&dog->sign);
        double now = mx_clock_s();
        atomic_store(&sign->alive, now);
        count_wait(&wait, sign, now);
        if (atomic_load(&sign->waits) && wait.seconds >= dog->patience_s)
            give_up(dog, now, wait.seconds);
        nanosleep(&often, NULL);
    }
    return NULL;
}

void watchdog_init(Watchdog *dog, int rank) {
    *dog = (Watchdog){.rank = rank};
    atomic_store(&dog->sign, &dog->alone);
}

void watchdog_start(Watchdog *dog, double patience_s) {
    MX_ASSERT(!atomic_load(&dog->is_on));
    dog->patience_s = patience_s;
    atomic_store(&dog->is_on, true);
    if (mx_thread_start(&dog->thread, watch, dog)) MX_BUG("no thread for the watchdog");
}

void watchdog_stop(Watchdog *dog) {
    if (atomic_exchange(&dog->is_on, false)) pthread_join(dog->thread, NULL);
}

void watchdog_sign(WatchSign *out) {
    *out = (WatchSign){.alive = mx_clock_s(), .since = mx_clock_s(), .process = getpid()};
}

void watchdog_show(Watchdog *dog, WatchSign *own, WatchSign **near, int *near_rank, int n) {
    dog->near = near;
    dog->near_rank = near_rank;
    atomic_store(&dog->sign, own);
    atomic_store(&dog->n_near, n);
}

bool watchdog_hide(Watchdog *dog) {
    return atomic_exchange(&dog->n_near, 0) != 0;
}

static void set_sign(Watchdog *dog, bool waits) {
    WatchSign *sign = atomic_load(&dog->sign);
    atomic_store(&sign->since, mx_clock_s());
    atomic_store(&sign->waits, waits);
}

void watchdog_wait(Watchdog *dog, const char *what, const char *whom) {
    atomic_store(&dog->waits_in, what);
    atomic_store(&dog->waits_for, whom);
    set_sign(dog, true);
}

void watchdog_go_on(Watchdog *dog) {
    set_sign(dog, false);
}
