/* rewards.c — keys of MaxText's trainer of rewards that say what others say for all runs: prompts
 * of a batch, and how many batches there are. Source: MaxText configs/types.py RLConfig and
 * trainers/post_train/rl/train_rl.py, prepare_datasets @e591f30c. */
#include "check.h"

#include <math.h>

static void say(ConfigLoad *load, MxKey key, int64_t value) {
    *(int64_t *)((char *)load->config + config_rows[key].offset) = value;
    load->slots[key].is_derived = true;
}

static void say_no(ConfigLoad *load, MxKey key) {
    *(bool *)((char *)load->config + config_rows[key].offset) = false;
    load->slots[key].is_derived = true;
}

/* As many on each of n devices that all have no less than `prompts`. */
static double on_each(int64_t prompts, int64_t n) {
    double each = (double)prompts / (double)n;
    while (each * (double)n < (double)prompts) each = nextafter(each, INFINITY);
    return each;
}

static void say_rows(ConfigLoad *load, MxKey key, int64_t prompts) {
    const MxConfig *c = load->config;
    *(double *)((char *)load->config + config_rows[key].offset) =
        on_each(prompts, c->num_target_devices);
    load->slots[key].is_derived = true;
}

/* Prompts of a batch of evaluation, 0 = that is said elsewhere. */
static int64_t test_batch_of(const MxConfig *c) {
    return c->eval_batch_size > 0 ? c->eval_batch_size : c->batch_size;
}

/* Parts that do not divide are told by a check. */
static void derive_rows(ConfigLoad *load, const MxConfig *c) {
    int64_t part = c->train_micro_batch_size > 0 ? c->train_micro_batch_size : c->batch_size;
    int64_t of_eval = test_batch_of(c);
    if (c->batch_size) {
        say_rows(load, MX_KEY_per_device_batch_size, part);
        say(load, MX_KEY_gradient_accumulation_steps,
            c->batch_size < part ? 1 : c->batch_size / part);
    }
    if (of_eval) say_rows(load, MX_KEY_eval_per_device_batch_size, of_eval);
}

bool mx_config_judges(const MxConfig *c) {
    return mx_config_writes(c) && !strcmp(c->rl_reward, "maxtext") && c->num_test_batches > 0;
}

/* Whole batches of the prompts from test_batch_start_index to those that num_test_batches end with.
 * Source: MaxText trainers/post_train/rl/train_rl.py, prepare_datasets @e591f30c. */
static int64_t test_batches(const MxConfig *c) {
    int64_t of = test_batch_of(c), start = c->test_batch_start_index;
    return c->num_test_batches - (of ? start / of + (start % of != 0) : 0);
}

static void derive_steps(ConfigLoad *load, const MxConfig *c) {
    double epochs = c->num_epoch > 0 ? (double)c->num_epoch : 1;
    double steps =
        (double)c->num_batches * (double)c->rl_num_iterations * c->train_fraction * epochs;
    if (c->num_batches)
        say(load, MX_KEY_steps, steps < CONFIG_LARGEST_SIZE ? (int64_t)steps : CONFIG_LARGEST_SIZE);
    if (c->num_test_batches > 0) say(load, MX_KEY_eval_steps, test_batches(c));
    if (c->num_test_batches == 0) say(load, MX_KEY_eval_interval, -1);
    if (c->num_test_batches > 0 && c->eval_interval <= 0) say(load, MX_KEY_eval_interval, c->steps);
}

/* The strategy's numbers; what is wrong with them is told by a check. */
static const struct {
    const char *name;
    size_t field;
    double low, high;
    bool is_whole;
} numbers[] = {{"eval_temperature", offsetof(MxAnswering, temperature), 0, 100, false},
               {"eval_top_k", 0, -1, CONFIG_LARGEST_SIZE, true},
               {"eval_top_p", offsetof(MxAnswering, top_p), 1e-6, 1, false}};

static bool is_number(int i, const MxYaml *value) {
    bool is = value && (value->kind == MX_YAML_INT ||
                        (value->kind == MX_YAML_FLOAT && !numbers[i].is_whole));
    return is && value->number >= numbers[i].low && value->number <= numbers[i].high;
}

