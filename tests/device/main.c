/* main.c — runs the suites of the device room. */
#include "suites.h"
#include "common/suite.h"

int main(void) {
    return RUN_SUITES(suite_device(), suite_backends(), suite_numbers(), suite_matmul(),
                      suite_small(), suite_kernels());
}
