/* publish.c — folders that appear under their final name complete or not at all. The caller fills a
 * temporary folder beside the final place; a commit syncs every file, writes MANIFEST.json with
 * size and hash of each, syncs, renames, and syncs the parent. The manifest's last member is the
 * hash of all the text before it, so a change of any bit in the folder is found by mx_store_verify.
 */
#include <mx/store.h>

#include "folder.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static const char manifest_name[] = "MANIFEST.json";

enum { FORMAT_VERSION = 1, MAX_MANIFEST_BYTES = 1 << 28, MAX_FILES = 1 << 20 };

struct MxPublish {
    MxArena *arena;
    char *final_path, *parent, *temp;
    MxJson *manifest;
    MxPace *pace; /* NULL = none */
    bool is_done; /* committed or aborted */
};

static void abort_on_release(void *publish) {
    mx_store_publish_abort(publish);
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
    mx_json_set_int(publish->manifest, "format", FORMAT_VERSION);
    struct stat st;
    if (!lstat(path, &st))
        return mx_fail(err, MX_EXIT_CANNOT_CREATE, MX_NOWHERE, "\"%s\" exists already", path);
    if (!mx_dir_make(publish->parent, err)) return false;
    if (store_is_folder(publish->temp) && !mx_dir_remove(publish->temp, err)) return false;
    if (mkdir(publish->temp, 0777))
        return mx_fail_errno(err, "could not create folder \"%s\"", publish->temp);
    mx_arena_on_release(arena, abort_on_release, publish);
    *out = publish;
    mx_failpoint("save.folder_made");
    return true;
}

void mx_store_publish_pace(MxPublish *publish, MxPace *pace) {
    publish->pace = pace;
}

const char *mx_store_publish_dir(const MxPublish *publish) {
    return publish->temp;
}

MxJson *mx_store_publish_manifest(MxPublish *publish) {
    return publish->manifest;
}

void mx_store_publish_abort(MxPublish *publish) {
    if (publish->is_done) return;
    publish->is_done = true;
    MxError ignored = {0}; /* what cannot be removed now is swept later */
    mx_dir_remove(publish->temp, &ignored);
    mx_error_release(&ignored);
}

/* ---- reading and syncing ---- */

static void start_writeback(int fd) {
    sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE);
}

void mx_store_writeback(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    start_writeback(fd);
    close(fd);
}

/* A file while it is looked at. */
typedef struct Taken {
    uint64_t size, hash;
} Taken;

/* Reads it all: not by a mapping, where a file that shrinks or a bad disk is a signal. */
static bool hash_file(int fd, const char *path, MxPace *pace, Taken *out, MxError *err) {
    enum { PIECE_BYTES = 256 << 10 };
    MxArena scratch = {.name = "hash"};
    MxHash *hash = mx_hash_new(&scratch);
    char *piece = mx_arena_alloc(&scratch, PIECE_BYTES);
    ssize_t n;
    posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    for (out->size = 0; (n = read(fd, piece, PIECE_BYTES)) != 0; mx_pace(pace)) {
        if (n < 0 && errno != EINTR) break;
        if (n < 0) continue;
        mx_hash_add(hash, piece, (size_t)n);
        out->size += (uint64_t)n;
    }
    out->hash = mx_hash_value(hash);
    mx_arena_release(&scratch);
    return !n || mx_fail_errno(err, "could not read \"%s\"", path);
}

static bool sync_file(int fd, const char *path, MxError *err) {
    mx_failpoint("save.before_sync");
    return !fsync(fd) || mx_fail_errno(err, "could not sync \"%s\"", path);
}

/* Size and hash of a regular file. */
static bool take_file(const char *path, MxPace *pace, bool syncs, Taken *out, MxError *err) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return mx_fail(err, errno == EACCES ? MX_EXIT_PERMISSION : MX_EXIT_BAD_INPUT, MX_NOWHERE,
                       "could not open \"%s\": %s", path, strerror(errno));
    struct stat st = {0};
    bool ok = !fstat(fd, &st) || mx_fail_errno(err, "could not look at \"%s\"", path);
    if (ok && !S_ISREG(st.st_mode))
        ok = mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE, "\"%s\" is not a regular file", path);
    if (ok && syncs) start_writeback(fd); /* the disk works while we hash */
    ok = ok && hash_file(fd, path, pace, out, err) && (!syncs || sync_file(fd, path, err));
    close(fd);
    return ok;
}

static const char *hex(char out[17], uint64_t hash) {
    snprintf(out, 17, "%016" PRIx64, hash);
    return out;
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
        list->paths[list->n++] = mx_path_join(&list->arena, below, names[i]);
    return true;
}

/* Syncs every file and folder below the temporary folder and enters the files in the manifest. */
static bool seal_files(MxPublish *publish, MxJson *files, MxError *err) {
    FileList list = {.arena = {.name = "publish"}};
    bool ok = list_into(&list, publish->temp, "", err);
    for (int i = 0; ok && i < list.n; i++) {
        char *path = mx_path_join(&list.arena, publish->temp, list.paths[i]);
        struct stat st;
        Taken taken;
        if (lstat(path, &st))
            ok = mx_fail_errno(err, "could not look at \"%s\"", path);
        else if (S_ISDIR(st.st_mode))
            ok = list_into(&list, publish->temp, list.paths[i], err) && mx_path_sync(path, err);
        else if ((ok = take_file(path, publish->pace, true, &taken, err))) {
            char text[17];
            MxJson *file = mx_json_put_object(files, list.paths[i]);
            mx_json_set_int(file, "bytes", (int64_t)taken.size);
            mx_json_set_string(file, "xxh3_64", hex(text, taken.hash));
        }
    }
    mx_arena_release(&list.arena);
    return ok;
}

