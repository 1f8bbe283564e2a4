/* test_base.c — runs the suites of the room, and holds what they share. */
#include "base_test.h"
#include "common/suite.h"

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
    folder = scratch_make(&arena);
}

void tear_down(void) {
    scratch_remove(folder);
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
    return RUN_SUITES(arena_suite(), text_suite(), error_suite(), numbers_suite(), box_suite(),
                      crc32c_suite(), proto_suite(), file_suite(), json_suite(), limits_suite(),
                      log_suite(), options_suite(), quant_suite(), regex_suite());
}
