/* suite.h — what the programs of tests share: running suites, and the folder of a test. */
#ifndef TESTS_COMMON_SUITE_H
#define TESTS_COMMON_SUITE_H

#include <check.h>
#include <mx/base.h>

/* suites_run — runs n suites, as Check's variables in the environment say; the exit code of main.
 * RUN_SUITES — the same of suites that are listed. */
int suites_run(Suite *const *suites, int n);
#define RUN_SUITES(...) suites_run((Suite *[]){__VA_ARGS__}, MX_COUNT(((Suite *[]){__VA_ARGS__})))

/* tcase_set_long — marks what `make test` leaves to `make check-longer`: a loop over much that is
 * alike, where something else tests one of it. */
void tcase_set_long(TCase *tcase);

/* scratch_make — a new empty folder, its path in the arena. scratch_remove — with all in it. */
char *scratch_make(MxArena *arena);
void scratch_remove(const char *folder);

#endif
