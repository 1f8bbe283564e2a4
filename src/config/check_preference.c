/* check_preference.c — losses of pairs, their weights, and the reference that losses compare with:
 * values that are valid alone but not together. Source: ours, but for dpo.formula. */
#include "check.h"

#include <math.h>

double mx_config_loss_weight(const MxConfig *c, const char *loss) {
    const MxYaml *weight = mx_yaml_get(c->dpo_loss_weights, loss);
    if (weight) return weight->number;
    return strcmp(c->dpo_algo, loss) ? 0 : 1;
}

/* sft is no loss of pairs, so no dpo.algo. */
static bool is_weighed(const char *loss) {
    if (!strcmp(loss, "reward")) return false;
    return !strcmp(loss, "sft") || config_word_in(config_rows[MX_KEY_dpo_algo].now, loss);
}

static void check_loss_weights(ConfigLoad *load, const MxConfig *c) {
    const MxKey key = MX_KEY_dpo_loss_weights;
    const MxYaml *map = c->dpo_loss_weights;
    if (config_node_is_null(map)) return;
    if (map->kind != MX_YAML_MAP) {
        config_fail(load, key, "wants a weight below each name of a loss, found %s",
                    config_quote(load->arena, map));
        return;
    }
    if (map->n && c->score_head)
        config_fail(load, key, "a reward model has one loss (score_head=true)");
    for (int i = 0; i < map->n; i++) {
        const MxYamlPair *pair = &map->pair[i];
        const MxYaml *weight = pair->value;
        bool is_number = weight->kind == MX_YAML_INT || weight->kind == MX_YAML_FLOAT;
        bool is_main = !strcmp(pair->key, c->dpo_algo);
        if (!is_weighed(pair->key))
            config_report(load, pair->where,
                          "%s: unrecognized loss \"%s\", wants one of dpo.algo's, or sft",
                          mx_key_name(key), config_shorten(load->arena, pair->key));
        else if (!is_number || !(weight->number >= 0) || isinf(weight->number) ||
                 (is_main && weight->number == 0))
            config_report(load, pair->where, "%s: %s wants a number %s, found %s", mx_key_name(key),
                          pair->key, is_main ? "above 0" : "of at least 0",
                          config_quote(load->arena, weight));
        else
            continue;
        load->slots[key].is_bad = true;
    }
}

/* Reports the losses that count but do not go with what another key asks for. */
static void check_each(ConfigLoad *load, const MxConfig *c, MxKey with,
                       bool (*goes)(const char *loss), const char *why) {
    for (const char *at = config_rows[MX_KEY_dpo_algo].now; *at; at += strspn(at, " ")) {
        const char *loss = mx_arena_strndup(load->arena, at, strcspn(at, " "));
        MxKey says = strcmp(loss, c->dpo_algo) ? MX_KEY_dpo_loss_weights : MX_KEY_dpo_algo;
        if (mx_config_loss_weight(c, loss) > 0 && !goes(loss))
            config_fail(load, config_culprit(load, with, says), "%s %s", loss, why);
        at += strlen(loss);
    }
}

/* MaxText has two algorithms, each with its own formula. */
static bool is_maxtexts(const char *loss) {
    return !strcmp(loss, "dpo") || !strcmp(loss, "orpo");
}

/* A loss of sorted numbers is of no pair. */
static bool is_of_pairs(const char *loss) {
    return strcmp(loss, "aot") && strcmp(loss, "aot_unpaired");
}

static void check_losses(ConfigLoad *load, const MxConfig *c) {
    if (!GOOD(load, MX_KEY_use_dpo, MX_KEY_dpo_algo) || !c->use_dpo) return;
    check_loss_weights(load, c);
    if (!GOOD(load, MX_KEY_dpo_loss_weights)) return;
    if (GOOD(load, MX_KEY_dpo_formula) && !strcmp(c->dpo_formula, "maxtext"))
        check_each(load, c, MX_KEY_dpo_formula, is_maxtexts,
                   "has no formula of MaxText's; dpo and orpo have");
    if (GOOD(load, MX_KEY_dpo_weighting) && c->dpo_weighting)
        check_each(load, c, MX_KEY_dpo_weighting, is_of_pairs,
                   "compares sorted numbers, which belong to no pair that could be weighted "
                   "(dpo.use_weighting=true)");
}

/* What a reference that moves cannot be. */
static void check_moves(ConfigLoad *load, const MxConfig *c) {
    const MxKey key = MX_KEY_reference_sync_steps;
    if (!GOOD(load, key, MX_KEY_dpo_reference, MX_KEY_enable_lora) || !c->reference_sync_steps)
        return;
    if (strcmp(c->dpo_reference, "copy") && (c->enable_lora || strcmp(c->dpo_reference, "auto")))
        config_fail(load, config_culprit(load, key, MX_KEY_dpo_reference),
                    "only a copy can move (dpo.reference=copy)");
    if (GOOD(load, MX_KEY_pure_nnx) && !c->pure_nnx)
        config_fail(load, config_culprit(load, key, MX_KEY_pure_nnx),
                    "checkpoints in the Linen layout hold no reference, so a run could not resume "
                    "with one that has moved");
    if (GOOD(load, MX_KEY_enable_diloco) && c->enable_diloco)
        config_fail(load, config_culprit(load, key, MX_KEY_enable_diloco),
                    "a reference that moves (%s) is not available yet with replicas: each would "
                    "have its own",
                    mx_key_name(key));
}

static void check_reference(ConfigLoad *load, const MxConfig *c) {
    if (GOOD(load, MX_KEY_dpo_reference, MX_KEY_enable_lora) && !c->enable_lora &&
        !strcmp(c->dpo_reference, "lora_off"))
        config_fail(load, MX_KEY_dpo_reference, "lora_off wants lora.enable_lora=true");
    if (GOOD(load, MX_KEY_dpo_reference, MX_KEY_use_dpo) && !c->use_dpo &&
        !strcmp(c->dpo_reference, "none"))
        config_fail(load, MX_KEY_dpo_reference, "none is for use_dpo alone");
    check_moves(load, c);
    if (GOOD(load, MX_KEY_dpo_reference, MX_KEY_lora_weight_qtype) && c->enable_lora &&
        *c->lora_weight_qtype && !strcmp(c->dpo_reference, "copy"))
        config_fail(load, MX_KEY_dpo_reference,
                    "a copy is not kept in %s (lora.lora_weight_qtype); lora_off is the same model "
                    "and needs no copy",
                    c->lora_weight_qtype);
}

void config_check_preference(ConfigLoad *load, const MxConfig *c) {
    check_losses(load, c);
    check_reference(load, c);
}
