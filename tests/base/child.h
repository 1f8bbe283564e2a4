/* child.h — runs a function in a process of its own and tells how it ended and what it printed; for
 * what aborts, exits or prints. Used by the tests of several rooms. */
#ifndef TESTS_CHILD_H
#define TESTS_CHILD_H

#include <check.h>
#include <mx/base.h>

#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct Child {
    int status; /* of waitpid */
    char *out, *err;
} Child;

static inline char *child_printed(MxArena *a, int fd) {
    size_t n = (size_t)lseek(fd, 0, SEEK_END);
    char *text = mx_arena_alloc(a, n + 1);
    ck_assert_int_eq(pread(fd, text, n, 0), (ssize_t)n);
    close(fd);
    return text;
}

/* The function's process exits with 0 when it returns. */
static inline Child run_child(MxArena *a, void (*fn)(const void *), const void *data) {
    int out = memfd_create("stdout", 0), errors = memfd_create("stderr", 0);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (!pid) {
        dup2(out, STDOUT_FILENO);
        dup2(errors, STDERR_FILENO);
        fn(data);
        fflush(NULL);
        _exit(0);
    }
    Child child = {0};
    ck_assert_int_eq(waitpid(pid, &child.status, 0), pid);
    child.out = child_printed(a, out);
    child.err = child_printed(a, errors);
    return child;
}

/* The function breaks the assertion of that text, in that file. */
static inline void ck_aborts(void (*fn)(const void *), const void *data, const char *file,
                             const char *assertion) {
    MxArena a = {.name = "child"};
    Child child = run_child(&a, fn, data);
    const char *want = mx_arena_printf(&a, ": bug: \"%s\" does not hold\n", assertion);
    bool ok = WIFSIGNALED(child.status) && WTERMSIG(child.status) == SIGABRT &&
              mx_text_has_prefix(child.err, file) && strstr(child.err, want);
    ck_assert_msg(ok, "wait status %#x, wanted \"%s\" of %s to fail: %s", (unsigned)child.status,
                  assertion, file, child.err);
    mx_arena_release(&a);
}

#endif
