/* support.c — processes, JSON and tables for the tests of the plan room. */
#include "plan_test.h"

#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
MxArena arena;

void test_setup(void) {
    arena = (MxArena){.name = "test"};
}

void test_teardown(void) {
    mx_arena_release(&arena);
}

TCase *suite_add(Suite *suite, const char *name, const TTest *test, double timeout_s) {
    TCase *tc = tcase_create(name);
    tcase_add_checked_fixture(tc, test_setup, test_teardown);
    tcase_set_timeout(tc, timeout_s);
    tcase_add_test(tc, test);
    suite_add_tcase(suite, tc);
    return tc;
}

bool is_sanitized(void) {
#if defined(__SANITIZE_ADDRESS__)
    return true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
    return true;
#else
    return false;
#endif
#else
    return false;
#endif
}

/* ---- files */

const char *temp_path(const char *name) {
    MxError err = {0};
    const char *dir = mx_arena_printf(&arena, "build/tests/plan.%ld", (long)getpid());
    ck_assert_msg(mx_dir_make(dir, &err), "%s", err.text.data);
    return mx_path_join(&arena, dir, name);
}

void write_text(const char *path, const char *text) {
    MxError err = {0};
    ck_assert_msg(mx_file_write(path, text, strlen(text), &err), "%s", err.text.data);
}

const char *read_text(const char *path) {
    enum { LARGEST = 1 << 28 };
    MxError err = {0};
    MxBytes bytes;
    bool ok = mx_file_read(&arena, path, LARGEST, &bytes, &err);
    ck_assert_msg(ok, "%s", ok ? "" : err.text.data);
    return (const char *)bytes.data;
}

/* ---- processes */

static int split_words(const char *words, char **argv, int most) {
    char *save = NULL;
    int n = 0;
    for (char *w = strtok_r(mx_arena_strdup(&arena, words), " ", &save); w;
         w = strtok_r(NULL, " ", &save)) {
        ck_assert_int_lt(n, most - 1);
        argv[n++] = w;
    }
    argv[n] = NULL;
    return n;
}

MxConfig *config_of(const char *words) {
    enum { MOST_WORDS = 64 };
    char *argv[MOST_WORDS];
    const char *files[MOST_WORDS], *overrides[MOST_WORDS];
    int n = split_words(words, argv, MOST_WORDS);
    MxConfigRequest request = {.files = files, .overrides = overrides};
    for (int i = 0; i < n; i++) {
        if (!strcmp(argv[i], "--config"))
            files[request.n_files++] = argv[++i];
        else
            overrides[request.n_overrides++] = argv[i];
    }
    MxConfig *config;
    MxError err = {0};
    bool ok = mx_config_load(&arena, &request, &config, &err);
    ck_assert_msg(ok, "%s: %s", words, ok ? "" : err.text.data);
    return config;
}

Run run_mxtrain(const char *words) {
    enum { MOST_WORDS = 256 };
    char *argv[MOST_WORDS];
    const char *binary = getenv("MX_BIN");
    binary = binary && *binary ? binary : "build/mxtrain";
    split_words(mx_arena_printf(&arena, "%s %s", binary, words), argv, MOST_WORDS);
    const char *out = temp_path("stdout"), *err = temp_path("stderr");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, out, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    posix_spawn_file_actions_addopen(&actions, 2, err, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    pid_t pid;
    ck_assert_msg(!posix_spawn(&pid, binary, &actions, NULL, argv, environ), "cannot start %s",
                  binary);
    posix_spawn_file_actions_destroy(&actions);
    int status;
    struct rusage usage;
    ck_assert_int_eq(wait4(pid, &status, 0, &usage), pid);
    return (Run){.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
                 .out = read_text(out),
                 .err = read_text(err),
                 .peak = (int64_t)usage.ru_maxrss << 10};
}

Run run_ok(const char *words) {
    Run run = run_mxtrain(words);
    ck_assert_msg(run.code == 0, "mxtrain %s: exit %d: %s", words, run.code, run.err);
    return run;
}

/* ---- JSON */

MxJson *run_json(const char *words) {
    Run run = run_ok(mx_arena_printf(&arena, "--json - %s", words));
    MxError err = {0};
    MxJson *root = mx_json_parse(&arena, run.out, strlen(run.out), "plan", &err);
    ck_assert_msg(root != NULL, "mxtrain %s: %s", words, root ? "" : err.text.data);
    return root;
}

static const MxJson *json_at(const MxJson *root, const char *path) {
    for (const char *p = path; *p;) {
        size_t n = strcspn(p, ".");
        root = mx_json_get(root, mx_arena_strndup(&arena, p, n));
        ck_assert_msg(root != NULL, "no %s", path);
        p += n + (p[n] == '.');
    }
    return root;
}

int64_t json_int(const MxJson *root, const char *path) {
    int64_t value = 0;
    ck_assert_msg(mx_json_int(json_at(root, path), &value), "%s is no integer", path);
    return value;
}

double json_number(const MxJson *root, const char *path) {
    double value = 0;
    ck_assert_msg(mx_json_number(json_at(root, path), &value), "%s is no number", path);
    return value;
}

bool json_bool(const MxJson *root, const char *path) {
    bool value = false;
    ck_assert_msg(mx_json_bool(json_at(root, path), &value), "%s is not true or false", path);
    return value;
}

/* ---- tables */

bool golden_has(const char *name) {
    return goldens_have(&arena, mx_path_join(&arena, "sharding", name));
}

Table golden_read(const char *name) {
    return table_of(read_text(goldens_need(&arena, mx_path_join(&arena, "sharding", name))), name);
}

Table table_of(const char *text, const char *name) {
    Table t = {.n_cols = 1};
    for (const char *p = text; *p && *p != '\n'; p++) t.n_cols += *p == '\t';
    for (const char *p = text; *p; p++) t.n_rows += *p == '\n';
    t.cells = mx_new_n(&arena, char *, t.n_rows *t.n_cols);
    int n = 0;
    for (char *start = mx_arena_strdup(&arena, text), *p = start; *p; p++) {
        if (*p != '\t' && *p != '\n') continue;
        ck_assert_int_lt(n, t.n_rows * t.n_cols);
        t.cells[n++] = start;
        ck_assert_msg((*p == '\n') == (n % t.n_cols == 0), "%s: ragged row", name);
        *p = '\0';
        start = p + 1;
    }
    t.n_rows--;
    return t;
}

const char *cell(const Table *table, int row, const char *column) {
    for (int c = 0; c < table->n_cols; c++)
        if (!strcmp(table->cells[c], column)) return table->cells[(row + 1) * table->n_cols + c];
    ck_abort_msg("no column %s", column);
    return NULL;
}
