/* test_store.c — runs the suites of the room. */
#include "store_test.h"

/* After a failed write libhdf5 loses some memory of its own; read by LeakSanitizer. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) {
    return "leak:libhdf5";
}

int main(void) {
    SRunner *runner = srunner_create(h5_suite());
    srunner_add_suite(runner, publish_suite());
    srunner_add_suite(runner, folder_suite());
    srunner_add_suite(runner, tensors_suite());
    srunner_add_suite(runner, views_suite());
    srunner_add_suite(runner, guard_suite());
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
