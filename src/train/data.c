/* data.c — the data of a run: from the config's keys to the data room's request, and the check that
 * the data is the same as when a checkpoint was made. */
#include "data.h"

#include "internal.h"
#include "reward.h"

#include <stdio.h>

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

static const FileKeys file_keys[] = {
    FILE_KEYS(text),
    FILE_KEYS(hdf5),
    FILE_KEYS(hf),
    FILE_KEYS(grain),
    {"olmo_grain",
     {MX_KEY_olmo_index_path, MX_KEY_eval_olmo_index_path},
     {offsetof(MxConfig, olmo_index_path), offsetof(MxConfig, eval_olmo_index_path)}},
    {"tfds",
     {MX_KEY_dataset_path, MX_KEY_eval_split},
     {offsetof(MxConfig, dataset_path), offsetof(MxConfig, dataset_path)}},
    {"c4_mlperf",
     {MX_KEY_dataset_path, MX_KEY_eval_dataset_name},
     {offsetof(MxConfig, dataset_path), offsetof(MxConfig, dataset_path)}},
};

static const FileKeys *keys_of(const MxConfig *c) {
    for (int i = 0; i < MX_COUNT(file_keys); i++)
        if (!strcmp(file_keys[i].kind, c->dataset_type)) return &file_keys[i];
    return NULL;
}

static const char *const *files_of(const MxConfig *c, const FileKeys *keys, bool is_eval) {
    return (const char *const *)((const char *)c + keys->field[is_eval]);
}

/* MaxText's formula of orpo counts each response by itself, as all published losses do. A head of
 * one number scores responses. */
static MxDataPairs pairs_of(const MxConfig *c) {
    bool has_one_mask = !strcmp(c->dpo_formula, "maxtext") && !strcmp(c->dpo_algo, "dpo");
    if (!c->use_dpo) return MX_DATA_NO_PAIRS;
    if (c->score_head) return MX_DATA_PAIRS_SCORED;
    return has_one_mask ? MX_DATA_PAIRS_MAXTEXT : MX_DATA_PAIRS_STANDARD;
}

/* [text] is the default: with a form of several columns it means those that the data has. */
static bool are_found(const MxStrs *columns) {
    return columns->n == 1 && !strcmp(columns->item[0], "text");
}

/* The format of files where a key says it. */
static const char *format_of(const MxConfig *c) {
    if (!strcmp(c->dataset_type, "grain")) return c->grain_file_type;
    bool is_hf = !strcmp(c->dataset_type, "hf");
    return is_hf && c->hf_path && mx_config_is_hf_format(c->hf_path) ? c->hf_path : NULL;
}

/* As the model sees them. */
static MxDataImages images_of(const MxConfig *c, bool is_eval) {
    const MxYaml *columns = is_eval ? c->eval_image_column : c->train_image_column;
    MxDataImages images = {.vision = mx_model_vision(c),
                           .hearing = mx_model_hearing(c),
                           .placeholder = c->image_placeholder};
    bool is_list = columns->kind == MX_YAML_LIST;
    images.n_columns = is_list ? columns->n : 1;
    for (int i = 0; images.vision.images && i < images.n_columns; i++)
        images.columns[i] = is_list ? columns->item[i]->text : columns->text;
    return images;
}

static MxDataBlocks blocks_of(const MxConfig *c) {
    if (strcmp(c->training_objective, "block_diffusion") != 0) return (MxDataBlocks){0};
    return (MxDataBlocks){.size = c->causal_block_size,
                          .mask = (int32_t)c->block_diffusion_mask_id,
                          .min_noise = c->block_diffusion_min_noise,
                          .keeps_first = !strcmp(c->block_diffusion_canvas_policy, "seed_and_mask"),
                          .shifts = !strcmp(c->block_diffusion_logit_alignment, "shifted")};
}

static const char *text_of(const char *mark) {
    return mark ? mark : "";
}

static MxDataForm form_of(const MxConfig *c) {
    if (!mx_config_writes(c)) return (MxDataForm){0};
    return (MxDataForm){
        .path = c->data_template_path,
        .where = mx_config_where(c, MX_KEY_data_template_path),
        .names = {"reasoning_start_token", "reasoning_end_token", "solution_start_token",
                  "solution_end_token"},
        .values = {text_of(c->reasoning_start_token), text_of(c->reasoning_end_token),
                   text_of(c->solution_start_token), text_of(c->solution_end_token)}};
}

