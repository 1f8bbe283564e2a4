/* check.c — values that are fine alone but not together. A check is skipped where one of its keys
 * has been reported already. Source: MaxText types.py validators @e591f30c; ours where marked. */
#include "room.h"

#include <mx/family.h>

#include <math.h>

enum { LARGEST_SIZE = 1 << 30 };

static bool are_good(const ConfigLoad *load, const MxKey *keys, int n) {
    for (int i = 0; i < n; i++)
        if (load->slots[keys[i]].is_bad) return false;
    return true;
}

#define GOOD(load, ...)                                                                            \
    are_good((load), (const MxKey[]){__VA_ARGS__}, MX_COUNT(((const MxKey[]){__VA_ARGS__})))

/* Of two keys the one that the user set, and of two set ones the later: its line is shown. */
static MxKey culprit(const ConfigLoad *load, MxKey a, MxKey b) {
    return load->slots[b].from > load->slots[a].from ? b : a;
}

/* Ours: a run stays inside its folder, and its folder can be named on a terminal. */
static void check_run_name(ConfigLoad *load, const MxConfig *c) {
    const char *name = c->run_name;
    if (!GOOD(load, MX_KEY_run_name, MX_KEY_model_name)) return;
    bool has_control = false;
    for (const unsigned char *p = (const unsigned char *)name; *p; p++)
        has_control |= *p < ' ' || *p == 0x7f || (*p == 0xc2 && p[1] < 0xa0);
    const char *why = strchr(name, '/')                           ? "has a slash"
                      : has_control                               ? "has a control character"
                      : !strcmp(name, ".") || !strcmp(name, "..") ? "is no name"
                                                                  : NULL;
    if (!why) return;
    config_fail(load, MX_KEY_run_name,
                "%s %s; wants the name of one folder below base_output_directory",
                has_control ? "the name" : mx_arena_printf(load->arena, "\"%s\"", name), why);
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
        config_fail(load, culprit(load, key, MX_KEY_num_devices),
                    "%lld, but compile_topology %s has %lld devices in each of its slices (%lld)",
                    (long long)c->num_devices, c->compile_topology, (long long)devices,
                    (long long)n_slices);
}

/* Ours: a family that says what its layers see leaves attention_type nothing to say. */
static void check_windows(ConfigLoad *load, const MxConfig *c) {
    if (!GOOD(load, MX_KEY_decoder_block)) return;
    const MxFamily *family = mx_family_find(c->decoder_block);
    bool says = false, has_window = false;
    for (int i = 0; i < family->n_specs; i++) {
        says |= family->specs[i].sees != MX_SEES_AS_SAID;
        has_window |= family->specs[i].sees == MX_SEES_WINDOW;
    }
    if (says && GOOD(load, MX_KEY_attention_type) && strcmp(c->attention_type, "global") != 0)
        config_fail(load, MX_KEY_attention_type,
                    "%s, but layers of %s see what their family says; wants global",
                    c->attention_type, c->decoder_block);
    if (has_window && GOOD(load, MX_KEY_sliding_window_size) && !c->sliding_window_size)
        config_fail(load, MX_KEY_sliding_window_size,
                    "layers of %s have a window; wants at least 1, found 0", c->decoder_block);
}

static void check_heads(ConfigLoad *load, const MxConfig *c) {
    if (GOOD(load, MX_KEY_global_parameter_scale) &&
        (c->global_parameter_scale & (c->global_parameter_scale - 1)))
        config_fail(load, MX_KEY_global_parameter_scale, "%lld is not a power of two",
                    (long long)c->global_parameter_scale);
    if (GOOD(load, MX_KEY_base_num_query_heads, MX_KEY_base_num_kv_heads) &&
        c->base_num_query_heads % c->base_num_kv_heads)
        config_fail(load, culprit(load, MX_KEY_base_num_kv_heads, MX_KEY_base_num_query_heads),
                    "base_num_kv_heads %lld does not divide base_num_query_heads %lld",
                    (long long)c->base_num_kv_heads, (long long)c->base_num_query_heads);
    if (GOOD(load, MX_KEY_head_dim) && c->head_dim % 2)
        config_fail(load, MX_KEY_head_dim, "%lld is odd; rotary position encoding turns pairs",
                    (long long)c->head_dim);
}

