/* text_test.h — what the tests of the room share. */
#ifndef TESTS_TEXT_TEXT_TEST_H
#define TESTS_TEXT_TEXT_TEST_H

#include <mx/text.h>

#include <check.h>

extern MxArena arena;
extern MxError err;
void text_tear_down(void);

/* text_opened — fails the test with the message if it cannot be. */
MxTokenizer *text_opened(const char *type, const char *path);
/* text_ids — "1 2 3" of a text without special tokens. */
const char *text_ids(const MxTokenizer *tokenizer, const char *text, size_t n);
/* text_file — writes a file of the test; its path. */
const char *text_file(const char *name, const char *content, size_t n);

Suite *text_golden_suite(void);
Suite *text_json_suite(void);
Suite *text_train_suite(void);

#endif
