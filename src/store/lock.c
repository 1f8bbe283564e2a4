/* lock.c — the lock on a folder. It is the kernel's: it ends with the process. The file stays; what
 * it says is for the message alone. */
#include <mx/store.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

enum { MAX_HOLDER_BYTES = 256 };

typedef struct Lock {
    int fd;
} Lock;

static void unlock(void *lock) {
    close(((Lock *)lock)->fd);
}

/* Who has the lock, as its file says; "" = it does not. */
static void read_holder(int fd, char out[MAX_HOLDER_BYTES]) {
    ssize_t n = pread(fd, out, MAX_HOLDER_BYTES - 1, 0);
    out[n > 0 ? n : 0] = '\0';
    out[strcspn(out, "\n")] = '\0';
}

static void write_holder(int fd) {
    char host[128] = "", text[MAX_HOLDER_BYTES];
    gethostname(host, sizeof host - 1);
    int n = snprintf(text, sizeof text, "process %ld on %s\n", (long)getpid(), host);
    if (ftruncate(fd, 0) || pwrite(fd, text, (size_t)n, 0) < 0) return; /* only words are lost */
}

static bool fail_locked(int fd, const char *dir, MxError *err) {
    char holder[MAX_HOLDER_BYTES];
    read_holder(fd, holder);
    return mx_fail(err, MX_EXIT_LOCKED, MX_NOWHERE,
                   "\"%s\" is in use by %s; wait until it has ended, or choose another run_name",
                   dir, *holder ? holder : "another process");
}

/* Whoever looks whether there is a lock (mx_store_is_locked) has one for a moment: so several
 * tries, a while apart. */
static bool take(int fd, int kind) {
    enum { TRIES = 5 };
    const struct timespec a_while = {.tv_nsec = 20000000};
    for (int i = 0; i < TRIES; i++) {
        if (!flock(fd, kind | LOCK_NB)) return true;
        if (errno != EWOULDBLOCK && errno != EINTR) return false;
        nanosleep(&a_while, NULL);
    }
    errno = EWOULDBLOCK;
    return false;
}

bool mx_store_lock(MxArena *arena, const char *dir, MxError *err) {
    if (!mx_dir_make(dir, err)) return false;
    char *path = mx_path_join(arena, dir, "LOCK");
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0) return mx_fail_errno(err, "could not open \"%s\"", path);
    if (!take(fd, LOCK_EX)) {
        bool is_taken = errno == EWOULDBLOCK;
        if (is_taken)
            fail_locked(fd, dir, err);
        else
            mx_fail_errno(err, "could not lock \"%s\"", path);
        close(fd);
        return false;
    }
    write_holder(fd);
    Lock *lock = mx_new(arena, Lock);
    lock->fd = fd;
    mx_arena_on_release(arena, unlock, lock);
    return true;
}

bool mx_store_is_locked(MxArena *arena, const char *dir, const char **holder) {
    char text[MAX_HOLDER_BYTES] = "";
    int fd = open(mx_path_join(arena, dir, "LOCK"), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    bool is_locked = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) && errno == EWOULDBLOCK;
    if (is_locked) read_holder(fd, text);
    *holder = mx_arena_strdup(arena, text);
    if (fd >= 0) close(fd);
    return is_locked;
}
