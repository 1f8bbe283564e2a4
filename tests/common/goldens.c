/* goldens.c — counts tests against golden files. Check forks for every test, so the counts are in
 * memory that all processes share: a test adds itself when its process ends, the program tells the
 * sums when it does. A test that fails dies before; it is told elsewhere. */
#include "goldens.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

typedef enum Outcome { UNUSED, RAN, MISSING, OUTCOMES } Outcome;

static Outcome outcome; /* of this process' test; what is lacking outweighs what was read */
static pid_t program;
static int *counts; /* [OUTCOMES], shared */

__attribute__((constructor)) static void start(void) {
    program = getpid();
    counts = mmap(NULL, OUTCOMES * sizeof *counts, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    MX_ASSERT(counts != MAP_FAILED);
}

__attribute__((destructor)) static void end(void) {
    if (outcome) __atomic_fetch_add(&counts[outcome], 1, __ATOMIC_RELAXED);
    if (getpid() == program && counts[RAN] + counts[MISSING])
        printf("golden: %d ran, %d lack theirs\n", counts[RAN], counts[MISSING]);
}

static void note(Outcome o) {
    if (outcome < o) outcome = o;
}

const char *goldens_dir(void) {
    return goldens_is_complete() ? getenv("MX_GOLDEN") : GOLDENS_HERE;
}

bool goldens_is_complete(void) {
    const char *dir = getenv("MX_GOLDEN");
    return dir && *dir;
}

/* The larger set lacks what the repository has made since. */
static char *path_of(MxArena *arena, const char *name) {
    const char *dirs[] = {goldens_dir(), GOLDENS_HERE};
    for (int i = 0; i < MX_COUNT(dirs); i++) {
        char *path = mx_path_join(arena, dirs[i], name);
        if (mx_file_exists(path) || mx_dir_exists(path)) return path;
    }
    return NULL;
}

bool goldens_have(MxArena *arena, const char *name) {
    return path_of(arena, name) != NULL;
}

char *goldens_find(MxArena *arena, const char *name) {
    char *path = path_of(arena, name);
    note(path ? RAN : MISSING);
    return path;
}

char *goldens_need(MxArena *arena, const char *name) {
    char *path = goldens_find(arena, name);
    ck_assert_msg(path != NULL, "no %s in %s", name, goldens_dir());
    return path;
}
