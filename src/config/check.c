/* check.c — values that are valid alone but not together: batches, schedule, optimizer, losses,
 * checkpoints and rules. Source: MaxText types.py validators @e591f30c; ours where marked. */
#include "check.h"

bool config_are_good(const ConfigLoad *load, const MxKey *keys, int n) {
    for (int i = 0; i < n; i++)
        if (load->slots[keys[i]].is_bad) return false;
    return true;
}

MxKey config_culprit(const ConfigLoad *load, MxKey a, MxKey b) {
    return load->slots[b].from > load->slots[a].from ? b : a;
}

/* A topology says how many devices there are, so nobody else may say another number. */
static void check_topology(ConfigLoad *load, const MxConfig *c) {
    const MxKey key = MX_KEY_compile_topology;
    if (!c->compile_topology || !GOOD(load, key, MX_KEY_compile_topology_num_slices)) return;
    int64_t devices = config_topology_devices(c->compile_topology);
    if (!devices) {
        config_fail(load, key, "unrecognized topology \"%s\", wants a size of %s that exists",
                    config_shorten(load->arena, c->compile_topology),
                    config_topology_families(load->arena));
        return;
    }
    int64_t n_slices = c->compile_topology_num_slices > 0 ? c->compile_topology_num_slices : 1;
    if (GOOD(load, MX_KEY_num_devices) && c->num_devices != devices * n_slices)
        config_fail(load, config_culprit(load, key, MX_KEY_num_devices),
                    "%lld, but compile_topology %s has %lld devices in each of its slices (%lld)",
                    (long long)c->num_devices, c->compile_topology, (long long)devices,
                    (long long)n_slices);
}

static void check_ahead(ConfigLoad *load, const MxConfig *c) {
    if (GOOD(load, MX_KEY_mtp_num_layers, MX_KEY_mtp_eval_target_module) &&
        c->mtp_eval_target_module > c->mtp_num_layers)
        config_fail(load, MX_KEY_mtp_eval_target_module, "%lld is more than mtp_num_layers = %lld",
                    (long long)c->mtp_eval_target_module, (long long)c->mtp_num_layers);
    if (GOOD(load, MX_KEY_mtp_num_layers, MX_KEY_use_dpo, MX_KEY_use_grpo, MX_KEY_use_kto) &&
        (c->use_dpo || c->use_grpo || c->use_kto) && c->mtp_num_layers)
        config_warn(
            load, MX_NOWHERE,
            "losses of responses do not train modules that look ahead (mtp_num_layers is %lld): "
            "only weight decay changes them",
            (long long)c->mtp_num_layers);
}

static void check_schedule(ConfigLoad *load, const MxConfig *c) {
    if (GOOD(load, MX_KEY_steps, MX_KEY_learning_rate_schedule_steps) && c->steps == -1)
        config_fail(load, config_culprit(load, MX_KEY_steps, MX_KEY_learning_rate_schedule_steps),
                    "steps and learning_rate_schedule_steps are both -1; one must say a number");
    bool is_wsd = GOOD(load, MX_KEY_lr_schedule_type) && !strcmp(c->lr_schedule_type, "wsd");
    double sum = c->warmup_steps_fraction + c->wsd_decay_steps_fraction;
    if (is_wsd && GOOD(load, MX_KEY_warmup_steps_fraction, MX_KEY_wsd_decay_steps_fraction) &&
        sum > 1)
        config_fail(
            load,
            config_culprit(load, MX_KEY_wsd_decay_steps_fraction, MX_KEY_warmup_steps_fraction),
            "warmup_steps_fraction %.15g + wsd_decay_steps_fraction %.15g is more than 1",
            c->warmup_steps_fraction, c->wsd_decay_steps_fraction);
}

void config_check_regex(ConfigLoad *load, MxKey key, const char *pattern) {
    MxArena arena = {.name = "pattern"};
    const char *why;
    if (!mx_regex_new(&arena, pattern, &why))
        config_fail(load, key, "\"%s\" is not a regular expression: %s",
                    config_shorten(load->arena, pattern), why);
    mx_arena_release(&arena);
}

