/* main.c — the config room's tests, and loading a text as a config file. */
#include "config_tests.h"
#include "common/suite.h"

#include <stdio.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
const double slowness = 20;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
const double slowness = 20;
#else
const double slowness = 1;
#endif
#else
const double slowness = 1;
#endif

static const char *temp_dir; /* of all tests */

const char *temp_file(MxArena *arena, const char *name, const char *text, size_t size) {
    MxError err = {0};
    const char *path = mx_path_join(arena, temp_dir, name);
    ck_assert(mx_dir_make(mx_path_dir(arena, path), &err));
    FILE *file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(text, 1, size, file), size);
    ck_assert_int_eq(fclose(file), 0);
    return path;
}

/* Lines of a text as an array that ends with NULL. */
static char **split_lines(MxArena *arena, const char *text, int *n) {
    char **lines = mx_new_n(arena, char *, text ? strlen(text) + 2 : 1);
    *n = 0;
    for (const char *p = text; p && *p;) {
        size_t len = strcspn(p, "\n");
        lines[(*n)++] = mx_arena_strndup(arena, p, len);
        p += len + (p[len] == '\n');
    }
    return lines;
}

static Loaded load(const char *const *files, int n_files, const char *overrides,
                   const char *variables) {
    Loaded l = {.arena = {.name = "test"}};
    int n_overrides, n_variables;
    char **lines = split_lines(&l.arena, overrides, &n_overrides);
    char **vars = split_lines(&l.arena, variables, &n_variables);
    MxConfigRequest request = {.files = files,
                               .n_files = n_files,
                               .overrides = (const char *const *)lines,
                               .n_overrides = n_overrides,
                               .environ = vars};
    l.ok = mx_config_load(&l.arena, &request, &l.config, &l.err);
    ck_assert_int_eq(l.ok, l.err.count == 0);
    if (!l.ok) ck_assert_int_eq(l.err.exit, MX_EXIT_CONFIG);
    return l;
}

Loaded load_config(const char *yaml, const char *overrides, const char *variables) {
    MxArena arena = {.name = "test file"};
    const char *path = yaml ? temp_file(&arena, "t.yml", yaml, strlen(yaml)) : NULL;
    Loaded l = load(&path, path ? 1 : 0, overrides, variables);
    mx_arena_release(&arena);
    return l;
}

Loaded load_files(const char *const *files, int n_files, const char *overrides) {
    return load(files, n_files, overrides, NULL);
}

void unload(Loaded *loaded) {
    mx_error_release(&loaded->err);
    mx_arena_release(&loaded->arena);
}

int count_lines(const char *text, const char *prefix) {
    int n = 0;
    for (const char *p = text; p && *p;) {
        n += mx_text_has_prefix(p, prefix);
        p += strcspn(p, "\n");
        p += *p == '\n';
    }
    return n;
}

int main(void) {
    MxArena arena = {.name = "folder"};
    temp_dir = scratch_make(&arena);
    Suite *suite = suite_create("config");
    suite_add_tcase(suite, typing_cases());
    suite_add_tcase(suite, merge_cases());
    suite_add_tcase(suite, key_cases());
    suite_add_tcase(suite, act_cases());
    suite_add_tcase(suite, value_cases());
    suite_add_tcase(suite, hostile_cases());
    suite_add_tcase(suite, resume_cases());
    int code = RUN_SUITES(suite);
    scratch_remove(temp_dir);
    mx_arena_release(&arena);
    return code;
}
