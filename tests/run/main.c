/* main.c — runs the suites of the run room. */
#include "suites.h"

#include <stdlib.h>

int main(void) {
    SRunner *runner = srunner_create(suite_gradients());
    srunner_add_suite(runner, suite_variables());
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
