/* guide_test.h — the suites of this room's tests. */
#ifndef TESTS_GUIDE_TEST_H
#define TESTS_GUIDE_TEST_H

#include <mx/guide.h>

#include <check.h>

/* guide_test_bytes — the vocabulary of bytes. guide_test_may_end — whether a text of it may end. */
const MxVocabulary *guide_test_bytes(MxArena *arena);
bool guide_test_may_end(MxGuided *text);

Suite *guide_suite(void);
Suite *schema_suite(void);
Suite *walks_suite(void);

#endif
