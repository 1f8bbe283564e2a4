/* keys.c — no key does nothing in silence. Each one is set to another value in every mode of a run;
 * something must show it: an error, a warning, a line of the plan, a line of the log, a metric, or
 * what is in the files. What the config and the plan tell is found in this process; for the rest
 * the run is made. `make test` takes one mode for each key, MX_LONG all of them. */
#include "plan_test.h"

#include <mx/train.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- the keys */

typedef enum Type {
    TYPE_bool,
    TYPE_int,
    TYPE_float,
    TYPE_str,
    TYPE_choice,
    TYPE_strs,
    TYPE_node
} Type;

typedef struct Row {
    Type type;
    const char *name;
    size_t offset;
} Row;

static const Row rows[MX_KEY_COUNT] = {
#define MX_GROUP(name, on_resume, title)
#define MX_KEY(type_, field, name_, fallback, limits, unit, doc)                                   \
    [MX_KEY_##field] = {.type = TYPE_##type_, .name = name_, .offset = offsetof(MxConfig, field)},
#include <mx/config_keys.def>
#undef MX_KEY
#undef MX_GROUP
};

#define FIXTURES "tests/data/fixtures/"

/* Other values, where half or double of a number and the opposite of a bool will not do. {} is the
 * test's folder. */
static const struct {
    MxKey key;
    const char *value;
} others[] = {
    {MX_KEY_run_name, "y"},
    {MX_KEY_model_name, "llama3.1-8b"},
    {MX_KEY_profiler, "trace"},
    {MX_KEY_base_output_directory, "{}/elsewhere"},
    {MX_KEY_metrics_file, "{}/m.jsonl"},
    {MX_KEY_load_parameters_path, "{}/none.h5"},
    {MX_KEY_load_full_state_path, "{}/none.h5"},
    {MX_KEY_lora_restore_path, "{}/none.h5"},
    {MX_KEY_max_num_checkpoints_to_keep, "1"},
    {MX_KEY_decoder_block, "qwen3"},
    {MX_KEY_global_parameter_scale, "2"},
    {MX_KEY_base_num_query_heads, "4"},
    {MX_KEY_base_num_kv_heads, "1"},
    {MX_KEY_mlp_activations, "[gelu,linear]"},
    {MX_KEY_attention_type, "full"},
    {MX_KEY_routed_score_func, "sigmoid"},
    {MX_KEY_log_expert_load, "layers"},
    {MX_KEY_posemb_type_for_vit, "sincos2d"},
    {MX_KEY_rope_type, "yarn"},
    {MX_KEY_param_scan_axis, "0"},
    {MX_KEY_dtype, "bfloat16"},
    {MX_KEY_weight_dtype, "bfloat16"},
    {MX_KEY_grad_dtype, "bfloat16"},
    {MX_KEY_mu_dtype, "bfloat16"},
    {MX_KEY_gradient_exchange_dtype, "int8"},
    {MX_KEY_context_parallel_strategy, "ring"},
    {MX_KEY_remat_policy, "full"},
    {MX_KEY_matmul_precision, "high"},
    {MX_KEY_hardware, "gpu"},
    {MX_KEY_matmul_provider, "own"},
    {MX_KEY_quantization, "int8"},
    {MX_KEY_weight_calibration, "rms,3"},
    {MX_KEY_act_calibration, "fixed,2"},
    {MX_KEY_bwd_calibration, "absmax,0.5"},
    {MX_KEY_drhs_calibration, "rms,3"},
    {MX_KEY_weight_sparsity_n, "2"},
    {MX_KEY_weight_sparsity_m, "4"},
    {MX_KEY_num_threads, "2"},
    {MX_KEY_dataset_type, "synthetic"},
    {MX_KEY_text_train_files, "{}/more/b.txt"},
    {MX_KEY_text_eval_files, "{}/more/b.txt"},
    {MX_KEY_hdf5_train_files, "{}/b.h5"},
    {MX_KEY_hdf5_eval_files, "{}/b.h5"},
    {MX_KEY_olmo_index_path, "{}/olmo.json"},
    {MX_KEY_eval_olmo_index_path, "{}/olmo.json"},
    {MX_KEY_olmo_path_remap_from, "a"},
    {MX_KEY_olmo_path_remap_to, "x"},
    {MX_KEY_hf_path, "of/the/hub"},
    {MX_KEY_hf_train_files, "{}/other.jsonl"},
    {MX_KEY_hf_eval_files, "{}/other.jsonl"},
    {MX_KEY_grain_train_files, FIXTURES "short.array_record,2;" FIXTURES "long.array_record,1"},
    {MX_KEY_grain_eval_files, FIXTURES "texts.array_record"},
    {MX_KEY_grain_file_type, "tfrecord"},
    {MX_KEY_grain_train_mixture_config_path, "{}/mixture.json"},
    {MX_KEY_dataset_name, "texts/en"},
    {MX_KEY_eval_dataset_name, "other"},
    {MX_KEY_train_split, "validation"},
    {MX_KEY_train_data_columns, "[more]"},
    {MX_KEY_eval_data_columns, "[more]"},
    {MX_KEY_tokenizer_type, "sentencepiece"},
    {MX_KEY_tokenizer_path, "{}/tokenizer.json"},
    {MX_KEY_chat_template_path, "chatml"},
    {MX_KEY_chat_template, "x"},
    {MX_KEY_vision_encoder_block, "gemma3"},
    {MX_KEY_image_size_for_vit, "56"},
    {MX_KEY_normalization_layer_epsilon_for_vit, "1e-3"},
    {MX_KEY_deepstack_visual_indexes_for_vit, "[0]"},
    {MX_KEY_mrope_section, "[8, 4, 4]"},
    {MX_KEY_default_prompt, "Describe it."},
    {MX_KEY_train_image_column, "[picture]"},
    {MX_KEY_eval_image_column, "[picture]"},
    {MX_KEY_token_cache, "{}/tokens"},
    {MX_KEY_max_segments_per_seq, "1"},
    {MX_KEY_num_epoch, "2"},
    {MX_KEY_reuse_example_batch, "1"},
    {MX_KEY_eval_split, "0.5"},
    {MX_KEY_data_changed, "accept"},
    {MX_KEY_dataset_path, "{}"},
    {MX_KEY_expansion_factor_real_data, "2"},
    {MX_KEY_eval_start_step, "2"},
    {MX_KEY_eval_steps, "1"},
    {MX_KEY_eval_interval, "-1"},
    {MX_KEY_target_eval_loss, "100"},
    {MX_KEY_eval_tasks, "[{}/tasks.jsonl]"},
    {MX_KEY_sample_prompts, "{}/prompts.jsonl"},
    {MX_KEY_prompt, "x"},
    {MX_KEY_system_prompt, "x"},
    {MX_KEY_image_path, "x.png"},
    {MX_KEY_image_placeholder, "x"},
    {MX_KEY_audio_path, "x.wav"},
    {MX_KEY_audio_placeholder, "x"},
    {MX_KEY_decode_sampling_strategy, "weighted"},
    {MX_KEY_autoregressive_decode_assert, "x"},
    {MX_KEY_kv_quant_axis, "dkv"},
    {MX_KEY_kv_quant_dtype, "int4"},
    {MX_KEY_num_vocab_tiling, "4"},
    {MX_KEY_training_objective, "block_diffusion"},
    {MX_KEY_block_diffusion_logit_alignment, "shifted"},
    {MX_KEY_block_diffusion_canvas_policy, "seed_and_mask"},
    {MX_KEY_sft_loss, "dft"},
    {MX_KEY_dpo_algo, "ipo"},
    {MX_KEY_dpo_formula, "maxtext"},
    {MX_KEY_dpo_divergence, "js_divergence"},
    {MX_KEY_dpo_loss_weights, "{sft: 1}"},
    {MX_KEY_kto_loss, "apo_zero_unpaired"},
    {MX_KEY_dpo_max_prompt_length, "4"},
    {MX_KEY_dpo_reference, "precomputed"},
    {MX_KEY_dpo_reference_logps, "{}/logps"},
    {MX_KEY_rl_loss_algo, "rloo"},
    {MX_KEY_rl_loss_agg_mode, "seq-mean-token-sum"},
    {MX_KEY_rl_importance_sampling_level, "sequence"},
    {MX_KEY_rl_scale_rewards, "none"},
    {MX_KEY_rl_kl_loss_mode, "kl"},
    {MX_KEY_rl_reward, "length"},
    {MX_KEY_rl_reward_command, "x"},
    {MX_KEY_reasoning_start_token, "<x>"},
    {MX_KEY_reasoning_end_token, "<x>"},
    {MX_KEY_solution_start_token, "<x>"},
    {MX_KEY_solution_end_token, "<x>"},
    {MX_KEY_rl_reward_pattern, "x"},
    {MX_KEY_data_template_path, "{}/none.json"},
    {MX_KEY_eval_mode, "maj"},
    {MX_KEY_eval_sampling_strategy, "liberal"},
    {MX_KEY_generation_configs, "{greedy: {eval_top_k: 1}}"},
    {MX_KEY_teacher_overrides, "{load_parameters_path: {}/none.h5}"},
    {MX_KEY_student_overrides, "{normalization_layer_epsilon: 0.001}"},
    {MX_KEY_offline_data_dir, "{}/logits"},
    {MX_KEY_student_params_to_update, "[mlp]"},
    {MX_KEY_distill_weights_copy_map, "{x: y}"},
    {MX_KEY_distill_student_weights_share_map, "{x: y}"},
    {MX_KEY_attn_module_name, "self_attention"},
    {MX_KEY_lti_layer_indices, "[0]"},
    {MX_KEY_distill_alpha_end, "0.5"},
    {MX_KEY_distill_temperature_end, "0.5"},
    {MX_KEY_distill_beta_end, "0.5"},
    {MX_KEY_distill_alpha_schedule, "linear"},
    {MX_KEY_distill_temperature_schedule, "linear"},
    {MX_KEY_distill_beta_schedule, "linear"},
    {MX_KEY_distill_feature_loss_type, "l2"},
    {MX_KEY_distill_layer_indices, "[0]"},
    {MX_KEY_compress_ratios, "[4, 4]"},
    {MX_KEY_engram_layers, "[0]"},
    {MX_KEY_engram_vocab_bases, "[5, 7]"},
    {MX_KEY_opt_type, "sgd"},
    {MX_KEY_optimizer_state_dtype, "int8"},
    {MX_KEY_optimizer_memory_disk, "{}"},
    {MX_KEY_trainable_parameters_mask, "[mlp]"},
    {MX_KEY_skip_step_interval, "2"},
    {MX_KEY_record_internal_nn_metrics, "1"},
    {MX_KEY_muon_beta, "0.5"},
    {MX_KEY_muon_weight_decay, "0.5"},
    {MX_KEY_muon_consistent_rms, "0.5"},
    {MX_KEY_gradient_clipping_threshold, "0.1"},
    {MX_KEY_adafactor_min_dim_size_to_factor, "4"},
    {MX_KEY_adafactor_clipping_threshold, "2"},
    {MX_KEY_adafactor_momentum, "0.5"},
    {MX_KEY_adamw_mask, "[.*]"},
    {MX_KEY_adam_b2, "0.5"},
    {MX_KEY_lr_schedule_type, "wsd"},
    {MX_KEY_learning_rate_final_fraction, "0.5"},
    {MX_KEY_warmup_steps_fraction, "0.5"},
    {MX_KEY_wsd_decay_style, "cosine"},
    {MX_KEY_learning_rate_schedule_steps, "3"},
    {MX_KEY_num_diloco_fragments, "5"},
    {MX_KEY_lora_module_path, ".*out.*"},
    {MX_KEY_lora_modules_to_save, ".*norm"},
    {MX_KEY_lora_weight_qtype, "nf4"},
    {MX_KEY_num_devices, "4"},
    {MX_KEY_num_slices, "2"},
    {MX_KEY_compile_topology, "v5e-16"},
    {MX_KEY_compile_topology_num_slices, "2"},
    {MX_KEY_custom_mesh_and_rule, "pure-fsdp"},
    {MX_KEY_dcn_data_parallelism, "2"},
    {MX_KEY_ici_fsdp_parallelism, "2"},
    {MX_KEY_mesh_axes, "[data,fsdp]"},
    {MX_KEY_data_sharding, "[[data]]"},
    {MX_KEY_input_data_sharding_logical_axes, "[activation_embed_and_logits_batch]"},
    {MX_KEY_logical_axis_rules, "[[embed,tensor]]"},
    {MX_KEY_logical_axis_rules_for_eval, "[[activation_batch,fsdp]]"},
};

static const char *in_folder(const char *text) {
    const char *mark = strstr(text, "{}");
    if (!mark) return text;
    return in_folder(
        mx_arena_printf(&arena, "%.*s%s%s", (int)(mark - text), text, temp_path("keys"), mark + 2));
}

static const char *other_value(const MxConfig *c, MxKey key) {
    const void *field = (const char *)c + rows[key].offset;
    for (int i = 0; i < MX_COUNT(others); i++)
        if (others[i].key == key) return in_folder(others[i].value);
    switch (rows[key].type) {
    case TYPE_bool:
        return *(const bool *)field ? "false" : "true";
    case TYPE_int:
        return mx_arena_printf(
            &arena, "%lld",
            (long long)(*(const int64_t *)field > 0 ? 2 * *(const int64_t *)field : 2));
    case TYPE_float:
        return mx_arena_printf(&arena, "%g",
                               *(const double *)field > 0 ? *(const double *)field / 2 : 0.25);
    default:
        ck_abort_msg("%s: the table above lacks another value", rows[key].name);
        return NULL;
    }
}

/* ---- modes */

#define SMALL                                                                                      \
    "configs/base.yml base_emb_dim=16 base_num_decoder_layers=2 base_num_query_heads=2 "           \
    "base_num_kv_heads=2 head_dim=8 base_mlp_dim=16 max_target_length=32 steps=6 "                 \
    "eval_interval=2 eval_steps=2 checkpoint_period=3 max_num_checkpoints_to_keep=2 "              \
    "log_config=false run_name=x base_output_directory={}/out learning_rate=1.5 "                  \
    "learning_rate_schedule_steps=8 warmup_steps_fraction=0.25 "
#define ON_TEXT SMALL "text_train_files={}/text eval_split=0.3 "

static const struct {
    const char *name, *words;
    int n_ranks;
    bool is_planned; /* for machines elsewhere; what no plan tells, a run on one device shows */
} modes[] = {
    {"pre-training", ON_TEXT "per_device_batch_size=2", 1, false},
    {"sft",
     SMALL "per_device_batch_size=2 eval_split=0.3 use_sft=true dataset_type=hf "
           "hf_train_files={}/sft.jsonl",
     1, false},
    {"dpo",
     SMALL "per_device_batch_size=2 eval_split=0.3 use_dpo=true packing=false dataset_type=hf "
           "hf_train_files={}/dpo.jsonl",
     1, false},
    {"tfds",
     SMALL
     "per_device_batch_size=6 eval_per_device_batch_size=1 enable_rampup_batch_size=true "
     "per_device_batch_size_start=2 per_device_batch_size_increment=1 global_rampup_samples=8 "
     "dataset_type=tfds dataset_path=" FIXTURES
     "sets dataset_name=other eval_dataset_name=texts/en eval_split=validation",
     1, false},
    {"grain",
     SMALL "per_device_batch_size=3 eval_per_device_batch_size=1 eval_split=0.3 dataset_type=grain "
           "grain_train_files=" FIXTURES "short.array_record checkpoint_period=2",
     1, false},
    {"olmo",
     SMALL "per_device_batch_size=3 max_target_length=128 dataset_type=olmo_grain "
           "checkpoint_period=2 "
           "olmo_index_path=tests/golden/rows/olmo/index.json olmo_path_remap_from=c "
           "eval_olmo_index_path=tests/golden/rows/olmo/index.json "
           "olmo_path_remap_to=c",
     1, false},
    {"lora",
     ON_TEXT "per_device_batch_size=2 lora.enable_lora=true lora.lora_rank=2 lora.lora_alpha=4 "
             "vocab_size=1024",
     1, false},
    {"ranks", ON_TEXT "per_device_batch_size=1 ici_data_parallelism=2 ici_fsdp_parallelism=1", 2,
     false},
    {"diloco",
     ON_TEXT "per_device_batch_size=1 ici_fsdp_parallelism=1 ici_diloco_parallelism=2 "
             "enable_diloco=true base_num_decoder_layers=4 enable_streaming_diloco=true "
             "num_diloco_fragments=3 diloco_sync_period=6 async_checkpointing=false",
     2, false},
    {"plan",
     ON_TEXT "per_device_batch_size=2 num_devices=8 ici_data_parallelism=2 ici_fsdp_parallelism=4",
     1, true},
};

/* Keys that show only where something happens that these runs do not do, and where it is tested. */
static const struct {
    MxKey key;
    const char *where;
} elsewhere[] = {
    {MX_KEY_max_position_embeddings, "tests/train/test_golden.c: dense_mla and dense_mla_low_rank"},
    {MX_KEY_enable_dropout, "tests/train/test_dropout.c: a rate that is off"},
    {MX_KEY_log_every, "tests/train/test_console.c: lines of some steps"},
    {MX_KEY_profiler, "tests/train/test_trace.c: its file"},
    {MX_KEY_skip_first_n_steps_for_profiler, "the same"},
    {MX_KEY_profiler_steps, "the same"},
    {MX_KEY_profile_periodically_period, "the same"},
    {MX_KEY_log_period, "how much of a metrics file a crash may cost"},
    {MX_KEY_keep_best_checkpoint, "tests/train/test_checkpoints.c: an evaluation before the best"},
    {MX_KEY_watchdog_seconds, "tests/mpi/run.sh: a rank that hangs"},
    {MX_KEY_context_parallel_load_balance, "tests/mpi/exchanges.c: halves of a long row"},
    {MX_KEY_context_parallel_strategy, "the same: keys around a ring"},
    {MX_KEY_use_sft, "tests/data/test_records.c: prompts with completions"},
    {MX_KEY_generate_padding_batch_train, "tests/data/test_golden_rows.c: when the data ends"},
    {MX_KEY_data_changed, "tests/train/test_data_runs.c: other data when a run goes on"},
    {MX_KEY_abort_on_nan_loss, "tests/train/test_blackbox.c: a loss that is NaN"},
    {MX_KEY_abort_on_inf_loss, "the same, infinite"},
    {MX_KEY_prompt, "tests/cli/decoding.sh: mxdecode with a config"},
    {MX_KEY_use_chat_template, "the same"},
    {MX_KEY_system_prompt, "the same"},
    {MX_KEY_decode_sampling_strategy, "the same"},
    {MX_KEY_autoregressive_decode_assert, "the same"},
    {MX_KEY_image_path, "tests/cli/images.sh: a reply to a prompt of a config"},
    {MX_KEY_image_placeholder, "the same, and tests/data/test_turns.c"},
    {MX_KEY_audio_path, "tests/cli/sounds.sh: a reply to a prompt of a config"},
    {MX_KEY_audio_placeholder, "the same"},
    {MX_KEY_sharding_strict, "tests/plan/errors.c: rules that are passed over"},
};

static bool is_tested_elsewhere(MxKey key) {
    for (int i = 0; i < MX_COUNT(elsewhere); i++)
        if (elsewhere[i].key == key) return true;
    return false;
}

static void put_lines(const char *name, const char *format, int n) {
    MxText text;
    mx_text_init(&text, &arena);
    for (int i = 0; i < n; i++) mx_text_add(&text, format, i, i % 7, i % 5);
    write_text(in_folder(name), text.data);
}

/* Data for less steps than are asked for: num_epoch shows. The last one is not one that is saved
 * for its number: save_checkpoint_on_completion shows. */
static void put_data(void) {
    MxError err = {0};
    const char *dir = temp_path("keys");
    if (mx_dir_exists(dir)) ck_assert(mx_dir_remove(dir, &err));
    ck_assert(mx_dir_make(in_folder("{}/text"), &err) && mx_dir_make(in_folder("{}/more"), &err));
    put_lines("{}/text/a.txt", "line %d of some text, %d %d\n", 9);
    put_lines("{}/text/b.txt", "%d, a line of another text, %d %d\n", 8);
    put_lines("{}/more/b.txt", "other text, %d %d %d\n", 30);
    put_lines("{}/sft.jsonl", "{\"prompt\": \"say %d\", \"completion\": \"%d%d\"}\n", 45);
    put_lines("{}/dpo.jsonl",
              "{\"prompt\": \"pick %d\", \"chosen\": \"good %d\", \"rejected\": \"bad %d\"}\n", 14);
    put_lines("{}/prompts.jsonl", "[%d, %d, %d]\n", 2);
    put_lines("{}/tasks.jsonl", "{\"question\": \"%d\", \"answer\": \"%d%d\"}\n", 2);
    put_lines("{}/mixture.json",
              "{\"a\": {\"path\": \"" FIXTURES "texts.array_record\", \"weight\": 1}}", 1);
    put_lines("{}/olmo.json", "{\"dtype\": \"uint8\", \"files\": [{\"path\": \"text/a.txt\"}]}", 1);
    put_lines("{}/other.jsonl",
              "{\"prompt\": \"tell %d\", \"completion\": \"%d\", \"chosen\": \"%d\"}\n", 7);
}

/* ---- what shows without a run */

/* All that config and plan tell of words and one more; NULL = it is refused, with err. */
static const char *tell(int mode, const char *more, MxConfig **out, MxError *err) {
    enum { MOST = 64 };
    const char *overrides[MOST], *files[1] = {"configs/base.yml"};
    char *save = NULL, *words = mx_arena_strdup(&arena, in_folder(modes[mode].words));
    MxConfigRequest request = {.files = files, .n_files = 1, .overrides = overrides};
    MxPlan *plan;
    MxText text;
    strtok_r(words, " ", &save);
    for (char *w; (w = strtok_r(NULL, " ", &save));) overrides[request.n_overrides++] = w;
    if (more) overrides[request.n_overrides++] = more;
    if (modes[mode].n_ranks > 1) request.n_ranks = modes[mode].n_ranks;
    if (!mx_config_load(&arena, &request, out, err) || !mx_train_inputs(*out, false, err) ||
        (!modes[mode].is_planned && !mx_config_runnable(*out, err)) ||
        !mx_plan_new(&arena, *out, NULL, &plan, err))
        return NULL;
    mx_text_init(&text, &arena);
    for (int i = 0; i < (*out)->warnings.n; i++)
        mx_text_add(&text, "%s\n", (*out)->warnings.item[i]);
    mx_plan_print(plan, &text);
    mx_text_add(&text, "%s", mx_plan_json(&arena, plan));
    return text.data;
}

/* ---- what shows in a run */

/* Times and what follows from them differ from run to run. */
static void add_metrics(MxText *out, const char *lines) {
    char *save = NULL, *text = mx_arena_strdup(&arena, lines);
    MxError err = {0};
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        const char *key;
        MxJson *json = mx_json_parse(&arena, line, strlen(line), "metrics", &err), *value;
        ck_assert_msg(json != NULL, "%s", err.text.data);
        for (size_t i = 0; mx_json_member(json, i, &key, &value); i++)
            if (!mx_text_has_prefix(key, "perf/"))
                mx_text_add(out, "%s %s\n", key, mx_json_dump(&arena, value, false));
    }
}

