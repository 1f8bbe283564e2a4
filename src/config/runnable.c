/* runnable.c — values that load, because MaxText's own base.yml must load or because a plan needs
 * no data, but that a run refuses. */
#include "room.h"

/* Where something is read or written. */
static const MxKey paths[] = {
    MX_KEY_base_output_directory, MX_KEY_metrics_file,
    MX_KEY_load_parameters_path,  MX_KEY_load_full_state_path,
    MX_KEY_text_train_files,      MX_KEY_text_eval_files,
    MX_KEY_hdf5_train_files,      MX_KEY_hdf5_eval_files,
    MX_KEY_hf_train_files,        MX_KEY_hf_eval_files,
    MX_KEY_olmo_index_path,       MX_KEY_eval_olmo_index_path,
    MX_KEY_dpo_reference_logps,   MX_KEY_lora_restore_path,
    MX_KEY_tokenizer_path,        MX_KEY_grain_train_files,
    MX_KEY_grain_eval_files,      MX_KEY_grain_train_mixture_config_path,
    MX_KEY_dataset_path,          MX_KEY_sample_prompts,
    MX_KEY_chat_template_path,    MX_KEY_token_cache,
    MX_KEY_optimizer_memory_disk, MX_KEY_offline_data_dir,
};

bool mx_config_is_elsewhere(const char *path) {
    size_t n = strspn(path, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+.-");
    return n && !strncmp(path + n, "://", 3);
}

/* MaxText's presets and commands name data that another dataset_type reads. */
static bool is_read(const MxConfig *config, MxKey key) {
    const ConfigFiles *files = config_files_of(config);
    bool is_data = false;
    for (int i = 0; i < CONFIG_FILE_KINDS; i++)
        is_data |= config_files[i].train == key || config_files[i].eval == key;
    return !is_data || (files && (files->train == key || files->eval == key));
}

bool mx_config_is_here(const MxConfig *config, MxKey key, MxError *err) {
    const char *path = *(const char *const *)((const char *)config + config_rows[key].offset);
    if (!path || !is_read(config, key) || !mx_config_is_elsewhere(path)) return true;
    mx_config_fail(err, config, key, "\"%s\" is elsewhere, wants a path of this machine", path);
    mx_note(err, "hint: mount it (gcsfuse, s3fs, rclone) and name the folder, or copy it here");
    return false;
}

/* A position needs its row. Plans count operations of longer rows, as MaxText does. */
static bool check_positions(const MxConfig *config, MxError *err) {
    int64_t rows = config->trainable_position_size;
    return rows <= 0 || rows >= config->max_target_length ||
           mx_config_fail(err, config, MX_KEY_trainable_position_size,
                          "%lld is less than max_target_length (%lld)", (long long)rows,
                          (long long)config->max_target_length);
}

/* Tools that write checkpoints in other forms know models that no pairs are trained on here. */
static bool check_head(const MxConfig *c, MxError *err) {
    bool is_rewarding = c->use_dpo && !strcmp(c->dpo_algo, "reward");
    if (is_rewarding && !c->score_head)
        return mx_config_fail(err, c, MX_KEY_dpo_algo,
                              "reward trains a head of one number, score_head=true");
    return !c->score_head || is_rewarding ||
           mx_config_fail(err, c, MX_KEY_score_head,
                          "the model has a head of one number and no logits: use_dpo=true with "
                          "dpo.algo=reward trains and evaluates it");
}

/* What writes in the background has a copy of the state in memory, moments and all. */
static bool check_disk(const MxConfig *c, MxError *err) {
    return !c->optimizer_memory_disk || !c->enable_checkpointing || !c->async_checkpointing ||
           mx_config_fail(err, c, MX_KEY_optimizer_memory_disk,
                          "wants async_checkpointing=false: what writes in the background has a "
                          "copy of the moments in memory");
}

bool mx_config_runnable(const MxConfig *config, MxError *err) {
    const ConfigFiles *files = config_files_of(config);
    bool ok = true;
    if (files && files->train == MX_KEY_dataset_path && !config->dataset_path) {
        ok = mx_config_fail(err, config, MX_KEY_dataset_type,
                            "%s wants dataset_path=FOLDER, where TensorFlow Datasets has put %s",
                            files->kind, config->dataset_name);
        mx_note(err, "hint: bring its files NAME[/CONFIG]/VERSION/NAME-SPLIT.tfrecord-* there");
    }
    bool has_path =
        config->tokenizer_path || config->load_parameters_path || config->load_full_state_path;
    if (files && files->has_tokenizer && !config_is_byte(config) && !has_path) {
        ok =
            mx_config_fail(err, config, MX_KEY_tokenizer_type,
                           "\"%s\" is read from files, but none are named", config->tokenizer_type);
        mx_note(err, "hint: tokenizer_path=FILE or its folder (docs/TOKENIZERS.md)");
    }
    ok &= check_positions(config, err);
    ok &= check_head(config, err);
    ok &= check_disk(config, err);
    for (int i = 0; i < MX_COUNT(paths); i++) ok &= mx_config_is_here(config, paths[i], err);
    if (config->teacher) ok &= mx_config_is_here(config->teacher, MX_KEY_load_parameters_path, err);
    return ok;
}