/* Ours: no size may overflow an index when two of them are multiplied. */
static void check_sizes(ConfigLoad *load, const MxConfig *c) {
    const struct {
        MxKey key;
        int64_t value;
    } sizes[] = {
        {MX_KEY_base_emb_dim, c->emb_dim},
        {MX_KEY_base_mlp_dim, c->mlp_dim},
        {MX_KEY_base_moe_mlp_dim, c->base_moe_mlp_dim == -1 ? 1 : c->moe_mlp_dim},
        {MX_KEY_num_experts, c->num_experts},
        {MX_KEY_base_num_query_heads, c->num_query_heads},
        {MX_KEY_base_num_kv_heads, c->num_kv_heads},
        {MX_KEY_base_num_decoder_layers, c->num_decoder_layers},
        {MX_KEY_head_dim, c->head_dim},
        {MX_KEY_vocab_size, c->vocab_size},
        {MX_KEY_max_target_length, c->max_target_length},
        {MX_KEY_steps, c->steps},
    };
    for (int i = 0; i < MX_COUNT(sizes); i++)
        if (GOOD(load, sizes[i].key) && sizes[i].value > LARGEST_SIZE)
            config_fail(load, sizes[i].key, "%lld is more than the largest size, %d",
                        (long long)sizes[i].value, LARGEST_SIZE);
}

static void check_attention(ConfigLoad *load, const MxConfig *c) {
    if (!GOOD(load, MX_KEY_attention_type)) return;
    bool is_sliding = !strcmp(c->attention_type, "local_sliding");
    bool is_chunked = !strcmp(c->attention_type, "chunk");
    if (is_sliding && GOOD(load, MX_KEY_sliding_window_size) && !c->sliding_window_size)
        config_fail(load, MX_KEY_attention_type,
                    "local_sliding wants sliding_window_size of at least 1, found 0");
    if (is_chunked && GOOD(load, MX_KEY_chunk_attn_window_size) && !c->chunk_attn_window_size)
        config_fail(load, MX_KEY_attention_type,
                    "chunk wants chunk_attn_window_size of at least 1, found 0");
}

/* Where every layer has experts, no other width of a feed-forward block means anything. */
static void check_experts(ConfigLoad *load, const MxConfig *c) {
    if (!GOOD(load, MX_KEY_decoder_block, MX_KEY_num_experts, MX_KEY_num_experts_per_tok)) return;
    const MxFamily *family = mx_family_find(c->decoder_block);
    if (!mx_family_has(family, MX_BLOCK_MOE)) return;
    if (c->num_experts_per_tok > c->num_experts)
        config_fail(load, MX_KEY_num_experts_per_tok,
                    "%lld, but there are %lld experts (num_experts)",
                    (long long)c->num_experts_per_tok, (long long)c->num_experts);
    if (mx_family_has(family, MX_BLOCK_GLU)) return;
    if (c->fused_mlp)
        config_fail(load, MX_KEY_fused_mlp,
                    "true, but no layer of %s has a feed-forward block without experts",
                    c->decoder_block);
    if (GOOD(load, MX_KEY_base_mlp_dim, MX_KEY_base_moe_mlp_dim) && c->moe_mlp_dim != c->mlp_dim)
        config_fail(load, MX_KEY_base_moe_mlp_dim,
                    "%lld, but base_mlp_dim is %lld; wants the same in %s, all of whose layers "
                    "have experts",
                    (long long)c->base_moe_mlp_dim, (long long)c->base_mlp_dim, c->decoder_block);
}

