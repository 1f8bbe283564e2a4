/* peft_config.c — adapter_config.json of Hugging Face's peft: whether its adapters compute what
 * ours do, and such a file for adapters of ours. Which modules are adapted is told by the tensors
 * (peft_read.c), but for parameters of experts, whose tensors do not name them. */
#include "peft.h"

#include <math.h>
#include <stdlib.h>

/* Members that change what an adapter is; each must be absent or say nothing. */
static const char *const foreign[] = {
    "fan_in_fan_out",
    "lora_bias",
    "use_qalora",
    "use_bdlora",
    "layer_replication",
    "trainable_token_indices",
    "alora_invocation_tokens",
    "arrow_config",
    "kasa_config",
    "monteclora_config",
};

/* Ways to begin that change the weights below the adapters, as peft does whenever it loads them.
 * Source: peft 0.21, tuners/lora/layer.py. */
static const char *const changing[] = {"pissa", "corda", "olora", "loftq", "lora_ga"};

static bool check_beginning(const MxJson *config, MxWhere where, MxError *err) {
    const char *way = mx_json_string(mx_json_get(config, "init_lora_weights"));
    for (int i = 0; way && i < MX_COUNT(changing); i++) {
        if (strncmp(way, changing[i], strlen(changing[i])) != 0) continue;
        mx_fail(err, MX_EXIT_BAD_INPUT, where,
                "init_lora_weights is \"%s\", which changes the weights below the adapters too, "
                "wanted adapters for the weights as they are",
                way);
        mx_note(err, "hint: peft writes such: save_pretrained(DIR, "
                     "path_initial_model_for_weight_conversion=...)");
        return false;
    }
    return true;
}

static bool check_config(const MxJson *config, MxWhere where, MxError *err) {
    const char *type = mx_json_string(mx_json_get(config, "peft_type"));
    bool ok = true;
    if (!type || strcmp(type, "LORA"))
        ok = mx_fail(err, MX_EXIT_BAD_INPUT, where, "peft_type is \"%s\", wanted \"LORA\"",
                     type ? type : "");
    for (int i = 0; i < MX_COUNT(foreign); i++)
        if (hf_says_something(mx_json_get(config, foreign[i])))
            ok = mx_fail(err, MX_EXIT_BAD_INPUT, where, "%s is not available here", foreign[i]);
    return check_beginning(config, where, err) && ok;
}

bool peft_read_config(MxArena *arena, const char *dir, PeftConfig *out, MxError *err) {
    enum { LARGEST = 1 << 20 };
    MxBytes bytes;
    *out = (PeftConfig){.where = {.file = mx_path_join(arena, dir, PEFT_CONFIG)}};
    if (!mx_file_read(arena, out->where.file, LARGEST, &bytes, err)) return false;
    const MxJson *config =
        mx_json_parse(arena, (const char *)bytes.data, bytes.size, out->where.file, err);
    if (!config || !check_config(config, out->where, err)) return false;
    if (!mx_json_number(mx_json_get(config, "r"), &out->rank) || out->rank < 1 ||
        !mx_json_number(mx_json_get(config, "lora_alpha"), &out->alpha))
        return mx_fail(err, MX_EXIT_BAD_INPUT, out->where, "no r of at least 1, or no lora_alpha");
    const MxJson *dropout = mx_json_get(config, "lora_dropout");
    if (dropout &&
        (!mx_json_number(dropout, &out->dropout) || out->dropout < 0 || out->dropout > 1))
        return mx_fail(err, MX_EXIT_BAD_INPUT, out->where, "lora_dropout is no number from 0 to 1");
    mx_json_bool(mx_json_get(config, "use_rslora"), &out->is_rs);
    mx_json_bool(mx_json_get(config, "use_dora"), &out->is_dora);
    out->ranks = mx_json_get(config, "rank_pattern");
    out->alphas = mx_json_get(config, "alpha_pattern");
    out->parameters = mx_json_get(config, "target_parameters");
    out->targets = mx_json_get(config, "target_modules");
    out->excluded = mx_json_get(config, "exclude_modules");
    out->layers = mx_json_get(config, "layers_to_transform");
    return true;
}

bool mx_peft_dropout(const char *dir, double *out, MxError *err) {
    MxArena arena = {.name = "peft"};
    PeftConfig config;
    bool ok = peft_read_config(&arena, dir, &config, err);
    *out = config.dropout;
    mx_arena_release(&arena);
    return ok;
}

/* ---- modules */

/* What the first pattern that matches all of a name, or all behind one of its dots, says of it;
 * `usual` if none does. Source: peft 0.21, utils/other.py, get_pattern_key. */