static int by_text(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Sorted: what is saved in the background is told when it is done. */
static void add_log(MxText *out, const char *log) {
    enum { MOST = 1024 };
    static const char *const timed[] = {"completed step", "Completed eval"};
    const char *lines[MOST];
    int n = 0;
    char *save = NULL, *text = mx_arena_strdup(&arena, log);
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        bool is_timed = false;
        for (int i = 0; i < MX_COUNT(timed); i++) is_timed |= mx_text_has_prefix(line, timed[i]);
        ck_assert_int_lt(n, MOST);
        if (!is_timed) lines[n++] = line;
    }
    qsort(lines, (size_t)n, sizeof *lines, by_text);
    for (int i = 0; i < n; i++) mx_text_add(out, "%s\n", lines[i]);
}

/* These hold times, or the very key. */
static bool is_told_elsewhere(const char *name) {
    static const char *const names[] = {"config.yml", "run.log", "MANIFEST.json",
                                        "LOCK",       "log",     "log.err"};
    for (int i = 0; i < MX_COUNT(names); i++)
        if (!strcmp(name, names[i])) return true;
    return mx_text_has_prefix(name, "rank_");
}

static void add_files(MxText *out, const char *dir) {
    MxError err = {0};
    char **names;
    int n;
    ck_assert(mx_dir_list(&arena, dir, &names, &n, &err));
    for (int i = 0; i < n; i++) {
        const char *path = mx_path_join(&arena, dir, names[i]);
        if (mx_text_has_prefix(names[i], "events.out.")) continue; /* the name, too, has a time */
        mx_text_add(out, "%s\n", path);
        if (mx_dir_exists(path))
            add_files(out, path);
        else if (mx_text_has_suffix(names[i], ".jsonl") && !strstr(names[i], "sft"))
            add_metrics(out, read_text(path));
        else if (!is_told_elsewhere(names[i])) {
            MxBytes bytes;
            ck_assert(mx_file_read(&arena, path, 1 << 28, &bytes, &err));
            mx_text_add(out, "%016llx\n", (unsigned long long)mx_hash64(bytes.data, bytes.size));
        }
    }
}

