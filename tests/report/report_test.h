/* report_test.h — the suites of this room, and a folder of runs for each test. */
#ifndef REPORT_TEST_H
#define REPORT_TEST_H

#include <check.h>
#include <mx/base.h>

Suite *page_suite(void);
Suite *runs_suite(void);

extern MxArena arena;
extern MxError err;

/* A case whose tests start with an empty folder. */
TCase *add_case(Suite *suite, const char *name);
/* A path in the folder. */
char *in(const char *path);
/* Writes a file of the folder; parents are made. */
void put(const char *path, const char *text);
/* Files of a run: config.yml with so many steps; log and metrics may be NULL. */
void put_run(const char *name, int steps, const char *log, const char *metrics);

#endif
