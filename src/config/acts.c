/* acts.c — warns about keys that are set where they have no effect (config_acts.def). A default
 * value, or a value that means "as the other keys say", needs no warning. Values of a preset were
 * not set by the user, neither in the preset nor in a dumped config. */
#include "room.h"

#include <mx/family.h>

#include <stdlib.h>

/* ---- what no key alone tells */

/* Something that a key needs; NULL = it never acts. */
typedef struct Test {
    bool (*holds)(const ConfigLoad *load);
    const char *why; /* not, if it does not */
} Test;

static bool has_devices(const ConfigLoad *load) {
    return load->config->num_target_devices > 1;
}

static bool has_stages(const ConfigLoad *load) {
    const MxConfig *c = load->config;
    return c->ici_pipeline_parallelism != 1 || c->dcn_pipeline_parallelism != 1;
}

static bool has_data_axis(const ConfigLoad *load) {
    const MxConfig *c = load->config;
    return config_count_along(c, c->ici_data_parallelism, c->dcn_data_parallelism) > 1;
}

static bool has_sums(const ConfigLoad *load) {
    return has_devices(load) && load->config->micro_batches > 1;
}

static bool has_preset(const ConfigLoad *load) {
    return strcmp(load->config->model_name, "default") != 0;
}

static bool has_other_rules(const ConfigLoad *load) {
    const ConfigSlot *rules = &load->slots[MX_KEY_logical_axis_rules];
    return !config_node_equal(load->arena, rules->value, rules->given[CONFIG_FROM_DEFAULT]);
}

/* A dump says the length that others get. */
static bool has_pairs(const ConfigLoad *load) {
    const MxConfig *c = load->config;
    return c->use_dpo || c->dpo_max_prompt_length == config_usual_prompt(c);
}

static bool has_reference(const ConfigLoad *load) {
    const MxConfig *c = load->config;
    return (c->use_dpo && !c->score_head) || c->use_kto || (c->use_grpo && c->grpo_beta > 0);
}

static bool weighs(const ConfigLoad *load, const char *loss) {
    return mx_config_loss_weight(load->config, loss) > 0;
}

static bool weighs_orpo(const ConfigLoad *load) {
    return weighs(load, "orpo");
}

static bool weighs_simpo(const ConfigLoad *load) {
    return weighs(load, "simpo");
}

static bool weighs_discopop(const ConfigLoad *load) {
    return weighs(load, "discopop");
}

static bool weighs_margin(const ConfigLoad *load) {
    static const char *const losses[] = {"dpo",    "sigmoid_norm", "hinge",    "ipo",
                                         "robust", "exo_pair",     "discopop", "simpo"};
    for (int i = 0; i < MX_COUNT(losses); i++)
        if (weighs(load, losses[i])) return true;
    return false;
}

/* Evaluation of files or of a split of their own takes no share of the training data. A share of 0
 * asks for nothing; "validation" is what MaxText's base.yml says. */
static bool has_share(const ConfigLoad *load) {
    const MxConfig *c = load->config;
    const ConfigFiles *files = config_files_of(c);
    const char *asked = load->slots[MX_KEY_eval_split].value->text;
    double share;
    if (!strcmp(asked, "validation") || (config_share(asked, &share) && share <= 0)) return true;
    return c->eval_interval > 0 && files &&
           (files->eval == MX_KEY_eval_split || !config_eval_named(c, files));
}

/* Of files that are named for it; other records are a share of the training data. */
static bool has_own_eval(const ConfigLoad *load) {
    const ConfigFiles *files = config_files_of(load->config);
    return files && config_eval_named(load->config, files);
}

static bool has_texts(const ConfigLoad *load) {
    const MxConfig *c = load->config;
    return c->tokenize_train_data || (has_own_eval(load) && c->tokenize_eval_data);
}

/* Feed-forward blocks, or units beside experts, which are alike. */
static bool has_units(const ConfigLoad *load) {
    const MxFamily *family = mx_family_find(load->config->decoder_block);
    return mx_family_has(family, MX_BLOCK_GLU) ||
           (mx_family_reads(family, "shared_experts") && load->config->shared_experts);
}