/*
 * Everything that a run leaves but times. What the message-passing library leaks is not told. The
 * two streams go to files of their own: mpirun forwards each in order, but not one beside the
 * other.
 */
static const char *trace(int mode, const char *more) {
    MxText out;
    put_data();
    const char *log = in_folder("{}/log"), *told = in_folder("{}/log.err");
    const char *binary = getenv("MX_BIN");
    const char *launcher =
        modes[mode].n_ranks == 1
            ? ""
            : mx_arena_printf(&arena,
                              "ASAN_OPTIONS=detect_leaks=0 mpirun --allow-run-as-root "
                              "--oversubscribe --bind-to none "
                              "--mca mpi_yield_when_idle 1 -n %d ",
                              modes[mode].n_ranks);
    int status = system(mx_arena_printf(&arena, "%s%s %s '%s' >%s 2>%s </dev/null", launcher,
                                        binary && *binary ? binary : "build/mxtrain",
                                        in_folder(modes[mode].words), more, log, told));
    mx_text_init(&out, &arena);
    mx_text_add(&out, "status %d\n", status);
    add_log(&out, read_text(log));
    add_log(&out, read_text(told));
    add_files(&out, temp_path("keys"));
    return out.data;
}

/* ---- */

/* The texts are too long for a message: it tells the first line that differs. */
static void ck_same_lines(const char *a, const char *b) {
    size_t start = 0, i = 0;
    for (; a[i] && a[i] == b[i]; i++)
        if (a[i] == '\n') start = i + 1;
    ck_assert_msg(a[i] == b[i], "two runs differ: \"%.*s\" and \"%.*s\"",
                  (int)strcspn(a + start, "\n"), a + start, (int)strcspn(b + start, "\n"),
                  b + start);
}

