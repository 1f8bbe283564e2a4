/* publish.c — folders that appear under their final name complete or not at all. The caller fills a
 * temporary folder beside the final place; a commit syncs every file, writes MANIFEST.json with
 * size and hashes of each (seal.c), syncs, renames, and syncs the parent. The manifest's last
 * member is the hash of all the text before it, so a change of any bit in the folder is found by
 * mx_store_verify. Where folders cannot be renamed the caller fills the final place (in_place.c).
 */
#include <mx/store.h>

#include "folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_FILES = 1 << 20 };

struct MxPublish {
    MxArena *arena;
    char *final_path, *parent, *temp;
    MxJson *manifest;
    MxJson *sealed;   /* entries of files that were sealed where they were written */
    bool is_in_place; /* temp is final_path */
    bool is_done;     /* committed or aborted */
};

static void abort_on_release(void *publish) {
    mx_store_publish_abort(publish);
}

/* The folder to fill: beside the final place if an empty folder can be renamed there, else that
 * place itself. */
static bool make_folder(MxPublish *publish, MxError *err) {
    char *trial = mx_arena_printf(publish->arena, "%s.new", publish->temp);
    bool renames = store_may_rename(publish->parent);
    if (renames && mkdir(trial, 0777) && errno != EEXIST)
        return mx_fail_errno(err, "could not create folder \"%s\"", trial);
    if (renames && !rename(trial, publish->temp)) return true;
    if (renames && !store_refuses_rename(errno))
        return mx_fail_errno(err, "could not rename \"%s\" to \"%s\"", trial, publish->temp);
    if (renames) rmdir(trial);
    publish->is_in_place = true;
    publish->temp = publish->final_path;
    if (mkdir(publish->temp, 0777))
        return mx_fail_errno(err, "could not create folder \"%s\"", publish->temp);
    if (store_mark(publish->temp, err)) return true;
    MxError ignored = {0}; /* without a mark no sweep would take it */
    mx_dir_remove(publish->temp, &ignored);
    mx_error_release(&ignored);
    return false;
}

bool mx_store_publish_begin(MxArena *arena, const char *final_path, MxPublish **out, MxError *err) {
    MxPublish *publish = mx_new(arena, MxPublish);
    size_t n = strlen(final_path);
    while (n > 1 && final_path[n - 1] == '/') n--;
    char *path = mx_arena_strndup(arena, final_path, n);
    const char *slash = strrchr(path, '/');
    char *name = mx_arena_printf(arena, STORE_TEMP_PREFIX "%s.%ld", slash ? slash + 1 : path,
                                 (long)getpid());
    *publish = (MxPublish){.arena = arena, .final_path = path, .parent = mx_path_dir(arena, path)};
    publish->temp = mx_path_join(arena, publish->parent, name);
    publish->manifest = mx_json_object(arena);
    publish->sealed = mx_json_object(arena);
    mx_json_set_int(publish->manifest, "format", STORE_FORMAT);
    struct stat st;
    if (!store_sweep_marked(path, err)) return false;
    if (!lstat(path, &st))
        return mx_fail(err, MX_EXIT_CANNOT_CREATE, MX_NOWHERE, "\"%s\" exists already", path);
    if (!mx_dir_make(publish->parent, err)) return false;
    if (store_is_folder(publish->temp) && !mx_dir_remove(publish->temp, err)) return false;
    if (!make_folder(publish, err)) return false;
    mx_arena_on_release(arena, abort_on_release, publish);
    *out = publish;
    mx_failpoint("save.folder_made");
    return true;
}

const char *mx_store_publish_dir(const MxPublish *publish) {
    return publish->temp;
}

bool mx_store_publish_is_in_place(const MxPublish *publish) {
    return publish->is_in_place;
}

MxJson *mx_store_publish_manifest(MxPublish *publish) {
    return publish->manifest;
}

void mx_store_publish_sealed(MxPublish *publish, const MxJson *entries) {
    const char *name;
    MxJson *entry;
    for (size_t i = 0; mx_json_member(entries, i, &name, &entry); i++)
        mx_json_set(publish->sealed, name, entry);
}