static void check_regexes(ConfigLoad *load, const MxConfig *c) {
    const struct {
        MxKey key;
        const MxStrs *patterns;
    } masks[] = {{MX_KEY_adamw_mask, &c->adamw_mask},
                 {MX_KEY_trainable_parameters_mask, &c->trainable_parameters_mask},
                 {MX_KEY_student_params_to_update, &c->student_params_to_update}};
    for (int k = 0; k < MX_COUNT(masks); k++) {
        if (!GOOD(load, masks[k].key)) continue;
        for (int i = 0; i < masks[k].patterns->n; i++)
            config_check_regex(load, masks[k].key, masks[k].patterns->item[i]);
    }
}

/* One response's own completion would be no other one's. */
static void check_kto(ConfigLoad *load, const MxConfig *c) {
    if (!GOOD(load, MX_KEY_use_kto) || !c->use_kto) return;
    if (GOOD(load, MX_KEY_per_device_batch_size, MX_KEY_kto_loss) && !strcmp(c->kto_loss, "kto") &&
        (c->global_batch_size_to_load < 2 ||
         (c->eval_interval > 0 && c->global_batch_size_to_load_eval < 2)))
        config_fail(
            load, config_culprit(load, MX_KEY_use_kto, MX_KEY_per_device_batch_size),
            "kto.loss=kto pairs prompts with completions of other rows; it wants batches of 2 or "
            "more");
    if (GOOD(load, MX_KEY_dpo_reference) && !strcmp(c->dpo_reference, "precomputed"))
        config_fail(load, config_culprit(load, MX_KEY_use_kto, MX_KEY_dpo_reference),
                    "precomputed is not available yet with use_kto=true");
}

/* What a reward is made with. */
static void check_reward(ConfigLoad *load, const MxConfig *c) {
    const struct {
        const char *reward;
        MxKey key;
        const char *needs;
    } needs[] = {{"command", MX_KEY_rl_reward_command, c->rl_reward_command},
                 {"regex", MX_KEY_rl_reward_pattern, c->rl_reward_pattern},
                 {"maxtext", MX_KEY_reasoning_start_token, c->reasoning_start_token},
                 {"maxtext", MX_KEY_reasoning_end_token, c->reasoning_end_token},
                 {"maxtext", MX_KEY_solution_start_token, c->solution_start_token},
                 {"maxtext", MX_KEY_solution_end_token, c->solution_end_token}};
    if (GOOD(load, MX_KEY_rl_reward_pattern) && c->rl_reward_pattern)
        config_check_regex(load, MX_KEY_rl_reward_pattern, c->rl_reward_pattern);
    if (!GOOD(load, MX_KEY_rl_reward) || !mx_config_writes(c)) return;
    for (int i = 0; i < MX_COUNT(needs); i++)
        if (!strcmp(c->rl_reward, needs[i].reward) && !needs[i].needs)
            config_fail(load, MX_KEY_rl_reward, "%s wants %s", c->rl_reward,
                        mx_key_name(needs[i].key));
    if (GOOD(load, MX_KEY_max_prefill_predict_length, MX_KEY_max_target_length) &&
        c->max_prefill_predict_length >= c->max_target_length)
        config_fail(
            load, config_culprit(load, MX_KEY_max_prefill_predict_length, MX_KEY_max_target_length),
            "max_prefill_predict_length %lld leaves no room for completions in max_target_length "
            "%lld",
            (long long)c->max_prefill_predict_length, (long long)c->max_target_length);
    if (GOOD(load, MX_KEY_dpo_reference, MX_KEY_grpo_beta) && c->grpo_beta > 0 &&
        !strcmp(c->dpo_reference, "precomputed"))
        config_fail(load, config_culprit(load, MX_KEY_dpo_reference, MX_KEY_rl_reward),
                    "precomputed wants responses that are in the data; rl.reward %s lets the "
                    "policy write them",
                    c->rl_reward);
}

