/* file.c — reading and replacing whole files, and folders. After a crash at any time a replaced
 * file is either the old or the new one: temporary file, fsync, rename, fsync of the folder. Only
 * regular files are replaced; links are kept. */
#include <mx/base.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static bool read_all(int fd, MxBytes *out, const char *path, MxError *err) {
    size_t got = 0;
    while (got < out->size) {
        ssize_t n = read(fd, out->data + got, out->size - got);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return mx_fail_errno(err, "could not read \"%s\"", path);
        if (n == 0) break;
        got += (size_t)n;
    }
    out->size = got;
    return true;
}

bool mx_file_read(MxArena *arena, const char *path, size_t max_bytes, MxBytes *out, MxError *err) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe is not waited for */
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE, "no such file: \"%s\"", path);
    if (fd < 0) return mx_fail_errno(err, "could not open \"%s\"", path);
    struct stat st;
    bool ok = true;
    if (fstat(fd, &st))
        ok = mx_fail_errno(err, "could not read \"%s\"", path);
    else if (!S_ISREG(st.st_mode))
        ok = mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE, "\"%s\" is not a regular file", path);
    else if ((size_t)st.st_size > max_bytes)
        ok = mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE, "\"%s\" has %lld bytes; the limit is %zu",
                     path, (long long)st.st_size, max_bytes);
    if (ok) {
        out->size = (size_t)st.st_size;
        out->data = mx_arena_alloc(arena, out->size + 1);
        ok = read_all(fd, out, path, err);
    }
    close(fd);
    return ok;
}

static bool write_all(int fd, const char *data, size_t size) {
    while (size) {
        ssize_t n = write(fd, data, size);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return false;
        data += n;
        size -= (size_t)n;
    }
    return true;
}

/* What is not a regular file (a terminal, a device, a pipe) gets what is written; nothing takes its
 * place. */
static bool write_into(const char *path, const void *data, size_t size, MxError *err) {
    int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0) return mx_fail_errno(err, "could not open \"%s\"", path);
    bool ok = write_all(fd, data, size) || mx_fail_errno(err, "could not write \"%s\"", path);
    if (close(fd) && ok) ok = mx_fail_errno(err, "could not close \"%s\"", path);
    return ok;
}

/* A regular file, or where there is none yet. */
static bool replace(MxArena *arena, const char *path, const void *data, size_t size, MxError *err) {
    char *temp = mx_arena_printf(arena, "%s.tmp.%ld", path, (long)getpid());
    int fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) return mx_fail_errno(err, "could not create \"%s\"", temp);
    bool ok = true;
    if (!write_all(fd, data, size) || fsync(fd))
        ok = mx_fail_errno(err, "could not write \"%s\"", temp);
    if (close(fd) && ok) ok = mx_fail_errno(err, "could not close \"%s\"", temp);
    if (ok && rename(temp, path))
        ok = mx_fail_errno(err, "could not rename \"%s\" to \"%s\"", temp, path);
    if (!ok) unlink(temp);
    return ok && mx_path_sync(mx_path_dir(arena, path), err);
}

/* The file that a path means, through symbolic links, of which the last may lead nowhere yet. */
static bool follow_links(MxArena *arena, const char **path, MxError *err) {
    enum { MOST = 40 }; /* as the system's own */
    for (int i = 0; i < MOST; i++) {
        char target[PATH_MAX];
        ssize_t n = readlink(*path, target, sizeof target - 1);
        if (n < 0) return true;
        target[n] = '\0';
        *path = mx_path_join(arena, mx_path_dir(arena, *path), target);
    }
    errno = ELOOP;
    return mx_fail_errno(err, "could not open \"%s\"", *path);
}

bool mx_file_write(const char *path, const void *data, size_t size, MxError *err) {
    MxArena arena = {.name = "file"};
    struct stat st;
    bool ok = follow_links(&arena, &path, err);
    bool is_special = ok && !stat(path, &st) && !S_ISREG(st.st_mode);
    ok = ok &&
         (is_special ? write_into(path, data, size, err) : replace(&arena, path, data, size, err));
    mx_arena_release(&arena);
    return ok;
}

bool mx_file_exists(const char *path) {
    struct stat st;
    return !stat(path, &st) && S_ISREG(st.st_mode);
}

