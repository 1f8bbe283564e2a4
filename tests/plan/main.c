/* main.c — runs the suites of the plan room; see plan_test.h. */
#include "plan_test.h"

#include <stdio.h>
#include <stdlib.h>

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0); /* counts of golden values, printed by forked tests */
    SRunner *runner = srunner_create(golden_suite());
    srunner_add_suite(runner, plan_suite());
    srunner_add_suite(runner, trees_suite());
    srunner_add_suite(runner, error_suite());
    srunner_add_suite(runner, memory_suite());
    srunner_add_suite(runner, keys_suite());
    srunner_add_suite(runner, time_suite());
    srunner_add_suite(runner, search_suite());
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
