/* main.c — runs the suites of the room, and holds what they share. */
#include "report_test.h"

#include <stdlib.h>
#include <unistd.h>

MxArena arena = {.name = "test"};
MxError err;
static char *folder;

static void set_up(void) {
    char name[] = "/tmp/mx_report_XXXXXX";
    ck_assert_ptr_nonnull(mkdtemp(name));
    folder = mx_arena_strdup(&arena, name);
}

static void tear_down(void) {
    MxError ignored = {0};
    mx_dir_remove(folder, &ignored);
    mx_error_release(&ignored);
    mx_error_release(&err);
    mx_arena_release(&arena);
}

TCase *add_case(Suite *suite, const char *name) {
    TCase *tcase = tcase_create(name);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    suite_add_tcase(suite, tcase);
    return tcase;
}

char *in(const char *path) {
    return mx_path_join(&arena, folder, path);
}

void put(const char *path, const char *text) {
    const char *to = in(path);
    bool ok =
        mx_dir_make(mx_path_dir(&arena, to), &err) && mx_file_write(to, text, strlen(text), &err);
    ck_assert_msg(ok, "%s", err.text.data);
}

void put_run(const char *name, int steps, const char *log, const char *metrics) {
    put(mx_arena_printf(&arena, "%s/config.yml", name),
        mx_arena_printf(&arena, "run_name: \"%s\"  # <command line>\nsteps: %d  # a.yml:3\n", "x",
                        steps));
    if (log) put(mx_arena_printf(&arena, "%s/run.log", name), log);
    if (metrics) put(mx_arena_printf(&arena, "%s/metrics.jsonl", name), metrics);
}

int main(void) {
    SRunner *runner = srunner_create(runs_suite());
    srunner_add_suite(runner, page_suite());
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