MxDataConfig train_data_config(const MxConfig *c, const MxTokenizer *tokenizer, bool is_eval) {
    const MxStrs *columns = is_eval ? &c->eval_data_columns : &c->train_data_columns;
    const FileKeys *keys = keys_of(c);
    MxDataConfig config = {
        .kind = c->dataset_type,
        .where = mx_config_where(c, keys ? keys->key[is_eval] : MX_KEY_dataset_type),
        .tokenizer = tokenizer,
        .rows = is_eval ? c->global_batch_size_to_load_eval : c->rows_at_once,
        .length = c->max_target_length,
        .vocab = c->vocab_size,
        .seed = (uint64_t)c->data_shuffle_seed,
        .shuffle = c->enable_data_shuffling && !is_eval,
        .omits_bos = !c->add_bos,
        .omits_eos = !c->add_eos,
        .splits = !c->use_truncation,
        .has_ids = !(is_eval ? c->tokenize_eval_data : c->tokenize_train_data),
        .packing = c->packing,
        .max_segments = c->max_segments_per_seq,
        .n_epochs = is_eval ? 1 : c->num_epoch,
        .evaluates = is_eval,
        .pads = c->generate_padding_batch_train && !is_eval,
        .pairs = pairs_of(c),
        .max_prompt_length =
            mx_config_writes(c) ? c->max_prefill_predict_length : c->dpo_max_prompt_length,
        .is_sft = c->use_sft || c->use_grpo || c->use_kto,
        .completion_only =
            c->use_grpo || c->use_kto || (c->use_sft && c->sft_train_on_completion_only),
        .group = c->use_grpo ? c->rl_num_generations : c->use_kto,
        .has_labels = c->use_kto,
        .asks = mx_config_writes(c),
        .answers = mx_config_writes(c) ? reward_answers(c) : NULL,
        .form = form_of(c),
        .reads_logprobs = c->use_grpo && c->rl_recorded_logprobs && !mx_config_writes(c),
    };
    config.images = images_of(c, is_eval);
    if (c->use_multimodal && c->use_sft)
        config.default_prompt = c->default_prompt ? c->default_prompt : "";
    config.blocks = blocks_of(c);
    config.chat = train_chat_from(c);
    config.chat_has_others = c->sample_prompts || c->rl_max_turns > 1;
    config.token_cache = c->token_cache;
    config.memory = c->data_memory;
    config.n_threads = c->num_threads;
    if (keys && (!is_eval || mx_config_names_eval(c))) config.path = *files_of(c, keys, is_eval);
    config.moved_from = c->olmo_path_remap_from;
    config.moved_to = c->olmo_path_remap_to;
    config.masks_repeats = c->olmo_apply_ngram_filter;
    config.format = format_of(c);
    config.set = is_eval ? c->eval_dataset_name : c->dataset_name;
    config.split = is_eval ? c->eval_split : c->train_split;
    if (!is_eval) config.mixture = c->grain_train_mixture_config_path;
    if (!are_found(columns)) {
        config.columns = columns->item;
        config.n_columns = columns->n;
    }
    return config;
}

/* ---- opening */

TrainWants train_wants(const MxConfig *c) {
    return c->eval_interval > 0 ? TRAIN_WANTS_STEPS | TRAIN_WANTS_EVAL : TRAIN_WANTS_STEPS;
}

static bool open_one(MxArena *arena, const MxDataConfig *config, MxDataset **out, MxError *err) {
    if (!mx_data_open(arena, config, out, err)) return false;
    if (mx_data_warning(*out)) mx_warn("%s", mx_data_warning(*out));
    return true;
}

static bool hold_out(MxArena *arena, const MxConfig *c, TrainData *data, MxError *err) {
    if (mx_data_hold_out(arena, data->train, c->eval_share, c->global_batch_size_to_load_eval,
                         &data->eval, err))
        return true;
    mx_note(err, "hint: name other data for evaluation, or train without: eval_interval=-1");
    return false;
}

/* Evaluation alone has nothing to read if nothing was named nor held out. */
static bool check_eval(const MxConfig *c, MxError *err) {
    const FileKeys *keys = keys_of(c);
    if (!keys || c->eval_share > 0 || mx_config_names_eval(c)) return true;
    mx_config_fail(err, c, keys->key[1],
                   "no data for evaluation is named, and none was held out of the training data "
                   "(eval_interval=%lld)",
                   (long long)c->eval_interval);
    return false;
}

bool train_reads(const MxConfig *c, TrainWants wants, bool is_eval) {
    bool holds_out = wants & TRAIN_WANTS_EVAL && c->eval_share > 0;
    if (is_eval) return wants & TRAIN_WANTS_EVAL && !holds_out;
    return wants & TRAIN_WANTS_STEPS || holds_out;
}

static void tell_data(const MxConfig *c, const TrainData *data) {
    if (data->train) mx_log("training data: %s", mx_data_describe(data->train));
    if (data->eval && c->eval_share > 0)
        mx_log("evaluation data: %s (eval_split=%s)", mx_data_describe(data->eval), c->eval_split);
    else if (data->eval)
        mx_log("evaluation data: %s", mx_data_describe(data->eval));
}

