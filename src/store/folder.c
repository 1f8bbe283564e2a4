/* folder.c — names on disk: references to a group of a file, numbered folders, and what killed
 * processes left behind. */
#include <mx/store.h>

#include "folder.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

void mx_store_ref_parse(MxArena *arena, const char *ref, char **file, char **group) {
    static const char *const endings[] = {".h5", ".hdf5"};
    const char *cut = NULL;
    for (int i = 0; i < MX_COUNT(endings); i++) {
        const char *found = strstr(ref, i ? ".hdf5:" : ".h5:");
        if (found && (!cut || found < cut)) cut = found + strlen(endings[i]);
    }
    for (int i = 0; i < MX_COUNT(endings) && !cut; i++)
        if (mx_text_has_suffix(ref, endings[i])) cut = ref + strlen(ref);
    if (!cut) cut = strrchr(ref, ':');
    if (!cut) cut = ref + strlen(ref);
    *file = mx_arena_strndup(arena, ref, (size_t)(cut - ref));
    const char *start = *cut ? cut + 1 : cut;
    while (*start == '/') start++;
    size_t n = strlen(start);
    while (n && start[n - 1] == '/') n--;
    *group = mx_arena_strndup(arena, start, n);
}

bool store_is_folder(const char *path) {
    struct stat st;
    return !lstat(path, &st) && S_ISDIR(st.st_mode);
}

/* First out of the way under a name that the next sweep takes, so that half of it never looks like
 * a folder that was published. */
bool mx_store_remove(const char *dir, MxError *err) {
    MxArena scratch = {.name = "remove"};
    char *parent = mx_path_dir(&scratch, dir);
    const char *slash = strrchr(dir, '/');
    char *name = mx_arena_printf(&scratch, STORE_TEMP_PREFIX "old.%s.%ld", slash ? slash + 1 : dir,
                                 (long)getpid());
    char *away = mx_path_join(&scratch, parent, name);
    mx_failpoint("remove.before");
    bool renames = store_may_rename(parent), ok = true;
    if (renames && rename(dir, away)) {
        renames = !store_refuses_rename(errno);
        if (renames) ok = mx_fail_errno(err, "could not rename \"%s\" to \"%s\"", dir, away);
    }
    if (renames) mx_failpoint("remove.renamed");
    ok = ok && (renames ? mx_dir_remove(away, err) : store_remove_in_place(dir, err));
    mx_failpoint("remove.after");
    mx_arena_release(&scratch);
    return ok;
}

bool mx_store_mark(MxArena *arena, const char *parent, char **name, MxError *err) {
    *name = mx_arena_strdup(arena, STORE_TEMP_PREFIX "mark.XXXXXX");
    if (!mx_dir_make(parent, err)) return false;
    char *path = mx_path_join(arena, parent, *name);
    if (!mkdtemp(path)) return mx_fail_errno(err, "could not make a folder in \"%s\"", parent);
    memcpy(*name, path + strlen(path) - strlen(*name), strlen(*name));
    return true;
}

bool mx_store_sweep(const char *parent, MxError *err) {
    if (!mx_dir_exists(parent)) return true;
    MxArena scratch = {.name = "sweep"};
    char **names;
    int n;
    bool ok = mx_dir_list(&scratch, parent, &names, &n, err);
    for (int i = 0; ok && i < n; i++) {
        char *path = mx_path_join(&scratch, parent, names[i]);
        if (!store_is_folder(path)) continue;
        ok = mx_text_has_prefix(names[i], STORE_TEMP_PREFIX) ? mx_dir_remove(path, err)
                                                             : store_sweep_marked(path, err);
    }
    mx_arena_release(&scratch);
    return ok;
}

int64_t mx_store_free_bytes(const char *dir) {
    struct statvfs fs;
    if (statvfs(dir, &fs) || !fs.f_blocks) return -1;
    return (int64_t)fs.f_bfree *
           (int64_t)fs.f_frsize; /* with what is set aside for root: not less than there is */
}

static int by_number(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* The number that a name is, or -1. */
static int64_t step_of(const char *name) {
    enum { MAX_DIGITS = 18 };
    size_t digits = strspn(name, "0123456789");
    bool is_number = digits && !name[digits] && digits <= MAX_DIGITS && (*name != '0' || !name[1]);
    return is_number ? strtoll(name, NULL, 10) : -1;
}

/* Whether it is a folder; what cannot be looked at might be one. */
static bool look_for(const char *path, bool *is_folder, MxError *err) {
    struct stat st;
    bool is_there = !stat(path, &st);
    *is_folder = is_there && S_ISDIR(st.st_mode);
    return is_there || errno == ENOENT || errno == ENOTDIR || errno == ELOOP ||
           mx_fail_errno(err, "could not look at \"%s\"", path);
}

bool mx_store_steps(MxArena *arena, const char *parent, int64_t **steps, int *n, MxError *err) {
    bool is_folder;
    *steps = NULL;
    *n = 0;
    if (!look_for(parent, &is_folder, err)) return false;
    if (!is_folder) return true;
    char **names;
    int n_names;
    if (!mx_dir_list(arena, parent, &names, &n_names, err)) return false;
    *steps = mx_new_n(arena, int64_t, n_names ? n_names : 1);
    for (int i = 0; i < n_names; i++) {
        int64_t step = step_of(names[i]);
        char *path = mx_path_join(arena, parent, names[i]);
        bool is_unfinished = false;
        if (step < 0) continue;
        if (!look_for(path, &is_folder, err) ||
            (is_folder && !mx_store_is_unfinished(path, &is_unfinished, err)))
            return false;
        if (is_folder && !is_unfinished) (*steps)[(*n)++] = step;
    }
    qsort(*steps, (size_t)*n, sizeof **steps, by_number);
    return true;
}
