/* check_data.c — training and evaluation data, and what the objectives need from them. */
#include "check.h"

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
}

static void check_moved(ConfigLoad *load, const MxConfig *c) {
    if (!GOOD(load, MX_KEY_olmo_path_remap_from, MX_KEY_olmo_path_remap_to)) return;
    if (!c->olmo_path_remap_from != !c->olmo_path_remap_to)
        config_fail(load,
                    config_culprit(load, MX_KEY_olmo_path_remap_from, MX_KEY_olmo_path_remap_to),
                    "olmo_path_remap_from is replaced by olmo_path_remap_to; wants both or none");
}

static void check_tokenizer(ConfigLoad *load, const MxConfig *c) {
    enum { BYTE_VOCAB = 258 }; /* 256 bytes, bos, eos */
    if (GOOD(load, MX_KEY_tokenizer_type, MX_KEY_vocab_size) && config_is_byte(c) &&
        c->vocab_size < BYTE_VOCAB)
        config_fail(load, MX_KEY_vocab_size,
                    "%lld is too small; the byte tokenizer of dataset_type %s has %d tokens",
                    (long long)c->vocab_size, c->dataset_type, BYTE_VOCAB);
}

static bool has_prompts(const MxConfig *c) {
    return c->use_sft || c->use_grpo || c->use_kto;
}

/* How many columns a record has: text, prompt + completion, (prompt +) chosen + rejected. [text] is
 * the default and leaves it to the data. */
static void check_columns(ConfigLoad *load, const MxConfig *c, MxKey key) {
    const MxStrs *columns = (const MxStrs *)((const char *)c + config_rows[key].offset);
    bool is_default = columns->n == 1 && !strcmp(columns->item[0], "text");
    int least = c->use_dpo ? 2 : 1, most = c->use_dpo                               ? 3
                                           : has_prompts(c) && !mx_config_writes(c) ? 2
                                                                                    : 1;
    if (!GOOD(load, key, MX_KEY_use_dpo, MX_KEY_use_sft, MX_KEY_use_grpo, MX_KEY_use_kto) ||
        is_default)
        return;
    if (columns->n >= least && columns->n <= most) return;
    config_fail(load, key, "wants %s, found %d",
                c->use_dpo ? "[chosen, rejected] or [prompt, chosen, rejected], or other names "
                             "of 2 or 3 columns"
                : mx_config_writes(c) ? "[prompt], or another name of 1 column"
                : has_prompts(c)
                    ? "[text] or [prompt, completion], or other names of 1 or 2 columns"
                    : "[text], or another name of 1 column",
                columns->n);
    if (!c->use_dpo && !has_prompts(c))
        config_hint(load, "use_sft=true reads prompts and completions, use_dpo=true pairs");
}

/* What hf_path may name besides a folder. */
static const struct {
    const char *name, *wants; /* wants NULL: it is read */
} hf_readers[] = {
    {"json", NULL},
    {"text", NULL},
    {"parquet", NULL},
    {"arrow", NULL},
    {"csv", "pandas.read_csv('IN.csv')"},
};

bool mx_config_is_hf_format(const char *hf_path) {
    for (int i = 0; i < MX_COUNT(hf_readers); i++)
        if (!strcmp(hf_path, hf_readers[i].name)) return !hf_readers[i].wants;
    return false;
}

static void check_hf_path(ConfigLoad *load, const MxConfig *c) {
    const char *path = c->hf_path;
    for (int i = 0; i < MX_COUNT(hf_readers); i++) {
        if (strcmp(path, hf_readers[i].name)) continue;
        if (!hf_readers[i].wants) return;
        config_fail(load, MX_KEY_hf_path, "%s is not available, wants json, text, parquet or arrow",
                    path);
        config_hint(load,
                    "convert with: python3 -c \"import pandas; %s.to_json('OUT.jsonl', "
                    "orient='records', lines=True)\"",
                    hf_readers[i].wants);
        return;
    }
    if (!mx_dir_exists(path)) {
        config_fail(
            load, MX_KEY_hf_path,
            "\"%s\" is no folder here, and sets of the Hugging Face hub are not "
            "downloaded; wants json, text, parquet or arrow with hf_train_files, or a folder",
            config_shorten(load->arena, path));
        config_hint(load, "hf download --repo-type dataset NAME --local-dir DIR brings its files");
    } else if (c->hf_train_files && strcmp(c->hf_train_files, path)) {
        config_fail(load, MX_KEY_hf_path,
                    "\"%s\" names the training data, and so does hf_train_files; wants json, "
                    "text, parquet or arrow with that",
                    config_shorten(load->arena, path));
    }
}

