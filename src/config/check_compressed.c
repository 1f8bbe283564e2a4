/* check_compressed.c — checks of compressed attention: how many tokens rows of keys stand for, and
 * sizes of heads. Source: MaxText types.py, models/deepseek4.py @e591f30c. */
#include <mx/family.h>

#include "check.h"

static bool check_ratios(ConfigLoad *load, const MxConfig *c) {
    const ConfigNumbers one_each = {.what = "ratios, one a layer",
                                    .high = CONFIG_LARGEST_SIZE,
                                    .least = (int)c->num_decoder_layers,
                                    .most = (int)c->num_decoder_layers};
    if (!config_check_numbers(load, MX_KEY_compress_ratios, c->compress_ratios, one_each))
        return false;
    int64_t pools_all = 0;
    for (int i = 0; i < c->num_decoder_layers; i++) {
        int64_t ratio = c->layer_ratios[i];
        if (ratio && ratio < MX_WINDOWS_CHOSEN_RATIO)
            return config_fail(load, MX_KEY_compress_ratios,
                               "layer %d has %lld; wants 0, or %d and more", i, (long long)ratio,
                               MX_WINDOWS_CHOSEN_RATIO);
        if (ratio <= MX_WINDOWS_CHOSEN_RATIO) continue;
        if (pools_all && ratio != pools_all)
            return config_fail(
                load, MX_KEY_compress_ratios,
                "not available yet: layer %d has %lld, one before it %lld; wants one "
                "number above %d in all layers",
                i, (long long)ratio, (long long)pools_all, MX_WINDOWS_CHOSEN_RATIO);
        pools_all = ratio;
    }
    return true;
}

/* MaxText's stacked layers are of these two kinds whatever the list says, and an odd last one is
 * left out. */
static void check_stacked(ConfigLoad *load, const MxConfig *c) {
    static const int64_t block[] = {128, MX_WINDOWS_CHOSEN_RATIO};
    int64_t n = c->num_decoder_layers - c->first_num_hash_layers;
    if (!GOOD(load, MX_KEY_scan_layers, MX_KEY_first_num_hash_layers) || !c->scan_layers) return;
    bool fits = n <= 0 || n % 2 == 0;
    for (int64_t i = 0; i < n; i++)
        fits = fits && c->layer_ratios[c->first_num_hash_layers + i] == block[i % 2];
    if (!fits)
        config_fail(load, config_culprit(load, MX_KEY_compress_ratios, MX_KEY_scan_layers),
                    "behind first_num_hash_layers (%lld) layers are stacked in pairs with "
                    "compress_ratios 128 and 4; wants these, or scan_layers=false",
                    (long long)c->first_num_hash_layers);
}

static void check_sizes(ConfigLoad *load, const MxConfig *c) {
    const struct {
        MxKey key;
        int64_t value;
        bool is_wrong;
        const char *wanted;
    } sizes[] = {
        {MX_KEY_base_num_kv_heads, c->num_kv_heads, c->num_kv_heads != 1, "wants 1"},
        {MX_KEY_q_lora_rank, c->q_lora_rank, c->q_lora_rank < 1, "wants at least 1"},
        {MX_KEY_o_lora_rank, c->o_lora_rank, c->o_lora_rank < 1, "wants at least 1"},
        {MX_KEY_o_groups, c->o_groups,
         c->o_groups < 1 || c->num_query_heads * c->head_dim % c->o_groups,
         "wants a divisor of base_num_query_heads times head_dim"},
        {MX_KEY_qk_rope_head_dim, c->qk_rope_head_dim,
         c->qk_rope_head_dim % 2 || c->qk_rope_head_dim > c->head_dim,
         "wants pairs, and no more than head_dim"},
        {MX_KEY_indexer_head_dim, c->indexer_head_dim, c->indexer_head_dim < c->qk_rope_head_dim,
         "wants at least qk_rope_head_dim"},
        {MX_KEY_sliding_window_size, c->sliding_window_size, c->sliding_window_size < 1,
         "wants at least 1"},
    };
    for (int i = 0; i < MX_COUNT(sizes); i++)
        if (sizes[i].is_wrong && GOOD(load, sizes[i].key))
            config_fail(load, sizes[i].key, "%lld, but layers of %s have compressed attention; %s",
                        (long long)sizes[i].value, c->decoder_block, sizes[i].wanted);
}

void config_check_compressed(ConfigLoad *load, const MxConfig *c) {
    const MxFamily *family = mx_family_find(c->decoder_block);
    if (!family || !mx_family_has(family, MX_BLOCK_COMPRESSED)) return;
    if (GOOD(load, MX_KEY_compress_ratios, MX_KEY_base_num_decoder_layers) && check_ratios(load, c))
        check_stacked(load, c);
    check_sizes(load, c);
    if (GOOD(load, MX_KEY_mtp_num_layers) && c->mtp_num_layers > 0)
        config_fail(load, MX_KEY_mtp_num_layers, "%lld, but %s cannot look ahead; wants 0",
                    (long long)c->mtp_num_layers, c->decoder_block);
}
