/* suites.h — the suites of the run room. Check runs each test in a process of its own; this process
 * must never run a parallel region, for OpenMP's threads do not survive a fork. */
#ifndef SUITES_H
#define SUITES_H

#include <check.h>

Suite *suite_gradients(void);
Suite *suite_variables(void);

#endif