void mx_store_publish_abort(MxPublish *publish) {
    if (publish->is_done) return;
    publish->is_done = true;
    MxError ignored = {0};      /* what cannot be removed now is swept later */
    if (publish->is_in_place) { /* without a mark a child process has committed it */
        if (store_is_marked(publish->temp)) store_remove_in_place(publish->temp, &ignored);
    } else
        mx_dir_remove(publish->temp, &ignored);
    mx_error_release(&ignored);
}

/* ---- commit ---- */

/* Paths, relative to the folder, of what it holds; folders are visited in turn, not recursively. */
typedef struct FileList {
    MxArena arena;
    char **paths;
    int n, cap;
} FileList;

static bool list_into(FileList *list, const char *dir, const char *below, MxError *err) {
    char **names;
    int n;
    if (!mx_dir_list(&list->arena, mx_path_join(&list->arena, dir, below), &names, &n, err))
        return false;
    if (list->n + n > MAX_FILES)
        return mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE, "\"%s\" holds more than %d files", dir,
                       MAX_FILES);
    if (list->n + n > list->cap) {
        list->cap = 2 * (list->n + n);
        list->paths = mx_arena_grow(&list->arena, list->paths, (size_t)list->n, (size_t)list->cap,
                                    sizeof *list->paths);
    }
    for (int i = 0; i < n; i++)
        if (strcmp(names[i], STORE_MARK))
            list->paths[list->n++] = mx_path_join(&list->arena, below, names[i]);
    return true;
}

/* A file that was sealed where it was written has its entry; now it is here, and as long. */
static bool check_sealed(const char *path, const struct stat *st, const MxJson *entry,
                         MxError *err) {
    int64_t bytes = -1;
    mx_json_int(mx_json_get(entry, "bytes"), &bytes);
    return (S_ISREG(st->st_mode) && bytes == st->st_size) ||
           mx_fail(err, MX_EXIT_IO, (MxWhere){.file = path}, "has %lld bytes, %lld were written",
                   (long long)st->st_size, (long long)bytes);
}

static bool check_present(const MxPublish *publish, const FileList *list, const MxJson *files,
                          MxError *err) {
    const char *name;
    MxJson *entry;
    for (size_t k = 0; mx_json_member(files, k, &name, &entry); k++) {
        int i = 0;
        while (i < list->n && strcmp(list->paths[i], name)) i++;
        if (i == list->n)
            return mx_fail(err, MX_EXIT_IO, MX_NOWHERE,
                           "\"%s/%s\", which another rank wrote, is not to be seen from here; is "
                           "the folder on a disk that all ranks share?",
                           publish->temp, name);
    }
    return true;
}

/* Syncs every file and folder below the temporary folder and enters the files in the manifest. */
static bool seal_files(MxPublish *publish, MxJson *files, MxError *err) {
    FileList list = {.arena = {.name = "publish"}};
    bool ok = list_into(&list, publish->temp, "", err);
    for (int i = 0; ok && i < list.n; i++) {
        char *path = mx_path_join(&list.arena, publish->temp, list.paths[i]);
        const MxJson *sealed = mx_json_get(files, list.paths[i]);
        struct stat st;
        if (lstat(path, &st))
            ok = mx_fail_errno(err, "could not look at \"%s\"", path);
        else if (S_ISDIR(st.st_mode))
            ok = list_into(&list, publish->temp, list.paths[i], err) && mx_path_sync(path, err);
        else if (sealed)
            ok = check_sealed(path, &st, sealed, err);
        else
            ok = mx_store_seal(path, NULL, mx_json_put_object(files, list.paths[i]), err);
    }
    ok = ok && check_present(publish, &list, files, err);
    mx_arena_release(&list.arena);
    return ok;
}

/* ---- what a folder holds besides */

/* Whether the files of a manifest have a file of that path, or one below it. */
static bool is_listed(const MxJson *files, const char *path) {
    const char *name;
    MxJson *entry;
    size_t n = strlen(path);
    for (size_t i = 0; mx_json_member(files, i, &name, &entry); i++)
        if (!strncmp(name, path, n) && (!name[n] || name[n] == '/')) return true;
    return false;
}

