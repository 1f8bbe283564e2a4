/* watch.c — closes connections whose clients take too long or have left. libmicrohttpd closes what
 * is idle, but a byte now and then keeps a request coming for ever, and it may wait for more bytes
 * of a client that has closed its side. One thread looks at all connections a few times a second;
 * what it shuts down, the library then closes. */
#include "watch.h"

#include <poll.h>
#include <sys/socket.h>
#include <time.h>

enum { LOOK_MS = 200 };

static Guest *find(Watch *w, int fd) {
    for (int i = 0; i < WATCH_MOST; i++)
        if (w->guests[i].fd == fd) return &w->guests[i];
    return NULL;
}

Guest *watch_come(Watch *w, int fd, double patience_s) {
    pthread_mutex_lock(w->lock);
    Guest *guest = find(w, -1);
    if (guest) *guest = (Guest){.fd = fd, .until = mx_clock_s() + patience_s};
    pthread_mutex_unlock(w->lock);
    return guest;
}

void watch_go(Watch *w, Guest *guest) {
    if (!guest) return;
    pthread_mutex_lock(w->lock);
    *guest = (Guest){.fd = -1};
    pthread_mutex_unlock(w->lock);
}

void watch_expect(Guest *guest, bool *is_gone, double patience_s) {
    if (!guest) return;
    guest->is_gone = is_gone;
    guest->until = patience_s > 0 ? mx_clock_s() + patience_s : 0;
}

/* Whose client has closed its side may still have sent all of a request: it gets the time of a look
 * to be read and answered. */
static void look(Guest *guest, bool has_left, double now) {
    bool is_late = guest->until > 0 && now > guest->until;
    if ((has_left && guest->has_left) || is_late) {
        if (guest->is_gone) *guest->is_gone = true;
        shutdown(guest->fd, SHUT_RDWR);
    }
    guest->has_left = has_left;
}

static void look_at_all(Watch *w) {
    struct pollfd asked[WATCH_MOST];
    double now = mx_clock_s();
    for (int i = 0; i < WATCH_MOST; i++)
        asked[i] = (struct pollfd){.fd = w->guests[i].fd, .events = POLLRDHUP};
    if (poll(asked, WATCH_MOST, 0) < 0) return;
    for (int i = 0; i < WATCH_MOST; i++)
        if (asked[i].fd >= 0) look(&w->guests[i], asked[i].revents != 0, now);
}

static void *watch(void *context) {
    const struct timespec nap = {.tv_nsec = LOOK_MS * 1000000L};
    Watch *w = context;
    for (bool is_over = false; !is_over;) {
        nanosleep(&nap, NULL);
        pthread_mutex_lock(w->lock);
        is_over = w->is_over;
        look_at_all(w);
        pthread_mutex_unlock(w->lock);
    }
    return NULL;
}

int watch_start(Watch *w, pthread_mutex_t *lock) {
    *w = (Watch){.lock = lock};
    for (int i = 0; i < WATCH_MOST; i++) w->guests[i].fd = -1;
    return mx_thread_start(&w->thread, watch, w);
}

void watch_stop(Watch *w) {
    pthread_mutex_lock(w->lock);
    w->is_over = true;
    pthread_mutex_unlock(w->lock);
    pthread_join(w->thread, NULL);
}