bool mx_dir_exists(const char *path) {
    struct stat st;
    return !stat(path, &st) && S_ISDIR(st.st_mode);
}

/* One folder; a new one is on the disk before anything in it is, else a loss of power might take it
 * away with all that was synced below it. */
static bool make_folder(MxArena *arena, const char *path, MxError *err) {
    if (!mkdir(path, 0777)) return mx_path_sync(mx_path_dir(arena, path), err);
    return errno == EEXIST || mx_fail_errno(err, "could not create folder \"%s\"", path);
}

bool mx_dir_make(const char *path, MxError *err) {
    MxArena arena = {.name = "path"};
    char *part = mx_arena_strdup(&arena, path);
    bool ok = true;
    for (char *p = part + 1; ok; p++) {
        if (*p && *p != '/') continue;
        char end = *p;
        *p = '\0';
        ok = make_folder(&arena, part, err);
        if (ok && !end && !mx_dir_exists(part)) {
            errno = ENOTDIR;
            ok = mx_fail_errno(err, "could not create folder \"%s\"", part);
        }
        *p = end;
        if (!end) break;
    }
    mx_arena_release(&arena);
    return ok;
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

bool mx_dir_list(MxArena *arena, const char *path, char ***names, int *n, MxError *err) {
    DIR *dir = opendir(path);
    if (!dir) return mx_fail_errno(err, "could not list folder \"%s\"", path);
    int cap = 16, count = 0;
    char **list = mx_new_n(arena, char *, cap);
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        if (count == cap)
            list = mx_arena_grow(arena, list, (size_t)count, (size_t)(cap *= 2), sizeof *list);
        list[count++] = mx_arena_strdup(arena, entry->d_name);
    }
    closedir(dir);
    qsort(list, (size_t)count, sizeof *list, by_name);
    *names = list;
    *n = count;
    return true;
}

bool mx_dir_remove(const char *path, MxError *err) {
    struct stat self;
    if (lstat(path, &self)) return mx_fail_errno(err, "could not look at \"%s\"", path);
    if (!S_ISDIR(self.st_mode)) /* never through a link */
        return mx_fail(err, MX_EXIT_IO, MX_NOWHERE, "\"%s\" is not a folder", path);
    MxArena arena = {.name = "path"};
    char **names;
    int n;
    bool ok = mx_dir_list(&arena, path, &names, &n, err);
    for (int i = 0; ok && i < n; i++) {
        char *child = mx_path_join(&arena, path, names[i]);
        struct stat st;
        if (lstat(child, &st))
            ok = mx_fail_errno(err, "could not look at \"%s\"", child);
        else if (S_ISDIR(st.st_mode))
            ok = mx_dir_remove(child, err);
        else if (unlink(child))
            ok = mx_fail_errno(err, "could not remove \"%s\"", child);
    }
    if (ok && rmdir(path)) ok = mx_fail_errno(err, "could not remove folder \"%s\"", path);
    mx_arena_release(&arena);
    return ok;
}

bool mx_path_sync(const char *path, MxError *err) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return mx_fail_errno(err, "could not open \"%s\"", path);
    bool ok = !fsync(fd) || mx_fail_errno(err, "could not sync \"%s\"", path);
    close(fd);
    return ok;
}

char *mx_path_join(MxArena *arena, const char *dir, const char *name) {
    if (!*dir || *name == '/') return mx_arena_strdup(arena, name);
    return mx_arena_printf(arena, "%s%s%s", dir, mx_text_has_suffix(dir, "/") ? "" : "/", name);
}

char *mx_share_dir(MxArena *arena) {
    static const char share[] = "share/mxtrain";
    char *program = mx_arena_alloc(arena, PATH_MAX);
    if (readlink("/proc/self/exe", program, PATH_MAX - 1) < 0) return mx_arena_strdup(arena, share);
    for (char *folder = mx_path_dir(arena, program); strlen(folder) > 1;) {
        folder = mx_path_dir(arena, folder);
        char *path = mx_path_join(arena, folder, share);
        if (mx_dir_exists(path)) return path;
    }
    return mx_arena_strdup(arena, share);
}

char *mx_path_dir(MxArena *arena, const char *path) {
    const char *slash = strrchr(path, '/');
    if (!slash) return mx_arena_strdup(arena, ".");
    return mx_arena_strndup(arena, path, slash == path ? 1 : (size_t)(slash - path));
}
