/* found.c — settings derived from a model and from data: family, sizes and tokenizer from a Hugging
 * Face folder, purpose and row length from data. */
#include "data.h"
#include "internal.h"

#include <ctype.h>

/* ---- a model */

/* The last part of a path, of what every file system takes in names; up to a dot if wanted. */
static void add_name(MxText *out, const char *path, bool has_ending) {
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    size_t start = n;
    while (start && path[start - 1] != '/') start--;
    for (size_t i = start; i < n && (!has_ending || path[i] != '.'); i++)
        if (isalnum((unsigned char)path[i]) || strchr("._-", path[i]))
            mx_text_addn(out, path + i, 1);
}

/* A folder of runs may be that of the model too: the run's must be another one. */
static const char *name_run(MxArena *arena, const char *model, const char *data) {
    MxText name;
    mx_text_init(&name, arena);
    add_name(&name, model, false);
    mx_text_add(&name, "-");
    size_t n = name.len;
    add_name(&name, data ? data : "", true);
    if (name.len == n) mx_text_add(&name, "tuned");
    return name.data;
}

static void add_text(MxText *out, const char *key, const char *value) {
    mx_text_add(out, "%s: %s\n", key, mx_json_quote(out->arena, value, strlen(value)));
}

bool mx_train_found_model(MxText *out, const char *dir, const char *data, const MxConfig *said,
                          MxError *err) {
    MxArena *arena = out->arena;
    MxHfModel model;
    if (!mx_hf_is_dir(dir)) {
        mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE,
                "model: \"%s\" is no folder of Hugging Face's here (there is no config.json of a "
                "model in it), and nothing is fetched from a hub",
                dir);
        mx_note(err,
                "hint: bring its files (hf download %s --local-dir DIR) and name that folder; runs "
                "of mxtrain go by their run_name, their weights by load_parameters_path",
                dir);
        return false;
    }
    if (!mx_hf_read_config(arena, mx_hf_config_path(arena, dir), &model, err)) return false;
    if (*model.lacks)
        return mx_fail(err, MX_EXIT_BAD_INPUT, MX_NOWHERE,
                       "model: \"%s\" has what is not available yet: %s", dir, model.lacks);
    model.sees = said->use_multimodal && model.encoder;
    model.hears = model.sees && said->use_audio && model.audio;
    const char *type = mx_tokenizer_guess(dir), *yaml = mx_hf_yaml(arena, &model);
    mx_text_addn(out, yaml, strlen(yaml));
    if (type) add_text(out, "tokenizer_type", type);
    add_text(out, "run_name", name_run(arena, dir, data));
    return true;
}

/* ---- data */

bool mx_train_found_data(MxText *out, const char *path, const MxConfig *said,
                         const char *overrides[MX_FOUND_KEYS], MxError *err) {
    MxArena *arena = out->arena;
    MxDataGuess guess;
    if (!mx_data_guess(arena, path, mx_config_writes(said), MX_NOWHERE, &guess, err))
        return mx_context(err, "data");
    bool has_format = guess.format != NULL, is_grain = !strcmp(guess.kind, "grain");
    const char *quoted = mx_json_quote(arena, path, strlen(path));
    overrides[0] = mx_arena_printf(arena, "dataset_type=%s", guess.kind);
    overrides[1] = mx_arena_printf(arena, "%s_train_files=%s", guess.kind, quoted);
    overrides[2] = !has_format
                       ? NULL
                       : mx_arena_printf(arena, "%s=%s", is_grain ? "grain_file_type" : "hf_path",
                                         guess.format);
    if (said->use_grpo || said->use_kto || said->use_dpo)
        return true; /* they want what they want */
    if (guess.has_label && !strcmp(guess.kind, "hf") && !said->use_sft) {
        mx_text_add(out, "use_kto: true\n");
        return true;
    }
    mx_text_add(out, "use_sft: %s\nuse_dpo: %s\n", guess.is_sft ? "true" : "false",
                guess.is_pair && !said->use_sft ? "true" : "false");
    if (guess.is_sft) mx_text_add(out, "sft_train_on_completion_only: true\n");
    return true;
}

/* ---- both */

/* What models that were trained before go on with; a model's first steps want more. Source: TRL
 * 1.16, the defaults of SFTConfig, DPOConfig, GRPOConfig, KTOConfig and RewardConfig; ten times as
 * much for adapters, docs/LORA.md. */
static const char *rate_of(const MxConfig *c) {
    if (c->score_head) return c->enable_lora ? "0.001" : "0.0001";
    if (c->use_dpo || c->use_grpo || c->use_kto) return c->enable_lora ? "1e-05" : "1e-06";
    return c->enable_lora ? "0.0002" : "2e-05";
}

