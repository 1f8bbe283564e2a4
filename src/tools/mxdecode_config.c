/* mxdecode_config.c — --config: a config in place of a folder. Its keys are settings that options
 * have too, and an option that is given takes precedence. Source: MaxText inference/decode.py,
 * inference/inference_utils.py and inference/vllm_decode.py @e591f30c. */
#include "mxdecode.h"

#include <stdlib.h>

/* "key=value"; but a folder may be named so. */
static bool is_override(const char *word) {
    return strchr(word, '=') && !mx_file_exists(word) && !mx_dir_exists(word);
}

bool decode_find_words(const char **words, CommandLine *line, MxError *err) {
    MxConfigRequest *request = &line->request;
    const char **files = (const char **)(uintptr_t)request->files, *first = NULL;
    int n_overrides = 0;
    for (const char **word = words; *word; word++) {
        bool is_file = mx_config_is_file(*word), is_pair = !is_file && is_override(*word);
        if (!is_file && !is_pair && line->dir)
            return mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE,
                           "wanted one folder; mxdecode --help tells more");
        if (is_file)
            files[request->n_files++] = *word;
        else if (is_pair)
            words[n_overrides++] = *word;
        else
            line->dir = *word;
    }
    request->overrides = words;
    request->n_overrides = n_overrides;
    first = request->n_files ? files[0] : n_overrides ? words[0] : NULL;
    if (line->dir && first) {
        mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE,
                "\"%s\" does not go with the folder \"%s\", which has a config of its own", first,
                line->dir);
        mx_note(err, "hint: mxdecode --config FILE.yml load_parameters_path=%s KEY=VALUE ...",
                line->dir);
        return false;
    }
    return line->dir || first ||
           mx_fail(err, MX_EXIT_CONFIG, MX_NOWHERE,
                   "wanted one folder or a config; mxdecode --help tells more");
}

/* ---- keys that are options */

enum { MOST_KEYS = 3 };

/* A way to choose tokens, and the keys that it reads. */
static const struct Strategy {
    const char *name;
    MxKey keys[MOST_KEYS];
    int n;
} strategies[] = {
    {.name = "greedy"},
    {
        .name = "weighted",
        .keys = {MX_KEY_decode_sampling_temperature},
        .n = 1,
    },
    {
        .name = "nucleus",
        .keys = {MX_KEY_decode_sampling_temperature, MX_KEY_decode_sampling_nucleus_p},
        .n = 2,
    },
    {
        .name = "topk",
        .keys = {MX_KEY_decode_sampling_temperature, MX_KEY_decode_sampling_top_k},
        .n = 2,
    },
    {
        .name = "composite",
        .keys = {MX_KEY_decode_sampling_temperature, MX_KEY_decode_sampling_nucleus_p,
                 MX_KEY_decode_sampling_top_k},
        .n = 3,
    },
};

static const struct {
    MxKey key;
    const char *option;
    bool is_positive; /* 0 and below turn it off, which a strategy that reads it cannot mean */
} sampling[] = {
    {MX_KEY_decode_sampling_temperature, "--temperature", false},
    {MX_KEY_decode_sampling_nucleus_p, "--top-p", true},
    {MX_KEY_decode_sampling_top_k, "--top-k", true},
};

/* The line's options. */
typedef struct Given {
    const MxOption *options;
    int n;
} Given;

static const MxOption *find(Given given, const char *name) {
    for (int i = 0; i < given.n; i++)
        if (!strcmp(given.options[i].name, name)) return &given.options[i];
    MX_BUG("no such option");
}

/* NULL says nothing. */
static void set(Given given, const char *name, const char *value) {
    const MxOption *option = find(given, name);
    if (!value || decode_is_said(option)) return;
    option->value[option->count ? (*option->count)++ : 0] = value;
}

static const struct Strategy *find_strategy(const char *name) {
    for (int i = 0; i < MX_COUNT(strategies); i++)
        if (!strcmp(strategies[i].name, name)) return &strategies[i];
    MX_BUG("a strategy of config_keys.def has no row");
}

static bool reads(const struct Strategy *strategy, MxKey key) {
    for (int i = 0; i < strategy->n; i++)
        if (strategy->keys[i] == key) return true;
    return false;
}

