/* serve_test.h — the suites of this room's tests. */
#ifndef TESTS_SERVE_TEST_H
#define TESTS_SERVE_TEST_H

#include <check.h>

Suite *serve_suite(void);
Suite *calls_suite(void);
Suite *reasoning_suite(void);
Suite *templates_suite(void);

#endif
