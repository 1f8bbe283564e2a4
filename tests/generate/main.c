/* main.c — runs the suites of the room generate. */
#include "generate_test.h"

#include <stdlib.h>

int main(void) {
    SRunner *runner = srunner_create(generate_suite());
    srunner_add_suite(runner, sample_suite());
    srunner_add_suite(runner, sees_suite());
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