bool mx_store_only_listed(const char *dir, MxError *err) {
    FileList list = {.arena = {.name = "listed"}};
    MxError why = {0};
    MxJson *manifest;
    const char *first = NULL;
    int n = 0;
    bool ok = mx_store_manifest(&list.arena, dir, &manifest, &why);
    if (!ok)
        mx_fail(err, MX_EXIT_CANNOT_CREATE, MX_NOWHERE,
                "\"%s\" has no manifest of mxtrain's to tell what is in it (%s)", dir,
                why.text.data);
    mx_error_release(&why);
    ok = ok && list_into(&list, dir, "", err);
    for (int i = 0; ok && i < list.n; i++) {
        if (store_is_folder(mx_path_join(&list.arena, dir, list.paths[i])))
            ok = list_into(&list, dir, list.paths[i], err);
        if (!strcmp(list.paths[i], STORE_MANIFEST) ||
            is_listed(mx_json_get(manifest, "files"), list.paths[i]))
            continue;
        if (!n++) first = list.paths[i];
    }
    if (ok && n)
        ok = mx_fail(err, MX_EXIT_CANNOT_CREATE, MX_NOWHERE,
                     "\"%s\" holds \"%s\"%s, which its %s does not list", dir, first,
                     n > 1 ? mx_arena_printf(&list.arena, " and %d more", n - 1) : "",
                     STORE_MANIFEST);
    mx_arena_release(&list.arena);
    return ok;
}

/* ---- the manifest */

static bool write_manifest(MxPublish *publish, MxError *err) {
    MxArena scratch = {.name = "manifest"};
    MxText text;
    mx_text_init(&text, &scratch);
    const char *json = mx_json_dump(&scratch, publish->manifest, true);
    size_t n = strlen(json);
    MX_ASSERT(n > 2 && !strcmp(json + n - 2, "\n}"));
    mx_text_addn(&text, json, n - 2);
    mx_text_addn(&text, ",\n", 2);
    const char *seal = store_seal_line(&scratch, mx_hash64(text.data, text.len));
    mx_text_addn(&text, seal, strlen(seal));
    char *path = mx_path_join(&scratch, publish->temp, STORE_MANIFEST);
    bool ok = mx_file_write(path, text.data, text.len, err);
    mx_arena_release(&scratch);
    return ok;
}

/* Renames unless the target exists. File systems without RENAME_NOREPLACE get a check and a plain
 * rename, which for folders fails on any target that is not empty. */
static bool rename_new(const char *from, const char *to, MxError *err) {
    int failed = renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE);
    if (failed && (errno == EINVAL || errno == ENOSYS)) {
        struct stat st;
        failed = !lstat(to, &st);
        errno = EEXIST;
        if (!failed) failed = rename(from, to);
    }
    if (failed && (errno == EEXIST || errno == ENOTEMPTY))
        return mx_fail(err, MX_EXIT_CANNOT_CREATE, MX_NOWHERE, "\"%s\" exists already", to);
    return !failed || mx_fail_errno(err, "could not rename \"%s\" to \"%s\"", from, to);
}

/* What was sealed beforehand, which the manifest tells after all that the caller added. */
static MxJson *take_sealed(MxPublish *publish) {
    MxJson *files = mx_json_put_object(publish->manifest, "files"), *entry;
    const char *name;
    for (size_t i = 0; mx_json_member(publish->sealed, i, &name, &entry); i++)
        mx_json_set(files, name, entry);
    return files;
}

bool mx_store_publish_commit(MxPublish *publish, MxError *err) {
    MX_ASSERT(!publish->is_done);
    MxJson *files = take_sealed(publish);
    bool ok = seal_files(publish, files, err);
    if (ok) mx_failpoint("save.before_manifest");
    ok = ok && write_manifest(publish, err);
    if (ok) mx_failpoint("save.after_manifest");
    ok = ok && mx_path_sync(publish->temp, err);
    if (ok) mx_failpoint("save.before_rename");
    ok = ok && (publish->is_in_place ? store_unmark(publish->temp, err)
                                     : rename_new(publish->temp, publish->final_path, err));
    if (!ok) {
        mx_store_publish_abort(publish);
        return false;
    }
    publish->is_done = true;
    mx_failpoint("save.after_rename");
    ok = mx_path_sync(publish->parent, err);
    mx_failpoint("save.done");
    return ok;
}
