/* ckpt_test.h — the suites of this room, a scratch folder for each test, and train states to save:
 * that of the golden llama2 model, and a smaller one with every kind of leaf. */
#ifndef CKPT_TEST_H
#define CKPT_TEST_H
#include "common/goldens.h"
#include "common/suite.h"

#include <check.h>
#include <mx/ckpt.h>

Suite *adapters_suite(void);
Suite *few_bits_suite(void);
Suite *layout_suite(void);
Suite *read_suite(void);
Suite *save_suite(void);
Suite *share_suite(void);
Suite *trees_suite(void);
Suite *tools_suite(void);
Suite *gguf_suite(void);
Suite *hostile_suite(void);
Suite *lora_tools_suite(void);
Suite *peft_suite(void);
Suite *hf_suite(void);
Suite *hf_config_suite(void);
Suite *hf_images_suite(void);
Suite *runs_suite(void);
Suite *hf_deepseek4_suite(void);
Suite *hf_scaled_suite(void);
Suite *origin_suite(void);
Suite *logits_suite(void);

/* One test's arena, error and empty folder. */
extern MxArena arena;
extern MxError err;
extern char *folder;

void set_up(void);
void tear_down(void);
TCase *add_case(Suite *suite, const char *name);
char *in_folder(const char *name);
/* The call worked. */
void ck_ok(bool ok);
/* The call failed with exit code 65 and a text that contains `words`; clears the error. */
void ck_failed(bool ok, const char *words);

/* MaxText's own files: a golden one, open. */
MxH5 *open_golden(const char *name);
/* golden_state — the state of the golden llama2 or of a like model of other depth, its leaves' data
 * zeroed. */
MxTree golden_state(int n_layers);

/* small_state — parameters in a stack of `count` and outside, a bf16 moment, counters; its data
 * drawn from the seed, NaNs among it (seed 0 = zeros). */
MxTree small_state(uint64_t seed);
size_t leaf_bytes(const MxLeaf *leaf);
/* ck_same — every leaf of `a` below a prefix is bit by bit the leaf of `b`. */
void ck_same(const MxTree *a, const MxTree *b, const char *prefix, const char *what);

extern const MxForm forms[];
extern const int n_forms;
const char *form_text(MxForm form);

#endif
