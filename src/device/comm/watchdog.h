/* watchdog.h — a thread that watches how long a rank waits for others. A rank that dies ends the
 * whole job, but a rank that hangs would not. Ranks of one machine see each other's signs of life
 * in shared memory, so that a waiting rank can name the one that hangs; they cannot see ranks of
 * other machines. When a rank dies, a launcher first sends signals, which ranks waiting for the
 * dead one do not handle; so they also end by themselves. */
#ifndef DEVICE_WATCHDOG_H
#define DEVICE_WATCHDOG_H

#include <mx/device.h>

#include <pthread.h>
#include <stdatomic.h>

/* A rank's signs of life; times as in mx_clock_s, which a machine's processes share. */
typedef struct WatchSign {
    _Atomic double alive; /* when its watchdog last looked */
    _Atomic double since; /* when it began or ended its last wait */
    _Atomic bool waits;
    _Atomic pid_t process;
} WatchSign;

typedef struct Watchdog {
    int rank;
    double patience_s;
    pthread_t thread;
    _Atomic bool is_on;
    _Atomic(const char *) waits_for, waits_in;
    WatchSign alone;           /* its rank's sign as long as nobody else can see it */
    _Atomic(WatchSign *) sign; /* its rank's */
    WatchSign **near;          /* [n_near] those of this machine's ranks, its own among them */
    int *near_rank;            /* [n_near] their ranks */
    _Atomic int n_near;        /* 0 = they cannot be seen */
} Watchdog;

/* watchdog_init — of a rank, off; its sign is its own. watchdog_start — from now on a wait of
 * `patience_s` ends the process, as does a rank of this machine that died. watchdog_stop — no more,
 * if it was on. */
void watchdog_init(Watchdog *dog, int rank);
void watchdog_start(Watchdog *dog, double patience_s);
void watchdog_stop(Watchdog *dog);

/* watchdog_sign — makes the sign of a process in memory that others see. watchdog_show — moves the
 * rank's sign there, and shows those of its machine: near and near_rank [n], kept. */
void watchdog_sign(WatchSign *out);
void watchdog_show(Watchdog *dog, WatchSign *own, WatchSign **near, int *near_rank, int n);
/* watchdog_hide — before the memory of the signs goes; whether they were shown. */
bool watchdog_hide(Watchdog *dog);

/* watchdog_wait — the rank waits from now on, in `what` for `whom` (both kept); watchdog_go_on — it
 * does not. */
void watchdog_wait(Watchdog *dog, const char *what, const char *whom);
void watchdog_go_on(Watchdog *dog);

#endif