static void check_rope(ConfigLoad *load, const MxConfig *c) {
    if (GOOD(load, MX_KEY_rope_min_timescale, MX_KEY_rope_max_timescale) &&
        c->rope_max_timescale < c->rope_min_timescale)
        config_fail(load, culprit(load, MX_KEY_rope_max_timescale, MX_KEY_rope_min_timescale),
                    "rope_max_timescale %lld is less than rope_min_timescale %lld",
                    (long long)c->rope_max_timescale, (long long)c->rope_min_timescale);
}

/* At least one row on all devices together. */
static void check_rows(ConfigLoad *load, MxKey key, double rows) {
    int64_t n = load->config->num_target_devices;
    double all = rows * (double)n;
    if (!GOOD(load, key) || (all >= 1 && rows <= LARGEST_SIZE && all <= LARGEST_SIZE)) return;
    if (n == 1)
        config_fail(load, key, "%.15g rows on one device; wants 1 to %d", rows, LARGEST_SIZE);
    else
        config_fail(load, key, "%.15g rows on each of %lld devices; wants 1 to %d in all", rows,
                    (long long)n, LARGEST_SIZE);
}

static void check_batch(ConfigLoad *load, const MxConfig *c) {
    check_rows(load, MX_KEY_per_device_batch_size, c->per_device_batch_size);
    if (!load->slots[MX_KEY_eval_per_device_batch_size].is_derived)
        check_rows(load, MX_KEY_eval_per_device_batch_size, c->eval_per_device_batch_size);
    if (GOOD(load, MX_KEY_expansion_factor_real_data, MX_KEY_per_device_batch_size) &&
        c->global_batch_size_to_load > LARGEST_SIZE)
        config_fail(load, MX_KEY_expansion_factor_real_data, "%lld rows to load; wants at most %d",
                    (long long)c->global_batch_size_to_load, LARGEST_SIZE);
    if (GOOD(load, MX_KEY_per_device_batch_size, MX_KEY_max_target_length,
             MX_KEY_num_vocab_tiling) &&
        c->tokens_per_step % c->num_vocab_tiling)
        config_fail(load, MX_KEY_num_vocab_tiling,
                    "%lld does not divide per_device_batch_size * max_target_length = %lld",
                    (long long)c->num_vocab_tiling, (long long)c->tokens_per_step);
}

static void check_ahead(ConfigLoad *load, const MxConfig *c) {
    if (GOOD(load, MX_KEY_mtp_num_layers, MX_KEY_mtp_eval_target_module) &&
        c->mtp_eval_target_module > c->mtp_num_layers)
        config_fail(load, MX_KEY_mtp_eval_target_module, "%lld is more than mtp_num_layers = %lld",
                    (long long)c->mtp_eval_target_module, (long long)c->mtp_num_layers);
    if (GOOD(load, MX_KEY_mtp_num_layers, MX_KEY_use_dpo) && c->use_dpo && c->mtp_num_layers)
        config_warn(
            load, MX_NOWHERE,
            "losses of pairs do not train modules that look ahead (mtp_num_layers is %lld): "
            "only weight decay changes them",
            (long long)c->mtp_num_layers);
}

static void check_schedule(ConfigLoad *load, const MxConfig *c) {
    if (GOOD(load, MX_KEY_steps, MX_KEY_learning_rate_schedule_steps) && c->steps == -1)
        config_fail(load, culprit(load, MX_KEY_steps, MX_KEY_learning_rate_schedule_steps),
                    "steps and learning_rate_schedule_steps are both -1; one must say a number");
    bool is_wsd = GOOD(load, MX_KEY_lr_schedule_type) && !strcmp(c->lr_schedule_type, "wsd");
    double sum = c->warmup_steps_fraction + c->wsd_decay_steps_fraction;
    if (is_wsd && GOOD(load, MX_KEY_warmup_steps_fraction, MX_KEY_wsd_decay_steps_fraction) &&
        sum > 1)
        config_fail(load,
                    culprit(load, MX_KEY_wsd_decay_steps_fraction, MX_KEY_warmup_steps_fraction),
                    "warmup_steps_fraction %.15g + wsd_decay_steps_fraction %.15g is more than 1",
                    c->warmup_steps_fraction, c->wsd_decay_steps_fraction);
}

