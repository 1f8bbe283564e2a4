/* record.c — a library to be preloaded: writes down, in order, every system call that changes what
 * is below a folder, with its data, and every sync. tests/fault/power.c makes of it what a disk may
 * hold after the power was lost. Set in the environment:
 *   MX_RECORD_UNDER  part of the paths that count; names in the record are what stands behind it
 *   MX_RECORD_LOG    the record, to which is added
 * What stdio writes is not seen: it calls the system by itself. */
#include "record.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* Calls and what is written of them come in one order. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* What stands behind the part of the path that counts; NULL = it does not count. */
static const char *name_of(const char *path) {
    const char *under = getenv("MX_RECORD_UNDER"), *at = under && path ? strstr(path, under) : NULL;
    return at ? at + strlen(under) : NULL;
}

static const char *name_of_fd(int fd, char path[4096]) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, 4095);
    if (n < 0) return NULL;
    path[n] = '\0';
    return name_of(path);
}

static void put(int fd, const void *data, size_t n) {
    if (REAL(write)(fd, data, n) != (ssize_t)n) abort();
}

static void note(RecordKind kind, const char *name, const char *to, off_t at, const void *data,
                 size_t n) {
    int before = errno,
        fd = REAL(open)(getenv("MX_RECORD_LOG"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0) abort();
    RecordHead head = {kind, (uint32_t)strlen(name), (uint32_t)strlen(to), at, n};
    put(fd, &head, sizeof head);
    put(fd, name, head.name);
    put(fd, to, head.to);
    put(fd, data, data ? n : 0);
    REAL(close)(fd);
    errno = before;
}

/* ---- calls on files that are open */

ssize_t write(int fd, const void *data, size_t n) {
    char path[4096];
    const char *name = name_of_fd(fd, path);
    if (!name) return REAL(write)(fd, data, n);
    pthread_mutex_lock(&lock);
    ssize_t done = REAL(write)(fd, data, n);
    if (done > 0) note(RECORD_WRITE, name, "", lseek(fd, 0, SEEK_CUR) - done, data, (size_t)done);
    pthread_mutex_unlock(&lock);
    return done;
}

ssize_t pwrite(int fd, const void *data, size_t n, off_t at) {
    char path[4096];
    const char *name = name_of_fd(fd, path);
    if (!name) return REAL(pwrite)(fd, data, n, at);
    pthread_mutex_lock(&lock);
    ssize_t done = REAL(pwrite)(fd, data, n, at);
    if (done > 0) note(RECORD_WRITE, name, "", at, data, (size_t)done);
    pthread_mutex_unlock(&lock);
    return done;
}

ssize_t pwrite64(int fd, const void *data, size_t n, off64_t at) {
    return pwrite(fd, data, n, at);
}

int ftruncate(int fd, off_t size) {
    char path[4096];
    const char *name = name_of_fd(fd, path);
    if (!name) return REAL(ftruncate)(fd, size);
    pthread_mutex_lock(&lock);
    int failed = REAL(ftruncate)(fd, size);
    if (!failed) note(RECORD_SIZE, name, "", size, NULL, 0);
    pthread_mutex_unlock(&lock);
    return failed;
}

int ftruncate64(int fd, off64_t size) {
    return ftruncate(fd, size);
}

/* The call itself is left out: what it promises is judged by the record. */
int fsync(int fd) {
    char path[4096];
    const char *name = name_of_fd(fd, path);
    if (!name) return REAL(fsync)(fd);
    pthread_mutex_lock(&lock);
    note(RECORD_SYNC, name, "", 0, NULL, 0);
    pthread_mutex_unlock(&lock);
    return 0;
}

int fdatasync(int fd) {
    return fsync(fd);
}

/* ---- calls by name */

int open(const char *path, int flags, ...) {
    va_list ap;
    va_start(ap, flags);
    mode_t mode = flags & O_CREAT ? va_arg(ap, mode_t) : 0;
    va_end(ap);
    const char *name = flags & O_CREAT ? name_of(path) : NULL;
    if (!name) return REAL(open)(path, flags, mode);
    struct stat st;
    pthread_mutex_lock(&lock);
    bool is_new = stat(path, &st) != 0;
    int fd = REAL(open)(path, flags, mode);
    if (fd >= 0 && is_new) note(RECORD_FILE, name, "", 0, NULL, 0);
    if (fd >= 0 && !is_new && flags & O_TRUNC) note(RECORD_SIZE, name, "", 0, NULL, 0);
    pthread_mutex_unlock(&lock);
    return fd;
}

int open64(const char *path, int flags, ...) {
    va_list ap;
    va_start(ap, flags);
    mode_t mode = flags & O_CREAT ? va_arg(ap, mode_t) : 0;
    va_end(ap);
    return open(path, flags, mode);
}

int mkdir(const char *path, mode_t mode) {
    pthread_mutex_lock(&lock);
    int failed = REAL(mkdir)(path, mode);
    if (!failed && name_of(path)) note(RECORD_FOLDER, name_of(path), "", 0, NULL, 0);
    pthread_mutex_unlock(&lock);
    return failed;
}

static int renamed(int failed, const char *from, const char *to) {
    if (!failed && name_of(to)) note(RECORD_RENAME, name_of(from), name_of(to), 0, NULL, 0);
    pthread_mutex_unlock(&lock);
    return failed;
}

int rename(const char *from, const char *to) {
    pthread_mutex_lock(&lock);
    return renamed(REAL(rename)(from, to), from, to);
}

int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags) {
    pthread_mutex_lock(&lock);
    return renamed(REAL(renameat2)(from_dir, from, to_dir, to, flags), from, to);
}

static int removed(int failed, const char *path) {
    if (!failed && name_of(path)) note(RECORD_REMOVE, name_of(path), "", 0, NULL, 0);
    pthread_mutex_unlock(&lock);
    return failed;
}

int unlink(const char *path) {
    pthread_mutex_lock(&lock);
    return removed(REAL(unlink)(path), path);
}

int rmdir(const char *path) {
    pthread_mutex_lock(&lock);
    return removed(REAL(rmdir)(path), path);
}
