/* main.c — runs the suites of the plan room; see plan_test.h. */
#include "plan_test.h"

#include <stdio.h>

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0); /* counts of golden values, printed by forked tests */
    return RUN_SUITES(golden_suite(), plan_suite(), trees_suite(), error_suite(), memory_suite(),
                      keys_suite(), time_suite(), search_suite());
}