static void check_regex(ConfigLoad *load, MxKey key, const char *pattern) {
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
                 {MX_KEY_trainable_parameters_mask, &c->trainable_parameters_mask}};
    for (int k = 0; k < MX_COUNT(masks); k++) {
        if (!GOOD(load, masks[k].key)) continue;
        for (int i = 0; i < masks[k].patterns->n; i++)
            check_regex(load, masks[k].key, masks[k].patterns->item[i]);
    }
}

/* Experts' matrices lie in one array, of which muon would have to take each by itself. */
static void check_optimizer(ConfigLoad *load, const MxConfig *c) {
    if (GOOD(load, MX_KEY_opt_type, MX_KEY_num_experts) && !strcmp(c->opt_type, "muon") &&
        c->num_experts > 1)
        config_fail(load, culprit(load, MX_KEY_opt_type, MX_KEY_num_experts),
                    "muon is not available yet for %lld experts", (long long)c->num_experts);
}

/* MaxText has two algorithms, each with its own formula. */
static void check_preference(ConfigLoad *load, const MxConfig *c) {
    if (!GOOD(load, MX_KEY_use_dpo) || !c->use_dpo) return;
    if (GOOD(load, MX_KEY_dpo_algo, MX_KEY_dpo_formula) && !strcmp(c->dpo_formula, "maxtext") &&
        strcmp(c->dpo_algo, "dpo") && strcmp(c->dpo_algo, "orpo"))
        config_fail(load, culprit(load, MX_KEY_dpo_algo, MX_KEY_dpo_formula),
                    "MaxText has no formula for %s; only for dpo and orpo", c->dpo_algo);
    if (GOOD(load, MX_KEY_dpo_reference, MX_KEY_enable_lora) && !c->enable_lora &&
        !strcmp(c->dpo_reference, "lora_off"))
        config_fail(load, MX_KEY_dpo_reference, "lora_off wants lora.enable_lora=true");
}

/* MaxText accepts the first two, and then trains nothing (ours). */
static void check_lora(ConfigLoad *load, const MxConfig *c) {
    if (!GOOD(load, MX_KEY_enable_lora)) return;
    if (c->enable_lora && GOOD(load, MX_KEY_lora_rank) && !c->lora_rank)
        config_fail(load, culprit(load, MX_KEY_lora_rank, MX_KEY_enable_lora),
                    "adapters want lora.lora_rank of at least 1, found 0");
    if (c->enable_lora && GOOD(load, MX_KEY_lora_alpha) && c->lora_alpha <= 0)
        config_fail(load, culprit(load, MX_KEY_lora_alpha, MX_KEY_enable_lora),
                    "adapters want lora.lora_alpha above 0, found 0; they count alpha / rank");
    if (!c->enable_lora && GOOD(load, MX_KEY_lora_restore_path) && c->lora_restore_path)
        config_fail(load, MX_KEY_lora_restore_path, "wants lora.enable_lora=true");
    if (GOOD(load, MX_KEY_lora_module_path) && c->lora_module_path)
        check_regex(load, MX_KEY_lora_module_path, c->lora_module_path);
}

