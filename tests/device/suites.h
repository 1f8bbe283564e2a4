/* suites.h — the suites of the device room. Check runs each test in a process of its own; this
 * process must never run a parallel region, for OpenMP's threads do not survive a fork. */
#ifndef SUITES_H
#define SUITES_H

#include <check.h>

Suite *suite_kernels(void);
Suite *suite_matmul(void);
Suite *suite_small(void);
Suite *suite_numbers(void);
Suite *suite_device(void);
Suite *suite_backends(void);

#endif
