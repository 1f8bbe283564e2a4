/* data.c — what the config says about data, as the data room wants it. */
#include "data.h"

/* The keys that name the files of each kind, and their fields. */
typedef struct FileKeys {
    const char *kind;
    MxKey key[2]; /* training, evaluation */
    size_t field[2];
} FileKeys;

#define FILE_KEYS(kind)                                                                            \
    {                                                                                              \
#kind, {MX_KEY_##kind##_train_files, MX_KEY_##kind##_eval_files }, {                       \
            offsetof(MxConfig, kind##_train_files), offsetof(MxConfig, kind##_eval_files)          \
        }                                                                                          \
    }

static const FileKeys file_keys[] = {FILE_KEYS(text), FILE_KEYS(hdf5), FILE_KEYS(hf)};

static const FileKeys *keys_of(const MxConfig *c) {
    for (int i = 0; i < MX_COUNT(file_keys); i++)
        if (!strcmp(file_keys[i].kind, c->dataset_type)) return &file_keys[i];
    return NULL;
}

/* MaxText's formula of orpo counts each response by itself, as all published losses do. */
static MxDataPairs pairs_of(const MxConfig *c) {
    bool has_one_mask = !strcmp(c->dpo_formula, "maxtext") && !strcmp(c->dpo_algo, "dpo");
    if (!c->use_dpo) return MX_DATA_NO_PAIRS;
    return has_one_mask ? MX_DATA_PAIRS_MAXTEXT : MX_DATA_PAIRS_STANDARD;
}

/* [text] is the default: with a form of several columns it means those that the data has. */
static bool are_found(const MxStrs *columns) {
    return columns->n == 1 && !strcmp(columns->item[0], "text");
}

MxDataConfig train_data_config(const MxConfig *c, const MxTokenizer *tokenizer, bool is_eval) {
    const MxStrs *columns = is_eval ? &c->eval_data_columns : &c->train_data_columns;
    const FileKeys *keys = keys_of(c);
    MxDataConfig config = {
        .kind = c->dataset_type,
        .where = mx_config_where(c, keys ? keys->key[is_eval] : MX_KEY_dataset_type),
        .tokenizer = tokenizer,
        .rows = is_eval ? c->global_batch_size_to_load_eval : c->global_batch_size_to_load,
        .length = c->max_target_length,
        .vocab = c->vocab_size,
        .seed = (uint64_t)c->data_shuffle_seed,
        .shuffle = c->enable_data_shuffling && !is_eval,
        .omits_bos = !c->add_bos,
        .omits_eos = !c->add_eos,
        .packing = c->packing,
        .max_segments = c->max_segments_per_seq,
        .n_epochs = is_eval ? 1 : c->num_epoch,
        .pairs = pairs_of(c),
        .max_prompt_length = c->dpo_max_prompt_length,
        .is_sft = c->use_sft,
        .completion_only = c->use_sft && c->sft_train_on_completion_only,
    };
    if (keys) config.path = *(const char *const *)((const char *)c + keys->field[is_eval]);
    if (!are_found(columns)) {
        config.columns = columns->item;
        config.n_columns = columns->n;
    }
    return config;
}