/* Of experts; most families' weights are shares of their sum with the key and without. */
static bool has_weights(const ConfigLoad *load) {
    const MxConfig *c = load->config;
    const MxLayerSpec *specs = mx_family_find(c->decoder_block)->specs, *last = specs;
    for (int i = 0; i < MX_MOST_SPECS; i++)
        if (specs[i].block[1].kind == MX_BLOCK_MOE) last = &specs[i];
    bool sums =
        !strcmp(c->routed_score_func, "sigmoid") || !strcmp(c->routed_score_func, "sqrtsoftplus");
    return last->block[1].kind == MX_BLOCK_MOE && last->weighs != MX_WEIGHS_READ &&
           (last->weighs != MX_WEIGHS_SCORES || sums) &&
           (last->weighs != MX_WEIGHS_ALL || c->num_experts > 1);
}

static bool has_dense_experts(const ConfigLoad *load) {
    return !load->config->sparse_matmul;
}

static bool has_writer(const ConfigLoad *load) {
    return mx_config_writes(load->config);
}

static bool has_caches(const ConfigLoad *load) {
    const MxConfig *c = load->config;
    return mx_config_writes(c) || c->sample_prompts || c->eval_tasks.n;
}

/* Where the policy of each step counts as the writer, every ratio is 1. */
static bool has_ratios(const ConfigLoad *load) {
    return mx_config_has_ratios(load->config);
}

/* Keys of rewards that say it instead. */
static bool has_rows(const ConfigLoad *load) {
    return !load->config->use_grpo || !load->config->batch_size;
}

static bool has_steps(const ConfigLoad *load) {
    return !load->config->use_grpo || !load->config->num_batches;
}

/* Of these names rewards know how answers are marked. */
static bool has_sets(const ConfigLoad *load) {
    const ConfigFiles *files = config_files_of(load->config);
    return mx_config_writes(load->config) || (files && files->train == MX_KEY_dataset_path);
}

static bool has_answers(const ConfigLoad *load) {
    return mx_config_judges(load->config);
}

static bool has_eval_steps(const ConfigLoad *load) {
    return !load->config->use_grpo || load->config->num_test_batches < 0;
}

static bool has_teacher(const ConfigLoad *load) {
    return mx_config_distils(load->config);
}

static bool has_features(const ConfigLoad *load) {
    return load->config->distill_beta > 0;
}

static bool has_no_teacher(const ConfigLoad *load) {
    return !mx_config_distils(load->config);
}

static bool has_streams(const ConfigLoad *load) {
    return load->config->mhc_expansion_rate > 1;
}

static bool has_mixed_streams(const ConfigLoad *load) {
    return has_streams(load) && !load->config->enable_mhc_lite;
}

static bool has_recall(const ConfigLoad *load) {
    return load->config->n_recall > 0;
}

static bool has_norms_of_heads(const ConfigLoad *load) {
    const MxConfig *c = load->config;
    const MxFamily *family = mx_family_find(c->decoder_block);
    bool norms = false, turned = false;
    for (int i = 0; family && i < family->n_specs; i++) {
        norms |= family->specs[i].norms_heads || c->use_qk_norm;
        turned |= family->specs[i].norms_turned;
    }
    return norms && !turned;
}

