/* main.c — runs the suites of the run room. */
#include "suites.h"
#include "common/suite.h"

int main(void) {
    return RUN_SUITES(suite_gradients(), suite_variables());
}
