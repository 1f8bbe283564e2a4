/* paces.c — which rank is slow. All wait for the slowest one in every step, so the seconds of a
 * step tell nothing of it: what does are seconds without waits. */
#include "paces.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

void paces_open(MxArena *arena, MxComm *comm, Paces *out) {
    int n = mx_comm_size(comm);
    char own[PACE_HOST_BYTES] = "";
    char *hosts = mx_arena_alloc(arena, (size_t)n * PACE_HOST_BYTES);
    gethostname(own, sizeof own - 1);
    mx_comm_share(comm, own, hosts, sizeof own);
    *out = (Paces){.comm = comm,
                   .n = n,
                   .words = mx_new_n(arena, PaceWord, n),
                   .sorted = mx_new_n(arena, double, n),
                   .hosts = hosts,
                   .slowdown = NAN,
                   .suspect = -1};
}

void paces_begin(Paces *paces) {
    paces->began_s = mx_clock_s();
    paces->waited_s = mx_comm_count(paces->comm).waited_s;
}

void paces_end(Paces *paces) {
    double waited_s = mx_comm_count(paces->comm).waited_s - paces->waited_s;
    paces->alone_s = mx_clock_s() - paces->began_s - waited_s;
}

void paces_leave_out(Paces *paces, double seconds) {
    paces->began_s += seconds;
}

int64_t paces_share(Paces *paces, int64_t wish) {
    PaceWord own = {.wish = wish, .alone_s = paces->alone_s};
    mx_comm_share(paces->comm, &own, paces->words, sizeof own);
    for (int r = 0; r < paces->n; r++)
        if (paces->words[r].wish > wish) wish = paces->words[r].wish;
    return wish;
}

static int by_seconds(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of an even number the lower one: of two ranks the slow one is measured by the other. */
static double median_s(Paces *paces) {
    for (int r = 0; r < paces->n; r++) paces->sorted[r] = paces->words[r].alone_s;
    qsort(paces->sorted, (size_t)paces->n, sizeof *paces->sorted, by_seconds);
    return paces->sorted[(paces->n - 1) / 2];
}

bool paces_judge(Paces *paces) {
    enum { FEW = 10, AGAIN = 1000 };           /* steps until it is told, and told again */
    const double slow = 1.5, least_lost_s = 1; /* less is not worth a word */
    double median = median_s(paces);
    for (int r = paces->slowest = 0; r < paces->n; r++)
        if (paces->words[r].alone_s > paces->words[paces->slowest].alone_s) paces->slowest = r;
    double seconds = paces->words[paces->slowest].alone_s;
    paces->slowdown = seconds / median;
    int suspect = paces->slowdown >= slow ? paces->slowest : -1;
    if (suspect != paces->suspect) paces->n_slow = 0, paces->lost_s = 0;
    paces->suspect = suspect;
    if (suspect < 0) return false;
    bool was_told = paces->n_slow >= FEW && paces->lost_s >= least_lost_s;
    paces->n_slow++;
    paces->lost_s += seconds - median;
    bool is_told = paces->n_slow >= FEW && paces->lost_s >= least_lost_s;
    if (!is_told || (was_told && paces->n_slow % AGAIN)) return false;
    mx_warn("rank %d on %s is slow: it computes %.3f s a step, the median of all ranks is %.3f s "
            "(%.1f times as long, for %lld steps); the others have waited %.0f s for it",
            suspect, paces->hosts + (size_t)suspect * PACE_HOST_BYTES, seconds, median,
            paces->slowdown, (long long)paces->n_slow, paces->lost_s);
    return true;
}
