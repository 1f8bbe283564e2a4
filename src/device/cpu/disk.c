/* disk.c — memory backed by a file: the system pages it in and out as it is used, so there may be
 * more of it than the machine has. */
#include "cpu.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

/* A new file, which ends with whoever has it open, however that ends. */
static int open_nameless(const char *folder, MxError *err) {
    MxArena arena = {.name = "file"};
    char *path = mx_arena_printf(&arena, "%s/mxtrain_XXXXXX", folder);
    int fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0)
        mx_fail_errno(err, "could not create a file in \"%s\"", folder);
    else
        unlink(path);
    mx_arena_release(&arena);
    return fd;
}

/* Takes the room, so that no page fails later for want of it. */
static bool take_room(int fd, const char *folder, size_t bytes, MxError *err) {
    struct statfs system;
    int failed = EINTR;
    if (!fstatfs(fd, &system) && system.f_type == TMPFS_MAGIC)
        mx_warn("\"%s\" is in memory itself (tmpfs): what is kept there takes memory", folder);
    while (failed == EINTR) failed = posix_fallocate(fd, 0, (off_t)bytes);
    errno = failed;
    return !failed ||
           mx_fail_errno(err, "could not get %zu KiB of room in \"%s\"", bytes >> 10, folder);
}

bool cpu_disk_map(const char *folder, size_t bytes, void **out, MxError *err) {
    int fd = open_nameless(folder, err);
    if (fd < 0) return false;
    bool ok = take_room(fd, folder, bytes, err);
    *out = ok ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (ok && *out == MAP_FAILED)
        mx_fail_errno(err, "could not map %zu KiB of a file in \"%s\"", bytes >> 10, folder);
    close(fd); /* the mapping keeps it */
    return *out != MAP_FAILED;
}