bool train_open_data(MxArena *arena, const MxConfig *c, TrainWants wants, TrainData *out,
                     MxError *err) {
    MxTokenizer *tokenizer = NULL;
    const char *dir = NULL;
    *out = (TrainData){0};
    if (!train_open_tokenizer(arena, c, &tokenizer, &dir, err)) return false;
    MxDataConfig train = train_data_config(c, tokenizer, false);
    MxDataConfig eval = train_data_config(c, tokenizer, true);
    train.tokenizer_dir = eval.tokenizer_dir = dir;
    if (wants & TRAIN_WANTS_EVAL && !check_eval(c, err)) return false;
    if (train_reads(c, wants, false) && !open_one(arena, &train, &out->train, err)) return false;
    if (train_reads(c, wants, true) && !open_one(arena, &eval, &out->eval, err))
        return mx_context(err, "evaluation data");
    if (wants & TRAIN_WANTS_EVAL && c->eval_share > 0 && !hold_out(arena, c, out, err))
        return false;
    if (out->eval && mx_config_judges(c) &&
        !mx_data_skip(arena, out->eval, c->test_batch_start_index, err))
        return mx_context(err, "%s", mx_key_name(MX_KEY_test_batch_start_index));
    tell_data(c, out);
    return true;
}

bool train_try_data(const MxConfig *c, MxComm *comm, TrainWants wants, MxError *err) {
    bool was_read = c->data_memory != NULL; /* of training, for what data= finds */
    bool ok = mx_comm_rank(comm) > 0 || was_read || train_try_tokenizer(c, err);
    for (int is_eval = was_read; ok && is_eval < 2 && mx_comm_rank(comm) == 0; is_eval++) {
        MxDataConfig config = train_data_config(c, NULL, is_eval);
        ok = !train_reads(c, wants, is_eval) || mx_data_try(&config, err);
    }
    return train_agree(comm, ok, err);
}

void train_warn_steps(const MxConfig *c, const MxDataset *data) {
    int64_t steps = mx_config_steps_of(c, mx_data_batches(data));
    MxTake last = mx_config_take(c, c->steps - 1);
    if (steps < 0 || steps >= c->steps || c->reuse_example_batch > 0) return;
    mx_warn("steps=%lld, but %s; the schedule of the learning rate is %lld steps long. "
            "num_epoch=%lld gives data for all steps",
            (long long)c->steps, mx_data_end_reason(data),
            (long long)c->learning_rate_schedule_steps,
            (long long)mx_data_epochs_for(data, last.first + last.n));
    if (c->generate_padding_batch_train)
        mx_warn("generate_padding_batch_train: steps behind the data have batches of padding, and "
                "no gradients");
}

/* ---- the same data as before */

const char *train_data_files(MxArena *arena, const MxDataset *data) {
    int n;
    const MxDataFile *files = mx_data_files(data, &n);
    MxJson *all = mx_json_object(arena), *list = mx_json_put_array(all, "train");
    for (int i = 0; i < n; i++) {
        MxJson *file = mx_json_push_object(list);
        mx_json_set_string(file, "path", files[i].path);
        mx_json_set_int(file, "bytes", files[i].bytes);
        mx_json_set_string(file, "xxh3_64",
                           mx_arena_printf(arena, "%016llx", (unsigned long long)files[i].hash));
    }
    return mx_json_dump(arena, all, false);
}

/* A file as two lists of them have it; NULL = one of them lacks it. */
static const MxJson *find_file(const MxJson *list, const MxJson *like) {
    const char *path = mx_json_string(mx_json_get(like, "path"));
    for (size_t i = 0; path && i < mx_json_length(list); i++) {
        const MxJson *file = mx_json_at(list, i);
        const char *other = mx_json_string(mx_json_get(file, "path"));
        if (other && !strcmp(other, path)) return file;
    }
    return NULL;
}

static bool is_same_file(const MxJson *a, const MxJson *b) {
    int64_t n = -1, m = -1;
    const char *x = mx_json_string(mx_json_get(a, "xxh3_64"));
    const char *y = mx_json_string(mx_json_get(b, "xxh3_64"));
    mx_json_int(mx_json_get(a, "bytes"), &n);
    mx_json_int(mx_json_get(b, "bytes"), &m);
    return n == m && x && y && !strcmp(x, y);
}

/* Whatever their names: the same content in the same order is the same data. */
static bool is_same_list(const MxJson *a, const MxJson *b) {
    size_t n = mx_json_length(a);
    if (mx_json_length(b) != n) return false;
    for (size_t i = 0; i < n; i++)
        if (!is_same_file(mx_json_at(a, i), mx_json_at(b, i))) return false;
    return true;
}

