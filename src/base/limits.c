/* limits.c — the memory limits of this process: the machine, its control groups (v1 or v2, its own
 * and those that contain it) and limits of the shell. On a system without these files there are no
 * groups. */
#include <mx/base.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

enum { MAX_LINE = 4096 };

/* The two forms of control groups that limit memory. */
static const struct {
    const char *type;       /* of the file system */
    const char *controller; /* in the list of a line of /proc/self/cgroup, "" = an empty list */
    const char *file;       /* with the limit */
} forms[] = {
    {"cgroup2", "", "memory.max"},
    {"cgroup", "memory", "memory.limit_in_bytes"},
};

/* Whether a list "a,b,c" has an item. */
static bool has_item(const char *list, size_t n, const char *item) {
    size_t n_item = strlen(item);
    if (!n_item) return n == 0;
    for (const char *at = list; at < list + n;) {
        size_t length = strcspn(at, ",:\n");
        if (length == n_item && !strncmp(at, item, n_item)) return true;
        at += length + 1;
    }
    return false;
}

/* The group's path in /proc/self/cgroup: lines "number:controllers:path". */
static bool find_group(MxArena *arena, const char *root, int form, const char **path) {
    char line[MAX_LINE];
    FILE *file = fopen(mx_path_join(arena, root, "proc/self/cgroup"), "re");
    *path = NULL;
    while (file && !*path && fgets(line, sizeof line, file)) {
        char *list = strchr(line, ':'), *end = list ? strchr(list + 1, ':') : NULL;
        if (!end || !has_item(list + 1, (size_t)(end - list - 1), forms[form].controller)) continue;
        end[1 + strcspn(end + 1, "\n")] = '\0';
        *path = mx_arena_strdup(arena, end + 1);
    }
    if (file) fclose(file);
    return *path != NULL;
}

/* Where the groups of a form are mounted, and which of them is there: in /proc/self/mountinfo,
 * "… root mount_point … - type source options". */
static bool find_mount(MxArena *arena, const char *root, int form, char **at, char **top) {
    char line[MAX_LINE], group[MAX_LINE], point[MAX_LINE], type[64], options[1024];
    FILE *file = fopen(mx_path_join(arena, root, "proc/self/mountinfo"), "re");
    *at = NULL;
    while (file && !*at && fgets(line, sizeof line, file)) {
        const char *tail = strstr(line, " - ");
        if (!tail || sscanf(line, "%*s %*s %*s %4095s %4095s", group, point) != 2 ||
            sscanf(tail, " - %63s %*s %1023s", type, options) != 2 ||
            strcmp(type, forms[form].type) != 0)
            continue;
        if (*forms[form].controller && !has_item(options, strlen(options), forms[form].controller))
            continue;
        *at = mx_path_join(arena, root, point + 1);
        *top = mx_arena_strdup(arena, group);
    }
    if (file) fclose(file);
    return *at != NULL;
}

static int64_t read_limit(const char *path) {
    char text[64] = "";
    FILE *file = fopen(path, "re");
    if (!file) return INT64_MAX;
    bool is_read = fgets(text, sizeof text, file) != NULL;
    fclose(file);
    char *end;
    unsigned long long n = strtoull(text, &end, 10); /* "max" is no number */
    return is_read && end > text && n < INT64_MAX ? (int64_t)n : INT64_MAX;
}

/* The group of the process and all around it, as far as they can be seen. */
static void limit_by_groups(MxArena *arena, const char *root, int form, MxMemoryLimit *out) {
    const char *path;
    char *at, *top;
    if (!find_group(arena, root, form, &path) || !find_mount(arena, root, form, &at, &top)) return;
    size_t n_top = strcmp(top, "/") ? strlen(top) : 0;
    if (!strncmp(path, top, n_top) && (path[n_top] == '/' || !path[n_top])) path += n_top;
    for (char *group = mx_arena_strdup(arena, path);;) {
        const char *name = forms[form].file;
        int64_t bytes = read_limit(mx_arena_printf(arena, "%s%s/%s", at, group, name));
        if (bytes < out->bytes)
            *out = (MxMemoryLimit){
                mx_arena_printf(arena, "the cgroup \"%s\"", *group ? group : "/"), bytes};
        char *slash = strrchr(group, '/');
        if (!slash) return;
        *slash = '\0';
    }
}

static MxMemoryLimit of_shell(const char *name, int resource) {
    struct rlimit limit;
    bool is_limited = !getrlimit((__rlimit_resource_t)resource, &limit) &&
                      limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < INT64_MAX;
    return (MxMemoryLimit){name, is_limited ? (int64_t)limit.rlim_cur : INT64_MAX};
}

MxMemoryLimits mx_memory_limits(MxArena *arena, const char *root) {
    MxMemoryLimits limits = {
        .memory = {"this machine", (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE)},
        .addresses = of_shell("ulimit -v", RLIMIT_AS),
        .data = of_shell("ulimit -d", RLIMIT_DATA)};
    for (int i = 0; i < MX_COUNT(forms); i++) limit_by_groups(arena, root, i, &limits.memory);
    return limits;
}
