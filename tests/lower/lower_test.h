/* lower_test.h — the suites of this room, and what they share: graphs to lower (random ones and a
 * small model), and an interpreter that runs graphs and plans.
 *
 * The interpreter counts modulo a prime. Passes may change where and in what order things are
 * computed and how often they are rounded, but not what; without rounding, results before and after
 * a pass must be the same to the last bit. Ops whose meaning no pass relies on are replaced by a
 * hash of their inputs. */
#ifndef LOWER_TEST_H
#define LOWER_TEST_H

#include <check.h>
#include <mx/lower.h>

Suite *bucket_suite(void);
Suite *expect_suite(void);
Suite *fuse_suite(void);
Suite *grad_suite(void);
Suite *hoist_suite(void);
Suite *memory_suite(void);
Suite *moves_suite(void);
Suite *overlap_suite(void);
Suite *pipeline_suite(void);
Suite *remat_suite(void);
Suite *schedule_suite(void);

/* One test's arena, error, variables and empty trace. */
extern MxArena arena;
extern MxError err;
extern MxVars vars;
extern MxTrace t;

void set_up(void);
void tear_down(void);
/* A case whose tests start from set_up, added to the suite. */
TCase *add_case(Suite *suite, const char *name);
/* A stream of numbers for tests, the same in every run. */
uint64_t draw(uint64_t *state);

/* new_var — a variable; source — a new variable's value. */
int new_var(const char *name, MxDtype dtype, MxShape shape);
MxValue source(const char *name, MxDtype dtype, MxShape shape);
MxValue scalar(const char *name);

/* The graph as it is printed, and that it is printed so. */
const char *printed(const MxGraph *graph);
void ck_graph(const char *want);
int count_op(const MxGraph *graph, const MxOp *op);
/* A machine that exchanges by messages; options without scratch, or with some that depends on the
 * op. */
extern const MxMachine test_machine;
extern const MxLowerOptions no_scratch, some_scratch;

/* ---- interpreter */

enum { PRIME = 251 }; /* bf16 holds every integer up to 256 */

/* What the variables hold: [var][element], all less than PRIME. */
typedef uint32_t *const *Contents;

/* initial_contents — what variables hold before anything runs. */
Contents initial_contents(uint64_t seed);
/* eval_graph — the variables after a run in the order of the nodes, every value in a place of its
 * own. */
Contents eval_graph(const MxGraph *graph, Contents before);
/* eval_lowered — the variables after a run of a lowered (made with some_scratch) in its one arena,
 * with scratch overwritten and addends copied as the run room does it; fails if an output would
 * overwrite an input that it may not take over. */
Contents eval_lowered(const MxLowered *lowered, Contents before);
void ck_same(Contents a, Contents b, const char *what, uint64_t seed);

/* ck_lowered — checks by brute force that nothing that a lowered needs at the same time lies in one
 * place; returns the most bytes that any step needs. */
size_t ck_lowered(const MxLowered *lowered, const MxLowerOptions *options, uint64_t seed);

/* ---- graphs */

/* random_forward — traces a random graph of polynomials over a few variables, with regions; its
 * last value is a scalar. params receives the variables' values, most of which it depends on. */
enum { N_PARAMS = 4 };
MxValue random_forward(uint64_t seed, int n_nodes, MxValue params[N_PARAMS]);
/* random_program — traces a random graph that also writes variables, some several times, some by
 * adding. */
void random_program(uint64_t seed, int n_nodes);

/* model_forward — traces a decoder of two layers with one region each; returns the loss. params
 * receives the values of the parameters. */
enum { MODEL_LAYERS = 2, MODEL_PARAMS = 3 + 9 * MODEL_LAYERS };
MxValue model_forward(MxDtype dtype, MxValue params[MODEL_PARAMS]);
/* differentiate — mx_grad with a new f32 variable for each value's gradient. */
void differentiate(MxValue loss, const MxValue *wrt, int n);

#endif
