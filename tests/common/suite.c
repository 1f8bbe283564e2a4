/* suite.c — the end of every program of tests, and folders for what tests write. */
#include "suite.h"

#include <stdlib.h>

int suites_run(Suite *const *suites, int n) {
    SRunner *runner = srunner_create(suites[0]);
    for (int i = 1; i < n; i++) srunner_add_suite(runner, suites[i]);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

void tcase_set_long(TCase *tcase) {
    tcase_set_tags(tcase, "long"); /* the Makefile's word, too */
}

char *scratch_make(MxArena *arena) {
    char name[] = "/tmp/mx_test_XXXXXX";
    MX_ASSERT(mkdtemp(name));
    return mx_arena_strdup(arena, name);
}

void scratch_remove(const char *folder) {
    MxError ignored = {0};
    mx_dir_remove(folder, &ignored);
    mx_error_release(&ignored);
}