static void derive_answering(MxConfig *c) {
    const MxYaml *way = mx_yaml_get(c->generation_configs, c->eval_sampling_strategy);
    for (int i = 0; i < MX_COUNT(numbers); i++) {
        const MxYaml *value = way ? mx_yaml_get(way, numbers[i].name) : NULL;
        if (!is_number(i, value)) continue;
        if (numbers[i].is_whole)
            c->answering.top_k = value->number < 0 ? 0 : (int64_t)value->number;
        else
            *(double *)((char *)&c->answering + numbers[i].field) = value->number;
    }
}

void config_derive_rewards(ConfigLoad *load) {
    const MxConfig *c = load->config;
    bool are_responses = c->use_grpo || c->use_kto; /* each a row */
    if (are_responses && load->slots[MX_KEY_packing].from < CONFIG_FROM_LINE)
        say_no(load, MX_KEY_packing);
    if (!c->use_grpo) return;
    derive_rows(load, c);
    derive_steps(load, c);
    derive_answering(load->config);
}

static void check_rows(ConfigLoad *load, const MxConfig *c) {
    const MxKey all = MX_KEY_batch_size, part = MX_KEY_train_micro_batch_size;
    if (c->batch_size && !c->use_grpo)
        config_fail(load, all,
                    "is for use_grpo=true; other runs take per_device_batch_size, the rows of a "
                    "batch on each device");
    else if (GOOD(load, part) && c->batch_size && c->train_micro_batch_size > 0 &&
             c->batch_size % c->train_micro_batch_size)
        config_fail(load, part, "%lld does not divide batch_size, %lld",
                    (long long)c->train_micro_batch_size, (long long)c->batch_size);
}

static void check_answering(ConfigLoad *load, const MxConfig *c) {
    const MxKey key = MX_KEY_generation_configs;
    const MxYaml *way = mx_yaml_get(c->generation_configs, c->eval_sampling_strategy);
    if (!GOOD(load, key, MX_KEY_eval_sampling_strategy)) return;
    if (!way)
        config_fail(load, MX_KEY_eval_sampling_strategy, "generation_configs has no \"%s\"",
                    c->eval_sampling_strategy);
    for (int i = 0; way && i < MX_COUNT(numbers); i++)
        if (!is_number(i, mx_yaml_get(way, numbers[i].name)))
            config_fail(load, key, "%s: wants %s, a %snumber from %g to %g",
                        c->eval_sampling_strategy, numbers[i].name,
                        numbers[i].is_whole ? "whole " : "", numbers[i].low, numbers[i].high);
}

/* What goes by the loss of an evaluation. */
static void check_judged(ConfigLoad *load, const MxConfig *c) {
    const MxKey key = MX_KEY_num_test_batches, start = MX_KEY_test_batch_start_index;
    if (!GOOD(load, MX_KEY_rl_reward, MX_KEY_keep_best_checkpoint, MX_KEY_target_eval_loss)) return;
    if (!mx_config_judges(c))
        config_fail(load, key,
                    "judges answers, which rl.reward=maxtext finds in replies; eval_steps is for "
                    "rl.reward=%s",
                    c->rl_reward);
    else if (c->keep_best_checkpoint || c->target_eval_loss > 0)
        config_fail(load, key, "%s wants the loss of evaluations, and these have none",
                    mx_key_name(c->keep_best_checkpoint ? MX_KEY_keep_best_checkpoint
                                                        : MX_KEY_target_eval_loss));
    else
        check_answering(load, c);
    if (!GOOD(load, start) || !c->test_batch_start_index) return;
    if (!test_batch_of(c))
        config_fail(load, start, "counts prompts of batches; wants batch_size or eval_batch_size");
    else if (test_batches(c) < 1)
        config_fail(load, start,
                    "%lld leaves no whole batch of the prompts of num_test_batches, %lld of %lld",
                    (long long)c->test_batch_start_index, (long long)c->num_test_batches,
                    (long long)test_batch_of(c));
}

void config_check_rewards(ConfigLoad *load, const MxConfig *c) {
    if (!GOOD(load, MX_KEY_use_grpo, MX_KEY_batch_size)) return;
    check_rows(load, c);
    if (GOOD(load, MX_KEY_num_test_batches) && c->use_grpo && c->num_test_batches > 0)
        check_judged(load, c);
}
