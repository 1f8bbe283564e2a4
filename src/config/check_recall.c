/* check_recall.c — checks of n-gram memories: which layers have them, and their tables. */
#include <mx/family.h>

#include "check.h"

/* A key's list of whole numbers; false after an error. */
static bool check_numbers(ConfigLoad *load, MxKey key, const MxYaml *list, int64_t low,
                          int64_t high, const char *what) {
    if (list->kind != MX_YAML_LIST)
        return config_fail(load, key, "wants a list of %s, found %s", what,
                           config_quote(load->arena, list));
    for (int i = 0; i < list->n; i++) {
        const MxYaml *item = list->item[i];
        if (item->kind != MX_YAML_INT || item->integer < low || item->integer > high)
            return config_fail(load, key, "wants %s from %lld to %lld, found %s", what,
                               (long long)low, (long long)high, config_quote(load->arena, item));
    }
    return true;
}

static bool check_layers(ConfigLoad *load, const MxConfig *c) {
    const MxYaml *list = c->engram_layers;
    if (!check_numbers(load, MX_KEY_engram_layers, list, 0, c->num_decoder_layers - 1, "layers"))
        return false;
    for (int i = 0; i < list->n; i++)
        for (int j = 0; j < i; j++)
            if (list->item[i]->integer == list->item[j]->integer)
                return config_fail(load, MX_KEY_engram_layers, "has layer %lld twice",
                                   (long long)list->item[i]->integer);
    return true;
}

/* Source: MaxText types.py. */
static void check_bases(ConfigLoad *load, const MxConfig *c) {
    const int64_t most = (int64_t)1 << 30; /* all rows together have 32-bit numbers */
    const MxYaml *list = c->engram_vocab_bases;
    int64_t n = c->engram_max_ngram_size - 1;
    if (check_numbers(load, MX_KEY_engram_vocab_bases, list, 1, most, "rows of a table") &&
        list->n != n)
        config_fail(load,
                    config_culprit(load, MX_KEY_engram_vocab_bases, MX_KEY_engram_max_ngram_size),
                    "engram_vocab_bases has %d entries, wants %lld: one for each length from 2 to "
                    "engram_max_ngram_size %lld",
                    list->n, (long long)n, (long long)n + 1);
}

void config_check_recall(ConfigLoad *load, const MxConfig *c) {
    const MxFamily *family = mx_family_find(c->decoder_block);
    if (!family || !family->has_streams || !GOOD(load, MX_KEY_engram_layers) ||
        !check_layers(load, c) || !c->engram_layers->n)
        return;
    if (GOOD(load, MX_KEY_mhc_expansion_rate) && c->mhc_expansion_rate < 2)
        config_fail(load, config_culprit(load, MX_KEY_engram_layers, MX_KEY_mhc_expansion_rate),
                    "layers with n-gram memories (engram_layers) write a stream of several rows a "
                    "token; wants mhc_expansion_rate above 1, found %lld",
                    (long long)c->mhc_expansion_rate);
    if (c->pipeline_stages > 1)
        config_fail(load, MX_KEY_engram_layers, "not available yet in a pipeline");
    if (GOOD(load, MX_KEY_engram_vocab_bases, MX_KEY_engram_max_ngram_size)) check_bases(load, c);
}