/* MaxText's vllm_decode has no strategies: what its commands set is not to be lost in silence. */
static void warn_unread(MxArena *arena, Given given, const MxConfig *c,
                        const struct Strategy *strategy) {
    for (int row = 0; row < MX_COUNT(sampling); row++) {
        const char *value = mx_config_value(arena, c, sampling[row].key);
        double number = strtod(value, NULL);
        bool is_off = number <= 0 || number == 1;
        bool is_said = decode_is_said(find(given, sampling[row].option));
        if (is_off || is_said || reads(strategy, sampling[row].key)) continue;
        mx_warn("%s: %s has no effect: decode_sampling_strategy=%s does not read it",
                mx_key_name(sampling[row].key), value, strategy->name);
    }
}

static bool set_sampling(MxArena *arena, Given given, const MxConfig *c, MxError *err) {
    const struct Strategy *strategy = find_strategy(c->decode_sampling_strategy);
    warn_unread(arena, given, c, strategy);
    for (int i = 0; i < strategy->n; i++) {
        int row = 0;
        while (sampling[row].key != strategy->keys[i]) row++;
        const char *value = mx_config_value(arena, c, sampling[row].key);
        bool is_said = decode_is_said(find(given, sampling[row].option));
        if (sampling[row].is_positive && !is_said && strtod(value, NULL) <= 0)
            return mx_config_fail(err, c, sampling[row].key,
                                  "%s; decode_sampling_strategy=%s wants a number above 0", value,
                                  strategy->name);
        set(given, sampling[row].option, value);
    }
    return true;
}

/* Names with commas between them, unless an option has named files. */
static void set_files(MxArena *arena, Given given, const char *option, const char *names,
                      const char ***files, int *n) {
    if (!names || decode_is_said(find(given, option))) return;
    *files =
        mx_arena_grow(arena, *files, (size_t)*n, (size_t)*n + strlen(names) + 1, sizeof **files);
    for (size_t bytes; *names; names += bytes + (names[bytes] == ',')) {
        bytes = strcspn(names, ",");
        if (bytes) (*files)[(*n)++] = mx_arena_strndup(arena, names, bytes);
    }
}

/* The first token comes of the prompt, the others of a step each. */
static int64_t most_tokens(const MxConfig *c) {
    int64_t steps = c->max_target_length - c->max_prefill_predict_length;
    return 1 + (steps > 0 ? steps : 0);
}

static bool set_options(MxArena *arena, Given given, CommandLine *line, MxError *err) {
    const MxConfig *c = line->config;
    MxSpeak *speak = &line->speak;
    speak->asks = !speak->prompts && !speak->talks;
    speak->system = c->system_prompt;
    speak->sampling.tempers_last = true;
    set(given, "--max-tokens", mx_arena_printf(arena, "%lld", (long long)most_tokens(c)));
    if (!speak->prompts) {
        set_files(arena, given, "--image", c->image_path, &speak->images, &speak->n_images);
        set_files(arena, given, "--audio", c->audio_path, &speak->sounds, &speak->n_sounds);
    }
    if (speak->asks) speak->talks = c->use_chat_template || speak->n_images || speak->n_sounds;
    return set_sampling(arena, given, c, err);
}

static bool check_places(const MxConfig *c, MxError *err) {
    static const MxKey paths[] = {MX_KEY_load_parameters_path, MX_KEY_tokenizer_path,
                                  MX_KEY_lora_restore_path, MX_KEY_chat_template_path};
    bool ok = true;
    for (int i = 0; i < MX_COUNT(paths); i++) ok &= mx_config_is_here(c, paths[i], err);
    if (c->load_full_state_path)
        ok = mx_config_fail(err, c, MX_KEY_load_full_state_path,
                            "replies need no whole state; load_parameters_path reads the "
                            "parameters alone");
    return ok;
}

bool decode_load_config(MxArena *arena, CommandLine *line, const MxOption *options, int n,
                        MxError *err) {
    const Given given = {options, n};
    MxSpeak *speak = &line->speak;
    if (line->dir) return true;
    if (!mx_source_config(arena, &line->request, speak->weights.dtype, &line->config, err))
        return false;
    for (int i = 0; i < line->config->warnings.n; i++)
        mx_warn("%s", line->config->warnings.item[i]);
    speak->weights.config = line->config;
    set(given, "--chat-template", line->config->chat_template_path);
    return (line->mode->each_line || set_options(arena, given, line, err)) &&
           check_places(line->config, err);
}
