/* check_batch.c — batches that cannot be divided among devices, pipeline micro-batches or DiLoCo
 * replicas; and features that these do not support yet. */
#include "check.h"

/* At least one row on all devices together. */
static void check_rows(ConfigLoad *load, MxKey key, double rows) {
    int64_t n = load->config->num_target_devices;
    double all = rows * (double)n;
    if (!GOOD(load, key) || (all >= 1 && rows <= CONFIG_LARGEST_SIZE && all <= CONFIG_LARGEST_SIZE))
        return;
    if (n == 1)
        config_fail(load, key, "%.15g rows on one device; wants 1 to %d", rows,
                    CONFIG_LARGEST_SIZE);
    else
        config_fail(load, key, "%.15g rows on each of %lld devices; wants 1 to %d in all", rows,
                    (long long)n, CONFIG_LARGEST_SIZE);
}

/* A pipeline's micro-batches are alike. */
static void check_pipeline(ConfigLoad *load, const MxConfig *c) {
    int64_t rows =
        c->global_batch_size_to_train_on / c->gradient_accumulation_steps / c->diloco_replicas;
    if (rows % c->pipeline_micro_batches)
        config_fail(
            load,
            config_culprit(load, MX_KEY_num_pipeline_microbatches, MX_KEY_per_device_batch_size),
            "%lld rows do not divide into %lld micro-batches of a pipeline", (long long)rows,
            (long long)c->pipeline_micro_batches);
}

/* Replicas would write by other policies than they train. */
static void check_writers(ConfigLoad *load, const MxConfig *c) {
    if (GOOD(load, MX_KEY_enable_diloco, MX_KEY_use_grpo, MX_KEY_rl_reward) && c->enable_diloco &&
        mx_config_writes(c))
        config_fail(load, config_culprit(load, MX_KEY_enable_diloco, MX_KEY_rl_reward),
                    "not available yet where the policy writes responses (rl.reward %s)",
                    c->rl_reward);
}

/* Replicas have as many rows each. Source: MaxText utils/diloco_sharding.py @e591f30c,
 * reshape_first_axis_with_diloco. */
static void check_replicas(ConfigLoad *load, const MxConfig *c) {
    const struct {
        MxKey key;
        int64_t rows;
    } batches[] = {
        {MX_KEY_per_device_batch_size,
         c->global_batch_size_to_train_on / c->gradient_accumulation_steps},
        {MX_KEY_per_device_batch_size, c->global_batch_size_to_load},
        {MX_KEY_eval_per_device_batch_size, c->global_batch_size_to_eval_on},
        {MX_KEY_eval_per_device_batch_size, c->global_batch_size_to_load_eval},
    };
    for (int i = 0; i < MX_COUNT(batches); i++)
        if (batches[i].rows % c->diloco_replicas && GOOD(load, batches[i].key)) {
            config_fail(load, batches[i].key,
                        "%lld rows do not divide among %lld replicas (diloco)",
                        (long long)batches[i].rows, (long long)c->diloco_replicas);
            return;
        }
}

/* Source: MaxText configs/types.py @e591f30c, validate_streaming_diloco_params. */
static void check_fragments(ConfigLoad *load, const MxConfig *c) {
    if (!c->enable_diloco || !c->enable_streaming_diloco ||
        !GOOD(load, MX_KEY_num_diloco_fragments, MX_KEY_base_num_decoder_layers))
        return;
    if (!c->num_diloco_fragments)
        config_fail(load, MX_KEY_enable_streaming_diloco,
                    "wants num_diloco_fragments, at least 2: one of all but layers, and shares of "
                    "the layers");
    else if (c->num_decoder_layers % (c->num_diloco_fragments - 1))
        config_fail(load, MX_KEY_num_diloco_fragments,
                    "%lld layers do not divide among %lld fragments; the first has what is in no "
                    "layer",
                    (long long)c->num_decoder_layers, (long long)c->num_diloco_fragments - 1);
}

/* What asks for a batch as a whole. */
static void check_ramp_alone(ConfigLoad *load, const MxConfig *c) {
    const struct {
        MxKey key;
        bool is_on;
    } others[] = {
        {MX_KEY_gradient_accumulation_steps, c->gradient_accumulation_steps > 1},
        {MX_KEY_expansion_factor_real_data,
         c->global_batch_size_to_load > c->global_batch_size_to_train_on},
        {MX_KEY_reuse_example_batch, c->reuse_example_batch > 0},
        {MX_KEY_use_multimodal, c->use_multimodal},
        {MX_KEY_enable_diloco, c->enable_diloco},
        {MX_KEY_use_dpo, c->use_dpo},
        {MX_KEY_use_grpo, c->use_grpo},
        {MX_KEY_use_kto, c->use_kto},
        {MX_KEY_teacher_overrides, mx_config_distils(c)},
        {MX_KEY_load_balance_loss_weight, c->num_experts > 1 && c->load_balance_loss_weight > 0},
        {MX_KEY_indexer_loss_scaling_factor, c->use_indexer && c->indexer_loss_scaling_factor > 0},
    };
    for (int i = 0; i < MX_COUNT(others); i++)
        if (others[i].is_on && GOOD(load, others[i].key, MX_KEY_enable_rampup_batch_size))
            config_fail(load, others[i].key,
                        "enable_rampup_batch_size=true does not go with it yet");
}

/* Source: MaxText utils/rampup_batch.py @e591f30c, _verify_inputs. */
static void check_ramp(ConfigLoad *load, const MxConfig *c) {
    const MxKey keys[] = {MX_KEY_per_device_batch_size_start,
                          MX_KEY_per_device_batch_size_increment};
    if (!c->enable_rampup_batch_size || !GOOD(load, MX_KEY_per_device_batch_size, keys[0], keys[1]))
        return;
    if (c->ramp.stages)
        check_ramp_alone(load, c);
    else
        config_fail(load, config_culprit(load, keys[0], keys[1]),
                    "batches do not grow from %g to %g rows on a device by %g at a time",
                    c->per_device_batch_size_start, c->per_device_batch_size,
                    c->per_device_batch_size_increment);
}

void config_check_batch(ConfigLoad *load, const MxConfig *c) {
    check_rows(load, MX_KEY_per_device_batch_size, c->per_device_batch_size);
    if (GOOD(load, MX_KEY_per_device_batch_size, MX_KEY_num_pipeline_microbatches,
             MX_KEY_gradient_accumulation_steps))
        check_pipeline(load, c);
    if (GOOD(load, MX_KEY_gradient_accumulation_steps)) check_replicas(load, c);
    check_ramp(load, c);
    check_writers(load, c);
    check_fragments(load, c);
    if (!load->slots[MX_KEY_eval_per_device_batch_size].is_derived)
        check_rows(load, MX_KEY_eval_per_device_batch_size, c->eval_per_device_batch_size);
    if (GOOD(load, MX_KEY_expansion_factor_real_data, MX_KEY_per_device_batch_size) &&
        c->global_batch_size_to_load > CONFIG_LARGEST_SIZE)
        config_fail(load, MX_KEY_expansion_factor_real_data, "%lld rows to load; wants at most %d",
                    (long long)c->global_batch_size_to_load, CONFIG_LARGEST_SIZE);
    if (GOOD(load, MX_KEY_per_device_batch_size, MX_KEY_max_target_length,
             MX_KEY_num_vocab_tiling) &&
        c->tokens_per_step % c->num_vocab_tiling)
        config_fail(load, MX_KEY_num_vocab_tiling,
                    "%lld does not divide per_device_batch_size * max_target_length = %lld",
                    (long long)c->num_vocab_tiling, (long long)c->tokens_per_step);
}