static void check_template(ConfigLoad *load, const MxConfig *c) {
    if (GOOD(load, MX_KEY_chat_template, MX_KEY_chat_template_path) && c->chat_template &&
        c->chat_template_path)
        config_fail(load, config_culprit(load, MX_KEY_chat_template, MX_KEY_chat_template_path),
                    "chat_template holds a template, and chat_template_path names one; wants one "
                    "of them");
}

/* The columns of records, of the kinds of data that hold them. */
static void check_records(ConfigLoad *load, const MxConfig *c) {
    if (!strcmp(c->dataset_type, "hf") && GOOD(load, MX_KEY_hf_path) && c->hf_path)
        check_hf_path(load, c);
    check_template(load, c);
    check_columns(load, c, MX_KEY_train_data_columns);
    if (c->eval_interval > 0) check_columns(load, c, MX_KEY_eval_data_columns);
}

static void check_packing(ConfigLoad *load, const MxConfig *c) {
    if (strcmp(c->dataset_type, "c4_mlperf") || !GOOD(load, MX_KEY_packing) || c->packing) return;
    config_fail(load, config_culprit(load, MX_KEY_packing, MX_KEY_dataset_type),
                "false; dataset_type c4_mlperf fills rows with documents, tfds has a row for each");
}

static void check_data(ConfigLoad *load, const MxConfig *c) {
    if (!GOOD(load, MX_KEY_dataset_type)) return;
    const ConfigFiles *files = config_files_of(c);
    if (!files) {
        if (c->dataset_path && !load->decodes)
            config_warn(load, MX_NOWHERE, "dataset_path has no effect with dataset_type %s",
                        c->dataset_type);
        return;
    }
    if (files->has_records) check_records(load, c);
    check_files(load, c, files);
    check_evaluation(load, c, files);
    check_moved(load, c);
    check_packing(load, c);
    if (files->has_tokenizer) check_tokenizer(load, c);
}

/* What a run can be for instead of pre-training, and, behind that, what else records can have. */
typedef struct Meaning {
    MxKey key;
    bool is_meant;
} Meaning;
enum { OBJECTIVES = 4, MEANINGS };

static void list_meanings(const MxConfig *c, Meaning out[MEANINGS]) {
    const Meaning all[MEANINGS] = {{MX_KEY_use_dpo, c->use_dpo},
                                   {MX_KEY_use_sft, c->use_sft},
                                   {MX_KEY_use_grpo, c->use_grpo},
                                   {MX_KEY_use_kto, c->use_kto},
                                   [OBJECTIVES] = {MX_KEY_use_multimodal, c->use_multimodal}};
    memcpy(out, all, sizeof all);
}

/* Objectives exclude each other. */
static void check_objective(ConfigLoad *load, const MxConfig *c) {
    Meaning all[MEANINGS];
    list_meanings(c, all);
    for (int i = 0; i < OBJECTIVES; i++)
        for (int k = i + 1; k < OBJECTIVES; k++)
            if (GOOD(load, all[i].key, all[k].key) && all[i].is_meant && all[k].is_meant)
                config_fail(load, config_culprit(load, all[i].key, all[k].key),
                            "true, as the other of %s and %s is; a run has one of them",
                            mx_key_name(all[i].key), mx_key_name(all[k].key));
}