static bool find_pattern(const PeftConfig *config, const MxJson *patterns, const char *name,
                         double usual, double *out, MxError *err) {
    MxArena arena = {.name = "pattern"};
    const char *pattern = NULL, *why = NULL;
    MxJson *value = NULL;
    MxMatch match = MX_MATCH_NONE;
    for (size_t i = 0; match == MX_MATCH_NONE && mx_json_member(patterns, i, &pattern, &value);
         i++) {
        const MxRegex *regex =
            mx_regex_new(&arena, mx_arena_printf(&arena, "(?:.*\\.)?(?:%s)", pattern), &why);
        match = regex ? mx_regex_match(regex, name) : MX_MATCH_GAVE_UP;
        if (match == MX_MATCH_PART) match = MX_MATCH_NONE;
    }
    *out = usual;
    bool ok = match == MX_MATCH_NONE || (match == MX_MATCH_WHOLE && mx_json_number(value, out)) ||
              mx_fail(err, MX_EXIT_BAD_INPUT, config->where,
                      "\"%s\" is no pattern with a number: %s", pattern, why ? why : "not usable");
    mx_arena_release(&arena);
    return ok;
}

/* Whether a list has a name, as a whole or from one of its dots on. */
static bool lists(const MxJson *list, const char *key) {
    for (size_t i = 0; i < mx_json_length(list); i++) {
        const char *named = mx_json_string(mx_json_at(list, i));
        size_t n = named ? strlen(named) : 0, all = strlen(key);
        if (n && n <= all && !strcmp(key + all - n, named) && (n == all || key[all - n - 1] == '.'))
            return true;
    }
    return false;
}

/* Whether a pattern is all of a name, or a list has it. */
static bool matches(const MxJson *names, const char *key) {
    const char *pattern = mx_json_string(names), *why;
    if (!pattern) return lists(names, key);
    MxArena arena = {.name = "pattern"};
    const MxRegex *regex = mx_regex_new(&arena, pattern, &why);
    bool is_whole = !regex || mx_regex_match(regex, key) == MX_MATCH_WHOLE;
    mx_arena_release(&arena);
    return is_whole;
}

/* Whether a module's layer, the first number of its name, is one of some; without any, all are. */
static bool has_layer(const MxJson *layers, const char *key) {
    double layer = (double)strtol(key + strcspn(key, "0123456789"), NULL, 10), one;
    if (mx_json_number(layers, &one)) return one == layer;
    size_t n = mx_json_length(layers);
    for (size_t i = 0; i < n; i++)
        if (mx_json_number(mx_json_at(layers, i), &one) && one == layer) return true;
    return !n;
}

bool peft_adapts(const PeftConfig *config, const PeftModule *module) {
    const char *key = module->module;
    if (matches(config->excluded, key)) return false;
    bool is_pattern = mx_json_string(config->targets) != NULL;
    return matches(config->targets, key) && (is_pattern || has_layer(config->layers, key));
}

static bool refuse_scale(const PeftConfig *config, double found, double scale, MxError *err) {
    mx_fail(err, MX_EXIT_BAD_INPUT, config->where,
            "its adapters count %.9g (lora_alpha %.9g, r %.9g%s), those of this run lora_alpha "
            "/ lora_rank = %.9g",
            found, config->alpha, config->rank, config->is_rs ? ", use_rslora" : "", scale);
    mx_note(err, "hint: lora.lora_rank=%.9g lora.lora_alpha=%.9g", config->rank,
            found * config->rank);
    return false;
}

bool peft_factor(const PeftConfig *config, const PeftModule *module, int64_t rank, double scale,
                 double *out, MxError *err) {
    double r, alpha;
    if (!find_pattern(config, config->ranks, module->key, config->rank, &r, err) ||
        !find_pattern(config, config->alphas, module->key, config->alpha, &alpha, err))
        return false;
    if (module->has_experts && !lists(config->parameters, module->key))
        return mx_fail(err, MX_EXIT_BAD_INPUT, config->where,
                       "target_parameters does not name \"%s\", which is adapted here",
                       module->key);
    if (r != (double)rank)
        return mx_fail(err, MX_EXIT_BAD_INPUT, config->where,
                       "r of \"%s\" is %.9g; its tensors have %lld", module->key, r,
                       (long long)rank);
    double found = alpha / (config->is_rs ? sqrt(r) : r);
    bool is_equal = fabs(found - scale) <= 1e-6 * fabs(scale);
    bool is_of_all = r == config->rank && alpha == config->alpha;
    *out = is_equal ? 1 : found / scale;
    return is_equal || !is_of_all || refuse_scale(config, found, scale, err);
}

/* ---- out */

