/* faults.c — a library to be preloaded: counts the system calls that change files below a folder
 * and lets one of them fail. Set in the environment:
 *   MX_FAULT_UNDER  part of the path of the files that count
 *   MX_FAULT_CALL   number of the call that fails, from 1; 0 = none
 *   MX_FAULT_ERRNO  with what
 *   MX_FAULT_LOG    file that receives the number and name of the call that failed, or nothing when
 *                   there were not so many
 * A write that fails may have written the first half. Instead of one of them, what reads may fail:
 *   MX_FAULT_UNREAD part of the path of files that cannot be opened for reading, or, with "read:"
 *                   before it, that can, but not be read
 * Folders below MX_FAULT_UNDER may be as storage that is no disk has them:
 *   MX_FAULT_RENAME N: a rename of a folder fails with errno N; "copy": it copies file by file, the
 *                   manifest first, and removes what it copied afterwards
 *   MX_FAULT_COPIED of such copies, ends the process (SIGKILL) when so many files are there, the
 *                   last one by half
 *   MX_FAULT_FUSE   statfs says that the folder is one of a file system in user space */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

static atomic_long n_calls;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static bool is_below(const char *path) {
    const char *under = getenv("MX_FAULT_UNDER");
    return under && path && strstr(path, under);
}

static bool is_open_below(int fd) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n < 0) return false;
    path[n] = '\0';
    return is_below(path);
}

static void tell(const char *name) {
    const char *log = getenv("MX_FAULT_LOG");
    int fd = log ? REAL(open)(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666) : -1;
    if (fd < 0) return;
    char text[64];
    int n = snprintf(text, sizeof text, "%s\n", name);
    if (REAL(write)(fd, text, (size_t)n) != n) abort();
    REAL(close)(fd);
}

/* Whether this call, which counts, is the one that fails; sets errno. */
static bool fails(const char *name) {
    const char *call = getenv("MX_FAULT_CALL"), *code = getenv("MX_FAULT_ERRNO");
    if (atomic_fetch_add(&n_calls, 1) + 1 != (call ? strtol(call, NULL, 10) : 0)) return false;
    tell(name);
    errno = code ? (int)strtol(code, NULL, 10) : EIO;
    return true;
}

/* Whether files of that path fail when they are opened, or else when they are read; sets errno. */
static bool is_unreadable(const char *path, bool opens) {
    static const char reads[] = "read:";
    const char *part = getenv("MX_FAULT_UNREAD"), *code = getenv("MX_FAULT_ERRNO");
    bool is_for_reads = part && !strncmp(part, reads, strlen(reads));
    if (!part || is_for_reads == opens) return false;
    if (!opens) part += strlen(reads);
    if (!strstr(path, part)) return false;
    errno = code ? (int)strtol(code, NULL, 10) : EIO;
    return true;
}

/* ---- folders that are not renamed in one step */

static int n_copied;

static void copy_file(const char *from, const char *to) {
    const char *most = getenv("MX_FAULT_COPIED");
    bool is_last = ++n_copied == (most ? strtol(most, NULL, 10) : 0);
    struct stat st;
    int in = REAL(open)(from, O_RDONLY), out = REAL(open)(to, O_WRONLY | O_CREAT | O_EXCL, 0666);
    if (in < 0 || out < 0 || fstat(in, &st)) abort();
    off_t left = is_last ? st.st_size / 2 : st.st_size;
    char piece[4096];
    while (left > 0) {
        ssize_t n = read(in, piece, left < (off_t)sizeof piece ? (size_t)left : sizeof piece);
        if (n <= 0 || REAL(write)(out, piece, (size_t)n) != n) abort();
        left -= n;
    }
    if (is_last) raise(SIGKILL);
    REAL(close)(in);
    REAL(close)(out);
}

static int by_manifest(const struct dirent **a, const struct dirent **b) {
    bool x = !strcmp((*a)->d_name, "MANIFEST.json"), y = !strcmp((*b)->d_name, "MANIFEST.json");
    return x == y ? strcmp((*a)->d_name, (*b)->d_name) : y - x;
}

/* Of a folder with files alone. */
static int copy_folder(const char *from, const char *to) {
    struct dirent **names;
    char path[4096], other[4096];
    int n = scandir(from, &names, NULL, by_manifest);
    if (n < 0 || REAL(mkdir)(to, 0777)) return -1;
    for (int turn = 0; turn < 2; turn++)
        for (int i = 0; i < n; i++) {
            if (names[i]->d_type == DT_DIR) continue; /* itself and its parent */
            snprintf(path, sizeof path, "%s/%s", from, names[i]->d_name);
            snprintf(other, sizeof other, "%s/%s", to, names[i]->d_name);
            if (turn)
                REAL(unlink)(path);
            else
                copy_file(path, other);
        }
    for (int i = 0; i < n; i++) free(names[i]);
    free(names);
    return REAL(rmdir)(from);
}

