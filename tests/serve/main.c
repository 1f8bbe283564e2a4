/* main.c — runs the suites of the room serve. */
#include "serve_test.h"
#include "common/suite.h"

int main(void) {
    return RUN_SUITES(serve_suite(), calls_suite(), reasoning_suite(), templates_suite());
}
