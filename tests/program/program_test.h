/* program_test.h — the suites of this room's tests, and what they share. */
#ifndef TESTS_PROGRAM_TEST_H
#define TESTS_PROGRAM_TEST_H

#include <mx/program.h>

#include <check.h>

Suite *state_suite(void);
Suite *figures_suite(void);

/* program_config — a config from command-line words separated by blanks. Fails the test where that
 * is none. */
MxConfig *program_config(MxArena *arena, const char *words, const char *more);
/* program_error — norm of the difference over the norm of `want`; 0/0 = 0. */
double program_error(const float *got, const float *want, int64_t n);

#endif