/* A group of one has nothing to compare its response with. */
static void check_rewards(ConfigLoad *load, const MxConfig *c) {
    if (!GOOD(load, MX_KEY_use_grpo) || !c->use_grpo) return;
    if (GOOD(load, MX_KEY_rl_loss_algo, MX_KEY_rl_num_generations) && c->rl_num_generations < 2 &&
        strcmp(c->rl_loss_algo, "reinforce_pp"))
        config_fail(
            load, config_culprit(load, MX_KEY_rl_loss_algo, MX_KEY_rl_num_generations),
            "%s compares the responses of a group, of which rl.num_generations=1 leaves one",
            c->rl_loss_algo);
    if (GOOD(load, MX_KEY_rl_loss_algo, MX_KEY_rl_epsilon_high, MX_KEY_rl_num_iterations) &&
        mx_config_has_ratios(c) && c->rl_epsilon_high <= 0 && !strcmp(c->rl_loss_algo, "cispo"))
        config_fail(load, config_culprit(load, MX_KEY_rl_epsilon_high, MX_KEY_rl_loss_algo),
                    "cispo wants the largest weight of a token in rl.epsilon_high, such as 5");
    if (GOOD(load, MX_KEY_decode_sampling_temperature) && !(c->decode_sampling_temperature > 0))
        config_fail(load, MX_KEY_decode_sampling_temperature,
                    "use_grpo wants more than 0, found %g: log-probabilities are those of samples",
                    c->decode_sampling_temperature);
    check_reward(load, c);
}

/* MaxText accepts the first two, and then trains nothing (ours). */
static void check_lora(ConfigLoad *load, const MxConfig *c) {
    if (!GOOD(load, MX_KEY_enable_lora)) return;
    if (c->enable_lora && GOOD(load, MX_KEY_lora_rank) && !c->lora_rank)
        config_fail(load, config_culprit(load, MX_KEY_lora_rank, MX_KEY_enable_lora),
                    "adapters want lora.lora_rank of at least 1, found 0");
    if (c->enable_lora && GOOD(load, MX_KEY_lora_alpha) && c->lora_alpha <= 0)
        config_fail(load, config_culprit(load, MX_KEY_lora_alpha, MX_KEY_enable_lora),
                    "adapters want lora.lora_alpha above 0, found 0; they count alpha / rank");
    if (!c->enable_lora && GOOD(load, MX_KEY_lora_restore_path) && c->lora_restore_path)
        config_fail(load, MX_KEY_lora_restore_path, "wants lora.enable_lora=true");
    if (GOOD(load, MX_KEY_lora_module_path) && c->lora_module_path)
        config_check_regex(load, MX_KEY_lora_module_path, c->lora_module_path);
    if (GOOD(load, MX_KEY_lora_modules_to_save) && c->lora_modules_to_save)
        config_check_regex(load, MX_KEY_lora_modules_to_save, c->lora_modules_to_save);
}

static void check_calibration(ConfigLoad *load, const MxConfig *c) {
    const struct {
        MxKey key;
        const char *value;
    } methods[] = {
        {MX_KEY_weight_calibration, c->weight_calibration},
        {MX_KEY_act_calibration, c->act_calibration},
        {MX_KEY_bwd_calibration, c->bwd_calibration},
        {MX_KEY_drhs_calibration, c->drhs_calibration},
    };
    for (int i = 0; i < MX_COUNT(methods); i++) {
        if (!GOOD(load, methods[i].key) || !methods[i].value) continue;
        MxCalibration read;
        const char *why = mx_calibration_parse(load->arena, methods[i].value, &read);
        if (why) config_fail(load, methods[i].key, "%s", why);
    }
}

