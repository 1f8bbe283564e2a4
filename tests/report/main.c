/* main.c — runs the suites of the room, and holds what they share. */
#include "report_test.h"
#include "common/suite.h"

#include <unistd.h>

MxArena arena = {.name = "test"};
MxError err;
static char *folder;

static void set_up(void) {
    folder = scratch_make(&arena);
}

static void tear_down(void) {
    scratch_remove(folder);
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
    return RUN_SUITES(runs_suite(), page_suite());
}