/* Of what is planned for elsewhere: on one device here. */
static int mode_to_run(int mode) {
    return modes[mode].is_planned ? 0 : mode;
}

START_TEST(no_key_does_nothing_in_silence) {
    MxError err = {0};
    MxConfig *base, *config;
    int runs = mode_to_run(_i);
    MxText silent;
    mx_text_init(&silent, &arena);
    setenv("OMP_NUM_THREADS", "1", true);
    put_data();
    const char *told = tell(_i, NULL, &base, &err), *left = trace(runs, "steps=6");
    ck_assert_msg(told != NULL, "%s: %s", modes[_i].name, err.text.data);
    for (int key = 0; key < MX_KEY_COUNT; key++) {
        bool is_here = getenv("MX_LONG") || key % MX_COUNT(modes) == _i;
        if (!is_here || is_tested_elsewhere((MxKey)key)) continue;
        MxError refused = {0};
        const char *more =
            mx_arena_printf(&arena, "%s=%s", rows[key].name, other_value(base, (MxKey)key));
        const char *now = tell(_i, more, &config, &refused);
        bool shows = !now || strcmp(now, told);
        mx_error_release(&refused);
        if (!shows && !strcmp(left, trace(runs, more))) mx_text_add(&silent, " %s", more);
    }
    ck_same_lines(left, trace(runs, "steps=6")); /* else everything would show something */
    ck_assert_msg(!silent.len, "%s: nothing shows%s", modes[_i].name, silent.data);
}
END_TEST

