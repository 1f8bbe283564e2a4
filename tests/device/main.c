/* main.c — runs the suites of the device room. */
#include "suites.h"

#include <stdlib.h>

int main(void) {
    SRunner *runner = srunner_create(suite_device());
    srunner_add_suite(runner, suite_backends());
    srunner_add_suite(runner, suite_numbers());
    srunner_add_suite(runner, suite_matmul());
    srunner_add_suite(runner, suite_small());
    srunner_add_suite(runner, suite_kernels());
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
