/* store_test.h — the suites of this room, and a scratch folder for each test. */
#ifndef STORE_TEST_H
#define STORE_TEST_H
#include "common/goldens.h"

#include <check.h>
#include <mx/store.h>

Suite *h5_suite(void);
Suite *publish_suite(void);
Suite *folder_suite(void);
Suite *tensors_suite(void);
Suite *views_suite(void);
Suite *guard_suite(void);

/* One test's arena, error and empty folder, made by set_up and removed by tear_down. */
extern MxArena arena;
extern MxError err;
extern char *folder;

void set_up(void);
void tear_down(void);

/* Path of a file in the folder. */
char *in_folder(const char *name);
/* The call failed with a text that contains `words`; clears the error. */
void ck_failed(bool ok, const char *words);
/* The call worked. */
void ck_ok(bool ok);

#endif