/* What is named for training and evaluation (ours). */
static void check_files(ConfigLoad *load, const MxConfig *c, const ConfigFiles *files) {
    const char *train = *config_text_field(c, files->train);
    bool has_mixture = !strcmp(files->kind, "grain") && c->grain_train_mixture_config_path;
    if (files->wants && GOOD(load, files->train) && !train && !has_mixture)
        config_fail(load, MX_KEY_dataset_type, "%s wants %s=%s", files->kind,
                    mx_key_name(files->train), files->wants);
    if (train && has_mixture)
        config_fail(load, MX_KEY_grain_train_mixture_config_path,
                    "names the training data, and so does grain_train_files");
    if (files->train != MX_KEY_dataset_path && GOOD(load, MX_KEY_dataset_path) && c->dataset_path) {
        config_fail(load, MX_KEY_dataset_path,
                    "dataset_type %s does not read it, and reads nothing else in its place",
                    files->kind);
        config_hint(load, "%s names the training data", mx_key_name(files->train));
    }
}

static void check_evaluation(ConfigLoad *load, const MxConfig *c, const ConfigFiles *files) {
    const char *eval = config_eval_named(c, files);
    double share;
    if (!GOOD(load, files->eval, MX_KEY_eval_interval, MX_KEY_eval_split) || c->eval_interval <= 0)
        return;
    if (!eval && !config_share(c->eval_split, &share)) {
        config_fail(load, MX_KEY_eval_split,
                    "wants a share of the training data, 0 to %.15g, found \"%s\"",
                    CONFIG_MOST_HELD_OUT, config_shorten(load->arena, c->eval_split));
    } else if (!eval && c->eval_share <= 0) {
        config_fail(load, MX_KEY_eval_split,
                    "0 leaves nothing to evaluate on; evaluation wants a share of the training "
                    "data or %s=%s",
                    mx_key_name(files->eval), files->eval_wants);
        config_hint(load, "eval_interval=-1 trains without evaluation");
    }
    if (eval && !config_is_bundled(eval) && config_is_bundled(*config_text_field(c, files->train)))
        config_warn(load, MX_NOWHERE,
                    "%s are your own, but training reads the bundled %s; %s names others",
                    mx_key_name(files->eval), *config_text_field(c, files->train),
                    mx_key_name(files->train));
    if (!eval && files->has_records && c->eval_data_columns.n &&
        strcmp(c->eval_data_columns.item[0], "text"))
        config_warn(load, MX_NOWHERE,
                    "eval_data_columns has no effect: evaluation reads a share of the training "
                    "data (eval_split)");
}

static bool is_byte(const MxConfig *c) {
    return !strcmp(c->tokenizer_type, "byte");
}

static void check_tokenizer(ConfigLoad *load, const MxConfig *c) {
    enum { BYTE_VOCAB = 258 }; /* 256 bytes, bos, eos */
    if (GOOD(load, MX_KEY_tokenizer_type, MX_KEY_vocab_size) && is_byte(c) &&
        c->vocab_size < BYTE_VOCAB)
        config_fail(load, MX_KEY_vocab_size,
                    "%lld is too small; the byte tokenizer of dataset_type %s has %d tokens",
                    (long long)c->vocab_size, c->dataset_type, BYTE_VOCAB);
}

/* How many columns a record has: text, prompt + completion, (prompt +) chosen + rejected. [text] is
 * the default and leaves it to the data. */
static void check_columns(ConfigLoad *load, const MxConfig *c, MxKey key) {
    const MxStrs *columns = (const MxStrs *)((const char *)c + config_rows[key].offset);
    bool is_default = columns->n == 1 && !strcmp(columns->item[0], "text");
    int least = c->use_dpo ? 2 : 1, most = c->use_dpo ? 3 : c->use_sft ? 2 : 1;
    if (!GOOD(load, key, MX_KEY_use_dpo, MX_KEY_use_sft) || is_default) return;
    if (columns->n >= least && columns->n <= most) return;
    config_fail(load, key, "wants %s, found %d",
                c->use_dpo   ? "[chosen, rejected] or [prompt, chosen, rejected], or other names "
                               "of 2 or 3 columns"
                : c->use_sft ? "[text] or [prompt, completion], or other names of 1 or 2 columns"
                             : "[text], or another name of 1 column",
                columns->n);
    if (!c->use_dpo && !c->use_sft)
        config_hint(load, "use_sft=true reads prompts and completions, use_dpo=true pairs");
}

