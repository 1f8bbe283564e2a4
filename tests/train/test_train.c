/* test_train.c — runs the suites of the trainer. */
#include "train_test.h"

int main(void) {
    return RUN_SUITES(
        golden_suite(), families_suite(), hf_suite(), images_suite(), sounds_suite(),
        optimizers_suite(), post_suite(), preference_suite(), policy_suite(), iterations_suite(),
        rollouts_suite(), grpo_suite(), tags_suite(), rules_suite(), kto_suite(), reward_suite(),
        sft_losses_suite(), packed_suite(), losses_see_suite(), family_runs_suite(), parts_suite(),
        reference_suite(), tiles_suite(), lora_suite(), lora_runs_suite(), peft_runs_suite(),
        dora_suite(), whole_suite(), qlora_suite(), quantized_suite(), ahead_suite(), clip_suite(),
        told_suite(), turns_suite(), blocks_suite(), release_suite(), disk_suite(), distill_suite(),
        distill_runs_suite(), learn_to_init_suite(), dropout_suite(), blackbox_suite(),
        diloco_suite(), data_runs_suite(), checkpoints_suite(), console_suite(), paces_suite(),
        terminal_suite(), trace_suite(), environment_suite(), signals_suite());
}