/* Responses with rewards or labels are read from JSON Lines, one a row. */
static void check_responses(ConfigLoad *load, const MxConfig *c) {
    const MxKey key = c->use_kto ? MX_KEY_use_kto : MX_KEY_use_grpo;
    const char *name = mx_key_name(key);
    if (!GOOD(load, MX_KEY_use_grpo, MX_KEY_use_kto, MX_KEY_dataset_type)) return;
    if (!c->use_grpo && !c->use_kto) return;
    if (strcmp(c->dataset_type, "hf"))
        config_fail(load, config_culprit(load, key, MX_KEY_dataset_type),
                    "%s=true wants responses with %s, dataset_type %s has none; hf has", name,
                    c->use_kto ? "labels" : "rewards", c->dataset_type);
    if (GOOD(load, MX_KEY_packing) && c->packing)
        config_fail(load, config_culprit(load, key, MX_KEY_packing),
                    "%s=true has one response in a row; it wants packing=false", name);
    if (GOOD(load, MX_KEY_generate_padding_batch_train) && c->generate_padding_batch_train)
        config_fail(load, MX_KEY_generate_padding_batch_train,
                    "not available with %s=true, whose batches are responses", name);
    if (GOOD(load, MX_KEY_token_cache) && c->token_cache)
        config_fail(load, MX_KEY_token_cache,
                    "not available yet with %s=true, whose records are more than tokens", name);
}

/* Images are put among texts. */
static void check_ids(ConfigLoad *load, const MxConfig *c) {
    const struct {
        MxKey key;
        bool tokenizes;
    } all[] = {{MX_KEY_tokenize_train_data, c->tokenize_train_data},
               {MX_KEY_tokenize_eval_data, c->tokenize_eval_data}};
    for (int i = 0; i < MX_COUNT(all); i++)
        if (GOOD(load, all[i].key, MX_KEY_use_multimodal) && c->use_multimodal && !all[i].tokenizes)
            config_fail(load, config_culprit(load, all[i].key, MX_KEY_use_multimodal),
                        "%s=false has no place for images; use_multimodal=true wants texts",
                        mx_key_name(all[i].key));
}

/* Only documents are split: a prompt without its completion teaches nothing. */
static void check_splits(ConfigLoad *load, const MxConfig *c) {
    Meaning all[MEANINGS];
    list_meanings(c, all);
    for (int i = 0; i < MEANINGS && !c->use_truncation; i++)
        if (GOOD(load, MX_KEY_use_truncation, all[i].key) && all[i].is_meant)
            config_fail(load, config_culprit(load, MX_KEY_use_truncation, all[i].key),
                        "use_truncation=false splits documents of pre-training; records of %s=true "
                        "are not split",
                        mx_key_name(all[i].key));
}

/* What the objectives need of the data. */
static void check_posttrain(ConfigLoad *load, const MxConfig *c) {
    if (!GOOD(load, MX_KEY_use_dpo, MX_KEY_use_sft, MX_KEY_dataset_type)) return;
    bool is_text = !strcmp(c->dataset_type, "text");
    if (c->use_dpo && is_text)
        config_fail(
            load, config_culprit(load, MX_KEY_use_dpo, MX_KEY_dataset_type),
            "use_dpo=true wants pairs of responses, dataset_type text has none; hf and hdf5 "
            "have");
    if (c->use_dpo && GOOD(load, MX_KEY_dpo_max_prompt_length, MX_KEY_max_target_length) &&
        c->dpo_max_prompt_length >= c->max_target_length)
        config_fail(load,
                    config_culprit(load, MX_KEY_dpo_max_prompt_length, MX_KEY_max_target_length),
                    "dpo.max_prompt_length %lld leaves no room for responses in max_target_length "
                    "%lld",
                    (long long)c->dpo_max_prompt_length, (long long)c->max_target_length);
    const ConfigFiles *files = config_files_of(c);
    if (c->use_dpo && files && files->has_records &&
        GOOD(load, MX_KEY_packing, MX_KEY_dpo_formula, MX_KEY_dpo_algo) && c->packing &&
        !strcmp(c->dpo_formula, "maxtext") && !strcmp(c->dpo_algo, "dpo"))
        config_fail(load, config_culprit(load, MX_KEY_packing, MX_KEY_dpo_formula),
                    "dpo.formula maxtext knows one pair in a row; it wants packing=false");
    if (!GOOD(load, MX_KEY_sft_train_on_completion_only) || !c->sft_train_on_completion_only)
        return;
    if (c->use_sft && is_text)
        config_fail(load, MX_KEY_sft_train_on_completion_only,
                    "dataset_type text has no prompts to leave out; hf has");
}

void config_check_data(ConfigLoad *load, const MxConfig *c) {
    check_data(load, c);
    check_objective(load, c);
    check_posttrain(load, c);
    check_ids(load, c);
    check_splits(load, c);
    check_responses(load, c);
}