/* What hf_path may name besides a folder. */
static const struct {
    const char *name, *wants; /* wants NULL: it is read */
} hf_readers[] = {
    {"json", NULL},
    {"text", NULL},
    {"parquet", "pandas.read_parquet('IN.parquet')"},
    {"csv", "pandas.read_csv('IN.csv')"},
};

static void check_hf_path(ConfigLoad *load, const MxConfig *c) {
    const char *path = c->hf_path;
    for (int i = 0; i < MX_COUNT(hf_readers); i++) {
        if (strcmp(path, hf_readers[i].name)) continue;
        if (!hf_readers[i].wants) return;
        config_fail(load, MX_KEY_hf_path, "%s is not available, wants json or text", path);
        config_hint(load,
                    "convert with: python3 -c \"import pandas; %s.to_json('OUT.jsonl', "
                    "orient='records', lines=True)\"",
                    hf_readers[i].wants);
        return;
    }
    if (!mx_dir_exists(path)) {
        config_fail(load, MX_KEY_hf_path,
                    "\"%s\" is no folder here, and sets of the Hugging Face hub are not "
                    "downloaded; wants json or text with hf_train_files, or a folder",
                    config_shorten(load->arena, path));
        config_hint(load, "hf download --repo-type dataset NAME --local-dir DIR brings its files");
    } else if (c->hf_train_files && strcmp(c->hf_train_files, path)) {
        config_fail(
            load, MX_KEY_hf_path,
            "\"%s\" names the training data, and so does hf_train_files; wants json or text "
            "with that",
            config_shorten(load->arena, path));
    }
}

/* The columns of records, of the kinds of data that hold them. */
static void check_records(ConfigLoad *load, const MxConfig *c) {
    if (!strcmp(c->dataset_type, "hf") && GOOD(load, MX_KEY_hf_path) && c->hf_path)
        check_hf_path(load, c);
    check_columns(load, c, MX_KEY_train_data_columns);
    if (c->eval_interval > 0) check_columns(load, c, MX_KEY_eval_data_columns);
}

static void check_data(ConfigLoad *load, const MxConfig *c) {
    if (!GOOD(load, MX_KEY_dataset_type)) return;
    const ConfigFiles *files = config_files_of(c);
    if (!files) {
        if (c->dataset_path)
            config_warn(load, MX_NOWHERE, "dataset_path has no effect with dataset_type %s",
                        c->dataset_type);
        return;
    }
    if (files->has_records) check_records(load, c);
    check_files(load, c, files);
    check_evaluation(load, c, files);
    if (files->has_tokenizer) check_tokenizer(load, c);
}