/* MaxText prunes experts by masks of their own, which it makes at some steps and keeps. */
static void check_sparsity(ConfigLoad *load, const MxConfig *c) {
    const MxKey n = MX_KEY_weight_sparsity_n, m = MX_KEY_weight_sparsity_m;
    if (!GOOD(load, n, m) || !c->weight_sparsity_n || !c->weight_sparsity_m) return;
    if (c->weight_sparsity_n > c->weight_sparsity_m)
        config_fail(load, config_culprit(load, n, m), "cannot keep %lld of %lld elements",
                    (long long)c->weight_sparsity_n, (long long)c->weight_sparsity_m);
    if (GOOD(load, MX_KEY_num_experts) && c->num_experts > 1)
        config_fail(load, config_culprit(load, n, MX_KEY_num_experts),
                    "not available yet for %lld experts", (long long)c->num_experts);
}

/* Products of experts have operands of their own. */
static void check_quantization(ConfigLoad *load, const MxConfig *c) {
    if (!GOOD(load, MX_KEY_quantization) || !*c->quantization) return;
    if (GOOD(load, MX_KEY_num_experts) && c->num_experts > 1 &&
        !strcmp(c->quantization, "fp8_full"))
        config_fail(load, config_culprit(load, MX_KEY_quantization, MX_KEY_num_experts),
                    "fp8_full, which rounds what experts multiply too, is not available yet for "
                    "%lld experts; fp8 leaves those as they are",
                    (long long)c->num_experts);
    check_sparsity(load, c);
}

/* What block diffusion does not go with, as in MaxText. */
static void check_blocks(ConfigLoad *load, const MxConfig *c) {
    const struct {
        MxKey key;
        bool is_set;
    } others[] = {
        {MX_KEY_packing, c->packing},
        {MX_KEY_mtp_num_layers, c->mtp_num_layers > 0},
        {MX_KEY_use_sft, c->use_sft},
        {MX_KEY_use_dpo, c->use_dpo},
        {MX_KEY_use_grpo, c->use_grpo},
        {MX_KEY_use_kto, c->use_kto},
        {MX_KEY_use_multimodal, c->use_multimodal},
    };
    if (!GOOD(load, MX_KEY_training_objective) ||
        strcmp(c->training_objective, "block_diffusion") != 0)
        return;
    for (int i = 0; i < MX_COUNT(others); i++)
        if (GOOD(load, others[i].key) && others[i].is_set)
            config_fail(load, config_culprit(load, others[i].key, MX_KEY_training_objective),
                        "block_diffusion does not go with %s", mx_key_name(others[i].key));
    if (GOOD(load, MX_KEY_block_diffusion_mask_id, MX_KEY_vocab_size) &&
        (c->block_diffusion_mask_id < 0 || c->block_diffusion_mask_id >= c->vocab_size))
        config_fail(load,
                    config_culprit(load, MX_KEY_block_diffusion_mask_id, MX_KEY_training_objective),
                    "wants a token from 0 to %lld, found %lld", (long long)c->vocab_size - 1,
                    (long long)c->block_diffusion_mask_id);
    bool is_shifted = !strcmp(c->block_diffusion_logit_alignment, "shifted");
    bool has_seed = !strcmp(c->block_diffusion_canvas_policy, "seed_and_mask");
    if (is_shifted != has_seed)
        config_fail(load,
                    config_culprit(load, MX_KEY_block_diffusion_logit_alignment,
                                   MX_KEY_block_diffusion_canvas_policy),
                    "%s does not go with %s; same_position goes with all_masked, shifted with "
                    "seed_and_mask",
                    c->block_diffusion_logit_alignment, c->block_diffusion_canvas_policy);
    if (has_seed && c->causal_block_size < 2)
        config_fail(
            load,
            config_culprit(load, MX_KEY_causal_block_size, MX_KEY_block_diffusion_canvas_policy),
            "seed_and_mask wants blocks of at least 2 tokens, found %lld",
            (long long)c->causal_block_size);
}