static const Test
    several_devices = {has_devices, "it acts on several devices, here is one"},
    micro_batches = {has_sums, "it acts on several devices where a step has several micro-batches"},
    data_axis = {has_data_axis, "it acts where mesh axis \"data\" is larger than 1"},
    pipeline = {has_stages, "it acts where mesh axis \"stage\" is larger than 1"},
    streams = {has_streams, "it acts where mhc_expansion_rate is above 1"},
    mixed_streams = {has_mixed_streams,
                     "it acts where mhc_expansion_rate is above 1 and enable_mhc_lite is false"},
    dense_experts = {has_dense_experts, "it acts where sparse_matmul is false, here it is true"},
    weights = {has_weights, "it acts where weights of experts are divided by their sum or may be"},
    units = {has_units, "it acts where layers have a feed-forward block or shared experts"},
    recall = {has_recall, "it acts where engram_layers names layers"},
    norms_of_heads = {has_norms_of_heads,
                      "it acts where queries and keys have norms before they are turned"},
    preset = {has_preset, "it acts where model_name is a preset's"},
    other_rules = {has_other_rules, "it acts where logical_axis_rules are given"},
    own_share = {has_share, "it acts where there is evaluation, and of training data: "
                            "no files are named for it"},
    own_eval = {has_own_eval, "it acts where files are named for evaluation, which here reads a "
                              "share of the training data (eval_split)"},
    texts = {has_texts, "it acts where texts become tokens, here the data holds token ids "
                        "(tokenize_train_data)"},
    pairs = {has_pairs, "it acts where use_dpo is true, here it is false"},
    compares = {has_reference,
                "it acts where use_dpo (not dpo.algo=reward) or use_kto is true, or use_grpo "
                "with rl.grpo_beta above 0"},
    has_orpo = {weighs_orpo, "it acts where dpo.algo or dpo.loss_weights names orpo"},
    has_simpo = {weighs_simpo, "it acts where dpo.algo or dpo.loss_weights names simpo"},
    has_discopop = {weighs_discopop, "it acts where dpo.algo or dpo.loss_weights names discopop"},
    diverges = {weighs_margin, "it acts where dpo.algo or dpo.loss_weights names dpo, "
                               "sigmoid_norm, hinge, ipo, robust, exo_pair, discopop or simpo"},
    writes = {has_writer, "it acts where the policy writes responses: use_grpo with "
                          "another rl.reward than data"},
    caches = {has_caches, "it acts where tokens are generated: mxdecode --config, sample_prompts, "
                          "eval_tasks, or use_grpo with another rl.reward than data"},
    bounds = {has_ratios, "it acts where rl.recorded_logprobs is true or rl.num_iterations above "
                          "1: else every ratio is 1"},
    teacher = {has_teacher, "it acts where teacher_overrides names a teacher, or offline_data_dir "
                            "its logits"},
    features = {has_features, "it acts where distill_beta is above 0"},
    sets = {has_sets,
            "it acts where dataset_type is tfds or c4_mlperf, or the policy writes responses"},
    judges = {has_answers, "it acts where num_test_batches is above 0"},
    rows = {has_rows, "batch_size says how many prompts a batch has"},
    steps_say = {has_steps, "num_batches says how many batches there are"},
    eval_steps_say = {has_eval_steps, "num_test_batches says how many batches there are"},
    no_teacher = {has_no_teacher, "distillation has no such part of the loss"},
    of_eval = {NULL, "evaluation goes by the rules of training"},
    of_inputs = {NULL, "batches are cut as input_data_sharding_logical_axes and the rules say"};

/* ---- conditions */

typedef struct Acts {
    MxKey key, needs;
    const char *values; /* a space between them; "" = true, above 0, not empty */
    const Test *test;   /* instead of those two, or NULL */
} Acts;

