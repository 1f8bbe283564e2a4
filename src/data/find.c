/* find.c — the files that a path names: a file, the files of a folder with a suffix (without
 * subfolders), or a pattern. A path is looked for as given, then below the program's share folder
 * with the bundled corpus. */
#include "source.h"

#include <glob.h>
#include <stdlib.h>

typedef struct PathList {
    char **paths;
    int n;
} PathList;

static int by_path(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* "a.jsonl", "a.jsonl.gz", "a.jsonl.zst", "a.jsonl.lz4"; "" = any name. */
static bool has_ending(MxArena *arena, const char *name, const char *suffix) {
    static const char *const packed[] = {"", ".gz", ".zst", ".lz4"};
    bool has = !*suffix;
    for (int i = 0; i < MX_COUNT(packed) && !has; i++)
        has = mx_text_has_suffix(name, mx_arena_printf(arena, ".%s%s", suffix, packed[i]));
    return has;
}

static bool list_folder(MxArena *arena, const char *folder, const char *const *suffixes,
                        PathList *out, MxError *err) {
    char **names;
    int n;
    if (!mx_dir_list(arena, folder, &names, &n, err)) return false;
    out->paths = mx_new_n(arena, char *, n ? n : 1);
    for (; *suffixes && !out->n; suffixes++)
        for (int i = 0; i < n; i++) {
            char *path = mx_path_join(arena, folder, names[i]);
            bool fits = names[i][0] != '.' && has_ending(arena, names[i], *suffixes);
            if (fits && mx_file_exists(path)) out->paths[out->n++] = path;
        }
    return true;
}

static void list_pattern(MxArena *arena, const char *pattern, PathList *out) {
    glob_t found = {0};
    if (!glob(pattern, 0, NULL, &found)) {
        out->paths = mx_new_n(arena, char *, found.gl_pathc);
        for (size_t i = 0; i < found.gl_pathc; i++)
            if (mx_file_exists(found.gl_pathv[i]))
                out->paths[out->n++] = mx_arena_strdup(arena, found.gl_pathv[i]);
        qsort(out->paths, (size_t)out->n, sizeof *out->paths, by_path);
    }
    globfree(&found);
}

bool data_find_part(MxArena *arena, const MxDataConfig *config, const char *given,
                    const char *const *suffixes, DataPart *out, MxError *err) {
    PathList list = {0};
    const char *folder = NULL, *suffix = **suffixes ? *suffixes : "*";
    const char *const places[] = {"", mx_share_dir(arena)};
    for (int i = 0; i < MX_COUNT(places) && !list.n && !folder && *given; i++) {
        char *path = mx_path_join(arena, places[i], given);
        if (mx_dir_exists(path)) {
            folder = path;
            if (!list_folder(arena, path, suffixes, &list, err)) return false;
        } else if (mx_file_exists(path)) {
            list = (PathList){.paths = mx_new(arena, char *), .n = 1};
            list.paths[0] = path;
        } else if (strpbrk(path, "*?["))
            list_pattern(arena, path, &list);
    }
    if (folder && !list.n)
        return mx_fail(
            err, MX_EXIT_BAD_INPUT, config->where,
            "folder \"%s\" has no *.%s; for files of other names give a pattern, as \"%s/*\"",
            folder, suffix, folder);
    if (!list.n)
        return mx_fail(err, MX_EXIT_BAD_INPUT, config->where,
                       "no files at \"%s\": wanted a file, a folder of *.%s or a pattern, here or "
                       "in %s",
                       given, suffix, places[1]);
    *out = (DataPart){.label = given, .weight = 1, .paths = list.paths, .n_paths = list.n};
    return true;
}

bool data_find_parts(MxArena *arena, const MxDataConfig *config, const char *const *suffixes,
                     DataParts *out, MxError *err) {
    *out = (DataParts){.item = mx_new(arena, DataPart), .n = 1};
    return data_find_part(arena, config, config->path ? config->path : "", suffixes, out->item,
                          err);
}
