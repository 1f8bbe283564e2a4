/* base_test.h — the suites of this room, and what they share: one test's arena, error and empty
 * folder, and a stream of numbers. */
#ifndef BASE_TEST_H
#define BASE_TEST_H

#include <check.h>
#include <mx/base.h>

Suite *arena_suite(void);
Suite *box_suite(void);
Suite *crc32c_suite(void);
Suite *proto_suite(void);
Suite *error_suite(void);
Suite *file_suite(void);
Suite *json_suite(void);
Suite *limits_suite(void);
Suite *log_suite(void);
Suite *numbers_suite(void);
Suite *options_suite(void);
Suite *quant_suite(void);
Suite *regex_suite(void);
Suite *text_suite(void);

/* Made by set_up and removed by tear_down. */
extern MxArena arena;
extern MxError err;
extern char *folder;

void set_up(void);
void tear_down(void);

/* A case whose tests start from set_up, added to the suite. */
TCase *add_case(Suite *suite, const char *name);
/* Path of a file in the folder. */
char *in_folder(const char *name);
/* The call worked. */
void ck_ok(bool ok);
/* The call failed with this exit code and a text that contains `words`; clears the error. */
void ck_failed(bool ok, MxExit exit, const char *words);

/* A stream of numbers for tests, the same in every run. */
uint64_t draw(uint64_t *state);

#endif