static const Acts conditions[] = {
#define MX_ACTS(key_, needs_, values_)                                                             \
    {.key = MX_KEY_##key_, .needs = MX_KEY_##needs_, .values = values_},
#define MX_ACTS_IF(key_, test_) {.key = MX_KEY_##key_, .needs = MX_KEY_##key_, .test = &(test_)},
#include <mx/config_acts.def>
#undef MX_ACTS_IF
#undef MX_ACTS
};

static const struct {
    const char *name, *keys;
} optimizers[] = {
#define MX_OPTIMIZER(name_, keys_) {#name_, keys_},
#include <mx/config_optimizers.def>
#undef MX_OPTIMIZER
};

/* The keys that a family or an optimizer names. */
static const char *keys_of(MxKey kind, const char *word) {
    const MxFamily *family = kind == MX_KEY_decoder_block ? mx_family_find(word) : NULL;
    if (family) return family->keys;
    for (int i = 0; kind == MX_KEY_opt_type && i < MX_COUNT(optimizers); i++)
        if (!strcmp(optimizers[i].name, word)) return optimizers[i].keys;
    return NULL;
}

static bool is_of_optimizers(MxKey key) {
    bool is = false;
    for (int i = 0; i < MX_COUNT(optimizers); i++)
        is = is || config_word_in(optimizers[i].keys, mx_key_name(key));
    return is;
}

static bool is_named(const ConfigLoad *load, MxKey kind, MxKey key) {
    const void *word = (const char *)load->config + config_rows[kind].offset;
    return config_word_in(keys_of(kind, *(const char *const *)word), mx_key_name(key));
}

const char *config_that_name(MxArena *arena, MxKey kind, MxKey key) {
    MxText text;
    mx_text_init(&text, arena);
    for (const char *at = config_rows[kind].now; *at; at += strspn(at, " ")) {
        size_t n = strcspn(at, " ");
        const char *word = mx_arena_strndup(arena, at, n);
        if (config_word_in(keys_of(kind, word), mx_key_name(key)))
            mx_text_add(&text, "%s%s", text.len ? ", " : "", word);
        at += n;
    }
    return text.data;
}

static bool holds(const ConfigLoad *load, const Acts *acts) {
    const void *field = (const char *)load->config + config_rows[acts->needs].offset;
    if (acts->test) return acts->test->holds && acts->test->holds(load);
    if (is_named(load, MX_KEY_decoder_block, acts->key)) return true;
    switch (config_rows[acts->needs].type) {
    case CONFIG_bool:
        return *(const bool *)field != !strcmp(acts->values, "false");
    case CONFIG_int:
        return *(const int64_t *)field > 0;
    case CONFIG_float:
        return *(const double *)field > 0;
    case CONFIG_str:
        return *(const char *const *)field != NULL;
    case CONFIG_strs:
        return ((const MxStrs *)field)->n > 0;
    case CONFIG_choice:
        return *acts->values ? config_word_in(acts->values, *(const char *const *)field)
                             : is_named(load, acts->needs, acts->key);
    default:
        MX_BUG("a key of this type is needed by none");
    }
}

static const char *wanted(MxArena *arena, const Acts *acts) {
    switch (config_rows[acts->needs].type) {
    case CONFIG_bool:
        return *acts->values ? acts->values : "true";
    case CONFIG_int:
    case CONFIG_float:
        return "above 0";
    case CONFIG_str:
    case CONFIG_strs:
        return "set";
    default:
        return *acts->values ? config_words(arena, acts->values)
                             : config_that_name(arena, acts->needs, acts->key);
    }
}

/* Of a number that may be null. */
static double meaning(const ConfigRow *row, const MxYaml *value) {
    return config_node_is_null(value) ? strtod(row->null_as, NULL) : value->number;
}

static bool is_default(const ConfigLoad *load, MxKey key) {
    const ConfigRow *row = &config_rows[key];
    const MxYaml *value = load->slots[key].value,
                 *usual = load->slots[key].given[CONFIG_FROM_DEFAULT];
    if (row->null_as && (row->type == CONFIG_float || row->type == CONFIG_int))
        return meaning(row, value) == meaning(row, usual);
    return config_node_equal(load->arena, value, usual);
}

static bool is_asked_for(const ConfigLoad *load, MxKey key) {
    const ConfigSlot *slot = &load->slots[key];
    const ConfigRow *row = &config_rows[key];
    bool is_users = slot->from > CONFIG_FROM_CUSTOM ||
                    (slot->from == CONFIG_FROM_FILE && load->config->apply_model_config);
    bool is_open = row->has_other && slot->value->number == row->other;
    if (slot->is_bad || !is_users || is_open) return false;
    return !is_default(load, key);
}

static const char *why_not(const ConfigLoad *load, const Acts *acts) {
    if (acts->test) return acts->test->why;
    return mx_arena_printf(load->arena, "it acts where %s is %s, here it is %s",
                           mx_key_name(acts->needs), wanted(load->arena, acts),
                           mx_config_value(load->arena, load->config, acts->needs));
}

/* Replies need no more than the model; commands name settings of training beside it. */
static void check_acts(ConfigLoad *load, const Acts *acts) {
    const ConfigSlot *slot = &load->slots[acts->key];
    if (load->decodes && !config_is_of_model((int)acts->key)) return;
    if (load->slots[acts->needs].is_bad || holds(load, acts) || !is_asked_for(load, acts->key))
        return;
    config_warn(load, slot->value->where, "%s: %s has no effect: %s", mx_key_name(acts->key),
                config_quote(load->arena, slot->value), why_not(load, acts));
}

void config_check_acts(ConfigLoad *load) {
    bool is_told = false; /* of the rows of a key, the first that does not hold */
    if (!mx_family_find(load->config->decoder_block)) return; /* an error already */
    for (int i = 0; i < MX_COUNT(conditions); i++) {
        const Acts *before = i ? &conditions[i - 1] : NULL;
        bool goes_on = before && before->key == conditions[i].key;
        is_told = goes_on && (is_told || !holds(load, before));
        if (!is_told) check_acts(load, &conditions[i]);
    }
    for (int key = 0; key < MX_KEY_COUNT; key++)
        if (is_of_optimizers((MxKey)key))
            check_acts(load, &(Acts){.key = (MxKey)key, .needs = MX_KEY_opt_type, .values = ""});
}
