/* list.c — every dataset below a group. Breadth first over a list instead of recursion, with bounds
 * on depth and count, since hard links of a hostile file may form cycles. */
#include <mx/store.h>

#include "h5.h"

#include <stdlib.h>

enum { MAX_DEPTH = 64, MAX_LINKS = 400000 };

typedef struct Walk {
    MxArena *arena; /* of the result */
    MxArena scratch;
    const char **found; /* [n_found] path of every link seen so far, in the order of discovery */
    int n_found, cap_found;
    const char *prefix;  /* of the group being visited: "" or "a/b/" */
    const char *refused; /* why the walk ended */
    MxH5Array *arrays;
    int n, cap;
} Walk;

static bool take_link(const char *name, bool is_hard, void *data) {
    Walk *walk = data;
    if (walk->n_found == MAX_LINKS) {
        walk->refused = mx_arena_printf(&walk->scratch, "more than %d links", MAX_LINKS);
        return false;
    }
    if (!is_hard) {
        walk->refused = mx_arena_printf(
            &walk->scratch, "\"%s\" is a soft or external link, wanted data in place", name);
        return false;
    }
    if (walk->n_found == walk->cap_found) {
        int cap = walk->cap_found ? 2 * walk->cap_found : 64;
        walk->found = mx_arena_grow(&walk->scratch, walk->found, (size_t)walk->n_found, (size_t)cap,
                                    sizeof *walk->found);
        walk->cap_found = cap;
    }
    walk->found[walk->n_found++] = mx_arena_printf(&walk->scratch, "%s%s", walk->prefix, name);
    return true;
}

/* Adds the links of one group; `below` is its path from the group that is listed. */
static bool visit_group(Walk *walk, MxH5 *file, const char *path, const char *below, MxError *err) {
    int depth = 1;
    for (const char *p = below; *p; p++) depth += *p == '/';
    MxWhere where = {.file = mx_h5_path(file)};
    if (depth > MAX_DEPTH)
        return mx_fail(err, MX_EXIT_BAD_INPUT, where, "group \"%s\" lies deeper than %d", path,
                       MAX_DEPTH);
    walk->prefix = *below ? mx_arena_printf(&walk->scratch, "%s/", below) : "";
    MxError failed = {0};
    bool ok = h5_each_link(file, path, take_link, walk, &failed);
    if (!ok && walk->refused)
        mx_fail(err, MX_EXIT_BAD_INPUT, where, "group \"%s\": %s", path, walk->refused);
    else if (!ok)
        mx_fail(err, failed.exit, MX_NOWHERE, "%s", failed.text.data);
    mx_error_release(&failed);
    return ok;
}

static bool visit(Walk *walk, MxH5 *file, const char *group, const char *below, MxError *err) {
    const char *path = *group ? mx_arena_printf(&walk->scratch, "%s/%s", group, below) : below;
    if (mx_h5_has_group(file, path)) return visit_group(walk, file, path, below, err);
    if (walk->n == walk->cap) {
        int cap = walk->cap ? 2 * walk->cap : 64;
        walk->arrays = mx_arena_grow(walk->arena, walk->arrays, (size_t)walk->n, (size_t)cap,
                                     sizeof *walk->arrays);
        walk->cap = cap;
    }
    MxH5Array *array = &walk->arrays[walk->n++];
    if (!mx_h5_stat(file, path, array, err)) return false;
    array->path = mx_arena_strdup(walk->arena, below);
    return true;
}

static int by_path(const void *a, const void *b) {
    return strcmp(((const MxH5Array *)a)->path, ((const MxH5Array *)b)->path);
}

bool mx_h5_list(MxArena *arena, MxH5 *file, const char *group, MxH5Array **out, int *n,
                MxError *err) {
    MxWhere where = {.file = mx_h5_path(file)};
    if (!mx_h5_has_group(file, group))
        return mx_fail(err, MX_EXIT_BAD_INPUT, where, "no group \"%s\"", group);
    Walk walk = {.arena = arena, .scratch = {.name = "hdf5 listing"}};
    bool ok = visit_group(&walk, file, group, "", err);
    for (int i = 0; ok && i < walk.n_found; i++) ok = visit(&walk, file, group, walk.found[i], err);
    if (walk.n) qsort(walk.arrays, (size_t)walk.n, sizeof *walk.arrays, by_path);
    *out = walk.arrays;
    *n = walk.n;
    mx_arena_release(&walk.scratch);
    return ok;
}