/* The last line of a manifest whose text before it has this hash. */
static char *seal_line(MxArena *arena, uint64_t hash) {
    char text[17];
    return mx_arena_printf(arena, " \"manifest_xxh3_64\": \"%s\"\n}\n", hex(text, hash));
}

static bool write_manifest(MxPublish *publish, MxError *err) {
    MxArena scratch = {.name = "manifest"};
    MxText text;
    mx_text_init(&text, &scratch);
    const char *json = mx_json_dump(&scratch, publish->manifest, true);
    size_t n = strlen(json);
    MX_ASSERT(n > 2 && !strcmp(json + n - 2, "\n}"));
    mx_text_addn(&text, json, n - 2);
    mx_text_addn(&text, ",\n", 2);
    const char *seal = seal_line(&scratch, mx_hash64(text.data, text.len));
    mx_text_addn(&text, seal, strlen(seal));
    char *path = mx_path_join(&scratch, publish->temp, manifest_name);
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

bool mx_store_publish_commit(MxPublish *publish, MxError *err) {
    MX_ASSERT(!publish->is_done);
    MxJson *files = mx_json_put_object(publish->manifest, "files");
    bool ok = seal_files(publish, files, err);
    if (ok) mx_failpoint("save.before_manifest");
    ok = ok && write_manifest(publish, err);
    if (ok) mx_failpoint("save.after_manifest");
    ok = ok && mx_path_sync(publish->temp, err);
    if (ok) mx_failpoint("save.before_rename");
    ok = ok && rename_new(publish->temp, publish->final_path, err);
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

/* ---- verifying ---- */

static bool verify_file(MxArena *scratch, const char *dir, const char *name, const MxJson *entry,
                        MxError *err) {
    int64_t want_size;
    const char *want_hash = mx_json_string(mx_json_get(entry, "xxh3_64"));
    bool is_inside = *name != '/' && strcmp(name, "..") && !mx_text_has_prefix(name, "../") &&
                     !strstr(name, "/../") && !mx_text_has_suffix(name, "/..");
    if (!is_inside || !want_hash || !mx_json_int(mx_json_get(entry, "bytes"), &want_size))
        return mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE, "\"%s/%s\": no entry for \"%s\" to use",
                       dir, manifest_name, name);
    char *path = mx_path_join(scratch, dir, name), text[17];
    struct stat st;
    Taken taken = {.size = !stat(path, &st) && S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0};
    bool may_fit = taken.size == (uint64_t)want_size; /* else the hash need not be taken */
    if ((may_fit || !taken.size) && !take_file(path, NULL, false, &taken, err)) return false;
    if (taken.size != (uint64_t)want_size)
        return mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = path},
                       "has %" PRIu64 " bytes, wanted %" PRId64, taken.size, want_size);
    return !strcmp(hex(text, taken.hash), want_hash) ||
           mx_fail(err, MX_EXIT_BAD_INPUT, (MxWhere){.file = path},
                   "is damaged: hash %s, wanted %s", text, want_hash);
}

static MxJson *read_manifest(MxArena *arena, const char *dir, MxError *err) {
    char *path = mx_path_join(arena, dir, manifest_name);
    MxWhere where = {.file = path};
    if (!mx_file_exists(path)) {
        mx_fail(err, MX_EXIT_BAD_INPUT, where, "is missing: the folder was not completed");
        return NULL;
    }
    MxBytes bytes;
    if (!mx_file_read(arena, path, MAX_MANIFEST_BYTES, &bytes, err)) return NULL;
    size_t tail = strlen(seal_line(arena, 0));
    size_t body = bytes.size < tail ? 0 : bytes.size - tail;
    const char *want = seal_line(arena, mx_hash64(bytes.data, body));
    if (bytes.size < tail || memcmp(bytes.data + body, want, tail)) {
        mx_fail(err, MX_EXIT_BAD_INPUT, where, "is damaged: its last line does not match the rest");
        return NULL;
    }
    return mx_json_parse(arena, (const char *)bytes.data, bytes.size, path, err);
}

bool mx_store_manifest(MxArena *arena, const char *dir, MxJson **manifest, MxError *err) {
    *manifest = read_manifest(arena, dir, err);
    if (!*manifest) return false;
    int64_t format = 0;
    mx_json_int(mx_json_get(*manifest, "format"), &format);
    return format == FORMAT_VERSION ||
           mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE, "\"%s/%s\": format %" PRId64 ", wanted %d",
                   dir, manifest_name, format, FORMAT_VERSION);
}

bool mx_store_verify(MxArena *arena, const char *dir, MxJson **manifest, MxError *err) {
    MxJson *found;
    if (!mx_store_manifest(arena, dir, &found, err)) return false;
    MxArena scratch = {.name = "verify"};
    MxJson *files = mx_json_get(found, "files"), *entry;
    const char *name;
    bool ok = true;
    for (size_t i = 0; mx_json_member(files, i, &name, &entry); i++)
        ok = verify_file(&scratch, dir, name, entry, err) && ok;
    mx_arena_release(&scratch);
    if (manifest) *manifest = found;
    return ok;
}
