/* watch.h — closes connections whose clients take too long or have left (watch.c). */
#ifndef SERVE_WATCH_H
#define SERVE_WATCH_H

#include <mx/base.h>

#include <pthread.h>

enum { WATCH_MOST = 1024 }; /* connections */

/* A connection. */
typedef struct Guest {
    int fd;       /* -1 = free */
    double until; /* by when its client must have sent what is expected; 0 = nothing is */
    bool has_left;
    bool *is_gone; /* set before it is shut down, or NULL */
} Guest;

typedef struct Watch {
    pthread_mutex_t *lock; /* of all that follows */
    pthread_t thread;
    bool is_over;
    Guest guests[WATCH_MOST];
} Watch;

/* watch_start — starts the thread; lock: kept. Returns an errno, 0 = it runs. */
int watch_start(Watch *watch, pthread_mutex_t *lock);
void watch_stop(Watch *watch);

/* watch_come — a connection that must send within so many seconds; NULL if there are too many.
 * watch_go — before its descriptor is closed. watch_expect — what is awaited now, from 0 seconds on
 * = nothing; is_gone as in Guest; called with the lock held. A guest of NULL is none. */
Guest *watch_come(Watch *watch, int fd, double patience_s);
void watch_go(Watch *watch, Guest *guest);
void watch_expect(Guest *guest, bool *is_gone, double patience_s);

#endif