/* Whether it was one of those; its result to *result. */
static bool moves_folder(const char *from, const char *to, int *result) {
    const char *how = getenv("MX_FAULT_RENAME");
    struct stat st;
    if (!how || !is_below(to) || lstat(from, &st) || !S_ISDIR(st.st_mode)) return false;
    bool copies = !strcmp(how, "copy");
    *result = copies ? copy_folder(from, to) : -1;
    if (!copies) errno = (int)strtol(how, NULL, 10);
    return true;
}

int statfs(const char *path, struct statfs *out) {
    int failed = REAL(statfs)(path, out);
    if (!failed && getenv("MX_FAULT_FUSE") && is_below(path)) out->f_type = 0x65735546;
    return failed;
}

/* ---- calls on files that are open */

ssize_t pread(int fd, void *data, size_t n, off_t at) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length > 0) path[length] = '\0';
    return length > 0 && is_unreadable(path, false) ? -1 : REAL(pread)(fd, data, n, at);
}

ssize_t pread64(int fd, void *data, size_t n, off64_t at) {
    return pread(fd, data, n, at);
}

ssize_t write(int fd, const void *data, size_t n) {
    if (!is_open_below(fd) || !fails("write")) return REAL(write)(fd, data, n);
    int code = errno;
    if (REAL(write)(fd, data, n / 2) < 0) return -1;
    errno = code;
    return -1;
}

ssize_t pwrite(int fd, const void *data, size_t n, off_t at) {
    if (!is_open_below(fd) || !fails("pwrite")) return REAL(pwrite)(fd, data, n, at);
    int code = errno;
    if (REAL(pwrite)(fd, data, n / 2, at) < 0) return -1;
    errno = code;
    return -1;
}

ssize_t pwrite64(int fd, const void *data, size_t n, off64_t at) {
    return pwrite(fd, data, n, at);
}

int fsync(int fd) {
    return is_open_below(fd) && fails("fsync") ? -1 : REAL(fsync)(fd);
}

int ftruncate(int fd, off_t size) {
    return is_open_below(fd) && fails("ftruncate") ? -1 : REAL(ftruncate)(fd, size);
}

int ftruncate64(int fd, off64_t size) {
    return ftruncate(fd, size);
}

/* Of what was written: only there does a failure mean something. */
int close(int fd) {
    int flags = fcntl(fd, F_GETFL);
    bool counts = flags >= 0 && (flags & O_ACCMODE) != O_RDONLY && is_open_below(fd);
    int failed = REAL(close)(fd);
    return counts && fails("close") ? -1 : failed;
}

/* ---- calls by name */

int open(const char *path, int flags, ...) {
    va_list ap;
    va_start(ap, flags);
    mode_t mode = flags & O_CREAT ? va_arg(ap, mode_t) : 0;
    va_end(ap);
    if (!(flags & O_CREAT) && is_unreadable(path, true)) return -1;
    return flags & O_CREAT && is_below(path) && fails("open") ? -1 : REAL(open)(path, flags, mode);
}

int open64(const char *path, int flags, ...) {
    va_list ap;
    va_start(ap, flags);
    mode_t mode = flags & O_CREAT ? va_arg(ap, mode_t) : 0;
    va_end(ap);
    return open(path, flags, mode);
}

int mkdir(const char *path, mode_t mode) {
    return is_below(path) && fails("mkdir") ? -1 : REAL(mkdir)(path, mode);
}

int rename(const char *from, const char *to) {
    int moved;
    if (moves_folder(from, to, &moved)) return moved;
    return is_below(to) && fails("rename") ? -1 : REAL(rename)(from, to);
}

int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags) {
    int moved;
    if (moves_folder(from, to, &moved)) return moved;
    return is_below(to) && fails("renameat2") ? -1
                                              : REAL(renameat2)(from_dir, from, to_dir, to, flags);
}

int unlink(const char *path) {
    return is_below(path) && fails("unlink") ? -1 : REAL(unlink)(path);
}

int rmdir(const char *path) {
    return is_below(path) && fails("rmdir") ? -1 : REAL(rmdir)(path);
}
