/* lock.c — the lock on a folder. It is the kernel's: it ends with the process. The file stays; what
 * it says is for the message alone. */
#include <mx/store.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
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

bool mx_store_lock(MxArena *arena, const char *dir, MxError *err) {
    if (!mx_dir_make(dir, err)) return false;
    char *path = mx_path_join(arena, dir, "LOCK");
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0) return mx_fail_errno(err, "could not open \"%s\"", path);
    int failed;
    do failed = flock(fd, LOCK_EX | LOCK_NB);
    while (failed && errno == EINTR);
    if (failed) {
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
