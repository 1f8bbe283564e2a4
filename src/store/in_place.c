/* in_place.c — folders on storage that does not rename a folder in one step, such as S3 mounted as
 * files. There a folder is filled under its final name, and the manifest alone makes it complete. A
 * mark in it says that it is being filled: it is put there first and taken away last, so that what
 * a crash leaves is either complete or known to be nothing. */
#include <mx/store.h>

#include "folder.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

static char *mark_of(MxArena *arena, const char *dir) {
    return mx_path_join(arena, dir, STORE_MARK);
}

/* Renames of a file system in user space (s3fs, goofys, gcsfuse, rclone) may copy file by file,
 * and do not say so. */
bool store_may_rename(const char *parent) {
    const unsigned long fuse = 0x65735546; /* FUSE_SUPER_MAGIC */
    struct statfs fs;
    return statfs(parent, &fs) || (unsigned long)fs.f_type != fuse;
}

bool store_refuses_rename(int error) {
    return error == EXDEV || error == EOPNOTSUPP || error == ENOSYS || error == EPERM;
}

bool store_mark(const char *dir, MxError *err) {
    MxArena scratch = {.name = "mark"};
    char *mark = mark_of(&scratch, dir);
    int fd = open(mark, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    bool ok = fd >= 0 && !fsync(fd);
    if (fd >= 0 && close(fd)) ok = false;
    ok = (ok || mx_fail_errno(err, "could not create \"%s\"", mark)) && mx_path_sync(dir, err);
    mx_arena_release(&scratch);
    return ok;
}

bool store_unmark(const char *dir, MxError *err) {
    MxArena scratch = {.name = "mark"};
    char *mark = mark_of(&scratch, dir);
    bool ok = !unlink(mark) || mx_fail_errno(err, "could not remove \"%s\"", mark);
    mx_arena_release(&scratch);
    return ok && mx_path_sync(dir, err);
}

bool store_is_marked(const char *dir) {
    MxArena scratch = {.name = "mark"};
    struct stat st;
    bool is_marked = !lstat(mark_of(&scratch, dir), &st);
    mx_arena_release(&scratch);
    return is_marked;
}

bool mx_store_is_unfinished(const char *dir, bool *is_unfinished, MxError *err) {
    *is_unfinished = store_is_marked(dir);
    if (!*is_unfinished) return true;
    MxArena scratch = {.name = "manifest"};
    MxError why = {0};
    MxJson *manifest;
    bool holds = mx_store_manifest(&scratch, dir, &manifest, &why);
    bool ok = holds || why.exit == MX_EXIT_BAD_INPUT ||
              mx_fail(err, why.exit, MX_NOWHERE, "%s", why.text.data);
    *is_unfinished = !holds;
    mx_error_release(&why);
    mx_arena_release(&scratch);
    return ok;
}

bool store_sweep_marked(const char *dir, MxError *err) {
    bool is_unfinished;
    if (!store_is_folder(dir) || !store_is_marked(dir)) return true;
    return mx_store_is_unfinished(dir, &is_unfinished, err) &&
           (is_unfinished ? store_remove_in_place(dir, err) : store_unmark(dir, err));
}

/* Without its manifest and with a mark it is nothing; then the rest goes, the mark last. */
bool store_remove_in_place(const char *dir, MxError *err) {
    MxArena scratch = {.name = "remove"};
    char **names, *manifest = mx_path_join(&scratch, dir, STORE_MANIFEST);
    int n = 0;
    bool ok = store_mark(dir, err);
    if (ok && unlink(manifest) && errno != ENOENT)
        ok = mx_fail_errno(err, "could not remove \"%s\"", manifest);
    mx_failpoint("remove.renamed");
    ok = ok && mx_dir_list(&scratch, dir, &names, &n, err);
    for (int i = 0; ok && i < n; i++) {
        char *path = mx_path_join(&scratch, dir, names[i]);
        if (!strcmp(names[i], STORE_MARK)) continue;
        ok = store_is_folder(path)
                 ? mx_dir_remove(path, err)
                 : !unlink(path) || mx_fail_errno(err, "could not remove \"%s\"", path);
    }
    ok = ok && mx_dir_remove(dir, err);
    mx_arena_release(&scratch);
    return ok;
}
