/* plan_test.h — running the trainer's binary, reading what it says, and golden tables; shared by
 * the tests of the plan room. */
#ifndef PLAN_TEST_H
#define PLAN_TEST_H
#include "common/goldens.h"
#include "common/suite.h"

#include <check.h>
#include <mx/plan.h>

/* Each test starts with an empty one and releases it. */
extern MxArena arena;
void test_setup(void);
void test_teardown(void);

/* What a process left behind. */
typedef struct Run {
    int code;
    const char *out, *err;
    int64_t peak; /* resident bytes */
} Run;

/* run_mxtrain — runs $MX_BIN (build/mxtrain) with words that have spaces between them. */
Run run_mxtrain(const char *words);
/* run_ok — the same; the test fails unless it exits with 0. */
Run run_ok(const char *words);
/* run_json — `--json -` and these words, parsed. */
MxJson *run_json(const char *words);
/* config_of — the config of words as a command line has them, loaded in this process; the test
 * fails if it is refused. A plan in a process of its own lowers programs too, which takes ten times
 * as long as what most tables need. */
MxConfig *config_of(const char *words);
/* temp_path — a file name in this process's own folder below build/tests. */
const char *temp_path(const char *name);
void write_text(const char *path, const char *text);
const char *read_text(const char *path);
/* is_sanitized — sizes mean nothing in such a build. */
bool is_sanitized(void);

/* Members of JSON objects, by a path with dots. */
int64_t json_int(const MxJson *root, const char *path);
double json_number(const MxJson *root, const char *path);
bool json_bool(const MxJson *root, const char *path);

/* A tab separated file with a header line. */
typedef struct Table {
    int n_rows, n_cols;
    char **cells; /* header first */
} Table;

/* golden_has — whether sharding/<name> is among the golden files. */
bool golden_has(const char *name);
Table golden_read(const char *name);
Table table_of(const char *text, const char *name);
const char *cell(const Table *table, int row, const char *column);

Suite *golden_suite(void);
Suite *plan_suite(void);
Suite *trees_suite(void);
Suite *error_suite(void);
Suite *memory_suite(void);
Suite *keys_suite(void);
Suite *time_suite(void);
Suite *search_suite(void);

/* suite_add — one test case of one test. */
TCase *suite_add(Suite *suite, const char *name, const TTest *test, double timeout_s);

#endif