/* Where the next longer end of a name begins that is whole words of it; NULL = there is none. */
static const char *longer_end(const char *name, const char *end) {
    if (end == name) return NULL;
    const char *p = end - 1; /* at its dot, or behind the name */
    while (p > name && p[-1] != '.') p--;
    return p;
}

/* "q_proj", where this is the end of no other name; else as much more as that needs. */
static const char *shortest(const MxMap *others, const char *key) {
    const char *end = longer_end(key, key + strlen(key) + 1);
    if (!strcmp(end, "weight")) end = longer_end(key, end);
    for (const char *more; mx_map_get(others, end, -1) >= 0 && (more = longer_end(key, end));)
        end = more;
    return end;
}

/* All ends of the names of modules, or of parameters, that are not adapted as such, or have fewer
 * blocks of ranks. */
static void list_others(MxArena *arena, const PeftModules *modules, bool is_parameter, int n_blocks,
                        MxMap *others) {
    mx_map_init(others, arena);
    for (int i = 0; i < modules->n; i++) {
        const PeftModule *m = &modules->module[i];
        const char *name = is_parameter ? m->weight : m->module;
        if (m->is_parameter == is_parameter && m->n_blocks >= n_blocks) continue;
        for (const char *end = name + strlen(name) + 1; (end = longer_end(name, end));)
            mx_map_set(others, end, i);
    }
}

/* As short as those that are not adapted allow, if all of them are known: encoders of images have
 * others. */
static void put_targets(MxArena *arena, const PeftModules *modules, bool are_parameters,
                        MxJson *targets) {
    MxMap others, said;
    list_others(arena, modules, are_parameters, 1, &others);
    mx_map_init(&said, arena);
    for (int i = 0; i < modules->n; i++) {
        const PeftModule *m = &modules->module[i];
        bool is_one = m->parts && m->is_parameter == are_parameters;
        const char *name = is_one && !modules->within ? shortest(&others, m->key) : m->key;
        if (!is_one || mx_map_get(&said, name, -1) >= 0) continue;
        mx_map_set(&said, name, i);
        mx_json_push_string(targets, name);
    }
}

/* Modules that are several kernels of ours have the ranks of all, and count the same. */
static void put_patterns(MxArena *arena, const PeftModules *modules, int64_t rank, double scale,
                         MxJson *config) {
    MxJson *ranks = NULL, *alphas = NULL;
    for (int i = 0; i < modules->n; i++) {
        const PeftModule *m = &modules->module[i];
        MxMap others;
        if (m->n_blocks < 2) continue;
        if (!ranks) ranks = mx_json_put_object(config, "rank_pattern");
        if (!alphas) alphas = mx_json_put_object(config, "alpha_pattern");
        list_others(arena, modules, m->is_parameter, m->n_blocks, &others);
        const char *name = shortest(&others, m->key);
        mx_json_set_int(ranks, name, m->n_blocks * rank);
        mx_json_set_number(alphas, name, scale * (double)(m->n_blocks * rank));
    }
}

bool peft_has_parameters(const PeftModules *modules) {
    bool has = false;
    for (int i = 0; i < modules->n; i++)
        has |= modules->module[i].parts && modules->module[i].is_parameter;
    return has;
}

const char *peft_config_text(MxArena *arena, const PeftModules *modules, const PeftWholes *wholes,
                             const MxPeftConvert *how, MxError *err) {
    int64_t rank = modules->rank;
    double scale = how->alpha / (double)rank;
    MxJson *config = mx_json_object(arena);
    mx_json_set_string(config, "base_model_name_or_path", how->base);
    mx_json_set_string(config, "peft_type", "LORA");
    mx_json_set_string(config, "task_type", modules->held->has_score ? "SEQ_CLS" : "CAUSAL_LM");
    mx_json_set_int(config, "r", rank);
    mx_json_set_number(config, "lora_alpha", how->alpha);
    put_targets(arena, modules, false, mx_json_put_array(config, "target_modules"));
    bool has_parameters = peft_has_parameters(modules);
    if (has_parameters)
        put_targets(arena, modules, true, mx_json_put_array(config, "target_parameters"));
    put_patterns(arena, modules, rank, scale, config);
    bool is_dora = false;
    for (int i = 0; i < modules->n; i++) is_dora |= peft_has_magnitudes(&modules->module[i]);
    if (is_dora) mx_json_set_bool(config, "use_dora", true);
    mx_json_set_number(config, "lora_dropout", has_parameters ? 0 : how->dropout);
    if (!peft_put_wholes(arena, wholes, modules, config, err)) return NULL;
    mx_json_set_bool(config, "inference_mode", true);
    return mx_json_dump(arena, config, true);
}
