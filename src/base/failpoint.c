/* failpoint.c — places at which a test can kill the process, to check the files that a crash there
 * leaves. */
#include <mx/base.h>

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

void mx_failpoint(const char *name) {
    static atomic_long n_reached;
    const char *wanted = getenv("MX_FAILPOINT");
    if (!wanted) return;
    size_t n = strcspn(wanted, ":");
    if (n != strlen(name) || strncmp(wanted, name, n)) return;
    long turn = wanted[n] ? strtol(wanted + n + 1, NULL, 10) : 1;
    if (atomic_fetch_add(&n_reached, 1) + 1 == turn) raise(SIGKILL);
}
