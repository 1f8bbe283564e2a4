/* test_shard.c — runs the suites of the room. */
#include "shard_test.h"
#include "common/suite.h"

MxArena arena = {.name = "test"};
MxError err;

void set_up(void) {
    arena = (MxArena){.name = "test"};
    err = (MxError){0};
}

void tear_down(void) {
    mx_error_release(&err);
    mx_arena_release(&arena);
}

void suite_add(Suite *suite, const char *name, const TTest *test, double timeout_s) {
    TCase *tc = tcase_create(name);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_set_timeout(tc, timeout_s);
    tcase_add_test(tc, test);
    suite_add_tcase(suite, tc);
}

void ck_failed(bool ok, const char *text) {
    ck_assert_msg(!ok, "no error; wanted: %s", text);
    ck_assert_str_eq(err.text.data, text);
    ck_assert_int_eq(err.exit, MX_EXIT_CONFIG);
    mx_error_release(&err);
}

int main(void) {
    return RUN_SUITES(mesh_suite(), resolve_suite(), explain_suite(), box_suite(),
                      golden_rules_suite(), golden_params_suite(), golden_cost_suite(),
                      property_suite());
}