/* What the objectives need of the data. */
static void check_posttrain(ConfigLoad *load, const MxConfig *c) {
    if (!GOOD(load, MX_KEY_use_dpo, MX_KEY_use_sft, MX_KEY_dataset_type)) return;
    bool is_text = !strcmp(c->dataset_type, "text");
    if (c->use_dpo && c->use_sft)
        config_fail(load, culprit(load, MX_KEY_use_dpo, MX_KEY_use_sft),
                    "true, as the other of use_dpo and use_sft is; a run has one of them");
    if (c->use_dpo && is_text)
        config_fail(
            load, culprit(load, MX_KEY_use_dpo, MX_KEY_dataset_type),
            "use_dpo=true wants pairs of responses, dataset_type text has none; hf and hdf5 "
            "have");
    if (c->use_dpo && GOOD(load, MX_KEY_dpo_max_prompt_length, MX_KEY_max_target_length) &&
        c->dpo_max_prompt_length >= c->max_target_length)
        config_fail(load, culprit(load, MX_KEY_dpo_max_prompt_length, MX_KEY_max_target_length),
                    "dpo.max_prompt_length %lld leaves no room for responses in max_target_length "
                    "%lld",
                    (long long)c->dpo_max_prompt_length, (long long)c->max_target_length);
    const ConfigFiles *files = config_files_of(c);
    if (c->use_dpo && files && files->has_records &&
        GOOD(load, MX_KEY_packing, MX_KEY_dpo_formula, MX_KEY_dpo_algo) && c->packing &&
        !strcmp(c->dpo_formula, "maxtext") && !strcmp(c->dpo_algo, "dpo"))
        config_fail(load, culprit(load, MX_KEY_packing, MX_KEY_dpo_formula),
                    "dpo.formula maxtext knows one pair in a row; it wants packing=false");
    if (!GOOD(load, MX_KEY_sft_train_on_completion_only) || !c->sft_train_on_completion_only)
        return;
    if (c->use_sft && is_text)
        config_fail(load, MX_KEY_sft_train_on_completion_only,
                    "dataset_type text has no prompts to leave out; hf has");
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
        config_fail(load, culprit(load, MX_KEY_load_full_state_path, MX_KEY_load_parameters_path),
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
    check_run_name(load, c);
    check_topology(load, c);
    check_windows(load, c);
    check_heads(load, c);
    check_sizes(load, c);
    check_attention(load, c);
    check_experts(load, c);
    check_rope(load, c);
    check_batch(load, c);
    check_ahead(load, c);
    check_schedule(load, c);
    check_regexes(load, c);
    check_optimizer(load, c);
    check_preference(load, c);
    check_lora(load, c);
    check_data(load, c);
    check_posttrain(load, c);
    check_checkpoints(load, c);
    check_rules(load, MX_KEY_logical_axis_rules, c->logical_axis_rules);
    check_rules(load, MX_KEY_logical_axis_rules_for_eval, c->logical_axis_rules_for_eval);
    check_axes(load, c);
}

/* Where something is read or written. */
static const MxKey paths[] = {
    MX_KEY_base_output_directory, MX_KEY_metrics_file,
    MX_KEY_load_parameters_path,  MX_KEY_load_full_state_path,
    MX_KEY_text_train_files,      MX_KEY_text_eval_files,
    MX_KEY_hdf5_train_files,      MX_KEY_hdf5_eval_files,
    MX_KEY_hf_train_files,        MX_KEY_hf_eval_files,
    MX_KEY_dpo_reference_logps,   MX_KEY_lora_restore_path,
    MX_KEY_tokenizer_path,        MX_KEY_grain_train_files,
    MX_KEY_grain_eval_files,      MX_KEY_grain_train_mixture_config_path,
    MX_KEY_dataset_path,
};

/* "gs://bucket/folder". */
static bool has_scheme(const char *path) {
    size_t n = strspn(path, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+.-");
    return n && !strncmp(path + n, "://", 3);
}

static bool check_path(const MxConfig *config, MxKey key, MxError *err) {
    const char *path = *(const char *const *)((const char *)config + config_rows[key].offset);
    if (!path || !has_scheme(path)) return true;
    mx_config_fail(err, config, key, "\"%s\" is elsewhere, wants a path of this machine", path);
    mx_note(err, "hint: mount it (gcsfuse, s3fs, rclone) and name the folder, or copy it here");
    return false;
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
    if (files && files->has_tokenizer && !is_byte(config) && !has_path) {
        ok =
            mx_config_fail(err, config, MX_KEY_tokenizer_type,
                           "\"%s\" is read from files, but none are named", config->tokenizer_type);
        mx_note(err, "hint: tokenizer_path=FILE or its folder (docs/TOKENIZERS.md)");
    }
    for (int i = 0; i < MX_COUNT(paths); i++) ok &= check_path(config, paths[i], err);
    return ok;
}
