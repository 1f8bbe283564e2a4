/* test_train.c — runs the suites of the trainer. */
#include "train_test.h"

#include <stdlib.h>

int main(void) {
    SRunner *runner = srunner_create(golden_suite());
    srunner_add_suite(runner, families_suite());
    srunner_add_suite(runner, hf_suite());
    srunner_add_suite(runner, images_suite());
    srunner_add_suite(runner, optimizers_suite());
    srunner_add_suite(runner, post_suite());
    srunner_add_suite(runner, preference_suite());
    srunner_add_suite(runner, policy_suite());
    srunner_add_suite(runner, iterations_suite());
    srunner_add_suite(runner, rollouts_suite());
    srunner_add_suite(runner, grpo_suite());
    srunner_add_suite(runner, rules_suite());
    srunner_add_suite(runner, kto_suite());
    srunner_add_suite(runner, reward_suite());
    srunner_add_suite(runner, packed_suite());
    srunner_add_suite(runner, parts_suite());
    srunner_add_suite(runner, reference_suite());
    srunner_add_suite(runner, tiles_suite());
    srunner_add_suite(runner, lora_suite());
    srunner_add_suite(runner, lora_runs_suite());
    srunner_add_suite(runner, qlora_suite());
    srunner_add_suite(runner, quantized_suite());
    srunner_add_suite(runner, ahead_suite());
    srunner_add_suite(runner, clip_suite());
    srunner_add_suite(runner, blocks_suite());
    srunner_add_suite(runner, disk_suite());
    srunner_add_suite(runner, distill_suite());
    srunner_add_suite(runner, dropout_suite());
    srunner_add_suite(runner, blackbox_suite());
    srunner_add_suite(runner, diloco_suite());
    srunner_add_suite(runner, data_runs_suite());
    srunner_add_suite(runner, checkpoints_suite());
    srunner_add_suite(runner, console_suite());
    srunner_add_suite(runner, paces_suite());
    srunner_add_suite(runner, terminal_suite());
    srunner_add_suite(runner, trace_suite());
    srunner_add_suite(runner, environment_suite());
    srunner_add_suite(runner, signals_suite());
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
