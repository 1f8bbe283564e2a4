/* test_store.c — runs the suites of the room. */
#include "store_test.h"
#include "common/suite.h"

/* After a failed write libhdf5 loses some memory of its own; read by LeakSanitizer. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) {
    return "leak:libhdf5";
}

int main(void) {
    return RUN_SUITES(h5_suite(), publish_suite(), folder_suite(), tensors_suite(), views_suite(),
                      guard_suite());
}