static bool is_rule(const MxYaml *rule) {
    if (rule->kind != MX_YAML_LIST || rule->n != 2) return false;
    if (rule->item[0]->kind >= MX_YAML_LIST || rule->item[1]->kind == MX_YAML_MAP) return false;
    for (int i = 0; i < rule->item[1]->n; i++)
        if (rule->item[1]->item[i]->kind >= MX_YAML_LIST) return false;
    return true;
}

static void check_rules(ConfigLoad *load, MxKey key, const MxYaml *rules) {
    if (!GOOD(load, key) || config_node_is_null(rules)) return;
    if (rules->kind != MX_YAML_LIST) {
        config_fail(load, key, "wants a list of rules [axis, mesh axes], found %s",
                    config_quote(load->arena, rules));
        return;
    }
    for (int i = 0; i < rules->n; i++)
        if (!is_rule(rules->item[i]))
            config_report(load, rules->item[i]->where,
                          "%s: wants a rule [axis, mesh axes], found %s", mx_key_name(key),
                          config_quote(load->arena, rules->item[i]));
}

static void check_axes(ConfigLoad *load, const MxConfig *c) {
    const MxYaml *axes = c->mesh_axes;
    bool ok = axes->kind == MX_YAML_LIST && axes->n;
    for (int i = 0; ok && i < axes->n; i++) ok = axes->item[i]->kind < MX_YAML_LIST;
    if (GOOD(load, MX_KEY_mesh_axes) && !ok)
        config_fail(load, MX_KEY_mesh_axes, "wants a list of names, found %s",
                    config_quote(load->arena, axes));
    if (GOOD(load, MX_KEY_data_sharding) && c->data_sharding->kind != MX_YAML_LIST)
        config_fail(load, MX_KEY_data_sharding, "wants a list of mesh axes, found %s",
                    config_quote(load->arena, c->data_sharding));
}

static int64_t common_divisor(int64_t a, int64_t b) {
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* The rule about paths is MaxText's, those about the best checkpoint are ours. */
static void check_checkpoints(ConfigLoad *load, const MxConfig *c) {
    if (c->load_parameters_path && c->load_full_state_path)
        config_fail(load,
                    config_culprit(load, MX_KEY_load_full_state_path, MX_KEY_load_parameters_path),
                    "a run starts from one of load_parameters_path and load_full_state_path");
    if (!c->keep_best_checkpoint || !c->enable_checkpointing) return;
    if (!GOOD(load, MX_KEY_eval_interval, MX_KEY_eval_start_step, MX_KEY_checkpoint_period)) return;
    if (c->eval_interval <= 0)
        config_fail(load, MX_KEY_keep_best_checkpoint,
                    "true, but nothing is evaluated: eval_interval is %lld",
                    (long long)c->eval_interval);
    else if (c->eval_start_step % common_divisor(c->eval_interval, c->checkpoint_period))
        config_fail(load, MX_KEY_keep_best_checkpoint,
                    "true, but no step is both evaluated (every %lld from %lld) and saved (every "
                    "%lld)",
                    (long long)c->eval_interval, (long long)c->eval_start_step,
                    (long long)c->checkpoint_period);
}

void config_check(ConfigLoad *load) {
    const MxConfig *c = load->config;
    config_check_run(load, c);
    check_topology(load, c);
    config_check_model(load, c);
    config_check_compressed(load, c);
    config_check_recall(load, c);
    config_check_vision(load, c);
    config_check_audio(load, c);
    config_check_batch(load, c);
    config_check_rewards(load, c);
    check_ahead(load, c);
    check_schedule(load, c);
    check_regexes(load, c);
    config_check_preference(load, c);
    check_rewards(load, c);
    check_kto(load, c);
    check_lora(load, c);
    check_calibration(load, c);
    check_quantization(load, c);
    check_blocks(load, c);
    config_check_data(load, c);
    check_checkpoints(load, c);
    config_check_distillation(load, c);
    check_rules(load, MX_KEY_logical_axis_rules, c->logical_axis_rules);
    check_rules(load, MX_KEY_logical_axis_rules_for_eval, c->logical_axis_rules_for_eval);
    check_axes(load, c);
}
