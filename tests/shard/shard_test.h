/* shard_test.h — the suites of this room and what they share: an arena and an error per test, rules
 * and specs written as text, and golden files. */
#ifndef SHARD_TEST_H
#define SHARD_TEST_H
#include "common/goldens.h"

#include <check.h>
#include <mx/shard.h>

Suite *mesh_suite(void);
Suite *resolve_suite(void);
Suite *explain_suite(void);
Suite *box_suite(void);
Suite *property_suite(void);
Suite *golden_rules_suite(void);
Suite *golden_params_suite(void);
Suite *golden_cost_suite(void);

/* One test's arena and error, made by set_up and removed by tear_down. */
extern MxArena arena;
extern MxError err;
void set_up(void);
void tear_down(void);

/* suite_add — one test function as a test case with the fixture. */
void suite_add(Suite *suite, const char *name, const TTest *test, double timeout_s);
/* The call failed with exactly this text; clears the error. */
void ck_failed(bool ok, const char *text);

/* ---- text to values, in the notation of the golden files (tests/golden/sharding/README.md) */

/* names: strings are logical axes, tuples stay mesh axes. */
MxSpec names_of(const char *text);
MxSpec spec_of(const char *text);
MxShape shape_of(const char *text);
/* "data=2,fsdp=4" */
MxMesh mesh_of(const char *text);
/* One rule; its mesh axes as an entry of a spec. */
MxRule rule_of(const char *axis, const char *mesh_axes);
/* "embed:(fsdp,expert) mlp:tensor norm:()" — rules of the file r.yml, line 1 and up. */
MxRules rules_of(const char *text);
const char *text_of(MxSpec spec);

/* ---- golden files of sharding */

typedef struct Table {
    int n_rows, n_cols;
    char **cells; /* row 0 is the header */
} Table;

/* Whether MX_GOLDEN names the complete set, so that no file may be missing. */
bool golden_has(const char *name);
Table golden_read(const char *name);
/* The cell of a data row (0-based) under a column's name. */
const char *cell(const Table *table, int row, const char *column);

/* A rule set of rules/rules.tsv. */
typedef struct RuleSet {
    const char *name;
    MxRules rules;
    const char *mesh_axes;   /* "a,b,c" against which named_sharding was checked */
    const char *nested_axis; /* a rule that MxRule cannot express and that is left out, or NULL */
    bool is_malformed;       /* a rule that is not a pair */
} RuleSet;

RuleSet rule_set(const char *name);
/* The rule set that a run of this model on this mesh has. */
RuleSet rule_set_of_run(const char *model, const char *mesh);
/* All mesh axes of the set, with the sizes of "fsdp=4,tensor=2" and 1 elsewhere. */
MxMesh mesh_of_run(const RuleSet *set, const char *sizes);

#endif