/* The list in what train_data_files wrote; NULL after an error. */
static const MxJson *list_of(MxArena *arena, const char *files, MxError *err) {
    return mx_json_get(mx_json_parse(arena, files, strlen(files), "data", err), "train");
}

bool train_are_same_files(const char *a, const char *b) {
    MxArena arena = {.name = "data"};
    MxError ignored = {0}; /* these texts are ours */
    bool are_same = is_same_list(list_of(&arena, a, &ignored), list_of(&arena, b, &ignored));
    mx_error_release(&ignored);
    mx_arena_release(&arena);
    return are_same;
}

static void tell_file(MxText *out, const MxJson *file, const char *what) {
    const char *path = mx_json_string(mx_json_get(file, "path"));
    mx_text_add(out, "%s\"%s\" %s", out->len ? ", " : "", path ? path : "", what);
}

/* Up to a few files by name, and how many others. */
static const char *tell_changes(MxArena *arena, const MxJson *was, const MxJson *is) {
    enum { MOST = 5 };
    const MxJson *lists[] = {was, is};
    int n = 0;
    MxText out;
    mx_text_init(&out, arena);
    for (int side = 0; side < 2; side++)
        for (size_t i = 0; i < mx_json_length(lists[side]); i++) {
            const MxJson *file = mx_json_at(lists[side], i);
            const MxJson *other = find_file(lists[!side], file);
            bool is_told = other && (side || is_same_file(file, other));
            if (!is_told && n++ < MOST)
                tell_file(&out, file, other ? "has changed" : side ? "is new" : "is gone");
        }
    if (n > MOST) mx_text_add(&out, " and %d more", n - MOST);
    return n ? out.data : "its files come in another order";
}

/* Whether the config names other training data than a saved one did: that is told as such. */
static bool has_other_name(MxArena *arena, const MxConfig *c, const MxJson *manifest) {
    const FileKeys *keys = keys_of(c);
    const char *was = mx_json_string(mx_json_get(manifest, "config"));
    const char *is = mx_config_text(arena, c);
    const MxKey told[] = {MX_KEY_dataset_type, keys ? keys->key[0] : MX_KEY_dataset_type,
                          MX_KEY_dataset_name, MX_KEY_train_split,
                          MX_KEY_grain_train_mixture_config_path};
    for (int i = 0; was && i < MX_COUNT(told); i++)
        if (strcmp(mx_config_said(arena, was, told[i]), mx_config_said(arena, is, told[i])))
            return true;
    return !keys;
}

bool train_same_data(const MxConfig *c, const char *checkpoint, const MxDataset *data,
                     MxError *err) {
    MxArena arena = {.name = "data"};
    MxJson *manifest;
    bool ok = mx_store_manifest(&arena, checkpoint, &manifest, err);
    const MxJson *was = ok ? mx_json_get(mx_json_get(manifest, "data"), "train") : NULL;
    const MxJson *is = ok ? list_of(&arena, train_data_files(&arena, data), err) : NULL;
    if (was && !is_same_list(was, is) && !has_other_name(&arena, c, manifest)) {
        const char *changes = tell_changes(&arena, was, is);
        ok = !strcmp(c->data_changed, "accept");
        if (ok)
            mx_warn("training data has changed since \"%s\" was made: %s; the curve changes from "
                    "here",
                    checkpoint, changes);
        else
            mx_fail(err, MX_EXIT_BAD_INPUT, mx_config_where(c, keys_of(c)->key[0]),
                    "%s: training data has changed since \"%s\" was made: %s",
                    mx_key_name(keys_of(c)->key[0]), checkpoint, changes);
        if (!ok) mx_note(err, "hint: data_changed=accept goes on with the data as it is now");
    }
    mx_arena_release(&arena);
    return ok;
}

bool train_same_share(const MxConfig *c, const char *checkpoint, MxError *err) {
    MxArena arena = {.name = "data"};
    MxJson *manifest;
    bool ok = mx_store_manifest(&arena, checkpoint, &manifest, err);
    const MxKey key = MX_KEY_eval_split;
    const char *was = "", *is = mx_config_said(&arena, mx_config_text(&arena, c), key);
    if (ok) was = mx_config_said(&arena, mx_json_string(mx_json_get(manifest, "config")), key);
    if (ok && strcmp(was, is))
        ok =
            mx_config_fail(err, c, key,
                           "%s, but \"%s\" was trained with %s held out: rows of the training data "
                           "are no evaluation",
                           is, checkpoint, *was ? was : "nothing");
    mx_arena_release(&arena);
    return ok;
}
