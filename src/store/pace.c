/* pace.c — the brake of a thread that works beside others. */
#include <mx/store.h>

#include <time.h>

static double thread_cpu_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void mx_pace_start(MxPace *pace) {
    pace->used_s = thread_cpu_s();
}

void mx_pace(MxPace *pace) {
    static const double nap_s = 0.005; /* how late a hurry may be seen */
    if (!pace) return;
    double work = thread_cpu_s() - pace->used_s;
    double until = mx_clock_s() + work * (1 / pace->share - 1), left;
    while (!atomic_load(&pace->is_hurried) && (left = until - mx_clock_s()) > 0) {
        double s = left < nap_s ? left : nap_s;
        nanosleep(&(struct timespec){.tv_nsec = (long)(s * 1e9)}, NULL);
    }
    pace->used_s = thread_cpu_s();
}
