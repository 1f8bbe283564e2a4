/* train_test.h — the suites of this room's tests. */
#ifndef TESTS_TRAIN_TEST_H
#define TESTS_TRAIN_TEST_H

#include "common/suite.h"

#include <mx/store.h>
#include <mx/tree.h>

#include <check.h>

Suite *ahead_suite(void);
Suite *blocks_suite(void);
Suite *clip_suite(void);
Suite *diloco_suite(void);
Suite *disk_suite(void);
Suite *distill_suite(void);
Suite *dora_suite(void);
Suite *distill_runs_suite(void);
Suite *learn_to_init_suite(void);
Suite *dropout_suite(void);
Suite *environment_suite(void);
Suite *families_suite(void);
Suite *golden_suite(void);
Suite *blackbox_suite(void);
Suite *data_runs_suite(void);
Suite *paces_suite(void);
Suite *packed_suite(void);
Suite *losses_see_suite(void);
Suite *family_runs_suite(void);
Suite *parts_suite(void);
Suite *post_suite(void);
Suite *checkpoints_suite(void);
Suite *console_suite(void);
Suite *terminal_suite(void);
Suite *trace_suite(void);
Suite *grpo_suite(void);
Suite *tags_suite(void);
Suite *hf_suite(void);
Suite *images_suite(void);
Suite *sounds_suite(void);
Suite *preference_suite(void);
Suite *iterations_suite(void);
Suite *policy_suite(void);
Suite *kto_suite(void);
Suite *reward_suite(void);
Suite *lora_suite(void);
Suite *reference_suite(void);
Suite *rollouts_suite(void);
Suite *rules_suite(void);
Suite *lora_runs_suite(void);
Suite *peft_runs_suite(void);
Suite *qlora_suite(void);
Suite *quantized_suite(void);
Suite *optimizers_suite(void);
Suite *sft_losses_suite(void);
Suite *signals_suite(void);
Suite *tiles_suite(void);
Suite *release_suite(void);
Suite *told_suite(void);
Suite *turns_suite(void);
Suite *whole_suite(void);

/* hf_array — an array of a leaf, "GROUP/their name", in our layout (test_hf.c): of a tree with a
 * leaf a layer, whose kernels are as Hugging Face's. */
const float *hf_array(MxArena *arena, MxH5 *file, const char *group, const MxLeaf *leaf);

#endif
