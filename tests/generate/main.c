/* main.c — runs the suites of the room generate. */
#include "generate_test.h"
#include "common/suite.h"

int main(void) {
    return RUN_SUITES(generate_suite(), replies_suite(), sample_suite(), sees_suite(), kept_suite(),
                      held_suite());
}
