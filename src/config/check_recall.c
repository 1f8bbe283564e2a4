/* check_recall.c — checks of n-gram memories: which layers have them, and their tables. */
#include <mx/family.h>

#include "check.h"

static bool check_layers(ConfigLoad *load, const MxConfig *c) {
    const ConfigNumbers layers = {.what = "layers", .high = c->num_decoder_layers - 1};
    if (!config_check_numbers(load, MX_KEY_engram_layers, c->engram_layers, layers)) return false;
    for (int i = 0; i < c->n_recall; i++)
        for (int j = 0; j < i; j++)
            if (c->recall_layers[i] == c->recall_layers[j])
                return config_fail(load, MX_KEY_engram_layers, "has layer %lld twice",
                                   (long long)c->recall_layers[i]);
    return true;
}

/* Source: MaxText types.py. */
static void check_bases(ConfigLoad *load, const MxConfig *c) {
    const MxYaml *list = c->engram_vocab_bases;
    const ConfigNumbers rows = {.what = "rows of a table",
                                .low = 1,
                                .high = 1 << 30}; /* all rows together have 32-bit numbers */
    int64_t n = c->engram_max_ngram_size - 1;
    if (config_check_numbers(load, MX_KEY_engram_vocab_bases, list, rows) && list->n != n)
        config_fail(load,
                    config_culprit(load, MX_KEY_engram_vocab_bases, MX_KEY_engram_max_ngram_size),
                    "engram_vocab_bases has %d entries, wants %lld: one for each length from 2 to "
                    "engram_max_ngram_size %lld",
                    list->n, (long long)n, (long long)n + 1);
}

void config_check_recall(ConfigLoad *load, const MxConfig *c) {
    const MxFamily *family = mx_family_find(c->decoder_block);
    if (!family || !config_word_in(family->keys, "engram_layers") ||
        !GOOD(load, MX_KEY_engram_layers) || !check_layers(load, c) || !c->engram_layers->n)
        return;
    if (GOOD(load, MX_KEY_mhc_expansion_rate) && c->mhc_expansion_rate < 2)
        config_fail(load, config_culprit(load, MX_KEY_engram_layers, MX_KEY_mhc_expansion_rate),
                    "layers with n-gram memories (engram_layers) write a stream of several rows a "
                    "token; wants mhc_expansion_rate above 1, found %lld",
                    (long long)c->mhc_expansion_rate);
    if (GOOD(load, MX_KEY_engram_vocab_bases, MX_KEY_engram_max_ngram_size)) check_bases(load, c);
}