/* A value that is refused everywhere would show nothing about its key. */
START_TEST(every_value_is_taken_somewhere) {
    static const MxKey refused[] = {MX_KEY_load_parameters_path,
                                    MX_KEY_load_full_state_path,
                                    MX_KEY_lora_restore_path,
                                    MX_KEY_tokenizer_type,
                                    MX_KEY_model_name,
                                    MX_KEY_dataset_path,
                                    MX_KEY_mtp_eval_target_module,
                                    MX_KEY_use_qk_clip,        /* tests/train/test_clip.c */
                                    MX_KEY_use_indexer,        /* tests/train/test_golden.c */
                                    MX_KEY_training_objective, /* tests/train/test_blocks.c */
                                    MX_KEY_use_grpo,           /* wants a column of rewards */
                                    MX_KEY_use_multimodal,     /* tests/train/test_images.c */
                                    MX_KEY_batch_size,         /* wants use_grpo */
                                    MX_KEY_use_kto,            /* one of labels */
                                    MX_KEY_hardware, /* wants a file that make cuda builds */
                                    MX_KEY_dcn_sequence_parallelism,
                                    MX_KEY_ici_sequence_parallelism};
    MxConfig *base[MX_COUNT(modes)], *config;
    MxText useless;
    MxError err = {0};
    mx_text_init(&useless, &arena);
    put_data();
    for (int mode = 0; mode < MX_COUNT(modes); mode++)
        ck_assert(tell(mode, NULL, &base[mode], &err));
    for (int key = 0; key < MX_KEY_COUNT; key++) {
        bool is_taken = false;
        for (int i = 0; i < MX_COUNT(refused); i++) is_taken |= (int)refused[i] == key;
        for (int mode = 0; mode < MX_COUNT(modes) && !is_taken; mode++) {
            const char *more = mx_arena_printf(&arena, "%s=%s", rows[key].name,
                                               other_value(base[mode], (MxKey)key));
            is_taken = tell(mode, more, &config, &err);
            mx_error_release(&err);
        }
        if (!is_taken) mx_text_add(&useless, " %s", rows[key].name);
    }
    ck_assert_msg(!useless.len, "other values that all modes refuse:%s", useless.data);
}
END_TEST

Suite *keys_suite(void) {
    Suite *suite = suite_create("keys");
    TCase *tcase = tcase_create("keys");
    tcase_add_checked_fixture(tcase, test_setup, test_teardown);
    tcase_set_timeout(tcase, getenv("MX_LONG") ? 3600 : 300);
    tcase_add_loop_test(tcase, no_key_does_nothing_in_silence, 0, MX_COUNT(modes));
    tcase_set_long(tcase);
    suite_add_tcase(suite, tcase);
    tcase_set_long(suite_add(suite, "values", every_value_is_taken_somewhere, 120));
    return suite;
}
