/* chat_test.h — what the tests of the room share. */
#ifndef TESTS_CHAT_CHAT_TEST_H
#define TESTS_CHAT_CHAT_TEST_H

#include <mx/chat.h>

#include <check.h>

extern MxArena arena;
extern MxError err;
void chat_tear_down(void);

/* chat_lines_of — calls `each` for every line of a file of JSON Lines. */
typedef void ChatEachLine(const MxJson *line, int number);
void chat_lines_of(const char *path, ChatEachLine *each);
/* chat_rendered — what a template makes of variables; NULL and err if it fails. */
const char *chat_rendered(const char *text, const char *variables, MxRendered *out);

Suite *chat_features_suite(void);
Suite *chat_cases_suite(void);

#endif