static int64_t round_up(int64_t n, int64_t piece) {
    return (n + piece - 1) / piece * piece;
}

/* The part of rows that is for prompts, where they have one. */
typedef struct Part {
    const char *key;        /* NULL = they have none */
    int64_t prompt, answer; /* tokens that there should be room for */
    bool is_said;           /* by the user */
} Part;

static Part part_of(const MxConfig *c, const MxConfig *said, MxDataLongest longest) {
    /* Source: TRL 1.16, GRPOConfig.max_completion_length. */
    enum { USUAL_COMPLETION = 512 };
    int64_t prefill = said->max_prefill_predict_length, paired = said->dpo_max_prompt_length;
    if (mx_config_writes(c))
        return (Part){.key = "max_prefill_predict_length",
                      .prompt = prefill > longest.prompt ? prefill : longest.prompt,
                      .answer = USUAL_COMPLETION};
    return (Part){.key = c->use_dpo ? "dpo.max_prompt_length" : NULL,
                  .prompt = paired ? paired : longest.prompt,
                  .answer = longest.answer,
                  .is_said = paired != 0};
}

/* Rows that hold the longest record, in pieces that kernels like. */
static int64_t length_for(const MxConfig *c, const MxConfig *said, MxDataLongest longest) {
    enum { PIECE = 64 };
    Part part = part_of(c, said, longest);
    return round_up(part.key ? part.prompt + part.answer : longest.whole, PIECE);
}

/* Most tokens of a prompt: of rows that are too short for both, the longer part is cut; half each
 * if both are long. */
static int64_t prompt_for(int64_t length, Part part) {
    enum { PIECE = 32 };
    int64_t rounded = round_up(part.prompt, PIECE), half = length / 2;
    if (rounded + part.answer <= length) return rounded;
    if (part.prompt + part.answer <= length || part.answer <= half) return length - part.answer;
    return part.prompt < half ? part.prompt : half;
}

/* Records as tokens, as many of each as any model's rows hold. */
static bool read_data(const MxConfig *c, int64_t most, MxFoundData *out, MxError *err) {
    MxTokenizer *tokenizer;
    const char *dir = NULL;
    MxDataConfig config = train_data_config(c, NULL, false);
    if (!train_try_tokenizer(c, err) || !mx_data_try(&config, err) ||
        !train_open_tokenizer(&out->arena, c, &tokenizer, &dir, err))
        return false;
    config = train_data_config(c, tokenizer, false);
    config.tokenizer_dir = dir;
    config.length = most;
    config.rows = 1;
    config.packing = false;
    config.memory = out->memory;
    config.remembers = true;
    config.max_prompt_length = most / 2;
    return mx_data_open(&out->arena, &config, &out->data, err);
}

bool mx_train_found_both(MxText *out, const MxConfig *c, const MxConfig *said,
                         const char *model_dir, MxFoundData *data, MxError *err) {
    enum { MOST = 2048 };
    MxHfModel model = {.length = MOST};
    MxArena *arena = out->arena;
    if (model_dir && !mx_hf_read_config(arena, mx_hf_config_path(arena, model_dir), &model, err))
        return false;
    int64_t most = model.length > 0 && model.length < MOST ? model.length : MOST;
    bool reads = data && mx_data_reads_text(c->dataset_type);
    if (reads && !read_data(c, most, data, err)) return false;
    MxDataLongest longest = reads ? mx_data_longest(data->data) : (MxDataLongest){0};
    int64_t length = length_for(c, said, longest);
    if (longest.whole)
        mx_text_add(out, "max_target_length: %lld\n", (long long)(length < most ? length : most));
    if (model_dir) mx_text_add(out, "learning_rate: %s\n", rate_of(c));
    return true;
}

void mx_train_found_rest(MxText *out, const MxConfig *c, const MxConfig *said,
                         const MxFoundData *data) {
    MxDataConfig config = train_data_config(c, NULL, false);
    MxDataLongest longest = data->data ? mx_data_longest(data->data) : (MxDataLongest){0};
    Part part = part_of(c, said, longest);
    if (longest.whole && part.key && !part.is_said && c->max_target_length > 1) {
        config.max_prompt_length = prompt_for(c->max_target_length, part);
        mx_text_add(out, "%s: %lld\n", part.key, (long long)config.max_prompt_length);
    }
    int64_t rows = data->data ? mx_data_rows(data->data, &config) : 0;
    if (train_wants(c) & TRAIN_WANTS_EVAL && c->eval_share > 0)
        rows -= mx_data_held_rows(rows, c->eval_share, c->global_batch_size_to_load_eval);
    if (config.n_epochs > 0 && rows >= config.rows)
        mx_text_add(out, "steps: %lld\n", (long long)(config.n_epochs * rows / config.rows));
}
