/* derive.c — values that are derived from others. Source: MaxText types.py (derived values, in its
 * order) @e591f30c; run_name is our own (no date, so that a restart resumes). */
#include <mx/family.h>

#include "room.h"

#include <math.h>
#include <stdlib.h>

/* Values are checked after this, so they may be absurd here: products and casts stop at INT64_MAX,
 * which no check lets pass. */
static int64_t times(int64_t a, int64_t b) {
    int64_t product;
    return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

static int64_t whole(double x) {
    return x < 9e18 ? (int64_t)x : INT64_MAX;
}

static void mark(ConfigLoad *load, MxKey key) {
    load->slots[key].is_derived = true;
}

static void derive_names(ConfigLoad *load, MxConfig *c) {
    if (!c->model_name) c->model_name = "default";
    if (!c->run_name) {
        c->run_name = c->model_name;
        mark(load, MX_KEY_run_name);
    }
    const char *base = c->base_output_directory ? c->base_output_directory : "./maxtext_output";
    c->run_dir = mx_path_join(load->arena, base, c->run_name);
    c->checkpoint_dir = mx_path_join(load->arena, c->run_dir, "checkpoints");
}

/* What MaxText's policies keep of a layer, rounded down to what can be kept here: all, matrix
 * products and attention, nothing. What it moves to the host stays where it is: the host is the
 * device. Source: MaxText nnx_decoders.py, get_remat_policy @e591f30c. */
static void derive_remat(MxConfig *c) {
    bool is_minimal = mx_text_has_prefix(c->remat_policy, "minimal");
    c->remat = !strcmp(c->remat_policy, "none") ? "none" : is_minimal ? "minimal" : "full";
}

static void derive_schedule(ConfigLoad *load, MxConfig *c) {
    if (c->learning_rate_schedule_steps == -1 && c->steps != -1) {
        c->learning_rate_schedule_steps = c->steps;
        mark(load, MX_KEY_learning_rate_schedule_steps);
    }
    if (c->steps == -1 && c->learning_rate_schedule_steps != -1) {
        c->steps = c->learning_rate_schedule_steps;
        mark(load, MX_KEY_steps);
    }
    if (!*c->mu_dtype) {
        c->mu_dtype = c->weight_dtype;
        mark(load, MX_KEY_mu_dtype);
    }
}

/* Every factor of 8 in parameters: 2 in width, 2 in feed-forward width and heads, 2 in layers. */
static void derive_sizes(MxConfig *c) {
    int exponent = 0;
    while (((int64_t)1 << exponent) < c->global_parameter_scale) exponent++;
    int q = exponent / 3, rest = exponent % 3;
    int64_t emb = (int64_t)1 << (q + (rest > 1)), mlp = (int64_t)1 << (q + (rest > 0));
    c->emb_dim = times(c->base_emb_dim, emb);
    c->mlp_dim = times(c->base_mlp_dim, mlp);
    c->moe_mlp_dim = c->base_moe_mlp_dim == -1 ? c->mlp_dim : times(c->base_moe_mlp_dim, mlp);
    c->num_query_heads = times(c->base_num_query_heads, mlp);
    c->num_kv_heads = times(c->base_num_kv_heads, mlp);
    c->num_decoder_layers = times(c->base_num_decoder_layers, (int64_t)1 << q);
}

/* `rows` on each of n devices; below one, each loads one all the same, unless they are given as a
 * number for all devices. */
static int64_t rows_to_load(const MxConfig *c, double rows) {
    double factor = c->expansion_factor_real_data, n = (double)c->num_target_devices;
    double x = factor == -1 ? 1 : factor;
    bool rounds_up = rows < 1 && !(c->use_grpo && c->batch_size);
    return whole(rounds_up ? n * x : n * rows * x);
}

/* What is compiled for a topology is planned for its devices. */
static void derive_topology(ConfigLoad *load, MxConfig *c) {
    int64_t n_slices = c->compile_topology_num_slices > 0 ? c->compile_topology_num_slices : 1;
    int64_t devices = c->compile_topology ? config_topology_devices(c->compile_topology) : 0;
    if (devices && c->num_devices <= 0) {
        c->num_devices = times(devices, n_slices);
        mark(load, MX_KEY_num_devices);
    }
    if (devices && c->num_slices <= 0 && n_slices > 1) {
        c->num_slices = n_slices;
        mark(load, MX_KEY_num_slices);
    }
}

static void derive_devices(ConfigLoad *load, MxConfig *c) {
    derive_topology(load, c);
    if (c->num_devices <= 0 && load->n_ranks > 1) {
        c->num_devices = load->n_ranks;
        mark(load, MX_KEY_num_devices);
    }
    c->num_target_devices = c->num_devices;
    if (c->num_devices > 0) return;
    c->num_target_devices = 1;
    for (int key = MX_KEY_dcn_diloco_parallelism; key <= MX_KEY_ici_autoregressive_parallelism;
         key++) {
        int64_t size = *(const int64_t *)((const char *)c + config_rows[key].offset);
        if (size > 0) c->num_target_devices = times(c->num_target_devices, size);
    }
}

int64_t config_count_along(const MxConfig *c, int64_t ici, int64_t dcn) {
    int64_t others = 1;
    if (ici > 0 && dcn > 0) return times(ici, dcn);
    for (int key = MX_KEY_dcn_diloco_parallelism; key <= MX_KEY_ici_autoregressive_parallelism;
         key++) {
        int64_t size = *(const int64_t *)((const char *)c + config_rows[key].offset);
        if (size > 0) others = times(others, size);
    }
    int64_t left = c->num_target_devices / others;
    return times(left > 0 ? left : 1, times(ici > 0 ? ici : 1, dcn > 0 ? dcn : 1));
}

/* A replica has its share of every batch; fragments take turns. Source of their steps: MaxText
 * trainers/diloco/utils/fragmenter.py @e591f30c, get_streaming_schedule. */
static void derive_replicas(MxConfig *c) {
    c->diloco_replicas = c->enable_diloco ? config_count_along(c, c->ici_diloco_parallelism,
                                                               c->dcn_diloco_parallelism)
                                          : 1;
    bool is_streaming = c->enable_diloco && c->enable_streaming_diloco && c->num_diloco_fragments;
    c->diloco_fragments = is_streaming ? c->num_diloco_fragments : 1;
    double steps = rint((double)c->diloco_sync_period / (double)c->diloco_fragments);
    c->diloco_fragment_steps = steps < 1 ? 1 : (int64_t)steps;
    c->micro_batch_size_to_train_on /= c->diloco_replicas;
    c->micro_batch_size_to_eval_on /= c->diloco_replicas;
}

static void derive_micro_batches(MxConfig *c) {
    int64_t stages =
        config_count_along(c, c->ici_pipeline_parallelism, c->dcn_pipeline_parallelism);
    int64_t n = c->num_pipeline_microbatches;
    int64_t usual = times(stages, c->pipeline_delay_activation_forwarding ? 2 : 1);
    c->pipeline_stages = stages;
    c->pipeline_micro_batches = stages <= 1 ? 1 : n > 0 ? n : usual;
    c->micro_batches = times(c->accumulations, c->pipeline_micro_batches);
    c->micro_batches_at_once = c->ramp.stages ? c->pipeline_micro_batches : c->micro_batches;
    c->micro_batch_size_to_train_on /= c->pipeline_micro_batches;
}

static int64_t common_divisor(int64_t a, int64_t b) {
    return b ? common_divisor(b, a % b) : a;
}

/* What does not grow evenly is no ramp; checks say so. */
static void derive_ramp(MxConfig *c) {
    double n = (double)c->num_target_devices;
    int64_t start = whole(n * c->per_device_batch_size_start),
            end = c->micro_batch_size_to_train_on,
            increment = whole(n * c->per_device_batch_size_increment);
    bool is_even = start > 0 && increment > 0 && end > start && (end - start) % increment == 0;
    if (!c->enable_rampup_batch_size || !is_even) return;
    int64_t rows = common_divisor(start, increment);
    c->ramp = (MxRamp){(end - start) / increment, start / rows, increment / rows};
    c->accumulations = end / rows;
    c->micro_batch_size_to_train_on = c->rows_at_once = rows;
}

static void derive_batches(ConfigLoad *load, MxConfig *c) {
    if (c->eval_per_device_batch_size == 0) {
        c->eval_per_device_batch_size = c->per_device_batch_size;
        mark(load, MX_KEY_eval_per_device_batch_size);
    }
    int64_t n_micro = c->gradient_accumulation_steps;
    double n = (double)c->num_target_devices;
    double train = c->per_device_batch_size, eval = c->eval_per_device_batch_size;
    c->micro_batch_size_to_load = rows_to_load(c, train);
    c->micro_batch_size_to_train_on = whole(n * train);
    c->global_batch_size_to_load = times(c->micro_batch_size_to_load, n_micro);
    c->global_batch_size_to_train_on = times(c->micro_batch_size_to_train_on, n_micro);
    c->rows_at_once = c->global_batch_size_to_load;
    c->accumulations = n_micro;
    derive_ramp(c);
    c->micro_batch_size_to_eval_on = whole(n * eval);
    c->global_batch_size_to_eval_on = c->micro_batch_size_to_eval_on;
    derive_replicas(c);
    derive_micro_batches(c);
    c->global_batch_size_to_load_eval = rows_to_load(c, eval);
    c->tokens_per_step = times(c->global_batch_size_to_train_on, c->max_target_length);
}

int64_t config_usual_prompt(const MxConfig *c) {
    return c->max_target_length > 1 ? c->max_target_length / 2 : 1;
}

static void derive_lengths(ConfigLoad *load, MxConfig *c) {
    if (c->dpo_max_prompt_length) return;
    c->dpo_max_prompt_length = config_usual_prompt(c);
    mark(load, MX_KEY_dpo_max_prompt_length);
}

bool mx_config_writes(const MxConfig *c) {
    return c->use_grpo && strcmp(c->rl_reward, "data") != 0;
}

int64_t mx_config_iterations(const MxConfig *c) {
    return c->use_grpo ? c->rl_num_iterations : 1;
}

bool mx_config_has_ratios(const MxConfig *c) {
    return c->rl_recorded_logprobs || mx_config_iterations(c) > 1;
}

/* ---- what evaluation reads */

// clang-format off
const ConfigFiles config_files[CONFIG_FILE_KINDS] = {
    {"text", NULL, MX_KEY_text_train_files, MX_KEY_text_eval_files, "FILE.txt", true, false},
    {"hdf5", "FILE.h5[:group]", MX_KEY_hdf5_train_files, MX_KEY_hdf5_eval_files, "FILE.h5[:group]", false, false},
    {"hf", "FILE.jsonl", MX_KEY_hf_train_files, MX_KEY_hf_eval_files, "FILE.jsonl", true, true},
    {"grain", "FILES", MX_KEY_grain_train_files, MX_KEY_grain_eval_files, "FILES", true, true},
    {"olmo_grain", "INDEX.json", MX_KEY_olmo_index_path, MX_KEY_eval_olmo_index_path, "INDEX.json", false, false},
    {"tfds", NULL, MX_KEY_dataset_path, MX_KEY_eval_split, "SPLIT", true, true},
    {"c4_mlperf", NULL, MX_KEY_dataset_path, MX_KEY_eval_dataset_name, "SET", true, false},
};
// clang-format on

const ConfigFiles *config_files_of(const MxConfig *c) {
    for (int i = 0; i < CONFIG_FILE_KINDS; i++)
        if (!strcmp(config_files[i].kind, c->dataset_type)) return &config_files[i];
    return NULL;
}

/* A split has a name, a share of the training data is a number. */
const char *config_eval_named(const MxConfig *c, const ConfigFiles *files) {
    const char *named = *config_text_field(c, files->eval);
    char *end = NULL;
    if (named && files->eval == MX_KEY_eval_split) strtod(named, &end);
    return end && !*end ? NULL : named;
}

bool mx_config_names_eval(const MxConfig *c) {
    const ConfigFiles *files = config_files_of(c);
    return files && config_eval_named(c, files);
}

const char **config_text_field(const MxConfig *c, MxKey key) {
    return (const char **)((uintptr_t)c + config_rows[key].offset);
}

bool config_is_bundled(const char *files) {
    static const char *const folders[] = {"corpus/", "posttrain/", "share/mxtrain/"};
    for (int i = 0; files && i < MX_COUNT(folders); i++)
        if (mx_text_has_prefix(files, folders[i])) return true;
    return false;
}

bool config_is_byte(const MxConfig *config) {
    return !strcmp(config->tokenizer_type, "byte");
}

/* Files of a config file, base.yml or a recipe, that came with the program are for its own training
 * data. */
static void drop_bundled(ConfigLoad *load, MxConfig *c, const ConfigFiles *files) {
    const char *train = *config_text_field(c, files->train);
    const char **eval = config_text_field(c, files->eval);
    if (!train || config_is_bundled(train) || !config_is_bundled(*eval) ||
        load->slots[files->eval].from >= CONFIG_FROM_LINE)
        return;
    *eval = NULL;
    mark(load, files->eval);
}

bool config_share(const char *text, double *out) {
    static const double usual = 0.05;
    char *end;
    *out = usual;
    if (!text) *out = 0;
    if (!text || !strcmp(text, "validation")) return true;
    *out = strtod(text, &end);
    return !*end && *out >= 0 && *out <= CONFIG_MOST_HELD_OUT;
}

/* hf_path is how to read files, or the folder that holds them. */
static void derive_files(ConfigLoad *load, MxConfig *c) {
    if (strcmp(c->dataset_type, "hf") || !c->hf_path || c->hf_train_files ||
        mx_config_is_hf_format(c->hf_path))
        return;
    c->hf_train_files = c->hf_path;
    mark(load, MX_KEY_hf_train_files);
}

static void derive_evaluation(ConfigLoad *load, MxConfig *c) {
    const ConfigFiles *files = config_files_of(c);
    double share = 0;
    if (files) drop_bundled(load, c, files);
    bool is_named = files && config_eval_named(c, files);
    bool holds_out = files && c->eval_interval > 0 && !is_named;
    if (holds_out && !config_share(c->eval_split, &share)) return; /* told by a check */
    c->eval_share = share;
    if (is_named && files->eval == MX_KEY_eval_split) return;
    c->eval_split = mx_arena_printf(load->arena, "%.15g", share);
    mark(load, MX_KEY_eval_split);
}

/* A flat list of mesh axes is one dim's. */
static void derive_data_sharding(ConfigLoad *load, MxConfig *c) {
    const MxYaml *spec = c->data_sharding;
    if (!spec || spec->kind != MX_YAML_LIST || !spec->n || spec->item[0]->kind == MX_YAML_LIST)
        return;
    MxYaml *list = config_node_new(load->arena, MX_YAML_LIST, spec->where);
    list->item = mx_new_n(load->arena, const MxYaml *, 1);
    list->item[list->n++] = spec;
    c->data_sharding = list;
}

/* A list that is wrong is told of later. */
static void derive_recall(ConfigLoad *load, MxConfig *c) {
    const MxFamily *family = mx_family_find(c->decoder_block);
    const MxYaml *list = c->engram_layers;
    bool is_read = family && config_word_in(family->keys, "engram_layers");
    if (!is_read || list->kind != MX_YAML_LIST) return;
    int64_t *layers = mx_new_n(load->arena, int64_t, list->n);
    int n = mx_config_numbers(list, list->n, layers);
    c->n_recall = n < 0 ? 0 : n;
    c->recall_layers = layers;
}

/* The same; layers that it lacks have 0. */
static void derive_ratios(ConfigLoad *load, MxConfig *c) {
    const MxFamily *family = mx_family_find(c->decoder_block);
    const MxYaml *list = c->compress_ratios;
    if (!family || !family->ratios_say_period || list->kind != MX_YAML_LIST) return;
    int64_t n = list->n > c->num_decoder_layers ? list->n : c->num_decoder_layers;
    int64_t *ratios = mx_new_n(load->arena, int64_t, n);
    mx_config_numbers(list, list->n, ratios);
    c->layer_ratios = ratios;
}

void config_derive(ConfigLoad *load) {
    MxConfig *c = load->config;
    derive_names(load, c);
    derive_remat(c);
    derive_devices(load, c);
    config_derive_rewards(load);
    derive_schedule(load, c);
    derive_sizes(c);
    derive_recall(load, c);
    derive_ratios(load, c);
    derive_batches(load, c);
    derive_lengths(load, c);
    derive_files(load, c);
    derive_evaluation(load, c);
    derive_data_sharding(load, c);
}
