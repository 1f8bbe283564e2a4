/* test_base.c — runs the suites of the room, and holds what they share. */
#include "base_test.h"

#include <stdlib.h>
#include <unistd.h>

MxArena arena = {.name = "test"};
MxError err;
char *folder;

/* Huge allocations shall fail under the address sanitizer as they do without. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) {
    return "allocator_may_return_null=1";
}

void set_up(void) {
    char name[] = "/tmp/mx_base_XXXXXX";
    ck_assert_ptr_nonnull(mkdtemp(name));
    folder = mx_arena_strdup(&arena, name);
}

void tear_down(void) {
    MxError ignored = {0};
    mx_dir_remove(folder, &ignored);
    mx_error_release(&ignored);
    mx_error_release(&err);
    mx_arena_release(&arena);
}

TCase *add_case(Suite *suite, const char *name) {
    TCase *tcase = tcase_create(name);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    suite_add_tcase(suite, tcase);
    return tcase;
}

char *in_folder(const char *name) {
    return mx_path_join(&arena, folder, name);
}

void ck_ok(bool ok) {
    ck_assert_msg(ok, "%s", err.count ? err.text.data : "failed without a message");
    ck_assert_int_eq(err.count, 0);
}

void ck_failed(bool ok, MxExit exit, const char *words) {
    ck_assert_msg(!ok, "no error, wanted \"%s\"", words);
    ck_assert_int_ge(err.count, 1);
    ck_assert_msg(strstr(err.text.data, words) != NULL, "\"%s\" lacks \"%s\"", err.text.data,
                  words);
    ck_assert_msg(err.exit == exit, "exit %d, wanted %d: %s", err.exit, exit, err.text.data);
    mx_error_release(&err);
}

uint64_t draw(uint64_t *state) {
    uint32_t words[4];
    mx_philox(1, 2, (*state)++, words);
    return (uint64_t)words[0] << 32 | words[1];
}

int main(void) {
    SRunner *runner = srunner_create(arena_suite());
    srunner_add_suite(runner, text_suite());
    srunner_add_suite(runner, error_suite());
    srunner_add_suite(runner, numbers_suite());
    srunner_add_suite(runner, box_suite());
    srunner_add_suite(runner, crc32c_suite());
    srunner_add_suite(runner, proto_suite());
    srunner_add_suite(runner, file_suite());
    srunner_add_suite(runner, json_suite());
    srunner_add_suite(runner, limits_suite());
    srunner_add_suite(runner, log_suite());
    srunner_add_suite(runner, options_suite());
    srunner_add_suite(runner, quant_suite());
    srunner_add_suite(runner, regex_suite());
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
